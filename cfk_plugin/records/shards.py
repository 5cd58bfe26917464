"""Files of explanations in a run, each with its recount, and which of them count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import TrackingError
from cfk_plugin.records.period import Period
from cfk_plugin.records.tables import (
    Columns,
    in_order,
    kind_in_report,
    nulls,
    public_kind,
    read,
    recount_kind,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CERTIFICATE = "certificate"
"""Column with the certificate of prototypes as JSON."""
_NEEDED = ("step", "timestamp", "status")
_EXPECTED = ("reason", "k", "ncp", "pureness", "pureness_low", "pureness_high")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shard:
    """One file of explanations, with its recount; times are milliseconds since 1970."""

    name: str
    first: int  # number of its first explanation in the run
    rows: int
    last: int  # when the last one was made
    span: tuple[int, int]  # when the earliest and the latest one were made
    columns: Columns  # of those in the period

    @property
    def end(self) -> int:
        """Number of the explanation after the last one."""
        return self.first + self.rows

    @property
    def inside(self) -> int:
        """How many explanations are in the period."""
        return len(self.columns["step"])


def read_shard(
    name: str, explanations: bytes, recount: bytes | None, where: str, period: Period
) -> Shard | None:
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
    if not np.array_equal(steps, np.arange(steps[0], steps[0] + len(steps))):
        raise TrackingError(f"{where}: it is damaged: step does not count its rows")
    if recount is not None:
        recounted = read(recount, recount_kind, f"{where} (recount)")
        columns |= _of_same_rows(recounted, steps, where)
    is_inside = np.ones(len(times), dtype=bool)
    if period.since is not None:
        is_inside &= times >= period.since
    if period.until is not None:
        is_inside &= times < period.until
    return Shard(
        name=name,
        first=int(steps[0]),
        rows=len(steps),
        last=int(times[-1]),
        span=(int(times.min()), int(times.max())),
        columns={column: values[is_inside] for column, values in columns.items()},
    )


def frame_of(shards: Sequence[Shard]) -> pd.DataFrame:
    """Return the rows of files as one frame; columns that a file lacks are null, and all expected
    ones exist.
    """
    names = [name for shard in shards for name in shard.columns]
    return pd.DataFrame(
        {name: _pooled(name, shards) for name in in_order([*names, *_EXPECTED])}, copy=False
    )


def _pooled(name: str, shards: Sequence[Shard]) -> Any:
    """Return a column of all files, as pandas has it: text as a category, times in UTC."""
    kind = kind_in_report(name)
    columns = [
        shard.columns[name] if name in shard.columns else nulls(kind, shard.inside)
        for shard in shards
    ]
    values = np.concatenate(columns)
    if kind == "text":
        return pd.Categorical(values)
    if kind == "flags":
        return pd.array(values, dtype="boolean")
    if kind == "times":
        return pd.DatetimeIndex(values.astype("datetime64[ms]")).tz_localize("UTC")
    return values


def _of_same_rows(recount: Columns, steps: NDArray[np.int64], where: str) -> Columns:
    """Return the columns of a recount; its own `step`, if it has one, only confirms that it is of
    these rows.
    """
    columns = dict(recount)
    n_rows = len(next(iter(columns.values()), ()))
    if n_rows != len(steps):
        raise TrackingError(f"{where}: it has {len(steps)} rows, and its recount {n_rows}")
    if not np.array_equal(columns.pop("step", steps), steps):
        raise TrackingError(f"{where}: its recount is of explanations with other numbers")
    return columns


def counted(
    shards: Sequence[Shard], asked: int, where: str, history: Callable[[], set[tuple[int, int]]]
) -> tuple[list[Shard], list[Shard]]:
    """Return the files that the run's summary counts, in order, and the others.

    The others are of interrupted attempts to log, or of later ones that no summary counts yet. If
    two files begin with the same number, that counts whose end the run's `history` of summaries
    has; it is asked for only then.
    """
    by_start: dict[int, list[Shard]] = {}
    for shard in sorted(shards, key=lambda shard: shard.name):
        by_start.setdefault(shard.first, []).append(shard)
    kept: list[Shard] = []
    summaries: set[tuple[int, int]] | None = None
    start = 0
    while start < asked:
        candidates = by_start.get(start, [])
        if len(candidates) > 1:
            if summaries is None:
                summaries = history()
            candidates = [shard for shard in candidates if (shard.last, shard.end) in summaries]
        if not candidates or candidates[0].end > asked:
            raise TrackingError(
                f"{where}: the run counts {asked} explanations, and there is no file with number"
                f" {start}; check that no file was deleted, and that this machine sees the disk"
                " where artifacts are kept"
            )
        kept.append(candidates[0])
        start = candidates[0].end
    kept_names = {shard.name for shard in kept}
    return kept, [shard for shard in shards if shard.name not in kept_names]
