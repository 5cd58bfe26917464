"""The report as a browser shows it: from a file, without a network, on small and large screens and
on paper.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import (
    missing_glyphs,
    overlapping_texts,
    smallest_text,
    too_wide,
    violations,
    visit,
)
from reported import content, example, failed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

A4, A4_HIGH = 673, 979  # CSS pixels between the margins
OPEN = "() => document.querySelectorAll('details').forEach(fold => fold.open = true)"


@pytest.mark.parametrize(
    ("width", "media"), [(320, "screen"), (768, "screen"), (1440, "screen"), (A4, "print")]
)
def test_report_fits_every_screen(started: Browser, report: str, width: int, media: str) -> None:
    """Paper as well; the console stays empty, and no network is asked."""
    with visit(started, report, width=width, media=media) as found:
        assert too_wide(found) == []
        assert overlapping_texts(found) == []
        assert smallest_text(found) >= (9 if media == "print" else 12)  # 9 pixels are 7 points
        found.run(OPEN)
        assert too_wide(found) == []
        assert missing_glyphs(found) == []
        assert (found.said, found.asked) == ([], [])


def test_short_report_is_accessible(started: Browser, short: str) -> None:
    """A page that is spoilt on purpose is not."""
    with visit(started, short) as found:
        found.run(OPEN)
        assert violations(found) == []
        found.run(
            "() => { document.documentElement.lang = ''; document.querySelector('h1').style.color = '#ddd' }"
        )
        rules = {violation.split(":")[0] for violation in violations(found)}
    assert rules == {"html-has-lang", "color-contrast"}


@pytest.mark.slow
def test_report_is_accessible(started: Browser, report: str) -> None:
    """Every cell of a long report, on a phone and dark."""
    with visit(started, report, width=320, scheme="dark") as found:
        found.run(OPEN)
        assert violations(found) == []


FIRST_PAGE = ".audience, h1, .verdict, .tiles > div, .rest, .picture, .next, .beyond"
BOXES = """selector => [...document.querySelectorAll(selector)].map(e => {
    const box = e.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })"""


def test_first_page_fits_one_screen(started: Browser, page: str) -> None:
    """And one sheet of paper."""
    with visit(started, page, width=1440, height=900) as found:
        boxes = found.page.evaluate(BOXES, FIRST_PAGE)
        assert len(boxes) == 10
        assert all(
            left >= 0 and top >= 0 and right <= 1440 and bottom <= 900
            for left, top, right, bottom in boxes
        )
        below = found.page.evaluate(BOXES, "nav, main")
        assert min(top for _, top, _, _ in below) >= max(bottom for _, _, _, bottom in boxes)
    with visit(started, page, width=A4, media="print") as found:
        boxes = found.page.evaluate(BOXES, FIRST_PAGE)
        assert max(bottom for _, _, _, bottom in boxes) <= A4_HIGH


def write(folder: Path, html: str) -> str:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def test_keyboard_reaches_checks_first(started: Browser, report: str) -> None:
    """Links open the fold of their place."""
    with visit(started, report) as found:
        found.page.keyboard.press("Tab")
        skip = found.run("""() => { const e = document.activeElement, box = e.getBoundingClientRect();
            return [e.className, e.hash, box.top >= 0 && box.left >= 0, getComputedStyle(e).outlineStyle]; }""")
        assert skip == ["skip", "#section-0", True, "solid"]
        found.page.keyboard.press("Enter")
        assert found.run("() => document.activeElement.id") == "section-0"
        found.page.keyboard.press("Tab")
        assert found.run("() => document.activeElement.closest('table').id") == "table-open"
        assert not found.run("() => document.querySelector('#section-9').checkVisibility()")
        found.page.click("#table-open a[href='#section-9'] >> nth=0")
        top = found.run("() => document.querySelector('#section-9').getBoundingClientRect().top")
        assert 0 <= top < 900
        assert found.run("() => document.querySelector('#section-9').checkVisibility()")
        for place in range(3):
            found.page.click(f".next li:nth-child({place + 1}) a")
            target = found.run(
                "() => document.querySelector(location.hash).getBoundingClientRect().top"
            )
            assert 0 <= target < 900
        assert found.asked == []


def test_phone_shows_rows_as_lists(started: Browser, report: str) -> None:
    """They stay tables for assistive technology."""
    with visit(started, report, width=320) as found:
        assert (
            found.run("() => getComputedStyle(document.querySelector('#table-open td')).display")
            == "flow-root"
        )
        label = (
            "() => getComputedStyle(document.querySelector('#table-open td'), '::before').content"
        )
        assert found.run(label) == '"Status" / ""'  # read aloud once, as the heading of the column
        tree = found.page.locator("#table-open").aria_snapshot()
    assert 'columnheader "Measured"' in tree
    assert 'rowheader "Group gap (group_gap)"' in tree
    assert 'cell "Fail"' in tree


def test_paper_opens_folds(started: Browser, report: str) -> None:
    """And its ground is light."""
    ground = "() => getComputedStyle(document.documentElement).getPropertyValue('--paper')"
    folded = "() => document.querySelector('details table td').checkVisibility()"
    with visit(started, report, scheme="dark") as found:
        dark = found.run(ground)
        assert not found.run(folded)
        found.page.emulate_media(media="print")
        assert found.run(folded)
        assert found.run(ground) != dark


def test_printed_pages_have_titles(started: Browser, tmp_path: Path) -> None:
    """The first one has the verdict."""
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext: apt install poppler-utils")
    printed = tmp_path / "printed.pdf"
    report = example(
        failed(content()),
        report={"title": "Alleinerziehende über 60 Jahre in Thüringen"},
        controls=[],
    )
    with visit(started, write(tmp_path, report.to_html()), media="print") as found:
        found.page.pdf(path=printed, prefer_css_page_size=True, format="A4")
    read = subprocess.run(
        ["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True
    )
    pages = read.stdout.split("\f")[:-1]
    assert 5 < len(pages) <= 12
    assert all("Privacy report, internal" in page for page in pages)
    numbers = [
        re.search(rf"\b{number} ?/ ?{len(pages)}$", page, re.M)
        for number, page in enumerate(pages, start=1)
    ]
    assert None not in numbers
    for words in ("Fail", "Group gap", "Next", "Not covered", report.data.report["title"]):
        assert words in pages[0]
