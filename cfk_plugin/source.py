"""What an adapter hands over: counterfactuals in one shape, whatever explainer they come from."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.errors import AdapterError, quiet
from cfk_plugin.region import Interval, Part, natural

if TYPE_CHECKING:
    from cfk_plugin.explanations import Explanations


class ExplainerError(AdapterError):
    """The explainer raised; nothing of its own exception is kept but the class."""


class NoneFoundError(AdapterError):
    """The explainer found nothing and says so by an exception.

    Attributes
    ----------
    native : Exception
        An exception of the explainer's own class, made anew with a constant text; the caller gets this one.
    """

    def __init__(self, native: Exception) -> None:
        super().__init__("the explainer found no counterfactual")
        self.native = native


@dataclass(frozen=True, slots=True)
class DesiredRange:
    """A range of a regressor's outcomes, ends included: what DiCE calls ``desired_range``.

    Attributes
    ----------
    low, high : float
    """

    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high

    def __call__(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Say of each outcome whether it is in the range."""
        numbers = np.asarray(labels, dtype=np.float64)
        return (numbers >= self.low) & (numbers <= self.high)


def desired_of(options: Mapping[str, Any], classes: Sequence[Any] | None = None) -> Any:
    """Return the outcome that a call asks an explainer for, from its arguments by name; None where it names none.

    Parameters
    ----------
    options : mapping
        ``desired_range`` holds two numbers. ``desired_class``, ``desired``, ``target_class`` and ``target`` hold a
        label; "opposite", "other" and None leave the outcome to the query, as most explainers do.
    classes : sequence, optional
        The model's classes, for explainers that name one by its position.

    Returns
    -------
    label, `DesiredRange` or None

    Raises
    ------
    AdapterError
        If two of them differ, a position is none of a class, or it is no range.
    """
    found = [_read_desired(name, options[name], classes) for name in DESIRED if options.get(name) is not None]
    named = [desired for desired in found if desired is not None]
    if any(desired != named[0] for desired in named):
        raise AdapterError(f"the call names several outcomes ({', '.join(DESIRED)}); name one")
    return named[0] if named else None


DESIRED = ("desired_range", "desired_class", "desired", "target_class", "target")
"""Arguments by which explainers are told the outcome that is wanted."""


def _read_desired(name: str, value: Any, classes: Sequence[Any] | None) -> Any:
    if name == "desired_range":
        try:
            low, high = (float(end) for end in value)
        except (TypeError, ValueError):
            raise AdapterError("desired_range must hold two numbers, the lowest and the highest outcome") from None
        return DesiredRange(low, high)
    if isinstance(value, str) and value in ("opposite", "other"):
        return None
    if callable(value):
        return value
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) != 1:
            raise AdapterError(f"{name} names {len(value)} outcomes; explanations are certified for one: name one")
        value = value[0]
    if classes is None:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return value
    if not 0 <= value < len(classes):
        raise AdapterError(f"{name} is the position of a class, and the model has {len(classes)}: give 0 or above")
    return classes[int(value)]


@dataclass(frozen=True, slots=True, eq=False)
class CounterfactualBatch:
    """Raw counterfactuals of one call. Never leaves the host: its `repr` shows counts and it refuses to be pickled.

    Attributes
    ----------
    frame : DataFrame, shape (n_found, n_features)
        Counterfactual instances in the raw feature space; the index means nothing.
    slot : int array, shape (n_found,)
        Which of the counterfactuals asked for each row answers.
    query : int array, shape (n_asked,)
        Position of the query that each counterfactual asked for belongs to. Slots without a row were not found.
    desired : label, or callable from labels to booleans, optional
        The outcome that this call asked for, as `desired_of` reads it: what is released is certified for it. None
        where the call named none: then what the explainer was protected for is certified.
    """

    frame: pd.DataFrame
    slot: NDArray[np.int64]
    query: NDArray[np.int64]
    desired: Any = None

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        slot, query = np.asarray(self.slot, dtype=np.int64), np.asarray(self.query, dtype=np.int64)
        if not isinstance(self.frame, pd.DataFrame) or len(slot) != len(self.frame):
            raise AdapterError("a batch needs a DataFrame and one slot per row of it")
        if len(np.unique(slot)) != len(slot) or (len(slot) and not 0 <= slot.min() <= slot.max() < len(query)):
            raise AdapterError("slots must be distinct positions in `query`")
        object.__setattr__(self, "frame", self.frame.reset_index(drop=True))
        object.__setattr__(self, "slot", slot)
        object.__setattr__(self, "query", query)

    @classmethod
    def one_each(cls, frame: pd.DataFrame, found: NDArray[np.bool_], desired: Any = None) -> CounterfactualBatch:
        """Build a batch with one counterfactual asked per query, `frame` holding those that were found."""
        return cls(frame, np.flatnonzero(found), np.arange(len(found)), desired)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"CounterfactualBatch({len(self.frame)} found of {len(self.query)} asked)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: counterfactuals may be training rows."""
        raise AdapterError("a CounterfactualBatch may hold training rows and refuses to be pickled")


