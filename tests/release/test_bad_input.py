"""Input that must end well: a clear error before anything is released, or `Suppressed` with its reason."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, Suppressed, protect
from cfk_plugin.errors import (
    AdapterError,
    CFKError,
    InfeasibleError,
    InputError,
    ModelError,
    NominalGuaranteeWarning,
    NotFittedError,
    PolicyError,
    PopulationError,
    SchemaError,
)
from cfk_plugin.release.explanations import Explanations

QUASI = ["age", "height", "city"]
CITIES = ["Antwerp", "Bruges", "Ghent", "Namur"]


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": 81_001 + 13 * rng.permutation(n),
            "height": (1.5037 + rng.permutation(n) / 1e3).round(4),
            "city": rng.choice(CITIES, n),
            "pay": rng.integers(20, 90, n),
            "rate": rng.normal(5, 1, n).round(3),
        }
    )


TRAIN = table()
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
RAW = TRAIN[TRAIN["pay"] > 40].head(4).reset_index(drop=True)
POLICY = PrivacyPolicy(guarantee="nominal", k=4)


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


def fitted(
    answer: Callable[[pd.DataFrame], Any] = model, desired: Any = 1, population: Population = POPULATION
) -> KAnonymizer:
    return KAnonymizer(policy=POLICY).fit(population, model=answer, desired=desired)


def shows_a_row(text: str, rows: pd.DataFrame = TRAIN) -> bool:
    return any(str(value) in text for name in ("age", "height") for value in rows[name])


def reasons(explanations: Explanations) -> list[str | None]:
    return [entry.reason if isinstance(entry, Suppressed) else None for entry in explanations]


# --- columns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "roles",
    [
        {"quasi_identifiers": ["age", "zip"]},
        {"quasi_identifiers": ["age"], "sensitive": ["zip"]},
        {"quasi_identifiers": ["age"], "identifiers": ["zip"]},
        {"quasi_identifiers": ["age"], "subject": "zip"},
        {"quasi_identifiers": ["age"], "target": "zip"},
        {"quasi_identifiers": ["age"], "ordinal": {"zip": ["a"]}},
        {"quasi_identifiers": ["age"], "nominal": ["zip"]},
        {"quasi_identifiers": ["age"], "hierarchies": {"zip": {}}},
        {"quasi_identifiers": ["age"], "weights": {"zip": 1.0}},
        {"quasi_identifiers": ["age"], "bounds": {"zip": (0, 1)}},
    ],
)
def test_unknown_column_is_named(roles: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="zip"):
        Schema.from_frame(TRAIN, **roles)


def test_duplicate_columns() -> None:
    doubled = TRAIN[[*TRAIN.columns, "age"]]
    with pytest.raises(SchemaError, match="same name"):
        Schema.from_frame(doubled, quasi_identifiers=["age"])
    with pytest.raises(PopulationError, match="duplicate columns"):
        Population.from_frame(doubled, SCHEMA)
    with pytest.raises(SchemaError, match="'age' is quasi-identifier and"):
        Schema.from_frame(TRAIN, quasi_identifiers=["age", "age"])
    with pytest.raises(SchemaError, match="one role"):
        Schema.from_frame(TRAIN, quasi_identifiers=["age"], sensitive=["age"])
    with pytest.raises(InputError, match=r"duplicate columns \['age'\]"):
        fitted().transform(RAW[[*RAW.columns, "age"]])


def test_turned_table_does_not_quote_its_values_as_column_names() -> None:
    turned = RAW.set_index(pd.Index([str(RAW["age"][0])] * len(RAW))).T
    with pytest.raises(InputError) as caught:
        fitted().transform(turned)
    assert not shows_a_row(str(caught.value))


@pytest.mark.usefixtures("each_guarantee")
def test_missing_feature_and_further_columns() -> None:
    with pytest.raises(InputError, match=r"missing columns \['city'\]"):
        fitted().transform(RAW.drop(columns="city"))
    with pytest.raises(PopulationError, match="city"):
        Population.from_frame(TRAIN.drop(columns="city"), SCHEMA)
    plain = fitted().transform(RAW)
    assert fitted().transform(RAW[RAW.columns[::-1]].assign(label=1, name="somebody")) == plain


@pytest.mark.parametrize("empty", [RAW.head(0), pd.DataFrame(), pd.DataFrame(index=[0, 1])])
def test_empty_frame(empty: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="at least one row"):
        fitted().transform(empty)
    with pytest.raises(SchemaError, match="at least one row"):
        Schema.from_frame(empty, quasi_identifiers=[])
    with pytest.raises(PopulationError, match="at least one row"):
        Population.from_frame(empty, SCHEMA)


@pytest.mark.parametrize("other", [None, 7, "age", [1, 2], {"age": 1}, np.zeros((2, 5))])
def test_no_table(other: Any) -> None:
    with pytest.raises(InputError, match="must be a pandas DataFrame"):
        fitted().transform(other)
    with pytest.raises(InputError, match="must be a pandas DataFrame"):
        fitted().transform(RAW, factuals=other if other is not None else 0)
    with pytest.raises(InputError, match="Population"):
        KAnonymizer().fit(other, model=model, desired=1)


def test_factuals_must_be_one_each() -> None:
    with pytest.raises(InputError, match="2 factuals for 4"):
        fitted(desired="opposite").transform(RAW, factuals=RAW.head(2))


def test_before_fit() -> None:
    with pytest.raises(NotFittedError, match="fit"):
        KAnonymizer().transform(RAW)


# --- k ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 0, -3, "ten", 2.5, None, True, float("nan"), [10]])
def test_k_out_of_range(k: Any) -> None:
    with pytest.raises(PolicyError, match="k must be a whole number >= 2"):
        PrivacyPolicy(k=k)


@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal", "catalogue"])
def test_k_above_the_population(guarantee: Any) -> None:
    for k in (10**9, 10**30, len(TRAIN) + 1):
        with pytest.raises(PolicyError, match="above the number of people, 80"):
            KAnonymizer(policy=PrivacyPolicy(guarantee=guarantee, k=k)).fit(POPULATION, model=model, desired=1)
    policy = PrivacyPolicy(guarantee=guarantee, k=len(TRAIN), objective="ncp")
    everybody = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1).transform(RAW)
    if guarantee == "catalogue":  # only those with the desired outcome count, and they are fewer
        assert reasons(everybody) == ["infeasible"] * len(RAW)
    else:
        assert [entry.certificate.k for entry in everybody.released] == [len(TRAIN)] * len(RAW)


@pytest.mark.parametrize(
    "setting",
    [
        {"guarantee": "absolute"},
        {"objective": "best"},
        {"on_infeasible": "guess"},
        {"min_pureness": 1.5},
        {"max_ncp": -0.1},
        {"max_ncp": float("nan")},
        {"t": "low"},
        {"l": 0},
        {"near_native": 2},
        {"pureness_weight": float("inf")},
    ],
)
def test_policy_settings_out_of_range(setting: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(setting))):
        PrivacyPolicy(**setting)


@pytest.mark.usefixtures("each_guarantee")
def test_diversity_needs_sensitive_attributes() -> None:
    with pytest.raises(PolicyError, match="sensitive"):
        KAnonymizer(policy=replace(POLICY, l=2)).fit(POPULATION, model=model, desired=1)


def test_unknown_method() -> None:
    for method in ("safest", None, 7):
        with pytest.raises(InputError, match="method"):
            KAnonymizer(policy=POLICY, method=method).fit(POPULATION, model=model, desired=1)  # type: ignore[arg-type]


# --- strange quasi-identifiers ---------------------------------------------------------------------------------


def protect_table(train: pd.DataFrame, quasi: list[str], **schema: Any) -> Explanations:
    described = Schema.from_frame(train, quasi_identifiers=quasi, **schema)
    anonymizer = fitted(population=Population.from_frame(train, described))
    return anonymizer.transform(train[train["pay"] > 40].head(3))


@pytest.mark.parametrize("constant", [7, 7.5, "same", True, pd.Timestamp("2020-01-01")])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.usefixtures("each_guarantee")
def test_constant_quasi_identifier(constant: Any, alone: bool) -> None:
    result = protect_table(TRAIN.assign(constant=constant), ["constant"] if alone else ["age", "constant"])
    assert len(result.released) == 3
    for entry in result.released:
        assert entry.region.contains(
            {"age": 0, "constant": constant} if alone else _middle(entry) | {"constant": constant}
        )
        assert entry.certificate.ncp < 1
        assert entry.certificate.k == len(TRAIN) if alone else entry.certificate.k >= 4


def _middle(entry: Any) -> dict[str, Any]:
    return {"age": entry.region["age"].low}


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.NaT])
@pytest.mark.usefixtures("each_guarantee")
def test_quasi_identifier_without_any_value(missing: Any) -> None:
    with pytest.raises(SchemaError, match="'nothing' has no value at all"):
        Schema.from_frame(TRAIN.assign(nothing=missing), quasi_identifiers=["age", "nothing"])
    empty = TRAIN.assign(height=np.nan)
    try:
        Population.from_frame(empty, SCHEMA)  # a schema of another table
    except CFKError:
        return
    result = fitted(population=Population.from_frame(empty, SCHEMA)).transform(RAW.assign(height=np.nan))
    assert all(entry.certificate.k >= 4 for entry in result.released)


def test_quasi_identifier_of_a_hundred_thousand_texts() -> None:
    n = 100_000
    rng = np.random.default_rng(0)
    texts = np.char.add("code-", np.arange(n).astype(str))
    train = pd.DataFrame({"code": texts, "age": rng.integers(18, 90, n), "pay": rng.integers(20, 90, n)})
    result = protect_table(train, ["code", "age"])
    assert len(result) == 3
    for entry in result.released:
        assert len(entry.region["code"]) >= 4  # type: ignore[arg-type]
        inside = train["code"].isin(entry.region["code"]) & train["age"].between(  # type: ignore[arg-type]
            entry.region["age"].low,
            entry.region["age"].high,  # type: ignore[union-attr]
        )
        assert inside.sum() == entry.certificate.k >= 4


def test_infinite_training_value() -> None:
    for bad in (np.inf, -np.inf):
        with pytest.raises(PopulationError, match="'height'") as caught:
            Population.from_frame(TRAIN.assign(height=[bad, *TRAIN["height"][1:]]), SCHEMA)
        assert not shows_a_row(str(caught.value))


# --- bad values in counterfactuals -----------------------------------------------------------------------------

BAD_VALUES = [
    ("age", np.nan, "missing_value"),
    ("age", None, "missing_value"),
    ("age", pd.NA, "missing_value"),
    ("height", np.nan, "missing_value"),
    ("city", None, "missing_value"),
    ("pay", np.nan, "missing_value"),
    ("rate", None, "missing_value"),
    ("age", np.inf, "invalid_value"),
    ("height", -np.inf, "invalid_value"),
    ("rate", np.inf, "invalid_value"),
    ("age", "eighty", "invalid_value"),
    ("rate", "", "invalid_value"),
    ("rate", "1,5", "invalid_value"),
    ("city", "Atlantis", "unknown_category"),
    ("city", 4711, "unknown_category"),
    ("city", "antwerp ", "unknown_category"),
    ("city", "", "unknown_category"),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD_VALUES)
@pytest.mark.parametrize("answer", [model, DecisionTreeClassifier(max_depth=3)], ids=["function", "estimator"])
@pytest.mark.usefixtures("each_guarantee")
def test_bad_value_costs_its_own_row_alone(name: str, value: Any, reason: str, answer: Any) -> None:
    if isinstance(answer, DecisionTreeClassifier):
        numeric = ["age", "height", "pay", "rate"]
        tree = answer.fit(TRAIN[numeric].astype(float), model(TRAIN))

        def answer(rows: pd.DataFrame) -> Any:
            return tree.predict(rows[numeric])

    good = fitted(answer).transform(RAW)
    assert len(good.released) == len(RAW)
    bad = RAW.astype({name: object})
    bad.loc[1, name] = value
    result = fitted(answer).transform(bad)
    assert reasons(result) == [None, reason, None, None]
    assert result[1].columns == (name,)  # type: ignore[union-attr]
    assert [e for i, e in enumerate(result) if i != 1] == [e for i, e in enumerate(good) if i != 1]
    assert not shows_a_row(repr(result[1]) + str(result[1].to_dict()) + result[1].text(RAW.iloc[1].to_dict()))


@pytest.mark.usefixtures("each_guarantee")
def test_every_value_bad() -> None:
    result = fitted().transform(RAW.assign(age=np.inf, city="Atlantis"))
    assert reasons(result) == ["invalid_value"] * len(RAW)


@pytest.mark.usefixtures("each_guarantee")
def test_declared_bounds() -> None:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI, bounds={"age": (81_000, 99_000), "rate": (0, 100)})
    anonymizer = fitted(population=Population.from_frame(TRAIN, schema))
    changed = RAW.astype({"age": float})
    changed.loc[0, "age"], changed.loc[1, "age"] = 80_999.5, 99_000.0
    changed.loc[2, "rate"] = -1.0
    assert reasons(anonymizer.transform(changed)) == ["outside_domain", None, "outside_domain", None]


@pytest.mark.usefixtures("each_guarantee")
def test_missing_values_where_the_population_has_them() -> None:
    train = TRAIN.astype({"city": object})
    train.loc[::7, ["age"]] = np.nan
    train.loc[::5, ["city"]] = None
    schema = Schema.from_frame(train, quasi_identifiers=QUASI)
    result = fitted(population=Population.from_frame(train, schema)).transform(train[train["pay"] > 40].head(12))
    assert len(result.released) == 12
    for entry in result.released:
        assert sum(entry.region.contains(row) for row in train.to_dict("records")) == entry.certificate.k >= 4
    result.to_json()


@pytest.mark.parametrize(
    "spelled",
    [
        lambda f: f.astype({"age": str}),
        lambda f: f.astype({"age": float}),
        lambda f: f.astype({"age": object}),
        lambda f: f.astype({"age": "Int64"}),
        lambda f: f.astype({"age": "string"}),
        lambda f: f.astype({"age": "category"}),
        lambda f: f.assign(age=f["age"].map("{:.1f}".format)),
        lambda f: f.astype({"pay": str, "rate": str, "height": str}),
        lambda f: f.astype({"city": "category"}),
        lambda f: f.astype(object),
        lambda f: f.astype(str),
        lambda f: f.set_index(pd.Index(["same"] * len(f))),
    ],
)
@pytest.mark.usefixtures("each_guarantee")
def test_numbers_that_arrive_as_text_and_the_like(spelled: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    seen: list[pd.Series] = []

    def watching(rows: pd.DataFrame) -> Any:
        seen.append(rows.dtypes)
        return model(rows)

    plain = fitted().transform(RAW)
    result = fitted(watching).transform(spelled(RAW))
    assert result == plain
    assert all(dtypes.equals(TRAIN.dtypes) for dtypes in seen)
    assert result.to_json() == plain.to_json()


@pytest.mark.usefixtures("each_guarantee")
def test_labels_of_an_index_do_not_matter() -> None:
    assert fitted().transform(RAW.set_index(pd.Index([9, 9, 4, 1]))) == fitted().transform(RAW)


# --- models ----------------------------------------------------------------------------------------------------


def quoting(rows: pd.DataFrame) -> Any:
    raise ValueError(f"cannot predict {rows.to_dict('records')}")


def chained(rows: pd.DataFrame) -> Any:
    try:
        quoting(rows)
    except ValueError as error:
        raise KeyError(rows["age"].iloc[0]) from error


BROKEN_MODELS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "raises": quoting,
    "raises from another": chained,
    "one label too few": lambda rows: model(rows)[:-1],
    "one label too many": lambda rows: np.append(model(rows), 1),
    "no labels": lambda rows: [],
    "None": lambda rows: None,
    "one number": lambda rows: 1,
    "a text": lambda rows: "yes",
    "probabilities of two classes": lambda rows: np.column_stack([1 - model(rows) / 3, model(rows) / 3]),
    "probabilities": lambda rows: 0.2 + model(rows) * 0.6,
    "missing labels": lambda rows: np.where(np.arange(len(rows)) == 0, np.nan, 1),
    "missing objects": lambda rows: np.where(np.arange(len(rows)) == 0, None, 1),
    "ragged": lambda rows: [[1]] * (len(rows) - 1) + [[1, 2]],
    "the rows themselves": lambda rows: rows,
}


@pytest.mark.parametrize("desired", [1, "opposite"])
@pytest.mark.parametrize("kind", BROKEN_MODELS)
@pytest.mark.usefixtures("each_guarantee")
def test_broken_model_is_refused_before_anything_is_released(kind: str, desired: Any) -> None:
    with pytest.raises(ModelError) as caught:
        fitted(BROKEN_MODELS[kind], desired)
    assert not shows_a_row(str(caught.value))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class Fragile:
    """Works for a while, then not any more."""

    def __init__(self, broken: Callable[[pd.DataFrame], Any], calls: int) -> None:
        self._broken, self.left = broken, calls

    def predict(self, rows: pd.DataFrame) -> Any:
        self.left -= 1
        return model(rows) if self.left >= 0 else self._broken(rows)


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", BROKEN_MODELS)
def test_model_that_breaks_later_gives_suppressed_entries(
    kind: str, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=Fragile(BROKEN_MODELS[kind], calls), desired=1)
    explained = result.transform(RAW)
    if calls < 4:
        assert reasons(explained) == ["model_failed"] * len(RAW)
        assert not shows_a_row(explained.to_json() + repr(list(explained)))
    assert all(entry.certificate.k >= 4 for entry in explained.released)
    assert not shows_a_row(caplog.text)


@pytest.mark.usefixtures("each_guarantee")
@pytest.mark.parametrize("kind", ["raises from another", "one label too few", "probabilities", "None"])
def test_model_that_breaks_at_any_call_gives_no_explanation(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sound = Fragile(BROKEN_MODELS[kind], 1000)
    assert len(fitted(sound.predict).transform(RAW).released) == len(RAW)
    needed = 1000 - sound.left
    assert needed >= 3
    for calls in {*range(3), *range(max(needed - 5, 0), needed)}:  # those in between only prepare the partition
        refused, anonymizer = None, None
        try:
            anonymizer = fitted(Fragile(BROKEN_MODELS[kind], calls).predict)
        except ModelError as error:
            refused = error
        if anonymizer is None:
            assert not shows_a_row(str(refused))
            assert refused is not None
            assert refused.__context__ is None
            continue
        explained = anonymizer.transform(RAW)
        assert reasons(explained) == ["model_failed"] * len(RAW)
        assert not shows_a_row(explained.to_json() + repr(list(explained)))
    assert not shows_a_row(caplog.text)


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_model_that_breaks_later_behind_an_explainer(calls: int) -> None:
    private = protect(
        lambda rows: RAW, model=Fragile(quoting, calls), population=POPULATION, policy=POLICY, desired="opposite"
    )
    explained = private.explain(TRAIN[TRAIN["pay"] <= 40].head(len(RAW)))
    assert set(reasons(explained)) <= {"model_failed", None}
    assert "model_failed" in reasons(explained) or calls == 4


def test_new_label() -> None:
    """Without known classes a label nobody asked for is not the desired one; with them it is a broken model."""
    calls = iter(range(1000))

    def moody(rows: pd.DataFrame) -> Any:
        return model(rows) if next(calls) < 1 else np.full(len(rows), 7)

    assert reasons(fitted(moody).transform(RAW)) == ["not_desired"] * len(RAW)

    class Classifier(Fragile):
        classes_ = np.array([0, 1])

    for desired in (1, "opposite"):
        with pytest.raises(ModelError, match="not one of its classes"):
            fitted(Classifier(lambda rows: np.full(len(rows), 7), 0), desired)  # type: ignore[arg-type]
        late = fitted(Classifier(lambda rows: np.full(len(rows), 7), 1), desired)  # type: ignore[arg-type]
        assert reasons(late.transform(RAW)) == ["model_failed"] * len(RAW)


@pytest.mark.parametrize("other", [None, 7, "model", object()])
def test_no_model(other: Any) -> None:
    with pytest.raises(ModelError, match="predict"):
        fitted(other)


def test_model_of_other_columns() -> None:
    regression = LinearRegression().fit(TRAIN[["age"]].rename(columns={"age": "years"}), TRAIN["pay"])
    with pytest.raises(ModelError, match="years"):
        fitted(regression, desired=lambda labels: labels > 50)


def quoting_goal(labels: Any) -> Any:
    raise ValueError(str(TRAIN["age"].tolist()))


@pytest.mark.parametrize(
    "desired",
    [
        None,
        np.nan,
        pd.NA,
        [1],
        [0, 1],
        np.array([1]),
        {"label": 1},
        {1},
        quoting_goal,
        lambda labels: labels,
        lambda labels: True,
    ],
)
@pytest.mark.usefixtures("each_guarantee")
def test_goal_that_is_none(desired: Any) -> None:
    with pytest.raises(ModelError, match="desired") as caught:
        fitted(desired=desired)
    assert not shows_a_row(str(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_label_that_the_model_does_not_have() -> None:
    tree = DecisionTreeClassifier(max_depth=2).fit(TRAIN[["age", "pay"]], model(TRAIN))
    for desired in ("1", 2, ">50K"):
        with pytest.raises(ModelError, match="not one of the model's classes"):
            fitted(tree, desired)


@pytest.mark.usefixtures("each_guarantee")
def test_undesired_counterfactual() -> None:
    mixed = pd.concat([RAW.head(2), TRAIN[TRAIN["pay"] <= 40].head(2)], ignore_index=True)
    result = fitted().transform(mixed)
    assert reasons(result) == [None, None, "not_desired", "not_desired"]
    assert not shows_a_row(result[2:].to_json() + repr(list(result[2:])), mixed[2:])
    same_label = fitted(desired="opposite").transform(RAW, factuals=RAW)
    assert reasons(same_label) == ["not_desired"] * len(RAW)


@pytest.mark.usefixtures("each_guarantee")
def test_infeasible_may_raise() -> None:
    policy = replace(POLICY, max_ncp=0.0, on_infeasible="raise")
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1)
    with pytest.raises(InfeasibleError, match="4 of 4") as caught:
        anonymizer.transform(RAW)
    assert not shows_a_row(str(caught.value))


# --- explainers ------------------------------------------------------------------------------------------------


def explain(answer: Any, queries: pd.DataFrame = RAW) -> Explanations:
    def explainer(rows: pd.DataFrame) -> Any:
        return answer(rows) if callable(answer) else answer

    private = protect(explainer, model=model, population=POPULATION, policy=POLICY, desired=1)
    result: Explanations = private.explain(queries)
    return result


@pytest.mark.parametrize("nothing", [None, [], (), pd.DataFrame(), RAW.head(0), [None] * 4, RAW.mask(RAW.notna())])
@pytest.mark.usefixtures("each_guarantee")
def test_explainer_that_finds_nothing(nothing: Any) -> None:
    assert reasons(explain(nothing)) == ["none_found"] * len(RAW)


@pytest.mark.usefixtures("each_guarantee")
def test_fewer_rows() -> None:
    assert reasons(explain(RAW.iloc[[0, 2]])) == [None, "none_found", None, "none_found"]
    assert reasons(explain(RAW.head(2).assign(query=[3, 1]))) == ["none_found", None, "none_found", None]
    with pytest.raises(AdapterError, match="2 rows for 4 queries") as caught:
        explain(RAW.head(2).set_index(pd.Index([70, 71])))
    assert not shows_a_row(str(caught.value))


@pytest.mark.usefixtures("each_guarantee")
def test_further_columns() -> None:
    result = explain(RAW.assign(label=1, name="somebody", probability=0.9))
    assert len(result.released) == len(RAW)
    assert "somebody" not in result.to_json()


@pytest.mark.usefixtures("each_guarantee")
def test_more_rows_need_to_say_what_they_answer() -> None:
    with pytest.raises(AdapterError, match="8 rows for 4 queries"):
        explain(pd.concat([RAW, RAW]))
    several = pd.concat([RAW, RAW]).assign(query=[0, 1, 2, 3] * 2)
    result = explain(several)
    assert [entry.query for entry in result] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "answer",
    [
        7,
        "rows",
        object(),
        RAW.drop(columns="age"),
        RAW.to_numpy()[:, :2],
        RAW[[*RAW.columns, "age"]],
        [{"age": 81_001}, {"city": "Ghent"}, None, None],
        [[1, 2]],
    ],
)
@pytest.mark.usefixtures("each_guarantee")
def test_unreadable_answer(answer: Any) -> None:
    with pytest.raises((AdapterError, InputError)) as caught:
        explain(answer)
    assert not shows_a_row(str(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_answer_with_bad_values() -> None:
    answer = RAW.astype({"age": object, "city": object})
    answer.loc[0, "age"] = "eighty"
    answer.loc[1, "city"] = "Atlantis"
    answer.loc[2, "age"] = np.inf
    assert reasons(explain(answer)) == ["invalid_value", "unknown_category", "invalid_value", None]


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, RecursionError, AssertionError])
@pytest.mark.usefixtures("each_guarantee")
def test_explainer_that_raises(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    def broken(rows: pd.DataFrame) -> Any:
        raise error(str(TRAIN.to_dict("records")))

    caplog.set_level(logging.DEBUG)
    result = explain(broken)
    assert reasons(result) == ["explainer_failed"] * len(RAW)
    assert error.__name__ in caplog.text
    assert not shows_a_row(caplog.text + result.to_json() + repr(list(result)))


@pytest.mark.usefixtures("each_guarantee")
def test_explainers_own_method_that_raises_is_not_quoted() -> None:
    class Broken:
        def explain(self, rows: Any) -> Any:
            return RAW

        def generate_counterfactuals(self, rows: Any) -> Any:
            raise ValueError(str(TRAIN.to_dict("records")))

    private = protect(Broken(), model=model, population=POPULATION, policy=POLICY, desired=1)
    with pytest.raises(AdapterError, match="ValueError") as caught:
        private.generate_counterfactuals(RAW)
    assert not shows_a_row(str(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("each_guarantee")
def test_queries_must_fit() -> None:
    private = protect(lambda rows: rows, model=model, population=POPULATION, policy=POLICY, desired=1)
    for bad in (RAW.drop(columns="city"), RAW.head(0), RAW[[*RAW.columns, "age"]], "row", None):
        with pytest.raises(InputError):
            private.explain(bad)


@pytest.mark.parametrize("explainer", [None, 7, "explainer", object(), pd.DataFrame])
def test_no_explainer(explainer: Any) -> None:
    with pytest.raises(AdapterError):
        protect(explainer, model=model, population=POPULATION, policy=POLICY)


def test_nothing_above_warns(each_guarantee: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if each_guarantee == "nominal":
            warnings.simplefilter("ignore", NominalGuaranteeWarning)
        bad = RAW.astype({"age": object})
        bad.loc[0, "age"] = "eighty"
        fitted().transform(bad)
