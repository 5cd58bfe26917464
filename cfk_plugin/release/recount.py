"""Recounting released explanations against the people, the model and the guarantee they were made
with.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import rules_of
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OPPOSITE, DesiredOutcome, DesiredSet, Outcome, desired_of_text
from cfk_plugin.data.policy import MIN_LIFT, PrivacyPolicy
from cfk_plugin.data.promises import PROMISES, promise_of
from cfk_plugin.data.region import Interval, to_text
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import ModelError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivateValues
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.partition.microaggregation import Effort
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.editions import book_on_record, outcomes_of
from cfk_plugin.release.publication import (
    publish,
    wrong_order,
    wrong_short_catalogue,
    wrong_table,
)
from cfk_plugin.release.released_file import (
    Finding,
    Released,
    answers_in_file,
    floor_of,
    inconsistent,
    policy_of,
    prototypes_in_file,
    read,
    unfit,
    wrong_columns,
    wrong_prototypes,
)
from cfk_plugin.release.still_true import (
    NewModel,
    ReleasedAnswer,
    StillTrue,
    counted_true,
    rows_asked_for,
    still_true_at,
)
from cfk_plugin.release.verification import Verifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import Population
    from cfk_plugin.data.region import Part
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.release.pipeline import Pipeline
    from cfk_plugin.release.results import Policy

# For pureness, up to `CELLS` combinations are all asked; of more, `SAMPLES` are drawn.
CELLS, SAMPLES = Verifier.cell_budget, Verifier.samples
_AT_ONCE = 32  # regions that the model is asked about at once
NEAR = 1e-9  # figures this close are equal: a table that was written as text has lost the last bits


@dataclass(slots=True)
class Recount:
    """What was found, what could not be checked, and how many people are in each region that was
    counted.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)  # attacks, by the certificates
    still_true: StillTrue | None = None  # of the answers, by the model; None if nobody asked it

    @property
    def verdict(self) -> str:
        """Return ``fail``, ``review`` (a person has to look) or ``pass``."""
        if any(finding.fails for finding in self.findings):
            return "fail"
        return "review" if self.findings else "pass"


def examine(
    content: Mapping[str, Any],
    population: Population | None = None,
    judge: Judge | None = None,
    *,
    agreed: PrivacyPolicy | None = None,
    k: int | None = None,
    outcome: str | None = None,
    rerun: bool = False,
    signed: bool = False,
    table: pd.DataFrame | None = None,
    queries: pd.DataFrame | None = None,
) -> Recount:
    """Check form, consistency, counts and, if given, the model's outcomes; stop where nothing can
    be read.

    Without `k`, that of the policy holds; `outcome` names the desired one, `agreed` is the policy
    that the file must have been made under, `rerun` builds the guarantee's regions again, and
    `signed` is only reported. `table` is what a catalogue's content was read from. With `queries`,
    the instances that were answered, the model says which answers are still true.
    """
    report = Recount(unfit(content, () if population is None else population.schema.features))
    if report.findings:
        report.unchecked.append("anything else: the form has to be right first")
        return report
    policy = policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    released = [entry for entry in content["explanations"] if entry["status"] == "released"]
    attacks = [entry["certificate"].get("not_stopped", ()) for entry in released]
    report.not_stopped += dict.fromkeys(chain.from_iterable(attacks))
    report.findings += inconsistent(content, policy)
    is_catalogue = content["kind"] == "catalogue"
    features = () if population is None else population.schema.features
    if is_catalogue:
        report.findings += _wrong_catalogue(content, policy, table, features)
    report.unchecked += _unchecked(
        policy,
        signed=signed,
        agreed=agreed is not None,
        people=population is not None,
        model=judge is not None,
        rerun=rerun,
        is_catalogue=is_catalogue,
        has_sentences=any("sentence" in entry for entry in content["explanations"]),
    )
    if isinstance(policy, PrivacyPolicy) and "least_pureness" not in content:
        report.findings.append(Finding("least_pureness", "is missing"))
    if agreed is not None and agreed != policy:
        report.findings.append(Finding("policy", "is not the one that was given"))
    if all(entry["status"] == "withheld" for entry in content["explanations"]):
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    if population is None:
        return report
    report.findings += wrong_columns(content, population)
    if not isinstance(policy, PrivacyPolicy):
        report.findings += _of_prototypes(content, population, policy, judge, report)
        return report
    is_contradictory = any(finding.fails for finding in report.findings)
    if rerun and is_contradictory:
        report.unchecked.append("that regions are those of the guarantee: the file is wrong anyway")
    options: dict[str, Any] = {
        "k": k,
        "outcome": outcome,
        "rerun": rerun and not is_contradictory,
        "queries": queries,
    }
    report.findings += _of_regions(content, population, policy, judge, report, **options)
    return report


