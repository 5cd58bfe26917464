"""What made the runs, the spool and the files of explanations beside it, with the version of then; kept to be read.

Was run once, in an empty folder, with ``CFK_KEY=stored-for-tests``: never run it again to mend a test.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, PrivacyReport, RunLogger, Schema
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.record import Record
from cfk_plugin.records.spool import Spool, SpoolSettings
from cfk_plugin.release.results import PrototypeCertificate, PrototypeCounterfactual, PrototypePolicy, Suppressed

SCHEMA = {
    "quasi_identifiers": ["age", "city"],
    "sensitive": ["job"],
    "target": "outcome",
    "bins": {"salary": [20, 40, 60, 90, 120]},
    "hierarchies": {"city": {"Ghent": ["East"], "Aalst": ["East"], "Bruges": ["West"]}},
}


def people() -> pd.DataFrame:
    random = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 60, 90),
            "city": random.choice(["Ghent", "Aalst", "Bruges"], 90),
            "salary": random.integers(20, 120, 90),
            "job": random.choice(["clerk", "cook", "smith"], 90),
        }
    )
    return frame.assign(outcome=(frame["salary"] > 50).astype(int))


def regions(population: Population, frame: pd.DataFrame) -> tuple[Explanations, Explanations]:
    """Return two releases under one policy: with groups and suppressed entries, and without."""
    policy = PrivacyPolicy(k=5, guarantee="nominal", private_values="bins", rare_values="withhold", l=2, t=0.9)
    anonymizer = KAnonymizer(policy=policy, ledger=Ledger("sqlite:///ledger.db", create=True))
    anonymizer.fit(population, lambda rows: (rows["salary"] > 50).astype(int).to_numpy(), desired=1)
    raw = frame.drop(columns="outcome").iloc[[0, 1, 2, 3, 4, 5]].copy()
    raw.loc[raw.index[1], "salary"] = 21  # not the desired outcome
    raw.loc[raw.index[2:], "salary"] = [64, 88, 101, 75]
    first = anonymizer.transform(raw).by_group("sex", ["f", "m", "f", None, "m", "f"])
    return first, anonymizer.transform(raw.iloc[[2, 4]].assign(age=[31, 45])).by_group("sex", ["m", "f"])


def prototypes() -> Explanations:
    certificate = PrototypeCertificate(
        guarantee="approximate",
        epsilon=1.0,
        delta=1e-7,
        unit="one person",
        neighbours="tables that differ by one person, added or removed",
        mechanism="discrete Gaussian, zero-concentrated, OpenDP 0.16.0",
        model_access="public",
        fit="9f2c9f2c9f2c9f2c",
    )
    rows: list[dict[str, Any]] = [
        {"age": 31, "city": "Ghent", "salary": 52, "job": "cook"},
        {"age": 44, "city": "Aalst", "salary": 70, "job": "smith"},
    ]
    return Explanations(
        [
            PrototypeCounterfactual(0, rows[0], certificate),
            Suppressed(1, "none_found"),
            PrototypeCounterfactual(2, rows[1], certificate),
        ],
        policy=PrototypePolicy(method="dp", epsilon=1.0, delta=1e-7, model_access="public"),
        columns=["age", "city", "salary", "job"],
        provenance={"method": "dp", "generator": "dp", "epsilon": "1.0", "epsilon_spent": "1.0", "plugins": "dp 0.1"},
    ).by_group("sex", ["f", "m", "f"])


def store(run_id: str, folder: Path) -> None:
    """Keep what a run holds: every value of every metric, parameters, our tags, and the files."""
    client = mlflow.MlflowClient()
    data = client.get_run(run_id).data
    each = [m for key in data.metrics for m in client.get_metric_history(run_id, key)]
    metrics = [[m.key, m.value, m.timestamp, m.step] for m in each]
    client.download_artifacts(run_id, "cfk", str(folder))
    said = {
        "metrics": metrics,
        "params": data.params,
        "tags": {name: value for name, value in data.tags.items() if name.startswith("cfk.")},
    }
    (folder / "run.json").write_text(json.dumps(said), encoding="utf-8")


def report_of(runs: Sequence[str]) -> None:
    """Keep the figures of the runs' report."""
    said = json.loads(PrivacyReport.of_runs(runs).to_json())
    parts = ("population", "releases", "metrics", "distributions", "groups", "dp")
    found = {name: said[name] for name in parts} | {"checks": {each["id"]: each["status"] for each in said["checks"]}}
    Path("report.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def spool_of(first: Explanations, second: Explanations) -> None:
    """Keep records that wait: one batch that was on its way, one behind it, and another stream's."""
    spool = Spool(SpoolSettings(Path("spool")), "elsewhere:1:1")
    made: dict[str, Any] = {"run_id": None, "tracking_uri": None, "experiment": "stored", "run_name": None}
    made |= {"parent": None, "tags": {"team": "credit"}, "timeout": 2.0}
    spool.append("aaaaaaaaaaaaaaaa", made, None, replace(Record.of(first), untracked=2))
    (stream,) = spool.hold()
    spool.batch(stream)  # its holder ended before it was sent
    spool.append("aaaaaaaaaaaaaaaa", made, None, replace(Record.of(second), population=None, environment=None))
    spool.append("bbbbbbbbbbbbbbbb", made, None, Record.of(prototypes()))
    spool.failed(stream, "the MLflow tracking server does not answer")
    spool.close()
    db = sqlite3.connect("spool/spool.db", isolation_level=None)
    db.execute("UPDATE streams SET until = 0")
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()


def main() -> None:
    if os.environ.get("CFK_KEY") != "stored-for-tests" or list(Path().iterdir()):
        raise SystemExit("set CFK_KEY, and start in an empty folder")
    os.environ["CFK_SPOOL"] = "unused"
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    frame = people()
    population = Population.from_frame(frame, Schema.from_frame(frame, **SCHEMA))
    first, second = regions(population, frame)
    Path("files").mkdir()
    frame.to_csv("files/train.csv", index=False)
    Path("files/schema.json").write_text(json.dumps(SCHEMA, indent=1), encoding="utf-8")
    for name, result in (("regions", first), ("prototypes", prototypes())):
        Path(f"files/{name}.json").write_text(result.to_json(indent=1), encoding="utf-8")
        result.to_frame().to_parquet(f"files/{name}.parquet", index=False)
    logger = RunLogger(run_name="regions", model="models:/credit/3")
    one = logger.log(first)
    logger.log(second)
    other = RunLogger(run_name="prototypes").log(prototypes())
    for name, run_id in (("regions", one), ("prototypes", other)):
        Path(name).mkdir()
        store(run_id, Path(name))
    report_of([one, other])
    spool_of(first, second)


if __name__ == "__main__":
    main()
