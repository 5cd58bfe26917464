"""Text that is only text: names of attributes, runs and people must not become markup, a formula or a link."""

from __future__ import annotations

import re
from urllib.parse import quote

_SPACE = re.compile(r"\s+")
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""What XML forbids, other control characters, and marks that turn the direction of reading."""

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$@])")
_ADDRESS = re.compile(r"://|\bwww\.", re.IGNORECASE)  # GitHub makes links of bare addresses
_LIST = re.compile(r"^(\d+)([.)])(?=\s|$)")
_FORMULA = tuple("=+-@＝＋－＠")
_TARGET = "/:?#=&%-._~"


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return _NOT_TEXT.sub("", _SPACE.sub(" ", text)).strip()


def markdown(text: str) -> str:
    """Return a text of one line that GitHub flavoured Markdown shows as it is, in a paragraph or a cell."""
    shown = _MARKDOWN.sub(r"\\\1", one_line(text).replace("&", "&amp;"))
    shown = _ADDRESS.sub(lambda found: found[0].replace(":", r"\:").replace(".", r"\."), shown)
    shown = _LIST.sub(r"\1\\\2", shown)
    return f"\\{shown}" if shown.startswith(("#", "+", "-", "=")) else shown


def markdown_target(target: str) -> str:
    """Return the target of a link in which nothing ends it."""
    return quote(one_line(target), safe=_TARGET)


def csv_cell(text: str) -> str:
    """Return a text of one line that a spreadsheet shows as it is: what would be a formula gets an apostrophe."""
    shown = one_line(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
