"""From a table to what is explained: split, forest, queries, native counterfactuals; section 5.2 of the paper."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.reproduction.explainers import neighbours
from cfk_plugin.reproduction.forest import Size, forest, tune
from cfk_plugin.reproduction.outcome import Scene, Setting

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from cfk_plugin.reproduction.tables.table import Table

_SHOWN = 1000  # test rows that are looked at, as in the paper
_RISKY = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prepared:
    """A setting with everything that methods need. Host side only: its `repr` shows counts.

    Attributes
    ----------
    setting : Setting
    scene : Scene
    train : DataFrame
        Features of the training rows.
    labels : array
        Their true outcomes.
    population : Population
    model : Pipeline
    desired : hashable
    queries : DataFrame
        The instances that are explained.
    counterfactuals : DataFrame
        The training row that explains each.
    groups, groups_asking : tuple of str
        Group of each counterfactual instance, and of each instance that is explained.
    """

    setting: Setting
    scene: Scene
    train: pd.DataFrame
    labels: NDArray[Any]
    population: Population
    model: Pipeline
    desired: Any
    queries: pd.DataFrame
    counterfactuals: pd.DataFrame
    groups: tuple[str, ...]
    groups_asking: tuple[str, ...]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Prepared({self.setting.table}, {len(self.queries)} queries)"


def prepare(table: Table, setting: Setting, known: Scene | None = None, *, jobs: int = 1) -> Prepared:
    """Split, tune and fit, and explain the undesired instances among the first 1,000 test rows.

    Parameters
    ----------
    table : Table
    setting : Setting
    known : Scene, optional
        What the same setting led to before: the forest is not tuned again.
    jobs : int
        Processes that tune.

    Returns
    -------
    Prepared
    """
    started = time.perf_counter()
    train, test = train_test_split(table.frame, test_size=0.4, random_state=setting.seed)
    train, test = train.reset_index(drop=True), test.reset_index(drop=True)
    features, desired, seed = list(table.features), table.desired, setting.seed
    labels = train[table.target]
    if known is None:
        size, scores = tune(train[features], labels, setting.grid, seed, jobs)
    else:
        size, scores = Size(known.n_estimators, known.max_leaf_nodes), dict(known.scores)
    model = forest(train[features], size, seed).fit(train[features], labels)
    shown = test.head(_SHOWN)
    asking = shown[model.predict(shown[features]) != desired].head(setting.limit)
    true = labels.to_numpy()
    rows = neighbours(setting.explainer, train[features], true, asking[features], model, desired)
    chosen, asking = train.iloc[rows[rows >= 0]].reset_index(drop=True), asking[rows >= 0].reset_index(drop=True)
    schema = Schema.from_frame(train[features], quasi_identifiers=list(table.quasi_identifiers))
    scene = known or Scene(
        n_estimators=size.n_estimators,
        max_leaf_nodes=size.max_leaf_nodes,
        scores=scores,
        accuracy=float((model.predict(test[features]) == test[table.target]).mean()),
        rows_train=len(train),
        rows_test=len(test),
        **_risks(table),
        explained=len(asking),
        unanswered=int((rows < 0).sum()),
        seconds=time.perf_counter() - started,
    )
    return Prepared(
        setting=setting,
        scene=scene,
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
    """Name each one's group: the rarest and the commonest category of the training rows, and the others."""
    counts = everybody.value_counts()
    names = {counts.index[0]: "majority", counts.index[-1]: "minority"}
    return tuple(names.get(value, "other") for value in some)


def _risks(table: Table) -> dict[str, float]:
    """Return the shares of Table 5: of all rows, those alone in their equivalence class, and in classes below 10."""
    sizes = table.frame.groupby(list(table.quasi_identifiers), dropna=False)[table.target].transform("size")
    return {"unique": float((sizes == 1).mean()), "below_10": float((sizes < _RISKY).mean())}
