"""Budgets: spending under a ceiling, wherever the books are kept and whoever spends at the same
time.
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy
from hypothesis import example, given, settings
from hypothesis import strategies as st

import budget_workload
from cfk_plugin import BudgetAccountant, Ledger, Population, Schema
from cfk_plugin.errors import BudgetError, LedgerError
from cfk_plugin.records.account import Account, raise_ceiling
from cfk_plugin.records.composition import Budget, RenyiOrder, Spend, largest_rho
from commands import cfk

Open = Callable[..., BudgetAccountant]


@pytest.fixture
def open_accountant() -> Iterator[Open]:
    """Return `BudgetAccountant`; all that it makes are closed at the end."""
    opened: list[BudgetAccountant] = []

    def open_one(*amounts: float, **options: Any) -> BudgetAccountant:
        opened.append(BudgetAccountant(*amounts, **options))
        return opened[-1]

    yield open_one
    for accountant in opened:
        accountant.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Return where books can be kept."""
    if request.param == "memory":
        return None
    sqlite = request.param == "sqlite"
    where = (
        f"sqlite:///{tmp_path / 'books.db'}"
        if sqlite
        else str(request.getfixturevalue("postgres_url"))
    )
    Ledger(where, create=True).close()
    return where


@pytest.fixture
def database(place: str | None) -> Iterator[sqlalchemy.Engine]:
    """Return a look into the tables past the ledger."""
    if place is None:
        pytest.skip("books in memory are nobody else's to change")
    engine = sqlalchemy.create_engine(place.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory one with a ledger, whose key lies beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFK_LEDGER_KEY")
    Ledger("ledger.db", create=True).close()
    return tmp_path


def population(key: bytes | None, rows: int = 30) -> Population:
    train = pd.DataFrame({"age": range(20, 20 + rows), "pay": 1})
    return Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age"]), key=key
    )


def spend(
    scope: str, *amounts: float, ceiling: float = 1.0, delta: float = 1e-5
) -> BudgetAccountant:
    accountant = BudgetAccountant(ceiling, delta, ledger="ledger.db", scope=scope)
    for epsilon in amounts:
        accountant.spend(None, epsilon, 1e-6 if delta else 0.0, what="tree")
    return accountant


def refused(*words: object) -> str:
    stderr = cfk("budget", *words, code=2).stderr
    assert stderr.startswith("cfk: ")
    assert len(stderr.splitlines()) == 1
    return stderr


def shown() -> dict[str, dict[str, Any]]:
    return {
        each["account"]: each
        for each in json.loads(cfk("budget show", "ledger.db", "--json").stdout)["accounts"]
    }


# --- spending -------------------------------------------------------------------------------------


def test_spends_add_up_to_the_ceiling_and_no_further(
    open_accountant: Open, place: str | None
) -> None:
    accountant = open_accountant(np.float64(1.0), 1e-5, ledger=place, scope="patients")
    accountant.spend("patients", np.float64(0.75), 6e-6, what="first")
    accountant.check("patients", 0.25, 4e-6)
    with pytest.raises(
        BudgetError,
        match=r"patients has ε = 0.25, δ = 4e-06 left of ε = 1, δ = 1e-05, and ε = 0.3, δ = 0",
    ):
        accountant.spend("patients", 0.3, what="too much ε")
    with pytest.raises(BudgetError, match=r"ε = 0.1, δ = 5e-06 was asked for"):
        accountant.spend("patients", 0.1, 5e-6, what="too much δ")
    with pytest.raises(BudgetError, match="nothing was spent"):
        accountant.check("patients", 0.3)
    assert accountant.remaining() == (0.25, 4e-6)
    accountant.spend(None, 0.25, 4e-6, what="second")
    assert (accountant.remaining("patients"), accountant.spent("patients")) == (
        (0.0, 0.0),
        (1.0, 1e-5),
    )
    first, second = accountant.spends("patients")
    assert (first.epsilon, first.delta, first.what, second.what) == (0.75, 6e-6, "first", "second")
    assert first.at <= second.at
    assert repr(accountant) == "BudgetAccountant(epsilon=1, delta=1e-05)"


