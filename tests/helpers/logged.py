"""Runs to be read: explanations of chosen times, a recount beside them, and audits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import RunTarget, RunWriter
from spooled import explanations


def at(day: str) -> int:
    """Return a time in UTC as milliseconds since 1970."""
    return round(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def made(day: str, *entries: Any, of: Any = explanations, **options: Any) -> RunRecord:
    """Return explanations as they are logged, made at a time of choice."""
    return replace(of(*entries, **options).to_record(), created=at(day))


def log(records: Sequence[RunRecord], *, uri: str | None = None, start: str | None = None, **of_run: Any) -> str:
    """Log records one after the other, as a logger does, to a new run or the one that `run_id` names."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    run_id, name = of_run.pop("run_id", None), of_run.pop("experiment", "tests")
    if run_id is None:
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        started = None if start is None else at(start)
        run_id = client.create_run(experiment, start_time=started, **of_run).info.run_id
    run = RunWriter(RunTarget(run_id, uri))
    for record in records:
        run.write([record])
    return str(run_id)


def log_file(run_id: str, path: str, content: bytes | pd.DataFrame, uri: str | None = None) -> None:
    """Put a file into a run."""
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / Path(path).name
        if isinstance(content, bytes):
            local.write_bytes(content)
        else:
            content.to_parquet(local, index=False)
        mlflow.MlflowClient(tracking_uri=uri).log_artifact(run_id, str(local), str(Path(path).parent))


def log_json(run_id: str, path: str, content: Mapping[str, Any], uri: str | None = None) -> None:
    log_file(run_id, path, json.dumps(content).encode(), uri)


def part(record: RunRecord) -> str:
    """Return the name of the file that a record was logged to."""
    return f"part-{record.created:013d}-{record.id}.parquet"


def without_recount(record: RunRecord) -> None:
    """Take away what the local store holds beside the rows of a record, as if an older version had logged it."""
    for path in Path("artifacts").glob(f"*/artifacts/cfk/recount/{part(record)}"):
        path.unlink()
