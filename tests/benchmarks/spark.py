"""Spark beside one machine: counterfactuals or queries in one job, and a large population counted.

Run ``python tests/benchmarks/spark.py`` to print Markdown tables, of ``--only`` protect, answer or
count. People are those of ``scale.py``, with an income; counterfactuals are people with somebody
else's income. Memory is the peak of each process: this one, which is the driver, Java, and the
largest Python worker. Where both sides protect the same, the records are compared.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.serving.records import record_of
from cfk_plugin.serving.spark import explain_spark, protect_spark
from printing import arguments, heading, peak
from scale import synthetic_rows, table_of

KEY = b"a key of the benchmark"
QUASI = ["age", "area", "sex", "marital", "education"]
_CHUNK = 10**6


class Cost(NamedTuple):
    """What something took: seconds, GB at the peak of each kind of process, and what came out of
    it.
    """

    seconds: float
    cpu: float  # of all processes
    driver: float
    java: float
    worker: float
    digest: str


def people(rows: int, seed: int) -> pd.DataFrame:
    """Return people with an income."""
    income = np.random.default_rng(seed + 1).lognormal(10, 0.6, rows).round(-2)
    return table_of(synthetic_rows(rows, seed), "nominal").assign(income=income)


def schema() -> Schema:
    """Return the roles, declared by made-up people."""
    return Schema.from_frame(people(1_000, 99), quasi_identifiers=QUASI)


def earns_enough(rows: pd.DataFrame) -> np.ndarray:
    """Stand for a model that costs nothing, so that protection is what is measured."""
    return (
        rows["income"].to_numpy(dtype=float) > 20_000 + 150 * rows["age"].to_numpy(dtype=float)
    ).astype(int)


def session(cores: int) -> Any:
    """Start Spark on this machine."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(4 * cores),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def peaks() -> tuple[float, float]:
    """Return the largest resident sizes, in GB, of Java and of the Python workers, which are its
    descendants.
    """
    java, worker = 0.0, 0.0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":\t", 1)
                for line in (place / "status").read_text().splitlines()
                if ":\t" in line
            )
            size = int(status.get("VmHWM", "0 kB").split()[0]) / 2**20
            if status["Name"] == "java" and int(status["PPid"]) == os.getpid():
                java = max(java, size)
            elif "pyspark" in (place / "cmdline").read_text():
                worker = max(worker, size)
        except (OSError, KeyError, ValueError):
            continue  # it ended meanwhile
    return java, worker


