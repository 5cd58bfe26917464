"""The report as a document: sections of text, tables and charts, before anything is said of HTML or Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from cfk_plugin.report.amounts import NOT_MEASURED_TEXT, Edition, shown, unit_of
from cfk_plugin.report.data import CheckResult, Status, Verdict


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to a place in the document (``#anchor``) or, where an address is configured, to a run."""

    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The status of a check, shown as a word and a shape."""

    status: Status


Cell = str | Link | Mark | tuple["str | Link", ...]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with a caption. The first cell of a row is its heading."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()  # columns that are set right
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars: one or several series over categories. Values that are None have no bar, only their text."""

    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    texts: Sequence[Sequence[str]]  # label of each bar, per series
    axis: str
    top: float | None = None  # end of the axis; the largest value without it


@dataclass(frozen=True, slots=True)
class Intervals:
    """A dot and an interval per row, with vertical lines where something is asked."""

    rows: Sequence[tuple[str, float, float, float]]  # label, value, low, high
    texts: Sequence[str]  # label of each interval
    axis: str
    lines: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines through points.

    Where they may all but coincide, names have no place beside them: then each has a text in `legend`, in the order of
    the series and the guides.
    """

    series: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    x: str
    y: str
    steps: bool = False
    verticals: Sequence[tuple[str, float]] = ()
    horizontals: Sequence[tuple[str, float]] = ()
    guides: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()  # lines to compare with
    logarithmic: bool = False  # both axes; what is not above 0 is not drawn
    legend: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, what it shows in words, and the same numbers as a table."""

    id: str
    title: str
    description: str
    picture: Bars | Intervals | Curves
    table: TableBlock


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; a tuple holds texts and links in order."""

    text: str | tuple[str | Link, ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: Sequence[str | tuple[str | Link, ...]]


@dataclass(frozen=True, slots=True)
class Open:
    """A question that a person has to answer, and nobody has."""

    question: str
    role: str


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks behind a line that can be opened; open in print."""

    summary: str
    blocks: Sequence[Block]


Block = Paragraph | Bullets | TableBlock | Chart | Open | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `number` is ``0`` to ``13``, or ``A`` to ``C`` for an annex."""

    id: str
    number: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report.

    Attributes
    ----------
    title, edition, verdict
    headline : str
        The verdict in one sentence.
    facts : sequence of (str, str)
        Period, number of explanations and the like, at the top.
    not_covered : sequence of str
        What the verdict does not cover, beside it.
    sections : sequence of Section
        In order; the first is the verdict's.
    data : str
        The JSON that it was made from, to be downloaded from the document.
    """

    title: str
    edition: Edition
    verdict: Verdict
    headline: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    data: str
    file_name: str = field(default="cfk-report.json")
    not_covered: Sequence[str] = ()


STATUS_TEXTS: Mapping[Status, str] = {
    "pass": "pass",
    "review": "review",
    "fail": "fail",
    "not_measured": NOT_MEASURED_TEXT,
}
"""How a status is written, everywhere."""


def amounts_of(check: CheckResult) -> tuple[str, str]:
    """Write what a check measured, and what it is compared with."""
    return shown(check.measured, unit_of(check.id)), shown(check.threshold, unit_of(check.id))


# Text that is only text: names of attributes, runs and people must not become markup, a formula or a link.


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