def test_accounts_are_apart_and_nothing_of_a_table_decides_whose_budget_it_is(
    open_accountant: Open, place: str | None
) -> None:
    accountant, one, other = (
        open_accountant(1.0, ledger=place),
        population(b"key"),
        population(b"key", rows=31),
    )
    if place is None:  # the books of one accountant in memory are about one thing
        accountant.spend(one, 0.75, what="fit")
        assert accountant.account(one) == accountant.account(other) == accountant.account()
        assert accountant.remaining(other) == accountant.remaining() == (0.25, 0.0)
        with pytest.raises(BudgetError, match="this accountant has") as caught:
            accountant.spend(other, 0.5, what="fit")
        assert one.fingerprint not in str(caught.value)
        return
    accountant.spend("patients", 1.0, what="fit")
    accountant.spend("visitors", 0.25, what="fit")
    assert (accountant.remaining("patients").epsilon, accountant.remaining("visitors").epsilon) == (
        0.0,
        0.75,
    )
    for use in (
        accountant.remaining,
        accountant.spent,
        lambda people: accountant.spend(people, 0.5, what="fit"),
    ):
        with pytest.raises(BudgetError, match=r"whose budget\?.*scope="):
            use(one)
    scoped = open_accountant(1.0, ledger=place, scope="guests")
    scoped.spend(population(None), 0.75, what="fit in May")
    assert scoped.remaining(population(None, rows=40)).epsilon == 0.25
    with pytest.raises(BudgetError, match="one account"):
        scoped.remaining("visitors")


def test_nobody_spends_what_others_spent_meanwhile(
    open_accountant: Open, place: str | None
) -> None:
    options: dict[str, Any] = {"ledger": place, "scope": "race"}
    shared = open_accountant(1.0, **options)

    def tries(number: int) -> int:
        # In memory, one accountant is all there is; in a ledger, each thread may have its own.
        accountant = shared if place is None or number % 2 else BudgetAccountant(1.0, **options)
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

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(tries, range(6))) == 20
    assert shared.spent() == (1.0, 0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="starts its workers with fork")
@pytest.mark.parametrize(
    ("processes", "kills"),
    [
        pytest.param(3, 2, id="3-processes"),
        pytest.param(8, 10, id="8-processes", marks=pytest.mark.slow),
    ],
)
def test_no_more_is_spent_by_processes_that_get_killed(
    url: str, processes: int, kills: int, tmp_path: Path
) -> None:
    spent = tmp_path / "spent"
    spent.mkdir()
    command = [
        sys.executable,
        budget_workload.__file__,
        url,
        str(spent),
        str(processes),
        str(kills),
    ]
    # fork wants no threads; a busy machine may let a process wait long for its turn
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in spent.glob("*.failed")] == []
    allowed, killed = (
        sum(path.read_bytes().count(b"\n") for path in spent.glob("*.txt")),
        int(done.stdout),
    )
    # A process that was killed may have spent and not told; it never told without having spent.
    assert budget_workload.SPENDS - killed <= allowed <= budget_workload.SPENDS
    with (
        Ledger(url) as ledger,
        BudgetAccountant(15.0, ledger=ledger, scope=budget_workload.SCOPE) as account,
    ):
        ledger.verify()
        assert len(account.spends()) == budget_workload.SPENDS
        assert (account.spent(), account.remaining()) == ((15.0, 0.0), (0.0, 0.0))


# --- amounts, exactly -----------------------------------------------------------------------------

SHARE = Fraction(1, 2**52)  # by which a float may lie beside its decimal, at most
epsilons = st.floats(1e-6, 3.0) | st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.7, 1e-6])
deltas = st.just(0.0) | st.floats(1e-12, 1e-5)


@settings(max_examples=25)
@given(epsilons, deltas, st.lists(st.tuples(epsilons, deltas), max_size=8))
def test_spends_never_exceed_the_ceiling_and_what_is_left_can_be_spent(
    epsilon: float, delta: float, asked: list[tuple[float, float]]
) -> None:
    accountant = BudgetAccountant(epsilon, delta, scope="a")
    let_through: list[tuple[float, float]] = []
    for pair in asked:
        before = accountant.remaining()
        try:
            accountant.spend(None, *pair, what="fit")
        except BudgetError:
            assert pair[0] > before.epsilon or pair[1] > before.delta  # no refusal without a reason
            assert accountant.remaining() == before
        else:
            let_through.append(pair)
    if (left := accountant.remaining()).epsilon > 0:
        accountant.spend(None, *left, what="the rest")
        let_through.append(tuple(left))
    assert accountant.remaining().epsilon <= epsilon * 1e-15
    for at, ceiling in enumerate((epsilon, delta)):
        written = sum(Fraction(repr(pair[at])) for pair in let_through)
        assert written <= Fraction(repr(ceiling))
        assert sum(Fraction(pair[at]) for pair in let_through) <= Fraction(ceiling) * (1 + SHARE)
        assert accountant.spent()[at] >= float(written)


