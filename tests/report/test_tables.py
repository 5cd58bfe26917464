"""Checks as CSV and as JUnit XML, read back by the parsers of the standard library."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cfk_plugin.report.amounts import Amount
from cfk_plugin.report.summaries import COLUMNS, render_csv, render_junit
from small_report import HOSTILE, check, report, with_head

ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "disabled", "errors"}, {"testsuite"}),
    "testsuite": (
        {
            "name",
            "tests",
            "failures",
            "errors",
            "time",
            "disabled",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
        },
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "assertions", "time", "classname", "status"}, {"skipped", "error", "failure", "system-out"}),
    "failure": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
}
"""Attributes and children that the XML Schema of Jenkins' JUnit reader knows."""


def rows(data: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(data), newline=""), strict=True))


def suite(data: Any) -> ET.Element:
    root = ET.fromstring(render_junit(data))
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
    (found,) = root
    return found


def test_every_check_has_a_line_and_every_line_ends_as_the_standard_says() -> None:
    data = report()
    text = render_csv(data)
    assert text.count("\r\n") == text.count("\n") == 1 + len(data.checks)
    assert tuple(rows(data)[0]) == COLUMNS
    assert rows(data)[1] == {
        "id": "pureness",
        "status": "review",
        "value": "0.96",
        "low": "0.93",
        "high": "0.98",
        "band": "",
        "threshold": "0.95",
        "source": "policy",
        "section": "5",
        "text": "The pureness check found what it found.",
    }
    assert [rows(data)[2][name] for name in ("value", "low", "high", "band")] == [""] * 4


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1"])
def test_no_text_is_a_formula(text: str) -> None:
    (line,) = rows(report(checks=(check("k_min", source=text, text=text),)))
    assert line["source"] == line["text"] == f"'{text.strip()}"


def test_commas_quotes_and_line_breaks_stay_in_their_cell() -> None:
    (line,) = rows(report(checks=(check("k_min", text=f'a, "b"\n{HOSTILE}'),)))
    assert line["text"].startswith('a, "b" a|b <script>')
    assert "\x07" not in line["text"]


def test_a_negative_number_is_a_number() -> None:
    (line,) = rows(report(checks=(check("group_gap", measured=-0.05),)))
    assert line["value"] == "-0.05"


def test_where_a_band_is_shown_no_number_is() -> None:
    hidden = Amount(value=7, low=6.0, high=8.0, n=77, band="1–10")
    data = report(checks=(replace(check("k_min", "fail"), measured=hidden),))
    (line,) = rows(data)
    assert (line["value"], line["low"], line["high"], line["band"]) == ("", "", "", "1–10")
    assert not re.search(r"\b7\b", render_junit(data))


def test_states_are_those_that_a_ci_shows() -> None:
    found = suite(report(checks=(*report().checks, check("ncp", "fail", measured=0.4, needed=0.3))))
    states = {case.get("name"): [child.tag for child in case] for case in found.iter("testcase")}
    assert states == {"k_min": [], "pureness": ["skipped"], "attack_linkage": ["skipped"], "ncp": ["failure"]}
    assert [found.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "0", "2"]


def test_messages_say_what_was_found() -> None:
    found = suite(report(checks=(*report().checks, check("ncp", "fail", measured=0.4, needed=0.3))))
    skipped = [element.get("message", "") for element in found.iter("skipped")]
    assert skipped[0].startswith("review: The pureness check")
    assert skipped[0].endswith("(measured: 0.96 (0.93–0.98); threshold: 0.95)")
    assert skipped[1].startswith("not measured: ")
    (failure,) = found.iter("failure")
    assert failure.text == "measured: 0.4; threshold: 0.3; source: policy; section 5"
    properties = {each.get("name"): each.get("value") for each in found.iter("property")}
    assert properties["cfk.report.verdict"] == "review"


def test_hostile_text_stays_text() -> None:
    data = with_head(
        report(checks=(check("k_min", "fail", text=HOSTILE, source=f"{HOSTILE}\x00\ud800\ufffe"),)), title=HOSTILE
    )
    (failure,) = suite(data).iter("failure")
    assert "<script>" in failure.get("message", "")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe]", render_junit(data))
