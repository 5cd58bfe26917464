"""Releases through a ledger, and looks into its database past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy

from cfk_plugin import Interval, Ledger, Region
from cfk_plugin.records.rule import Candidate, RegionPeople

CANARY = "canary-7f3a"
REGION = Region({"city": frozenset({f"{CANARY}-city"}), "age": Interval(20, 40)})
OTHER = Region({"city": frozenset({f"{CANARY}-city", "Gent"}), "age": Interval(20, 50)})


def handle(ledger: Ledger, record: object) -> str:
    return ledger.handle(record if isinstance(record, list) else [record])


@dataclass(frozen=True)
class Crowd:
    """A population with so many people in every region."""

    people: Callable[[], int]

    def inside(self, region: Region) -> frozenset[str]:
        return frozenset(f"{number:016x}" for number in range(self.people()))

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        return True


def settle(
    ledger: Ledger,
    *records: object,
    region: Region = REGION,
    k: int = 5,
    people: Callable[[], int] = lambda: 50,
) -> list[str]:
    """Ask for a region of records; return what was decided."""
    known: dict[str, Any] = {
        "policy": "p" * 64,
        "population": "f" * 16,
        "guarantee": "lookup",
        "k": k,
    }
    wanted = [
        Candidate(record=handle(ledger, record), region=region, **known) for record in records
    ]
    return [decision.outcome for decision in ledger.settle(wanted, Crowd(people))]


@contextmanager
def connected(url: str) -> Iterator[sqlalchemy.Connection]:
    """Look into the database, as whoever may write to it and has no key."""
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def change(url: str, *statements: str) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))
