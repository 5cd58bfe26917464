"""Budgets: spending under a ceiling, in memory or in a file, by several who spend at once."""

from __future__ import annotations

import copy
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import budget_workload
from cfk_plugin import BudgetAccountant
from cfk_plugin.dp.budget import Account, raise_ceiling
from cfk_plugin.dp.composition import Budget, RenyiOrder, Spend, largest_rho
from cfk_plugin.errors import BudgetError, InputError
from commands import cfk


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Return where a budget can be."""
    return tmp_path / "budget.db" if request.param == "file" else None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a budget of ε = 1, δ = 1e-5, of which ε = 0.75 is spent."""
    file = tmp_path / "budget.db"
    accountant = BudgetAccountant(1.0, 1e-5, path=file)
    accountant.spend(0.25, 1e-6, what="[red]tree")
    accountant.spend(0.5, 1e-6, what="forest")
    return file


# --- spending -------------------------------------------------------------------------------------


def test_spends_add_up_to_the_ceiling(path: Path | None) -> None:
    accountant = BudgetAccountant(np.float64(1.0), 1e-5, path=path)
    accountant.spend(np.float64(0.75), 6e-6, what="first")
    with pytest.raises(
        BudgetError,
        match=r"has ε = 0.25, δ = 4e-06 left of ε = 1, δ = 1e-05, and the fit needs ε = 0.3, δ = 0",
    ):
        accountant.spend(0.3, what="too much ε")
    with pytest.raises(BudgetError, match=r"needs ε = 0.1, δ = 5e-06; nothing was spent"):
        accountant.spend(0.1, 5e-6, what="too much δ")
    assert accountant.remaining() == (0.25, 4e-6)
    accountant.spend(0.25, 4e-6, what="second")
    assert accountant.remaining() == (0.0, 0.0)
    assert accountant.spent() == (1.0, 1e-5)
    first, second = accountant.spends()
    assert (first.epsilon, first.delta, first.what, second.what) == (0.75, 6e-6, "first", "second")
    assert first.at <= second.at
    assert repr(accountant) == "BudgetAccountant(epsilon=1, delta=1e-05)"


def test_threads_spend_no_more_than_the_ceiling(path: Path | None) -> None:
    shared = BudgetAccountant(1.0, path=path)

    def count_spends(number: int) -> int:
        # In memory there is one accountant; each thread may have its own for a file.
        accountant = shared if path is None or number % 2 else BudgetAccountant(1.0, path=path)
        n_spends = 0
        for _ in range(6):
            try:
                accountant.spend(0.05, what=f"thread {number}")
            except BudgetError:
                continue
            n_spends += 1
        return n_spends

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(count_spends, range(6))) == 20
    assert shared.spent() == (1.0, 0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="starts its workers with fork")
def test_killed_processes_spend_no_more_than_the_ceiling(tmp_path: Path) -> None:
    """A killed process may have spent without telling; it never told without having spent."""
    file, spent = tmp_path / "budget.db", tmp_path / "spent"
    spent.mkdir()
    words = [str(file), str(spent), "3", "2"]
    # fork wants no threads
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    program = subprocess.run(
        [sys.executable, budget_workload.__file__, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert program.returncode == 0, program.stderr
    assert [path.read_text() for path in spent.glob("*.failed")] == []
    n_allowed = sum(path.read_bytes().count(b"\n") for path in spent.glob("*.txt"))
    n_killed = int(program.stdout)
    assert budget_workload.SPENDS - n_killed <= n_allowed <= budget_workload.SPENDS
    accountant = BudgetAccountant(budget_workload.CEILING, path=file)
    assert len(accountant.spends()) == budget_workload.SPENDS
    assert (accountant.spent(), accountant.remaining()) == ((15.0, 0.0), (0.0, 0.0))


# --- amounts, exactly -----------------------------------------------------------------------------

SHARE = Fraction(1, 2**52)  # by which a float may lie beside its decimal, at most
epsilons = st.floats(1e-6, 3.0) | st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.7, 1e-6])
deltas = st.just(0.0) | st.floats(1e-12, 1e-5)


