"""`cfk spool`: how far tracking is behind, and sending what is left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cfk_plugin.errors import InputError
from cfk_plugin.records.spool import Shipper, Spool, SpoolSettings, Waiting, exists, this_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


def status(folder: Path | None, console: Console) -> int:
    """Print what waits in a spool; return the exit code: 0 nothing, 3 something."""
    spool = _existing(folder)
    try:
        return _said(spool.waiting(), console)
    finally:
        spool.close()


def flush(folder: Path | None, console: Console) -> int:
    """Send what no running process sends; return the exit code: 0 all is delivered, 3 something is left."""
    spool = _existing(folder)
    try:
        return _said(Shipper(spool).drain(), console)
    finally:
        spool.close()


def _existing(folder: Path | None) -> Spool:
    settings = SpoolSettings.of(folder)
    if not exists(settings.folder):
        raise InputError(f"there is no spool in {settings.folder}; give its folder with --folder, or set CFK_SPOOL")
    return Spool(settings, this_process())


def _said(waiting: Sequence[Waiting], console: Console) -> int:
    if not waiting:
        console.print("Nothing waits: MLflow has every record.")
        return 0
    table = Table("stream", "records", "kB", "behind", "last problem", box=None)
    for stream in waiting:
        behind = "–" if stream.oldest is None else _since(time.time() - stream.oldest / 1000)
        size = f"{stream.size / 1000:,.0f}"
        table.add_row(stream.id, f"{stream.records:,}", size, behind, stream.problem or "none yet; a process sends it")
    console.print(table)
    return 3


def _since(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(seconds, 0):.0f} s"
