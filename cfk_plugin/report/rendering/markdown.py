"""A report as Markdown: the same document in tables and words, for a merge request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfk_plugin.report.rendering.document import (
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
    Table,
)
from cfk_plugin.report.rendering.escaping import markdown, markdown_target
from cfk_plugin.report.rendering.text import STATUS_TEXTS


def render_markdown(document: Document) -> str:
    """Write a document as GitHub flavoured Markdown.

    Parameters
    ----------
    document : Document

    Returns
    -------
    str
        Charts are their tables, a status is a word, what is folded is open. The same document gives the same text.
        No text of the document becomes markup.
    """
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
        case Table():
            return _table(block, anchors)
        case Chart():
            said = f"**{markdown(block.title)}**\n\n{markdown(block.description)}"
            return f"{_anchor(block.id)}\n\n{said}\n\n{_table(block.table, anchors)}"
        case Open():
            return f"> **Open, to be answered by: {markdown(block.role)}.** {markdown(block.question)}"
        case Folded():
            inner = [_block(each, anchors) for each in block.blocks]
            return "\n\n".join([f"**{markdown(block.summary)}**", *inner])


def _table(table: Table, anchors: frozenset[str]) -> str:
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
    return markdown(text) if isinstance(text, str) else _link(text, anchors)


def _edges(text: str, shown: str) -> str:
    before, after = text[:1].isspace(), text[-1:].isspace() and bool(shown)
    return f"{' ' if before else ''}{shown}{' ' if after else ''}"


def _link(link: Link, anchors: frozenset[str]) -> str:
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
        elif isinstance(block, Table):
            yield block.id
