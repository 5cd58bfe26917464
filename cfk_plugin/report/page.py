"""The report as one HTML file that loads and runs nothing, and as a cell of a notebook."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cfk_plugin.audit.result import short
from cfk_plugin.data.display import card, facts, table
from cfk_plugin.release.results import WITHHOLDING_REASONS
from cfk_plugin.report.amounts import STATUS_TEXTS, Unit, amounts_of, shown, unit_of
from cfk_plugin.report.data import (
    Amount,
    Attack,
    CheckResult,
    Distribution,
    PolicyInForce,
    ReportData,
)
from cfk_plugin.report.first_page import (
    NOT_TEXT,
    FirstPage,
    NextStep,
    days_of,
    first_page,
    on_record,
    open_checks,
    shortened,
)
from cfk_plugin.report.inputs import QUESTIONS
from cfk_plugin.report.statements import outdated, receiver_sentence, title_of

SECTIONS: Mapping[str, str] = {
    "0": "Checks",
    "12": "Answers and remaining risks",
    "1": "Scope and release context",
    "2": "Population and schema",
    "3": "Policy and method",
    "4": "Releases in the period",
    "5": "Privacy risk of a single release",
    "6": "Composition of several releases",
    "7": "Validity",
    "8": "Utility",
    "9": "Attacks",
    "10": "Group differences",
    "11": "Differential privacy",
    "13": "Reproducibility",
    "A": "Certificates",
    "B": "Definitions",
    "C": "Control map",
}
"""Number to title of the sections, in the order of the page."""

Row = Sequence[str | Markup]
"""Cells of a table; the first is the heading of the row."""

_METRICS = {
    "ncp": "NCP",
    "pureness": "Pureness",
    "withheld": "Share withheld",
    "k": "People behind a region",
}
_MOST_CERTIFICATES = 3
_DEFINED = (
    *("k_min", "k_desired_min", "k_effective_min", "k_consistent_min", "prosecutor_risk_max"),
    *("attribute_disclosure_max", "pureness_mean", "ncp_mean", "epsilon"),
)
"""Figures whose names do not say how they are computed; annex B has their formulas."""


def render_html(data: ReportData) -> str:
    """Return the report as one HTML file."""
    content = data.to_json().encode()
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            first=first_page(data),
            page=_Page(data),
            sections=SECTIONS,
            title=shortened(data.report["title"], 120),
            encoded=b64encode(content).decode("ascii"),
            size=f"{max(1, round(len(content) / 1000)):,} kB",
        )
    )
    return NOT_TEXT.sub("", page).lstrip()


class _Page:
    """The rows of the tables, as the template asks for them."""

    def __init__(self, data: ReportData) -> None:
        self.data = data
        names = [metric.id for metric in data.metrics if metric.id in _DEFINED]
        names += [attack.id for attack in data.attacks]
        self.defined = [name for name in dict.fromkeys(names) if name in data.definitions]

    def open_checks(self) -> list[Row]:
        rows: list[Row] = []
        for check in open_checks(self.data):
            measured, threshold = amounts_of(check)
            source = check.source.partition(":")[0]
            if check.threshold.measured and source:
                threshold = f"{threshold} ({source})"
            rows.append((*self._check(check), measured, threshold, self._meaning(check)))
        return rows

    def open_ids(self) -> list[str]:
        return [f"check-{check.id}" for check in open_checks(self.data)]

    def passed_checks(self) -> list[Row]:
        passed = [check for check in self.data.checks if check.status == "pass"]
        return [(*self._check(check), *amounts_of(check)) for check in passed]

    def _check(self, check: CheckResult) -> Row:
        title = _link(title_of(self.data, check.id), f"section-{check.section}")
        return title + f" ({check.id})", _mark(check.status)

    def _meaning(self, check: CheckResult) -> Markup:
        text = _inline(check.text)
        if check.id in self.defined:
            text += " " + _link("Definition", f"definition-{check.id}")
        if check.evidence:
            text += _inline(f" Evidence: {', '.join(check.evidence)}")
        return text

    def answers(self) -> list[Row]:
        rows: list[Row] = []
        for question in QUESTIONS.values():
            answer = self.data.system.get(question.id)
            if answer is None:
                rows.append((question.question, _mark("review", "Open"), question.role))
            else:
                rows.append((question.question, answer, ""))
        return rows

    def population(self) -> list[Row]:
        population = self.data.population
        person = None
        if population["subject_key"] is not None:
            person = "each row is assumed to be one person"
        if population["subject_key"]:
            person = "distinct values of the subject key"
        return [
            ("People", shown(population["people"], "count")),
            ("Rows", shown(population["rows"], "count")),
            ("What counts as a person", on_record(person)),
            ("People who are alone in their class", shown(population["unique"], "share")),
            (
                f"People in a class of fewer than {on_record(population['k'], 'k')}",
                shown(population["below_k"], "share"),
            ),
            ("Keyed fingerprint", on_record(population["fingerprint"])),
        ]

    def attributes(self) -> list[Row]:
        return [
            (
                column["name"],
                column["role"],
                column["kind"],
                shown(column["distinct"], "count"),
                column["bounds_source"].removeprefix("not needed"),
            )
            for column in self.data.attributes
        ]

    def settings(self, policy: PolicyInForce) -> list[Row]:
        rows: list[Row] = []
        for name, value in policy["settings"].items():
            if isinstance(value, bool):
                rows.append((name, _yes_no(value)))
            elif value is not None:
                rows.append((name, str(value)))
        return rows

    def policy_title(self, policy: PolicyInForce) -> str:
        n_asked = shown(policy["asked"], "count")
        plural = "" if n_asked == "1" else "s"
        return f"{n_asked} explanation{plural}, {days_of(policy)}"

    def thresholds(self) -> list[Row]:
        return [
            (line["id"], f"{line['value']:.3g}", line["source"])
            for line in self.data.policy["thresholds"]
        ]

    def counts(self, titles: Mapping[str, str]) -> list[Row]:
        releases: Mapping[str, Any] = self.data.releases
        return [(title, shown(releases[name], "count")) for name, title in titles.items()]

    def reasons(self) -> list[Row]:
        return [
            (WITHHOLDING_REASONS.get(reason, reason), shown(count, "count"))
            for reason, count in self.data.releases["reasons"].items()
        ]

    def latency(self) -> str:
        amounts = self.data.releases["latency"]
        measured = [name for name, amount in amounts.items() if amount.measured]
        return ", ".join(f"{shown(amounts[name], 'seconds')} ({name})" for name in measured)

    def figures(self, names: Iterable[str]) -> list[Row]:
        amounts = {metric.id: metric.amount for metric in self.data.metrics}
        return [
            (self._defined_name(name), shown(amounts[name], unit_of(name)))
            for name in names
            if name in amounts
        ]

    def _defined_name(self, name: str) -> str | Markup:
        title = title_of(self.data, name)
        return _link(title, f"definition-{name}") if name in self.defined else title

    def criteria(self) -> list[Row]:
        return [
            (criterion["criterion"], _mark(criterion["status"]), criterion["text"])
            for criterion in self.data.criteria
        ]

    def attacks(self) -> list[Row]:
        rows: list[Row] = []
        for attack in self.data.attacks:
            if attack.judged:
                cases = f"{attack.main.n:,}" if attack.main.n else "–"
                rates = [shown(rate) for rate in attack.rates]
                rows.append((self._attack(attack), *rates, cases, _attacked(attack)))
        return rows

    def other_attacks(self) -> list[Row]:
        others = [attack for attack in self.data.attacks if not attack.judged]
        return [
            (self._attack(attack), attack.subject or "–", *map(shown, attack.rates))
            for attack in others
        ]

    def _attack(self, attack: Attack) -> Markup:
        """Return the name of an attack or of one attribute; with a star if it did not work."""
        star = "" if attack.worked or not attack.main.measured else " *"
        name = self._defined_name(attack.id)
        if attack.id not in self.data.definitions:
            name = f"– {attack.id.partition('/')[2]}"
        return _inline(name) + star

    def members_found(self, distribution: Distribution) -> list[Row]:
        return [(short(name), *map(shown, of)) for name, of in distribution.series.items()]

    def groups(self) -> list[Row]:
        return [
            (
                f"{group.attribute}: {group.group}",
                _METRICS.get(group.metric, group.metric),
                shown(group.n, "count"),
                *map(shown, (group.mean, group.rest, group.gap)),
            )
            for group in self.data.groups
        ]

    def statement(self) -> list[Row]:
        dp: Any = self.data.dp
        total = "not stated: the model is not covered"
        if dp["guarantee"] == "none":
            total = "not stated: nothing is guaranteed"
        if dp["total"] is not None:
            total = "{:g}, {:g}".format(*dp["total"])
        bound = dp["membership_bound"]
        return [
            ("Guarantee", dp["guarantee"]),
            ("Epsilon, delta of the answers", f"{dp['epsilon']:g}, {dp['delta']:g}"),
            ("Epsilon, delta of everything that is released", total),
            ("Unit of privacy", dp["unit"]),
            ("Neighbouring tables", dp["neighbours"]),
            ("Mechanism and accountant", dp["mechanism"]),
            ("What recipients may know of the model", dp["model_access"]),
            ("Noise was seeded", _yes_no(dp["seeded"])),
            ("Domains read from the rows", ", ".join(dp["inferred"]) or "none"),
            (
                "Largest balanced accuracy of a membership attack",
                "no bound" if bound is None else f"{bound:.3g}",
            ),
        ]

    def made(self) -> list[Row]:
        environment = self.data.environment
        packages = [f"{name} {number}" for name, number in sorted(environment["packages"].items())]
        versions = [on_record(environment["python"]), on_record(", ".join(packages))]
        return [
            ("Command", self.data.report["command"]),
            ("Latest evidence", self.data.report["as_of"] or "none"),
            ("Seed", on_record(", ".join(self.data.policy["seed"]))),
            ("Python, packages", "; ".join(versions)),
            ("Plugins", on_record(", ".join(environment["plugins"]))),
        ]

    def runs(self) -> list[Row]:
        return [
            (
                run["run"],
                run["name"] or "–",
                run["experiment"],
                str(run["started"]),
                f"{run['asked']:,}",
                ", ".join(run["audits"]) or "–",
            )
            for run in self.data.runs
        ]

    def certificates(self) -> list[Row]:
        return [
            (
                line["id"],
                shown(line["k"], "count"),
                shown(line["ncp"]),
                shown(line["pureness"]),
                line["optimality"],
            )
            for line in self.data.certificates[:_MOST_CERTIFICATES]
        ]

    def definitions(self) -> list[Row]:
        return [
            (
                title_of(self.data, name),
                self.data.definitions[name].formula.partition("; the check")[0],
            )
            for name in self.defined
        ]

    def definition_ids(self) -> list[str]:
        return [f"definition-{name}" for name in self.defined]

    def receiver(self) -> str:
        return receiver_sentence(self.data)

    def outdated(self) -> Sequence[str]:
        """Return the entries of the control map that were a year old at the date of the report."""
        as_of = self.data.report["as_of"]
        if as_of is None:
            return ()
        return outdated(self.data.controls, date.fromisoformat(as_of[:10]))


def _yes_no(value: object) -> str:
    if value is None:
        return "not known"
    return "yes" if value else "no"


def _attacked(attack: Attack) -> str:
    """Return what was attacked, and whether that is the release."""
    subject = attack.subject or "the release"
    if not attack.concerns:
        return f"{subject}, which is not released"
    return subject if attack.covers else f"{subject}, under another policy or population"


# --- cells. Text stays text: names of attributes, runs and people must not become markup. ---

_JOINT = re.compile(r"(?<=[_/:@;=|-])(?=\w)|(?<=[.,])(?=[^\W\d])|(?<=[a-z])(?=[A-Z])")
"""Where a long word may be broken; never within a number."""
_LONG_WORD = 12  # characters of the longest word that is not broken


def _inline(text: str | Markup) -> Markup:
    """Escape a text, in which long words may break at their joints."""
    if isinstance(text, Markup):
        return text
    kept = str(text).replace(" %", "\u00a0%")  # a number and its sign stay on one line
    parts = [[word] if len(word) <= _LONG_WORD else _JOINT.split(word) for word in kept.split(" ")]
    return Markup(" ").join(Markup("<wbr>").join(map(escape, each)) for each in parts)


def _link(text: str, anchor: str) -> Markup:
    return Markup('<a href="#{}">{}</a>').format(anchor, _inline(text))


def _mark(status: str, text: str = "") -> Markup:
    """Return a status as a word and a shape."""
    word = text or STATUS_TEXTS[status].capitalize()  # type: ignore[index]
    return Markup('<span class="shape {}">{}</span>').format(status, word)


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.3g}%"


def _bars(distribution: Distribution, unit: Unit, labels: Sequence[str] | None = None) -> list[Row]:
    """Return a row for each label, with a bar beside each number."""
    columns = list(distribution.series.values())
    values = [amount.value or 0.0 for amounts in columns for amount in amounts]
    largest = max(values, default=0.0)
    longest = 1.0 if unit == "share" or largest <= 1 else largest
    rows: list[Row] = []
    for place, label in enumerate(distribution.labels):
        if labels is None or label in labels:
            amounts = [amounts[place] for amounts in columns]
            bars = [_bar(amount, unit, longest, tone % 2) for tone, amount in enumerate(amounts)]
            rows.append((label, *bars))
    return rows


def _bar(amount: Amount, unit: Unit, longest: float, tone: int) -> Markup:
    text = _inline(shown(amount, unit))
    if amount.value is None:
        return text
    bar = Markup('<span class="bar"><i class="tone{}" style="width:{}"></i></span>')
    return bar.format(tone, _percent(amount.value / longest)) + text


def _marks(distribution: Distribution) -> str:
    """Return the limits of a chart in words."""
    marks = distribution.marks.items()
    listed = ", ".join(f"{name}: {shown(Amount(value=value))}" for name, value in marks)
    return f"Asked: {listed}." if listed else ""


def _unbroken_options(command: str) -> Markup:
    """Return a command whose options are not broken at their hyphens."""
    words = [
        Markup("<span>{}</span>").format(word) if word.startswith("-") else escape(word)
        for word in command.split(" ")
    ]
    return Markup(" ").join(words)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cfk_plugin.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "inline": _inline,
        "command": _unbroken_options,
        "percent": _percent,
        "bars": _bars,
        "marks": _marks,
    }
    environment.globals |= {
        "words": {status: text.capitalize() for status, text in STATUS_TEXTS.items()},
        "on_record": on_record,
    }
    return environment


# --- a cell of a notebook ---


def render_cell(data: ReportData, first: FirstPage) -> str:
    """Return verdict, figures, next steps and checks for a notebook, without script or address."""
    figures = {tile.name: tile.figure for tile in first.tiles}
    steps = [Markup("<li>{}{}</li>").format(step.text, _command(step)) for step in first.steps]
    rows = [
        (STATUS_TEXTS[check.status], _name_of(data, check), *amounts_of(check))
        for check in data.checks
    ]
    cell = card(
        f"{data.report['title']}: {first.verdict}",
        f"{first.reason} {first.for_a_pass}".strip(),
        facts(figures),
        Markup("<div>Next</div><ol>{}</ol>").format(Markup("").join(steps)),
        table(("status", "check", "measured", "threshold"), rows),
        note='The whole report: report.save("report.html").',
    )
    return NOT_TEXT.sub("", cell)


def _command(step: NextStep) -> Markup:
    return Markup("<pre>{}</pre>").format(step.command) if step.command else Markup("")


def _name_of(data: ReportData, check: CheckResult) -> Markup:
    """Return a check's name, and its id as the command line and the JSON have it."""
    return Markup("{} <small>{}</small>").format(title_of(data, check.id), check.id)
