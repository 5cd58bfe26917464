"""A result contains regions, or the prototypes of one fit; groups of queries are for runs only."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    PrivacyPolicy,
    Region,
    Withheld,
)
from cfk_plugin.errors import InputError
from cfk_plugin.release.anonymizer import release_record
from prototyped import COLUMNS, FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from tracked import explanations, released
from worlds import World

# --- kinds of entries -----------------------------------------------------------------------------


def test_entries_are_told_apart() -> None:
    """Regions, prototypes and what is withheld."""
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
        ((prototype(0), prototype(1, of=certificate(fit="other"))), policy()),
        ((prototype(0), prototype(1, of=certificate(epsilon=2.0))), policy()),
    ],
)
def test_kinds_are_not_mixed(entries: Any, under: Any) -> None:
    """Prototypes are of one fit as well."""
    with pytest.raises(InputError):
        Explanations(entries, policy=under, columns=COLUMNS)


def test_slice_keeps_the_policy() -> None:
    """Results are equal if their entries and their policies are."""
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
    """In words and as JSON."""
    copied = copied_by(explanation)
    assert copied == explanation
    assert (copied.text(), copied.to_dict()) == (explanation.text(), explanation.to_dict())


def test_pickled_prototype_says_the_same() -> None:
    """It has no count that is the data holder's."""
    unpickled = pickle.loads(pickle.dumps(prototype()))
    assert unpickled == prototype()
    assert unpickled.text() == prototype().text()


def test_changes_are_differences_from_the_point() -> None:
    """Without a point, they are values outside of the region."""
    assert ADVISED.changes(PERSON) == {"age"}
    assert released().changes(PERSON) == {"city"}


def test_json_has_the_point() -> None:
    """A run does not have it, and another query has the same."""
    content = ADVISED.to_dict()
    assert content["advised"] == {"age": 26, "city": "Namur"}
    assert content["least"] == {"age": 25, "salary": 55}
    assert not {"advised", "least"} & {*released().to_dict()}
    assert ADVISED.row_to_log(COLUMNS) == released().row_to_log(COLUMNS)
    assert ADVISED.with_query(7).to_dict() == {**content, "query": 7}


# --- figures --------------------------------------------------------------------------------------


def test_summary_of_prototypes_has_their_budget() -> None:
    """They have no figure of regions."""
    summary = prototypes().summary()
    assert {*summary} == {*explanations().summary()}
    counts = {"asked": 3, "released": 2, "withheld": 1, "prototypes": 2}
    budget = {"epsilon": 1.0, "delta": 0.0}
    assert (counts | budget).items() <= summary.items()
    of_regions = ("k_", "ncp_", "pureness_", "cdm", "cm", "optimal", "prosecutor", "marketer")
    assert {summary[name] for name in summary if name.startswith(of_regions)} == {None}


@pytest.mark.parametrize(
    "result", [unproven(), explanations(), prototypes(Withheld(0, "none_found"))]
)
def test_summary_without_proof_has_no_budget(result: Explanations) -> None:
    """Seeded noise proves nothing, and neither do regions."""
    summary = result.summary()
    assert (summary["epsilon"], summary["delta"]) == (None, None)


def test_table_shows_range_with_value() -> None:
    """Next to the range is the advised value within it; withheld rows are empty."""
    answer = released(advised={"age": 25, "city": "Ghent"})
    table = explanations(answer, Withheld(1, "none_found"), released(2)).to_frame()
    assert table.loc[0, ["age_low", "age_high", "age_value"]].tolist() == [24, 27, 25]
    assert table.loc[0, ["city_set", "city_value"]].tolist() == [["Antwerp", "Ghent"], "Ghent"]
    assert table.loc[[0, 2], "salary_value"].tolist() == [60, 60]
    assert table.filter(regex="age|city|salary").loc[1].isna().all()
    assert table.loc[2, ["age_value", "city_value"]].isna().all()


@pytest.mark.parametrize("name", ["pureness", "query"])
def test_feature_named_like_figure_is_kept(name: str) -> None:
    """It has a column of its own, as Parquet refuses two columns of one name."""
    entry = released()
    region = Region({name: Interval(1, 2)})
    renamed = GeneralizedCounterfactual(0, region, {}, entry.certificate, entry.recount)
    result = Explanations([renamed], policy=explanations().policy, columns=[name])
    assert result.to_frame().columns.is_unique
    assert result.to_frame(text=True)[f"feature.{name}"].tolist() == ["1–2"]


