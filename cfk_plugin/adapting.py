"""What authors of adapters build on: how a call of an explainer is read, made and answered.

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
    """The explainer raised; its own exception is the cause, and the text names only its class."""


class NoneFoundError(AdapterError):
    """The explainer found nothing and says so by an exception.

    `native` is one of the explainer's own class, made anew with a constant text; the caller gets
    this one.
    """

    def __init__(self, native: Exception) -> None:
        super().__init__("the explainer found no counterfactual")
        self.native = native


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CounterfactualBatch(HostOnly):
    """Raw counterfactuals of one call.

    Never leaves the host: its `repr` shows counts and it refuses to be pickled.
    """

    frame: pd.DataFrame  # shape (n_found, n_features); raw feature space, any index
    slot: NDArray[np.int64]  # shape (n_found,); position in `query` that each row answers
    # shape (n_asked,); the query of each slot; for slots without a row nothing was found
    query: NDArray[np.int64]
    # outcome that this call asked for, which is then certified; see `desired_of`
    desired: Any = None
    # what this call says may change; `constraints_of`
    constraints: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        slot = np.asarray(self.slot, dtype=np.int64)
        query = np.asarray(self.query, dtype=np.int64)
        if not isinstance(self.frame, pd.DataFrame) or len(slot) != len(self.frame):
            raise AdapterError("a batch needs a DataFrame and one slot per row of it")
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
        found: NDArray[np.bool_],
        desired: Any = None,
        constraints: Mapping[str, Any] = MappingProxyType({}),
    ) -> CounterfactualBatch:
        """Build a batch with one counterfactual asked per query, `frame` holding those that were
        found.
        """
        return cls(frame, np.flatnonzero(found), np.arange(len(found)), desired, constraints)

    def _counts(self) -> str:
        return f"{len(self.frame)} found of {len(self.query)} asked"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerRequest(HostOnly):
    """What a call of an explainer's own method asks for, read without calling the explainer.

    A catalogue answers such a request; the adapter then builds the explainer's result type.
    """

    queries: pd.DataFrame  # shape (n, n_features); raw feature space, any index
    n_answers: int = 1  # for each query
    desired: Any = None  # outcome that the call names; see `desired_of`
    constraints: Mapping[str, Any] = field(default_factory=dict)  # see `constraints_of`
    ignored: tuple[str, ...] = ()  # options that steer only the explainer's search
    adapter_data: Any = None  # what `build` needs beside the explanations; stays on the host

    def _counts(self) -> str:
        return f"{len(self.queries)} queries, {self.n_answers} answers each"


DESIRED = ("desired_range", "desired_class", "desired", "target_class", "target")
"""Arguments by which explainers are told the outcome that is wanted."""


def desired_of(options: Mapping[str, Any], classes: Sequence[Any] | None = None) -> Any:
    """Return the outcome that a call asks an explainer for, from its arguments by name; None where
    it names none.

    Parameters
    ----------
    options : mapping
        ``desired_range`` holds two numbers. ``desired_class``, ``desired``, ``target_class`` and
        ``target`` hold a label or several of which any will do; "opposite", "other" and None leave
        the outcome to the query, as most explainers do. A tuple as ``desired`` or ``target`` is a
        range, as of `protect`.
    classes : sequence, optional
        The model's classes, for explainers that name one by its position. A whole number is then a
        position. One that is no position is a label, unless a label is the position of another
        class, as with the labels 1 and 2: then it is refused.

    Returns
    -------
    label, `DesiredRange`, `DesiredSet` or None

    Raises
    ------
    AdapterError
        If several outcomes are named, a whole number is neither a position nor a label, or
        ``desired_range`` does not hold two numbers.
    """
    read = [
        _read_desired(name, options[name], classes)
        for name in DESIRED
        if options.get(name) is not None
    ]
    named = [desired for desired in read if desired is not None]
    if any(desired != named[0] for desired in named[1:]):
        raise AdapterError(f"the call names several outcomes ({', '.join(DESIRED)}); name one")
    return named[0] if named else None


def places_of(desired: Any, classes: Sequence[Any] | None) -> list[int]:
    """Return the positions of the desired classes if the model has more than two; with two,
    "opposite" will do.

    For explainers that have to be told: `desired` is that of `AdaptContext`.
    """
    if classes is None or len(classes) <= 2:
        return []
    if callable(desired) and not isinstance(desired, DesiredSet):
        return []
    wanted = desired.labels if isinstance(desired, DesiredSet) else [desired]
    return [place for place, label in enumerate(classes) if label in wanted]


def places_in_call(desired: Any, classes: Sequence[Any]) -> list[int]:
    """Return the positions of the classes that a call names, for explainers that take positions.

    Parameters
    ----------
    desired : label or `DesiredSet`
        As `desired_of` returns it.
    classes : sequence
        The model's classes, in its order.

    Raises
    ------
    InputError
        If the model has none of them.
    """
    labels = desired.labels if isinstance(desired, DesiredSet) else [desired]
    places = [place for place, label in enumerate(classes) if label in labels]
    if not places:
        raise InputError(
            "the call asks for an outcome that is none of the model's labels"
            f" ({listed(classes)}); check its spelling and type"
        )
    return places


def _read_desired(name: str, value: Any, classes: Sequence[Any] | None) -> Any:
    if name == "desired_range":
        with quiet(
            "desired_range must hold two numbers, the lowest and the highest outcome", AdapterError
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
    """Return the label that is meant, as the model spells it.

    A whole number is a position, as explainers have it. One that is no position may be a label, if
    no label can be mistaken for the position of another class.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if classes is None:
        return value
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and 0 <= value < len(classes):
        return classes[value]
    if is_whole and (value not in classes or _are_mixed_up(classes)):
        places = ", ".join(f"{place} for {label!r}" for place, label in enumerate(classes[:_FEW]))
        more = " and so on" if len(classes) > _FEW else ""
        raise AdapterError(f"{name} is the position of a class: {places}{more}")
    if value in classes:
        return classes[classes.index(value)]
    return value


