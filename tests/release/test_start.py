"""Whether an explainer is asked; where it is not, its own methods keep working."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from applicants import FEATURES, QUERIES, ROWS, dice_of, label, nice_of
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import AdapterError, IgnoredOptionWarning, InputError, PolicyError

QUASI_IDENTIFIERS = ["age", "job"]
POLICY = PrivacyPolicy(k=5)
SCHEMA = Schema.from_frame(ROWS, quasi_identifiers=QUASI_IDENTIFIERS, target="approved")
POPULATION = Population.from_frame(ROWS, SCHEMA, key=b"the key of these tests")


def protected(explainer: Any, **options: Any) -> Any:
    settings = {
        "policy": POLICY,
        "desired": 1,
        "sample_explainer": 0,
        **options,
    }
    return protect(explainer, model=label, population=POPULATION, **settings)


def forbid(explainer: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the explainer's search raise, so that a test fails where it is used."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("the explainer was asked")

    for name in names:
        monkeypatch.setattr(type(explainer), name, refuse)


# --- DiCE -----------------------------------------------------------------------------------------


@pytest.fixture
def dice() -> Any:
    return dice_of("random")


def rows_of(examples: Any) -> pd.DataFrame:
    return examples.final_cfs_df[FEATURES]


def test_dice_returns_its_own_type_without_a_search(
    dice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = protected(dice)
    forbid(dice, monkeypatch, "_generate_counterfactuals")
    result = private.generate_counterfactuals(QUERIES, total_CFs=3)
    assert type(result).__name__ == "CounterfactualExplanations"
    assert len(result.cf_examples_list) == len(QUERIES)
    for position, examples in enumerate(result.cf_examples_list):
        assert 1 <= len(rows_of(examples)) <= 3
        assert examples.test_instance_df["age"].iat[0] == QUERIES["age"].iat[position]
        assert examples.test_pred == 0
        assert examples.new_outcome == 1
        assert set(examples.final_cfs_df["approved"]) == {1}


def test_dice_answers_are_those_of_explain(dice: Any) -> None:
    private = protected(dice)
    shown = private.generate_counterfactuals(QUERIES, total_CFs=2)
    explanations = private.explain(QUERIES, total_CFs=2)
    assert explanations == private.explain(QUERIES, answers=2)
    assert len(explanations) == 2 * len(QUERIES)
    for query, examples in enumerate(shown.cf_examples_list):
        released = [entry for entry in explanations.for_query(query) if entry.status == "released"]
        incomes = [entry.released["income"] for entry in released]
        assert rows_of(examples)["income"].tolist() == incomes


def test_dice_constraints_hold(dice: Any) -> None:
    private = protected(dice)
    result = private.generate_counterfactuals(
        QUERIES,
        total_CFs=2,
        desired_class="opposite",
        features_to_vary=["income", "education"],
        permitted_range={"income": [20, 90]},
    )
    for position, examples in enumerate(result.cf_examples_list):
        if examples.final_cfs_df is None:
            continue
        rows = rows_of(examples)
        assert set(rows["smoker"].map(str)) == {str(QUERIES["smoker"].iat[position])}
        assert rows["income"].between(20, 90).all()


def test_dice_search_options_are_named_in_one_warning(dice: Any) -> None:
    private = protected(dice)
    with pytest.warns(IgnoredOptionWarning) as warned:
        private.generate_counterfactuals(
            QUERIES, total_CFs=1, random_seed=4, proximity_weight=0.5, verbose=False
        )
    (warning,) = [each for each in warned if each.category is IgnoredOptionWarning]
    assert "proximity_weight, random_seed" in str(warning.message)
    assert warning.filename == __file__


def test_dice_probability_is_refused_as_it_looks_like_a_promise(dice: Any) -> None:
    with pytest.raises(AdapterError, match="stopping_threshold"):
        protected(dice).generate_counterfactuals(QUERIES, total_CFs=1, stopping_threshold=0.9)


def test_dice_another_outcome_than_the_protected_one_is_refused(dice: Any) -> None:
    with pytest.raises(InputError):
        protected(dice).generate_counterfactuals(QUERIES, total_CFs=1, desired_class=0)


def test_dice_call_may_name_the_outcome_of_an_opposite(dice: Any) -> None:
    private = protected(dice, desired="opposite")
    result = private.generate_counterfactuals(QUERIES, total_CFs=1, desired_class=1)
    shown = [each for each in result.cf_examples_list if each.final_cfs_df is not None]
    assert shown
    assert {row for each in shown for row in each.final_cfs_df["approved"]} == {1}


def test_dice_importances_are_shares_of_the_answers(dice: Any) -> None:
    private = protected(dice)
    result = private.local_feature_importance(QUERIES, total_CFs=10)
    explanations = private.explain(QUERIES, answers=10)
    assert len(result.local_importance) == len(QUERIES)
    for query, importance in enumerate(result.local_importance):
        assert {*importance} == {*FEATURES}
        released = [entry for entry in explanations.for_query(query) if entry.status == "released"]
        own = QUERIES["income"].iat[query]
        n_changed = sum(entry.released["income"] != own for entry in released)
        assert importance["income"] == pytest.approx(n_changed / len(released))


# --- NICE, functions and other explainers ---------------------------------------------------------


def test_nice_returns_an_array_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = nice_of("none")
    private = protected(explainer)
    forbid(explainer, monkeypatch, "explain")
    answers = private.explain(QUERIES[FEATURES].to_numpy(dtype=object))
    assert answers.shape == (len(QUERIES), len(FEATURES))
    assert answers[:, FEATURES.index("income")].tolist() == [
        entry.released["income"] for entry in private.explain(QUERIES)
    ]


def refused(queries: Any, weight: float = 1.0, **options: Any) -> Any:
    raise AssertionError("the explainer was asked")


def test_function_is_not_asked() -> None:
    assert len(protected(refused).explain(QUERIES)) == len(QUERIES)


def test_function_with_options_that_have_no_effect_warns() -> None:
    with pytest.warns(IgnoredOptionWarning, match="weight"):
        explanations = protected(refused)(QUERIES, weight=3.0)
    assert len(explanations) == len(QUERIES)


def test_function_may_be_asked_for_several_answers() -> None:
    assert len(protected(refused)(QUERIES, total_CFs=2)) == 2 * len(QUERIES)


def test_nearest_neighbour_returns_a_table() -> None:
    explainer = NearestUnlikeNeighbour(ROWS, label, 1, FEATURES)
    private = protected(explainer)
    assert len(private.explain(QUERIES)) == len(QUERIES)
    assert private.features == FEATURES


# --- which explainers are asked ----------------------------------------------------------------------------------


class Declared:
    """A function that counts its calls and says whether its answers depend on single rows."""

    def __init__(self, depends_on_rows: str) -> None:
        self.depends_on_rows = depends_on_rows
        self.n_calls = 0

    def explain(self, queries: pd.DataFrame) -> pd.DataFrame:
        self.n_calls += 1
        return queries.assign(income=95.0)


def n_calls(depends_on_rows: str, **options: Any) -> int:
    explainer = Declared(depends_on_rows)
    protected(explainer, **options).explain(QUERIES)
    return explainer.n_calls


@pytest.mark.parametrize(
    ("depends_on_rows", "is_asked"), [("yes", False), ("unknown", False), ("no", True)]
)
def test_only_explainers_that_depend_on_no_row_are_asked(
    depends_on_rows: str, is_asked: bool
) -> None:
    assert (n_calls(depends_on_rows) > 0) == is_asked


def test_every_explainer_is_asked_where_its_counterfactual_is_protected() -> None:
    assert n_calls("yes", policy=PrivacyPolicy(k=5, guarantee="lookup")) > 0


def test_declarations_of_adapters_are_checked() -> None:
    with pytest.raises(AdapterError, match="depends_on_rows"):
        protected(Declared("perhaps"))


def test_a_lookup_guarantee_without_an_explainer_is_refused() -> None:
    with pytest.raises(PolicyError, match="come from a catalogue"):
        protected(None, policy=PrivacyPolicy(k=5, guarantee="lookup"))


def test_without_an_explainer_the_catalogue_answers() -> None:
    private = protected(None)
    assert private.explain(QUERIES) == protected(refused).explain(QUERIES)


def test_explainers_that_cannot_be_answered_for_are_refused_by_their_own_methods() -> None:
    class Source:
        name = "third party"
        instance_based = False

        def generate(self, queries: pd.DataFrame, **options: Any) -> Any:
            raise AssertionError("the explainer was asked")

        @property
        def methods(self) -> dict[str, Callable[..., Any]]:
            return {"search": refused}

        def restore(self, native: Any, explanations: Any) -> Any:
            return None

    from cfk_plugin.hookspecs import hookimpl

    class Plugin:
        @hookimpl
        def cfk_adapt(self, explainer: Any, context: Any) -> Any:
            return Source()

    private = protected(object(), plugins=[Plugin()])
    assert len(private.explain(QUERIES)) == len(QUERIES)
    with pytest.raises(AdapterError, match="use explain"):
        private.search(QUERIES)


def test_no_warning_where_every_option_counts(dice: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", IgnoredOptionWarning)
        protected(dice).generate_counterfactuals(QUERIES, total_CFs=1, verbose=False)
