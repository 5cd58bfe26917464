"""One Chromium for all tests of a worker, and reports that are hard to set: long names, many rows,
odd letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reported
from browsing import browser
from cfk_plugin import PrivacyReport
from cfk_plugin.report.data import ReportData
from reported import amount, content, example, failed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RUNS = "https://mlflow.example.org"
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
    """Return a report with many attributes, curves that all but coincide, texts hard to set, and a
    check that fails.
    """
    made = failed(content())
    rates = [f"{10 ** (power / 10):.3g}" for power in range(-30, 1)]
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
    found |= {
        name: [amount(min(1.0, 2.7 * float(x))) for x in rates]
        for name in ("bound_tight", "bound_paper")
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
    return write(tmp_path_factory.mktemp("report"), hard().to_html(address=RUNS))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the address of the example of the documentation in each edition."""
    outside = content() | {name: [] for name in ("runs", "certificates")}
    outside["report"] |= {"edition": "external", "command": ""}
    made = {"internal": example(), "external": PrivacyReport(ReportData.from_dict(outside))}
    return {
        edition: write(tmp_path_factory.mktemp(edition), page.to_html())
        for edition, page in made.items()
    }


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the edition for print, in which everything is open and so can be looked
    at.
    """
    return write(
        tmp_path_factory.mktemp("printed"), hard().to_html(address=RUNS, print_edition=True)
    )


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
        each for each in made["distributions"] if each["id"] in ("class_sizes", "frontier")
    ]
    shown = {each["id"] for name in ("checks", "attacks") for each in few[name]}
    defined = {name: told for name, told in made["definitions"].items() if name in shown}
    page = PrivacyReport(
        ReportData.from_dict({**made, **few, "metrics": [], "definitions": defined})
    )
    return write(tmp_path_factory.mktemp("short"), page.to_html(print_edition=True))


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path) -> dict[str, str]:
    """Return the address of a report of troubled runs in each edition."""
    table = reported.withheld(reported.rows(200), 20, "pureness_below_floor")
    table.loc[30, "k"] = 3
    shifts = {"membership_cfd": 0.1, "membership_cfd_lrt": 0.5, "membership_loss": 1.0}
    audits = [
        reported.audit(name)
        for name in ("linkage", "extraction_known_2000", "attribute_inference_linkage/zip")
    ]
    subjects = ({"epsilon": 1.0, **reported.OF_POLICY, "subject": "protected"}, {"subject": "nice"})
    audits += [json.loads(reported.membership(shifts, 500, **of).to_json()) for of in subjects]
    with reported.store(tmp_path_factory.mktemp("troubled"), _empty_mlflow_store):
        run_id = reported.run(table, audits=audits)
        editions: tuple[Any, ...] = ("internal", "external")
        pages = {
            edition: PrivacyReport.of_runs(run_id, edition=edition).to_html()
            for edition in editions
        }
    return {
        edition: write(tmp_path_factory.mktemp(edition), page) for edition, page in pages.items()
    }
