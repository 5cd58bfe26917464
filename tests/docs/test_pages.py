"""Each page names its reader and question, and its code fits the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(path.relative_to(REPOSITORY).as_posix() for path in DOCS.rglob("*.md"))
WIDEST_CODE = 88
CODE = re.compile(r"^```(?:python|console|sh|yaml|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_reader_and_its_question_below_the_title(page: str) -> None:
    _, question, *_ = text_of(page).split("\n\n")
    assert re.fullmatch(r"\*For [^*]+\?\*", question.replace("\n", " ")), question


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_code_fits_the_site(page: str) -> None:
    lines = [line for block in CODE.findall(text_of(page)) for line in block.splitlines()]
    assert [line for line in lines if len(line) > WIDEST_CODE] == []


def quick_start(page: str) -> str:
    """Return the first Python block of a page with its output."""
    block = re.search(
        r"^```python\n.*?^```\n\n```text\n.*?^```$", text_of(page), re.MULTILINE | re.DOTALL
    )
    assert block
    return block[0]


def test_home_has_the_quick_start_of_the_readme() -> None:
    assert quick_start("docs/index.md") == quick_start("README.md")
