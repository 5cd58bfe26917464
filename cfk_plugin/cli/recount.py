"""Released explanations beside the people, the model and the guarantee that they were made with: counted again."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.cli.released_file import (
    Finding,
    Released,
    inconsistent,
    policy_of,
    read,
    unfit,
    wrong_columns,
    wrong_prototypes,
)
from cfk_plugin.data.model import OPPOSITE, Goal, Grid, LabelModel, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, json_value, to_text
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import DesiredRange
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivateValues
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.release.anonymizer import KAnonymizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import Population
    from cfk_plugin.data.region import Part
    from cfk_plugin.protection.partition import Partition
    from cfk_plugin.release.results import Policy


CELLS, SAMPLES = 10_000, 2_000
"""Up to so many combinations are asked one by one for pureness, and so many of more."""
NEAR = 1e-9
"""Figures this close are equal: a table that was written as text has lost the last bits."""


@dataclass(slots=True)
class Recount:
    """What was found, and what was not looked at.

    Attributes
    ----------
    findings : list of Finding
    unchecked : list of str
        What this run could not know.
    counts : list of int
        People inside each region that was counted.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

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
) -> Recount:
    """Check form, consistency, counts and, where a model is given, what it says; stop where nothing can be read.

    Parameters
    ----------
    content : mapping, the file
    population : Population, optional
        The people to count.
    judge : Judge, optional
        The model, and the outcome that was desired of it.
    agreed : PrivacyPolicy, optional
        The policy that the file must have been made under.
    k : int, optional
        Least number of people; else the policy's own.
    outcome : str, optional
        The outcome that was desired, by name.
    rerun : bool
        Whether the guarantee's regions are built again.
    signed : bool
        Whether a signature of the file was checked.
    """
    report = Recount()
    report.findings = unfit(content, () if population is None else population.schema.features)
    if report.findings:
        report.unchecked.append("anything else: the form has to be right first")
        return report
    policy = policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    report.findings += inconsistent(content, policy)
    report.unchecked += _not_asked(policy, population, judge, agreed, rerun=rerun, signed=signed)
    if agreed is not None and agreed != policy:
        report.findings.append(Finding("policy", "is not the one that was given"))
    if all(entry["status"] == "suppressed" for entry in content["explanations"]):
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    if population is None:
        return report
    report.findings += wrong_columns(content, population)
    if not isinstance(policy, PrivacyPolicy):
        report.findings += wrong_prototypes(content, population)
        no_count = "hold prototypes, which no people can be counted for: epsilon is of the way they were made"
        report.findings.append(Finding("explanations", f"{no_count}; see cfk audit epsilon", fails=False))
        return report
    report.findings += _of_regions(content, population, policy, judge, report, k=k, outcome=outcome, rerun=rerun)
    return report


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
) -> Iterator[Finding]:
    found, wrong = read(content, population, policy)
    yield from wrong
    again = Rerun.of(judge, policy) if judge is not None and rerun else None
    if again is not None and not again.applies:
        report.unchecked.append("that a search finds these regions again: its counterfactuals are not in the file")
    known = {*BUILT_IN, *load_plugins().protectors(), "reciprocal", "catalogue"}
    labels = _labels(population, judge, outcome)
    for each in found:
        report.counts.append(population.people(each.rows))
        yield from recount(each, population, policy, k)
        if each.certificate["method"] not in known:
            yield Finding(each.where, "certificate.method is the name of no method or plugin that is installed here")
        if population.has_key and each.certificate["population"] != population.fingerprint:
            yield Finding(each.where, "is about another population, or was made with another key", fails=False)
        yield from _wrong_outcome(each, labels, judge)
        if judge is not None and (grid := judge.grid(each)).size:
            yield from judge.wrong_pureness(each, grid)
        elif judge is not None:
            report.unchecked.append(f"pureness of {each.where}: the table has no number in a released bin")
        if again is not None:
            yield from again.wrong(each)
    if not population.has_key:
        report.unchecked.append("that this is the population of the certificates (set CFK_KEY)")


