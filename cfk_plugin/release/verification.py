"""Verification: the last step, which no plugin changes: it recounts a region from itself and the
population alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Constraints, DistinctParts
from cfk_plugin.data.domain import (
    INVALID,
    UNEXPECTED_MISSING,
    UNKNOWN,
    Codes,
    Domain,
    Numbers,
    Rows,
    bin_of,
    bin_part,
)
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.model import (
    DESIRED,
    MOST_CELLS,
    SAMPLED,
    SURE,
    CombinationOutcomes,
    Grid,
    rows_for_cells,
)
from cfk_plugin.data.outcome import OutcomeTest
from cfk_plugin.data.policy import Mask, Outcome, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, Requirement
from cfk_plugin.data.region import Interval, Part, Region, part_contains, part_of
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import ncp_by_attribute, weigh_losses
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivatePart, PrivateRelease, number_of
from cfk_plugin.release.results import (
    Certificate,
    Explanation,
    GeneralizedCounterfactual,
    RegionRecount,
    Withheld,
)

# most rows inside of remembered regions: of all, and of one
_REMEMBERED, _FEW_ROWS = 1 << 22, 10_000
_AT_ONCE = 1 << 22  # codes of queries held at once
_log = logging.getLogger("cfk_plugin")


Ask = Callable[[pd.DataFrame], NDArray[Any]]  # from rows to the model's labels


class Certified(NamedTuple):
    region: Region
    certificate: Certificate
    recount: RegionRecount

    def with_counts(self, **counts: Any) -> Certified:
        """Return the verdict with counts that were not known when it was made."""
        return self._replace(recount=self.recount.with_counts(**counts))


Verdict = Certified | Withheld


def refused(reason: str, k: int | None = None) -> Withheld:
    """Return why a region does not leave, and the number of people if too few; the query is filled
    in later.
    """
    return Withheld(-1, reason, refused_k=k)


Sealed = Callable[[Region], SealedRegion | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemainingRows(HostOnly):
    """Who is left of the people of a region that was released before; nobody else counts."""

    inside: Rows  # rows inside of it
    mapped: Rows  # those to whom it was given; with a lookup guarantee all of them


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Recount(HostOnly):
    """What the population says about a region, before the model is asked."""

    region: Region
    rows: Rows  # inside the region
    cells: Codes  # of these rows
    mapped: Rows  # released with this region; everybody inside for a lookup guarantee
    is_mapped: Mask  # which of the rows are mapped
    grid: Grid  # its value combinations
    drawn: Codes  # the combinations that are asked about
    k: int  # people inside
    k_mapped: int  # people released with this region
    ncp: float
    ncp_parts: tuple[float, ...]
    sensitive: SensitiveFigures
    sealed: SealedRegion | None = None  # if there are neither rows nor cells

    def people(self, population: Population, flags: Mask) -> list[int]:
        """Count people behind some of the rows inside; without rows, the only flag says whether the
        floor is proven.
        """
        if self.sealed is not None:
            return [self.sealed.floor if proven else 0 for proven in flags[:, 0].tolist()]
        return population.people_of(self.rows, flags)


class _Claim(NamedTuple):
    """A region, and counterfactuals that are to leave with it and need the same questions."""

    recount: _Recount
    at: Rows
    private: PrivatePart
    cells: Codes  # value combinations that are asked about
    exact: bool  # whether these are all of them


class Verifier(HostOnly):
    """Certifies regions against a population and a policy.

    `mapped_rows` says which rows are released with a region, if a partition fixes that; else all
    inside count. `sealed` says what is known of a region if the population has no cells.
    `requirement` is what answers require of outcomes, which certificates state.
    """

    cell_budget, samples = MOST_CELLS, SAMPLED

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        *,
        reference: Population | None = None,
        mapped_rows: Callable[[Region], Rows] | None = None,
        sealed: Sealed | None = None,
        requirement: Requirement | None = None,
        seed: int = 0,
    ) -> None:
        self._population, self._policy, self._reference = population, policy, reference
        self._mapped_rows, self._sealed, self._seed = mapped_rows, sealed, seed
        self._requirement = AnyOutcome() if requirement is None else requirement
        self._private, self._policy_hash = PrivateRelease(population, policy), policy.sha256
        # the population and the partition never change
        self._known: dict[str, _Recount | Withheld] = {}
        self._held = 0  # rows and combinations in these
        self._names = population.schema.quasi_identifiers
        self._domains = [population.domains[name] for name in self._names]
        self._at, self._private_at = (
            [population.schema.features.index(name) for name in names]
            for names in (self._names, population.schema.private)
        )

    def verify(
        self,
        proposals: Sequence[Proposal],
        codes: Codes,
        numbers: Numbers,
        combination_outcomes: CombinationOutcomes,
        method: str,
        remaining: Mapping[int, RemainingRows] = MappingProxyType({}),
    ) -> list[Verdict]:
        """Certify or refuse one region per counterfactual.

        `remaining` has, by position, who is left of the people of a region that is on record.
        """
        alike, claims, of = (
            dict[Any, list[int]](),
            list[_Claim](),
            np.zeros(len(proposals), dtype=np.int64),
        )
        # then the region decides the questions
        asks_alike = self._private.is_exact and self._mapped_rows is not None
        for i, proposal in enumerate(proposals):
            key = (id(proposal.region), id(remaining.get(i))) if asks_alike else i
            alike.setdefault(key, []).append(i)
        found = dict[int, Verdict]()
        for first, *others in alike.values():
            at = np.array([first, *others])
            claim = self._claim(
                proposals[first].region,
                at,
                codes[first],
                numbers[first],
                remaining.get(first),
            )
            if isinstance(claim, Withheld):
                found.update(dict.fromkeys(at.tolist(), claim))
            else:
                of[at] = len(claims)
                claims.append(claim)
        matches = [(None, None)] * len(proposals)
        if claims and self._population.has_rows:
            matches = self._private.exact_matches(
                codes, [claim.recount.rows for claim in claims], of
            ).tolist()
        for claim, good, consistent in self._asked(claims, codes, combination_outcomes):
            desired = combination_outcomes.desired_rows(claim.at, claim.recount.rows)
            verdicts = self._judge(claim, proposals, matches, good, consistent, desired, method)
            found.update(zip(claim.at.tolist(), verdicts, strict=True))
        return [found[i] for i in range(len(proposals))]

    def _claim(
        self,
        region: Region | None,
        at: Rows,
        codes: Codes,
        numbers: Numbers,
        remaining: RemainingRows | None,
    ) -> _Claim | Withheld:
        if region is None:
            return refused("infeasible")
        own = codes[self._at]
        if not self._fits(region, own, numbers[self._at]):
            return refused("verification_failed")
        if remaining is None:
            count = self._recounted(region)
        else:
            count = self._recount(region, remaining)
        if isinstance(count, Withheld):
            return count
        private = PrivatePart()
        if not self._private.is_exact:
            private = self._private.part(codes, numbers, count.rows, count.mapped)
        axes = [*count.grid.codes, *private.axes]
        # A number that no row has is one more; not of a group's region, which is judged alike for
        # all.
        for j in np.flatnonzero(own == UNKNOWN).tolist() if self._mapped_rows is None else ():
            axes[j] = np.append(axes[j], np.int32(self._domains[j].size))
        is_same = [*map(len, axes)] == [*map(len, count.grid.codes)]  # nothing was added
        grid = count.grid if is_same else Grid(tuple(axes))
        cells = count.drawn if is_same else grid.drawn(self.cell_budget, self.samples, self._seed)
        return _Claim(count, at, private, cells, grid.size <= self.cell_budget)

    def hold_to(
        self,
        asked: Constraints,
        encoded: EncodedTable,
        verdicts: Sequence[Verdict],
        judge: OutcomeTest,
        ask: Ask,
    ) -> list[Verdict]:
        """Refuse what needs an excluded change, and certify how pure the rest is within what may
        change.
        """
        domains = self._population.domains
        certified = {i: v for i, v in enumerate(verdicts) if isinstance(v, Certified)}
        private = [_private_values(verdict.recount, encoded, i) for i, verdict in certified.items()]
        said = [
            {**v.region, **{n: part_of(value) for n, value in values.items()}}
            for v, values in zip(certified.values(), private, strict=True)
        ]
        names = [name for name in domains if name in asked.rules or name in self._names]
        distinct_parts = {
            name: DistinctParts.build(domains[name], [each.get(name) for each in said])
            for name in names
        }
        every = np.array([*certified], dtype=np.int64)
        fits, found = (
            np.flatnonzero(asked.take(every).admits_paired(distinct_parts)),
            list(verdicts),
        )
        for i in certified:
            found[i] = refused("no_actionable_answer")
        step = max(_AT_ONCE // max(domain.size for domain in domains.values()), 1)
        for start in range(0, len(fits), step):
            some = fits[start : start + step]
            at, here = (
                every[some],
                {name: offered.take(some) for name, offered in distinct_parts.items()},
            )
            told = [certified[i] for i in at.tolist()]
            rows, which = self._permitted(asked.take(at), encoded.take(at), told, here)
            good = judge(ask(rows), at[which])
            shares = np.bincount(which, good, len(at)) / np.maximum(
                np.bincount(which, minlength=len(at)), 1
            )
            for i, verdict, share in zip(at.tolist(), told, shares.tolist(), strict=True):
                if share:  # else nothing that is permitted leads to the outcome
                    found[i] = verdict.with_counts(permitted_pureness=share)
        return found

    def hold_to_few_changes(
        self, asked: Constraints, encoded: EncodedTable, verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Refuse what asks for more changes than are permitted.

        A feature changes where what is said of it does not hold the query's own value, which is
        what a sentence lists. Of a feature that is withheld nothing is said.
        """
        if asked.max_changes is None:
            return list(verdicts)
        queries = self._population.conform(asked.queries.frame).to_dict("records")
        found = list(verdicts)
        for i, verdict in enumerate(verdicts):
            if not isinstance(verdict, Certified):
                continue
            values = _private_values(verdict.recount, encoded, i)
            parts = {**verdict.region, **{n: part_of(value) for n, value in values.items()}}
            own = queries[i]
            n_changes = sum(not part_contains(part, own[name]) for name, part in parts.items())
            if n_changes > asked.max_changes:
                found[i] = refused("no_actionable_answer")
        return found

    def _permitted(
        self,
        asked: Constraints,
        encoded: EncodedTable,
        told: Sequence[Certified],
        distinct_parts: Mapping[str, DistinctParts],
    ) -> tuple[pd.DataFrame, Rows]:
        """Return the combinations of answers that are permitted to who asks, and the answer that
        each belongs to.
        """
        domains, private = self._population.domains, self._population.schema.private
        is_wide = any(verdict.recount.binned or verdict.recount.withheld for verdict in told)
        ranged = {
            n: o
            for n, o in distinct_parts.items()
            if n in self._names or (is_wide and domains[n].is_numeric)
        }
        columns, narrow = asked.narrowed(ranged)
        cells = []
        for i, verdict in enumerate(told):
            grid = Grid.of(verdict.region, self._population, [0] * len(self._names))
            axes = dict(zip(self._names, grid.codes, strict=True))
            if is_wide:
                forms = self._private.axes(
                    encoded.codes[i],
                    encoded.numbers[i],
                    verdict.recount.binned,
                    verdict.recount.withheld,
                )
                axes |= dict(zip(private, forms, strict=True))
            kept = tuple(narrow[n](i, axis) if n in narrow else axis for n, axis in axes.items())
            cells.append(Grid(kept).drawn(self.cell_budget, self.samples, self._seed))
        which = np.repeat(np.arange(len(told)), [*map(len, cells)])
        frame = encoded.frame.assign(**columns)
        return rows_for_cells(self._population.encoder, frame, which, np.concatenate(cells)), which

    def _fits(self, region: Region, codes: Codes, numbers: Numbers) -> bool:
        """Say whether a region has the quasi-identifiers and, for a lookup guarantee, holds those
        of the counterfactual.
        """
        if not isinstance(region, Region) or region.parts.keys() != set(self._names):
            return False
        return self._mapped_rows is not None or all(
            _holds(region.parts[name], self._population.domains[name], int(code), float(number))
            for name, code, number in zip(self._names, codes, numbers, strict=True)
        )

    def foreseen(self, region: Region) -> Codes:
        """Return what the model will be asked about a group's region, if that depends on the region
        alone.
        """
        count = self._recounted(region)
        if isinstance(count, Withheld) or not self._private.is_exact:
            return np.empty((0, len(self._names)), dtype=np.int32)
        return (
            count.drawn
            if count.grid.size <= self.cell_budget
            else np.concatenate([count.drawn, count.cells])
        )

    def _recounted(self, region: Region) -> _Recount | Withheld:
        """Return the recount of a region, which never changes."""
        # as text, since equal regions may differ: one holds True, one 1
        key = repr(region)
        if (known := self._known.get(key)) is not None:
            return known
        count = self._recount(region)
        size = 1 if isinstance(count, Withheld) else len(count.rows) + len(count.drawn)
        if size <= _FEW_ROWS:
            if self._held + size > _REMEMBERED:
                self._known.clear()
                self._held = 0
            self._known[key] = count
            self._held += size
        return count

    def _recount(
        self, region: Region, remaining: RemainingRows | None = None
    ) -> _Recount | Withheld:
        population, policy = self._population, self._policy
        known = None if self._sealed is None else self._sealed(region)
        if known is not None:
            rows = mapped = np.empty(0, dtype=np.int64)
            found = min(known.floor, known.people)
        elif self._sealed is not None:
            return refused("verification_failed")
        elif remaining is not None:
            rows, mapped = remaining.inside, remaining.mapped
            found = population.people(mapped)
        else:
            rows = population.members(region)
            mapped = rows if self._mapped_rows is None else self._mapped_rows(region)
            found = population.people(mapped)
        if found < policy.k:
            return refused("verification_failed", found)
        if not np.isin(mapped, rows, assume_unique=True).all():
            return refused("verification_failed")
        parts = ncp_by_attribute(region, population)
        loss = weigh_losses(parts, population.schema)
        if policy.max_ncp is not None and loss > policy.max_ncp:
            return refused("ncp_above_ceiling")
        sensitive = SensitiveFigures.of(population, mapped)
        if (
            policy.l is not None
            and sensitive.diversity is not None
            and sensitive.diversity < policy.l
        ):
            return refused("l_diversity")
        if (
            policy.t is not None
            and sensitive.closeness is not None
            and sensitive.closeness > policy.t
        ):
            return refused("t_closeness")
        grid = Grid.of(region, population, [0] * len(self._names))
        return _Recount(
            region=region,
            rows=rows,
            cells=population.cells[population.cell_of(rows)] if known is None else known.cells,
            mapped=mapped,
            is_mapped=np.isin(rows, mapped, assume_unique=True)
            if known is None
            else np.ones(1, dtype=bool),
            grid=grid,
            drawn=grid.drawn(self.cell_budget, self.samples, self._seed),
            k=population.people(rows) if known is None else known.people,
            k_mapped=found,
            ncp=loss,
            ncp_parts=tuple(parts.values()),
            sensitive=sensitive,
            sealed=known,
        )

    def _asked(
        self, claims: Sequence[_Claim], codes: Codes, combination_outcomes: CombinationOutcomes
    ) -> Iterator[tuple[_Claim, Mask, Mask]]:
        """Yield, for each claim, whether value combinations have the outcome, and whether the
        people inside do, with the margin that answers have.
        """
        narrow, wide = list[tuple[Rows, Codes]](), list[tuple[Rows, Codes]]()
        for claim in claims:
            # whether private values vary
            members, varies = claim.recount.cells, bool(claim.private.axes)
            narrow.append((claim.at, members if varies else np.concatenate([claim.cells, members])))
            wide += [(claim.at, claim.cells)] * varies
        said, also = (
            _ask(combination_outcomes, narrow, reuse=True),
            _ask(combination_outcomes, wide, reuse=False),
        )
        for claim in claims:
            grades = next(said)
            if claim.private.axes:
                grid = next(also) >= DESIRED
                people = grades == SURE
            else:
                grid = grades[:, : len(claim.cells)] >= DESIRED
                people = grades[:, len(claim.cells) :] == SURE
            if (known := claim.recount.sealed) is not None:
                own = codes[claim.at][:, self._private_at]
                people = np.array(
                    [[known.proves(*each)] for each in zip(people, own, strict=True)], dtype=bool
                )
            yield claim, grid, people

    def _judge(
        self,
        claim: _Claim,
        proposals: Sequence[Proposal],
        matches: Sequence[Sequence[int | None]],
        good: Mask,
        consistent: Mask,
        desired: Mask | None,
        method: str,
    ) -> Iterator[Verdict]:
        """Certify or refuse a claim for each of its counterfactuals; those with equal figures share
        a certificate.
        """
        count, policy, known = claim.recount, self._policy, dict[Any, Certified]()
        at, people = claim.at.tolist(), partial(count.people, self._population)
        hits, n = good.sum(axis=1), good.shape[1]
        shares, unknown = (hits / n).tolist(), [None] * len(at)
        bounds = (
            [(s, s) for s in shares]
            if claim.exact
            else [clopper_pearson(hit, n) for hit in hits.tolist()]
        )
        k_desired = unknown if desired is None else people(desired)
        majority = (
            unknown if desired is None else (2 * desired.sum(axis=1) >= len(count.rows)).tolist()
        )
        wanted = []
        if policy.counts_eligible:
            wanted.append(consistent)
            if desired is not None:
                wanted.append(desired)
        promised = (
            [people(count.is_mapped & flags) for flags in wanted]
            if self._mapped_rows is not None
            else []
        )
        least = np.min([[policy.k] * len(at), *promised], axis=0).tolist()
        figures = zip(shares, bounds, k_desired, majority, people(consistent), strict=True)
        for i, short, figure in zip(at, least, figures, strict=True):
            share, (low, high), *counts = figure
            if low < policy.least_pureness or (self._mapped_rows is not None and share == 0):
                # a group's region may not hold the counterfactual
                yield refused("pureness_below_floor")
            elif short < policy.k:  # fewer people than the guarantee promises
                yield refused("verification_failed", short)
            else:
                counts += claim.private.matches or matches[i]
                key = share, low, high, *counts, proposals[i].optimal, proposals[i].gap
                if key not in known:
                    known[key] = Certified(
                        count.region,
                        self._certificate(claim, proposals[i], (share, low, high), method),
                        self._region_recount(claim, counts),
                    )
                yield known[key]

    def _certificate(
        self, claim: _Claim, proposal: Proposal, pureness: Sequence[float], method: str
    ) -> Certificate:
        count = claim.recount
        policy = self._policy
        gap = proposal.gap
        # as searches keep private values fixed
        proven = not claim.private.axes or policy.objective == "ncp"
        share, low, high = pureness
        return Certificate(
            k=count.k,
            ncp=count.ncp,
            pureness=share,
            pureness_low=low,
            pureness_high=high,
            exact=claim.exact,
            optimal=proven and bool(proposal.optimal),
            gap=gap if proven and gap is not None and 0 <= gap < inf else None,
            method=method,
            guarantee=policy.guarantee,
            not_stopped=policy.not_stopped,
            margin=self._requirement.margin,
            n_later=self._requirement.n_later,
            policy_hash=self._policy_hash,
            population=self._population.fingerprint,
        )

    def _region_recount(self, claim: _Claim, counts: Sequence[Any]) -> RegionRecount:
        count = claim.recount
        private = claim.private
        journalist_risk = None
        if self._reference is not None:
            journalist_risk = 1.0 / max(self._reference.count(count.region), 1)
        k_desired, majority, k_consistent, k_private, private_matches = counts
        return RegionRecount(
            k=count.k,
            k_desired=k_desired,
            k_consistent=k_consistent,
            k_effective=None if self._mapped_rows is None else count.k_mapped,
            k_private=k_private,
            private_matches=private_matches,
            l=count.sensitive.diversity,
            t=count.sensitive.closeness,
            journalist_risk=journalist_risk,
            majority=majority,
            disclosure=count.sensitive.disclosure,
            ncp_parts=count.ncp_parts,
            binned=private.binned,
            withheld=private.withheld,
        )


