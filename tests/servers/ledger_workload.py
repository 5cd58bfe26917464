"""Processes that release random regions of a few records, and are killed while they do.

Run as a program it prints what happened as JSON: ``python ledger_workload.py URL FOLDER PROCESSES RELEASES``. The key
of the ledger is taken from the environment; the URL ``none`` releases everything that meets k on its own.
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

from cfk_plugin.data.region import Interval, Region
from cfk_plugin.records.keys import find_key
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Candidate, Decision, decode, encode, region_digest

RECORDS = 40
POLICY, FINGERPRINT = "p" * 64, "f" * 16
ZONES = ("north", "east", "south", "west", "centre")


class Town:
    """Some hundred people with an age and a zone; the first are those whose records are released."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(7)
        self.age = numbers.integers(0, 40, 300)
        self.zone = numbers.integers(0, len(ZONES), 300)

    def inside(self, region: Region) -> NDArray[np.int64]:
        age, zone = region["age"], region["zone"]
        assert isinstance(age, Interval)
        allowed = np.array([name in zone for name in ZONES])
        return np.flatnonzero((self.age >= age.low) & (self.age <= age.high) & allowed[self.zone])

    def common(self, regions: Sequence[Region]) -> int:
        people = set(range(len(self.age)))
        for region in regions:
            people &= set(self.inside(region).tolist())
        return len(people)

    def propose(self, record: int, rng: random.Random) -> Region:
        """Return a random region around a record with enough people."""
        age, zone = int(self.age[record]), ZONES[self.zone[record]]
        while True:
            zones = frozenset({zone, *rng.sample(ZONES, rng.randrange(3))})
            low, high = max(0, age - rng.randrange(16)), min(39, age + rng.randrange(16))
            region = Region({"age": Interval(low, high), "zone": zones})
            if len(self.inside(region)) >= k_of(record):
                return region


def k_of(record: int) -> int:
    return 4 + record % 5


def keeps_region(record: int) -> bool:
    """Say whether a record is released under a guarantee with a partition."""
    return record % 2 == 1


def settle(ledger: Ledger | None, town: Town, records: Sequence[int], regions: Sequence[Region]) -> list[Decision]:
    if ledger is None:
        return [Decision("new", region) for region in regions]
    candidates = [
        Candidate(
            record=ledger.handle([record]),
            region=region,
            policy=POLICY,
            population=FINGERPRINT,
            guarantee="reciprocal" if keeps_region(record) else "nominal",
            k=k_of(record),
            effective=len(town.inside(region)) if keeps_region(record) else None,
        )
        for record, region in zip(records, regions, strict=True)
    ]
    return ledger.settle(candidates, town.common, lambda i, region: len(town.inside(region)) >= k_of(records[i]))


def work(ledger: Ledger | None, out: Path, seed: int) -> None:
    """Release until killed. What is in the file was released; it is written after the ledger has answered."""
    town, rng = Town(), random.Random(seed)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    records: list[int] = []
    while True:
        if not records or rng.random() < 0.8:  # else the same again, which chance alone proposes too rarely
            records = [rng.randrange(RECORDS) for _ in range(rng.randrange(1, 4))]
            regions = [town.propose(record, rng) for record in records]
        for record, decision in zip(records, settle(ledger, town, records, regions), strict=True):
            if decision.region is not None:
                line = {"record": record, "outcome": decision.outcome, "region": encode(decision.region)}
                os.write(file, json.dumps(line).encode() + b"\n")
                os.fsync(file)


@dataclass(slots=True)
class Crew:
    """The processes; each has a file of its own, and every other one uses what its parent had opened."""

    url: str
    folder: Path
    shared: Ledger | None
    started: int = 0

    def start(self) -> int:
        self.started += 1
        number = self.started
        process = os.fork()
        if process:
            return process
        try:
            fresh = number % 2 and self.url != "none"
            work(Ledger(self.url) if fresh else self.shared, self.folder / f"{number}.jsonl", number)
        except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
            (self.folder / f"{number}.failed").write_text(traceback.format_exc())
        finally:
            os._exit(1)

    def lines(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("*.jsonl"))


def run(url: str, folder: Path, processes: int, releases: int, least: int) -> dict[str, Any]:
    """Keep so many processes at work, kill one after the other, and stop when enough was released and killed."""
    rng = random.Random(0)
    shared = None if url == "none" else Ledger(url, create=True)
    crew = Crew(url, folder, shared)
    alive = [crew.start() for _ in range(processes)]
    kills, until = 0, time.monotonic() + 500
    while (kills < least or crew.lines() < releases) and time.monotonic() < until:
        time.sleep(rng.uniform(0.02, 0.25))
        at = rng.randrange(len(alive))
        os.kill(alive[at], signal.SIGKILL)
        os.waitpid(alive[at], 0)
        alive[at] = crew.start()
        kills += 1
    for process in alive:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if shared is not None:
        shared.close()
    failed = [path.read_text() for path in sorted(folder.glob("*.failed"))]
    return {"kills": kills, "started": crew.started, "failed": failed}


def released(folder: Path) -> list[dict[str, Any]]:
    """Return all that was released; a last line without its end was not."""
    out = []
    for path in sorted(folder.glob("*.jsonl")):
        out += [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    return out


def violations(lines: Sequence[dict[str, Any]]) -> list[int]:
    """Return the records with a second region where one is kept, or else with fewer than k people in all of them."""
    town, wrong = Town(), []
    for record in range(RECORDS):
        regions = [decode(text) for text in {line["region"] for line in lines if line["record"] == record}]
        allowed = 1 if keeps_region(record) else len(regions)
        if regions and (len(regions) > allowed or town.common(regions) < k_of(record)):
            wrong.append(record)
    return wrong


def unrecorded(lines: Sequence[dict[str, Any]], ledger: Ledger) -> list[dict[str, Any]]:
    """Return what was released and is not on record."""
    key = find_key(None, None, None, create=False)
    known = {(row["record"], row["region"]) for row in ledger.export()}
    handles = [ledger.handle([record]) for record in range(RECORDS)]
    return [
        line for line in lines if (handles[line["record"]], region_digest(key, decode(line["region"]))) not in known
    ]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))))
