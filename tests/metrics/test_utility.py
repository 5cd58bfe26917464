"""Utility figures: by hand, by brute force, and what must not change them."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Population, Schema
from cfk_plugin.errors import InputError, ModelError, PopulationError
from cfk_plugin.metrics import Utility, clopper_pearson, utility

TRAIN = pd.DataFrame(
    {"age": [20, 30, 40, 60, 60], "city": list("AABBB"), "pay": [10, 20, 50, 90, 90]}
)
QUERIES = pd.DataFrame({"age": [20, 30, 40], "city": list("AAB"), "pay": [10, 20, 30]})
ANSWERS = pd.DataFrame({"age": [20, 60, 40], "city": list("BBB"), "pay": [50, 90, 34]})
FIGURES = (
    "flipping_ratio",
    "l1",
    "euclidean",
    "features_changed",
    "nn1",
    "nn5",
    "unseen_pair",
    "copies",
)


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] >= 50, "yes", "no")


def population(train: pd.DataFrame = TRAIN, **changes: Any) -> Population:
    return Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "city"], **changes)
    )


def measured(counterfactuals: pd.DataFrame = ANSWERS, **changes: Any) -> Utility:
    asked: dict[str, Any] = {
        "queries": QUERIES,
        "population": population(),
        "model": rich,
        "desired": "yes",
    } | changes
    return utility(asked.pop("queries"), counterfactuals, asked.pop("population"), **asked)


def test_every_figure_by_hand() -> None:
    # Ranges: age 40, pay 80. Answer 1: city, pay by 40. Answer 2: age by 30, city, pay by 70.
    # Answer 3: pay by 4.
    found = measured()
    assert found.flipping_ratio == (2 / 3, *clopper_pearson(2, 3), 3)
    assert found.l1.value == pytest.approx(np.mean([1.5, 0.75 + 1 + 0.875, 0.05]))
    assert found.euclidean.value == pytest.approx(
        np.mean([1.25**0.5, (0.75**2 + 1 + 0.875**2) ** 0.5, 0.05])
    )
    assert found.features_changed.value == pytest.approx(np.mean([2, 3, 1]))
    # Desired rows: (40 B 50), (60 B 90) twice. Answer 1 is 0.5 and twice 1.5 away, 2 is a row, 3 is
    # 0.2 and 1.2.
    assert found.nn1.value == pytest.approx(np.mean([0.5, 0, 0.2]))
    assert found.nn5.value == pytest.approx(
        np.mean([3.5 / 3, (0 + 0 + 1) / 3, (0.2 + 1.2 + 1.2) / 3])
    )
    # Bins of 2.5 years and 5 of pay. 20 with B is new; 60 B 90 is a row; 34 is in a bin of pay that
    # nobody is in.
    assert found.unseen_pair.value == pytest.approx(2 / 3)
    # 20 B nobody, 60 B two people, 40 B one.
    assert (found.copies.value, found.singled_out.value) == pytest.approx((1 / 3, 1 / 3))
    assert (found.queries, found.answered, found.training_rows, found.desired_rows) == (3, 3, 5, 3)
    assert found.ranges == {"age": "population", "pay": "population"}
    assert found.chance is None
    assert found.above_chance == {"copies": None, "singled_out": None}
    for one in (getattr(found, name) for name in FIGURES):
        assert one.low <= one.value <= one.high
        assert one.low < one.high


def test_declared_bounds_and_bins_win() -> None:
    found = measured(population=population(bounds={"age": (0, 100)}, bins={"pay": [0, 60, 100]}))
    assert found.l1.value == pytest.approx(np.mean([1.5, 0.3 + 1 + 0.875, 0.05]))
    assert found.ranges == {"age": "declared", "pay": "population"}
    # 40 B with less than 60 exists; 20 with B does not
    assert found.unseen_pair.value == pytest.approx(1 / 3)
    # nobody is outside of all bins; the last bin has both ends
    for last, unseen in ((101, 2 / 3), (100, 1 / 3)):
        answers = ANSWERS.assign(pay=[50, 90, last] if last > 100 else [50, last, 34])
        assert (
            measured(answers, population=population(bins={"pay": [0, 60, 100]})).unseen_pair.value
            == unseen
        )


def test_unanswered_queries_count_as_not_flipped_and_in_nothing_else() -> None:
    found, whole = measured(ANSWERS.iloc[[1]], answered=[1]), measured()
    assert found.flipping_ratio.value == pytest.approx(1 / 3)
    assert (found.l1.n, found.l1.value) == (1, pytest.approx(2.625))
    assert (found.nn1.value, found.copies.value, found.answered, found.queries) == (0, 1, 1, 3)
    assert measured(
        ANSWERS.iloc[[2, 0, 1]], answered=np.array([2, 0, 1])
    ).l1.value == pytest.approx(whole.l1.value)


@pytest.mark.parametrize("none", [pd.DataFrame(), ANSWERS.head(0)])
@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_nothing_answered(none: pd.DataFrame, desired: str) -> None:
    found = measured(none, desired=desired, holdout=TRAIN)
    assert (
        found.flipping_ratio.value,
        found.flipping_ratio.n,
        found.answered,
        found.desired_rows,
    ) == (0, 3, 0, 3)
    for name in (*FIGURES[1:], "singled_out"):
        assert np.isnan(getattr(found, name).value)
        assert getattr(found, name).n == 0
    assert found.copies[1:3] == (0, 1)
    assert found.above_chance == {"copies": None, "singled_out": None}
    assert found.to_dict()["l1"] == {"value": None, "low": None, "high": None, "n": 0}
    json.dumps(found.to_dict(), allow_nan=False)


def test_nobody_has_the_desired_outcome() -> None:
    found = measured(model=lambda rows: np.zeros(len(rows), dtype=int), desired=1, holdout=TRAIN)
    assert (found.flipping_ratio.value, found.desired_rows) == (0, 0)
    assert np.isnan(found.nn1.value)
    assert found.chance is not None
    assert found.chance.fresh.nn1.n == 0


def test_opposite_holds_every_query_against_the_rows_it_is_after() -> None:
    queries = pd.concat([QUERIES.head(1), TRAIN.tail(1)], ignore_index=True)
    found = measured(queries.iloc[::-1].reset_index(drop=True), queries=queries, desired="opposite")
    # 20 A 10 is after "no" rows and is one of them; 60 B 90 is after "yes" rows and is one of them.
    assert (found.flipping_ratio.value, found.nn1.value, found.desired_rows) == (1, 0, 5)
    stays = measured(queries, queries=queries, desired="opposite")
    assert stays.flipping_ratio.value == 0
    assert stays.nn1.value == pytest.approx(np.mean([0.5 + 1 + 0.5, 0.75 + 1 + 0.875]))


def test_people_with_several_rows_are_one_person() -> None:
    found = measured(population=population(TRAIN.assign(person=[0, 1, 2, 3, 3]), subject="person"))
    assert found.singled_out.value == pytest.approx(2 / 3)  # both rows of 60 B are one person's
    assert found.copies.value == pytest.approx(1 / 3)


def test_chance_by_hand() -> None:
    holdout = pd.DataFrame(
        {"age": [40, 20, 60, 20, 60], "city": list("BBBAB"), "pay": [50, 50, 90, 10, 30]}
    )
    found = measured(holdout=holdout)
    chance = found.chance
    assert chance is not None
    fresh = chance.fresh
    assert (fresh.nn1.n, chance.rows) == (3, 5)  # 40 B 50 and 60 B 90 are rows; 20 B 50 is 0.5 away
    assert [fresh.nn1.value, fresh.unseen_pair.value, fresh.singled_out.value] == pytest.approx(
        [0.5 / 3, 1 / 3, 1 / 3]
    )
    assert (chance.copies_train.value, chance.copies_holdout.value) == pytest.approx((1 / 3, 2 / 3))
    # Among holdout rows 20 B fits one, 60 B two, 40 B one.
    assert (chance.singled_out_train.value, chance.singled_out_holdout.value) == pytest.approx(
        (1 / 3, 2 / 3)
    )
    assert found.above_chance == {"copies": False, "singled_out": False}


def random_rows(n: int, random: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "city": random.choice(list("ABCD"), n),
            "pay": random.normal(50, 20, n).round(2),
            "debt": random.normal(5, 2, n),
        }
    )


def test_training_rows_are_above_chance_and_fresh_rows_are_not() -> None:
    random = np.random.default_rng(0)
    train, holdout, fresh, asked = (random_rows(n, random) for n in (2000, 500, 300, 300))
    whole = population(train)
    copied = measured(
        train.sample(300, random_state=0), queries=asked, population=whole, holdout=holdout
    )
    assert copied.above_chance["copies"] is True
    assert (copied.copies.value, copied.nn1.n) == (1, 300)
    assert copied.chance is not None
    assert copied.chance.rows == 500
    assert copied.chance.copies_train.value == pytest.approx(500 / 2000, abs=0.1)
    honest = measured(fresh, queries=asked, population=whole, holdout=holdout)
    assert honest.above_chance == {"copies": False, "singled_out": False}


def by_definition(
    queries: pd.DataFrame, answers: pd.DataFrame, train: pd.DataFrame
) -> dict[str, float]:
    """Compute every figure pair by pair, value by value."""
    numeric = ["age", "pay", "debt"]
    width = {name: train[name].max() - train[name].min() for name in numeric}
    edges = {name: np.linspace(train[name].min(), train[name].max(), 17) for name in numeric}

    def parts(x: Any, y: Any) -> list[float]:
        apart = []
        for name in train.columns:
            if pd.isna(x[name]) or pd.isna(y[name]) or name not in numeric:
                apart.append(float(not same(x[name], y[name])))
            else:
                apart.append(abs(x[name] - y[name]) / width[name] if width[name] > 0 else 0.0)
        return apart

    def same(x: Any, y: Any) -> bool:
        return x == y or (pd.isna(x) and pd.isna(y))

    def binned(x: Any, name: str) -> Any:
        if pd.isna(x) or name not in numeric:
            return None if pd.isna(x) else x
        at = int(np.searchsorted(edges[name], x, side="right"))
        return 16 if x == edges[name][-1] else at

    rows = [row for _, row in train.iterrows()]
    wanted = [row for row in rows if row["pay"] >= 50]
    columns = list(combinations(train.columns, 2))
    pairs = {(a, b, binned(row[a], a), binned(row[b], b)) for row in rows for a, b in columns}
    found = []
    for (_, q), (_, c) in zip(queries.iterrows(), answers.iterrows(), strict=True):
        near = sorted(sum(parts(c, row)) for row in wanted)[:5]
        people = sum(same(c["age"], row["age"]) and same(c["city"], row["city"]) for row in rows)
        found.append(
            {
                "flipping_ratio": c["pay"] >= 50,
                "l1": sum(parts(q, c)),
                "euclidean": sum(part**2 for part in parts(q, c)) ** 0.5,
                "features_changed": sum(not same(q[name], c[name]) for name in train.columns),
                "nn1": near[0] if near else np.nan,
                "nn5": np.mean(near) if near else np.nan,
                "unseen_pair": any(
                    (a, b, binned(c[a], a), binned(c[b], b)) not in pairs for a, b in columns
                ),
                "copies": any(
                    all(same(c[name], row[name]) for name in train.columns) for row in rows
                ),
                "singled_out": people == 1,
            }
        )
    return dict(pd.DataFrame(found, dtype=float).mean(skipna=False))


ROW = st.tuples(
    st.one_of(st.none(), st.integers(20, 25)),
    st.one_of(st.none(), st.sampled_from("AB")),
    st.sampled_from([10.0, 50.0, 55.5]),
    st.one_of(st.none(), st.floats(-2, 2, width=16)),
)


def table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["age", "city", "pay", "debt"], dtype=object)
    return frame.astype({"age": float, "pay": float, "debt": float})


@settings(max_examples=50)
@given(
    st.lists(ROW, min_size=1, max_size=12), st.lists(st.tuples(ROW, ROW), min_size=1, max_size=4)
)
def test_every_figure_is_what_the_definition_says(rows: list[Any], asked: list[Any]) -> None:
    train, queries, answers = (
        table(rows),
        table([q for q, _ in asked]),
        table([c for _, c in asked]),
    )
    if train["age"].isna().all() or train["city"].isna().all():
        return
    found = utility(queries, answers, population(train), model=rich, desired="yes")
    for name, value in by_definition(queries, answers, train).items():
        np.testing.assert_allclose(getattr(found, name).value, value, atol=1e-9, err_msg=name)


def test_order_index_dtype_and_further_columns_change_nothing() -> None:
    random = np.random.default_rng(1)
    train, queries, answers = (random_rows(n, random) for n in (200, 30, 30))
    answers.iloc[:10] = train.iloc[:10]
    answers["pay"] = answers["pay"].round(2)
    expected = measured(answers, queries=queries, population=population(train), holdout=train)
    assert (
        measured(answers, queries=queries, population=population(train), holdout=train) == expected
    )
    shuffled = train.sample(frac=1, random_state=2)
    spelled = answers[["debt", "city", "pay", "age"]].assign(
        label="yes", city=answers["city"].astype("category")
    )
    spelled = spelled.astype({"age": float}).set_index(np.arange(100, 130))
    again = measured(
        spelled, queries=queries.astype(object), population=population(shuffled), holdout=shuffled
    )
    for name in FIGURES:
        assert getattr(again, name).value == pytest.approx(
            getattr(expected, name).value, abs=1e-12
        ), name
    assert again.above_chance == expected.above_chance
    narrow = answers.astype({"pay": "float32", "debt": "float32"})
    single = measured(narrow, queries=queries, population=population(train))
    assert (single.copies, single.features_changed.value) == (
        expected.copies,
        expected.features_changed.value,
    )


def test_bools_dates_and_levels() -> None:
    train = pd.DataFrame(
        {
            "age": [1, 2, 3],
            "city": list("ABC"),
            "since": pd.to_datetime(["2020-01-01", "2020-01-05", "2020-01-11"]),
            "school": ["low", "mid", "high"],
            "owner": [True, False, True],
        }
    )
    whole = population(train, ordinal={"school": ["low", "mid", "high"]})
    answers = train.assign(
        since=["2020-01-02", "2020-01-05", "2020-01-11"], school=["high", "mid", "high"]
    )
    found = utility(train, answers, whole, model=lambda rows: rows["owner"], desired=True)
    assert found.l1.value == pytest.approx((0.1 + 1) / 3)  # a level is equal or different
    assert (found.features_changed.value, found.copies.value) == pytest.approx((2 / 3, 2 / 3))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"counterfactuals": ANSWERS.drop(columns="pay")},
            InputError,
            "counterfactuals: missing columns .'pay'.",
        ),
        ({"queries": QUERIES.head(0)}, InputError, "queries must have at least one row"),
        ({"queries": [1]}, InputError, "queries must be a table"),
        ({"holdout": TRAIN.drop(columns="city")}, InputError, "holdout: missing columns .'city'."),
        (
            {"counterfactuals": ANSWERS.assign(pay="20 to 30")},
            InputError,
            "counterfactuals: pay must hold finite",
        ),
        ({"counterfactuals": ANSWERS.assign(age=np.inf)}, InputError, "age must hold finite"),
        (
            {"counterfactuals": ANSWERS.head(2)},
            InputError,
            "2 counterfactuals for 3 queries; say with answered=",
        ),
        ({"answered": [0, 1]}, InputError, "answered must be 3 whole numbers"),
        ({"answered": [True, True, True]}, InputError, "answered must be 3 whole numbers"),
        ({"answered": [0, 1, 3]}, InputError, "from 0 to 2"),
        ({"answered": [-1, 0, 1]}, InputError, "from 0 to 2"),
        ({"answered": [0, 1, 1]}, InputError, "several counterfactuals"),
        ({"desired": None}, ModelError, "`desired` must be"),
        ({"model": 3}, ModelError, "predict method"),
        ({"model": lambda rows: 1 / 0}, ModelError, "raised ZeroDivisionError"),
    ],
)
def test_wrong_input_is_said_clearly(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        measured(**changes)
    assert "20 to 30" not in str(caught.value)


def test_a_sealed_population_has_no_rows_to_compare_with(tmp_path: Any) -> None:
    population().seal(tmp_path / "sealed")
    with pytest.raises(PopulationError, match="no rows"):
        measured(population=Population.open(tmp_path / "sealed"))


def test_the_result_is_frozen_and_holds_no_value_of_a_row() -> None:
    train, answers, queries = (
        t.assign(city="canary-" + t["city"]) for t in (TRAIN, ANSWERS, QUERIES)
    )
    found = measured(answers, queries=queries, population=population(train), holdout=train)
    assert "canary" not in repr(found) + json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(FrozenInstanceError):
        found.queries = 4  # type: ignore[misc]