@settings(max_examples=25)
@given(epsilons, deltas, st.lists(st.tuples(epsilons, deltas), max_size=8))
def test_spends_never_exceed_the_ceiling_and_what_is_left_can_be_spent(
    epsilon: float, delta: float, asked: list[tuple[float, float]]
) -> None:
    accountant = BudgetAccountant(epsilon, delta)
    let_through: list[tuple[float, float]] = []
    for pair in asked:
        before = accountant.remaining()
        try:
            accountant.spend(*pair, what="fit")
        except BudgetError:
            assert pair[0] > before.epsilon or pair[1] > before.delta  # no refusal without a reason
            assert accountant.remaining() == before
        else:
            let_through.append(pair)
    if (left := accountant.remaining()).epsilon > 0:
        accountant.spend(*left, what="the rest")
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
        accountant.spend(epsilon, delta, what="fit", rho=rho)
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
    accountant.spend(0.25, what="pure")
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
    accountant.spend(*left, what="the rest")
    assert accountant.spent().epsilon == pytest.approx(2.0, rel=2e-5)


def test_spends_that_told_no_rho_can_only_be_added() -> None:
    accountant = BudgetAccountant(1.0, 1e-5)
    accountant.spend(0.3, 1e-6, what="told nothing")
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
            accountant.spend(0.01, what="fit", **wrong)  # type: ignore[arg-type]


def test_the_first_spend_with_a_delta_decides_how_its_account_counts() -> None:
    ceiling = Budget(1.0, 1e-5)
    order = RenyiOrder.of(ceiling)
    assert order is not None
    concentrated = {"delta": 1e-7, "rho": 1e-4}

    at_the_order = BudgetAccountant(*ceiling)
    at_the_order.spend(0.1, what="pure")
    at_the_order.spend(0.05, what="decides", **concentrated)
    left = order.max_loss - 0.1 - order.alpha * 1e-4
    assert at_the_order.remaining().epsilon == pytest.approx(left, rel=1e-6)
    assert at_the_order.remaining().delta == 0
    for refused in ({"epsilon": left + 0.01}, {"epsilon": 0.01, "delta": 1e-7}):
        with pytest.raises(BudgetError, match="nothing was spent"):
            at_the_order.spend(what="within the sums alone", **refused)
    at_the_order.spend(0.99 * left, what="pure")

    by_sums = BudgetAccountant(*ceiling)
    by_sums.spend(0.1, 1e-7, what="decides")
    by_sums.spend(0.05, what="concentrated", **concentrated)
    assert by_sums.remaining() == Budget(0.85, 9.8e-6)
    with pytest.raises(BudgetError, match="nothing was spent"):
        by_sums.spend(0.9, 1e-7, rho=1e-4, what="within the order alone")

    too_large_for_the_order = BudgetAccountant(*ceiling)
    too_large_for_the_order.spend(0.5, 1e-7, rho=1.0, what="decides")
    assert too_large_for_the_order.remaining() == Budget(0.5, 9.9e-6)


def test_a_later_ceiling_does_not_change_the_order(tmp_path: Path) -> None:
    file = tmp_path / "budget.db"

    def accountant(epsilon: float, delta: float) -> BudgetAccountant:
        return BudgetAccountant(epsilon, delta, path=file)

    def left_at_the_order(epsilon: float, delta: float, loss: float) -> Any:
        """By hand: what converting at the order of the first ceiling, 5 and 1e-5, leaves."""
        conversion = math.log(1 - 1 / alpha) - math.log(alpha * delta) / (alpha - 1)
        return pytest.approx(epsilon - conversion - loss, rel=1e-6)

    order = RenyiOrder.of(Budget(5.0, 1e-5))
    assert order is not None
    alpha = order.alpha

    concentrated = accountant(5.0, 1e-5)
    concentrated.spend(0.4, 1e-9, rho=0.08, what="decides")
    loss = alpha * 0.08
    assert concentrated.remaining().epsilon == left_at_the_order(5.0, 1e-5, loss)
    # The spend is not within this ceiling at the ceiling's own order.
    too_low = accountant(0.5, 1e-5)
    assert too_low.remaining() == (0.0, 0.0)
    for refused in ({"epsilon": 0.05, "delta": 5e-6}, {"epsilon": 0.01}):
        with pytest.raises(BudgetError, match="nothing was spent"):
            too_low.spend(what="within the sums alone", **refused)
    assert too_low.spent() == (0.4, 1e-9)
    raise_ceiling(file, epsilon=5.5, delta=1e-4)
    raised = accountant(5.5, 1e-4)
    assert raised.remaining().epsilon == left_at_the_order(5.5, 1e-4, loss)
    raised.spend(0.25, what="pure")
    lower = accountant(4.0, 1e-6)
    assert lower.remaining().epsilon == left_at_the_order(4.0, 1e-6, loss + 0.25)
    without_delta = accountant(4.0, 0.0)
    assert without_delta.remaining() == (0.0, 0.0)
    with pytest.raises(BudgetError, match="nothing was spent"):
        without_delta.spend(0.1, what="pure")
    assert without_delta.spent() == (0.65, 1e-9)


