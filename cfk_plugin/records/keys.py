"""The key of a ledger, handles made with it, and files that must not be replaced."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from cfk_plugin.data.region import natural, to_text
from cfk_plugin.errors import HostOnly, InputError, LedgerError, quiet

ENVIRONMENT = "CFK_LEDGER_KEY"
_BYTES = 32
_LEAST = 16  # a shorter key could be guessed
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})?)?")
_HANDLE = re.compile(r"[0-9a-f]{64}")
# Digits of a float that count: sums such as 0.1 + 0.2 differ from 0.3 in the 17th.
_SIGNIFICANT = 12
_FRACTION = re.compile(r"-?\d+\.\d+")  # a text that is a number, as in a CSV file
_PERSON_DIGITS = 16
_PERSON = re.compile(r"[0-9a-f]{16}")


class Key(HostOnly):
    __slots__ = ("_secret",)
    _refusal = (
        LedgerError,
        "the key of a ledger refuses to be pickled; open the ledger in the process that uses it",
    )

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, (bytes, bytearray)):
            raise LedgerError(
                f"the ledger's key must be bytes, got {type(secret).__name__}; see"
                " secrets.token_bytes"
            )
        if len(secret) < _LEAST:
            raise LedgerError(
                f"the ledger's key has {len(secret)} bytes, at least {_LEAST} are needed; 32 are"
                " usual"
            )
        self._secret = bytes(secret)

    def digest(self, kind: str, text: str) -> str:
        """Return the HMAC-SHA256 of a text, 64 hex digits; a text has unrelated digests for
        different kinds.
        """
        message = f"cfk ledger 1\x00{kind}\x00{text}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()

    def handle(self, values: Sequence[object]) -> str:
        """Return the handle of a record: 64 hex digits."""
        return self._handle_of("record", [canonical_text(value) for value in values])

    def person(self, texts: Sequence[str | None]) -> str:
        """Return the handle of a person whom these texts identify: 16 hex digits.

        A group on record has one of them for each of its people, and comparing groups needs no
        more: two of a million people share one with a chance below 1 in 10 million.
        """
        return self._handle_of("person", texts)[:_PERSON_DIGITS]

    def _handle_of(self, kind: str, texts: Sequence[str | None]) -> str:
        return self.digest(kind, json.dumps(texts, ensure_ascii=True, separators=(",", ":")))

    @property
    def id(self) -> str:
        """Eight hex digits by which a ledger knows its key; they tell nothing about it."""
        return self.digest("key", "id")[:8]


def is_handle(text: object) -> bool:
    """Say whether a text is a handle, so that no plain value is ever stored as one."""
    return isinstance(text, str) and _HANDLE.fullmatch(text) is not None


def is_person(text: object) -> bool:
    """Say whether a text is the handle of a person."""
    return isinstance(text, str) and _PERSON.fullmatch(text) is not None


def join_people(people: Iterable[str]) -> str:
    """Write handles of people as one text."""
    return "".join(sorted(people))


def split_people(text: str) -> frozenset[str]:
    """Read handles of people from the text of `join_people`."""
    starts = range(0, len(text), _PERSON_DIGITS)
    return frozenset(text[start : start + _PERSON_DIGITS] for start in starts)


def canonical_text(value: Any) -> str | None:
    """Spell a value in one way whatever its dtype; None is a missing value.

    Texts that look alike are one value: they are compared in Unicode's normal form NFKC, without
    blanks around them. So are floats that differ in a rounding error alone.
    """
    plain = natural(pd.Timestamp(value) if isinstance(value, np.datetime64) else value)
    if plain is None:
        return None
    if isinstance(plain, Decimal):
        plain = float(plain)
    if isinstance(plain, str):
        plain = unicodedata.normalize("NFKC", plain).strip()
    if isinstance(plain, date) or (isinstance(plain, str) and _ISO.fullmatch(plain)):
        # A date is spelled like its text, so that a row read back from a CSV file has the same
        # handle.
        with contextlib.suppress(ValueError):
            moment = pd.Timestamp(plain)
            return (moment if moment.tz is None else moment.tz_convert("UTC")).isoformat()
    if isinstance(plain, str) and _FRACTION.fullmatch(plain):
        plain = float(plain)
    if isinstance(plain, float) and not plain.is_integer():
        return to_text(float(f"{plain:.{_SIGNIFICANT}g}"))
    return to_text(plain)


def find_key(
    key: bytes | None, key_file: str | Path | None, beside: Path | None, create: bool
) -> Key:
    """Return the key: as given, else from the key file, else the environment, else the file beside
    the ledger.
    """
    if key is not None:
        if key_file is not None:
            raise LedgerError("give the ledger either key= or key_file=, not both")
        return Key(key)
    if key_file is None and (text := os.environ.get(ENVIRONMENT)):
        hexadecimal = re.fullmatch(r"[0-9a-fA-F]{64}", text)
        return Key(bytes.fromhex(text) if hexadecimal else text.encode())
    if key_file is None and beside is None:
        raise LedgerError(
            f"a ledger on a server needs a key that all its users share: set {ENVIRONMENT} or give"
            " key= or key_file="
        )
    path = Path(key_file) if key_file is not None else Path(f"{beside}.key")
    if not path.exists():
        if not create:
            raise LedgerError(
                f"{path}: no such key file, and the ledger was made with a key; put the file back,"
                f" set {ENVIRONMENT} or give key="
            )
        with quiet(
            f"{path}: the key file cannot be written ({{}}); give key= or a key_file= elsewhere",
            LedgerError,
        ):
            create_once(path, secrets.token_bytes(_BYTES))
    return Key(_read(path))


def _read(path: Path) -> bytes:
    with quiet(f"{path}: the key file cannot be read", LedgerError), path.open("rb") as file:
        # of the open file, not of one put in its place
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        secret = file.read(4097)
    if os.name == "posix" and mode & 0o077:
        raise LedgerError(
            f"{path}: others than its owner may use the key file (mode {mode:04o}, expected 0600);"
            " run chmod 600 on it, and take a new ledger with a new key if somebody may have"
            " read it"
        )
    if not _LEAST <= len(secret) <= 4096:
        raise LedgerError(
            f"{path}: not a key file; {_LEAST} to 4096 bytes are expected, it has another size"
        )
    return secret


def create_once(path: Path, content: bytes) -> None:
    """Create a file that is complete as soon as its name exists; the first one wins."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def state_folder() -> Path:
    """Return the folder for what no setting has a place for."""
    with quiet("this user has no home to keep things in; set XDG_STATE_HOME", InputError):
        return (
            Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
            / "cfk_plugin"
        )


