"""What a run holds for the data holder alone, so that a report can be made from runs: beside every explanation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from cfk_plugin import __version__
from cfk_plugin.data.provenance import environment_of
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.record import RunRecord, recount_table
from cfk_plugin.records.tally import Tally
from cfk_plugin.release.explanations import ResultContext
from cfk_plugin.release.results import Suppressed
from prototyped import prototypes
from spooled import explanations, kept, released

COLUMNS = [
    *("step", "k_desired", "k_consistent", "k_effective", "k_private", "private_matches", "l", "t", "disclosure"),
    *("journalist_risk", "majority", "finding", "refused_k", "ledger", "k_intersection", "seconds", "group"),
    *("ncp.age", "ncp.city"),
]
POPULATION = {
    "schema_version": 1,
    "people": 331,
    "attributes": [{"name": n, "role": r} for n, r in (("age", "quasi-identifier"), ("city", "quasi-identifier"))],
}
ABOUT = ResultContext(POPULATION, {**environment_of(seed=3), "generator": "dice"}, seconds=0.25)
FULL: dict[str, Any] = {
    "k_effective": 6,
    "l": 2,
    "t": 0.25,
    "disclosure": 0.5,
    "journalist_risk": 0.01,
    "ncp_parts": (0.5, 0.0),
    "ledger": "earlier",
    "k_intersection": 11,
}


def measured(*entries: Any, **settings: Any) -> Any:
    return explanations(
        *(entries or (released(0, **FULL), Suppressed(1, "verification_failed", refused_k=3), released(2, k=10))),
        **{"about": ABOUT, "findings": ["native", None, "synthetic"], "n_people": 331, **settings},
    )


def files_of(run_id: str, folder: Path) -> Path:
    import mlflow

    return Path(mlflow.MlflowClient().download_artifacts(run_id, "cfk", str(folder)))


def metrics_of(run_id: str) -> dict[str, float]:
    import mlflow

    return dict(mlflow.get_run(run_id).data.metrics)


def test_a_row_beside_every_explanation(mlflow_store: str, tmp_path: Path) -> None:
    cfk = files_of(measured(about=ABOUT).log(), tmp_path)
    (part,), (beside,) = (sorted((cfk / name).iterdir()) for name in ("explanations", "recount"))
    assert part.name == beside.name
    assert pq.read_schema(beside).names == COLUMNS
    rows = pd.read_parquet(beside)
    assert rows["step"].tolist() == pd.read_parquet(part)["step"].tolist() == [0, 1, 2]
    first = rows.loc[0].drop(["group", "refused_k"]).to_dict()
    assert first == {
        "step": 0,
        "k_desired": 4,
        "k_consistent": 3,
        "k_private": 1,
        "private_matches": 1,
        "majority": True,
        **{name: value for name, value in FULL.items() if name != "ncp_parts"},
        "finding": "native",
        "seconds": 0.25,
        "ncp.age": 0.5,
        "ncp.city": 0.0,
    }
    assert rows["refused_k"].fillna(-1).tolist() == [-1, 3, -1]
    assert rows.loc[1].drop(["step", "seconds", "refused_k"]).isna().all()
    assert rows.loc[2, ["ledger", "ncp.age", "t", "k_intersection"]].isna().all()


def test_what_a_ledger_refused_is_said() -> None:
    (record,) = [measured(Suppressed(0, "intersection"), findings=["native"]).to_record()]
    table = recount_table([record])
    assert table is not None
    assert (table["ledger"].to_pylist(), table["finding"].to_pylist()) == (["refused"], ["native"])


def test_rows_without_any_region_have_the_same_columns() -> None:
    table = recount_table([measured(Suppressed(0, "infeasible"), findings=None).to_record()])
    assert table is not None
    assert table.schema.names == COLUMNS


def test_steps_are_those_of_the_run(mlflow_store: str, tmp_path: Path) -> None:
    run_id = RunLogger().log(measured())
    RunLogger(run_id).log(measured())
    parts = sorted((files_of(run_id, tmp_path) / "recount").iterdir())
    assert [pd.read_parquet(part)["step"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]


def of_before(record: RunRecord) -> RunRecord:
    """Return a record as it was kept by a version that knew of no recount."""
    known = json.loads(record.to_json())
    for name in ("recount", "quasi_identifiers", "people", "population", "environment"):
        del known[name]
    return RunRecord.from_json(json.dumps(known))


def test_records_of_before_are_logged_as_they_are(mlflow_store: str, tmp_path: Path) -> None:
    from cfk_plugin.records.run import RunTarget, RunWriter

    old, new = of_before(measured().to_record()), measured().to_record()
    assert recount_table([old]) is None
    cfk = files_of(RunWriter(RunTarget()).write([old]), tmp_path / "old")
    assert sorted(path.name for path in cfk.iterdir()) == ["explanations", "policy.json"]
    run = RunWriter(RunTarget())
    run_id = run.write([old, new])
    cfk = files_of(run_id, tmp_path / "both")
    (part,) = (cfk / "recount").iterdir()
    assert pd.read_parquet(part)["k_desired"].fillna(-1).tolist() == [-1, -1, -1, 4, -1, 4]
    assert "cfk.cm" not in metrics_of(run_id), "of the first region nothing is known"


def test_what_a_run_says_once(mlflow_store: str, tmp_path: Path) -> None:
    run_id = measured().log(model="models:/credit/3")
    cfk = files_of(run_id, tmp_path)
    assert json.loads((cfk / "population.json").read_text("utf-8")) == POPULATION
    environment = json.loads((cfk / "environment.json").read_text("utf-8"))
    assert environment["packages"].pop("cfk_plugin") == __version__
    assert {"numpy", "pandas", "scikit-learn", "mlflow"} <= set(environment.pop("packages"))
    assert environment == {
        "python": ".".join(map(str, sys.version_info[:3])),
        "plugins": [],
        "seed": 3,
        "ledger": "none",
        "reference_population": False,
        "generator": "dice",
        "model": "models:/credit/3",
    }


def test_it_is_kept_once_and_comes_later_where_it_is_not_there(mlflow_store: str, tmp_path: Path, spool: Path) -> None:
    run_id = explanations().log()
    assert sorted(p.name for p in files_of(run_id, tmp_path / "without").iterdir() if p.is_file()) == ["policy.json"]
    logger = RunLogger(run_id, tracking_uri="http://127.0.0.1:9", timeout=0.1)
    logger.submit(measured())
    logger.submit(measured())
    assert [record.population is None for record in kept(spool)] == [False, True]
    RunLogger(run_id).log(measured())
    other = ResultContext({**POPULATION, "people": 12}, ABOUT.environment)
    RunLogger(run_id).log(measured(about=other))
    cfk = files_of(run_id, tmp_path / "later")
    assert json.loads((cfk / "population.json").read_text("utf-8"))["people"] == 331


def test_groups_are_a_column_and_a_parameter(mlflow_store: str, tmp_path: Path) -> None:
    import mlflow

    run_id = measured().by_group("sex", ["f", "m", None]).log()
    assert mlflow.get_run(run_id).data.params["cfk.groups"] == "sex"
    (part,) = (files_of(run_id, tmp_path) / "recount").iterdir()
    assert pd.read_parquet(part)["group"].tolist() == ["f", "m", "missing"]


def test_of_prototypes_nothing_counted_is_held(mlflow_store: str, tmp_path: Path) -> None:
    rows = prototypes().by_group("sex", ["f", "m", "f"]).to_record().recount
    assert rows == [{"group": "f"}, {"group": "m"}, {"group": "f"}]
    run_id = prototypes().by_group("sex", ["f", "m", "f"]).log()
    (part,) = (files_of(run_id, tmp_path) / "recount").iterdir()
    frame = pd.read_parquet(part)
    assert frame.drop(columns=["step", "group"]).isna().all(axis=None)
    assert not {"cfk.cdm", "cfk.cm", "cfk.optimal_rate"} & set(metrics_of(run_id))


SUMMARY = {
    "k_consistent_min": "k_consistent.min",
    "k_private_min": "k_private.min",
    "cdm": "cdm",
    "cm": "cm",
    "optimal_rate": "optimal_rate",
    "prosecutor_risk_max": "prosecutor_risk.max",
    "marketer_risk": "marketer_risk",
}


def test_the_summary_of_a_run_goes_on(mlflow_store: str) -> None:
    known = {"l": 4, "t": 0.5, "disclosure": 0.125, "k_private": 2}
    one = released(0, k=5, **known, prosecutor_risk=1 / 5)
    two = released(0, k=10, **known | {"l": 3, "t": 0.75}, majority=False, optimal=False, prosecutor_risk=1 / 10)
    three = released(1, k=20, **known, k_consistent=2, prosecutor_risk=1 / 20)
    result = measured(one, Suppressed(1, "infeasible"), two, three, findings=None)
    run_id = RunLogger().log(result[:2])
    assert metrics_of(run_id)["cfk.cdm"] == 5 + 331
    for at in (2, 3):
        RunLogger(run_id).log(result[at : at + 1])
    metrics, summary = metrics_of(run_id), result.summary()
    for name, logged in SUMMARY.items():
        assert metrics[f"cfk.{logged}"] == pytest.approx(summary[name]), name
    assert metrics["cfk.cdm"] == 35 + 331
    assert (metrics["cfk.l.min"], metrics["cfk.t.max"], metrics["cfk.disclosure.max"]) == (3, 0.75, 0.125)


def test_a_figure_that_is_not_known_of_all_is_left_out(mlflow_store: str) -> None:
    run_id = RunLogger().log(measured(released(0, majority=None), findings=None))
    RunLogger(run_id).log(measured(released(0), findings=None))
    metrics = metrics_of(run_id)
    assert "cfk.cm" not in metrics
    assert metrics["cfk.optimal_rate"] == 1
    assert not {"cfk.l.min", "cfk.t.max", "cfk.disclosure.max"} & set(metrics)
    unknown = RunLogger().log(measured(released(0), Suppressed(1, "infeasible"), findings=None, n_people=0)[:2])
    RunLogger(unknown).log(measured(released(0), findings=None))
    assert "cfk.cdm" not in metrics_of(unknown)


def test_a_tally_says_the_same_in_one_go() -> None:
    records = [measured().to_record(), measured(released(0, k=7, l=9), findings=None).to_record()]
    together, apart = Tally().plus(records).metrics, Tally().plus(records[:1]).plus(records[1:]).metrics
    assert together == pytest.approx(apart)
    assert together["cfk.l.min"] == 2