def test_the_ceiling_in_force_gives_the_order(tmp_path: Path) -> None:
    file = tmp_path / "budget.db"
    BudgetAccountant(5.0, 1e-5, path=file).spend(0.1, what="pure")
    lower = BudgetAccountant(1.0, 1e-6, path=file)
    lower.spend(0.05, 1e-8, rho=1e-4, what="decides")
    order = RenyiOrder.of(Budget(1.0, 1e-6))
    assert order is not None
    left = order.max_loss - 0.1 - order.alpha * 1e-4
    assert lower.remaining().epsilon == pytest.approx(left, rel=1e-6)


def test_other_mistakes_are_said() -> None:
    for use, message in (
        (lambda: BudgetAccountant(1.0, path=3), "got int"),  # type: ignore[arg-type]
        (lambda: BudgetAccountant.set_default(3), "got int"),  # type: ignore[arg-type]
        (lambda: BudgetAccountant(1.0).spend(0.5, what="\n"), "one line"),
        (lambda: BudgetAccountant(1.0).spend(0.5, what=7), "one line"),  # type: ignore[arg-type]
    ):
        with pytest.raises(BudgetError, match=message):
            use()


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
    account = Account((ceiling,)).after(Spend(epsilon=0.1, delta=1e-10, rho=rho))
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
        whole.spend(0.6, 1e-5, rho=rho / 2 * (1 - 2e-9), what="half")
    assert whole.spent() == (1.0, 1e-5)
    assert whole.remaining().epsilon < 1e-8
    large_delta = BudgetAccountant(1.0, 0.5)
    large_delta.spend(1.0, 0.1, rho=1e-4, what="converts to less than 0")
    assert large_delta.spent() == (0.0, 0.5)


def test_a_refusal_at_the_order_says_what_the_account_takes() -> None:
    accountant = BudgetAccountant(1.0, 1e-5)
    gaussian(accountant, 0.3, 1e-6)
    with pytest.raises(BudgetError, match=r"counts at an order.* a fit with a δ needs its ρ"):
        accountant.spend(0.01, 1e-9, what="fit")
    with pytest.raises(BudgetError, match="nothing was spent") as caught:
        BudgetAccountant(1.0, 1e-5).spend(2.0, what="fit")
    assert "order" not in str(caught.value)


def test_one_fit_may_use_the_whole_ceiling_and_a_lower_one_is_kept_to() -> None:
    accountant = BudgetAccountant(1.0, 1e-6)
    gaussian(accountant, 1.0, 1e-6)
    assert accountant.spent() == (1.0, 1e-6)
    with pytest.raises(BudgetError):
        gaussian(accountant, 0.01, 1e-6)


@pytest.mark.parametrize(("parts", "of"), [(10, 10), (3, 10), (7, 1000), (29, 1000)])
def test_equal_parts_fill_a_ceiling_exactly_and_not_a_bit_more_fits(parts: int, of: int) -> None:
    accountant = BudgetAccountant(parts / of)
    for _ in range(parts):
        accountant.spend(1 / of, what="fit")
    assert accountant.spent() == (parts / of, 0.0)
    with pytest.raises(BudgetError):
        accountant.spend(1e-300, what="fit")


@pytest.mark.parametrize(
    "epsilon", [0, -1.0, float("inf"), float("nan"), "1", None, True, 10**400, 2**53 + 1]
)
def test_epsilon_must_be_finite_and_positive(epsilon: Any) -> None:
    accountant = BudgetAccountant(1.0)
    for use in (
        lambda: BudgetAccountant(epsilon),
        lambda: accountant.spend(epsilon, what="fit"),
    ):
        with pytest.raises(BudgetError, match="epsilon"):
            use()
    assert accountant.spends() == []


@pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan"), "0", None])
def test_delta_must_be_below_1(delta: Any) -> None:
    for use in (
        lambda: BudgetAccountant(1.0, delta),
        lambda: BudgetAccountant(1.0).spend(0.5, delta, what="fit"),
    ):
        with pytest.raises(BudgetError, match="delta"):
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
    accountant = BudgetAccountant(1.0)
    assert (
        copy.copy(accountant)
        is copy.deepcopy({"accountant": accountant})["accountant"]
        is accountant
    )
    with pytest.raises(InputError, match="pickled"):
        pickle.dumps(accountant)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_fork_does_not_double_a_budget_in_memory() -> None:
    accountant = BudgetAccountant(1.0)
    child = os.fork()
    if not child:
        code = 1
        try:
            accountant.spend(0.5, what="fit")
        except BudgetError as error:
            code = 0 if "another process" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    accountant.spend(1.0, what="fit")


