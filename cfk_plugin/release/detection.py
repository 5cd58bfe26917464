"""Detection: finds raw counterfactuals that are training rows, or too close to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import INVALID, UNKNOWN, Codes, Domain, Numbers, Rows, mix
from cfk_plugin.data.encoded_table import EncodedTable, encode
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.metrics.heom import Heom, hashes_of
from cfk_plugin.protection.partition.neighbors import Neighbors

QUANTILE = 0.05  # share of real people outside the training data who are closer than the tolerance
_CALIBRATION_ROWS = 400
# bounds the time of the calibration, whatever the table's length
_CALIBRATION_DISTANCES = 6_000_000
_DECIMALS = 10  # a column with more decimals counts as unrounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range
_KINDS: tuple[NativeStatus, ...] = get_args(NativeStatus)  # worst first


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How close a counterfactual may come to a training row before it is near-native."""

    distance: float  # near-native at or below this HEOM distance to the nearest training row
    # the same divided by that row's own distance to its nearest non-duplicate; 0: unused
    ratio: float
    source: Literal["given", "holdout", "leave-one-out"]
    n: int = 0  # rows that it was calibrated on


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Every test of n counterfactuals, for the data holder. All arrays have the shape (n,).

    `Detector.find` returns the worst finding of each.
    """

    native: Mask  # equal to a training row
    native_qi: Mask  # equal on the quasi-identifiers
    near: Mask  # within the tolerance, as every native row is
    distance: Numbers  # HEOM distance to the nearest training row; 0 where native
    ratio: Numbers  # the same divided by that row's own nearest distance


class DistinctRows(NamedTuple):
    """The distinct training rows, in the order in which each occurs first."""

    rows: Neighbors
    counts: Rows  # shape (n_distinct,); how often each occurs


class Detector(HostOnly):
    """Compares raw counterfactuals with the training rows that they may disclose.

    A finding describes how an explainer behaves, and is never a proof of privacy: a counterfactual
    far from every row still depends on the training data, and one found synthetic may be a record
    changed in several places.

    Native: every feature matches a training row after canonicalisation. Categories are compared as
    text, missing equals missing, numbers to single precision; where all numbers of a column in the
    batch have d decimals and the population's have more, numbers match within half a unit of the
    last decimal (at most 1 % of the range). A small batch can look rounded by chance; then too much
    is found rather than too little.

    Near-native: distance to the nearest row <= tau, or ratio <= tau_rho. Both are the 5 % quantile
    over real people outside the training data: those of a `holdout`, or otherwise training rows
    that have no duplicate, each compared with all others, as a person outside would be. The seed
    decides which rows are drawn. So at least 5 % of honest newcomers would be flagged as well, and
    more where the two tests differ. A `near_native` distance is used as given. For ordinal and
    hierarchical attributes only equality counts.
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
        self._population = population
        self._near_native = near_native
        self._seed = seed
        self._features = population.schema.features
        self._holdout = None if holdout is None else self._encode(holdout)

    # --- findings ---------------------------------------------------------------------------------

    def find(
        self, frame: pd.DataFrame, *, instance_based: bool = False
    ) -> tuple[NativeStatus, ...]:
        """Return the worst finding for every counterfactual: the first of `NativeStatus` that
        holds.

        Parameters
        ----------
        frame : DataFrame, shape (n, n_features or more)
        instance_based : bool
            Whether the explainer returns training rows or changes them. If so, every counterfactual
            is at least near-native.

        Raises
        ------
        InputError
            If a feature is missing.
        """
        return self.find_coded(self._encode(frame), instance_based=instance_based)

    def find_coded(
        self, encoded: EncodedTable, *, instance_based: bool
    ) -> tuple[NativeStatus, ...]:
        """Like `find`, for counterfactuals that are encoded already."""
        is_native, is_native_qi = self._equal_to(encoded)
        is_near = is_native | instance_based
        undecided_rows = np.flatnonzero(~is_near)
        if len(undecided_rows):
            distance, ratio = self._distances(encoded.take(undecided_rows))
            is_near[undecided_rows] = self._is_near(distance, ratio)
        kind = np.select([is_native, is_near, is_native_qi], [0, 1, 2], 3)
        return tuple(_KINDS[number] for number in kind.tolist())

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return every test for every counterfactual, not only the worst finding.

        For the data holder.
        """
        encoded = self._encode(frame)
        is_native, is_native_qi = self._equal_to(encoded)
        distance = np.zeros(len(frame))
        ratio = np.zeros(len(frame))
        non_native_rows = np.flatnonzero(~is_native)
        if len(non_native_rows):
            distance[non_native_rows], ratio[non_native_rows] = self._distances(
                encoded.take(non_native_rows)
            )
        return Detection(
            native=is_native,
            native_qi=is_native_qi,
            near=is_native | self._is_near(distance, ratio),
            distance=distance,
            ratio=ratio,
        )

    def _encode(self, frame: pd.DataFrame) -> EncodedTable:
        missing = [name for name in self._features if name not in frame.columns]
        if missing:
            raise InputError(f"the table of counterfactuals lacks {', '.join(missing)}")
        if not frame.columns.is_unique:
            raise InputError("the table of counterfactuals has two columns of the same name")
        return encode(frame, self._population.encoder)

    # --- native: equal to a training row ----------------------------------------------------------

    def _equal_to(self, encoded: EncodedTable) -> tuple[Mask, Mask]:
        """Like `equal_rows`; a value that could not be read equals none."""
        codes = encoded.codes
        if encoded.odd is not None:
            codes = np.where(encoded.odd, INVALID, codes)
        return self.equal_rows(codes, encoded.numbers)

    def equal_rows(self, codes: Codes, numbers: Numbers) -> tuple[Mask, Mask]:
        """Find the coded rows that equal a training row.

        Parameters
        ----------
        codes : int32 array, shape (n, n_features)
        numbers : float array, shape (n, n_features)
            The numbers that the codes stand for; NaN in columns of categories.

        Returns
        -------
        is_native : bool array, shape (n,)
            Whether a row equals a training row in every feature.
        is_native_qi : bool array, shape (n,)
            Whether it does on the quasi-identifiers.
        """
        low, high = self._code_ranges(codes, numbers)
        quasi = self._population.schema.quasi_positions
        is_native_qi = self._quasi_lookup.has(low[:, quasi], high[:, quasi])
        is_native = np.zeros(len(codes), dtype=bool)
        is_native[is_native_qi] = self._row_lookup.has(low[is_native_qi], high[is_native_qi])
        return is_native, is_native_qi

    def _code_ranges(self, codes: Codes, numbers: Numbers) -> tuple[Codes, Codes]:
        """Return the first and the last code that each value may stand for, if it was rounded.

        Both arrays have the shape (n, n_features). Where there is no such code, first > last.
        """
        low = codes.copy()
        high = np.where(codes < 0, UNKNOWN - 1, codes).astype(np.int32)
        for j, domain in enumerate(self._domains):
            if domain.attribute.kind != "numeric" or not len(domain.values):
                continue
            is_number = np.isfinite(numbers[:, j])
            column_numbers = numbers[is_number, j]
            exact = codes[is_number, j]  # negative where the domain lacks the number
            slack = _rounding_slack(column_numbers, domain, self._decimals[j])
            first = np.searchsorted(domain.values, column_numbers - slack, side="left")
            last = np.searchsorted(domain.values, column_numbers + slack, side="right") - 1
            low[is_number, j] = np.where(exact >= 0, np.minimum(first, exact), first)
            high[is_number, j] = np.where(exact >= 0, np.maximum(last, exact), last)
        return low, high

    @cached_property
    def _domains(self) -> list[Domain]:
        """The domain of each feature."""
        return [self._population.domains[name] for name in self._features]

    @cached_property
    def _decimals(self) -> list[int]:
        """How many decimals the population's numbers have, for each feature; 0 for categories."""
        return [
            _n_decimals(domain.values) if domain.attribute.kind == "numeric" else 0
            for domain in self._domains
        ]

    @cached_property
    def _is_vague(self) -> Mask:
        """Which features are only known as a range of codes; shape (n_features,)."""
        is_vague = [
            _may_be_vague(domain, n_decimals)
            for domain, n_decimals in zip(self._domains, self._decimals, strict=True)
        ]
        return np.array(is_vague)

    @cached_property
    def _n_codes(self) -> Rows:
        """How many codes each feature has; shape (n_features,)."""
        return np.array([domain.size for domain in self._domains])

    @cached_property
    def _row_lookup(self) -> _Lookup:
        return _Lookup(self._population.codes, self._is_vague, self._n_codes)

    @cached_property
    def _quasi_lookup(self) -> _Lookup:
        quasi = self._population.schema.quasi_positions
        return _Lookup(self._population.cells, self._is_vague[quasi], self._n_codes[quasi])

    # --- near-native: within the tolerance --------------------------------------------------------

    @cached_property
    def tolerance(self) -> Tolerance:
        """The tolerance in use; calibrated at the first use."""
        if self._near_native != "auto":
            return Tolerance(float(self._near_native), 0.0, "given")
        if self._holdout is None:
            return self._leave_one_out()
        outside = self._holdout.take(self._draw(np.arange(len(self._holdout))))
        is_native, _ = self._equal_to(outside)
        distance, ratio = self._distances(outside.take(np.flatnonzero(~is_native)))
        return _quantiles(distance, ratio, "holdout")

    @property
    def used(self) -> float | None:
        """The HEOM distance in use; None if it was not calibrated yet."""
        is_calibrated = "tolerance" in self.__dict__
        if self._near_native == "auto" and not is_calibrated:
            return None
        return self.tolerance.distance

    def _is_near(self, distance: Numbers, ratio: Numbers) -> Mask:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    @cached_property
    def _distinct(self) -> DistinctRows:
        return distinct_rows(self._population)

    def _distances(self, encoded: EncodedTable) -> tuple[Numbers, Numbers]:
        """Return the distance of n counterfactuals to the nearest training row, and its ratio.

        The ratio divides a distance by that training row's own distance to its nearest
        non-duplicate. It is infinite where it is not needed. Both arrays have the shape (n,).
        """
        rows = self._distinct.rows
        index, distances = rows.nearest(rows.heom.encode(encoded.frame))
        distance = distances[:, 0]
        if self._near_native != "auto":
            return distance, np.full(len(distance), np.inf)
        matched, place = np.unique(index[:, 0], return_inverse=True)
        _, isolation = rows.nearest(rows.take(matched), exclude_same=True)
        return distance, _ratio(distance, isolation[place, 0])

    def _leave_one_out(self) -> Tolerance:
        """Calibrate on training rows that have no duplicate, each left out of the table in turn."""
        rows, counts = self._distinct
        left_out = self._draw(np.flatnonzero(counts == 1))
        if len(rows) < 3 or not len(left_out):
            return Tolerance(0.0, 0.0, "leave-one-out")
        index, distance = rows.nearest(rows.take(left_out), exclude_same=True)
        # The isolation of the row that is nearest to the one left out, measured without the latter.
        neighbors, isolation = rows.nearest(rows.take(index[:, 0]), k=2, exclude_same=True)
        is_left_out = neighbors[:, 0] == left_out
        isolation_without = np.where(is_left_out, isolation[:, 1], isolation[:, 0])
        ratio = _ratio(distance[:, 0], isolation_without)
        return _quantiles(distance[:, 0], ratio, "leave-one-out")

    def _draw(self, rows: Rows) -> Rows:
        """Draw rows for the calibration, in order: as many as its time allows."""
        n_affordable = _CALIBRATION_DISTANCES // len(self._distinct.rows)
        n_drawn = min(_CALIBRATION_ROWS, max(n_affordable, 40))
        if len(rows) <= n_drawn:
            return rows
        return np.sort(np.random.default_rng(self._seed).choice(rows, n_drawn, replace=False))


