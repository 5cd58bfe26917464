"""A result holds regions, or the prototypes of one fit; its figures are of what it holds, its
groups for runs alone.
"""

from __future__ import annotations

import copy
import json
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
    protect,
)
from cfk_plugin.errors import InputError, PrivacyLeakWarning
from cfk_plugin.release.anonymizer import release_record
from prototyped import COLUMNS, FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from tracked import explanations, released


def test_entries_are_told_apart() -> None:
    found = prototypes()
    assert (len(found), len(found.released), len(found.prototypes), len(found.withheld)) == (
        3,
        2,
        2,
        1,
    )
    assert found.generalized == ()
    regions = explanations()
    assert regions.released == regions.generalized
    assert regions.prototypes == ()


@pytest.mark.parametrize(
    ("entries", "under"),
    [
        ((prototype(), released(1)), policy()),
        ((released(0),), policy()),
        ((prototype(),), explanations().policy),
        ((prototype(), released(1)), explanations().policy),
    ],
)
def test_kinds_are_not_mixed(entries: Any, under: Any) -> None:
    with pytest.raises(InputError, match="give each kind a result of its own"):
        Explanations(entries, policy=under, columns=COLUMNS)


ADVISED = released(advised={"age": np.int64(26), "city": "Namur"}, least={"age": 25, "salary": 55})
PERSON = {"age": 24, "city": "Namur", "salary": 60}


@pytest.mark.parametrize(
    "explanation", [released(0), ADVISED, prototype()], ids=["region", "point", "prototype"]
)
@pytest.mark.parametrize("copied_by", [copy.copy, copy.deepcopy])
def test_a_copy_says_the_same(explanation: Any, copied_by: Any) -> None:
    copied = copied_by(explanation)
    assert copied == explanation
    assert copied.text() == explanation.text()
    assert copied.to_dict() == explanation.to_dict()


def test_changes_are_differences_from_the_point() -> None:
    """Without a point, they are values outside of the region."""
    assert ADVISED.changes(PERSON) == {"age"}
    assert released().changes(PERSON) == {"city"}


def test_json_has_the_point_if_there_is_one() -> None:
    content = ADVISED.to_dict()
    assert content["advised"] == {"age": 26, "city": "Namur"}
    assert content["least"] == {"age": 25, "salary": 55}
    assert not {"advised", "least"} & set(released().to_dict())


def test_another_query_keeps_the_point() -> None:
    renumbered = ADVISED.with_query(3)
    assert (renumbered.advised, renumbered.least) == (ADVISED.advised, ADVISED.least)


def test_a_run_logs_only_the_region_of_a_point() -> None:
    assert ADVISED.row_to_log(COLUMNS, ()) == released().row_to_log(COLUMNS, ())


def test_a_notebook_marks_differences_from_the_point() -> None:
    html = explanations(ADVISED).compare(pd.DataFrame([PERSON]))._repr_html_()
    assert html.count("<s>") == 1
    assert "<s>24</s>" in html


def test_an_unpickled_prototype_says_the_same() -> None:
    explanation = prototype()
    unpickled = pickle.loads(pickle.dumps(explanation))
    assert unpickled == explanation
    assert unpickled.text() == explanation.text()


def test_prototypes_of_two_fits_or_beyond_the_policy_are_refused() -> None:
    with pytest.raises(InputError, match="prototypes of several fits"):
        prototypes(prototype(0), prototype(1, of=certificate(fit="other")))
    for said in ({"epsilon": 2.0}, {"model_access": "private"}):
        with pytest.raises(InputError, match="another budget or model"):
            prototypes(prototype(0, of=certificate(**said)))


def test_a_summary_of_prototypes_has_their_budget_and_no_figure_of_regions() -> None:
    summary = prototypes().summary()
    assert summary.keys() == explanations().summary().keys()
    counts = {
        "asked": 3,
        "released": 2,
        "withheld": 1,
        "prototypes": 2,
        "epsilon": 1.0,
        "delta": 0.0,
    }
    assert {name: summary[name] for name in counts} == counts
    assert summary["released_native"] == 0
    assert summary["reasons"] == {"none_found": 1}
    of_regions = (
        "k_",
        "ncp_",
        "pureness_",
        "cdm",
        "cm",
        "optimal",
        "prosecutor",
        "marketer",
        "native_",
    )
    assert {summary[name] for name in summary if name.startswith(of_regions)} == {None}


