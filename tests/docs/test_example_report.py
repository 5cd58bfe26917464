"""The example report in the documentation is one that this release makes."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from cfk_plugin import PrivacyReport
from parsed import problems

pytestmark = pytest.mark.full_search

GOVERNANCE = Path(__file__).resolve().parents[2] / "docs" / "governance"
DATA, PAGE = GOVERNANCE / "example-report.json", GOVERNANCE / "example-report.html"


def test_the_page_is_rendered_from_the_data() -> None:
    found = PAGE.read_text(encoding="utf-8")
    assert found == PrivacyReport.read(DATA).to_html(), (
        "run docs/governance/make_example.py --render"
    )
    assert problems(found) == []


def test_the_data_follow_the_schema() -> None:
    schema = json.loads(
        (files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(json.loads(DATA.read_text(encoding="utf-8")), schema)


def test_the_example_shows_what_the_guide_says_of_it() -> None:
    data = PrivacyReport.read(DATA).data
    states = [check.status for check in data.checks]
    assert (data.verdict, states.count("fail"), states.count("not_measured")) == ("review", 0, 3)
    assert [*data.policy["guarantees"]] == ["catalogue"]
    assert data.metric("k_min").value >= 12
    assert data.metric("true_rate").value == 1
    assert {distribution.id for distribution in data.distributions} >= {
        "class_sizes",
        "frontier",
        "pureness",
        "risk",
    }