def _ask(
    combination_outcomes: CombinationOutcomes, pairs: Sequence[tuple[Rows, Codes]], *, reuse: bool
) -> Iterator[NDArray[np.int8]]:
    """Yield the grades of combinations, for each counterfactual that they go with.

    See `CombinationOutcomes.grades`.
    """
    if not pairs:
        return
    which, cells = zip(
        *((np.repeat(at, len(each)), np.tile(each, (len(at), 1))) for at, each in pairs),
        strict=True,
    )
    grades = combination_outcomes.grades(np.concatenate(which), np.concatenate(cells), reuse=reuse)
    end = 0
    for (at, _), each in zip(pairs, which, strict=True):
        yield grades[end : end + len(each)].reshape(len(at), -1)
        end += len(each)


def _holds(part: Part, domain: Domain, code: int, number: float) -> bool:
    """Say whether a part has the right type for its attribute and holds the counterfactual's own
    value.
    """
    if code in (INVALID, UNEXPECTED_MISSING) or not _well_formed(part, domain):
        return False
    if code != UNKNOWN:
        return bool(domain.inside(part)[code])
    return domain.attribute.kind == "numeric" and domain.natural(number) in part


def _well_formed(part: Part, domain: Domain) -> bool:
    if not domain.is_interval:
        return isinstance(part, frozenset) and all(
            v is None or domain.code(v) != UNKNOWN for v in part
        )
    if not isinstance(part, Interval) or (part.low is None) != (part.high is None):
        return False
    if domain.attribute.kind == "ordinal":
        return part.levels is not None and set(part.levels) <= set(domain.values)
    return part.levels is None and not any(isinstance(end, str) for end in (part.low, part.high))


