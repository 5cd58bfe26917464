"""The functions that the documentation shows for alibi and OmniXAI, on objects of their shape."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Population, PrivacyPolicy, Schema, protect

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "wrap-an-explainer.md"
RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {"age": RANDOM.integers(20, 70, 120), "pay": RANDOM.normal(5000, 900, 120).round(1)}
)
QUERIES = ROWS[ROWS["pay"] < 4500].head(3)
AGE_WITHOUT_ANSWER = QUERIES["age"].iloc[1]


class AlibiExplainer:
    """Answers one row with `cf`, which is None or a dict with the counterfactual as ``X``."""

    def explain(self, X: np.ndarray) -> SimpleNamespace:
        assert X.shape == (1, 2)
        if X[0, 0] == AGE_WITHOUT_ANSWER:
            return SimpleNamespace(cf=None)
        counterfactual = np.array([[X[0, 0], 7000.25]], dtype=np.float32)
        return SimpleNamespace(cf={"X": counterfactual, "class": 1, "proba": None})


class OmniExplainer:
    """Answers a `Tabular` with one dict per row, whose counterfactual is a table or None."""

    def explain(self, X: Any) -> SimpleNamespace:
        return SimpleNamespace(explanations=[self.answer(row) for _, row in X.table.iterrows()])

    def answer(self, row: pd.Series) -> dict[str, Any]:
        table = None
        if row["age"] != AGE_WITHOUT_ANSWER:
            table = pd.DataFrame({"age": row["age"], "pay": [7000.25, 8000.25], "label": 1})
        return {"query": row.to_frame().T, "counterfactual": table}


class Tabular:
    """OmniXAI's table."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table


def documented_function(name: str, explainer: object) -> Any:
    """Return a function of the page, with the objects that it expects."""
    section = PAGE.read_text(encoding="utf-8").partition("## Other libraries")[2]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    names: dict[str, Any] = {"explainer": explainer, "Tabular": Tabular}
    exec(code, names)
    return names[name]


@pytest.mark.parametrize(
    ("name", "explainer"), [("ask_alibi", AlibiExplainer()), ("ask_omnixai", OmniExplainer())]
)
def test_documented_function_is_protected(name: str, explainer: object) -> None:
    """Its counterfactuals are released with ranges, and a query without one is withheld."""
    schema = Schema.from_frame(ROWS, quasi_identifiers=["age"])
    private = protect(
        documented_function(name, explainer),
        model=lambda rows: (rows["pay"] > 5000).to_numpy(),
        population=Population.from_frame(ROWS, schema),
        policy=PrivacyPolicy(k=5, guarantee="lookup"),
        desired=True,
    )
    first, second, third = private.explain(QUERIES)
    assert first.certificate.k >= 5
    assert first.cells()["pay"] == third.cells()["pay"] == "7000.25"
    assert second.reason == "none_found"
