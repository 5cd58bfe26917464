"""What somebody feels who uses the product: the first call on a machine and in a process, one request, a batch, scale.

Run it with ``python tests/benchmarks/users.py`` and, if other figures are wanted, ``--people 3000 --requests 300``. All
times are CPU seconds, those of requests beside the model's own; medians of several processes, requests and batches.
``--parts`` chooses among first, requests, detection and catalogue, ``--many`` says how many people a large table has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.release.detection import Detector
from printing import arguments, heading, line, peak

LIBRARIES = "import pandas, sklearn.ensemble, numba"
FIRST = """
import numpy as np, pandas as pd, sklearn.ensemble
from cfk_plugin import Population, Schema, protect
random = np.random.default_rng(0)
table = pd.DataFrame({"age": random.integers(20, 80, 500), "zip": random.choice(list("abcdef"), 500),
                      "pay": random.integers(0, 100, 500)})
population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", "zip"]))
rich = table[table["pay"] > 50]
private = protect(lambda asked: rich.head(len(asked)), model=lambda rows: (rows["pay"] > 50).to_numpy(), desired=True,
                  population=population)
assert private.explain(table[table["pay"] <= 50].head(1)).released
"""


def spent(script: str, **environment: str) -> float:
    """Return the CPU seconds of a process that runs a script."""
    asked = f"{script}\nimport time; print(time.process_time())"
    told = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=told)
    return float(done.stdout)


def print_first_seconds(processes: int) -> None:
    print(heading("the first call", "CPU s"))
    with tempfile.TemporaryDirectory() as folder:
        alone = np.median([spent(LIBRARIES) for _ in range(processes)])
        print(line("pandas, scikit-learn and numba alone, imported", f"{alone:.1f}"), flush=True)
        print(line("`protect` and one explanation, first on a machine", f"{spent(FIRST, NUMBA_CACHE_DIR=folder):.1f}"))
        again = np.median([spent(FIRST, NUMBA_CACHE_DIR=folder) for _ in range(processes)])
        print(line("the same, first in a process", f"{again:.1f}"), flush=True)


class Timed:
    """A cheap model that counts what it is asked."""

    def __init__(self) -> None:
        self.calls, self.rows, self.seconds = 0, 0, 0.0

    def predict(self, rows: pd.DataFrame) -> Any:
        started = time.process_time()
        self.calls, self.rows = self.calls + 1, self.rows + len(rows)
        labels = np.where(rows["income"] + 0.3 * rows["age"] + 0.2 * rows["hours"] > 72, "yes", "no")
        self.seconds += time.process_time() - started
        return labels


def people(count: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(18, 80, count),
            "sex": random.choice(["f", "m"], count),
            "zip": random.choice([f"z{i}" for i in range(12)], count),
            "income": random.normal(50, 15, count).round(1),
            "hours": random.integers(10, 60, count),
            "job": random.choice(list("abcdefg"), count),
        }
    )


def beside(model: Timed, call: Callable[[], object]) -> tuple[float, int]:
    """Return CPU seconds beside the model, and how often it was asked."""
    seconds, calls, started = model.seconds, model.calls, time.process_time()
    call()
    return time.process_time() - started - (model.seconds - seconds), model.calls - calls


def print_requests(count: int, requests: int) -> None:
    table, model = people(count), Timed()
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", "sex", "zip"]))
    is_good = model.predict(table) == "yes"
    good, bad = (table[flags].reset_index(drop=True) for flags in (is_good, ~is_good))
    lone = "one counterfactual: ms", "95 %", "model calls"
    print("\n" + heading("guarantee", "desired", *lone, "of 1,000: µs each", "of 20,000: µs each"))
    for guarantee in ("reciprocal", "catalogue", "nominal"):
        for desired in ("yes", "opposite"):
            anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee=guarantee)).fit(population, model, desired)  # type: ignore[arg-type]

            def request(rows: Any, anonymizer: KAnonymizer = anonymizer) -> Callable[[], object]:
                found, asked = good.take(rows % len(good)), bad.take(rows % len(bad))
                return lambda: anonymizer.transform(found, asked)

            taken = [beside(model, request(np.array([i]))) for i in range(-50, requests)][50:]
            each = [1e3 * seconds for seconds, _ in taken]
            batches = []
            for size in (1_000, 20_000):
                several = [beside(model, request(np.arange(size)))[0] for _ in range(4)][1:]
                batches.append(f"{1e6 * np.median(several) / size:.0f}")
            calls = np.mean([calls for _, calls in taken])
            figures = f"{np.median(each):.2f}", f"{np.percentile(each, 95):.2f}", f"{calls:.1f}"
            print(line(guarantee, desired, *figures, *batches), flush=True)


def print_detection(count: int, requests: int) -> None:
    table, random = people(count).assign(born=lambda rows: 2020 - rows["age"]), np.random.default_rng(1)
    schema = Schema.from_frame(table, quasi_identifiers=["age", "sex", "zip"])

    def drawn() -> pd.DataFrame:
        return table.take(random.integers(0, count, requests)).reset_index(drop=True)

    own, private = drawn(), list(schema.private)
    asked = {
        "people": own,
        "people with two attributes of others": own.assign(job=drawn()["job"], hours=drawn()["hours"]),
        "people with others' private values": own.assign(**drawn()[private]),
        "each attribute somebody else's": pd.DataFrame({name: drawn()[name] for name in table}),
    }
    detector = Detector(Population.from_frame(table, schema))
    started = time.process_time()
    detector.find(asked["each attribute somebody else's"].head(1))
    print("\n" + heading(f"counterfactuals, {count:,} people", "ms", "95 %", "99 %", "largest", "µs each in a batch"))
    print(line("the first one, which makes the index", f"{1e3 * (time.process_time() - started):.0f}", *"––––"))
    for name, rows in asked.items():
        spent = []
        for i in range(requests):
            one, started = rows.iloc[[i]], time.process_time()
            detector.find(one)
            spent.append(1e3 * (time.process_time() - started))
        started = time.process_time()
        detector.find(rows)
        each = 1e6 * (time.process_time() - started) / requests
        figures = *np.percentile(spent, [50, 95, 99]), max(spent)
        print(line(name, *(f"{figure:.1f}" for figure in figures), f"{each:.0f}"), flush=True)


def print_catalogue(count: int) -> None:
    table, model = people(count), Timed()
    schema = Schema.from_frame(table, quasi_identifiers=["age", "sex", "zip", "hours", "job"])
    population, fitted = Population.from_frame(table, schema), KAnonymizer(policy=PrivacyPolicy(guarantee="catalogue"))
    seconds, _ = beside(model, lambda: fitted.fit(population, model, "yes"))
    asked = f"{model.rows / count:.1f}"
    print("\n" + heading("catalogue", "combinations", "fit: CPU s", "rows asked per row", "entries", "GB at most"))
    found = f"{len(population.cells):,}", f"{seconds:.0f}", asked, f"{len(fitted.guarantee_.catalogue or ()):,}"
    print(line(f"{count:,} people", *found, f"{peak():.1f}"), flush=True)


def main() -> None:
    given = arguments(
        __doc__,
        people=3000,
        requests=300,
        processes=5,
        many=10**6,
        parts=["first", "requests", "detection", "catalogue"],
    )
    warnings.simplefilter("ignore")
    if "first" in given.parts:
        print_first_seconds(given.processes)
    if "requests" in given.parts:
        print_requests(given.people, given.requests)
    if "detection" in given.parts:
        print_detection(given.many, given.requests)
    if "catalogue" in given.parts:
        print_catalogue(given.many)


if __name__ == "__main__":
    main()
