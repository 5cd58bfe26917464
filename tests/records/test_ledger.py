from __future__ import annotations

import csv
import gc
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from typer.testing import CliRunner

from cfk_plugin.cli import app
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import CFKError, LedgerError
from cfk_plugin.records.ledger import Forgotten, Ledger
from cfk_plugin.records.rule import Candidate

Open = Callable[..., Ledger]
CANARY = "canary-7f3a"
REGION = Region({"city": frozenset({f"{CANARY}-city"}), "age": Interval(20, 40)})
OTHER = Region({"city": frozenset({f"{CANARY}-city", "Gent"}), "age": Interval(20, 50)})


def candidate(ledger: Ledger, record: object = 1, region: Region = REGION) -> Candidate:
    return Candidate(
        record=ledger.handle([record, CANARY]),
        region=region,
        policy="p" * 64,
        population="f" * 16,
        guarantee="nominal",
        k=5,
        effective=7,
    )


def settle(ledger: Ledger, *candidates: Candidate, people: int = 50) -> list[str]:
    return [d.outcome for d in ledger.settle(candidates, lambda regions: people, lambda i, region: True)]


@pytest.fixture
def database(url: str) -> Iterator[sqlalchemy.Engine]:
    """Return a look into the tables past the ledger."""
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


def change(database: sqlalchemy.Engine, statement: str) -> None:
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(statement))


def dump(database: sqlalchemy.Engine) -> dict[str, list[Any]]:
    """Return all rows of all tables."""
    with database.connect() as connection:
        names = sqlalchemy.inspect(connection).get_table_names()
        assert names
        return {n: [tuple(row) for row in connection.execute(sqlalchemy.text(f"SELECT * FROM {n}"))] for n in names}


# --- opening ---------------------------------------------------------------------------------------------------


def test_what_is_on_record_outlives_the_ledger(open_ledger: Open) -> None:
    first = open_ledger()
    settle(first, candidate(first))
    first.close()
    again = open_ledger()
    assert settle(again, candidate(again)) == ["again"]
    with pytest.raises(LedgerError, match="closed"):
        first.status()
    first.close()


