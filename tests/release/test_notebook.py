"""A notebook shows tables of what was released, and nothing of a row or a query."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from cfk_plugin import Explanations, Withheld
from cfk_plugin.errors import InputError
from prototyped import prototypes
from tracked import explanations as tracked_explanations
from tracked import released
from worlds import World

ODD = "<script>alert(1)</script>"


def cells(thing: Any) -> list[list[str]]:
    """Return the text of every cell, row by row; fail if a tag stays open."""
    page = ET.fromstring(f"<div>{thing._repr_html_()}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]


@pytest.fixture(scope="module")
def odd(residents: World) -> World:
    """Return residents with a job that is a script."""
    table = residents.table.assign(job=residents.table["job"].replace("b", ODD))
    return replace(residents, table=table, strangers=table.drop(columns="name").head(60))


@pytest.fixture(scope="module")
def explanations(odd: World) -> Explanations:
    """Return explanations, one of which is withheld."""
    counterfactuals = odd.accepted.assign(salary=[20, *odd.accepted["salary"][1:]])
    return odd.lookup.transform(counterfactuals, odd.refused)


def test_explanations_are_a_table(explanations: Explanations) -> None:
    """A row has what the entry says; a withheld one has its reason."""
    head, *rows = cells(explanations)
    assert len(explanations.withheld) == 1
    for entry, row in zip(explanations, rows, strict=True):
        if entry.status == "withheld":
            assert row == [str(entry.query), entry.text_for_operator()]
        else:
            assert row[4:] == [entry.cells()[name] for name in head[4:]]


def test_public_queries_are_compared(explanations: Explanations, odd: World) -> None:
    """The value before stands next to one that changes; only the notebook shows it."""
    result = tracked_explanations(released(advised={"age": 26, "city": "Namur"}))
    compared = result.compare(pd.DataFrame([{"age": 24, "city": "Namur", "salary": 60}]))
    assert re.findall("<s>(.*?)</s>", compared._repr_html_()) == ["24"]
    assert "<s>" not in result._repr_html_()
    assert (compared.to_json(), repr(compared)) == (result.to_json(), repr(result))
    with pytest.raises(InputError, match="1 queries"):
        explanations.compare(odd.refused.head(1))


def test_long_result_is_shortened(explanations: Explanations) -> None:
    """Twenty rows are shown."""
    withheld = [Withheld(i, "none_found") for i in range(33)]
    result = Explanations(withheld, policy=explanations.policy, columns=["age"])
    assert len(cells(result)) == 21
    assert "13 more" in result._repr_html_()


def test_values_are_escaped(explanations: Explanations, odd: World) -> None:
    """HTML is small, loads nothing, and takes its colours from the page."""
    results = [explanations, explanations.compare(odd.refused), *explanations]
    holder = [odd.population, odd.schema, odd.population.risk_profile(), odd.anonymizer]
    shown = [*results, explanations.generalized[0].certificate, explanations.policy, *holder]
    for thing in shown:
        html = thing._repr_html_()
        cells(thing)
        assert ODD not in html
        assert len(html) < 12_000
        assert not re.search(r"http|url\(|<script|(?<!-)color:(?!inherit)|rgb|(?<!&)#(?!888)", html)


def test_prototypes_show_their_budget() -> None:
    """They have an epsilon in the place of k."""
    assert cells(prototypes())[0][1] == "epsilon"
    assert "k" not in {row[0] for row in cells(prototypes().prototypes[0])}


def test_schema_shows_no_value(odd: World) -> None:
    """Categories are counted: they may have been read from rows."""
    html = odd.schema._repr_html_()
    assert {*odd.strangers} <= {row[0] for row in cells(odd.schema)}
    assert not [value for value in ("A1", "B2", "secret") if value in html]
