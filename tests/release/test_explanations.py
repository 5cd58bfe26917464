"""A result contains regions, or the prototypes of one fit; groups of queries are for runs only."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

import residents
from applicants import FEATURES, ROWS, label
from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    Withheld,
    protect,
)
from cfk_plugin.errors import InputError
from cfk_plugin.release.anonymizer import release_record
from prototyped import COLUMNS, FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from tracked import explanations, released

# --- kinds of entries -----------------------------------------------------------------------------


def test_entries_are_told_apart() -> None:
    result = prototypes()
    assert result.prototypes == result.released == (result[0], result[2])
    assert result.withheld == (result[1],)
    assert result.generalized == ()
    assert explanations().generalized == explanations().released


@pytest.mark.parametrize(
    ("entries", "under"),
    [
        ((prototype(), released(1)), policy()),
        ((released(0),), policy()),
        ((prototype(),), explanations().policy),
    ],
)
def test_kinds_are_not_mixed(entries: Any, under: Any) -> None:
    with pytest.raises(InputError, match="kind"):
        Explanations(entries, policy=under, columns=COLUMNS)


@pytest.mark.parametrize(
    "fields", [{"fit": "other"}, {"epsilon": 2.0}, {"model_access": "private"}]
)
def test_prototypes_are_of_one_fit(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prototypes(prototype(0), prototype(1, of=certificate(**fields)))


def test_slice_keeps_the_policy() -> None:
    result = prototypes()
    part = result[1:]
    assert (part.policy, [*part]) == (result.policy, [*result][1:])
    assert result.for_query(2) == (result[2],)
    assert result == prototypes() != part
    assert result != prototypes(under=policy(epsilon=2.0))


# --- the point of an answer -----------------------------------------------------------------------

ADVISED = released(advised={"age": np.int64(26), "city": "Namur"}, least={"age": 25, "salary": 55})
PERSON = {"age": 24, "city": "Namur", "salary": 60}


@pytest.mark.parametrize("explanation", [released(0), ADVISED, prototype()])
@pytest.mark.parametrize("copied_by", [copy.copy, copy.deepcopy])
def test_copy_says_the_same(explanation: Any, copied_by: Callable[[Any], Any]) -> None:
    copied = copied_by(explanation)
    assert copied == explanation
    assert (copied.text(), copied.to_dict()) == (explanation.text(), explanation.to_dict())


def test_pickled_prototype_says_the_same() -> None:
    unpickled = pickle.loads(pickle.dumps(prototype()))
    assert unpickled == prototype()
    assert unpickled.text() == prototype().text()


def test_changes_are_differences_from_the_point() -> None:
    """Without a point, they are values outside of the region."""
    assert ADVISED.changes(PERSON) == {"age"}
    assert released().changes(PERSON) == {"city"}


def test_json_has_the_point() -> None:
    content = ADVISED.to_dict()
    assert content["advised"] == {"age": 26, "city": "Namur"}
    assert content["least"] == {"age": 25, "salary": 55}
    assert not {"advised", "least"} & {*released().to_dict()}


def test_run_logs_no_point() -> None:
    assert ADVISED.row_to_log(COLUMNS) == released().row_to_log(COLUMNS)


def test_other_query_keeps_the_content() -> None:
    assert ADVISED.with_query(7).to_dict() == {**ADVISED.to_dict(), "query": 7}


# --- figures --------------------------------------------------------------------------------------


def test_summary_of_prototypes_has_their_budget() -> None:
    """They have no figure of regions."""
    summary = prototypes().summary()
    assert {*summary} == {*explanations().summary()}
    counts = {"asked": 3, "released": 2, "withheld": 1, "prototypes": 2}
    budget = {"epsilon": 1.0, "delta": 0.0}
    assert (counts | budget).items() <= summary.items()
    assert summary["reasons"] == {"none_found": 1}
    of_regions = ("k_", "ncp_", "pureness_", "cdm", "cm", "optimal", "prosecutor", "marketer")
    assert {summary[name] for name in summary if name.startswith(of_regions)} == {None}


@pytest.mark.parametrize(
    "result", [unproven(), explanations(), prototypes(Withheld(0, "none_found"))]
)
def test_summary_without_proof_has_no_budget(result: Explanations) -> None:
    summary = result.summary()
    assert (summary["epsilon"], summary["delta"]) == (None, None)


def test_table_has_ends_and_values() -> None:
    """The advised value is beside the range that it comes from; withheld rows are empty."""
    answer = released(advised={"age": 25, "city": "Ghent"})
    table = explanations(answer, Withheld(1, "none_found")).to_frame()
    assert table.loc[0, ["age_low", "age_high", "age_value"]].tolist() == [24, 27, 25]
    assert table.loc[0, ["salary_low", "salary_high", "salary_value"]].tolist() == [60, 60, 60]
    assert table.loc[0, ["city_set", "city_value"]].tolist() == [["Antwerp", "Ghent"], "Ghent"]
    assert table.filter(regex="age|city|salary").loc[1].isna().all()
    assert table["age_value"].dtype == float


def test_table_without_advice_has_no_values_of_quasi_identifiers() -> None:
    table = explanations(released()).to_frame()
    assert table[["age_value", "city_value"]].isna().all(axis=None)
    assert table["salary_value"].tolist() == [60]


def test_name_of_a_figure_is_not_taken_by_a_feature() -> None:
    entry = released()
    region = Region({"pureness": Interval(1, 2)})
    renamed = GeneralizedCounterfactual(0, region, {}, entry.certificate, entry.recount)
    result = Explanations([renamed], policy=explanations().policy, columns=["pureness"])
    table = result.to_frame()
    assert table.columns.is_unique
    assert table[["feature.pureness_low", "pureness_high"]].to_numpy().tolist() == [[1, 1.0]]


def answers_of_residents(index: list[str], n_answers: int = 1) -> Explanations:
    """Answer some poor residents, whose table has dates, levels and gaps in its index."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(residents.PEOPLE, residents.rich, "yes")
    poor = residents.TABLE[residents.rich(residents.TABLE) == "no"].head(len(index))
    return anonymizer.explain(poor.set_axis(index), answers=n_answers)


