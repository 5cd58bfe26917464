"""A report as Markdown, as CSV and as JUnit XML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote
from xml.etree import ElementTree as ET

from cfk_plugin.report.data import ReportData
from cfk_plugin.report.render import (
    EDITIONS,
    STATUS_TEXTS,
    Block,
    Bullets,
    Cell,
    Curves,
    Document,
    Inline,
    Link,
    Paragraph,
    TableBlock,
    Text,
    amounts_of,
    one_line,
    words,
)

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$@])")
_ADDRESS = re.compile(r"://|\bwww\.", re.IGNORECASE)  # GitHub makes links of bare addresses
_LIST = re.compile(r"^(\d+)([.)])(?=\s|$)")
_FORMULA = tuple("=+-@＝＋－＠")
_TARGET = "/:?#=&%-._~"


def markdown(text: str) -> str:
    """Return a text of one line that GitHub flavoured Markdown shows as it is, in a paragraph or a cell."""
    shown = _MARKDOWN.sub(r"\\\1", one_line(text).replace("&", "&amp;"))
    shown = _ADDRESS.sub(lambda found: found[0].replace(":", r"\:").replace(".", r"\."), shown)
    shown = _LIST.sub(r"\1\\\2", shown)
    return f"\\{shown}" if shown.startswith(("#", "+", "-", "=")) else shown


def render_markdown(document: Document) -> str:
    """Return a report as GitHub flavoured Markdown; bars are their numbers, and no text becomes markup."""
    anchors = frozenset(_anchors(document))
    parts = [
        f"# {markdown(document.title)}",
        f"**Verdict: {document.verdict}.** {markdown(document.reason)}",
        f"{markdown(': '.join(EDITIONS[document.edition]))}. {markdown(document.facts)}",
        "\n".join(
            f"* **{markdown(f'{tile.name}: {tile.figure}')}** {_text(Text(_spaced(tile.lines)), anchors)}"
            for tile in document.tiles
        ),
        "\n".join(f"{place}. {_text(each, anchors)}" for place, each in enumerate(document.actions, start=1)),
        "\n".join(f"* Not covered: {markdown(text)}" for text in document.not_covered),
    ]
    if (picture := document.picture) is not None:
        rows = [(name, text) for name, _, text in picture.rows]
        table = TableBlock("picture", picture.caption, (picture.before, picture.after), rows, note=picture.note)
        parts.append(_table(table, anchors))
    for section in document.sections:
        number = f"Annex {section.number}:" if section.number.isalpha() else f"{section.number}."
        parts.append(f"{_anchor(section.id)}\n\n## {number} {markdown(section.title)}")
        parts += [_block(block, anchors) for block in section.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _spaced(lines: Iterable[Inline]) -> Iterator[str | Link]:
    for line in lines:
        yield from (*(line if isinstance(line, Text) else (line,)), " ")


def _block(block: Block, anchors: frozenset[str]) -> str:
    match block:
        case Paragraph():
            return _text(block.text, anchors)
        case Bullets():
            return "\n".join(f"* {_text(item, anchors)}" for item in block.items)
        case Curves():
            return f"**{markdown(block.title)}**\n\n{markdown(block.description)}"
        case TableBlock():
            return _table(block, anchors)


def _table(table: TableBlock, anchors: frozenset[str]) -> str:
    rule = ["--:" if place in table.numeric else "---" for place in range(len(table.columns))]
    rows = [[markdown(name) for name in table.columns], rule]
    rows += [[_text(cell, anchors) for cell in row] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    here = " ".join(map(_anchor, (table.id, *table.row_ids)))
    parts = [here, f"**{markdown(table.caption)}**", markdown(table.above), lines, markdown(table.note)]
    return "\n\n".join(part for part in parts if part)


def _text(text: Cell, anchors: frozenset[str]) -> str:
    """Write what a cell says; a link leads to where this text has something, or to a run, else it is its text."""
    if isinstance(text, Text):
        # A part's own spaces stand between it and its neighbours.
        return "".join(_edges(words(each), _text(each, anchors)) for each in text).strip()
    if isinstance(text, Link):
        target = text.target
        if (target.startswith("#") and target[1:] in anchors) or target.startswith(("http://", "https://")):
            return f"[{markdown(text.text)}]({_target(target)})"
    return markdown(words(text))


def _edges(text: str, shown: str) -> str:
    before, after = text[:1].isspace(), text[-1:].isspace() and bool(shown)
    return f"{' ' if before else ''}{shown}{' ' if after else ''}"


def _target(target: str) -> str:
    """Return the target of a link in which nothing ends it."""
    return quote(one_line(target), safe=_TARGET)


def _anchor(name: str) -> str:
    return f'<a id="{_target(name)}"></a>' if name else ""


def _anchors(document: Document) -> Iterator[str]:
    for section in document.sections:
        yield section.id
        for block in section.blocks:
            if isinstance(block, TableBlock):
                yield from (block.id, *block.row_ids)


# --- checks as CSV and JUnit ---

COLUMNS = ("id", "status", "value", "low", "high", "band", "threshold", "source", "section", "text")
"""Columns of the CSV."""


def _csv_cell(text: str) -> str:
    """Return a text of one line that a spreadsheet shows as it is: what would be a formula gets an apostrophe."""
    shown = one_line(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def render_csv(data: ReportData) -> str:
    """Write one line per check, as RFC 4180 has it; what a spreadsheet would take for a formula gets an apostrophe."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\r\n")
    lines.writerow(COLUMNS)
    for check in data.checks:
        found, asked = check.measured, check.threshold
        # Where only a band may be shown, no number is.
        numbers = (found.value, found.low, found.high) if found.band is None else (None, None, None)
        threshold = asked.value if asked.band is None else _csv_cell(asked.band)
        source, said, band = map(_csv_cell, (check.source, check.text, found.band or ""))
        lines.writerow((_csv_cell(check.id), check.status, *numbers, band, threshold, source, check.section, said))
    return text.getvalue()


def render_junit(data: ReportData) -> str:
    """Write each check as a test case of JUnit XML; what a person has to look at, or was not measured, is skipped."""
    checks = data.checks
    failures = str(sum(check.status == "fail" for check in checks))
    counts = {"tests": str(len(checks)), "failures": failures, "errors": "0"}
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
