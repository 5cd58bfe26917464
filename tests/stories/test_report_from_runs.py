"""A privacy officer reads from logged runs alone what was released, and at what risk."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from cfk_plugin import PrivacyReport, ProtectedExplainer
from worlds import World


@pytest.fixture
def report(mlflow_store: str, private: ProtectedExplainer, refused: pd.DataFrame) -> PrivacyReport:
    """Return a report on two runs of an experiment."""
    private.explain(refused.head(5)).log(experiment="loans")
    private.explain(refused.tail(3)).log(experiment="loans")
    return PrivacyReport.of_experiment("loans")


def test_open_questions_need_a_review(report: PrivacyReport) -> None:
    """Nothing failed, but nobody has run an attack or answered a question yet."""
    assert report.verdict == "review"


def test_report_covers_all_runs(report: PrivacyReport) -> None:
    """The eight explanations of both runs are counted, and ten people stand behind each."""
    content = json.loads(report.to_json())
    assert content["releases"]["released"]["value"] == 8
    checks = {check["id"]: check for check in content["checks"]}
    assert checks["k_min"]["status"] == "pass"
    assert checks["k_min"]["measured"]["value"] >= 10


def test_page_is_one_file(report: PrivacyReport, tmp_path: Path) -> None:
    """The page needs no other file, and no network."""
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script src" not in page
    assert "<link " not in page


def test_report_quotes_no_person(
    report: PrivacyReport, applicants: World, refused: pd.DataFrame
) -> None:
    """Neither the page nor the data has the income of a person."""
    for text in (report.to_html(), report.to_json()):
        for income in [*applicants.table["income"], *refused["income"]]:
            assert str(income) not in text
