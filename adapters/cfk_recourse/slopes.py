"""How far a model is from a desired prediction, with its gradient by numbers and one-hot
categories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.errors import AdapterError, ModelError, quiet
from cfk_recourse.encoding import Encoding, Points
from cfk_recourse.gradients import Layer, class_logits, propagate, read_network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_GIVE = (
    "give a fitted LogisticRegression or MLPClassifier, alone or as the last step of a Pipeline"
    " that scales numbers and encodes categories, or a function `gradient` that returns logits of"
    " the desired outcome and their gradient"
)
_SAMPLE = 50  # training rows on which our reading of a preprocessing is checked


class Vectors:
    """The vectors of a table: its numbers in their own units, then 0 or 1 for each category of the
    training rows.

    Attributes
    ----------
    encoding : Encoding
    inputs : list of str
        What each entry of a vector is: ``age``, ``job=0``, ``job=1``, ... by the category's
        position, not its value.
    units : float64 array, shape (n_inputs,)
        The size of a unit move. A category's is 2: one entry falls by 1 and one rises by 1, so that
        another category costs as much as a number's whole range.
    """

    def __init__(self, encoding: Encoding) -> None:
        self.encoding, self._n = encoding, len(encoding.numeric)
        named = zip(encoding.categorical, encoding.sizes, strict=True)
        self.inputs = [
            *map(str, encoding.numeric),
            *(f"{name}={i}" for name, size in named for i in range(size)),
        ]
        self.units = np.concatenate([encoding.scale, np.full(sum(encoding.sizes), 2.0)])
        self._blocks = list(pairwise(accumulate(encoding.sizes, initial=self._n)))
        self._feature = np.repeat(
            np.arange(self._n + len(encoding.sizes)), [*[1] * self._n, *encoding.sizes]
        )

    def of(self, points: Points) -> Matrix:
        """Return vectors, shape (n, n_inputs); a category that no training row has is 0
        everywhere.
        """
        parts = [points.numbers]
        for codes, (start, stop) in zip(points.codes.T, self._blocks, strict=True):
            parts.append((codes[:, None] == np.arange(stop - start)).astype(float))
        return np.hstack(parts)

    def points(self, vectors: Matrix, own: Points) -> Points:
        """Return points whose categories have the largest entries; an unknown one stays below an
        entry of 1/2.
        """
        codes = own.codes.copy()
        for j, (start, stop) in enumerate(self._blocks):
            block = vectors[:, start:stop]
            keeps = (own.codes[:, j] >= stop - start) & (block.max(axis=1) <= 1 / 2)
            codes[:, j] = np.where(keeps, own.codes[:, j], block.argmax(axis=1))
        return Points(vectors[:, : self._n], codes)

    def settled(self, vectors: Matrix, own: Points, *, within_ranges: bool) -> Points:
        """Return the rows that vectors stand for, as possible answers in place of the rows
        `own`.
        """
        points, bounds = (
            self.points(vectors, own),
            self.encoding.bounds(own.numbers, within_ranges=within_ranges),
        )
        return Points(self.encoding.settled(points.numbers, own.numbers, bounds), points.codes)

    def steepest(self, pull: Matrix, own: Points, most: int, *, within_ranges: bool) -> Mask:
        """Say which entries belong to the features that can lower a function most, shape (n,
        n_inputs).

        Parameters
        ----------
        pull : array, shape (n, n_inputs)
            Its gradient by moves in units; a number without room downhill counts 0.
        own : Points
        most : int
            Number of features; a category counts as one.
        """
        start = self.of(own)
        low, high = self.bounds(start, within_ranges=within_ranges)
        room = np.where(pull > 0, start > low, start < high)
        gains = [np.abs(pull[:, : self._n]) * room[:, : self._n]]
        for codes, (begin, end) in zip(own.codes.T, self._blocks, strict=True):
            block = pull[:, begin:end]
            has = np.where(
                codes < end - begin,
                block[np.arange(len(block)), np.minimum(codes, end - begin - 1)],
                0,
            )
            # one entry falls, another rises: half a unit each
            gains.append(((has - block.min(axis=1)) / 2)[:, None])
        gain = np.hstack(gains)
        order = np.argsort(-gain, axis=1, kind="stable")[:, :most]
        chosen = np.zeros(gain.shape, dtype=bool)
        np.put_along_axis(chosen, order, np.take_along_axis(gain, order, axis=1) > 0, axis=1)
        return np.asarray(chosen[:, self._feature])

    def bounds(self, own: Matrix, *, within_ranges: bool) -> tuple[Matrix, Matrix]:
        """Return the least and largest allowed entries in place of each vector's own."""
        low, high = self.encoding.bounds(own[:, : self._n], within_ranges=within_ranges)
        one_hot = np.zeros((len(own), len(self.inputs) - self._n))
        return np.hstack([low, one_hot]), np.hstack([high, one_hot + 1])


class Slope(ABC):
    """From vectors to margins of the desired classes, and their gradient.

        A margin is the largest logit of a desired class minus the largest of the others: above 0 if
        the model's prediction is desired. With two classes it is the logit of the desired one.

    Attributes
    ----------
    linear : bool
        Whether the gradient is the same everywhere, for each choice of desired classes.
    """

    linear: bool

    @abstractmethod
    def __call__(self, vectors: Matrix, desired: Mask) -> tuple[Matrix, Matrix]:
        """Return margins, shape (n,), and gradients, shape (n, n_inputs).

        Parameters
        ----------
        vectors : array, shape (n, n_inputs)
        desired : bool array, shape (n, n_classes)
            Which of the model's classes are desired for each; at least one is, and one is not.
        """


