"""What the model says of rows, and what answers require of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfk_plugin.data.decision import Floats, Labels, Mask

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.domain import Rows


class AskedModel(Protocol):
    """A model as requirements ask it; see `LabelModel`."""

    def __call__(self, frame: pd.DataFrame) -> Labels:
        """Return the label of each row."""

    def ask_probabilities(self, frame: pd.DataFrame) -> Floats:
        """Return the probability of each class for each row; shape (n, n_classes)."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What the model says of n rows."""

    labels: Labels  # shape (n,)
    is_sure: Mask  # shape (n,); whether an answer may rest on the label

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: slice | Mask | Rows) -> Predictions:
        """Return the predictions for some of the rows."""
        return Predictions(self.labels[rows], self.is_sure[rows])

    @classmethod
    def joined(cls, parts: Iterable[Predictions]) -> Predictions:
        """Return the predictions of several tables, one after the other."""
        labels = [np.empty(0, dtype=object)]
        is_sure = [np.empty(0, dtype=bool)]
        for part in parts:
            labels.append(part.labels)
            is_sure.append(part.is_sure)
        return cls(np.concatenate(labels), np.concatenate(is_sure))

    def divided(self, sizes: Sequence[int]) -> list[Predictions]:
        """Return the predictions in runs of the given sizes."""
        ends = np.cumsum(sizes).tolist()
        return [self.part(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Requirement(ABC):
    """What must be true of a row's outcome before an answer may rest on it.

    Attributes
    ----------
    margin : float, optional
        The margin that certificates state: 0 where one is asked for and none can be had, None where
        none is asked for.
    n_later : int
        Number of models, trained again, that have to agree.
    """

    margin: float | None = None
    n_later: int = 0

    @abstractmethod
    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        """Ask about a table of n rows."""


class AnyOutcome(Requirement):
    """The model's label is enough."""

    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        labels = model(frame).astype(object)
        return Predictions(labels, np.ones(len(labels), dtype=bool))
