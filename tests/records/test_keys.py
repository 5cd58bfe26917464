"""The key of a ledger, and the handles by which it knows records."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import threading
from datetime import date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Ledger
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.keys import Key, find_key

KEY = b"k" * 32
posix = pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")


def handles(*records: list[Any]) -> set[str]:
    return {Key(KEY).handle(values) for values in records}


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CFK_LEDGER_KEY")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a ledger is, with the key that was made beside it."""
    Ledger(tmp_path / "ledger.db", create=True).close()
    return tmp_path / "ledger.db"


@pytest.mark.parametrize(
    "values",
    [
        (3, 3.0, np.int8(3), np.float32(3), "3", Decimal("3.0")),
        (1.5, np.float64(1.5), "1.5", Decimal("1.50")),
        (True, np.bool_(True), "True"),
        (None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT", "ns")),
        ("a", np.str_("a")),
        (
            date(2020, 1, 2),
            pd.Timestamp("2020-01-02"),
            np.datetime64("2020-01-02"),
            "2020-01-02",
            "2020-01-02 00:00",
        ),
        (
            pd.Timestamp("2020-01-02 01:00", tz="Europe/Brussels"),
            "2020-01-02T00:00:00Z",
            "2020-01-02 01:00:00+01:00",
        ),
        ("2020-99-99", "2020-99-99"),
        (datetime(2020, 1, 2, 3, 4), pd.Timestamp("2020-01-02 03:04"), "2020-01-02 03:04:00"),  # noqa: DTZ001
        (0.0, -0.0, 0),
    ],
    ids=lambda values: str(values[0]),
)
def test_one_value_has_one_spelling(values: tuple[Any, ...]) -> None:
    assert len(handles(*(["x", value] for value in values))) == 1


def test_encoding_is_unambiguous() -> None:
    lists: list[list[Any]] = [
        [], [""], [None], ["None"], ["a", "b"], ["b", "a"], ["ab"], ["a,b"], ['a","b'], ["a", "b", None], ["a\x00b"],
        ["null"], ["nan"], ["ä"], ["\\u00e4"], ["\ud800"],
    ]  # fmt: skip
    assert len(handles(*lists)) == len(lists)


def test_kinds_and_keys_have_unrelated_handles() -> None:
    found = {
        Key(k).digest(kind, '["1"]')
        for k in (KEY, b"l" * 32)
        for kind in ("record", "region", "key")
    }
    assert handles([1]) < found
    assert len(found) == 6


def test_handles_do_not_change_between_versions() -> None:
    # Another result here would orphan every ledger that exists: it needs a new version of the
    # tables.
    assert handles([3, "a", None, 1.5]) == {
        "4152ca34b46e96ed529c73bd5dd9453986ce66d1be51a90fb212657e6387d0ba"
    }


def test_row_read_back_from_csv_has_the_same_handle() -> None:
    frame = pd.DataFrame(
        {
            "age": [3, 4],
            "income": [0.1 + 0.2, 1e22],
            "born": pd.to_datetime(["2020-01-01", "2021-02-03"]),
            "seen": pd.to_datetime(
                ["2020-01-01 10:00:00", "2021-02-03 11:12:13.5"], format="ISO8601"
            ),
            "city": ["Gent", None],
            "member": [True, False],
            "codes": pd.Series([7, None], dtype="Int64"),
        }
    )
    back = pd.read_csv(StringIO(frame.to_csv(index=False)))
    for i in range(2):
        assert len(handles(*(table.iloc[i].tolist() for table in (frame, back)))) == 1


@pytest.mark.parametrize("unusable", [b"short", "text" * 10, 12])
def test_unusable_key_is_refused_without_showing_it(unusable: Any, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="key") as caught:
        Ledger(tmp_path / "ledger.db", key=unusable, create=True)
    assert str(unusable) not in str(caught.value)
    assert not (tmp_path / "ledger.db").exists()


@posix
def test_ledger_and_key_file_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Ledger(tmp_path / "ledger.db", create=True) as ledger:
            ledger.status()
            assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    finally:
        os.umask(old)
    assert len((tmp_path / "ledger.db.key").read_bytes()) == 32
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.db", "ledger.db.key"}
    with Ledger(tmp_path / "ledger.db") as again:
        assert again.handle([1]) == ledger.handle([1])


@posix
@pytest.mark.parametrize("mode", [0o640, 0o601])
def test_key_file_that_others_may_use_is_refused(file: Path, mode: int) -> None:
    Path(f"{file}.key").chmod(mode)
    with pytest.raises(LedgerError, match=f"{mode:04o}.*chmod 600"):
        Ledger(file)


def test_lost_key_file_is_not_replaced(file: Path) -> None:
    Path(f"{file}.key").unlink()
    with pytest.raises(LedgerError, match="no such key file"):
        Ledger(file)
    assert not Path(f"{file}.key").exists()


@pytest.mark.parametrize(
    ("name", "said"), [("empty", "16 to 4096 bytes"), ("no/key", "cannot be written")]
)
def test_unusable_key_file_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty").touch(0o600)
    with pytest.raises(LedgerError, match=said):
        Ledger(tmp_path / "ledger.db", key_file=tmp_path / name, create=True)


def test_all_that_make_the_key_file_at_once_get_the_same(tmp_path: Path) -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: ids.append(find_key(None, None, tmp_path / "ledger.db", create=True).id)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids))) == (8, 1)


def test_argument_wins_over_file_over_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_bytes(b"f" * 32)
    (tmp_path / "key").chmod(0o600)
    beside = tmp_path / "ledger.db"
    for text, key in (("e" * 20, b"e" * 20), (KEY.hex(), KEY)):
        monkeypatch.setenv("CFK_LEDGER_KEY", text)
        assert find_key(None, None, beside, create=True).id == Key(key).id
        assert find_key(None, tmp_path / "key", beside, create=True).id == Key(b"f" * 32).id
        assert find_key(b"a" * 32, None, beside, create=True).id == Key(b"a" * 32).id
    with pytest.raises(LedgerError, match="not both"):
        find_key(KEY, tmp_path / "key", beside, create=True)


def test_ledger_on_a_server_needs_a_key_that_is_given() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="CFK_LEDGER_KEY"):
        Ledger("postgresql://user:canary@127.0.0.1:1/none")


def test_key_and_ledger_refuse_to_be_copied(ledger: Ledger) -> None:
    for thing in (ledger, Key(KEY)):
        for copier in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(LedgerError, match="refuses to be pickled"):
                copier(thing)


def test_handle_of_a_text_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="sequence"):
        ledger.handle("canary")
