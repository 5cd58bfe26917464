"""The report in short, for the description of a registered model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cfk_plugin.records.run import LONGEST_DESCRIPTION
from cfk_plugin.report.data import Amount, Check, Group, ReportData, Status
from cfk_plugin.report.rendering.escaping import markdown
from cfk_plugin.report.rendering.text import STATUS_TEXTS, kind_of, shown

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
_MOST_GROUPS = 8
_MOST_CHECKS = 10
_LONG = 200  # characters of one text
_SHORTENED = "\n\nShortened: the whole report says more.\n"


def render_model_card(data: ReportData, *, where: str = "") -> str:
    """Write the report in short: verdict, what is not covered, key figures, checks, group differences, limits.

    Parameters
    ----------
    data : ReportData
    where : str
        Where the whole report is, such as ``artifact cfk/report.html of MLflow run …``. Without it the card names the
        report's id.

    Returns
    -------
    str
        Markdown, no longer than a registry stores; where that is too short, parts at its end are left out, and the
        card says so.
    """
    parts = [
        _head(data, where or f"id {data.report['id']}"),
        _section("Not covered", (f"* {_text(each)}" for each in data.report["not_covered"])),
        _section("Key figures", _figures(data)),
        _section("Checks that did not pass", _checks(data)),
        _section("Group differences", _groups(data.groups)),
        _section("Limits", (f"* {_text(each)}" for each in data.limits)),
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


def _section(title: str, lines: Iterable[str]) -> str:
    found = "\n".join(lines)
    return f"## {title}\n\n{found}" if found else ""


def _head(data: ReportData, where: str) -> str:
    head = data.report
    said = "\n".join(f"* **{STATUS_TEXTS[status]}**: {_names(found, data)}" for status, found in _by_status(data))
    edition, as_of = str(head["edition"]).capitalize(), _text(str(head["as_of"]))
    return (
        f"# Privacy report: {data.verdict}\n\n{_text(str(head['title']))}. {edition} edition, as of {as_of}. "
        f"Whole report: {_text(where)}.\n\n{said}"
    )


def _names(checks: Sequence[Check], data: ReportData) -> str:
    names = ", ".join(_name(check.id, data) for check in checks[:_MOST_CHECKS])
    return f"{names} and {len(checks) - _MOST_CHECKS} more" if len(checks) > _MOST_CHECKS else names


def _by_status(data: ReportData) -> Iterator[tuple[Status, list[Check]]]:
    """Yield the checks of every status that there is, the worst first."""
    statuses: tuple[Status, ...] = ("fail", "review", "not_measured", "pass")
    for status in statuses:
        if found := [check for check in data.checks if check.status == status]:
            yield status, found


def _checks(data: ReportData) -> Iterator[str]:
    open_ = [check for status, found in _by_status(data) if status != "pass" for check in found]
    yield from (_check(check, data) for check in open_[:_MOST_CHECKS])
    if len(open_) > _MOST_CHECKS:
        yield f"* and {len(open_) - _MOST_CHECKS} more"


def _check(check: Check, data: ReportData) -> str:
    figures = ""
    if check.measured.measured:
        asked = f", asked {shown(check.threshold, kind_of(check.id))}" if check.threshold.measured else ""
        figures = f" {shown(check.measured, kind_of(check.id))}{asked}."
    return f"* **{STATUS_TEXTS[check.status]}** {_name(check.id, data)}:{figures} {_text(check.text)}"


def _figures(data: ReportData) -> Iterator[str]:
    amounts = {name: data.metric(name) for name in _KEY}
    if not any(amount.measured for amount in amounts.values()):
        return
    yield "| figure | value |\n|---|---|"
    for name, amount in amounts.items():
        if amount.measured:
            yield f"| {_name(name, data)} | {markdown(shown(amount, kind_of(name)))} |"


def _groups(groups: Iterable[Group]) -> Iterator[str]:
    """Show the largest gaps; the whole report has all."""
    measured = [group for group in groups if group.gap.measured]
    if not measured:
        return
    yield "| group | figure | in it | others | gap |\n|---|---|---|---|---|"
    for group in sorted(measured, key=lambda group: -_size(group.gap))[:_MOST_GROUPS]:
        amounts = " | ".join(markdown(shown(amount)) for amount in (group.mean, group.rest, group.gap))
        yield f"| {_text(group.attribute)}: {_text(group.group)} | {_text(group.metric)} | {amounts} |"


def _size(amount: Amount) -> float:
    return abs(amount.value) if amount.value is not None else 0.0


def _name(name: str, data: ReportData) -> str:
    found = data.definitions.get(name)
    return _text(found.name if found is not None else name)


def _text(text: str) -> str:
    return markdown(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…")
