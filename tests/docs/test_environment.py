"""The variables of the environment that pages name are those that the code reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = [*(REPOSITORY / "cfk_plugin").rglob("*.py"), *(REPOSITORY / "adapters").rglob("*.py")]
VARIABLE = re.compile(r"\bCFK_[A-Z_]+\b")


@pytest.fixture(scope="module")
def variables() -> set[str]:
    """Return the strings of the code that are nothing but a name of a variable."""
    names = [re.findall(r"""["'](CFK_[A-Z_]+)["']""", path.read_text("utf-8")) for path in CODE]
    return {name for names_of_file in names for name in names_of_file}


def test_page_lists_every_variable(variables: set[str]) -> None:
    """The page of commands has them in a table."""
    page = (REPOSITORY / "docs" / "reference" / "cli.md").read_text("utf-8")
    table = page[page.index("| Variable |") :].partition("\n\n")[0]
    assert set(VARIABLE.findall(table)) == variables


def test_no_text_names_another_variable(variables: set[str]) -> None:
    """Neither a page nor a message does."""
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *CODE]:
        assert set(VARIABLE.findall(path.read_text("utf-8"))) <= variables, path
