"""The first page of a report: the verdict and what a pass needs, three figures, and the next steps.

The page, notebooks and the command line show what `first_page` returns, so that all of them use
the same words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from cfk_plugin.audit.result import GUESSES, WITHOUT_EXPLANATIONS
from cfk_plugin.errors import counted
from cfk_plugin.report.amounts import NOT_MEASURED_TEXT, STATUS_TEXTS, Unit, shown
from cfk_plugin.report.data import (
    Amount,
    Attack,
    CheckResult,
    ReportData,
    Status,
    Verdict,
    load,
)
from cfk_plugin.report.runs import compared
from cfk_plugin.report.statements import title_of

WORST_ATTACK = "Worst attack measured"

# What the page has room for: attributes of the picture, and characters of texts.
_MOST_WIDTHS = 5
_LONGEST = 160
_LONGEST_REASON = 240
_LONGEST_PASS = 420
_MOST_STEPS = 5

_WORST_FIRST: Sequence[Status] = ("fail", "review", "not_measured", "pass")


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure and its explanation."""

    name: str
    figure: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Picture:
    """How much of the range of each attribute one explanation gives; it shows no value."""

    caption: str
    rows: Sequence[tuple[str, float, str]]  # attribute, share of its range, the same in words
    note: str


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next, the anchor of the check that needs it, and the command, if there is one."""

    text: str
    anchor: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPage:
    """The part of a report above the sections; a notebook and the command line show it, too."""

    verdict: Verdict
    reason: str
    for_a_pass: str  # what is missing for a pass; "" if nothing is
    tiles: Sequence[Tile]
    rest: Sequence[str]
    picture: Picture | None
    steps: Sequence[NextStep]
    how_to_copy: str  # what to replace in the commands; "" if there is nothing
    not_covered: Sequence[str]

    @property
    def steps_on_page(self) -> Sequence[NextStep]:
        """The steps that fit one screen, and how many more there are."""
        n_more = len(self.steps) - _MOST_STEPS
        if n_more <= 0:
            return self.steps
        rest = NextStep(f"{n_more + 1} more: see the checks.", "section-0")
        return [*self.steps[: _MOST_STEPS - 1], rest]


_LINE_BREAKS = re.compile(r"\s+")
NOT_TEXT = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML forbids, control characters except line ends, and marks that change the text
direction.
"""


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return NOT_TEXT.sub("", _LINE_BREAKS.sub(" ", text)).strip()


