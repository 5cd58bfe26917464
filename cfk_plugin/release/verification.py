"""Verification: the last step, which no plugin changes: a region is recounted from itself and the population alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Constraints, Offers
from cfk_plugin.data.display import Telling
from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Domain, bin_of, bin_part
from cfk_plugin.data.intake import Intake
from cfk_plugin.data.model import Grid, Judge, Oracle, rows_for_cells
from cfk_plugin.data.policy import Outcome, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region, natural, part_of
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import ncp_by_attribute, weigh_losses
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivatePart, PrivateRelease, number_of
from cfk_plugin.release.results import Certificate, GeneralizedCounterfactual, Suppressed

_REMEMBERED, _FEW_ROWS = 1 << 22, 10_000  # rows inside of all regions whose recount is remembered, and of one at most
_AT_ONCE = 1 << 22  # codes of queries held at once
_log = logging.getLogger("cfk_plugin")


Ask = Callable[[pd.DataFrame], NDArray[Any]]  # from rows to the model's labels


class Certified(NamedTuple):
    region: Region
    certificate: Certificate


Verdict = Certified | Suppressed


def refused(reason: str, k: int | None = None) -> Suppressed:
    """Return why a region does not leave, and how many people were too few; the query is filled in later."""
    return Suppressed(-1, reason, refused_k=k)


Sealed = Callable[[Region], SealedRegion | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Recount(HostOnly):
    """What the population says of a region, before the model is asked."""

    region: Region
    rows: NDArray[np.int64]  # inside the region
    cells: NDArray[np.int32]  # of these rows
    mapped: NDArray[np.int64]  # released with this region; everybody inside for a nominal k
    is_mapped: NDArray[np.bool_]  # which of the rows these are
    grid: Grid  # its value combinations
    drawn: NDArray[np.int32]  # those that are asked about
    k: int  # people inside
    k_mapped: int  # people released with this region
    ncp: float
    ncp_parts: tuple[float, ...]
    sensitive: SensitiveFigures
    sealed: SealedRegion | None = None  # where there are neither rows nor cells

    def people(self, population: Population, flags: NDArray[np.bool_]) -> int:
        """Count people behind some of the rows inside; without rows, whether the floor is proven is the only flag."""
        if self.sealed is not None:
            return self.sealed.floor if flags.size and flags.all() else 0
        return population.people(self.rows[flags])


class _Answer(NamedTuple):
    good: NDArray[np.bool_]  # per value combination asked: whether it gets the desired outcome
    consistent: NDArray[np.bool_]  # the same per row inside, with the counterfactual's own private values
    exact: bool  # whether every combination was asked


class Verifier(HostOnly):
    """Certifies regions against a population and a policy.

    `mapped_rows` says which rows are released with a region, where a partition fixes that; else all inside count.
    `sealed` says what is known of a region where the population has no cells.
    """

    cell_budget = 10_000  # value combinations of a region up to which all are asked
    samples = 2_000  # how many are drawn of more

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        *,
        reference: Population | None = None,
        mapped_rows: Callable[[Region], NDArray[np.int64]] | None = None,
        sealed: Sealed | None = None,
        seed: int = 0,
    ) -> None:
        self._population, self._policy, self._reference = population, policy, reference
        self._mapped_rows, self._sealed, self._seed = mapped_rows, sealed, seed
        self._private, self._policy_hash = PrivateRelease(population, policy), policy.sha256
        self._known: dict[tuple[str, bool], _Recount | Suppressed] = {}  # the population and the partition never change
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
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        oracle: Oracle,
        method: str,
        foreign: Collection[int] = (),
    ) -> list[Verdict]:
        """Certify or refuse one region per counterfactual; at positions in `foreign` everybody inside counts."""
        own, places = codes[:, self._at], numbers[:, self._at]
        counts: dict[int, _Recount] = {}
        parts: dict[int, PrivatePart] = {}
        verdicts: dict[int, Verdict] = {}
        for i, proposal in enumerate(proposals):
            region = proposal.region
            if region is None:
                verdicts[i] = refused("infeasible")
                continue
            if not self._fits(region, own[i], places[i]):
                verdicts[i] = refused("verification_failed")
                continue
            count = self._recounted(region, is_foreign=i in foreign)
            if isinstance(count, Suppressed):
                verdicts[i] = count
            elif (part := self._private.part(codes[i], numbers[i], count.rows, count.mapped)) is None:
                verdicts[i] = refused("homogeneous")
            else:
                counts[i], parts[i] = count, part
        answered = self._ask(counts, parts, own, oracle)
        for i, answer in [*answered.items()]:
            desired = oracle.desired_rows(i, counts[i].rows)
            if (known := counts[i].sealed) is not None:
                proven = known.proves(answer.consistent, codes[i, self._private_at])
                answered[i] = answer._replace(consistent=np.array([proven]))
            told = counts[i], parts[i], answered[i], desired
            verdicts[i] = self._judge(proposals[i], *told, method, is_foreign=i in foreign)
        return [verdicts[i] for i in range(len(proposals))]

    def hold_to(
        self, asked: Constraints, intake: Intake, verdicts: Sequence[Verdict], judge: Judge, ask: Ask
    ) -> list[Verdict]:
        """Refuse what would ask for an excluded change, and certify how pure the rest is within what may change."""
        domains, certified = (
            self._population.domains,
            {i: v for i, v in enumerate(verdicts) if isinstance(v, Certified)},
        )
        private = [_private_values(verdict.certificate, intake, i) for i, verdict in certified.items()]
        said = [
            {**v.region, **{n: part_of(value) for n, value in values.items()}}
            for v, values in zip(certified.values(), private, strict=True)
        ]
        names = [name for name in domains if name in asked.rules or name in self._names]
        offers = {name: Offers.build(domains[name], [each.get(name) for each in said]) for name in names}
        every = np.array([*certified], dtype=np.int64)
        fits, found = np.flatnonzero(asked.take(every).admits(offers)), list(verdicts)
        for i in certified:
            found[i] = refused("no_actionable_answer")
        step = max(_AT_ONCE // max(domain.size for domain in domains.values()), 1)
        for start in range(0, len(fits), step):
            some = fits[start : start + step]
            at, here = every[some], {name: offered.take(some) for name, offered in offers.items()}
            told = [certified[i] for i in at.tolist()]
            rows, which = self._permitted(asked.take(at), intake.take(at), told, here)
            good = judge(ask(rows), at[which])
            shares = np.bincount(which, good, len(at)) / np.maximum(np.bincount(which, minlength=len(at)), 1)
            for i, (region, certificate), share in zip(at.tolist(), told, shares.tolist(), strict=True):
                if share:  # else nothing that is permitted leads to the outcome
                    found[i] = Certified(region, certificate.counted(permitted_pureness=share))
        return found

    def _permitted(
        self, asked: Constraints, intake: Intake, told: Sequence[Certified], offers: Mapping[str, Offers]
    ) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Return the combinations of some answers that who asks may follow, and the answer that each belongs to."""
        domains, private = self._population.domains, self._population.schema.private
        is_wide = any(certificate.binned or certificate.withheld for _, certificate in told)
        ranged = {n: o for n, o in offers.items() if n in self._names or (is_wide and domains[n].is_numeric)}
        columns, narrow = asked.narrowed(ranged)
        cells = []
        for i, (region, certificate) in enumerate(told):
            grid = Grid.of(region, self._population, [0] * len(self._names))
            axes = dict(zip(self._names, grid.codes, strict=True))
            if is_wide:
                forms = self._private.axes(intake.codes[i], intake.numbers[i], certificate.binned, certificate.withheld)
                axes |= dict(zip(private, forms, strict=True))
            kept = tuple(narrow[n](i, axis) if n in narrow else axis for n, axis in axes.items())
            cells.append(self._drawn(Grid(kept, prod(map(len, kept)))))
        which = np.repeat(np.arange(len(told)), [*map(len, cells)])
        frame = intake.frame.assign(**columns)
        return rows_for_cells(self._population.encoder, frame, which, np.concatenate(cells)), which

    def _drawn(self, grid: Grid) -> NDArray[np.int32]:
        """Return all combinations, or a sample of more than can be asked for, which does not depend on what else is."""
        if grid.size <= self.cell_budget:
            return grid.all()
        return grid.sample(self.samples, np.random.default_rng(self._seed))

    def _fits(self, region: Region, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> bool:
        """Say whether a region has the quasi-identifiers, and for a nominal k holds the counterfactual's own ones."""
        if not isinstance(region, Region) or region.parts.keys() != set(self._names):
            return False
        return self._mapped_rows is not None or all(
            _holds(region.parts[name], self._population.domains[name], int(code), float(number))
            for name, code, number in zip(self._names, codes, numbers, strict=True)
        )

    def foreseen(self, region: Region) -> NDArray[np.int32]:
        """Return what the model will be asked for a group's region, where that depends on the region alone."""
        count = self._recounted(region, is_foreign=False)
        if isinstance(count, Suppressed) or not self._private.is_exact:
            return np.empty((0, len(self._names)), dtype=np.int32)
        return count.drawn if count.grid.size <= self.cell_budget else np.concatenate([count.drawn, count.cells])

    def _recounted(self, region: Region, *, is_foreign: bool) -> _Recount | Suppressed:
        """Return the recount of a region, which never changes."""
        key = repr(region), is_foreign  # as text: of two regions that are equal, one may hold True and one 1
        if (known := self._known.get(key)) is not None:
            return known
        count = self._recount(region, is_foreign=is_foreign)
        size = 1 if isinstance(count, Suppressed) else len(count.rows) + len(count.drawn)
        if size <= _FEW_ROWS:
            if self._held + size > _REMEMBERED:
                self._known.clear()
                self._held = 0
            self._known[key] = count
            self._held += size
        return count

    def _recount(self, region: Region, *, is_foreign: bool) -> _Recount | Suppressed:
        population, policy = self._population, self._policy
        known = None if self._sealed is None else self._sealed(region)
        if known is not None:
            rows = mapped = np.empty(0, dtype=np.int64)
            found = min(known.floor, known.people)
        elif self._sealed is not None:
            return refused("verification_failed")
        else:
            rows = population.members(region)
            mapped = rows if self._mapped_rows is None or is_foreign else self._mapped_rows(region)
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
        if policy.l is not None and sensitive.diversity is not None and sensitive.diversity < policy.l:
            return refused("l_diversity")
        if policy.t is not None and sensitive.closeness is not None and sensitive.closeness > policy.t:
            return refused("t_closeness")
        grid = Grid.of(region, population, [0] * len(self._names))
        return _Recount(
            region=region,
            rows=rows,
            cells=population.cells[population.cell_of(rows)] if known is None else known.cells,
            mapped=mapped,
            is_mapped=np.isin(rows, mapped, assume_unique=True) if known is None else np.ones(1, dtype=bool),
            grid=grid,
            drawn=self._drawn(grid),
            k=population.people(rows) if known is None else known.people,
            k_mapped=found,
            ncp=loss,
            ncp_parts=tuple(parts.values()),
            sensitive=sensitive,
            sealed=known,
        )

    def _ask(
        self, counts: Mapping[int, _Recount], parts: Mapping[int, PrivatePart], own: NDArray[np.int32], oracle: Oracle
    ) -> dict[int, _Answer]:
        """Ask for the value combinations of every region, and for those of the people inside."""
        grids: dict[int, NDArray[np.int32]] = {}
        members: dict[int, NDArray[np.int32]] = {}
        exact: dict[int, bool] = {}
        for i, count in counts.items():
            axes = [  # a number that no row has is one more; not of a group's region, which is judged alike for all
                np.append(axis, np.int32(domain.size)) if code == UNKNOWN and self._mapped_rows is None else axis
                for axis, domain, code in zip(count.grid.codes, self._domains, own[i].tolist(), strict=True)
            ]
            axes += parts[i].axes
            grid, is_same = Grid(tuple(axes), prod(map(len, axes))), len(axes) == len(own[i])
            is_same = is_same and grid.size == count.grid.size  # nothing was added
            exact[i], grids[i] = grid.size <= self.cell_budget, count.drawn if is_same else self._drawn(grid)
            members[i] = count.cells
        wide = {i: cells for i, cells in grids.items() if parts[i].axes}  # private values vary, too
        narrow = {i: c if i in wide else np.concatenate([grids[i], c]) for i, c in members.items()}
        said, also = _ask(oracle, narrow, reuse=True), _ask(oracle, wide, reuse=False)
        return {
            i: _Answer(also[i], said[i], exact[i])
            if i in wide
            else _Answer(said[i][: len(cells)], said[i][len(cells) :], exact[i])
            for i, cells in grids.items()
        }

    def _judge(
        self,
        proposal: Proposal,
        count: _Recount,
        private: PrivatePart,
        answer: _Answer,
        desired: NDArray[np.bool_] | None,
        method: str,
        *,
        is_foreign: bool,
    ) -> Verdict:
        people, rows, policy = self._population.people, count.rows, self._policy
        good, consistent, exact = answer
        share = float(good.mean())
        low, high = (share, share) if exact else clopper_pearson(int(good.sum()), len(good))
        if low < policy.least_pureness:
            return refused("pureness_below_floor")
        effective = None
        if self._mapped_rows is not None:
            if short := self._short_of_guarantee(count, desired, consistent, share):
                return short
            effective = None if is_foreign else count.k_mapped
        gap = proposal.gap
        proven = not private.axes or policy.objective == "ncp"  # a search holds private values fixed
        in_reference = None if self._reference is None else max(self._reference.count(count.region), 1)
        certificate = Certificate(
            k=count.k,
            k_desired=None if desired is None else people(rows[desired]),
            k_consistent=count.people(self._population, consistent),
            k_effective=effective,
            k_private=private.inside,
            private_matches=private.anywhere,
            ncp=count.ncp,
            pureness=share,
            pureness_low=low,
            pureness_high=high,
            exact=exact,
            l=count.sensitive.diversity,
            t=count.sensitive.closeness,
            prosecutor_risk=1.0 / count.k,
            journalist_risk=None if in_reference is None else 1.0 / in_reference,
            optimal=proven and bool(proposal.optimal),
            gap=gap if proven and gap is not None and 0 <= gap < inf else None,
            method=method,
            guarantee=policy.guarantee,
            policy_hash=self._policy_hash,
            population=self._population.fingerprint,
            majority=None if desired is None else 2 * int(desired.sum()) >= len(rows),
            binned=private.binned,
            withheld=private.withheld,
            ncp_parts=count.ncp_parts,
            disclosure=count.sensitive.disclosure,
        )
        return Certified(count.region, certificate)

    def _short_of_guarantee(
        self, count: _Recount, desired: NDArray[np.bool_] | None, consistent: NDArray[np.bool_], share: float
    ) -> Suppressed | None:
        """Refuse a region of the partition that does not give what the guarantee promises."""
        policy = self._policy
        if share == 0:  # the group's region need not hold the counterfactual: it may be no advice at all
            return refused("pureness_below_floor")
        wanted = [desired] if policy.counts_eligible and desired is not None else []  # else: groups of them alone
        wanted += [consistent] if policy.guarantee == "catalogue" else []
        if not wanted:
            return None
        least = min(count.people(self._population, count.is_mapped & flags) for flags in wanted)
        return refused("verification_failed", least) if least < policy.k else None


def _ask(oracle: Oracle, cells: Mapping[int, NDArray[np.int32]], *, reuse: bool) -> dict[int, NDArray[np.bool_]]:
    if not cells:
        return {}
    lengths = [*map(len, cells.values())]
    good = oracle.ask(np.repeat(list(cells), lengths), np.concatenate(list(cells.values())), reuse=reuse)
    return dict(zip(cells, np.split(good, np.cumsum(lengths)[:-1]), strict=True))


def _holds(part: Part, domain: Domain, code: int, number: float) -> bool:
    """Say whether a part has the right type for its attribute and holds the counterfactual's own value."""
    if code in (INVALID, UNEXPECTED_MISSING) or not _well_formed(part, domain):
        return False
    if code != UNKNOWN:
        return bool(domain.inside(part)[code])
    return domain.attribute.kind == "numeric" and domain.natural(number) in part


def _well_formed(part: Part, domain: Domain) -> bool:
    if not domain.is_interval:
        return isinstance(part, frozenset) and all(v is None or domain.code(v) != UNKNOWN for v in part)
    if not isinstance(part, Interval) or (part.low is None) != (part.high is None):
        return False
    if domain.attribute.kind == "ordinal":
        return part.levels is not None and set(part.levels) <= set(domain.values)
    return part.levels is None and not any(isinstance(end, str) for end in (part.low, part.high))


def entry_of(
    query: int, verdict: Certified, accepted: Intake, row: int, outcome: Outcome, telling: Telling | None
) -> GeneralizedCounterfactual:
    """Return what leaves of a certified counterfactual; `telling` is that of a partition, if there is one."""
    certificate, encoder = verdict.certificate, accepted.encoder
    domains, found = encoder.domains, verdict.region.parts
    parts = {name: found[name] for name in encoder.schema.features if name in found}
    labels = {
        name: node
        for name in parts
        if domains[name].attribute.hierarchy is not None and (node := domains[name].label(parts[name])) is not None
    }
    released = _private_values(certificate, accepted, row)
    telling, withheld = telling or encoder.schema.telling, certificate.withheld
    return GeneralizedCounterfactual(query, Region(parts), released, certificate, labels, withheld, outcome, telling)


def _private_values(certificate: Certificate, intake: Intake, row: int) -> dict[str, Any]:
    encoder, released = intake.encoder, {}
    for at, name in enumerate(encoder.schema.features):
        if name in encoder.schema.quasi_identifiers or name in certificate.withheld:
            continue
        if name in certificate.binned:
            domain = encoder.domains[name]
            which = bin_of(domain, number_of(domain, int(intake.codes[row, at]), float(intake.numbers[row, at])))
            if which is None:
                raise ValueError(f"column {name!r}: a value falls into no bin")
            released[name] = bin_part(domain, which)
        else:
            released[name] = natural(intake.values[at][row])
    return released
