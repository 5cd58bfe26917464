"""Spending under a ceiling, wherever the books are kept."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone

from cfk_plugin import BudgetAccountant, Population, Schema
from cfk_plugin.errors import BudgetError, CFKError, LedgerError
from cfk_plugin.records.budget import Budget

Open = Callable[..., BudgetAccountant]


def population(key: bytes | None, rows: int = 30) -> Population:
    train = pd.DataFrame({"age": range(20, 20 + rows), "pay": 1})
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age"]), key=key)


def test_spends_add_up_to_the_ceiling_and_no_further(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(1.0, 1e-5, ledger=place, scope="patients")
    accountant.spend("patients", 0.75, 6e-6, what="first")
    accountant.check("patients", 0.25, 4e-6)
    with pytest.raises(
        BudgetError, match=r"patients has ε = 0.25, δ = 4e-06 left of ε = 1, δ = 1e-05, and ε = 0.3, δ = 0"
    ):
        accountant.spend("patients", 0.3, what="too much ε")
    with pytest.raises(BudgetError, match=r"ε = 0.1, δ = 5e-06 was asked for"):
        accountant.spend("patients", 0.1, 5e-6, what="too much δ")
    with pytest.raises(BudgetError, match="nothing was spent"):
        accountant.check("patients", 0.3)
    assert accountant.remaining() == Budget(0.25, 4e-6)
    accountant.spend(None, 0.25, 4e-6, what="second")
    assert accountant.remaining("patients") == Budget(0.0, 0.0)
    assert accountant.spent("patients") == Budget(1.0, 1e-5)
    first, second = accountant.spends("patients")
    assert (first.epsilon, first.delta, first.what, second.what) == (0.75, 6e-6, "first", "second")
    assert first.at <= second.at


def test_ten_tenths_are_one_and_not_a_bit_more(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(1.0, ledger=place, scope="tenths")
    for _ in range(10):
        accountant.spend(None, 0.1, what="fit")
    assert accountant.spent() == Budget(1.0, 0.0)
    with pytest.raises(BudgetError):
        accountant.spend(None, 1e-300, what="fit")
    assert len(accountant.spends()) == 10


def test_accounts_are_apart(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(1.0, ledger=place)
    accountant.spend("patients", 1.0, what="fit")
    accountant.spend("visitors", 0.25, what="fit")
    assert (accountant.remaining("patients").epsilon, accountant.remaining("visitors").epsilon) == (0.0, 0.75)
    with pytest.raises(BudgetError):
        accountant.spend("patients", 0.1, what="fit")


def test_nothing_of_a_table_decides_whose_budget_it_is(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(1.0, ledger=place)
    one, other = population(b"key"), population(b"key", rows=31)
    if place is not None:  # a ledger has the budgets of many
        for use in (accountant.remaining, accountant.spent, lambda people: accountant.spend(people, 0.5, what="fit")):
            with pytest.raises(BudgetError, match=r"whose budget\?.*scope="):
                use(one)
        return
    accountant.spend(one, 0.75, what="fit")
    assert accountant.account(one) == accountant.account(other) == accountant.account()
    assert accountant.remaining(other) == accountant.remaining() == Budget(0.25, 0.0)
    with pytest.raises(BudgetError, match="this accountant has") as caught:
        accountant.spend(other, 0.5, what="fit")
    assert one.fingerprint not in str(caught.value)


def test_scope_holds_for_every_version_of_a_table(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(1.0, ledger=place, scope="patients")
    accountant.spend(population(None), 0.75, what="fit in May")
    assert accountant.remaining(population(None, rows=40)).epsilon == 0.25
    with pytest.raises(BudgetError, match="one account"):
        accountant.remaining("visitors")


def test_nobody_spends_what_others_spent_meanwhile(open_accountant: Open, place: str | None) -> None:
    settings: dict[str, Any] = {"ledger": place, "scope": "race"}
    shared = open_accountant(1.0, **settings)

    def spend(number: int) -> int:
        # In memory, one accountant is all there is; in a ledger, each thread may have its own.
        accountant = shared if place is None or number % 2 else BudgetAccountant(1.0, **settings)
        done = 0
        for _ in range(6):
            try:
                accountant.spend(None, 0.05, what=f"thread {number}")
            except BudgetError:
                continue
            done += 1
        if accountant is not shared:
            accountant.close()
        return done

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(spend, range(8))) == 20
    assert shared.spent() == Budget(1.0, 0.0)


# --- wrong input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1.0, float("inf"), float("nan"), "1", None, True, 10**400, 2**53 + 1])
def test_epsilon_must_be_finite_and_positive(open_accountant: Open, epsilon: Any) -> None:
    with pytest.raises(BudgetError, match="epsilon"):
        BudgetAccountant(epsilon)
    accountant = BudgetAccountant(1.0, scope="a")
    for use in (lambda: accountant.spend("a", epsilon, what="fit"), lambda: accountant.check("a", epsilon)):
        with pytest.raises(BudgetError, match="epsilon") as caught:
            use()
        assert isinstance(caught.value, (CFKError, ValueError))
    assert accountant.spends() == []


@pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan"), "0", None])
def test_delta_must_be_below_1(delta: Any) -> None:
    with pytest.raises(BudgetError, match="delta"):
        BudgetAccountant(1.0, delta)
    with pytest.raises(BudgetError, match="delta"):
        BudgetAccountant(1.0).spend("a", 0.5, delta, what="fit")


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 201, "0123456789abcdef", 7, b"a"])
def test_names_are_short_texts_and_no_fingerprints(name: Any) -> None:
    with pytest.raises(BudgetError):
        BudgetAccountant(1.0, scope=name)
    with pytest.raises(BudgetError):
        BudgetAccountant(1.0).spend(name, 0.5, what="fit")
    with pytest.raises(BudgetError):
        BudgetAccountant(1.0).spend("a", 0.5, what=name if isinstance(name, bytes | int) else "\n")


def test_other_mistakes_are_said() -> None:
    with pytest.raises(BudgetError, match="got DataFrame"):
        BudgetAccountant(1.0).remaining(pd.DataFrame())
    with pytest.raises(BudgetError, match="got int"):
        BudgetAccountant(1.0, ledger=3)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="got int"):
        BudgetAccountant.set_default(3)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(open_accountant: Open, place: str | None) -> None:
    accountant = open_accountant(np.float64(1.0), ledger=place, scope="numpy")
    accountant.spend(None, np.float64(0.1), np.int64(0), what="fit")
    accountant.spend(None, np.float32(0.5), what="fit")
    assert accountant.remaining() == Budget(0.4, 0.0)


# --- the default -----------------------------------------------------------------------------------------------


def test_default_is_that_of_the_innermost_block_else_of_the_process() -> None:
    assert BudgetAccountant.default() is None
    whole = BudgetAccountant(3.0)
    BudgetAccountant.set_default(whole)
    try:
        assert BudgetAccountant.default() is whole
        with BudgetAccountant(2.0) as outer:
            assert BudgetAccountant.default() is outer
            with BudgetAccountant(1.0) as inner, inner:
                assert BudgetAccountant.default() is inner
            assert BudgetAccountant.default() is outer
            with pytest.raises(ZeroDivisionError), inner:
                raise ZeroDivisionError
            assert BudgetAccountant.default() is outer
            with ThreadPoolExecutor(1) as thread, pytest.raises(BudgetError, match="several accountants"):
                thread.submit(BudgetAccountant.default).result()  # which of the two, nobody knows there
        assert BudgetAccountant.default() is whole
    finally:
        BudgetAccountant.set_default(None)
    assert BudgetAccountant.default() is None


def test_one_accountant_may_be_entered_by_several_threads() -> None:
    accountant = BudgetAccountant(1.0)

    def inside() -> bool:
        with accountant:
            return BudgetAccountant.default() is accountant

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: inside(), range(20)))
    assert BudgetAccountant.default() is None


def test_blocks_that_end_in_another_order_leave_nothing() -> None:
    first, second = BudgetAccountant(1.0), BudgetAccountant(2.0)
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert BudgetAccountant.default() is second
    second.__exit__()
    assert BudgetAccountant.default() is None


# --- copies ----------------------------------------------------------------------------------------------------


def test_copy_is_the_same_accountant_and_pickle_is_refused() -> None:
    accountant = BudgetAccountant(1.0, scope="a")
    assert copy.copy(accountant) is accountant
    assert copy.deepcopy({"accountant": accountant})["accountant"] is accountant
    with pytest.raises(BudgetError, match="pickled"):
        pickle.dumps(accountant)


def test_estimator_and_its_clone_spend_from_one_account() -> None:
    class Mechanism(BaseEstimator):
        def __init__(self, accountant: BudgetAccountant | None = None) -> None:
            self.accountant = accountant

    accountant = BudgetAccountant(1.0)
    assert clone(Mechanism(accountant)).accountant is accountant


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_fork_does_not_double_a_budget_in_memory() -> None:
    accountant = BudgetAccountant(1.0, scope="a")
    child = os.fork()
    if not child:
        code = 1
        try:
            accountant.spend(None, 0.5, what="fit")
        except BudgetError as error:
            code = 0 if "another process" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    accountant.spend(None, 1.0, what="fit")


def test_a_budget_in_memory_that_is_lost_does_not_start_anew() -> None:
    """An interrupt within a statement makes SQLAlchemy drop the connection, and the books with it."""
    accountant = BudgetAccountant(1.0)
    accountant.spend(None, 0.75, what="fit")
    with accountant._ledger._database._engine().connect() as connection:
        connection.invalidate()
    for use in (accountant.remaining, accountant.spends, lambda: accountant.spend(None, 0.1, what="fit")):
        with pytest.raises(LedgerError, match="failed"):
            use()


def test_repr_shows_figures_alone(open_accountant: Open, url: str) -> None:
    accountant = open_accountant(1.0, 1e-5, ledger=url, scope="canary-7f3a")
    assert repr(accountant) == "BudgetAccountant(epsilon=1, delta=1e-05)"
