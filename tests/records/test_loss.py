"""A ledger, a budget or a spool that is gone, changed, put back as it was before, or locked lets nothing leave."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import sqlalchemy
from typer.testing import CliRunner

from cfk_plugin import BudgetAccountant, Explanations, KAnonymizer, Ledger, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.cli import app
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.rule import Candidate
from model_server import Server, by_cfk, by_mlflow, serving, store
from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures
from spooled import explanations

KEY = b"a key of sixteen bytes or more"
CANARY = "canary-7f3a"
REGION = Region({"city": frozenset({CANARY}), "age": Interval(20, 40)})
OTHER = Region({"city": frozenset({CANARY}), "age": Interval(20, 50)})
BESIDE = ("", "-wal", "-shm")


def settle(ledger: Ledger, *people: object, region: Region = REGION, k: int = 5) -> list[str]:
    """Ask for regions of people; return what was decided."""
    candidates = [
        Candidate(
            record=ledger.handle([person]),
            region=region,
            policy="p" * 64,
            population="f" * 16,
            guarantee="nominal",
            k=k,
            effective=7,
        )
        for person in people
    ]
    return [d.outcome for d in ledger.settle(candidates, lambda _: 50, lambda i, r: True)]


def refused(ledger: Ledger, person: object = "asked while it is gone") -> str:
    """Return why nothing may leave; neither to read nor to write is allowed."""
    with pytest.raises(LedgerError) as caught:
        settle(ledger, person)
    with pytest.raises(LedgerError):
        ledger.earlier(ledger.handle([1]))
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger" / "ledger.db"


@pytest.fixture
def ledger(file: Path) -> Iterator[Ledger]:
    """Return a ledger in a file with some releases; a whole copy of an earlier state is beside its folder."""
    with Ledger(file, key=KEY, create=True, timeout=1.0) as opened:
        settle(opened, *range(5))
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(file.parent.parent / "older.db")) as to:
            source.backup(to)
        settle(opened, *range(5, 9))
        yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a new ledger; its key is in the environment."""
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    at = tmp_path / "ledger.db"
    found = f"sqlite:///{at}" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    Ledger(found, create=True).close()
    return found


def engine_of(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def change(url: str, *statements: str) -> None:
    """Change the database past the ledger, as whoever may write to it and has no key."""
    engine = engine_of(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))
    engine.dispose()


