"""Reading what a report is about from an MLflow store, local or behind a tracking server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import InputError, TrackingError, require
from cfk_plugin.hookspecs import Progress
from cfk_plugin.report.period import Moment, Period, moment_text
from cfk_plugin.report.runs import Evidence, RunEvidence
from cfk_plugin.tracking.reading import (
    Artifacts,
    experiment_named,
    ids_of,
    name_of_experiment,
    opened,
    run_named,
    runs_in,
)
from cfk_plugin.tracking.record import SCHEMA_VERSION, Figures
from cfk_plugin.tracking.run import ASKED, EVALUATION, EXPLANATIONS, SUMMARY

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run

DOCUMENTS = ("policy", "population", "environment")
"""JSON files of a run, ``cfk/<name>.json``, besides its summary."""
_CERTIFICATE = "certificate"  # column with the certificate of prototypes as JSON
_REPORT = "cfk.report"  # tag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StoredRun:
    """A run with its documents, and without its rows."""

    run: Run
    artifacts: Artifacts
    documents: Mapping[str, Mapping[str, Any]]
    audits: Sequence[Mapping[str, Any]]
    figures: Figures  # empty without explanations
    has_rows: bool

    @classmethod
    def read(cls, folder: Path, tracking_uri: str, run: Run) -> StoredRun:
        """Read a run; `folder` is for copies of its files."""
        _check_version(run)
        artifacts = Artifacts.of(run, tracking_uri, folder)
        names = artifacts.names("cfk")
        has_rows = {Path(EXPLANATIONS).name, SUMMARY} <= set(names)
        _check_complete(run, names, artifacts.where("cfk"))
        documents = [name for name in DOCUMENTS if f"{name}.json" in names]
        audits = [name for name in names if name.startswith("audit") and name.endswith(".json")]
        return cls(
            run=run,
            artifacts=artifacts,
            documents={name: artifacts.document(f"cfk/{name}.json") for name in documents},
            audits=[artifacts.document(f"cfk/{name}") for name in audits],
            figures=artifacts.figures(f"cfk/{SUMMARY}") if has_rows else {},
            has_rows=has_rows,
        )

    @property
    def is_audited(self) -> bool:
        """Whether it holds an audit."""
        return bool(self.audits)

    @property
    def is_empty(self) -> bool:
        """Whether it holds neither explanations nor audits."""
        return not (self.has_rows or self.is_audited)


def _check_version(run: Run) -> None:
    version = run.data.tags.get("cfk.schema_version", str(SCHEMA_VERSION))
    if version != str(SCHEMA_VERSION):
        shown = version if version.isdecimal() else "no number"
        raise TrackingError(
            f"run {run.info.run_id}: tag cfk.schema_version is {shown}, expected {SCHEMA_VERSION}; "
            "a newer cfk_plugin logged it"
        )


def _check_complete(run: Run, names: Sequence[str], where: str) -> None:
    """Raise `TrackingError` if a run counts explanations and lacks their files.

    A report repeats the counts of other runs, and of an evaluation nothing was released.
    """
    if not run.data.metrics.get(ASKED) or not {_REPORT, EVALUATION}.isdisjoint(run.data.tags):
        return
    lacking = [name for name in (Path(EXPLANATIONS).name, SUMMARY) if name not in names]
    if lacking:
        raise _incomplete(where, run.data.metrics[ASKED], " and ".join(lacking))


def _incomplete(where: str, n_asked: float, lacking: str) -> TrackingError:
    return TrackingError(
        f"{where}: the run counts {n_asked:g} explanations and lacks {lacking}; check that no file"
        " was deleted, and that this machine sees the disk where artifacts are kept"
    )


def read_runs(
    run_ids: Sequence[str] | str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read runs by their ids; each must hold explanations or an audit."""
    ids = ids_of(run_ids)
    if not ids:
        raise InputError("there is no run to read: give the id of at least one")
    with _opened(tracking_uri, Period.of(since, until), progress) as reader:
        runs = [run_named(reader.client, run_id) for run_id in ids]
        stored = reader.stored(runs)
        empty = [each.run.info.run_id for each in stored if each.is_empty]
        if empty:
            raise InputError(
                f"run {', '.join(empty)} holds neither explanations nor an audit; log some with"
                " track=True, Explanations.log or AuditReport.log, or leave it out"
            )
        return reader.evidence(stored, f"{len(runs)} runs")