def test_table_has_the_index_of_the_queries() -> None:
    """Slices keep it; runs, JSON and the table for readers do not have it."""
    result = answers_of_residents(["ann-1", "bob-2"], n_answers=2)
    assert result.to_frame().index.tolist() == ["ann-1", "ann-1", "bob-2", "bob-2"]
    assert result[1:3].to_frame().index.tolist() == ["ann-1", "bob-2"]
    written = f"{result.to_json()} {result.to_record()} {result.to_frame(text=True).to_csv()}"
    assert "ann-1" not in written


def test_table_has_numbers_and_dates_to_compute_with() -> None:
    """Kinds are those of the schema, also where every row is withheld."""
    result = answers_of_residents(["ann-1", "bob-2"])
    table = result.to_frame()
    assert table[["age_low", "kids_value", "pay_value"]].dtypes.map(is_numeric_dtype).all()
    assert is_datetime64_any_dtype(table["since_value"])
    assert set(table["level_low"]) <= {"low", "high"}
    assert list(result.without_record().to_frame().columns) == list(table.columns)


def test_table_of_prototypes_has_the_index_of_the_queries() -> None:
    pytest.importorskip("opendp", reason="prototypes are drawn with it")
    queries = residents.TABLE.head(2).set_axis(["ann-1", "bob-2"])
    assert residents.fitted(residents.TABLE).explain(queries).to_frame().index.tolist() == [
        "ann-1",
        "bob-2",
    ]


def test_table_of_prototypes_has_no_k() -> None:
    """The data holder sees the certificate as well."""
    table = prototypes().to_frame(text=True)
    assert [*table] == [*explanations().to_frame(text=True)]
    assert table["age"].tolist()[::2] == ["31", "44"]
    assert table["city"].tolist()[::2] == ["Ghent", "missing"]
    assert table[["k", "ncp", "pureness"]].isna().all(axis=None)
    assert prototypes().audit_frame()["epsilon"].tolist()[::2] == [1.0, 1.0]


def test_prototype_names_no_population() -> None:
    """A fingerprint of the training rows is not covered by the budget."""
    text = prototypes().to_json()
    assert FINGERPRINT not in text
    assert json.loads(text)["policy"] == policy().to_dict()
    assert release_record(prototype(), "dp", "p", "f").population == ""
    assert release_record(released(), "exact", "p", "f").population == "f"


