# ruff: noqa: RUF012 - what classes of libraries have is shared and not changed
"""Adapters for other libraries, on objects of the shape that these document; the real ones are
asked elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

from cfk_adapters import function, shapes
from cfk_adapters.shapes import Encoded, Places
from cfk_adapters.wrapping import settled
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from cfk_plugin.testing import check_adapter
from other_libraries import functions

random = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {"age": random.integers(1020, 1070, 120), "pay": random.normal(5000, 900, 120).round(1)}
)
NAMES, JOBS = list(ROWS), ["clerk", "nurse"]
QUERIES = ROWS[ROWS["pay"] < 4500].head(3).reset_index(drop=True)
CONTEXT = AdaptContext(tuple(NAMES), classes=("no", "yes"))


def paid(rows: pd.DataFrame) -> Any:
    return np.where(rows["pay"].to_numpy() > 5000, "yes", "no")


MODEL = SimpleNamespace(predict=paid, classes_=np.array(["no", "yes"]))


def of(module: str) -> Any:
    """Let a class or function pass for one of a library's."""

    def mark(made: Any) -> Any:
        made.__module__ = module
        return made

    return mark


def richer(rows: Any) -> Any:
    rows = np.array(rows, dtype=float)
    rows[:, 1] = 7000.25 + np.arange(len(rows))
    return rows


# --- what the libraries have ----------------------------------------------------------------------


@of("alibi.api.interfaces")
class Explanation:
    def __init__(self, meta: dict[str, Any], data: dict[str, Any]) -> None:
        self.meta, self.data = meta, data
        vars(self).update({**meta, **data})


@of("alibi.explainers.cfproto")
class CounterfactualProto:
    meta = {
        "name": "CounterfactualProto",
        "params": {"kappa": 0.0, "feature_range": ROWS.to_numpy()},
        "type": ["blackbox"],
    }

    def __init__(self) -> None:
        self.return_dict: dict[str, Any] = {}

    def explain(self, X: Any, target_class: list[int] | None = None) -> Any:
        data: dict[str, Any] = {
            "cf": None,
            "all": [],
            "orig_class": 0,
            "orig_proba": None,
            "id_proto": None,
        }
        self.return_dict["last"] = self.cf_global = richer(X)
        if X[0, 0] != QUERIES["age"].iloc[1]:
            data |= {"cf": {"X": richer(X).astype(np.float32), "class": 1}, "all": {0: [richer(X)]}}
        return Explanation(meta=self.meta, data=data)


@of("alibi.explainers.cem")
class CEM:
    meta: dict[str, Any] = {}

    def __init__(self, mode: str = "PN") -> None:
        self.mode = mode

    def explain(self, X: Any) -> Any:
        return Explanation(
            meta=self.meta, data={"PN": richer(X), "PP": None, "PN_pred": 1, "X": X, "X_pred": 0}
        )


@of("alibi.explainers.cfrl_tabular")
class CounterfactualRLTabular:
    meta: dict[str, Any] = {"name": "CounterfactualRLTabular"}

    def __init__(self, **params: Any) -> None:
        self.params = {"feature_names": [*NAMES, "job"], "category_map": {2: JOBS}, **params}

    def explain(self, X: Any, Y_t: Any, C: Any = None) -> Any:
        found, has = richer(X), np.ones(len(X), dtype=int)
        found[:, 2], has[1:2] = 1, 0  # always an answer, of which one does not have the outcome
        data = {
            "orig": {"X": X, "class": X[:, 0] * 0},
            "cf": {"X": found, "class": has[:, None]},
            "condition": C,
        }
        return Explanation(meta=self.meta, data={**data, "target": np.resize(Y_t, (len(X), 1))})


@of("omnixai.explanations.tabular.counterfactual")
class CFExplanation:
    def __init__(self) -> None:
        self.explanations: list[Any] = []

    def add(self, query: Any, cfs: Any) -> None:
        self.explanations.append({"query": query, "counterfactual": cfs})


@of("omnixai.explainers.tabular.counterfactual.mace.mace")
class MACEExplainer:
    def __deepcopy__(self, memo: Any) -> Any:
        raise AttributeError("as those of OmniXAI do")

    def explain(self, X: Any, y: Any = None, max_number_examples: int = 2, **kwargs: Any) -> Any:
        answer = CFExplanation()
        for i in range(len(X)):
            query = X.iloc[i : i + 1]
            twice = pd.DataFrame(
                richer(query.iloc[[0] * max_number_examples]), columns=NAMES
            ).assign(label=1)
            answer.add(query=query.assign(label=0), cfs=None if i == 1 else twice)
        return answer


class RecourseMethod:
    def __init__(self, mlmodel: Any) -> None:
        self._mlmodel = mlmodel


class Wachter(RecourseMethod):
    def get_counterfactuals(self, factuals: Any) -> Any:
        found = factuals.assign(pay=1.5)
        found.iloc[1] = np.nan
        return found.assign(approved=1.0)