def spent() -> float:
    """Return the CPU seconds of this process and of all that descend from it, which still run."""
    seconds, parents = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parents[int(place.name)] = int(fields[1])
        seconds[int(place.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(seconds[each] for each in own)


def write(folder: Path, rows: int) -> Path:
    """Write people to Parquet files of a million each."""
    target = folder / "people"
    target.mkdir()
    for i, start in enumerate(range(0, rows, _CHUNK)):
        people(min(_CHUNK, rows - start), i).to_parquet(target / f"{i}.parquet", index=False)
    return target


def count_from_parquet(table: Path, _: int) -> Cost:
    start = time.perf_counter()
    found = Population.from_parquet(table, schema(), key=KEY).fingerprint
    return Cost(time.perf_counter() - start, spent(), peak(), 0, 0, found)


def count_from_spark(table: Path, cores: int) -> Cost:
    spark = session(cores)
    start = time.perf_counter()
    found = Population.from_spark(spark.read.parquet(str(table)), schema(), key=KEY).fingerprint
    return Cost(time.perf_counter() - start, spent(), peak(), *peaks(), found)


def sealed(folder: Path, rows: int, k: int) -> Path:
    """Fit and seal an anonymizer; neither side's time has it."""
    population = Population.from_frame(people(rows, 0), schema(), key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=k)).fit(
        population, model=earns_enough, desired=1
    )
    anonymizer.seal(folder / "population.cfk")
    return folder / "population.cfk"


def counterfactuals(folder: Path, rows: int) -> Path:
    """Write counterfactuals, with an id."""
    drawn = people(rows, 0).assign(id=np.arange(rows))
    drawn["income"] = drawn["income"].sample(frac=1, random_state=3).to_numpy()
    drawn.to_parquet(folder / "counterfactuals.parquet", index=False)
    return folder / "counterfactuals.parquet"


def digest(records: pd.DataFrame) -> str:
    """Return what identifies records, in the order of their ids."""
    plain = records.sort_values("id", ignore_index=True)[
        ["status", "reason", "k", "ncp", "pureness", "features"]
    ]
    return hashlib.sha256(plain.to_json(orient="values", double_precision=10).encode()).hexdigest()[
        :12
    ]


def protect_here(bundle: Path, table: Path, _: int) -> Cost:
    start = time.perf_counter()
    population = Population.open(bundle, key=KEY)
    anonymizer = KAnonymizer().fit(population, model=earns_enough, desired=1)
    rows = pd.read_parquet(table)
    names, domains = population.schema.features, population.domains
    found = pd.DataFrame(
        [record_of(e, None, names, domains) for e in anonymizer.transform(rows)]
    ).assign(id=rows["id"])
    return Cost(time.perf_counter() - start, spent(), peak(), 0, 0, digest(found))


def protect_there(bundle: Path, table: Path, cores: int) -> Cost:
    # by a name that workers know; here, this file is the main module
    from spark import earns_enough as model

    spark = session(cores)
    start = time.perf_counter()
    df = spark.read.parquet(str(table)).repartition(8 * cores)
    result = protect_spark(df, bundle, model=model, desired=1, keep=["id"], key=KEY)
    written = bundle.parent / "records"
    result.write.parquet(str(written))
    cost = Cost(time.perf_counter() - start, spent(), peak(), *peaks(), "")
    return cost._replace(digest=digest(pd.read_parquet(written)))


def answer_there(table: Path, people_of_it: int, cores: int) -> Cost:
    from spark import earns_enough as model

    population = Population.from_frame(people(people_of_it, 0), schema(), key=KEY)
    anonymizer = KAnonymizer().fit(population, model=model, desired=1)
    spark = session(cores)
    start, before = time.perf_counter(), spent()
    df = spark.read.parquet(str(table)).repartition(8 * cores)
    explain_spark(df, anonymizer, keep=["id"], key=KEY).write.parquet(str(table.parent / "answers"))
    return Cost(time.perf_counter() - start, spent() - before, peak(), *peaks(), "")


def alone(work: Callable[..., Cost], *arguments: Any) -> Cost:
    """Measure in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def table(title: str, found: Sequence[tuple[str, int, Cost]]) -> str:
    """Render as Markdown."""
    lines = [heading(title, "rows", "s", "CPU s", "driver GB", "Java GB", "worker GB", "result")]
    lines += [
        f"| {name} | {rows:,} | {c.seconds:.0f} | {c.cpu:.0f} | {c.driver:.2f} | {c.java:.2f} | {c.worker:.2f} "
        f"| {c.digest} |"
        for name, rows, c in found
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    ask = arguments(
        __doc__,
        argv,
        counterfactuals=10**6,
        people=20_000,
        rows=10**7,
        k=10,
        cores=2,
        only="",
        queries=10**4,
    )
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # workers import the model from this file
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if ask.only in ("", "answer"):
            asked = counterfactuals(folder, ask.queries)
            print(
                table(
                    "answer",
                    [("Spark", ask.queries, alone(answer_there, asked, ask.people, ask.cores))],
                )
            )
        if ask.only in ("", "protect"):
            bundle, asked = (
                sealed(folder, ask.people, ask.k),
                counterfactuals(folder, ask.counterfactuals),
            )
            n = ask.counterfactuals
            there = alone(protect_there, bundle, asked, ask.cores)
            print(table("protect", [("Spark", n, there)]), flush=True)
            here = alone(protect_here, bundle, asked, ask.cores)
            print(table("protect", [("one process", n, here)]))
            if here.digest != there.digest:
                raise AssertionError("Spark released something else")
        if ask.only in ("", "count"):
            rows = write(folder, ask.rows)
            here, there = (
                alone(count_from_parquet, rows, ask.cores),
                alone(count_from_spark, rows, ask.cores),
            )
            print(
                table("count", [("from_parquet", ask.rows, here), ("from_spark", ask.rows, there)])
            )
            if here.digest != there.digest:
                raise AssertionError("Spark counted something else")


if __name__ == "__main__":
    main()
