"""What a policy's guarantee rests on: who counts, the fixed partition, the catalogue, and allowed
methods.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import compress
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints, DistinctParts
from cfk_plugin.data.display import doing
from cfk_plugin.data.domain import UNKNOWN, Domain, Rows
from cfk_plugin.data.model import EligibilityClasses, Goal, Judge, TrainingLabels
from cfk_plugin.data.policy import Mask, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import (
    ExactValuesWarning,
    HostOnly,
    InputError,
    LookupGuaranteeWarning,
    ModelError,
    PluginError,
    PolicyError,
    did_you_mean,
    quiet,
)
from cfk_plugin.hookspecs import Proposal, Protector
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.answers.search import EXPLAINER_START, ExplainerStart
from cfk_plugin.protection.catalogue.catalogue import PEOPLE, Catalogue, catalogue_from_arrays
from cfk_plugin.protection.partition.microaggregation import (
    Effort,
    coarser,
    partition_of,
)
from cfk_plugin.protection.partition.partial_dependence import partial_dependence
from cfk_plugin.protection.partition.partition import (
    Partition,
    ReciprocalProtector,
    partition_from_arrays,
)
from cfk_plugin.release.editions import CatalogueEditions, outcomes_of
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.release.verification import Certified, Verdict


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Guarantee(HostOnly):
    eligibility: EligibilityClasses
    partition: Partition | None = None  # none for a lookup guarantee
    catalogue: Catalogue | None = None  # for the guarantee of that name

    @property
    def fixed(self) -> Partition | None:
        """Groups of a reciprocal guarantee, in which outcomes play no part; else None."""
        return self.partition if self.catalogue is None else None

    @classmethod
    def prepare(
        cls,
        policy: PrivacyPolicy,
        goal: Goal,
        rows: TrainingLabels,
        effort: Effort,
        editions: CatalogueEditions | None = None,
    ) -> Guarantee:
        """Divide people into groups and find answers, where the guarantee has these.

        With `editions`, the catalogue has the shared values that a ledger lets in.
        """
        eligibility = EligibilityClasses(policy, goal, rows)
        if policy.guarantee == "lookup":
            return cls(eligibility)
        if rows.population.is_sealed and policy.guarantee == "catalogue":
            catalogue = _sealed_catalogue(rows, policy, goal)
            return cls(eligibility, catalogue.partition, catalogue)
        if rows.population.is_sealed:
            return cls(eligibility, _sealed(rows.population, policy))
        with doing("dividing people into groups"):
            likely = None if policy.objective == "ncp" else partial_dependence(rows, goal)
            partition = partition_of(rows.population, policy, eligibility.of_rows, likely, effort)
        if not partition.regions and policy.margin == "auto" and rows.requirement.margin:
            # Those with the margin form no group. A margin that the policy names is refused below.
            rows.requirement = AnyOutcome(margin=0.0)
            return cls.prepare(policy, goal, rows, effort, editions)
        if policy.guarantee == "reciprocal":
            return cls(eligibility, partition)
        with doing("finding answers for the catalogue"):
            if editions is not None and policy.private_values == "shared":
                catalogue = editions.build_catalogue(partition, rows, outcomes_of(eligibility))
            else:
                catalogue = Catalogue.build(partition, policy, goal, rows)
            _tell_of_wide(catalogue, policy)
            return cls(eligibility, partition, catalogue)

    def waits(self, goal: Goal) -> bool:
        """Say whether a catalogue can be searched before the model's outcomes at counterfactuals
        are known.
        """
        is_one = self.eligibility.is_one and not goal.is_opposite
        return is_one and self.catalogue is not None

    @property
    def protector(self) -> tuple[Protector, str] | None:
        """The protector that the guarantee prescribes, with its name; None if a method may be
        chosen.
        """
        if self.partition is None:
            return None
        name = "reciprocal" if self.catalogue is None else "catalogue"
        return ReciprocalProtector(self.partition, name), name

    def sealed_region(self, region: Region) -> SealedRegion | None:
        """Return what was sealed of a catalogue's region; None for any other region."""
        if (catalogue := self.catalogue) is None:
            return None
        at = [group for group, each in enumerate(catalogue.partition.regions) if each == region]
        entries = np.isin(catalogue.group, at)
        if not entries.any():
            return None
        people, floor = (
            catalogue.partition.population.sealed_arrays[PEOPLE][at[0]],
            catalogue.consistent[entries].min(),
        )
        private = frozenset(codes.tobytes() for codes in catalogue.codes[entries])
        return SealedRegion(
            int(people), int(floor), tuple(catalogue.must_hold(group) for group in at), private
        )

    def untrue(
        self,
        regions: Sequence[Region],
        asked: Constraints | None,
        points: pd.DataFrame,
        entries: Rows | None,
        judge: Judge,
    ) -> set[int]:
        """Return the answers that regions other than today's would make untrue for the people who
        ask.
        """
        if (catalogue := self.catalogue) is None or asked is None or entries is None:
            return set()
        groups = catalogue.group[entries].tolist()
        others = [
            at for at, own in enumerate(groups) if regions[at] != catalogue.partition.regions[own]
        ]
        if not others:
            return set()
        at, columns, population = (
            np.array(others, dtype=np.int64),
            {},
            catalogue.partition.population,
        )
        for name in population.schema.quasi_identifiers:
            distinct_parts = DistinctParts.build(
                population.domains[name], [regions[i][name] for i in others]
            )
            nearest = asked.take(at).nearest(
                name, distinct_parts, np.arange(len(at)), distinct_parts.of
            )
            columns[name] = population.domains[name].column(*nearest)
        told = catalogue.model.ask(points.take(at).assign(**columns))
        return {*at[~judge(told, at)].tolist()}

    def apart(self, entries: Iterable[Explanation], query: Rows) -> Iterator[Explanation]:
        """Withhold a second region with the private values of an earlier answer: the two could be
        intersected.
        """
        known: dict[tuple[str, ...], Region] = {}
        several = len({*query.tolist()}) < len(query)
        for entry in entries:
            if several and isinstance(entry, GeneralizedCounterfactual) and entry.released:
                cells = entry.cells()
                private = str(entry.query), *(cells[name] for name in entry.released)
                if known.setdefault(private, entry.region) != entry.region:
                    yield Withheld(entry.query, "no_other_answer")
                    continue
            yield entry


