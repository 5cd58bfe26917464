"""Answers, accepted risks and thresholds of people are read from a mapping or a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.errors import InputError
from cfk_plugin.report.inputs import QUESTIONS, HumanInputs, open_questions


def test_a_file_says_the_same_as_a_mapping(tmp_path: Path) -> None:
    inputs = {**reported.inputs(), "accepted_risks": {"k_desired_min": "not public"}}
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps(inputs))
    assert HumanInputs.read(path) == HumanInputs.read(str(path)) == HumanInputs.read(inputs)


def test_an_empty_answer_leaves_its_question_open() -> None:
    inputs = HumanInputs.read({"answers": {"purpose": "to explain", "recipients": " "}})
    names = {question.id for question in open_questions(inputs)}
    assert names == set(QUESTIONS) - {"purpose"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"answer": {}}, "answer is unknown; .* did you mean 'answers'"),
        ({"answers": {"purposes": "x"}}, "answers.purposes is unknown"),
        ({"answers": {"purpose": 3}}, "answers.purpose must be text, got int"),
        ({"answers": ["canary"]}, "answers must have keys and values, got list"),
        ({"accepted_risks": {"k_min": "canary"}}, "accepted_risks.k_min is unknown"),
        ({"thresholds": {"kk": 3}}, "thresholds.kk is unknown"),
        ({"thresholds": {"k": 1}}, "thresholds.k must be a whole number >= 2"),
        ({"thresholds": {"k": True}}, "thresholds.k must be a number, got bool"),
        ({"thresholds": {"ncp": 2}}, "thresholds.ncp must be a number between 0 and 1"),
        ({"thresholds": {"epsilon": 0}}, "thresholds.epsilon must be a finite number above 0"),
    ],
)
def test_a_wrong_value_is_named_and_not_shown(inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        HumanInputs.read(inputs)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("canary", "not valid JSON"), ("[]", "must be a JSON object")],
)
def test_a_wrong_file_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        HumanInputs.read(path)


def test_answers_stand_in_the_report(store: str) -> None:
    inputs = reported.inputs(answers={"recipients": "the <applicants>"})
    report = PrivacyReport.of_runs(reported.run(), inputs=inputs)
    assert report.verdict == "pass"
    assert report.data.open_questions == ()
    assert "the &lt;applicants&gt;" in report.to_html()
    assert report.data.report["command"].endswith("--inputs inputs.json")


def test_an_accepted_risk_is_at_best_a_review(store: str) -> None:
    run_id = reported.run(audits=reported.audits(reported.audit("extraction", main=0.9)))
    accepted = reported.inputs(accepted_risks={"attack_extraction": "the model is public"})
    reports = [PrivacyReport.of_runs(run_id, inputs=each) for each in (reported.inputs(), accepted)]
    assert [each.verdict for each in reports] == ["fail", "review"]