class _Lookup(HostOnly):
    """Looks up rows of codes in a table, where some columns are only known as a range of codes.

    The table's rows form groups with equal codes in the certain columns. They are sorted by group,
    and within a group by the vague column that has most codes, as it excludes most rows.

    Parameters
    ----------
    codes : int array, shape (n_rows, n_columns)
        The table.
    is_vague : bool array, shape (n_columns,)
        Columns that are known as a range of codes; in the others, both ends are the same.
    n_codes : int array, shape (n_columns,)
        How many codes a column has.
    """

    def __init__(self, codes: Codes, is_vague: Mask, n_codes: Rows) -> None:
        self._codes = codes
        self._certain = np.flatnonzero(~is_vague)
        vague = np.flatnonzero(is_vague)
        self._vague = vague[np.argsort(-n_codes[vague], kind="stable")]
        self._groups, group_of_row = np.unique(mix(codes[:, self._certain]), return_inverse=True)
        if len(vague):
            leading = self._vague[0]
            self._n_leading = int(n_codes[leading])
            keys = group_of_row * self._n_leading + codes[:, leading]
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]

    def has(self, low: Codes, high: Codes) -> Mask:
        """Return which of n rows are in the table; shape (n,).

        Parameters
        ----------
        low, high : int array, shape (n, n_columns)
            The first and the last code that each value may stand for. Where first > last there is
            none, and the row is not in the table.
        """
        may_be_found = np.logical_and.reduce((low <= high) & (low >= 0), axis=1)
        keys_of_rows = mix(low[:, self._certain])
        group = np.searchsorted(self._groups, keys_of_rows).clip(max=len(self._groups) - 1)
        is_found: Mask = may_be_found & (self._groups[group] == keys_of_rows)
        if not len(self._vague):
            return is_found
        leading, *other_columns = self._vague.tolist()
        first_key = group * self._n_leading
        start = np.searchsorted(self._keys, first_key + low[:, leading], side="left")
        stop = np.searchsorted(self._keys, first_key + high[:, leading], side="right")
        is_found &= start < stop
        if not other_columns:
            return is_found
        for i in np.flatnonzero(is_found):
            rows = self._order[start[i] : stop[i]]
            for j in other_columns:
                codes = self._codes[rows, j]
                rows = rows[(codes >= low[i, j]) & (codes <= high[i, j])]
            is_found[i] = len(rows) > 0
        return is_found