def gaussian(accountant: BudgetAccountant, epsilon: float, delta: float, times: int = 1) -> float:
    rho = largest_rho(epsilon, delta)
    assert rho is not None  # because delta is above 0
    for _ in range(times):
        accountant.spend(None, epsilon, delta, what="fit", rho=rho)
    return rho


@pytest.mark.parametrize(
    ("ceiling", "fit", "fits"),
    [
        ((1.0, 1e-5), (0.3, 1e-6), 12),
        ((3.0, 1e-6), (0.5, 1e-8), 40),
        ((0.5, 1e-9), (0.1, 1e-9), 22),
    ],
)
def test_fits_with_gaussian_noise_lose_what_another_accountant_says_and_not_their_sum(
    ceiling: tuple[float, float], fit: tuple[float, float], fits: int
) -> None:
    accounting = pytest.importorskip("dp_accounting", reason="a second opinion on the composition")
    accountant, other = (
        BudgetAccountant(*ceiling),
        accounting.rdp.RdpAccountant(1 + np.geomspace(1e-2, 1e3, 2000)),
    )
    for number in range(1, fits + 1):
        rho = gaussian(accountant, *fit)
        other.compose(accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
        assert accountant.spent().epsilon >= min(
            other.get_epsilon(ceiling[1]) * (1 - 1e-4), number * fit[0]
        )
    assert ceiling[0] * 0.95 < accountant.spent().epsilon <= ceiling[0] < fits * fit[0] / 3
    assert accountant.spent().epsilon == pytest.approx(other.get_epsilon(ceiling[1]), rel=1e-3)
    assert accountant.spent().delta == ceiling[1]
    with pytest.raises(BudgetError, match="nothing was spent"):
        gaussian(accountant, *fit)
    assert [spend.rho for spend in accountant.spends()] == [rho] * fits


def test_what_is_concentrated_is_added_at_one_order_and_pure_epsilons_to_it() -> None:
    """By hand: at order alpha, rho loses alpha rho, and epsilon is what leaves delta = exp((alpha -
    1)(loss - eps)).
    """
    accountant = BudgetAccountant(2.0, 1e-6)
    rho = gaussian(accountant, 0.4, 1e-8, times=9)
    accountant.spend(None, 0.25, what="pure")
    alpha = RenyiOrder.of(Budget(2.0, 1e-6)).alpha  # type: ignore[union-attr]
    loss = (
        9 * alpha * rho
        + 0.25
        + (math.log(1e6) + (alpha - 1) * math.log(1 - 1 / alpha) - math.log(alpha)) / (alpha - 1)
    )
    assert accountant.spent().epsilon == pytest.approx(loss, rel=2e-5)
    assert accountant.spent().epsilon >= loss
    left = accountant.remaining()
    assert left == (pytest.approx(2.0 - loss, abs=1e-6), 0.0)
    accountant.spend(None, *left, what="the rest")
    assert accountant.spent().epsilon == pytest.approx(2.0, rel=2e-5)


def test_spends_that_told_no_rho_can_only_be_added() -> None:
    accountant = BudgetAccountant(1.0, 1e-5)
    accountant.spend(None, 0.3, 1e-6, what="told nothing")
    gaussian(accountant, 0.3, 1e-6, times=2)
    assert accountant.spent() == (0.9, 3e-6)
    with pytest.raises(BudgetError):
        gaussian(accountant, 0.3, 1e-6)
    for wrong in (
        {"rho": 0.1},
        {"rho": -1.0, "delta": 1e-7},
        {"rho": math.inf, "delta": 1e-7},
        {"rho": "1", "delta": 1e-7},
    ):
        with pytest.raises(BudgetError, match="rho"):
            accountant.spend(None, 0.01, what="fit", **wrong)  # type: ignore[arg-type]


def test_the_first_spend_with_a_delta_decides_how_its_account_counts() -> None:
    ceiling = Budget(1.0, 1e-5)
    order = RenyiOrder.of(ceiling)
    assert order is not None
    concentrated = {"delta": 1e-7, "rho": 1e-4}

    at_the_order = BudgetAccountant(*ceiling, scope="at the order")
    at_the_order.spend(None, 0.1, what="pure")
    at_the_order.spend(None, 0.05, what="decides", **concentrated)
    left = order.max_loss - 0.1 - order.alpha * 1e-4
    assert at_the_order.remaining().epsilon == pytest.approx(left, rel=1e-6)
    assert at_the_order.remaining().delta == 0
    for refused in ({"epsilon": left + 0.01}, {"epsilon": 0.01, "delta": 1e-7}):
        with pytest.raises(BudgetError, match="nothing was spent"):
            at_the_order.spend(None, what="within the sums alone", **refused)
    at_the_order.spend(None, 0.99 * left, what="pure")

    by_sums = BudgetAccountant(*ceiling, scope="by sums")
    by_sums.spend(None, 0.1, 1e-7, what="decides")
    by_sums.spend(None, 0.05, what="concentrated", **concentrated)
    assert by_sums.remaining() == Budget(0.85, 9.8e-6)
    with pytest.raises(BudgetError, match="nothing was spent"):
        by_sums.spend(None, 0.9, 1e-7, rho=1e-4, what="within the order alone")

    too_large_for_the_order = BudgetAccountant(*ceiling, scope="too large for the order")
    too_large_for_the_order.spend(None, 0.5, 1e-7, rho=1.0, what="decides")
    assert too_large_for_the_order.remaining() == Budget(0.5, 9.9e-6)


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_later_ceiling_changes_neither_the_way_nor_the_order_in_which_an_account_counts(
    open_accountant: Open, place: str
) -> None:
    ledger = Ledger(place)

    def accountant(epsilon: float, delta: float, scope: str) -> BudgetAccountant:
        return open_accountant(epsilon, delta, ledger=ledger, scope=scope)

    def left_at_the_order(epsilon: float, delta: float, loss: float) -> Any:
        """By hand: what converting at the order of the first ceiling, 5 and 1e-5, leaves."""
        conversion = math.log(1 - 1 / alpha) - math.log(alpha * delta) / (alpha - 1)
        return pytest.approx(epsilon - conversion - loss, rel=1e-6)

    order = RenyiOrder.of(Budget(5.0, 1e-5))
    assert order is not None
    alpha = order.alpha

    concentrated = accountant(5.0, 1e-5, "at the order")
    concentrated.spend(None, 0.4, 1e-9, rho=0.08, what="decides")
    loss = alpha * 0.08
    assert concentrated.remaining().epsilon == left_at_the_order(5.0, 1e-5, loss)
    # The spend is not within this ceiling at the ceiling's own order.
    too_low = accountant(0.5, 1e-5, "at the order")
    assert too_low.remaining() == (0.0, 0.0)
    for refused in ({"epsilon": 0.05, "delta": 5e-6}, {"epsilon": 0.01}):
        with pytest.raises(BudgetError, match="nothing was spent"):
            too_low.spend(None, what="within the sums alone", **refused)
    assert too_low.spent() == (0.4, 1e-9)
    raise_ceiling(ledger, "at the order", epsilon=5.5, delta=1e-4)
    raised = accountant(5.5, 1e-4, "at the order")
    assert raised.remaining().epsilon == left_at_the_order(5.5, 1e-4, loss)
    raised.spend(None, 0.25, what="pure")
    lower = accountant(4.0, 1e-6, "at the order")
    assert lower.remaining().epsilon == left_at_the_order(4.0, 1e-6, loss + 0.25)
    without_delta = accountant(4.0, 0.0, "at the order")
    assert without_delta.remaining() == (0.0, 0.0)
    with pytest.raises(BudgetError, match="nothing was spent"):
        without_delta.spend(None, 0.1, what="pure")
    assert without_delta.spent() == (0.65, 1e-9)

    added = accountant(0.5, 1e-5, "by sums")
    added.spend(None, 0.4, 1e-9, rho=0.08, what="too large for the order")
    assert added.remaining() == (0.1, 9.999e-6)
    account = raise_ceiling(ledger, "by sums", epsilon=5.0)
    assert account.left == (4.6, 9.999e-6)
    ledger.close()


def test_the_ceiling_in_force_when_a_spend_decides_gives_the_order(
    open_accountant: Open, folder: Path
) -> None:
    first = open_accountant(5.0, 1e-5, ledger="ledger.db", scope="a")
    first.spend(None, 0.1, what="pure")
    lower = open_accountant(1.0, 1e-6, ledger="ledger.db", scope="a")
    lower.spend(None, 0.05, 1e-8, rho=1e-4, what="decides")
    order = RenyiOrder.of(Budget(1.0, 1e-6))
    assert order is not None
    left = order.max_loss - 0.1 - order.alpha * 1e-4
    assert lower.remaining().epsilon == pytest.approx(left, rel=1e-6)


@settings(max_examples=200)
@given(st.floats(0.5, 10.0), st.floats(-9.0, -3.0), st.floats(0.0, 1.0))
@example(3.024, -8.36, 0.262)  # what floats leave here is one bit too much
@example(4.141, -4.0, 0.175)
def test_what_is_left_at_the_order_can_be_spent(
    epsilon: float, magnitude: float, share: float
) -> None:
    ceiling = Budget(epsilon, 10**magnitude)
    order = RenyiOrder.of(ceiling)
    assert order is not None
    rho = max(share * order.max_loss / order.alpha, 1e-12)
    account = Account("a", [ceiling], []).after(Spend(epsilon=0.1, delta=1e-10, rho=rho))
    left = account.left
    assert account.spent.epsilon >= 0
    if left.epsilon > 0:
        account = account.after(Spend(epsilon=left.epsilon, delta=0.0))
        assert not account.is_exceeded
    if not account.is_exceeded:
        assert account.spent.within(ceiling)


def test_what_is_spent_at_the_order_is_within_the_ceiling_and_not_below_0() -> None:
    rho = largest_rho(1.0, 1e-5)
    assert rho is not None
    whole = BudgetAccountant(1.0, 1e-5)
    for _ in range(2):
        whole.spend(None, 0.6, 1e-5, rho=rho / 2 * (1 - 2e-9), what="half")
    assert whole.spent() == (1.0, 1e-5)
    assert whole.remaining().epsilon < 1e-8
    large_delta = BudgetAccountant(1.0, 0.5)
    large_delta.spend(None, 1.0, 0.1, rho=1e-4, what="converts to less than 0")
    assert large_delta.spent() == (0.0, 0.5)


def test_a_refusal_at_the_order_says_what_the_account_takes() -> None:
    accountant = BudgetAccountant(1.0, 1e-5)
    gaussian(accountant, 0.3, 1e-6)
    with pytest.raises(BudgetError, match=r"counts at an order.* a fit with a δ has to tell its ρ"):
        accountant.check(None, 0.01, 1e-9)
    with pytest.raises(BudgetError, match="nothing was spent") as caught:
        BudgetAccountant(1.0, 1e-5).check(None, 2.0)
    assert "order" not in str(caught.value)


def test_one_fit_may_use_the_whole_ceiling_and_a_lower_one_is_kept_to() -> None:
    accountant = BudgetAccountant(1.0, 1e-6, scope="a")
    gaussian(accountant, 1.0, 1e-6)
    assert accountant.spent() == (1.0, 1e-6)
    with pytest.raises(BudgetError):
        gaussian(accountant, 0.01, 1e-6)


@pytest.mark.parametrize(("parts", "of"), [(10, 10), (3, 10), (7, 1000), (29, 1000)])
def test_equal_parts_fill_a_ceiling_exactly_and_not_a_bit_more_fits(parts: int, of: int) -> None:
    accountant = BudgetAccountant(parts / of, scope="parts")
    for _ in range(parts):
        accountant.spend(None, 1 / of, what="fit")
    assert accountant.spent() == (parts / of, 0.0)
    with pytest.raises(BudgetError):
        accountant.spend(None, 1e-300, what="fit")


@pytest.mark.parametrize(
    "epsilon", [0, -1.0, float("inf"), float("nan"), "1", None, True, 10**400, 2**53 + 1]
)
def test_epsilon_must_be_finite_and_positive(epsilon: Any) -> None:
    accountant = BudgetAccountant(1.0, scope="a")
    for use in (
        lambda: BudgetAccountant(epsilon),
        lambda: accountant.spend("a", epsilon, what="fit"),
        lambda: accountant.check("a", epsilon),
    ):
        with pytest.raises(BudgetError, match="epsilon"):
            use()
    assert accountant.spends() == []


@pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan"), "0", None])
def test_delta_must_be_below_1(delta: Any) -> None:
    for use in (
        lambda: BudgetAccountant(1.0, delta),
        lambda: BudgetAccountant(1.0).spend("a", 0.5, delta, what="fit"),
    ):
        with pytest.raises(BudgetError, match="delta"):
            use()


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "two\nlines",
        "x" * 201,
        "0123456789abcdef",
        "ABCDEF0123456789",
        "0123456789abcdef ",
        "０123456789abcdef",  # with a digit of full width
        7,
        b"a",
    ],
)
def test_names_are_short_texts_and_no_fingerprints(name: Any) -> None:
    for use in (
        lambda: BudgetAccountant(1.0, scope=name),
        lambda: BudgetAccountant(1.0).spend(name, 0.5, what="fit"),
        lambda: BudgetAccountant(1.0).spend(
            "a", 0.5, what=name if isinstance(name, bytes | int) else "\n"
        ),
    ):
        with pytest.raises(BudgetError):
            use()