def _not_asked(
    policy: Policy,
    population: Population | None,
    judge: Judge | None,
    agreed: PrivacyPolicy | None,
    *,
    rerun: bool,
    signed: bool,
) -> Iterator[str]:
    """Yield what was not asked for, with the option that does."""
    if not signed:
        yield "who wrote the file, and changes that fit the rest of it (--key)"
    if agreed is None:
        yield "that its policy is the one that was agreed on (--policy)"
    if population is None:
        yield "people, information loss and values (give the training rows and --schema)"
    if not isinstance(policy, PrivacyPolicy):
        return
    if judge is None:
        yield "pureness (--model)"
    if not rerun:
        yield "that regions are those of the guarantee (--rerun)"
    if policy.guarantee == "nominal":
        yield "optimal and gap, which are the method's own claim"
    if policy.guarantee != "catalogue" or not rerun:
        yield "that private values are those of the counterfactuals, which are not in the file"
    yield "why explanations were withheld"


def _labels(population: Population, judge: Judge | None, outcome: str | None) -> set[str]:
    """Return the outcomes that there are, as text: of the table's target, of the model, and the one that was named."""
    target, found = population.schema.target, population.frame
    labels = [] if target is None or target not in found else found[target].dropna().unique().tolist()
    labels += [] if judge is None else judge.labels(found).tolist()
    named = {outcome} if outcome is not None and outcome != OPPOSITE else set()
    return {to_text(label) for label in labels} | named


def _wrong_outcome(found: Released, labels: set[str], judge: Judge | None) -> Iterator[Finding]:
    """Yield an outcome that is none, as a text or a number could be anything; and one that is not named."""
    outcome = found.entry["outcome"]
    if outcome is None:
        yield Finding(found.where, "does not name its outcome: a function that is not in the file decided", fails=False)
        return
    label = outcome.get("label", outcome.get("not", False))
    if isinstance(label, bool) and ("low" not in outcome or judge is not None):
        return
    if "low" in outcome or not labels:
        yield Finding(found.where, "names an outcome that nothing tells; give --desired or --model", fails=False)
    elif to_text(label) not in labels:
        yield Finding(found.where, "names an outcome that is none")


def recount(found: Released, population: Population, policy: PrivacyPolicy, k: int | None) -> Iterator[Finding]:
    """Yield what a region does not hold, or its certificate states otherwise; without `k`, that of the policy holds."""
    certificate, where = found.certificate, found.where
    if (people := population.people(found.rows)) < (k or policy.k):
        yield Finding(where, f"{people} people, fewer than {'k' if k is None else k}")
    if certificate["k"] != people:
        yield Finding(where, f"{people} people, and the certificate says something else", fails=False)
    if abs(certificate["ncp"] - (loss := ncp(found.region, population))) > NEAR:
        yield Finding(where, f"ncp is {loss:.6g}, and the certificate says something else", fails=False)
    if not _may_be_pureness(found, population):
        yield Finding(where, "pureness is no share of the region's combinations, or its interval is none of it")
    if policy.rare_values == "withhold":
        values = PrivateValues(population)
        for j, name in enumerate(population.schema.private):
            if name in found.entry["released"] and values.people(j, _span(found, name)) < policy.k:
                yield Finding(where, f"releases {name}, which fewer than k people have")
    if policy.guarantee == "nominal":  # under the others those count who are mapped to the region
        yield from undiverse(found, population, policy, found.rows)


