"""Which files of a run count: those that its summary speaks of, and each of its explanations once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cfk_plugin.errors import TrackingError
from cfk_plugin.report.reading.shards import Shard


def counted(
    shards: Sequence[Shard], asked: int, where: str, history: Callable[[], set[tuple[int, int]]]
) -> tuple[list[Shard], list[Shard]]:
    """Return the files that count, in the order of the run, and the others.

    Files are logged first and the summary that counts them last. Where it did not come to that, their explanations
    may have been logged once more in their place; and some may have been logged since the summary was read.

    Parameters
    ----------
    shards : sequence of Shard
    asked : int
        Explanations that the run counts.
    where : str
        What messages call the files.
    history : callable
        Gives time and place of every summary; asked only where files are in each other's way.

    Raises
    ------
    TrackingError
        If explanations that the run counts are in no file.
    """
    kept: list[Shard] = []
    summaries: set[tuple[int, int]] | None = None
    start = 0
    by_start: dict[int, list[Shard]] = {}
    for shard in sorted(shards, key=lambda shard: shard.name):
        by_start.setdefault(shard.first, []).append(shard)
    while start < asked:
        here = by_start.get(start, [])
        if len(here) > 1:
            summaries = history() if summaries is None else summaries
            here = [shard for shard in here if (shard.last, shard.end) in summaries]
        if not here or here[0].end > asked:
            raise TrackingError(
                f"{where}: the run counts {asked} explanations, and there is no file with number {start}; check that "
                "no file was deleted, and that this machine sees the disk where artifacts are kept"
            )
        kept.append(here[0])
        start = here[0].end
    chosen = {id(shard) for shard in kept}
    return kept, [shard for shard in shards if id(shard) not in chosen]
