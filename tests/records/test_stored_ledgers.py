"""Ledgers and budgets that earlier code wrote: today's opens, verifies and continues them, with the
same answers.

`ledger_1` is of version 1 of the tables. Beside each is what the code of then told of it, and what
it answered to the questions below, asked of a copy. Neither can be made again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin import BudgetAccountant, Interval, Ledger, Region
from cfk_plugin.errors import BudgetError, LedgerError
from cfk_plugin.records.budget import accounts
from cfk_plugin.records.rule import Candidate

STORED = Path(__file__).resolve().parents[1] / "stored"
KEY = b"a key for show, of the tests alone"
CEILINGS = {"patients": (1.0, 1e-5), "visitors": (0.75, 0.0), "nobody's": (3.0, 1e-6)}
SPENDS = [
    ("patients", 0.5, 0.0),
    ("patients", 0.11, 0.0),
    ("patients", 0.0999, 0.0),
    ("visitors", 0.4, 0.0),
]


def span(low: int, high: int, **others: Any) -> Region:
    return Region({"age": Interval(low, high), **others})


ODD = {
    "paid": frozenset({Decimal("10.50"), Decimal(3)}),
    "born": Interval(date(2001, 2, 3), date(2004, 5, 6)),
    "seen": frozenset({datetime(2020, 1, 2, 3, 4, 5)}),  # noqa: DTZ001
    "size": Interval("S", "L", levels=("S", "M", "L")),
    "town": frozenset({"Ghent", "Liège", None}),
    "share": Interval(0.25, 1e-3 + 1, missing=True),
    "member": frozenset({True}),
}
# record, region, guarantee, k, people in its group
QUESTIONS: list[tuple[int, Region, str, int, int | None]] = [
    (1, span(38, 60), "nominal", 2, None),
    (1, span(35, 45), "nominal", 2, None),
    (1, span(20, 40), "reciprocal", 5, 40),
    (3, span(0, 19), "reciprocal", 11, 50),
    (3, span(0, 19), "reciprocal", 13, 50),
    (5, span(60, 70), "catalogue", 12, 50),
    (5, span(60, 79, **ODD), "nominal", 8, None),
    (7, span(60, 79), "catalogue", 8, 9),
    (9, span(0, 9), "nominal", 10, None),
    (9, span(0, 8), "nominal", 10, None),
]


def count(regions: Any) -> int:
    return sum(all(age in region["age"] for region in regions) for age in range(100))


def spelled(region: Region | None) -> dict[str, Any] | None:
    """Return a region as texts that depend on nothing but the region."""
    parts = {} if region is None else region
    return {
        n: sorted(map(str, p)) if isinstance(p, frozenset) else str(p) for n, p in parts.items()
    } or None


def ask(ledger: Ledger) -> list[list[Any]]:
    answers = []
    for record, region, guarantee, k, effective in QUESTIONS:
        handle = ledger.handle([record, "somebody", None])
        known = {
            "policy": "august",
            "population": "f" * 16,
            "guarantee": guarantee,
            "k": k,
            "effective": effective,
        }
        wanted = Candidate(record=handle, region=region, **known)
        (decision,) = ledger.settle([wanted], count, lambda i, region, k=k: count([region]) >= k)
        answers.append(
            [decision.outcome, spelled(decision.region), decision.effective, decision.people]
        )
    return answers


def spend(ledger: Ledger) -> list[list[Any]]:
    """Spend; return what is left each time, and whether it was refused."""
    answers: list[list[Any]] = []
    for scope, *amounts in SPENDS:
        accountant = BudgetAccountant(*CEILINGS[scope], ledger=ledger, scope=scope)
        try:
            accountant.spend(None, *amounts, what="a fit")
            answers.append(["spent", *accountant.remaining()])
        except BudgetError:
            answers.append(["refused", *accountant.remaining()])
    return answers


@pytest.fixture(params=["ledger_1", "ledger_2"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a ledger, and what the code that made it told of it."""
    told = json.loads((STORED / f"{request.param}.json").read_text())
    file = Path(shutil.copy(STORED / f"{request.param}.db", tmp_path))
    if told["status"]["version"] == 1:
        with pytest.raises(LedgerError, match="cfk ledger upgrade"):
            Ledger(file, key=KEY)
        # a ceiling each
        rows = len(told["export"]) + sum(map(len, told["spends"])) + len(told["spends"])
        assert Ledger.upgrade(file, key=KEY) == rows
    with pytest.raises(LedgerError, match="already"):
        Ledger.upgrade(file, key=KEY)
    return file, told


def test_counts_rows_and_budgets_are_those_of_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=KEY) as ledger:
        status = asdict(ledger.verify(told["status"].get("head")))
        assert status == asdict(ledger.status())
        if told["status"]["version"] == 1:
            told["status"] |= {"version": 2, "entries": status["entries"], "head": status["head"]}
        assert told["status"] == {
            name: value for name, value in status.items() if name != "database"
        }
        assert told["export"] == list(ledger.export())
        assert [account.name for account in accounts(ledger)] == sorted(CEILINGS)
        budgets = [
            BudgetAccountant(*CEILINGS[scope], ledger=ledger, scope=scope) for scope in CEILINGS
        ]
        assert told["spends"] == [
            [asdict(spend) for spend in budget.spends()] for budget in budgets
        ]
        assert told["left"] == [list(budget.remaining()) for budget in budgets]
        assert told["spent"] == [list(budget.spent()) for budget in budgets]


def test_further_questions_are_answered_as_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=KEY) as ledger:
        before = ledger.status()
        assert ask(ledger) == told["answers"]
        assert spend(ledger) == told["allowed"]
        assert {answer[0] for answer in told["answers"]} == {"new", "again", "earlier", "refused"}
        for head in (before.head, told["status"].get("head")):  # an older one is in the chain
            assert ledger.verify(head).entries > before.entries
    Ledger(file, key=KEY).close()
