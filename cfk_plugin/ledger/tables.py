"""The tables of a ledger, and of budgets. Nothing in them is a value of a person, except for released regions."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text, UniqueConstraint

VERSION = 2
"""Of the tables; a ledger of another one is refused. Version 1 had no chain."""

_metadata = MetaData()

# Version, key and identity of the ledger, and the head of its chain.
meta = Table(
    "cfk_ledger_meta",
    _metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

# On PostgreSQL, whoever settles a record locks its row here; SQLite has one writer at a time and leaves it empty.
locks = Table("cfk_ledger_locks", _metadata, Column("record", String(64), primary_key=True))

# One entry for each row of the tables below, whenever it was made, changed in what is chained, or erased.
chain = Table(
    "cfk_ledger_chain",
    _metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # 1, 2, 3, ...
    Column("replaces", BigInteger, unique=True),  # the entry of the row until then
    Column("content", String(64)),  # keyed digest of the row; none where it was erased
    Column("link", String(64), nullable=False),  # keyed digest of all this and of the link before
)


def _chained(name: str, *columns: Column[str] | Column[int] | UniqueConstraint) -> Table:
    """Return a table whose rows are in the chain, each by its latest entry."""
    seq = Column("seq", BigInteger, primary_key=True, autoincrement=False)
    # Goes with the row: whoever has the key cannot tell from the entry of an erased row what the row was.
    salt: Column[str] = Column("salt", String(32), nullable=False)
    return Table(name, _metadata, seq, salt, *columns)


releases = _chained(
    "cfk_ledger_releases",
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

# Whoever spends locks the row of the account on PostgreSQL; SQLite has one writer at a time.
accounts = Table("cfk_budget_accounts", _metadata, Column("account", String, primary_key=True))

# Amounts are text: a database would round a number in its own way.
ceilings = _chained(
    "cfk_budget_ceilings",
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("at", String(27), nullable=False),
)

spends = _chained(
    "cfk_budget_spends",
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("what", String, nullable=False),
    Column("at", String(27), nullable=False),
    Column("token", String(32), nullable=False, unique=True),
)

CHAINED = (releases, ceilings, spends)
UNCHAINED = ("seq", "last", "times")
"""Columns that no digest covers: an answer that is repeated changes the last two, and adds nothing to the chain."""

create_all = _metadata.create_all
