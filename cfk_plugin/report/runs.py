"""What runs hold: explanations and results of audits, from a local store or a tracking server."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.audit.result import GUESSES
from cfk_plugin.data.policy import sha256_of
from cfk_plugin.errors import InputError, TrackingError, require
from cfk_plugin.hookspecs import Progress
from cfk_plugin.records.artifacts import Artifacts
from cfk_plugin.records.period import Moment, Period, moment_text
from cfk_plugin.records.reading import (
    experiment_named,
    ids_of,
    names_of_experiments,
    opened,
    run_named,
    runs_in,
    summaries_of,
)
from cfk_plugin.records.record import FLOOR, SCHEMA_VERSION
from cfk_plugin.records.run import ASKED, EVALUATION, UNTRACKED
from cfk_plugin.records.shards import CERTIFICATE, Shard, counted, frame_of, read_shard
from cfk_plugin.records.summary import SUMMARY, Figures, Summary
from cfk_plugin.records.tables import SUFFIX
from cfk_plugin.records.workers import Workers
from cfk_plugin.report.data import NOT_MEASURED, OF_MODELS, Amount, Attack, Family
from cfk_plugin.report.disclosure import Audited

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunEvidence:
    """One run: its figures, documents and rows (explanations with their recount); what it lacks is
    None.
    """

    run_id: str
    name: str = ""
    experiment: str = ""
    started: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)  # empty if its summary is not of its rows
    policy: Mapping[str, Any] | None = None
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    frontier: Mapping[str, Any] | None = None
    rows: pd.DataFrame | None = None
    prototype: Mapping[str, Any] | None = None
    audits: Sequence[Mapping[str, Any]] = ()

    @property
    def policy_agrees(self) -> bool:
        """Whether the logged policy has the hash that the run and all its certificates state."""
        if self.policy is None or self.rows is None:
            return False
        found = sha256_of(self.policy)
        stated = self.rows["policy_hash"].dropna() if "policy_hash" in self.rows else ()
        return self.tags.get("cfk.policy_sha256") == found and all(
            value == found for value in set(stated)
        )

    def setting(self, name: str) -> Any:
        """Return a setting of the policy; for `min_pureness` the floor that applied, if the run has
        it.
        """
        if name != "min_pureness" or FLOOR not in self.params:
            return (self.policy or {}).get(name)
        try:
            return float(self.params[FLOOR]) or None
        except ValueError:
            raise TrackingError(f"run {self.run_id}: parameter {FLOOR} is no number") from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """All that a report is made from, oldest first; `uncounted`: by run, rows that no summary
    counts yet.
    """

    runs: Sequence[RunEvidence]
    since: int | None = None
    until: int | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)

    def latest(self, name: str) -> Mapping[str, Any]:
        return next(
            (found for run in reversed(self.runs) if (found := getattr(run, name)) is not None), {}
        )


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """All explanations, run by run: ``run``: a position in `runs`; ``asked_k``: the larger k of
    policy and report.
    """

    rows: pd.DataFrame
    runs: Sequence[RunEvidence]

    @classmethod
    def of(cls, evidence: Evidence, k: int | None = None) -> Pooled:
        runs = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
        tables = []
        for i, run in enumerate(runs):
            own = (run.policy or {}).get("k")
            asked = np.nan if own is None else max(int(own), k or 0)
            tables.append(run.rows.assign(run=np.int32(i), asked_k=asked))  # type: ignore[union-attr]
        if not tables:
            return cls(pd.DataFrame({name: [] for name in ("status", "k", "run", "asked_k")}), runs)
        # pandas 2 warns that pandas 3 will not leave out columns without a value; both will do.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            rows = pd.concat(tables, ignore_index=True, sort=False)
        return cls(rows, runs)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def released(self) -> pd.DataFrame:
        return self.rows[(self.rows["status"] == "released").to_numpy()]

    @cached_property
    def withheld(self) -> pd.DataFrame:
        return self.rows[(self.rows["status"] == "withheld").to_numpy()]

    @cached_property
    def regions(self) -> pd.DataFrame:
        return self.released[self.released["k"].notna().to_numpy()]

    @cached_property
    def prototypes(self) -> pd.DataFrame:
        return self.released[self.released["k"].isna().to_numpy()]

    @cached_property
    def k(self) -> int | None:
        asked = self.rows["asked_k"].dropna()
        return int(asked.min()) if len(asked) else None

    def of_all(self, name: str) -> pd.Series[Any]:
        """Return one column over all explanations."""
        return self.rows[name].dropna() if name in self.rows else pd.Series(dtype=object)

    def values(self, name: str) -> NDArray[np.float64]:
        """Return the known values of a figure of the released regions."""
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
        """Return the released regions whose count in this column is below the k asked for."""
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


EXPLANATIONS, RECOUNT = "cfk/explanations", "cfk/recount"
"""Folders of a run: its rows, and what verification found of each; files of one name have the same
rows.
"""

DOCUMENTS = ("policy", "population", "environment", "frontier")
"""JSON files of a run, ``cfk/<name>.json``, beside its summary."""

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
        """Explanations that the run counts."""
        return int(self.run.data.metrics[ASKED]) if self._counts else 0

    @property
    def _counts(self) -> bool:
        """Whether the run counts explanations: not a report, which may repeat another run's, nor an
        evaluation.
        """
        repeats = not self.parts and not {_REPORT, EVALUATION}.isdisjoint(self.run.data.tags)
        return ASKED in self.run.data.metrics and not repeats

    @property
    def empty(self) -> bool:
        """Whether it holds neither explanations nor audits; a frontier counts as an audit."""
        return not (self.asked or self.parts or self.audited)

    @property
    def audited(self) -> bool:
        return bool(self.audits) or "frontier" in self.documents

    def figures(self) -> Figures:
        """Return the run's figures of the explanations that it counts; none if its summary is of
        others, as when two processes logged to it at the same time.
        """
        if not self._counts:
            return {}
        where = self.artifacts.where(f"cfk/{SUMMARY}.json")
        if SUMMARY not in self.documents:
            raise TrackingError(
                f"{where}: the run counts {self.asked} explanations, and this file is not there;"
                " check that it was not deleted"
            )
        summary = Summary.from_document(self.documents[SUMMARY], where)
        untracked = self.run.data.metrics.get(UNTRACKED, 0)
        return summary.at(self.asked, untracked) or {}

    def shard(self, name: str, period: Period) -> Shard | None:
        """Read a file of explanations with its recount; None if it has no rows."""
        path = f"{EXPLANATIONS}/{name}"
        explanations = self.artifacts.content(path)
        recount = None
        if name in self.recounted:
            recount = self.artifacts.content(f"{RECOUNT}/{name}")
        return read_shard(name, explanations, recount, self.artifacts.where(path), period)


def look(folder: Path, tracking_uri: str, run: Run) -> Held:
    """Read everything of a run except its rows; `folder` is for copies of files."""
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
        {
            name: artifacts.document(f"cfk/{name}.json")
            for name in (*DOCUMENTS, SUMMARY)
            if f"{name}.json" in there
        },
        tuple(artifacts.document(f"cfk/{name}") for name in audits),
        _parts(artifacts, EXPLANATIONS, there),
        frozenset(_parts(artifacts, RECOUNT, there)),
    )


def _parts(artifacts: Artifacts, path: str, there: Sequence[str]) -> list[str]:
    if Path(path).name not in there:
        return []
    return [
        name for name in artifacts.names(path) if name.startswith("part-") and name.endswith(SUFFIX)
    ]


def read_runs(
    run_ids: Sequence[str] | str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    wanted = ids_of(run_ids)
    if not wanted:
        raise InputError("there is no run to read: give the id of at least one")
    with _reading(tracking_uri, Period.of(since, until), progress) as reading:
        runs = list(reading.workers.map(partial(run_named, reading.client), wanted))
        return reading.evidence(runs, f"{len(runs)} runs", named=True)


def read_experiment(
    name: str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read all runs of an experiment that hold explanations or audits; reports and deleted runs are
    left out.
    """
    require("experiment", name, str, "give its name, or id: and its id")
    with _reading(tracking_uri, Period.of(since, until), progress) as reading:
        experiment = reading.workers.call(experiment_named, reading.client, name)
        runs = reading.workers.call(runs_in, reading.client, experiment.experiment_id)
        return reading.evidence(runs, f"experiment {name!r}", named=False)


