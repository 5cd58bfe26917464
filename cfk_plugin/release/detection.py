"""Detection: says whether a raw counterfactual is a training row, or too close to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import INVALID, UNKNOWN, Codes, Domain, Numbers, Rows, mix
from cfk_plugin.data.encoded_table import EncodedTable, encode
from cfk_plugin.data.policy import Mask
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.metrics.heom import Heom, hashes_of
from cfk_plugin.protection.partition.neighbors import Neighbors

QUANTILE = 0.05  # share of real people outside the training data who are closer than the tolerance
_CALIBRATION_ROWS = 400
# bounds the time of the calibration, whatever the table's length
_CALIBRATION_DISTANCES = 6_000_000
_DECIMALS = 10  # beyond, a column counts as unrounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range
_KINDS: tuple[NativeStatus, ...] = get_args(NativeStatus)  # worst first


@dataclass(frozen=True, slots=True)
class Tolerance:
    distance: float  # near-native at or below this HEOM distance to the nearest training row
    # the same divided by that row's own distance to its nearest non-duplicate; 0: unused
    ratio: float
    source: Literal["given", "holdout", "leave-one-out"]
    n: int = 0  # rows that it was calibrated on


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Every test of every counterfactual, for the data holder; `Detector.find` returns the worst
    finding.
    """

    native: Mask  # equal to a training row
    native_qi: Mask  # equal on the quasi-identifiers
    near: Mask  # within the tolerance; a native row is
    distance: Numbers  # HEOM distance to the nearest training row; 0 where native
    ratio: Numbers  # the same divided by that row's own nearest distance