@pytest.mark.parametrize("version", ["3", "1", "canary", ""])
def test_other_version_is_refused(open_ledger: Open, database: sqlalchemy.Engine, version: str) -> None:
    open_ledger()
    change(database, f"UPDATE cfk_ledger_meta SET value = '{version}' WHERE name = 'version'")
    with pytest.raises(LedgerError, match="version") as caught:
        open_ledger()
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_ledger_that_says_no_version_is_refused(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    open_ledger()
    change(database, "DELETE FROM cfk_ledger_meta")
    with pytest.raises(LedgerError, match="neither its version nor its key"):
        open_ledger()


def test_ledger_is_made_only_where_that_is_asked_for_and_once(open_ledger: Open, url: str) -> None:
    with pytest.raises(LedgerError, match=r"no such ledger.*cfk ledger create"):
        open_ledger(create=False)
    open_ledger(create=True)
    open_ledger(create=False)
    with pytest.raises(LedgerError, match="already"):
        open_ledger(create=True)


def test_of_several_that_make_a_ledger_at_once_one_does(url: str, key: bytes) -> None:
    script = (
        "import sys; from cfk_plugin.records.ledger import Ledger\n"
        "ledger = Ledger(sys.argv[1], create=True); print(ledger.status().key_id); ledger.close()"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, url],
            env=os.environ | {"CFK_LEDGER_KEY": key.hex()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    said = [process.communicate() for process in running]
    assert sorted(process.returncode for process in running) == [0, 1, 1, 1]
    assert [b"already" in error for _, error in said].count(True) == 3
    with Ledger(url, key=key) as ledger:
        assert ledger.status().releases == 0


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:///file.db?mode=memory", "mysql://u:canary@h/d", "://canary", "x+y://"],
)
def test_what_is_no_ledger_is_refused_without_quoting_it(url: str, key: bytes) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger(url, key=key)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_missing_folder_and_foreign_file_are_refused(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(LedgerError, match="folder"):
        Ledger(tmp_path / "no" / "ledger.db", key=key, create=True)
    (tmp_path / "text.db").write_text(CANARY * 100)
    with pytest.raises(LedgerError, match="is a ledger") as caught:
        Ledger(tmp_path / "text.db", key=key)
    assert CANARY not in str(caught.value)
    assert (tmp_path / "text.db").read_text() == CANARY * 100


def test_default_place_is_the_state_folder_or_the_environment(
    tmp_path: Path, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CFK_LEDGER", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(LedgerError):
        Ledger(key=key)
    assert not (tmp_path / "state").exists()
    with Ledger(key=key, create=True):
        assert (tmp_path / "state" / "cfk_plugin" / "ledger.db").is_file()
    monkeypatch.setenv("CFK_LEDGER", str(tmp_path / "mine.db"))
    with Ledger(key=key, create=True):
        assert (tmp_path / "mine.db").is_file()


WITHOUT_A_LEDGER = """
import sys
import pandas as pd
from cfk_plugin import BudgetAccountant, Population, PrivacyPolicy, Schema, protect
table = pd.DataFrame({"age": range(20, 60), "pay": range(40)})
population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
settings = {"population": population, "policy": PrivacyPolicy(k=5), "desired": True}
explainer = protect(lambda rows: table.tail(len(rows)), model=lambda rows: rows["pay"] > 20, **settings)
assert len(explainer.explain(table.head(3))) == 3
assert BudgetAccountant.default() is None
sys.exit("sqlalchemy" in sys.modules)
"""


def test_without_a_ledger_nothing_brings_the_database_library() -> None:
    assert subprocess.run([sys.executable, "-c", WITHOUT_A_LEDGER], check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_child_and_parent_use_one_ledger_after_a_fork(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger))
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if settle(ledger, candidate(ledger), candidate(ledger, 2)) == ["again", "new"] else 2
        finally:
            os._exit(code)
    assert settle(ledger, candidate(ledger, 3)) == ["new"]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert settle(ledger, candidate(ledger, 2)) == ["again"]


# --- failures --------------------------------------------------------------------------------------------------


def test_database_error_says_nothing_of_values(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    ledger = open_ledger()
    change(database, "DROP TABLE cfk_ledger_releases")
    with pytest.raises(LedgerError) as caught:
        settle(ledger, candidate(ledger))
    assert isinstance(caught.value, CFKError)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert CANARY not in str(caught.value)
    assert candidate(ledger).record not in str(caught.value)


def test_changed_region_is_found_out(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    ledger = open_ledger()
    settle(ledger, candidate(ledger))
    change(database, "UPDATE cfk_ledger_releases SET region = replace(region, '40', '90')")
    for use in (
        lambda: settle(ledger, candidate(ledger)),
        lambda: ledger.earlier(candidate(ledger).record, "p" * 64, "f" * 16),
    ):
        with pytest.raises(LedgerError, match="does not fit its key") as caught:
            use()
        assert CANARY not in str(caught.value)


def test_lock_that_is_held_too_long_is_an_error(tmp_path: Path, key: bytes) -> None:
    with Ledger(tmp_path / "ledger.db", key=key, timeout=0.01, create=True) as ledger:
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="in use by others"):
            settle(ledger, candidate(ledger))
        other.close()
        assert settle(ledger, candidate(ledger)) == ["new"]


def test_connection_that_was_lost_is_made_again(postgres_url: str, key: bytes) -> None:
    with Ledger(postgres_url, key=key, create=True) as ledger:
        settle(ledger, candidate(ledger))
        engine = sqlalchemy.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))

        def cut() -> None:
            with engine.connect() as connection:
                connection.execute(
                    sqlalchemy.text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )

        cut()
        assert settle(ledger, candidate(ledger)) == ["again"]
        asked = []

        def count(regions: Sequence[Region]) -> int:
            asked.append(1)
            if len(asked) == 1:
                cut()  # in the middle of the transaction
            return 50

        (decision,) = ledger.settle([candidate(ledger, region=OTHER)], count, lambda i, region: True)
        assert decision.outcome == "new"
        assert len(asked) == 2
        engine.dispose()


def test_server_that_is_away_is_an_error_without_the_password(key: bytes) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match=r"127\.0\.0\.1:1/ledger") as caught:
        Ledger(f"postgresql://{CANARY}:{CANARY}@127.0.0.1:1/ledger?password={CANARY}", key=key)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


# --- erasure ---------------------------------------------------------------------------------------------------


def test_forgotten_record_is_gone_and_the_others_stay(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    ledger = open_ledger()
    settle(ledger, candidate(ledger, 1), candidate(ledger, 2))
    settle(ledger, candidate(ledger, 1, OTHER))
    gone, stays = candidate(ledger, 1).record, candidate(ledger, 2).record
    assert ledger.forget(gone) == Forgotten(records=1, releases=2)
    assert gone not in str(dump(database))
    assert [row["record"] for row in ledger.export()] == [stays]
    assert settle(ledger, candidate(ledger, 1)) == ["new"]
    assert ledger.forget(gone, gone) == Forgotten(records=1, releases=1)
    assert ledger.forget(gone) == Forgotten(records=0, releases=0)


def test_forgotten_rows_are_not_left_in_the_files(tmp_path: Path, key: bytes) -> None:
    with Ledger(tmp_path / "ledger.db", key=key, create=True) as ledger:
        settle(ledger, *(candidate(ledger, i) for i in range(20)))
        handles = [candidate(ledger, i).record for i in range(20)]
        assert any(h.encode() in p.read_bytes() for h in handles for p in tmp_path.iterdir())
        ledger.forget(*handles)
        assert not any(h.encode() in p.read_bytes() for h in handles for p in tmp_path.iterdir())


def test_values_in_the_place_of_handles_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="handles") as caught:
        ledger.forget(CANARY)
    assert CANARY not in str(caught.value)


def test_purge_erases_what_was_last_given_before(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    ledger = open_ledger()
    settle(ledger, candidate(ledger, 1))
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    settle(ledger, candidate(ledger, 2))
    assert ledger.purge(between - timedelta(days=1)) == 0
    assert ledger.purge(between.astimezone()) == 1
    assert [row["record"] for row in ledger.export()] == [candidate(ledger, 2).record]
    rows = dump(database)
    assert candidate(ledger, 1).record not in str(rows)
    with pytest.raises(LedgerError, match="time zone"):
        ledger.purge(datetime(2020, 1, 1))  # noqa: DTZ001


# --- what can be seen ------------------------------------------------------------------------------------------


def export(url: str, key: bytes, to: Path, code: int = 0) -> str:
    """Run `cfk ledger export`; return what it says."""
    done = CliRunner().invoke(app, ["ledger", "export", url, "-o", str(to)], env={"CFK_LEDGER_KEY": key.hex()})
    assert done.exit_code == code, done.output
    return done.output


def test_export_holds_no_value(ledger: Ledger, url: str, key: bytes, tmp_path: Path) -> None:
    settle(ledger, *(candidate(ledger, i) for i in range(3)))
    settle(ledger, candidate(ledger, 1, OTHER))
    for name in ("ledger.csv", "ledger.jsonl"):
        assert export(url, key, tmp_path / name).startswith("4 rows in")
    table = list(csv.DictReader((tmp_path / "ledger.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [{n: "" if v is None else str(v) for n, v in line.items()} for line in lines] == table
    assert "members" not in lines[0]
    assert lines[0]["effective"] == 7
    for path in tmp_path.glob("*.csv"), tmp_path.glob("*.jsonl"):
        text = next(path).read_text()
        assert CANARY not in text
        assert "Gent" not in text
        assert "age" not in text


@pytest.mark.parametrize("name", ["ledger.txt", "no/ledger.csv"])
def test_export_that_cannot_be_written_is_refused(
    ledger: Ledger, url: str, key: bytes, tmp_path: Path, name: str
) -> None:
    assert f"{name}: " in export(url, key, tmp_path / name, code=2)
    assert not (tmp_path / name).exists()


def test_export_that_is_left_halfway_keeps_nothing_open(ledger: Ledger) -> None:
    settle(ledger, *(candidate(ledger, i) for i in range(3)))
    rows = ledger.export()
    next(rows)
    assert settle(ledger, candidate(ledger)) == ["again"]
    del rows
    gc.collect()


def test_export_goes_on_after_a_page(ledger: Ledger) -> None:
    settle(ledger, *(candidate(ledger, i) for i in range(1100)))
    assert len({row["record"] for row in ledger.export()}) == 1100


def test_status_counts(ledger: Ledger) -> None:
    assert ledger.status().earliest is None
    settle(ledger, candidate(ledger, 1), candidate(ledger, 1), candidate(ledger, 2))
    status = ledger.status()
    assert (status.records, status.releases, status.times) == (2, 2, 3)
    assert status.earliest is not None
    assert status.latest is not None
    assert status.earliest < status.latest


def test_database_holds_regions_and_no_other_value(open_ledger: Open, database: sqlalchemy.Engine) -> None:
    ledger = open_ledger()
    settle(ledger, candidate(ledger, f"{CANARY}-record"))
    for name, rows in dump(database).items():
        text = str(rows).replace(f"{CANARY}-city", "")
        assert CANARY not in text, name


def test_neither_key_nor_password_nor_value_is_shown(
    open_ledger: Open, url: str, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        ledger = open_ledger()
        settle(ledger, candidate(ledger), candidate(ledger, region=OTHER))
        settle(ledger, candidate(ledger), people=1)
        ledger.forget(candidate(ledger).record)
        shown = [
            caplog.text,
            repr(ledger),
            str(ledger),
            str(ledger.status()),
            repr(ledger._key),
            repr(ledger._database),
        ]
        with pytest.raises(LedgerError) as caught:
            open_ledger(key=b"another key of the ledger")
    shown += [str(caught.value), repr(caught.value)]
    password = sqlalchemy.make_url(url).password
    for text in shown:
        assert CANARY not in text
        assert key.hex() not in text
        assert repr(key)[2:-1] not in text
        assert "another key of the" not in text
        assert password is None or password not in text


def test_engine_does_not_log_handles_and_regions(open_ledger: Open, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="sqlalchemy"):
        ledger = open_ledger()
        settle(ledger, candidate(ledger))
        settle(ledger, candidate(ledger, region=OTHER))
    assert CANARY not in caplog.text
    assert candidate(ledger).record not in caplog.text
