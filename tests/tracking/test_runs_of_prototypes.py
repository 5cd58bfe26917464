"""Runs of prototypes: what is guaranteed, what was spent, and nothing that was computed from the
exact table.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from cfk_plugin import Withheld
from cfk_plugin.errors import TrackingError, UntrackedWarning
from cfk_plugin.tracking.logger import RunLogger, observe
from parts import figures_of, lines_of, table_of
from prototyped import FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from tracked import explanations, journaled


def data_of(run_id: str | None) -> Any:
    assert run_id is not None
    return mlflow.get_run(run_id).data


def tags_of(run_id: str | None) -> dict[str, str]:
    return {name: value for name, value in data_of(run_id).tags.items() if name.startswith("cfk.")}


def parts_of(run_id: str, kind: str = "explanations") -> list[Path]:
    return sorted(
        Path(
            mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="cfk"), kind
        ).iterdir()
    )


def test_a_run_says_what_is_guaranteed_and_spent(mlflow_store: str) -> None:
    run_id = prototypes(plugins="dp 0.1.0").log()
    assert data_of(run_id).params == {
        "cfk.guarantee": "dp-pure",
        "cfk.method": "dp",
        "cfk.generator": "dp",
        "cfk.epsilon": "1.0",
        "cfk.delta": "0.0",
    }
    assert data_of(run_id).metrics == {
        "cfk.asked": 3,
        "cfk.released": 2,
        "cfk.withheld_rate": pytest.approx(1 / 3),
        "cfk.untracked": 0,
        "cfk.epsilon_spent": 1.0,
    }
    known = {name: value for name, value in figures_of(run_id).items() if value is not None}
    assert known == {
        "asked": 3,
        "released": 2,
        "withheld": 1,
        "already_desired": 0,
        "withheld_rate": pytest.approx(1 / 3),
        "released_native": 0,
        "examined": 0,
        "untracked": 0,
        "prototypes": 2,
        "unproven": 0,
        "epsilon_spent": 1.0,
    }
    tags = tags_of(run_id)
    assert len(tags.pop("cfk.job")) == 16
    (record,) = (name for name in tags if name.startswith("cfk.record."))
    assert tags.pop(record) == "3"
    assert tags == {
        "cfk.schema_version": "1",
        "cfk.policy_sha256": policy().sha256,
        "cfk.plugins": "dp 0.1.0",
        "cfk.verdict": "pass",
        "cfk.dp.guarantee": "pure",
        "cfk.dp.model_access": "public",
        "cfk.dp.covers": certificate().covers,
        "cfk.dp.fit": "9f2c9f2c9f2c9f2c",
    }
    loose = certificate(guarantee="approximate", delta=1e-6)
    params = data_of(prototypes(prototype(0, of=loose), under=policy(delta=1e-6)).log()).params
    assert (params["cfk.guarantee"], params["cfk.delta"]) == ("dp-approximate", "1e-06")


@pytest.mark.parametrize("seeded", [False, True])
def test_a_claim_asks_for_review(seeded: bool, mlflow_store: str) -> None:
    claimed = prototypes(prototype(0, of=certificate(guarantee="none", seeded=True)))
    run_id = (claimed if seeded else unproven()).log()
    data, tags = data_of(run_id), tags_of(run_id)
    assert tags["cfk.verdict"] == "review"
    assert tags["cfk.dp.guarantee"] == "no guarantee; see audit"
    assert tags["cfk.dp.covers"] == "nothing is guaranteed; see audit"
    assert data.params["cfk.guarantee"] == "none"
    figures = figures_of(run_id)
    assert (figures["prototypes"], figures["unproven"]) == (1, 1)
    assert figures["epsilon_spent"] is None


def test_no_fingerprint_of_the_population_is_logged_anywhere(
    mlflow_store: str, tmp_path: Path
) -> None:
    logger = RunLogger()
    observe(prototypes(), logger)
    observe(prototypes(), logger)
    assert figures_of(logger.run_id)["prototypes"] == 4
    prototypes().log()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".jsonl.gz") for path in files)
    contents = {path: path.read_bytes() for path in files}
    contents |= {
        path: gzip.decompress(packed) for path, packed in contents.items() if path.suffix == ".gz"
    }
    assert not [path.name for path, content in contents.items() if FINGERPRINT.encode() in content]


def test_rows_hold_no_value_of_a_prototype(mlflow_store: str) -> None:
    run_id = prototypes().by_group("sex", ["f", "m", "f"]).log()
    (part,), (beside,) = parts_of(run_id), parts_of(run_id, "recount")
    rows = table_of(part)
    assert rows["step"].tolist() == [0, 1, 2]
    assert json.loads(rows["prototype"][0]) == {}  # it is near to the person who asked
    assert json.loads(rows["certificate"][0]) == certificate().to_dict()
    assert rows["feature.city"].isna().all()
    assert rows["reason"].fillna("").tolist() == ["", "none_found", ""]
    assert rows["epsilon"].tolist()[::2] == [1.0, 1.0]
    assert rows["guarantee"].tolist()[::2] == ["pure", "pure"]
    assert rows[["k", "ncp", "pureness", "region", "released", "population"]].isna().all(axis=None)
    assert json.loads((part.parents[1] / "policy.json").read_text()) == policy().to_dict()
    recounted = table_of(beside)
    assert recounted["group"].tolist() == ["f", "m", "f"]
    assert recounted.drop(columns=["step", "group"]).isna().all(axis=None)


def test_rows_of_both_kinds_are_read_as_one_table(mlflow_store: str) -> None:
    (old,), (new,) = parts_of(explanations().log()), parts_of(prototypes().log())
    before = list(lines_of(old)[0])
    after = list(lines_of(new)[0])
    assert after[: len(before)] == before
    assert set(after) - set(before) == {"epsilon", "delta", "prototype", "certificate"}
    assert [row["k"] for row in lines_of(old) + lines_of(new)] == [5, None, 9, None, None, None]


def test_a_run_goes_on_over_calls_and_loggers(mlflow_store: str) -> None:
    run_id = RunLogger().log(prototypes())
    RunLogger(run_id).log(prototypes(prototype(0), epsilon_spent="2.5"))
    figures = figures_of(run_id)
    assert (figures["asked"], figures["prototypes"], figures["epsilon_spent"]) == (4, 3, 2.5)
    assert tags_of(run_id)["cfk.verdict"] == "pass"
    assert not mlflow.MlflowClient().get_metric_history(run_id, "cfk.k")
    claimed = RunLogger().log(unproven())
    RunLogger(claimed).log(unproven(Withheld(0, "none_found")))
    assert figures_of(claimed)["unproven"] == 1
    assert tags_of(claimed)["cfk.verdict"] == "review"


def test_nothing_released_asks_for_review_and_takes_any_guarantee_after(mlflow_store: str) -> None:
    run_id = prototypes(Withheld(0, "none_found")).log()
    assert tags_of(run_id)["cfk.verdict"] == "review"
    assert "cfk.guarantee" not in data_of(run_id).params
    RunLogger(run_id).log(prototypes())
    assert data_of(run_id).params["cfk.guarantee"] == "dp-pure"
    with pytest.raises(TrackingError, match=r"another cfk\.guarantee"):
        RunLogger(run_id).log(
            prototypes(prototype(0, of=certificate(guarantee="none", seeded=True)))
        )


@pytest.mark.parametrize(
    ("first", "other"), [(explanations, prototypes), (prototypes, explanations)]
)
def test_regions_and_prototypes_need_runs_of_their_own(
    first: Any, other: Any, mlflow_store: str
) -> None:
    with pytest.raises(TrackingError, match="give each setting its own run"):
        other().log(run_id=first().log())


def test_a_record_in_a_journal_says_the_same_when_read_back(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", journal=journal)
    with pytest.warns(UntrackedWarning):
        logger.submit(prototypes())
    (record,) = journaled(journal)
    assert record.of_prototypes
    assert [row["epsilon"] for row in record.prototypes] == [1.0, 1.0]
    assert record.generalized == []
