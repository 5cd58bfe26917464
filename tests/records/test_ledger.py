"""A ledger as its users see it, in Python and on the command line, and as whoever reads its
database does.
"""

from __future__ import annotations

import csv
import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy

from cfk_plugin import Ledger
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.ledger import Forgotten
from commands import cfk
from ledgers import CANARY, OTHER, change, connected, handle, settle

Open = Callable[..., Ledger]
TRAIN = pd.DataFrame(
    {
        "age": [20, 30, 40, 50],
        "code": ["007", "A1", "12", None],
        "income": [1.5, 2.0, 3.25, 4.0],
        "seen": pd.to_datetime(
            ["2020-01-01", "2020-01-02 10:00", "2020-01-03", "2020-01-04"], format="ISO8601"
        ),
        "city": [CANARY] * 4,
    }
)

IN_ORDER = TRAIN[sorted(TRAIN)]  # a ledger knows values in the order of their columns' names


def dump(url: str) -> dict[str, list[Any]]:
    """Return all rows of all tables."""
    with connected(url) as connection:
        names = sqlalchemy.inspect(connection).get_table_names()
        assert names
        return {
            n: [tuple(row) for row in connection.execute(sqlalchemy.text(f"SELECT * FROM {n}"))]
            for n in names
        }


# --- opening --------------------------------------------------------------------------------------


def test_what_is_on_record_outlives_the_ledger(open_ledger: Open) -> None:
    with pytest.raises(LedgerError, match=r"no such ledger.*cfk ledger create"):
        open_ledger(create=False)
    first = open_ledger(create=True)
    settle(first, 1)
    with pytest.raises(LedgerError, match="already"):
        open_ledger(create=True)
    with pytest.raises(LedgerError, match="another key"):
        open_ledger(key=b"other key, of another ledger")
    first.close()
    assert settle(open_ledger(), 1) == ["again"]
    with pytest.raises(LedgerError, match="closed"):
        first.status()
    first.close()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("UPDATE cfk_ledger_meta SET value = 'cfk ledger 2' WHERE name = 'format'", "version"),
        ("UPDATE cfk_ledger_meta SET value = 'canary' WHERE name = 'format'", "damaged"),
        ("DELETE FROM cfk_ledger_meta", "damaged"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, ledger: Ledger, told: str, said: str) -> None:
    change(f"sqlite:///{tmp_path / 'ledger.db'}", told)
    with pytest.raises(LedgerError, match=said) as caught:
        Ledger(tmp_path / "ledger.db")
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_of_several_that_make_a_ledger_at_once_one_does(url: str) -> None:
    found: list[str] = []

    def make() -> None:
        try:
            Ledger(url, create=True).close()
            found.append("made")
        except LedgerError as error:
            found.append("already" if "already" in str(error) else str(error))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["already"] * 3 + ["made"]
    with Ledger(url) as ledger:
        assert ledger.status().releases == 0


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file.db?mode=memory",
        "mysql://u:canary@h/d",
        "://canary",
        "x+y://",
    ],
)
def test_what_is_no_ledger_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger(url)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_missing_folder_and_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="folder"):
        Ledger(tmp_path / "no" / "ledger.db", create=True)
    (tmp_path / "text.db").write_text(CANARY * 100)
    with pytest.raises(LedgerError, match="is a ledger") as caught:
        Ledger(tmp_path / "text.db")
    assert CANARY not in str(caught.value)
    assert (tmp_path / "text.db").read_text() == CANARY * 100


def test_default_place_is_the_state_folder_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(LedgerError):
        Ledger()
    assert not (tmp_path / "state").exists()
    Ledger(create=True).close()
    assert (tmp_path / "state" / "cfk_plugin" / "ledger.db").is_file()
    monkeypatch.setenv("CFK_LEDGER", str(tmp_path / "mine.db"))
    Ledger(create=True).close()
    assert (tmp_path / "mine.db").is_file()
    assert "releases   0" in cfk("ledger status").stdout


# --- failures -------------------------------------------------------------------------------------


def test_database_error_says_nothing_of_values(open_ledger: Open, url: str) -> None:
    ledger = open_ledger()
    change(url, "DROP TABLE cfk_ledger_releases")
    with pytest.raises(LedgerError) as caught:
        settle(ledger, 1)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert CANARY not in str(caught.value)
    assert handle(ledger, 1) not in str(caught.value)


