"""A document as Markdown: nothing in it becomes markup, and a parser of Markdown reads what was written."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from markdown_it import MarkdownIt

from cfk_plugin.report.document import (
    Bars,
    Bullets,
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
)
from cfk_plugin.report.render import render_markdown
from small_report import HOSTILE


def table(**changes: Any) -> TableBlock:
    settings: dict[str, Any] = {
        "id": "t-checks",
        "caption": "Checks",
        "columns": ("check", "status", "measured"),
        "rows": (("k_min", Mark("not_measured"), "13"), (HOSTILE, Mark("pass"), Link("section 5", "#risk"))),
        "numeric": (2,),
        "note": "Worst first.",
    }
    return TableBlock(**settings | changes)


def document(*blocks: Any) -> Document:
    return Document(
        title=HOSTILE,
        edition="internal",
        verdict="review",
        headline="Two checks need a person.",
        facts=(("Period", "2026-11-01 to 2026-11-20"),),
        sections=(
            Section(id="verdict", number="0", title="Verdict", blocks=blocks),
            Section(id="risk", number="5", title="Privacy risk", blocks=()),
            Section(id="certificates", number="A", title="Certificates", blocks=()),
        ),
        data="{}",
    )


def tokens(text: str) -> list[Any]:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)


def kinds(text: str) -> set[str]:
    found = tokens(text)
    return {token.type for token in found} | {child.type for token in found for child in token.children or ()}


def cells(text: str) -> list[str]:
    found = tokens(text)
    pairs = itertools.pairwise(found)
    return [
        "".join(child.content for child in inner.children or ())
        for cell, inner in pairs
        if cell.type in ("th_open", "td_open")
    ]


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "# heading",
        "- item",
        "+ item",
        "1. item",
        "2) item",
        "=====",
        "---",
        "> quoted",
        "    code",
        "&lt;b&gt; &copy;",
        "~~gone~~ `code` ![i](x) [a]: b",
        "https://example.org/x www.example.org a@example.org",
        "\\*",
    ],
)
def test_text_is_read_back_as_text(text: str) -> None:
    written = markdown(text)
    assert kinds(written) <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    read = "".join(child.content for token in tokens(written) for child in token.children or ())
    assert read == " ".join(text.replace("\x07", "").split())
    assert "https://" not in written
    assert "www." not in written  # bare addresses, of which GitHub makes links


def test_a_table_has_its_cells_and_no_more() -> None:
    found = cells(render_markdown(document(table())))
    assert found[:6] == ["check", "status", "measured", "k_min", "not measured", "13"]
    assert found[6].startswith("a|b <script>alert(1)</script> *x* _y_ `z` next &")
    assert found[7:] == ["pass", "section 5"]


def test_numeric_columns_are_set_right_and_the_note_follows() -> None:
    lines = render_markdown(document(table())).splitlines()
    assert "| --- | --- | --: |" in lines
    assert lines[lines.index("**Checks**") + 1] == ""
    assert "Worst first." in lines


def test_a_chart_is_its_words_and_its_table() -> None:
    bars = Bars(categories=("a",), series=(("s", (1.0,)),), texts=(("1",),), axis="people")
    chart = Chart(id="c", title="Class sizes", description="Bars of people.", picture=bars, table=table(id="t2"))
    text = render_markdown(document(chart))
    assert text.index("**Class sizes**") < text.index("Bars of people.") < text.index("| check |")


def test_folded_and_open_blocks_are_in_the_text() -> None:
    blocks = (Folded("Evidence", (Paragraph("inner"), Bullets(("one", "two")))), Open("What is the purpose?", "owner"))
    text = render_markdown(document(*blocks))
    assert "**Evidence**\n\ninner\n\n* one\n* two" in text
    assert "> **Open, to be answered by: owner.** What is the purpose?" in text


def test_only_links_that_lead_somewhere_are_links() -> None:
    text = render_markdown(
        document(
            Paragraph(
                (
                    "See ",
                    Link("risk", "#risk"),
                    ", ",
                    Link("nowhere", "#nowhere"),
                    ", ",
                    Link("run", "https://mlflow.example/#/run (1)"),
                    " or ",
                    Link("script", "javascript:alert(1)"),
                    ".",
                )
            )
        )
    )
    assert "See [risk](#risk), nowhere, [run](https://mlflow.example/#/run%20%281%29) or script." in text
    assert '<a id="risk"></a>' in text


def test_sections_are_numbered_and_annexes_named() -> None:
    text = render_markdown(document())
    assert "## 5. Privacy risk" in text
    assert "## Annex A: Certificates" in text
    assert "**Verdict: review.** Two checks need a person." in text
    assert "* Period: 2026-11-01 to 2026-11-20" in text


def test_the_same_document_gives_the_same_text() -> None:
    assert render_markdown(document(table())) == render_markdown(document(table()))
