"""Reading runs: what MLflow holds of them, from a local store and from a tracking server alike."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.records.record import SCHEMA_VERSION
from cfk_plugin.records.run import client_of, kind_of, tracking_errors
from cfk_plugin.records.tally import PER_EXPLANATION, figures, metric_of
from cfk_plugin.report.store import (
    CERTIFICATE,
    Artifacts,
    Moment,
    Period,
    Shard,
    Workers,
    counted,
    frame_of,
    moment_text,
    read_shard,
)

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunEvidence:
    """One run. What it does not hold is None, or a column that is not there.

    Attributes
    ----------
    run_id, name, experiment : str
    started : int
        Milliseconds since 1970.
    params, tags : mapping of str to str
    metrics : mapping of str to float
        Last values.
    policy, population, environment, frontier : mapping, optional
        ``cfk/policy.json``, ``cfk/population.json``, ``cfk/environment.json``, ``cfk/frontier.json``.
    rows : DataFrame, optional
        One row per explanation in the period, in the order of the run: of ``cfk/explanations`` the columns ``step``,
        ``timestamp``, ``status``, ``reason``, ``k``, ``ncp``, ``pureness``, ``pureness_low``, ``pureness_high``,
        ``exact``, ``optimal``, ``gap``, ``method``, ``guarantee``, ``policy_hash``, ``population``, ``epsilon``,
        ``delta``; of ``cfk/recount`` whatever is there, joined row by row.
    prototype : mapping, optional
        The certificate that the run's prototypes share.
    audits : sequence of mapping
        ``cfk/audit*.json``.
    """

    run_id: str
    name: str = ""
    experiment: str = ""
    started: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    frontier: Mapping[str, Any] | None = None
    rows: pd.DataFrame | None = None
    prototype: Mapping[str, Any] | None = None
    audits: Sequence[Mapping[str, Any]] = ()

    @property
    def policy_agrees(self) -> bool:
        """Whether the logged policy has the hash that the run, and every certificate in it, states."""
        if self.policy is None or self.rows is None:
            return False
        found = sha256_of(self.policy)
        stated = self.rows["policy_hash"].dropna() if "policy_hash" in self.rows else ()
        return self.tags.get("cfk.policy_sha256") == found and all(value == found for value in set(stated))

    @property
    def summary_agrees(self) -> bool:
        """Whether the run's own figures are those of its explanations."""
        if self.rows is None:
            return False
        status = self.rows["status"]
        counts = {"asked": len(status), **{name: int((status == name).sum()) for name in ("released", "suppressed")}}
        if any(self.metrics.get(f"cfk.{name}") != count for name, count in counts.items()):
            return False
        regions = self.rows[self.rows["k"].notna().to_numpy()] if "k" in self.rows else self.rows.iloc[:0]
        found = figures({name: regions[name].to_numpy(dtype=float) for name in PER_EXPLANATION})
        return all(
            isclose(self.metrics[metric_of(name)], value, rel_tol=1e-6, abs_tol=1e-9)
            for name, value in found.items()
            if value is not None and metric_of(name) in self.metrics
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """Everything that a report is made from.

    Attributes
    ----------
    runs : sequence of RunEvidence
        Those with explanations and those with audits, oldest first.
    since, until : int, optional
        The period asked for, milliseconds since 1970; `until` is not in it.
    uncounted : mapping of str to int
        Explanations in the period that are in files of a run and that its summary does not count, by run id: they
        are on their way, or the attempt to log them broke off. They are not in the runs' rows.
    """

    runs: Sequence[RunEvidence]
    since: int | None = None
    until: int | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """All explanations of the period, one run after the other.

    Rows have ``run``, a position in `runs`, and ``asked_k``: the k of the run's policy, or the larger one that the
    report asks for; missing where there is none.
    """

    rows: pd.DataFrame
    runs: Sequence[RunEvidence]

    @classmethod
    def of(cls, evidence: Evidence, k: int | None = None) -> Pooled:
        """Pool the runs of the evidence."""
        runs = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
        tables = []
        for i, run in enumerate(runs):
            own = (run.policy or {}).get("k")
            asked = np.nan if own is None else max(int(own), k or 0)
            tables.append(run.rows.assign(run=np.int32(i), asked_k=asked))  # type: ignore[union-attr]
        if not tables:
            return cls(pd.DataFrame({name: [] for name in ("status", "k", "run", "asked_k")}), runs)
        return cls(pd.concat(tables, ignore_index=True, sort=False), runs)

    def __len__(self) -> int:
        """Return the number of explanations asked for."""
        return len(self.rows)

    @cached_property
    def released(self) -> pd.DataFrame:
        """Rows of what was released."""
        return self.rows[(self.rows["status"] == "released").to_numpy()]

    @cached_property
    def suppressed(self) -> pd.DataFrame:
        """Rows of what was withheld."""
        return self.rows[(self.rows["status"] == "suppressed").to_numpy()]

    @cached_property
    def regions(self) -> pd.DataFrame:
        """Rows of the regions that were released."""
        return self.released[self.released["k"].notna().to_numpy()]

    @cached_property
    def prototypes(self) -> pd.DataFrame:
        """Rows of the prototypes that were released."""
        return self.released[self.released["k"].isna().to_numpy()]

    @cached_property
    def k(self) -> int | None:
        """The least k that was asked for."""
        asked = self.rows["asked_k"].dropna()
        return int(asked.min()) if len(asked) else None

    def of_all(self, name: str) -> pd.Series[Any]:
        """Return what is known of something, of all explanations."""
        return self.rows[name].dropna() if name in self.rows else pd.Series(dtype=object)

    def values(self, name: str) -> NDArray[np.float64]:
        """Return what is known of a figure of the released regions: one value each, those without left out."""
        if name not in self.regions:
            return np.empty(0)
        return self.regions[name].dropna().to_numpy(dtype=np.float64)

    def complete(self, name: str) -> bool:
        """Say whether every released region has the figure, and a k to compare with."""
        if not len(self.regions) or name not in self.regions:
            return False
        return bool(self.regions[[name, "asked_k"]].notna().all(axis=None))

    def evidence(self, rows: pd.DataFrame, most: int = 5) -> tuple[str, ...]:
        """Return where some rows are: ``run/step``, at most a few."""
        some = rows.head(most)
        return tuple(
            f"{self.runs[run].run_id}/{step}"
            for run, step in zip(some["run"], some.get("step", some.index), strict=True)
        )

    def below(self, column: str) -> pd.DataFrame:
        """Return the released regions that have fewer people of a kind than was asked for."""
        if column not in self.regions:
            return self.regions.head(0)
        few = (self.regions[column] < self.regions["asked_k"]).fillna(False)
        return self.regions[np.asarray(few, dtype=np.bool_)]

    @property
    def has_ledger(self) -> bool:
        """Whether every run with regions kept a ledger."""
        if "ledger" not in self.regions or not len(self.regions):
            return False
        return bool((self.regions.groupby("run", observed=True)["ledger"].count() > 0).all())


ASKED = "cfk.asked"
"""Metric of a run that holds explanations: how many it counts."""

_AUDITS = ("cfk.audit", "cfk.audit.epsilon.verdict", "cfk.audit.epsilon_one_run.verdict", "cfk.frontier")  # tags
_FILTERS = (f"metrics.`{ASKED}` > 0", *(f"tags.`{tag}` LIKE '%'" for tag in _AUDITS))  # MLflow knows no "or"
_ID = "id:"
_NAMED = 5  # experiments that a message lists
_PAGE = 1000
_UNREADABLE = "the MLflow store cannot be read"
_TIMEOUT = 5.0  # seconds that a server may take to say that it is there
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store; without an address, of the one that MLflow is set to."""
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _TIMEOUT)


def run_named(client: MlflowClient, run_id: str) -> Run:
    """Return a run."""
    try:
        run = client.get_run(run_id)
    except Exception as error:
        if getattr(error, "error_code", None) in _UNKNOWN:
            raise InputError(
                f"there is no run {run_id}; check the id, and that the tracking URI is its store's"
            ) from None
        raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
    if run.info.lifecycle_stage != "active":
        raise InputError(f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out")
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name or, with ``id:`` before it, its id."""
    try:
        by_id = name.startswith(_ID)
        found = client.get_experiment(name.removeprefix(_ID)) if by_id else client.get_experiment_by_name(name)
    except Exception as error:
        if getattr(error, "error_code", None) not in _UNKNOWN:
            raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
        found = None
    if found is None:
        raise InputError(f"there is no experiment {name!r} in this store; {_experiments(client)}")
    if found.lifecycle_stage != "active":
        raise InputError(f"experiment {name!r} was deleted; restore it with `mlflow experiments restore`")
    return found


def names_of_experiments(client: MlflowClient, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of experiments by their ids."""
    with tracking_errors(_UNREADABLE):
        return {id_: str(client.get_experiment(id_).name) for id_ in sorted(set(ids))}


def runs_in(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return the runs of an experiment that say they hold explanations or an audit; not deleted ones."""
    found: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _FILTERS:
            page, token = None, ""
            while page is None or token:
                page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token or None)
                found |= {run.info.run_id: run for run in page}
                token = page.token
    return list(found.values())


def summaries_of(client: MlflowClient, run_id: str) -> set[tuple[int, int]]:
    """Return the time of each summary of a run, milliseconds since 1970, and how many explanations it counts."""
    with tracking_errors(_UNREADABLE):
        return {(metric.timestamp, metric.step) for metric in client.get_metric_history(run_id, ASKED)}


def _experiments(client: MlflowClient) -> str:
    """Say which experiments there are; a few names, as a store may have thousands."""
    with tracking_errors(_UNREADABLE):
        names = [experiment.name for experiment in client.search_experiments(max_results=_NAMED + 1)]
    more = " and others" if len(names) > _NAMED else ""
    return f"it has {', '.join(repr(name) for name in names[:_NAMED])}{more}" if names else "it has none"


EXPLANATIONS, RECOUNT = "cfk/explanations", "cfk/recount"
"""Folders of a run: its rows, and what verification found of each; files of one name have the same rows."""

DOCUMENTS = ("policy", "population", "environment", "frontier")
"""JSON files of a run, ``cfk/<name>.json``."""

_REPORT = "cfk.report"  # tag


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Held:
    """A run, and the names of its files of rows."""

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
        """Read a file of explanations with its recount; None if it has no rows."""
        where = self.artifacts.where(f"{EXPLANATIONS}/{name}")
        with self.artifacts.local(f"{EXPLANATIONS}/{name}") as rows:
            if name not in self.recounted:
                return read_shard(name, rows, None, where, period)
            with self.artifacts.local(f"{RECOUNT}/{name}") as recount:
                return read_shard(name, rows, recount, where, period)


def look(folder: Path, tracking_uri: str, run: Run) -> Held:
    """Read everything of a run but its rows; `folder` is for copies of files."""
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


def read_runs(
    run_ids: Sequence[str] | str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read runs by their ids."""
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
    """Read all runs of an experiment that hold explanations or audits; reports and deleted runs are left out."""
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