def test_neither_a_claim_nor_regions_have_a_budget() -> None:
    for result, n in ((unproven(), 1), (explanations(), 0)):
        summary = result.summary()
        assert (summary["prototypes"], summary["epsilon"], summary["delta"]) == (n, None, None)
    assert (summary["released"], summary["cdm"], summary["k_min"]) == (2, 14, 5)


def test_the_table_has_values_and_no_k_and_the_data_holder_sees_the_certificate() -> None:
    table, audit = prototypes().to_frame(), prototypes().audit_frame()
    assert list(table) == list(explanations().to_frame())
    assert table["age"].tolist()[::2] == ["31", "44"]
    assert table["city"].tolist()[::2] == ["Ghent", "missing"]
    assert table.loc[1, "reason"] == audit.loc[1, "reason"] == "none_found"
    assert table[["k", "ncp", "pureness", "pureness_low", "pureness_high"]].isna().all(axis=None)
    assert audit["epsilon"].tolist()[::2] == [1.0, 1.0]
    assert audit["fit"].tolist()[::2] == ["9f2c9f2c9f2c9f2c", "9f2c9f2c9f2c9f2c"]


def test_a_slice_keeps_the_policy_and_equality_is_of_entries_and_policy() -> None:
    found = prototypes()
    part = found[1:]
    assert isinstance(part, Explanations)
    assert (part.policy, len(part.prototypes), part[1]) == (found.policy, 1, found[2])
    assert found.for_query(2) == (found[2],)
    assert found == prototypes() != part
    assert found != prototypes(under=policy(epsilon=2.0))
    assert repr(found) == "Explanations(2 released, 1 withheld)"


def test_a_record_for_plugins_names_no_population_of_a_prototype() -> None:
    record = release_record(prototype(), "dp", "p", "f")
    assert (record.status, record.k, record.ncp, record.pureness, record.population) == (
        "released",
        *[None] * 3,
        "",
    )
    assert release_record(released(), "exact", "p", "f").population == "f"


def test_json_has_no_fingerprint_of_the_population() -> None:
    text = prototypes().to_json()
    assert FINGERPRINT not in text
    content = json.loads(text)
    assert content["policy"] == policy().to_dict()
    assert [set(entry) - {"query", "status"} for entry in content["explanations"]] == [
        {"prototype", "certificate"},
        {"reason", "columns"},
        {"prototype", "certificate"},
    ]


def test_nothing_released_is_a_result_of_either_kind() -> None:
    nothing = prototypes(Withheld(0, "none_found"))
    assert nothing.summary()["epsilon"] is None
    pd.testing.assert_frame_equal(
        nothing.to_frame(), explanations(Withheld(0, "none_found")).to_frame()
    )


# --- groups of those who ask ----------------------------------------------------------------------

TRAIN = pd.DataFrame(
    {"age": np.arange(60) // 2 + 20, "pay": np.arange(60) * 10 + 1_000, "sex": ["f", "m"] * 30}
)
SCHEMA = Schema.from_frame(
    TRAIN,
    quasi_identifiers=["age"],
    columns={
        "age": Attribute(bounds=(18, 90)),
        "pay": Attribute(bounds=(0, 5_000)),
        "sex": Attribute(categories=["f", "m"]),
    },
    nullable=[],
)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
QUERIES = TRAIN.head(4).assign(branch=["Ghent", None, 7.0, "Ghent"])
ASKED: list[int] = []


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 1_200).to_numpy()


def explainer(queries: pd.DataFrame) -> pd.DataFrame:
    ASKED.append(len(queries))
    answers = [*range(30, 30 + len(queries) - 1), 0]  # the last one is not desired
    return TRAIN.iloc[answers].set_index(queries.index)