def cfk(*words: object, code: int) -> str:
    """Run a command; return what it says."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    assert CANARY not in done.output
    return " ".join(done.output.split())


# --- a ledger that disappears ----------------------------------------------------------------------------------


def away(file: Path, folder: str = "away") -> Path:
    """Move the files of a ledger into another folder; return where its database is."""
    there = file.parent.parent / folder
    there.mkdir(exist_ok=True)
    for suffix in BESIDE:
        if Path(f"{file}{suffix}").exists():
            shutil.move(f"{file}{suffix}", there / f"{file.name}{suffix}")
    return there / file.name


def put_back(file: Path) -> None:
    for suffix in BESIDE:
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    for path in (file.parent.parent / "away").iterdir():
        shutil.move(path, file.parent / path.name)


def move_database(file: Path) -> None:
    (file.parent.parent / "away").mkdir()
    file.rename(file.parent.parent / "away" / file.name)


def move_database_back(file: Path) -> None:
    (file.parent.parent / "away" / file.name).rename(file)


def move_folder(file: Path) -> None:
    file.parent.rename(file.parent.parent / "away")


def move_folder_back(file: Path) -> None:
    (file.parent.parent / "away").rename(file.parent)


def empty_file(file: Path) -> None:
    away(file)
    file.touch()


def another_ledger(file: Path) -> None:
    away(file)
    Ledger(file.parent / "new.db", key=KEY, create=True).close()
    (file.parent / "new.db").rename(file)


def older_state(file: Path) -> None:
    away(file)
    shutil.copy(file.parent.parent / "older.db", file)


def no_database(file: Path) -> None:
    away(file)
    file.write_bytes(b"no database " * 1000)


def a_folder(file: Path) -> None:
    away(file)
    file.mkdir()


def folder_away(file: Path) -> None:
    file.rmdir()
    put_back(file)


@pytest.mark.parametrize(
    ("harm", "heal"),
    [
        (away, put_back),
        (move_database, move_database_back),
        (move_folder, move_folder_back),
        (empty_file, put_back),
        (another_ledger, put_back),
        (older_state, put_back),
        (no_database, put_back),
        (a_folder, folder_away),
    ],
    ids=lambda step: step.__name__,
)
def test_nothing_leaves_until_the_ledger_that_was_opened_is_back(
    ledger: Ledger, file: Path, harm: Callable[[Path], Any], heal: Callable[[Path], Any]
) -> None:
    harm(file)
    for _ in range(3):
        assert str(file) in refused(ledger) or "older state" in refused(ledger)
    heal(file)
    assert settle(ledger, 3, "new") == ["again", "new"]
    assert ledger.verify().releases == 10
    with Ledger(file, key=KEY) as again:
        assert len(list(again.export())) == 10


@pytest.mark.parametrize("suffix", BESIDE)
def test_a_file_that_is_deleted_while_it_is_open_is_missed(ledger: Ledger, file: Path, suffix: str) -> None:
    """What lies beside the database can be made anew by whoever still has all of it; nothing of it is lost."""
    Path(f"{file}{suffix}").unlink()
    if not suffix:
        refused(ledger)
        return
    assert settle(ledger, 3, "new") == ["again", "new"]
    with Ledger(file, key=KEY) as another:
        assert another.verify().releases == 10


def test_a_file_that_was_cut_off_is_missed(ledger: Ledger, file: Path) -> None:
    os.truncate(file, 0)
    refused(ledger)
    with pytest.raises(LedgerError):
        Ledger(file, key=KEY)


def test_a_link_is_followed_and_missed_when_it_points_elsewhere(ledger: Ledger, file: Path, tmp_path: Path) -> None:
    Ledger(tmp_path / "other.db", key=KEY, create=True).close()
    (tmp_path / "link.db").symlink_to(file)
    with Ledger(tmp_path / "link.db", key=KEY) as linked:
        assert settle(linked, 3) == ["again"]
        (tmp_path / "link.db").unlink()
        (tmp_path / "link.db").symlink_to(tmp_path / "other.db")
        refused(linked)
        (tmp_path / "link.db").unlink()
        (tmp_path / "link.db").symlink_to(file)
        assert settle(linked, 3) == ["again"]


def test_a_path_is_the_same_one_after_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("ledger.db", key=KEY, create=True) as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert settle(ledger, 1) == ["new"]
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_goes_while_it_is_decided_keeps_the_answer_back(ledger: Ledger, file: Path) -> None:
    candidate = Candidate(
        record=ledger.handle(["new"]),
        region=REGION,
        policy="p" * 64,
        population="f" * 16,
        guarantee="nominal",
        k=5,
        effective=7,
    )

    def count(_: object) -> int:
        away(file)
        return 50

    with pytest.raises(LedgerError, match="gone"):
        ledger.settle([candidate], count, lambda i, r: True)


@pytest.mark.parametrize("old", ["gone", "another", "older"])
def test_tables_on_a_server_that_are_not_those_that_were_opened(
    postgres_url: str,  # noqa: F811 - a fixture
    monkeypatch: pytest.MonkeyPatch,
    old: str,
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    tables = [f"cfk_ledger_{name}" for name in ("meta", "locks", "chain", "releases")]
    tables += [f"cfk_budget_{name}" for name in ("accounts", "ceilings", "spends")]
    with Ledger(postgres_url, create=True) as ledger:
        settle(ledger, *range(5))
        change(postgres_url, *(f"CREATE TABLE older_{name} AS SELECT * FROM {name}" for name in tables))
        settle(ledger, *range(5, 9))
        change(postgres_url, *(f"CREATE TABLE newer_{name} AS SELECT * FROM {name}" for name in tables))
        if old == "older":
            change(postgres_url, *(f"TRUNCATE {name}" for name in tables))
            change(postgres_url, *(f"INSERT INTO {name} SELECT * FROM older_{name}" for name in tables))
        else:
            change(postgres_url, *(f"DROP TABLE {name}" for name in tables))
        if old == "another":
            Ledger(postgres_url, create=True).close()
        refused(ledger)
        if old == "older":
            change(postgres_url, *(f"TRUNCATE {name}" for name in tables))
            change(postgres_url, *(f"INSERT INTO {name} SELECT * FROM newer_{name}" for name in tables))
            assert settle(ledger, 3, "new") == ["again", "new"]


def test_who_finds_no_ledger_makes_none(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uses: list[Callable[[], Any]] = [
        lambda: Ledger(file),
        lambda: BudgetAccountant(1.0, ledger=file, scope="patients"),
    ]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CFK_LEDGER", raising=False)
    uses.append(Ledger)
    for use in uses:
        with pytest.raises(LedgerError, match=r"no such ledger.*cfk ledger create"):
            use()
    for command in ("status", "verify", "upgrade"):
        assert "no such ledger" in cfk("ledger", command, file, code=2)
    assert list(file.parent.iterdir()) == []
    assert not (tmp_path / "state").exists()


def test_a_ledger_is_made_by_a_command_once(file: Path) -> None:
    said = cfk("ledger", "create", file, code=0)
    assert "releases 0" in said
    made = file.read_bytes()
    assert "already" in cfk("ledger", "create", file, code=2)
    assert file.read_bytes() == made
    cfk("ledger", "verify", file, code=0)


def people(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    private = {"salary": rng.integers(1_000, 9_000, n)}
    return pd.DataFrame({"age": rng.integers(20, 60, n), "city": rng.choice(list("ABCDE"), n)} | private)


def released(ledger: Ledger, k: int, n: int = 40) -> Explanations:
    """Release explanations of the same people under one k."""
    frame = people()
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]), key=b"key")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k, guarantee="reciprocal"), ledger=ledger)
    anonymizer.fit(population, lambda rows: rows["salary"] > 2_000, True)
    return anonymizer.transform(frame[frame["salary"] > 2_000].head(n))


def fewest_in_common(*releases: Explanations) -> int:
    """Return how many people are left, at the worst, for whoever intersects what left for one record."""
    frame, left = people(), []
    for entries in zip(*releases, strict=True):
        regions = [entry.region for entry in entries if hasattr(entry, "region")]
        if len(regions) == len(releases):
            left.append(sum(all(region.contains(row) for region in regions) for row in frame.to_dict("records")))
    return min(left, default=0)


def test_old_and_new_answers_cannot_be_intersected_across_a_loss(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(file, key=KEY, create=True) as ledger:
        before = released(ledger, 7)
        away(file)
        with caplog.at_level(logging.WARNING, logger="cfk_plugin"):
            during = released(ledger, 5)
        assert Counter(entry.reason for entry in during.suppressed) == {"ledger_failed": 40}
        assert str(file) in caplog.text
    with pytest.raises(LedgerError):  # after a restart
        Ledger(file, key=KEY)
    put_back(file)
    with Ledger(file, key=KEY) as ledger:
        after = released(ledger, 5)
    assert len(after.released) == 40
    assert fewest_in_common(before, after) >= 7
    # Whoever makes a new one on purpose gives that up, which is why nothing else does.
    with Ledger(tmp_path / "new.db", key=KEY, create=True) as ledger:
        assert fewest_in_common(before, released(ledger, 5)) < 5


# --- rows that are deleted, moved or changed -------------------------------------------------------------------

LAST = "(SELECT max(seq) FROM cfk_ledger_chain)"
CHANGES: dict[str, list[str]] = {
    "deleted": ["DELETE FROM cfk_ledger_releases WHERE seq = 3"],
    "deleted with its entry": [
        "DELETE FROM cfk_ledger_releases WHERE seq = 3",
        "DELETE FROM cfk_ledger_chain WHERE seq = 3",
    ],
    "deleted as if erased": [
        "DELETE FROM cfk_ledger_releases WHERE seq = 3",
        f"INSERT INTO cfk_ledger_chain SELECT seq + 1, 3, NULL, link FROM cfk_ledger_chain WHERE seq = {LAST}",
    ],
    "the last ones deleted": [
        "DELETE FROM cfk_ledger_releases WHERE seq > 6",
        "DELETE FROM cfk_ledger_chain WHERE seq > 6",
    ],
    "all deleted": ["DELETE FROM cfk_ledger_releases", "DELETE FROM cfk_ledger_chain"],
    "moved": [
        (
            "UPDATE cfk_ledger_releases SET record = (SELECT record FROM cfk_ledger_releases WHERE seq = 4), "
            "policy = 'q' WHERE seq = 3"
        )
    ],
    "k": ["UPDATE cfk_ledger_releases SET k = 2 WHERE seq = 3"],
    "effective": ["UPDATE cfk_ledger_releases SET effective = 700 WHERE seq = 3"],
    "guarantee": ["UPDATE cfk_ledger_releases SET guarantee = 'reciprocal' WHERE seq = 3"],
    "region": ["UPDATE cfk_ledger_releases SET region = replace(region, '40', '90') WHERE seq = 3"],
    "region and its hash": [
        (
            "UPDATE cfk_ledger_releases SET region = (SELECT region FROM cfk_ledger_releases WHERE seq = 9), "
            "digest = (SELECT digest FROM cfk_ledger_releases WHERE seq = 9) WHERE seq = 3"
        )
    ],
    "entry": ["UPDATE cfk_ledger_chain SET content = link WHERE seq = 3"],
    "identity": ["UPDATE cfk_ledger_meta SET value = 'another' WHERE name = 'identity'"],
    "head": ["DELETE FROM cfk_ledger_meta WHERE name = 'head'"],
    "added": [
        (
            "INSERT INTO cfk_ledger_releases SELECT 99, salt, 'r', digest, policy, population, region, guarantee, k, "
            "effective, first, last, times FROM cfk_ledger_releases WHERE seq = 3"
        )
    ],
    "swapped": [
        "UPDATE cfk_ledger_releases SET seq = -1 WHERE seq = 3",
        "UPDATE cfk_ledger_releases SET seq = 3 WHERE seq = 4",
        "UPDATE cfk_ledger_releases SET seq = 4 WHERE seq = -1",
    ],
    "spend deleted": ["DELETE FROM cfk_budget_spends"],
    "spend lowered": ["UPDATE cfk_budget_spends SET epsilon = '0.1'"],
    "ceiling raised": ["UPDATE cfk_budget_ceilings SET epsilon = '9.0'"],
    "spend of another account": ["UPDATE cfk_budget_spends SET account = 'others'"],
}


def fill(url: str) -> None:
    """Put releases and a spend on record, some of them changed and erased."""
    with Ledger(url) as ledger:
        settle(ledger, *range(8))
        settle(ledger, 8, region=OTHER)
        settle(ledger, 0, k=9)
        ledger.forget(ledger.handle([1]))
    accountant = BudgetAccountant(1.0, ledger=url, scope="patients")
    accountant.spend(None, 0.5, what="fit")
    accountant.close()


@pytest.mark.parametrize("what", CHANGES)
def test_rows_that_are_taken_away_or_changed_are_found(url: str, what: str) -> None:
    fill(url)
    assert "as it was written" in cfk("ledger", "verify", url, code=0)
    change(url, *CHANGES[what])
    assert "restore it from a backup" in cfk("ledger", "verify", url, code=1)
    with pytest.raises(LedgerError, match="not as it was written"):
        Ledger(url)
    with pytest.raises(LedgerError, match="not as it was written"):
        BudgetAccountant(1.0, ledger=url, scope="patients")


def test_a_changed_row_is_found_when_it_is_asked_for(url: str) -> None:
    with Ledger(url) as ledger:
        settle(ledger, *range(8))
        change(url, *CHANGES["moved"], CHANGES["k"][0].replace("3", "6"))
        assert settle(ledger, 1) == ["again"]
        for person in (3, 5):  # the one to whom it was moved, and the one with another k
            with pytest.raises(LedgerError, match="does not fit its key"):
                settle(ledger, person)


def test_what_the_chain_cannot_tell_a_kept_head_tells(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older state, whole in itself, is noticed by who has seen a later one: a running process, or a kept head."""
    engine = engine_of(url)
    tables = ("cfk_ledger_meta", "cfk_ledger_chain", "cfk_ledger_releases")
    with Ledger(url) as ledger:
        settle(ledger, 1)
        early = ledger.status().head
        change(url, *(f"CREATE TABLE older_{name} AS SELECT * FROM {name}" for name in tables))
        settle(ledger, 2)
        late = ledger.verify(early).head
        assert late != early
        change(url, *(f"DELETE FROM {name}" for name in tables))
        change(url, *(f"INSERT INTO {name} SELECT * FROM older_{name}" for name in tables))
        with pytest.raises(LedgerError, match="older state"):
            settle(ledger, 2)
    engine.dispose()
    cfk("ledger", "verify", url, code=0)  # said in the docs
    cfk("ledger", "verify", url, "--head", early, code=0)
    assert "older" in cfk("ledger", "verify", url, "--head", late, code=1)
    assert "head" in cfk("ledger", "verify", url, "--head", "no digest", code=1)
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    assert "another key" in cfk("ledger", "verify", url, code=2)


