"""What a notebook shows: tables of what was released, in the page's colours, and nothing of a row
or a query.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    ProtectedExplainer,
    Schema,
    Withheld,
    protect,
)
from cfk_plugin.data.display import share
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import prosecutor_risk
from prototyped import prototypes

ODD = "<script>alert(1)</script>"


class Text(HTMLParser):
    """Collects what a reader sees, row by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open, "tags are not closed"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    random = np.random.default_rng(0)
    city = random.choice(["Antwerp", "Ghent", ODD], 200)
    return pd.DataFrame(
        {"age": random.integers(20, 60, 200), "city": city, "pay": random.integers(0, 100, 200)}
    )


@pytest.fixture(scope="module")
def population(train: pd.DataFrame) -> Population:
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "city"]))


@pytest.fixture(scope="module")
def queries(train: pd.DataFrame) -> pd.DataFrame:
    return train[train["pay"] <= 50].head(4).reset_index(drop=True)


@pytest.fixture(scope="module")
def private(train: pd.DataFrame, population: Population) -> ProtectedExplainer:
    def explainer(asked: pd.DataFrame) -> pd.DataFrame:
        found = train[train["pay"] > 50].head(len(asked)).copy()
        found.iloc[1:2, 2] = 0
        return found

    policy = PrivacyPolicy(k=5, guarantee="lookup", min_pureness=0)
    return protect(
        explainer, model=lambda x: x["pay"] > 50, population=population, policy=policy, desired=True
    )


@pytest.fixture(scope="module")
def explanations(private: ProtectedExplainer, queries: pd.DataFrame) -> Explanations:
    return private.explain(queries)


def test_one_explanation_is_not_said_to_be_several(
    private: ProtectedExplainer, queries: pd.DataFrame
) -> None:
    assert (
        "<b>1 explanation: 1 released, 0 withheld</b>"
        in private.explain(queries.head(1))._repr_html_()
    )


def test_explanations_are_a_table_of_what_was_released(explanations: Explanations) -> None:
    head, *rows = Text(explanations._repr_html_()).rows
    assert head == ["query", "k", "NCP", "pureness", "age", "city", "pay"]  # k is in view first
    for entry, row in zip(explanations, rows, strict=True):
        if entry.status == "withheld":
            assert row == [str(entry.query), entry.text_for_operator()]
        else:
            assert row[0] == str(entry.query)
            assert row[4:] == [entry.cells()[name] for name in head[4:]]
            assert float(row[1]) == entry.certificate.k
    assert len(explanations.withheld) == 1


def test_what_was_before_is_shown_where_the_queries_are_said_to_be_public(
    explanations: Explanations, queries: pd.DataFrame
) -> None:
    shown = explanations.compare(queries)
    changed = 0
    for entry, row in zip(shown, Text(shown._repr_html_()).rows[1:], strict=True):
        if entry.status == "released":
            own = queries.loc[entry.query]
            is_new = not 50 < own["pay"] == entry.released["pay"]
            assert row[6] == (
                f"{own['pay']} {entry.cells()['pay']}" if is_new else entry.cells()["pay"]
            )
            changed += is_new
    assert changed > 0
    assert "<s>" not in explanations._repr_html_()
    assert shown[:1]._repr_html_().count("<s>") < shown._repr_html_().count("<s>")
    assert shown.to_json() == explanations.to_json()
    assert repr(shown) == repr(explanations)
    with pytest.raises(InputError, match="1 queries, and query 3 was answered"):
        explanations.compare(queries.head(1))


def test_long_results_are_shortened_and_say_so(explanations: Explanations) -> None:
    policy, columns = explanations.policy, explanations.columns
    many = Explanations(
        [Withheld(i, "none_found") for i in range(33)], policy=policy, columns=columns
    )
    html = many._repr_html_()
    assert len(Text(html).rows) == 21
    assert "13 more are not shown" in html


def test_an_explanation_shows_its_sentence_and_every_value(
    explanations: Explanations, population: Population, queries: pd.DataFrame
) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(population, lambda x: x["pay"] > 50, desired=True)
    entry = anonymizer.explain(queries).generalized[0]
    html = entry._repr_html_()
    assert entry.text() in html.replace("&lt;", "<").replace("&gt;", ">")
    assert {row[0] for row in Text(html).rows} >= {"age", "city", "pay", "k", "ncp", "pureness"}
    assert explanations.withheld[0].text_for_operator() in explanations.withheld[0]._repr_html_()