@runtime_checkable
class CounterfactualSource(Protocol):
    """An explainer as an adapter presents it. Knows how to call it and how to read it; nothing of privacy.

    Attributes
    ----------
    name : str
        Short name of the generator, for logs and certificates' context.
    instance_based : bool
        Whether its answers may be training rows or lightly changed ones, whatever a distance says.
    methods : mapping
        The explainer's own public methods that return counterfactuals, name to a callable taking what the method
        takes and returning ``(batch, native_result, queries)``. They keep their names on the protected explainer.
    forwarded : tuple of str, optional
        Other names of the explainer, attributes and methods, that a protected explainer gives as they are: nothing of
        a row may be in them, or be reached from them. Without this attribute there are none.
    """

    name: str
    instance_based: bool

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask the explainer for counterfactuals of the queries (factual instances, features only).

        Must change neither `queries` nor the explainer nor global random state.
        """
        ...

    @property
    def methods(self) -> Mapping[str, Any]:
        """Explainer's own methods, see the class."""
        ...

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Rebuild the explainer's own result type from released explanations.

        Nothing of `native` may survive that came from a training row.
        """
        ...


@runtime_checkable
class RankingSource(CounterfactualSource, Protocol):
    """A source that can name several counterfactuals of each query, for ``protect(..., candidates=m)``."""

    def candidates(self, queries: pd.DataFrame, m: int, **options: Any) -> CounterfactualBatch:
        """Ask for m counterfactuals of each query, the generator's favourite first; keeps the rules of `generate`."""
        ...


_PROTECTING: ContextVar[bool] = ContextVar("cfk_protecting", default=False)


@contextmanager
def protecting() -> Iterator[None]:
    """Mark calls of an explainer whose answers go through protection, for whoever counts the others."""
    token = _PROTECTING.set(True)
    try:
        yield
    finally:
        _PROTECTING.reset(token)


def is_protecting() -> bool:
    """Say whether the explainer is being asked by the host."""
    return _PROTECTING.get()


def released_cells(entries: Iterable[Any]) -> list[dict[str, Any] | None]:
    """Return the table cells of each explanation, feature to value; None for one that is withheld.

    What is a single value, because it was left as it is, has the type of its column; all else is text.
    """
    return [typed_cells(entry) if entry.status == "released" else None for entry in entries]


def typed_cells(entry: Any) -> dict[str, Any]:
    """Return the table cells of one released explanation; see `released_cells`."""
    single = {name: natural(value) for name, part in entry.parts().items() for value in _single(part)}
    return {**entry.cells(), **single}


def _single(part: Part) -> list[Any]:
    """Return the value of a part that is one alone; a missing value is text, as None says that nothing was found."""
    if isinstance(part, Interval):
        return [part.low] if part.low is not None and part.low == part.high and not part.missing else []
    return [value for value in part if value is not None] if len(part) == 1 else []


def ask(call: Callable[[], Any], none_found: Callable[[Exception], bool] = lambda _: False) -> Any:
    """Call an explainer and leave no trace of it: random state restored, its exceptions stripped of their text.

    Parameters
    ----------
    call : callable
        Calls the explainer; takes nothing.
    none_found : callable, optional
        Says of an exception whether it is the explainer's way to say that there is no counterfactual.

    Returns
    -------
    object
        What `call` returned; None when there is no counterfactual.

    Raises
    ------
    ExplainerError
        If the explainer raised. Neither text nor context of its exception is kept: they may quote rows.
    AdapterError
        If `call` raised one itself.
    """
    with (
        quiet("the explainer raised {}; call it without protection to see why", ExplainerError, let=AdapterError),
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
    """Restore the global random state of `random` and NumPy, which explainers draw from and re-seed."""
    plain, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - saved, not used
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002 - see above
