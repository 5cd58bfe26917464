"""One Chromium for all tests of a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reported
from browsing import browser
from cfk_plugin import PrivacyReport
from cfk_plugin.report.render import render_html
from documented import brief, document

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EDITIONS: tuple[Any, ...] = ("internal", "external")


@pytest.fixture(scope="session")
def started() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report as a file."""
    return write(tmp_path_factory.mktemp("report") / "report.html", render_html(document()))


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the edition for print, in which everything is open and so can be looked at."""
    return write(tmp_path_factory.mktemp("report") / "print.html", render_html(document(), print_edition=True))


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report with one block of each kind; axe-core takes its time for every cell."""
    return write(tmp_path_factory.mktemp("report") / "short.html", render_html(brief(), print_edition=True))


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path) -> dict[str, str]:
    """Return the address of a report of troubled runs, as it is composed, in each edition."""
    table = reported.withheld(reported.rows(200), 20, "pureness_below_floor")
    table.loc[30, "k"] = 3
    shifts = {"membership_cfd": 0.1, "membership_cfd_lrt": 0.5, "membership_loss": 1.0}
    audits = [reported.audit(name) for name in ("linkage", "extraction_known_2000", "attribute_inference_linkage/zip")]
    subjects = ({"epsilon": 1.0, **reported.OF_POLICY, "subject": "protected"}, {"subject": "nice"})
    audits += [json.loads(reported.membership(shifts, 500, **of).to_json()) for of in subjects]
    folder = tmp_path_factory.mktemp("composed")
    with reported.store(folder, _empty_mlflow_store):
        run_id = reported.run(table, audits=audits)
        pages = {edition: PrivacyReport.of_runs(run_id, edition=edition).to_html() for edition in EDITIONS}
    return {edition: write(folder / f"{edition}.html", page) for edition, page in pages.items()}


def write(path: Path, html: str) -> str:
    path.write_text(html, encoding="utf-8")
    return path.as_uri()
