from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from cfk_plugin.cli import app
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Candidate

CANARY = "canary-7f3a"
TRAIN = pd.DataFrame(
    {
        "age": [20, 30, 40, 50],
        "code": ["007", "A1", "12", None],
        "income": [1.5, 2.0, 3.25, 4.0],
        "seen": pd.to_datetime(["2020-01-01", "2020-01-02 10:00", "2020-01-03", "2020-01-04"], format="ISO8601"),
        "city": [CANARY] * 4,
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFK_LEDGER", raising=False)
    monkeypatch.delenv("CFK_LEDGER_KEY", raising=False)
    TRAIN.to_csv("train.csv", index=False)
    Path("schema.json").write_text(json.dumps({"quasi_identifiers": ["age"]}))
    return tmp_path


def release(ledger: Ledger, train: pd.DataFrame, features: list[str]) -> None:
    """Put every row on record, as the release of explanations does."""
    rows = [list(values) for values in zip(*(train[name] for name in features), strict=True)]
    candidates = [
        Candidate(
            record=ledger.handle(values),
            region=Region({"age": Interval(20, 50)}),
            policy="p",
            population="f",
            guarantee="reciprocal",
            k=2,
            effective=4,
        )
        for values in rows
    ]
    assert [d.outcome for d in ledger.settle(candidates, lambda _: 4, lambda i, r: True)] == ["new"] * len(rows)


def cfk(*words: Any, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["ledger", *map(str, words)])
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def test_status_and_export(folder: Path) -> None:
    with Ledger("ledger.db", create=True) as ledger:
        release(ledger, TRAIN, list(TRAIN))
        key_id = ledger.status().key_id
    said = cfk("status", "ledger.db").stdout
    assert f"key_id    {key_id}" in said
    assert "records   4" in said
    assert "4 rows in audit.csv" in cfk("export", "ledger.db", "-o", "audit.csv").output
    assert len(pd.read_csv("audit.csv")) == 4
    cfk("export", "ledger.db", "-o", "audit.jsonl")
    assert CANARY not in Path("audit.csv").read_text() + Path("audit.jsonl").read_text()


@pytest.mark.parametrize("at", range(4))
def test_forget_finds_a_row_however_it_is_written(folder: Path, at: int) -> None:
    with Ledger("ledger.db", create=True) as ledger:
        release(ledger, TRAIN, list(TRAIN))
        # Alone, a code such as 007 looks like a number, and the columns stand in another order.
        TRAIN.iloc[[at]][["city", "seen", "code", "income", "age"]].to_csv("person.csv", index=False)
        said = cfk("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv", "--train", "train.csv")
        assert "forgot 1 records with 1 releases" in said.stdout
        left = {row["record"] for row in ledger.export()}
        assert len(left) == 3
        assert ledger.handle(TRAIN.iloc[at].tolist()) not in left


def test_forget_without_the_training_table(folder: Path) -> None:
    with Ledger("ledger.db", create=True) as ledger:
        release(ledger, TRAIN, list(TRAIN))
    TRAIN.iloc[[1]].to_csv("person.csv", index=False)
    assert "forgot 1 records" in cfk("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv").stdout
    again = cfk("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv")
    assert "forgot 0 records" in again.stdout
    assert "--train" in again.stderr


def test_rows_of_a_schema_with_a_subject_are_found_without_it(folder: Path) -> None:
    train = TRAIN.assign(patient=[1, 1, 2, 3])
    train.to_csv("train.csv", index=False)
    Path("schema.json").write_text(json.dumps({"quasi_identifiers": ["age"], "subject": "patient"}))
    with Ledger("ledger.db", create=True) as ledger:
        release(ledger, train, list(TRAIN))
        train.iloc[:2].to_csv("person.csv", index=False)
        command = ("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv", "--train", "train.csv")
        assert "forgot 2 records with 2 releases" in cfk(*command).stdout
        train.drop(columns="patient").iloc[[2]].to_csv("person.csv", index=False)
        assert "forgot 1 records with 1 releases" in cfk(*command).stdout
        # The ledger knows records by their features; a key of a person finds none.
        pd.DataFrame({"patient": [3]}).to_csv("person.csv", index=False)
        assert "age, code, income, seen, city is missing" in cfk(*command, code=2).stderr
        assert [row["record"] for row in ledger.export()] == [ledger.handle(TRAIN.iloc[3].tolist())]


def test_errors_are_one_line_and_exit_code_2(folder: Path) -> None:
    assert "no such ledger" in cfk("status", "none.db", code=2).stderr
    assert not Path("none.db").exists()
    Ledger("ledger.db", create=True).close()
    assert ".jsonl" in cfk("export", "ledger.db", "-o", "audit.txt", code=2).stderr
    pd.DataFrame({"age": [20]}).to_csv("person.csv", index=False)
    command = ("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv", "--train", "train.csv")
    assert "code, income, seen, city is missing" in cfk(*command, code=2).stderr
    Path("person.csv").write_text("age,code,income,seen,city\n")
    assert "no rows" in cfk(*command, code=2).stderr
    Path("key").write_bytes(b"k" * 32)
    Path("key").chmod(0o600)
    assert "another key" in cfk("status", "ledger.db", "--key-file", "key", code=2).stderr
    usage = cfk("forget", "ledger.db", code=2).stderr
    assert usage.startswith("cfk: Missing option")
    assert "cfk ledger forget --help" in usage or "ledger forget --help" in usage
    assert len(usage.splitlines()) == 1


def test_place_of_the_ledger_may_stand_in_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger("ledger.db", create=True).close()
    monkeypatch.setenv("CFK_LEDGER", "ledger.db")
    assert "releases  0" in cfk("status").stdout


def test_help_names_the_commands(folder: Path) -> None:
    said = cfk("--help").stdout
    assert all(name in said for name in ("status", "export", "forget"))
    assert "ledger" in CliRunner().invoke(app, ["--help"]).stdout
