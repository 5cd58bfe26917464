"""KAnonymizer: the stages from raw counterfactuals to verified explanations, failing closed at each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import bin_of, bin_part
from cfk_plugin.data.intake import Counterfactual, Intake, as_table, require_features, take_in
from cfk_plugin.data.model import Goal, LabelModel, Oracle, Outcome, RowOracle, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.provenance import environment_of, facts_of
from cfk_plugin.data.region import Region
from cfk_plugin.data.values import natural
from cfk_plugin.errors import (
    CFKError,
    InfeasibleError,
    InputError,
    ModelError,
    NotFittedError,
    PluginError,
    PolicyError,
    quiet,
)
from cfk_plugin.hookspecs import Finding, Progress, Protector, ReleaseRecord
from cfk_plugin.plugins import PluginManager, load_plugins
from cfk_plugin.protection.partition import partition_to_arrays
from cfk_plugin.protection.private import number_of
from cfk_plugin.release.detection import Detector, FindingStage
from cfk_plugin.release.explanations import Explanations, Request, ResultContext
from cfk_plugin.release.guarantees import AUTO, Ground, check, check_rerun, check_sealable, choose
from cfk_plugin.release.pipeline import RecordedRelease, ReleaseStage, Verdict
from cfk_plugin.release.results import (
    Certificate,
    Entry,
    GeneralizedCounterfactual,
    PrototypeCounterfactual,
    Suppressed,
)
from cfk_plugin.release.verification import Refusal, Verifier

if TYPE_CHECKING:
    from cfk_plugin.data.model import Judge
    from cfk_plugin.records.ledger import Ledger


def disclosed(certificate: Certificate, intake: Intake, row: int) -> dict[str, Any]:
    """Return what leaves of the private attributes of one counterfactual, in the forms that its certificate names."""
    population, released = intake.encoder, {}
    for name in population.schema.names("sensitive", "other"):
        if name in certificate.withheld:
            continue
        if name in certificate.binned:
            domain, at = population.domains[name], population.schema.features.index(name)
            which = bin_of(domain, number_of(domain, int(intake.codes[row, at]), float(intake.numbers[row, at])))
            if which is None:
                raise ValueError(f"column {name!r}: a value falls into no bin")
            released[name] = bin_part(domain, which)
        else:
            released[name] = natural(intake.values[population.schema.features.index(name)][row])
    return released


# The last stage: entries become the result that leaves, and plugins are told what was released.


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultStage:
    """What a result says of where it comes from, bound once. Host side only."""

    population: Population
    policy: PrivacyPolicy
    method: str  # Name of the method, as certificates and runs show it
    manager: PluginManager  # Plugins that are told
    detector: Detector  # Whose tolerance is told
    about: ResultContext  # What is known of population and environment

    @classmethod
    def of(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        method: str,
        manager: PluginManager,
        detector: Detector,
        **used: Any,
    ) -> Self:
        """Make the stage of a fit; `used` are further settings, see `environment_of`."""
        about = ResultContext(facts_of(population, policy.k), environment_of(plugins=manager.versions(), **used))
        return cls(population, policy, method, manager, detector, about)

    def wrap(
        self,
        entries: Sequence[Entry],
        findings: Sequence[Finding | None],
        generator: str,
        call: Request,
        record: Callable[[Explanations], bool] | None = None,
    ) -> Explanations:
        """Return entries as a result, in order."""
        about = self._about(generator).of_call(call, [entry.query for entry in entries])
        made = {"generator": generator} | ({"candidates": str(call.candidates)} if call.candidates > 1 else {})
        result = self._result(entries, findings, made, about)
        if record is not None and not record(result):
            withheld = [Suppressed(entry.query, "not_recorded") for entry in entries]
            result = self._result(withheld, [None] * len(withheld), made, about)
        if self.policy.on_infeasible == "raise" and result.suppressed:
            reasons = ", ".join(sorted({entry.reason for entry in result.suppressed}))
            raise InfeasibleError(f"{len(result.suppressed)} of {len(result)} explanations are withheld: {reasons}")
        policy = self.policy.sha256
        for entry in result:
            self.manager.released(release_record(entry, self.method, policy, self.population.fingerprint))
        return result

    def _about(self, generator: str) -> ResultContext:
        facts = {"fingerprint": self.population.fingerprint, "tolerance": self.detector.used}
        return replace(
            self.about,
            population={**(self.about.population or {}), **facts},
            environment={**(self.about.environment or {}), "generator": generator},
        )

    def _result(
        self,
        entries: Sequence[Entry],
        findings: Sequence[Finding | None],
        made: Mapping[str, str],
        about: ResultContext,
    ) -> Explanations:
        versions = self.manager.versions().items()
        return Explanations(
            entries,
            policy=self.policy,
            columns=self.population.schema.features,
            findings=findings,
            n_people=self.population.n_people,
            provenance={
                "method": self.method,
                "population": self.population.fingerprint,
                "plugins": ", ".join(f"{name} {version}" for name, version in versions),
                **made,
            },
            about=about,
        )


# Effective k of regions that were chosen one by one: rerun the protection for everybody inside.


def with_effective(
    verdicts: Sequence[Verdict],
    accepted: Intake,
    judge: Judge,
    model: LabelModel,
    rows: RowOracle,
    release: ReleaseStage | RecordedRelease,
) -> list[Verdict]:
    """Complete certificates with the number of people whom the protection maps to the same region.

    Everybody in a region is taken for the counterfactual, with their own quasi-identifiers and the released private
    values, and protected in the same way; who comes out elsewhere is struck out. That is what an adversary does who
    knows the algorithm and has the model. Costs about k times the protection itself. Only for a protector that does
    not draw random numbers and a policy without l and t, whose repeated attempts are not rerun.
    """
    population = rows.population
    certified = [i for i, verdict in enumerate(verdicts) if not isinstance(verdict, Refusal)]
    inside = {i: np.flatnonzero(population.cells_inside(verdicts[i][0])) for i in certified}  # type: ignore[index]
    if not certified:
        return list(verdicts)
    which = np.repeat(np.array(certified), [len(inside[i]) for i in certified])
    cells = np.concatenate([inside[i] for i in certified])
    others = take_in(
        rows_for_cells(population.encoder, accepted.frame, which, population.cells[cells]), population.encoder
    )

    def judge_others(labels: NDArray[np.object_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        return judge(labels, which[at])

    oracle = Oracle(model, judge_others, rows, others.frame)
    found = release.propose(others, oracle, np.zeros(len(which), dtype=np.int64))
    completed = list(verdicts)
    for i in certified:
        verdict = verdicts[i]
        if isinstance(verdict, Refusal):
            continue
        region, certificate = verdict
        same = [cells[at] for at in np.flatnonzero(which == i) if found[at] == region]
        members = population.members(region)
        left = members[np.isin(population.cell_of(members), np.array(same, dtype=np.int64))]
        completed[i] = (region, certificate.counted(k_effective=population.people(left)))
    return completed


# From checked counterfactuals, or queries, to entries: what may be asked, what is released, what is withheld.

_log = logging.getLogger("cfk_plugin")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EntryStage:
    """What entries are made of, bound once. Host side only."""

    population: Population
    model: LabelModel
    goal: Goal
    rows: RowOracle
    ground: Ground  # Partition and catalogue, where the guarantee has them
    release: ReleaseStage | RecordedRelease
    measures: bool = False  # Whether the effective k of regions that are chosen one by one is measured

    def of_counterfactuals(
        self,
        intake: Intake,
        query: NDArray[np.int64],
        factual_labels: NDArray[Any] | None,
        progress: Progress | None = None,
        goal: Goal | None = None,
    ) -> list[Entry]:
        """Return one entry per counterfactual; with a catalogue each is replaced by the nearest entry of it.

        A call with a goal of its own (`Goal.of_call`) is judged by that.
        """
        if goal is not None:
            stage, labels = replace(self, goal=goal), factual_labels if goal.is_opposite else None
            return stage.of_counterfactuals(intake, query, labels, progress)
        entries = _faulty_or(intake, query, "not_desired")
        usable = _usable(intake)
        if not len(usable):
            return entries
        own = self.model(intake.take(usable).frame).astype(object)
        factual = None if factual_labels is None else factual_labels[usable]
        desired = self.goal.judge(factual, own)(own, np.arange(len(usable)))
        usable, own = usable[desired], own[desired]
        factual = None if factual is None else factual[desired]
        if self.ground.catalogue is not None:
            self._from_catalogue(entries, intake, usable, own, factual, progress)
        else:
            self._fill(entries, usable, intake.take(usable), own, factual, progress)
        return entries

    def of_queries(self, intake: Intake, query: NDArray[np.int64], progress: Progress | None = None) -> list[Entry]:
        """Return one entry of the catalogue per query: the nearest."""
        if self.ground.catalogue is None:
            raise PolicyError('explaining queries without an explainer needs guarantee="catalogue"')
        entries = _faulty_or(intake, query, "none_found")
        usable = _usable(intake)
        if len(usable):
            asks = self.goal.is_opposite  # a query that the model cannot read must not cost the others theirs
            factual = self.model(intake.take(usable).frame).astype(object) if asks else None
            self._from_catalogue(entries, intake, usable, None, factual, progress)
        return entries

    def regions(self, intake: Intake) -> list[Region | None]:
        """Return the region that protection alone maps each record to, whatever its outcome; nothing is released."""
        found: list[Region | None] = [None] * len(intake)
        usable = _usable(intake)
        if len(usable):
            some = intake.take(usable)
            own = self.model(some.frame).astype(object)
            oracle = Oracle(self.model, self.goal.judge(None, own), self.rows, some.frame)
            for at, region in zip(usable, self.release.propose(some, oracle, self.ground.sides.of(own)), strict=True):
                found[at] = region
        return found

    def _from_catalogue(
        self,
        entries: list[Entry],
        intake: Intake,
        at: NDArray[np.int64],
        own: NDArray[Any] | None,
        factual: NDArray[Any] | None,
        progress: Progress | None,
    ) -> None:
        """Answer with the rows behind the nearest entries; where there is none, say so."""
        catalogue = self.ground.catalogue
        if catalogue is None or not len(at):
            return
        asked = intake.take(at)
        open_to = self.ground.sides.open_to(own, factual, len(at))
        rows = catalogue.nearest(asked.frame, *asked.quasi_identifiers, open_to)
        if own is not None:  # counterfactuals, not queries
            groups = catalogue.partition.group_of(asked.codes, asked.numbers, self.ground.sides.of(own))
            itself = catalogue.own(asked.codes, groups)
            rows = np.where(itself >= 0, itself, rows)
        for i in at[rows < 0]:
            entries[i] = Suppressed(entries[i].query, "infeasible")
        found = rows >= 0
        if found.any():
            chosen = take_in(self.population.rows(rows[found]), self.population.encoder)
            wanted = None if factual is None else factual[found]
            self._fill(entries, at[found], chosen, self.rows.labels(rows[found]), wanted, progress)

    def _fill(
        self,
        entries: list[Entry],
        at: NDArray[np.int64],
        accepted: Intake,
        own: NDArray[Any],
        factual: NDArray[Any] | None,
        progress: Progress | None,
    ) -> None:
        """Protect and verify counterfactuals with the desired outcome, and put the results in their places."""
        if not len(at):
            return
        judge, cells = self.goal.judge(factual, own), accepted.quasi_identifiers[0]
        oracle = Oracle(self.model, judge, self.rows, accepted.frame, desired_at=cells)
        goals = (own if factual is None else factual).tolist()
        verdicts = self.release.run(accepted, goals, oracle, self.ground.sides.of(own), progress)
        if self.measures:
            verdicts = with_effective(verdicts, accepted, judge, self.model, self.rows, self.release)
        for row, (i, verdict) in enumerate(zip(at.tolist(), verdicts, strict=True)):
            outcome = self.goal.outcome(self.model, None if factual is None else factual[row], own[row])
            entries[i] = self._entry(entries[i].query, accepted, row, verdict, outcome)

    def _entry(self, query: int, accepted: Intake, row: int, verdict: Verdict, outcome: Outcome) -> Entry:
        if isinstance(verdict, Refusal):
            return Suppressed(query, verdict.reason, refused_k=verdict.k)
        region, certificate = verdict
        released = disclosed(certificate, accepted, row)
        region = Region({name: region[name] for name in self.population.schema.names("quasi-identifier")})
        named = {name: self.population.domains[name].label(part) for name, part in region.items()}
        labels = {name: label for name, label in named.items() if label is not None}
        return GeneralizedCounterfactual(query, region, released, certificate, labels, certificate.withheld, outcome)


def _usable(intake: Intake) -> NDArray[np.int64]:
    return np.array([i for i, fault in enumerate(intake.faults) if fault is None], dtype=np.int64)


def _faulty_or(intake: Intake, query: Sequence[int] | NDArray[np.int64], reason: str) -> list[Entry]:
    return [
        Suppressed(int(q), *fault) if fault else Suppressed(int(q), reason)
        for q, fault in zip(query, intake.faults, strict=True)
    ]


def failing_closed() -> AbstractContextManager[None]:
    """Turn whatever fails on the way to entries into an error for `withheld`: nothing unprotected may leave."""
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def withheld(query: NDArray[np.int64], error: CFKError) -> list[Entry]:
    """Withhold everything because of an error of `failing_closed`."""
    by_model = isinstance(error, ModelError)  # which a plugin may have raised, with a text of its own
    _log.warning("explanations withheld: %s", "ModelError in the pipeline" if by_model else error)
    reason = "model_failed" if by_model else "protector_failed"
    return [Suppressed(int(q), reason) for q in query]


# KAnonymizer: the stages from raw counterfactuals to verified explanations, failing closed at each.


class KAnonymizer:
    """Turns counterfactual instances into k-anonymous explanations with recounted certificates.

    Protects against linking an explanation to a person by quasi-identifiers: every region that leaves holds at
    least k people of the population, and by default k people are mapped to it, whoever reruns the protection. What
    else is held against is the policy's guarantee (`PrivacyPolicy`); several releases of one record over time need a
    `Ledger`. Private values are released as the policy says, by default as they are.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``.
    method : str or Protector
        "auto": what the guarantee prescribes, "exact" for a nominal one. For a nominal guarantee also "grasp",
        "mondrian", the name of a plugin's protector, or a protector with its own settings.
    plugins : sequence
        Plugin objects or modules for this run, beside those found by entry points.
    reference : Population, optional
        Larger population for the journalist risk.
    ledger : Ledger, optional
        Remembers what was released for each record, so that several releases do not add up; see `Ledger`.
    measure_k_effective : bool
        For a nominal guarantee: rerun the protection for everybody in a region and certify ``k_effective``, at about k
        times the cost. Other guarantees always do. Not for protectors that draw random numbers, nor with l or t.
    seed : int
        For protectors and samples that draw random numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    >>> _ = anonymizer.fit(Population.from_frame(train, schema), model=lambda x: x.salary > 50, desired=True)
    >>> str(anonymizer.transform(train.head(1))[0].region["age"])
    '24–25'
    """

    def __init__(
        self,
        *,
        policy: PrivacyPolicy | None = None,
        method: str | Protector = AUTO,
        plugins: Sequence[object] = (),
        reference: Population | None = None,
        ledger: Ledger | None = None,
        measure_k_effective: bool = False,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.method = method
        self.plugins = plugins
        self.reference, self.ledger = reference, ledger
        self.measure_k_effective, self.seed = measure_k_effective, seed

    def fit(self, population: Population, model: Any, desired: Any) -> KAnonymizer:
        """Bind population, model and desired outcome; everything that can be refused is refused here.

        Parameters
        ----------
        population : Population
            The crowd to hide in: the rows that the explainer may return.
        model : object with ``predict``, or callable
            Returns one label per row.
        desired : label, "opposite" or callable
            What a counterfactual must reach. A callable takes labels and returns booleans.

        Returns
        -------
        KAnonymizer
            Itself.

        Raises
        ------
        PolicyError
            If k is above the number of people, l or t is asked without sensitive attributes, the method cannot give
            the guarantee, or an effective k cannot be measured with it.
        ModelError
            If the model cannot be used.
        InputError
            If something else than a `Population` is given, the method is unknown, or it has a built-in one's name.
        """
        if not isinstance(population, Population):
            raise InputError(f"population must be a Population, got {type(population).__name__}; use from_frame")
        policy = self.policy_ = self.policy or population.policy or PrivacyPolicy()
        check(policy, self.method, population)
        self.manager_ = load_plugins(self.plugins)
        self.population_, self.goal_ = population, Goal(desired)
        self.model_ = LabelModel(model, population.schema.features, fractions=callable(desired))
        self.rows_ = RowOracle(self.model_, population)
        self.goal_.check(self.model_, self.rows_.tried())
        self.ground_ = Ground.prepare(policy, self.goal_, self.rows_)
        self.protector_, self.method_ = self.ground_.protector or choose(self.method, self.manager_.protectors())
        detector = Detector(population, policy.near_native, seed=self.seed)
        self.findings_ = FindingStage(population, detector, self.manager_)
        partition = self.ground_.partition
        verifier = Verifier(population, policy, reference=self.reference, seed=self.seed, partition=partition)
        release = ReleaseStage(population, policy, self.protector_, self.method_, self.manager_, verifier, self.seed)
        stage = release if self.ledger is None else RecordedRelease(release, self.ledger)
        if measures := self.measure_k_effective and partition is None:
            check_rerun(self.protector_, policy)
        self.stage_ = EntryStage(population, self.model_, self.goal_, self.rows_, self.ground_, stage, measures)
        ledger = "none" if self.ledger is None else self.ledger.backend
        used = {"seed": self.seed, "ledger": ledger, "reference": self.reference is not None}
        self.result_ = ResultStage.of(population, policy, self.method_, self.manager_, detector, **used)
        return self

    def transform(
        self,
        counterfactuals: pd.DataFrame | Sequence[Counterfactual],
        factuals: pd.DataFrame | None = None,
        *,
        instance_based: bool = False,
        progress: Progress | None = None,
    ) -> Explanations:
        """Protect a table of counterfactual instances.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more), or sequence of Counterfactual
            Raw feature space, any column order; label, identifier and unknown columns are dropped.
        factuals : DataFrame, shape (n, n_features or more), optional
            The instance that each counterfactual explains; needed only for ``desired="opposite"``, where without
            it the model's outcome at the counterfactual counts as the desired one.
        instance_based : bool
            Whether the generator returns training rows or lightly changed ones.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Explanations
            One entry per row, in order.

        Raises
        ------
        InputError
            If the table lacks features, has doubled columns or no rows.
        InfeasibleError
            If the policy says ``on_infeasible="raise"`` and an entry had to be suppressed.
        """
        self._check_fitted()
        call, (frame, query) = Request(), as_table(counterfactuals, self.population_.schema.features)
        labels = None
        if factuals is not None:
            if len(facts := require_features(factuals, self.population_.schema.features, "factuals")) != len(frame):
                raise InputError(f"{len(facts)} factuals for {len(frame)} counterfactuals; give one each")
            labels = self.factual_labels(facts) if self.goal_.is_opposite else None
        entries, findings = self.release(frame, query, labels, instance_based=instance_based, progress=progress)
        return self.result_.wrap(entries, findings, generator="table", call=call)

    def explain(self, queries: pd.DataFrame, *, progress: Progress | None = None) -> Explanations:
        """Answer queries from the catalogue, without an explainer.

        Needs ``guarantee="catalogue"``. The answer is the nearest entry and depends on the catalogue, the model and
        the query alone: who asks again and again sees the catalogue, and no more.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more)
            Instances to explain.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Explanations
            One entry per query, in order.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        InputError, InfeasibleError
            As `transform`.
        """
        self._check_fitted()
        if self.ground_.catalogue is None:
            raise PolicyError('explain() answers from the catalogue; it needs guarantee="catalogue"')
        call, frame = Request(), require_features(queries, self.population_.schema.features, "queries")
        query = np.arange(len(frame))
        try:
            with failing_closed():
                entries = self.stage_.of_queries(take_in(frame, self.population_.encoder), query, progress)
        except CFKError as error:
            entries = withheld(query, error)
        return self.result_.wrap(entries, (None,) * len(query), generator="catalogue", call=call)

    def seal(self, path: str | Path) -> None:
        """Write population, policy and partition to one file, from which another process protects alike.

        ``KAnonymizer().fit(Population.open(path), model, desired)`` releases the same regions. The file has no row
        and no value of a private attribute (`Population.seal`). There, nothing is counted that needs rows:
        ``k_desired``, ``k_private`` and findings are None, and k may be raised and not lowered.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        PolicyError
            If the policy judges private values, or has a catalogue: both need rows.
        BundleError
            If the file cannot be written.
        """
        self._check_fitted()
        check_sealable(self.policy_, self.goal_)
        partition = self.ground_.partition
        arrays = {} if partition is None else partition_to_arrays(partition)
        self.population_.seal(path, facts={"policy": self.policy_.to_dict()}, arrays=arrays)

    def regions_of(self, records: pd.DataFrame) -> list[Region | None]:
        """Return the region that protection maps each record to, whatever its outcome. For audits; never release it.

        Nothing is verified or asked of the model. An adversary who knows all but the key computes the same.

        Parameters
        ----------
        records : DataFrame, shape (n, n_features or more)

        Returns
        -------
        list of Region or None
            One per record; None where there is none.
        """
        self._check_fitted()
        frame = require_features(records, self.population_.schema.features, "records")
        return self.stage_.regions(take_in(frame, self.population_.encoder))

    def goal_of_call(self, desired: Any) -> Goal | None:
        """Return what a call that asks for an outcome of its own is judged by; None where it asks for none.

        Parameters
        ----------
        desired : label, or callable from labels to booleans; None for none

        Raises
        ------
        InputError
            If the call's outcome is another one than is protected for; see `Goal.of_call`. Where eligible people alone
            count, another range is refused as well: which ranges are answered would tell their outcomes.
        """
        if desired is None:
            return None
        goal = self.goal_.of_call(desired, self.model_)
        if goal != self.goal_ and callable(goal.desired) and self.policy_.counts_eligible:
            raise InputError(
                "the call asks for a range of outcomes, and the k people are those with the outcome that was protected "
                "for; protect the explainer with desired=DesiredRange(low, high), and ask for the same range"
            )
        return goal

    def factual_labels(self, factuals: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels of the instances to explain."""
        return self.model_(self.population_.conform(factuals)).astype(object)

    def release(
        self,
        frame: pd.DataFrame,
        query: NDArray[np.int64],
        factual_labels: NDArray[Any] | None = None,
        *,
        instance_based: bool = False,
        progress: Progress | None = None,
        stage: EntryStage | None = None,
        goal: Goal | None = None,
    ) -> tuple[list[Entry], tuple[Finding | None, ...]]:
        """Run all stages on counterfactuals that have every feature; `query` says which query each answers.

        With a `goal` of the call (`goal_of_call`) they are judged by it.
        """
        try:
            with failing_closed():
                intake = take_in(frame, self.population_.encoder)
                findings = self.findings_.of(frame, instance_based=instance_based)
                made = (stage or self.stage_).of_counterfactuals(intake, query, factual_labels, progress, goal)
                return made, findings
        except CFKError as error:
            return withheld(query, error), (None,) * len(query)

    def _check_fitted(self) -> None:
        if not hasattr(self, "stage_"):
            raise NotFittedError("call fit(population, model=..., desired=...) first")

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every training row."""
        raise InputError("a KAnonymizer holds training rows and refuses to be pickled; fit it where it runs")

    def __repr__(self) -> str:
        """Show settings alone."""
        return f"KAnonymizer(policy={self.policy!r}, method={getattr(self.method, 'name', self.method)!r})"


def release_record(entry: Entry, method: str, policy_hash: str, population: str = "") -> ReleaseRecord:
    """Describe an explanation without its values."""
    certificate = entry.certificate if isinstance(entry, GeneralizedCounterfactual) else None
    return ReleaseRecord(
        status=entry.status,
        reason=entry.reason if isinstance(entry, Suppressed) else None,
        method=method,
        k=certificate.k if certificate else None,
        ncp=certificate.ncp if certificate else None,
        pureness=certificate.pureness if certificate else None,
        policy_hash=policy_hash,
        population="" if isinstance(entry, PrototypeCounterfactual) else population,
    )
