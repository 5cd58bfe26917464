"""From a table to queries and native counterfactuals, by split and forest; section 5.2 of the
paper.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

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
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.plugins import generator

if TYPE_CHECKING:
    from reproduction.tables import Table


def digest(of: object) -> str:
    """Return a short hash of a JSON-ready value."""
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings that determine what is explained: equal ones give equal models and
    counterfactuals.
    """

    table: str
    table_sha256: str  # see `Table.sha256`
    source: str  # where the table is from
    seed: int  # for split, folds and forest
    grid: str  # of `GRIDS`
    explainer: str  # of `EXPLAINERS`
    limit: int  # most instances that are explained
    versions: Mapping[str, str]  # library to version

    @property
    def key(self) -> str:
        """Digest of all fields except the wording of the source."""
        return digest({name: value for name, value in asdict(self).items() if name != "source"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSummary:
    n_estimators: int  # what cross-validation chose
    max_leaf_nodes: int | None
    scores: Mapping[str, float]  # `Size` as text to mean accuracy over the folds
    accuracy: float  # of the chosen forest on the test rows
    rows_train: int
    rows_test: int
    unique: float  # share of all rows that are alone with their quasi-identifiers
    below_10: float  # share in equivalence classes of fewer than 10
    explained: int  # instances that were explained
    unanswered: int  # undesired instances without a counterfactual, left out
    seconds: float  # to split, tune, fit and explain


_LEAVES = [10, 100, 500, None]
GRIDS: Mapping[str, Mapping[str, list[int | None]]] = {
    "small": {"n_estimators": [100], "max_leaf_nodes": _LEAVES},
    "paper": {"n_estimators": [10, 50, 100, 500, 1000, 5000], "max_leaf_nodes": _LEAVES},
}
"""Grids: that of the paper's section 5.2, and its numbers of leaves with forests of 100 trees."""

_FOLDS = 5  # the paper does not give a number


class Size(NamedTuple):
    """Trees of a forest, and most leaves of each; None for no limit."""

    n_estimators: int
    max_leaf_nodes: int | None

    def __str__(self) -> str:
        return f"{self.n_estimators},{self.max_leaf_nodes or 'unlimited'}"


def forest(features: pd.DataFrame, size: Size, seed: int) -> Pipeline:
    """Return a forest that takes the features as they are: numbers, and text as one column per
    category.
    """
    trees = RandomForestClassifier(
        size.n_estimators, max_leaf_nodes=size.max_leaf_nodes, random_state=seed, n_jobs=1
    )
    return tabular(features, trees)


def tune(
    features: pd.DataFrame, labels: pd.Series[Any], grid: str, seed: int, jobs: int
) -> tuple[Size, dict[str, float]]:
    """Return the best size by mean accuracy over five folds (the grid's first on a tie), and the
    scores of all.
    """
    sizes = [
        Size(n or 1, leaves)
        for n in GRIDS[grid]["n_estimators"]
        for leaves in GRIDS[grid]["max_leaf_nodes"]
    ]
    steps: list[dict[str, Any]] = [
        {
            "randomforestclassifier__n_estimators": [n],
            "randomforestclassifier__max_leaf_nodes": [leaves],
        }
        for n, leaves in sizes
    ]
    search = GridSearchCV(
        forest(features, sizes[0], seed), steps, cv=_FOLDS, n_jobs=jobs, refit=False
    )
    found = search.fit(features, labels).cv_results_["mean_test_score"]
    scores = {str(size): float(score) for size, score in zip(sizes, found, strict=True)}
    return sizes[int(found.argmax())], scores


def choose_explainer(name: str) -> str:
    """Return the explainer that a name stands for; "auto" is NICE if it is installed."""
    installed = find_spec("nice") is not None
    if name == "auto":
        return "nice" if installed else "nearest"
    if name not in EXPLAINERS:
        raise InputError(f"explainer must be auto, {' or '.join(EXPLAINERS)}")
    if name == "nice" and not installed:
        raise InputError(
            "NICE is not installed; pip install --no-deps NICEx==0.2.3, or use the explainer"
            " nearest"
        )
    return name


EXPLAINERS = ("nice", "nearest")


def neighbours(
    name: str,
    train: pd.DataFrame,
    labels: NDArray[Any],
    queries: pd.DataFrame,
    model: Pipeline,
    desired: Any,
) -> NDArray[np.int64]:
    """Return the row that explains each query, or -1: the nearest "justified" one, by NICE or our
    own search.
    """
    if name == "nice":
        positions: NDArray[np.int64] = nice(train, labels, model, desired).positions(queries)
        return positions
    heom = Heom.fit(train)
    candidates = justified(train, labels, model, desired)
    found = heom.nearest(heom.encode(queries), heom.encode(train.iloc[candidates]))[0][:, 0]
    return np.where(found >= 0, candidates[found] if len(candidates) else -1, -1)


def nice(
    train: pd.DataFrame, labels: NDArray[Any], model: Any, desired: Any, **settings: Any
) -> Any:
    """Return the library's own search, which the generator "nice" holds."""
    make: Any = generator("nice")
    return make(train, labels, model, desired, **settings).nice


def justified(
    train: pd.DataFrame, labels: NDArray[Any], model: Pipeline, desired: Any
) -> NDArray[np.int64]:
    """Return the positions of training rows that may explain: with the desired outcome, both
    predicted and true.
    """
    return np.flatnonzero((model.predict(train) == desired) & (labels == desired))


_SHOWN = 1000  # test rows that are used, as in the paper
_RISKY = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prepared(HostOnly):
    """A config with everything that methods need."""

    config: Config
    summary: DataSummary
    train: pd.DataFrame  # features of the training rows
    labels: NDArray[Any]  # their true outcomes
    population: Population
    model: Pipeline
    desired: Any
    queries: pd.DataFrame  # the instances that are explained
    counterfactuals: pd.DataFrame  # the training row that explains each
    groups: tuple[str, ...]  # of each counterfactual instance
    groups_asking: tuple[str, ...]  # of each instance that is explained

    def _counts(self) -> str:
        return f"{self.config.table}, {len(self.queries)} queries"


def prepare(
    table: Table, config: Config, known: DataSummary | None = None, *, jobs: int = 1
) -> Prepared:
    """Split, tune, fit, and explain the undesired among the first 1,000 test rows; `known` avoids
    tuning.
    """
    started = time.perf_counter()
    train, test = train_test_split(table.frame, test_size=0.4, random_state=config.seed)
    train, test = train.reset_index(drop=True), test.reset_index(drop=True)
    features, desired, seed = list(table.features), table.desired, config.seed
    labels = train[table.target]
    if known is None:
        size, scores = tune(train[features], labels, config.grid, seed, jobs)
    else:
        size, scores = Size(known.n_estimators, known.max_leaf_nodes), dict(known.scores)
    model = forest(train[features], size, seed).fit(train[features], labels)
    shown = test.head(_SHOWN)
    asking = shown[model.predict(shown[features]) != desired].head(config.limit)
    true = labels.to_numpy()
    rows = neighbours(config.explainer, train[features], true, asking[features], model, desired)
    chosen, asking = (
        train.iloc[rows[rows >= 0]].reset_index(drop=True),
        asking[rows >= 0].reset_index(drop=True),
    )
    schema = Schema.from_frame(train[features], quasi_identifiers=list(table.quasi_identifiers))
    sizes = table.frame.groupby(list(table.quasi_identifiers), dropna=False)[
        table.target
    ].transform("size")
    summary = known or DataSummary(
        n_estimators=size.n_estimators,
        max_leaf_nodes=size.max_leaf_nodes,
        scores=scores,
        accuracy=float((model.predict(test[features]) == test[table.target]).mean()),
        rows_train=len(train),
        rows_test=len(test),
        unique=float((sizes == 1).mean()),
        below_10=float((sizes < _RISKY).mean()),
        explained=len(asking),
        unanswered=int((rows < 0).sum()),
        seconds=time.perf_counter() - started,
    )
    return Prepared(
        config=config,
        summary=summary,
        train=train[features],
        labels=true,
        population=Population.from_frame(train[features], schema),
        model=model,
        desired=desired,
        queries=asking[features],
        counterfactuals=chosen[features],
        groups=_groups(train[table.sensitive], chosen[table.sensitive]),
        groups_asking=_groups(train[table.sensitive], asking[table.sensitive]),
    )


def _groups(everybody: pd.Series[Any], some: pd.Series[Any]) -> tuple[str, ...]:
    """Name each person's group: the rarest or the commonest category of the training rows, or the
    others.
    """
    counts = everybody.value_counts()
    names = {counts.index[0]: "majority", counts.index[-1]: "minority"}
    return tuple(names.get(value, "other") for value in some)


# On a few hundred rows, scikit-learn's defaults stop before anything is learned.
_BATCH, _RATE, _EPOCHS = 32, 0.005, 300


class AutoEncoder(HostOnly):
    """Reconstruction error of rows, for NICE's plausibility: a small network, not the paper's
    own.
    """

    def __init__(self, rows: NDArray[np.float64], categorical: Sequence[int], seed: int) -> None:
        numeric = [column for column in range(rows.shape[1]) if column not in categorical]
        self._encoder = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(categorical)),
            (MinMaxScaler(), numeric),
        ).fit(rows)
        coded = self._encode(rows)
        width = coded.shape[1]
        layers = (max(width // 2, 2), max(width // 4, 1), max(width // 2, 2))
        self._network = MLPRegressor(
            hidden_layer_sizes=layers,
            activation="tanh",
            batch_size=min(_BATCH, len(rows)),
            learning_rate_init=_RATE,
            max_iter=_EPOCHS,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a good reconstruction suffices
            # A single column is reconstructed as a vector, not as a table.
            self._network.fit(coded, coded if width > 1 else coded.ravel())

    def _counts(self) -> str:
        return f"{self._network.n_features_in_} columns"

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean squared error of each row."""
        coded = self._encode(rows)
        rebuilt = self._network.predict(coded).reshape(coded.shape)
        return np.asarray(((coded - rebuilt) ** 2).mean(axis=1))

    def _encode(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.nan_to_num(np.asarray(self._encoder.transform(rows), dtype=np.float64), nan=0.5)