@dataclass(frozen=True, eq=False, repr=False)
class Sources(HostOnly):
    """Whose private values answers have, as a ledger knows them."""

    rows: pd.DataFrame  # of all features, one per answer
    # Shape (n,); False where they are nobody's: those of a catalogue's entry that are shared.
    is_record: Mask


def sources_of(
    catalogue: Catalogue, entries: Rows, part: Rows | None, explainer_start: ExplainerStart | None
) -> Sources:
    """Return whose private values answers began with: the rows of entries, or counterfactuals that
    kept their own.

    Private values that an entry of the region's own group has are that entry's, whichever they were
    taken from.
    """
    is_shared = catalogue.is_shared
    part = entries if part is None else part
    own, at = entries.copy(), np.flatnonzero((part >= 0) & (part < len(catalogue)))
    keys = np.column_stack([catalogue.group[entries[at]], catalogue.leaving[part[at]]])
    own[at] = [
        catalogue.offered_by.get(key.tobytes(), entry)
        for key, entry in zip(keys, own[at], strict=True)
    ]
    population = catalogue.partition.population
    rows = population.rows(catalogue.rows[own])[list(population.schema.features)]
    if explainer_start is None:
        return Sources(rows, np.full(len(entries), not is_shared))
    at_home = explainer_start.groups == catalogue.group[entries]
    kept = (part == EXPLAINER_START) | (
        at_home & (catalogue.own(explainer_start.counterfactuals, explainer_start.groups) == own)
    )
    frame = explainer_start.counterfactuals.frame
    sources = pd.DataFrame(
        {n: np.where(kept, frame[n].astype(object), rows[n].astype(object)) for n in rows},
        dtype=object,
    )
    return Sources(sources, (part == EXPLAINER_START) | (not is_shared))


