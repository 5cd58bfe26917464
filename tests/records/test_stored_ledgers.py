"""Ledgers and budgets that earlier code wrote: today's opens, verifies and continues them, with the same answers."""

from __future__ import annotations

import json
import runpy
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin import BudgetAccountant, Ledger
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.budget import accounts

STORED = Path(__file__).resolve().parents[1] / "stored"
THEN = runpy.run_path(str(STORED / "make_ledgers.py"))


@pytest.fixture(params=["ledger_1", "ledger_2"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a copy of a ledger, and what the code that made it told of it."""
    told = json.loads((STORED / f"{request.param}.json").read_text())
    file = Path(shutil.copy(STORED / f"{request.param}.db", tmp_path))
    if told["status"]["version"] == 1:
        with pytest.raises(LedgerError, match="cfk ledger upgrade"):
            Ledger(file, key=THEN["KEY"])
        rows = len(told["export"]) + sum(map(len, told["spends"])) + len(told["spends"])  # a ceiling each
        assert Ledger.upgrade(file, key=THEN["KEY"]) == rows
    return file, told


def test_counts_rows_and_budgets_are_those_of_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=THEN["KEY"]) as ledger:
        found = json.loads(json.dumps(THEN["describe"](ledger)))
        head = told["status"].get("head")
        assert asdict(ledger.verify(head)) == asdict(ledger.status())
        assert [account.name for account in accounts(ledger)] == sorted(THEN["CEILINGS"])
    if told["status"]["version"] == 1:
        told["status"] |= {name: found["status"][name] for name in ("version", "entries", "head")}
        assert found["status"]["version"] == 2
    assert found == {name: told[name] for name in found}


def test_further_questions_are_answered_as_then(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=THEN["KEY"]) as ledger:
        answers = json.loads(json.dumps(THEN["ask"](ledger, THEN["FURTHER_QUESTIONS"])))
        allowed = THEN["spend"](ledger, THEN["FURTHER_SPENDS"])
    assert answers == told["answers"]
    assert {answer[0] for answer in answers} == {"new", "again", "earlier", "refused"}
    assert allowed == told["allowed"]
    with Ledger(file, key=THEN["KEY"]) as again:
        again.verify()


def test_an_older_head_is_in_the_chain_after_more_was_released(stored: tuple[Path, dict[str, Any]]) -> None:
    file, told = stored
    with Ledger(file, key=THEN["KEY"]) as ledger:
        before = ledger.status()
        THEN["ask"](ledger, THEN["FURTHER_QUESTIONS"])
        accountant = BudgetAccountant(*THEN["CEILINGS"]["patients"], ledger=ledger, scope="patients")
        accountant.spend(None, 0.5, what="a fit")
        for head in (before.head, told["status"].get("head")):
            assert ledger.verify(head).entries > before.entries
