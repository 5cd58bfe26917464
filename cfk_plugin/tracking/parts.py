"""The rows of a run: files of explanations, each with its recount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.period import Period
from cfk_plugin.tracking.tables import (
    Columns,
    in_order,
    kind_in_report,
    nulls,
    public_kind,
    read,
    recount_kind,
)

CERTIFICATE = "certificate"
"""Column with the certificate of prototypes as JSON."""
_NEEDED = ("step", "timestamp", "status")
_EXPECTED = ("reason", "k", "ncp", "pureness", "pureness_low", "pureness_high")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """One file of explanations, with its recount; times are milliseconds since 1970."""

    steps: tuple[int, int]  # of its first explanation, and the one after its last
    last: int  # when the last explanation was made
    span: tuple[int, int]  # when the earliest and the latest one were made
    columns: Columns  # of the explanations in the period

    @property
    def n_inside(self) -> int:
        """Explanations in the period."""
        return len(self.columns["step"])


def read_part(
    explanations: bytes, recount: bytes | None, where: str, period: Period
) -> Part | None:
    """Read a file of explanations and, if there is one, the file with their recount.

    Returns None if the file has no rows.
    """
    columns = dict(read(explanations, public_kind, where))
    if not columns:
        return None
    missing = [column for column in _NEEDED if column not in columns]
    if missing:
        raise TrackingError(f"{where}: it lacks {', '.join(missing)}")
    steps = columns["step"]
    times = columns["timestamp"]
    end = int(steps[0]) + len(steps)
    if not np.array_equal(steps, np.arange(steps[0], end)):
        raise TrackingError(f"{where}: it is damaged: step does not count its rows")
    if recount is not None:
        columns |= _read_recount(recount, columns["step"], where)
    is_inside = np.ones(len(times), dtype=bool)
    if period.since is not None:
        is_inside &= times >= period.since
    if period.until is not None:
        is_inside &= times < period.until
    return Part(
        steps=(int(steps[0]), end),
        last=int(times[-1]),
        span=(int(times.min()), int(times.max())),
        columns={column: values[is_inside] for column, values in columns.items()},
    )


def split_counted(
    parts: Sequence[Part], n_counted: int, summaries: set[tuple[int, int]], where: str
) -> tuple[list[Part], list[Part]]:
    """Return the files that the run counts, in order of their steps, and the others.

    A file counts if it begins where the one before it ends, and the run has had a summary with the
    time and the step of its end. The others are of attempts to log that failed, or that go on.
    """
    counted: list[Part] = []
    others: list[Part] = []
    step = 0
    for part in sorted(parts, key=lambda part: part.steps):
        start, end = part.steps
        if start == step and (part.last, end) in summaries:
            counted.append(part)
            step = end
        else:
            others.append(part)
    if step != n_counted:
        raise TrackingError(
            f"{where}: the run counts {n_counted} explanations, and there is no file with number"
            f" {step}; check that no file was deleted, and that this machine sees the disk where"
            " artifacts are kept"
        )
    return counted, others


def frame_of(parts: Sequence[Part]) -> pd.DataFrame:
    """Return the rows of files as one frame; columns that a file lacks are null, and all expected
    ones exist.
    """
    names = [name for part in parts for name in part.columns]
    return pd.DataFrame(
        {name: _pooled(name, parts) for name in in_order([*names, *_EXPECTED])}, copy=False
    )


def _pooled(name: str, parts: Sequence[Part]) -> Any:
    """Return a column of all files, as pandas has it: text as a category, times in UTC."""
    kind = kind_in_report(name)
    columns = [
        part.columns[name] if name in part.columns else nulls(kind, part.n_inside) for part in parts
    ]
    values = np.concatenate(columns)
    if kind == "text":
        return pd.Categorical(values)
    if kind == "flags":
        return pd.array(values, dtype="boolean")
    if kind == "times":
        return pd.DatetimeIndex(values.astype("datetime64[ms]")).tz_localize("UTC")
    return values


def _read_recount(recount: bytes, steps: Any, where: str) -> Columns:
    """Return the columns of a recount; its own `step`, if it has one, only confirms that it is of
    these rows.
    """
    columns = dict(read(recount, recount_kind, f"{where} (recount)"))
    n_rows = len(next(iter(columns.values()), ()))
    if n_rows != len(steps):
        raise TrackingError(f"{where}: it has {len(steps)} rows, and its recount {n_rows}")
    if not np.array_equal(columns.pop("step", steps), steps):
        raise TrackingError(f"{where}: its recount is of explanations with other numbers")
    return columns
