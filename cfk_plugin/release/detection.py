"""Detection of raw counterfactuals that are training rows, or too close to one."""

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

QUANTILE = 0.05  # share of real people outside the training data who are within the tolerance
_CALIBRATION_ROWS = 400
# limits the time of the calibration for a long table
_CALIBRATION_DISTANCES = 6_000_000
_KINDS: tuple[NativeStatus, ...] = get_args(NativeStatus)  # worst first


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The limits up to which a counterfactual is near-native; see `Detector`."""

    distance: float  # HEOM distance to the nearest training row
    # that distance divided by the distance of this training row to its nearest non-duplicate;
    # 0 if the ratio is not used
    ratio: float
    n: int = 0  # number of rows of the calibration; 0 if the policy sets the distance


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """All tests of counterfactuals, for the data holder only. Arrays have shape (n_rows,)."""

    native: Mask  # equal to a training row
    native_qi: Mask  # equal on the quasi-identifiers
    near: Mask  # within the tolerance, as every native row is
    distance: Floats  # HEOM distance to the nearest training row; 0 if native
    ratio: Floats  # that distance divided by this row's distance to its nearest non-duplicate


class Detector(HostOnly):
    """Compares raw counterfactuals with the training rows that they may disclose.

    A finding describes how an explainer behaves. It is not a proof of privacy: a "synthetic"
    counterfactual still depends on the training data, and may be a training row with several
    changes.

    A counterfactual is native if every feature equals that of a training row; see `EqualRows` for
    rounded numbers.

    It is near-native if its distance to the nearest row is at most tau, or its ratio is at most
    tau_rho; see `Tolerance`. Both limits are 5 % quantiles over training rows without a duplicate.
    Each such row is compared with all other rows, like a person outside the training data.
    `random_state` draws these rows. So at least 5 % of honest newcomers are near-native too, and
    more if the two tests differ. If `near_native` is a distance, it is tau, and the ratio is not
    used. Values of ordinal and hierarchical attributes are either equal or different.
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
        """Return the worst finding for each counterfactual, the first that applies.

        Parameters
        ----------
        frame : DataFrame, shape (n_rows, n_features or more)
            The counterfactuals, in original units.
        instance_based : bool
            Whether the explainer returns training rows, or such rows with changes. If so, every
            counterfactual is at least near-native.

        Raises
        ------
        InputError
            If a feature is missing.
        """
        return self.find_codes(self._encode(frame), instance_based=instance_based)

    def find_codes(self, rows: Floats, *, instance_based: bool) -> tuple[NativeStatus, ...]:
        """Return the result of `find` for encoded counterfactuals, shape (n_rows, n_features)."""
        is_native, is_native_qi = self._equal_rows.find(rows)
        is_near = is_native | instance_based
        undecided = np.flatnonzero(~is_near)
        if len(undecided):
            is_near[undecided] = self._is_near(*self._distances(rows[undecided]))
        kind = np.select([is_native, is_near, is_native_qi], [0, 1, 2], 3)
        return tuple(_KINDS[number] for number in kind.tolist())

    def examine(self, frame: pd.DataFrame) -> Detection:
        """Return the results of all tests, for the data holder only."""
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
            raise InputError(
                "the table of counterfactuals has two columns of the same name; rename or drop one"
            )
        return self._population.row_codes.encode(frame)

    # --- near-native: within the tolerance --------------------------------------------------------

    @cached_property
    def tolerance(self) -> Tolerance:
        """The tolerance, which is calibrated when it is first needed."""
        if self._near_native != "auto":
            return Tolerance(float(self._near_native), 0.0)
        return self._leave_one_out()

    @property
    def used(self) -> float | None:
        """The HEOM distance of the tolerance, or None before the calibration."""
        is_calibrated = "tolerance" in self.__dict__
        if self._near_native == "auto" and not is_calibrated:
            return None
        return self.tolerance.distance

    def _is_near(self, distance: Floats, ratio: Floats) -> Mask:
        tolerance = self.tolerance
        return (distance <= tolerance.distance) | (ratio <= tolerance.ratio) & (tolerance.ratio > 0)

    @cached_property
    def _distinct(self) -> tuple[Floats, Ints]:
        """The distinct training rows in the order of their first occurrence, and their counts."""
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
        """Return each counterfactual's distance to the nearest training row, and its ratio.

        See `Tolerance`. The ratio is infinite if it is not used. Both have shape (n_rows,).
        """
        nearest, distance = self._nearest_rows.find(*self._parts(rows))
        if self._near_native != "auto":
            return distance, np.full(len(distance), np.inf)
        matched, place = np.unique(nearest, return_inverse=True)
        _, isolation = self._nearest_rows.find(*self._parts(self._rows[matched]), not_same=True)
        return distance, _ratio(distance, isolation[place])

    def _leave_one_out(self) -> Tolerance:
        """Calibrate on training rows without a duplicate, leaving out one at a time."""
        rows, counts = self._distinct
        left_out = self._draw(np.flatnonzero(counts == 1))
        if len(rows) < 3 or not len(left_out):
            return Tolerance(0.0, 0.0)
        nearest, distance = self._nearest_rows.find(*self._parts(rows[left_out]), not_same=True)
        # How isolated the nearest row is, if the row that is left out does not count.
        _, isolation = self._nearest_rows.find(
            *self._parts(rows[nearest]), without=left_out, not_same=True
        )
        return _quantiles(distance, _ratio(distance, isolation))

    def _draw(self, rows: Ints) -> Ints:
        """Draw rows for the calibration, as many as its time allows, and return them in order."""
        n_affordable = _CALIBRATION_DISTANCES // len(self._rows)
        n_drawn = min(_CALIBRATION_ROWS, max(n_affordable, 40))
        if len(rows) <= n_drawn:
            return rows
        return np.sort(
            np.random.default_rng(self._random_state).choice(rows, n_drawn, replace=False)
        )


def _ratio(distance: Floats, isolation: Floats) -> Floats:
    """Divide distances by isolations, both of shape (n,); infinite if an isolation is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(isolation > 0, distance / isolation, np.inf)


def _quantiles(distance: Floats, ratio: Floats) -> Tolerance:
    """Return the tolerance that a share `QUANTILE` of these people is within.

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