def distinct_rows(population: Population) -> DistinctRows:
    """Return the distinct training rows, and how often each occurs."""
    heom = Heom.of(population)
    features = population.schema.features
    _, first, counts = np.unique(mix(population.codes), return_index=True, return_counts=True)
    order = np.argsort(first)
    columns = np.array([features.index(name) for name in (*heom.numeric, *heom.categorical)])
    numeric = [population.domains[name] for name in heom.numeric]
    tokens = [hashes_of(population.domains[name].values.tolist()) for name in heom.categorical]
    codes = population.codes[np.ix_(first[order], columns)]
    return DistinctRows(rows=Neighbors(heom, numeric, tokens, codes), counts=counts[order])


def _rounding_slack(numbers: Numbers, domain: Domain, n_decimals: int) -> Numbers:
    """Return how far a training row's number may be from each number that is taken for it.

    Parameters
    ----------
    numbers : float array, shape (n,)
        All numbers that a batch of counterfactuals has in a column.
    domain : Domain
        The column's numbers in the population, which have `n_decimals` decimals.

    Returns
    -------
    float array, shape (n,)
        0 for dates. Of other numbers, half a unit of the last decimal if they are rounded, and at
        least single precision; at most 1 % of the range.
    """
    if domain.is_date:
        return np.zeros(len(numbers))
    n_decimals_given = _n_decimals(numbers)
    rounding = 0.0
    if n_decimals_given < n_decimals:
        rounding = 0.5 * 10.0**-n_decimals_given
    slack = np.maximum(rounding * (1 + 1e-9), np.abs(numbers) * _SINGLE)
    width = float(domain.values[-1] - domain.values[0])
    return np.minimum(slack, _CAP * width)