def _wrong_catalogue(
    content: Mapping[str, Any],
    policy: Policy,
    table: pd.DataFrame | None,
    features: Sequence[str],
) -> Iterator[Finding]:
    """Yield why the content is not a catalogue, or differs from the table that it was read from."""
    is_of_catalogue = (
        isinstance(policy, PrivacyPolicy) and promise_of(policy.guarantee).can_be_published
    )
    if not is_of_catalogue:
        yield Finding("kind", "is 'catalogue', and the policy's guarantee is another one")
        return
    yield from wrong_order(content)
    yield from wrong_short_catalogue(content)
    if table is not None:
        yield from wrong_table(table, content, features)


def _of_prototypes(
    content: Mapping[str, Any],
    population: Population,
    policy: Policy,
    judge: Judge | None,
    report: Recount,
) -> Iterator[Finding]:
    wrong = list(wrong_prototypes(content, population))
    yield from wrong
    if judge is not None and not wrong:
        report.still_true = judge.true_prototypes(content, policy, report)
        yield from _not_true(report.still_true, policy)
    no_count = (
        "hold prototypes, which no people can be counted for: epsilon is of the way they were made"
    )
    yield Finding("explanations", f"{no_count}; see cfk audit epsilon", fails=False)


def _of_regions(
    content: Mapping[str, Any],
    population: Population,
    policy: PrivacyPolicy,
    judge: Judge | None,
    report: Recount,
    *,
    k: int | None,
    outcome: str | None,
    rerun: bool,
    queries: pd.DataFrame | None,
) -> Iterator[Finding]:
    found, wrong = read(content, population, policy)
    yield from wrong
    # A catalogue is always about the table of today, so its counts must match exactly.
    promise = promise_of(policy.guarantee)
    is_catalogue = content["kind"] == "catalogue" and promise.can_be_published
    again = _rerun_of(content, policy, judge, report) if rerun else None
    if again is not None and is_catalogue:
        yield from again.wrong_publication(content, report)
    with_fixed_regions = [name for name in PROMISES if promise_of(name).has_fixed_regions]
    known = {*BUILT_IN, *load_plugins().protectors(), *with_fixed_regions}
    labels = _labels(population, judge, outcome)
    floor = floor_of(content)
    impure: list[Released] = []  # by the model
    for each, answer in zip(
        found, repeat(None) if judge is None else judge.asked(found), strict=judge is not None
    ):
        said = each.entry["certificate"]
        report.counts.append(population.people(each.rows))
        same = population.has_key and said["population"] == population.fingerprint
        yield from recount(each, population, policy, k, of_today=is_catalogue or same)
        if said["method"] not in known:
            yield Finding(
                each.where,
                "certificate.method is the name of no method or plugin that is installed here",
            )
        if population.has_key and not same:
            yield Finding(
                each.where, "is about another population, or was made with another key", fails=False
            )
        yield from _wrong_outcome(each, labels, judge)
        if judge is not None and answer is not None:
            yield from _wrong_for_model(each, answer, policy, k, judge, report)
            if answer.share < floor:
                impure.append(each)
        if again is not None and not is_catalogue:
            yield from again.wrong(each)
    if judge is not None:
        report.still_true = (
            judge.true_entries(found, impure, policy)
            if is_catalogue
            else judge.true_answers(found, queries, policy, report)
        )
    yield from _not_true(report.still_true, policy)
    if not population.has_key:
        report.unchecked.append("that this is the population of the certificates (set CFK_KEY)")


def _wrong_for_model(
    found: Released,
    answer: _ModelSays,
    policy: PrivacyPolicy,
    k: int | None,
    judge: Judge,
    report: Recount,
) -> Iterator[Finding]:
    """Yield what the model contradicts of a certificate."""
    if not answer.size:
        report.unchecked.append(
            f"pureness of {found.where}: the table has no number in a released bin"
        )
        return
    yield from judge.wrong_pureness(found, answer)
    yield from judge.too_few(found, answer, policy, k)


