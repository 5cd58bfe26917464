"""What sources of other libraries share: converting rows to arrays and back, and calling a
library.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.adapting import (
    CounterfactualBatch,
    ask,
    constraints_of,
    desired_of,
    released_cells,
    without_constraints,
)
from cfk_plugin.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cfk_plugin.hookspecs import AdaptContext
    from cfk_plugin.release.explanations import Explanations

    Options = dict[str, Any]

_NOISE = 1e-4  # distance from a whole number that scaling back and forth may leave


@dataclass(frozen=True, repr=False)
class Encoded:
    """An explainer that takes rows in a form other than the population's, with the encoder between
    them.

    Parameters
    ----------
    explainer : object
        From a library that takes arrays of numbers: alibi.
    encoder : object
        Has ``transform`` (from a DataFrame of the features to an array or DataFrame that the
        explainer takes) and ``inverse_transform`` (back), like scalers and encoders of
        scikit-learn.
    """

    explainer: Any
    encoder: Any


class LibrarySource(ABC):
    """A library's explainer as a source of counterfactuals; its results are rebuilt from what is
    released.

    Each call works on a shallow copy of the explainer, as most keep the last answer on themselves.
    Where the explainer takes numbers, text is encoded. Single precision is read as the decimal
    number that it stands for. The explainers know no constraints of a call: these are enforced on
    what is released.

    Parameters
    ----------
    explainer : object
    context : AdaptContext
    encoder : object, optional
        See `Encoded`.
    """

    library: str
    kinds: Mapping[str, str]
    """The classes of this source, and where their answers are."""
    method = "explain"
    one_by_one = True
    instance_based = False

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        self._explainer, self._features = explainer, list(context.features)
        self._classes = None if context.classes is None else np.asarray(context.classes).tolist()
        self._encoder = encoder or Places(self._features)
        self._kind, kind = next(
            (self.kinds[name], name) for _, name in line_of(explainer) if name in self.kinds
        )
        self.name = f"{self.library}:{kind}"

    def __repr__(self) -> str:
        """Name the explainer."""
        return f"{type(self).__name__}({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask for counterfactuals of the queries; options are those of the library's own method,
        and constraints.
        """
        if missing := [name for name in self._features if name not in queries.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        rows = queries[self._features]
        said, told = self._said(options, rows)
        parts = [rows.iloc[i : i + 1] for i in range(len(rows))] if self.one_by_one else [rows]
        answers = [
            answer
            for part in parts
            for answer in self._found(self._ask(self._given(part), told), part)
        ]
        return self._batch(answers, rows, said)

    @property
    def methods(self) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, Any, pd.DataFrame]]]:
        """The library's own method, under its own name."""
        signature = inspect.signature(getattr(self._explainer, self.method))
        first = next(iter(signature.parameters))

        def own(*args: Any, **named: Any) -> tuple[CounterfactualBatch, Any, pd.DataFrame]:
            options = dict(signature.bind(*args, **named).arguments)
            options |= options.pop("kwargs", {})
            rows = self._rows(options.pop(first))
            if self.one_by_one and len(rows) != 1:
                raise AdapterError(
                    f"{self.name} explains one row at a time; give one, or a DataFrame to explain()"
                )
            said, told = self._said(options, rows)
            native = self._ask(self._given(rows), told)
            return self._batch(self._found(native, rows), rows, said), native, rows

        return {self.method: own}

    @abstractmethod
    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Rebuild the library's result from released cells."""

    @abstractmethod
    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:
        """Return an answer's row for each query in the explainer's form, or None."""

    def _goal(self, options: Options) -> Any:
        """Return the outcome that a call names; leaves in the options what the library takes."""
        return desired_of(options, self._classes)

    def _limits(self, options: Options, rows: pd.DataFrame) -> dict[str, Any]:  # noqa: ARG002 - some need them
        """Return what the explainer's own settings say may change."""
        return {}

    def _given(self, rows: pd.DataFrame) -> Any:
        """Return queries as the explainer takes them."""
        return self._encode(rows)

    def _rows(self, given: Any) -> pd.DataFrame:
        """Return queries from what a caller gave to the library's own method."""
        return self._decode(np.atleast_2d(np.asarray(given)))

    def _ask(self, given: Any, options: Options) -> Any:
        working = ask(lambda: _working_copy(self._explainer))
        return ask(lambda: getattr(working, self.method)(given, **options))

    def _said(
        self, options: Mapping[str, Any], rows: pd.DataFrame
    ) -> tuple[dict[str, Any], Options]:
        """Return goal and constraints of a call, and the arguments that the library gets."""
        told: Options = without_constraints(options)
        limits = self._limits(told, rows) | constraints_of(options)
        return {"desired": self._goal(told), "constraints": limits}, told

    def _batch(
        self, answers: Sequence[Any], rows: pd.DataFrame, said: Mapping[str, Any]
    ) -> CounterfactualBatch:
        frames = [
            None if answer is None or not len(answer) else self._decode(answer, rows)
            for answer in answers
        ]
        query = np.repeat(
            np.arange(len(rows)), [1 if frame is None else len(frame) for frame in frames]
        )
        there = [frame for frame in frames if frame is not None]
        found = (
            pd.concat(there, ignore_index=True) if there else pd.DataFrame(columns=self._features)
        )
        slots = np.flatnonzero(
            np.isin(query, [i for i, frame in enumerate(frames) if frame is not None])
        )
        return CounterfactualBatch(found, slots, query, said["desired"], said["constraints"])

    def _encode(self, rows: pd.DataFrame) -> Any:
        return ask(lambda: self._encoder.transform(rows.copy()))

    def _decode(self, values: Any, like: pd.DataFrame | None = None) -> pd.DataFrame:
        """Convert the explainer's rows to the population's form, with the queries' types of
        numbers.
        """
        encoder = (
            self._encoder.like(like)
            if isinstance(self._encoder, Places) and like is not None
            else self._encoder
        )
        found = ask(lambda: encoder.inverse_transform(values))
        if not isinstance(found, pd.DataFrame):
            if np.ndim(found) != 2 or np.shape(found)[1] != len(self._features):
                raise AdapterError(
                    f"{self.name} has rows of shape {np.shape(found)}, not one column per feature"
                )
            found = pd.DataFrame(found, columns=self._features).infer_objects()
        if missing := [name for name in self._features if name not in found]:
            raise AdapterError(f"the answer of {self.name} has no column {', '.join(missing)}")
        columns = {
            name: settled(found[name], None if like is None else like[name])
            for name in self._features
        }
        return pd.DataFrame(columns, columns=self._features).reset_index(drop=True)

    def _cells(self, entries: Any) -> np.ndarray[Any, Any]:
        """Return released cells, one row per entry; None in a row that is withheld."""
        table = np.full((len(entries), len(self._features)), None, dtype=object)
        for i, cells in enumerate(released_cells(entries)):
            if cells is not None:
                table[i] = [cells[name] for name in self._features]
        return table

    def _labels(self, entries: Any) -> list[Any]:
        """Return the certified outcomes for libraries that use positions of classes; None if
        withheld.
        """
        outcomes = [entry.outcome for entry in entries if entry.status == "released"]
        known = self._classes or []
        found = iter(
            [
                None if o.is_other else known.index(o.label) if o.label in known else o.label
                for o in outcomes
            ]
        )
        return [next(found) if entry.status == "released" else None for entry in entries]

    def _label_at(self, places: Any, argument: str) -> Any:
        """Return the label at the one position that an argument names for all queries; None without
        one.
        """
        if places is None:
            return None
        named = np.unique(np.asarray(places))
        if len(named) == 1 and named.dtype.kind == "f" and named[0] % 1 == 0:
            named = named.astype(int)
        if len(named) != 1:
            raise AdapterError(
                f"{argument} names several outcomes; explanations are certified for one: name one"
            )
        return desired_of({"target_class": named[0].item()}, self._classes)


