"""Make the ledgers in this folder: run once by the code of then, ``python make_ledgers.py NAME``, and kept.

`NAME.db` is the ledger with its budgets, under a key for show. `NAME.json` says what the code of then told of it, and
what it answered to further questions, which were asked of a copy.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from cfk_plugin import BudgetAccountant, Interval, Ledger, Region
from cfk_plugin.errors import BudgetError

KEY = b"a key for show, of the tests alone"
CEILINGS = {"patients": (1.0, 1e-5), "visitors": (0.75, 0.0), "nobody's": (3.0, 1e-6)}
SPENDS = [
    ("patients", 0.1, 0.0),
    ("patients", 0.2, 2e-6),
    ("visitors", 1 / 3, 0.0),
    ("patients", 1e-7, 1e-12),
    ("nobody's", 2.5, 1e-6),
    ("visitors", 0.5, 0.0),  # refused
    ("patients", 0.1, 0.0),
]
FURTHER_SPENDS = [("patients", 0.5, 0.0), ("patients", 0.11, 0.0), ("patients", 0.0999, 0.0), ("visitors", 0.4, 0.0)]


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
# Record, region, guarantee, k, people in its group, policy.
Question = tuple[int, Region, str, int, int | None, str]
QUESTIONS: list[Question] = [
    (1, span(20, 40), "nominal", 5, 7, "may"),
    (2, span(20, 40), "nominal", 5, None, "may"),
    (1, span(20, 40), "nominal", 5, 7, "may"),
    (1, span(30, 50), "nominal", 5, 7, "june"),
    (1, span(36, 60), "nominal", 4, 7, "july"),
    (1, span(37, 60), "nominal", 6, 7, "july"),
    (3, span(0, 19), "reciprocal", 10, 12, "may"),
    (3, span(0, 25), "reciprocal", 10, 30, "june"),
    (4, span(0, 19), "reciprocal", 10, 9, "may"),
    (5, span(60, 79, **ODD), "catalogue", 8, 20, "may"),
    (5, span(60, 79, **ODD), "catalogue", 8, 15, "june"),
    (6, span(60, 79), "catalogue", 8, 20, "may"),
    (7, span(60, 79), "catalogue", 8, 20, "may"),
]
FURTHER_QUESTIONS: list[Question] = [
    (1, span(38, 60), "nominal", 2, None, "august"),
    (1, span(35, 45), "nominal", 2, None, "august"),
    (1, span(20, 40), "reciprocal", 5, 40, "august"),
    (3, span(0, 19), "reciprocal", 11, 50, "august"),
    (3, span(0, 19), "reciprocal", 13, 50, "august"),
    (5, span(60, 70), "catalogue", 12, 50, "august"),
    (5, span(60, 79, **ODD), "nominal", 8, None, "august"),
    (7, span(60, 79), "catalogue", 8, 9, "august"),
    (9, span(0, 9), "nominal", 10, None, "august"),
    (9, span(0, 8), "nominal", 10, None, "august"),
]


def ask(ledger: Ledger, questions: list[Question]) -> list[list[Any]]:
    """Put questions to a ledger; return what it answered."""
    rule = import_module(Ledger.__module__.removesuffix("ledger") + "rule")
    answers = []
    for record, region, guarantee, k, effective, policy in questions:
        handle = ledger.handle([record, "somebody", None])
        settings = {"region": region, "policy": policy, "population": "f" * 16, "guarantee": guarantee}
        candidate = rule.Candidate(record=handle, k=k, effective=effective, **settings)
        (decision,) = ledger.settle([candidate], count, lambda i, region: count([region]) >= k)  # noqa: B023
        answers.append([decision.outcome, spelled(decision.region), decision.effective, decision.people])
    return answers


def spelled(region: Region | None) -> dict[str, Any] | None:
    """Return a region as texts that depend on nothing but the region."""
    parts = {} if region is None else region
    return {n: sorted(map(str, p)) if isinstance(p, frozenset) else str(p) for n, p in parts.items()} or None


def count(regions: Any) -> int:
    """Count people of whom one is of each age."""
    return sum(all(age in region["age"] for region in regions) for age in range(100))


def spend(ledger: Ledger, asked: list[tuple[str, float, float]]) -> list[list[Any]]:
    """Spend; return what is left each time, and whether it was refused."""
    answers: list[list[Any]] = []
    for scope, *amounts in asked:
        accountant = BudgetAccountant(*CEILINGS[scope], ledger=ledger, scope=scope)
        try:
            accountant.spend(None, *amounts, what="a fit")
            answers.append(["spent", *accountant.remaining()])
        except BudgetError:
            answers.append(["refused", *accountant.remaining()])
    return answers


def describe(ledger: Ledger) -> dict[str, Any]:
    """Return all that a ledger tells of itself, but for where it is."""
    scopes = [BudgetAccountant(*CEILINGS[scope], ledger=ledger, scope=scope) for scope in CEILINGS]
    return {
        "status": {name: value for name, value in asdict(ledger.status()).items() if name != "database"},
        "export": list(ledger.export()),
        "spends": [[asdict(spend) for spend in accountant.spends()] for accountant in scopes],
        "left": [accountant.remaining() for accountant in scopes],
        "spent": [accountant.spent() for accountant in scopes],
    }


@contextmanager
def copy_of(file: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copy(file, folder))


if __name__ == "__main__":
    file = Path(__file__).with_name(sys.argv[1] + ".db")
    with Ledger(file, key=KEY, create=True) as ledger:
        ask(ledger, QUESTIONS)
        spend(ledger, SPENDS)
        ledger.forget(ledger.handle([6, "somebody", None]))
        told = describe(ledger)
    with copy_of(file) as other, Ledger(other, key=KEY) as ledger:
        told |= {"answers": ask(ledger, FURTHER_QUESTIONS), "allowed": spend(ledger, FURTHER_SPENDS)}
    file.with_suffix(".json").write_text(json.dumps(told, indent=1, ensure_ascii=True) + "\n")
