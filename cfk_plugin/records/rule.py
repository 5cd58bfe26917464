"""The rule of the ledger: what may leave for a record, after what left for it before.

Somebody who compares releases looks for the person who fits all of them. So the ledger knows, by
keyed handles, who shared each region when it was released, and counts those of them who are still
inside of it today. Only these could be meant by both releases.

A lookup guarantee is about the people inside of regions: a further region leaves as long as k
people fit all that ever left. The other guarantees are about everybody who gets the same answer,
against an adversary who reruns this rule: a record keeps its region, wherever a later partition
puts the members of its group, and gets none once fewer than k of these members are left. (Xiao and
Tao, m-invariance, SIGMOD 2007, keep the group of a record alive in every publication in the same
way, and fill gaps with made-up people. Here nothing is made up: the record is withheld.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from cfk_plugin.data.promises import PROMISES
from cfk_plugin.data.region import Interval, Part, Region, natural, part_from_dict
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.keys import Key

Outcome = Literal["new", "again", "earlier", "refused"]
Reason = Literal["intersection", "too_few_remain"]
Handles = frozenset[str]
"""Handles of people, as `Key.person` makes them."""


@dataclass(frozen=True, slots=True)
class RegionPeople:
    """The people behind a region: to whom a partition gives it, and everybody inside of it."""

    members: Handles  # none under a lookup guarantee
    inside: Handles

    def among(self, today: Handles) -> RegionPeople:
        """Return those who are inside of the region today as well."""
        return RegionPeople(self.members & today, self.inside & today)


class Today(Protocol):
    """Answers the ledger's questions about today's population; each may come several times."""

    def inside(self, region: Region) -> Handles:
        """Return the people inside of a region."""
        ...

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        """Say whether a region on record may leave for a candidate, for the people who are left.

        `index` is the position of the candidate among all that are settled together. Unless the
        guarantee is "lookup", the answer must not depend on anything that differs between the
        records that share the region.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One region that waits to leave.

    Verification has accepted it, unless it is on record for this record: then `Today` is asked.
    """

    record: str
    region: Region
    policy: str
    population: str
    guarantee: str
    k: int
    members: Handles = frozenset()  # to whom the partition gives the region


@dataclass(frozen=True, slots=True)
class Decision:
    """What the ledger decided for a candidate."""

    outcome: Outcome
    region: Region | None  # what may be released; None when refused
    # for "again" and "earlier": who shared the region when it was released first and at every
    # release since, and is inside of it today
    remaining: RegionPeople | None = None
    # People who fit everything on record: with a lookup guarantee those inside of all regions;
    # with others the members of the one region, None if there are several.
    people: int | None = None
    reason: Reason | None = None  # when refused


@dataclass(slots=True)
class RecordedGroup:
    """The people who share a region on record; `people` shrinks when some are gone at a release.

    What is decided for one of its records must not depend on what was asked for others of them, so
    k and people are those of all.
    """

    group_id: str
    digest: str  # keyed hash of the region
    people: RegionPeople
    k: int  # the largest that the region left under


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRegion:
    """A region on record for a record, or about to be."""

    record: str
    region: Region
    policy: str
    population: str
    guarantee: str
    k: int
    text: str  # the region, as it is stored
    digest: str  # keyed hash of the region
    group: RecordedGroup  # shared by all records that got the region together

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.record, self.digest, self.policy, self.population)


def settle(
    index: int, wanted: ReleasedRegion, history: list[ReleasedRegion], today: Today
) -> tuple[Decision, ReleasedRegion | None]:
    """Apply the rule; return the decision for the candidate, and what has to be put on record.

    The history of the record gets what is released at its end, and the group of that loses who is
    not inside today.
    """
    decide = _by_group if _keeps_regions(wanted.guarantee) else _by_people_inside
    decision, given = decide(index, wanted, history, today)
    if given is None:
        return decision, None
    given.group.people = given.group.people.among(today.inside(given.region))
    given.group.k = max(given.group.k, given.k)
    given = _record(given, history)
    left = people_left(wanted.guarantee, history, today.inside(given.region))
    return replace(decision, people=left), given


def people_left(guarantee: str, history: Sequence[ReleasedRegion], today: Handles) -> int | None:
    """Return how many people fit all that is on record; None where that is not known.

    `today` has those who are inside of the region that was released last.
    """
    if not _keeps_regions(guarantee):
        return len(_inside_all(history) & today)
    regions = {release.digest for release in history}
    return len(history[-1].group.people.members) if len(regions) == 1 else None


def _by_people_inside(
    index: int, wanted: ReleasedRegion, history: Sequence[ReleasedRegion], today: Today
) -> tuple[Decision, ReleasedRegion | None]:
    """Let a region leave while enough people fit it and everything that left."""
    k = max(release.k for release in (*history, wanted))

    def has_enough(region: Region) -> bool:
        inside = today.inside(region)
        return len(_inside_all(history) & inside if history else inside) >= k

    latest_first = _distinct(reversed(history))
    same = [release for release in latest_first if release.digest == wanted.digest]
    if not same and has_enough(wanted.region):
        return Decision("new", wanted.region), wanted
    others = [release for release in latest_first if release.digest != wanted.digest]
    choices = [release for release in (*same, *others) if has_enough(release.region)]
    if not choices:
        return _refused("too_few_remain" if history else "intersection"), None
    decision, given = _first_accepted(index, wanted, choices, today)
    if given is not None and decision.outcome == "again":
        given = replace(wanted, group=given.group)  # on record under today's policy as well
    return decision, given


def _by_group(
    index: int, wanted: ReleasedRegion, history: Sequence[ReleasedRegion], today: Today
) -> tuple[Decision, ReleasedRegion | None]:
    """Let a record keep its region, whatever the candidate's: a later partition may split its
    group.
    """
    if not history:
        if len(wanted.group.people.members) >= wanted.k:
            return Decision("new", wanted.region), wanted
        return _refused("intersection"), None
    regions = _distinct(
        release for release in reversed(history) if _keeps_regions(release.guarantee)
    )
    if not regions:
        return _refused("intersection"), None
    choices = []
    for release in regions:
        remaining = release.group.people.among(today.inside(release.region))
        k = max(release.group.k, wanted.k)
        if min(len(remaining.members), len(remaining.inside)) >= k:
            choices.append(release)
    if not choices:
        return _refused("too_few_remain"), None
    return _first_accepted(index, wanted, choices, today)


def _first_accepted(
    index: int, wanted: ReleasedRegion, choices: Sequence[ReleasedRegion], today: Today
) -> tuple[Decision, ReleasedRegion | None]:
    """Give the first region on record that today's policy allows for the people who are left."""
    for release in choices:
        remaining = release.group.people.among(today.inside(release.region))
        if today.accepts(index, release.region, remaining):
            outcome: Outcome = "again" if release.digest == wanted.digest else "earlier"
            # It now leaves under today's policy too, so today's k binds whatever follows.
            given = replace(release, k=max(release.k, wanted.k))
            return Decision(outcome, release.region, remaining), given
    return _refused("intersection"), None


def _keeps_regions(guarantee: str) -> bool:
    """Return True if a record keeps its region under a guarantee.

    It does so as well under one that only another version of the package knows: this is stricter.
    """
    promise = PROMISES.get(guarantee)
    return promise is None or promise.keeps_released_regions


def _refused(reason: Reason) -> Decision:
    return Decision("refused", None, reason=reason)


def _inside_all(history: Sequence[ReleasedRegion]) -> Handles:
    """Return who was inside of everything on record, each time it was released."""
    return reduce(Handles.intersection, (release.group.people.inside for release in history))


def _distinct(releases: Iterable[ReleasedRegion]) -> list[ReleasedRegion]:
    """Return the first release of each region."""
    found: dict[str, ReleasedRegion] = {}
    for release in releases:
        found.setdefault(release.digest, release)
    return list(found.values())


def _record(given: ReleasedRegion, history: list[ReleasedRegion]) -> ReleasedRegion:
    """Move a release to the end, replacing the row that it repeats."""
    for row in history:
        if row.key == given.key:
            given = replace(given, k=max(row.k, given.k))
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