def _may_be_vague(domain: Domain, n_decimals: int) -> bool:
    """Return True if a number may stand for several of a column's numbers.

    It may if it was rounded, or if the column has numbers that single precision cannot distinguish.
    """
    if not domain.is_numeric or domain.is_date or len(domain.values) < 2:
        return False
    slack = min(float(np.abs(domain.values).max()) * _SINGLE, _CAP * domain.width)
    return n_decimals > 0 or bool(np.diff(domain.values).min() <= 4 * slack)


def _n_decimals(numbers: Numbers) -> int:
    """Return how many decimals suffice to write all these numbers; `_DECIMALS` if none do."""
    slack = 1e-12 * np.maximum(np.abs(numbers), 1.0)
    for n_decimals in range(_DECIMALS):
        rest = np.abs(numbers - np.round(numbers, n_decimals))
        if bool((rest <= np.maximum(slack, np.abs(numbers) * _SINGLE / 4)).all()):
            return n_decimals
    return _DECIMALS


def _ratio(distance: Numbers, isolation: Numbers) -> Numbers:
    """Divide distances by isolations, both of shape (n,); infinite where an isolation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(isolation > 0, distance / isolation, np.inf)


def _quantiles(
    distance: Numbers, ratio: Numbers, source: Literal["holdout", "leave-one-out"]
) -> Tolerance:
    """Return the tolerance that a share of `QUANTILE` of these people is below.

    Both arrays have the shape (n_people,).
    """
    is_finite = np.isfinite(distance) & np.isfinite(ratio)
    if not is_finite.any():
        return Tolerance(0.0, 0.0, source)
    return Tolerance(
        distance=float(np.quantile(distance[is_finite], QUANTILE)),
        ratio=float(np.quantile(ratio[is_finite], QUANTILE)),
        source=source,
        n=int(is_finite.sum()),
    )
