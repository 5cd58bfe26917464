"""Explainers of libraries on mixed tables: one row per query, in the training rows' dtypes, or
missing values.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from cfk_adapters.dice import DiceSource
from cfk_plugin.adapting import ask
from cfk_plugin.errors import AdapterError, HostOnly
from cfk_plugin.hookspecs import AdaptContext
from cfk_recourse.encoding import Encoding, Points

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class _Rows(HostOnly):
    """Base of holders of training rows."""

    instance_based = True

    def __init__(self, train: pd.DataFrame) -> None:
        self._train = train.reset_index(drop=True)

    def _counts(self) -> str:
        return f"{len(self._train)} rows, {self._train.shape[1]} features"


class Nice:
    """NICE, asked for one query at a time; it takes numbers, so categories are numbered.

    It holds the training rows.
    """

    def __init__(
        self,
        train: pd.DataFrame,
        labels: NDArray[Any],
        model: Any,
        desired: Any,
        optimization: str = "none",
        auto_encoder: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    ) -> None:
        self._model, self._columns = model, list(train.columns)
        self._text = {
            str(name): _categories(train[name])
            for name in train
            if not is_numeric_dtype(train[name])
        }
        self._rows = self.encode(train)
        classes = list(model.classes_)
        self._target = [classes.index(desired)]
        self._nice = import_module("nice").NICE(
            self._score,
            self._rows.copy(),  # NICE changes the array it is given
            cat_feat=[self._columns.index(name) for name in self._text],
            y_train=np.array([classes.index(label) for label in labels]),
            optimization=optimization,
            auto_encoder=auto_encoder,
        )

    def __repr__(self) -> str:
        return f"Nice({len(self._rows)} rows)"

    def encode(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return rows as NICE takes them; an unseen category differs from all others."""
        coded = {name: self._code(rows[name]) for name in self._columns}
        return np.column_stack([coded[name] for name in self._columns]).astype(float)

    def decode(self, rows: NDArray[np.float64]) -> pd.DataFrame:
        """Return rows as the model takes them: text, and what is missing, as in the training
        rows.
        """
        table = pd.DataFrame(rows, columns=self._columns)
        for name, categories in self._text.items():
            # -1, unseen, is missing
            table[name] = categories.reindex(table[name].astype(int)).array
        return table

    def explain(self, queries: pd.DataFrame) -> NDArray[np.float64]:
        """Return one counterfactual per query in NICE's form; missing numbers if it finds none."""
        found = np.full((len(queries), len(self._columns)), np.nan)
        for i, row in enumerate(self.encode(queries)):
            if self._nice.data.candidates_mask[
                self._nice.data.X_train_class == self._target[0]
            ].any():
                found[i] = self._nice.explain(row[None, :].copy(), target_class=self._target)[0]
        return found

    def positions(self, queries: pd.DataFrame) -> NDArray[np.int64]:
        """Return the training row that each counterfactual equals; NICE itself does not say
        which.
        """
        return np.array([self._position(row) for row in self.explain(queries)], dtype=np.int64)

    def _position(self, row: NDArray[np.float64]) -> int:
        same = np.flatnonzero((self._rows == row).all(axis=1))
        return int(same[0]) if len(same) else -1

    def _code(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        if column.name not in self._text:
            return column.to_numpy(dtype=float)
        places = {
            category: place for place, category in enumerate(_filled(self._text[str(column.name)]))
        }
        return np.array([places.get(value, -1) for value in _filled(column)], dtype=float)

    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._model.predict_proba(self.decode(rows)))


