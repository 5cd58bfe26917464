"""DPPrototypes: settings, answers, budgets, certificates, and that no row of the table is kept."""

from __future__ import annotations

import io
import math
import pickle
import warnings
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    Attribute,
    BudgetAccountant,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrototypeCounterfactual,
    Schema,
    Withheld,
    protect,
)
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.dp import PublicDomain, infer_domains
from cfk_plugin.dp.answer_rows import ServedRows
from cfk_plugin.errors import (
    AdapterError,
    BudgetError,
    InputError,
    ModelError,
    PolicyError,
    PrivacyLeakWarning,
    SchemaError,
)
from cfk_plugin.metrics.heom import TIE, Heom

pytest.importorskip("opendp", reason="the extra [dp] is not installed")
TOWNS = ["Antwerp", "Ghent", "Namur"]
CANARY = 77_777
ignored = pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")


def patients(n: int = 600, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.integers(20, 80, n)
    pay = (age * 20 + random.integers(0, 3000, n)).astype(int)
    return pd.DataFrame(
        {"age": age, "town": random.choice(TOWNS, n), "pay": pay, "member": random.random(n) < 0.3}
    )


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] > 2500, "yes", "no")


COLUMNS = {
    "age": Attribute(bounds=(18, 90), whole=True),
    "pay": Attribute(bounds=(0, 5000), whole=True),
    "town": Attribute(categories=TOWNS),
    "member": Attribute(categories=[True, False]),
}


def population(
    train: pd.DataFrame | None = None, columns: dict[str, Attribute] = COLUMNS, **changes: Any
) -> Population:
    train = patients() if train is None else train
    schema = Schema.from_frame(
        train, quasi_identifiers=["age", "town"], nullable=[], columns=columns, **changes
    )
    return Population.from_frame(train, schema, key=b"tests")


PEOPLE = population()
ASKED = patients(40, seed=1)
QUERIES = ASKED[rich(ASKED) == "no"].head(10).reset_index(drop=True)


def fitted(
    epsilon: float = 2.0, *, desired: Any = "yes", model: Any = rich, **settings: Any
) -> DPPrototypes:
    return DPPrototypes(epsilon, **{"rows": 2000, **settings}).fit(PEOPLE, model, desired)


@pytest.fixture(scope="module")
def public() -> DPPrototypes:
    return fitted(model_access="public")


def reasons(result: Any) -> set[str]:
    return {entry.reason for entry in result if isinstance(entry, Withheld)}


# --- answers --------------------------------------------------------------------------------------


def test_every_answer_is_a_declared_row_with_the_desired_outcome_and_the_certificate_of_the_fit(
    public: DPPrototypes,
) -> None:
    rows, answered = public.generate(QUERIES)
    assert answered.all()
    assert (rich(rows) == "yes").all()
    assert rows.dtypes.tolist() == patients().dtypes.tolist()
    assert rows["age"].between(18, 90).all()
    result = public.explain(QUERIES)
    assert all(isinstance(entry, PrototypeCounterfactual) for entry in result)
    assert result[0].certificate is public.certificate_
    assert set(result[0].values) == {"age", "town", "pay", "member"}
    assert type(result[0].values["age"]) is int
    assert result[0].text(QUERIES.iloc[0]).startswith("The model would predict")
    assert "OpenDP" in public.certificate_.mechanism


@pytest.mark.parametrize("access", ["public", "private"])
def test_prototypes_have_round_numbers(access: Any) -> None:
    """A number is round or the person's own, and the model was asked about it as it is."""
    rows, answered = fitted(model_access=access).generate(QUERIES)
    assert answered.all()
    assert (rich(rows) == "yes").all()
    change = (rows["pay"] - QUERIES["pay"]).abs()
    large = change >= 400  # 5 % of it is at least 20
    assert large.any()
    assert (rows["pay"][large] % 10 == 0).all()


def test_the_answer_is_the_nearest_row_when_plausibility_is_not_weighed() -> None:
    one = fitted(plausibility=0.0, move_towards_query=False)
    rows, _ = one.generate(QUERIES)
    served = one.served_.frame[one.served_.labels == "yes"]

    def away(query: pd.Series, from_: Any) -> Any:
        numbers = abs(from_["age"] - query["age"]) / 72 + abs(from_["pay"] - query["pay"]) / 5000
        return (
            numbers
            + 1.0 * (from_["town"] != query["town"])
            + 1.0 * (from_["member"] != query["member"])
        )

    for (_, query), (_, answer) in zip(QUERIES.iterrows(), rows.iterrows(), strict=True):
        assert away(query, answer) == pytest.approx(away(query, served).min())


