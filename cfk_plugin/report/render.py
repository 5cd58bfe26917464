"""A report as one HTML file, which loads nothing and can be printed, and as Markdown."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cfk_plugin.report.charts import draw
from cfk_plugin.report.document import (
    STATUS_TEXTS,
    Block,
    Bullets,
    Cell,
    Chart,
    Document,
    Folded,
    Link,
    Mark,
    Open,
    Paragraph,
    Section,
    TableBlock,
    markdown,
    markdown_target,
)

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
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            edition=edition,
            edition_means=edition_means,
            verdict=_STATUS_WORDS[document.verdict],
            print_edition=print_edition,
            running=Markup(_running_titles(f"{edition} · {document.title}")),  # noqa: S704 - escaped for CSS
            data=b64encode(data).decode("ascii"),
            size=f"{max(1, round(len(data) / 1000)):,} kB",
        )
    )


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
        "chart": draw,
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