# --- in a file ------------------------------------------------------------------------------------


def test_budget_in_a_file_outlives_its_accountant(file: Path) -> None:
    with pytest.raises(BudgetError, match=r"ε = 0.25, δ = 8e-06 left"):
        BudgetAccountant(1.0, 1e-5, path=file).spend(0.5, what="fit")


def test_lowest_ceiling_holds_for_all(file: Path) -> None:
    first = BudgetAccountant(1.0, 1e-5, path=file)
    lower = BudgetAccountant(0.9, path=file)
    assert first.remaining() == (0.25, 8e-6)  # looking at a budget lowers nothing
    with pytest.raises(BudgetError, match="nothing was spent"):
        lower.spend(0.1, what="fit")  # the deltas spent are above its ceiling
    for use in (lambda: first.spend(0.1, what="fit"), first.remaining):
        with pytest.raises(
            BudgetError, match=r"on record is ε = 0.9, .*higher: ε = 1, .*cfk budget raise"
        ):
            use()
    assert first.spent() == (0.75, 2e-6)


def test_budget_of_a_lost_file_does_not_start_again(file: Path) -> None:
    accountant = BudgetAccountant(1.0, 1e-5, path=file)
    file.unlink()
    for use in (accountant.remaining, lambda: accountant.spend(0.1, what="fit")):
        with pytest.raises(BudgetError, match="cannot be read or written"):
            use()
    assert not file.exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE cfk_budget SET epsilon = 'canary'", "epsilon must be a number"),
        ("UPDATE cfk_budget SET epsilon = -1.0", "epsilon must be finite and above 0"),
        ("DROP TABLE cfk_budget", "cannot be read or written"),
    ],
)
def test_damaged_file_allows_no_spend(file: Path, statement: str, message: str) -> None:
    accountant = BudgetAccountant(1.0, 1e-5, path=file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(BudgetError, match=message) as caught:
        accountant.spend(0.1, what="fit")
    assert "canary" not in str(caught.value)


def test_file_that_is_no_budget_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("age,salary\n" + "24,60000\n" * 100)
    for place in (file, tmp_path / "missing" / "budget.db"):
        with pytest.raises(BudgetError, match="cannot be read or written"):
            BudgetAccountant(1.0, path=place)


# --- the command ----------------------------------------------------------------------------------


def test_show_lists_amounts_and_fits(file: Path) -> None:
    lines = [line.split() for line in cfk("budget show", file).stdout.splitlines()]
    assert lines[0] == ["ε", "δ", "day", "what"]
    assert lines[1:4] == [
        ["ceiling", "1", "1e-05"],
        ["spent", "0.75", "2e-06"],
        ["left", "0.25", "8e-06"],
    ]
    assert [line[-1] for line in lines[4:]] == ["[red]tree", "forest"]


def test_show_tells_of_a_budget_without_spends(tmp_path: Path) -> None:
    BudgetAccountant(1.0, path=tmp_path / "budget.db")
    assert cfk("budget show", tmp_path / "budget.db").stdout == "nothing was spent yet\n"
    assert "no such file" in cfk("budget show", tmp_path / "lost.db", code=2).stderr


def test_raise_leaves_more_to_spend(file: Path) -> None:
    text = cfk("budget raise", file, "--epsilon", 2.5).stdout
    assert text == (
        "raised from ε = 1, δ = 1e-05 to ε = 2.5, δ = 1e-05; ε = 1.75, δ = 8e-06 is left\n"
    )
    BudgetAccountant(2.5, 1e-5, path=file).spend(1.5, what="fit")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epsilon", "1"], "does not raise the ceiling"),
        (["--epsilon", "0.5", "--delta", "0.1"], "does not raise"),
        ([], "does not raise"),
        (["--delta", "0"], "does not raise"),
        (["--epsilon", "nan"], "epsilon must be finite"),
        (["--delta", "1"], "delta must be"),
        (["--epsilon", "much"], "Invalid value"),
    ],
)
def test_wrong_raise_changes_nothing(file: Path, words: list[str], message: str) -> None:
    stderr = cfk("budget raise", file, *words, code=2).stderr
    assert message in stderr
    assert len(stderr.splitlines()) == 1
    assert BudgetAccountant(1.0, 1e-5, path=file).remaining().epsilon == 0.25