def test_connection_that_was_lost_is_made_again(postgres_url: str) -> None:
    asked = []

    def cut() -> int:
        asked.append(1)
        if len(asked) < 3:
            mine = "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            change(postgres_url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity {mine}")
        return 50

    with Ledger(postgres_url, create=True) as ledger:
        settle(ledger, 1)
        cut()
        assert settle(ledger, 1) == ["again"]
        # cut in the middle of the transaction
        assert settle(ledger, 1, region=OTHER, people=cut) == ["new"]
    assert len(asked) > 3  # asked anew


def test_server_that_is_away_is_an_error_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match=r"127\.0\.0\.1:1/ledger") as caught:
        Ledger(f"postgresql://{CANARY}:{CANARY}@127.0.0.1:1/ledger?password={CANARY}")
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


# --- erasure --------------------------------------------------------------------------------------


def test_forgotten_record_is_gone_and_the_others_stay(open_ledger: Open, url: str) -> None:
    ledger = open_ledger()
    settle(ledger, 1, 2)
    settle(ledger, 1, region=OTHER)
    gone = handle(ledger, 1)
    assert ledger.forget(gone) == Forgotten(records=1, releases=2)
    assert gone not in str(dump(url))
    assert [row["record"] for row in ledger.export()] == [handle(ledger, 2)]
    assert settle(ledger, 1) == ["new"]
    assert ledger.forget(gone, gone) == Forgotten(records=1, releases=1)
    assert ledger.forget(gone) == Forgotten(records=0, releases=0)
    with pytest.raises(LedgerError, match="handles") as caught:
        ledger.forget(CANARY)
    assert CANARY not in str(caught.value)


def test_forgotten_rows_are_not_left_in_the_files(ledger: Ledger, tmp_path: Path) -> None:
    settle(ledger, *range(20))
    handles = [handle(ledger, i) for i in range(20)]
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert any(h.encode() in path.read_bytes() for h in handles for path in files)
    ledger.forget(*handles)
    assert not any(h.encode() in path.read_bytes() for h in handles for path in files)


def test_purge_erases_what_was_last_given_before(open_ledger: Open, url: str) -> None:
    ledger = open_ledger()
    settle(ledger, 1)
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    settle(ledger, 2)
    assert ledger.purge(between - timedelta(days=1)) == 0
    assert ledger.purge(between.astimezone()) == 1
    (row,) = ledger.export()
    assert row["record"] == handle(ledger, 2)
    assert ledger.purge(datetime.fromisoformat(row["last"])) == 0  # not before it
    assert handle(ledger, 1) not in str(dump(url))
    for moment in (datetime(2020, 1, 1), "2020-01-01"):  # noqa: DTZ001
        with pytest.raises(LedgerError, match="time zone"):
            ledger.purge(moment)  # type: ignore[arg-type]


# --- what can be seen -----------------------------------------------------------------------------


def test_more_than_a_statement_or_a_page_holds_is_settled_and_exported(open_ledger: Open) -> None:
    ledger = open_ledger()
    assert ledger.status().earliest is None
    found = settle(ledger, *(i % 1100 for i in range(1300)))
    assert found == ["new"] * 1100 + ["again"] * 200
    rows = ledger.export()
    first = next(rows)
    assert settle(ledger, 1) == ["again"]  # nothing stays open while the caller takes its time
    assert len({row["record"] for row in (first, *rows)}) == 1100
    status = ledger.status()
    assert (status.records, status.releases, status.times) == (1100, 1100, 1301)
    assert str(status.earliest) < str(status.latest)


