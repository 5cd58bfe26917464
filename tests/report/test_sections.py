"""Every block of the table of sections is said where it holds, and only there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from cfk_plugin import PrivacyReport
from cfk_plugin.report.data import ReportData
from cfk_plugin.report.statements import load
from parsed import problems

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "governance" / "example-report.json"
DP = {
    "guarantee": "none",
    "covers": "the answers",
    "epsilon": 1.5,
    "delta": 1e-6,
    "total": None,
    "unit": "one person",
    "neighbours": "add or remove one",
    "mechanism": "Laplace, basic composition",
    "model_access": "queries",
    "seeded": True,
    "inferred": ["age"],
    "membership_bound": None,
    "threat_models": {"queries": "nothing holds"},
}


def made(**changes: Any) -> PrivacyReport:
    """Return the example with other content; of a mapping, the parts that are given."""
    content = json.loads(EXAMPLE.read_text("utf-8"))
    for name, value in changes.items():
        content[name] = {**content[name], **value} if isinstance(content[name], dict) else value
    return PrivacyReport(ReportData.from_dict(content))


def said(report: PrivacyReport) -> str:
    """Return the words of a report, as Markdown shows them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(report.to_markdown())
    words = [child.content or " " for token in tokens for child in token.children or ()]
    return re.sub(r"\s+", " ", " ".join(words))


@pytest.fixture(scope="module")
def reports() -> list[PrivacyReport]:
    example = json.loads(EXAMPLE.read_text("utf-8"))
    attack = example["attacks"][0]
    guaranteed = {**DP, "guarantee": "pure", "total": [2.0, 0.0], "membership_bound": 0.6, "inferred": []}
    empty = "attributes distributions groups attacks certificates runs suppressed_cells metrics".split()  # noqa: SIM905
    settings = {"policies": [], "deviations": ["It changed."], "seed": [], "generators": []}
    return [
        made(),
        made(dp=DP, changes=[], report={"verdict": "review"}, attacks=[attack, {**attack, "judged": False}]),
        made(dp=guaranteed, changes=[{"what": "verdict", "before": "pass", "after": "fail"}]),
        made(**{name: [] for name in empty}, releases={"reasons": {}, "latency": {}}, policy=settings),
        made(population={"populations": 2, "subject_key": None}, report={"verdict": "pass"}, suppressed_cells=["a"]),
        made(checks=[{**check, "status": "not_measured"} for check in example["checks"]]),
    ]


def test_every_text_is_said_where_it_holds_alone(reports: list[PrivacyReport]) -> None:
    texts = [said(report) for report in reports]
    for section in load("sections"):
        for block in section["blocks"]:
            if block.get("curves") or block.get("chart") == "intersection":
                continue  # of audits that the example has none of
            for name in set(block) & {"text", "caption", "title", "description", "note"}:
                words = max(re.split(r"\{\w+\}", block[name]), key=len).strip()
                holds = [words in text for text in texts]
                assert any(holds), words
                if {"when", "unless"} & set(block) and name == "text" and "{" not in block[name]:
                    assert not all(holds), words


def test_no_report_has_a_problem(reports: list[PrivacyReport]) -> None:
    assert [problems(report.to_html()) for report in reports] == [[]] * len(reports)


def test_what_is_stated_of_prototypes_says_whether_it_is_a_guarantee() -> None:
    claimed, guaranteed = said(made(dp=DP)), said(made(dp={**DP, "guarantee": "pure", "total": [2.0, 0.25]}))
    for words in ("not stated: nothing is guaranteed", "no bound", "yes", "1.5, 1e-06"):
        assert words in claimed
    assert "What is guaranteed: the answers." in guaranteed
    assert "2, 0.25" in guaranteed
    assert "epsilon is a claim" not in guaranteed.lower()