@pytest.mark.parametrize(
    "spelled", ["Patients of 2026", "  patients  of 2026 ", "PATIENTS OF ２０２６"]
)
def test_a_name_that_is_spelled_otherwise_is_the_same_account(
    spelled: str, open_accountant: Open, place: str | None
) -> None:
    accountant = open_accountant(1.0, ledger=place, scope="patients of 2026")
    accountant.spend(None, 0.75, what="fit in May")
    assert accountant.remaining(spelled).epsilon == 0.25
    assert accountant.account(spelled) == "patients of 2026"
    if place is not None:
        other = open_accountant(1.0, ledger=place, scope=spelled)
        assert other.remaining().epsilon == 0.25


def test_other_mistakes_are_said() -> None:
    for use, kind in (
        (lambda: BudgetAccountant(1.0).remaining(pd.DataFrame()), "DataFrame"),
        (lambda: BudgetAccountant(1.0, ledger=3), "int"),  # type: ignore[arg-type]
        (lambda: BudgetAccountant.set_default(3), "int"),  # type: ignore[arg-type]
    ):
        with pytest.raises(BudgetError, match=f"got {kind}"):
            use()


# --- the default, and copies ----------------------------------------------------------------------


def test_default_is_that_of_the_innermost_block_else_of_the_process() -> None:
    assert BudgetAccountant.default() is None
    whole = BudgetAccountant(3.0)
    BudgetAccountant.set_default(whole)
    try:
        with BudgetAccountant(2.0) as outer:
            assert BudgetAccountant.default() is outer
            with BudgetAccountant(1.0) as inner, inner:
                assert BudgetAccountant.default() is inner
            assert BudgetAccountant.default() is outer
            with pytest.raises(ZeroDivisionError), inner:
                raise ZeroDivisionError
            assert BudgetAccountant.default() is outer
            inner.__enter__()
            outer.__exit__()  # in another order than they began
            assert BudgetAccountant.default() is inner
            outer.__enter__()
            with (
                ThreadPoolExecutor(1) as thread,
                pytest.raises(BudgetError, match="several accountants"),
            ):
                # which of the two, nobody knows there
                thread.submit(BudgetAccountant.default).result()
            inner.__exit__()
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