def compared_with_all(
    served: ServedRows, queries: pd.DataFrame, goal: DesiredOutcome, own: Any
) -> list[int]:
    found = []
    for i in range(len(queries)):
        rows = np.flatnonzero(
            goal.is_met(served.labels) if own is None else served.labels != own[i]
        )
        asked = served.heom.encode(queries.iloc[[i]])
        away = served.heom.distances(asked, served.codes.take(rows))[0] + served.cost[rows]
        found.append(int(rows[np.argmax(away <= away.min() + TIE)]) if len(rows) else -1)
    return found


NUMBER = st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 1.0, None])
DRAWN = st.tuples(
    NUMBER,
    NUMBER,
    st.sampled_from(["a", "b", None]),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 1e-13]),
)
QUERY = st.tuples(
    NUMBER | st.floats(-1e30, 1e30), NUMBER, st.sampled_from(["a", "c", None]), st.booleans()
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(DRAWN, min_size=1, max_size=12), st.lists(QUERY, min_size=1, max_size=4), st.randoms()
)
def test_answers_are_to_the_last_bit_those_of_comparing_with_all_rows_with_ties_in_order(
    drawn: list[Any], asked: list[Any], random: Any
) -> None:
    frame, queries = (
        pd.DataFrame([row[:4] for row in rows], columns=[*"xyct"]).astype({"x": float, "y": float})
        for rows in (drawn, asked)
    )
    labels, own = (
        np.array([random.choice("nm") for _ in rows], dtype=object) for rows in (drawn, asked)
    )
    heom = Heom(["x", "y"], ["c", "t"], {"x": random.choice([1.0, 0.3, 0.0]), "y": 7e-5})
    served = ServedRows(
        frame, labels, np.array([row[4] for row in drawn]), heom, heom.encode(frame)
    )
    for goal, factual in (
        (DesiredOutcome.of("n"), None),
        (DesiredOutcome.of(lambda found: found == "n"), None),
        (DesiredOutcome.of("opposite"), own),
    ):
        assert served.nearest(queries, goal, factual).tolist() == compared_with_all(
            served, queries, goal, factual
        )


@pytest.mark.parametrize("numeric", [0, 4, 23])
def test_so_are_those_of_many_rows_and_features_lone_or_in_batches(numeric: int) -> None:
    random = np.random.default_rng(numeric)
    values = np.hstack(
        [random.random((9000, numeric)), random.integers(0, 3, (9000, 23 - numeric))]
    ).round(1)
    frame = pd.DataFrame(values[:, random.permutation(23)], columns=[f"x{j}" for j in range(23)])
    frame["x3"] = frame["x3"].mask(random.random(9000) < 0.2)
    drawn, queries = frame.head(8900), frame.tail(100).reset_index(drop=True) * 1.1
    is_number = [name for name in frame if frame[name].nunique() > 4]
    heom = Heom(
        is_number, [name for name in frame if name not in is_number], dict.fromkeys(is_number, 0.9)
    )
    cost = random.random(8900).round(3) / 10
    served = ServedRows(
        drawn, random.choice([1, 2, 3], 8900).astype(object), cost, heom, heom.encode(drawn)
    )
    expected, own = (
        compared_with_all(served, queries, DesiredOutcome.of(2), None),
        np.arange(100) % 5,
    )
    assert served.nearest(queries, DesiredOutcome.of(2), None).tolist() == expected
    lone = [served.nearest(queries.iloc[[i]], DesiredOutcome.of(2), None)[0] for i in range(20)]
    assert lone == expected[:20]
    opposite = DesiredOutcome.of("opposite")
    assert served.nearest(queries, opposite, own).tolist() == compared_with_all(
        served, queries, opposite, own
    )