class Detector(HostOnly):
    """Compares raw counterfactuals with the training rows they may give away.

    A finding tells how an explainer behaves, and is never a proof of privacy: a counterfactual far
    from every row still depends on the training data, and one found synthetic may be a record
    changed in several places.

    Native: every feature matches a training row after canonicalisation. Categories are compared as
    text, missing equals missing, numbers to single precision; where all numbers of a column in the
    batch have d decimals and the population's have more, numbers match within half a unit of the
    last decimal (at most 1 % of the range). A small batch can look rounded by chance; then too much
    is found rather than too little.

    Near-native: distance to the nearest row <= tau, or ratio <= tau_rho, both the 5 % quantile over
    real rows outside: of a `holdout`, else training rows that have no duplicate, each compared with
    all others, as a person outside would be; the seed draws which. So at least 5 % of honest
    newcomers would be flagged as well, and more where the two tests differ. A `near_native`
    distance is used as given. Of ordinal and hierarchical attributes only equality counts.
    """

    def __init__(
        self,
        population: Population,
        near_native: Literal["auto"] | float = "auto",
        holdout: pd.DataFrame | None = None,
        seed: int = 0,
    ) -> None:
        check_population(population)
        if near_native != "auto" and not 0 <= near_native <= 1:
            raise InputError('near_native must be "auto" or a number between 0 and 1')
        self._population, self._near_native, self._seed = population, near_native, seed
        self._features = population.schema.features
        self._holdout = None if holdout is None else self._encode(holdout)

    def find(
        self, frame: pd.DataFrame, *, instance_based: bool = False
    ) -> tuple[NativeStatus, ...]:
        """Return the worst finding for every counterfactual: the first of `NativeStatus` that
        holds.

        `instance_based`: whether the explainer returns training rows or changes them; then all are
        at least near-native. Raises `InputError` if a feature is missing.
        """
        return self.find_coded(self._encode(frame), instance_based=instance_based)

    def find_coded(
        self, encoded: EncodedTable, *, instance_based: bool
    ) -> tuple[NativeStatus, ...]:
        """Like `find`, for counterfactuals that were taken in already."""
        native, native_qi = self._equal_to(encoded)
        near = native | instance_based
        if len(open_ := np.flatnonzero(~near)):
            near[open_] = self._is_near(*self._distances(encoded.take(open_)))
        worst = np.select([native, near, native_qi], [0, 1, 2], 3)
        return tuple(map(_KINDS.__getitem__, worst.tolist()))

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return every test for every counterfactual, not only the worst finding.

        For the data holder.
        """
        encoded = self._encode(frame)
        native, native_qi = self._equal_to(encoded)
        distance, ratio = np.zeros(len(frame)), np.zeros(len(frame))
        if len(open_ := np.flatnonzero(~native)):
            distance[open_], ratio[open_] = self._distances(encoded.take(open_))
        return Detection(
            native, native_qi, native | self._is_near(distance, ratio), distance, ratio
        )

    def _encode(self, frame: pd.DataFrame) -> EncodedTable:
        if lost := [name for name in self._features if name not in frame.columns]:
            raise InputError(f"the table of counterfactuals lacks {', '.join(lost)}")
        if not frame.columns.is_unique:
            raise InputError("the table of counterfactuals has two columns of the same name")
        return encode(frame, self._population.encoder)

    def _equal_to(self, encoded: EncodedTable) -> tuple[Mask, Mask]:
        codes = (
            encoded.codes if encoded.odd is None else np.where(encoded.odd, INVALID, encoded.codes)
        )
        return self.equal_rows(codes, encoded.numbers)

    @cached_property
    def _decimals(self) -> list[int]:
        domains = [self._population.domains[name] for name in self._features]
        return [_decimals(d.values) if d.attribute.kind == "numeric" else 0 for d in domains]

    def equal_rows(self, codes: Codes, numbers: Numbers) -> tuple[Mask, Mask]:
        """Say for coded rows whether each equals a training row, and whether it does on the
        quasi-identifiers.
        """
        schema = self._population.schema
        # First and last code that each value may stand for; first > last where there is none.
        low, high = codes.copy(), np.where(codes < 0, UNKNOWN - 1, codes).astype(np.int32)
        for j, name in enumerate(self._features):
            domain = self._population.domains[name]
            if domain.attribute.kind != "numeric" or not len(domain.values):
                continue
            known = np.isfinite(numbers[:, j])
            asked, exact = numbers[known, j], codes[known, j]
            within = np.zeros(len(asked))
            if not domain.is_date:
                decimals, width = _decimals(asked), float(domain.values[-1] - domain.values[0])
                rounding = 0.5 * 10.0**-decimals if decimals < self._decimals[j] else 0.0
                within = np.minimum(
                    np.maximum(rounding * (1 + 1e-9), np.abs(asked) * _SINGLE), _CAP * width
                )
            first = np.searchsorted(domain.values, asked - within, side="left")
            last = np.searchsorted(domain.values, asked + within, side="right") - 1
            low[known, j] = np.where(exact >= 0, np.minimum(first, exact), first)
            high[known, j] = np.where(exact >= 0, np.maximum(last, exact), last)
        at, everywhere = schema.quasi_positions, np.zeros(len(codes), dtype=bool)
        quasi, whole = self._lookups
        on_quasi = quasi.has(low[:, at], high[:, at])
        everywhere[on_quasi] = whole.has(low[on_quasi], high[on_quasi])
        return everywhere, on_quasi

    @cached_property
    def _lookups(self) -> tuple[_Lookup, _Lookup]:
        """Look-ups of quasi-identifiers and of whole rows."""
        population, at = self._population, self._population.schema.quasi_positions
        domains = [population.domains[name] for name in self._features]
        is_vague = np.array([*map(_may_be_vague, domains, self._decimals)])
        sizes = np.array([domain.size for domain in domains])
        return _Lookup(population.cells, is_vague[at], sizes[at]), _Lookup(
            population.codes, is_vague, sizes
        )

    @cached_property
    def tolerance(self) -> Tolerance:
        """The tolerance in use; calibrated at the first use."""
        if self._near_native != "auto":
            return Tolerance(float(self._near_native), 0.0, "given")
        if self._holdout is None:
            return self._leave_one_out()
        outside = self._holdout.take(self._draw(np.arange(len(self._holdout))))
        native, _ = self._equal_to(outside)
        return _quantiles(*self._distances(outside.take(np.flatnonzero(~native))), "holdout")

    @property
    def used(self) -> float | None:
        """The HEOM distance in use; None if it was not calibrated yet."""
        known = self._near_native != "auto" or "tolerance" in self.__dict__
        return self.tolerance.distance if known else None

    def _is_near(self, distance: Numbers, ratio: Numbers) -> Mask:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    @cached_property
    def _distinct(self) -> tuple[Neighbors, Rows]:
        return distinct_rows(self._population)

    def _distances(self, encoded: EncodedTable) -> tuple[Numbers, Numbers]:
        rows, _ = self._distinct
        index, distance = rows.nearest(rows.heom.encode(encoded.frame))
        if self._near_native != "auto":
            return distance[:, 0], np.full(len(distance), np.inf)
        matched, at = np.unique(index[:, 0], return_inverse=True)
        isolation = rows.nearest(rows.take(matched), exclude_same=True)[1][:, 0]
        return distance[:, 0], _ratio(distance[:, 0], isolation[at])

    def _leave_one_out(self) -> Tolerance:
        rows, counts = self._distinct
        single = self._draw(np.flatnonzero(counts == 1))
        if len(rows) < 3 or not len(single):
            return Tolerance(0.0, 0.0, "leave-one-out")
        index, distance = rows.nearest(rows.take(single), exclude_same=True)
        others, own = rows.nearest(rows.take(index[:, 0]), k=2, exclude_same=True)
        # without the row that is left out
        isolation = np.where(others[:, 0] == single, own[:, 1], own[:, 0])
        return _quantiles(distance[:, 0], _ratio(distance[:, 0], isolation), "leave-one-out")

    def _draw(self, rows: Rows) -> Rows:
        most = min(_CALIBRATION_ROWS, max(_CALIBRATION_DISTANCES // len(self._distinct[0]), 40))
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(self._seed).choice(rows, most, replace=False))


class _Lookup(HostOnly):
    """Says whether rows of codes are in a table, if some columns are only known as a range of
    codes.
    """

    def __init__(self, codes: Codes, is_vague: Mask, sizes: Rows) -> None:
        self._certain, vague = np.flatnonzero(~is_vague), np.flatnonzero(is_vague)
        self._groups, group = np.unique(mix(codes[:, self._certain]), return_inverse=True)
        self._vague = vague[np.argsort(-sizes[vague], kind="stable")]  # the most selective first
        self._size, self._codes = int(sizes[self._vague[0]]) if len(vague) else 1, codes
        if len(vague):
            keys = group * self._size + codes[:, self._vague[0]]
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]

    def has(self, low: Codes, high: Codes) -> Mask:
        """Look up rows, given the first and the last code of each value; where first > last there
        is none.
        """
        found: Mask = np.logical_and.reduce((low <= high) & (low >= 0), axis=1)
        wanted = mix(low[:, self._certain])
        group = np.searchsorted(self._groups, wanted).clip(max=len(self._groups) - 1)
        found &= self._groups[group] == wanted
        if not len(self._vague):
            return found
        leading, *others = self._vague.tolist()
        start = np.searchsorted(self._keys, group * self._size + low[:, leading], side="left")
        stop = np.searchsorted(self._keys, group * self._size + high[:, leading], side="right")
        found &= start < stop
        for i in np.flatnonzero(found) if others else ():
            rows = self._order[start[i] : stop[i]]
            for j in others:
                codes = self._codes[rows, j]
                rows = rows[(codes >= low[i, j]) & (codes <= high[i, j])]
            found[i] = len(rows) > 0
        return found


def distinct_rows(population: Population) -> tuple[Neighbors, Rows]:
    """Return the distinct training rows, in the order of the first of each, and how often each
    occurs.
    """
    heom, features = Heom.of(population), population.schema.features
    _, first, counts = np.unique(mix(population.codes), return_index=True, return_counts=True)
    order = np.argsort(first)
    columns = np.array([features.index(name) for name in (*heom.numeric, *heom.categorical)])
    numeric = [population.domains[name] for name in heom.numeric]
    tokens = [hashes_of(population.domains[name].values.tolist()) for name in heom.categorical]
    return Neighbors(
        heom, numeric, tokens, population.codes[np.ix_(first[order], columns)]
    ), counts[order]


def _may_be_vague(domain: Domain, decimals: int) -> bool:
    """Say whether a number may stand for several of a column's: a rounded one, or at single
    precision.
    """
    if not domain.is_numeric or domain.is_date or len(domain.values) < 2:
        return False
    within = min(float(np.abs(domain.values).max()) * _SINGLE, _CAP * domain.width)
    return decimals > 0 or bool(np.diff(domain.values).min() <= 4 * within)


def _decimals(numbers: Numbers) -> int:
    slack = 1e-12 * np.maximum(np.abs(numbers), 1.0)
    for decimals in range(_DECIMALS):
        rest = np.abs(numbers - np.round(numbers, decimals))
        if bool((rest <= np.maximum(slack, np.abs(numbers) * _SINGLE / 4)).all()):
            return decimals
    return _DECIMALS


def _ratio(distance: Numbers, isolation: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(isolation > 0, distance / isolation, np.inf)


def _quantiles(
    distance: Numbers, ratio: Numbers, source: Literal["holdout", "leave-one-out"]
) -> Tolerance:
    finite = np.isfinite(distance) & np.isfinite(ratio)
    if not finite.any():
        return Tolerance(0.0, 0.0, source)
    low, low_ratio = np.quantile(distance[finite], QUANTILE), np.quantile(ratio[finite], QUANTILE)
    return Tolerance(float(low), float(low_ratio), source, int(finite.sum()))
