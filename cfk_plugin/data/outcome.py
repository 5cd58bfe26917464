"""The outcome that an explanation must reach: a label, a set, range or function of labels, or any
label but the factual's.

`DesiredOutcome.of` chooses the class for the value of ``desired=``. The classes contain all
differences between these kinds, so that no other module asks which kind it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isinf, isnan
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.region import Interval, json_value, natural, sorted_values, to_text
from cfk_plugin.errors import (
    HostOnly,
    InputError,
    ModelError,
    did_you_mean,
    kinds_of,
    listed,
    nameable,
    quiet,
    shown,
)

OPPOSITE = "opposite"
"""The value of ``desired=`` that means any label but the factual's."""
ALREADY_DESIRED = "already_desired"
"""The reason for withholding an answer if the query already has the desired outcome.

Such a person needs no answer, so this is not a failure.
"""


@dataclass(frozen=True, slots=True)
class DesiredRange:
    """A range of a regressor's outcomes, ends included, like ``desired_range`` of DiCE.

    Attributes
    ----------
    low, high : float
        Both ends. None makes an end infinite.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        with quiet(
            "a range of outcomes is (low, high), two numbers or None for no end", ModelError
        ):
            low = _end(self.low, infinite=-inf)
            high = _end(self.high, infinite=inf)
        if isnan(low) or isnan(high) or low > high:
            raise ModelError("a range of outcomes is (low, high), the lower end first")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __str__(self) -> str:
        if isinf(self.low):
            return f"at most {Interval(self.high, self.high)}"
        if isinf(self.high):
            return f"at least {Interval(self.low, self.low)}"
        return str(Interval(self.low, self.high))

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high

    def __call__(self, labels: Labels) -> Mask:
        """Return a mask of the labels in the range, shape (n,)."""
        numbers = np.asarray(labels, dtype=np.float64)
        return (numbers >= self.low) & (numbers <= self.high)


def _end(value: Any, *, infinite: float) -> float:
    """Return an end of a range as a number; None stands for the infinite one."""
    if value is None:
        return infinite
    return float(value)


@dataclass(frozen=True, slots=True)
class DesiredSet:
    """Several labels, each of which is desired."""

    labels: frozenset[Any]

    def __str__(self) -> str:
        return " or ".join(map(to_text, sorted_values(self.labels)))

    def __call__(self, labels: Labels) -> Mask:
        """Return a mask of the labels in the set, shape (n,)."""
        is_desired = (label in self.labels for label in labels.tolist())
        return np.fromiter(is_desired, dtype=bool, count=len(labels))


def desired_as(desired: Any) -> Any:
    """Convert ``(low, high)`` to a `DesiredRange`, and a set of labels to a `DesiredSet`.

    A set of one label becomes the label. Other values of ``desired=`` are returned unchanged.
    """
    if isinstance(desired, tuple):
        if len(desired) != 2:
            raise ModelError(
                "a tuple as `desired` is a range of outcomes, (low, high); give labels as a set"
            )
        return DesiredRange(*desired)
    if isinstance(desired, (set, frozenset)):
        if len(desired) == 1:
            return next(iter(desired))
        return DesiredSet(frozenset(desired))
    return desired


def desired_of_text(text: str, labels: Sequence[Any], other: Callable[[str], Any]) -> Any:
    """Read the desired outcome from text: a label, ``low..high``, ``a,b`` or ``opposite``.

    Parameters
    ----------
    text : str
        If it is the text of a label, it is read as that label.
    labels : sequence
        The known labels of the model.
    other : callable
        Takes the text of any other label, and returns the label.
    """
    is_label = any(str(label) == text for label in labels)
    if not is_label:
        desired_range = _range_of_text(text)
        if desired_range is not None:
            return desired_range
        if "," in text:
            parts = text.split(",")
            return desired_as({_label_of_text(part.strip(), labels, other) for part in parts})
        if text == OPPOSITE:
            return text
    return _label_of_text(text, labels, other)


def _range_of_text(text: str) -> DesiredRange | None:
    """Return the range of a text such as ``1..5``, ``1..`` or ``..5``; None for other texts."""
    low, dots, high = text.partition("..")
    if not dots or text == dots:
        return None
    if not all(end == "" or _is_number(end) for end in (low, high)):
        return None
    return DesiredRange(float(low or -inf), float(high or inf))


def _label_of_text(text: str, labels: Sequence[Any], other: Callable[[str], Any]) -> Any:
    """Return the label with this text or with the same number; see `desired_of_text`."""
    number = float(text) if _is_number(text) else None
    for label in labels:
        if str(label) == text:
            return label
        if number is not None and _is_number(label) and float(label) == number:
            return label
    return other(text)


def _is_number(value: Any) -> bool:
    """Return True for a number, and for the text of one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The desired outcome, as a certificate states it.

    At most one of `label`, `bounds` and `labels` is set. None of them is set if a function decides
    which labels are desired.

    Attributes
    ----------
    label : optional
        The desired label or, if `is_other`, the one label that is not desired.
    is_other : bool
    bounds : tuple of two floats, optional
        The desired range of a regressor's outcomes, ends included.
    labels : tuple
        The labels of a desired set.
    """

    label: Any = None
    is_other: bool = False
    bounds: tuple[float, float] | None = None
    labels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Outcome:
        """Return the outcome that `to_dict` wrote."""
        if values is None:
            return cls()
        bounds = None
        if "low" in values:
            bounds = DesiredRange(values["low"], values["high"]).bounds
        return cls(
            label=values.get("label", values.get("not")),
            is_other="not" in values,
            bounds=bounds,
            labels=tuple(values.get("any", ())),
        )

    @classmethod
    def of_callable(cls, desired: Callable[[Labels], Any]) -> Outcome:
        """Return the outcome for a `DesiredSet`, a `DesiredRange` or a function of labels."""
        if isinstance(desired, DesiredSet):
            return cls(labels=tuple(natural(label) for label in sorted_values(desired.labels)))
        bounds = getattr(desired, "bounds", None)
        if isinstance(bounds, tuple):
            return cls(bounds=bounds)
        return cls()

    @property
    def desired(self) -> Any:
        """The value of ``desired=`` for this outcome; None for a function.

        If `is_other`, it is the label that is not desired.
        """
        if self.bounds is not None:
            return DesiredRange(*self.bounds)
        if self.labels:
            return desired_as({*self.labels})
        return self.label

    def __str__(self) -> str:
        if self.label is not None:
            return f"not {self.label}" if self.is_other else str(self.label)
        if self.desired is not None:
            return str(self.desired)
        return "as desired"

    def to_dict(self) -> dict[str, Any] | None:
        """Return JSON-ready values; None if a function decides which labels are desired.

        An infinite end of a range is None.
        """
        if self.bounds is not None:
            low, high = (None if isinf(end) else json_value(end) for end in self.bounds)
            return {"low": low, "high": high}
        if self.labels:
            return {"any": [json_value(label) for label in self.labels]}
        if self.label is None:
            return None
        return {"not" if self.is_other else "label": json_value(self.label)}


class DesiredOutcome(ABC):
    """The labels of the model that an explanation may reach.

    A `NamedOutcome` is the same for every query. A `RelativeOutcome` depends on the label of the
    factual. Users may pass a subclass of either as ``desired=``.

    Attributes
    ----------
    needs_factual_labels : bool
        Whether a label can be judged only if the factual's label is known.
    may_be_met_already : bool
        Whether a query can have the desired outcome before anything is changed.
    """

    needs_factual_labels: ClassVar[bool]
    may_be_met_already: ClassVar[bool]

    @staticmethod
    def of(desired: Any) -> DesiredOutcome:
        """Return the desired outcome for the value of ``desired=``.

        Parameters
        ----------
        desired : label, set of labels, (low, high), "opposite", callable or DesiredOutcome
            A callable takes an array of labels and returns one boolean for each.
        """
        if isinstance(desired, DesiredOutcome):
            return desired
        value = desired_as(desired)
        if isinstance(value, str) and value == OPPOSITE:
            return OppositeOutcome()
        return NamedOutcome(value)

    @staticmethod
    def of_json(value: Any) -> DesiredOutcome:
        """Return the outcome that `to_json` wrote."""
        if isinstance(value, dict):
            return DesiredOutcome.of(Outcome.of(value).desired)
        return DesiredOutcome.of(value)

    def to_json(self) -> Any:
        """Return the outcome as a JSON-ready value.

        Raises
        ------
        InputError
            If JSON cannot express it, as for a function.
        """
        raise InputError(
            "a function as `desired` cannot be logged; give a label, a set, a range or 'opposite'"
        )

    @property
    def desired(self) -> Any:
        """The value of ``desired=`` for this outcome."""
        return self

    @property
    def takes_fractions(self) -> bool:
        """Whether labels may be numbers other than whole ones."""
        return False

    @property
    def common_desired(self) -> Any:
        """The desired label, set, range or function; None if it depends on the query."""
        return None

    @property
    def common_outcome(self) -> Outcome | None:
        """The outcome that every certificate states; None if it depends on the query."""
        return None

    @abstractmethod
    def check(self, classes: Sequence[Any] | None, labels: Labels | None) -> None:
        """Raise an error if the model cannot give this outcome.

        Parameters
        ----------
        classes : sequence, optional
            The labels that the model can give, if it says so.
        labels : array, shape (n,), optional
            Labels of the model with which to try the outcome.

        Raises
        ------
        ModelError
        """

    def of_call(self, desired: Any, classes: Sequence[Any] | None) -> DesiredOutcome:
        """Return the desired outcome of a call that passes ``desired=``.

        Parameters
        ----------
        desired : as in `of`
        classes : sequence, optional
            The labels that the model can give, if it says so.

        Raises
        ------
        InputError
            If the model cannot give it, or explanations are not protected for it.
        """
        try:
            of_call = DesiredOutcome.of(desired)
            of_call.check(classes, None)
        except ModelError:
            listed_classes = f" ({listed(classes)})" if classes else ""
            raise InputError(
                "the call asks for an outcome that is not one of the model's"
                f" labels{listed_classes}; check its spelling and type"
            ) from None
        if of_call == self:
            return self
        return self._narrowed_to(of_call)

    @abstractmethod
    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:
        """Return the desired outcome of a call for `of_call`, which differs from this outcome.

        Raises
        ------
        InputError
            If explanations are not protected for it.
        """

    @abstractmethod
    def keeps_classes_whole(self, of_call: DesiredOutcome) -> bool:
        """Return True if people who are eligible together remain so for the outcome of a call.

        If the call split them, its answer would disclose which of the people are in one part.
        """

    @abstractmethod
    def is_met(self, labels: Labels, factual_labels: Labels | None = None) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        Parameters
        ----------
        labels : array, shape (n,)
        factual_labels : array, shape (n,), optional
            The label of each label's factual. It is required if `needs_factual_labels`.
        """

    def require_same_for_all(self, error: Exception) -> None:
        """Raise `error` if the outcome depends on the label of the factual."""
        if self.needs_factual_labels:
            raise error

    def labels_if_needed(self, ask: Callable[[], Labels]) -> Labels | None:
        """Return the labels of the factuals if the outcome depends on them, and None otherwise.

        `ask` calls the model for these labels. It is called only if they are needed.
        """
        if self.needs_factual_labels:
            return ask()
        return None

    def is_met_already(self, n_queries: int, ask: Callable[[], Labels]) -> Mask:
        """Return a mask of the queries that already have the desired outcome, shape (n_queries,).

        `ask` calls the model for the labels of the queries, shape (n_queries,). It is called only
        if a query can already have the outcome.
        """
        if not self.may_be_met_already:
            return np.zeros(n_queries, dtype=bool)
        labels = ask()
        return self.is_met(labels, labels)

    def is_met_by_query(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return which labels each query desires.

        Parameters
        ----------
        labels : array, shape (n_labels,)
        factual_labels : array, shape (n_queries,)

        Returns
        -------
        array of bool, shape (n_queries, n_labels)
        """
        n_queries = len(factual_labels)
        label_of_pair = np.tile(labels, n_queries)
        factual_label_of_pair = np.repeat(factual_labels, len(labels))
        is_met_in_pair = self.is_met(label_of_pair, factual_label_of_pair)
        return is_met_in_pair.reshape(n_queries, len(labels))

    def test_for(self, labels: Labels, factual_labels: Labels | None = None) -> OutcomeTest:
        """Return a function that tests whether labels have the outcome desired of counterfactuals.

        Parameters
        ----------
        labels : array, shape (n_counterfactuals,)
            The model's labels of the counterfactuals. If the outcome depends on the factuals and
            their labels are unknown, these are the outcomes to reach.
        factual_labels : array, shape (n_counterfactuals,), optional
            The label of each counterfactual's factual, if known.
        """
        return OutcomeTest(self, factual_labels, labels)

    @abstractmethod
    def is_eligible(self, labels: Labels) -> Mask:
        """Return a mask of the labels that some query may desire, shape (n,)."""

    def is_possible(self, classes: Labels) -> bool:
        """Return True if a model with these classes can give some query its desired outcome."""
        return bool(self.is_met_by_query(classes, classes).any())

    @abstractmethod
    def outcomes(
        self, labels: Labels, factual_labels: Labels | None, classes: Sequence[Any] | None
    ) -> list[Outcome]:
        """Return the outcome that the certificate of each counterfactual states.

        Parameters
        ----------
        labels : array, shape (n,)
            The model's labels of the counterfactuals.
        factual_labels : array, shape (n,), optional
        classes : sequence, optional
            The labels that the model can give, if it says so.
        """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OutcomeTest(HostOnly):
    """Tests labels, each of which belongs to one of several counterfactuals; see `test_for`."""

    desired_outcome: DesiredOutcome
    factual_labels: Labels | None  # shape (n_counterfactuals,)
    own_labels: Labels  # shape (n_counterfactuals,)

    def __call__(self, labels: Labels, counterfactual: NDArray[np.int64]) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        ``labels[i]`` belongs to the counterfactual at position ``counterfactual[i]``.
        """
        if not self.desired_outcome.needs_factual_labels:
            return self.desired_outcome.is_met(labels)
        if self.factual_labels is not None:
            return self.desired_outcome.is_met(labels, self.factual_labels[counterfactual])
        return np.asarray(labels == self.own_labels[counterfactual], dtype=bool)

    def take(self, positions: NDArray[np.int64]) -> OutcomeTest:
        """Return the test for some of the counterfactuals, renumbered from 0."""
        factual_labels = None
        if self.factual_labels is not None:
            factual_labels = self.factual_labels[positions]
        return OutcomeTest(self.desired_outcome, factual_labels, self.own_labels[positions])


@dataclass(frozen=True, slots=True)
class NamedOutcome(DesiredOutcome):
    """An outcome that the user names, the same for every query.

    Attributes
    ----------
    desired : label, DesiredSet, DesiredRange or callable
        A callable takes an array of labels and returns one boolean for each.
    """

    desired: Any = field()

    needs_factual_labels: ClassVar[bool] = False
    may_be_met_already: ClassVar[bool] = True

    @property
    def takes_fractions(self) -> bool:
        """Whether labels may be numbers other than whole ones: for a range or a function."""
        return callable(self.desired) and not isinstance(self.desired, DesiredSet)

    @property
    def common_desired(self) -> Any:
        """The desired label, set, range or function."""
        return self.desired

    @property
    def common_outcome(self) -> Outcome:
        """The outcome that every certificate states."""
        desired = self.desired
        if isinstance(desired, DesiredBoth):
            desired = desired.desired
        if callable(desired):
            return Outcome.of_callable(desired)
        return Outcome(natural(desired))

    def to_json(self) -> Any:
        """Return the outcome as a JSON-ready value; raise an error for a function."""
        if self.takes_fractions and not isinstance(self.desired, DesiredRange):
            return DesiredOutcome.to_json(self)
        if callable(self.desired):
            return Outcome.of_callable(self.desired).to_dict()
        return natural(self.desired)

    def check(self, classes: Sequence[Any] | None, labels: Labels | None) -> None:
        """Raise an error if the model cannot give this outcome; see `DesiredOutcome.check`."""
        if isinstance(self.desired, DesiredRange):
            _check_range(self.desired, classes, labels)
        if self.takes_fractions:
            if labels is not None:
                self.is_met(labels)
            return
        desired_labels = [self.desired]
        if isinstance(self.desired, DesiredSet):
            desired_labels = list(self.desired.labels)
        _check_labels(desired_labels, classes)

    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:
        if callable(of_call.desired):
            return NamedOutcome(DesiredBoth(of_call.desired, self))
        if not self.is_met(np.array([of_call.desired], dtype=object))[0]:
            raise InputError(
                "the call asks for another outcome than explanations are protected for; leave it"
                ' out, or protect the explainer with desired="opposite", where each call may name'
                " its own"
            )
        return of_call if callable(self.desired) else self

    def keeps_classes_whole(self, of_call: DesiredOutcome) -> bool:
        """Return True if the call asks for the same outcome: its people are eligible together."""
        return of_call == self

    def is_met(
        self,
        labels: Labels,
        factual_labels: Labels | None = None,  # noqa: ARG002 - the same for every query
    ) -> Mask:
        """Return a mask of the labels that are desired, shape (n,)."""
        if not callable(self.desired):
            return np.asarray(labels == self.desired, dtype=bool)
        with quiet("the callable `desired` raised {}", ModelError):
            is_met = np.asarray(self.desired(labels.copy()))
        if is_met.shape != labels.shape or is_met.dtype != np.bool_:
            raise ModelError(
                "a callable `desired` must return one boolean per label; it returned an array of"
                f" {is_met.dtype} of shape {is_met.shape} for {len(labels)} labels"
            )
        return is_met

    def is_met_by_query(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return the same mask of the labels for each query, shape (n_queries, n_labels)."""
        return np.tile(self.is_met(labels), (len(factual_labels), 1))

    def is_eligible(self, labels: Labels) -> Mask:
        """Return a mask of the labels that are desired, shape (n,)."""
        return self.is_met(labels)

    def is_possible(self, classes: Labels) -> bool:
        """Return True if a class is desired."""
        return bool(self.is_met(classes).any())

    def outcomes(
        self,
        labels: Labels,
        factual_labels: Labels | None,  # noqa: ARG002 - the same for every query
        classes: Sequence[Any] | None,  # noqa: ARG002 - the same for every query
    ) -> list[Outcome]:
        """Return the same outcome for each counterfactual."""
        return [self.common_outcome] * len(labels)


def _check_range(
    desired: DesiredRange, classes: Sequence[Any] | None, labels: Labels | None
) -> None:
    """Raise an error if the model gives no number in a range; see `DesiredOutcome.check`."""
    known_labels: Sequence[Any] = []
    if classes is not None:
        known_labels = classes
    elif labels is not None:
        known_labels = labels.tolist()
    has_text = any(isinstance(label, str) for label in known_labels)
    has_classes = classes is not None and len(classes) > 0
    if has_text or (has_classes and not desired(np.array(classes)).any()):
        raise ModelError(
            f"`desired` is the range {desired}, and the model gives no number in it; give a range"
            " of its outcomes, or one of its labels"
        )


def _check_labels(desired_labels: Sequence[Any], classes: Sequence[Any] | None) -> None:
    """Raise an error if a value cannot be a label, or is not one of the classes, if known."""
    if not desired_labels or not all(map(_is_label, desired_labels)):
        raise ModelError(
            '`desired` must be a label, a set of labels, (low, high), "opposite" or a function'
        )
    if classes is None:
        return
    unknown = [label for label in desired_labels if label not in classes]
    if unknown:
        raise ModelError(
            f"`desired` is {shown(unknown[0])}, not one of the model's classes: {kinds_of(classes)}"
            f"{did_you_mean(unknown[:1], [*nameable(classes), OPPOSITE])}"
        )
    if len(desired_labels) > 1 and set(classes) <= set(desired_labels):
        raise ModelError("`desired` names every class of the model; leave out at least one class")


def _is_label(value: Any) -> bool:
    """Return True if a model could give this value as a label."""
    return np.ndim(value) == 0 and not pd.isna(value) and isinstance(value, Hashable)


@dataclass(frozen=True, slots=True)
class DesiredBoth:
    """A function that marks the labels desired by both a call and the protected outcome."""

    desired: Callable[[NDArray[Any]], Any]
    protected_outcome: NamedOutcome

    def __call__(self, labels: Labels) -> Mask:
        is_met_by_call = NamedOutcome(self.desired).is_met(labels)
        return is_met_by_call & self.protected_outcome.is_met(labels)


class RelativeOutcome(DesiredOutcome):
    """An outcome that depends on the label of the factual.

    A subclass defines which labels are desired for each label of a factual (`is_desired`). Some
    query may then desire any label, so people are eligible together if they have the same predicted
    label.

    If no label is desired for the label of a query, its answer is withheld as infeasible. If the
    factuals are unknown, the label of a counterfactual is the outcome to reach, even if no query
    desires it.
    """

    needs_factual_labels: ClassVar[bool] = True
    may_be_met_already: ClassVar[bool] = False

    @abstractmethod
    def is_desired(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        Parameters
        ----------
        labels : array, shape (n,)
        factual_labels : array, shape (n,)
            The label of each label's factual.
        """

    def check(self, classes: Sequence[Any] | None, labels: Labels | None) -> None:
        """Accept any model."""

    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:  # noqa: ARG002
        raise InputError(
            "the call asks for another outcome than explanations are protected for; leave it out"
        )

    def keeps_classes_whole(self, of_call: DesiredOutcome) -> bool:
        """Return True unless the call asks for a range, a set or a function of labels."""
        return of_call == self or not callable(of_call.desired)

    def is_met(self, labels: Labels, factual_labels: Labels | None = None) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        Raises
        ------
        InputError
            If `factual_labels` is None.
        """
        if factual_labels is None:
            raise InputError("an outcome that depends on the factuals needs their labels")
        return self.is_desired(labels, factual_labels)

    def is_eligible(self, labels: Labels) -> Mask:
        """Return True for all labels, shape (n,): some query may desire each of them."""
        return np.ones(len(labels), dtype=bool)

    def outcomes(
        self, labels: Labels, factual_labels: Labels | None, classes: Sequence[Any] | None
    ) -> list[Outcome]:
        """Return the outcome of each counterfactual; see `outcome_from`."""
        if factual_labels is None:
            return [Outcome(natural(label)) for label in labels]
        return [
            self.outcome_from(factual_label, label, classes)
            for factual_label, label in zip(factual_labels, labels, strict=True)
        ]

    def outcome_from(
        self, factual_label: Any, label: Any, classes: Sequence[Any] | None
    ) -> Outcome:
        """Return the outcome that the certificate of one counterfactual states.

        It names all desired classes. If the classes of the model are unknown, it names the label of
        the counterfactual.
        """
        if classes is None:
            return Outcome(natural(label))
        candidates = np.empty(len(classes), dtype=object)
        candidates[:] = [*classes]
        factual_labels = np.full(len(candidates), factual_label, dtype=object)
        desired_classes = candidates[self.is_desired(candidates, factual_labels)].tolist()
        if len(desired_classes) == 1:
            return Outcome(natural(desired_classes[0]))
        return Outcome(labels=tuple(natural(desired_class) for desired_class in desired_classes))


@dataclass(frozen=True, slots=True)
class OppositeOutcome(RelativeOutcome):
    """Any label but the factual's, as in ``desired="opposite"``."""

    @property
    def desired(self) -> str:
        """The word that a user passes as ``desired=``."""
        return OPPOSITE

    def to_json(self) -> str:
        """Return the word that a user passes as ``desired=``."""
        return OPPOSITE

    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:
        """Return the outcome of the call: each call may name another one."""
        return of_call

    def is_desired(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return a mask of the labels that differ from the factual's, shape (n,)."""
        return np.asarray(labels != factual_labels, dtype=bool)

    def is_met_by_query(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return which labels differ from each query's, shape (n_queries, n_labels)."""
        return np.asarray(factual_labels[:, None] != labels, dtype=bool)

    def outcome_from(
        self,
        factual_label: Any,
        label: Any,  # noqa: ARG002 - follows from the factual's
        classes: Sequence[Any] | None,
    ) -> Outcome:
        """Return the other of two classes, or "not the factual's label" for more classes."""
        other_classes = [candidate for candidate in classes or () if candidate != factual_label]
        if len(other_classes) == 1:
            return Outcome(natural(other_classes[0]))
        return Outcome(natural(factual_label), is_other=True)
