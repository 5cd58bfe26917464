"""What a ledger answers with besides regions: figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a ledger holds, in figures.

    Attributes
    ----------
    database : str
        Where it is, without user name and password.
    version : int
        Version of its tables.
    key_id : str
        Eight hex digits by which it knows its key.
    records, releases, times : int
        Records, regions on record for them, and how often these were released.
    earliest, latest : str or None
        Of the releases; UTC.
    entries : int
        Of the chain: one for each release and spend that was ever recorded, changed or erased.
    head : str
        Keyed digest of all of them; `Ledger.verify` takes it.
    """

    database: str
    version: int
    key_id: str
    records: int
    releases: int
    times: int
    earliest: str | None
    latest: str | None
    entries: int
    head: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was erased: records and their releases."""

    records: int
    releases: int
