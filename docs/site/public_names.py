"""Restrict the API page to public names.

`tests/public_api.txt` lists which members of a class are public. MkDocs calls this hook, which hands
that list to mkdocstrings, so that the page shows neither more nor fewer members.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PUBLIC_API = Path(__file__).resolve().parents[2] / "tests" / "public_api.txt"
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Give each class of the API page its public members."""
    if page.file.src_uri != "reference/api.md":
        return markdown
    return DIRECTIVE.sub(_with_members, markdown)


def public_members() -> dict[str, list[str]]:
    """Return the names of the public members of each class."""
    members: dict[str, list[str]] = {}
    for line in PUBLIC_API.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"member (\w+)\.(\w+)", line):
            members.setdefault(match[1], []).append(match[2])
    return members


def _with_members(directive: re.Match[str]) -> str:
    class_name = directive[1].rpartition(".")[2]
    names = public_members().get(class_name, [])
    return f"{directive[0]}\n    options:\n      members: [{', '.join(names)}]"
