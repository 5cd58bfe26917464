"""Reading runs: what MLflow holds of them, from a local store and from a tracking server alike."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.report.evidence import Evidence, RunEvidence
from cfk_plugin.report.reading.counted import counted
from cfk_plugin.report.reading.holdings import DOCUMENTS, EXPLANATIONS, Held, look
from cfk_plugin.report.reading.period import Moment, Period, moment_text
from cfk_plugin.report.reading.selection import (
    experiment_named,
    names_of_experiments,
    opened,
    run_named,
    runs_in,
    summaries_of,
)
from cfk_plugin.report.reading.shards import CERTIFICATE, Shard, frame_of
from cfk_plugin.report.reading.waiting import Workers

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run


def read_runs(
    run_ids: Sequence[str] | str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read runs by their ids.

    Parameters
    ----------
    run_ids : sequence of str, or str
    tracking_uri : str, optional
        Default: MLflow's own setting.
    since, until : datetime, date or str, optional
        The period: explanations of that time, and audits whose run started in it; runs without any are left out.
        Text is ISO 8601; without a time zone it is UTC. `until` is the first moment that is left out; a day,
        as in ``until="2026-10-31"``, is in the period up to its end.
    progress : callable, optional
        Called with (done, total) runs.

    Returns
    -------
    Evidence
        Oldest run first. The same store gives the same evidence.

    Raises
    ------
    InputError
        If there is no such run, it was deleted, or it holds neither explanations nor an audit; if the period is none;
        if there is nothing in it.
    TrackingError
        If the store does not answer, or what it holds is damaged, incomplete, or of a newer version. Messages
        name runs and artifacts, never what is in them.
    """
    wanted = [run_ids] if isinstance(run_ids, str) else list(dict.fromkeys(run_ids))
    if not wanted:
        raise InputError("there is no run to read: give the id of at least one")
    period = Period.of(since, until)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder, Workers() as workers:
        client = workers.call(opened, tracking_uri)
        runs = list(workers.map(partial(run_named, client), wanted))
        return _Reading(client, workers, Path(folder), period, progress).evidence(runs, f"{len(runs)} runs", named=True)


def read_experiment(
    name: str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read all runs of an experiment that hold explanations or audits; reports and deleted runs are left out.

    Parameters
    ----------
    name : str
        Name or, with ``id:`` before it, id.
    tracking_uri, since, until, progress
        As for `read_runs`.

    Returns
    -------
    Evidence
        Oldest run first. The same store gives the same evidence.

    Raises
    ------
    InputError
        If there is no such experiment, it was deleted, the period is none, or there is nothing in it.
    TrackingError
        As for `read_runs`.
    """
    period = Period.of(since, until)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder, Workers() as workers:
        client = workers.call(opened, tracking_uri)
        experiment = workers.call(experiment_named, client, name)
        runs = workers.call(runs_in, client, experiment.experiment_id)
        return _Reading(client, workers, Path(folder), period, progress).evidence(
            runs, f"experiment {name!r}", named=False
        )


@dataclass(slots=True)
class _Reading:
    client: MlflowClient
    workers: Workers
    folder: Path
    period: Period
    progress: Progress | None
    spans: list[tuple[int, int]] = field(default_factory=list)  # of what was found, in the period or not
    uncounted: dict[str, int] = field(default_factory=dict)

    def evidence(self, runs: Iterable[Run], searched: str, *, named: bool) -> Evidence:
        """Read runs; those that were `named` must hold something."""
        runs = sorted(runs, key=lambda run: (run.info.start_time or 0, run.info.run_id))
        held = list(self.workers.map(partial(look, self.folder, self.client.tracking_uri), runs))
        if named and (nothing := [one.run.info.run_id for one in held if one.empty]):
            raise InputError(
                f"run {', '.join(nothing)} holds neither explanations nor an audit; log some with track=True, "
                "Explanations.log or AuditReport.log, or leave it out"
            )
        held = [one for one in held if not one.empty]
        experiments = {one.run.info.experiment_id for one in held}
        names = self.workers.call(names_of_experiments, self.client, experiments)
        found = [one for one in self._runs(held, names) if one is not None]
        if not found:
            raise InputError(f"nothing to report on in {searched}: {self._explained(len(held))}")
        return Evidence(runs=found, since=self.period.since, until=self.period.until, uncounted=self.uncounted)

    def _runs(self, held: Sequence[Held], names: Mapping[str, str]) -> Iterator[RunEvidence | None]:
        """Yield run by run, while files of the next ones are read."""
        files = [(place, part) for place, one in enumerate(held) for part in one.parts]
        shards = self.workers.map(lambda file: (file[0], held[file[0]].shard(file[1], self.period)), files)
        by_run = groupby(shards, key=lambda found: found[0])
        of = next(by_run, None)
        for place, one in enumerate(held):
            if self.progress is not None:
                self.progress(place, len(held))
            mine: list[Shard] = []
            if of is not None and of[0] == place:
                mine = [shard for _, shard in of[1] if shard is not None]
                of = next(by_run, None)
            yield self._run(one, mine, names[one.run.info.experiment_id])
        if self.progress is not None:
            self.progress(len(held), len(held))

    def _run(self, held: Held, shards: Sequence[Shard], experiment: str) -> RunEvidence | None:
        run, where = held.run, held.artifacts.where(EXPLANATIONS)
        kept, others = counted(
            shards, held.asked, where, lambda: self.workers.call(summaries_of, self.client, run.info.run_id)
        )
        self.spans += [shard.span for shard in kept]
        if left := sum(shard.table.num_rows for shard in others):
            self.uncounted[run.info.run_id] = left
        rows = frame_of(kept, where) if any(shard.table.num_rows for shard in kept) else None
        started = int(run.info.start_time or 0)
        self.spans += [(started, started)] if held.audited else []
        audited = held.audited and self.period.holds(started)
        if rows is None and not audited:
            return None
        return RunEvidence(
            run_id=run.info.run_id,
            name=run.info.run_name or "",
            experiment=experiment,
            started=started,
            params=dict(sorted(run.data.params.items())),
            tags=dict(sorted(run.data.tags.items())),
            metrics=dict(sorted(run.data.metrics.items())),
            **{name: held.documents.get(name) for name in DOCUMENTS},
            prototype=_prototype(rows, where),
            rows=rows,
            audits=held.audits if audited else (),
        )

    def _explained(self, runs: int) -> str:
        """Say what was searched, and what to do."""
        if not self.spans and self.uncounted:
            return (
                f"its {sum(self.uncounted.values())} explanations are in files that no summary counts yet; try again "
                "when all are logged (cfk spool status)"
            )
        if not self.spans:
            return (
                "it has no run with explanations or audits; log explanations with track=True or Explanations.log, "
                "audits with AuditReport.log"
            )
        first, last = min(low for low, _ in self.spans), max(high for _, high in self.spans)
        return (
            f"its {runs} runs with explanations or audits have none {self.period}, but from {moment_text(first)} to "
            f"{moment_text(last)}; choose another period"
        )


def _prototype(rows: pd.DataFrame | None, where: str) -> Mapping[str, Any] | None:
    """Take the certificates out of the rows, and return the first."""
    if rows is None or CERTIFICATE not in rows:
        return None
    certificates = rows.pop(CERTIFICATE).dropna()
    if certificates.empty:
        return None
    try:
        content = json.loads(certificates.iloc[0])
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise TrackingError(f"{where}: column {CERTIFICATE} is damaged: expected JSON objects")
    return content