def test_copy_is_the_same_accountant_and_pickle_is_refused() -> None:
    accountant = BudgetAccountant(1.0, scope="a")
    assert (
        copy.copy(accountant)
        is copy.deepcopy({"accountant": accountant})["accountant"]
        is accountant
    )
    with pytest.raises(BudgetError, match="pickled"):
        pickle.dumps(accountant)


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
    """An interrupt within a statement makes SQLAlchemy drop the connection, and the books with
    it.
    """
    accountant = BudgetAccountant(1.0)
    accountant.spend(None, 0.75, what="fit")
    with accountant._ledger._database._engine().connect() as connection:
        connection.invalidate()
    for use in (
        accountant.remaining,
        accountant.spends,
        lambda: accountant.spend(None, 0.1, what="fit"),
    ):
        with pytest.raises(LedgerError, match="failed"):
            use()


# --- in the database of a ledger ------------------------------------------------------------------


def test_a_ledger_has_no_budget_until_the_first_spend_which_outlives_everything(
    folder: Path,
) -> None:
    with Ledger("ledger.db") as ledger:
        accountant = BudgetAccountant(1.0, ledger=ledger, scope="patients")
        assert cfk("budget show", "ledger.db").stdout == "no budget was used in this ledger\n"
        assert (accountant.remaining(), accountant.spends()) == ((1.0, 0.0), [])
        accountant.check(None, 0.5)
        assert shown() == {}
        accountant.spend(None, 0.75, what="fit")
        ledger.forget(ledger.handle([1]))
        assert ledger.status().releases == 0
        accountant.close()
        accountant.spend(None, 0.125, what="fit")  # the ledger was not the accountant's to close
    again = spend("patients", delta=0.0)
    with pytest.raises(BudgetError, match=r"ε = 0.125"):
        again.spend(None, 0.5, what="fit")
    again.close()
    with pytest.raises(LedgerError, match="closed"):
        again.spend(None, 0.1, what="fit")