def _not_true(found: StillTrue | None, policy: Policy) -> Iterator[Finding]:
    """Yield the answers that the model refuses.

    Only a catalogue and prototypes promise that an answer is true for the person who asked.
    """
    is_promised = True
    if isinstance(policy, PrivacyPolicy):
        is_promised = promise_of(policy.guarantee).promises_true_answers
    for position in () if found is None else found.broken:
        yield Finding(
            f"explanation {position}",
            "is not true for this model: it does not give the outcome",
            fails=is_promised,
        )


def _rerun_of(
    content: Mapping[str, Any], policy: PrivacyPolicy, judge: Judge | None, report: Recount
) -> Rerun | None:
    """Return the guarantee's regions, built again; None where the file does not tell enough."""
    if judge is None:
        return None
    if judge.previous is not None:
        report.unchecked.append(
            "that the catalogue of --previous is the one that was published: its values are taken"
            " as they are"
        )
    if not promise_of(policy.guarantee).has_fixed_regions:
        report.unchecked.append(
            "that a search finds these regions again: its counterfactuals are not in the file"
        )
        return None
    released = [entry for entry in content["explanations"] if entry["status"] == "released"]
    if any(entry["certificate"]["n_later"] for entry in released):
        report.unchecked.append(
            "that these are the guarantee's regions: models in later= decided on them, and they are"
            " not here"
        )
        return None
    return judge.rerun_of(replace(policy, min_pureness=floor_of(content)))


def _unchecked(
    policy: Policy,
    *,
    signed: bool,
    agreed: bool,
    people: bool,
    model: bool,
    rerun: bool,
    is_catalogue: bool,
    has_sentences: bool,
) -> list[str]:
    """Return what was not checked, with the option that checks it where there is one."""
    # Prototypes come from a model with noise, and no region, search or entry stands behind them.
    promise = promise_of(policy.guarantee) if isinstance(policy, PrivacyPolicy) else None
    checked = {
        "who wrote the file, and changes that fit the rest of it (--key)": signed,
        "that its policy is the one that was agreed on (--policy)": agreed,
        "people, information loss and values (give the training rows and --schema)": people,
        "pureness (--model)": model or promise is None,
        "that regions are those of the guarantee (--rerun)": rerun or promise is None,
        "optimal and gap, which are the method's own claim": (
            promise is None or not promise.may_claim_optimality
        ),
        "that private values are those of the entries, and that none is missing (--rerun)": (
            not is_catalogue or rerun
        ),
        "that private values are those of the counterfactuals, which are not in the file": (
            promise is None or not promise.releases_counterfactuals
        ),
        "which entry of the catalogue answers a query, and how far it was moved": (
            promise is None or not promise.searches_for_answers or is_catalogue
        ),
        "where searches for answers started, on which query steering depends": (
            promise is None or not promise.searches_for_answers or is_catalogue
        ),
        "that no answer was taken out together with its number": is_catalogue,
        "why explanations were withheld": promise is None or is_catalogue,
        "that sentences say what their entries say": not has_sentences,
    }
    return [what for what, is_checked in checked.items() if not is_checked]


def _labels(population: Population, judge: Judge | None, outcome: str | None) -> set[str]:
    """Return all known outcomes as text: of the table's target, of the model, and the one that was
    named.
    """
    target, found = population.schema.target, population.frame
    labels = (
        [] if target is None or target not in found else found[target].dropna().unique().tolist()
    )
    labels += [] if judge is None else judge.own.tolist()
    if outcome is not None and outcome != OPPOSITE:
        named = desired_of_text(outcome, (), str)
        labels += [outcome, *(named.labels if isinstance(named, DesiredSet) else [named])]
    return {to_text(label) for label in labels}


def _wrong_outcome(found: Released, labels: set[str], judge: Judge | None) -> Iterator[Finding]:
    """Yield an outcome that is missing or not known: an unknown text or number could be
    anything.
    """
    outcome = found.entry["outcome"]
    if outcome is None:
        yield Finding(
            found.where,
            "does not name its outcome: a function that is not in the file decided",
            fails=False,
        )
        return
    named = outcome.get("any", [outcome.get("label", outcome.get("not", False))])
    if all(isinstance(label, bool) for label in named) and (
        "low" not in outcome or judge is not None
    ):
        return
    if "low" in outcome and str(Outcome.of(outcome)) in labels:
        return
    if "low" in outcome or not labels:
        yield Finding(
            found.where,
            "names an outcome that nothing tells; give --desired or --model",
            fails=False,
        )
    elif not {*map(to_text, named)} <= labels:
        yield Finding(found.where, "names an outcome that is none")


