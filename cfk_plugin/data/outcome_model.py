"""A model of encoded rows with one desired outcome.

It remembers labels and probabilities, so that callers need not pass them around to save a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes, Floats, Ints, Mask
from cfk_plugin.data.decision import DecisionRule, Labels
from cfk_plugin.data.model import LabelModel, thresholded
from cfk_plugin.data.outcome import DesiredOutcome, NamedOutcome
from cfk_plugin.errors import HostOnly, ModelError

N_CHECKED = 1000
"""The number of training rows with which `Model.checked` compares labels and probabilities."""

IsDesired = Callable[[Labels], Mask]
"""Takes labels, shape (n,), and returns a mask of the desired ones, shape (n,)."""

MOST_MARGIN = 0.3
"""The largest margin that `largest_margin` returns."""
MARGIN_STEP = 0.05
"""`largest_margin` returns a multiple of this, so that it discloses no person's probability."""
LEAST_SHARE = 0.75
"""The share of the people with the outcome who must also have it with the margin."""
LEAST_GROUPS = 5
"""At least LEAST_GROUPS * k people must have the outcome with the margin.

With few groups, many queries have no answer.
"""

_ROUNDING = 1e-9
_MOST_NUMBERS = 10_000_000  # in a memory; a model with many classes gets room for fewer rows