def with_answer_facts(
    verdicts: Sequence[Verdict],
    not_stopped: tuple[str, ...],
    private: Sequence[str],
    moved: Mask,
    unchanged: Mask,
) -> list[Verdict]:
    """Note on each certificate what is true of a catalogue's answer, and not of its region alone.

    These are the attacks that are not stopped, the private values that were moved, and those that
    equal the query's. The masks have the shape (n, n_private). An attribute whose value is withheld
    or shown as its bin is not named as unchanged: the answer does not tell whether it is.
    """
    found = list[Verdict]()
    known = dict[tuple[int, bytes, bytes], Verdict]()  # verdicts that several queries share, once
    for verdict, is_moved, is_unchanged in zip(verdicts, moved, unchanged, strict=True):
        if not isinstance(verdict, Certified):
            found.append(verdict)
            continue
        key = id(verdict), is_moved.tobytes(), is_unchanged.tobytes()
        if key not in known:
            hidden = {*verdict.recount.binned, *verdict.recount.withheld}
            equal = compress(private, is_unchanged.tolist())
            recount = verdict.recount.with_counts(
                moved=tuple(compress(private, is_moved.tolist())),
                unchanged=tuple(name for name in equal if name not in hidden),
            )
            certificate = replace(verdict.certificate, not_stopped=not_stopped)
            known[key] = Certified(verdict.region, certificate, recount)
        found.append(known[key])
    return found


def _tell_of_wide(catalogue: Catalogue, policy: PrivacyPolicy) -> None:
    wide = catalogue.is_wide(catalogue.weakest)
    if policy.moves_towards_query and 2 * wide.sum() > len(wide):
        _log.warning(
            "%d of %d regions have more than 10,000 combinations of values, and those of people"
            " inside are too many or would tell outcomes, so their answers are not moved towards"
            ' who asks: all private values change. Name the outcome instead of "opposite", or round'
            " quasi-identifiers to what others can know of a person",
            wide.sum(),
            len(wide),
        )


def _sealed(population: Population, policy: PrivacyPolicy) -> Partition:
    """Return the partition that was sealed with a population; for a larger k, unions of its
    groups.
    """
    partition = partition_from_arrays(population, population.sealed_arrays)
    if partition is None:
        raise PolicyError(_NOTHING.format(policy.guarantee))
    floor = None if population.policy is None else population.policy.k
    return partition if policy.k == floor else coarser(partition, policy.k)


def _sealed_catalogue(rows: TrainingLabels, policy: PrivacyPolicy, goal: Goal) -> Catalogue:
    population = rows.population
    if population.policy is not None and population.policy.k != policy.k:
        raise PolicyError(
            f"the bundle has a catalogue for k = {population.policy.k} and nothing to make"
            " another of"
        )
    catalogue = catalogue_from_arrays(population, policy, goal, rows)
    if catalogue is None or population.policy is None:
        raise PolicyError(_NOTHING.format(policy.guarantee))
    if not isinstance(rows.requirement, AnyOutcome):
        # There are no rows on which probabilities could be compared with labels, but entries.
        by_probability = rows.predictions(catalogue.points).labels
        if not np.array_equal(rows.ask(catalogue.points), by_probability):
            raise ModelError(
                "the model's predict and predict_proba disagree on entries of the catalogue; give"
                " the model that it was sealed with"
            )
    return catalogue


