"""The report in short: what a registry shows of it."""

from __future__ import annotations

from dataclasses import replace

from cfk_plugin.report.amounts import Amount
from cfk_plugin.report.summaries import fitted, render_model_card
from small_report import HOSTILE, check, report, with_head

LONGEST = 5_000


def test_it_says_what_a_reader_of_a_registry_needs() -> None:
    card = render_model_card(report(), where="artifact cfk/report.html of MLflow run run1")
    for said in (
        "# Privacy report: review\n",
        "Internal edition, as of 2026-11-20T17:00:00Z. Whole report: artifact cfk/report.html of MLflow run run1.",
        "## Not covered\n\n* Who knows a private value",
        "* **review** People per explanation: 0.96 (0.93–0.98), asked 0.95. The pureness check",
        "* **not measured** People per explanation: The attack\\_linkage check",
        "* **pass**: People per explanation\n",
        "| People per explanation | 13 |",
        "| sex: f | ncp | 0.13 | 0.11 | 0.02 (−0.01 to 0.05) |",
        "## Limits",
    ):
        assert said in card
    assert "Whole report: id 0123456789abcdef." in render_model_card(report())


def test_a_failure_comes_first() -> None:
    data = report(checks=(*report().checks, check("ncp", "fail", measured=0.4, needed=0.3)))
    lines = render_model_card(data).split("## Checks that did not pass\n\n")[1].splitlines()
    assert lines[0].startswith("* **fail** ncp: 0.4, asked 0.3.")


def test_a_band_hides_its_value() -> None:
    hidden = replace(check("k_min", "fail"), measured=Amount(value=7, band="1–10"))
    card = render_model_card(report(checks=(hidden,), metrics=()))
    assert "1–10" in card
    assert " 7" not in card


def test_it_never_grows_beyond_what_a_registry_stores() -> None:
    long = "x" * 10_000
    checks = tuple(check(f"k_{place}", "fail", text=long) for place in range(40))
    card = render_model_card(with_head(report(checks=checks, limits=(long,) * 9), title=long), where=long)
    assert len(card) <= LONGEST
    assert "# Privacy report: review\n" in card
    assert "and 30 more" in card
    assert card.endswith("Shortened: the whole report says more.\n")


def test_sections_are_left_out_whole_from_the_end() -> None:
    card = "# a\n\n## b\n\nbb\n\n## c\n\n" + "c" * 50 + "\n"
    shorter = fitted(card, 60)
    assert shorter == "# a\n\n## b\n\nbb\n\nShortened: the whole report says more.\n"
    assert fitted(card, len(card)) == card
    assert fitted(card, 10) == ""


def test_nothing_in_it_is_markup() -> None:
    data = with_head(report(limits=(HOSTILE,), checks=(check("k_min", "fail", text=HOSTILE),)), title=HOSTILE)
    card = render_model_card(data, where=HOSTILE)
    assert "<script>" not in card
    assert "\x07" not in card
