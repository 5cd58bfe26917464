"""Widths of columns."""

from __future__ import annotations

from cfk_plugin.report.document import Mark, TableBlock
from cfk_plugin.report.render import STACK_WIDTHS, broken, layout
from documented import table


def test_widths_fill_the_table() -> None:
    widths = layout(table(4)).widths
    assert len(widths) == len(table(4).columns)
    assert abs(sum(widths) - 100) < 0.1


def test_a_short_column_keeps_room_beside_a_long_one() -> None:
    rows = [("a", Mark("not_measured"), "a sentence that goes on " * 20)]
    name, status, text = layout(TableBlock(id="t", caption="c", columns=["x", "y", "z"], rows=rows)).widths
    assert name < status < text
    assert status > 15  # of some hundred characters: its words, its shape and a gap


def test_widths_make_the_longest_text_short() -> None:
    rows = [("a name", "words " * 10, "many more words " * 20)]
    name, some, many = layout(TableBlock(id="t", caption="c", columns=["x", "y", "z"], rows=rows)).widths
    assert some > 2 * name
    assert 3 < many / some < 6  # their texts have 60 and 320 characters


def test_words_are_broken_at_their_joints_alone() -> None:
    assert broken("marital_status_of") == ["marital_", "status_", "of"]
    assert broken("AttributeDisclosure") == ["Attribute", "Disclosure"]
    assert broken("a" * 64) == ["a" * 64]
    assert broken("short_word") == ["short_word"]
    assert broken("(0.177–0.194)") == ["(0.177–0.194)"]
    assert broken("1,234,567.89") == ["1,234,567.89"]
    assert broken("cfk_plugin.report") == ["cfk_", "plugin.", "report"]


def test_a_small_table_is_as_wide_as_its_content() -> None:
    small = layout(TableBlock(id="t", caption="c", columns=["k", "NCP"], rows=[("10", "0.1")]))
    assert (small.widths, small.stacks_below) == ((), 0)


def test_more_columns_become_lists_on_wider_screens() -> None:
    places = [
        layout(
            TableBlock(id="t", caption="c", columns=["a column"] * count, rows=[("some words",) * count])
        ).stacks_below
        for count in (2, 3, 6, 12)
    ]
    assert places[0] == 0
    assert places == sorted(places)
    assert places[-1] == STACK_WIDTHS[-1]


def test_empty_table_has_a_layout() -> None:
    assert layout(table(0)).stacks_below in STACK_WIDTHS