def entries_of(
    queries: Sequence[int],
    verdicts: Sequence[Verdict],
    accepted: EncodedTable,
    outcomes: Iterable[Outcome],
    by: Presentation,
) -> Iterator[Explanation]:
    """Yield what is released of counterfactuals, or why nothing is."""
    shown = dict[int, tuple[Region, dict[str, str]]]()
    for row, (query, verdict, outcome) in enumerate(zip(queries, verdicts, outcomes, strict=False)):
        if isinstance(verdict, Withheld):
            yield Withheld(query, verdict.reason, refused_k=verdict.refused_k)
            continue
        found, certificate, recount = verdict
        if id(found) not in shown:
            shown[id(found)] = _shown(found, accepted)
        (region, titles), released = shown[id(found)], _private_values(recount, accepted, row)
        yield GeneralizedCounterfactual(
            query=query,
            region=region,
            released=released,
            certificate=certificate,
            recount=recount,
            titles=titles,
            withheld=recount.withheld,
            outcome=outcome,
            presentation=by,
        )


def _shown(region: Region, accepted: EncodedTable) -> tuple[Region, dict[str, str]]:
    """Return a region in the order of the features, and the names of its hierarchy nodes."""
    titles = dict[str, str]()
    parts = dict[str, Part]()
    for name, domain in zip(
        accepted.encoder.schema.features, accepted.encoder.columns, strict=True
    ):
        if name in region.parts:
            parts[name] = region.parts[name]
            if (
                domain.attribute.hierarchy is not None
                and (node := domain.title(parts[name])) is not None
            ):
                titles[name] = node
    return Region(parts), titles


def _private_values(recount: RegionRecount, encoded: EncodedTable, row: int) -> dict[str, Any]:
    encoder, released = encoded.encoder, encoded.private[row].copy()
    for name in recount.withheld:
        del released[name]
    for name in recount.binned:
        at, domain = encoder.schema.features.index(name), encoder.domains[name]
        which = bin_of(
            domain, number_of(domain, int(encoded.codes[row, at]), float(encoded.numbers[row, at]))
        )
        if which is None:
            raise ValueError(f"column {name!r}: a value falls into no bin")
        released[name] = bin_part(domain, which)
    return released