def first_page(data: ReportData) -> FirstPage:
    """Return what the first page says; every figure in it is in the data."""
    steps = _steps(data)
    return FirstPage(
        verdict=data.verdict,
        reason=shortened(_reason(data), _LONGEST_REASON),
        for_a_pass=shortened(_for_a_pass(data), _LONGEST_PASS),
        tiles=[_people(data), _worst_attack(data), _cost(data)],
        rest=[*_rest(data)],
        picture=_picture(data),
        steps=steps,
        how_to_copy=_how_to_copy(steps),
        not_covered=data.report["not_covered"][1:],  # the first is shown beside k
    )


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return a text of at most so many characters, cut between words where that leaves half."""
    if len(text) <= most:
        return text
    whole_words = shorten(text, most, placeholder="…")
    if len(whole_words) > most // 2:
        return whole_words
    return f"{text[: most - 1]}…"


def on_record(value: object, otherwise: str = "not on record") -> str:
    return otherwise if value is None or value == "" else str(value)


def days_of(period: Mapping[str, Any]) -> str:
    """Return the first and the last day of a period; one day once."""
    first = str(period["first"] or "")[:10]
    last = str(period["last"] or "")[:10]
    return first if first == last else f"{first} to {last}"


def open_checks(data: ReportData) -> list[CheckResult]:
    """Return the checks that do not pass, the worst first."""
    checks = [check for check in data.checks if check.status != "pass"]
    return sorted(checks, key=lambda check: _WORST_FIRST.index(check.status))


# --- the verdict, and what a pass needs ---


def _reason(data: ReportData) -> str:
    """Say why the verdict is what it is."""
    statuses = [check.status for check in data.checks]
    failed = [check for check in data.checks if check.status == "fail"]
    if failed:
        others = len(failed) - 1
        more = ""
        if others:
            verb = "fails" if others == 1 else "fail"
            more = f" {counted(others, 'more check')} {verb}."
        return f"{title_of(data, failed[0].id)} fails: {failed[0].text}{more}"
    parts = []
    unmeasured = statuses.count("not_measured")
    if unmeasured:
        verb = "was" if unmeasured == 1 else "were"
        parts.append(f"{unmeasured} {verb} not measured")
    undecided = statuses.count("review")
    if undecided:
        verb = "needs" if undecided == 1 else "need"
        parts.append(f"{undecided} {verb} review")
    if not parts:
        return "Every check passed, and every question for people is answered."
    return f"No check fails; of {counted(len(statuses), 'check')}, {' and '.join(parts)}."


def _for_a_pass(data: ReportData) -> str:
    """Say what is missing for a pass, and which checks stay a review; "" where nothing is."""
    parts = []
    n_failed = sum(check.status == "fail" for check in data.checks)
    if n_failed:
        parts.append(f"settle {counted(n_failed, 'failed check')}")
    parts += [_filled(data, step["do"], checks) for step, checks in _needed(data)]
    others = _without_step(data)
    unmeasured = [_short_title(data, check) for check in others if check.status == "not_measured"]
    if unmeasured:
        parts.append(f"measure {', '.join(unmeasured)}")
    sentences = []
    if parts:
        sentences.append(f"For a pass: {_listed(parts)}.")
    judged = [_short_title(data, check) for check in others if check.status == "review"]
    if judged:
        sentences.append(
            f"Only people can judge {', '.join(judged)}, so the verdict stays at review."
        )
    return " ".join(sentences)


def _listed(parts: Sequence[str]) -> str:
    if len(parts) <= 2:
        return " and ".join(parts)
    *others, last = parts
    return f"{'; '.join(others)}; and {last}"


def _needed(data: ReportData) -> list[tuple[Mapping[str, Any], list[CheckResult]]]:
    """Return the steps that settle checks which do not pass, each with these checks."""
    checks = open_checks(data)
    by_step = [
        (step, [check for check in checks if check.step == step["id"]])
        for step in load("steps")["steps"]
    ]
    return [(step, settled) for step, settled in by_step if settled]


def _without_step(data: ReportData) -> list[CheckResult]:
    """Return the checks that do not pass and that no step settles: to judge, settle or measure."""
    known = {step["id"] for step in load("steps")["steps"]}
    return [check for check in open_checks(data) if check.step not in known]


def _filled(data: ReportData, text: str, checks: Sequence[CheckResult]) -> str:
    """Fill in what a step is about: the experiment, the command of this report, checks, questions.

    Where several experiments or none were read, a word in capitals stands for the name.
    """
    limits = [_LIMITS.get(check.id, check.id) for check in checks]
    stated = [guarantee.removeprefix("dp-") for guarantee in data.policy["guarantees"]]
    owners = sorted({_OWNERS[guarantee] for guarantee in stated if guarantee in _OWNERS})
    policy = "--epsilon EPSILON" if owners == ["dp"] else f"--policy {_POLICY_FILE}"
    names = {run["experiment"] for run in data.runs} - {""}
    experiment = "EXPERIMENT"
    if len(names) == 1:
        experiment = shlex.quote(one_line(names.pop()))
    return text.format_map(
        {
            "experiment": experiment,
            "against": ",".join(owners) or "catalogue",
            "policy": policy,
            "report": data.report["command"],
            "inputs": _with_inputs(data.report["command"]),
            "questions": counted(len(data.open_questions), "open question"),
            "limits": ", ".join(limits),
            "limits_to_set": ", ".join(f'"{name}": NUMBER' for name in limits),
        }
    )


def _with_inputs(command: str) -> str:
    """Return the command that makes the report with people's answers."""
    inputs = "" if "--inputs" in command else " --inputs inputs.json"
    return f"{command}{inputs} -o report.html"


_OWNERS = {
    "lookup": "exact",
    "catalogue": "catalogue",
    "pure": "dp",
    "approximate": "dp",
    "none": "dp",
}
"""Who answers in ``cfk audit --against``, by guarantee."""

_LIMITS = {"dp_budget": "epsilon"}
"""Names of thresholds, for checks that have another one."""


# --- three figures ---


def _people(data: ReportData) -> Tile:
    """Return k or, of prototypes alone, epsilon."""
    not_covered = data.report["not_covered"][0]
    k = next((check for check in data.checks if check.id == "k_min"), None)
    if k is None:
        return Tile(title_of(data, "epsilon"), shown(data.metric("epsilon")), (not_covered,))
    names = on_record(", ".join(data.policy["guarantees"]))
    asked = f"The policy asks for at least {shown(k.threshold, 'count')} (guarantee: {names})."
    figure = shown(data.metric("k_min"), "count")
    return Tile(title_of(data, "k_min"), figure, (asked, not_covered))