def test_the_lowest_ceiling_holds_for_all_and_a_higher_one_is_refused(folder: Path) -> None:
    first = spend("patients", 0.5, ceiling=2.0)
    second = spend("patients")
    second.check(None, 0.5)
    first.check(None, 1.5)  # a look lowers nothing
    second.spend(None, 0.25, what="fit")
    for use in (
        lambda: first.spend(None, 0.1, what="fit"),
        lambda: first.check(None, 0.1),
        first.remaining,
    ):
        with pytest.raises(
            BudgetError, match=r"on record is ε = 1, .*higher: ε = 2, .*cfk budget raise"
        ):
            use()
    assert first.spent().epsilon == 0.75
    with pytest.raises(BudgetError, match="higher"):
        spend("patients", 0.1, ceiling=0.9, delta=1e-4)
    with pytest.raises(BudgetError, match=r"ε = 0, δ = .* left of ε = 0.7"):  # below what was spent
        spend("patients", 0.1, ceiling=0.7)


def test_show_lists_accounts_with_what_is_left_and_raise_says_from_where_to_where(
    folder: Path,
) -> None:
    spend("patients", 0.25, 0.5)
    spend("[red]visitors", 1.0)
    lines = [line.split() for line in cfk("budget show", "ledger.db").stdout.splitlines()]
    assert lines[0] == ["account", "ceiling", "spent", "left", "fits", "last"]
    assert lines[1][:6] == ["[red]visitors", "ε", "1", "1", "0", "1"]
    assert lines[3][:6] == ["patients", "ε", "1", "0.75", "0.25", "2"]
    assert lines[4] == ["δ", "1e-05", "2e-06", "8e-06"]
    patients = shown()["patients"]
    assert (patients["left"], patients["fits"]) == ({"epsilon": 0.25, "delta": 8e-06}, 2)
    assert patients["last"] == patients["spends"][1]["at"]
    assert [(s["epsilon"], s["what"]) for s in patients["spends"]] == [
        (0.25, "tree"),
        (0.5, "tree"),
    ]
    said = cfk("budget raise", "ledger.db", "--account", "[red]visitors", "--epsilon", 2.5).stdout
    assert (
        said == "raised from ε = 1, δ = 1e-05 to ε = 2.5, δ = 1e-05; ε = 1.5, δ = 9e-06 is left\n"
    )
    spend("[red]visitors", 1.5, ceiling=2.5)
    ceilings = shown()["[red]visitors"]["ceilings"]  # earlier ones stay on record
    assert [(ceiling["epsilon"], ceiling["delta"]) for ceiling in ceilings] == [
        (1.0, 1e-05),
        (2.5, 1e-05),
    ]
    cfk("budget raise", "ledger.db", "--account", "patients", "--delta", 1e-4)
    assert shown()["patients"]["ceiling"] == {"epsilon": 1.0, "delta": 1e-4}
    Path("key").write_bytes(b"k" * 32)
    Path("key").chmod(0o600)
    assert "another key" in refused("show", "ledger.db", "--key-file", "key")


