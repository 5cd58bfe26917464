"""How wide the columns of a table are, from what is in them; browsers give long texts too much and names too little."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cfk_plugin.report.rendering.document import Cell, Link, Mark, Table

STATUS_WORDS = {"pass": "Pass", "review": "Review", "fail": "Fail", "not_measured": "Not measured"}

STACK_WIDTHS = (20, 26, 32, 40, 48)
"""Widths in rem below which a table can be set as a list of its rows."""

JOINT = re.compile(r"(?<=[_/:@;=|-])(?=\w)|(?<=[.,])(?=[^\W\d])|(?<=[a-z])(?=[A-Z])")
"""Where a long word may be broken; never within a number."""

LONG_WORD = 12
"""Characters of the longest word that is not broken."""

_LINE = 112.0  # characters across a table, on paper and on a large screen
_GAP = 2.2  # characters between two columns
_LONGEST_PART = 20
_SHAPE = 3  # characters that the shape of a status takes
_WASTE = 1 / 3  # of a column's longest word stays empty at the end of a line
_NAMES = 1.6  # the names of rows get so much more room than other texts
_MOST_LINES = 40
_NARROW_TABLE = 64  # characters; below, a table is as wide as its content
_FEWEST_STACKED = 3
_CHARACTER, _PADDING = 0.47, 1.0  # of the root's font size


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table.

    Attributes
    ----------
    widths : tuple of float
        Percentages; empty where columns are as wide as their content.
    stacks_below : int
        Width in rem below which rows become lists; 0 where they never do.
    """

    widths: tuple[float, ...]
    stacks_below: int


def layout(table: Table) -> Layout:
    """Choose the layout of a table."""
    columns = [[name, *(row[place] for row in table.rows)] for place, name in enumerate(table.columns)]
    texts = [max(len(words(cell)) for cell in cells) for cells in columns]
    parts = [
        max(_unbroken(cell, whole=place in table.numeric) for cell in cells) for place, cells in enumerate(columns)
    ]
    needed = sum(parts) * _CHARACTER + len(parts) * _PADDING
    stacks = next((width for width in STACK_WIDTHS if width >= needed), STACK_WIDTHS[-1])
    stacks = stacks if len(columns) >= _FEWEST_STACKED else 0
    if sum(texts) + _GAP * len(texts) <= _NARROW_TABLE:
        return Layout((), stacks)
    widths = _fewest_lines([_NAMES * texts[0], *texts[1:]], parts)
    return Layout(tuple(round(100 * width / sum(widths), 2) for width in widths), stacks)


def _fewest_lines(texts: list[float], parts: list[int]) -> list[float]:
    """Return widths with which the longest text takes as few lines as can be, and nothing is broken that should not."""
    for lines in range(2, _MOST_LINES):
        widths = [max(part, text / lines + _WASTE * part) + _GAP for text, part in zip(texts, parts, strict=True)]
        if sum(widths) <= _LINE:
            return widths
    return [part + _GAP for part in parts]


def _unbroken(cell: Cell, *, whole: bool) -> int:
    """Return how many characters should stay on one line."""
    text = words(cell)
    if isinstance(cell, Mark):
        return len(text) + _SHAPE
    longest = max((len(part) for word in text.split() for part in broken(word)), default=1)
    return min(_LONGEST_PART, len(text) if whole or len(text) <= LONG_WORD else longest)


def broken(word: str) -> list[str]:
    """Return the parts between which a word may be broken."""
    return [word] if len(word) <= LONG_WORD else JOINT.split(word)


def words(cell: Cell) -> str:
    """Return what a cell says."""
    match cell:
        case str():
            return cell
        case Mark():
            return STATUS_WORDS[cell.status]
        case Link():
            return cell.text
        case _:
            return "".join(words(part) for part in cell)