def test_the_end_of_another_history_is_found(file: Path, tmp_path: Path) -> None:
    """Two histories of one ledger are equally long; the end of one does not fit the other."""
    with Ledger(file, key=KEY, create=True) as ledger:
        settle(ledger, 1)
    other = Path(shutil.copy(file, tmp_path / "other.db"))
    for path, person in ((file, 2), (other, 3)):
        with Ledger(path, key=KEY) as ledger:
            settle(ledger, person)
    with closing(sqlite3.connect(other)) as database:
        (end,) = database.execute("SELECT value FROM cfk_ledger_meta WHERE name = 'head'").fetchone()
    change(f"sqlite:///{file}", f"UPDATE cfk_ledger_meta SET value = '{end}' WHERE name = 'head'")
    with pytest.raises(LedgerError, match="does not end where it should"):
        Ledger(file, key=KEY)


def test_erasing_and_repeating_keep_the_chain(url: str) -> None:
    with Ledger(url) as one, Ledger(url) as other:
        settle(one, *range(20))
        assert other.forget(*(other.handle([person]) for person in range(0, 20, 2))).records == 10
        assert settle(one, *range(1, 20, 2)) == ["again"] * 10
        entries = one.status().entries
        assert settle(one, *range(1, 20, 2)) == ["again"] * 10
        assert one.verify().entries == entries == 30  # what is repeated adds nothing
        settle(other, 1, k=9)
        assert (one.verify().releases, one.verify().entries) == (10, 31)