def test_show_says_what_a_next_fit_would_lead_to_and_spends_nothing(folder: Path) -> None:
    accountant = BudgetAccountant(1.0, 1e-5, ledger="ledger.db", scope="patients")
    gaussian(accountant, 0.3, 1e-6, times=3)
    next_, before = ("budget show", "ledger.db", "--next", 0.3), accountant.spent()
    pure, concentrated = (
        json.loads(cfk(*next_, *more, "--json").stdout)["accounts"][0]["next"]
        for more in ((), ("--delta", 1e-6))
    )
    assert pure == {
        "spent": {"epsilon": pytest.approx(before.epsilon + 0.3, rel=1e-4), "delta": 1e-5},
        "refused": False,
    }
    assert accountant.spent() == before
    gaussian(accountant, 0.3, 1e-6)
    assert concentrated == {
        "spent": dict(zip(("epsilon", "delta"), accountant.spent(), strict=True)),
        "refused": False,
    }
    lines = cfk("budget show", "ledger.db", "--next", 2).stdout.splitlines()
    assert lines[0].split()[-1] == "then"
    assert lines[1].split()[-1] == "refused"
    assert "with --next" in refused("show", "ledger.db", "--delta", 1e-6)
    accountant.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--account", "patients", "--epsilon", "1"], "does not raise the ceiling of patients"),
        (["--account", "patients", "--epsilon", "0.5", "--delta", "0.1"], "does not raise"),
        (["--account", "patients"], "does not raise"),
        (["--account", "patients", "--delta", "0"], "does not raise"),
        (["--account", "patients", "--epsilon", "nan"], "epsilon must be finite"),
        (["--account", "patients", "--delta", "1"], "delta must be"),
        (["--account", "nobody", "--epsilon", "2"], "no budget of that name"),
        (["--account", "patients", "--epsilon", "much"], "Invalid value"),
        (["--epsilon", "2"], "Missing option"),
    ],
)
def test_wrong_raises_are_one_line_and_change_nothing(
    folder: Path, words: list[str], said: str
) -> None:
    spend("patients", 0.5)
    assert said in refused("raise", "ledger.db", *words)
    assert shown()["patients"]["left"]["epsilon"] == 0.5


