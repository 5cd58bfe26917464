"""The rule of the ledger: what may leave for a record, after what left for it before.

A nominal guarantee is about the people inside of regions: a further region leaves as long as all
that ever left have k people in common. The other guarantees are about everybody who gets the same
answer, against an adversary who reruns this rule: a record keeps its region, wherever a later
partition puts the members of its group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.region import Interval, Part, Region, natural, part_from_dict
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.keys import Key

Outcome = Literal["new", "again", "earlier", "refused"]
NOMINAL = "nominal"
"""The guarantee about people inside of regions; all others are about groups of a fixed
partition.
"""
Count = Callable[[Sequence[Region]], int]
Acceptable = Callable[[int, Region], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One region that verification has accepted and that waits to leave."""

    record: str
    region: Region
    policy: str
    population: str
    guarantee: str
    k: int
    effective: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    region: Region | None  # what may be released; None when refused
    # for "again" and "earlier": people mapped to that region, as recorded
    effective: int | None = None
    # People left after everything on record: with a nominal guarantee those inside of all regions;
    # with others those mapped to the one region, None if there are several.
    people: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRegion(Candidate):
    text: str  # the region, as it is stored
    digest: str  # keyed hash of the region

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.record, self.digest, self.policy, self.population)


def settle(
    index: int,
    wanted: ReleasedRegion,
    history: list[ReleasedRegion],
    count: Count,
    acceptable: Acceptable,
) -> tuple[Decision, ReleasedRegion | None]:
    """Apply the rule; return the decision for the candidate, and what has to be put on record."""
    if wanted.guarantee == NOMINAL:
        outcome, given = _by_people_inside(index, wanted, history, count, acceptable)
    else:
        outcome, given = _by_group(index, wanted, history, acceptable)
    if given is None:
        return Decision(outcome, None), None
    given = _record(given, history)
    recorded = effective(given, history) if outcome != "new" else None
    return (
        Decision(outcome, given.region, recorded, people_left(wanted.guarantee, history, count)),
        given,
    )


def effective(release: ReleasedRegion, history: Sequence[ReleasedRegion]) -> int | None:
    """Return the least number of people mapped to a region, over all records of it."""
    known = [
        row.effective
        for row in history
        if row.digest == release.digest and row.guarantee != NOMINAL
    ]
    return min((people for people in known if people is not None), default=None)


def people_left(guarantee: str, history: Sequence[ReleasedRegion], count: Count) -> int | None:
    """Return how many people are left after all that is on record; None where that is not known."""
    released = _distinct(history)
    if guarantee == NOMINAL:
        return count([release.region for release in released])
    return effective(released[0], history) if len(released) == 1 else None


def count_once(count: Count) -> Count:
    known: dict[frozenset[Region], int] = {}

    def counted(regions: Sequence[Region]) -> int:
        together = frozenset(regions)
        if together not in known:
            known[together] = count(regions)
        return known[together]

    return counted


def _by_people_inside(
    index: int,
    wanted: ReleasedRegion,
    history: Sequence[ReleasedRegion],
    count: Count,
    acceptable: Acceptable,
) -> tuple[Outcome, ReleasedRegion | None]:
    """Let a region leave while everything that left has enough people in common."""
    if any(release.digest == wanted.digest for release in history):
        return "again", wanted
    released = [*history, wanted]
    if count([release.region for release in _distinct(released)]) >= max(
        release.k for release in released
    ):
        return "new", wanted
    return _give_earlier(index, wanted, _distinct(history[::-1]), acceptable)


def _by_group(
    index: int, wanted: ReleasedRegion, history: Sequence[ReleasedRegion], acceptable: Acceptable
) -> tuple[Outcome, ReleasedRegion | None]:
    """Let a record keep its region, whatever the candidate's: a later partition may split its
    group.
    """
    if not history:
        return ("new", wanted) if (wanted.effective or 0) >= wanted.k else ("refused", None)
    groups = _distinct([release for release in history[::-1] if release.guarantee != NOMINAL])
    large = [release for release in groups if (effective(release, history) or 0) >= wanted.k]
    return _give_earlier(index, wanted, large, acceptable)


def _give_earlier(
    index: int, wanted: ReleasedRegion, choices: Sequence[ReleasedRegion], acceptable: Acceptable
) -> tuple[Outcome, ReleasedRegion | None]:
    """Return the first region that today's policy allows."""
    given = next((release for release in choices if acceptable(index, release.region)), None)
    if given is None:
        return "refused", None
    # It now leaves under today's policy too, so today's k binds whatever follows.
    return "again" if given.digest == wanted.digest else "earlier", replace(
        given, k=max(given.k, wanted.k)
    )


