"""docs/explanation/real-sentences.md is what the product says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import yaml

from cfk_plugin import Wording

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA = DOCS.parents[1] / "shared" / "data"
FOLDER = DOCS / "explanation" / "sentences"
PAGE = (DOCS / "explanation" / "real-sentences.md").read_text("utf-8")


def test_the_page_has_twelve_sentences_and_one_in_german() -> None:
    numbered = [line for line in PAGE.splitlines() if line[:1].isdigit()]
    assert len([line for line in numbered if "Ihr Kredit" not in line]) == 12
    assert len([line for line in numbered if "Ihr Kredit" in line]) == 1


def test_the_words_of_the_page_can_be_declared() -> None:
    for words in yaml.safe_load((FOLDER / "words.yaml").read_text("utf-8")).values():
        settings = ("titles", "units", "outcomes", "phrases")
        Wording(**{setting: words[setting] for setting in settings})
        if "german" in words:
            Wording(language="de", **words["german"])


@pytest.mark.slow
def test_the_page_is_what_the_product_says_today() -> None:
    if not DATA.is_dir():
        pytest.skip("needs the tables of the paper, which are not in the repository")
    make = runpy.run_path(str(FOLDER / "make_sentences.py"))
    assert make["page_of"](DATA) == PAGE, "run docs/explanation/sentences/make_sentences.py DATA"
