"""Names that messages may quote, and names that they may not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin._files import goal_among
from cfk_plugin.audit import Setting
from cfk_plugin.errors import AdapterError, CFKError, InputError, did_you_mean
from cfk_plugin.release.results import PrototypePolicy

DICE = "dice_ml"
RANDOM = np.random.default_rng(5)
TRAIN = pd.DataFrame(
    {
        "age": 7_001 + 3 * RANDOM.permutation(60),
        "city": RANDOM.choice(["Antwerp", "Bruges"], 60),
        "pay": RANDOM.integers(20, 90, 60),
    }
)
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
POPULATION = Population.from_frame(TRAIN, SCHEMA)
MODEL = DecisionTreeClassifier(max_depth=2, random_state=0).fit(TRAIN[["pay"]], TRAIN["pay"] > 50)
POLICY = PrivacyPolicy(k=3, guarantee="lookup")
HIGH = TRAIN[TRAIN["pay"] > 50]
QUERIES = TRAIN[TRAIN["pay"] <= 50].head(2)


FITTED = KAnonymizer(policy=POLICY).fit(POPULATION, model=MODEL, desired=True)


def test_a_name_that_is_close_to_none_is_left_alone() -> None:
    assert did_you_mean(["town", 7], ["age", "city", None, True]) == ""
    assert did_you_mean([], ["age"]) == did_you_mean(["age"], []) == ""
    assert did_you_mean(["AGE", "agee"], ["age"]) == "; did you mean 'age'?"


def test_a_label_of_many_is_not_named() -> None:
    """Labels as many as these are hardly classes, and could be values of rows."""
    labels = [f"label {i:03}" for i in range(30)]
    with pytest.raises(InputError) as caught:
        goal_among(labels, "labl 007")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(InputError, match="did you mean 'label 007'"):
        goal_among(labels[:20], "labl 007")


def test_a_missing_column_is_not_looked_for_among_values() -> None:
    """In a table that was turned around, the names of columns are values of rows."""
    turned = pd.DataFrame([[1, 2, 3]], columns=["pay", "citty", "aged 7001"])
    with pytest.raises(InputError) as caught:
        FITTED.transform(turned)
    assert "(a column of nearly this name is there: rename it)" in str(caught.value)
    assert "citty" not in str(caught.value)
    with pytest.raises(CFKError) as refused:
        Population.from_frame(turned, SCHEMA)
    assert "(a column of nearly this name is there: rename it)" in str(refused.value)
    assert "citty" not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            "explain",
            "^the explainer raised UserConfigValidationException|^the explainer raised TypeError",
        ),
        (
            "generate_counterfactuals",
            "^generate_counterfactuals: missing a required argument: 'total_CFs'; it takes ",
        ),
    ],
)
def test_a_call_that_dice_refuses_says_what_is_wrong(method: str, text: str) -> None:
    dice_ml = pytest.importorskip(DICE)
    table = dice_ml.Data(
        dataframe=TRAIN.assign(rich=TRAIN["pay"] > 50),
        continuous_features=["age", "pay"],
        outcome_name="rich",
    )
    dice = dice_ml.Dice(table, dice_ml.Model(model=MODEL, backend="sklearn"), method="random")
    private = protect(
        dice, model=lambda rows: (rows["pay"] > 50).to_numpy(), population=POPULATION, policy=POLICY
    )
    with pytest.raises(AdapterError, match=text):
        getattr(private, method)(QUERIES, total_CF=2)
    with pytest.raises(InputError, match=r"queries must be a table .*, got ndarray"):
        private.explain(QUERIES.to_numpy())


def test_numbers_of_numpy_are_numbers() -> None:
    plain = PrivacyPolicy(k=10, l=2, min_pureness=0.5)
    numpy = PrivacyPolicy(
        k=np.int64(10),
        l=np.int8(2),
        min_pureness=np.float32(0.5),
    )  # type: ignore[arg-type]
    assert (numpy, numpy.sha256, repr(numpy)) == (plain, plain.sha256, repr(plain))
    assert PrototypePolicy(method="dp", epsilon=np.float32(1), people=np.int64(60)).people == 60  # type: ignore[arg-type]
    assert POPULATION.risk_profile(np.int64(3)) == POPULATION.risk_profile(3)  # type: ignore[arg-type]
    assert Setting(FITTED, HIGH, seed=np.int64(1)).seed == 1  # type: ignore[arg-type]
    with pytest.raises(CFKError, match="min_pureness"):
        PrivacyPolicy(min_pureness=np.float64("nan"))  # no floor at all, if it were taken for None
