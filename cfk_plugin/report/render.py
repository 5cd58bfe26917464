"""A report as a document of sections, tables and charts, and as HTML, Markdown, CSV and JUnit."""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape as escape_html
from typing import NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cfk_plugin.report.charts import Bars, Curves, Intervals, draw
from cfk_plugin.report.data import CheckResult, Edition, ReportData, Status, Verdict
from cfk_plugin.report.disclosure import NOT_MEASURED_TEXT, shown, unit_of


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
    """A whole report: the verdict in a sentence, what it does not cover, and facts at the top; then its sections.

    `data` is the JSON that it was made from, to be downloaded from the document.
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
WORST_FIRST: Sequence[Status] = ("fail", "review", "not_measured", "pass")


def amounts_of(check: CheckResult) -> tuple[str, str]:
    """Write what a check measured, and what it is compared with."""
    return shown(check.measured, unit_of(check.id)), shown(check.threshold, unit_of(check.id))


# Text that is only text: names of attributes, runs and people must not become markup, a formula or a link.


_SPACE = re.compile(r"\s+")
_NOT_TEXT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
"""What XML forbids, other control characters but the end of a line, and marks that turn the direction of reading."""

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


# --- HTML ---

_STATUS_WORDS = {status: text.capitalize() for status, text in STATUS_TEXTS.items()}

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


class Layout(NamedTuple):
    """How wide the columns of a table are; browsers give long texts too much and names too little."""

    widths: tuple[float, ...]  # percentages; empty where columns are as wide as their content
    stacks_below: int  # width in rem below which rows become lists; 0 where they never do


def layout(table: TableBlock) -> Layout:
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
            return _STATUS_WORDS[cell.status]
        case Link():
            return cell.text
        case _:
            return "".join(words(part) for part in cell)


_EDITIONS = {
    "internal": ("Internal edition", "Exact figures and run ids, for those who run and review the system."),
    "external": ("External edition", "Figures of people in bands, no run ids."),
}
_OUTSIDE = re.compile(r"https?://[^\s\"'<>]+")
_ANCHOR = re.compile(r"#[^\s\"'<>]+")


def render_html(document: Document, *, print_edition: bool = False) -> str:
    """Return a report as one HTML file that loads nothing and runs nothing; for print on A4, with everything open.

    Texts are escaped, and a link that leads neither to a place in the document nor to an address of the web is written
    as its text. What must not be shown must not be in the document: nothing is hidden here.
    """
    edition, edition_means = _EDITIONS[document.edition]
    data = document.data.encode()
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            edition=edition,
            edition_means=edition_means,
            verdict=_STATUS_WORDS[document.verdict],
            print_edition=print_edition,
            running=Markup(_running_titles(f"{edition} · {one_line(document.title)}")),  # noqa: S704 - escaped for CSS
            data=b64encode(data).decode("ascii"),
            size=f"{max(1, round(len(data) / 1000)):,} kB",
        )
    )
    return _NOT_TEXT.sub("", page)


def _running_titles(title: str) -> str:
    """Return the rules of CSS that print a title and the page number on every page."""
    # What is no letter or digit is written as its code: no text can end the string, the rule or the style element.
    string = "".join(char if char.isascii() and char.isalnum() else f"\\{ord(char):06x}" for char in title)
    return f'@page {{ @top-left {{ content: "{string}" }} }}'


def inline(text: str | Link | tuple[str | Link, ...]) -> Markup:
    """Return text and links; long words may be broken at their joints."""
    match text:
        case str():
            whole = (Markup("<wbr>").join(map(escape, broken(word))) for word in text.split(" "))
            return Markup(" ").join(whole)
        case Link():
            return _link(text)
        case _:
            return Markup("").join(inline(part) for part in text)


def _link(link: Link) -> Markup:
    shown = inline(link.text)
    if _ANCHOR.fullmatch(link.target):
        return Markup('<a href="{}">{}</a>').format(link.target, shown)
    if _OUTSIDE.fullmatch(link.target):
        return Markup('<a class="outside" rel="noopener noreferrer" href="{}">{}</a>').format(link.target, shown)
    return shown


def _outside_links(table: TableBlock) -> list[tuple[str, str]]:
    """Return the outside links of a table, each target once; on paper they stand below it, as cells have no room."""
    parts = [part for row in table.rows for cell in row for part in (cell if isinstance(cell, tuple) else (cell,))]
    links = {part.target: part.text for part in parts if isinstance(part, Link) and _OUTSIDE.fullmatch(part.target)}
    return [(text, target) for target, text in links.items()]


def _status(row: Sequence[object]) -> str:
    """Return the status of a row, for its style: that of the first mark in it."""
    return next((status for cell in row if (status := getattr(cell, "status", None))), "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cfk_plugin.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "chart": lambda of: draw(of.picture, name=of.id, title=of.title, description=of.description),
        "inline": inline,
        "kind": lambda block: type(block).__name__,
        "layout": layout,
        "outside_links": _outside_links,
        "status": _status,
    }
    environment.globals |= {"stack_widths": STACK_WIDTHS, "status_words": _STATUS_WORDS}
    return environment


def render_markdown(document: Document) -> str:
    """Return a report as GitHub flavoured Markdown; charts are their tables, and no text becomes markup."""
    anchors = frozenset(_anchors(document.sections))
    parts = [
        f"# {markdown(document.title)}",
        f"**Verdict: {document.verdict}.** {markdown(document.headline)}",
        "\n".join(f"* Not covered: {markdown(text)}" for text in document.not_covered),
        "\n".join(f"* {markdown(name)}: {markdown(value)}" for name, value in document.facts),
    ]
    for section in document.sections:
        number = f"Annex {section.number}:" if section.number.isalpha() else f"{section.number}."
        parts.append(f"{_anchor(section.id)}\n\n## {number} {markdown(section.title)}")
        parts += [_block(block, anchors) for block in section.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block, anchors: frozenset[str]) -> str:
    match block:
        case Paragraph():
            return _text(block.text, anchors)
        case Bullets():
            return "\n".join(f"* {_text(item, anchors)}" for item in block.items)
        case TableBlock():
            return _table(block, anchors)
        case Chart():
            said = f"**{markdown(block.title)}**\n\n{markdown(block.description)}"
            return f"{_anchor(block.id)}\n\n{said}\n\n{_table(block.table, anchors)}"
        case Open():
            return f"> **Open, to be answered by: {markdown(block.role)}.** {markdown(block.question)}"
        case Folded():
            inner = [_block(each, anchors) for each in block.blocks]
            return "\n\n".join([f"**{markdown(block.summary)}**", *inner])


def _table(table: TableBlock, anchors: frozenset[str]) -> str:
    rule = ["--:" if place in table.numeric else "---" for place in range(len(table.columns))]
    rows = [[markdown(name) for name in table.columns], rule]
    rows += [[_cell(cell, anchors) for cell in row] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    parts = [_anchor(table.id), f"**{markdown(table.caption)}**", lines, markdown(table.note)]
    return "\n\n".join(part for part in parts if part)


def _cell(cell: Cell, anchors: frozenset[str]) -> str:
    return STATUS_TEXTS[cell.status] if isinstance(cell, Mark) else _text(cell, anchors)


def _text(text: str | Link | tuple[str | Link, ...], anchors: frozenset[str]) -> str:
    if isinstance(text, tuple):
        # A part's own spaces stand between it and its neighbours.
        return "".join(_edges(each if isinstance(each, str) else "", _text(each, anchors)) for each in text).strip()
    return markdown(text) if isinstance(text, str) else _markdown_link(text, anchors)


def _edges(text: str, shown: str) -> str:
    before, after = text[:1].isspace(), text[-1:].isspace() and bool(shown)
    return f"{' ' if before else ''}{shown}{' ' if after else ''}"


def _markdown_link(link: Link, anchors: frozenset[str]) -> str:
    """Write a link to where this text has something, or to a run; anything else is its text."""
    here = link.target.startswith("#") and link.target[1:] in anchors
    if here or link.target.startswith(("http://", "https://")):
        return f"[{markdown(link.text)}]({markdown_target(link.target)})"
    return markdown(link.text)


def _anchor(name: str) -> str:
    return f'<a id="{markdown_target(name)}"></a>' if name else ""


def _anchors(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.id
        yield from _anchors_of(section.blocks)


def _anchors_of(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Folded):
            yield from _anchors_of(block.blocks)
        elif isinstance(block, Chart):
            yield from (block.id, block.table.id)
        elif isinstance(block, TableBlock):
            yield block.id


# --- checks as CSV, JUnit and a cell of a notebook ---

COLUMNS = ("id", "status", "value", "low", "high", "band", "threshold", "source", "section", "text")
"""Columns of the CSV."""


def render_csv(data: ReportData) -> str:
    """Write one line per check under a line of names, as RFC 4180 has it; evidence is not in it.

    Numbers have all their digits, what was not measured is empty, and a text that a spreadsheet would take for a
    formula begins with an apostrophe.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\r\n")
    lines.writerow(COLUMNS)
    for check in data.checks:
        found, asked = check.measured, check.threshold
        # Where only a band may be shown, no number is.
        numbers = (found.value, found.low, found.high) if found.band is None else (None, None, None)
        threshold = asked.value if asked.band is None else csv_cell(asked.band)
        source, said = csv_cell(check.source), csv_cell(check.text)
        band = csv_cell(found.band or "")
        lines.writerow((csv_cell(check.id), check.status, *numbers, band, threshold, source, check.section, said))
    return text.getvalue()


