"""Tools for authors of adapters: read a call of an explainer, make it, and answer it.

See docs/how-to/write-an-adapter.md. The hooks themselves are in `hookspecs`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.outcome import DesiredRange, DesiredSet, desired_as
from cfk_plugin.data.region import Interval, natural
from cfk_plugin.errors import (
    AdapterError,
    HostOnly,
    InputError,
    listed,
    quiet,
)


class ExplainerError(AdapterError):
    """The explainer raised an exception: it is the cause, and the message names only its class."""


class NoneFoundError(AdapterError):
    """The explainer reports by an exception that it found no counterfactual.

    `native` is an exception of the explainer's own class with a constant text. It is raised to the
    caller instead of the original, whose text may quote rows.
    """

    def __init__(self, native: Exception) -> None:
        super().__init__("the explainer found no counterfactual")
        self.native = native


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CounterfactualBatch(HostOnly):
    """Raw counterfactuals of one call.

    Never leaves the host: its `repr` shows counts and it refuses to be pickled. A *slot* is a place
    for one counterfactual of a query; it stays empty if the explainer found none.
    """

    frame: pd.DataFrame  # shape (n_rows, n_features): counterfactuals in original units, any index
    slot: NDArray[np.int64]  # shape (n_rows,): the slot of each row, a position in `query`
    query: NDArray[np.int64]  # shape (n_slots,): the position of each slot's query
    desired: Any = None  # outcome that the call names, which is certified; see `desired_of`
    constraints: Mapping[str, Any] = field(default_factory=dict)  # see `constraints_of`

    def __post_init__(self) -> None:
        slot = np.asarray(self.slot, dtype=np.int64)
        query = np.asarray(self.query, dtype=np.int64)
        if not isinstance(self.frame, pd.DataFrame) or len(slot) != len(self.frame):
            raise AdapterError("a batch needs a DataFrame, and one slot for each of its rows")
        is_distinct = len(np.unique(slot)) == len(slot)
        is_inside = len(slot) == 0 or 0 <= slot.min() <= slot.max() < len(query)
        if not (is_distinct and is_inside):
            raise AdapterError("slots must be distinct positions in `query`")
        object.__setattr__(self, "frame", self.frame.reset_index(drop=True))
        object.__setattr__(self, "slot", slot)
        object.__setattr__(self, "query", query)

    @classmethod
    def one_each(
        cls,
        frame: pd.DataFrame,
        is_found: NDArray[np.bool_],
        desired: Any = None,
        constraints: Mapping[str, Any] = MappingProxyType({}),
    ) -> CounterfactualBatch:
        """Build a batch with one slot per query.

        `is_found`, shape (n_queries,), marks the queries with a counterfactual, and `frame` has
        one row for each of these.
        """
        return cls(frame, np.flatnonzero(is_found), np.arange(len(is_found)), desired, constraints)

    def _counts(self) -> str:
        return f"{len(self.frame)} rows for {len(self.query)} slots"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerRequest(HostOnly):
    """A call of an explainer's own method, read without calling the explainer.

    A catalogue answers the request; the adapter then builds the explainer's result type.
    """

    queries: pd.DataFrame  # shape (n_queries, n_features): in original units, any index
    n_answers: int = 1  # number of answers for each query
    desired: Any = None  # outcome that the call names; see `desired_of`
    constraints: Mapping[str, Any] = field(default_factory=dict)  # see `constraints_of`
    ignored: tuple[str, ...] = ()  # options that only steer the explainer's search
    adapter_data: Any = None  # further data for `build`, which stays on the host

    def _counts(self) -> str:
        return f"{len(self.queries)} queries, {self.n_answers} answers each"


DESIRED = ("desired_range", "desired_class", "desired", "target_class", "target")
"""Names of the arguments by which callers pass explainers the desired outcome."""


def desired_of(options: Mapping[str, Any], classes: Sequence[Any] | None = None) -> Any:
    """Return the desired outcome that a call names in its arguments, or None if it names none.

    Parameters
    ----------
    options : mapping
        Arguments of the call by name. ``desired_range`` is a pair of numbers. ``desired_class``,
        ``desired``, ``target_class`` and ``target`` are one label, or a collection of acceptable
        labels; "opposite", "other" and None mean any outcome other than the query's. A tuple as
        ``desired`` or ``target`` is a range, as in `protect`.
    classes : sequence, optional
        The model's classes, for explainers that name a class by its position: a whole number is
        then a position. A whole number that is not a position is read as a label if that cannot be
        mistaken; with labels such as 1 and 2 it can, and raises an error.

    Returns
    -------
    label, `DesiredRange`, `DesiredSet` or None

    Raises
    ------
    AdapterError
        If the arguments name different outcomes, a whole number is neither a position nor a label,
        or ``desired_range`` is not a pair of numbers.
    """
    outcomes = []
    for name in DESIRED:
        if options.get(name) is None:
            continue
        outcome = _read_desired(name, options[name], classes)
        if outcome is not None:
            outcomes.append(outcome)
    if any(outcome != outcomes[0] for outcome in outcomes[1:]):
        raise AdapterError(f"the call names several outcomes ({', '.join(DESIRED)}); name one")
    return outcomes[0] if outcomes else None


def places_of(desired: Any, classes: Sequence[Any] | None) -> list[int]:
    """Return the positions of the desired classes, for explainers that need the desired class.

    `desired` is `AdaptContext.desired`. The list is empty if the model has at most two classes:
    the explainer's "opposite" is enough then.
    """
    if classes is None or len(classes) <= 2:
        return []
    if callable(desired) and not isinstance(desired, DesiredSet):
        return []
    labels = desired.labels if isinstance(desired, DesiredSet) else [desired]
    return [place for place, label in enumerate(classes) if label in labels]


def places_in_call(desired: Any, classes: Sequence[Any]) -> list[int]:
    """Return the positions of the classes that a call names, for explainers that need positions.

    Parameters
    ----------
    desired : label or `DesiredSet`
        As `desired_of` returns it.
    classes : sequence
        The model's classes, in its order.

    Raises
    ------
    InputError
        If the model has none of these classes.
    """
    labels = desired.labels if isinstance(desired, DesiredSet) else [desired]
    places = [place for place, label in enumerate(classes) if label in labels]
    if not places:
        raise InputError(
            f"the desired outcome is not one of the model's labels ({listed(classes)}); check its"
            " spelling and type"
        )
    return places


def _read_desired(name: str, value: Any, classes: Sequence[Any] | None) -> Any:
    """Return the outcome that one argument names, or None for "opposite"; see `desired_of`."""
    if name == "desired_range":
        with quiet(
            "desired_range must be two numbers, the lowest and the highest outcome", AdapterError
        ):
            low, high = value
            return DesiredRange(low, high)
    if isinstance(value, str) and value in ("opposite", "other"):
        return None
    if callable(value):
        return value
    if isinstance(value, tuple) and name in ("desired", "target") and len(value) != 1:
        return desired_as(value)
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        if not len(value):
            raise AdapterError(f"{name} names no outcome; name one, or leave it out")
        return desired_as({_class_of(name, one, classes) for one in value})
    return _class_of(name, value, classes)


def _class_of(name: str, value: Any, classes: Sequence[Any] | None) -> Any:
    """Return the model's label for a value of a call; see `classes` of `desired_of`."""
    if isinstance(value, np.generic):
        value = value.item()
    if classes is None:
        return value
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and 0 <= value < len(classes):
        return classes[value]
    if is_whole and (value not in classes or _are_mixed_up(classes)):
        places = ", ".join(f"{place} for {label!r}" for place, label in enumerate(classes[:_FEW]))
        ending = " and so on" if len(classes) > _FEW else ""
        raise AdapterError(f"{name} is the position of a class: {places}{ending}")
    if value in classes:
        return classes[classes.index(value)]
    return value


