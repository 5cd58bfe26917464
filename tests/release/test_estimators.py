"""KAnonymizer and DPPrototypes follow the conventions of scikit-learn's estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cfk_plugin import DPPrototypes, KAnonymizer, PrivacyPolicy
from cfk_plugin.dp.budget import BudgetAccountant
from worlds import World

SETTINGS: list[tuple[type[Any], dict[str, Any]]] = [
    (KAnonymizer, {"policy": PrivacyPolicy(k=3), "plugins": (pytest,), "random_state": 7}),
    (DPPrototypes, {"epsilon": 2.0, "rows": 300, "accountant": BudgetAccountant(10.0)}),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_estimator_stores_its_settings(kind: type[Any], settings: dict[str, Any]) -> None:
    """Plugins and accountants cannot be copied: a clone uses the same ones."""
    for estimator in (kind(**settings), clone(kind(**settings))):
        params = estimator.get_params()
        assert {name: params[name] for name in settings} == settings
    assert kind(**settings).set_params(random_state=8).random_state == 8


def test_clone_is_not_fitted(applicants: World) -> None:
    """It has to be fitted before it answers."""
    with pytest.raises(NotFittedError, match="fit"):
        clone(applicants.anonymizer).explain(applicants.refused)