def test_of_a_long_ledger_opening_counts_what_it_does_not_recompute(file: Path) -> None:
    with Ledger(file, key=KEY, create=True) as ledger:
        for start in range(0, 22_000, 2_000):
            settle(ledger, *range(start, start + 2_000))
    change(f"sqlite:///{file}", "UPDATE cfk_ledger_releases SET k = 2 WHERE seq = 3")
    with Ledger(file, key=KEY) as ledger, pytest.raises(LedgerError, match="1 rows are changed"):
        ledger.verify()
    change(f"sqlite:///{file}", "DELETE FROM cfk_ledger_releases WHERE seq = 3")
    with pytest.raises(LedgerError, match="should have 22000 rows and has 21999"):
        Ledger(file, key=KEY)


OF_VERSION_1 = [
    "CREATE TABLE cfk_ledger_meta (name VARCHAR NOT NULL PRIMARY KEY, value VARCHAR NOT NULL)",
    "CREATE TABLE cfk_ledger_locks (record VARCHAR(64) NOT NULL PRIMARY KEY)",
    (
        "CREATE TABLE cfk_ledger_releases (id {number} NOT NULL PRIMARY KEY, record VARCHAR(64) NOT NULL, "
        "digest VARCHAR(64) NOT NULL, policy VARCHAR NOT NULL, population VARCHAR NOT NULL, region TEXT NOT NULL, "
        "guarantee VARCHAR NOT NULL, k INTEGER NOT NULL, effective INTEGER, first VARCHAR(27) NOT NULL, "
        "last VARCHAR(27) NOT NULL, times INTEGER NOT NULL, UNIQUE (record, digest, policy, population))"
    ),
    "CREATE TABLE cfk_budget_accounts (account VARCHAR NOT NULL PRIMARY KEY)",
    (
        "CREATE TABLE cfk_budget_ceilings (id {number} NOT NULL PRIMARY KEY, account VARCHAR NOT NULL, "
        "epsilon VARCHAR NOT NULL, delta VARCHAR NOT NULL, at VARCHAR(27) NOT NULL)"
    ),
    "CREATE INDEX ix_cfk_budget_ceilings_account ON cfk_budget_ceilings (account)",
    (
        "CREATE TABLE cfk_budget_spends (id {number} NOT NULL PRIMARY KEY, account VARCHAR NOT NULL, epsilon VARCHAR "
        "NOT NULL, delta VARCHAR NOT NULL, what VARCHAR NOT NULL, at VARCHAR(27) NOT NULL, "
        "token VARCHAR(32) NOT NULL UNIQUE)"
    ),
    "CREATE INDEX ix_cfk_budget_spends_account ON cfk_budget_spends (account)",
]
COPIED = {
    "releases": "record, digest, policy, population, region, guarantee, k, effective, first, last, times",
    "ceilings": "account, epsilon, delta, at",
    "spends": "account, epsilon, delta, what, at, token",
}