def recount(
    found: Released,
    population: Population,
    policy: PrivacyPolicy,
    k: int | None,
    *,
    of_today: bool = False,
) -> Iterator[Finding]:
    """Yield what a region lacks, or its certificate states differently; without `k`, that of the
    policy holds.

    A difference may come from other people, unless the certificate is known to be `of_today`.
    """
    certificate, where = found.entry["certificate"], found.where
    if (people := population.people(found.rows)) < (k or policy.k):
        yield Finding(where, f"{people} people, fewer than {'k' if k is None else k}")
    if (k or policy.k) <= certificate["k"] < people:
        yield Finding(
            where,
            f"{people} people, and the certificate counts fewer: if a ledger was kept, those who"
            " are left of an earlier release",
            fails=False,
        )
    elif certificate["k"] != people:
        yield Finding(
            where, f"{people} people, and the certificate says something else", fails=of_today
        )
    loss = ncp(found.region, population)
    if abs(certificate["ncp"] - loss) > (0.0 if of_today else NEAR):
        yield Finding(
            where, f"ncp is {loss:.6g}, and the certificate says something else", fails=of_today
        )
    if not _may_be_pureness(found, population):
        yield Finding(
            where,
            "pureness is no share of the region's combinations, or its interval is none of it",
        )
    if policy.rare_values == "withhold":
        values = PrivateValues(population)
        for j, name in enumerate(population.schema.private):
            if name in found.entry["released"] and values.people(j, _span(found, name)) < policy.k:
                yield Finding(where, f"releases {name}, which fewer than k people have")
    if promise_of(policy.guarantee).counts_everyone_inside:
        yield from undiverse(found, population, policy, found.rows)