class NiceRows(_Rows):
    """The library's NICE without optimisation: the nearest training row whose true and predicted
    outcomes are desired.

    Parameters
    ----------
    train : DataFrame
    labels : array
        True outcomes, of the model's classes.
    model : classifier with ``predict_proba`` and ``classes_``
    desired : label
    **settings
        Those of `Nice`, whose search is in the attribute ``nice``.
    """

    def __init__(
        self, train: pd.DataFrame, labels: NDArray[Any], model: Any, desired: Any, **settings: Any
    ) -> None:
        super().__init__(train)
        if desired not in list(model.classes_):
            raise AdapterError(
                "NICE explains towards one outcome: give `desired` as one of the model's classes"
            )
        self.nice: Nice = ask(
            lambda: Nice(self._train, np.asarray(labels), model, desired, **settings)
        )

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return a training row per query, in the queries' index; missing values where there is
        none.
        """
        positions = ask(lambda: self.nice.positions(_columns(X, self._train)))
        # -1 is in no index, so gives missing values
        return self._train.reindex(positions).set_axis(X.index, axis=0)


class DiceRows(_Rows):
    """The library's DiCE, asked for one counterfactual of each query, as it displays it.

    DiCE gets numbers for categories, and whole numbers as integers, so any table that can be
    encoded will do. A query that DiCE cannot take, with a category that no training row has, gets
    no answer. Its sparsity step uses bisection: the linear search asks the model up to 10,000 times
    for each number of each answer. Answers are not checked: some do not flip once DiCE has rounded
    them.

    Parameters
    ----------
    train, labels, model
        As for `NiceRows`.
    desired : label or "opposite"
        "opposite" only with two classes.
    search : {"random", "kdtree", "genetic"}
    seed : int
    """

    def __init__(
        self,
        train: pd.DataFrame,
        labels: NDArray[Any],
        model: Any,
        desired: Any,
        search: str,
        seed: int = 0,
    ) -> None:
        super().__init__(train)
        self.search, self.seed, self.instance_based = search, seed, search != "random"
        self._encoding = Encoding(self._train)
        classes = list(model.classes_)
        if desired not in classes and not (
            isinstance(desired, str) and desired == "opposite" and len(classes) == 2
        ):
            raise AdapterError(
                "DiCE explains towards one outcome: give `desired` as one of the model's classes"
            )
        self._desired = classes.index(desired) if desired in classes else "opposite"
        outcome = "outcome"
        while outcome in self._train:
            outcome += "_"
        places = pd.Index(classes).get_indexer(pd.Index(np.asarray(labels)))
        self._source = ask(lambda: self._made(model, outcome, places))

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return one row per query, in the queries' index; missing values where DiCE found none.

        Raises
        ------
        AdapterError
            If DiCE cannot take any of the queries.
        """
        queries = _columns(X, self._train)
        encoding = self._encoding.knowing(queries)
        table = _table_of(encoding, encoding.encode(queries))

        def seeded() -> Any:  # DiCE draws from the global state, which `ask` restores
            random.seed(self.seed)
            np.random.seed(self.seed)  # noqa: NPY002 - see above
            return self._source.generate(
                table, desired_class=self._desired, posthoc_sparsity_algorithm="binary"
            )

        batch = ask(seeded)
        answers = (
            encoding.decode(_points_of(encoding, batch.frame)) if len(batch.frame) else queries[:0]
        )
        position = np.full(len(X), -1)
        position[batch.query[batch.slot]] = np.arange(len(answers))
        return answers.reindex(position).set_axis(X.index, axis=0)

    def _made(self, model: Any, outcome: str, places: NDArray[np.int64]) -> DiceSource:
        import dice_ml

        encoding = self._encoding
        table = _table_of(encoding, encoding.encode(self._train))
        data = dice_ml.Data(
            dataframe=table.assign(**{outcome: places}),
            continuous_features=list(encoding.numeric),
            outcome_name=outcome,
        )
        wrapped = dice_ml.Model(model=_Decoding(model, encoding), backend="sklearn")
        return DiceSource(
            dice_ml.Dice(data, wrapped, method=self.search), AdaptContext(tuple(encoding.names))
        )


class _Decoding:
    """A classifier of rows in DiCE's form."""

    def __init__(self, model: Any, encoding: Encoding) -> None:
        self._model, self._encoding = model, encoding

    def predict_proba(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Return probabilities of the model's classes."""
        rows = self._encoding.decode(_points_of(self._encoding, table))
        return np.asarray(self._model.predict_proba(rows))

    def predict(self, table: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of the likeliest class."""
        return np.asarray(self.predict_proba(table).argmax(axis=1))


def _table_of(encoding: Encoding, points: Points) -> pd.DataFrame:
    """Return points as DiCE takes them: whole numbers as integers, numbers of categories as
    text.
    """
    columns: dict[Any, Any] = {}
    for j, name in enumerate(encoding.numeric):
        numbers = points.numbers[:, j]
        columns[name] = (
            numbers.astype(np.int64)
            if encoding.whole[j] and np.isfinite(numbers).all()
            else numbers
        )
    for j, name in enumerate(encoding.categorical):
        columns[name] = points.codes[:, j].astype(str).astype(object)
    return pd.DataFrame(columns)[encoding.names]


def _points_of(encoding: Encoding, table: pd.DataFrame) -> Points:
    numbers = table[encoding.numeric].astype(float).to_numpy()
    codes = table[encoding.categorical].astype(int).to_numpy(dtype=np.int64)
    return Points(np.where(encoding.whole, np.round(numbers), numbers), codes)


def _columns(frame: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    if missing := [str(name) for name in train.columns if name not in frame.columns]:
        raise AdapterError(f"the queries have no column {', '.join(missing)}")
    return frame[train.columns.tolist()]


def _filled(column: pd.Series[Any]) -> NDArray[np.object_]:
    """Return a column of text in which a missing value is a category of its own."""
    return column.astype(object).where(column.notna(), None).to_numpy()


def _categories(column: pd.Series[Any]) -> pd.Series[Any]:
    return column[~pd.Series(_filled(column), column.index).duplicated()].reset_index(drop=True)