def test_everything_is_escaped_small_and_without_a_colour_of_its_own(
    explanations: Explanations,
    queries: pd.DataFrame,
    private: ProtectedExplainer,
    population: Population,
) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    fitted = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        population, lambda x: x["pay"] > 50, desired=True
    )
    things = [
        explanations.compare(queries),
        *explanations,
        *(e.certificate for e in explanations.generalized),
    ]
    things += [explanations.summary(), population.schema, population.risk_profile()]
    for thing in (*things, private, population, anonymizer, fitted, explanations.policy):
        html = thing._repr_html_()
        Text(html)
        assert ODD not in html
        assert len(html) < 12_000
        assert html.count("<style>") == 1
        assert not re.search(r"http|url\(|<script|(?<!-)color:(?!inherit)|rgb|(?<!&)#(?!888)", html)


def test_prototypes_show_their_budget_and_no_people() -> None:
    result = prototypes()
    assert Text(result._repr_html_()).rows[0][1] == "epsilon"
    assert {"epsilon", "covers"} <= {
        row[0] for row in Text(result.prototypes[0]._repr_html_()).rows
    }
    assert "<svg" not in result.prototypes[0]._repr_html_()


def test_what_protects_says_which_guarantee_it_gives(
    private: ProtectedExplainer, population: Population
) -> None:
    assert "At least 5 people fit each region" in private._repr_html_()
    assert "intersection after a change" in PrivacyPolicy(k=7)._repr_html_()
    fitted = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        population, lambda x: x["pay"] > 50, desired=True
    )
    rows = dict(row for row in Text(fitted._repr_html_()).rows if len(row) == 2)
    assert rows["people"] == "200"
    assert rows["answers in the catalogue"] == f"{len(fitted.published()):,}"


def test_a_population_says_how_exposed_its_people_are(
    train: pd.DataFrame, population: Population
) -> None:
    sizes = train.groupby(["age", "city"])["pay"].transform("size")
    rows = dict(row for row in Text(population._repr_html_()).rows if len(row) == 2)
    assert rows["people"] == "200"
    assert rows["alone with theirs"] == f"{100 * (sizes == 1).mean():.0f} %"
    assert rows["with fewer than 9 others"] == f"{100 * (sizes < 10).mean():.0f} %"
    assert [share(x) for x in (0, 0.001, 0.5, 0.999, 1)] == [
        "0 %",
        "under 1 %",
        "50 %",
        "over 99 %",
        "100 %",
    ]


def test_a_risk_profile_says_the_same_of_any_k(population: Population) -> None:
    profile = population.risk_profile(5)
    rows = dict(Text(profile._repr_html_()).rows)
    assert rows["people"] == "200"
    assert rows["alone with theirs"] == share(profile.unique)
    assert rows["with fewer than 4 others"] == share(profile.below_k)
    shown = dict(Text(prosecutor_risk([4, 5, 20])._repr_html_()).rows)
    assert shown == {
        "highest": "0.25",
        "mean": "0.167",
        "releases above the threshold": share(1 / 3),
    }
    assert "nan" not in prosecutor_risk([])._repr_html_()


def test_a_schema_says_what_is_declared_and_shows_no_value(train: pd.DataFrame) -> None:
    settings: dict[str, Any] = {
        "quasi_identifiers": ["age", "city"],
        "immutable": ["city"],
        "monotone": {"age": "increase"},
        "columns": {"age": Attribute(bounds=(18, 99))},
    }
    html = Schema.from_frame(train, **settings)._repr_html_()
    assert Text(html).rows[1:] == [
        ["age", "quasi-identifier", "numeric", "upwards only", "declared: bounds"],
        ["city", "quasi-identifier", "nominal", "no", "read from the rows"],
        ["pay", "other", "numeric", "yes", "not declared"],
    ]
    declared = Schema.from_frame(
        train, **{**settings, "columns": {"city": Attribute(categories=["Antwerp", "Ghent", ODD])}}
    )._repr_html_()
    assert Text(declared).rows[2][-1] == "declared: 3 categories"
    assert "Antwerp" not in declared


def test_a_summary_is_a_dict_that_a_notebook_shows_as_a_table(explanations: Explanations) -> None:
    summary = explanations.summary()
    assert json.loads(json.dumps(summary)) == summary
    html = summary._repr_html_()
    shown = {row[2]: row[0] for row in Text(html).rows}
    assert (shown["asked"], shown["released"], shown["withheld"]) == ("4", "3", "1")
    assert int(shown["k_min"]) == summary["k_min"]
    assert shown["ncp_mean"] == f"{summary['ncp_mean']:.3g}"
    assert "epsilon" not in shown  # None says nothing
    missing = [name for name, value in summary.items() if value is not None and name not in html]
    assert missing == []