@ignored
def test_seeded_fits_repeat_and_likelier_rows_are_farther_away() -> None:
    near, again, likely = (
        fitted(plausibility=weight, random_state=3) for weight in (0.0, 0.0, 2.0)
    )
    pd.testing.assert_frame_equal(near.generate(QUERIES)[0], again.generate(QUERIES)[0])
    assert not fitted().generate(QUERIES)[0].equals(fitted().generate(QUERIES)[0])
    at = [one.served_.nearest(QUERIES, one.goal_, None) for one in (near, likely)]
    assert likely.served_.cost[at[1]].mean() < likely.served_.cost[at[0]].mean()


def test_opposite_and_callable_goals_are_met_by_a_few_rows_of_each_outcome() -> None:
    asked = patients(60, seed=2)
    one = fitted(serve="prototypes", prototypes=8, desired="opposite")
    rows, answered = one.generate(asked)
    assert answered.all()
    assert (rich(rows) != rich(asked)).all()
    assert all(1 <= (one.served_.labels == label).sum() <= 8 for label in ("yes", "no"))
    assert len(rows.drop_duplicates()) <= 16
    numbers = fitted(model=lambda rows: rows["pay"] / 1000, desired=lambda pay: pay > 2.5)
    assert (numbers.generate(QUERIES)[0]["pay"] > 2500).all()


@pytest.mark.parametrize("names", [["age", "pay"], ["town", "member"]])
def test_prototypes_are_drawn_rows_of_each_outcome_spread_over_it(names: list[str]) -> None:
    train = patients()[names]
    columns = {
        "age": Attribute(bounds=(18, 90)),
        "pay": Attribute(bounds=(0, 5000)),
        "town": Attribute(categories=TOWNS),
        "member": Attribute(categories=[True, False]),
    }
    schema = Schema.from_frame(
        train,
        quasi_identifiers=names,
        nullable=[],
        columns={name: columns[name] for name in names},
    )
    people = Population.from_frame(train, schema)
    first = names[0]
    middle = train[first].median() if first == "age" else "Antwerp"
    one = DPPrototypes(2.0, serve="prototypes", prototypes=3).fit(
        people, lambda rows: rows[first] > middle, True
    )
    assert 2 <= (one.served_.labels == True).sum() <= 3  # noqa: E712 - labels are objects
    assert one.served_.frame[names[1]].nunique() > 1


def test_where_no_row_has_the_outcome_or_the_model_fails_answers_are_withheld() -> None:
    nothing = fitted(desired=lambda labels: np.zeros(len(labels), dtype=bool)).explain(QUERIES)
    assert (reasons(nothing), len(nothing)) == ({"none_found"}, len(QUERIES))
    calls = []

    def moody(rows: pd.DataFrame) -> np.ndarray:
        calls.append(len(rows))
        if len(calls) > 1:
            raise ValueError(str(rows.to_numpy()))
        return rich(rows)

    assert reasons(fitted(model=moody, desired="opposite").explain(QUERIES)) == {"model_failed"}


# --- moves towards who asks -----------------------------------------------------------------------


def test_rows_are_moved_unless_the_model_is_private_and_then_with_a_warning_where_that_is_asked_for() -> (
    None
):
    for settings, moved in (
        ({}, False),
        ({"model_access": "public"}, True),
        ({"move_towards_query": False}, False),
    ):
        with warnings.catch_warnings(action="error", category=PrivacyLeakWarning):
            one = fitted(**{"model_access": "public", **settings} if settings else {})
        rows, _ = one.generate(QUERIES)
        assert one.certificate_.moved_towards_query == moved
        drawn = rows.merge(one.served_.frame, how="left", indicator=True)["_merge"] == "both"
        assert drawn.all() != moved
        assert ("and epsilon covers that" in one.certificate_.covers) == moved
    with pytest.warns(PrivacyLeakWarning, match="no epsilon covers"):
        one = fitted(move_towards_query=True)
    assert one.certificate_.covers.endswith("discloses more about the model")


def test_answer_is_near_the_border_without_plausibility() -> None:
    """Other values are the query's; a number is rounded outwards from within an eighth of the way."""
    one = fitted(plausibility=0.0, model_access="public")
    at = one.served_.nearest(QUERIES, one.goal_, None)
    rows, _ = one.generate(QUERIES)
    assert (rich(rows) == "yes").all()
    assert rows[["age", "town", "member"]].equals(QUERIES[["age", "town", "member"]])
    way = one.served_.frame["pay"].take(at).to_numpy() - QUERIES["pay"]
    rounding = 0.05 * (rows["pay"] - QUERIES["pay"])
    assert (rows["pay"] - 2500 <= way / 8 + rounding).all()
    assert (rows["pay"] <= QUERIES["pay"] + way).all()


