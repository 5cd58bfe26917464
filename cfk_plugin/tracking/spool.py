"""The spool: a local folder for records that MLflow did not take."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.tracking.record import SCHEMA_VERSION, Record, table
from cfk_plugin.tracking.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping


def spool_folder() -> Path:
    """Return where undelivered records go: ``CFK_SPOOL``, else a folder in the user's state folder."""
    if chosen := os.environ.get("CFK_SPOOL"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "cfk_plugin" / "spool"


def keep(record: Record, run: Mapping[str, str | None], folder: Path | None = None) -> Path:
    """Write a record as Parquet and JSON, the same that a run would hold.

    Parameters
    ----------
    record : Record
    run : mapping
        Which run it was meant for: ``run_id``, ``experiment``, ``run_name``.
    folder : Path, optional
        Default: `spool_folder`; a fresh temporary folder where that cannot be written.

    Returns
    -------
    Path
        The JSON file; the table lies beside it.
    """
    try:
        return _write(record, run, folder or spool_folder())
    except OSError:
        return _write(record, run, Path(tempfile.mkdtemp(prefix="cfk-spool-")))


def forget(path: Path) -> None:
    """Delete a kept record after it was delivered."""
    path.unlink(missing_ok=True)
    path.with_suffix(".parquet").unlink(missing_ok=True)


def _write(record: Record, run: Mapping[str, str | None], folder: Path) -> Path:
    import pyarrow.parquet as pq

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{record.created:013d}-{record.id}.json"
    content = {
        "schema_version": SCHEMA_VERSION,
        "id": record.id,
        "created": record.created,
        "run": dict(run),
        "params": record.params,
        "tags": record.tags,
        "metrics": Tally().plus([record]).metrics(),
        "policy": record.explanations.policy.to_dict(),
    }
    pq.write_table(table([record]), path.with_suffix(".parquet"))
    # The JSON is written last and renamed into place: where it is, the record is whole.
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    return partial.replace(path)
