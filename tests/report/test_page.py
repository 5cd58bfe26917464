"""The page says everything as text, loads nothing, and writes amounts as readers expect."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from cfk_plugin import PrivacyReport
from cfk_plugin.report.amounts import shown
from cfk_plugin.report.data import Amount, ReportData
from parsed import Element, Tree, problems
from reported import HOSTILE, amount, bare, content, example

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
KEPT = frozenset(
    [
        "id",
        "status",
        "verdict",
        "family",
        "evidence",
        "bounds_source",
        "labels",
        "as_of",
        "first",
        "last",
        "since",
        "until",
        "checked_on",
    ]
)
"""Keys whose values have a form of their own."""

DP: dict[str, Any] = {
    "guarantee": "none",
    "covers": "the answers",
    "epsilon": 1.5,
    "delta": 1e-6,
    "total": None,
    "unit": "one person",
    "neighbours": "add or remove one",
    "mechanism": "Laplace, basic composition",
    "model_access": "queries",
    "model_epsilon": None,
    "model_delta": None,
    "seeded": True,
    "inferred": ["age"],
    "moved_towards_query": False,
    "fit": "1",
    "membership_bound": None,
    "threat_models": {"queries": "nothing holds"},
}


def hostile(value: Any) -> Any:
    """Return content in which every text of a person or a library looks like markup."""
    if isinstance(value, dict):
        return {name: each if name in KEPT else hostile(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return f"{value} {HOSTILE}" if isinstance(value, str) and value else value


def test_no_text_becomes_markup() -> None:
    report = PrivacyReport(ReportData.from_dict(hostile(content())))
    page = report.to_html()
    # the policy of the page forbids addresses, and words may look like one
    assert [each for each in problems(page) if not each.startswith("address")] == []
    links = [str(link.attributes["href"]) for link in Tree(page).root.all("a")]
    assert all(target.startswith(("#", "data:")) for target in links)
    assert "\x07" not in page
    assert "<script>" not in report._repr_html_()


def test_the_page_has_no_problem_and_loads_nothing() -> None:
    page = example().to_html()
    assert problems(page) == []
    root = Tree(page).root
    policies = [each.attributes for each in root.all("meta") if "http-equiv" in each.attributes]
    assert [each["content"] for each in policies] == [POLICY]
    assert len(page.encode()) < 500_000


@pytest.mark.parametrize(
    "changes",
    [
        {"dp": DP},
        {"dp": {**DP, "guarantee": "pure", "total": [2.0, 0.25], "membership_bound": 0.6}},
        {"attributes": [], "distributions": [], "groups": [], "attacks": [], "metrics": []},
        {"certificates": [], "runs": [], "picture": None, "releases": {"reasons": {}}},
        {"population": {"populations": 2, "subject_key": None}, "dp": None},
        {"policy": {"policies": [], "deviations": ["It changed."], "thresholds": []}},
    ],
)
def test_a_page_with_other_parts_has_no_problem(changes: dict[str, Any]) -> None:
    assert problems(example(**changes).to_html()) == []


def test_the_statement_of_prototypes_says_whether_it_is_a_guarantee() -> None:
    claimed = Tree(example(dp=DP).to_html()).root.text
    assert "not stated: nothing is guaranteed" in claimed
    assert "Here epsilon is only a claim" in claimed
    pure = {**DP, "guarantee": "pure", "total": [2.0, 0.25]}
    guaranteed = Tree(example(dp=pure).to_html()).root.text
    assert "The guarantee covers: the answers." in guaranteed
    assert "2, 0.25" in guaranteed


def test_the_data_can_be_downloaded_from_the_page() -> None:
    report = example()
    root = Tree(report.to_html()).root
    (link,) = [link for link in root.all("a") if "download" in link.attributes]
    kind, _, data = str(link.attributes["href"]).partition(",")
    assert kind == "data:application/json;base64"
    assert base64.b64decode(data).decode() == report.to_json()


def test_long_names_break_at_joints() -> None:
    column = content()["attributes"][0] | {"name": "marital_status_of_the_first_applicant"}
    assert "marital_<wbr>status_<wbr>" in example(attributes=[column]).to_html()


def test_a_notebook_shows_the_first_page_and_the_checks() -> None:
    report = example()
    cell = report._repr_html_()
    n_figures = 3
    assert len(re.findall("<tr>", cell)) == n_figures + 1 + len(report.data.checks)
    assert len(cell) < 20_000 < len(report.to_html())


# --- amounts ---


@pytest.mark.parametrize(
    ("of", "unit", "text"),
    [
        ({"value": 0.93, "low": 0.88, "high": 0.97}, "number", "0.93 (0.88–0.97)"),
        ({"value": 0.93, "low": 0.88, "high": 0.97}, "share", "93 % (88–97 %)"),
        ({"value": 0.12345}, "share", "12.3 %"),
        ({"value": 1_234_567}, "count", "1,234,567"),
        ({"value": 1_234_567}, "number", "1,230,000"),
        ({"value": 12.5}, "count", "12.5"),
        ({"value": 1.0}, "share", "100 %"),
        ({"value": 0.0000123}, "number", "1.23e-5"),
        ({"value": -0.05, "low": -0.1, "high": 0.02}, "number", "−0.05 (−0.1 to 0.02)"),
        ({"value": 12, "low": 10.0}, "count", "12 (at least 10)"),
        ({"value": 0.4, "high": 0.5}, "number", "0.4 (at most 0.5)"),
        ({"value": 1.0, "low": 1.0, "high": 1.0}, "number", "1"),
        ({"value": 0.99999}, "share", "99.9 %"),  # less than all is never written as all
        ({"value": 0.5, "low": 0.12345, "high": 0.98761}, "number", "0.5 (0.123–0.988)"),
        ({"band": "1–10"}, "count", "1–10"),
        ({}, "share", "not measured"),
    ],
)
def test_an_amount_is_written_as_readers_expect(of: dict[str, Any], unit: Any, text: str) -> None:
    assert shown(Amount(**of), unit) == text


# --- bars ---


def chart(name: str, values: list[float | None]) -> Element:
    """Return the table of a distribution with these values."""
    distribution = {
        "id": name,
        "section": 5,
        "labels": [str(place) for place in range(len(values))],
        "series": {"one": [amount(value) for value in values]},
        "marks": {"floor": 0.5},
        "note": "",
    }
    root = Tree(bare(distributions=[distribution]).to_html()).root
    tables = {each.attributes.get("id"): each for each in root.all("table")}
    return tables[f"table-chart-{name}"]


@pytest.mark.parametrize(
    ("name", "values", "widths"),
    [
        ("risk", [0.5, 1.0, None, 0.0], ["width:50%", "width:100%", "width:0%"]),
        ("intersection", [20, 5], ["width:100%", "width:25%"]),
    ],
)
def test_bars_are_as_long_as_their_numbers(
    name: str, values: list[float | None], widths: list[str]
) -> None:
    table = chart(name, values)
    assert [bar.attributes["style"] for bar in table.all("i")] == widths
    assert "Asked: floor: 0.5." in table.all("caption")[0].text
