"""A ledger, a budget or a spool that is gone, changed, put back as it was before, or locked lets
nothing leave.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from cfk_plugin import BudgetAccountant, Ledger
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.database import seconds_of
from commands import output_of
from ledgers import CANARY, OTHER, change, connected, settle
from model_server import Server, by_mlflow, serving, store


def refused(ledger: Ledger) -> str:
    """Return why nothing may leave; neither to read nor to write is allowed."""
    with pytest.raises(LedgerError) as caught:
        settle(ledger, "asked while it is gone")
    with pytest.raises(LedgerError):
        ledger.latest([ledger.handle([1])])
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger" / "ledger.db"


@pytest.fixture
def ledger(file: Path) -> Iterator[Ledger]:
    """Return a ledger in a file with some releases; a whole copy of an earlier state is beside its
    folder.
    """
    with Ledger(file, create=True, timeout=1.0) as opened:
        settle(opened, *range(5))
        with (
            closing(sqlite3.connect(file)) as source,
            closing(sqlite3.connect(file.parent.parent / "older.db")) as to,
        ):
            source.backup(to)
        settle(opened, *range(5, 9))
        yield opened


# --- a ledger that disappears ---------------------------------------------------------------------


def away(file: Path) -> None:
    """Move the files of a ledger into another folder."""
    there = file.parent.parent / "away"
    there.mkdir(exist_ok=True)
    shutil.move(file, there / file.name)


def put_back(file: Path) -> None:
    if not file.parent.exists():
        (file.parent.parent / "away").rename(file.parent)
        return
    if file.is_dir():
        file.rmdir()
    for path in (file.parent.parent / "away").iterdir():
        shutil.move(path, file.parent / path.name)


def another_ledger(file: Path) -> None:
    Ledger(file.parent / "new.db", create=True).close()
    (file.parent / "new.db").rename(file)


INSTEAD: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda file: None,
    "an empty file": Path.touch,
    "another ledger": another_ledger,
    "an older state": lambda file: shutil.copy(file.parent.parent / "older.db", file),
    "no database": lambda file: file.write_bytes(b"no database " * 1000),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("instead", ["the folder is away", "the database alone is away", *INSTEAD])
def test_nothing_leaves_until_the_ledger_that_was_opened_is_back(
    ledger: Ledger, file: Path, instead: str
) -> None:
    if instead == "the folder is away":
        file.parent.rename(file.parent.parent / "away")
    elif instead not in INSTEAD:
        (file.parent.parent / "away").mkdir()
        file.rename(file.parent.parent / "away" / file.name)
    else:
        away(file)
        INSTEAD[instead](file)
    for _ in range(3):
        assert str(file) in refused(ledger) or "older state" in refused(ledger)
    if instead in INSTEAD:
        if instead != "a folder":
            file.unlink(missing_ok=True)
    put_back(file)
    assert settle(ledger, 3, "new") == ["again", "new"]
    with Ledger(file) as again:
        assert again.verify().releases == len(list(again.export())) == 10


def test_a_file_that_is_deleted_while_it_is_open_is_missed(ledger: Ledger, file: Path) -> None:
    file.unlink()
    refused(ledger)


def test_all_releases_are_in_the_one_file_of_the_ledger(ledger: Ledger, file: Path) -> None:
    """Were some in a log beside it, whoever opens the ledger without that would not know them."""
    assert {path.name for path in file.parent.iterdir()} <= {file.name, f"{file.name}.key"}
    copy = Path(shutil.copy(file, file.parent.parent / "copy.db"))
    assert settle(ledger, 3, "new") == ["again", "new"]
    assert {path.name for path in file.parent.iterdir()} <= {file.name, f"{file.name}.key"}
    with Ledger(file) as another, Ledger(copy) as older:
        assert (another.verify().releases, older.verify().releases) == (10, 9)


def test_a_file_that_was_cut_off_is_missed(ledger: Ledger, file: Path) -> None:
    os.truncate(file, 0)
    refused(ledger)
    with pytest.raises(LedgerError):
        Ledger(file)


def test_a_link_is_followed_and_missed_when_it_points_elsewhere(
    ledger: Ledger, file: Path, tmp_path: Path
) -> None:
    Ledger(tmp_path / "other.db", create=True).close()
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with Ledger(link) as linked:
        assert settle(linked, 3) == ["again"]
        for there in (tmp_path / "other.db", file):
            link.unlink()
            link.symlink_to(there)
            if there != file:
                refused(linked)
        assert settle(linked, 3) == ["again"]


def test_a_path_is_the_same_one_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("ledger.db", create=True) as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert settle(ledger, 1) == ["new"]
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_goes_while_it_is_decided_keeps_the_answer_back(
    ledger: Ledger, file: Path
) -> None:
    with pytest.raises(LedgerError, match="gone"):
        settle(ledger, "new", people=lambda: 50 if not file.exists() else away(file) or 50)  # type: ignore[func-returns-value]


TABLES = [
    f"cfk_ledger_{name}"
    for name in ("meta", "locks", "chain", "releases", "groups", "tables", "editions")
]
TABLES += [f"cfk_budget_{name}" for name in ("accounts", "ceilings", "spends")]


def keep(url: str, name: str) -> None:
    change(url, *(f"CREATE TABLE {name}_{table} AS SELECT * FROM {table}" for table in TABLES))


def bring(url: str, name: str) -> None:
    change(url, *(f"DELETE FROM {table}" for table in TABLES))
    change(url, *(f"INSERT INTO {table} SELECT * FROM {name}_{table}" for table in TABLES))


@pytest.mark.parametrize("another", [False, True])
def test_tables_on_a_server_that_are_gone_or_others_are_missed(
    postgres_url: str, another: bool
) -> None:
    with Ledger(postgres_url, create=True) as ledger:
        settle(ledger, *range(5))
        change(postgres_url, *(f"DROP TABLE {name}" for name in TABLES))
        if another:
            Ledger(postgres_url, create=True).close()
        refused(ledger)


def test_an_older_state_is_noticed_by_who_has_seen_a_later_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is whole in itself: only a running process, or a kept head, can tell."""
    with Ledger(url, create=True) as ledger:
        settle(ledger, 1)
        early = ledger.status().head
        keep(url, "older")
        settle(ledger, 2)
        late = ledger.verify(early).head
        assert late != early
        keep(url, "newer")
        bring(url, "older")
        assert "older state" in refused(ledger)
        output_of("ledger verify", url)  # said in the docs
        output_of("ledger verify", url, "--head", early)
        assert "older" in output_of("ledger verify", url, "--head", late, code=1)
        assert "head" in output_of("ledger verify", url, "--head", "no digest", code=1)
        with Ledger(url) as other:
            settle(other, 3, 4)  # it has more entries by now than what was seen, but not the same
        assert "older state" in refused(ledger)
        bring(url, "newer")
        assert settle(ledger, 2, "new") == ["again", "new"]
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    assert "another key" in output_of("ledger verify", url, code=2)