def protected(what: Any = explainer, **settings: Any) -> Any:
    settings = {
        "policy": PrivacyPolicy(guarantee="lookup", k=4),
        "plugins": [import_module("cfk_adapters.function")],
        **settings,
    }
    return protect(what, model=model, population=POPULATION, desired=True, **settings)


def groups(result: Explanations) -> list[Any]:
    return [row.get("group") for row in result.to_record().recount]


def test_every_call_is_grouped_by_a_column_that_need_be_no_feature() -> None:
    result, plain = protected(groups="branch").explain(QUERIES), protected().explain(QUERIES)
    assert groups(result) == ["Ghent", "missing", "7", "Ghent"]
    assert any(isinstance(entry, Withheld) for entry in result)
    assert result.to_record().params["cfk.groups"] == "branch"
    by_feature = protected(groups="sex").explain(QUERIES)
    assert (groups(by_feature), groups(by_feature[1:3])) == (["f", "m", "f", "m"], ["m", "f"])
    # None leaves, nor is there one unless it is asked for.
    assert (result, result.to_json()) == (plain, plain.to_json())
    assert result.to_frame().equals(plain.to_frame())
    assert "Ghent" not in repr(result) + repr(list(result)) + repr(result.about)
    record = plain.to_record()
    assert "cfk.groups" not in record.params
    assert not any("group" in row for row in record.recount)
    (seconds,) = {row["seconds"] for row in record.recount}  # of the call, per entry
    assert 0 < seconds < 60


def test_what_is_no_group_is_refused_before_anything_is_asked() -> None:
    many = pd.concat([QUERIES] * 20, ignore_index=True).assign(branch=range(80))
    ASKED.clear()
    with pytest.raises(
        InputError,
        match="column 'branch' has 80 different values in one call; groups are at most 50",
    ):
        protected(groups="branch").explain(many)
    with pytest.raises(InputError, match="the queries have 0 columns 'branch'"):
        protected(groups="branch").explain(QUERIES.drop(columns="branch"))
    assert ASKED == []


def test_labels_are_one_per_query_and_go_by_place() -> None:
    result = protected().explain(QUERIES)
    found = result.by_group("age", pd.Series([30, 40, 30, np.nan], index=[3, 2, 1, 0]))
    assert (groups(found), found) == (["30", "40", "30", "missing"], result)
    for labels in (["f"] * 3, pd.Series([1, 2, 3], index=[7, 8, 9])):
        with pytest.raises(
            InputError,
            match="3 labels of 'sex', and query 3 was answered; give one label per query",
        ):
            result.by_group("sex", labels)


def test_prototypes_are_grouped_as_well() -> None:
    pytest.importorskip("opendp", reason="the extra [dp] is not installed")
    with pytest.warns(PrivacyLeakWarning):
        private = protected(method=DPPrototypes(epsilon=5.0, seed=1), groups="branch", policy=None)
    result = private.explain(QUERIES)
    assert groups(result) == ["Ghent", "missing", "7", "Ghent"]
    record = result.to_record()
    assert record.population is not None
    assert set(record.population) == {"schema_version", "attributes"}
    assert record.environment is not None
    assert (record.environment["seed"], record.environment["generator"]) == (1, "dp")
    assert (record.people, {name for row in record.recount for name in row}) == (
        0,
        {"seconds", "group"},
    )


def test_a_feature_with_the_name_of_another_column_is_told_apart_in_the_table(
    tmp_path: Path,
) -> None:
    train = pd.DataFrame({"k": np.arange(40) % 4, "query": np.arange(40) % 2, "pay": np.arange(40)})
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["k"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        population, model=lambda rows: rows["pay"] > 20, desired=True
    )
    table = anonymizer.explain(train.head(2)).to_frame()
    assert list(table)[:6] == ["query", "status", "reason", "feature.k", "feature.query", "pay"]
    assert table.columns.is_unique
    assert table["query"].tolist() == [0, 1]
    # which two columns of a name are not written to
    table.to_parquet(tmp_path / "released.parquet")
