"""The variables of the environment that pages name are those that the code reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VARIABLE = re.compile(r"\bCFK_[A-Z_]+\b")


def read_by_the_code() -> set[str]:
    """Return the strings of the code that are nothing but a name of a variable."""
    found = set()
    for folder in ("cfk_plugin", "adapters"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
                if is_text and VARIABLE.fullmatch(node.value):
                    found.add(node.value)
    return found


def test_the_page_of_commands_lists_every_variable_and_no_other() -> None:
    page = (REPOSITORY / "docs" / "reference" / "cli.md").read_text("utf-8")
    table = page[page.index("| Variable |") :].partition("\n\n")[0]
    assert set(VARIABLE.findall(table)) == read_by_the_code()


def test_no_page_and_no_message_names_another_variable() -> None:
    known = read_by_the_code()
    files = [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "cfk_plugin").rglob("*.py")]
    files.append(REPOSITORY / "README.md")
    for path in files:
        assert set(VARIABLE.findall(path.read_text("utf-8"))) <= known, path
