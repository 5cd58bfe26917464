"""A user's script as a strict type checker sees it: `make check` checks it, and a test runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import pandas as pd

from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Population,
    PrivacyPolicy,
    PrototypeCounterfactual,
    Schema,
    Withheld,
    protect,
)


def accepts(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > 50).to_numpy()


def letters(train: pd.DataFrame, queries: pd.DataFrame) -> list[str]:
    schema = Schema.from_frame(
        train, quasi_identifiers=["age"], titles={"pay": "pay"}, units={"pay": "EUR"}
    )
    private = protect(
        lambda rows: train[train["pay"] > 50].iloc[: len(rows)],
        model=accepts,
        population=Population.from_frame(train, schema),
        policy=PrivacyPolicy(k=5),
        desired=True,
    )
    explanations = private.explain(queries)
    assert_type(explanations, Explanations)
    written = []
    for entry in explanations:
        if entry.status == "released":
            assert_type(entry, GeneralizedCounterfactual | PrototypeCounterfactual)
            written.append(entry.text(queries.iloc[entry.query]))
        else:
            assert_type(entry, Withheld)
            written.append(entry.text())
    return written


def reason(explanations: Explanations) -> str:
    entry = explanations[0]
    assert entry.status == "withheld" or entry.parts()
    return entry.reason  # type: ignore[union-attr]  # of a kind that is not yet known
