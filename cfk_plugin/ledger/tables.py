"""The tables of a ledger. Nothing in them is a value of a person, but the regions that were released."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text, UniqueConstraint

VERSION = 1
"""Of the tables; a ledger of a newer one is refused."""

Number = BigInteger().with_variant(Integer, "sqlite")  # of a row; SQLite counts up only what it knows as INTEGER
_metadata = MetaData()

meta = Table(
    "cfk_ledger_meta",
    _metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

# On PostgreSQL, whoever settles a record locks its row here; SQLite has one writer at a time and leaves it empty.
locks = Table("cfk_ledger_locks", _metadata, Column("record", String(64), primary_key=True))

releases = Table(
    "cfk_ledger_releases",
    _metadata,
    Column("id", Number, primary_key=True),
    Column("record", String(64), nullable=False),
    Column("digest", String(64), nullable=False),  # keyed hash of the region
    Column("policy", String, nullable=False),
    Column("population", String, nullable=False),
    Column("region", Text, nullable=False),
    Column("guarantee", String, nullable=False),
    Column("k", Integer, nullable=False),
    Column("effective", Integer),
    # UTC as text of fixed length, which sorts as time does and reads the same in both databases.
    Column("first", String(27), nullable=False),
    Column("last", String(27), nullable=False),
    Column("times", Integer, nullable=False),
    UniqueConstraint("record", "digest", "policy", "population"),
)

create_all = _metadata.create_all