def test_second_try_of_a_spend_spends_nothing(
    open_accountant: Open, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit can get lost; the transaction is tried again then, with the token that
    it had.
    """
    accountant = open_accountant(1.0, ledger=place, scope="patients")
    monkeypatch.setattr(
        "cfk_plugin.records.budget.secrets.token_hex", lambda length: "a" * 2 * length
    )
    for _ in range(2):
        accountant.spend(None, 0.75, what="fit")
    assert len(accountant.spends()) == 1


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE cfk_budget_spends SET epsilon = 'canary'", "does not fit its key"),
        ("UPDATE cfk_budget_spends SET epsilon = '-1.0'", "does not fit its key"),
        ("UPDATE cfk_budget_spends SET epsilon = '0.25'", "does not fit its key"),
        ("UPDATE cfk_budget_spends SET rho = '1e-9'", "does not fit its key"),
        ("DROP TABLE cfk_budget_spends", "check that it is there"),
        ("ALTER TABLE cfk_budget_spends RENAME COLUMN what TO why", "ledger"),
    ],
)
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_books_that_were_changed_or_are_gone_are_an_error_and_no_new_start(
    open_accountant: Open, place: str, database: sqlalchemy.Engine, statement: str, said: str
) -> None:
    accountant = open_accountant(1.0, ledger=place, scope="patients")
    accountant.spend(None, 0.5, what="canary")
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(statement))
    with pytest.raises(LedgerError, match=said) as caught:
        accountant.spend(None, 0.1, what="canary")
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None
    assert ("cfk_budget_spends" in sqlalchemy.inspect(database).get_table_names()) == (
        "DROP" not in statement
    )