@contextmanager
def _reading(
    tracking_uri: str | None, period: Period, progress: Progress | None
) -> Iterator[_Reading]:
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder, Workers() as workers:
        yield _Reading(workers.call(opened, tracking_uri), workers, Path(folder), period, progress)


@dataclass(slots=True)
class _Reading:
    client: MlflowClient
    workers: Workers
    folder: Path
    period: Period
    progress: Progress | None
    # of all that was found, in the period or not
    spans: list[tuple[int, int]] = field(default_factory=list)
    uncounted: dict[str, int] = field(default_factory=dict)

    def evidence(self, runs: Iterable[Run], searched: str, *, named: bool) -> Evidence:
        """Read runs; those that were `named` must hold something."""
        runs = sorted(runs, key=lambda run: (run.info.start_time or 0, run.info.run_id))
        held = list(self.workers.map(partial(look, self.folder, self.client.tracking_uri), runs))
        if named and (nothing := [one.run.info.run_id for one in held if one.empty]):
            raise InputError(
                f"run {', '.join(nothing)} holds neither explanations nor an audit; log some with"
                " track=True, Explanations.log or AuditReport.log, or leave it out"
            )
        held = [one for one in held if not one.empty]
        experiments = {one.run.info.experiment_id for one in held}
        names = self.workers.call(names_of_experiments, self.client, experiments)
        found = [one for one in self._runs(held, names) if one is not None]
        if not found:
            raise InputError(f"nothing to report on in {searched}: {self._explained(len(held))}")
        return Evidence(
            runs=found, since=self.period.since, until=self.period.until, uncounted=self.uncounted
        )

    def _runs(self, held: Sequence[Held], names: Mapping[str, str]) -> Iterator[RunEvidence | None]:
        """Yield run by run, while files of the next runs are read."""
        files = [(one, part) for one in held for part in one.parts]
        # in their order
        shards = self.workers.map(lambda file: file[0].shard(file[1], self.period), files)
        for place, one in enumerate(held):
            if self.progress is not None:
                self.progress(place, len(held))
            mine = [shard for shard in islice(shards, len(one.parts)) if shard is not None]
            yield self._run(one, mine, names[one.run.info.experiment_id])
        if self.progress is not None:
            self.progress(len(held), len(held))

    def _run(self, held: Held, shards: Sequence[Shard], experiment: str) -> RunEvidence | None:
        run, where = held.run, held.artifacts.where(EXPLANATIONS)
        kept, others = counted(
            shards,
            held.asked,
            where,
            lambda: self.workers.call(summaries_of, self.client, run.info.run_id),
        )
        self.spans += [shard.span for shard in kept]
        if left := sum(shard.inside for shard in others):
            self.uncounted[run.info.run_id] = left
        rows = frame_of(kept) if any(shard.inside for shard in kept) else None
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
            figures=held.figures(),
            **{name: held.documents.get(name) for name in DOCUMENTS},
            prototype=_prototype(rows, where),
            rows=rows,
            audits=held.audits if audited else (),
        )

    def _explained(self, runs: int) -> str:
        """Say why nothing was found, and what to do."""
        if not self.spans and self.uncounted:
            return (
                f"its {sum(self.uncounted.values())} explanations are in files that no summary"
                " counts yet; try again when all are logged (cfk spool flush)"
            )
        if not self.spans:
            return (
                "it has no run with explanations or audits; log explanations with track=True or"
                " Explanations.log, audits with AuditReport.log"
            )
        first, last = min(low for low, _ in self.spans), max(high for _, high in self.spans)
        return (
            f"its {runs} runs with explanations or audits have none {self.period}, but from"
            f" {moment_text(first)} to {moment_text(last)}; choose another period"
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


# --- results of audits in the runs, and what each attack is compared with ---


_BEGINNINGS: tuple[Family, ...] = ("epsilon", *OF_MODELS)
_COIN = Amount(value=0.5)
_SAME = 1e-6
_DIFFERENCES = {"extraction": "gain", "attribute_inference": "advantage"}
"""Figures that are the difference itself, with an interval that uses that both sides are of the
same people.
"""


class Compared(NamedTuple):
    """How much better an attack did than its reference."""

    with_what: str
    over: Amount


def compared(attack: Attack) -> Compared | None:
    """Compare an attack with what it would reach anyway; None if either was not measured.

    A copy of a model agrees with it without any explanation, so the gain over queries alone counts.
    Membership attacks are compared with a coin, or with their control where that is clearly not a
    coin, as it is when the two groups differ by more than training. All other attacks are compared
    with their control, the same attack on people who were not trained on, or, without one, with the
    same guess without the explanation.
    """
    with_what, reference = _reference(attack)
    main = attack.main
    if main.value is None or reference.value is None:
        return None
    value, name = reference.value, _DIFFERENCES.get(attack.family, "")
    middle, *ends = [attack.figure(f"{name}{end}") for end in ("", "_low", "_high")]
    if middle is not None and None not in ends and abs(middle - (main.value - value)) < _SAME:
        return Compared(with_what, Amount(value=middle, low=ends[0], high=ends[1], n=main.n))
    low, high = (None if end is None else end - value for end in (main.low, main.high))
    return Compared(with_what, Amount(value=main.value - value, low=low, high=high, n=main.n))


def whole(name: str) -> str:
    """Return the attack that a result is part of: the name without that of an attribute."""
    return name.partition("/")[0]


def _reference(attack: Attack) -> tuple[str, Amount]:
    if attack.family == "extraction":
        return "baseline", attack.baseline
    control = attack.control
    if attack.family == "membership" and (control.low or 0.0) <= 0.5 <= (
        1.0 if control.high is None else control.high
    ):
        return "chance", _COIN  # the control's own noise would only add to the attack's
    return ("control", control) if control.value is not None else ("baseline", attack.baseline)


def audited(evidence: Evidence) -> tuple[Audited, ...]:
    """Return the latest result of every attack on each subject; the most successful one in force is
    judged.
    """
    released = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
    latest: dict[tuple[str, str, bool], Audited] = {}
    for run in evidence.runs:
        for audit in run.audits:
            for attack in _attacks_of(audit, run.run_id, released):
                key = (attack.id, attack.subject, attack.concerns)
                latest.pop(key, None)  # keeps the order of the runs
                latest[key] = Audited(attack, audit)
    by_name: dict[str, list[Audited]] = {}
    for found in latest.values():
        by_name.setdefault(whole(found.attack.id), []).append(found)
    of_all = (each for same in by_name.values() for each in _judged(same))
    return tuple(sorted(of_all, key=lambda each: _place(each.attack)))


def _place(attack: Attack) -> tuple[bool, str, str, bool, str]:
    return attack.family != "linkage", attack.family, attack.id, not attack.judged, attack.subject


def _judged(same: Sequence[Audited]) -> Iterator[Audited]:
    """Mark which of several subjects an attack is judged on: the worst one for the release."""
    threats = [(found.attack.concerns, _threat(found.attack), i) for i, found in enumerate(same)]
    worst = same[max(threats)[2]].attack
    for found in same:
        attack = found.attack
        judged = (attack.subject, attack.concerns) == (
            worst.subject,
            worst.concerns,
        ) and attack.id not in GUESSES
        yield found if judged else found._replace(attack=replace(attack, judged=False))


def _threat(attack: Attack) -> float:
    found = compared(attack) if attack.concerns else None
    return (
        0.0
        if found is None
        else found.over.value or 0.0
        if found.over.high is None
        else found.over.high
    )


def _attacks_of(
    audit: Mapping[str, Any], run: str, released: Sequence[RunEvidence]
) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        of: Family = next(
            (of for text in (name, kind) for of in _BEGINNINGS if text.startswith(of)), "linkage"
        )
        protected = of not in OF_MODELS or audit.get("policy") is not None
        yield Attack(
            id=name,
            family=of,
            scenario=str(result.get("scenario", "")),
            main=_logged(result.get("main")),
            baseline=_logged(result.get("baseline")),
            control=_logged(result.get("control")),
            figures={
                key: Amount(value=value) for key, value in sorted(result.get("figures", {}).items())
            },
            worked=bool(result.get("worked")),
            covers=protected and all(_is_about(audit, other) for other in released),
            run=run,
            subject=str(audit.get("subject") or ""),
            concerns=protected
            and (not released or any(_has_policy_of(audit, other) for other in released)),
        )


def _is_about(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    """Say whether an audit was of a run's policy and population, as far as the audit names them."""
    population = audit.get("population")
    return _has_policy_of(audit, run) and (
        population is None or population == run.tags.get("cfk.population_fingerprint")
    )


def _has_policy_of(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    policy = audit.get("policy")
    return policy is None or sha256_of(policy) == run.tags.get("cfk.policy_sha256")


def _logged(found: Mapping[str, Any] | None) -> Amount:
    if found is None or found.get("value") is None:
        return NOT_MEASURED
    return Amount(
        value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n")
    )
