"""Make everything in the folder ``runs`` beside this script anew, with the code as it is.

Run: python tests/stored/make_runs.py

Run it again whenever a format changes, and commit the folder with the change. It needs no
arguments and no server: it logs to a store of MLflow in a temporary folder. It takes what the
random and the clock decide (ids, times, durations) from constants, so that a second run changes
nothing but versions of libraries, which runs record, and bookkeeping of SQLite.

``regions`` and ``prototypes``
    What MLflow holds of a run of each kind. The run of regions was logged in two calls.
``report.json``
    What a report says of both runs.
``spool``
    A spool with the same explanations, whose process ended while its first batch was on its way.
``files``
    The explanations as files, and the table and the schema to verify them with.

`tests/records/test_stored_runs.py` reads the result. It tells whether what a commit has written
can be read by the next one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from cfk_plugin import Explanations, Population, PrivacyPolicy, PrivacyReport, Schema, protect
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import RunTarget, RunWriter
from cfk_plugin.records.spool import Spool, SpoolSettings
from cfk_plugin.release.results import (
    PrototypeCertificate,
    PrototypeCounterfactual,
    PrototypePolicy,
    Withheld,
)

FOLDER = Path(__file__).parent / "runs"
KEY = "stored-for-tests"
K = 5
UNTRACKED = 2  # explanations that the spool's process released without a record
NOON = 1_795_348_800_000  # 2026-11-22T12:00Z in milliseconds since 1970
HOUR = 3_600_000
COMPARED = ("population", "releases", "metrics", "distributions", "groups", "dp")
"""Parts of a report that do not depend on ids of runs and on the day."""

CITIES = {"Ghent": ["East"], "Aalst": ["East"], "Bruges": ["West"]}
DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "city"],
    "sensitive": ["job"],
    "target": "outcome",
    "hierarchies": {"city": CITIES},
    "bins": {"salary": [20, 40, 60, 90, 120]},
}
FEATURES = ["age", "city", "salary", "job"]


def people() -> pd.DataFrame:
    """Return 90 made-up people and what was decided about them."""
    draw = np.random.default_rng(7)
    table = pd.DataFrame(
        {
            "age": draw.integers(20, 62, 90),
            "city": draw.choice(list(CITIES), 90),
            "salary": draw.integers(20, 121, 90),
            "job": draw.choice(["clerk", "cook", "smith"], 90),
        }
    )
    return table.assign(outcome=model(table))


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["salary"] >= 50).to_numpy().astype(int)


def regions(table: pd.DataFrame) -> tuple[Explanations, Explanations]:
    """Return what two calls released: of copies of rows, of rows that nobody has, and of one that
    does not have the outcome.
    """
    accepted = table[table["outcome"] == 1][FEATURES].reset_index(drop=True)
    answers = pd.concat([accepted.head(6), accepted.tail(2)], ignore_index=True)
    answers.loc[1, "salary"] = 30
    answers.loc[2, "salary"] += 1
    answers.loc[3, ["age", "job"]] = [41, "smith"]
    answers.loc[4, "age"] += 1
    queries = answers.assign(salary=[31, 35, 22, 28, 40, 33, 25, 44])
    queries["sex"] = ["f", "m", "f", "m", None, "f", "m", "f"]

    def nearest(asked: pd.DataFrame) -> pd.DataFrame:
        return answers.loc[asked.index]

    schema = Schema.from_frame(table, **DECLARED)
    policy = PrivacyPolicy(k=K, guarantee="lookup", objective="pureness", l=2, t=0.9)
    private = protect(
        nearest,
        model=model,
        population=Population.from_frame(table, schema, key=KEY.encode()),
        policy=policy,
        desired=1,
        groups="sex",
    )
    return private.explain(queries.head(6)), private.explain(queries.tail(2))


def prototypes() -> Explanations:
    """Return two prototypes and a query without one, as a differentially private protector gives
    them.
    """
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
    first = {"age": 31, "city": "Ghent", "salary": 52, "job": "cook"}
    last = {"age": 44, "city": "Aalst", "salary": 70, "job": "smith"}
    found = Explanations(
        [
            PrototypeCounterfactual(0, first, certificate),
            Withheld(1, "none_found"),
            PrototypeCounterfactual(2, last, certificate),
        ],
        policy=PrototypePolicy(method="dp", epsilon=1.0, delta=1e-7, model_access="public"),
        columns=FEATURES,
        provenance={
            "method": "dp",
            "generator": "dp",
            "epsilon": "1.0",
            "epsilon_spent": "1.0",
            "plugins": "dp 0.1",
        },
    )
    return found.by_group("sex", ["f", "m", "f"])


def record_of(result: Explanations, number: int) -> RunRecord:
    """Return what is logged of a result, with the id, the time and the duration of its number."""
    record = result.to_record()
    recount = [{**row, "seconds": 0.01} if "seconds" in row else row for row in record.recount]
    return replace(
        record, id=f"{number:016x}", created=NOON + number * HOUR + number, recount=recount
    )


def keep_run(name: str, records: list[RunRecord], first_mark: int) -> str:
    """Log records call by call to a run, and write what the run then holds."""
    writer = RunWriter(RunTarget(), mark=f"{first_mark:016x}")
    for record in records:
        run_id = writer.write([record])
    writer.finish()
    client = mlflow.MlflowClient()
    data = client.get_run(run_id).data
    metrics = [
        [each.key, each.value, each.timestamp, each.step]
        for metric in sorted(data.metrics)
        for each in client.get_metric_history(run_id, metric)
    ]
    tags = {tag: value for tag, value in data.tags.items() if tag.startswith("cfk.")}
    kept = {"params": data.params, "tags": tags, "metrics": metrics}
    write(f"{name}/run.json", kept)
    mlflow.artifacts.download_artifacts(
        run_id=run_id, artifact_path="cfk", dst_path=str(FOLDER / name)
    )
    return run_id


def keep_report(run_ids: list[str]) -> None:
    said = json.loads(PrivacyReport.of_runs(run_ids).to_json())
    kept = {name: said[name] for name in COMPARED}
    write("report.json", {**kept, "checks": {one["id"]: one["status"] for one in said["checks"]}})


def keep_spool(of_regions: list[RunRecord], of_prototypes: RunRecord) -> None:
    """Write a spool as a process leaves it that ends before the server answers."""
    folder = FOLDER / "spool"
    spool = Spool(SpoolSettings(folder))
    target = RunTarget(experiment="stored", tags={"team": "credit"})
    first, second = of_regions
    run_of_regions = RunWriter(target, mark="a" * 16)
    spool.append(run_of_regions, first)
    outbox = spool.outbox
    assert outbox is not None
    stream = outbox.streams[run_of_regions.mark]
    outbox.batch(stream)  # now the first record is on its way, and the second one is not
    outbox.note_problem(stream, "the MLflow tracking server does not answer")
    spool.append(run_of_regions, replace(second, untracked=UNTRACKED))
    spool.append(RunWriter(target, mark="b" * 16), of_prototypes)
    spool.close()
    for number, path in enumerate(sorted(folder.glob("outbox-*/*.jsonl"))):
        mark, _ = path.stem.split("-")
        path.rename(path.with_name(f"{mark}-{NOON + number}.jsonl"))
    for path in folder.glob("outbox-*"):
        path.rename(folder / f"outbox-{NOON}-00000000")


def keep_files(table: pd.DataFrame, results: dict[str, Explanations]) -> None:
    folder = FOLDER / "files"
    folder.mkdir()
    table.to_csv(folder / "train.csv", index=False)
    write("files/schema.json", DECLARED)
    for name, result in results.items():
        (folder / f"{name}.json").write_text(result.to_json(indent=1), encoding="utf-8")


def write(name: str, content: Any) -> None:
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8")


@contextmanager
def temporary_store() -> Iterator[None]:
    """Let MLflow log to a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cfk-stored-") as folder:
        before = Path.cwd()
        os.chdir(folder)  # MLflow keeps artifacts in the working folder
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        try:
            yield
        finally:
            os.chdir(before)


def main() -> int:
    """Delete the folder and make it anew."""
    warnings.simplefilter("ignore")  # a lookup guarantee warns, and is what runs of it hold
    os.environ["CFK_KEY"] = KEY
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    table = people()
    first, second = regions(table)
    of_prototypes = prototypes()
    records = [record_of(first, 1), record_of(second, 2)]
    record_of_prototypes = record_of(of_prototypes, 3)
    with temporary_store():
        run_ids = [
            keep_run("regions", records, first_mark=1),
            keep_run("prototypes", [record_of_prototypes], first_mark=2),
        ]
        keep_report(run_ids)
    keep_spool(records, record_of_prototypes)
    keep_files(table, {"regions": first, "prototypes": of_prototypes})
    return 0


if __name__ == "__main__":
    sys.exit(main())
