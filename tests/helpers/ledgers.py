"""Releases through a ledger, and looks into its database past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy

from cfk_plugin import Interval, Ledger, Region
from cfk_plugin.records.rule import Candidate

CANARY = "canary-7f3a"
REGION = Region({"city": frozenset({f"{CANARY}-city"}), "age": Interval(20, 40)})
OTHER = Region({"city": frozenset({f"{CANARY}-city", "Gent"}), "age": Interval(20, 50)})


def handle(ledger: Ledger, record: object) -> str:
    return ledger.handle(record if isinstance(record, list) else [record])


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
        "guarantee": "nominal",
        "k": k,
        "effective": 7,
    }
    wanted = [
        Candidate(record=handle(ledger, record), region=region, **known) for record in records
    ]
    return [d.outcome for d in ledger.settle(wanted, lambda _: people(), lambda i, region: True)]


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
