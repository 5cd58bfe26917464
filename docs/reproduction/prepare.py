"""From a table to a model, queries and their counterfactuals, as in section 5.2 of the paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from cfk_plugin.audit.targets import tabular
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.plugins import generator
from reproduction.tables import Table

SEED = 0
"""Seed of the split, the folds, the forest and every draw."""

N_TREES = 100
MOST_LEAVES = (10, 100, 500, None)
"""Sizes of trees that tuning tries. The paper also tries forests of 10 to 5,000 trees."""

N_FOLDS = 5  # the paper does not give a number
N_TEST_ROWS = 1000  # the paper explains the undesired ones among that many


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """What was explained of a table: counts, shares and the size of the forest."""

    source: str
    limit: int  # most instances that are explained
    seed: int
    rows_train: int
    rows_test: int
    unique: float  # share of the rows whose quasi-identifiers no other row has
    below_10: float  # share of the rows in equivalence classes of fewer than 10
    n_estimators: int
    max_leaf_nodes: int | None
    accuracy: float  # of the forest on the test rows
    explained: int
    unanswered: int  # undesired instances for which NICE finds no counterfactual


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Prepared(HostOnly):
    """A table with everything that methods need."""

    name: str
    summary: TableSummary
    train: pd.DataFrame  # the features of the training rows
    labels: NDArray[Any]  # their true outcomes
    population: Population
    model: Pipeline
    desired: str
    queries: pd.DataFrame  # the instances that are explained
    counterfactuals: pd.DataFrame  # the training row that explains each of them
    groups: tuple[str, ...]  # of the person behind each counterfactual
    groups_asking: tuple[str, ...]  # of the person behind each query

    def _counts(self) -> str:
        return f"{self.name}, {len(self.queries)} queries"


def prepare(table: Table, limit: int, forest: Pipeline | None = None) -> Prepared:
    """Split a table, tune and fit a forest, and explain undesired test rows.

    Parameters
    ----------
    table : Table
    limit : int
        The largest number of test rows that are explained.
    forest : Pipeline, optional
        A forest that is not fitted. By default, cross-validation chooses one.

    Returns
    -------
    Prepared

    Raises
    ------
    InputError
        If no test row is predicted the undesired outcome and has a counterfactual.
    """
    features = list(table.features)
    train, test = train_test_split(table.frame, test_size=0.4, random_state=SEED)
    train = train.reset_index(drop=True)
    test = test.reset_index(drop=True)
    labels = train[table.target]
    if forest is None:
        forest = tune(train[features], labels)
    model = forest.fit(train[features], labels)

    shown = test.head(N_TEST_ROWS)
    is_undesired = model.predict(shown[features]) != table.desired
    asking = shown[is_undesired].head(limit)
    search = nice(train[features], labels.to_numpy(), model, table.desired)
    positions = search.positions(asking[features])
    is_answered = positions >= 0
    if not is_answered.any():
        raise InputError(f"{table.name}: there is nothing to explain among the test rows")
    asking = asking[is_answered].reset_index(drop=True)
    chosen = train.iloc[positions[is_answered]].reset_index(drop=True)

    trees = model[-1]
    class_sizes = _class_sizes(table)
    summary = TableSummary(
        source=table.source,
        limit=limit,
        seed=SEED,
        rows_train=len(train),
        rows_test=len(test),
        unique=float((class_sizes == 1).mean()),
        below_10=float((class_sizes < 10).mean()),
        n_estimators=trees.n_estimators,
        max_leaf_nodes=trees.max_leaf_nodes,
        accuracy=float((model.predict(test[features]) == test[table.target]).mean()),
        explained=len(asking),
        unanswered=int((~is_answered).sum()),
    )
    schema = Schema.from_frame(train[features], quasi_identifiers=list(table.quasi_identifiers))
    return Prepared(
        name=table.name,
        summary=summary,
        train=train[features],
        labels=labels.to_numpy(),
        population=Population.from_frame(train[features], schema),
        model=model,
        desired=table.desired,
        queries=asking[features],
        counterfactuals=chosen[features],
        groups=group_names(train[table.sensitive], chosen[table.sensitive]),
        groups_asking=group_names(train[table.sensitive], asking[table.sensitive]),
    )


def _class_sizes(table: Table) -> pd.Series[Any]:
    """Return, for each row, how many rows have its quasi-identifiers."""
    classes = table.frame.groupby(list(table.quasi_identifiers), dropna=False)
    return classes[table.target].transform("size")


def group_names(everybody: pd.Series[Any], people: pd.Series[Any]) -> tuple[str, ...]:
    """Name the group of some people: "minority" has the rarest category of all training rows,
    "majority" the commonest, "other" any other one.
    """
    categories = everybody.value_counts().index
    names = {categories[0]: "majority", categories[-1]: "minority"}
    return tuple(names.get(category, "other") for category in people)


def make_forest(features: pd.DataFrame, n_trees: int, max_leaf_nodes: int | None) -> Pipeline:
    """Return a forest for features as they are: numbers, and one column per category of a text."""
    trees = RandomForestClassifier(
        n_trees, max_leaf_nodes=max_leaf_nodes, random_state=SEED, n_jobs=1
    )
    return tabular(features, trees)


def tune(features: pd.DataFrame, labels: pd.Series[Any]) -> Pipeline:
    """Return the forest with the best mean accuracy over the folds; the smallest of equal ones."""
    forest = make_forest(features, N_TREES, None)
    sizes = {"randomforestclassifier__max_leaf_nodes": MOST_LEAVES}
    search = GridSearchCV(forest, sizes, cv=N_FOLDS, refit=False).fit(features, labels)
    return forest.set_params(**search.best_params_)


def nice(
    train: pd.DataFrame, labels: NDArray[Any], model: Pipeline, desired: str, **settings: Any
) -> Any:
    """Return NICE over the training rows that have the desired outcome and are predicted it."""
    make_nice: Any = generator("nice")
    return make_nice(train, labels, model, desired, **settings).nice


class AutoEncoder(HostOnly):
    """The reconstruction error of rows, by which NICE finds plausible counterfactuals.

    The network is small and not that of the paper, which does not describe it.
    """

    def __init__(self, rows: NDArray[np.float64], categorical: Sequence[int]) -> None:
        numeric = [column for column in range(rows.shape[1]) if column not in categorical]
        self._encoder = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(categorical)),
            (MinMaxScaler(), numeric),
        )
        self._encoder.fit(rows)
        encoded = self._encode(rows)
        width = encoded.shape[1]
        # On a few hundred rows, scikit-learn's defaults stop before anything is learned.
        self._network = MLPRegressor(
            hidden_layer_sizes=(max(width // 2, 2), max(width // 4, 1), max(width // 2, 2)),
            activation="tanh",
            batch_size=min(32, len(rows)),
            learning_rate_init=0.005,
            max_iter=300,
            random_state=SEED,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a good reconstruction suffices
            self._network.fit(encoded, encoded)

    def _counts(self) -> str:
        return f"{self._network.n_features_in_} columns"

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean squared error of each row."""
        encoded = self._encode(rows)
        rebuilt = self._network.predict(encoded)
        return np.asarray(((encoded - rebuilt) ** 2).mean(axis=1))

    def _encode(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        encoded = np.asarray(self._encoder.transform(rows), dtype=np.float64)
        return np.nan_to_num(encoded, nan=0.5)
