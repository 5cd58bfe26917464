"""One Chromium for all tests of a worker, and reports that are hard to set: long names, many rows,
odd letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browsing import browser
from cfk_plugin import PrivacyReport
from cfk_plugin.report.data import ReportData
from reported import amount, content, example, failed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = [
    "marital_status_of_the_first_applicant_at_the_time_of_the_application",
    "Straße & Hausnummer",
    'income "net" < 1 000',
]
NAMES += [
    "AttributeWithoutAnyJointWhatsoeverInItsWholeLength",
    *(f"attribute {number}" for number in range(20)),
]


def hard(**changes: Any) -> PrivacyReport:
    """Return a report with many attributes, texts hard to set, and a check that fails."""
    made = failed(content())
    rates = ["0.1", "0.01", "0.001"]
    loss = {"mean NCP": [amount(0.9 * 0.87**place) for place in range(len(NAMES))]}
    found = {
        f"membership_{name}": [amount(float(x) ** power) for x in rates]
        for name, power in (
            ("cfd", 0.98),
            ("cfd_lrt", 1.01),
            ("loss", 0.4),
            ("answers", 1.0),
        )
    }
    empty = {"section": 8, "marks": {}, "note": ""}
    charts = [chart for chart in made["distributions"] if chart["id"] != "ncp_by_attribute"]
    charts += [{"id": "ncp_by_attribute", "labels": NAMES, "series": loss, **empty}]
    charts += [{"id": "roc", "labels": rates, "series": found, **empty}]
    groups = [
        group | {"group": f"Alleinerziehende über 60 Jahre in Thüringen {group['group']}"}
        for group in made["groups"]
    ]
    title = {"title": 'Credit decisions <retail & "private" customers>, Lübeck'}
    attributes = [made["attributes"][0] | {"name": name} for name in NAMES]
    return example(
        made, report=title, distributions=charts, groups=groups, attributes=attributes, **changes
    )


def write(folder: Path, html: str) -> str:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as started:  # ends with the file: two at a time in one process are refused
        yield started


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report as a file."""
    return write(tmp_path_factory.mktemp("report"), hard().to_html())


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the example of the documentation."""
    return write(tmp_path_factory.mktemp("example"), example().to_html())


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report with little of each kind; axe-core takes its time for every
    cell.
    """
    made = content()
    few = {
        name: made[name][:2]
        for name in ("checks", "certificates", "controls", "attributes", "groups", "attacks")
    }
    few["distributions"] = [
        each for each in made["distributions"] if each["id"] in ("class_sizes", "pureness")
    ]
    shown = {each["id"] for name in ("checks", "attacks") for each in few[name]}
    defined = {name: told for name, told in made["definitions"].items() if name in shown}
    report = PrivacyReport(
        ReportData.from_dict({**made, **few, "metrics": [], "definitions": defined})
    )
    return write(tmp_path_factory.mktemp("short"), report.to_html())
