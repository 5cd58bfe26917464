"""A PostgreSQL server of the tests' own: on loopback, on a free port, in a temporary folder, gone at the end.

A `conftest.py` that wants it imports the fixture `postgres_url`; all of them share one server per process.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SECONDS = 60.0  # until a server answers that was just started
_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=60")


class _Server:
    """The running server, or why there is none."""

    def __init__(self) -> None:
        self.reason = ""
        self.port = 0
        self.password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._command: dict[str, Any] = {}
        self._folder: Path | None = None

    def start(self) -> None:
        if self._process is not None or self.reason:
            return
        try:
            self._start()
        except (OSError, subprocess.SubprocessError, _NotStartedError) as error:
            self.reason = f"PostgreSQL cannot be started here ({type(error).__name__}: {error})"
        if self.reason:
            self.stop()

    def interrupt(self) -> None:
        """Shut the server down as it is; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)  # a "fast" shutdown, which does not wait for clients
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def resume(self) -> bool:
        """Start it with the data that there are; return whether it answers."""
        with (self._command["cwd"] / "log").open("ab") as log:
            self._process = subprocess.Popen(**self._command, stdout=log, stderr=log)
        return self._answers()

    def stop(self) -> None:
        self.interrupt()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def url(self, database: str) -> str:
        return f"postgresql://tester:{self.password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _start(self) -> None:
        programs = _programs()
        if programs is None:
            self.reason = "needs PostgreSQL: neither initdb nor postgres is installed"
            return
        # The server refuses to be root, so root starts it as somebody else; tmp_path is root's alone.
        user = _other_user() if os.geteuid() == 0 else None
        folder = self._folder = Path(tempfile.mkdtemp(prefix="cfk-postgres-"))
        (folder / "password").write_text(self.password)
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
        made = [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "scram-sha-256", "-E", "UTF8"]
        made += ["--no-sync", "--locale=C", f"--pwfile={folder / 'password'}"]
        done = subprocess.run(made, cwd=folder, capture_output=True, timeout=_SECONDS, check=False, **as_user)
        if done.returncode:
            raise _NotStartedError(f"initdb returned {done.returncode}")
        for _ in range(3):  # somebody may take the port before the server does
            self.port = _free_port()
            asked = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", "127.0.0.1"]
            asked += ["-p", str(self.port), *(word for setting in _QUICK for word in ("-c", setting))]
            self._command = {"args": asked, "cwd": folder, **as_user}
            if self.resume():
                return
        raise _NotStartedError("it does not answer")

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        until = time.monotonic() + _SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return True
        return False


class _NotStartedError(Exception):
    """The server did not come up."""


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def _other_user() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise _NotStartedError(f"it refuses to run as {getpass.getuser()}, and there is no other user")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_server = _Server()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[_Server]:
    """Start the server at first use; skip where that cannot be done."""
    pytest.importorskip("psycopg", reason="needs the driver psycopg")
    _server.start()
    if _server.reason:
        pytest.skip(_server.reason)
    yield _server
    _server.stop()


@pytest.fixture
def postgres_url(postgres_server: _Server) -> Iterator[str]:
    """Return the URL, with a password, of a new and empty database."""
    name = f"test_{secrets.token_hex(6)}"
    postgres_server.run(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")