def test_no_move_makes_a_row_worse_by_distance_and_plausibility_together() -> None:
    one = fitted(50.0, plausibility=0.3, model_access="public", rows=300)
    start = one.served_.frame.take(one.served_.nearest(QUERIES, one.goal_, None)).reset_index(
        drop=True
    )
    likelihood, domain = one.forest_.likelihood(), PublicDomain.of(PEOPLE)

    def loss(rows: pd.DataFrame) -> np.ndarray:
        return one.served_.heom.parts(rows, QUERIES).sum(axis=1) - 0.3 * likelihood.of(
            domain.codes(rows)
        )

    moved = one.generate(QUERIES)[0]
    assert (loss(moved) <= loss(start) + 1e-9).all()
    assert (loss(moved) < loss(start) - 1e-9).any()


@ignored
@pytest.mark.parametrize(
    ("settings", "times", "room"), [({"model_access": "public"}, 0.85, 1.15), ({}, 1.1, 0.0)]
)
@pytest.mark.parametrize("seed", range(3))
def test_plausibility_is_chosen_so_that_answers_to_drawn_rows_are_as_far_as_the_nearest_rows_and_answers_allow(
    settings: dict[str, Any], times: float, room: float, seed: int
) -> None:
    one, nearest = (
        fitted(20.0, desired="opposite", random_state=seed, plausibility=w, **settings)
        for w in (None, 0.0)
    )
    asked, other = one.served_.frame.head(100), one.served_.labels[:100, None] != one.served_.labels
    away = one.served_.heom.distances(asked, one.served_.frame) * 4

    def far(answering: DPPrototypes) -> float:
        return one.served_.heom.parts(answering.generate(asked)[0], asked).sum(axis=1).mean()

    allowed = max(times * np.where(other, away, np.inf).min(axis=1).mean(), room * far(nearest))
    # on a line between two weights that were tried, of which the true curve is none
    assert far(one) == pytest.approx(allowed, rel=0.1)
    assert 0 < one.plausibility_ <= 0.45
    assert fitted(plausibility=0.3, **settings).plausibility_ == 0.3


def test_moves_take_as_many_calls_of_the_model_for_many_queries_as_for_few_and_repeat() -> None:
    calls: list[int] = []

    def counted(rows: pd.DataFrame) -> np.ndarray:
        calls.append(len(rows))
        return rich(rows)

    one = fitted(model=counted, model_access="public")
    asked = ASKED[rich(ASKED) == "no"]
    first = {}
    for n in (1, len(asked)):
        calls.clear()
        first[n] = one.generate(asked.head(n))[0]
        assert len(calls) <= 2 * len(asked.columns)
        assert sum(calls) <= n * 8 * len(asked.columns)
    pd.testing.assert_frame_equal(first[len(asked)].head(1), first[1])


def test_own_values_that_are_not_declared_are_not_taken_over() -> None:
    asked = QUERIES.assign(town="Paris", age=np.r_[np.inf, [30.5] * (len(QUERIES) - 1)])
    rows, answered = fitted(model_access="public", plausibility=0.0).generate(asked)
    assert answered.all()
    assert rows["town"].isin(TOWNS).all()
    assert rows["age"].between(18, 90).all()
    assert rows.dtypes.tolist() == patients().dtypes.tolist()


# --- what is guaranteed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "guarantee", "total"),
    [
        ({"model_access": "public"}, "pure", (2.0, 0.0)),
        ({"model_access": "private"}, "pure", None),
        ({"model_access": "public", "delta": 1e-6}, "approximate", (2.0, 1e-6)),
        ({"model_access": "dp", "model_epsilon": 3.0}, "pure", (5.0, 0.0)),
        (
            {"model_access": "dp", "model_epsilon": 3.0, "model_delta": 1e-5, "people": 600},
            "pure",
            (5.0, 1e-5),
        ),
    ],
)
def test_certificates_say_what_the_model_adds(
    settings: dict[str, Any], guarantee: str, total: Any
) -> None:
    certificate = fitted(rows=100, **settings).certificate_
    assert certificate.guarantee == guarantee
    assert certificate.total == (None if total is None else pytest.approx(total, rel=1e-6))


