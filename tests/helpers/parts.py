"""Files of a run, its rows (gzipped JSON lines) and its figures, as tests read and write them."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from cfk_plugin.tracking.tally import PLOTTED, Tally


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file as they were written."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def table_of(path: Path) -> pd.DataFrame:
    return pd.DataFrame(lines_of(path))


def tables_of(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the rows of several files, in the order of their names."""
    return pd.DataFrame([row for path in sorted(paths) for row in lines_of(path)])


def summary_of(run_id: str | None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return the file with a run's figures."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        client = mlflow.MlflowClient(tracking_uri)
        path = client.download_artifacts(str(run_id), "cfk/summary.json", folder)
        content: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    return content


def figures_of(run_id: str | None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return a run's figures, of which the metrics that it has must be some."""
    import mlflow

    found: dict[str, Any] = summary_of(run_id, tracking_uri)["figures"]
    metrics = mlflow.MlflowClient(tracking_uri).get_run(str(run_id)).data.metrics
    counted = {f"cfk.{name}": found[name] for name in PLOTTED if found[name] is not None}
    per_explanation = {"cfk.k", "cfk.ncp", "cfk.pureness"}
    assert {name: of for name, of in metrics.items() if name not in per_explanation} == counted
    return found


def figures_with(**known: float | None) -> dict[str, float | None]:
    """Return all figures of a run, those of a run without explanations but for what is known."""
    return {**Tally().plus([]).figures, **known}


def packed(frame: pd.DataFrame) -> bytes:
    """Return the file of a table: times as milliseconds since 1970, and null for what is not
    known.
    """
    rows = [
        {name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return gzip.compress(text.encode("utf-8"), mtime=0)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return value
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.value // 1_000_000
    return value
