"""KAnonymizer and DPPrototypes follow the conventions of scikit-learn's estimators."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cfk_plugin import Attribute, DPPrototypes, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.dp.budget import BudgetAccountant

TABLE = pd.DataFrame({"age": [24, 25, 26, 27, 50] * 20, "salary": [60, 60, 30, 80, 90] * 20})
BOUNDS = {"age": Attribute(bounds=(18, 90)), "salary": Attribute(bounds=(0, 100))}
POPULATION = Population.from_frame(
    TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"], columns=BOUNDS, nullable=[])
)


def is_rich(rows: pd.DataFrame) -> pd.Series:
    return rows["salary"] > 50


SETTINGS: list[tuple[type[Any], dict[str, Any]]] = [
    (KAnonymizer, {"policy": PrivacyPolicy(k=3), "plugins": (pytest,), "random_state": 7}),
    (DPPrototypes, {"epsilon": 2.0, "rows": 300, "accountant": BudgetAccountant(10.0)}),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_constructor_stores_its_settings(kind: type[Any], settings: dict[str, Any]) -> None:
    params = kind(**settings).get_params()
    assert {name: params[name] for name in settings} == settings
    assert kind(**settings).set_params(random_state=8).random_state == 8


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_clone_has_the_settings_and_no_fit(kind: type[Any], settings: dict[str, Any]) -> None:
    """Plugins and accountants cannot be copied: the clone uses the same ones."""
    settings = {**settings, **({"plugins": ()} if kind is KAnonymizer else {})}
    fitted = kind(**settings).fit(POPULATION, is_rich, True)
    copy = clone(fitted)
    assert type(copy) is kind
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError, match="fit"):
        copy.explain(TABLE.head(1))


def test_plugins_are_not_copied() -> None:
    assert clone(KAnonymizer(plugins=(pytest,))).plugins == (pytest,)


def test_same_random_state_explains_alike() -> None:
    queries = TABLE[TABLE["salary"] < 50].head(3)
    texts = {
        KAnonymizer(policy=PrivacyPolicy(k=3), random_state=seed)
        .fit(POPULATION, is_rich, True)
        .explain(queries)
        .to_json()
        for seed in (1, 1)
    }
    assert len(texts) == 1