def test_nothing_is_guaranteed_when_seeded_or_with_domains_from_rows() -> None:
    accountant = BudgetAccountant(epsilon=1)
    with pytest.warns(PrivacyLeakWarning, match="seeded"):
        seeded = fitted(5.0, random_state=1, rows=100, model_access="public", accountant=accountant)
    assert (seeded.certificate_.guarantee, seeded.certificate_.total) == ("none", None)
    assert accountant.remaining().epsilon == 1  # nor is anything spent
    bare = Schema.from_frame(patients(), quasi_identifiers=["age", "town"], nullable=[])
    with pytest.warns(PrivacyLeakWarning):
        schema = infer_domains(patients(), bare)
    with pytest.warns(PrivacyLeakWarning, match="were read from the rows"):
        one = DPPrototypes(rows=500).fit(Population.from_frame(patients(), schema), rich, "yes")
    assert one.certificate_.guarantee == "none"
    assert set(one.certificate_.inferred) == set(patients().columns)


def test_budgets_are_spent_at_every_fit_and_refused_before_a_row_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accountant = BudgetAccountant(epsilon=3)
    for _ in range(2):
        fitted(1.5, rows=100, accountant=accountant)
    assert accountant.remaining().epsilon == 0

    def touched(*_: object) -> None:
        raise AssertionError("a row was touched")

    monkeypatch.setattr("cfk_plugin.dp.PublicDomain.codes", touched)
    with pytest.raises(BudgetError):
        fitted(0.1, rows=100, accountant=accountant)
    with accountant, pytest.raises(BudgetError):
        fitted(0.1, rows=100)


def test_rows_of_one_person_are_limited_and_noise_grows_with_the_limit() -> None:
    train = patients(200).assign(person=np.repeat(np.arange(50), 4))
    people = population(train, subject="person")
    assert people.limited_rows(1).tolist() == list(range(0, 200, 4))
    assert len(people.limited_rows(3)) == 150
    one, three = (
        DPPrototypes(50.0, rows=100, rows_per_person=r).fit(people, rich, "yes") for r in (1, 3)
    )
    assert one.forest_.people == pytest.approx(50, abs=10)
    assert three.forest_.people == pytest.approx(150, abs=20)
    assert "up to 3 rows" in three.certificate_.unit


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"delta": 0.5}, "at most 1e-06"),
        ({"delta": 1.01e-6}, "people="),
        ({"delta": 0.5, "people": 200}, "below 1 / people = 0.005"),
        ({"model_access": "dp", "model_epsilon": 1.0, "model_delta": 0.5}, "at most"),
        (
            {
                "delta": 6e-5,
                "model_access": "dp",
                "model_epsilon": 1.0,
                "model_delta": 6e-5,
                "people": 10_000,
            },
            "below 1",
        ),
        ({"people": 0}, "whole number"),
        ({"people": True}, "whole number"),
    ],
)
def test_a_delta_that_lets_somebodys_row_leave_is_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyError, match=said):
        fitted(**settings)


def test_the_tables_own_number_of_people_does_not_decide_on_delta() -> None:
    for people in (PEOPLE, population(patients(5))):
        for allowed in ({"delta": 1e-6}, {"delta": 1e-3, "people": 900}):
            one = DPPrototypes(1.0, rows=100, **allowed).fit(people, rich, "yes")  # type: ignore[arg-type]
            assert one.certificate_.delta == allowed["delta"]


def test_a_surrogate_learns_from_the_rows_and_the_private_model_is_never_asked() -> None:
    train = patients(3000)
    train = train.assign(outcome=rich(train))
    people = population(
        train,
        target="outcome",
        columns={**COLUMNS, "outcome": Attribute(categories=["yes", "no"])},
    )
    tree = DecisionTreeClassifier(max_depth=3)
    surrogate = make_pipeline(ColumnTransformer([("keep", "passthrough", ["age", "pay"])]), tree)
    one = DPPrototypes(5.0, rows=3000, model_access="surrogate").fit(people, surrogate, "yes")
    rows, answered = one.generate(QUERIES)
    assert answered.all()
    assert (rich(rows) == "yes").mean() > 0.5
    assert "outcome" not in one.served_.frame
    assert one.certificate_.total is not None
    with pytest.raises(SchemaError, match="label column"):
        fitted(rows=100, model_access="surrogate", model=tree)