def test_export_holds_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("ledger.db", create=True) as ledger:
        settle(ledger, 0, 1, 2)
        settle(ledger, 1, region=OTHER)
        key_id = ledger.status().key_id
    said = cfk("ledger status", "ledger.db").stdout
    assert f"key_id     {key_id}" in said
    assert "records    3" in said
    for name in ("audit.csv", "audit.jsonl"):
        assert f"4 rows in {name}" in cfk("ledger export", "ledger.db", "-o", name).output
        text = Path(name).read_text()
        assert not [word for word in (CANARY, "Gent", "age") if word in text]
    lines = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    table = list(csv.DictReader(Path("audit.csv").read_text().splitlines()))
    assert [{n: "" if v is None else str(v) for n, v in line.items()} for line in lines] == table
    assert (lines[0]["members"], lines[0]["inside"]) == (0, 50)
    for name in ("audit.txt", "no/audit.csv"):
        assert f"{name}: " in cfk("ledger export", "ledger.db", "-o", name, code=2).output
        assert not Path(name).exists()


@pytest.mark.parametrize("log", [None, "sqlalchemy"])
def test_neither_key_nor_password_nor_value_is_shown(
    log: str | None, open_ledger: Open, url: str, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger=log):
        ledger = open_ledger()
        settle(ledger, 1, 1, f"{CANARY}-record")
        settle(ledger, 1, region=OTHER, people=lambda: 1)
        ledger.forget(handle(ledger, 1))
        with pytest.raises(LedgerError) as caught:
            open_ledger(key=b"another key of the ledger")
    shown = [
        caplog.text,
        repr(ledger),
        str(ledger),
        str(ledger.status()),
        repr(ledger._key),
        repr(ledger._database),
    ]
    shown += [str(caught.value), repr(caught.value), str(dump(url)).replace(f"{CANARY}-city", "")]
    secrets = [
        CANARY,
        key.hex(),
        repr(key)[2:-1],
        "another key of the",
        sqlalchemy.make_url(url).password or CANARY,
    ]
    assert not [(secret, text) for secret in secrets for text in shown if secret in text]
    assert handle(ledger, 1) not in caplog.text


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a ledger that has every row of a table on record, and the
    table.
    """
    monkeypatch.chdir(tmp_path)
    TRAIN.assign(patient=[1, 1, 2, 3]).to_csv("train.csv", index=False)
    Path("schema.json").write_text(json.dumps({"quasi_identifiers": ["age"], "subject": "patient"}))
    with Ledger("ledger.db", create=True) as ledger:
        assert settle(ledger, *IN_ORDER.values.tolist()) == ["new", "new", "new", "new"]
    return tmp_path


FORGET = ("forget", "ledger.db", "-s", "schema.json", "--rows", "person.csv")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("at", range(4))
def test_forget_finds_a_row_however_it_is_written(at: int) -> None:
    # Alone, a code such as 007 looks like a number; the columns stand in another order, and the
    # subject is away.
    TRAIN.iloc[[at]][["city", "seen", "code", "income", "age"]].to_csv("person.csv", index=False)
    assert (
        "forgot 1 record with 1 release\n" in cfk("ledger", *FORGET, "--train", "train.csv").stdout
    )
    with Ledger("ledger.db") as ledger:
        left = {row["record"] for row in ledger.export()}
        assert left == {handle(ledger, row) for row in IN_ORDER.drop(at).values.tolist()}


@pytest.mark.usefixtures("folder")
def test_forget_without_the_training_table() -> None:
    TRAIN.assign(patient=1).iloc[[1]].to_csv("person.csv", index=False)
    assert "forgot 1 record with" in cfk("ledger", *FORGET).stdout
    again = cfk("ledger", *FORGET)
    assert "forgot 0 records" in again.stdout
    assert "--train" in again.stderr


@pytest.mark.usefixtures("folder")
def test_errors_are_one_line_and_exit_code_2() -> None:
    for text, said in (
        # records are known by features, not by subjects
        ("patient\n3\n", "age, code, income, seen, city is missing"),
        ("age\n20\n", "code, income, seen, city is missing"),
        ("age,code,income,seen,city\n", "no rows"),
    ):
        Path("person.csv").write_text(text)
        assert said in cfk("ledger", *FORGET, "--train", "train.csv", code=2).stderr
    Path("key").touch(0o600)
    Path("key").write_bytes(b"k" * 32)
    assert "another key" in cfk("ledger status", "ledger.db", "--key-file", "key", code=2).stderr
    usage = cfk("ledger forget", "ledger.db", code=2).stderr
    assert usage.startswith("cfk: Missing option")
    assert "ledger forget --help" in usage
    assert len(usage.splitlines()) == 1