def test_table_has_index_of_queries(residents: World) -> None:
    """Slices keep it; runs, JSON and the table for readers do not have it."""
    queries = residents.refused.head(2).set_axis(["ann-1", "bob-2"])
    result = residents.anonymizer.explain(queries, answers=2)
    assert result.to_frame().index.tolist() == ["ann-1", "ann-1", "bob-2", "bob-2"]
    assert result[1:3].to_frame().index.tolist() == ["ann-1", "bob-2"]
    written = f"{result.to_json()} {result.to_record()} {result.to_frame(text=True).to_csv()}"
    assert "ann-1" not in written


def test_table_keeps_kinds_of_columns(residents: World) -> None:
    """Numbers, dates and levels are those of the schema, even if every row is withheld."""
    table = residents.answers.to_frame()
    assert table[["age_low", "salary_value"]].dtypes.map(is_numeric_dtype).all()
    assert is_datetime64_any_dtype(table["since_value"])
    assert set(table["school_low"]) <= {"low", "mid", "high"}
    assert list(residents.answers.without_record().to_frame().columns) == list(table.columns)


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


def test_large_k_is_written_in_full() -> None:
    """In print and in a notebook."""
    result = explanations(released(k=1_000), Withheld(1, "infeasible"), k=1_000)
    for text in (str(result), result._repr_html_()):
        assert "1000" in text
        assert "e+03" not in text


# --- groups of queries ----------------------------------------------------------------------------

BRANCHES = ["Ghent", None, 7.0, "Ghent"]
LABELS = ["Ghent", "missing", "7", "Ghent"]


def groups(result: Explanations) -> list[Any]:
    return [row.get("group") for row in result.to_record().rows]


def ask(world: World, **settings: Any) -> Explanations:
    """Return answers to four people of some branches; the last counterfactual is not desired."""
    counterfactuals = pd.concat([world.accepted.head(3), world.refused.head(1)], ignore_index=True)
    policy = PrivacyPolicy(guarantee="lookup", k=world.k)
    private = world.protect(lambda rows: counterfactuals, policy=policy, **settings)
    result: Explanations = private.explain(world.refused.head(4).assign(branch=BRANCHES))
    return result


def test_run_has_groups_of_a_column(residents: World) -> None:
    """It need not be a feature; withheld queries have a group as well, and slices keep them."""
    result = ask(residents, groups="branch")
    assert result.withheld
    assert groups(result) == LABELS
    assert groups(result[1:3]) == LABELS[1:3]
    assert result.to_record().params["cfk.groups"] == "branch"


def test_groups_do_not_leave(residents: World) -> None:
    """What is released is the same without them."""
    result = ask(residents, groups="branch")
    plain = ask(residents)
    assert result == plain
    assert result.to_json() == plain.to_json()
    assert result.to_frame().equals(plain.to_frame())
    assert "Ghent" not in f"{result!r} {[*result]} {result.about}"
    assert groups(plain) == [None] * 4


def test_unusable_groups_are_refused(residents: World) -> None:
    """They are too many, or there is no such column; the explainer is not asked."""

    def fail(queries: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError

    private = residents.protect(fail, groups="branch")
    many = pd.concat([residents.refused] * 10, ignore_index=True).assign(branch=range(80))
    for queries in (many, residents.refused):
        with pytest.raises(InputError, match="branch"):
            private.explain(queries)


def test_list_as_group_label_is_refused() -> None:
    """The error names the column of the groups."""
    result = explanations(released(0), released(1))
    with pytest.raises(InputError, match="labels of 'age' contain list"):
        result.by_group("age", [[30, 40], [30]])


def test_group_labels_go_by_place(residents: World) -> None:
    """Their index says nothing."""
    labels = pd.Series([30, 40, 30, np.nan], index=[3, 2, 1, 0])
    result = residents.answers[:4]
    grouped = result.by_group("age", labels)
    assert grouped == result
    assert groups(grouped) == ["30", "40", "30", "missing"]
    with pytest.raises(InputError, match="3 labels"):
        result.by_group("age", labels.head(3))
