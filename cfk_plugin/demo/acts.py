"""Explainers, each protected: what the demo plays."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin._protect import protect
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.demo.patients import LOW, Patients

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.release.explanations import Explanations

_RAW = 4  # patients for whom the raw counterfactuals are asked


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Act:
    """One explainer, before and after: some raw counterfactuals (of public data), and what was released."""

    name: str
    raw: pd.DataFrame
    explanations: Explanations


def explainers(console: Console) -> dict[str, Callable[..., Act]]:
    """Return what plays each act, by the explainer's name; DiCE is left out where it is not installed."""
    found: dict[str, Callable[..., Act]] = {}
    with quiet():
        try:
            import_module("dice_ml")
        except ImportError:
            console.print("dice-ml is not installed, so DiCE is left out; pip install 'cfk-plugin[dice]' brings it.\n")
        else:
            found["DiCE (kd-tree)"] = _with_dice
    return {**found, "nearest unlike neighbour": _with_nearest}


def _with_nearest(
    name: str, data: Patients, population: Population, policy: PrivacyPolicy, told: Callable[[int, int], None]
) -> Act:
    # Adapters are plugins: the product imports none, so the demo asks for one by name, as a user's script would.
    adapter = import_module("cfk_adapters.nearest")
    features = data.train.drop(columns="progression")
    explainer = adapter.NearestUnlikeNeighbour(features, data.model, desired=LOW)
    raw = explainer.explain(data.queries.head(_RAW))
    private = protect(explainer, model=data.model, population=population, policy=policy, desired=LOW, plugins=[adapter])
    explanations = private.explain(data.queries, progress=told)
    return Act(name, raw, explanations)


def _with_dice(
    name: str, data: Patients, population: Population, policy: PrivacyPolicy, told: Callable[[int, int], None]
) -> Act:
    import dice_ml

    continuous = [column for column in data.queries if column != "sex"]
    table = dice_ml.Data(dataframe=data.train, continuous_features=continuous, outcome_name="progression")
    explainer = dice_ml.Dice(table, dice_ml.Model(model=data.model, backend="sklearn"), method="kdtree")
    options = {"total_CFs": 1, "desired_class": LOW}
    answers = explainer.generate_counterfactuals(data.queries.head(_RAW), **options).cf_examples_list
    shown = [a.final_cfs_df if a.final_cfs_df_sparse is None else a.final_cfs_df_sparse for a in answers]
    raw = pd.DataFrame({i: table.iloc[0] for i, table in enumerate(shown) if table is not None and len(table)}).T
    adapter = import_module("cfk_adapters.dice")
    private = protect(explainer, model=data.model, population=population, policy=policy, desired=LOW, plugins=[adapter])
    explanations = private.explain(data.queries, progress=told, **options)
    return Act(name, raw, explanations)


@contextlib.contextmanager
def quiet() -> Any:
    """Keep progress bars and notices of other libraries out of the story."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
