"""Several worker processes of uvicorn, started as docs/how-to/deploy-the-server.md says."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from model_server import accepts, free_port, patients

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deploy-the-server.md"
TOKEN = "a-token-of-this-test-of-workers"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
QUERY = {"dataframe_records": [{"age": 30, "pay": 1_000_500}]}
N_WORKERS = 2  # the page has more; each takes seconds to start


def application_of_the_page() -> str:
    """Return the file that the page calls app.py."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (application,) = (block for block in blocks if "def make()" in block)
    return str(application)


def command_of_the_page(port: int) -> list[str]:
    """Return the page's command that starts uvicorn, with fewer workers, on this machine alone."""
    lines = PAGE.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    (line,) = (line for line in lines if line.startswith("uvicorn app:make"))
    words = shlex.split(line)
    words[words.index("--workers") + 1] = str(N_WORKERS)
    words[words.index("--host") + 1] = "127.0.0.1"
    words[words.index("--port") + 1] = str(port)
    return [sys.executable, "-m", *words]


def write_what_is_served(folder: Path) -> None:
    """Write the catalogue, the model and the tokens that app.py reads."""
    table = patients(300)[["age", "pay"]]
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(table, 1 - accepts(table))
    schema = Schema.from_frame(table, quasi_identifiers=["age"])
    policy = PrivacyPolicy(k=5, guarantee="catalogue")
    anonymizer = KAnonymizer(policy=policy)
    anonymizer.fit(Population.from_frame(table, schema), model=model, desired=0)
    anonymizer.seal(folder / "catalogue.cfk")
    joblib.dump(model, folder / "model.joblib")
    (folder / "tokens.txt").touch(0o600)
    (folder / "tokens.txt").write_text(f"{TOKEN}\n", encoding="utf-8")
    (folder / "app.py").write_text(application_of_the_page(), encoding="utf-8")


class Service:
    """uvicorn with its workers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def workers(self) -> set[int]:
        """Return the processes that were started to serve."""
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                command = (path / "cmdline").read_bytes()
            except OSError:  # another process has ended
                continue
            if parent == self.process.pid and b"spawn_main" in command:
                found.add(int(path.name))
        return found

    @contextmanager
    def connection(self, timeout: float = 60) -> Iterator[http.client.HTTPConnection]:
        """Open a connection, all of whose requests one worker answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            yield connection
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Say whether some worker answers that it is ready."""
        try:
            with self.connection(timeout=2) as connection:
                connection.request("GET", "/ready")
                return connection.getresponse().status == 200
        except OSError:
            return False


def explain(connection: http.client.HTTPConnection) -> list[dict[str, Any]]:
    """Ask for an explanation; return the records."""
    connection.request("POST", "/invocations", json.dumps(QUERY), HEADERS)
    reply = connection.getresponse()
    text = reply.read()
    assert reply.status == 200, text
    records: list[dict[str, Any]] = json.loads(text)["predictions"]
    return records


def released_of(connection: http.client.HTTPConnection) -> float:
    """Return how many explanations were released, as the worker of a connection counts them."""
    connection.request("GET", "/metrics", headers=HEADERS)
    lines = connection.getresponse().read().decode().splitlines()
    counts = [
        line for line in lines if line.startswith('cfk_explanations_total{outcome="released"')
    ]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a minute at most."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within a minute")


@contextmanager
def served(folder: Path) -> Iterator[Service]:
    port = free_port()
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command_of_the_page(port),
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Service(process, port)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("workers")
    write_what_is_served(folder)
    with served(folder) as found:
        wait_until(found.is_ready)
        yield found


def test_a_worker_that_is_killed_is_started_again(service: Service) -> None:
    wait_until(lambda: len(service.workers()) == N_WORKERS)
    before = service.workers()
    with service.connection() as connection:
        released = explain(connection)
    assert [record["status"] for record in released] == ["released"]
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in service.workers() and len(service.workers()) == N_WORKERS)
    assert len(service.workers() - before) == 1
    for _ in range(10):
        with service.connection() as connection:
            assert explain(connection) == released


def test_workers_ask_for_a_token(service: Service) -> None:
    for _ in range(10):
        with service.connection() as connection:
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 401


def test_workers_count_for_themselves(service: Service) -> None:
    with service.connection() as first:
        before = released_of(first)
        for _ in range(20):
            explain(first)
        assert released_of(first) == before + 20

        def another_worker_counts_less() -> bool:
            with ExitStack() as stack:
                others = [stack.enter_context(service.connection()) for _ in range(20)]
                return min(released_of(other) for other in others) < before + 20

        wait_until(another_worker_counts_less)


def test_workers_hang_up_on_silent_clients(service: Service) -> None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as silent:
        silent.sendall(b"POST /invocations HTTP/1.1\r\n")
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
    assert time.monotonic() - started < 30


def test_workers_end_with_the_server_that_is_told_to_end(tmp_path: Path) -> None:
    write_what_is_served(tmp_path)
    with served(tmp_path) as service:
        wait_until(service.is_ready)
        workers = service.workers()
        assert len(workers) == N_WORKERS
        # A request that hangs is cut off.
        with socket.create_connection(("127.0.0.1", service.port)) as unfinished:
            unfinished.sendall(
                b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
            )
            service.process.terminate()
            assert service.process.wait(60) == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
        log = (tmp_path / "log.txt").read_text(encoding="utf-8")
        assert "Traceback" not in log