def test_who_finds_no_ledger_makes_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for use in (
        lambda: Ledger(file),
        lambda: BudgetAccountant(1.0, ledger=file, scope="patients"),
        Ledger,
    ):
        with pytest.raises(LedgerError, match=r"no such ledger.*cfk ledger create"):
            use()
    on_budgets = "budget show", "budget raise --account a --epsilon 2"
    for command in ("ledger status", "ledger verify", *on_budgets):
        assert "no such ledger" in output_of(command, file, code=2)
    assert list(file.parent.iterdir()) == []
    assert not (tmp_path / "state").exists()
    assert "releases 0" in output_of("ledger create", file)
    made = file.read_bytes()
    assert "already" in output_of("ledger create", file, code=2)
    assert file.read_bytes() == made
    output_of("ledger verify", file)


# --- rows that are deleted, moved or changed ------------------------------------------------------

RELEASE = "UPDATE cfk_ledger_releases SET {} WHERE seq = 3"
OF_10 = "(SELECT {} FROM cfk_ledger_releases WHERE seq = 10)"
CHANGES: dict[str, list[str]] = {
    "deleted": ["DELETE FROM cfk_ledger_releases WHERE seq = 3"],
    "deleted with its entry": [
        "DELETE FROM cfk_ledger_releases WHERE seq = 3",
        "DELETE FROM cfk_ledger_chain WHERE seq = 3",
    ],
    "deleted as if erased": [
        "DELETE FROM cfk_ledger_releases WHERE seq = 3",
        "INSERT INTO cfk_ledger_chain SELECT seq + 1, 3, NULL, link FROM cfk_ledger_chain ORDER BY seq DESC LIMIT 1",
    ],
    "the last ones deleted": [
        "DELETE FROM cfk_ledger_releases WHERE seq > 6",
        "DELETE FROM cfk_ledger_chain WHERE seq > 6",
    ],
    "all deleted": ["DELETE FROM cfk_ledger_releases", "DELETE FROM cfk_ledger_chain"],
    "moved": [RELEASE.format(f"record = {OF_10.format('record')}, policy = 'q'")],
    "k": [RELEASE.format("k = 2")],
    "its group": [RELEASE.format(f"group_id = {OF_10.format('group_id')}")],
    "people of a group": [
        "UPDATE cfk_ledger_groups SET inside = substr(inside, 17) WHERE seq = 13"
    ],
    "a group deleted": ["DELETE FROM cfk_ledger_groups WHERE seq = 13"],
    "guarantee": [RELEASE.format("guarantee = 'reciprocal'")],
    "region": [RELEASE.format("region = replace(region, '40', '90')")],
    "region and its hash": [
        RELEASE.format(f"region = {OF_10.format('region')}, digest = {OF_10.format('digest')}")
    ],
    "entry": ["UPDATE cfk_ledger_chain SET content = link WHERE seq = 3"],
    "identity": ["UPDATE cfk_ledger_meta SET value = 'another' WHERE name = 'identity'"],
    "head": ["DELETE FROM cfk_ledger_meta WHERE name = 'head'"],
    "added": [
        (
            "INSERT INTO cfk_ledger_releases SELECT 99, salt, 'r', digest, policy, population, region, guarantee, k, "
            "group_id, first, last, times FROM cfk_ledger_releases WHERE seq = 3"
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
    with Ledger(url, create=True) as ledger:
        settle(ledger, *range(8))
        settle(ledger, 8, region=OTHER)
        settle(ledger, 0, k=9)
        ledger.forget(ledger.handle([1]))
        BudgetAccountant(1.0, ledger=ledger, scope="patients").spend(None, 0.5, what="fit")


def missed(url: str, what: str) -> None:
    change(url, *CHANGES[what])
    assert "restore it from a backup" in output_of("ledger verify", url, code=1)
    with pytest.raises(LedgerError, match="not as it was written"):
        Ledger(url)
    with pytest.raises(LedgerError, match="not as it was written"):
        BudgetAccountant(1.0, ledger=url, scope="patients")


@pytest.mark.parametrize("what", CHANGES)
def test_rows_that_are_taken_away_or_changed_are_found(file: Path, what: str) -> None:
    fill(str(file))
    assert "as it was written" in output_of("ledger verify", file)
    missed(f"sqlite:///{file}", what)


def test_rows_on_a_server_that_are_changed_are_found(postgres_url: str) -> None:
    fill(postgres_url)
    assert "as it was written" in output_of("ledger verify", postgres_url)
    missed(postgres_url, "region and its hash")


def test_a_changed_row_is_found_when_it_is_asked_for(ledger: Ledger, file: Path) -> None:
    change(
        f"sqlite:///{file}", *CHANGES["moved"], CHANGES["region"][0].replace("seq = 3", "seq = 7")
    )
    assert settle(ledger, 1) == ["again"]
    for person in (8, 5):  # the one to whom it was moved, and the one with another region
        for use in (
            settle,
            lambda ledger, person: ledger.latest([ledger.handle([person])], "p" * 64, "f" * 16),
        ):
            with pytest.raises(LedgerError, match="does not fit its key") as caught:
                use(ledger, person)
            assert CANARY not in str(caught.value)


def test_the_end_of_another_history_is_found(file: Path, tmp_path: Path) -> None:
    """Two histories of one ledger are equally long; the end of one does not fit the other."""
    with Ledger(file, create=True) as ledger:
        settle(ledger, 1)
    other = Path(shutil.copy(file, tmp_path / "other.db"))
    for path, person in ((file, 2), (other, 3)):
        with Ledger(path) as ledger:
            settle(ledger, person)
    with closing(sqlite3.connect(other)) as database:
        (end,) = database.execute(
            "SELECT value FROM cfk_ledger_meta WHERE name = 'head'"
        ).fetchone()
    change(f"sqlite:///{file}", f"UPDATE cfk_ledger_meta SET value = '{end}' WHERE name = 'head'")
    with pytest.raises(LedgerError, match="does not end where it should"):
        Ledger(file)


def test_erasing_and_repeating_keep_the_chain(url: str) -> None:
    with Ledger(url, create=True) as one, Ledger(url) as other:
        settle(one, *range(20))
        assert other.forget(*(other.handle([person]) for person in range(0, 20, 2))).records == 10
        assert settle(one, *range(1, 20, 2)) == ["again"] * 10
        entries = one.status().entries
        assert settle(one, *range(1, 20, 2)) == ["again"] * 10
        assert one.verify().entries == entries == 31  # what is repeated adds nothing
        settle(other, 1, k=9)
        assert (one.verify().releases, one.verify().entries) == (10, 33)  # the group has k, too


def test_of_a_long_ledger_opening_counts_what_it_does_not_recompute(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfk_plugin.records.ledger.AT_OPENING", 50)
    monkeypatch.setattr("cfk_plugin.records.chain._PAGE", 20)  # so that there are several
    with Ledger(file, create=True) as ledger:
        settle(ledger, *range(100))
    change(f"sqlite:///{file}", CHANGES["k"][0])
    with Ledger(file) as ledger, pytest.raises(LedgerError, match="1 rows are changed"):
        ledger.verify()
    change(f"sqlite:///{file}", *CHANGES["deleted"])
    with pytest.raises(LedgerError, match="should have 101 rows and has 100"):
        Ledger(file)
    change(f"sqlite:///{file}", CHANGES["k"][0].replace("seq = 3", "seq = 60"))
    with pytest.raises(LedgerError, match="not as it was written"):
        Ledger(file)


# --- a database that others hold ------------------------------------------------------------------


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a SQLite database until the block ends."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def within(least: float, most: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert least <= took <= most, took


LIMIT = 0.3  # seconds
# of a busy machine; who waited as long as by default, or for the end of a lock, would take longer
SLACK = 4.0


@contextmanager
def in_use(least: float = LIMIT * 0.9) -> Iterator[None]:
    with within(least, LIMIT + SLACK), pytest.raises(LedgerError, match="in use by others"):
        yield


@pytest.mark.parametrize("given", ["argument", "nobody"])
def test_a_locked_file_fails_within_the_limit(
    ledger: Ledger, file: Path, given: str, monkeypatch: Any
) -> None:
    assert seconds_of(None) == 5.0
    if given == "nobody":
        monkeypatch.setattr("cfk_plugin.records.database._SECONDS", LIMIT)
    with Ledger(file, timeout=LIMIT if given == "argument" else None) as patient:
        accountant = BudgetAccountant(1.0, ledger=patient, scope="patients")
        with held(file):
            with in_use():
                settle(patient, "new")
            with in_use():
                accountant.spend(None, 0.1, what="fit")
        assert settle(patient, "new") == ["new"]
        accountant.spend(None, 0.1, what="fit")
        assert accountant.remaining().epsilon == 0.9


def test_many_that_wait_at_once_all_end_within_the_limit(ledger: Ledger, file: Path) -> None:
    with Ledger(file, timeout=LIMIT) as patient, held(file):
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
        assert max(said) < LIMIT + SLACK  # and not 40 times the limit


@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(file: Path, timeout: Any) -> None:
    with pytest.raises(LedgerError, match="seconds above 0 and up to 3600"):
        Ledger(file, create=True, timeout=timeout)
    assert not file.exists()


WAITS = {  # what is locked, and who waits for it
    "the gate": ("SELECT pg_advisory_xact_lock(27978634042827879)", "settle"),
    "the end of the chain": ("SELECT * FROM cfk_ledger_meta FOR UPDATE", "spend"),
    "a record": ("SELECT * FROM cfk_ledger_locks FOR UPDATE", "settle"),
    "an account": ("SELECT * FROM cfk_budget_accounts FOR UPDATE", "spend"),
    "a table": ("LOCK TABLE cfk_ledger_releases IN ACCESS EXCLUSIVE MODE", "settle"),
    "all": ("LOCK TABLE cfk_ledger_meta IN ACCESS EXCLUSIVE MODE", "spend"),
}


def impatient(url: str) -> Ledger:
    """Open a ledger that waits for the limit and no longer; again where opening takes as long, on a
    busy machine.
    """
    while True:
        with suppress(LedgerError):
            return Ledger(url, timeout=LIMIT)


@pytest.mark.parametrize("what", WAITS)
def test_a_locked_server_fails_within_the_limit(postgres_url: str, what: str) -> None:
    lock, who = WAITS[what]
    with Ledger(postgres_url, create=True) as patient:
        books = BudgetAccountant(1.0, ledger=patient, scope="patients")
        books.spend(None, 0.1, what="fit")
        settle(patient, 1)
        with impatient(postgres_url) as ledger, connected(postgres_url) as other:
            accountant = BudgetAccountant(1.0, ledger=ledger, scope="patients")
            other.execute(sqlalchemy.text(lock))
            with in_use(LIMIT * 0.7):
                settle(ledger, 1, "new") if who == "settle" else accountant.spend(
                    None, 0.1, what="fit"
                )
        assert settle(patient, 1, "new") == ["again", "new"]
        assert books.remaining().epsilon == 0.9


def test_a_server_that_hangs_fails_within_the_limit(postgres_url: str) -> None:
    with Ledger(postgres_url, create=True) as patient:
        settle(patient, 1)
        with impatient(postgres_url) as ledger, connected(postgres_url) as other:
            mine = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            backends = list(other.execute(sqlalchemy.text(mine)).scalars())
            assert backends
            for backend in backends:
                os.kill(backend, signal.SIGSTOP)
            try:
                with (
                    within(LIMIT * 0.7, LIMIT + SLACK),
                    pytest.raises(LedgerError, match="in use by others, or away"),
                ):
                    settle(ledger, 1, "new")
            finally:
                for backend in backends:
                    os.kill(backend, signal.SIGCONT)
        assert settle(patient, 1) == ["again"]


def test_what_one_request_waits_is_counted_together(postgres_url: str) -> None:
    with Ledger(postgres_url, create=True) as patient:
        settle(patient, 1)
    with impatient(postgres_url) as ledger, connected(postgres_url) as other:
        other.execute(sqlalchemy.text("LOCK TABLE cfk_ledger_releases IN ACCESS EXCLUSIVE MODE"))
        with within(LIMIT * 0.7, LIMIT + SLACK), ledger.one_request():
            for _ in range(20):
                with pytest.raises(LedgerError):
                    ledger.latest([ledger.handle([1])])


# --- real servers ---------------------------------------------------------------------------------


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
def test_a_server_withholds_while_its_ledger_is_gone_or_locked(tmp_path: Path) -> None:
    uri, file = store(tmp_path), tmp_path / "ledger.db"
    environment = {"CFK_LEDGER_KEY": "a secret of the servers"}
    command = by_mlflow(tmp_path, ledger=True)
    environment["CFK_LEDGER"] = str(file)
    (tmp_path / "ledger").mkdir()
    with (
        pytest.raises(RuntimeError, match="cfk ledger create"),
        serving(tmp_path, uri, command, **environment),
    ):
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


@pytest.mark.slow
def test_a_server_withholds_while_its_spool_is_gone(tmp_path: Path) -> None:
    uri, spool = store(tmp_path), tmp_path / "spool"
    with serving(tmp_path, uri, by_mlflow(tmp_path, track=True), CFK_SPOOL=str(spool)) as server:
        assert answers(server, 5) == {(200, "released"): 5}
        shutil.rmtree(spool)
        assert answers(server, 5) == {(200, "not_recorded"): 5}
        server.process.send_signal(signal.SIGTERM)
