from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cfk_plugin import BudgetAccountant, Ledger
from cfk_plugin.cli import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFK_LEDGER", raising=False)
    monkeypatch.delenv("CFK_LEDGER_KEY", raising=False)
    return tmp_path


def cfk(*words: Any, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["budget", *map(str, words)])
    assert result.exit_code == code, result.output
    if code:
        assert result.stderr.startswith("cfk: ")
        assert len(result.stderr.splitlines()) == 1
    return result


def spend(scope: str, *amounts: float, ceiling: float = 1.0) -> None:
    if not Path("ledger.db").exists():
        Ledger("ledger.db", create=True).close()
    accountant = BudgetAccountant(ceiling, 1e-5, ledger="ledger.db", scope=scope)
    for epsilon in amounts:
        accountant.spend(None, epsilon, 1e-6, what="tree")
    accountant.close()


def test_show_lists_accounts_with_what_is_left(folder: Path) -> None:
    spend("patients", 0.25, 0.5)
    spend("[red]visitors", 1.0)
    lines = cfk("show", "ledger.db").stdout.splitlines()
    assert lines[0].split() == ["account", "ceiling", "spent", "left", "fits", "last"]
    assert lines[1].split()[:6] == ["[red]visitors", "ε", "1", "1", "0", "1"]
    assert lines[3].split()[:6] == ["patients", "ε", "1", "0.75", "0.25", "2"]
    assert lines[4].split() == ["δ", "1e-05", "2e-06", "8e-06"]
    content = json.loads(cfk("show", "ledger.db", "--json").stdout)
    patients = content["accounts"][1]
    assert patients["account"] == "patients"
    assert patients["left"] == {"epsilon": 0.25, "delta": 8e-06}
    assert patients["fits"] == 2
    assert patients["last"] == patients["spends"][1]["at"]
    assert [(s["epsilon"], s["what"]) for s in patients["spends"]] == [(0.25, "tree"), (0.5, "tree")]
    assert patients["ceilings"] == [patients["ceiling"]] == [{"epsilon": 1.0, "delta": 1e-05}]


def test_show_makes_nothing(folder: Path) -> None:
    assert "no such ledger" in cfk("show", "none.db", code=2).stderr
    assert "no such ledger" in cfk("raise", "none.db", "--account", "a", "--epsilon", 2, code=2).stderr
    assert list(folder.iterdir()) == []
    Ledger("ledger.db", create=True).close()
    assert cfk("show", "ledger.db").stdout == "no budget was used in this ledger\n"
    assert json.loads(cfk("show", "ledger.db", "--json").stdout) == {"accounts": []}


def test_raise_says_from_where_to_where(folder: Path) -> None:
    spend("patients", 1.0)
    said = cfk("raise", "ledger.db", "--account", "patients", "--epsilon", 2.5).stdout
    assert said == "raised from ε = 1, δ = 1e-05 to ε = 2.5, δ = 1e-05; ε = 1.5, δ = 9e-06 is left\n"
    spend("patients", 1.5, ceiling=2.5)
    content = json.loads(cfk("show", "ledger.db", "--json").stdout)
    assert [ceiling["epsilon"] for ceiling in content["accounts"][0]["ceilings"]] == [1.0, 2.5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--account", "patients", "--epsilon", "1"], "does not raise the ceiling of patients"),
        (["--account", "patients", "--epsilon", "0.5", "--delta", "0.1"], "does not raise"),
        (["--account", "patients"], "does not raise"),
        (["--account", "patients", "--epsilon", "nan"], "epsilon must be finite"),
        (["--account", "patients", "--epsilon", "inf"], "epsilon must be finite"),
        (["--account", "patients", "--delta", "1"], "delta must be"),
        (["--account", "nobody", "--epsilon", "2"], "no budget of that name"),
        (["--account", "patients", "--epsilon", "much"], "Invalid value"),
        (["--epsilon", "2"], "Missing option"),
    ],
)
def test_wrong_raises_are_one_line_and_change_nothing(folder: Path, words: list[str], said: str) -> None:
    spend("patients", 0.5)
    assert said in cfk("raise", "ledger.db", *words, code=2).stderr
    assert json.loads(cfk("show", "ledger.db", "--json").stdout)["accounts"][0]["left"]["epsilon"] == 0.5


def test_another_key_is_refused(folder: Path) -> None:
    spend("patients", 0.5)
    Path("key").write_bytes(b"k" * 32)
    Path("key").chmod(0o600)
    assert "another key" in cfk("show", "ledger.db", "--key-file", "key", code=2).stderr
