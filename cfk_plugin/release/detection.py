"""Detection: says whether a raw counterfactual is a training row, or too close to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import mix
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Finding
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.plugins import PluginManager, worst

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population


# Matching: which counterfactuals equal a training row, through dtypes, spelling and rounding.

_DECIMALS = 10  # beyond, a column counts as unrounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range
_REMEMBERED = 8  # sorted keys of column sets that were asked for


class RowMatcher:
    """Finds training rows that equal given rows on all features or on the quasi-identifiers. Host side only."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._names = population.schema.features
        self._sorted: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"RowMatcher({self._population.n_rows} rows, {len(self._names)} features)"

    def native(self, frame: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Say of every row whether it equals a training row, and whether it does on the quasi-identifiers."""
        ranges = [self._range(frame[name], self._population.domains[name], j) for j, name in enumerate(self._names)]
        low = np.column_stack([r[0] for r in ranges])
        high = np.column_stack([r[1] for r in ranges])
        quasi = [j for j, name in enumerate(self._names) if name in self._population.schema.quasi_identifiers]
        on_quasi = self._match(low, high, quasi)
        everywhere = np.zeros(len(frame), dtype=bool)
        some = np.flatnonzero(on_quasi)
        everywhere[some] = self._match(low[some], high[some], list(range(len(self._names))))
        return everywhere, on_quasi

    def _range(self, column: pd.Series, domain: Domain, at: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return first and last code that each value may stand for; first > last when there is none."""
        codes, numbers = domain.encode(column)
        low, high = codes.copy(), np.where(codes < 0, UNKNOWN - 1, codes).astype(np.int32)
        if domain.attribute.kind == "numeric" and len(domain.values):
            known = np.isfinite(numbers)
            within = self._tolerance(numbers[known], domain, at)
            first = np.searchsorted(domain.values, numbers[known] - within, side="left")
            last = np.searchsorted(domain.values, numbers[known] + within, side="right") - 1
            exact = codes[known] >= 0
            low[known] = np.where(exact, np.minimum(first, codes[known]), first)
            high[known] = np.where(exact, np.maximum(last, codes[known]), last)
        return low, high

    def _tolerance(self, numbers: NDArray[np.float64], domain: Domain, at: int) -> NDArray[np.float64]:
        if domain.is_date:
            return np.zeros(len(numbers))
        decimals = _decimals(numbers)
        rounding = 0.5 * 10.0**-decimals if decimals < self._decimals[at] else 0.0
        width = float(domain.values[-1] - domain.values[0])
        within = np.maximum(rounding * (1 + 1e-9), np.abs(numbers) * _SINGLE)
        return np.asarray(np.minimum(within, _CAP * width), dtype=np.float64)

    @cached_property
    def _decimals(self) -> list[int]:
        domains = [self._population.domains[name] for name in self._names]
        return [_decimals(d.values) if d.attribute.kind == "numeric" else 0 for d in domains]

    def _match(self, low: NDArray[np.int32], high: NDArray[np.int32], columns: list[int]) -> NDArray[np.bool_]:
        """Look up the columns whose codes are certain; compare the others among the rows that are left."""
        possible = (low[:, columns] <= high[:, columns]).all(axis=1) & (low[:, columns] >= 0).all(axis=1)
        found = np.zeros(len(low), dtype=bool)
        asked = np.flatnonzero(possible)
        if not len(asked):
            return found
        vague = [j for j in columns if (low[asked, j] < high[asked, j]).any()]
        certain = tuple(j for j in columns if j not in vague)
        keys, order = self._keys(certain)
        wanted = mix(low[asked][:, certain])
        start, stop = np.searchsorted(keys, wanted, side="left"), np.searchsorted(keys, wanted, side="right")
        for i, first, last in zip(asked, start, stop, strict=True):
            rows = order[first:last]
            for j in vague if len(rows) else ():
                codes = self._population.codes[rows, j]
                rows = rows[(codes >= low[i, j]) & (codes <= high[i, j])]
            found[i] = len(rows) > 0
        return found

    def _keys(self, columns: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        if columns not in self._sorted:
            if len(self._sorted) >= _REMEMBERED:
                self._sorted.clear()
            keys = mix(self._population.codes[:, columns])
            order = np.argsort(keys, kind="stable")
            self._sorted[columns] = keys[order], order
        return self._sorted[columns]


def distinct_rows(codes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first position of every distinct row, and how often it occurs."""
    _, first, counts = np.unique(mix(codes), return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


def _decimals(numbers: NDArray[np.float64]) -> int:
    """Return the least number of decimals that all numbers have."""
    slack = 1e-12 * np.maximum(np.abs(numbers), 1.0)
    for decimals in range(_DECIMALS):
        rest = np.abs(numbers - np.round(numbers, decimals))
        if bool((rest <= np.maximum(slack, np.abs(numbers) * _SINGLE / 4)).all()):
            return decimals
    return _DECIMALS


# Detection: says whether a raw counterfactual is a training row, or too close to one.

QUANTILE = 0.05  # share of real people outside the training data who are closer than the tolerance
_CALIBRATION_ROWS = 400
_CALIBRATION_DISTANCES = 6_000_000  # bounds the time of the calibration, whatever the table's length


@dataclass(frozen=True, slots=True)
class Tolerance:
    """When a counterfactual is too close to a training row."""

    distance: float  # HEOM distance to the nearest training row at or below which it is near-native
    # The same for that distance divided by the row's own distance to its nearest non-duplicate; 0 when only the
    # distance counts
    ratio: float
    source: Literal["given", "holdout", "leave-one-out"]  # Where it comes from
    n: int = 0  # Number of rows it was calibrated on


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Every test of every counterfactual, for the data holder; `Detector.find` takes the worst."""

    # Equal to a training row; equal on the quasi-identifiers; within the tolerance (a native row is)
    native: NDArray[np.bool_]
    native_qi: NDArray[np.bool_]
    near: NDArray[np.bool_]
    # HEOM distance to the nearest training row, and divided by that row's own nearest distance; 0 where native
    distance: NDArray[np.float64]
    ratio: NDArray[np.float64]


class Detector:
    """Compares raw counterfactuals with the training rows they may give away.

    A finding triggers protection and is a figure of how an explainer behaves. It is never a proof of privacy:
    a counterfactual far from every row still depends on the training data, and one that is found synthetic
    here may be a record that was changed in several places.

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
        self._population = population
        self._near_native = near_native
        self._holdout = self._checked(holdout) if holdout is not None else None
        self._seed = seed

    def __repr__(self) -> str:
        """Show the setting, never a value."""
        return f"Detector(near_native={self._near_native!r})"

    def find(self, frame: pd.DataFrame, *, instance_based: bool = False) -> tuple[Finding, ...]:
        """Return the worst finding for every counterfactual.

        Parameters
        ----------
        frame : DataFrame
            Raw counterfactuals with every feature of the schema; any dtype, order and further columns.
        instance_based : bool
            Whether the explainer returns training rows or changes them; then every counterfactual is at least
            near-native, whatever its distance.

        Returns
        -------
        tuple of {"native", "near-native", "native-qi", "synthetic"}
            The first that holds, in this order.

        Raises
        ------
        InputError
            If a feature is missing.
        """
        frame = self._checked(frame)
        native, native_qi = self._matcher.native(frame)
        near = np.full(len(frame), instance_based)
        open_ = np.flatnonzero(~native & ~near)
        if len(open_):
            near[open_] = self._near(*self._distances(frame.iloc[open_]))
        tests = zip(native.tolist(), native_qi.tolist(), near.tolist(), strict=True)
        return tuple(_worst(*row) for row in tests)

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return every test for every counterfactual, not only the worst finding. For the data holder."""
        frame = self._checked(frame)
        native, native_qi = self._matcher.native(frame)
        distance, ratio = np.zeros(len(frame)), np.zeros(len(frame))
        open_ = np.flatnonzero(~native)
        if len(open_):
            distance[open_], ratio[open_] = self._distances(frame.iloc[open_])
        return Detection(native, native_qi, native | self._near(distance, ratio), distance, ratio)

    @cached_property
    def tolerance(self) -> Tolerance:
        """The tolerance in use; calibrated at the first use."""
        if self._near_native != "auto":
            return Tolerance(float(self._near_native), 0.0, "given")
        if self._holdout is not None:
            return self._calibrate_on(self._holdout)
        return self._leave_one_out()

    @property
    def used(self) -> float | None:
        """The HEOM distance that was compared with so far, or would be; None where none is calibrated yet."""
        known = self._near_native != "auto" or "tolerance" in self.__dict__
        return self.tolerance.distance if known else None

    def _near(self, distance: NDArray[np.float64], ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    def _checked(self, frame: pd.DataFrame) -> pd.DataFrame:
        features = list(self._population.schema.features)
        if lost := [name for name in features if name not in frame.columns]:
            raise InputError(f"the table of counterfactuals lacks {', '.join(lost)}")
        if not frame.columns.is_unique:
            raise InputError("the table of counterfactuals has two columns of the same name")
        return frame[features].reset_index(drop=True)

    @cached_property
    def _matcher(self) -> RowMatcher:
        return RowMatcher(self._population)

    @cached_property
    def _heom(self) -> Heom:
        return Heom.of(self._population)

    @cached_property
    def _first_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return distinct_rows(self._population.codes)

    @cached_property
    def _records(self) -> HeomCodes:
        """The distinct training rows; distances need each once."""
        rows = self._population.frame[list(self._population.schema.features)]
        return self._heom.encode(rows.take(self._first_rows[0]))

    @cached_property
    def _isolation(self) -> NDArray[np.float64]:
        """Distance of each distinct row to its nearest other one, NaN until needed."""
        return np.full(len(self._records), np.nan)

    def _distances(self, frame: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = self._heom.encode(self._population.conform(frame))
        index, distance = self._heom.nearest(rows, self._records)
        if self._near_native != "auto":
            return distance[:, 0], np.full(len(distance), np.inf)
        matched = np.unique(index[:, 0])
        new = matched[np.isnan(self._isolation[matched])]
        if len(new):
            own = self._heom.nearest(self._records.take(new), self._records, exclude_same=True)[1][:, 0]
            self._isolation[new] = own
        return distance[:, 0], _ratio(distance[:, 0], self._isolation[index[:, 0]])

    def _calibrate_on(self, holdout: pd.DataFrame) -> Tolerance:
        drawn = self._draw(np.arange(len(holdout)))
        outside = holdout.take(drawn)
        distance, ratio = self._distances(outside[~self._matcher.native(outside)[0]])
        return _quantiles(distance, ratio, "holdout")

    def _leave_one_out(self) -> Tolerance:
        single = self._draw(np.flatnonzero(self._first_rows[1] == 1))
        if len(self._records) < 3 or not len(single):
            return Tolerance(0.0, 0.0, "leave-one-out")
        index, distance = self._heom.nearest(self._records.take(single), self._records, exclude_same=True)
        matched = self._records.take(index[:, 0])
        others, own = self._heom.nearest(matched, self._records, k=2, exclude_same=True)
        isolation = np.where(others[:, 0] == single, own[:, 1], own[:, 0])  # without the row that is left out
        return _quantiles(distance[:, 0], _ratio(distance[:, 0], isolation), "leave-one-out")

    def _draw(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        most = min(_CALIBRATION_ROWS, max(_CALIBRATION_DISTANCES // len(self._records), 40))
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(self._seed).choice(rows, most, replace=False))


def _worst(native: bool, native_qi: bool, near: bool) -> Finding:
    if native:
        return "native"
    if near:
        return "near-native"
    return "native-qi" if native_qi else "synthetic"


def _ratio(distance: NDArray[np.float64], isolation: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(isolation > 0, distance / isolation, np.inf)


def _quantiles(
    distance: NDArray[np.float64], ratio: NDArray[np.float64], source: Literal["holdout", "leave-one-out"]
) -> Tolerance:
    finite = np.isfinite(distance) & np.isfinite(ratio)
    if not finite.any():
        return Tolerance(0.0, 0.0, source)
    low, low_ratio = np.quantile(distance[finite], QUANTILE), np.quantile(ratio[finite], QUANTILE)
    return Tolerance(float(low), float(low_ratio), source, int(finite.sum()))


# The stage that says what each raw counterfactual is, for the data holder: the host's detection and the plugins'.

_FINDINGS: dict[str | None, Finding | None] = {None: None, **{name: name for name in get_args(Finding)}}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FindingStage:
    """Detection, bound once. Host side only."""

    population: Population
    detector: Detector
    plugins: PluginManager

    def of(self, frame: pd.DataFrame, *, instance_based: bool) -> tuple[Finding | None, ...]:
        """Return a finding per counterfactual; plugins may find worse, never better, than the host.

        Where there are no rows to compare with, nothing is found and None says so.
        """
        if not self.population.has_rows:
            return (None,) * len(frame)
        own = self.detector.find(frame, instance_based=instance_based)
        others = self.plugins.detect(frame, self.population)
        return tuple(_FINDINGS[worst(a, b)] for a, b in zip(own, others, strict=True))