def render_junit(data: ReportData) -> str:
    """Write each check as a test case of JUnit XML; one that fails is a failure.

    JUnit has no word for a check that a person has to look at, or that was not measured: it is `skipped`, with a
    message, which is the only state that is neither green nor red.
    """
    checks = data.checks
    counts = {
        "tests": str(len(checks)),
        "failures": str(sum(check.status == "fail" for check in checks)),
        "errors": "0",
    }
    name, open_ = one_line(str(data.report["title"])), sum(check.status not in ("pass", "fail") for check in checks)
    suites = ET.Element("testsuites", {"name": name, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": name, **counts, "skipped": str(open_)})
    properties = ET.SubElement(suite, "properties")
    for key in ("id", "verdict", "edition", "as_of"):
        value = one_line(str(data.report[key]))
        ET.SubElement(properties, "property", {"name": f"cfk.report.{key}", "value": value})
    for check in checks:
        case = ET.SubElement(suite, "testcase", {"name": one_line(check.id), "classname": "cfk.report"})
        said = f"{STATUS_TEXTS[check.status]}: {one_line(check.text)}"
        measured, asked = amounts_of(check)
        figures = f"measured: {measured}; threshold: {asked}"
        if check.status == "fail":
            found = ET.SubElement(case, "failure", {"type": check.status, "message": said})
            found.text = one_line(f"{figures}; source: {check.source or 'none'}; section {check.section}")
        elif check.status != "pass":
            ET.SubElement(case, "skipped", {"message": one_line(f"{said} ({figures})")})
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def render_cell(data: ReportData) -> str:
    """Return verdict and checks as HTML without style, script or address."""
    rows = [[STATUS_TEXTS[check.status], check.id, *amounts_of(check)] for check in data.checks]
    lines = [f"<tr>{''.join(f'<td>{escape_html(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = "<tr><th>status</th><th>check</th><th>measured</th><th>asked</th></tr>"
    title = escape_html(str(data.report["title"]))
    return _NOT_TEXT.sub("", f"<p><strong>{title}: {data.verdict}</strong></p><table>{head}{''.join(lines)}</table>")
