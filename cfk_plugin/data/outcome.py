"""The outcome that an explanation must reach: a label, several, a range or a function of labels, or
any outcome but the factual's.

`DesiredOutcome.of` chooses the class for what a user passes as ``desired=``. Whatever differs
between the kinds is a method or an attribute here, so that no other module asks which kind it has.
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
"""What a user passes as ``desired=`` for any label but the factual's."""
ALREADY_DESIRED = "already_desired"
"""The reason for withholding an answer if the query has the desired outcome already.

Its person is not left without an answer that they need.
"""


@dataclass(frozen=True, slots=True)
class DesiredRange:
    """A range of a regressor's outcomes, ends included: what DiCE calls ``desired_range``.

    Attributes
    ----------
    low, high : float
        An end may be infinite; None stands for that.
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
    """Return what a user passed as ``desired=``, in one form.

    ``(low, high)`` becomes a `DesiredRange`, a set of labels a `DesiredSet`, and a set of one label
    the label. Everything else stays as it is.
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
    """Read what is desired from text: a label, ``low..high``, ``a,b`` or ``opposite``.

    Parameters
    ----------
    text : str
        If it is the text of a label, it is read as that label.
    labels : sequence
        The labels of the model, as far as they are known.
    other : callable
        Takes the text of a label that is not known, and returns the label.
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
    """Return the range that a text like ``1..5``, ``1..`` or ``..5`` says; None for other texts."""
    low, dots, high = text.partition("..")
    if not dots or text == dots:
        return None
    if not all(end == "" or _is_number(end) for end in (low, high)):
        return None
    return DesiredRange(float(low or -inf), float(high or inf))


def _label_of_text(text: str, labels: Sequence[Any], other: Callable[[str], Any]) -> Any:
    """Return the label with this text, or with the number that it says; see `desired_of_text`."""
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
    """The outcome that was asked of the model, as a certificate states it.

    At most one of `label`, `bounds` and `labels` is given; none where a function says what is
    desired.

    Attributes
    ----------
    label : optional
        The desired label or, if `is_other`, the one label that is not desired.
    is_other : bool
    bounds : tuple of two floats, optional
        The desired range of a regressor's outcomes, ends included.
    labels : tuple
        Labels each of which is desired.
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
    def asked(cls, desired: Callable[[Labels], Any]) -> Outcome:
        """Return the outcome of a function, a range or a set that says what is desired."""
        if isinstance(desired, DesiredSet):
            return cls(labels=tuple(natural(label) for label in sorted_values(desired.labels)))
        bounds = getattr(desired, "bounds", None)
        if isinstance(bounds, tuple):
            return cls(bounds=bounds)
        return cls()

    @property
    def desired(self) -> Any:
        """What can be passed as ``desired=`` for the outcome.

        It is the label itself if any other one is desired, and None for a function.
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
        """Return JSON-ready values; None where a function says what is desired.

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
    """Which labels of the model an explanation may lead to.

    `NamedOutcome` is the same for every query, and `RelativeOutcome` depends on the label of the
    factual. A subclass of either can be passed as ``desired=``.

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
        """Return the desired outcome for what a user passed; a `DesiredOutcome` stays as it is.

        Parameters
        ----------
        desired : label, set of labels, (low, high), "opposite", callable or DesiredOutcome
            A callable takes an array of labels and returns one boolean for each.
        """
        if isinstance(desired, DesiredOutcome):
            return desired
        named = desired_as(desired)
        if isinstance(named, str) and named == OPPOSITE:
            return OppositeOutcome()
        return NamedOutcome(named)

    @staticmethod
    def of_json(value: Any) -> DesiredOutcome:
        """Return the outcome that `to_json` wrote."""
        if isinstance(value, dict):
            return DesiredOutcome.of(Outcome.of(value).desired)
        return DesiredOutcome.of(value)

    def to_json(self) -> Any:
        """Return a value that JSON can hold.

        Raises
        ------
        InputError
            For a function, and for any other outcome that JSON cannot hold.
        """
        raise InputError(
            "a function as `desired` cannot be logged; give a label, a set, a range or 'opposite'"
        )

    @property
    def desired(self) -> Any:
        """What can be passed as ``desired=`` for the same outcome."""
        return self

    @property
    def takes_fractions(self) -> bool:
        """Whether labels may be numbers other than whole ones."""
        return False

    @property
    def common_desired(self) -> Any:
        """What is desired, where it is the same for every query; None where it is not."""
        return None

    @property
    def common_outcome(self) -> Outcome | None:
        """The outcome that every certificate states; None where it depends on the query."""
        return None

    @abstractmethod
    def check(self, classes: Sequence[Any] | None, labels: Labels | None) -> None:
        """Refuse an outcome that the model cannot give.

        Parameters
        ----------
        classes : sequence, optional
            The labels that the model can give, if it says so.
        labels : array, shape (n,), optional
            Some labels of the model on which to try the outcome.

        Raises
        ------
        ModelError
            If it cannot be met.
        """

    def of_call(self, desired: Any, classes: Sequence[Any] | None) -> DesiredOutcome:
        """Return the outcome of a call that names one itself.

        Parameters
        ----------
        desired : as of `of`
        classes : sequence, optional
            The labels that the model can give, if it says so.

        Raises
        ------
        InputError
            If the model does not have it, or explanations are not protected for it.
        """
        try:
            of_call = DesiredOutcome.of(desired)
            of_call.check(classes, None)
        except ModelError:
            listed_classes = f" ({listed(classes)})" if classes else ""
            raise InputError(
                "the call asks for an outcome that is none of the model's"
                f" labels{listed_classes}; check its spelling and type"
            ) from None
        if of_call == self:
            return self
        return self._narrowed_to(of_call)

    @abstractmethod
    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:
        """Return the outcome of a call that names `of_call`, which differs from this outcome.

        Raises
        ------
        InputError
            If explanations are not protected for it.
        """

    @abstractmethod
    def keeps_classes_whole(self, of_call: DesiredOutcome) -> bool:
        """Return True if the outcome of a call splits no eligibility class of this outcome.

        An answer for a part of a class would disclose which of its people are in that part.
        """

    @abstractmethod
    def is_met(self, labels: Labels, factual_labels: Labels | None = None) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        Parameters
        ----------
        labels : array, shape (n,)
        factual_labels : array, shape (n,), optional
            The label of the factual that each belongs to. It is needed if `needs_factual_labels`.
        """

    def require_same_for_all(self, error: Exception) -> None:
        """Raise `error` if what is desired depends on the label of the factual."""
        if self.needs_factual_labels:
            raise error

    def labels_if_needed(self, ask: Callable[[], Labels]) -> Labels | None:
        """Return the labels of the factuals, if the outcome depends on them; None otherwise.

        `ask` returns these labels: those of the queries, whose rows are the factuals. It is called
        only if they are needed, as it asks the model.
        """
        if self.needs_factual_labels:
            return ask()
        return None

    def is_met_already(self, n_queries: int, ask: Callable[[], Labels]) -> Mask:
        """Return a mask of the queries that have the desired outcome already, shape (n_queries,).

        `ask` returns the labels of the queries, shape (n_queries,). It is called only if a query
        can have the outcome already, as it asks the model.
        """
        if not self.may_be_met_already:
            return np.zeros(n_queries, dtype=bool)
        labels = ask()
        return self.is_met(labels, labels)

    def is_met_by_query(self, labels: Labels, factual_labels: Labels) -> Mask:
        """Return which of some labels each query desires.

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
        """Return the test of the outcome for some counterfactuals.

        Parameters
        ----------
        labels : array, shape (n_counterfactuals,)
            The model's labels of the counterfactuals. If the outcome depends on the factuals and
            their labels are not known, these are the outcomes to reach.
        factual_labels : array, shape (n_counterfactuals,), optional
            The label of the factual that each belongs to, where it is known.
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
    """Judges labels, each of which belongs to one of some counterfactuals; see `test_for`."""

    desired_outcome: DesiredOutcome
    factual_labels: Labels | None  # shape (n_counterfactuals,)
    own_labels: Labels  # shape (n_counterfactuals,)

    def __call__(self, labels: Labels, which: NDArray[np.int64]) -> Mask:
        """Return a mask of the labels that are desired, shape (n,).

        ``labels[i]`` belongs to counterfactual ``which[i]``.
        """
        if not self.desired_outcome.needs_factual_labels:
            return self.desired_outcome.is_met(labels)
        if self.factual_labels is not None:
            return self.desired_outcome.is_met(labels, self.factual_labels[which])
        return np.asarray(labels == self.own_labels[which], dtype=bool)

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
        """What is desired, by every query."""
        return self.desired

    @property
    def common_outcome(self) -> Outcome:
        """The outcome that every certificate states."""
        desired = self.desired
        if isinstance(desired, DesiredBoth):
            desired = desired.desired
        if callable(desired):
            return Outcome.asked(desired)
        return Outcome(natural(desired))

    def to_json(self) -> Any:
        """Return a value that JSON can hold; a function is refused."""
        if self.takes_fractions and not isinstance(self.desired, DesiredRange):
            return DesiredOutcome.to_json(self)
        if callable(self.desired):
            return Outcome.asked(self.desired).to_dict()
        return natural(self.desired)

    def check(self, classes: Sequence[Any] | None, labels: Labels | None) -> None:
        """Refuse an outcome that the model cannot give; see `DesiredOutcome.check`."""
        if isinstance(self.desired, DesiredRange):
            _check_range(self.desired, classes, labels)
        if self.takes_fractions:
            if labels is not None:  # there are none where there are no rows
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
        """Return True if the call asks for the whole outcome: its people are one class."""
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
            raise ModelError("a callable `desired` must return one boolean per label")
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
    """Refuse a range in which the model gives no number; see `DesiredOutcome.check`."""
    known_labels: Sequence[Any] = []
    if classes is not None:
        known_labels = classes
    elif labels is not None:
        known_labels = labels.tolist()
    has_text = any(isinstance(label, str) for label in known_labels)
    has_classes = classes is not None and len(classes) > 0
    if has_text or (has_classes and not desired(np.array(classes)).any()):
        raise ModelError(f"`desired` is the range {desired}, and the model gives no number in it")