class ModelMemory(HostOnly):
    """The outputs of a model by row, so that it is asked about each row once.

    Several threads may use it. If two threads need the same row at the same time, both ask.

    Parameters
    ----------
    codes : Codes
    label_model : LabelModel
    has_probabilities : bool
        Whether to ask the model for probabilities, or for labels.
    most_rows : int
        If the memory would contain more rows than this, it is emptied first.
    batch : int
        The largest number of rows in one call of the model.

    Attributes
    ----------
    n_calls, n_rows : int
        The number of calls of the model, and of rows in all calls.
    """

    def __init__(
        self,
        codes: Codes,
        label_model: LabelModel,
        *,
        has_probabilities: bool,
        most_rows: int = 1_000_000,
        batch: int = 100_000,
    ) -> None:
        self.codes = codes
        self.label_model = label_model
        self.has_probabilities = has_probabilities
        self.batch = batch
        self.n_calls = 0
        self.n_rows = 0
        width = len(label_model.decision.classes) if has_probabilities else 1
        self._most_rows = min(most_rows, max(_MOST_NUMBERS // width, 1))
        self._dtype: Any = np.float64 if has_probabilities else object
        self._lock = Lock()
        self._place_of_row: dict[bytes, int] = {}
        self._n_places = 0  # in use; a row has two places if two threads asked about it
        self._outputs = self._empty(0, width)  # indexed by place

    def __len__(self) -> int:
        return len(self._place_of_row)

    def count(self, n_calls: int, n_rows: int) -> None:
        """Add calls of the model to the counts."""
        with self._lock:
            self.n_calls += n_calls
            self.n_rows += n_rows

    def outputs(self, rows: Floats) -> NDArray[Any]:
        """Return probabilities, shape (n_rows, n_classes), or labels, shape (n_rows, 1).

        Raises
        ------
        ModelError
            If the model fails, or returns something else.
        """
        outputs = self._empty(len(rows), self._outputs.shape[1])
        for start in range(0, len(rows), self.batch):
            part = slice(start, start + self.batch)
            outputs[part] = self._outputs_of_batch(rows[part])
        return outputs

    def _outputs_of_batch(self, rows: Floats) -> NDArray[Any]:
        """Return the outputs for rows; ask the model only about rows that are not stored."""
        keys = _keys(rows)
        outputs = self._empty(len(rows), self._outputs.shape[1])
        with self._lock:
            places = np.array([self._place_of_row.get(key, -1) for key in keys], dtype=np.int64)
            is_new = places < 0
            outputs[~is_new] = self._outputs[places[~is_new]]
        if not is_new.any():
            return outputs
        new_rows = np.flatnonzero(is_new)
        new_keys = [keys[row] for row in new_rows.tolist()]
        # The last of equal rows stands for all of them.
        row_of_key = dict(zip(new_keys, new_rows.tolist(), strict=True))
        number_of_key = {key: number for number, key in enumerate(row_of_key)}
        new_outputs = self._ask(rows[list(row_of_key.values())])
        outputs[new_rows] = new_outputs[[number_of_key[key] for key in new_keys]]
        self._remember(list(row_of_key), new_outputs)
        return outputs

    def _ask(self, rows: Floats) -> NDArray[Any]:
        """Ask the model about distinct rows."""
        frame = self.codes.decode(rows)
        self.count(1, len(rows))
        if self.has_probabilities:
            return self.label_model.ask_probabilities(frame)
        return self.label_model(frame).astype(object)[:, None]

    def _remember(self, keys: Sequence[bytes], outputs: NDArray[Any]) -> None:
        """Store the outputs for new rows. If there is no room, forget all others first."""
        keys = keys[: self._most_rows]
        with self._lock:
            if self._n_places + len(keys) > self._most_rows:
                self._place_of_row = {}
                self._n_places = 0
            start = self._n_places
            end = start + len(keys)
            if end > len(self._outputs):
                larger = self._empty(max(end, 2 * len(self._outputs)), self._outputs.shape[1])
                larger[:start] = self._outputs[:start]
                self._outputs = larger
            self._outputs[start:end] = outputs[: len(keys)]
            self._place_of_row.update(zip(keys, range(start, end), strict=True))
            self._n_places = end

    def _empty(self, n_rows: int, width: int) -> NDArray[Any]:
        return np.empty((n_rows, width), dtype=self._dtype)


def _has_probabilities(label_model: LabelModel) -> bool:
    """Return True if a model gives probabilities."""
    try:
        return len(label_model.decision.classes) > 0
    except ModelError:
        return False


def _keys(rows: Floats) -> list[bytes]:
    """Return the bytes of each row, which identify it in a dict."""
    contiguous = np.ascontiguousarray(rows + 0.0)  # without a negative zero
    n_bytes = contiguous.shape[1] * contiguous.itemsize
    keys: list[bytes] = contiguous.view(f"V{n_bytes}").ravel().tolist()
    return keys


class Model(HostOnly):
    """A model with the desired outcome and the margin with which it must give this outcome.

    Parameters
    ----------
    codes : Codes
    label_model : LabelModel
        If it gives probabilities, its labels must follow from them; see `checked`.
    is_desired : callable
        Takes labels, shape (n,), and returns a mask of the desired ones, shape (n,).
    margin : float
        The model is sure of the outcome if its lead is at least this; see `leads`.
    later : sequence of LabelModel
        Retrained models, which must be sure of the outcome too.

    Raises
    ------
    ModelError
        If there is a margin and a model has no probabilities, or if a later model has no desired
        class.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import Schema
    >>> train = pd.DataFrame({"age": [30, 40, 50], "income": [10.0, 20.0, 30.0]})
    >>> codes = Codes.read(train, Schema.from_frame(train, quasi_identifiers=["age"]))
    >>> model = Model.of(codes, lambda rows: rows["income"] / 40, desired=1, threshold=0.5)
    >>> model.leads(codes.encode(train))
    array([-0.5,  0. ,  0.5])
    """

    def __init__(
        self,
        codes: Codes,
        label_model: LabelModel,
        is_desired: IsDesired,
        margin: float = 0.0,
        later: Sequence[LabelModel] = (),
    ) -> None:
        self.codes = codes
        self.label_model = label_model
        self.is_desired = is_desired
        self.margin = margin
        self._memory = ModelMemory(
            codes, label_model, has_probabilities=_has_probabilities(label_model)
        )
        self.later = tuple(Model(codes, later_model, is_desired) for later_model in later)
        self._check_margin()
        self._check_later()

    @classmethod
    def of(
        cls,
        codes: Codes,
        model: Any,
        desired: Any,
        margin: float = 0.0,
        later: Sequence[Any] = (),
        threshold: float | None = None,
    ) -> Model:
        """Return the model for the arguments ``model=``, ``desired=`` and ``threshold=`` of a user.

        ``"opposite"`` is not one outcome: make a model for one label, and call `with_outcome` for
        the other labels.
        """
        outcome = DesiredOutcome.of(desired)
        if not isinstance(outcome, NamedOutcome):
            raise ModelError("the desired outcome depends on the query; name one outcome")
        label_models = [
            LabelModel(thresholded(some_model, threshold), codes.names, outcome)
            for some_model in [model, *later]
        ]
        return cls(codes, label_models[0], outcome.is_met, margin, label_models[1:])

    def _counts(self) -> str:
        return f"{self.n_calls} calls, {self.n_rows} rows"

    @property
    def has_probabilities(self) -> bool:
        """Whether labels follow from probabilities. If not, every lead is 1 or -1."""
        return self._memory.has_probabilities

    @property
    def n_calls(self) -> int:
        """The number of calls of the model, without calls of later models."""
        return self._memory.n_calls

    @property
    def n_rows(self) -> int:
        """The number of rows in all calls of the model, without calls of later models."""
        return self._memory.n_rows

    def labels(self, rows: Floats) -> Labels:
        """Return the model's label of each row, shape (n_rows,)."""
        outputs = self._memory.outputs(rows)
        if not self.has_probabilities:
            return np.asarray(outputs[:, 0])
        return self._decision.outcomes(outputs)

    def has_outcome(self, rows: Floats) -> Mask:
        """Return which rows have a desired label, shape (n_rows,).

        Neither the margin nor later models are considered.
        """
        return self._leads_today(rows) >= 0

    def leads(self, rows: Floats) -> Floats:
        """Return the lead of the desired outcome in each row, shape (n_rows,).

        For two classes, let p be the probability of the desired class, and t the threshold from
        which on the model gives it. The lead is ``(p - t) / (1 - t)``, or ``(p - t) / t`` below the
        threshold. For more classes, it is the probability of the most probable desired class minus
        that of the most probable other class. A lead is below 0 if and only if the label is not
        desired. Without probabilities it is 1 or -1. With later models it is the smallest lead of
        all models; later models are asked only about rows that have the outcome.
        """
        leads = self._leads_today(rows)
        for later_model in self.later:
            candidates = np.flatnonzero(leads >= 0)
            later_leads = later_model.leads(rows[candidates])
            leads[candidates] = np.minimum(leads[candidates], later_leads)
        return leads

    def sure(self, rows: Floats) -> Mask:
        """Return for which rows all models give the outcome with the margin, shape (n_rows,)."""
        return self.leads(rows) >= self.margin - _ROUNDING

    def with_outcome(self, is_desired: IsDesired) -> Model:
        """Return a model for another outcome, with the same memory."""
        return self._variant(is_desired, self.margin, self._memory)

    def with_margin(self, margin: float) -> Model:
        """Return a model with another margin and the same memory."""
        return self._variant(self.is_desired, margin, self._memory)

    def checked(self, rows: Floats) -> Model:
        """Compare labels with probabilities, and return a model that uses the right ones.

        This is the model itself if its labels follow from its probabilities for all `rows`.
        Otherwise it is a model that uses only the labels.

        Raises
        ------
        ModelError
            If the labels do not follow and there is a margin, or if those of a later model do not.
        """
        for later_model in self.later:
            if later_model.checked(rows) is not later_model:
                raise ModelError(_DISAGREEMENT)
        if not self.has_probabilities:
            return self
        memory = ModelMemory(self.codes, self.label_model, has_probabilities=False)
        labels = memory.outputs(rows)[:, 0]
        follows = np.array_equal(labels, self.labels(rows))
        if follows:
            self._memory.count(memory.n_calls, memory.n_rows)
            return self
        if self.margin > 0:
            raise ModelError(_DISAGREEMENT)
        memory.count(self.n_calls, self.n_rows)
        return self._variant(self.is_desired, self.margin, memory)

    def without_probabilities(self) -> Model:
        """Return a model that uses only the labels."""
        memory = ModelMemory(self.codes, self.label_model, has_probabilities=False)
        return self._variant(self.is_desired, self.margin, memory)

    @property
    def _decision(self) -> DecisionRule:
        return self.label_model.decision

    @cached_property
    def _desired_classes(self) -> Mask:
        """Which classes are desired, shape (n_classes,)."""
        return self.is_desired(self._decision.classes)

    def _leads_today(self, rows: Floats) -> Floats:
        """Return the leads without later models, shape (n_rows,)."""
        outputs = self._memory.outputs(rows)
        if not self.has_probabilities:
            return np.where(self.is_desired(outputs[:, 0]), 1.0, -1.0)
        leads = self._decision.leads(outputs, self._desired_classes)
        positions = np.arange(len(self._desired_classes))
        class_of_row = replace(self._decision, classes=positions).outcomes(outputs)
        has_outcome = self._desired_classes[class_of_row]
        # On the border of the decision the lead is 0 for both outcomes, so the label decides.
        return np.where(has_outcome, np.maximum(leads, 0.0), np.minimum(leads, -2 * _ROUNDING))

    def _variant(self, is_desired: IsDesired, margin: float, memory: ModelMemory) -> Model:
        """Return a model with another outcome, margin or memory, and the same later models."""
        model = Model(self.codes, self.label_model, is_desired)
        model.margin = margin
        model._memory = memory
        model.later = tuple(later_model.with_outcome(is_desired) for later_model in self.later)
        model._check_margin()
        model._check_later()
        return model

    def _check_margin(self) -> None:
        """Raise a `ModelError` if there is a margin, and a model has no probabilities."""
        if self.margin == 0:
            return
        for model in [self, *self.later]:
            if not model.has_probabilities:
                raise ModelError(_NO_PROBABILITIES)

    def _check_later(self) -> None:
        """Raise a `ModelError` if a later model never gives a desired label."""
        for model in self.later:
            if model.has_probabilities and not model._desired_classes.any():
                raise ModelError(
                    "a model in later= does not have the desired outcome among its classes; train"
                    " it on rows with every outcome"
                )


_DISAGREEMENT = (
    "predict and predict_proba of a model disagree on some rows. A margin needs outcomes that"
    " follow from the probabilities: the most probable class, or one above threshold=. Give a model"
    " whose predictions follow, or write PrivacyPolicy(margin=0) and leave the model out of later="
)
_NO_PROBABILITIES = (
    "a margin needs probabilities: a classifier with predict_proba, or a function that returns a"
    " probability and threshold=. A model has none; write PrivacyPolicy(margin=0)"
)


def choose_margin(model: Model, rows: Floats, person: Ints, k: int) -> float:
    """Return the margin that ``margin="auto"`` means for the people of the rows.

    It is 0 if there are no probabilities. It is also 0 if there are later models, as these decide
    how sure the model must be.

    Parameters
    ----------
    model : Model
    rows : shape (n_rows, n_features)
    person : shape (n_rows,); the number of each row's person
    k : int
    """
    if not model.has_probabilities or model.later:
        return 0.0
    distinct, number = np.unique(person, return_inverse=True)
    best_leads = np.full(len(distinct), -1.0)
    np.maximum.at(best_leads, number, model.leads(rows))
    return largest_margin(best_leads, k)


def largest_margin(leads: Floats, k: int) -> float:
    """Return the largest margin, at most 0.3, with which enough people have the outcome.

    Enough means three in four of the people who have it without a margin, and at least 5 k people.

    Parameters
    ----------
    leads : shape (n_people,)
        The lead of each person's outcome; see `Model.leads`.
    k : int
    """
    leads = leads[leads >= 0]
    enough = max(LEAST_SHARE * len(leads), LEAST_GROUPS * k)
    n_steps = round(MOST_MARGIN / MARGIN_STEP)
    for step in range(n_steps, 0, -1):
        margin = round(step * MARGIN_STEP, 9)
        if np.count_nonzero(leads >= margin - _ROUNDING) >= enough:
            return margin
    return 0.0
