"""A notebook shows tables of what was released, and nothing of a row or a query."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

from applicants import FEATURES, ROWS, label
from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
)
from cfk_plugin.errors import InputError
from prototyped import prototypes
from tracked import explanations as tracked_explanations
from tracked import released

ODD = "<script>alert(1)</script>"
TRAIN = ROWS[FEATURES].assign(job=ROWS["job"].replace("smith", ODD))
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "job"])
POPULATION = Population.from_frame(TRAIN, SCHEMA)
QUERIES = TRAIN[label(TRAIN) == 0].head(4).reset_index(drop=True)


class Cells(HTMLParser):
    """Collects the text of every cell, row by row, and refuses tags that stay open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.feed(html)
        assert not self.tags

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.tags}:
            self.rows[-1][-1] += data


def cells(thing: Any) -> list[list[str]]:
    return Cells(thing._repr_html_()).rows


def facts(thing: Any) -> dict[str, str]:
    return {row[0]: row[1] for row in cells(thing) if len(row) == 2}


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee="lookup", min_pureness=0)
    return KAnonymizer(policy=policy).fit(POPULATION, label, 1)


@pytest.fixture(scope="module")
def explanations(anonymizer: KAnonymizer) -> Explanations:
    """Return three explanations and a withheld one."""
    counterfactuals = TRAIN[label(TRAIN) == 1].head(4).reset_index(drop=True)
    counterfactuals.loc[1, "income"] = 0
    return anonymizer.transform(counterfactuals, QUERIES)


def test_explanations_are_a_table(explanations: Explanations) -> None:
    head, *rows = cells(explanations)
    assert head[:4] == ["query", "k", "NCP", "pureness"]
    assert len(explanations.withheld) == 1
    for entry, row in zip(explanations, rows, strict=True):
        if entry.status == "withheld":
            assert row == [str(entry.query), entry.text_for_operator()]
        else:
            assert row[:2] == [str(entry.query), str(entry.certificate.k)]
            assert row[4:] == [entry.cells()[name] for name in head[4:]]


def test_public_queries_are_compared() -> None:
    """The value before stands next to one that changes; only the notebook shows it."""
    result = tracked_explanations(released(advised={"age": 26, "city": "Namur"}))
    compared = result.compare(pd.DataFrame([{"age": 24, "city": "Namur", "salary": 60}]))
    assert re.findall("<s>(.*?)</s>", compared._repr_html_()) == ["24"]
    assert "<s>" not in result._repr_html_()
    assert compared.to_json() == result.to_json()
    assert repr(compared) == repr(result)


def test_comparison_needs_every_query(explanations: Explanations) -> None:
    with pytest.raises(InputError, match="1 queries"):
        explanations.compare(QUERIES.head(1))


def test_long_result_is_shortened(explanations: Explanations) -> None:
    withheld = [Withheld(i, "none_found") for i in range(33)]
    html = Explanations(withheld, policy=explanations.policy, columns=FEATURES)._repr_html_()
    assert len(Cells(html).rows) == 21
    assert "13 more" in html


def test_values_are_escaped(explanations: Explanations, anonymizer: KAnonymizer) -> None:
    """HTML is small, loads nothing, and takes its colours from the page."""
    entry = explanations.generalized[0]
    results = [explanations, explanations.compare(QUERIES), *explanations]
    declared = [POPULATION, SCHEMA, POPULATION.risk_profile(), explanations.policy, anonymizer]
    for thing in (*results, entry.certificate, *declared):
        html = thing._repr_html_()
        Cells(html)
        assert ODD not in html
        assert len(html) < 12_000
        assert not re.search(r"http|url\(|<script|(?<!-)color:(?!inherit)|rgb|(?<!&)#(?!888)", html)


def test_prototypes_show_their_budget() -> None:
    assert cells(prototypes())[0][1] == "epsilon"
    assert "k" not in facts(prototypes().prototypes[0])


def test_population_shows_its_exposure() -> None:
    sizes = TRAIN.groupby(["age", "job"])["income"].transform("size")
    figures = facts(POPULATION)
    assert figures["people"] == "120"
    assert figures["alone with theirs"] == f"{100 * (sizes == 1).mean():.0f} %"


def test_schema_shows_no_value() -> None:
    """Categories are counted: they may have been read from rows."""
    html = SCHEMA._repr_html_()
    assert [row[0] for row in Cells(html).rows[1:]] == FEATURES
    assert not [value for value in ("nurse", "clerk", "middle") if value in html]
