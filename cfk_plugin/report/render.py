"""The elements of a page, and its formats: one HTML file that loads and runs nothing, and
Markdown.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cfk_plugin.audit.result import BOUNDS, COIN, Curve, short
from cfk_plugin.data.display import card, facts, table
from cfk_plugin.errors import MissingDependencyError
from cfk_plugin.plots import Display, FrontierDisplay, RocDisplay, RocLine, load_matplotlib
from cfk_plugin.report.data import (
    Amount,
    CheckResult,
    Distribution,
    Edition,
    ReportData,
    Status,
    Verdict,
)
from cfk_plugin.report.disclosure import NOT_MEASURED_TEXT, Unit, shown, unit_of
from cfk_plugin.report.statements import title_of


class Link(NamedTuple):
    """A link to a place in the document (``#anchor``) or, where an address is configured,
    outside.
    """

    text: str
    target: str


class Mark(NamedTuple):
    """A status, shown as a word and a shape."""

    status: Status
    text: str = ""  # else the status


class Bar(NamedTuple):
    """A number as text, and the length of its bar as a share of its column; None draws no bar."""

    text: str
    share: float | None
    tone: int = 0


class Text(tuple[str | Link, ...]):
    __slots__ = ()

    @classmethod
    def of(cls, *parts: str | Link) -> Text:
        return cls(parts)


Inline = str | Link | Text
Cell = Inline | Mark | Bar


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with a caption. The first cell of a row is its heading."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()  # columns that are aligned right
    note: str = ""
    row_ids: Sequence[str] = ()
    above: str = ""  # how to read it
    wide: bool = False  # takes a line of its own
    # rows become lists on narrow pages, as in every table of more than three columns
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot as notebooks show it; its numbers are in a table beside it."""

    id: str
    title: str
    description: str
    display: Display


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: Inline


@dataclass(frozen=True, slots=True)
class Bullets:
    items: Sequence[Inline]


Block = Paragraph | Bullets | TableBlock | Drawn


@dataclass(frozen=True, slots=True)
class Section:
    """A section: ``0`` to ``13``, or an annex with a letter.

    A `folded` one is a line that can be opened.
    """

    number: str
    title: str
    blocks: Sequence[Block]
    folded: bool = False

    @property
    def id(self) -> str:
        """The target of links."""
        return f"section-{self.number}"


@dataclass(frozen=True, slots=True)
class Tile:
    """One answer on the first page: a figure and its explanation."""

    name: str
    figure: str
    lines: Sequence[Inline]


@dataclass(frozen=True, slots=True)
class Picture:
    """How much of the range of each attribute one explanation gives; it shows no value."""

    caption: str
    rows: Sequence[tuple[str, float, str]]  # attribute, share of its range, the same in words
    note: str


MOST_STEPS = 5
"""Most items of the list of next steps that the page has room for."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next, and the command for it; "" where there is none."""

    text: Text
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPage:
    """What stands above the sections, and in short in a notebook and on the command line."""

    verdict: Verdict
    reason: str
    for_a_pass: str  # what is missing for a pass; "" where nothing is
    tiles: Sequence[Tile]
    rest: Sequence[Inline]
    picture: Picture | None
    steps: Sequence[NextStep]
    how_to_copy: str  # what somebody replaces in the commands; "" where there are none
    not_covered: Sequence[str]

    @property
    def steps_on_page(self) -> Sequence[NextStep]:
        """The steps that fit one screen, and how many more there are."""
        more = len(self.steps) - MOST_STEPS
        if more <= 0:
            return self.steps
        rest = Text.of(Link(f"{more + 1} more", "#section-0"), ": see the checks.")
        return [*self.steps[: MOST_STEPS - 1], NextStep(rest)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report: its first page, and its sections.

    `data` is the JSON that it was made from.
    """

    title: str
    edition: Edition
    first: FirstPage
    sections: Sequence[Section]
    data: str
    file_name: str = "cfk-report.json"


STATUS_TEXTS: Mapping[Status, str] = {
    "pass": "pass",
    "review": "review",
    "fail": "fail",
    "not_measured": NOT_MEASURED_TEXT,
}
"""How a status is written, everywhere."""
WORST_FIRST: Sequence[Status] = ("fail", "review", "not_measured", "pass")
EDITIONS = {
    "internal": ("Internal edition", "exact figures and run ids, for the data holder"),
    "external": ("External edition", "numbers of people in bands, rounded means, no run ids"),
}
"""Name of each edition, and what it means."""


def amounts_of(check: CheckResult) -> tuple[str, str]:
    """Write what a check measured, and its threshold; a dash where there is none."""
    measured, threshold = (
        shown(amount, unit_of(check.id)) if amount.measured else "–"
        for amount in (check.measured, check.threshold)
    )
    return measured, threshold


def words(cell: Cell) -> str:
    match cell:
        case Mark(status, text):
            return text or STATUS_TEXTS[status]
        case Bar() | Link():
            return cell.text
        case Text():
            return "".join(words(part) for part in cell)
        case _:
            return str(cell)


# --- numbers by category, with a bar beside each that may be shown ---


def bars_of(found: Distribution, block: Mapping[str, Any]) -> TableBlock:
    """Return a distribution as a table with bars; its marks are written above it."""
    unit: Unit = block["unit"]
    chosen = [
        place
        for place, label in enumerate(found.labels)
        if label in block.get("rows", found.labels)
    ]
    most = max((each.value or 0.0 for of in found.series.values() for each in of), default=0.0)
    longest = 1.0 if unit == "share" or most <= 1 else most
    rows: list[list[Cell]] = []
    for at in chosen:
        amounts = [of[at] for of in found.series.values()]
        lengths = [None if each.value is None else each.value / longest for each in amounts]
        bars = (
            Bar(shown(each, unit), length, tone)
            for tone, (each, length) in enumerate(zip(amounts, lengths, strict=True))
        )
        rows.append([found.labels[at], *bars])
    marks = ", ".join(
        f"{name}: {shown(Amount(value=value))}" for name, value in found.marks.items()
    )
    above = " ".join(
        filter(None, (block.get("description", ""), f"Asked: {marks}." if marks else ""))
    )
    columns = (
        block["x"],
        *(name.replace(" who asks", " the person who asks") for name in found.series),
    )
    wide = block.get("wide", False)
    return TableBlock(
        f"chart-{found.id}", block["title"], columns, rows, note=found.note, above=above, wide=wide
    )


_ROC_RATES = ("0.1", "0.01", "0.001")


def curves_of(data: ReportData, found: Distribution, block: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the frontier as a plot; or members found over false alarms as a plot and a table of a
    few rates.
    """
    if found.id == "frontier":
        drawn = {
            "common_ncp_mean": "NCP",
            "common_pureness_mean": "pureness",
            "withheld_rate": "withheld",
        }
        table = {
            f"{column}{end}": [
                getattr(each, end.strip("_") or "value") for each in found.series[name]
            ]
            for column, name in drawn.items()
            if name in found.series
            for end in ("", "_low", "_high")
        }
        display = FrontierDisplay(
            pd.DataFrame({"k": [*map(int, found.labels)], **table}, dtype=float)
        )
        yield Drawn("curves-frontier", block["title"], block["description"], display)
        return
    names = {name: _curve_name(data, name) for name in found.series if name not in BOUNDS}
    curves = {name: _curve(found.labels, of) for name, of in found.series.items()}
    lines = [RocLine(title, curves[name]) for name, title in names.items() if curves[name].fpr]
    guides = {said: curves[name] for name, said in BOUNDS.items() if name in curves}
    description = " ".join([block["description"], *([block["claimed"]] if guides else [])])
    yield Drawn(f"curves-{found.id}", block["title"], description, RocDisplay(lines, guides))
    told = {rate: found.labels.index(rate) for rate in _ROC_RATES if rate in found.labels}
    rows = [
        (names.get(name) or BOUNDS[name], *(shown(amounts[place]) for place in told.values()))
        for name, amounts in found.series.items()
    ]
    columns = ("Attack", *(f"Found at {float(rate) * 100:g} % false alarms" for rate in told))
    numeric = range(1, len(columns))
    rows.append((COIN, *told))
    yield TableBlock(
        f"chart-{found.id}",
        block["title"],
        columns,
        rows,
        numeric=numeric,
        note=found.note,
        wide=True,
    )


def _curve(rates: Sequence[str], found: Sequence[Amount]) -> Curve:
    known = [
        (float(rate), amount.value)
        for rate, amount in zip(rates, found, strict=True)
        if amount.value
    ]
    return Curve(tuple(rate for rate, _ in known), tuple(value for _, value in known))


def _curve_name(data: ReportData, name: str) -> str:
    """Return the name of a curve, with the area below it if that is the attack's success."""
    area = next(
        (attack.main for attack in data.attacks if attack.judged and attack.id == name), None
    )
    if area is None or not area.measured:
        return short(name)
    return f"{short(name)}: AUC {shown(area)}"


# --- HTML. Text stays text: names of attributes, runs and people must not become markup or a link.
# ---

SPACE = re.compile(r"\s+")
NOT_TEXT = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML forbids, control characters except line ends, and marks that change the text
direction.
"""

_JOINT = re.compile(r"(?<=[_/:@;=|-])(?=\w)|(?<=[.,])(?=[^\W\d])|(?<=[a-z])(?=[A-Z])")
"""Where a long word may be broken; never within a number."""
_LONG_WORD = 12  # characters of the longest word that is not broken
_OUTSIDE = re.compile(r"https?://[^\s\"'<>]+")
_ANCHOR = re.compile(r"#[^\s\"'<>]+")


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return NOT_TEXT.sub("", SPACE.sub(" ", text)).strip()


def render_html(document: Document, *, print_edition: bool = False) -> str:
    """Return a report as one HTML file that loads and runs nothing."""
    edition, edition_means = EDITIONS[document.edition]
    data = document.data.encode()
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            edition=edition,
            edition_means=edition_means,
            print_edition=print_edition,
            running=Markup(_running_titles(f"{edition} · {one_line(document.title)}")),  # noqa: S704 - escaped for CSS
            data=b64encode(data).decode("ascii"),
            size=f"{max(1, round(len(data) / 1000)):,} kB",
        )
    )
    return NOT_TEXT.sub("", page)


def _running_titles(title: str) -> str:
    """Return the rules of CSS that print a title and the page number on every page."""
    # All but letters and digits are escaped: no text can end the string, the rule or the style
    # element.
    string = "".join(
        char if char.isascii() and char.isalnum() else f"\\{ord(char):06x}" for char in title
    )
    return f'@page {{ @top-left {{ content: "{string}" }} }}'


def _inline(text: Inline) -> Markup:
    """Return text and links; long words may break at their joints."""
    match text:
        case Link(said, target):
            shown, kind = _inline(said), "outside" if _OUTSIDE.fullmatch(target) else ""
            if kind:
                return Markup(
                    '<a class="outside" rel="noopener noreferrer" href="{}">{}</a>'
                ).format(target, shown)
            return (
                Markup('<a href="{}">{}</a>').format(target, shown)
                if _ANCHOR.fullmatch(target)
                else shown
            )
        case Text():
            return Markup("").join(_inline(part) for part in text)
        case _:
            kept = str(text).replace(" %", "\u00a0%")  # a number and its sign stay on one line
            parts = [
                [word] if len(word) <= _LONG_WORD else _JOINT.split(word)
                for word in kept.split(" ")
            ]
            return Markup(" ").join(Markup("<wbr>").join(map(escape, each)) for each in parts)


def _unbroken_options(command: str) -> Markup:
    """Return a command whose options are not broken at their hyphens."""
    words = [
        Markup("<span>{}</span>").format(word) if word.startswith("-") else escape(word)
        for word in command.split(" ")
    ]
    return Markup(" ").join(words)


def _outside_links(table: TableBlock) -> list[Link]:
    """Return the outside links of a table, each target once; in print they go below it, as cells
    have no room.
    """
    parts = [
        part
        for row in table.rows
        for cell in row
        for part in (cell if isinstance(cell, Text) else (cell,))
    ]
    return list(
        {
            p.target: p for p in parts if isinstance(p, Link) and _OUTSIDE.fullmatch(p.target)
        }.values()
    )


def _status(row: Sequence[object]) -> str:
    """Return the status of a row, for its style: that of its first mark."""
    return next((cell.status for cell in row if isinstance(cell, Mark)), "")


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
        "inline": _inline,
        "command": _unbroken_options,
        "kind": lambda block: type(block).__name__,
        "outside_links": _outside_links,
        "percent": lambda share: f"{100 * min(max(share, 0.0), 1.0):.3g}%",
        "drawn": _drawn,
        "status": _status,
    }
    environment.globals |= {
        "words": {status: text.capitalize() for status, text in STATUS_TEXTS.items()}
    }
    return environment


# --- plots as in notebooks, in the page's color and with real text ---

_UNNAMED = re.compile(r'<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id="[^"]*"', re.DOTALL)
_DARK = re.compile(r"#([0-5][0-9a-f])\1\1")


def _drawn(block: Drawn) -> Markup:
    """Draw with matplotlib, which escapes what it writes; without links.

    Where it is not installed, a line stands in the place of the plot; its numbers are in a table.
    """
    try:
        rc_context = load_matplotlib().rc_context
    except MissingDependencyError as missing:
        return Markup("<p>Not drawn here, as {}</p>").format(str(missing))
    from matplotlib.figure import Figure

    high = 0.85 * block.display.height
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": block.id, "text.parse_math": False}
    with rc_context(settings):
        figure, svg = Figure((_WIDE, high), layout="constrained"), io.StringIO()
        block.display.plot(ax=figure.subplots())
        figure.savefig(
            svg,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    inside = _UNNAMED.sub("", svg.getvalue().partition("<svg")[2].partition(">")[2]).replace(
        "xlink:href", "href"
    )
    about = Markup(
        '<svg class="chart" role="img" aria-labelledby="{0}-title {0}-desc" width="{1:g}"'
        ' height="{2:g}" viewBox="0 0 {3:g} {4:g}"><title id="{0}-title">{5}</title><desc'
        ' id="{0}-desc">{6}</desc>'
    )
    sizes = (per * inches for per in (96, 72) for inches in (_WIDE, high))
    drawn = Markup(_DARK.sub("currentColor", inside))  # noqa: S704 - written and escaped by matplotlib
    return about.format(block.id, *sizes, block.title, block.description) + drawn


_WIDE = 4.2  # inches


# --- Markdown, in which no text becomes markup ---

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$@])")
_ADDRESS = re.compile(r"://|\bwww\.", re.IGNORECASE)  # GitHub turns bare addresses into links
_LIST = re.compile(r"^(\d+)([.)])(?=\s|$)")
_TARGET = "/:?#=&%-._~"


def markdown(text: str) -> str:
    """Return one line that GitHub flavored Markdown shows literally, in a paragraph or a cell."""
    shown = _MARKDOWN.sub(r"\\\1", one_line(text).replace("&", "&amp;"))
    shown = _ADDRESS.sub(lambda found: found[0].replace(":", r"\:").replace(".", r"\."), shown)
    shown = _LIST.sub(r"\1\\\2", shown)
    return f"\\{shown}" if shown.startswith(("#", "+", "-", "=")) else shown


def render_markdown(document: Document) -> str:
    """Return a report as GitHub flavored Markdown; bars become numbers, and no text becomes
    markup.
    """
    anchors = frozenset(_anchors(document))
    parts = [
        f"# {markdown(document.title)}",
        markdown(": ".join(EDITIONS[document.edition])) + ".",
        *_first_page(document.first, anchors),
    ]
    for section in document.sections:
        number = f"Annex {section.number}:" if section.number.isalpha() else f"{section.number}."
        parts.append(f"{_anchor(section.id)}\n\n## {number} {markdown(section.title)}")
        parts += [_block(block, anchors) for block in section.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _first_page(first: FirstPage, anchors: frozenset[str]) -> Iterator[str]:
    verdict = f"**Verdict: {first.verdict}.** {markdown(first.reason)}"
    yield f"{verdict} {markdown(first.for_a_pass)}".strip()
    yield "\n".join(
        f"* **{markdown(f'{tile.name}: {tile.figure}')}** {_text(_joined(tile.lines), anchors)}"
        for tile in first.tiles
    )
    yield _text(_joined(first.rest), anchors)
    yield "\n".join(
        f"{place}. {_text(step.text, anchors)}{_code(step.command)}"
        for place, step in enumerate(first.steps, start=1)
    )
    yield markdown(first.how_to_copy)
    yield "\n".join(f"* Not covered: {markdown(text)}" for text in first.not_covered)
    if (picture := first.picture) is not None:
        rows = [(name, text) for name, _, text in picture.rows]
        columns = ("Attribute", "Share of its range")
        yield _table(
            TableBlock("picture", picture.caption, columns, rows, note=picture.note), anchors
        )


def _code(command: str) -> str:
    """Return a command as a block of code below the item of a list; "" for none.

    Of a fence nothing is markup but a longer fence, so it is longer than any run of backticks.
    """
    if not command:
        return ""
    lines = [one_line(line) for line in command.split("\n")]
    runs = re.findall("`+", command)
    fence = "`" * max([3, *(len(run) + 1 for run in runs)])
    return "".join(f"\n   {line}" for line in (fence, *lines, fence))


def _joined(lines: Iterable[Inline]) -> Text:
    return Text(_spaced(lines))


def _spaced(lines: Iterable[Inline]) -> Iterator[str | Link]:
    for line in lines:
        yield from (*(line if isinstance(line, Text) else (line,)), " ")


def _block(block: Block, anchors: frozenset[str]) -> str:
    match block:
        case Paragraph():
            return _text(block.text, anchors)
        case Bullets():
            return "\n".join(f"* {_text(item, anchors)}" for item in block.items)
        case Drawn():
            return f"**{markdown(block.title)}**\n\n{markdown(block.description)}"
        case TableBlock():
            return _table(block, anchors)


def _table(table: TableBlock, anchors: frozenset[str]) -> str:
    rule = ["--:" if place in table.numeric else "---" for place in range(len(table.columns))]
    rows = [[markdown(name) for name in table.columns], rule]
    rows += [[_text(cell, anchors) for cell in row] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    here = " ".join(map(_anchor, (table.id, *table.row_ids)))
    parts = [
        here,
        f"**{markdown(table.caption)}**",
        markdown(table.above),
        lines,
        markdown(table.note),
    ]
    return "\n\n".join(part for part in parts if part)


def _text(text: Cell, anchors: frozenset[str]) -> str:
    """Write a cell; a link is kept if its target is in this text or a run, else only its text."""
    if isinstance(text, Text):
        # Spaces at the ends of a part separate it from its neighbors.
        return "".join(_edges(words(each), _text(each, anchors)) for each in text).strip()
    if isinstance(text, Link):
        target = text.target
        if (target.startswith("#") and target[1:] in anchors) or target.startswith(
            ("http://", "https://")
        ):
            return f"[{markdown(text.text)}]({_target(target)})"
    return markdown(words(text))


def _edges(text: str, shown: str) -> str:
    before, after = text[:1].isspace(), text[-1:].isspace() and bool(shown)
    return f"{' ' if before else ''}{shown}{' ' if after else ''}"


def _target(target: str) -> str:
    """Return an escaped target of a link."""
    return quote(one_line(target), safe=_TARGET)


def _anchor(name: str) -> str:
    return f'<a id="{_target(name)}"></a>' if name else ""


def _anchors(document: Document) -> Iterator[str]:
    for section in document.sections:
        yield section.id
        for block in section.blocks:
            if isinstance(block, TableBlock):
                yield from (block.id, *block.row_ids)


# --- a cell of a notebook ---


def render_cell(data: ReportData, first: FirstPage) -> str:
    """Return verdict, figures, next steps and checks for a notebook, without script or address."""
    edition, _ = EDITIONS[data.report["edition"]]
    figures = {tile.name: tile.figure for tile in first.tiles}
    steps = [Markup("<li>{}{}</li>").format(words(s.text), _command(s)) for s in first.steps]
    rows = [
        (STATUS_TEXTS[check.status], _name_of(data, check), *amounts_of(check))
        for check in data.checks
    ]
    return NOT_TEXT.sub(
        "",
        card(
            f"{data.report['title']}: {first.verdict}",
            " ".join(filter(None, (first.reason, first.for_a_pass))),
            facts(figures),
            Markup("<div>Next</div><ol>{}</ol>").format(Markup("").join(steps)),
            table(("status", "check", "measured", "threshold"), rows),
            note=f'{edition}. The whole report: report.save("report.html").',
        ),
    )


def _command(step: NextStep) -> Markup:
    return Markup("<pre>{}</pre>").format(step.command) if step.command else Markup("")


def _name_of(data: ReportData, check: CheckResult) -> Markup:
    """Return a check's name, and its id as the command line and the JSON have it."""
    return Markup("{} <small>{}</small>").format(title_of(data, check.id), check.id)
