"""Detection: says whether a raw counterfactual is a training row, or too close to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import INVALID, UNKNOWN, Codes, Numbers, Rows, mix
from cfk_plugin.data.intake import Intake, take_in
from cfk_plugin.data.model import Mask
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.hookspecs import Finding
from cfk_plugin.metrics.heom import Heom, HeomCodes

QUANTILE = 0.05  # share of real people outside the training data who are closer than the tolerance
_CALIBRATION_ROWS = 400
_CALIBRATION_DISTANCES = 6_000_000  # bounds the time of the calibration, whatever the table's length
_DECIMALS = 10  # beyond, a column counts as unrounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range
_REMEMBERED = 8  # sorted keys of column sets that were asked for
_KINDS: tuple[Finding, ...] = get_args(Finding)  # worst first


@dataclass(frozen=True, slots=True)
class Tolerance:
    distance: float  # near-native at or below this HEOM distance to the nearest training row
    ratio: float  # the same over that row's own distance to its nearest non-duplicate; 0: unused
    source: Literal["given", "holdout", "leave-one-out"]
    n: int = 0  # rows that it was calibrated on


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Every test of every counterfactual, for the data holder; `Detector.find` takes the worst."""

    native: Mask  # equal to a training row
    native_qi: Mask  # equal on the quasi-identifiers
    near: Mask  # within the tolerance; a native row is
    distance: Numbers  # HEOM distance to the nearest training row; 0 where native
    ratio: Numbers  # the same over that row's own nearest distance


