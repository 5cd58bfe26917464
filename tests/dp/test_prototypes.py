"""DPPrototypes: settings, answers, budgets, certificates, and that no row of the table is kept."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    BudgetAccountant,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrototypeCounterfactual,
    Schema,
    Suppressed,
    protect,
)
from cfk_plugin.errors import (
    AdapterError,
    BudgetError,
    InputError,
    ModelError,
    NotFittedError,
    PolicyError,
    PopulationError,
    PrivacyLeakWarning,
    SchemaError,
)

pytest.importorskip("opendp", reason="the extra [dp] is not installed")
TOWNS = ["Antwerp", "Ghent", "Namur"]
CANARY = 77_777


def patients(n: int = 600, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.integers(20, 80, n)
    pay = (age * 20 + random.integers(0, 3000, n)).astype(int)
    return pd.DataFrame({"age": age, "town": random.choice(TOWNS, n), "pay": pay, "member": random.random(n) < 0.3})


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] > 2500, "yes", "no")


def population(train: pd.DataFrame | None = None, **changes: Any) -> Population:
    train = patients() if train is None else train
    declared: dict[str, Any] = {
        "quasi_identifiers": ["age", "town"],
        "bounds": {"age": (18, 90), "pay": (0, 5000)},
        "categories": {"town": TOWNS, "member": [True, False]},
        "nullable": [],
        "whole": ["age", "pay"],
    }
    return Population.from_frame(train, Schema.from_frame(train, **{**declared, **changes}), key=b"tests")


def fitted(epsilon: float = 2.0, *, desired: Any = "yes", model: Any = rich, **settings: Any) -> DPPrototypes:
    return DPPrototypes(epsilon, **{"rows": 3000, **settings}).fit(population(), model, desired)


def queries() -> pd.DataFrame:
    found = patients(40, seed=1)
    return found[rich(found) == "no"].head(10).reset_index(drop=True)


def test_every_answer_has_the_desired_outcome_and_the_columns_types() -> None:
    rows, answered = fitted().generate(queries())
    assert answered.all()
    assert (rich(rows) == "yes").all()
    assert rows.dtypes.tolist() == patients().dtypes.tolist()
    assert rows["age"].between(18, 90).all()


def test_the_answer_is_the_nearest_row_when_plausibility_is_not_weighed() -> None:
    one = fitted(plausibility=0.0)
    rows, _ = one.generate(queries())
    served = one.served_.frame[one.served_.labels == "yes"]
    for (_, query), (_, answer) in zip(queries().iterrows(), rows.iterrows(), strict=True):
        away = (served["age"] - query["age"]).abs() / 72 + (served["pay"] - query["pay"]).abs() / 5000
        away += (served["town"] != query["town"]).astype(int) + (served["member"] != query["member"]).astype(int)
        own = abs(answer["age"] - query["age"]) / 72 + abs(answer["pay"] - query["pay"]) / 5000
        own += (answer["town"] != query["town"]) + (answer["member"] != query["member"])
        assert own == pytest.approx(away.min())


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_weighing_plausibility_gives_likelier_rows_that_are_farther_away() -> None:
    near, likely = (fitted(plausibility=weight, seed=3) for weight in (0.0, 2.0))
    at = [one.served_.nearest(queries(), one.goal_, None) for one in (near, likely)]
    cost = likely.served_.cost
    assert cost[at[1]].mean() < cost[at[0]].mean()


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_seeded_fits_repeat_and_unseeded_ones_do_not() -> None:
    one, two = (fitted(seed=5).generate(queries())[0] for _ in range(2))
    pd.testing.assert_frame_equal(one, two)
    free, other = (fitted().generate(queries())[0] for _ in range(2))
    assert not free.equals(other)


def test_opposite_means_another_outcome_than_the_querys_own() -> None:
    asked = patients(60, seed=2)
    rows, answered = fitted(desired="opposite").generate(asked)
    assert answered.all()
    assert (rich(rows) != rich(asked)).all()


def test_a_callable_goal_is_met() -> None:
    one = fitted(model=lambda rows: rows["pay"] / 1000, desired=lambda pay: pay > 2.5)
    assert (one.generate(queries())[0]["pay"] > 2500).all()


def test_where_no_row_has_the_outcome_answers_are_suppressed() -> None:
    result = fitted(desired=lambda labels: np.zeros(len(labels), dtype=bool)).explain(queries())
    assert {entry.reason for entry in result if isinstance(entry, Suppressed)} == {"none_found"}
    assert len(result) == len(queries())


def test_a_model_that_fails_on_queries_suppresses_all() -> None:
    calls = []

    def moody(rows: pd.DataFrame) -> np.ndarray:
        calls.append(len(rows))
        if len(calls) > 1:
            raise ValueError(str(rows.to_numpy()))
        return rich(rows)

    result = fitted(model=moody, desired="opposite").explain(queries())
    assert {entry.reason for entry in result if isinstance(entry, Suppressed)} == {"model_failed"}


def test_entries_carry_values_and_the_certificate_of_the_fit() -> None:
    one = fitted(model_access="public")
    result = one.explain(queries())
    assert all(isinstance(entry, PrototypeCounterfactual) for entry in result)
    entry = result[0]
    assert entry.certificate is one.certificate_
    assert set(entry.values) == {"age", "town", "pay", "member"}
    assert type(entry.values["age"]) is int
    assert one.certificate_.guarantee == "pure"
    assert one.certificate_.total == (2.0, 0.0)
    assert "OpenDP" in one.certificate_.mechanism
    assert entry.text(queries().iloc[0]).startswith("If you ")


@pytest.mark.parametrize(
    ("settings", "guarantee", "total"),
    [
        ({"model_access": "private"}, "pure", None),
        ({"model_access": "public", "delta": 1e-6}, "approximate", (2.0, 1e-6)),
        ({"model_access": "dp", "model_epsilon": 3.0}, "pure", (5.0, 0.0)),
        ({"model_access": "dp", "model_epsilon": 3.0, "model_delta": 1e-5, "people": 600}, "pure", (5.0, 1e-5)),
    ],
)
def test_certificates_say_what_the_model_adds(settings: dict[str, Any], guarantee: str, total: Any) -> None:
    certificate = fitted(**settings).certificate_
    assert certificate.guarantee == guarantee
    assert certificate.total == (None if total is None else pytest.approx(total, rel=1e-6))


def test_nothing_is_guaranteed_when_seeded_or_with_domains_from_rows() -> None:
    with pytest.warns(PrivacyLeakWarning, match="seeded"):
        seeded = fitted(seed=1, model_access="public")
    assert (seeded.certificate_.guarantee, seeded.certificate_.total) == ("none", None)
    from cfk_plugin.dp import infer_domains

    train = patients()
    bare = Schema.from_frame(train, quasi_identifiers=["age", "town"], nullable=[])
    with pytest.warns(PrivacyLeakWarning):
        schema = infer_domains(train, bare)
    with pytest.warns(PrivacyLeakWarning, match="were read from the rows"):
        one = DPPrototypes(rows=500).fit(Population.from_frame(train, schema), rich, "yes")
    assert one.certificate_.guarantee == "none"
    assert set(one.certificate_.inferred) == set(train.columns)


def test_an_undeclared_domain_is_refused() -> None:
    with pytest.raises(SchemaError, match="'town' lacks categories"):
        DPPrototypes().fit(population(categories={"member": [True, False]}), rich, "yes")


def test_prototypes_are_a_few_rows_of_each_outcome() -> None:
    one = fitted(serve="prototypes", prototypes=8, desired="opposite")
    assert all(1 <= (one.served_.labels == label).sum() <= 8 for label in ("yes", "no"))
    rows, answered = one.generate(patients(50, seed=4))
    assert answered.all()
    assert len(rows.drop_duplicates()) <= 16


def test_reverting_warns_and_brings_answers_nearer_with_the_outcome_kept() -> None:
    asked = queries()
    with pytest.warns(PrivacyLeakWarning, match="tell more of the model"):
        one = fitted(revert=True, desired="yes")
    rows, _ = one.generate(asked)
    assert (rich(rows) == "yes").all()
    assert (rows[["age", "town", "member"]] == asked[["age", "town", "member"]]).all(axis=None)
    assert (rows["pay"] != asked["pay"]).all()
    assert one.certificate_.reverted


def test_budgets_are_spent_at_every_fit_and_refused_before_a_row_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    accountant, people = BudgetAccountant(epsilon=3), population()
    for _ in range(2):
        DPPrototypes(1.5, rows=100, accountant=accountant).fit(people, rich, "yes")
    assert accountant.remaining(people).epsilon == 0

    def touched(*_: object) -> None:
        raise AssertionError("a row was touched")

    monkeypatch.setattr("cfk_plugin.dp.domain.PublicDomain.codes", touched)
    with pytest.raises(BudgetError):
        DPPrototypes(0.1, rows=100, accountant=accountant).fit(people, rich, "yes")
    with accountant, pytest.raises(BudgetError):
        DPPrototypes(0.1, rows=100).fit(people, rich, "yes")


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_a_seeded_fit_spends_nothing_as_it_guarantees_nothing() -> None:
    accountant, people = BudgetAccountant(epsilon=1), population()
    DPPrototypes(5.0, rows=100, accountant=accountant, seed=0).fit(people, rich, "yes")
    assert accountant.remaining(people).epsilon == 1


def test_rows_of_one_person_are_limited_and_noise_grows_with_the_limit() -> None:
    train = patients(200).assign(person=np.repeat(np.arange(50), 4))
    people = population(train, subject="person")
    assert people.limited_rows(1).tolist() == list(range(0, 200, 4))
    assert len(people.limited_rows(3)) == 150
    one, three = (DPPrototypes(50.0, rows=100, rows_per_person=r).fit(people, rich, "yes") for r in (1, 3))
    assert one.forest_.people == pytest.approx(50, abs=10)
    assert three.forest_.people == pytest.approx(150, abs=20)
    assert "up to 3 rows" in three.certificate_.unit


def test_values_that_are_not_declared_leave_their_row_out() -> None:
    train = patients(300)
    train.loc[:99, "town"] = "Elsewhere"
    one = DPPrototypes(1e4, rows=2000).fit(population(train), rich, "yes")
    assert one.forest_.people == pytest.approx(200, abs=3)
    assert set(one.served_.frame["town"]) <= set(TOWNS)


def test_a_surrogate_learns_from_the_rows_and_the_private_model_is_never_asked() -> None:
    train = patients(3000)
    train = train.assign(outcome=rich(train))
    people = population(
        train, target="outcome", categories={"town": TOWNS, "member": [True, False], "outcome": ["yes", "no"]}
    )
    tree = DecisionTreeClassifier(max_depth=3)

    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    surrogate = make_pipeline(ColumnTransformer([("keep", "passthrough", ["age", "pay"])]), tree)
    one = DPPrototypes(5.0, rows=5000, model_access="surrogate").fit(people, surrogate, "yes")
    rows, answered = one.generate(queries())
    assert answered.all()
    assert (rich(rows) == "yes").mean() > 0.5
    assert "outcome" not in one.served_.frame
    assert one.certificate_.total is not None
    with pytest.raises(ModelError, match="surrogate cannot be fitted"):
        DPPrototypes(rows=100, model_access="surrogate").fit(people, rich, "yes")
    with pytest.raises(SchemaError, match="label column"):
        DPPrototypes(rows=100, model_access="surrogate").fit(population(), tree, "yes")


def test_what_is_fitted_holds_no_row_of_the_table_and_can_be_pickled() -> None:
    train = patients()
    train.loc[0, "pay"] = CANARY
    people = population(train, bounds={"age": (18, 90), "pay": (0, 5000)})
    one = DPPrototypes(1.0, rows=500, accountant=BudgetAccountant(epsilon=1)).fit(people, rich, "yes")
    content = pickle.dumps(one)
    again = pickle.loads(content)
    assert again.explain(queries()) == one.explain(queries())
    assert (again.served_.frame["pay"] <= 5000).all()
    frames: list[pd.DataFrame] = []

    class Finder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            assert "population" not in module
            assert "oracle" not in module
            found = super().find_class(module, name)
            if found is pd.DataFrame:
                frames.append(found)
            return found

    Finder(io.BytesIO(content)).load()
    assert len(frames) <= 1
    assert people.fingerprint.encode() not in content


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"rows": 0}, "rows"),
        ({"rows_per_person": 1.5}, "rows_per_person"),
        ({"serve": "anything"}, "serve"),
        ({"plausibility": -1}, "plausibility"),
        ({"model_access": "open"}, "model_access"),
        ({"model_access": "dp"}, "model_epsilon"),
        ({"model_epsilon": 1.0}, "model_epsilon"),
        ({"model_delta": 1e-6}, "model_delta"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        DPPrototypes(**settings).fit(population(), rich, "yes")


def test_wrong_input_is_refused() -> None:
    with pytest.raises(NotFittedError):
        DPPrototypes().explain(queries())
    with pytest.raises(InputError, match="Population"):
        DPPrototypes().fit(patients(), rich, "yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="missing columns"):
        fitted().explain(queries().drop(columns="pay"))
    tree = DecisionTreeClassifier().fit(patients()[["age", "pay"]], rich(patients()))
    with pytest.raises(ModelError, match="not one of the model's classes"):
        fitted(model=tree, desired="maybe")


def test_a_population_without_rows_here_is_refused(tmp_path: Any) -> None:
    people = population()
    people.seal(tmp_path / "p.cfk")
    with pytest.raises(PopulationError, match="none here"):
        DPPrototypes().fit(Population.open(tmp_path / "p.cfk", key=b"tests"), rich, "yes")


def test_protect_replaces_an_explainer_without_asking_it() -> None:
    def leaks(asked: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError("the explainer was asked")

    private = protect(leaks, model=rich, population=population(), desired="yes", method=DPPrototypes(rows=500))
    assert {entry.status for entry in private(queries())} == {"released"}
    assert "DPPrototypes" in repr(private)
    with pytest.raises(InputError, match="leave out total_CFs"):
        private.explain(queries(), total_CFs=3)


def test_an_explainers_own_methods_are_refused() -> None:
    class Explainer:
        def explain(self, asked: pd.DataFrame) -> pd.DataFrame:
            raise AssertionError("the explainer was asked")

        def generate_counterfactuals(self, asked: pd.DataFrame) -> pd.DataFrame:
            raise AssertionError("the explainer was asked")

    private = protect(Explainer(), model=rich, population=population(), desired="yes", method=DPPrototypes(rows=500))
    assert len(private.explain(queries())) == len(queries())
    with pytest.raises(AdapterError, match=r"use explain\(\)"):
        private.generate_counterfactuals(queries())


def test_what_is_about_k_is_refused() -> None:
    with pytest.raises(PolicyError, match="promise no k"):
        protect(rich, model=rich, population=population(), desired="yes", method="dp", policy=PrivacyPolicy(k=5))


@pytest.mark.parametrize("method", ["dp", "dpc"])
def test_an_anonymizer_says_where_prototypes_are(method: str) -> None:
    with pytest.raises(InputError, match="use DPPrototypes"), warnings.catch_warnings(action="ignore"):
        KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="nominal"), method=method).fit(population(), rich, "yes")


def test_what_is_set_after_a_fit_changes_no_answer_and_no_claim() -> None:
    one = fitted(model_access="public")
    before = one.generate(queries())[0]
    one.revert = True
    pd.testing.assert_frame_equal(one.generate(queries())[0], before)
    one.epsilon = 0.01
    with pytest.raises(InputError):
        one.explain(queries())
