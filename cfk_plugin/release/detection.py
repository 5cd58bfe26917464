"""Detection: finds raw counterfactuals that are training rows, or too close to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.metrics.nearest import NearestRows, heom_parts
from cfk_plugin.release.equal_rows import EqualRows, row_hashes

QUANTILE = 0.05  # share of real people outside the training data who are closer than the tolerance
_CALIBRATION_ROWS = 400
# bounds the time of the calibration, whatever the table's length
_CALIBRATION_DISTANCES = 6_000_000
_KINDS: tuple[NativeStatus, ...] = get_args(NativeStatus)  # worst first


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How close a counterfactual may come to a training row before it is near-native."""

    distance: float  # near-native at or below this HEOM distance to the nearest training row
    # the same divided by that row's own distance to its nearest non-duplicate; 0: unused
    ratio: float
    n: int = 0  # rows that it was calibrated on; 0 if the policy sets it


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Every test of n counterfactuals, for the data holder. All arrays have the shape (n,).

    `Detector.find` returns the worst finding of each.
    """

    native: Mask  # equal to a training row
    native_qi: Mask  # equal on the quasi-identifiers
    near: Mask  # within the tolerance, as every native row is
    distance: Floats  # HEOM distance to the nearest training row; 0 where native
    ratio: Floats  # the same divided by that row's own nearest distance


class Detector(HostOnly):
    """Compares raw counterfactuals with the training rows that they may disclose.

    A finding describes how an explainer behaves, and is never a proof of privacy: a counterfactual
    far from every row still depends on the training data, and one found synthetic may be a record
    changed in several places.

    Native: every feature equals that of a training row; see `EqualRows` for numbers that were
    rounded.

    Near-native: distance to the nearest row <= tau, or ratio <= tau_rho. Both are the 5 % quantile
    over training rows that have no duplicate, each compared with all others, as a person outside
    the training data would be. `random_state` decides which rows are drawn. So at least 5 % of
    honest newcomers would be flagged as well, and more where the two tests differ. A `near_native`
    distance is used as it is. For ordinal and hierarchical attributes only equality counts.
    """

    def __init__(
        self,
        population: Population,
        near_native: Literal["auto"] | float = "auto",
        random_state: int = 0,
    ) -> None:
        check_population(population)
        if near_native != "auto" and not 0 <= near_native <= 1:
            raise InputError('near_native must be "auto" or a number between 0 and 1')
        self._population = population
        self._near_native = near_native
        self._random_state = random_state

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
        return self.find_codes(self._encode(frame), instance_based=instance_based)

    def find_codes(self, rows: Floats, *, instance_based: bool) -> tuple[NativeStatus, ...]:
        """Return the same as `find` for encoded counterfactuals, shape (n, n_features)."""
        is_native, is_native_qi = self._equal_rows.find(rows)
        is_near = is_native | instance_based
        undecided = np.flatnonzero(~is_near)
        if len(undecided):
            is_near[undecided] = self._is_near(*self._distances(rows[undecided]))
        kind = np.select([is_native, is_near, is_native_qi], [0, 1, 2], 3)
        return tuple(_KINDS[number] for number in kind.tolist())

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return every test for every counterfactual, not only the worst finding.

        For the data holder.
        """
        rows = self._encode(frame)
        is_native, is_native_qi = self._equal_rows.find(rows)
        distance = np.zeros(len(rows))
        ratio = np.zeros(len(rows))
        if not is_native.all():
            distance[~is_native], ratio[~is_native] = self._distances(rows[~is_native])
        return Detection(
            native=is_native,
            native_qi=is_native_qi,
            near=is_native | self._is_near(distance, ratio),
            distance=distance,
            ratio=ratio,
        )

    def _encode(self, frame: pd.DataFrame) -> Floats:
        features = self._population.schema.features
        missing = [name for name in features if name not in frame.columns]
        if missing:
            raise InputError(f"the table of counterfactuals lacks {', '.join(missing)}")
        if not frame.columns.is_unique:
            raise InputError("the table of counterfactuals has two columns of the same name")
        return self._population.row_codes.encode(frame)

    # --- near-native: within the tolerance --------------------------------------------------------

    @cached_property
    def tolerance(self) -> Tolerance:
        """The tolerance in use; calibrated at the first use."""
        if self._near_native != "auto":
            return Tolerance(float(self._near_native), 0.0)
        return self._leave_one_out()

    @property
    def used(self) -> float | None:
        """The HEOM distance in use; None if it was not calibrated yet."""
        is_calibrated = "tolerance" in self.__dict__
        if self._near_native == "auto" and not is_calibrated:
            return None
        return self.tolerance.distance

    def _is_near(self, distance: Floats, ratio: Floats) -> Mask:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    @cached_property
    def _distinct(self) -> tuple[Floats, Ints]:
        """The distinct training rows, in the order in which each occurs first, and how often."""
        rows = self._population.coded_rows
        _, first, counts = np.unique(row_hashes(rows), return_index=True, return_counts=True)
        order = np.argsort(first)
        return rows[first[order]], counts[order]

    @property
    def _rows(self) -> Floats:
        return self._distinct[0]

    @cached_property
    def _equal_rows(self) -> EqualRows:
        return EqualRows(self._population.row_codes, self._rows)

    @cached_property
    def _nearest_rows(self) -> NearestRows:
        return NearestRows(*self._parts(self._rows))

    def _parts(self, rows: Floats) -> tuple[Floats, Ints]:
        return heom_parts(self._population.row_codes, rows)

    def _distances(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the distance of n counterfactuals to the nearest training row, and its ratio.

        The ratio divides a distance by that training row's own distance to its nearest
        non-duplicate. It is infinite where it is not needed. Both arrays have the shape (n,).
        """
        nearest, distance = self._nearest_rows.find(*self._parts(rows))
        if self._near_native != "auto":
            return distance, np.full(len(distance), np.inf)
        matched, place = np.unique(nearest, return_inverse=True)
        _, isolation = self._nearest_rows.find(*self._parts(self._rows[matched]), not_same=True)
        return distance, _ratio(distance, isolation[place])

    def _leave_one_out(self) -> Tolerance:
        """Calibrate on training rows that have no duplicate, each left out of the table in turn."""
        rows, counts = self._distinct
        left_out = self._draw(np.flatnonzero(counts == 1))
        if len(rows) < 3 or not len(left_out):
            return Tolerance(0.0, 0.0)
        nearest, distance = self._nearest_rows.find(*self._parts(rows[left_out]), not_same=True)
        # The isolation of the row that is nearest to the one left out, measured without the latter.
        _, isolation = self._nearest_rows.find(
            *self._parts(rows[nearest]), without=left_out, not_same=True
        )
        return _quantiles(distance, _ratio(distance, isolation))

    def _draw(self, rows: Ints) -> Ints:
        """Draw rows for the calibration, in order: as many as its time allows."""
        n_affordable = _CALIBRATION_DISTANCES // len(self._rows)
        n_drawn = min(_CALIBRATION_ROWS, max(n_affordable, 40))
        if len(rows) <= n_drawn:
            return rows
        return np.sort(
            np.random.default_rng(self._random_state).choice(rows, n_drawn, replace=False)
        )


def _ratio(distance: Floats, isolation: Floats) -> Floats:
    """Divide distances by isolations, both of shape (n,); infinite where an isolation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(isolation > 0, distance / isolation, np.inf)


def _quantiles(distance: Floats, ratio: Floats) -> Tolerance:
    """Return the tolerance that a share of `QUANTILE` of these people is below.

    Both arrays have the shape (n_people,).
    """
    is_finite = np.isfinite(distance) & np.isfinite(ratio)
    if not is_finite.any():
        return Tolerance(0.0, 0.0)
    return Tolerance(
        distance=float(np.quantile(distance[is_finite], QUANTILE)),
        ratio=float(np.quantile(ratio[is_finite], QUANTILE)),
        n=int(is_finite.sum()),
    )
