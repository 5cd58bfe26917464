"""docs/explanation/real-sentences.md is what the product says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA = DOCS.parents[1] / "shared" / "data"
FOLDER = DOCS / "explanation" / "sentences"
PAGE = (DOCS / "explanation" / "real-sentences.md").read_text("utf-8")


@pytest.mark.slow
def test_page_has_the_sentences_of_today() -> None:
    """If not, run ``docs/explanation/sentences/make_sentences.py DATA``."""
    if not DATA.is_dir():
        pytest.skip("needs the tables of the paper, which are not in the repository")
    make = runpy.run_path(str(FOLDER / "make_sentences.py"))
    assert make["page_of"](DATA) == PAGE, "run docs/explanation/sentences/make_sentences.py DATA"
