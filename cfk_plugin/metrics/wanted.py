"""Which outcomes are wanted: at the answers, and among the rows that answers are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.goal import Goal
from cfk_plugin.label_model import LabelModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.metrics.served import Served
    from cfk_plugin.metrics.support import Reference


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wanted:
    """The model's labels, judged. Host side only.

    Attributes
    ----------
    goal : Goal
    model : LabelModel
    served : Served
    own : array
        Label of every training row.
    factual : array
        Label of every query; empty unless the goal depends on it.
    flipped : bool array
        Whether each counterfactual has the desired outcome.
    """

    goal: Goal
    model: LabelModel
    served: Served
    own: NDArray[Any]
    factual: NDArray[Any]
    flipped: NDArray[np.bool_]

    @classmethod
    def ask(cls, goal: Goal, model: LabelModel, served: Served, train: pd.DataFrame) -> Wanted:
        """Ask the model for all labels that are needed.

        Raises
        ------
        ModelError
            If the model fails, or does not know the desired label.
        """
        goal.check(model, None)
        own = model(train)
        factual = model(served.queries) if goal.is_opposite else own[:0]
        flipped = np.zeros(0, dtype=bool)
        if len(served.counterfactuals):
            labels = model(served.counterfactuals)
            flipped = goal.met(labels, factual[served.answered] if goal.is_opposite else None)
        return cls(goal, model, served, own, factual, flipped)

    def references(self) -> Reference:
        """Return, for the answers, the training rows with an outcome that their query is after."""
        at = self.served.answered
        if not self.goal.is_opposite:
            return [(np.ones(len(at), dtype=bool), self.goal.met(self.own))]
        return [(self.factual[at] == label, self.own != label) for label in pd.unique(self.factual)]

    def fresh(self, outside: pd.DataFrame, most: int, random: np.random.Generator) -> tuple[pd.DataFrame, Reference]:
        """Return rows of a holdout with an outcome that some query is after, and what to hold them against.

        That is the training rows with a wanted outcome; where it depends on the query, those of the same outcome.
        """
        labels = self.model(outside)
        if self.goal.is_opposite:
            good = np.any([labels != label for label in pd.unique(self.factual)], axis=0)
        else:
            good = self.goal.met(labels)
        at = np.flatnonzero(good)
        if len(at) > most:
            at = np.sort(random.choice(at, most, replace=False))
        if not self.goal.is_opposite:
            return outside.take(at), [(np.ones(len(at), dtype=bool), self.goal.met(self.own))]
        return outside.take(at), [(labels[at] == label, self.own == label) for label in pd.unique(labels[at])]
