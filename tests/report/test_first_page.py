"""The first page: one verdict with its reason, three figures that are the data's, and what to do
next.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import reported
from cfk_plugin import PrivacyPolicy, PrivacyReport, Schema, protect
from cfk_plugin.cli import app
from cfk_plugin.cli.audit import _AGAINST
from cfk_plugin.dp.prototypes import DPPrototypes
from cfk_plugin.report.data import Amount, load
from cfk_plugin.report.first_page import first_page
from parsed import Element, Tree
from reported import GAP, amount, content, example, failed, line

PEOPLE = "Fewest people behind an explanation (k)"
ATTACK = "Worst attack measured"
COST = "Cost: information loss (NCP), mean"


def header(report: PrivacyReport) -> Element:
    return Tree(report.to_html()).root.all("header")[0]


def of_class(root: Element, name: str) -> list[Element]:
    return [each for each in root.walk() if name in (each.attributes.get("class") or "").split()]


def tiles(report: PrivacyReport) -> dict[str, tuple[str, str]]:
    """Return figure and words of every tile, by its name."""
    (box,) = of_class(header(report), "tiles")
    cells = [
        (each.all("dt")[0].text, [cell.text for cell in each.all("dd")]) for each in box.all("div")
    ]
    return {name: (figure, " ".join(said)) for name, (figure, *said) in cells}


def share(found: Amount) -> str:
    """Write a share as a reader would, in percent with three digits; what is not all is not said to
    be.
    """
    assert found.value is not None
    percent = 100.0 if found.value == 1 else min(100 * found.value, 99.9)
    return f"{np.format_float_positional(percent, 3, fractional=False, trim='-')} %"


def rest(report: PrivacyReport) -> str:
    """Return the sentences below the tiles."""
    (paragraph,) = of_class(header(report), "rest")
    return paragraph.text


def test_every_figure_of_a_tile_is_that_of_the_data() -> None:
    report = example()
    data, shown = report.data, tiles(report)
    assert tuple(shown) == (PEOPLE, ATTACK, COST)
    (k,) = [check for check in data.checks if check.id == "k_min"]
    assert shown[PEOPLE][0] == str(data.metric("k_min").value)
    assert f"asks for at least {k.threshold.value} (guarantee: catalogue)" in shown[PEOPLE][1]
    assert data.report["not_covered"][0] in shown[PEOPLE][1]
    over = {of.id: (of.main.value or 0) - (of.control.value or 0) for of in data.attacks}
    worst = next(of for of in data.attacks if of.id == max(over, key=lambda name: over[name]))
    assert shown[ATTACK][0] == share(worst.main)
    assert f"Baseline: {share(worst.baseline)}" in shown[ATTACK][1]
    assert data.definitions[worst.id].name in shown[ATTACK][1]
    assert "Checks on attacks: 2 pass, 3 not measured." in shown[ATTACK][1]
    assert shown[COST][0] == share(data.metric("ncp_mean"))


def test_every_figure_below_the_tiles_is_that_of_the_data() -> None:
    report = example()
    data, told = report.data, rest(report)
    released = data.releases
    assert told.startswith(
        f"{released['released'].value} of {released['asked'].value} explanations released,"
        f" {released['withheld'].value} withheld"
    )
    assert f"Model: {data.environment['model']}" in told
    assert "Recipients: the patients who ask. Can they pool explanations? Unknown." in told
    assert f"Truth (pureness): on average, {share(data.metric('pureness_mean'))}" in told
    assert f"at least {share(data.metric('pureness_min'))}" in told
    assert f"person who asks: {share(data.metric('true_rate'))}." in told


def test_the_page_says_what_nobody_measured_or_said() -> None:
    made = content()
    silent = {
        "distributions": [],
        "attacks": [],
        "system": dict.fromkeys(made["system"]),
        "picture": None,
    }
    silent["metrics"] = [each for each in made["metrics"] if each["id"] != "true_rate"]
    silent["environment"] = {"model": None}
    report = example(**silent)
    said, told = tiles(report), rest(report)
    assert "Model: not on record" in told
    assert "It is not stated who receives" in told
    assert "asks: not measured." in told
    lookup = share(example().data.metric("prosecutor_risk_max"))
    assert said[ATTACK][0] == "Not measured"  # a look-up is no attack that was tried
    assert "No attack was run" in said[ATTACK][1]
    assert f"by looking up who matches: {lookup}." in said[ATTACK][1]


def test_the_worst_risk_is_of_what_is_released_and_needs_an_explanation() -> None:
    (attack, *_) = content()["attacks"]
    better = attack | {"main": amount(0.9), "baseline": amount(0.2), "control": amount(0.1)}
    others = [
        better | {"id": "linkage", "concerns": False},
        better | {"id": "model_filter", "judged": False},
    ]
    others += [better | {"id": "membership_loss", "family": "membership"}]
    assert tiles(example(attacks=[attack, *others]))[ATTACK][0] == share(
        example().data.attacks[0].main
    )
    assert tiles(example(attacks=[attack, better]))[ATTACK][0] == "90 %"


def without_comparison(**changes: Any) -> Any:
    """Return an attack of the example whose baseline and control were not measured."""
    (attack, *_) = content()["attacks"]
    return attack | {"main": amount(0.5), "baseline": amount(), "control": amount()} | changes


@pytest.mark.parametrize(
    ("attacks", "words"),
    [
        ([], "No attack was run, so the risk from active attackers is unknown."),
        ([without_comparison(id="membership_random", judged=False)], "No attack was run, so"),
        (
            [without_comparison()],
            (
                "Attacks were run, but their success, or the rate it is compared with, was not"
                " measured."
            ),
        ),
        (
            [without_comparison(id="membership_loss", family="membership")],
            (
                "The attacks that were run use only the model, so the risk from attackers who use"
                " explanations is unknown."
            ),
        ),
        (
            [without_comparison(concerns=False)],
            (
                "No check judges the attacks that were run, so the risk from attackers who use the"
                " release is unknown."
            ),
        ),
    ],
)
def test_without_a_worst_attack_the_page_says_why(attacks: list[Any], words: str) -> None:
    figure, text = tiles(example(attacks=attacks))[ATTACK]
    assert figure == "Not measured"
    assert text.startswith(words)


def test_of_prototypes_the_budget_stands_where_k_does() -> None:
    checks = [line("dp_guarantee", measured=1.5)]
    metrics = [each | {"id": "epsilon", "amount": amount(1.5)} for each in content()["metrics"][:1]]
    said = tiles(example(checks=checks, metrics=metrics))
    assert said["Epsilon"] == ("1.5", content()["report"]["not_covered"][0])


# --- verdict and what to do next ---


def reason(report: PrivacyReport) -> str:
    return of_class(header(report), "reason")[0].text


def test_the_verdict_has_one_reason() -> None:
    assert reason(example(failed(content()))) == f"Group gap fails: {GAP}"
    two = [line("ncp", "fail"), line("k_min", "fail"), line("pureness")]
    assert (
        reason(example(checks=two))
        == "Information loss fails: The ncp check found it. 1 more check fails."
    )
    review = {"verdict": "review"}
    open_ = [line("k_min"), line("ncp", "review"), line("records", "not_measured")]
    said = "No check fails; of 3 checks, 1 was not measured and 1 needs review."
    assert reason(example(checks=open_, report=review)) == said
    passed = reason(example(checks=[line("k_min")], report={"verdict": "pass"}))
    assert passed == "Every check passed, and every question for people is answered."


def for_a_pass(report: PrivacyReport) -> str:
    return " ".join(each.text for each in of_class(header(report), "for-a-pass"))


def test_one_sentence_says_what_is_missing_for_a_pass() -> None:
    found = for_a_pass(example())
    assert found == "For a pass: run cfk audit and answer 5 open questions in inputs.json."
    checks = [line("k_min"), line("dp_budget", "not_measured", step="accountant")]
    (one,) = [for_a_pass(example(checks=checks, report={"verdict": "review"}))]
    assert one == "For a pass: pass a BudgetAccountant to the prototypes."
    checks += [line("group_gap", "fail"), line("attack_linkage", "review")]
    assert for_a_pass(example(checks=checks, report={"verdict": "fail"})) == (
        "For a pass: settle 1 failed check and pass a BudgetAccountant to the prototypes. Only"
        " people can judge look up, so the verdict stays at review."
    )
    assert for_a_pass(example(checks=[line("k_min")], report={"verdict": "pass"})) == ""


def steps(report: PrivacyReport) -> list[tuple[str, str, str]]:
    """Return where each of the next steps leads, what it says, and its command."""
    (box,) = of_class(header(report), "next")
    found = []
    for each in box.all("li"):
        command = "".join(code.text for code in each.all("code"))
        text = each.text.removesuffix(command).strip()
        found.append((str(each.all("a")[0].attributes["href"]), text, command))
    return found


def test_what_to_do_next_is_in_order_and_each_leads_to_its_place() -> None:
    report = example(failed(content()))
    found = steps(report)
    assert [target for target, _, _ in found] == [
        "#check-group_gap",
        "#check-attack_membership",
        "#check-human_inputs",
    ]
    assert found[0][1].startswith("Settle: Group gap. ")
    assert found[1][1] == (
        "Run cfk audit (membership inference, model extraction, attribute inference)."
    )
    assert found[2][1].startswith(
        f"Answer {len(report.data.open_questions)} open questions in inputs.json ("
    )
    ids = {each.attributes.get("id") for each in Tree(report.to_html()).root.walk()}
    assert {target[1:] for target, _, _ in found} <= ids
    ready = example(
        checks=[line("k_min")], report={"verdict": "pass"}, system={"next_review": "2027-01-31"}
    )
    ((target, text, command),) = steps(ready)
    assert (target, text) == ("#section-13", "Make this report again by 2027-01-31.")
    assert command == ready.data.report["command"]


def test_a_page_has_few_steps_and_says_how_many_more_there_are() -> None:
    names = ("ncp", "records", "untracked", "pureness", "k_min", "group_gap", "verification")
    report = example(checks=[line(name, "fail") for name in names], report={"verdict": "fail"})
    found = steps(report)
    assert len(found) == 5
    assert found[-1][:2] == ("#section-0", "3 more: see the checks.")
    assert len(first_page(report.data).steps) == len(names)


PYTHON: dict[str, Any] = {
    "protect": protect,
    "PrivacyPolicy": PrivacyPolicy,
    "Schema.from_frame": Schema.from_frame,
    "DPPrototypes": DPPrototypes,
}


def options_of(words: list[str]) -> set[str]:
    """Return the options of the command that these words begin with; "audit" runs its suite."""
    program: Any = get_command(app)
    for word in [*words, "suite"]:
        program = getattr(program, "commands", {}).get(word, program)
    return {name for parameter in program.params for name in parameter.opts}


def test_commands_of_steps_are_those_of_the_command_line_and_of_python() -> None:
    filled = {"experiment": "loans", "report": "cfk report --run 1", "limits": "ncp"}
    filled |= {
        "limits_to_set": '"ncp": NUMBER',
        "against": "catalogue",
        "policy": "--policy p.json",
    }
    filled |= {"inputs": "cfk report --run 1 --inputs inputs.json"}
    for step in load("steps")["steps"]:
        command = step["command"].format_map(filled)
        name, _, arguments = command.partition("(")
        if command.startswith("cfk "):
            words = command.split()[1:]
            assert {word for word in words if word.startswith("-")} <= options_of(words), command
        elif name in PYTHON:
            outer = re.sub(r"\(.*?\)", "", arguments)
            given = re.findall(r" (\w+)=", f" {outer}")
            assert given
            assert set(given) <= set(signature(PYTHON[name]).parameters), command
        else:
            assert command == '"thresholds": {"ncp": NUMBER}'


def test_what_somebody_copies_names_the_experiment_as_one_word() -> None:
    runs = [each | {"experiment": "loans; rm -rf *"} for each in content()["runs"]]
    commands = [command for _, _, command in steps(example(runs=runs))]
    assert "--experiment 'loans; rm -rf *'" in commands[0]
    two = [*runs, runs[0] | {"experiment": "others"}]
    assert "--experiment EXPERIMENT" in steps(example(runs=two))[0][2]


@pytest.mark.parametrize(
    ("guarantees", "words"),
    [
        (["lookup"], "--against exact --policy policy.json"),
        (["lookup", "catalogue"], "--against catalogue,exact --policy policy.json"),
        (["dp-pure"], "--against dp --epsilon EPSILON"),
    ],
)
def test_the_audit_that_somebody_copies_is_of_what_was_released(
    guarantees: list[str], words: str
) -> None:
    """An audit of another guarantee would be a review; one of links would replace a full one."""
    command = steps(example(policy={"guarantees": guarantees}))[0][2]
    assert words in command
    assert "--only membership,extraction,attribute_inference" in command
    assert set(words.partition(" ")[2].split()[0].split(",")) <= set(_AGAINST)


# --- checks: open ones unfolded, passed ones a line each ---


def rows(report: PrivacyReport, table: str) -> list[list[str]]:
    (found,) = [
        each
        for each in Tree(report.to_html()).root.all("table")
        if each.attributes.get("id") == table
    ]
    return [[cell.text for cell in row.all("th", "td")] for row in found.all("tr")[1:]]


def test_open_checks_say_what_they_mean_and_passed_ones_take_a_line() -> None:
    report = example()
    order = ("fail", "review", "not_measured")
    open_ = sorted(
        (c for c in report.data.checks if c.status != "pass"), key=lambda c: order.index(c.status)
    )
    found = rows(report, "table-open")
    assert [row[0] for row in found] == [
        f"{report.data.definitions[check.id].name} ({check.id})" for check in open_
    ]
    assert all(check.text in row[-1] for check, row in zip(open_, found, strict=True))
    passed = [check for check in report.data.checks if check.status == "pass"]
    assert [row[0] for row in rows(report, "table-passed")] == [
        f"{report.data.definitions[c.id].name} ({c.id})" for c in passed
    ]
    assert all(len(" ".join(row)) < 100 for row in rows(report, "table-passed"))


def test_what_people_must_say_is_asked_in_one_place() -> None:
    report = example()
    found = rows(report, "table-answers")
    asked = [row for row in found if row[1] == "Open"]
    assert len(asked) == len(report.data.open_questions)
    assert all(row[2] for row in asked)
    page = Tree(report.to_html()).root.text
    assert all(page.count(each.question) == 1 for each in report.data.open_questions)


# --- the picture: widths and people, no value ---


def test_the_picture_is_of_the_release_of_median_loss(store: str) -> None:
    table = reported.rows(9).assign(ncp=[0.9, 0.1, 0.5, 0.3, 0.2, 0.8, 0.7, 0.6, 0.4])
    table["ncp.age"], table["k"] = table["ncp"] / 2, range(20, 29)
    report = PrivacyReport.of_runs(reported.run(table))
    assert report.data.picture is not None
    widths = {each["attribute"]: each["share"].value for each in report.data.picture["attributes"]}
    assert (report.data.picture["k"].value, widths) == (22, {"age": 0.25, "city": 0.3})
    (picture,) = of_class(header(report), "picture")
    # widest first
    assert [cell.text for cell in picture.all("td") if cell.text.endswith("%")] == ["30 %", "25 %"]
    lengths = [bar.attributes["style"] for bar in picture.all("i")]
    assert lengths == ["width:30%", "width:25%"]
    assert "22 people match it" in picture.text


# --- definitions ---


def test_names_lead_to_the_annex_of_definitions() -> None:
    page = example().to_html()
    annex = set(re.findall(r'id="definition-(\w+)"', page))
    assert set(re.findall(r'href="#definition-(\w+)"', page)) <= annex
    assert {"k_min", "pureness_mean", "ncp_mean", "linkage"} <= annex
