"""A ledger and budgets that earlier code wrote: today's opens, verifies and continues them, with
the same answers. Those of versions that did not say who shared a region are refused.

Beside `ledger_1.db` is what the code of then told of it, and what it answered to the questions
below, asked of a copy. Run this file as a program to write both anew.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import BudgetAccountant, Interval, Ledger, Region, Schema
from cfk_plugin.errors import BudgetError, LedgerError
from cfk_plugin.records.account import accounts
from cfk_plugin.records.rule import Candidate, RegionPeople

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
QUESTIONS: list[tuple[int, Region, str, int, int]] = [
    (1, span(38, 60), "lookup", 2, 0),
    (1, span(35, 45), "lookup", 2, 0),
    (1, span(20, 40), "reciprocal", 5, 20),
    (3, span(0, 19), "reciprocal", 11, 20),
    (3, span(0, 19), "reciprocal", 13, 20),
    (5, span(60, 70), "catalogue", 12, 10),
    (5, span(60, 79, **ODD), "lookup", 8, 0),
    (7, span(60, 79), "catalogue", 8, 9),
    (9, span(0, 9), "lookup", 10, 0),
    (9, span(0, 8), "lookup", 10, 0),
]
BEFORE: list[tuple[int, Region, str, int, int]] = [
    (1, span(20, 60), "lookup", 5, 0),
    (1, span(36, 60), "lookup", 5, 0),
    (2, span(20, 60), "lookup", 5, 0),
    (3, span(0, 19), "reciprocal", 10, 12),
    (5, span(60, 79, **ODD), "catalogue", 12, 20),
    (7, span(60, 79), "catalogue", 8, 20),
]


@dataclass(frozen=True)
class Ages:
    """A population with one person of each age; a region is accepted while it has k people."""

    k: int

    def inside(self, region: Region) -> frozenset[str]:
        return frozenset(f"{age:016x}" for age in range(100) if age in region["age"])

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        return len(people.inside) >= self.k


def spelled(region: Region | None) -> dict[str, Any] | None:
    """Return a region as texts that depend on nothing but the region."""
    parts = {} if region is None else region
    return {
        n: sorted(map(str, p)) if isinstance(p, frozenset) else str(p) for n, p in parts.items()
    } or None


def ask(
    ledger: Ledger, questions: list[tuple[int, Region, str, int, int]], policy: str
) -> list[list[Any]]:
    answers = []
    for record, region, guarantee, k, people in questions:
        ages = [age for age in range(100) if age in region["age"]]
        wanted = Candidate(
            record=ledger.handle([record, "somebody", None]),
            region=region,
            policy=policy,
            population="f" * 16,
            guarantee=guarantee,
            k=k,
            members=frozenset(f"{age:016x}" for age in ages[:people]),
        )
        (decision,) = ledger.settle([wanted], Ages(k))
        answers.append(
            [decision.outcome, spelled(decision.region), decision.reason, decision.people]
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


def told_of(ledger: Ledger) -> dict[str, Any]:
    """Return what the code tells of a ledger, as JSON has it."""
    status = asdict(ledger.verify())
    del status["database"]
    budgets = [BudgetAccountant(*CEILINGS[scope], ledger=ledger, scope=scope) for scope in CEILINGS]
    columns = ledger.columns()
    assert columns is not None
    told = {
        "status": status,
        "export": list(ledger.export()),
        "columns": asdict(columns),
        "editions": [
            [edition.added, sorted(edition.people)] for edition in ledger.editions("a series")
        ],
        "spends": [[asdict(spend) for spend in budget.spends()] for budget in budgets],
        "left": [list(budget.remaining()) for budget in budgets],
    }
    return dict(json.loads(json.dumps(told)))


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a ledger, and what the code that made it told of it."""
    told = json.loads((STORED / "ledger_1.json").read_text())
    return Path(shutil.copy(STORED / "ledger_1.db", tmp_path)), told


def test_counts_rows_and_budgets_are_those_of_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=KEY) as ledger:
        assert told_of(ledger) == told["ledger"]
        assert [account.name for account in accounts(ledger)] == sorted(CEILINGS)
        ledger.verify(told["ledger"]["status"]["head"])


def test_further_questions_are_answered_as_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=KEY) as ledger:
        before = ledger.status()
        assert ask(ledger, QUESTIONS, "august") == told["answers"]
        assert spend(ledger) == told["allowed"]
        assert {answer[0] for answer in told["answers"]} == {"new", "again", "earlier", "refused"}
        assert ledger.verify(before.head).entries > before.entries
    Ledger(file, key=KEY).close()


def test_a_ledger_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    file = Path(shutil.copy(STORED / "before_release" / "ledger.db", tmp_path))
    before = file.read_bytes()
    with pytest.raises(LedgerError, match=r"before the first release.*make another"):
        Ledger(file, key=KEY)
    with pytest.raises(LedgerError, match="already"):
        Ledger(file, key=KEY, create=True)
    assert file.read_bytes() == before


def write() -> None:
    """Write a ledger with this version of the code, and what it tells and answers."""
    file = STORED / "ledger_1.db"
    file.unlink(missing_ok=True)
    with Ledger(file, key=KEY, create=True) as ledger:
        table = pd.DataFrame({"who": ["a", "b"], "age": [1, 2], "town": ["x", "y"]})
        ledger.bind(Schema.from_frame(table, quasi_identifiers=["age"], subject="who"))
        ledger.add_edition("a series", 0, {"values": [["", [1.5, "x"]]]}, [f"{7:016x}"])
        ask(ledger, BEFORE, "may")
        ask(ledger, BEFORE[:3], "june")
        ledger.forget(ledger.handle([2, "somebody", None]), people=[f"{61:016x}"])
        for scope, (epsilon, delta) in CEILINGS.items():
            accountant = BudgetAccountant(epsilon, delta, ledger=ledger, scope=scope)
            accountant.spend(None, epsilon / 3, delta / 3, what="a fit")
        told = told_of(ledger)
    with tempfile.TemporaryDirectory() as folder:
        with Ledger(shutil.copy(file, folder), key=KEY) as ledger:
            answers = ask(ledger, QUESTIONS, "august")
            content = {"ledger": told, "answers": answers, "allowed": spend(ledger)}
    (STORED / "ledger_1.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write()
