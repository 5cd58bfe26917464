"""A report in short: CSV, JUnit XML, a model card, a notebook's cell, and what changed since an earlier one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any
from xml.etree import ElementTree as ET

from cfk_plugin.errors import InputError
from cfk_plugin.records.run import LONGEST_DESCRIPTION
from cfk_plugin.report.amounts import Amount, shown, unit_of
from cfk_plugin.report.data import Change, CheckResult, Group, ReportData, Status
from cfk_plugin.report.document import STATUS_TEXTS, amounts_of, csv_cell, markdown, one_line

COLUMNS = ("id", "status", "value", "low", "high", "band", "threshold", "source", "section", "text")
"""Columns of the CSV."""


def render_csv(data: ReportData) -> str:
    """Write one line per check under a line of names, as RFC 4180 has it; evidence is not in it.

    Numbers have all their digits, what was not measured is empty, and a text that a spreadsheet would take for a
    formula begins with an apostrophe.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\r\n")
    lines.writerow(COLUMNS)
    for check in data.checks:
        found, asked = check.measured, check.threshold
        # Where only a band may be shown, no number is.
        numbers = (found.value, found.low, found.high) if found.band is None else (None, None, None)
        threshold = asked.value if asked.band is None else csv_cell(asked.band)
        source, said = csv_cell(check.source), csv_cell(check.text)
        band = csv_cell(found.band or "")
        lines.writerow((csv_cell(check.id), check.status, *numbers, band, threshold, source, check.section, said))
    return text.getvalue()


