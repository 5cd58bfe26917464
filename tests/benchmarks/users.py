"""What somebody feels who uses the product: the first call, `fit`, one request, a batch, an answer,
a server.

Run it with ``PYTHONPATH=tests/servers python tests/benchmarks/users.py --data FOLDER`` and, if
others are wanted, ``--people 3000 --requests 300``. Times are CPU seconds, those of requests beside
the model's own; medians of several processes, requests and batches. ``--parts`` chooses among
first, fit, requests, answers, servers, detection and catalogue, ``--many`` says how many people a
large table has. What there is to compare with runs beside it: strict Mondrian, anjana where it is
installed, the explainers themselves, and the server of the explainer alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, log_protected_model
from cfk_plugin.plugins import generator
from cfk_plugin.protection.class_index import index_of
from cfk_plugin.protection.partition.microaggregation import group_classes
from cfk_plugin.release.detection import Detector
from partition import loss, mondrian, timed
from printing import DATA, arguments, heading, line, peak
from tables import Case, case

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
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=told
    )
    return float(done.stdout)


def print_first_seconds(processes: int) -> None:
    print(heading("the first call", "CPU s"))
    with tempfile.TemporaryDirectory() as folder:
        alone = np.median([spent(LIBRARIES) for _ in range(processes)])
        print(line("pandas, scikit-learn and numba alone, imported", f"{alone:.1f}"), flush=True)
        print(
            line(
                "`protect` and one explanation, first on a machine",
                f"{spent(FIRST, NUMBA_CACHE_DIR=folder):.1f}",
            )
        )
        again = np.median([spent(FIRST, NUMBA_CACHE_DIR=folder) for _ in range(processes)])
        print(line("the same, first in a process", f"{again:.1f}"), flush=True)


class Timed:
    """A cheap model that counts what it is asked."""

    def __init__(self) -> None:
        self.calls, self.rows, self.seconds = 0, 0, 0.0

    def predict(self, rows: pd.DataFrame) -> Any:
        started = time.process_time()
        self.calls, self.rows = self.calls + 1, self.rows + len(rows)
        labels = np.where(
            rows["income"] + 0.3 * rows["age"] + 0.2 * rows["hours"] > 72, "yes", "no"
        )
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
    population = Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["age", "sex", "zip"])
    )
    is_good = model.predict(table) == "yes"
    good, bad = (table[flags].reset_index(drop=True) for flags in (is_good, ~is_good))
    lone = "one counterfactual: ms", "95 %", "model calls"
    print("\n" + heading("guarantee", "desired", *lone, "of 1,000: µs each", "of 20,000: µs each"))
    for guarantee in ("reciprocal", "catalogue", "lookup"):
        for desired in ("yes", "opposite"):
            anonymizer = KAnonymizer(
                policy=PrivacyPolicy(guarantee=guarantee, private_values="exact")
            ).fit(population, model, desired)  # type: ignore[arg-type]

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
    table, random = (
        people(count).assign(born=lambda rows: 2020 - rows["age"]),
        np.random.default_rng(1),
    )
    schema = Schema.from_frame(table, quasi_identifiers=["age", "sex", "zip"])

    def drawn() -> pd.DataFrame:
        return table.take(random.integers(0, count, requests)).reset_index(drop=True)

    own, private = drawn(), list(schema.private)
    asked = {
        "people": own,
        "people with two attributes of others": own.assign(
            job=drawn()["job"], hours=drawn()["hours"]
        ),
        "people with others' private values": own.assign(**drawn()[private]),
        "each attribute somebody else's": pd.DataFrame({name: drawn()[name] for name in table}),
    }
    detector = Detector(Population.from_frame(table, schema))
    started = time.process_time()
    detector.find(asked["each attribute somebody else's"].head(1))
    print(
        "\n"
        + heading(
            f"counterfactuals, {count:,} people",
            "ms",
            "95 %",
            "99 %",
            "largest",
            "µs each in a batch",
        )
    )
    print(
        line(
            "the first one, which makes the index",
            f"{1e3 * (time.process_time() - started):.0f}",
            *"––––",
        )
    )
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
    population, fitted = (
        Population.from_frame(table, schema),
        KAnonymizer(policy=PrivacyPolicy(private_values="exact")),
    )
    seconds, _ = beside(model, lambda: fitted.fit(population, model, "yes"))
    asked = f"{model.rows / count:.1f}"
    print(
        "\n"
        + heading(
            "catalogue", "combinations", "fit: CPU s", "rows asked per row", "entries", "GB at most"
        )
    )
    found = (
        f"{len(population.cells):,}",
        f"{seconds:.0f}",
        asked,
        f"{len(fitted.guarantee_.catalogue or ()):,}",
    )
    print(line(f"{count:,} people", *found, f"{peak():.1f}"), flush=True)


def print_fits(tables: list[str], data: Path) -> None:
    """Print what `fit` takes, and what groups of 10 lose, beside what the field's own tools take
    and lose.
    """
    head = "table", "rows", "fit: CPU s", "beside the model", "model on the table"
    others = "partition: s / loss %", "Mondrian: s / loss %", "anjana: s / loss %"
    print("\n" + heading(*head, *others))
    for name in tables:
        table = case(name, data, 5)
        model, population = Clocked(table.model), table.population
        _, once = timed(model.predict, population.frame)
        model.seconds = 0.0
        _, fit = timed(KAnonymizer().fit, population, model, table.desired)
        axes, cells, people = index_of(population).axes, population.cells, population.cell_people
        shares, ours = timed(group_classes, axes, cells, people, 10)
        theirs, seconds = timed(mondrian, population, 10)
        cuts = (
            f"{ours:.2f} / {100 * loss(axes, cells, shares):.1f}",
            f"{seconds:.2f} / {100 * theirs:.1f}",
        )
        print(line(name, len(population.frame), f"{fit:.1f}", f"{fit - model.seconds:.1f}", f"{once:.1f}", *cuts,
                   anjana_of(population)), flush=True)  # fmt: skip


def anjana_of(population: Population) -> str:
    """Time and loss of anjana: numbers in 16 to 2 ranges, and at most a twentieth of the rows left
    out.
    """
    if find_spec("anjana") is None:
        return "not installed"
    from anjana.anonymity import k_anonymity

    quasi = list(population.schema.quasi_identifiers)
    frame = population.frame[quasi].astype(object).where(population.frame[quasi].notna(), "missing")
    levels, cost = dict[str, dict[int, Any]](), dict[str, dict[str, float]]()
    for name in quasi:
        values, domain = frame[name].unique(), population.domains[name]
        levels[name] = {0: pd.Series(values, dtype=object)}
        cost[name] = {"*": 1.0}
        if domain.is_numeric:
            low, width = float(domain.values[0]), domain.width or 1.0
            for level, parts in enumerate((16, 8, 4, 2), start=1):
                at = [
                    min(int((float(v) - low) / width * parts), parts - 1) if v != "missing" else v
                    for v in values
                ]
                levels[name][level] = pd.Series([f"{parts}: {i}" for i in at], dtype=object)
                cost[name] |= dict.fromkeys(levels[name][level], 1 / parts)
        levels[name][len(levels[name])] = pd.Series(["*"] * len(values), dtype=object)
    try:
        with pd.option_context("future.infer_string", False):
            found, seconds = timed(k_anonymity, frame, [], quasi, 10, 5, levels)
    except Exception as error:  # noqa: BLE001 - another project's
        return type(error).__name__
    lost = np.mean(
        [found[name].map(lambda v, known=cost[name]: known.get(v, 0.0)).mean() for name in quasi]
    )
    share = len(found) / len(frame)
    return f"{seconds:.2f} / {100 * (share * lost + 1 - share):.1f}"


class Clocked:
    """A model whose CPU seconds are counted."""

    def __init__(self, model: Any) -> None:
        self.model, self.seconds, self.classes_ = model, 0.0, model.classes_

    def predict(self, rows: pd.DataFrame) -> Any:
        started = time.process_time()
        labels = self.model.predict(rows)
        self.seconds += time.process_time() - started
        return labels


def print_answers(tables: list[str], data: Path, few: int) -> None:
    """Print the time of an answer, model included, beside the unprotected explainers' own for the
    same queries.
    """
    raw = {
        "NICE": ("nice", {"optimization": "sparsity"}),
        "NICE, no search": ("nice", {"optimization": "none"}),
        "DiCE k-d tree": ("dice-kdtree", {}),
        "DiCE random": ("dice-random", {}),
        "DiCE genetic": ("dice-genetic", {}),
    }
    print(
        "\n"
        + heading(
            "table",
            "queries",
            "catalogue: ms each",
            "beside the model",
            *(f"{n}: times" for n in raw),
        )
    )
    for name in tables:
        table = case(name, data, 200)
        model, train = Clocked(table.model), table.population.frame
        anonymizer = KAnonymizer().fit(table.population, model, table.desired)
        anonymizer.explain(table.queries.head(1))
        model.seconds = 0.0
        _, seconds = timed(anonymizer.explain, table.queries)
        own, beside_model = (
            seconds / len(table.queries),
            (seconds - model.seconds) / len(table.queries),
        )
        times = []
        for library, settings in raw.values():
            made: Any = generator(library)
            explainer = made(
                train, table.model.predict(train), table.model, table.desired, **settings
            )
            ask = explainer.nice.explain if library == "nice" else explainer.explain
            _, theirs = timed(ask, table.queries.head(few))
            times.append(f"{theirs / few / own:.0f}")
        print(
            line(name, len(table.queries), f"{1e3 * own:.1f}", f"{1e3 * beside_model:.1f}", *times),
            flush=True,
        )


def print_servers(data: Path, seconds: float, clients: int = 8) -> None:
    """Print how many requests of one query servers answer, beside the server of the explainer
    alone.
    """
    import mlflow

    from model_server import serving, store
    from timed import Explainer, Unprotected

    table, count = case("adult", data, 200), dict[str, float]()
    explainer = Explainer(table.queries, table.counterfactuals)
    records = json.loads(table.queries.to_json(orient="records"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uri = store(folder)
        path = {"PYTHONPATH": os.pathsep.join(sys.path), "CFK_SPOOL": str(folder / "spool")}
        for what, command in served(table, explainer, Unprotected, folder, mlflow).items():
            with serving(folder, uri, command, **path) as server:
                done = [0] * clients

                def client(number: int, server: Any = server, done: list[int] = done) -> None:
                    until = time.monotonic() + seconds
                    while time.monotonic() < until:
                        record = records[(number + clients * done[number]) % len(records)]
                        status, text = server.post({"dataframe_records": [record]})
                        assert status == 200, text
                        done[number] += 1

                assert server.post({"dataframe_records": records[:1]})[0] == 200
                threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                count[what] = sum(done) / seconds
    print(
        "\n"
        + heading("server", f"requests a second, {clients} clients", "beside the explainer alone")
    )
    for what, each in count.items():
        print(line(what, f"{each:.0f}", f"{each / next(iter(count.values())):.2f}"), flush=True)


def served(
    table: Case, explainer: Any, unprotected: Any, folder: Path, mlflow: Any
) -> dict[str, list[str]]:
    """Log and seal everything; return the commands of the servers."""
    reciprocal, serve = (
        PrivacyPolicy(guarantee="reciprocal"),
        ["mlflow", "models", "serve", "--env-manager", "local"],
    )
    settings: dict[str, Any] = {
        "model": table.model,
        "population": table.population,
        "desired": table.desired,
    }
    with mlflow.start_run():
        raw = mlflow.pyfunc.log_model(
            name="raw", python_model=unprotected(explainer), pip_requirements=[]
        ).model_uri
        shown = log_protected_model(explainer, policy=reciprocal, **settings).model_uri
        model = mlflow.sklearn.log_model(
            table.model, name="model", pip_requirements=[], serialization_format="cloudpickle"
        ).model_uri
    bundle = folder / "catalogue.cfk"
    KAnonymizer().fit(table.population, table.model, table.desired).seal(bundle)
    sealed = [
        "cfk_plugin.cli",
        "serve",
        "--bundle",
        str(bundle),
        "--model",
        model,
        "-d",
        str(table.desired),
    ]
    return {
        "`mlflow models serve`, the explainer alone": [*serve, "-m", raw],
        "`mlflow models serve`, reciprocal": [*serve, "-m", shown],
        "`cfk serve`, sealed catalogue": sealed,
    }


def main() -> None:
    parts = ["first", "fit", "requests", "answers", "servers", "detection", "catalogue"]
    settings = {
        "people": 3000,
        "requests": 300,
        "processes": 5,
        "many": 10**6,
        "few": 20,
        "seconds": 20.0,
    }
    given = arguments(
        __doc__, data=DATA, parts=parts, tables=["adult", "german", "cmc"], **settings
    )
    warnings.simplefilter("ignore")
    if "first" in given.parts:
        print_first_seconds(given.processes)
    if "fit" in given.parts:
        print_fits(given.tables, Path(given.data))
    if "requests" in given.parts:
        print_requests(given.people, given.requests)
    if "answers" in given.parts:
        print_answers([name for name in given.tables if name != "cmc"], Path(given.data), given.few)
    if "servers" in given.parts:
        print_servers(Path(given.data), given.seconds)
    if "detection" in given.parts:
        print_detection(given.many, given.requests)
    if "catalogue" in given.parts:
        print_catalogue(given.many)


if __name__ == "__main__":
    main()
