"""Answers of people: what they write stands in the report, or an error names the key and shows
nothing of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import reported
from cfk_plugin import PrivacyPolicy, PrivacyReport
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError

CANARY = "canary-7731"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "make-a-report.md"
ACCEPTABLE = set(
    re.findall(
        r"`(attack_\w+|k_\w+_min)`",
        "\n".join(re.findall(r"^\| `.*", GUIDE.read_text("utf-8"), re.M)),
    )
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("template") / "inputs.yaml"
    assert CliRunner().invoke(app, ["report", "--template", str(path)]).exit_code == 0
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def run_id(store: str) -> str:
    return reported.run()


@pytest.fixture
def report(run_id: str, tmp_path: Path) -> Any:
    """Return a function that makes the report of a run with answers as they are written."""

    def made(text: str | bytes, run: str = run_id, **options: Any) -> PrivacyReport:
        path = tmp_path / "inputs.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return PrivacyReport.of_runs(run, inputs=path, **options)

    return made


def test_the_template_asks_everything_and_answers_nothing(
    report: Any, template: str, run_id: str
) -> None:
    made, none = report(template), PrivacyReport.of_runs(run_id)
    assert made.data.open_questions == none.data.open_questions
    asked = [place.id for place in made.data.open_questions]
    assert {"system", "sign_off.dpo"} < set(asked)
    assert all(f"  {name.removeprefix('sign_off.')}:" in template for name in asked)
    assert set(made.data.system.values()) == {None}
    assert made.data.open_questions[0].question in made.to_html()


def test_a_filled_template_leaves_nothing_open(report: Any, template: str) -> None:
    told = {"recipients_pool": "no", "next_review": "2027-05-31", "date": "2026-11-20"}
    lines = [
        line.replace('""', told.get(name := line.strip().split(":")[0], f"the {name}"))
        for line in template.splitlines()
    ]
    data = report("\n".join(lines)).data
    assert data.open_questions == ()
    assert (data.system["system"], data.report["reason"]) == ("the system", "the reason")
    assert data.report["title"] == "Privacy report: the system"
    assert data.sign_off[0] == {
        "role": "data protection officer",
        "name": "the name",
        "date": "2026-11-20",
    }


def test_answers_stay_as_they_were_written(report: Any) -> None:
    written = "recipients_pool: No, retention: 05, legal_basis: yes, next_review: 2027-01-01"
    tags = "purpose: !!python/object/apply:os.getcwd x, access: !!int y"
    data = report(f"answers: {{{written}, {tags}}}\nsign_off: {{dpo: {{name: A. Person}}}}").data
    assert {name: value for name, value in data.system.items() if value is not None} == {
        "recipients_pool": "no",
        "retention": "05",
        "legal_basis": "yes",
        "next_review": "2027-01-01",
        "purpose": "x",
        "access": "y",
    }
    assert data.sign_off[0] == {
        "role": "data protection officer",
        "name": "A. Person",
        "date": None,
    }
    assert "sign_off.dpo" in {place.id for place in data.open_questions}  # half a signature is open


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "answers:\nthresholds: ~\n", "answers: {system: null}"]
)
def test_nothing_said_is_no_error(text: str, report: Any) -> None:
    assert set(report(text).data.system.values()) == {None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"answer: {{system: {CANARY}}}", "answer is unknown; known: answers, sign_off"),
        (f"answers: {{sytem: {CANARY}}}", r"answers\.sytem is unknown; known: system"),
        (f"? ''\n: {CANARY}", "is unknown"),
        (f"answers: {CANARY}", "answers must hold keys and values, got str"),
        (f"- {CANARY}", "must hold keys and values"),
        (f"answers: {{system: [{CANARY}]}}", r"answers\.system must be text, got list"),
        (
            f"answers: {{recipients_pool: {CANARY}}}",
            r"answers\.recipients_pool must be one of yes, no, unknown",
        ),
        (f"answers: {{next_review: {CANARY}}}", r"answers\.next_review must be a date, YYYY-MM-DD"),
        ("answers: {next_review: 2026-02-30}", r"answers\.next_review must be a date"),
        ("answers: {next_review: 20260230}", r"answers\.next_review must be a date"),
        (f"sign_off: {{dpo: {{name: A, date: {CANARY}}}}}", r"sign_off\.dpo\.date must be a date"),
        (
            f"sign_off: {{dpo: {{title: {CANARY}}}}}",
            r"sign_off\.dpo\.title is unknown; known: name, date",
        ),
        (f"sign_off: {{dpo: {CANARY}}}", r"sign_off\.dpo must hold keys and values"),
        (f"thresholds: {{k: {CANARY}}}", r"thresholds\.k must be a whole number >= 2"),
        ("thresholds: {k: 1}", r"thresholds\.k must be a whole number"),
        ("thresholds: {k: 11.5}", r"thresholds\.k must be a whole number"),
        ("thresholds: {k: inf}", r"thresholds\.k must be a whole number"),
        ("thresholds: {pureness: nan}", r"thresholds\.pureness must be a number between 0 and 1"),
        ("thresholds: {pureness: 90}", r"thresholds\.pureness must be a number between 0 and 1"),
        ("thresholds: {epsilon: 0}", r"thresholds\.epsilon must be a finite number above 0"),
        ("thresholds: {risk: 0.5}", r"thresholds\.risk is unknown"),
        ("thresholds: {k: 11}", r"thresholds\.k is below that of the preset ema-0070"),
        (
            f"accepted_risks: {{k_min: {CANARY}}}",
            r"accepted_risks\.k_min is unknown; known: k_desired_min",
        ),
        (f"reason: {CANARY}\nreason: again", r"reason stands there twice \(line 2\)"),
        (f"answers: {{system: '{CANARY}", "no valid YAML"),
        (f"answers: {{system: {CANARY}: b: c}}", "no valid YAML"),
        (f"answers: {{system: *{CANARY}}}", "no valid YAML"),
        (f"&a [*a, {CANARY}]", "no valid YAML"),
        (f"a: 1\n---\nb: {CANARY}", "no valid YAML"),
        ("[" * 600, "no valid YAML"),
        (f'answers: {{system: "{CANARY}\\e[31m"}}', "cannot be printed"),
        (f'answers: {{system: "{CANARY}\\u202e"}}', "cannot be printed"),
        (f'answers: {{system: "{CANARY}\\ud800"}}', "cannot be printed"),
        (b"\xff\xfe" + CANARY.encode(), "not UTF-8"),
        (
            "answers: {system: " + "x" * 2_001 + "}",
            r"answers\.system has 2,001 characters; say it in 2,000",
        ),
        ("#" * 200_001, "larger than 200,000 bytes"),
    ],
)
def test_wrong_answers_are_named_and_not_shown_before_any_run_is_read(
    text: Any, message: str, report: Any
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        report(text, run="nobody", preset="ema-0070")
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_answers_are_in_no_repr() -> None:
    from cfk_plugin.report.inputs import HumanInputs

    given = {"system": CANARY}
    inputs = HumanInputs(answers=given)
    given["system"] = "changed afterwards"
    assert inputs.answers["system"] == CANARY
    assert CANARY not in repr(inputs)


# --- thresholds, and risks that are accepted ---


@pytest.mark.parametrize("preset", ["paper", "cms-11", "ema-0070", "k20"])
def test_a_preset_asks_for_its_k_and_says_who_does(preset: str, run_id: str) -> None:
    report = PrivacyReport.of_runs(run_id, preset=preset)
    asked = {line["id"]: line for line in report.data.policy["thresholds"]}
    k = PrivacyPolicy.preset(preset).k  # type: ignore[arg-type]
    assert asked["k"]["value"] == k
    assert 1 / k <= asked["risk"]["value"] < 1 / (k - 1)  # the least k that the risk allows
    assert len(asked["k"]["source"]) > 20
    assert (
        "pureness" in asked,
        asked["group_gap"]["value"],
        asked["attack_over_control"]["value"],
    ) == (
        False,
        0.1,
        0.05,
    )
    assert asked["risk"]["source"].endswith("1 / k") == (preset != "ema-0070")


def test_people_come_before_preset_and_house(report: Any, run_id: str) -> None:
    data = report(
        "thresholds: {k: 15, pureness: .9, group_gap: 0.2, ncp: ''}", preset="cms-11"
    ).data
    asked = {line["id"]: line for line in data.policy["thresholds"]}
    assert [asked[name]["value"] for name in ("k", "pureness", "group_gap")] == [15, 0.9, 0.2]
    assert {asked[name]["source"] for name in ("k", "pureness", "group_gap")} == {"inputs.yaml"}
    assert asked["risk"]["value"] == 1 / 15
    none = {line["id"] for line in PrivacyReport.of_runs(run_id).data.policy["thresholds"]}
    assert none.isdisjoint({"k", "risk"})  # policies alone ask
    with pytest.raises(InputError, match="known: paper, cms-11, ema-0070, k20"):
        PrivacyReport.of_runs("nobody", preset="gdpr")


ASKS = {"k_consistent_min", "attack_model_filter"}
RERUNS = {"k_effective_min"}


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (PrivacyPolicy(k=12, guarantee="lookup"), set()),
        (PrivacyPolicy(guarantee="reciprocal", k=12), RERUNS),
        (PrivacyPolicy(k=12, guarantee="catalogue"), RERUNS | ASKS | {"k_desired_min"}),
    ],
)
def test_a_risk_is_accepted_unless_the_policy_promised_that_there_is_none(
    policy: PrivacyPolicy, kept: set[str], report: Any
) -> None:
    assert len(ACCEPTABLE) == 8
    accepted = "\n".join(f"  {name}: outcomes are secret" for name in sorted(ACCEPTABLE))
    attacks = [
        name.removeprefix("attack_") for name in sorted(ACCEPTABLE) if name.startswith("attack")
    ]
    ran = [reported.audit(name, main=0.9, policy=policy.to_dict()) for name in attacks]
    table = reported.rows(policy=policy, k_desired=3, k_effective=3, k_consistent=3)
    run_id = reported.run(table, policy, audits=ran)
    found = {
        line.id: line.status
        for line in report(f"accepted_risks:\n{accepted}", run=run_id).data.checks
    }
    assert {name for name in ACCEPTABLE if found[name] == "fail"} == kept
    assert {found[name] for name in ACCEPTABLE - kept} == {"review"}