_NOTHING = 'the bundle has nothing for guarantee="{}"; seal a fitted KAnonymizer'
_log = logging.getLogger("cfk_plugin")
AUTO = "auto"
_LOOKUP = "exact"  # what "auto" stands for under a lookup guarantee
_MAY_CHANGE = ("k", "near_native", "on_infeasible")  # none of them weakens what was sealed
_WEAK = (
    "a lookup guarantee counts the people in a region; somebody who reruns the algorithm, or asks"
    ' the model, may be left with fewer. guarantee="reciprocal" holds against rerunning,'
    ' "catalogue" against both'
)
_EXACT = (
    'private_values="exact" gives each entry of the catalogue the private values of one person;'
    " somebody who knows them can tell whose they are, and who is in the table."
    ' private_values="shared", the default, gives entries values of at least k people or of no one'
)


def check(policy: PrivacyPolicy, method: object, population: Population) -> None:
    """Refuse what cannot be met: too few people, no sensitive attribute for l or t, an excluded
    method.
    """
    if policy.guarantee == "lookup":
        warnings.warn(_WEAK, LookupGuaranteeWarning, stacklevel=3)
    if policy.guarantee == "catalogue" and policy.private_values == "exact":
        warnings.warn(_EXACT, ExactValuesWarning, stacklevel=3)
    if population.policy is not None:
        _check_floor(policy, population.policy)
    if policy.k > population.n_people:
        raise PolicyError(
            f"k = {policy.k} is above the number of people, {population.n_people}; choose a smaller"
            " k, or take more people in"
        )
    if not population.has_rows:
        _check_without_rows(policy, population)
    if (policy.l or policy.t is not None) and not population.schema.sensitive:
        raise PolicyError(
            "l and t need sensitive attributes in the schema; name them with `sensitive=`"
        )
    if policy.guarantee != "lookup" and method != AUTO:
        raise PolicyError(
            f'guarantee="{policy.guarantee}" fixes everybody\'s region beforehand and needs'
            ' method="auto"; a method that chooses a region per counterfactual needs'
            ' guarantee="lookup"'
        )


def _check_without_rows(policy: PrivacyPolicy, population: Population) -> None:
    """Refuse what needs people's private values or predictions, which are not in this process."""
    needs = [name for name, value in (("l", policy.l), ("t", policy.t)) if value is not None]
    if population.is_sealed:
        if needs and policy.guarantee == "lookup":
            raise PolicyError(
                "l and t of a region of its own are counted in rows, and a sealed population has"
                " none"
            )
        return
    needs += ['guarantee="catalogue"'] if policy.guarantee == "catalogue" else []
    needs += ["rare_values"] if policy.rare_values != "release" else []
    needs += ["alpha"] if policy.alpha is not None else []
    needs += ["private_values"] if policy.private_values == "bins" else []
    if needs:
        raise PolicyError(
            f"{', '.join(needs)}: judged by private values or predictions of people, and these rows"
            ' stay on the cluster; use guarantee="reciprocal", or Population.from_frame or'
            " from_parquet"
        )


def _check_floor(policy: PrivacyPolicy, sealed: PrivacyPolicy) -> None:
    """Refuse a policy that is weaker than the sealed one: k may grow."""
    mine, theirs = policy.to_dict(), sealed.to_dict()
    if policy.k < sealed.k:
        raise PolicyError(f"k = {policy.k} is below the floor of the bundle, {sealed.k}")
    if changed := sorted(
        name for name, value in mine.items() if value != theirs[name] and name not in _MAY_CHANGE
    ):
        raise PolicyError(f"the bundle fixes {', '.join(changed)}; only k may be raised")


