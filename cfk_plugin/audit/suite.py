"""All audits of trained models together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cfk_plugin.audit.attribute_inference import attribute_inference, split_people
from cfk_plugin.audit.extraction import Sets, draw_sets, everybody, extraction, sizes_that_fit
from cfk_plugin.audit.linkage import run_linkage_audit
from cfk_plugin.audit.membership import SampleParts, membership
from cfk_plugin.audit.result import ALARMS, AttackReport, AuditReport, detectable_auc
from cfk_plugin.audit.setting import Setting
from cfk_plugin.audit.targets import (
    DESIRED,
    ExplainerFactory,
    ProtectedOwner,
    Sample,
    Target,
    adapted,
    check_sample,
    fitted,
)
from cfk_plugin.data.population import Population
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import InputError, did_you_mean, refitting
from cfk_plugin.hookspecs import Progress
from cfk_plugin.release.anonymizer import KAnonymizer

Report = AttackReport | AuditReport


# How much every audit runs, whatever the table, the model and the machine.
TRAINED_ON = 2_000
"""Most people that a model is trained on."""

SHADOW_MODELS = 8
"""Models of the membership attacker."""

ATTACKED = 300
"""Most members, and most others, whose membership is guessed."""

QUERIES = (100, 500)
"""Numbers of queries of extraction, with one result each."""

REPETITIONS = 3
"""Draws of the queries of extraction."""

EXPLANATIONS = 200
"""Most explanations for linkage, and for attribute inference."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scope:
    """What audits need besides owner and people."""

    quasi_identifiers: tuple[str, ...]  # what an attacker knows of everybody
    explainer: ExplainerFactory  # finds raw counterfactuals where an owner has no explainer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AuditTask:
    """One owner under some audit. Host side only: it holds people."""

    owner: Target
    sample: Sample
    scope: Scope
    seed: int = 0

    @property
    def n_train(self) -> int:
        """Number of people that a model is trained on: at most 3 of 10 of the sample."""
        return min(TRAINED_ON, 3 * len(self.sample) // 10)

    @property
    def crowd(self) -> Sample:
        """The people for an audit that divides them into eighths and trains on one of these.

        They are drawn, because a table may be sorted by outcome.
        """
        n_people = len(self.sample)
        n_crowd = 8 * TRAINED_ON
        if n_people <= n_crowd:
            return self.sample
        drawn = np.random.default_rng([self.seed, 5]).choice(n_people, n_crowd, replace=False)
        return self.sample.take(np.sort(drawn))

    @property
    def n_members(self) -> int:
        """Number of members with the desired outcome under attack by `membership`, if the model is
        right about them.
        """
        return min(ATTACKED, round(self.n_train * (1 - self._share_undesired)))

    @property
    def n_explanations(self) -> int:
        """Number of explanations for linkage or attribute inference, if the model is right.

        Half of the people whom the model is not trained on ask, if their outcome is undesired.
        """
        n_asking = (len(self.sample) - self.n_train) / 2
        return min(EXPLANATIONS, round(n_asking * self._share_undesired))

    @property
    def _share_undesired(self) -> float:
        return float((~self.sample.y).mean())


class Audit(ABC):
    """One audit of an owner: what it needs, what it can show, and how it is run."""

    requirement: ClassVar[str] = ""
    """What `is_applicable` asks for, as the reason why an audit is left out."""

    def is_applicable(self, task: AuditTask) -> bool:  # noqa: ARG002 - most attack everybody
        """Return True if there is something to attack, however many people there are."""
        return True

    @abstractmethod
    def check_sizes(self, task: AuditTask) -> None:
        """Raise `InputError` if the sample has too few people; trains nothing."""

    @abstractmethod
    def describe_power(self, task: AuditTask) -> str:
        """Return a sentence on what the audit can show with the people it has."""

    @abstractmethod
    def run(self, task: AuditTask) -> Report:
        """Attack the owner of the task."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinkageSplit:
    """Three disjoint parts of a sample. Host side only."""

    training: Sample
    asking: Sample
    holdout: Sample


class LinkageAudit(Audit):
    """Who is behind an explanation, for an owner who gives out regions."""

    requirement = "it attacks regions of k people, and this owner gives out none"

    def is_applicable(self, task: AuditTask) -> bool:
        return isinstance(task.owner, ProtectedOwner)

    def check_sizes(self, task: AuditTask) -> None:
        SampleParts.cut(task.sample, task.n_train, task.seed)
        _check_training_table(task.owner, self._split(task).training)

    def describe_power(self, task: AuditTask) -> str:
        n = task.n_explanations
        undetected = 1.0
        if n > 0:
            undetected = 1 - 0.05 ** (1 / n)  # exact 95 % limit of a rate, after no success in n
        told = f"no success in {n} explanations leaves up to {100 * undetected:.1f} % open"
        return told + _shortage(n, EXPLANATIONS, "explanations")

    def run(self, task: AuditTask) -> Report:
        """Train once, let people outside of the table ask, and link the answers to the table."""
        owner = task.owner
        if not isinstance(owner, ProtectedOwner):
            raise InputError(f"linkage of {owner.name}: {self.requirement}")
        split = self._split(task)
        model = fitted(owner.model, split.training, task.seed)
        is_desired = model.predict(split.asking.X) == DESIRED
        queries = split.asking.X[~is_desired].head(EXPLANATIONS).reset_index(drop=True)
        schema = owner.schema_of(split.training)
        explainer = adapted(
            task.scope.explainer, split.training, model, task.seed, tuple(schema.features)
        )
        batch = explainer.generate(queries)
        factuals = queries.take(batch.query[batch.slot]).reset_index(drop=True)
        anonymizer = KAnonymizer(policy=owner.rules, method=owner.method, random_state=task.seed)
        with refitting():
            population = Population.from_frame(split.training.X, schema)
            anonymizer.fit(population, model=model, desired=DESIRED)
        setting = Setting(
            anonymizer,
            counterfactuals=batch.frame,
            queries=factuals,
            holdout=split.holdout.X,
            seed=task.seed,
            limit=EXPLANATIONS,
        )
        return run_linkage_audit(setting)

    def _split(self, task: AuditTask) -> LinkageSplit:
        """Draw the training table; half of the other people ask, the rest are the control."""
        n_people = len(task.sample)
        order = np.random.default_rng([task.seed, 4]).permutation(n_people)
        first_outside = task.n_train + (n_people - task.n_train) // 2
        training, asking, holdout = np.split(order, [task.n_train, first_outside])
        return LinkageSplit(
            training=task.sample.take(training),
            asking=task.sample.take(asking),
            holdout=task.sample.take(holdout),
        )


class AttributeInferenceAudit(Audit):
    """Private attributes of the people who fit an answer."""

    def check_sizes(self, task: AuditTask) -> None:
        SampleParts.cut(task.sample, task.n_train, task.seed)
        table, _, _ = split_people(len(task.sample), task.n_train, task.seed)
        _check_training_table(task.owner, task.sample.take(table))

    def describe_power(self, task: AuditTask) -> str:
        n = task.n_explanations
        told = f"sees an advantage of {100 * half_width(n):.0f} points or more ({n} explanations)"
        return told + _shortage(n, EXPLANATIONS, "explanations")

    def run(self, task: AuditTask) -> Report:
        return attribute_inference(
            task.owner,
            task.sample,
            quasi_identifiers=task.scope.quasi_identifiers,
            n_train=task.n_train,
            queries=EXPLANATIONS,
            seed=task.seed,
        )


class MembershipAudit(Audit):
    """Who is in the training table, by entries, by answers to others, and by one's own."""

    def check_sizes(self, task: AuditTask) -> None:
        parts = SampleParts.cut(task.sample, task.n_train, task.seed)
        _check_training_table(task.owner, parts.table)

    def describe_power(self, task: AuditTask) -> str:
        n = task.n_members
        area = detectable_auc(n, n)
        told = f"sees an AUC of {area:.2f} or more ({n} members, {n} others)"
        unseen_rates = [f"{rate:g}" for rate in ALARMS if n < 1 / rate]
        if unseen_rates:
            told += f"; nothing at a false positive rate of {' or '.join(unseen_rates)}"
        return told + _shortage(n, ATTACKED, "members")

    def run(self, task: AuditTask) -> Report:
        return membership(
            task.owner,
            task.sample,
            n_train=task.n_train,
            n_shadows=SHADOW_MODELS,
            attacked=ATTACKED,
            seed=task.seed,
        )


class ExtractionAudit(Audit):
    """The model itself: a copy that is trained on answers."""

    def check_sizes(self, task: AuditTask) -> None:
        sets = draw_sets(task.crowd, task.seed)
        _check_training_table(task.owner, task.crowd.take(sets[0].members))
        sizes_that_fit(QUERIES, _n_known(sets))

    def describe_power(self, task: AuditTask) -> str:
        sets = draw_sets(task.crowd, task.seed)
        n_held_out = len(sets[0].others)
        gain = 100 * half_width(n_held_out)
        told = f"sees a gain of {gain:.1f} points or more ({n_held_out} people held out)"
        n_known = _n_known(sets)
        _, too_many = sizes_that_fit(QUERIES, n_known)
        if too_many:
            numbers = " and ".join(f"{n:,}" for n in too_many)
            told += f"; without {numbers} queries, as the attacker has {n_known} people"
        return told

    def run(self, task: AuditTask) -> Report:
        return extraction(
            task.owner,
            task.crowd,
            queries=QUERIES,
            repeats=REPETITIONS,
            seed=task.seed,
        )


AUDITS: Mapping[str, Audit] = {
    "linkage": LinkageAudit(),
    "attribute_inference": AttributeInferenceAudit(),
    "membership": MembershipAudit(),
    "extraction": ExtractionAudit(),
}
"""The audits by name, in running order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SelectedAudit:
    """An audit that can be run. Host side only: its task holds people."""

    audit: str
    task: AuditTask


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An audit that is not run, and why."""

    owner: str
    audit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AuditSelection:
    """What `run_audits` runs, and what it leaves out. Host side only: it holds people."""

    selected: tuple[SelectedAudit, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAudit:
    """The report on one owner under one audit: counts, shares and settings alone."""

    owner: str
    audit: str
    report: Report


def select_audits(
    owners: Sequence[Target],
    sample: Sample,
    scope: Scope,
    *,
    audits: Sequence[str] = tuple(AUDITS),
    seed: int = 0,
) -> AuditSelection:
    """Check the arguments and the number of people for every owner and audit; train nothing.

    An audit that cannot attack an owner, or for which the sample has too few people, is left out
    with the reason.

    Parameters
    ----------
    owners : sequence of Target
        With different names.
    sample : Sample
        People of one population.
    scope : Scope
    audits : sequence of str
        Names of `AUDITS`, in whose order they run. Default: all.
    seed : int
        Of everything that is drawn.

    Returns
    -------
    AuditSelection

    Raises
    ------
    InputError
        If an argument is wrong, or if no audit is left.
    """
    check_sample(sample)
    whole_number("seed", seed, 0)
    unknown = [name for name in audits if name not in AUDITS]
    if unknown:
        raise InputError(
            f"unknown audit {', '.join(unknown)}; known: {', '.join(AUDITS)}"
            f"{did_you_mean(unknown, AUDITS)}"
        )
    if len({owner.name for owner in owners}) != len(owners):
        raise InputError("two owners have the same name; reports could not be told apart")
    selected = []
    left_out = []
    for owner in owners:
        task = AuditTask(owner=owner, sample=sample, scope=scope, seed=seed)
        for name, audit in AUDITS.items():
            if name not in audits:
                continue
            reason = _obstacle(audit, task)
            if reason is None:
                selected.append(SelectedAudit(audit=name, task=task))
            else:
                left_out.append(LeftOut(owner=owner.name, audit=name, reason=reason))
    if not selected:
        raise InputError(f"no audit can be run. {'. '.join(describe_left_out(left_out))}")
    return AuditSelection(selected=tuple(selected), left_out=tuple(left_out))


def run_audits(
    selection: AuditSelection, *, progress: Progress | None = None
) -> Iterator[FinishedAudit]:
    """Run the selected audits one after the other, and yield each report when it is finished.

    Parameters
    ----------
    selection : AuditSelection
    progress : callable, optional
        Called with (done, total) audits.

    Yields
    ------
    FinishedAudit
    """
    n_audits = len(selection.selected)
    for n_done, chosen in enumerate(selection.selected):
        if progress is not None:
            progress(n_done, n_audits)
        report = AUDITS[chosen.audit].run(chosen.task)
        yield FinishedAudit(owner=chosen.task.owner.name, audit=chosen.audit, report=report)
    if progress is not None:
        progress(n_audits, n_audits)


def describe_left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Return one sentence per reason, with the audits that are left out for it."""
    audits_of_reason: dict[str, list[str]] = {}
    for each in left_out:
        audits_of_reason.setdefault(each.reason, []).append(f"{each.audit} of {each.owner}")
    return [f"{', '.join(audits)}: {reason}" for reason, audits in audits_of_reason.items()]


def describe_power(selection: AuditSelection) -> list[str]:
    """Return one sentence per audit on what it can show with the people of the sample.

    Owners are trained on the same people, so the sentence is true for each of them.
    """
    task_of_audit = {each.audit: each.task for each in selection.selected}
    sentences = []
    for name, audit in AUDITS.items():
        if name in task_of_audit:
            sentences.append(f"{name}: {audit.describe_power(task_of_audit[name])}")
    return sentences


def half_width(n: int) -> float:
    """Return half the width of the 95 % interval of a rate near 1/2 over n cases, at most 1.

    >>> half_width(100)
    0.098
    """
    if n == 0:
        return 1.0
    return min(1.96 * 0.5 / math.sqrt(n), 1.0)


def _obstacle(audit: Audit, task: AuditTask) -> str | None:
    """Return the reason why an audit cannot be run on a task; None if it can."""
    if not audit.is_applicable(task):
        return audit.requirement
    try:
        audit.check_sizes(task)
    except InputError as error:
        return str(error)
    return None


def _check_training_table(owner: Target, people: Sample) -> None:
    """Raise `InputError` if so few people cannot be trained on, or not be protected."""
    n_people = len(people)
    if people.y.all() or not people.y.any():
        raise InputError(f"all {n_people} people that a model is trained on have the same outcome")
    if isinstance(owner, ProtectedOwner) and owner.rules.k > n_people:
        raise InputError(f"a model is trained on {n_people} people, fewer than k = {owner.rules.k}")


def _n_known(sets: Sets) -> int:
    """Return the number of people that the attacker of extraction knows and can ask about."""
    return len(everybody(sets[1:]))


def _shortage(n_available: int, n_wanted: int, noun: str) -> str:
    """Return the end of a sentence: what the audit would use; empty if there are enough people."""
    if n_available >= n_wanted:
        return ""
    return f"; too few people for {n_wanted:,} {noun}"