_FEW = 10  # classes that a message lists


def _are_mixed_up(classes: Sequence[Any]) -> bool:
    """Return True if the label of a class is the position of another, as with labels 1 and 2."""
    for place, label in enumerate(classes):
        is_place = isinstance(label, int) and 0 <= label < len(classes)
        if is_place and label != place:
            return True
    return False


CONSTRAINTS = ("features_to_vary", "permitted_range")
"""Arguments by which explainers, and DiCE first, are told what may change; see `Constraints`."""


def constraints_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call says may change, from its arguments by name."""
    found = {}
    for name in CONSTRAINTS:
        if options.get(name) is not None:
            found[name] = options[name]
    return found


def without_constraints(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for an explainer that knows no constraints; its answers are checked
    against them anyway.
    """
    return {name: value for name, value in options.items() if name not in CONSTRAINTS}


def _never(error: Exception) -> None:  # noqa: ARG001 - no exception is one that is known
    return None


def ask(call: Callable[[], Any], none_found: Callable[[Exception], bool | None] = _never) -> Any:
    """Call an explainer, and restore the global random state after it.

    Parameters
    ----------
    call : callable
        Calls the explainer; takes nothing.
    none_found : callable, optional
        Returns True for an exception by which the explainer says that there is no counterfactual.

    Returns
    -------
    object
        What `call` returned; None when there is no counterfactual.

    Raises
    ------
    ExplainerError
        If the explainer raised. The explainer's exception is the cause; its text, which may quote
        rows, is not repeated.
    AdapterError
        If `call` raised one itself.
    """
    with (
        quiet("the explainer raised {}", ExplainerError, let=AdapterError),
        _random_state_kept(),
    ):
        try:
            return call()
        except Exception as error:
            if none_found(error):
                return None
            raise


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the global random state of `random` and NumPy, which explainers draw from and
    re-seed.
    """
    state_of_python = random.getstate()
    state_of_numpy = np.random.get_state()  # noqa: NPY002 - saved, not used
    try:
        yield
    finally:
        random.setstate(state_of_python)
        np.random.set_state(state_of_numpy)  # noqa: NPY002 - see above


def released_cells(entries: Iterable[Any]) -> list[dict[str, Any] | None]:
    """Return the table cells of each explanation, feature to value; None for one that is withheld.

    A single value, which was not generalised, keeps the type of its column; all else is text.
    """
    return [typed_cells(entry) if entry.status == "released" else None for entry in entries]


def typed_cells(entry: Any) -> dict[str, Any]:
    """Return the table cells of one released explanation; see `released_cells`."""
    cells = dict[str, Any](entry.cells())
    for name, part in entry.parts().items():
        if isinstance(part, Interval):
            is_single = part.is_single
        else:
            is_single = len(part) == 1
        if is_single:
            value = part.low if isinstance(part, Interval) else next(iter(part))
            if value is not None:  # a missing value is text, as None says that nothing was found
                cells[name] = natural(value)
    return cells
