"""What a run holds, before its rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import TrackingError
from cfk_plugin.records.record import SCHEMA_VERSION
from cfk_plugin.report.reading.artifacts import Artifacts
from cfk_plugin.report.reading.selection import ASKED
from cfk_plugin.report.reading.shards import Shard, read_shard

if TYPE_CHECKING:
    from mlflow.entities import Run

    from cfk_plugin.report.reading.period import Period

EXPLANATIONS, RECOUNT = "cfk/explanations", "cfk/recount"
"""Folders of a run: its rows, and what verification found of each; files of one name have the same rows."""

DOCUMENTS = ("policy", "population", "environment", "frontier")
"""JSON files of a run, ``cfk/<name>.json``."""

_REPORT = "cfk.report"  # tag


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Held:
    """A run, and the names of its files of rows.

    Attributes
    ----------
    run : mlflow.entities.Run
    artifacts : Artifacts
    documents : mapping of str to mapping
        Those of `DOCUMENTS` that it has.
    audits : sequence of mapping
        ``cfk/audit*.json``, by name.
    parts : sequence of str
        Files of explanations, by name.
    recounted : frozenset of str
        Files that have a recount.
    """

    run: Run
    artifacts: Artifacts
    documents: Mapping[str, Mapping[str, Any]]
    audits: Sequence[Mapping[str, Any]]
    parts: Sequence[str]
    recounted: frozenset[str]

    @property
    def asked(self) -> int:
        """Explanations that the run counts. A run that holds a report alone may repeat the figure of another."""
        repeated = _REPORT in self.run.data.tags and not self.parts
        return 0 if repeated else int(self.run.data.metrics.get(ASKED, 0))

    @property
    def empty(self) -> bool:
        """Whether it holds neither explanations nor audits; a frontier is one of what protection costs."""
        return not (self.asked or self.parts or self.audited)

    @property
    def audited(self) -> bool:
        """Whether it holds what an audit found."""
        return bool(self.audits) or "frontier" in self.documents

    def shard(self, name: str, period: Period) -> Shard | None:
        """Read a file of explanations with its recount; None if it has no rows.

        Raises
        ------
        TrackingError
            If one of them cannot be fetched or is damaged.
        """
        where = self.artifacts.where(f"{EXPLANATIONS}/{name}")
        with self.artifacts.local(f"{EXPLANATIONS}/{name}") as rows:
            if name not in self.recounted:
                return read_shard(name, rows, None, where, period)
            with self.artifacts.local(f"{RECOUNT}/{name}") as recount:
                return read_shard(name, rows, recount, where, period)


def look(folder: Path, tracking_uri: str, run: Run) -> Held:
    """Read everything of a run but its rows; `folder` is for copies of files.

    Raises
    ------
    TrackingError
        If a file cannot be fetched or is damaged, or a newer version logged the run.
    """
    version = run.data.tags.get("cfk.schema_version", str(SCHEMA_VERSION))
    if version != str(SCHEMA_VERSION):
        said = version if version.isdecimal() else "no number"
        raise TrackingError(
            f"run {run.info.run_id}: tag cfk.schema_version is {said}, expected {SCHEMA_VERSION}; "
            "a newer cfk_plugin logged it"
        )
    artifacts = Artifacts.of(run, tracking_uri, folder)
    there = artifacts.names("cfk")
    audits = [name for name in there if name.startswith("audit") and name.endswith(".json")]
    return Held(
        run,
        artifacts,
        {name: artifacts.document(f"cfk/{name}.json") for name in DOCUMENTS if f"{name}.json" in there},
        tuple(artifacts.document(f"cfk/{name}") for name in audits),
        _parts(artifacts, EXPLANATIONS, there),
        frozenset(_parts(artifacts, RECOUNT, there)),
    )


def _parts(artifacts: Artifacts, path: str, there: Sequence[str]) -> list[str]:
    if Path(path).name not in there:
        return []
    return [name for name in artifacts.names(path) if name.startswith("part-") and name.endswith(".parquet")]
