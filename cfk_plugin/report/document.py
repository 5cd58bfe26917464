"""The report as a document: sections of text, tables and charts, before anything is said of HTML or Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal
from urllib.parse import quote

from cfk_plugin.report.data import Amount, Check, Edition, Status, Verdict


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
class Table:
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


Kind = Literal["count", "share", "number", "seconds"]

NOT_MEASURED_TEXT = "not measured"
STATUS_TEXTS: Mapping[Status, str] = {
    "pass": "pass",
    "review": "review",
    "fail": "fail",
    "not_measured": NOT_MEASURED_TEXT,
}
"""How a status is written, everywhere."""

_KINDS: Mapping[Kind, str] = {
    "count": "asked released exact generalised prototypes suppressed untracked ledger_again ledger_refused refused_k "
    "cdm k_min k_p05 k_median k_desired_min k_desired_median k_consistent_min k_effective_min k_private_min "
    "private_matches_min k_intersection_min k_intersection l_min l_diversity native_leak verification records "
    "human_inputs schema_declared",
    "share": "suppressed_rate native_rate near_native_rate native_qi_rate unique below_k at_risk_009 at_risk_020 flips "
    "cm optimal_rate",
}
"""Figures and checks that are counts or shares; the others are numbers, and latencies seconds."""
_KIND_OF: Mapping[str, Kind] = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_DIGITS = 3  # significant ones
_TINY = Decimal("0.0001")  # below, zeros would have to be counted
_UNITS = {"count": "", "share": " %", "number": "", "seconds": " s"}


def shown(amount: Amount, kind: Kind = "number") -> str:
    """Write an amount: its band where only that may be shown, or as ``0.93 (0.88–0.97)``, or that it was not measured.

    A count is written out to the last digit, with thousands separators; a share as percent; everything but a whole
    count with three significant digits. An interval is rounded outwards, so that it never looks narrower than it is,
    and what is short of 1 is never written as 1. What the amount is over (`n`) is not in the text.
    """
    if amount.band is not None:
        return amount.band
    if amount.value is None or not math.isfinite(amount.value):
        return NOT_MEASURED_TEXT
    unit = _UNITS[kind]
    value = _number(amount.value, kind, ROUND_HALF_EVEN)
    interval = _interval(amount, kind)
    return f"{value}{unit} ({interval}{unit})" if interval else f"{value}{unit}"


def amounts_of(check: Check) -> tuple[str, str]:
    """Write what a check measured, and what it is compared with."""
    return shown(check.measured, kind_of(check.id)), shown(check.threshold, kind_of(check.id))


def kind_of(name: str) -> Kind:
    """Say how a figure or check is written, from its id."""
    return _KIND_OF.get(name, "seconds" if name.startswith("latency") else "number")


def _interval(amount: Amount, kind: Kind) -> str:
    if amount.low == amount.high == amount.value:
        return ""  # nothing was estimated
    low = None if amount.low is None else _number(amount.low, kind, ROUND_FLOOR)
    high = None if amount.high is None else _number(amount.high, kind, ROUND_CEILING)
    if low is None or high is None:
        return f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"


def _number(value: float, kind: Kind, rounding: str) -> str:
    if not math.isfinite(value):
        return "unbounded"
    exact = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(int(value))
    whole = kind == "count" and exact == exact.to_integral_value()
    rounded = exact if whole else _rounded(exact, rounding)
    return _written(rounded * 100 if kind == "share" else rounded)


def _rounded(exact: Decimal, rounding: str) -> Decimal:
    if not exact:
        return exact
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    rounded = exact.quantize(step, rounding=rounding)
    if rounding == ROUND_HALF_EVEN and abs(exact) < 1 <= abs(rounded):
        rounded = exact.quantize(step, rounding=ROUND_FLOOR if exact > 0 else ROUND_CEILING)
    return rounded


def _written(number: Decimal) -> str:
    sign, size = "−" if number < 0 else "", abs(number)
    if 0 < size < _TINY:
        mantissa, _, power = f"{size.normalize():e}".partition("e")
        return f"{sign}{mantissa}e{int(power)}"
    text = f"{size:,f}"
    return sign + (text.rstrip("0").rstrip(".") if "." in text else text)


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
