"""Files of a run, its table and its figures, as tests read and write them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from cfk_plugin.tracking.tally import PLOTTED, Tally


def table_of(path: Path) -> pd.DataFrame:
    """Return the rows of a file as they were written."""
    return pd.DataFrame(**json.loads(path.read_text("utf-8")), dtype=object)


def tables_of(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the rows of several files, in the order of their names."""
    tables = [table_of(path) for path in sorted(paths)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"step": []})


def content_of(run_id: str | None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return the files of a run by name, and its rows as a list of objects."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        client = mlflow.MlflowClient(tracking_uri)
        path = Path(client.download_artifacts(str(run_id), "cfk", folder))
        content = {file.name: json.loads(file.read_text("utf-8")) for file in path.glob("*.json")}
        rows = tables_of((path / "explanations").glob("*.json"))
    return {**content, "explanations": rows.to_dict("records")}


def rows_of(run_id: str | None, tracking_uri: str | None = None) -> pd.DataFrame:
    """Return the rows of a run."""
    return pd.DataFrame(content_of(run_id, tracking_uri)["explanations"], dtype=object)


def figures_of(run_id: str | None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return a run's figures, of which the metrics that it has must be some."""
    import mlflow

    figures: dict[str, Any] = content_of(run_id, tracking_uri)["summary.json"]["figures"]
    metrics = mlflow.MlflowClient(tracking_uri).get_run(str(run_id)).data.metrics
    plotted = {f"cfk.{name}": figures[name] for name in PLOTTED if figures[name] is not None}
    per_explanation = {"cfk.k", "cfk.ncp", "cfk.pureness"}
    assert {name: of for name, of in metrics.items() if name not in per_explanation} == plotted
    return figures


def summary_with(**known: float | None) -> dict[str, Any]:
    """Return the summary of a run without explanations but for what is known."""
    return {"schema_version": 1, "figures": {**Tally().figures, **known}}


def packed(frame: pd.DataFrame) -> bytes:
    """Return the file of a table: times as milliseconds since 1970, and null for what is not
    known.
    """
    data = [[_plain(value) for value in row] for row in frame.itertuples(index=False)]
    return json.dumps({"columns": list(frame), "data": data}).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return value
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.value // 1_000_000
    return value.item() if hasattr(value, "item") else value
