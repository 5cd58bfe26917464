"""The tables of budgets, beside those of a ledger. Names of accounts, amounts and times; no value of a row."""

from __future__ import annotations

from sqlalchemy import Column, MetaData, String, Table

from cfk_plugin.ledger.tables import Number

VERSION = 1
"""Of these tables. The ledger's own version says nothing about them: who knows no budgets may use the ledger."""

_metadata = MetaData()

# Whoever spends locks the row of the account on PostgreSQL; SQLite has one writer at a time.
accounts = Table("cfk_budget_accounts", _metadata, Column("account", String, primary_key=True))

# Amounts are text: a database would round a number in its own way.
ceilings = Table(
    "cfk_budget_ceilings",
    _metadata,
    Column("id", Number, primary_key=True),
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("at", String(27), nullable=False),
)

spends = Table(
    "cfk_budget_spends",
    _metadata,
    Column("id", Number, primary_key=True),
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("what", String, nullable=False),
    Column("at", String(27), nullable=False),
    Column("token", String(32), nullable=False, unique=True),
)

create_all = _metadata.create_all
