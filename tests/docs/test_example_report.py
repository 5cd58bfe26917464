"""The example report in the documentation is one that this release makes."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema

from cfk_plugin import PrivacyReport
from parsed import problems

GOVERNANCE = Path(__file__).resolve().parents[2] / "docs" / "governance"
DATA, PAGE = GOVERNANCE / "example-report.json", GOVERNANCE / "example-report.html"


def test_page_is_rendered_from_the_data() -> None:
    """If not, run ``docs/governance/make_example.py --render``."""
    found = PAGE.read_text(encoding="utf-8")
    assert found == PrivacyReport.read(DATA).to_html(), (
        "run docs/governance/make_example.py --render"
    )
    assert problems(found) == []


def test_data_follow_the_schema() -> None:
    """The one that the package has."""
    schema = json.loads(
        (files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(json.loads(DATA.read_text(encoding="utf-8")), schema)