def test_feature_may_be_called_query() -> None:
    """Its column has another name in the table: Parquet refuses two of one name."""
    region = Region({"k": Interval(1, 2), "query": Interval(3, 4)})
    known = released()
    entry = GeneralizedCounterfactual(0, region, {}, known.certificate, known.recount)
    result = Explanations([entry], policy=explanations().policy, columns=["k", "query", "salary"])
    table = result.to_frame(text=True)
    assert table.columns.is_unique
    assert table["query"].tolist() == [0]
    assert table["feature.query"].tolist() == ["3–4"]


def test_large_k_is_written_in_full() -> None:
    """In print and in a notebook."""
    result = explanations(released(k=1_000), Withheld(1, "infeasible"), k=1_000)
    for text in (str(result), result._repr_html_()):
        assert "1000" in text
        assert "e+03" not in text


# --- groups of queries ----------------------------------------------------------------------------

TRAIN = ROWS[FEATURES]
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "job"])
QUERIES = TRAIN[label(TRAIN) == 0].head(4).assign(branch=["Ghent", None, 7.0, "Ghent"])
LABELS = ["Ghent", "missing", "7", "Ghent"]


def explain(queries: pd.DataFrame) -> pd.DataFrame:
    """Answer with rows, the last of which is not desired."""
    n_answers = len(queries)
    accepted = TRAIN[label(TRAIN) == 1].head(n_answers - 1)
    return pd.concat([accepted, TRAIN[label(TRAIN) == 0].head(1)]).set_index(queries.index)


def protected(**settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "population": Population.from_frame(TRAIN, SCHEMA),
        "policy": PrivacyPolicy(guarantee="lookup", k=4),
        "plugins": [import_module("cfk_adapters.function")],
    }
    explainer = settings.pop("explainer", explain)
    return protect(explainer, model=label, desired=1, **defaults | settings)


def groups(result: Explanations) -> list[Any]:
    return [row.get("group") for row in result.to_record().rows]


def test_run_has_groups_of_a_column() -> None:
    """It need not be a feature; withheld queries have a group as well."""
    result = protected(groups="branch").explain(QUERIES)
    assert result.withheld
    assert groups(result) == LABELS
    assert result.to_record().params["cfk.groups"] == "branch"


def test_slice_keeps_the_groups() -> None:
    result = protected(groups="smoker").explain(QUERIES)
    assert groups(result) == QUERIES["smoker"].map(str).tolist()
    assert groups(result[1:3]) == groups(result)[1:3]


def test_groups_do_not_leave() -> None:
    """What is released is the same without them."""
    result = protected(groups="branch").explain(QUERIES)
    plain = protected().explain(QUERIES)
    assert result == plain
    assert result.to_json() == plain.to_json()
    assert result.to_frame().equals(plain.to_frame())
    assert "Ghent" not in f"{result!r} {[*result]} {result.about}"
    assert groups(plain) == [None] * len(QUERIES)


@pytest.mark.parametrize(
    "queries",
    [
        pd.concat([QUERIES] * 20, ignore_index=True).assign(branch=range(80)),
        QUERIES.drop(columns="branch"),
    ],
)
def test_unusable_groups_are_refused(queries: pd.DataFrame) -> None:
    """They are too many, or there is no such column."""

    def fail(queries: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError("the explainer was asked")

    with pytest.raises(InputError, match="branch"):
        protected(explainer=fail, groups="branch").explain(queries)


def test_list_as_group_label_is_refused() -> None:
    result = explanations(released(0), released(1))
    with pytest.raises(InputError, match="labels of 'age' hold list"):
        result.by_group("age", [[30, 40], [30]])


def test_group_labels_go_by_place() -> None:
    result = protected().explain(QUERIES)
    labels = pd.Series([30, 40, 30, np.nan], index=[3, 2, 1, 0])
    grouped = result.by_group("age", labels)
    assert grouped == result
    assert groups(grouped) == ["30", "40", "30", "missing"]
    with pytest.raises(InputError, match="3 labels"):
        result.by_group("age", labels.head(3))
