"""A report where it is read: beside the one before, and in MLflow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cfk_plugin.errors import InputError
from cfk_plugin.records.artifacts import Artifacts
from cfk_plugin.records.run import write
from cfk_plugin.records.search import run_named
from cfk_plugin.records.stores import client_of, tracking_errors
from cfk_plugin.report.data import Amount, Change, ReportData
from cfk_plugin.report.disclosure import shown, unit_of
from cfk_plugin.report.render import STATUS_TEXTS, amounts_of

_ABSENT = "not in the report"
_POPULATION = ("fingerprint", "people", "rows", "subject_key")  # its shares are among the metrics
_SCHEMA = ("role", "kind", "weight", "bounds_source")
_POLICY = ("preset", "methods", "guarantees", "generators", "techniques", "seed")
_MOST = 80  # characters of a setting that are shown


class _Fact(NamedTuple):
    """What a report says of something: it changed if `key` (if any, else `text`) differs."""

    text: str
    key: str = ""
    amount: Amount | None = None
    of_both: bool = False  # not compared where the other report lacks it


def compare(before: ReportData, after: ReportData) -> tuple[Change, ...]:
    """Say what changed from one report to a later one of the same edition, in at most three
    digits.
    """
    one = all(len(data.policy["policies"]) == 1 for data in (before, after))
    old, new = (dict(_facts(data, one_policy=one)) for data in (before, after))
    pairs = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    return tuple(change for name, pair in pairs.items() for change in _changed(name, *pair))


def _changed(name: str, old: _Fact | None, new: _Fact | None) -> Iterator[Change]:
    if old is None or new is None:
        known = old or new
        alike = known is None or known.of_both
    else:
        alike = (old.key or old.text) == (new.key or new.text)
    if not alike:
        texts = [_ABSENT if fact is None else fact.text for fact in (old, new)]
        texts = [text if len(text) <= _MOST else f"{text[: _MOST - 1]}…" for text in texts]
        overlap = _overlap(old and old.amount, new and new.amount)
        yield {"what": f"{name}{overlap}", "before": texts[0], "after": texts[1]}


def _overlap(before: Amount | None, after: Amount | None) -> str:
    """Say whether two intervals overlap, if there are two; if they do not, the change is hardly
    chance.
    """
    ends = [
        end for amount in (before, after) if amount is not None for end in (amount.low, amount.high)
    ]
    if len(ends) < 4 or (known := [end for end in ends if end is not None]) != ends:
        return ""
    return (
        " (intervals do not overlap)"
        if known[1] < known[2] or known[3] < known[0]
        else " (intervals overlap)"
    )


def _facts(data: ReportData, *, one_policy: bool) -> Iterator[tuple[str, _Fact]]:
    """Yield everything that is compared, by name."""
    yield "verdict", _Fact(data.verdict)
    for check in data.checks:
        measured = f" ({amounts_of(check)[0]})" if check.measured.measured else ""
        yield f"check {check.id}", _Fact(f"{STATUS_TEXTS[check.status]}{measured}", check.status)
        yield f"threshold of {check.id}", _Fact(amounts_of(check)[1], of_both=True)
    amounts = [(f"metric {each.id}", each.id, each.amount) for each in data.metrics]
    amounts += [(f"attack {each.id}", each.id, each.main) for each in data.attacks if each.judged]
    for name, of, amount in amounts:
        yield name, _Fact(shown(amount, unit_of(of)), amount=amount)
    settings: Mapping[str, Any] = data.policy
    policies, population = data.policy["policies"], dict(data.population)
    plain = {f"policy: {name}": settings.get(name) for name in _POLICY}
    if one_policy:
        plain |= {
            f"policy: {name}": value for name, value in sorted(policies[0]["settings"].items())
        }
    else:
        plain["policies"] = sorted(each["sha256"] for each in policies)
    plain |= {f"population: {name}": population[name] for name in _POPULATION}
    plain |= {f"answer: {name}": answer for name, answer in sorted(data.system.items())}
    plain |= dict(_software(data.environment))
    yield from ((name, _Fact(_plain_text(value))) for name, value in plain.items())
    for column in data.attributes:
        parts: Mapping[str, Any] = column
        yield f"attribute {column['name']}", _Fact(column["role"], "declared")
        for part in _SCHEMA:
            yield (
                f"attribute {column['name']}: {part}",
                _Fact(_plain_text(parts[part]), of_both=True),
            )


def _software(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield plugins and packages one by one, and everything else, such as the model, as a whole."""
    for part, found in sorted(environment.items()):
        if isinstance(found, Sequence) and not isinstance(found, str):  # such as "dice 0.1"
            found = {  # noqa: PLW2901
                name: version for name, _, version in (str(each).partition(" ") for each in found)
            }
        if isinstance(found, Mapping):
            yield from (
                (f"{part.removesuffix('s')}: {name}", version)
                for name, version in sorted(found.items())
            )
        else:
            yield part, found


def _plain_text(value: Any) -> str:
    if isinstance(value, Amount):
        return shown(value, "count")
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_plain_text, value)) or "none"
    return str(value)


SOURCES = "cfk.report"
"""Tag of a run that holds a report of several runs: their ids."""
VERDICT = "cfk.report.verdict"
"""Tag of a run that holds a report."""

_NAMES: Mapping[str, str] = {"internal": "cfk/report", "external": "cfk/report-external"}
_LONGEST_TAG = 8_000  # characters that MLflow stores


def log_report(
    data: ReportData,
    texts: Mapping[str, str],
    run_ids: Sequence[str],
    *,
    tracking_uri: str | None = None,
) -> str:
    """Log the texts of a report, by suffix, to its run; if it has several, to a new one beside the
    last.
    """
    if not run_ids:
        raise InputError("the report names no run that it could be logged to; make it from runs")
    files = {f"{_NAMES[data.report['edition']]}.{suffix}": text for suffix, text in texts.items()}
    with tracking_errors("MLflow did not take the report"):
        client, run_id = client_of(tracking_uri, makes=False), run_ids[-1]
        own, status = len(run_ids) > 1, "FAILED"
        if own:
            place, marks = client.get_run(run_id).info.experiment_id, {SOURCES: _listed(run_ids)}
            run_id = str(
                client.create_run(place, tags=marks, run_name="privacy report").info.run_id
            )
        try:  # the tag last, as it marks the report as complete
            write(client, run_id, texts=files, tags={VERDICT: data.verdict})
            status = "FINISHED"
        finally:
            if own:
                client.set_terminated(run_id, status=status)
    return run_id


def logged_report(run_id: str, *, tracking_uri: str | None = None) -> ReportData:
    """Return the internal edition that a run holds."""
    folder, name = _NAMES["internal"].split("/")
    client = client_of(tracking_uri, makes=False)
    run = run_named(client, run_id)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as copies:
        artifacts = Artifacts.of(run, client.tracking_uri, Path(copies))
        if f"{name}.json" not in artifacts.names(folder):
            raise InputError(
                f"run {run_id} holds no report; log one with cfk report --run {run_id} --log"
            )
        content = artifacts.content(f"{folder}/{name}.json")
    try:
        return ReportData.from_json(content.decode("utf-8", "replace"))
    except InputError as error:
        raise InputError(f"run {run_id}: {error}") from None


def _listed(run_ids: Sequence[str]) -> str:
    """Return as many ids as fit in a tag; the report itself has all."""
    if len(text := ",".join(run_ids)) <= _LONGEST_TAG:
        return text
    kept = text[: _LONGEST_TAG - 20].rpartition(",")[0]
    return f"{kept} and {len(run_ids) - kept.count(',') - 1} more"