class Catalog:
    """Rows between 0 and 1, as CARLA's data catalog has them."""

    target = "approved"

    def __init__(self) -> None:
        self.scaler = MinMaxScaler().fit(ROWS)

    def transform(self, rows: Any) -> Any:
        return pd.DataFrame(self.scaler.transform(rows[NAMES]), rows.index, NAMES)

    def inverse_transform(self, rows: Any) -> Any:
        return pd.DataFrame(self.scaler.inverse_transform(rows[NAMES]), rows.index, NAMES)


class _CFTabular:
    def __init__(self, col_names: Any, **kwargs: Any) -> None:
        vars(self).update(kwargs, col_names=col_names, cfs=kwargs["cf_vectors"])


def find_tabular(factual: Any, model_predict_proba: Any, count_cf: int = 1) -> Any:
    found = [] if factual["age"] == QUERIES["age"].iloc[1] else list(richer([factual, factual]))
    own = {
        "factual": factual,
        "factual_vector": factual,
        "time_cf": 0.1,
        "time_cf_not_optimized": 0.1,
    }
    return _CFTabular(
        list(factual.index),
        cf_vectors=found,
        cf_not_optimized_vectors=found,
        obj_scores=[1.0],
        **own,
    )


class CounterfactualExplainer:
    cf_feature_indices: Any = {1}
    all_indices: Any = {0, 1}

    def explain_instance(
        self, instance: Any, counterfactual_class: Any = None, normalise_distance: bool = False
    ) -> Any:
        return richer([instance, instance]), np.array([1.25, 2.5]), np.array(["yes", "yes"])


class ProtodashExplainer:
    def explain(self, X: Any, Y: Any, m: int, kernelType: str = "other") -> Any:
        return np.ones(m), np.arange(m), None


@of("shap.explainers._tree")
class TreeExplainer:
    def __call__(self, X: Any) -> Any:
        return X


# --- the contract, on all of them -----------------------------------------------------------------