def sync_folder(folder: Path) -> None:
    """Make a new file survive a crash of the machine, where the system supports it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def connect(path: Path, seconds: float, mode: str = "rw") -> sqlite3.Connection:
    """Connect to an existing file (SQLite alone would create an empty one); we begin transactions
    ourselves.
    """
    name = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(
        name, timeout=seconds, uri=True, check_same_thread=False, isolation_level=None
    )


class OpenFiles:
    """The files that a connection has open: the database, and the two that SQLite keeps beside it.

    What is written to a file that was deleted, moved or replaced is lost once the last process
    using it ends.
    """

    __slots__ = ("_files", "_paths", "_size", "connection")

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        # reads, so that all of them are open
        connection.execute("PRAGMA schema_version").fetchall()
        real = connection.execute("PRAGMA database_list").fetchone()[2]  # what a link points to
        self._paths = (
            (path, True),
            (path, False),
            (Path(f"{real}-wal"), True),
            (Path(f"{real}-shm"), True),
        )
        self._files, self._size = self._look()
        self.connection = connection

    def are_in_place(self) -> bool:
        """Say whether these are still the files at their paths, and the database has not become
        shorter.
        """
        files, size = self._look()
        in_place = files[0] is not None and files == self._files and size >= self._size
        self._size = max(size, self._size)
        return in_place

    def _look(self) -> tuple[list[tuple[int, int] | None], int]:
        """Return each file's device and inode, the database and a link to it first, and the
        database's size.
        """
        states = [_state(path, follow) for path, follow in self._paths]
        return [state and (state.st_dev, state.st_ino) for state in states], (
            states[0].st_size if states[0] else 0
        )


def _state(path: Path, follow: bool) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return path.stat(follow_symlinks=follow)
    return None
