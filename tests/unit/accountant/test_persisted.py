"""Budgets in the database of a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy

from cfk_plugin import BudgetAccountant, Ledger
from cfk_plugin.errors import BudgetError, LedgerError
from cfk_plugin.records.budget import Budget, accounts, raise_ceiling

Open = Callable[..., BudgetAccountant]


@pytest.fixture
def database(url: str) -> Iterator[sqlalchemy.Engine]:
    """Return a look into the tables past the ledger."""
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


def tables(database: sqlalchemy.Engine) -> set[str]:
    return set(sqlalchemy.inspect(database).get_table_names())


def change(database: sqlalchemy.Engine, statement: str) -> None:
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(statement))


def test_spends_outlive_the_accountant(open_accountant: Open, url: str) -> None:
    open_accountant(1.0, ledger=url, scope="patients").spend(None, 0.75, what="fit")
    again = open_accountant(1.0, ledger=url, scope="patients")
    assert again.remaining() == Budget(0.25, 0.0)
    with pytest.raises(BudgetError, match=r"ε = 0.25"):
        again.spend(None, 0.5, what="fit")


def test_ledger_without_budgets_has_none_until_the_first_spend(open_accountant: Open, url: str) -> None:
    with Ledger(url) as ledger:
        accountant = open_accountant(1.0, ledger=ledger, scope="patients")
        assert accounts(ledger) == []
        assert accountant.remaining() == Budget(1.0, 0.0)
        assert accountant.spends() == []
        accountant.check(None, 0.5)
        with pytest.raises(BudgetError, match="no budget of that name"):
            raise_ceiling(ledger, "patients", 2.0)
        assert accounts(ledger) == []
        accountant.spend(None, 0.5, what="fit")
        assert ledger.status().releases == 0
    with Ledger(url) as ledger:
        assert accounts(ledger)[0].left.epsilon == 0.5


def test_erasing_releases_erases_no_spend(open_accountant: Open, url: str) -> None:
    with Ledger(url) as ledger:
        accountant = open_accountant(1.0, ledger=ledger, scope="patients")
        accountant.spend(None, 0.5, what="fit")
        ledger.forget(ledger.handle([1]))
        assert accountant.remaining().epsilon == 0.5


def test_lower_ceiling_holds_for_all_and_a_higher_one_is_refused(open_accountant: Open, url: str) -> None:
    first = open_accountant(2.0, 1e-5, ledger=url, scope="patients")
    first.spend(None, 0.5, what="fit")
    second = open_accountant(1.0, 1e-5, ledger=url, scope="patients")
    second.check(None, 0.5)
    first.check(None, 1.5)  # a look lowers nothing
    second.spend(None, 0.25, what="fit")
    for use in (lambda: first.spend(None, 0.1, what="fit"), lambda: first.check(None, 0.1), first.remaining):
        with pytest.raises(BudgetError, match=r"on record is ε = 1, .*higher: ε = 2, .*cfk budget raise"):
            use()
    assert first.spent() == Budget(0.75, 0.0)
    with pytest.raises(BudgetError, match="higher"):
        open_accountant(0.9, 1e-4, ledger=url, scope="patients").spend(None, 0.1, what="fit")


def test_ceiling_below_what_was_spent_stops_everybody(open_accountant: Open, url: str) -> None:
    first = open_accountant(2.0, ledger=url, scope="patients")
    first.spend(None, 1.5, what="fit")
    with pytest.raises(BudgetError, match="ε = 0, δ = 0 left of ε = 1"):
        open_accountant(1.0, ledger=url, scope="patients").spend(None, 0.1, what="fit")
    with pytest.raises(BudgetError, match="on record is ε = 1"):
        first.spend(None, 0.1, what="fit")


def test_raised_ceiling_is_used_and_earlier_ones_stay_on_record(open_accountant: Open, url: str) -> None:
    open_accountant(1.0, ledger=url, scope="patients").spend(None, 1.0, what="fit")
    with Ledger(url) as ledger:
        now = raise_ceiling(ledger, "patients", 3.0)
        assert now.ceilings == [Budget(1.0, 0.0), Budget(3.0, 0.0)]
        assert (now.left, now.spent) == (Budget(2.0, 0.0), Budget(1.0, 0.0))
        for epsilon, delta in ((3.0, None), (2.0, 1e-5), (None, None), (None, 0.0)):
            with pytest.raises(BudgetError, match="does not raise"):
                raise_ceiling(ledger, "patients", epsilon, delta)
        with pytest.raises(BudgetError, match="delta"):
            raise_ceiling(ledger, "patients", 4.0, 1.0)
        assert raise_ceiling(ledger, "patients", delta=1e-6).ceiling == Budget(3.0, 1e-6)
    open_accountant(3.0, 1e-6, ledger=url, scope="patients").spend(None, 2.0, what="fit")


def test_second_try_of_a_spend_spends_nothing(open_accountant: Open, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a commit can get lost; the transaction is tried again then, with the token that it had."""
    accountant = open_accountant(1.0, ledger=url, scope="patients")
    monkeypatch.setattr("cfk_plugin.records.budget.secrets.token_hex", lambda length: "a" * 2 * length)
    for _ in range(2):
        accountant.spend(None, 0.75, what="fit")
    assert len(accountant.spends()) == 1


@pytest.mark.parametrize("amount", ["canary", "-1.0", "0.25"])
def test_amounts_that_were_changed_are_refused(
    open_accountant: Open, url: str, database: sqlalchemy.Engine, amount: str
) -> None:
    accountant = open_accountant(1.0, ledger=url, scope="patients")
    accountant.spend(None, 0.5, what="fit")
    change(database, f"UPDATE cfk_budget_spends SET epsilon = '{amount}'")
    with pytest.raises(LedgerError, match="does not fit its key") as caught:
        accountant.spend(None, 0.1, what="fit")
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_budgets_whose_tables_are_gone_do_not_start_anew(
    open_accountant: Open, url: str, database: sqlalchemy.Engine
) -> None:
    accountant = open_accountant(1.0, ledger=url, scope="patients")
    accountant.spend(None, 1.0, what="fit")
    change(database, "DROP TABLE cfk_budget_spends")
    with pytest.raises(LedgerError, match="check that it is there"):
        accountant.spend(None, 1.0, what="fit")
    assert "cfk_budget_spends" not in tables(database)


def test_accountant_closes_only_what_it_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", "k" * 32)
    with Ledger(tmp_path / "ledger.db", create=True) as ledger:
        theirs = BudgetAccountant(1.0, ledger=ledger, scope="patients")
        theirs.close()
        theirs.spend(None, 0.5, what="fit")
        own = BudgetAccountant(1.0, ledger=tmp_path / "ledger.db", scope="patients")
        own.close()
        with pytest.raises(LedgerError, match="closed"):
            own.spend(None, 0.5, what="fit")


def test_failed_database_is_an_error_and_no_permission(
    open_accountant: Open, url: str, database: sqlalchemy.Engine
) -> None:
    accountant = open_accountant(1.0, ledger=url, scope="patients")
    accountant.spend(None, 0.5, what="canary")
    change(database, "ALTER TABLE cfk_budget_spends RENAME COLUMN what TO why")
    with pytest.raises(LedgerError) as caught:
        accountant.spend(None, 0.1, what="canary")
    assert "canary" not in str(caught.value)