def test_a_ledger_of_the_version_before_is_upgraded_on_request_alone(url: str) -> None:
    fill(url)
    with Ledger(url) as ledger:
        rows = list(ledger.export())
    names = {name: f"cfk_{'ledger' if name == 'releases' else 'budget'}_{name}" for name in COPIED}
    change(url, *(f"CREATE TABLE kept_{name} AS SELECT * FROM {table}" for name, table in names.items()))
    change(url, "CREATE TABLE kept_meta AS SELECT * FROM cfk_ledger_meta")
    change(url, *(f"DROP TABLE cfk_ledger_{name}" for name in ("meta", "locks", "chain", "releases")))
    change(url, *(f"DROP TABLE cfk_budget_{name}" for name in ("accounts", "ceilings", "spends")))
    number = "BIGSERIAL" if url.startswith("postgresql") else "INTEGER"
    change(url, *(statement.format(number=number) for statement in OF_VERSION_1))
    change(
        url,
        "INSERT INTO cfk_ledger_meta SELECT * FROM kept_meta WHERE name IN ('key', 'created')",
        "INSERT INTO cfk_ledger_meta VALUES ('version', '1'), ('budgets', '1')",
        "INSERT INTO cfk_budget_accounts VALUES ('patients')",
        *(f"INSERT INTO {names[n]} ({c}) SELECT {c} FROM kept_{n} ORDER BY seq" for n, c in COPIED.items()),
    )
    with pytest.raises(LedgerError, match="cfk ledger upgrade"):
        Ledger(url)
    assert "10 rows" in cfk("ledger", "upgrade", url, code=0)
    assert "already" in cfk("ledger", "upgrade", url, code=2)
    cfk("ledger", "verify", url, code=0)
    with Ledger(url) as ledger:
        assert list(ledger.export()) == rows
        assert settle(ledger, 2, "new") == ["again", "new"]
    accountant = BudgetAccountant(1.0, ledger=url, scope="patients")
    assert accountant.remaining().epsilon == 0.5
    accountant.close()


