"""Processes that release random regions of a few records, and are killed while they do.

Run as a program it prints what happened as JSON: ``python ledger_workload.py URL FOLDER PROCESSES
RELEASES KILLS``. The key of the ledger is taken from the environment; the URL ``none`` releases
everything that meets k on its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin import Interval, Ledger, Region
from cfk_plugin.records.chain import groups, releases
from cfk_plugin.records.keys import find_key
from cfk_plugin.records.rule import Candidate, Decision, RegionPeople, decode, encode, region_digest

RECORDS = 40
WAIT_SECONDS = 60.0
"""The rule is tested, not the patience: on a busy machine eight writers wait longer for a file."""
ZONES = ("north", "east", "south", "west", "centre")
# Some hundred people with an age and a zone; the first are those whose records are released.
_NUMBERS = np.random.default_rng(7)
AGE, ZONE = _NUMBERS.integers(0, 40, 300), _NUMBERS.integers(0, len(ZONES), 300)


def inside(region: Region) -> NDArray[np.bool_]:
    age, zone = region["age"], region["zone"]
    assert isinstance(age, Interval)
    return (age.low <= AGE) & (age.high >= AGE) & np.array([name in zone for name in ZONES])[ZONE]


def common(regions: Sequence[Region]) -> int:
    return int(np.all([inside(region) for region in regions], axis=0).sum())


def propose(record: int, rng: random.Random) -> Region:
    """Return a random region around a record with enough people."""
    age, zone = int(AGE[record]), ZONES[ZONE[record]]
    while True:
        zones = frozenset({zone, *rng.sample(ZONES, rng.randrange(3))})
        low, high = max(0, age - rng.randrange(16)), min(39, age + rng.randrange(16))
        region = Region({"age": Interval(low, high), "zone": zones})
        if common([region]) >= k_of(record):
            return region


def k_of(record: int) -> int:
    return 4 + record % 5


def keeps_region(record: int) -> bool:
    """Say whether a record is released under a guarantee with a partition."""
    return record % 2 == 1


def is_present(number: int) -> NDArray[np.bool_]:
    """Say who is in the table of a process: each has one of three, with others away."""
    return np.arange(len(AGE)) % 20 != number % 3


@dataclass(frozen=True)
class Town:
    """The people of a process; a region is accepted while it has k people."""

    records: Sequence[int]
    number: int  # of the process

    def inside(self, region: Region) -> frozenset[str]:
        there = inside(region) & is_present(self.number)
        return frozenset(f"{person:016x}" for person in np.flatnonzero(there).tolist())

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        return common([region]) >= k_of(self.records[index])


def settle(
    ledger: Ledger | None, records: Sequence[int], regions: Sequence[Region], number: int
) -> list[Decision]:
    if ledger is None:
        return [Decision("new", region) for region in regions]
    town = Town(records, number)
    candidates = [
        Candidate(
            record=ledger.handle([record]),
            region=region,
            policy="p" * 64,
            population="f" * 16,
            guarantee="reciprocal" if keeps_region(record) else "lookup",
            k=k_of(record),
            members=town.inside(region) if keeps_region(record) else frozenset(),
        )
        for record, region in zip(records, regions, strict=True)
    ]
    return ledger.settle(candidates, town)


def work(ledger: Ledger | None, out: Path, number: int) -> None:
    """Release until killed.

    What is in the file was released; it is written after the ledger has answered.
    """
    rng = random.Random(number)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    records: list[int] = []
    while True:
        # else the same again, which chance alone proposes too rarely
        if not records or rng.random() < 0.8:
            records = [rng.randrange(RECORDS) for _ in range(rng.randrange(1, 4))]
            regions = [propose(record, rng) for record in records]
        decisions = settle(ledger, records, regions, number)
        for record, decision in zip(records, decisions, strict=True):
            if decision.region is not None:
                line = {
                    "record": record,
                    "outcome": decision.outcome,
                    "region": encode(decision.region),
                    "process": number,
                }
                os.write(file, json.dumps(line).encode() + b"\n")
                os.fsync(file)


def start(url: str, folder: Path, shared: Ledger | None, number: int) -> int:
    """Fork a process with a file of its own; every other one uses what its parent had opened."""
    if process := os.fork():
        return process
    try:
        fresh = number % 2 and shared is not None
        work(
            Ledger(url, timeout=WAIT_SECONDS) if fresh else shared,
            folder / f"{number}.jsonl",
            number,
        )
    except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
        (folder / f"{number}.failed").write_text(traceback.format_exc())
    finally:
        os._exit(1)


def run(url: str, folder: Path, processes: int, wanted: int, victims: int) -> dict[str, Any]:
    """Keep so many processes at work, kill some of them one after the other, and stop when enough
    was released.
    """
    rng = random.Random(0)
    shared = None if url == "none" else Ledger(url, create=True, timeout=WAIT_SECONDS)
    alive = [start(url, folder, shared, number) for number in range(1, processes + 1)]
    kills, until = 0, time.monotonic() + 500
    while (kills < victims or len(released(folder)) < wanted) and time.monotonic() < until:
        time.sleep(rng.uniform(0.02, 0.25))
        if kills < victims:
            at = rng.randrange(len(alive))
            kill(alive[at])
            kills += 1
            alive[at] = start(url, folder, shared, processes + kills)
    for process in alive:
        kill(process)
    if shared is not None:
        shared.close()
    return {
        "kills": kills,
        "failed": [path.read_text() for path in sorted(folder.glob("*.failed"))],
    }


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def released(folder: Path) -> list[dict[str, Any]]:
    """Return all that was released; a last line without its end was not."""
    files = [path.read_bytes().split(b"\n")[:-1] for path in sorted(folder.glob("*.jsonl"))]
    return [json.loads(line) for lines in files for line in lines]


def violations(lines: Sequence[dict[str, Any]]) -> list[int]:
    """Return the records with a second region where one is kept, or with fewer than k people who
    were inside of all of them, in the table of each process that released one.
    """
    wrong = []
    for record in range(RECORDS):
        releases = {(line["region"], line["process"]) for line in lines if line["record"] == record}
        fitting = np.ones(len(AGE), dtype=bool)
        for text, number in releases:
            fitting &= inside(decode(text)) & is_present(number)
        regions = {text for text, _ in releases}
        allowed = 1 if keeps_region(record) else len(regions)
        if len(regions) > allowed or (regions and fitting.sum() < k_of(record)):
            wrong.append(record)
    return wrong


def unconnected(ledger: Ledger) -> int:
    """Return how many groups of people belong to no release, or the other way round."""
    rows = ledger.run(lambda chain: chain.rows(groups, groups.c.seq > 0), "read")
    in_use = {
        row["group_id"]
        for row in ledger.run(lambda chain: chain.rows(releases, releases.c.seq > 0), "read")
    }
    return len({row["group_id"] for row in rows} ^ in_use)


def unrecorded(lines: Sequence[dict[str, Any]], ledger: Ledger) -> list[dict[str, Any]]:
    """Return what was released and is not on record."""
    key = find_key(None, None, None, create=False)
    known = {(row["record"], row["region"]) for row in ledger.export()}
    handles = [ledger.handle([record]) for record in range(RECORDS)]
    return [
        line
        for line in lines
        if (handles[line["record"]], region_digest(key, decode(line["region"]))) not in known
    ]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))))
