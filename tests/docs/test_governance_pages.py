"""The governance pages are written from what reports are made with."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

GOVERNANCE = Path(__file__).resolve().parents[2] / "docs" / "governance"
WRITTEN = runpy.run_path(str(GOVERNANCE / "make_pages.py"))["pages"]()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_page_is_current(path):
    """If not, run ``docs/governance/make_pages.py``."""
    assert path.read_text(encoding="utf-8") == WRITTEN[path], "run docs/governance/make_pages.py"