_FEW = 10  # classes that a message lists


def _are_mixed_up(classes: Sequence[Any]) -> bool:
    """Return True if a class's label is the position of another class, as with labels 1 and 2."""
    for place, label in enumerate(classes):
        is_place = isinstance(label, int) and 0 <= label < len(classes)
        if is_place and label != place:
            return True
    return False


CONSTRAINTS = ("features_to_vary", "permitted_range")
"""DiCE's names of the arguments that say which features may change, and how; see `Constraints`."""


def constraints_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the arguments of a call that are named in `CONSTRAINTS` and are not None."""
    constraints = {}
    for name in CONSTRAINTS:
        if options.get(name) is not None:
            constraints[name] = options[name]
    return constraints


def without_constraints(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments without `CONSTRAINTS`, for explainers that do not have these.

    The answers are checked against the constraints anyway.
    """
    return {name: value for name, value in options.items() if name not in CONSTRAINTS}


def _never(error: Exception) -> None:  # noqa: ARG001 - the form of `none_found`
    return None


def ask(call: Callable[[], Any], none_found: Callable[[Exception], bool | None] = _never) -> Any:
    """Call an explainer, and restore the global random state after it.

    Parameters
    ----------
    call : callable
        Calls the explainer; takes no argument.
    none_found : callable, optional
        Takes an exception of the explainer, and returns True if it means that there is no
        counterfactual.

    Returns
    -------
    object
        The result of `call`, or None if there is no counterfactual.

    Raises
    ------
    ExplainerError
        If the explainer raised another exception. That exception is the cause; its text is not
        repeated, because it may quote rows.
    AdapterError
        If `call` raised an `AdapterError`.
    """
    with (
        quiet("the explainer raised {}", ExplainerError, let=AdapterError),
        _restored_random_state(),
    ):
        try:
            return call()
        except Exception as error:
            if none_found(error):
                return None
            raise


@contextmanager
def _restored_random_state() -> Iterator[None]:
    """Restore the global random state of `random` and NumPy, which explainers use and re-seed."""
    state_of_python = random.getstate()
    state_of_numpy = np.random.get_state()  # noqa: NPY002 - saved, not used
    try:
        yield
    finally:
        random.setstate(state_of_python)
        np.random.set_state(state_of_numpy)  # noqa: NPY002 - see above


def released_cells(entries: Iterable[Any]) -> list[dict[str, Any] | None]:
    """Return a dict of table cells, feature to value, for each explanation.

    A withheld explanation gives None. A single value keeps the type of its column; an interval or
    a set of values is text, such as ``"30–39"``.
    """
    return [typed_cells(entry) if entry.status == "released" else None for entry in entries]


def typed_cells(entry: Any) -> dict[str, Any]:
    """Return the table cells of a released explanation; see `released_cells`."""
    cells = dict[str, Any](entry.cells())
    for name, part in entry.parts().items():
        if isinstance(part, Interval):
            is_single = part.is_single
        else:
            is_single = len(part) == 1
        if is_single:
            value = part.low if isinstance(part, Interval) else next(iter(part))
            if value is not None:  # a missing value stays text, because None means "no answer"
                cells[name] = natural(value)
    return cells