def read_experiment(
    name: str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read all runs of an experiment that hold explanations or audits.

    Reports and deleted runs are left out.
    """
    require("experiment", name, str, "give its name, or id: and its id")
    with _opened(tracking_uri, Period.of(since, until), progress) as reader:
        experiment = experiment_named(reader.client, name)
        runs = runs_in(reader.client, experiment.experiment_id)
        stored = [each for each in reader.stored(runs) if not each.is_empty]
        return reader.evidence(stored, f"experiment {name!r}")


@contextmanager
def _opened(
    tracking_uri: str | None, period: Period, progress: Progress | None
) -> Iterator[_Reader]:
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder:
        yield _Reader(opened(tracking_uri), Path(folder), period, progress)


@dataclass(slots=True)
class _Reader:
    client: MlflowClient
    folder: Path
    period: Period
    progress: Progress | None
    # First and last moment of each run, in the period or not.
    spans: list[tuple[int, int]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)  # see `Evidence`

    def stored(self, runs: Iterable[Run]) -> list[StoredRun]:
        """Read runs without their rows, oldest first."""
        ordered = sorted(runs, key=lambda run: (run.info.start_time or 0, run.info.run_id))
        return [StoredRun.read(self.folder, self.client.tracking_uri, run) for run in ordered]

    def evidence(self, stored: Sequence[StoredRun], searched: str) -> Evidence:
        """Read the rows of runs, and return what is of the period; `searched` names the runs."""
        experiments = {each.run.info.experiment_id for each in stored}
        names = {
            experiment: name_of_experiment(self.client, experiment) for experiment in experiments
        }
        runs = [run for run in self._runs(stored, names) if run is not None]
        if not runs:
            raise InputError(f"nothing to report on in {searched}: {self._reason(len(stored))}")
        return Evidence(
            runs=runs, since=self.period.since, until=self.period.until, missing=self.missing
        )

    def _runs(
        self, stored: Sequence[StoredRun], names: Mapping[str, str]
    ) -> Iterator[RunEvidence | None]:
        for n_done, each in enumerate(stored):
            if self.progress is not None:
                self.progress(n_done, len(stored))
            yield self._run(each, names[each.run.info.experiment_id])
        if self.progress is not None:
            self.progress(len(stored), len(stored))

    def _run(self, stored: StoredRun, experiment: str) -> RunEvidence | None:
        """Return what a run holds that is of the period; None if it holds nothing of it."""
        run = stored.run
        rows = self._rows(stored)
        started = int(run.info.start_time or 0)
        if stored.is_audited:
            self.spans.append((started, started))
        audits = stored.audits
        documents = {name: stored.documents.get(name) for name in DOCUMENTS}
        if not (stored.is_audited and self.period.holds(started)):
            audits = ()
            if rows is None:
                return None
        return RunEvidence(
            run_id=run.info.run_id,
            name=run.info.run_name or "",
            experiment=experiment,
            started=started,
            params=dict(sorted(run.data.params.items())),
            tags=dict(sorted(run.data.tags.items())),
            figures=stored.figures,
            **documents,
            prototype=_prototype(rows, stored.artifacts.where(EXPLANATIONS)),
            rows=rows,
            audits=audits,
        )

    def _rows(self, stored: StoredRun) -> pd.DataFrame | None:
        """Return the rows of the period; None if there are none."""
        n_asked = int(stored.figures.get("asked") or 0)
        rows = stored.artifacts.rows() if stored.has_rows else None
        if rows is None:
            if n_asked:
                raise _incomplete(stored.artifacts.where("cfk"), n_asked, "all explanations")
            return None
        n_missing = n_asked - len(rows)
        if n_missing > 0:
            self.missing[stored.run.info.run_id] = n_missing
        times = rows["timestamp"].to_numpy(dtype="datetime64[ms]").astype("int64")
        self.spans.append((int(times.min()), int(times.max())))
        is_inside = [self.period.holds(time) for time in times.tolist()]
        return rows[is_inside].reset_index(drop=True) if any(is_inside) else None

    def _reason(self, n_runs: int) -> str:
        """Return why nothing was found, and what to do."""
        if not self.spans:
            return (
                "it has no run with explanations or audits; log explanations with track=True or"
                " Explanations.log, audits with AuditReport.log"
            )
        first = min(span[0] for span in self.spans)
        last = max(span[1] for span in self.spans)
        return (
            f"its {n_runs} runs with explanations or audits have none {self.period}, but from"
            f" {moment_text(first)} to {moment_text(last)}; choose another period"
        )


def _prototype(rows: pd.DataFrame | None, where: str) -> Mapping[str, Any] | None:
    """Take the certificates of prototypes out of the rows, and return the first."""
    if rows is None or _CERTIFICATE not in rows:
        return None
    certificates = rows.pop(_CERTIFICATE).dropna()
    if certificates.empty:
        return None
    try:
        certificate = json.loads(certificates.iloc[0])
    except ValueError:
        certificate = None
    if not isinstance(certificate, dict):
        raise TrackingError(f"{where}: column {_CERTIFICATE} is damaged: expected JSON objects")
    return certificate