def worst_attack(data: ReportData) -> Attack | None:
    """Return the attack on what is released that most exceeded what it is compared with."""
    attacks = _attacks_on_release(data)
    excess = {}
    for place, attack in enumerate(attacks):
        comparison = compared(attack)
        if comparison is not None and comparison.over.value is not None:
            excess[place] = comparison.over.value
    if not excess:
        return None
    return attacks[max(excess, key=lambda place: excess[place])]


def _attacks_on_release(data: ReportData) -> list[Attack]:
    """Return the attacks that a check judges and that use explanations of this release."""
    return [
        attack
        for attack in data.attacks
        if attack.judged and attack.concerns and attack.id not in WITHOUT_EXPLANATIONS
    ]


def _why_no_worst_attack(data: ReportData) -> str:
    """Say why no attack can be named the worst."""
    attacks = [attack for attack in data.attacks if attack.id not in GUESSES]
    if not attacks:
        return "No attack was run, so the risk from active attackers is unknown."
    if _attacks_on_release(data):
        return (
            "Attacks were run, but their success, or the rate it is compared with, was not"
            " measured."
        )
    if all(attack.id in WITHOUT_EXPLANATIONS for attack in attacks):
        return (
            "The attacks that were run use only the model, so the risk from attackers who use"
            " explanations is unknown."
        )
    return (
        "No check judges the attacks that were run, so the risk from attackers who use the release"
        " is unknown."
    )


def _worst_attack(data: ReportData) -> Tile:
    attack = worst_attack(data)
    tally = _tally(data)
    if attack is None:
        lookup = data.metric("prosecutor_risk_max")
        lines = [_why_no_worst_attack(data)]
        if lookup.measured:
            chance = shown(lookup, "share")
            lines.append(
                f"Highest chance of naming the right person by looking up who matches: {chance}."
            )
        return Tile(WORST_ATTACK, NOT_MEASURED_TEXT.capitalize(), (*lines, *tally))
    figure, interval = apart(attack.main, "share")
    baseline, _ = apart(attack.baseline, "share")
    control, _ = apart(attack.control, "share")
    success = f"{title_of(data, attack.id)}: success{interval}."
    against = f"Baseline: {baseline}. Control (people not in the training data): {control}."
    return Tile(WORST_ATTACK, figure, (success, against, *tally))


def _tally(data: ReportData) -> list[str]:
    """Say how many checks on attacks have each status; nothing if the report has none."""
    statuses = [check.status for check in data.checks if check.id.startswith("attack_")]
    order: tuple[Status, ...] = ("fail", "review", "pass", "not_measured")
    counts = [
        f"{statuses.count(status)} {STATUS_TEXTS[status]}" for status in order if status in statuses
    ]
    return [f"Checks on attacks: {', '.join(counts)}."] if counts else []


def _cost(data: ReportData) -> Tile:
    figure, interval = apart(data.metric("ncp_mean"), "share")
    loss = (
        f"of each column's range, on average, is given instead of one exact value{interval}."
        " Without protection: 0 %."
    )
    return Tile(title_of(data, "ncp_mean"), figure, (loss,))


def apart(amount: Amount, unit: Unit = "number") -> tuple[str, str]:
    """Write a figure, and separately its interval for use in a sentence."""
    figure, _, interval = shown(amount, unit).partition(" (")
    return figure, f" ({interval}" if interval else ""


# --- the rest in a few lines ---


def _rest(data: ReportData) -> Iterator[str]:
    """Yield sentences on what was released, whether it holds, for whom, and of when."""
    counts: Mapping[str, Any] = data.releases
    asked = shown(counts["asked"], "count")
    released = shown(counts["released"], "count")
    withheld = shown(counts["withheld"], "count")
    when = days_of(data.report["period"]) or "none in the period"
    yield f"{released} of {asked} explanations released, {withheld} withheld ({when})."
    yield _truth(data)
    recipients = data.system.get("recipients")
    if recipients:
        pool = on_record(data.system.get("recipients_pool"), "open")
        pooled = f"Can they pool explanations? {pool.capitalize()}."
        yield f"Recipients: {shortened(recipients)}. {pooled}"
    else:
        yield "It is not stated who receives explanations."
    model = on_record(data.environment.get("model"))
    explainers = on_record(", ".join(data.policy["generators"]))
    yield f"Model: {shortened(model)}. Explainer: {shortened(explainers)}."
    yield _facts(data)


