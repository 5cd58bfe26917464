"""Questions to the model: whether points keep the outcomes that answers must have."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.protection.answers.points import Points, ValueTable
from cfk_plugin.protection.axes import Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue


class Probe:
    """Asks the model whether points keep the outcomes that their entries' groups must keep.

    Every question of one search passes through one probe. The first question takes further points
    along, whose predictions are needed for another purpose: this saves a call of the model.

    Parameters
    ----------
    catalogue : Catalogue
    values : ValueTable
    points_along : Points, optional
        What the model is asked about along with the first question.

    Attributes
    ----------
    predictions_along : Predictions or None
        The predictions for `points_along`; None until the first question, or without such points.
    """

    most_rows: ClassVar[int] = 4096
    """Rows of one call up to which more is asked at once to save calls, with the same result."""

    def __init__(
        self, catalogue: Catalogue, values: ValueTable, points_along: Points | None = None
    ) -> None:
        self.catalogue = catalogue
        self.predictions_along: Predictions | None = None
        self._values = values
        self._points_along = points_along
        self._quasi_columns = np.array(values.schema.quasi_positions, dtype=np.int64)

    def _predict(self, points: Points) -> Predictions:
        """Ask the model about n points, the first time also about the points along."""
        points_along = self._points_along
        if points_along is None:
            return self._predictions_for(points)
        self._points_along = None
        predictions = self._predictions_for(Points.joined([points, points_along]))
        sizes = [len(points), len(points_along)]
        for_points, self.predictions_along = predictions.divided(sizes)
        return for_points

    def _predictions_for(self, points: Points) -> Predictions:
        return self.catalogue.predictions(
            lambda rows: self._values.frame(points.take(rows)), len(points)
        )

    def keeps(self, points: Points, entry: Ints, checks_region: Mask) -> Mask:
        """Return a mask of the points that seem to keep the outcome of their entries.

        A point keeps it if it has the outcome itself and, where `checks_region` is True, also with
        the few combinations of quasi-identifiers at which the entry's group loses it most easily.

        Parameters
        ----------
        points : n points
        entry : shape (n,); the entry whose outcome and region count
        checks_region : bool, shape (n,)

        Returns
        -------
        bool, shape (n,)
        """
        # By group: where its combinations begin among all of them, and how many they are.
        first, count, combinations = self.catalogue.required_combinations.probes
        group = self.catalogue.region_of_entry[entry]
        n_combinations = np.where(checks_region, count[group], 0)
        is_kept = np.ones(len(entry), dtype=bool)
        n_itself = 1  # each point is asked about itself, too
        if n_combinations.sum() + len(entry) > self.most_rows:  # one call more, for fewer rows
            is_kept = self.catalogue.is_outcome(self._predict(points), entry)
            n_combinations = np.where(is_kept, n_combinations, 0)
            n_itself = 0
        n_rows = n_combinations + n_itself
        owner = np.repeat(np.arange(len(entry)), n_rows)  # the point that each row belongs to
        if not len(owner):
            return is_kept
        first_row = np.cumsum(n_rows) - n_rows
        turn = np.arange(len(owner)) - first_row[owner] - n_itself  # -1 is the point itself
        rows = points.take(owner)
        is_combination = turn >= 0
        positions = first[group[owner[is_combination]]] + turn[is_combination]
        rows.places[np.ix_(is_combination, self._quasi_columns)] = combinations[positions]
        is_outcome = self.catalogue.is_outcome(self._predict(rows), entry[owner])
        is_kept[owner[~is_outcome]] = False
        return is_kept

    def lost(self, points: Points, entry: Ints, new_points: Ints) -> tuple[Mask, list[Predictions]]:
        """Return which points lose the outcome, and the predictions in their entries' regions.

        A point loses it if it has another outcome at one of the combinations at which the entry's
        group must keep it. The model is asked about all combinations, because verification needs
        these predictions.

        Parameters
        ----------
        points : n points
        entry : shape (n,); the entry whose outcome and region count
        new_points : positions of the points that must have the outcome themselves, too

        Returns
        -------
        is_lost : bool, shape (n,)
        predictions : n items; for each point, at all combinations of its region
        """
        groups = self.catalogue.region_of_entry[entry].tolist()
        combinations = [self.catalogue.required_combinations.asked(group) for group in groups]
        sizes = np.array([len(of_group) for of_group in combinations], dtype=np.int64)
        owner = np.repeat(np.arange(len(entry)), sizes)
        rows = points.take(owner)
        rows.places[:, self._quasi_columns] = np.concatenate(
            [self.catalogue.required_combinations.no_combinations, *combinations]
        )
        is_required = np.concatenate(
            [
                np.ones(len(new_points), dtype=bool),
                *[self.catalogue.required_combinations.is_required(group) for group in groups],
            ]
        )
        predictions = self._predict(Points.joined([points.take(new_points), rows]))
        owner = np.append(new_points, owner)
        has_failed = is_required & ~self.catalogue.is_outcome(predictions, entry[owner])
        is_lost = np.bincount(owner, has_failed, len(entry)) > 0
        _, *in_regions = predictions.divided([len(new_points), *sizes.tolist()])
        return is_lost, in_regions