@dataclass(frozen=True, eq=False)
class Affine:
    """A preprocessing that turns vectors x into ``x * matrix + offset``, or ``x @ matrix +
    offset``.
    """

    matrix: Matrix
    offset: Matrix

    def __call__(self, vectors: Matrix) -> Matrix:
        """Return the classifier's inputs."""
        return np.asarray(
            (vectors @ self.matrix if self.matrix.ndim == 2 else vectors * self.matrix)
            + self.offset
        )

    def back(self, slope: Matrix) -> Matrix:
        """Return the gradient by the vectors."""
        return np.asarray(slope @ self.matrix.T if self.matrix.ndim == 2 else slope * self.matrix)


@dataclass(frozen=True, eq=False)
class NetworkSlope(Slope):
    """The slope of a network behind an affine preprocessing."""

    network: Sequence[Layer]
    before: Affine

    @property
    def linear(self) -> bool:  # type: ignore[override]
        """One layer with one output, or two."""
        return len(self.network) == 1 and self.network[0].weights.shape[1] <= 2

    def __call__(self, vectors: Matrix, desired: Mask) -> tuple[Matrix, Matrix]:
        """See `Slope`."""
        outputs, backward = propagate(self.network, self.before(vectors))
        logits = class_logits(outputs)
        at, best = np.arange(len(vectors)), np.where(desired, logits, -np.inf).argmax(axis=1)
        other = np.where(desired, -np.inf, logits).argmax(axis=1)
        slope = np.zeros_like(logits)
        slope[at, best] += 1
        slope[at, other] -= 1
        # a single output is the logit of the second class
        back = backward(slope[:, -outputs.shape[1] :])[0]
        return logits[at, best] - logits[at, other], self.before.back(back)


class GivenSlope(Slope):
    """The slope given by a user's function, for one desired outcome."""

    linear = False

    def __init__(self, gradient: Callable[..., tuple[Matrix, Matrix]]) -> None:
        self._gradient = gradient

    def __call__(self, vectors: Matrix, desired: Mask) -> tuple[Matrix, Matrix]:  # noqa: ARG002 - always the same one
        """See `Slope`."""
        return self._gradient(vectors)


def slope_of(model: Any, encoding: Encoding, rows: Points) -> NetworkSlope:
    """Read the slope of a classifier of scikit-learn, alone or at the end of a pipeline.

    The steps before the classifier are not inspected but asked: about the lowest row of the
    training ranges, and about rows that differ from it in one entry. So anything affine in numbers
    and categories is understood: standardised or scaled numbers, one-hot or ordinal categories,
    dropped columns, components. The reading is checked on some training rows.

    Raises
    ------
    AdapterError
        If the classifier is unknown, or the steps before it fail or are not affine.
    """
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    try:
        network = read_network(steps[-1], _GIVE)
    except ModelError as error:
        raise AdapterError(str(error)) from None
    vectors = Vectors(encoding)
    if len(steps) == 1 and encoding.categorical:
        columns = ", ".join(map(str, encoding.categorical))
        raise AdapterError(
            f"columns {columns} hold categories, and no step of the model encodes them: {_GIVE}"
        )
    before = (
        Affine(np.ones(1), np.zeros(1))
        if len(steps) == 1
        else _asked(model[:-1], encoding, vectors, rows)
    )
    expected = before(vectors.of(rows.take(slice(1)))).shape[1]
    if (takes := len(network[0].weights)) != expected:
        raise AdapterError(f"the classifier takes {takes} inputs and would get {expected}")
    return NetworkSlope(network, before)


def _asked(preprocessing: Any, encoding: Encoding, vectors: Vectors, rows: Points) -> Affine:
    def transformed(points: Points) -> Matrix:
        with quiet(
            "the steps before the classifier raised {} on rows made of the training ranges",
            AdapterError,
        ):
            answer = preprocessing.transform(encoding.decode(points))
            return np.asarray(
                answer.toarray() if hasattr(answer, "toarray") else answer, dtype=float
            )

    sample = rows.take(np.unique(np.linspace(0, len(rows) - 1, _SAMPLE).astype(int)))
    expected, x = transformed(sample), vectors.of(sample)

    def explains(read: Affine) -> bool:
        found = read(x)
        return found.shape == expected.shape and bool(
            np.allclose(found, expected, rtol=1e-6, atol=1e-6)
        )

    lowest = Points(encoding.low[None], np.zeros((1, len(encoding.sizes)), dtype=np.int64))
    at_lowest = transformed(lowest)[0]
    if not encoding.sizes and expected.shape == x.shape:  # one number per input, as scalers do
        raised = transformed(Points((encoding.low + encoding.scale)[None], lowest.codes))[0]
        factor = (raised - at_lowest) / encoding.scale
        scaling = Affine(factor, at_lowest - factor * encoding.low)
        if explains(scaling):
            return scaling
    n = len(encoding.numeric)
    each = np.eye(len(vectors.inputs))
    moved = vectors.points(
        vectors.of(lowest) + each * vectors.units, lowest.take(np.zeros(len(each), dtype=int))
    )
    matrix = (transformed(moved) - at_lowest) / np.append(encoding.scale, np.ones(len(each) - n))[
        :, None
    ]
    read = Affine(matrix, at_lowest - encoding.low @ matrix[:n])
    if not explains(read):
        raise AdapterError(
            f"the steps before the classifier are not affine in the columns' values: {_GIVE}"
        )
    return read