def _truth(data: ReportData) -> str:
    mean, interval = apart(data.metric("pureness_mean"), "share")
    least = shown(data.metric("pureness_min"), "share")
    true_rate = data.metric("true_rate")
    return (
        f"Truth (pureness): on average, {mean}{interval} of the value combinations in a region lead"
        f" to the stated outcome, and in every region at least {least}. True for the person who"
        f" asks: {apart(true_rate, 'share')[0]}."
    )


def _facts(data: ReportData) -> str:
    period = data.report["period"]
    since, until = (str(period[end] or "…")[:10] for end in ("since", "until"))
    parts = []
    if since != "…" or until != "…":
        parts.append(f"Requested period: {since} to {until}.")
    if data.report["as_of"]:
        parts.append(f"As of {str(data.report['as_of'])[:10]}.")
    parts.append(f"Report {data.report['id']}.")
    return " ".join(parts)


def _picture(data: ReportData) -> Picture | None:
    """Return how wide the ranges of one explanation are; None where no region was released."""
    release = data.picture
    if release is None:
        return None
    widest = sorted(release["attributes"], key=lambda each: -(each["share"].value or 0.0))
    rows = []
    for each in widest[:_MOST_WIDTHS]:
        share = each["share"]
        text = shown(share, "share")
        if share.value == 0:
            text = "one value"
        rows.append((each["attribute"], share.value or 0.0, text))
    hidden = len(widest) - len(rows)
    more = f" {hidden} more are in the data." if hidden else ""
    people = shown(release["k"], "count")
    return Picture(
        caption=title_of(data, "picture"),
        rows=rows,
        note=(
            f"The explanation of median information loss; {people} people match it. A full bar is"
            f" the whole range of an attribute. Values are never shown.{more}"
        ),
    )


# --- what to do next ---

_POLICY_FILE = "policy.json"
TO_REPLACE = frozenset(
    {"COLUMN", "EPSILON", "EXPERIMENT", "HIGH", "LOW", "NUMBER", "OUTCOME", "VALUE"}
)
"""Words in commands that somebody who copies them replaces."""
_UNDECIDED = {"fail": "Settle", "not_measured": "Measure", "review": "Decide"}


def _steps(data: ReportData) -> list[NextStep]:
    """Return what to do next: what fails, then the steps that settle most, then decisions."""
    found = [
        *_to_settle(data, ("fail",)),
        *_with_command(data),
        *_to_settle(data, ("not_measured", "review")),
    ]
    if not found:
        date = data.system.get("next_review")
        when = f" by {date}." if date else " when something changes."
        again = NextStep(f"Make this report again{when}", "section-13", data.report["command"])
        return [again]
    return found


def _how_to_copy(steps: Sequence[NextStep]) -> str:
    """Say what to replace in the commands; "" where there is nothing."""
    commands = " ".join(step.command for step in steps)
    sentences = []
    if "cfk audit" in commands:
        sentences.append("Replace the file names and the words in capitals.")
    elif not TO_REPLACE.isdisjoint(re.findall(r"\b[A-Z]+\b", commands)):
        sentences.append("Replace the words in capitals.")
    if _POLICY_FILE in commands:
        sentences.append(f"{_POLICY_FILE} is the artifact cfk/{_POLICY_FILE} of a run.")
    if "cfk audit" in commands:
        sentences.append("Set CFK_KEY to the key of the runs first.")
    return " ".join(sentences)


def _with_command(data: ReportData) -> Iterator[NextStep]:
    for step, checks in _needed(data):
        do = _filled(data, step["do"], checks)
        names = ", ".join(_short_title(data, check) for check in checks)
        text = f"{do[:1].upper()}{do[1:]} ({names})."
        command = _filled(data, step["command"], checks)
        yield NextStep(text, f"check-{checks[0].id}", command)


def _to_settle(data: ReportData, statuses: Sequence[Status]) -> Iterator[NextStep]:
    """Yield the checks that no step settles; those of which the same is said are one item."""
    alike: dict[tuple[Status, str], list[CheckResult]] = {}
    for check in _without_step(data):
        if check.status in statuses:
            alike.setdefault((check.status, check.text), []).append(check)
    for (status, text), checks in alike.items():
        names = ", ".join(_short_title(data, check) for check in checks)
        settle = f"{_UNDECIDED[status]}: {shortened(names)}. {shortened(text)}"
        yield NextStep(settle, f"check-{checks[0].id}")


def _short_title(data: ReportData, check: CheckResult) -> str:
    return title_of(data, check.id).removeprefix("Attack: ")