def render_junit(data: ReportData) -> str:
    """Write each check as a test case of JUnit XML; one that fails is a failure.

    JUnit has no word for a check that a person has to look at, or that was not measured: it is `skipped`, with a
    message, which is the only state that is neither green nor red.
    """
    checks = data.checks
    counts = {
        "tests": str(len(checks)),
        "failures": str(sum(check.status == "fail" for check in checks)),
        "errors": "0",
    }
    name, open_ = one_line(str(data.report["title"])), sum(check.status not in ("pass", "fail") for check in checks)
    suites = ET.Element("testsuites", {"name": name, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": name, **counts, "skipped": str(open_)})
    properties = ET.SubElement(suite, "properties")
    for key in ("id", "verdict", "edition", "as_of"):
        value = one_line(str(data.report[key]))
        ET.SubElement(properties, "property", {"name": f"cfk.report.{key}", "value": value})
    for check in checks:
        case = ET.SubElement(suite, "testcase", {"name": one_line(check.id), "classname": "cfk.report"})
        said = f"{STATUS_TEXTS[check.status]}: {one_line(check.text)}"
        measured, asked = amounts_of(check)
        figures = f"measured: {measured}; threshold: {asked}"
        if check.status == "fail":
            found = ET.SubElement(case, "failure", {"type": check.status, "message": said})
            found.text = one_line(f"{figures}; source: {check.source or 'none'}; section {check.section}")
        elif check.status != "pass":
            ET.SubElement(case, "skipped", {"message": one_line(f"{said} ({figures})")})
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def render_cell(data: ReportData) -> str:
    """Return verdict and checks as HTML without style, script or address."""
    rows = [[STATUS_TEXTS[check.status], check.id, *amounts_of(check)] for check in data.checks]
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = "<tr><th>status</th><th>check</th><th>measured</th><th>asked</th></tr>"
    title = escape(str(data.report["title"]))
    return f"<p><strong>{title}: {data.verdict}</strong></p><table>{head}{''.join(lines)}</table>"


_KEY = (
    "k_min",
    "k_desired_min",
    "k_effective_min",
    "k_intersection_min",
    "prosecutor_risk_max",
    "marketer_risk",
    "pureness_mean",
    "pureness_min",
    "ncp_mean",
    "suppressed_rate",
    "native_rate",
    "epsilon",
    "epsilon_spent",
)
"""Metrics that a card shows, in this order."""
_ORDER: tuple[Status, ...] = ("fail", "review", "not_measured", "pass")
_MOST_GROUPS = 8
_MOST_CHECKS = 10
_LONG = 200  # characters of one text
_SHORTENED = "\n\nShortened: the whole report says more.\n"


def render_model_card(data: ReportData, *, where: str = "") -> str:
    """Write the report in short, as Markdown: verdict, what is not covered, figures, checks, groups, limits.

    `where` is where the whole report is. The card is no longer than a registry stores: parts at its end are left out
    where that is too short, and the card says so.
    """
    head, where = data.report, where or f"id {data.report['id']}"
    found = {status: [check for check in data.checks if check.status == status] for status in _ORDER}
    names = {status: [_name(check.id, data) for check in checks] for status, checks in found.items() if checks}
    open_ = [_check(check, data) for status in _ORDER[:-1] for check in found[status]]
    sections = {
        "Not covered": "\n".join(f"* {_text(each)}" for each in head["not_covered"]),
        "Key figures": "\n".join(_key_figures(data)),
        "Checks that did not pass": _first(open_, "\n", "\n* and "),
        "Group differences": "\n".join(_gaps(data.groups)),
        "Limits": "\n".join(f"* {_text(each)}" for each in data.limits),
    }
    edition, as_of = str(head["edition"]).capitalize(), _text(str(head["as_of"]))
    parts = [
        f"# Privacy report: {data.verdict}",
        f"{_text(str(head['title']))}. {edition} edition, as of {as_of}. Whole report: {_text(where)}.",
        "\n".join(f"* **{STATUS_TEXTS[status]}**: {_first(texts, ', ', ' and ')}" for status, texts in names.items()),
        *(f"## {title}\n\n{text}" for title, text in sections.items() if text),
    ]
    return fitted("\n\n".join(part for part in parts if part) + "\n", LONGEST_DESCRIPTION)


def fitted(card: str, room: int) -> str:
    """Return a card in at most `room` characters: sections at its end are left out, and then it says so.

    An empty text where there is not even room for its head.
    """
    if len(card) <= room:
        return card
    sections = card.split("\n\n## ")
    while len(sections) > 1:
        sections.pop()
        shorter = "\n\n## ".join(sections) + _SHORTENED
        if len(shorter) <= room:
            return shorter
    return ""


def _first(texts: Sequence[str], between: str, last: str) -> str:
    """Join the first of some texts, and say how many more there are."""
    more = f"{last}{len(texts) - _MOST_CHECKS} more" if len(texts) > _MOST_CHECKS else ""
    return between.join(texts[:_MOST_CHECKS]) + more


def _check(check: CheckResult, data: ReportData) -> str:
    measured, asked = amounts_of(check)
    asked = f", asked {asked}" if check.threshold.measured else ""
    figures = f" {measured}{asked}." if check.measured.measured else ""
    return f"* **{STATUS_TEXTS[check.status]}** {_name(check.id, data)}:{figures} {_text(check.text)}"


def _key_figures(data: ReportData) -> Iterator[str]:
    amounts = [(name, amount) for name in _KEY if (amount := data.metric(name)).measured]
    if amounts:
        yield "| figure | value |\n|---|---|"
        yield from (f"| {_name(name, data)} | {markdown(shown(amount, unit_of(name)))} |" for name, amount in amounts)


def _gaps(groups: Iterable[Group]) -> Iterator[str]:
    """Show the largest gaps; the whole report has all."""
    measured = [group for group in groups if group.gap.measured]
    if not measured:
        return
    yield "| group | figure | in it | others | gap |\n|---|---|---|---|---|"
    for group in sorted(measured, key=lambda group: -abs(group.gap.value or 0.0))[:_MOST_GROUPS]:
        amounts = " | ".join(markdown(shown(amount)) for amount in (group.mean, group.rest, group.gap))
        yield f"| {_text(group.attribute)}: {_text(group.group)} | {_text(group.metric)} | {amounts} |"


def _name(name: str, data: ReportData) -> str:
    found = data.definitions.get(name)
    return _text(found.name if found is not None else name)


def _text(text: str) -> str:
    return markdown(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…")


_ABSENT = "not in the report"
_SCHEMA = ("role", "kind", "weight", "bounds_source")
_POLICY = ("preset", "methods", "guarantees", "generators", "techniques", "seed")
_MOST = 80  # characters of a setting that are shown


def compare(before: ReportData, after: ReportData) -> tuple[Change, ...]:
    """Say what changed from one report to a later one of the same edition: ``what``, ``before``, ``after``, as text.

    That is the verdict, checks whose status or threshold changed, metrics and attacks (and whether their intervals
    overlap), policy, population, schema, answers of people, plugins and packages. A change that three digits do not
    show is none.
    """
    if before.report["edition"] != after.report["edition"]:
        raise InputError(
            f"the {before.report['edition']} and the {after.report['edition']} edition cannot be compared: the "
            "difference would tell what the external one hides; make both reports in one edition"
        )
    found = [
        *_told("verdict", before.verdict, after.verdict),
        *_checks(before, after),
        *_amounts("metric", *({each.id: each.amount for each in data.metrics} for data in (before, after))),
        *_amounts(
            "attack", *({each.id: each.main for each in data.attacks if each.judged} for data in (before, after))
        ),
        *_policy(before.policy, after.policy),
        *_mapping("population", _plain(before.population), _plain(after.population)),
        *_schema(before, after),
        *_mapping("answer", before.system, after.system),
        *_environment(before.environment, after.environment),
    ]
    return tuple(found)


def render_comparison(before: ReportData, after: ReportData) -> str:
    """Write what changed between two reports as Markdown; errors as for `compare`."""
    changes = compare(before, after)
    head = (
        "# What changed between two reports\n\n"
        f"* Before: {_title_of(before)}\n* After: {_title_of(after)}\n* Edition: {after.report['edition']}\n"
    )
    if not changes:
        return f"{head}\nNothing that a report compares changed.\n"
    lines = [f"| {markdown(c['what'])} | {markdown(c['before'])} | {markdown(c['after'])} |" for c in changes]
    return f"{head}\n" + "\n".join(["| what | before | after |", "| --- | --- | --- |", *lines]) + "\n"


def _title_of(data: ReportData) -> str:
    head = data.report
    return f"{markdown(str(head['title']))}, {markdown(str(head['as_of']))}, verdict **{data.verdict}**"


def _checks(before: ReportData, after: ReportData) -> Iterator[Change]:
    old, new = ({check.id: check for check in data.checks} for data in (before, after))
    for name in {**old, **new}:
        kind, there, now = unit_of(name), old.get(name), new.get(name)
        if there is None or now is None or there.status != now.status:
            yield from _told(f"check {name}", _status(there), _status(now))
        if there is not None and now is not None:
            yield from _told(f"threshold of {name}", shown(there.threshold, kind), shown(now.threshold, kind))


def _status(check: CheckResult | None) -> str:
    if check is None:
        return _ABSENT
    status = STATUS_TEXTS[check.status]
    return f"{status} ({amounts_of(check)[0]})" if check.measured.measured else status


def _amounts(part: str, before: Mapping[str, Amount], after: Mapping[str, Amount]) -> Iterator[Change]:
    for name in {**before, **after}:
        kind, old, new = unit_of(name), before.get(name), after.get(name)
        texts = [_ABSENT if amount is None else shown(amount, kind) for amount in (old, new)]
        if texts[0] != texts[1]:
            overlap = "" if old is None or new is None else _overlap(old, new)
            yield {"what": f"{part} {name}{overlap}", "before": texts[0], "after": texts[1]}


def _overlap(before: Amount, after: Amount) -> str:
    """Say whether two intervals overlap, where there are two; that they do not tells a change from chance."""
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return ""
    apart = before.high < after.low or after.high < before.low
    return " (intervals do not overlap)" if apart else " (intervals overlap)"


def _policy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in _POLICY:
        yield from _told(f"policy: {name}", before.get(name), after.get(name))
    old, new = (list(policy.get("policies") or ()) for policy in (before, after))
    if len(old) == len(new) == 1:
        yield from _mapping("policy", old[0].get("settings") or {}, new[0].get("settings") or {})
    else:
        yield from _told("policies", *(sorted(str(each.get("sha256")) for each in policies) for policies in (old, new)))


def _schema(before: ReportData, after: ReportData) -> Iterator[Change]:
    old, new = ({str(each["name"]): each for each in data.attributes} for data in (before, after))
    for name in {**old, **new}:
        if name not in old or name not in new:
            parts = [
                _ABSENT if each is None else _plain_text(each.get("role")) for each in (old.get(name), new.get(name))
            ]
            yield from _told(f"attribute {name}", *parts)
            continue
        for part in _SCHEMA:
            yield from _told(f"attribute {name}: {part}", old[name].get(part), new[name].get(part))


def _mapping(part: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted({**before, **after}):
        yield from _told(f"{part}: {name}", before.get(name, _ABSENT), after.get(name, _ABSENT))


def _plain(population: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a population is identified by; its shares are among the metrics."""
    return {name: population.get(name) for name in ("fingerprint", "people", "rows", "subject_key")}


def _environment(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Compare plugins and packages one by one, and everything else as a whole, such as the model."""
    for part in sorted({**before, **after}):
        old, new = (_versions(each.get(part)) for each in (before, after))
        if isinstance(old, Mapping) or isinstance(new, Mapping):
            yield from _mapping(part.removesuffix("s"), old or {}, new or {})
        else:
            yield from _told(part, old, new)


def _versions(found: Any) -> Any:
    """Return ``["dice 0.1"]`` as ``{"dice": "0.1"}``."""
    if isinstance(found, Sequence) and not isinstance(found, str):
        return {name: version for name, _, version in (str(each).partition(" ") for each in found)}
    return found


def _told(what: str, before: Any, after: Any) -> Iterator[Change]:
    old, new = _plain_text(before), _plain_text(after)
    if old != new:
        old, new = (text if len(text) <= _MOST else f"{text[: _MOST - 1]}…" for text in (old, new))
        yield {"what": what, "before": old, "after": new}


def _plain_text(value: Any) -> str:
    if isinstance(value, Amount):
        return shown(value, "count")
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain_text(each) for each in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain_text(each)}" for name, each in value.items()) or "none"
    return str(value)