# --- what is kept ---------------------------------------------------------------------------------


def test_what_is_fitted_holds_no_row_of_the_table_and_can_be_pickled() -> None:
    train = patients()
    train.loc[0, "pay"] = CANARY
    people = population(train)
    one = DPPrototypes(1.0, rows=500, accountant=BudgetAccountant(epsilon=1)).fit(
        people, rich, "yes"
    )
    content = pickle.dumps(one)
    again = pickle.loads(content)
    assert again.explain(QUERIES) == one.explain(QUERIES)
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


def test_what_is_set_after_a_fit_changes_no_answer_and_no_claim() -> None:
    one = fitted(model_access="public")
    before = one.generate(QUERIES)[0]
    one.move_towards_query = False
    pd.testing.assert_frame_equal(one.generate(QUERIES)[0], before)
    one.epsilon = 0.01
    with pytest.raises(InputError):
        one.explain(QUERIES)


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0},
        {"epsilon": math.inf},
        {"epsilon": True},
        {"delta": 1},
        {"rows": 0},
        {"rows_per_person": 1.5},
        {"serve": "anything"},
        {"plausibility": -1},
        {"model_access": "open"},
        {"move_towards_query": "yes"},
        {"model_epsilon": 1.0},
        {"model_delta": 1e-6},
        {"random_state": "x"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(settings))):
        DPPrototypes(**settings).fit(PEOPLE, rich, "yes")


def test_wrong_input_is_refused(tmp_path: Any, public: DPPrototypes) -> None:
    tree = DecisionTreeClassifier().fit(patients()[["age", "pay"]], rich(patients()))
    for error, said, use in (
        (NotFittedError, "", lambda: DPPrototypes().explain(QUERIES)),
        (InputError, "Population", lambda: DPPrototypes().fit(patients(), rich, "yes")),  # type: ignore[arg-type]
        (InputError, "missing columns", lambda: public.explain(QUERIES.drop(columns="pay"))),
        (ModelError, "not one of the model's classes", lambda: fitted(model=tree, desired="maybe")),
        (PolicyError, "needs model_epsilon", lambda: fitted(model_access="dp")),
        (
            SchemaError,
            "'town' lacks categories",
            lambda: DPPrototypes().fit(
                population(columns={**COLUMNS, "town": Attribute()}), rich, "yes"
            ),
        ),
        (
            PolicyError,
            "prototypes have no policy, no k",
            lambda: protect(
                rich,
                model=rich,
                population=PEOPLE,
                desired="yes",
                method="dp",
                policy=PrivacyPolicy(guarantee="lookup", k=5),
            ),
        ),
    ):
        with pytest.raises(error, match=said or None):
            use()


def test_an_anonymizer_says_where_prototypes_are() -> None:
    with (
        pytest.raises(InputError, match="use DPPrototypes"),
        warnings.catch_warnings(action="ignore"),
    ):
        KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup"), method="dp").fit(
            PEOPLE, rich, "yes"
        )


def test_protect_replaces_an_explainer_and_its_methods_without_asking_them() -> None:
    class Explainer:
        def explain(self, asked: pd.DataFrame) -> pd.DataFrame:
            raise AssertionError("the explainer was asked")

        generate_counterfactuals = explain

    private = protect(
        Explainer(), model=rich, population=PEOPLE, desired="yes", method=DPPrototypes(rows=500)
    )
    assert {entry.status for entry in private.explain(QUERIES)} == {"released"}
    assert "DPPrototypes" in repr(private)
    with pytest.raises(InputError, match="leave out total_CFs"):
        private.explain(QUERIES, total_CFs=3)
    with pytest.raises(AdapterError, match="is not passed on"):
        private.generate_counterfactuals(QUERIES)
    function = protect(
        Explainer().explain,
        model=rich,
        population=PEOPLE,
        desired="yes",
        method=DPPrototypes(rows=500),
    )
    assert len(function(QUERIES)) == len(QUERIES)
