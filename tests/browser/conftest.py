"""One Chromium for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reported
from attacked import membership
from browsing import browser
from cfk_plugin.report.build import build
from cfk_plugin.report.compose import compose
from cfk_plugin.report.data import Edition
from cfk_plugin.report.render import render_html
from documented import brief, document

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the address of a report of troubled runs, as it is composed, in each edition."""
    table = reported.rows(200)
    table.loc[:20, ["k", "ncp", "pureness", "pureness_low", "pureness_high"]] = np.nan
    table.loc[:20, ["status", "reason"]] = ["suppressed", "pureness_below_floor"]
    table.loc[30, "k"] = 3
    about = {"policy": reported.POLICY.to_dict(), "population": "f" * 64, "subject": "protected"}
    shifts = {"membership_cfd": 0.1, "membership_cfd_lrt": 0.5, "membership_loss": 1.0}
    audits = [reported.audit(name) for name in ("linkage", "extraction_known_2000", "attribute_inference_linkage/zip")]
    audits += [membership(shifts, 500, **of).to_dict() for of in ({"epsilon": 1.0, **about}, {"subject": "nice"})]
    folder = tmp_path_factory.mktemp("composed")
    editions: tuple[Edition, ...] = ("internal", "external")
    return {
        edition: write(
            folder / f"{edition}.html",
            render_html(compose(build(reported.evidence(reported.run(table, audits=audits)), edition=edition))),
        )
        for edition in editions
    }


def write(path: Path, html: str) -> str:
    path.write_text(html, encoding="utf-8")
    return path.as_uri()