def choose(
    method: str | Protector, plugins: Mapping[str, Callable[[], Protector]]
) -> tuple[Protector, str]:
    """Return the protector of a method and its name, which is read before it sees data:
    certificates show the name.
    """
    method = _LOOKUP if method == AUTO else method
    if isinstance(method, str):
        if method == "dp":
            raise InputError(
                'method="dp" answers queries and has no use for counterfactuals: use'
                ' DPPrototypes, or protect(explainer, method="dp", ...)'
            )
        known: dict[str, Callable[[], Protector]] = {**plugins, **BUILT_IN}
        if method not in known:
            names = ["auto", *sorted(known)]
            raise InputError(
                f"unknown method {method!r}; known: {', '.join(names)}"
                f"{did_you_mean([method], names)}"
            )
        return known[method](), method
    name = getattr(method, "name", None)
    if type(name) is not str or not callable(getattr(method, "protect", None)):
        raise InputError(f"method must be a name or a protector; got {type(method).__name__}")
    if name in BUILT_IN and not isinstance(method, BUILT_IN[name]):
        raise InputError(
            f"a protector calls itself {name!r}, which is a built-in one; give it another name"
        )
    return method, name


def check_rerun(protector: Protector, policy: PrivacyPolicy) -> None:
    """Refuse to measure an effective k where rerunning a protector for other people says
    nothing.
    """
    if getattr(protector, "randomised", False) or policy.l is not None or policy.t is not None:
        raise PolicyError(
            "measure_k_effective needs a method that draws no random numbers and a policy without l"
            " and t; the inversion attack of the audit estimates it for others"
        )


def check_sealable(policy: PrivacyPolicy) -> None:
    """Refuse to seal a policy that needs people's private values."""
    judged = (
        policy.private_values == "bins"
        or policy.rare_values != "release"
        or policy.alpha is not None
    )
    if judged:
        raise PolicyError(
            "a bundle has no private values of people: it cannot hold bins, rare values or alpha"
        )


# Only exact types are read, each once: a subclass could differ between verification and release.


def rebuild(proposal: Proposal, population: Population) -> Proposal | None:
    """Return a copy of a proposal made of the population's own values; None if it is malformed."""
    try:
        with quiet("a proposed region is malformed", PluginError):
            region, gap = proposal.region, proposal.gap
            own = None if region is None else _own_region(region, population)
            return Proposal(own, proposal.optimal is True, None if gap is None else float(gap))
    except PluginError as error:
        _log.debug("%s", error)
        return None


def _own_region(region: Region, population: Population) -> Region:
    names = population.schema.quasi_identifiers
    if (
        type(region) is not Region
        or type(region.parts) is not dict
        or len(region.parts) != len(names)
    ):
        raise TypeError("not a Region over the quasi-identifiers")
    parts = region.parts.copy()
    return Region({name: _own_part(parts[name], population.domains[name]) for name in names})


def _own_part(part: Part, domain: Domain) -> Part:
    if not domain.is_interval:
        if type(part) is not frozenset:
            raise TypeError("not a frozenset")
        codes = [domain.code(value) for value in part if value is not None]
        if UNKNOWN in codes:
            raise TypeError("a value that the population does not have")
        own = {domain.value(code) for code in codes}
        return frozenset(own | {None} if None in part and domain.has_missing else own)
    if type(part) is not Interval:
        raise TypeError("not an Interval")
    low, high, levels = part.low, part.high, part.levels
    missing = part.missing is True and domain.has_missing
    if domain.attribute.kind == "ordinal":
        return _own_levels(levels, missing, domain)
    if levels is not None:
        raise TypeError("levels belong to ordinal attributes")
    if low is None and high is None:
        return Interval(None, None, missing)
    return Interval(domain.natural(_end(low)), domain.natural(_end(high)), missing)


def _own_levels(levels: Any, missing: bool, domain: Domain) -> Interval:
    if type(levels) is not tuple:
        raise TypeError("not a tuple of levels")
    codes = [domain.code(level) for level in levels]
    if not codes:
        return Interval(None, None, missing, ())
    if UNKNOWN in codes or codes != list(range(codes[0], codes[0] + len(codes))):
        raise TypeError("levels must be neighbours")
    own = tuple(domain.values[codes[0] : codes[-1] + 1].tolist())
    return Interval(own[0], own[-1], missing, own)


def _end(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, date)):
        raise TypeError("not a number or date")
    number = to_number(value)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number