class Detector(HostOnly):
    """Compares raw counterfactuals with the training rows they may give away.

    A finding is a figure of how an explainer behaves, and never a proof of privacy: a counterfactual far from every
    row still depends on the training data, and one found synthetic may be a record changed in several places.

    Parameters
    ----------
    population : Population
    near_native : "auto" or float in [0, 1]
        HEOM distance at or below which a counterfactual is near-native; "auto" calibrates it on the data.
    holdout : DataFrame, optional
        Real people who are not in the training data, to calibrate on. Default: training rows that have no
        duplicate, each compared with all others (which is how a person outside would be compared).
    seed : int
        Which rows the calibration draws.

    Notes
    -----
    Native: every feature matches a training row after canonicalisation. Categories are compared as text,
    missing equals missing, numbers to single precision; where all numbers of a column in the batch have d
    decimals and the population's have more, numbers match within half a unit of the last decimal (at most 1 %
    of the range). A small batch can look rounded by chance, which finds too much rather than too little.

    Near-native: distance to the nearest row <= tau, or ratio <= tau_rho, both the 5 % quantile over real rows
    outside. So at least 5 % of honest newcomers would be flagged as well, and more where the two differ.
    Ordinal and hierarchical attributes count as equal or different.
    """

    def __init__(
        self,
        population: Population,
        near_native: Literal["auto"] | float = "auto",
        holdout: pd.DataFrame | None = None,
        seed: int = 0,
    ) -> None:
        if near_native != "auto" and not 0 <= near_native <= 1:
            raise InputError('near_native must be "auto" or a number between 0 and 1')
        self._population, self._near_native, self._seed = population, near_native, seed
        self._features = population.schema.features
        self._holdout = None if holdout is None else self._take_in(holdout)
        self._sorted: dict[tuple[int, ...], tuple[NDArray[np.uint64], Rows]] = {}

    def find(self, frame: pd.DataFrame, *, instance_based: bool = False) -> tuple[Finding, ...]:
        """Return the worst finding for every counterfactual.

        Parameters
        ----------
        frame : DataFrame
            Raw counterfactuals with every feature of the schema; any dtype, order and further columns.
        instance_based : bool
            Whether the explainer returns training rows or changes them; then all are at least near-native.

        Returns
        -------
        tuple of {"native", "near-native", "native-qi", "synthetic"}
            The first that holds, in this order.

        Raises
        ------
        InputError
            If a feature is missing.
        """
        return self.find_coded(self._take_in(frame), instance_based=instance_based)

    def find_coded(self, intake: Intake, *, instance_based: bool) -> tuple[Finding, ...]:
        """Do as `find`, for counterfactuals that were taken in already."""
        native, native_qi = self._equal_to(intake)
        near = native | instance_based
        if len(open_ := np.flatnonzero(~near)):
            near[open_] = self._is_near(*self._distances(intake.take(open_)))
        worst = np.select([native, near, native_qi], [0, 1, 2], 3)
        return tuple(map(_KINDS.__getitem__, worst.tolist()))

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return every test for every counterfactual, not only the worst finding. For the data holder."""
        intake = self._take_in(frame)
        native, native_qi = self._equal_to(intake)
        distance, ratio = np.zeros(len(frame)), np.zeros(len(frame))
        if len(open_ := np.flatnonzero(~native)):
            distance[open_], ratio[open_] = self._distances(intake.take(open_))
        return Detection(native, native_qi, native | self._is_near(distance, ratio), distance, ratio)

    def _take_in(self, frame: pd.DataFrame) -> Intake:
        if lost := [name for name in self._features if name not in frame.columns]:
            raise InputError(f"the table of counterfactuals lacks {', '.join(lost)}")
        if not frame.columns.is_unique:
            raise InputError("the table of counterfactuals has two columns of the same name")
        return take_in(frame, self._population.encoder)

    def _equal_to(self, intake: Intake) -> tuple[Mask, Mask]:
        codes = intake.codes if intake.odd is None else np.where(intake.odd, INVALID, intake.codes)
        return self.equal_rows(codes, intake.numbers)

    @cached_property
    def _decimals(self) -> list[int]:
        domains = [self._population.domains[name] for name in self._features]
        return [_decimals(d.values) if d.attribute.kind == "numeric" else 0 for d in domains]

    def equal_rows(self, codes: Codes, numbers: Numbers) -> tuple[Mask, Mask]:
        """Say of coded rows whether each equals a training row, and whether it does on the quasi-identifiers."""
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
                within = np.minimum(np.maximum(rounding * (1 + 1e-9), np.abs(asked) * _SINGLE), _CAP * width)
            first = np.searchsorted(domain.values, asked - within, side="left")
            last = np.searchsorted(domain.values, asked + within, side="right") - 1
            low[known, j] = np.where(exact >= 0, np.minimum(first, exact), first)
            high[known, j] = np.where(exact >= 0, np.maximum(last, exact), last)
        on_quasi = self._match(low, high, sorted(schema.quasi_positions))
        everywhere = np.zeros(len(codes), dtype=bool)
        everywhere[on_quasi] = self._match(low[on_quasi], high[on_quasi], list(range(len(self._features))))
        return everywhere, on_quasi

    def _match(self, low: Codes, high: Codes, columns: list[int]) -> Mask:
        """Look up the columns whose codes are certain; compare the others among the rows that are left."""
        found = np.zeros(len(low), dtype=bool)
        asked = np.flatnonzero(((low <= high)[:, columns] & (low >= 0)[:, columns]).all(axis=1))
        if not len(asked):
            return found
        is_vague = np.any(low[asked][:, columns] < high[asked][:, columns], axis=0)
        vague = np.array(columns)[is_vague].tolist()
        certain = tuple(np.array(columns)[~is_vague].tolist())
        if certain not in self._sorted:
            if len(self._sorted) >= _REMEMBERED:
                self._sorted.clear()
            hashes = mix(self._population.codes[:, certain])
            order = np.argsort(hashes, kind="stable")
            self._sorted[certain] = hashes[order], order
        keys, order = self._sorted[certain]
        wanted = mix(low[asked][:, certain])
        start, stop = np.searchsorted(keys, wanted, side="left"), np.searchsorted(keys, wanted, side="right")
        found[asked] = start < stop
        for i, first, last in zip(asked, start, stop, strict=True) if vague else ():
            rows = order[first:last]
            for j in vague:
                codes = self._population.codes[rows, j]
                rows = rows[(codes >= low[i, j]) & (codes <= high[i, j])]
            found[i] = len(rows) > 0
        return found

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
        """The HEOM distance that was compared with so far, or would be; None where none is calibrated yet."""
        known = self._near_native != "auto" or "tolerance" in self.__dict__
        return self.tolerance.distance if known else None

    def _is_near(self, distance: Numbers, ratio: Numbers) -> Mask:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    @cached_property
    def _heom(self) -> Heom:
        return Heom.of(self._population)

    @cached_property
    def _distinct(self) -> tuple[Rows, Rows]:
        """The first position of every distinct training row, in order, and how often it occurs."""
        _, first, counts = np.unique(mix(self._population.codes), return_index=True, return_counts=True)
        order = np.argsort(first)
        return first[order], counts[order]

    @cached_property
    def _records(self) -> HeomCodes:
        return self._heom.encode(self._population.rows(self._distinct[0])[list(self._features)])

    @cached_property
    def _isolation(self) -> Numbers:
        """Distance of each distinct row to its nearest other one, NaN until needed."""
        return np.full(len(self._records), np.nan)

    def _distances(self, intake: Intake) -> tuple[Numbers, Numbers]:
        index, distance = self._heom.nearest(self._heom.encode(intake.frame), self._records)
        if self._near_native != "auto":
            return distance[:, 0], np.full(len(distance), np.inf)
        matched = np.unique(index[:, 0])
        new = matched[np.isnan(self._isolation[matched])]
        if len(new):
            own = self._heom.nearest(self._records.take(new), self._records, exclude_same=True)[1][:, 0]
            self._isolation[new] = own
        return distance[:, 0], _ratio(distance[:, 0], self._isolation[index[:, 0]])

    def _leave_one_out(self) -> Tolerance:
        single = self._draw(np.flatnonzero(self._distinct[1] == 1))
        if len(self._records) < 3 or not len(single):
            return Tolerance(0.0, 0.0, "leave-one-out")
        index, distance = self._heom.nearest(self._records.take(single), self._records, exclude_same=True)
        matched = self._records.take(index[:, 0])
        others, own = self._heom.nearest(matched, self._records, k=2, exclude_same=True)
        isolation = np.where(others[:, 0] == single, own[:, 1], own[:, 0])  # without the row that is left out
        return _quantiles(distance[:, 0], _ratio(distance[:, 0], isolation), "leave-one-out")

    def _draw(self, rows: Rows) -> Rows:
        most = min(_CALIBRATION_ROWS, max(_CALIBRATION_DISTANCES // len(self._records), 40))
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(self._seed).choice(rows, most, replace=False))


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


def _quantiles(distance: Numbers, ratio: Numbers, source: Literal["holdout", "leave-one-out"]) -> Tolerance:
    finite = np.isfinite(distance) & np.isfinite(ratio)
    if not finite.any():
        return Tolerance(0.0, 0.0, source)
    low, low_ratio = np.quantile(distance[finite], QUANTILE), np.quantile(ratio[finite], QUANTILE)
    return Tolerance(float(low), float(low_ratio), source, int(finite.sum()))