def undiverse(
    found: Released, population: Population, policy: PrivacyPolicy, rows: NDArray[np.int64]
) -> Iterator[Finding]:
    """Yield which of the policy's rules on private values are broken among the people of some rows."""
    figures = SensitiveFigures.of(population, rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(found.where, "fewer than l sensitive values")
    if policy.t is not None and figures.closeness is not None and figures.closeness > policy.t + NEAR:
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
        share, everywhere = values.people(j, span, rows) / inside, values.people(j, span) / population.n_people
        if share > policy.alpha and share > policy.min_lift * everywhere:
            yield Finding(found.where, f"more people share what is released of {name} than alpha allows")


def sizes(found: Released, population: Population) -> set[int]:
    """Return how many combinations may have been counted; `CELLS` + 1 stands for all that are more."""
    possible = {1}
    for n, most in _axes(found, population):
        possible = {min(size * m, CELLS + 1) for size in possible for m in {n, most}}
    return possible


def largest(found: Released, population: Population) -> int:
    """Return the most combinations that may have been counted."""
    return prod(most for _, most in _axes(found, population))


def _axes(found: Released, population: Population) -> list[tuple[int, int]]:
    """Return how many values of the table each attribute stands for, and how many there may have been.

    A number of the counterfactual's own that no row has is one more, unless it is released. Entries of a catalogue are
    rows.
    """
    axes = [(int(population.domains[name].inside(part).sum()), name) for name, part in found.region.items()]
    if len(found.exact) < len(population.schema.private):
        axes += [(len(axis), name) for name, axis in found.axes.items()]
    from_rows = found.certificate["guarantee"] == "catalogue"
    numeric = {name for name, domain in population.domains.items() if domain.attribute.kind == "numeric"}
    return [(n, n if from_rows or name in found.exact or name not in numeric else n + 1) for n, name in axes]


def _span(found: Released, name: str) -> tuple[int, int]:
    """Return the codes of what is released of a private attribute; none for a number that no row has."""
    axis = found.axes[name]
    return (int(axis[0]), int(axis[-1]) + 1) if len(axis) and axis[0] >= 0 else (0, 0)


def _may_be_pureness(found: Released, population: Population) -> bool:
    said, possible = found.certificate, sizes(found, population)
    if said["exact"]:
        return any(0 < size <= CELLS and _is_share(said["pureness"], size) for size in possible)
    if max(possible) <= CELLS or not _is_share(said["pureness"], SAMPLES):
        return False
    low, high = clopper_pearson(round(said["pureness"] * SAMPLES), SAMPLES)
    return bool(abs(said["pureness_low"] - low) <= NEAR and abs(said["pureness_high"] - high) <= NEAR)


def _is_share(share: float, of: int) -> bool:
    return bool(abs(share * of - round(share * of)) <= NEAR * of)


@dataclass(frozen=True)
class Judge:
    """The model, and the outcome that is desired of it.

    Attributes
    ----------
    population : Population
    model : object with ``predict``, or callable
    desired : label or "opposite"
    """

    population: Population
    model: Any
    desired: Any

    @cached_property
    def labels(self) -> LabelModel:
        """The model as it is asked."""
        return LabelModel(self.model, self.population.schema.features)

    def grid(self, found: Released) -> Grid:
        """Return the combinations of values of the table; none, where a bin has no number of the table."""
        return Grid.of(found.region, self.population, [0] * len(found.region), self._private_axes(found))

    def wrong_pureness(self, found: Released, grid: Grid) -> Iterator[Finding]:
        """Yield a pureness that is not what the model says of a region's combinations, and another outcome."""
        said = found.certificate
        if self.desired != OPPOSITE and found.entry["outcome"] not in (None, {"label": json_value(self.desired)}):
            yield Finding(found.where, "is about another outcome than --desired names")
            return
        whole = grid.size <= CELLS
        cells = grid.all() if whole else grid.sample(SAMPLES, np.random.default_rng(0))
        shares = [(int(good.sum()), len(good)) for good in self._desired(found, cells)]
        if whole and said["exact"]:
            possible = [size for size in sizes(found, self.population) if size <= CELLS]
            if not any(_is_pureness(said["pureness"], good, n, size) for good, n in shares for size in possible):
                yield Finding(found.where, "pureness is not what the model says")
            return
        known = grid.size / largest(found, self.population)  # of the others, with numbers that no row has, any may be
        intervals = [clopper_pearson(good, n) for good, n in shares]
        if not any(
            low * known <= said["pureness_high"] and said["pureness_low"] <= 1 - (1 - high) * known
            for low, high in intervals
        ):
            yield Finding(found.where, "pureness is not what the model says of other combinations")

    def _private_axes(self, found: Released) -> Sequence[NDArray[np.int32]]:
        private = self.population.schema.private
        return () if len(found.exact) == len(private) else [found.axes[name] for name in private]

    def _desired(self, found: Released, cells: NDArray[np.int32]) -> list[NDArray[np.bool_]]:
        """Say of each combination whether it gets the outcome that the entry names; where none, each it may be."""
        population = self.population
        person = {str(name): column.iloc[0] for name, column in population.rows(np.array([0])).items()}  # replaced
        table = population.conform(pd.DataFrame([{**person, **found.exact}], dtype=object).infer_objects())
        which = np.zeros(len(cells), dtype=np.int64)
        said = self.labels(rows_for_cells(population.encoder, table, which, self._outside(found, cells))).astype(object)
        outcome, goal = found.entry["outcome"], Goal(self.desired)
        if outcome is not None and "low" in outcome:
            return [DesiredRange(outcome["low"], outcome["high"])(said)]
        if outcome is not None:
            return [said == outcome["label"] if "label" in outcome else said != outcome["not"]]
        if not goal.is_opposite:
            return [goal.met(said)]
        return [flags for label in set(said.tolist()) for flags in (said == label, said != label)]

    def _outside(self, found: Released, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give exact private values that no row has the code that stands for the row's own."""
        own = cells.copy()
        at = len(found.region)
        for j, name in enumerate(self.population.schema.private[: cells.shape[1] - at]):
            if name in found.exact and found.axes[name][0] < 0:
                own[:, at + j] = self.population.domains[name].size
        return own


@dataclass(frozen=True)
class Rerun:
    """What the guarantee maps people to, built anew.

    Attributes
    ----------
    anonymizer : KAnonymizer
        Fitted on the population, the policy and the model.
    """

    anonymizer: KAnonymizer

    @classmethod
    def of(cls, judge: Judge, policy: PrivacyPolicy) -> Rerun:
        """Fit anew."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            anonymizer = KAnonymizer(policy=replace(policy, on_infeasible="suppress"))
            return cls(anonymizer.fit(judge.population, model=judge.model, desired=judge.desired))

    @property
    def applies(self) -> bool:
        """Whether the guarantee fixes regions beforehand; for a nominal one the counterfactual would be needed."""
        return self.anonymizer.guarantee_.partition is not None

    @property
    def _partition(self) -> Partition:
        found = self.anonymizer.guarantee_.partition
        if found is None:
            raise InputError("a nominal guarantee fixes no regions beforehand")
        return found

    def wrong(self, found: Released) -> Iterator[Finding]:
        """Yield why a region is not one that the guarantee maps people to; nothing where it does not apply."""
        if not self.applies:
            return
        partition, population = self._partition, self.anonymizer.population_
        policy, groups = self.anonymizer.policy_, self._groups.get(_key(found.region, population))
        if groups is None:
            yield Finding(found.where, "its region is none that the guarantee maps people to")
            return
        mapped = partition.rows_mapped_to(partition.regions[groups[0]])
        if (people := population.people(mapped)) < policy.k:
            yield Finding(found.where, f"{people} people are mapped to its region, fewer than k")
        yield from undiverse(found, population, policy, mapped)
        if policy.guarantee == "catalogue" and not self._is_entry(found, groups):
            yield Finding(found.where, "its region with these private values is no entry of the catalogue")

    @cached_property
    def _groups(self) -> Mapping[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for group, region in enumerate(self._partition.regions):
            groups.setdefault(_key(region, self.anonymizer.population_), []).append(group)
        return groups

    def _is_entry(self, found: Released, groups: Sequence[int]) -> bool:
        """Say whether one of the catalogue's entries of these groups would be released like this."""
        offered = [said for group in groups for said in self._offered(group)]
        return _said(found.entry, self.anonymizer.population_) in offered

    def _offered(self, group: int) -> list[str]:
        """Return what the catalogue releases with the region of a group, by asking for each of its entries."""
        if group not in self._known:
            catalogue, population = self.anonymizer.guarantee_.catalogue, self.anonymizer.population_
            rows = np.empty(0, dtype=np.int64) if catalogue is None else catalogue.rows
            rows = rows[self._partition.group_of_row[rows] == group]
            answers = self.anonymizer.transform(population.rows(rows)).released if len(rows) else ()
            self._known[group] = [_said(entry.to_dict(), population) for entry in answers]
        return self._known[group]

    @cached_property
    def _known(self) -> dict[int, list[str]]:
        return {}


def _is_pureness(share: float, good: int, asked: int, size: int) -> bool:
    """Say whether a share fits: of the combinations asked `good` are desired, any of the `size` others may be."""
    counted = share * size
    return abs(counted - round(counted)) <= NEAR * size and good <= round(counted) <= good + max(size - asked, 0)


def _key(region: Mapping[str, Part], population: Population) -> str:
    """Write a region in one way, whatever the types of its values."""
    return json.dumps({name: _plain(part, population.domains[name]) for name, part in sorted(region.items())})


def _plain(part: Part, domain: Domain) -> list[Any]:
    if not isinstance(part, Interval):
        return sorted(domain.code(value) if value is not None else domain.missing_code for value in part)
    if domain.attribute.kind == "ordinal":
        return [list(part.levels or ()), part.missing]
    return [None if end is None else to_number(end) for end in (part.low, part.high)] + [part.missing]


def _said(entry: Mapping[str, Any], population: Population) -> str:
    """Write what an entry releases of private values in one way."""

    def plain(value: Any, domain: Domain) -> Any:
        if value is None or isinstance(value, dict):
            return value
        return to_number(value) if domain.attribute.kind == "numeric" else to_text(value)

    released = {name: plain(value, population.domains[name]) for name, value in sorted(entry["released"].items())}
    return json.dumps([released, sorted(entry["withheld"])])
