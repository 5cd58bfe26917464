"""Answers of people: what they write comes out as written, or an error names the key and shows nothing of it."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.report.inputs import (
    ACCEPTABLE,
    LARGEST,
    LONGEST,
    QUESTIONS,
    SIGNERS,
    HumanInputs,
    placeholders,
    promised,
    template,
)
from cfk_plugin.report.statements import DEFINITIONS

CANARY = "canary-7731"


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        path = tmp_path / "inputs.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return HumanInputs.read(path)

    return from_text


def test_template_asks_everything_and_answers_nothing(read):
    inputs = read(template())
    assert inputs == HumanInputs()
    asked = [place.id for place in placeholders(inputs)]
    assert asked == [*QUESTIONS, *(f"sign_off.{name}" for name in SIGNERS)]
    assert all(f"  {name}: " in template() for name in QUESTIONS)
    assert set(inputs.system().values()) == {None}


def test_a_filled_template_leaves_nothing_open(read):
    lines = []
    for line in template().splitlines():
        name = line.strip().split(":")[0]
        if not line.endswith('""'):
            lines.append(line)
            continue
        answer = {"recipients_pool": "no", "next_review": "2027-05-31", "date": "2026-11-20"}.get(name, f"the {name}")
        lines.append(line.replace('""', answer))
    inputs = read("\n".join(lines))
    assert placeholders(inputs) == ()
    assert inputs.answers["system"] == "the system"
    assert inputs.reason == "the reason"
    assert inputs.signatures()[0] == {"role": "data protection officer", "name": "the name", "date": "2026-11-20"}


def test_scalars_stay_as_they_were_written(read):
    inputs = read("answers: {recipients_pool: No, retention: 05, legal_basis: yes, next_review: 2027-01-01}")
    assert dict(inputs.answers) == {
        "recipients_pool": "no",
        "retention": "05",
        "legal_basis": "yes",
        "next_review": "2027-01-01",
    }


def test_plain_python_values_do_as_well():
    inputs = HumanInputs(
        answers={"recipients_pool": False, "next_review": dt.date(2027, 1, 1)}, thresholds={"k": 12, "pureness": 0.9}
    )
    assert dict(inputs.answers) == {"recipients_pool": "no", "next_review": "2027-01-01"}
    assert dict(inputs.thresholds) == {"k": 12, "pureness": 0.9}


def test_numbers_are_read_from_text(read):
    assert dict(read("thresholds: {k: 12, pureness: .9, ncp: ''}").thresholds) == {"k": 12, "pureness": 0.9}


def test_half_a_signature_is_open(read):
    inputs = read("sign_off: {dpo: {name: A. Person}, owner: {name: B. Person, date: 2026-11-01}}")
    assert [place.id for place in placeholders(inputs) if place.id.startswith("sign_off")] == [
        "sign_off.dpo",
        "sign_off.model_risk",
    ]
    assert inputs.signatures()[0] == {"role": "data protection officer", "name": "A. Person", "date": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"answer: {{system: {CANARY}}}", "answer is unknown; known: answers, sign_off"),
        (f"answers: {{sytem: {CANARY}}}", r"answers\.sytem is unknown; known: system"),
        (f"? ''\n: {CANARY}", "is unknown"),
        (f"answers: {CANARY}", "answers must hold keys and values, got str"),
        (f"- {CANARY}", "must hold keys and values"),
        (f"answers: {{system: [{CANARY}]}}", r"answers\.system must be text, got list"),
        (f"answers: {{recipients_pool: {CANARY}}}", r"answers\.recipients_pool must be one of yes, no, unknown"),
        (f"answers: {{next_review: {CANARY}}}", r"answers\.next_review must be a date, YYYY-MM-DD"),
        ("answers: {next_review: 2026-02-30}", r"answers\.next_review must be a date"),
        ("answers: {next_review: 20260230}", r"answers\.next_review must be a date"),
        (f"sign_off: {{dpo: {{name: A, date: {CANARY}}}}}", r"sign_off\.dpo\.date must be a date"),
        (f"sign_off: {{dpo: {{title: {CANARY}}}}}", r"sign_off\.dpo\.title is unknown; known: name, date"),
        (f"sign_off: {{dpo: {CANARY}}}", r"sign_off\.dpo must hold keys and values"),
        (f"thresholds: {{k: {CANARY}}}", r"thresholds\.k must be a whole number >= 2"),
        ("thresholds: {k: 1}", r"thresholds\.k must be a whole number"),
        ("thresholds: {k: 11.5}", r"thresholds\.k must be a whole number"),
        ("thresholds: {k: inf}", r"thresholds\.k must be a whole number"),
        ("thresholds: {pureness: nan}", r"thresholds\.pureness must be a number between 0 and 1"),
        ("thresholds: {pureness: 90}", r"thresholds\.pureness must be a number between 0 and 1"),
        ("thresholds: {epsilon: 0}", r"thresholds\.epsilon must be a finite number above 0"),
        ("thresholds: {risk: 0.5}", r"thresholds\.risk is unknown"),
        (f"accepted_risks: {{k_min: {CANARY}}}", r"accepted_risks\.k_min is unknown; known: k_desired_min"),
        (f"reason: {CANARY}\nreason: again", r"reason stands there twice \(line 2\)"),
        (f"answers: {{system: a, system: {CANARY}}}", "system stands there twice"),
        (f"answers: {{system: '{CANARY}", "no valid YAML"),
        (f"answers: {{system: {CANARY}: b: c}}", "no valid YAML"),
        (f"answers: {{system: *{CANARY}}}", "no valid YAML"),
        (f"&a [*a, {CANARY}]", "no valid YAML"),
        (f"a: 1\n---\nb: {CANARY}", "no valid YAML"),
        ("[" * 5_000, "no valid YAML"),
        (f'answers: {{system: "{CANARY}\\e[31m"}}', "cannot be printed"),
        (f'answers: {{system: "{CANARY}\\u202e"}}', "cannot be printed"),
        (f'answers: {{system: "{CANARY}\\ud800"}}', "cannot be printed"),
        (b"\xff\xfe" + CANARY.encode(), "not UTF-8"),
        ("answers: {system: " + "x" * (LONGEST + 1) + "}", r"answers\.system has 2,001 characters; say it in 2,000"),
        ("#" * (LARGEST + 1), "larger than 200,000 bytes"),
    ],
)
def test_wrong_answers_are_named_and_not_shown(read, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(text)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_tags_make_nothing(read):
    inputs = read("answers: {system: !!python/object/apply:os.getcwd [], retention: !!int x}\n".replace(" []", " x"))
    assert dict(inputs.answers) == {"system": "x", "retention": "x"}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        HumanInputs.read(tmp_path / "none.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "answers:\nthresholds: ~\n", "answers: {system: null}"])
def test_nothing_said_is_no_error(read, text):
    assert read(text) == HumanInputs()


def test_it_does_not_show_answers():
    assert CANARY not in repr(HumanInputs(answers={"system": CANARY}))


def test_answers_cannot_be_changed_afterwards():
    given = {"system": "A"}
    inputs = HumanInputs(answers=given)
    given["system"] = "B"
    assert inputs.answers["system"] == "A"
    with pytest.raises(TypeError):
        inputs.answers["system"] = "C"


RERUNS = {"k_effective_min", "attack_inversion_own", "attack_inversion_released"}


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"guarantee": "nominal"}, set()),
        ({"guarantee": "reciprocal", "anonymity_set": "population"}, RERUNS),
        ({"guarantee": "reciprocal", "anonymity_set": "eligible"}, RERUNS | {"k_desired_min"}),
        ({"guarantee": "catalogue"}, RERUNS | {"k_desired_min", "attack_model_filter"}),
    ],
)
def test_a_broken_promise_is_not_accepted(policy, kept):
    inputs = HumanInputs(accepted_risks=dict.fromkeys(ACCEPTABLE, "outcomes are secret"))
    assert promised(policy) == kept
    for check in ACCEPTABLE:
        assert inputs.accepted(check, [policy]) == (None if check in kept else "outcomes are secret")
        assert inputs.accepted(check, [{"guarantee": "nominal"}, policy]) == inputs.accepted(check, [policy])
    assert inputs.accepted("k_min", [policy]) is None


def test_without_a_known_policy_nothing_is_accepted():
    assert HumanInputs(accepted_risks={"k_desired_min": "a reason"}).accepted("k_desired_min", []) is None


def test_what_can_be_accepted_is_a_check_and_documented():
    assert set(ACCEPTABLE) <= set(DEFINITIONS)
    page = Path(__file__).resolve().parents[2] / "docs" / "governance" / "inputs.md"
    table = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line)} == set(ACCEPTABLE)


def test_a_risk_that_nobody_accepted():
    assert HumanInputs().accepted("k_desired_min", [{"guarantee": "nominal"}]) is None
