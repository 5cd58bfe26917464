"""What changed between two reports, and a page that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cfk_plugin.errors import InputError
from cfk_plugin.report.data import Amount, Check, ReportData
from cfk_plugin.report.rendering.escaping import markdown
from cfk_plugin.report.rendering.text import STATUS_TEXTS, Kind, kind_of, shown

Change = dict[str, str]

_ABSENT = "not in the report"
_SCHEMA = ("role", "kind", "weight", "bounds_source")
_POLICY = ("preset", "methods", "guarantees", "generators", "techniques", "seed")
_MOST = 80  # characters of a setting that are shown


def compare(before: ReportData, after: ReportData) -> tuple[Change, ...]:
    """Say what changed from one report to a later one.

    Parameters
    ----------
    before, after : ReportData
        Of the same edition.

    Returns
    -------
    tuple of dict
        ``what``, ``before``, ``after`` of every change, as text: verdict, checks whose status or threshold changed,
        metrics and attacks (and whether their intervals overlap), policy, population, schema, model and other answers
        of people, plugins and packages. Empty if nothing of that changed. A change that three digits do not show is
        none.

    Raises
    ------
    InputError
        If one is for the house and the other to be given away: their difference would tell what the second hides.
    """
    if before.report["edition"] != after.report["edition"]:
        raise InputError(
            f"the {before.report['edition']} and the {after.report['edition']} edition cannot be compared: the "
            "difference would tell what the external one hides; make both reports in one edition"
        )
    found = [
        *_told("verdict", before.verdict, after.verdict),
        *_checks(before, after),
        *_amounts("metric", _metrics(before), _metrics(after)),
        *_amounts("attack", _attacks(before), _attacks(after)),
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
        f"* Before: {_name(before)}\n* After: {_name(after)}\n* Edition: {after.report['edition']}\n"
    )
    if not changes:
        return f"{head}\nNothing that a report compares changed.\n"
    lines = [f"| {markdown(c['what'])} | {markdown(c['before'])} | {markdown(c['after'])} |" for c in changes]
    return f"{head}\n" + "\n".join(["| what | before | after |", "| --- | --- | --- |", *lines]) + "\n"


def _name(data: ReportData) -> str:
    head = data.report
    return f"{markdown(str(head['title']))}, {markdown(str(head['as_of']))}, verdict **{data.verdict}**"


def _checks(before: ReportData, after: ReportData) -> Iterator[Change]:
    old, new = ({check.id: check for check in data.checks} for data in (before, after))
    for name in {**old, **new}:
        kind, there, now = kind_of(name), old.get(name), new.get(name)
        if there is None or now is None or there.status != now.status:
            yield from _told(f"check {name}", _status(there, kind), _status(now, kind))
        if there is not None and now is not None:
            yield from _told(f"threshold of {name}", shown(there.threshold, kind), shown(now.threshold, kind))


def _status(check: Check | None, kind: Kind) -> str:
    if check is None:
        return _ABSENT
    status = STATUS_TEXTS[check.status]
    return f"{status} ({shown(check.measured, kind)})" if check.measured.measured else status


def _metrics(data: ReportData) -> dict[str, Amount]:
    return {metric.id: metric.amount for metric in data.metrics}


def _attacks(data: ReportData) -> dict[str, Amount]:
    return {attack.id: attack.main for attack in data.attacks if attack.judged}


def _amounts(part: str, before: Mapping[str, Amount], after: Mapping[str, Amount]) -> Iterator[Change]:
    for name in {**before, **after}:
        kind, old, new = kind_of(name), before.get(name), after.get(name)
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
            parts = [_ABSENT if each is None else _text(each.get("role")) for each in (old.get(name), new.get(name))]
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
    old, new = _text(before), _text(after)
    if old != new:
        yield {"what": what, "before": _short(old), "after": _short(new)}


def _text(value: Any) -> str:
    if isinstance(value, Amount):
        return shown(value, "count")
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(each) for each in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) or "none"
    return str(value)


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
