"""What protection costs over HTTP, and whether a server bears many clients: real `mlflow models
serve` on adult data.

Run it with ``PYTHONPATH=tests/servers python tests/benchmarks/serving.py --data FOLDER`` and, if
other figures are wanted, ``--requests 300 --seconds 120 --clients 16``.

Latency: the same queries go in turn to an unprotected server and to protected ones; the model
counts its own time in a file, which is taken off. Load: many clients at once ask the protected
server, which logs what it releases.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, log_protected_model
from model_server import Server, serving, store
from printing import DATA, arguments, heading
from tables import Case, case
from timed import CLOCK, Explainer, Timed, Unprotected, model_seconds

K = 10


def commands(table: Case, folder: Path) -> dict[str, list[str]]:
    """Log and seal everything; return the commands of the servers."""
    explainer, model = Explainer(table.queries, table.counterfactuals), Timed(table.model)
    policy = PrivacyPolicy(guarantee="reciprocal", k=K)
    with mlflow.start_run():
        raw = mlflow.pyfunc.log_model(
            name="raw", python_model=Unprotected(explainer), pip_requirements=[]
        ).model_uri
        settings: dict[str, Any] = {
            "model": model,
            "population": table.population,
            "desired": table.desired,
        }
        shown = log_protected_model(explainer, policy=policy, **settings).model_uri
        logs = log_protected_model(explainer, policy=policy, **settings, track=True).model_uri
    bundle = folder / "population.cfk"
    KAnonymizer(policy=policy).fit(table.population, model=table.model, desired=table.desired).seal(
        bundle
    )
    serve = ["mlflow", "models", "serve", "--env-manager", "local", "-m"]
    return {
        "unprotected": [*serve, raw],
        "protected": [*serve, shown],
        "protected and logged": [*serve, logs],
    }


def ask(server: Server, query: dict[str, Any]) -> tuple[int, str]:
    return server.post({"dataframe_records": [query]})


def latency(servers: dict[str, Server], queries: list[dict[str, Any]], requests: int) -> None:
    """Ask all servers in turn; print medians."""
    took: dict[str, list[float]] = {name: [] for name in servers}
    for i in range(-20, requests):  # the first ones warm up
        for name, server in servers.items():
            before, start = model_seconds(), time.perf_counter()
            status, text = ask(server, queries[i % len(queries)])
            seconds = time.perf_counter() - start - (model_seconds() - before)
            assert status == 200, text
            if i >= 0:
                took[name].append(1000 * seconds)
    base = statistics.median(took["unprotected"])
    print(f"\n{requests} requests of one query each; the model's own time is taken off\n")
    print(heading("server", "median ms", "95 % ms", "added median ms"))
    for name, values in took.items():
        added = statistics.median(values) - base
        print(
            f"| {name} | {statistics.median(values):.1f} | {np.percentile(values, 95):.1f} | {added:.1f} |"
        )


def load(
    server: Server,
    queries: list[dict[str, Any]],
    clients: int,
    seconds: float,
    population: Population,
) -> None:
    """Let many clients ask at the same time; print errors, raw rows and memory."""
    until = time.monotonic() + seconds
    statuses: Counter[int] = Counter()
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def client(number: int) -> None:
        at = number
        while time.monotonic() < until:
            status, text = ask(server, queries[at % len(queries)])
            at += clients
            records = json.loads(text)["predictions"] if status == 200 else []
            with lock:
                statuses[status] += 1
                for record in records:
                    if record["status"] == "released":
                        seen[json.dumps(record["features"])] = record["k"]

    memory: list[float] = []
    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client, number) for number in range(clients)]
        while not all(done.done() for done in running):
            memory.append(resident(server.process.pid))
            time.sleep(min(5.0, seconds / 10))
        for done in running:
            done.result()
    raw = sum(people(json.loads(features), population) < max(K, k) for features, k in seen.items())
    third = max(len(memory) // 3, 1)
    print(f"\n{clients} clients for {seconds:.0f} s: {statuses.total()} requests, {dict(statuses)}")
    print(
        f"{len(seen)} different explanations, {raw} of them with fewer people than they say, or than k"
    )
    print(
        f"resident memory: first third {statistics.median(memory[:third]):.0f} MB, "
        f"last third {statistics.median(memory[-third:]):.0f} MB"
    )


def people(features: list[dict[str, Any]], population: Population) -> int:
    """Count who fits a record, in the training table."""
    rows = population.frame
    fits = pd.Series(True, index=rows.index)
    for feature in features:
        if feature["name"] in population.schema.quasi_identifiers:
            column = rows[feature["name"]]
            number = feature["kind"] == "number"
            fits &= (
                column.between(feature["low"], feature["high"])
                if number
                else column.isin(feature["values"])
            )
    return int(fits.sum())


def resident(pid: int) -> float:
    """Megabytes of a process and all its children."""
    total, waiting = 0.0, [pid]
    while waiting:
        at = waiting.pop()
        try:
            status = Path(f"/proc/{at}/status").read_text()
            total += (
                next(
                    int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
                )
                / 1024
            )
            for task in Path(f"/proc/{at}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, StopIteration):
            continue
    return total


def main() -> None:
    given = arguments(__doc__, data=DATA, requests=300, seconds=120.0, clients=16)
    table = case("adult", given.data, limit=200)
    queries = json.loads(table.queries.to_json(orient="records"))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "clock").write_bytes(struct.pack("d", 0.0))
        os.environ[CLOCK] = str(folder / "clock")
        uri = store(folder)
        path = {"PYTHONPATH": os.pathsep.join(sys.path), "CFK_SPOOL": str(folder / "spool")}
        servers = {
            name: stack.enter_context(serving(folder, uri, command, **path))
            for name, command in commands(table, folder).items()
        }
        latency(servers, queries, given.requests)
        load(
            servers["protected and logged"], queries, given.clients, given.seconds, table.population
        )


if __name__ == "__main__":
    main()