def undiverse(
    found: Released, population: Population, policy: PrivacyPolicy, rows: NDArray[np.int64]
) -> Iterator[Finding]:
    """Yield which of the policy's rules on private values are broken among the people of some
    rows.
    """
    figures = SensitiveFigures.of(population, rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(found.where, "fewer than l sensitive values")
    if (
        policy.t is not None
        and figures.closeness is not None
        and figures.closeness > policy.t + NEAR
    ):
        yield Finding(found.where, "sensitive values are farther than t from everybody's")
    if policy.alpha is None or not len(rows):
        return
    values, inside = PrivateValues(population), population.people(rows)
    for j, name in enumerate(population.schema.private):
        if name not in found.entry["released"]:
            continue
        domain, span = population.domains[name], _span(found, name)
        if name in found.exact and domain.attribute.kind == "numeric":
            span = values.close(j, span[0], float(domain.encode_values([found.exact[name]])[1][0]))
        share, everywhere = (
            values.people(j, span, rows) / inside,
            values.people(j, span) / population.n_people,
        )
        if share > policy.alpha and share > MIN_LIFT * everywhere:
            yield Finding(
                found.where, f"more people share what is released of {name} than alpha allows"
            )


def _span(found: Released, name: str) -> tuple[int, int]:
    """Return the range of codes that a private attribute is released as; empty for a number that no
    row has.
    """
    axis = found.axes[name]
    return (int(axis[0]), int(axis[-1]) + 1) if len(axis) and axis[0] >= 0 else (0, 0)


def _axes(found: Released, population: Population) -> list[tuple[int, int]]:
    """Return how many values each attribute stands for: of the table alone, and with a number that
    no row has.
    """
    axes = {
        name: int(population.domains[name].inside(part).sum())
        for name, part in found.region.items()
    }
    if len(found.exact) < len(population.schema.private):
        axes |= {name: len(axis) for name, axis in found.axes.items()}
    if not promise_of(found.entry["certificate"]["guarantee"]).releases_counterfactuals:
        return [(n, n) for n in axes.values()]
    numeric = {name for name in axes if population.domains[name].attribute.kind == "numeric"} - set(
        found.exact
    )
    return [(n, n + (name in numeric)) for name, n in axes.items()]


def sizes(found: Released, population: Population) -> set[int]:
    """Return how many combinations may have been counted; `CELLS` + 1 stands for any larger
    number.
    """
    possible = {1}
    for n, most in _axes(found, population):
        possible = {min(size * m, CELLS + 1) for size in possible for m in {n, most}}
    return possible


def _may_be_pureness(found: Released, population: Population) -> bool:
    said, possible = found.entry["certificate"], sizes(found, population)

    def is_share_of(size: int) -> bool:
        return bool(round(said["pureness"] * size) / size == said["pureness"])

    if said["exact"]:
        return any(0 < size <= CELLS and is_share_of(size) for size in possible)
    if max(possible) <= CELLS or not is_share_of(SAMPLES):
        return False
    low, high = clopper_pearson(round(said["pureness"] * SAMPLES), SAMPLES)
    return bool(
        abs(said["pureness_low"] - low) <= NEAR and abs(said["pureness_high"] - high) <= NEAR
    )


class _ModelSays(NamedTuple):
    size: int  # combinations of the region; 0 where a bin has no number of the table
    # per combination: has the outcome; where none is named, one for each that it may be
    good: list[NDArray[np.bool_]]
    consistent: list[NDArray[np.bool_]]  # the same per row inside, with the released private values

    @property
    def share(self) -> float:
        """Share of the combinations that have the outcome, the largest that it may be."""
        return max((float(good.mean()) for good in self.good if len(good)), default=0.0)


@dataclass(frozen=True)
class Judge:
    """The model, the desired outcome (a label or "opposite"), and how groups were searched for.

    Where a catalogue was published after another one, that one or the ledger decided on its values.
    """

    population: Population
    model: Any
    desired: Any
    effort: Effort = "balanced"
    previous: Mapping[str, Any] | None = None
    ledger: Ledger | None = None
    _reruns: dict[str, Rerun] = field(default_factory=dict, init=False, repr=False, compare=False)

    def rerun_of(self, policy: PrivacyPolicy) -> Rerun:
        """Return what a policy's guarantee stands on, which is built only once."""
        if policy.sha256 not in self._reruns:
            self._reruns[policy.sha256] = Rerun(self, policy)
        return self._reruns[policy.sha256]

    @cached_property
    def labels(self) -> LabelModel:
        return LabelModel(self.model, self.population.schema.features)

    def asked(self, many: Sequence[Released]) -> Iterator[_ModelSays]:
        """Ask about a few regions at a time: their combinations, and their people with the released
        values.
        """
        population, schema = self.population, self.population.schema
        # any
        person = {
            str(name): column.iloc[0] for name, column in population.rows(np.array([0])).items()
        }
        for start in range(0, len(many), _AT_ONCE):
            some, sizes, asked = many[start : start + _AT_ONCE], [], []
            for found in some:
                is_exact = len(found.exact) == len(schema.private)
                axes = () if is_exact else [found.axes[name] for name in schema.private]
                grid = Grid.of(found.region, population, [0] * len(found.region), axes)
                cells = (
                    grid.all()
                    if grid.size <= CELLS
                    else grid.sample(SAMPLES, np.random.default_rng(0))
                )
                people = population.cells[
                    population.cell_of(found.rows if is_exact else found.rows[:0])
                ]
                asked += [self._whole(found, cells), self._whole(found, people)]
                sizes.append(grid.size)
            lengths = np.array([len(cells) for cells in asked])
            rows = [{**person, **found.exact} for found in some]
            table = population.conform(pd.DataFrame(rows, dtype=object).infer_objects())
            which = np.repeat(np.arange(len(asked)) // 2, lengths)
            points = rows_for_cells(population.encoder, table, which, np.concatenate(asked))
            said = np.split(self.labels(points).astype(object), np.cumsum(lengths)[:-1])
            for i, found in enumerate(some):
                yield _ModelSays(
                    sizes[i], self._met(found, said[2 * i]), self._met(found, said[2 * i + 1])
                )

    def _whole(self, found: Released, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return combinations with the released private values; code ``size`` stands for the
        explanation's own.
        """
        at, schema = len(found.region), self.population.schema
        whole = np.empty((len(cells), at + len(schema.private)), dtype=np.int32)
        whole[:, : cells.shape[1]] = cells
        for j, name in enumerate(schema.private):
            if name in found.exact:
                code = int(found.axes[name][0])
                whole[:, at + j] = self.population.domains[name].size if code < 0 else code
        return whole

    def wrong_pureness(self, found: Released, answer: _ModelSays) -> Iterator[Finding]:
        """Yield an outcome other than desired, or a pureness that the model's outcomes
        contradict.
        """
        said = found.entry["certificate"]
        common_outcome = DesiredOutcome.of(self.desired).common_outcome
        asked = None if common_outcome is None else common_outcome.to_dict()
        if asked is not None and found.entry["outcome"] not in (None, asked):
            yield Finding(found.where, "is about another outcome than --desired names")
            return
        shares = [(int(good.sum()), len(good)) for good in answer.good]
        if answer.size <= CELLS and said["exact"]:
            possible = [size for size in sizes(found, self.population) if size <= CELLS]
            if not any(
                _is_pureness(said["pureness"], good, n, size)
                for good, n in shares
                for size in possible
            ):
                yield Finding(found.where, "pureness is not what the model says")
            return
        # Further combinations, with numbers that no row has, may have been counted: any of them may
        # be desired.
        known = answer.size / prod(most for _, most in _axes(found, self.population))
        if not any(
            low * known <= said["pureness_high"] and said["pureness_low"] <= 1 - (1 - high) * known
            for low, high in (clopper_pearson(good, n) for good, n in shares)
        ):
            yield Finding(found.where, "pureness is not what the model says of other combinations")

    def too_few(
        self, found: Released, answer: _ModelSays, policy: PrivacyPolicy, k: int | None
    ) -> Iterator[Finding]:
        """Yield where fewer than k inside have the outcome, or get it with the released private
        values.
        """
        people, least = self.population.people, k or policy.k
        counts = {}
        if policy.counts_eligible:
            counts["have the outcome"] = self._met(found, self.own[found.rows])
            if len(found.exact) == len(self.population.schema.private):
                consistent = answer.consistent
                counts["get the outcome with the private values that are released"] = consistent
        for what, possible in counts.items():
            if (most := max((people(found.rows[good]) for good in possible), default=0)) < least:
                yield Finding(found.where, f"{most} people {what}, fewer than {least}")

    def true_entries(
        self, found: Sequence[Released], impure: Sequence[Released], policy: Policy
    ) -> StillTrue:
        """Count the entries of a catalogue that are true for the model: all that are not impure."""
        return counted_true(answers_in_file(found), answers_in_file(impure), policy)

    def true_answers(
        self,
        found: Sequence[Released],
        queries: pd.DataFrame | None,
        policy: Policy,
        report: Recount,
    ) -> StillTrue | None:
        """Count the answers to queries that are true for the model; None where that cannot be."""
        if queries is None:
            report.unchecked.append("that answers are true for the model (--queries)")
            return None
        answers = answers_in_file(found)
        judge = self._new_model(answers, report)
        if judge is None:
            return None
        report.unchecked.append("that --queries are those that were answered, in this order")
        encoder = self.population.encoder
        rows = rows_asked_for(answers, queries, encoder, rules_of(encoder))
        return still_true_at(rows, answers, policy, judge)

    def true_prototypes(
        self, content: Mapping[str, Any], policy: Policy, report: Recount
    ) -> StillTrue | None:
        """Count the prototypes that are true for the model; None where that cannot be."""
        answers = prototypes_in_file(content)
        judge = self._new_model(answers, report)
        if judge is None:
            return None
        values = pd.DataFrame([answer.values for answer in answers], dtype=object)
        rows = self.population.conform(values)
        return still_true_at(rows, answers, policy, judge)

    def _new_model(self, answers: Sequence[ReleasedAnswer], report: Recount) -> NewModel | None:
        """Return what asks the model about answers; None if there is none, or no known outcome."""
        goal = DesiredOutcome.of(self.desired)
        has_unknown_outcome = any(answer.outcome.desired is None for answer in answers)
        if goal.needs_factual_labels and has_unknown_outcome:
            report.unchecked.append("that answers are true for the model (--desired)")
            return None
        if not answers:
            return None
        features = self.population.schema.features
        try:
            return NewModel(self.model, None, features, answers, goal.common_desired)
        except ModelError:  # whose text may quote an outcome of the file
            report.unchecked.append("that answers are true for the model, which lacks an outcome")
            return None

    @cached_property
    def own(self) -> NDArray[Any]:
        """What the model says of every row of the table."""
        return self.labels(self.population.frame[list(self.population.schema.features)]).astype(
            object
        )

    def _met(self, found: Released, said: NDArray[Any]) -> list[NDArray[np.bool_]]:
        outcome, goal = found.entry["outcome"], DesiredOutcome.of(self.desired)
        if outcome is not None:
            named = Outcome.of(outcome)
            return [
                said != named.label
                if named.is_other
                else DesiredOutcome.of(named.desired).is_met(said)
            ]
        return goal.possible_masks(said)


def _is_pureness(share: float, good: int, asked: int, size: int) -> bool:
    """Say whether a share fits: `good` of the `asked` combinations are desired; any others up to
    `size` may be.
    """
    counted = share * size
    return abs(counted - round(counted)) <= NEAR * size and good <= round(counted) <= good + max(
        size - asked, 0
    )


class Rerun:
    """The regions that a guarantee with fixed regions maps people to, built anew."""

    def __init__(self, judge: Judge, policy: PrivacyPolicy) -> None:
        self._population, self._policy = judge.population, policy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._anonymizer = KAnonymizer(
                policy=replace(policy, on_infeasible="withhold"), effort=judge.effort
            )
            self._anonymizer.fit(judge.population, model=judge.model, desired=judge.desired)
        self._pipeline = self._pipeline_of(judge)
        self._is_after_another = judge.previous is not None or judge.ledger is not None
        # A ledger withholds exact values that too few new people have, and keeps no record of what
        # it withheld.
        self._ledger_may_withhold = judge.ledger is not None and policy.private_values != "shared"
        partition = self._anonymizer.guarantee_.partition
        assert partition is not None  # noqa: S101 - only a lookup guarantee has none
        self._partition = partition
        self._margin = self._anonymizer.pipeline_.rows.requirement.margin
        self._groups: dict[str, list[int]] = defaultdict(list)
        for group, region in enumerate(partition.regions):
            self._groups[_region_text(region, self._population)].append(group)
        self._offers: dict[int, list[str]] = {}

    def _pipeline_of(self, judge: Judge) -> Pipeline:
        """Return the pipeline with the catalogue that was published."""
        anonymizer = self._anonymizer
        if judge.previous is not None:
            return anonymizer.pipeline_for(judge.previous)
        if judge.ledger is None or self._policy.private_values != "shared":
            return anonymizer.pipeline_
        outcomes = outcomes_of(anonymizer.guarantee_.eligibility)
        return anonymizer.pipeline_with(
            book_on_record(judge.ledger, anonymizer.policy_, anonymizer.goal_, outcomes)
        )

    def wrong(self, found: Released) -> Iterator[Finding]:
        """Yield why a region is not one of the guarantee's."""
        groups = self._groups.get(_region_text(found.region, self._population))
        if groups is None:
            yield Finding(found.where, "no group of the guarantee has its region")
            return
        if found.entry["certificate"]["margin"] != self._margin:
            yield Finding(found.where, "margin is not that of the catalogue")
        mapped = self._partition.rows_mapped_to(self._partition.regions[groups[0]])
        if (people := self._population.people(mapped)) < self._policy.k:
            yield Finding(found.where, f"{people} people are mapped to its region, fewer than k")
        yield from undiverse(found, self._population, self._policy, mapped)
        has_fixed_values = promise_of(self._policy.guarantee).fixes_private_values
        if has_fixed_values and not any(self._gives(found, group) for group in groups):
            yield Finding(
                found.where, "its region with these private values is no entry of the catalogue"
            )

    def wrong_publication(self, content: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield how a published catalogue, or the short part of one, differs from this one."""
        yield from self.wrong_catalogue(content, report)
        if "short_catalogue" in content:
            yield from self.wrong_size(content["short_catalogue"], report)

    def wrong_catalogue(self, content: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield how the entries of a file differ from those of the catalogue, built again."""
        entries = content["explanations"]
        found = [_text_of(entry) for entry in entries]
        expected = self._expected_texts(content)
        if found == expected:
            return
        certificates = {
            _text_of(entry, certified=False): entry["certificate"] for entry in self._published
        }
        seen = set[str]()
        for i, (entry, text) in enumerate(zip(entries, found, strict=True)):
            where, said = f"explanation {i}", _text_of(entry, certified=False)
            if said not in certificates:
                yield Finding(where, "is no entry of the catalogue")
            elif said in seen:
                yield Finding(where, "is an entry that the file has twice")
            elif text not in expected:
                names = _differing(entry["certificate"], certificates[said])
                yield Finding(where, f"{', '.join(names)}: not as in the catalogue")
            seen.add(said)
        # A short catalogue lacks entries on purpose.
        missing = 0 if "short_catalogue" in content else len(certificates.keys() - seen)
        if missing:
            yield Finding(
                "explanations",
                f"lack {missing} of the catalogue's entries",
                fails=not self._ledger_may_withhold,
            )
        elif sorted(found) == sorted(expected):
            yield Finding("explanations", "are not in the order of the catalogue's entries")
        if missing and self._ledger_may_withhold:
            report.unchecked.append("whether the ledger withheld the entries that the file lacks")
        if not self._is_after_another:
            yield Finding(
                "explanations",
                "are not those of a first catalogue; if it was published after another one, or with"
                " a ledger, give --previous or --ledger",
                fails=False,
            )

    def _expected_texts(self, content: Mapping[str, Any]) -> list[str]:
        """Return the catalogue's entries as texts; of a short catalogue those that its file has."""
        texts = [_text_of(entry) for entry in self._published]
        if "short_catalogue" not in content:
            return texts
        in_file = {_text_of(entry) for entry in content["explanations"]}
        return [text for text in texts if text in in_file]

    def wrong_size(self, short_catalogue: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield if a short catalogue was not made of as many entries as it says."""
        report.unchecked.append("that a short catalogue has the entries that help the most")
        if self._ledger_may_withhold:
            report.unchecked.append("how many entries a short catalogue leaves out")
        elif short_catalogue["of"] != len(self._published):
            yield Finding("short_catalogue.of", "is not how many entries the catalogue has")

    @cached_property
    def _published(self) -> list[dict[str, Any]]:
        """The entries that were to be published, in their order."""
        catalogue = self._pipeline.guarantee.catalogue
        assert catalogue is not None  # noqa: S101 - the policy's guarantee is a catalogue
        entries = self._pipeline.catalogue_entries(catalogue, np.arange(len(catalogue)))
        return [entry.to_dict() for entry in publish(entries)]

    def _gives(self, found: Released, group: int) -> bool:
        """Say whether an entry of a group has these private values, or may have been moved to
        them.
        """
        if _private_text(found.entry, self._population) in self._offered(group):
            return True
        catalogue = self._pipeline.guarantee.catalogue
        return (
            catalogue is not None
            and self._policy.moves_towards_query
            and catalogue.may_have_moved_to(found.exact, group)
        )

    def _offered(self, group: int) -> list[str]:
        """Return what the catalogue releases with the region of a group, by releasing each of its
        entries.
        """
        if group not in self._offers:
            catalogue = self._pipeline.guarantee.catalogue
            at = np.flatnonzero([] if catalogue is None else catalogue.group == group)
            answers = [] if catalogue is None else self._pipeline.catalogue_entries(catalogue, at)
            released = [entry.to_dict() for entry in answers if entry.status == "released"]
            self._offers[group] = [_private_text(entry, self._population) for entry in released]
        return self._offers[group]


# Not compared: the policy's hash, since the policy of the rerun has the floor filled in; and the
# fingerprint of the population, which needs the key.
_NOT_OF_AN_ENTRY = ("policy_hash", "population")


def _text_of(entry: Mapping[str, Any], *, certified: bool = True) -> str:
    """Write an entry as text that is the same only if all of its values are, to the last digit."""
    said = {name: entry[name] for name in entry if name not in ("query", "certificate")}
    if certified and "certificate" in entry:
        certificate = entry["certificate"]
        said["certificate"] = {
            name: certificate[name] for name in certificate if name not in _NOT_OF_AN_ENTRY
        }
    return json.dumps(said, sort_keys=True)


def _differing(certificate: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of an entry's certificate that are not as expected."""
    names = sorted({*certificate, *expected} - {*_NOT_OF_AN_ENTRY})
    return [
        name
        for name in names
        if json.dumps(certificate.get(name)) != json.dumps(expected.get(name))
    ]


def _region_text(region: Mapping[str, Part], population: Population) -> str:
    """Write a region as canonical text, whatever the types of its values."""

    def plain(part: Part, domain: Domain) -> list[Any]:
        if not isinstance(part, Interval):
            return sorted(
                domain.code(value) if value is not None else domain.missing_code for value in part
            )
        if domain.attribute.kind == "ordinal":
            return [list(part.levels or ()), part.missing]
        return [None if end is None else to_number(end) for end in (part.low, part.high)] + [
            part.missing
        ]

    return json.dumps(
        {name: plain(part, population.domains[name]) for name, part in sorted(region.items())}
    )


def _private_text(entry: Mapping[str, Any], population: Population) -> str:
    """Write the private values that an entry releases as canonical text."""

    def plain(value: Any, domain: Domain) -> Any:
        if value is None or isinstance(value, dict):
            return value
        return to_number(value) if domain.attribute.kind == "numeric" else to_text(value)

    released = {
        name: plain(value, population.domains[name])
        for name, value in sorted(entry["released"].items())
    }
    return json.dumps([released, sorted(entry["withheld"])])