# --- a database that others hold -------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(300)
"""


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a SQLite database in another process, until the block ends."""
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.kill()


@contextmanager
def within(least: float, most: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert least <= took <= most, took


@pytest.mark.parametrize("given", ["argument", "environment", "nobody"])
def test_a_locked_file_fails_within_the_limit(ledger: Ledger, file: Path, given: str, monkeypatch: Any) -> None:
    limit = 5.0 if given == "nobody" else 0.5
    if given == "environment":
        monkeypatch.setenv("CFK_LEDGER_TIMEOUT", str(limit))
    with Ledger(file, key=KEY, timeout=limit if given == "argument" else None) as patient:
        accountant = BudgetAccountant(1.0, ledger=patient, scope="patients")
        with held(file):
            with within(limit * 0.9, limit + 0.4), pytest.raises(LedgerError, match="in use by others"):
                settle(patient, "new")
            with within(limit * 0.9, limit + 0.4), pytest.raises(LedgerError, match="in use by others"):
                accountant.spend(None, 0.1, what="fit")
        assert settle(patient, "new") == ["new"]
        accountant.spend(None, 0.1, what="fit")
        assert accountant.remaining().epsilon == 0.9


def test_many_that_wait_at_once_all_end_within_the_limit(ledger: Ledger, file: Path) -> None:
    with Ledger(file, key=KEY, timeout=1.0) as patient, held(file):
        said: list[float] = []

        def ask() -> None:
            start = time.monotonic()
            with pytest.raises(LedgerError):
                settle(patient, "new")
            said.append(time.monotonic() - start)

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(said) == 40
        assert max(said) < 2.5


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(file: Path, timeout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LedgerError, match="CFK_LEDGER_TIMEOUT"):
        Ledger(file, key=KEY, create=True, timeout=timeout)
    monkeypatch.setenv("CFK_LEDGER_TIMEOUT", str(timeout))
    with pytest.raises(LedgerError, match="CFK_LEDGER_TIMEOUT"):
        Ledger(file, key=KEY, create=True)
    assert not file.exists()


WAITS = {
    "the gate": "SELECT pg_advisory_xact_lock(27978634042827879)",
    "the end of the chain": "SELECT * FROM cfk_ledger_meta FOR UPDATE",
    "a record": "SELECT * FROM cfk_ledger_locks FOR UPDATE",
    "an account": "SELECT * FROM cfk_budget_accounts FOR UPDATE",
    "a table": "LOCK TABLE cfk_ledger_releases, cfk_budget_spends IN ACCESS EXCLUSIVE MODE",
    "all": "LOCK TABLE cfk_ledger_meta IN ACCESS EXCLUSIVE MODE",
}


@pytest.mark.parametrize("what", WAITS)
def test_a_locked_server_fails_within_the_limit(
    postgres_url: str,  # noqa: F811 - a fixture
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    with Ledger(postgres_url, create=True, timeout=1.0) as ledger:
        accountant = BudgetAccountant(1.0, ledger=ledger, scope="patients")
        accountant.spend(None, 0.1, what="fit")
        settle(ledger, 1)
        engine = engine_of(postgres_url)
        with engine.begin() as other:
            other.execute(sqlalchemy.text(WAITS[what]))
            if what != "an account":
                with within(0.8, 1.5), pytest.raises(LedgerError, match="in use by others"):
                    settle(ledger, 1, "new")
            if what != "a record":
                with within(0.8, 1.5), pytest.raises(LedgerError, match="in use by others"):
                    accountant.spend(None, 0.1, what="fit")
        engine.dispose()
        assert settle(ledger, 1, "new") == ["again", "new"]
        assert accountant.remaining().epsilon == 0.9


def test_a_server_that_hangs_fails_within_the_limit(
    postgres_url: str,  # noqa: F811 - a fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    engine = engine_of(postgres_url)
    with Ledger(postgres_url, create=True, timeout=1.0) as ledger, engine.connect() as other:
        settle(ledger, 1)
        mine = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        backends = list(other.execute(sqlalchemy.text(mine)).scalars())
        assert backends
        for backend in backends:
            os.kill(backend, signal.SIGSTOP)
        try:
            with within(0.8, 1.8), pytest.raises(LedgerError, match="in use by others, or away"):
                settle(ledger, 1, "new")
        finally:
            for backend in backends:
                os.kill(backend, signal.SIGCONT)
        assert settle(ledger, 1) == ["again"]
    engine.dispose()


def test_what_one_request_waits_is_counted_together(
    postgres_url: str,  # noqa: F811 - a fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    with Ledger(postgres_url, create=True, timeout=1.0) as ledger:
        settle(ledger, 1)
        engine = engine_of(postgres_url)
        with engine.begin() as other:
            other.execute(sqlalchemy.text("LOCK TABLE cfk_ledger_releases IN ACCESS EXCLUSIVE MODE"))
            with within(0.8, 1.6), ledger.one_request():
                for _ in range(4):
                    with pytest.raises(LedgerError):
                        ledger.earlier(ledger.handle([1]))
        engine.dispose()


# --- a spool that disappears -----------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("CFK_SPOOL_FULL", getattr(request, "param", "suppress"))
    monkeypatch.setattr("cfk_plugin.records.spool._shippers", {})
    return tmp_path / "spool"


@pytest.mark.parametrize("spool", ["suppress", "release"], indirect=True)
@pytest.mark.parametrize("replaced", ["", "by an empty folder", "by another spool"])
def test_a_spool_that_is_gone_keeps_nothing_until_it_is_back(
    spool: Path, replaced: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    releases = os.environ["CFK_SPOOL_FULL"] == "release"
    logger = RunLogger(tracking_uri="http://127.0.0.1:9")
    logger.check()
    assert "a new one is made" in caplog.text
    assert logger.submit(explanations())
    spool.rename(tmp_path / "away")
    if replaced == "by an empty folder":
        spool.mkdir()
    elif replaced:
        another = RunLogger(tracking_uri="http://127.0.0.1:9", spool=tmp_path / "another")
        another.check()
        another._shipper.close(0)
        (tmp_path / "another").rename(spool)
    for _ in range(3):
        assert logger.submit(explanations()) == releases
    assert "is gone, or another is in its place" in caplog.text
    if replaced == "by an empty folder":
        assert list(spool.iterdir()) == []
    if replaced:
        shutil.rmtree(spool)
    (tmp_path / "away").rename(spool)
    assert logger.submit(explanations())
    logger._shipper.close(0)
    with closing(sqlite3.connect(spool / "spool.db")) as db:
        assert db.execute("SELECT count(*) FROM records").fetchone() == (2,)


@pytest.mark.parametrize("missing", ["the folder", "room"])
def test_what_did_not_leave_for_want_of_a_record_is_not_in_the_ledger_as_left(
    spool: Path, ledger: Ledger, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFK_SPOOL_MB", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    frame = people()
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]), key=b"key")
    queries, wanted = frame[frame["salary"] <= 2_000].head(4), frame[frame["salary"] > 2_000]

    def explain(rows: pd.DataFrame) -> pd.DataFrame:
        return wanted.head(len(rows)).set_axis(rows.index)

    private = protect(
        explain, model=lambda rows: rows["salary"] > 2_000, desired=True, population=population,
        policy=PrivacyPolicy(k=7), ledger=ledger, track=True,
    )  # fmt: skip
    before = ledger.status().records
    if missing == "room":
        with closing(sqlite3.connect(spool / "spool.db", isolation_level=None)) as db:
            db.execute("INSERT INTO streams (id, target, holder, until) VALUES ('filler', '{}', 'nobody', 1e12)")
            db.execute(f"PRAGMA max_page_count={1_000_000 // db.execute('PRAGMA page_size').fetchone()[0]}")
            with contextlib.suppress(sqlite3.OperationalError):  # that it is full
                for _ in range(1_000):
                    db.execute("INSERT INTO records (stream, created, body) VALUES ('filler', 0, zeroblob(4000))")
    else:
        spool.rename(spool.parent / "away")
    assert {entry.reason for entry in private.explain(queries).suppressed} == {"not_recorded"}
    assert ledger.status().records == before
    if missing == "room":
        with closing(sqlite3.connect(spool / "spool.db", isolation_level=None)) as db:
            db.execute("DELETE FROM records")
    else:
        (spool.parent / "away").rename(spool)
    assert private.explain(queries).released
    assert ledger.status().records > before


def test_what_a_deleted_spool_held_is_still_sent(spool: Path, tmp_path: Path) -> None:
    store(tmp_path)
    logger = RunLogger()
    assert logger.submit(explanations())
    shutil.rmtree(spool)
    assert not logger.submit(explanations())
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 3


# --- real servers ----------------------------------------------------------------------------------------------


def answers(server: Server, n: int) -> Counter[tuple[int, Any]]:
    """Ask one by one; count the answers by what became of them."""
    found: Counter[tuple[int, Any]] = Counter()
    for i in range(n):
        row = {"age": 25 + i % 30, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}
        status, text = server.post({"dataframe_records": [row]})
        records = json.loads(text).get("predictions", [{}]) if status == 200 else [{}]
        found.update((status, record.get("reason") or record.get("status")) for record in records)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cfk serve", "mlflow models serve"])
def test_a_server_withholds_while_its_ledger_is_gone_or_locked(kind: str, tmp_path: Path) -> None:
    uri, file = store(tmp_path), tmp_path / "ledger.db"
    environment = {"CFK_LEDGER_KEY": "a secret of the servers"}
    command = by_cfk(tmp_path, "--ledger", str(file))
    if kind != "cfk serve":
        command = by_mlflow(tmp_path, ledger=True)
        environment["CFK_LEDGER"] = str(file)
    (tmp_path / "ledger").mkdir()
    with pytest.raises(RuntimeError, match="cfk ledger create"), serving(tmp_path, uri, command, **environment):
        pass
    assert not file.exists()
    Ledger(file, key=environment["CFK_LEDGER_KEY"].encode(), create=True).close()
    with serving(tmp_path, uri, command, **environment) as server:
        assert answers(server, 5) == {(200, "released"): 5}
        away(file)
        assert answers(server, 40) == {(200, "ledger_failed"): 40}
        assert str(file) in server.console.read_text()
        put_back(file)
        assert answers(server, 5) == {(200, "released"): 5}
        with held(file), within(4.0, 6.5):
            assert answers(server, 1) == {(200, "ledger_failed"): 1}
        assert answers(server, 5) == {(200, "released"): 5}
        assert "SENTINEL" not in server.console.read_text()
    away(file)
    with pytest.raises(RuntimeError, match="no such ledger"), serving(tmp_path, uri, command, **environment):
        pass
    assert not file.exists()


@pytest.mark.slow
def test_a_server_withholds_while_its_spool_is_gone(tmp_path: Path) -> None:
    uri, spool = store(tmp_path), tmp_path / "spool"
    with serving(tmp_path, uri, by_cfk(tmp_path, "--track"), CFK_SPOOL=str(spool)) as server:
        assert answers(server, 5) == {(200, "released"): 5}
        shutil.rmtree(spool)
        assert answers(server, 5) == {(200, "not_recorded"): 5}
        server.process.send_signal(signal.SIGTERM)
