"""How reading logged runs scales: many explanations over many runs, from a tracking server and from
SQLite.

Run ``PYTHONPATH=tests/helpers:tests/servers python tests/benchmarks/report_scale.py`` to print a
Markdown table; for other sizes, ``--explanations 1000000 --runs 50``. The runs are made first, from
a few thousand explanations that are logged again and again; reading is measured in a process of its
own. ``--parts 2000`` gives every run that many files, as a server writes them that ships every two
seconds.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.records.record import RunRecord, rows_of_explanations
from cfk_plugin.records.summary import Summary
from cfk_plugin.records.tables import SUFFIX, written
from cfk_plugin.release.results import Withheld
from parts import figures_with
from printing import arguments, heading, line, peak
from spooled import explanations, released
from tracking_server import tracking_server

if TYPE_CHECKING:
    from mlflow import MlflowClient

Row = dict[str, Any]

POOL = 2000
EXPERIMENT = "scale"
FIRST = 1_790_000_000_000  # when the first explanation was made, milliseconds since 1970


def pool_of_rows(seed: int = 0) -> tuple[RunRecord, list[Row]]:
    """Return explanations as they are logged, every tenth of them withheld."""
    rng = np.random.default_rng(seed)
    entries = [
        Withheld(i, "infeasible")
        if i % 10 == 0
        else released(
            i,
            k=int(rng.integers(5, 60)),
            ncp=float(rng.random()),
            pureness=float(1 - rng.random() / 10),
        )
        for i in range(POOL)
    ]
    record = explanations(*entries).to_record()
    return record, rows_of_explanations([record])


def recount_of(rows: Sequence[Row], rng: np.random.Generator) -> list[Row]:
    """Return what verification found of each row, in the layout of ``cfk/recount``."""
    n = len(rows)
    shares = ("t", "disclosure", "journalist_risk", "seconds", "ncp.age", "ncp.city")
    counts = (
        "k_desired",
        "k_consistent",
        "k_effective",
        "k_private",
        "private_matches",
        "l",
        "k_intersection",
    )
    columns: dict[str, list[Any]] = {"step": [row["step"] for row in rows]}
    columns |= {name: rng.integers(1, 60, n).tolist() for name in counts}
    columns |= {name: rng.random(n).tolist() for name in shares}
    columns["majority"] = (rng.random(n) > 0.5).tolist()
    columns["refused_k"] = [None] * n
    columns["finding"] = rng.choice(["native", "synthetic"], n).tolist()
    columns["ledger"] = rng.choice(["fresh", "widened"], n).tolist()
    columns["group"] = rng.choice(["f", "m"], n).tolist()
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def parts(count: int, files: int, seed: int) -> Iterator[tuple[str, list[Row], list[Row]]]:
    """Yield the files of one run: name, explanations, and their recount."""
    _, pool = pool_of_rows()
    rng = np.random.default_rng(seed)
    ends = np.linspace(0, count, files + 1).astype(int)
    for first, last in pairwise(ends.tolist()):
        drawn = rng.integers(0, POOL, last - first).tolist()
        rows = [
            {**pool[place], "step": step, "timestamp": FIRST + 1000 * step + seed}
            for step, place in enumerate(drawn, start=first)
        ]
        name = f"part-{FIRST + 1000 * first:013d}-{seed:016x}{SUFFIX}"
        yield name, rows, recount_of(rows, rng)


def log_runs(client: MlflowClient, count: int, runs: int, files: int, folder: Path) -> None:
    """Log runs whose files hold `count` explanations together."""
    from mlflow.entities import Metric, Param, RunTag

    record, _ = pool_of_rows()
    experiment = client.create_experiment(EXPERIMENT)
    for number in range(runs):
        asked = count // runs + (number < count % runs)
        run = client.create_run(experiment).info.run_id
        own = folder / f"run{number}" / "cfk"
        for name in ("explanations", "recount"):
            (own / name).mkdir(parents=True)
        for name, rows, recount in parts(asked, files, number):
            (own / "explanations" / name).write_bytes(written(rows))
            (own / "recount" / name).write_bytes(written(recount))
        client.log_artifacts(run, str(own), "cfk")
        client.log_dict(run, record.policy, "cfk/policy.json")
        summary = Summary(figures=figures_with(asked=asked), earlier={})
        client.log_text(run, summary.to_json(), "cfk/summary.json")
        client.log_batch(
            run,
            metrics=[Metric("cfk.asked", asked, FIRST + 1000 * asked, asked)],
            params=[Param(name, value) for name, value in record.params.items()],
            tags=[RunTag(name, value) for name, value in record.tags.items()],
        )
        client.set_terminated(run)


def measure(uri: str, expected: int) -> dict[str, float]:
    """Read everything, and return the seconds and the peak memory of this process in GB."""
    import mlflow

    from cfk_plugin import PrivacyReport
    from cfk_plugin.report.reading import read_experiment

    mlflow.set_tracking_uri(uri)
    base = peak()
    start = time.perf_counter()
    evidence = read_experiment(EXPERIMENT, tracking_uri=uri)
    read = time.perf_counter() - start
    rows = sum(len(run.rows) for run in evidence.runs if run.rows is not None)
    if rows != expected:
        raise AssertionError(f"read {rows} of {expected} explanations")
    frames = sum(
        int(run.rows.memory_usage(deep=True).sum()) for run in evidence.runs if run.rows is not None
    )
    found = {"read s": read, "start GB": base, "read GB": peak(), "frames GB": frames / 2**30}
    del evidence
    started = time.perf_counter()
    report = PrivacyReport.of_experiment(EXPERIMENT, tracking_uri=uri)
    made = time.perf_counter()
    html = report.to_html()
    rendered = time.perf_counter()
    # The report reads the runs once more.
    found["build s"] = made - started - read
    found["render s"] = rendered - made
    return {**found, "HTML kB": len(html.encode()) / 1e3, "report GB": peak()}


@contextmanager
def stores(folder: Path, kinds: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Give the tracking URI of each kind of store."""
    with tracking_server(folder) as server:
        found = []
        if "http" in kinds:
            server.start()
            found.append(("http", server.url))
        if "sqlite" in kinds:
            found.append(("sqlite", f"sqlite:///{folder / 'local.db'}"))
        yield found


def main(argv: Sequence[str] | None = None) -> None:
    """Make the runs, read them, and print a table."""
    stores_of = ["http", "sqlite"]
    options = arguments(__doc__, argv, explanations=1_000_000, runs=50, parts=1, stores=stores_of)
    os.environ |= {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    import mlflow

    with tempfile.TemporaryDirectory() as name, stores(Path(name), options.stores) as found:
        os.chdir(name)
        lines = []
        for kind, uri in found:
            client = mlflow.MlflowClient(tracking_uri=uri)
            log_runs(
                client,
                options.explanations,
                options.runs,
                options.parts,
                Path(name) / f"made-{kind}",
            )
            with get_context("spawn").Pool(1) as pool:
                figures = pool.apply(measure, (uri, options.explanations))
            lines = lines or [heading("store", "explanations", "runs", "files each", *figures)]
            shown = (f"{value:.2f}" for value in figures.values())
            lines.append(
                line(kind, f"{options.explanations:,}", options.runs, options.parts, *shown)
            )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