FOUND = pd.DataFrame(richer(ROWS), columns=NAMES)
ONE = QUERIES.to_numpy(dtype=float)[:1]
EXPLAINERS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], list[int]]] = {
    "alibi": (CounterfactualProto(), {"target_class": [1]}, {"explain": ([ONE], {})}, [0, 2]),
    "alibi CEM": (CEM(), {}, {"explain": ([ONE], {})}, [0, 1, 2]),
    "omnixai": (MACEExplainer(), {"y": [1, 1, 1]}, {}, [0, 0, 2, 2]),
    "encoded": (
        Encoded(CounterfactualProto(), FunctionTransformer(lambda x: np.array(x) - 9.0, lambda x: x + 9.0)), {},
        {"explain": ([ONE - 9.0], {})}, [0, 1, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINERS)
def test_the_contract_is_kept_and_answers_belong_to_their_queries(name: str) -> None:
    explainer, options, own, answered = EXPLAINERS[name]
    batch = check_adapter(
        explainer,
        QUERIES,
        NAMES,
        plugins=[shapes],
        deterministic=True,
        arguments=own,
        rows=FOUND,
        **options,
    )
    assert batch.query[batch.slot].tolist() == answered
    assert (paid(batch.frame) == "yes").all()


def protected(explainer: Any, rows: pd.DataFrame = ROWS, **settings: Any) -> Any:
    population = Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age"]))
    policy = PrivacyPolicy(k=4, guarantee="reciprocal", min_pureness=0, **settings)
    return protect(
        explainer,
        model=MODEL,
        population=population,
        policy=policy,
        desired="yes",
        plugins=[shapes],
    )


@pytest.mark.parametrize("name", EXPLAINERS)
def test_own_results_are_rebuilt_from_what_is_released(name: str) -> None:
    explainer, options, own, _ = EXPLAINERS[name]
    private = protected(explainer)
    assert private.explain(QUERIES, **options).released
    # OmniXAI's own; a DataFrame is answered by Explanations
    tabular = SimpleNamespace(to_pd=QUERIES.copy)
    method, (arguments, named) = next(iter(own.items()), ("explain", ([tabular], options)))
    answer = getattr(private, method)(*arguments, **named)
    if name.startswith(("alibi", "encoded")):
        cells = answer.data["PN"] if "CEM" in name else answer.data["cf"]["X"]
        assert type(answer) is Explanation
        assert cells.shape == (1, 2)
        assert "feature_range" not in answer.meta["params"]
    elif name == "omnixai":
        assert [len(each["counterfactual"]) if each["counterfactual"] is not None else None
                for each in answer.explanations] == [2, None, 2]  # fmt: skip
        assert list(answer.explanations[0]["counterfactual"]) == [*NAMES, "label"]


# --- goals, constraints, categories ---------------------------------------------------------------


def source_of(explainer: Any, context: AdaptContext = CONTEXT) -> Any:
    return load_plugins([shapes], entry_points=False).adapt(explainer, context)


@pytest.mark.parametrize(
    ("explainer", "options"),
    [
        (CounterfactualProto(), {"target_class": [1]}),
        (CounterfactualProto(), {"target_class": 1}),
        (MACEExplainer(), {"y": np.ones(3)}),
    ],
)
def test_the_outcome_that_a_call_names_is_certified(
    explainer: Any, options: dict[str, Any]
) -> None:
    assert source_of(explainer).generate(QUERIES, **options).desired == "yes"


def test_several_outcomes_of_a_call_are_refused() -> None:
    with pytest.raises(AdapterError, match="y names several outcomes"):
        source_of(MACEExplainer()).generate(QUERIES, y=[0, 1, 1])


MIXED_CONTEXT = AdaptContext((*NAMES, "job"), classes=("no", "yes"))
ASKED = QUERIES.assign(job=["clerk", "nurse", "clerk"])


def test_categories_of_alibi_are_their_places_and_come_back_as_text() -> None:
    source = source_of(CounterfactualRLTabular(immutable_features=["age"]), MIXED_CONTEXT)
    batch = source.generate(ASKED, target_class=1)
    assert batch.frame["job"].tolist() == ["nurse", "nurse"]
    assert batch.query[batch.slot].tolist() == [0, 2], "an answer without the outcome is none"
    assert batch.desired == "yes"
    assert batch.constraints == {"features_to_vary": ["pay", "job"]}
    with pytest.raises(AdapterError, match="give target_class"):
        source.generate(ASKED)
    with pytest.raises(AdapterError, match="does not know, in job") as error:
        source.generate(ASKED.assign(job="pilot"), target_class=1)
    assert "pilot" not in str(error.value)


def test_conditions_of_alibi_are_constraints() -> None:
    source = source_of(CounterfactualRLTabular(), MIXED_CONTEXT)
    one = ASKED.head(1)
    said = source.generate(
        one, Y_t=np.array([1]), C=[{"job": ["nurse"], "pay": [-10, 3000]}]
    ).constraints
    pay = float(one["pay"].iloc[0])
    assert said == {"permitted_range": {"job": ["nurse"], "pay": [pay - 10, pay + 3000]}}
    with pytest.raises(AdapterError, match="relative to the query"):
        source.generate(ASKED, target_class=1, C=[{"pay": [0, 1]}])


def test_text_without_an_encoder_says_what_to_give() -> None:
    source = source_of(CounterfactualProto(), MIXED_CONTEXT)
    with pytest.raises(AdapterError, match=r"columns job are text.*Encoded\(explainer, encoder\)"):
        source.generate(ASKED)
    known = source_of(
        Encoded(CounterfactualProto(), Places([*NAMES, "job"], {2: JOBS})), MIXED_CONTEXT
    )
    assert known.generate(ASKED).frame["job"].tolist() == ["clerk", "clerk"]


def test_single_precision_is_read_as_the_number_it_stands_for() -> None:
    column = pd.Series(np.array([3959.000244, 0.1, 1234567.0, np.nan], dtype=np.float32))
    assert settled(column, None).tolist()[:3] == [3959.0, 0.1, 1234567.0]


@pytest.mark.parametrize(
    ("explainer", "reason"),
    [
        (
            TreeExplainer(),
            "TreeExplainer of shap returns no counterfactuals.*KAnonymizer.transform",
        ),
        (CEM("PP"), "looks for what keeps the outcome"),
        (Encoded(TreeExplainer(), Places(NAMES)), "Encoded takes explainers of alibi, omnixai"),
    ],
)
def test_what_cannot_be_used_says_why(explainer: Any, reason: str) -> None:
    with pytest.raises(AdapterError, match=reason):
        protected(explainer)


def test_every_source_says_what_it_is_for() -> None:
    assert all(inspect.getdoc(source) and source.kinds for source in shapes.SOURCES)


# --- libraries without an adapter -----------------------------------------------------------------

ASK = functions()
OTHERS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "CARLA": (lambda: ASK["ask_carla"](Wachter(None), Catalog()), [0, 2]),
    "cfnow": (lambda: ASK["ask_cfnow"](partial(find_tabular, model_predict_proba=paid)), [0, 2]),
    "FAT-Forensics": (lambda: ASK["ask_fat_forensics"](CounterfactualExplainer()), [0, 1, 2]),
    "ProtoDash": (lambda: ASK["ask_protodash"](ProtodashExplainer(), FOUND), [0, 1, 2]),
}


@pytest.mark.parametrize("library", OTHERS)
def test_a_function_asks_a_library_that_has_no_adapter(library: str) -> None:
    make, answered = OTHERS[library]
    batch = check_adapter(make(), QUERIES, NAMES, deterministic=True, rows=FOUND)
    assert batch.query[batch.slot].tolist() == answered
    assert (paid(batch.frame) == "yes").all()
    assert protected(make()).explain(QUERIES).released


def test_prototypes_are_taken_for_rows() -> None:
    explain = ASK["ask_protodash"](ProtodashExplainer(), FOUND)
    assert load_plugins([function], entry_points=False).adapt(explain, CONTEXT).instance_based