def _check_labels(desired_labels: Sequence[Any], classes: Sequence[Any] | None) -> None:
    """Refuse what is no label, or none of the classes, if these are known."""
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
        raise ModelError(
            "`desired` names every class of the model, so that there is nothing to explain"
        )


def _is_label(value: Any) -> bool:
    """Return True if a model could give this value as a label."""
    return np.ndim(value) == 0 and not pd.isna(value) and isinstance(value, Hashable)


@dataclass(frozen=True, slots=True)
class DesiredBoth:
    """What a call desires, of what explanations are protected for."""

    desired: Callable[[NDArray[Any]], Any]
    protected_outcome: NamedOutcome

    def __call__(self, labels: Labels) -> Mask:
        is_met_by_call = NamedOutcome(self.desired).is_met(labels)
        return is_met_by_call & self.protected_outcome.is_met(labels)


class RelativeOutcome(DesiredOutcome):
    """An outcome that depends on the label of the factual.

    A subclass says which labels are desired for which factual's label (`is_desired`). Any label may
    then be desired by some query, so the people with each predicted label are a class of their own.

    Two things are not decided here. A query from whose label none is desired is withheld as
    infeasible, not as one that has the outcome already. Where the factuals are not known, a
    counterfactual's own label is the outcome to reach, whether or not anybody desires it.
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
            The label of the factual that each belongs to.
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
            If the labels of the factuals are not given.
        """
        if factual_labels is None:
            raise InputError("an outcome that depends on the factuals needs their labels")
        return self.is_desired(labels, factual_labels)

    def is_eligible(self, labels: Labels) -> Mask:
        """Return a mask of all labels, shape (n,): some query may desire each."""
        return np.ones(len(labels), dtype=bool)

    def outcomes(
        self, labels: Labels, factual_labels: Labels | None, classes: Sequence[Any] | None
    ) -> list[Outcome]:
        """Return the outcome of each counterfactual, from the factual's label if it is known."""
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

        It names all classes that are desired, or, if the model does not say which classes it has,
        the counterfactual's own label.
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
    """Any label but the factual's: what ``desired="opposite"`` means."""

    @property
    def desired(self) -> str:
        """The word that a user passes as ``desired=``."""
        return OPPOSITE

    def to_json(self) -> str:
        """Return the word that a user passes as ``desired=``."""
        return OPPOSITE

    def _narrowed_to(self, of_call: DesiredOutcome) -> DesiredOutcome:
        """Return the outcome of the call: each call may name its own."""
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
        """Return the other class, if there is one, or that the outcome is not the factual's."""
        other_classes = [candidate for candidate in classes or () if candidate != factual_label]
        if len(other_classes) == 1:
            return Outcome(natural(other_classes[0]))
        return Outcome(natural(factual_label), is_other=True)