class Places:
    """Rows as arrays of numbers: a text category becomes its position in the explainer's list.

    Parameters
    ----------
    features : list of str
    categories : mapping of int to sequence, optional
        Values of the columns at some positions.
    """

    def __init__(
        self, features: list[str], categories: Mapping[int, Sequence[Any]] | None = None
    ) -> None:
        self._features = features
        self._lists = {features[int(j)]: list(values) for j, values in (categories or {}).items()}

    def like(self, rows: pd.DataFrame) -> Places:
        """Return an encoder that lists only these rows' text columns."""
        other = copy.copy(self)
        other._lists = {
            name: each for name, each in self._lists.items() if not is_number(rows[name])
        }
        return other

    def transform(self, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
        """Return an array; raises for a category that is not listed, and for text without a
        list.
        """
        texts = [name for name in self._features if not is_number(rows[name])]
        if unknown := [name for name in texts if name not in self._lists]:
            raise AdapterError(
                f"columns {', '.join(unknown)} are text, and the explainer takes numbers: give"
                " Encoded(explainer, encoder), which turns rows into what it takes and back; see"
                " docs/how-to/wrap-an-explainer.md"
            )
        coded = rows.copy()
        for name in texts:
            coded[name] = pd.Index(self._lists[name]).get_indexer(
                pd.Index(rows[name].astype(object))
            )
        if strange := [name for name in texts if (coded[name] < 0).any()]:
            raise AdapterError(
                "the queries have categories that the explainer does not know, in"
                f" {', '.join(strange)}"
            )
        return coded.to_numpy(dtype=float)

    def inverse_transform(self, values: Any) -> pd.DataFrame:
        """Return a table with the listed categories."""
        table = pd.DataFrame(values, columns=self._features)
        for name, known in self._lists.items():
            places = table[name].astype(float).round().astype(int).clip(0, len(known) - 1)
            table[name] = pd.Series(known, dtype=object).to_numpy()[places]
        return table.infer_objects()


def is_number(column: pd.Series[Any]) -> bool:
    """Say whether a column holds numbers."""
    return bool(pd.api.types.is_numeric_dtype(column))


def settled(column: pd.Series[Any], like: pd.Series[Any] | None) -> pd.Series[Any]:
    """Return an answer's column without single-precision noise; whole if it nearly is and the
    query's is.
    """
    if column.dtype in (np.float32, np.float16):
        column = pd.Series([_decimal(value) for value in column.tolist()], column.index, float)
    if like is None or not is_number(column) or column.isna().any():
        return column
    if pd.api.types.is_bool_dtype(like):
        return column.astype(float) > 1 / 2
    is_whole = pd.api.types.is_integer_dtype(like) and np.allclose(
        column, column.round(), rtol=0, atol=_NOISE
    )
    return column.round().astype("int64") if is_whole else column


def _decimal(value: float) -> float:
    """Return the six-digit number that a single-precision number stands for, or itself."""
    short = float(f"{value:.6g}")
    return (
        short
        if abs(short - value) <= abs(value) * 2 * np.finfo(np.float32).eps
        else float(str(np.float32(value)))
    )


def line_of(explainer: Any) -> list[tuple[str, str]]:
    """Return library and name of the explainer's class and its bases, or of the function."""
    found = getattr(explainer, "func", explainer)
    kinds = [found] if isinstance(found, FunctionType) else type(found).__mro__
    return [(kind.__module__.split(".")[0], kind.__qualname__) for kind in kinds]


def _working_copy(explainer: Any) -> Any:
    """Copy an explainer and the answers that it keeps, but share models and training rows with
    it.
    """
    # `copy` would call OmniXAI's own, which copies everything, and fails
    working = object.__new__(type(explainer))
    vars(working).update(vars(explainer))
    for name in ("return_dict", "instance_dict"):  # alibi writes into these
        if name in vars(working):
            setattr(working, name, copy.deepcopy(getattr(working, name)))
    return working