def _distinct(releases: Sequence[ReleasedRegion]) -> list[ReleasedRegion]:
    found: dict[str, ReleasedRegion] = {}
    for release in releases:
        found.setdefault(release.digest, release)
    return list(found.values())


def _record(given: ReleasedRegion, history: list[ReleasedRegion]) -> ReleasedRegion:
    """Move a release to the end, replacing the row that it repeats."""
    for row in history:
        if row.key == given.key:
            people = min(
                (e for e in (row.effective, given.effective) if e is not None), default=None
            )
            given = replace(given, k=max(row.k, given.k), effective=people)
            history.remove(row)
            break
    history.append(given)
    return given


# Regions as text: one form to store, and one to compare.

_UNREADABLE = "a region in the ledger cannot be read; restore the database from a backup"


def encode(region: Region) -> str:
    """Return a region as JSON: its released form, with types that JSON lacks (dates, decimals)
    marked.
    """
    text = json.dumps(
        {name: _part(part, _to_json) for name, part in region.items()}, ensure_ascii=True
    )
    if decode(text) != region:
        raise LedgerError(
            "a region holds values that the ledger cannot keep; use numbers, dates, texts or"
            " booleans"
        )
    return text


def decode(text: str) -> Region:
    try:
        return Region(
            {name: part_from_dict(_from_json(part)) for name, part in json.loads(text).items()}
        )
    except Exception as error:  # noqa: BLE001 - its text may quote the region
        failure = type(error).__name__
    raise LedgerError(f"{_UNREADABLE} ({failure})")


def identity(region: Region) -> str:
    """Return a text that two regions share if and only if they are equal; in Python, 1, 1.0 and
    True are equal.
    """
    parts = {name: _part(part, _to_compare) for name, part in region.items()}
    for part in parts.values():
        if part["kind"] == "set":
            part["values"].sort(key=json.dumps)
    return json.dumps(parts, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def region_digest(key: Key, region: Region) -> str:
    """Return the keyed hash of a region: the same for equal regions, and useless for guessing
    without the key.
    """
    return key.digest("region", identity(region))


def _part(part: Part, write: Callable[[Any], Any]) -> dict[str, Any]:
    if isinstance(part, Interval):
        out: dict[str, Any] = {"kind": "interval", "low": write(part.low), "high": write(part.high)}
        if part.levels is not None:
            out["levels"] = [str(level) for level in part.levels]
        return {**out, "missing": True} if part.missing else out
    values = [write(value) for value in part]
    return {"kind": "set", "values": sorted(values, key=json.dumps)}


def _to_json(value: Any) -> Any:
    plain = natural(pd.Timestamp(value) if isinstance(value, np.datetime64) else value)
    if plain is None or isinstance(plain, (bool, int)):
        return plain
    if isinstance(plain, str):
        return str(plain)
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    if isinstance(plain, datetime):
        return {"time": pd.Timestamp(plain).isoformat()}
    if isinstance(plain, date):
        return {"date": plain.isoformat()}
    if isinstance(plain, Decimal) and plain.is_finite():
        return {"decimal": str(plain)}
    raise LedgerError(
        f"a region holds values of type {type(plain).__name__}, which the ledger cannot keep; "
        "use numbers, dates, texts or booleans"
    )


def _to_compare(value: Any) -> Any:
    stored = _to_json(value)
    if isinstance(stored, dict) and "time" in stored:
        moment = pd.Timestamp(stored["time"])
        return {"time": (moment if moment.tz is None else moment.tz_convert("UTC")).isoformat()}
    number = (
        Decimal(stored["decimal"]) if isinstance(stored, dict) and "decimal" in stored else stored
    )
    if isinstance(number, (bool, int, float, Decimal)):
        if number == int(number):
            return int(number)
        return float(number) if number == float(number) else {"decimal": str(number.normalize())}  # type: ignore[union-attr]
    return stored


def _from_json(part: dict[str, Any]) -> dict[str, Any]:
    out = dict(part)
    if out["kind"] == "set":
        out["values"] = [_read_value(v) for v in out["values"]]
    else:
        out["low"], out["high"] = _read_value(out["low"]), _read_value(out["high"])
    return out


def _read_value(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return stored
    ((kind, text),) = stored.items()
    readers: dict[str, Callable[[str], Any]] = {
        "time": pd.Timestamp,
        "date": date.fromisoformat,
        "decimal": Decimal,
    }
    return readers[kind](text)


def handles_of(ledger: Any, schema: Schema, values: Sequence[object]) -> tuple[str, ...]:
    """Return the handles that a record may have in a ledger: in order of names and, of older
    entries, of the table.
    """
    own = ledger.handle([values[j] for j in schema.canonical])
    return (
        (own,)
        if list(schema.canonical) == sorted(schema.canonical)
        else (own, ledger.handle(values))
    )
