"""The report as a document: sections of text, tables and charts, before anything is said of HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cfk_plugin.report.data import Edition, Status, Verdict


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a caption. The first cell of a row is its heading."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()  # columns that are set right
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars: one or several series over categories. Values that are None have no bar, only their text."""

    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    texts: Sequence[Sequence[str]]  # label of each bar, per series
    axis: str
    top: float | None = None  # end of the axis; the largest value without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """A dot and an interval per row, with vertical lines where something is asked."""

    rows: Sequence[tuple[str, float, float, float]]  # label, value, low, high
    axis: str
    low: float | None = None
    high: float | None = None
    lines: Sequence[tuple[str, float]] = ()
    texts: Sequence[str] = ()  # label of each interval; its numbers without it


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture, what it shows in words, and the same numbers as a table."""

    id: str
    title: str
    description: str
    picture: Bars | Intervals | Curves
    table: Table


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


Block = Paragraph | Bullets | Table | Chart | Open | Folded


@dataclass(frozen=True, slots=True, kw_only=True)
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
