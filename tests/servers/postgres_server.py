"""A PostgreSQL server of the tests' own: on loopback, on a free port, in a temporary folder, gone
at the end.

A `conftest.py` that wants it imports both fixtures; all of them share one server per process.
"""

from __future__ import annotations

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
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_SECONDS = 60.0  # until a server answers that was just started
_QUICK = ("fsync=off", "full_page_writes=off", "max_connections=60")


class _Server:
    """A server that answers.

    It refuses to be root, so root starts it as somebody else; tmp_path is root's alone.
    """

    def __init__(self, programs: Path) -> None:
        self.password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        folder = self._folder = Path(tempfile.mkdtemp(prefix="cfk-postgres-"))
        (folder / "password").write_text(self.password)
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = next(each for each in pwd.getpwall() if each.pw_name in ("postgres", "nobody"))
            as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            for path in (folder, folder / "password"):
                os.chown(path, user.pw_uid, user.pw_gid)
        made = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "tester",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
        ]
        made += ["--no-sync", "--locale=C", f"--pwfile={folder / 'password'}"]
        subprocess.run(
            made, cwd=folder, capture_output=True, timeout=_SECONDS, check=True, **as_user
        )
        for _ in range(3):  # somebody may take the port before the server does
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = int(probe.getsockname()[1])
            asked = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", "127.0.0.1"]
            asked += [
                "-p",
                str(self.port),
                *(word for setting in _QUICK for word in ("-c", setting)),
            ]
            self._command = {"args": asked, "cwd": folder, **as_user}
            if self.resume():
                return
        raise OSError("it does not answer")

    def interrupt(self) -> None:
        """Shut the server down as it is; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)  # a "fast" shutdown, which does not wait for clients
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def resume(self) -> bool:
        """Start it with the data that there are; return whether it answers."""
        import psycopg

        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(**self._command, stdout=log, stderr=log)
        until = time.monotonic() + _SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            with suppress(psycopg.OperationalError):
                self.run("SELECT 1")
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        self.interrupt()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://tester:{self.password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(
            self.url("postgres"), autocommit=True, connect_timeout=10
        ) as connection:
            connection.execute(statement)


@cache
def _server() -> _Server | str:
    """Return the server of this process, or why there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            try:
                return _Server(folder)
            except (OSError, subprocess.SubprocessError, StopIteration) as error:
                return f"PostgreSQL cannot be started here ({type(error).__name__}: {error})"
    return "needs PostgreSQL: neither initdb nor postgres is installed"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[_Server]:
    """Start the server at first use; skip where that cannot be done."""
    pytest.importorskip("psycopg", reason="needs the driver psycopg")
    server = _server()
    if isinstance(server, str):
        pytest.skip(server)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: _Server) -> Iterator[str]:
    """Return the URL, with a password, of a new and empty database."""
    name = f"test_{secrets.token_hex(6)}"
    postgres_server.run(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")
