"""A report as one HTML file: nothing is loaded, nothing runs, and it can be printed."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cfk_plugin.report.rendering.charts import draw
from cfk_plugin.report.rendering.document import Document, Link, Table
from cfk_plugin.report.rendering.layout import STACK_WIDTHS, STATUS_WORDS, broken, layout

_EDITIONS = {
    "internal": ("Internal edition", "Exact figures and run ids, for those who run and review the system."),
    "external": ("External edition", "Figures of people in bands, no run ids."),
}
_OUTSIDE = re.compile(r"https?://[^\s\"'<>]+")
_ANCHOR = re.compile(r"#[^\s\"'<>]+")


def render_html(document: Document, *, print_edition: bool = False) -> str:
    """Return a report as HTML.

    Parameters
    ----------
    document : Document
    print_edition : bool
        Everything that can be folded is open, and the paper is A4.

    Returns
    -------
    str
        One file without scripts that asks no address for anything: style, charts and the JSON of the report are in
        it. The same document gives the same text.

    Notes
    -----
    Texts are escaped, and a link that leads neither to a place in the document nor to an address of the web is written
    as its text. What must not be shown must not be in the document: nothing is hidden here.
    """
    edition, edition_means = _EDITIONS[document.edition]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            edition=edition,
            edition_means=edition_means,
            verdict=STATUS_WORDS[document.verdict],
            print_edition=print_edition,
            running=Markup(running_titles(f"{edition} · {document.title}")),  # noqa: S704 - escaped for CSS
            data=b64encode(document.data.encode()).decode("ascii"),
            size=_size(len(document.data.encode())),
        )
    )


def running_titles(title: str) -> str:
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


def _outside_links(table: Table) -> list[tuple[str, str]]:
    """Return the outside links of a table, each target once; on paper they stand below it, as cells have no room."""
    parts = [part for row in table.rows for cell in row for part in (cell if isinstance(cell, tuple) else (cell,))]
    links = {part.target: part.text for part in parts if isinstance(part, Link) and _OUTSIDE.fullmatch(part.target)}
    return [(text, target) for target, text in links.items()]


def _size(count: int) -> str:
    return f"{max(1, round(count / 1000)):,} kB"


def _kind(block: object) -> str:
    return type(block).__name__


def _status(row: Sequence[object]) -> str:
    """Return the status of a row, for its style: that of the first mark in it."""
    return next((status for cell in row if (status := getattr(cell, "status", None))), "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cfk_plugin.report.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "chart": draw,
        "inline": inline,
        "kind": _kind,
        "layout": layout,
        "outside_links": _outside_links,
        "status": _status,
    }
    environment.globals |= {"stack_widths": STACK_WIDTHS, "status_words": STATUS_WORDS}
    return environment
