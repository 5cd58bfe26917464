"""Distance against likeness: differentially private prototypes beside other ways to spend the same
epsilon.

    .venv/bin/python tests/benchmarks/prototypes.py --data ../shared/data --tables adult german
    --epsilon 0.1 1

Everybody answers the same queries of the same forest: the nearest of 60,000 rows that were drawn
from noised counts of single columns ("histograms"), from a plain tree, or from MST of the package
dpmm, and `DPPrototypes`, with the default plausibility and, at the epsilons of ``--frontier``, with
others. MST needs an environment of its own (``--synthesizer PYTHON``, where dpmm is installed), has
a delta of 1e-6 beside the same epsilon, and takes minutes; what it drew is kept in ``--kept
FOLDER`` as TABLE-EPSILON-FIT-DOMAIN.npy. Without either it is left out.

"singled out" is the share of answers whose quasi-identifiers exactly one training person has,
"outside" the same among equally many people who are not in the table: what chance gives. "density"
is the log of a kernel density of people who are not in the table and have the desired outcome; its
bandwidth is chosen by leaving each out. Domains are taken for published: bounds and levels of code
books, bins as below. Prints Markdown tables; ``--json FILE`` keeps all figures. With ``--only
DPPrototypes`` those of the other methods stay as the file has them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.pipeline import Pipeline

from answer_figures import figures_of
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import DPPrototypes, Population, Schema
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.dp import PublicDomain
from cfk_plugin.dp.answer_rows import ServedRows
from plain_tree import plain_tree_codes
from printing import DATA, arguments, heading, line
from tables import TABLES, forest, read, split

BINS = {
    "adult": {
        "age": [*range(17, 92, 3), 92],
        "capital_gain": [
            0,
            1,
            1000,
            2000,
            3000,
            4000,
            5000,
            6000,
            7000,
            8000,
            10000,
            15000,
            20000,
            30000,
            100000,
        ],
        "capital_loss": [0, 1, 1000, 1400, 1600, 1800, 2000, 2200, 2500, 4357],
        "hours_per_week": [1, 10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70, 80, 100],
    },
    "german": {
        "duration_months": [4, 7, 10, 13, 16, 19, 22, 25, 31, 37, 49, 73],
        "credit_amount": [250, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7000, 10000, 18425],
        "age": [19, 23, 26, 29, 32, 36, 40, 45, 50, 60, 76],
    },
}
# published: a code to the group that it belongs to
HIERARCHIES: dict[str, dict[str, Callable[[pd.Series], Any]]] = {
    "hospital": {
        # of few rows another category than the group's is coded
        "apr_drg": lambda rows: rows["apr_mdc"].mode()[0],
        "zip_code_3": lambda rows: rows["zip_code_3"].iloc[0][:2],
    },
}
FIGURES = (
    "flips",
    "L1",
    "changed",
    "nn1",
    "unseen",
    "density",
    "singled out",
    "outside",
    "fit s",
    "ms/query",
)
BETTER = {
    "L1": 1,
    "nn1": 1,
    "unseen": 1,
    "density": -1,
}  # distance, then likeness; -1: more is better
OTHERS = ("histograms", "plain tree", "MST")
ROWS = 60_000
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0)
BANDWIDTHS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
RUN_MST = """
import sys
import numpy as np
import pandas as pd
from dpmm.models.mst import MSTGM
codes, sizes = np.load(sys.argv[1]), list(map(int, sys.argv[4].split(",")))
names = [f"c{j}" for j in range(len(sizes))]
model = MSTGM(epsilon=float(sys.argv[3]), delta=1e-6, n_iters=1000, n_jobs=1)
model.set_domain(dict(zip(names, sizes)))
model.set_random_state(np.random.RandomState())
model.fit(pd.DataFrame(codes, columns=names))
np.save(sys.argv[2], model.generate(n_records=int(sys.argv[5]))[names].to_numpy().astype(np.int32))
"""


@dataclass(frozen=True)
class Case:
    """One table: training rows, the people who are not in them, the model, and the queries."""

    name: str
    population: Population
    holdout: pd.DataFrame
    model: Pipeline
    desired: Any
    queries: pd.DataFrame


def declared(name: str, frame: pd.DataFrame, about: dict[str, Any]) -> Schema:
    """Return the schema with the domains of the code book."""
    columns = {c["name"]: c for c in about["columns"] if c["name"] in about["features"]}
    numeric = {n: (c["min"], c["max"]) for n, c in columns.items() if c["type"] == "numeric"}
    bins = BINS.get(name, {})
    trees = {
        n: {code: [group(rows)] for code, rows in frame.groupby(n)}
        for n, group in HIERARCHIES.get(name, {}).items()
    }
    texts = [n for n in columns if n not in numeric and n not in trees]
    return Schema.from_frame(
        frame,
        quasi_identifiers=about["quasi_identifiers"],
        bounds={n: ends for n, ends in numeric.items() if n not in bins},
        bins=bins,
        categories={
            n: [*map(str, columns[n].get("levels") or sorted(frame[n].dropna().unique()))]
            for n in texts
        },
        hierarchies=trees,
        nullable=[n for n in columns if frame[n].isna().any()],
    )


def case(name: str, data: Path, queries: int, seed: int = 0, trees: int = 50) -> Case:
    """Split 60/40, declare the domain, fit a forest, and take undesired test rows as queries."""
    frame, about = read(name, data)
    for column in about["columns"]:
        if column["name"] in about["features"]:
            least = column["min"] if column["type"] == "numeric" else "?"
            frame[column["name"]] = frame[column["name"]].fillna(least)
    train, test = split(frame, 0.6, seed)
    features = about["features"]
    leaf = 5 if len(frame) > 5000 else 3
    model = forest(train[features], train[about["target"]], seed, trees, min_samples_leaf=leaf)
    asked = test[features][model.predict(test[features]) != about["desired_outcome"]].head(queries)
    population = Population.from_frame(train[features], declared(name, frame[features], about))
    return Case(
        name,
        population,
        test[features],
        model,
        about["desired_outcome"],
        asked.reset_index(drop=True),
    )


class HeldOut:
    """A kernel density of people who are not in the table and have the desired outcome."""

    def __init__(self, one: Case, most: int = 1500) -> None:
        people = one.holdout[one.model.predict(one.holdout) == one.desired].head(most)
        self._columns = PublicDomain.of(one.population).columns
        none = np.zeros(len(people))
        self._served = ServedRows.of(PublicDomain.of(one.population), people, none, none)
        apart = self._apart(people)
        np.fill_diagonal(apart, np.inf)
        self._width = max(BANDWIDTHS, key=lambda width: self._log(apart, width).mean())
        self.of_people = float(self._log(apart, self._width).mean())

    def of(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        return self._log(self._apart(rows), self._width)

    def _apart(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        return self._served.heom.distances(rows, self._served.codes) * len(self._columns)

    def _log(self, apart: NDArray[np.float64], width: float) -> NDArray[np.float64]:
        numbers = sum(np.log(2 * width) for c in self._columns if c.is_numeric)
        codes = sum(
            np.log1p((c.size - 1) * np.exp(-1 / width)) for c in self._columns if not c.is_numeric
        )
        return np.asarray(
            logsumexp(-apart / width, axis=1) - np.log(apart.shape[1]) - numbers - codes
        )


Answer = Callable[[pd.DataFrame], tuple[pd.DataFrame, NDArray[np.bool_]]]


def nearest_of(one: Case, codes: NDArray[np.int32]) -> Answer:
    """Answer with the nearest of drawn rows."""
    domain = PublicDomain.of(one.population)
    rows = domain.draw(codes, np.random.default_rng())
    served, goal = (
        ServedRows.of(domain, rows, one.model.predict(rows), np.zeros(len(rows))),
        DesiredOutcome.of(one.desired),
    )

    def answer(queries: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        at = served.nearest(queries, goal, None)
        return rows.take(np.maximum(at, 0)).reset_index(drop=True), at >= 0

    return answer


def histograms(one: Case, epsilon: float) -> Answer:
    """Draw every column by itself from its noised counts: epsilon over m for each of m."""
    domain, random = PublicDomain.of(one.population), np.random.default_rng()
    codes, columns = domain.codes_to_count(one.population, 1), []
    for j, size in enumerate(domain.sizes):
        noised = np.bincount(codes[:, j], minlength=size) + random.laplace(
            0, len(domain.sizes) / epsilon, size
        )
        counts = np.maximum(noised, 0) + 1e-9
        columns.append(random.choice(size, ROWS, p=counts / counts.sum()))
    return nearest_of(one, np.column_stack(columns).astype(np.int32))


def plain_tree(one: Case, epsilon: float) -> Answer:
    return nearest_of(one, plain_tree_codes(one.population, epsilon, ROWS))


def mst(
    one: Case, epsilon: float, synthesizer: str | None, kept: str | None, turn: int
) -> Answer | None:
    """Draw from MST in an environment of its own; None, with the reason printed, where it is not
    there.
    """
    domain = PublicDomain.of(one.population)
    codes_of = crc32(repr([(column.values, *column.edges) for column in domain.columns]).encode())
    file = Path(kept or tempfile.gettempdir()) / f"{one.name}-{epsilon:g}-{turn}-{codes_of:08x}.npy"
    if not (kept and file.exists()):
        if synthesizer is None:
            print(
                f"MST is left out at epsilon = {epsilon:g}: --synthesizer is not given",
                file=sys.stderr,
            )
            return None
        table = file.with_suffix(".codes.npy")
        np.save(table, domain.codes_to_count(one.population, 1))
        sizes = ",".join(map(str, domain.sizes))
        command = [
            synthesizer,
            "-c",
            RUN_MST,
            str(table),
            str(file),
            str(epsilon),
            sizes,
            str(ROWS),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            print(
                f"MST is left out at epsilon = {epsilon:g}: {done.stderr.strip()[-200:]}",
                file=sys.stderr,
            )
            return None
    return nearest_of(one, np.load(file))


def ours(one: Case, epsilon: float, **settings: Any) -> Answer:
    prototypes = DPPrototypes(epsilon, rows=ROWS, model_access="public", **settings)
    return prototypes.fit(one.population, one.model, one.desired).generate


Fit = Callable[[], "Answer | None"]


def methods(
    one: Case, epsilon: float, asked: argparse.Namespace
) -> Iterator[tuple[str, list[Fit]]]:
    """Name the methods, with their fits; each returns, when called, what answers."""
    yield "histograms", [partial(histograms, one, epsilon)] * asked.fits
    yield "plain tree", [partial(plain_tree, one, epsilon)] * asked.fits
    yield (
        "MST",
        [
            partial(mst, one, epsilon, asked.synthesizer, asked.kept, turn + 1)
            for turn in range(asked.fits)
        ],
    )
    yield "DPPrototypes", [partial(ours, one, epsilon)] * asked.fits
    yield "DPPrototypes, not moved", [partial(ours, one, epsilon, move_towards_query=False)]
    for weight in WEIGHTS if epsilon in asked.frontier else ():
        yield (
            f"DPPrototypes, plausibility {weight:g}",
            [partial(ours, one, epsilon, plausibility=weight)],
        )


def measured(one: Case, held_out: HeldOut, fit: Fit) -> dict[str, float] | None:
    """Fit once, answer all queries, and measure; with standard errors over the queries."""
    started = process_time()
    answer = fit()
    if answer is None:
        return None
    fitted = process_time()
    rows, answered = answer(one.queries)
    done = process_time()
    found = of_answers(one, held_out, rows[answered], np.flatnonzero(answered))
    return {
        **found,
        "fit s": fitted - started,
        "ms/query": 1000 * (done - fitted) / len(one.queries),
    }


def mean(made: list[dict[str, float]]) -> dict[str, float]:
    """Return the means over fits. Of errors the larger one: as fits differ, or as queries do."""
    fits = pd.DataFrame(made).drop(columns=["fresh nn1", "fresh unseen"])
    found = fits.mean().to_dict()
    for figure in BETTER:
        apart = 0.0 if len(fits) < 2 else float(fits[figure].std())
        found[f"{figure} error"] = max(found[f"{figure} error"], apart) / len(fits) ** 0.5
    return found | {"fits": len(fits)}


def of_answers(
    one: Case, held_out: HeldOut, rows: pd.DataFrame, answered: NDArray[np.int64]
) -> dict[str, float]:
    asked = {
        "model": one.model,
        "desired": one.desired,
        "answered": answered,
        "holdout": one.holdout,
    }
    found, density = figures_of(one.queries, rows, one.population, **asked), held_out.of(rows)
    chance = found.chance
    assert chance is not None  # a holdout was given
    estimates = {
        "flips": found.flipping_ratio,
        "L1": found.l1,
        "changed": found.features_changed,
        "nn1": found.nn1,
        "unseen": found.unseen_pair,
        "singled out": chance.singled_out_train,
        "outside": chance.singled_out_holdout,
        "fresh nn1": chance.nn1,
        "fresh unseen": chance.unseen_pair,
    }
    figures = {name: float(one.value) for name, one in estimates.items() if one.value is not None}
    ends = {name: estimates[name] for name in ("L1", "nn1", "unseen")}
    # half of 95 % is 1.96
    figures |= {f"{name} error": (one.high - one.low) / 3.92 for name, one in ends.items()}
    figures |= {
        "density": float(density.mean()),
        "density error": float(density.std() / len(density) ** 0.5),
    }
    return figures


def main() -> None:
    asked = arguments(
        __doc__,
        data=DATA,
        tables=TABLES,
        epsilon=[0.1, 0.3, 1.0, 3.0, 10.0],
        queries=100,
        fits=1,
        frontier=[1.0],
        synthesizer=None,
        kept=None,
        json=None,
        only=None,
    )
    kept = (
        json.loads(Path(asked.json).read_text()) if asked.json and Path(asked.json).exists() else {}
    )
    for name in asked.tables:
        one = case(name, asked.data, asked.queries)
        held_out = HeldOut(one)
        native = NearestUnlikeNeighbour(
            one.population.frame, one.model, desired=one.desired
        ).explain(one.queries)
        raw = of_answers(one, held_out, native, np.arange(len(native)))
        known = kept[name]["epsilon"] if asked.only and name in kept else {}
        found = kept[name] = {
            "raw": raw,
            "fresh": {"density": held_out.of_people},
            "epsilon": known,
        }
        found["fresh"] |= {figure: raw.pop(f"fresh {figure}") for figure in ("nn1", "unseen")}
        found |= {"rows": len(one.population.frame), "queries": len(one.queries)}
        print(f"\n{name}: {found['rows']} rows, {found['queries']} queries, {asked.fits} fits\n")
        print(heading("method", *FIGURES))
        for label in ("raw", "fresh"):
            print(
                line(
                    label,
                    *(f"{found[label][f]:.3g}" if f in found[label] else "–" for f in FIGURES),
                ),
                flush=True,
            )
        for epsilon in asked.epsilon:
            cell = found["epsilon"].setdefault(f"{epsilon:g}", {})
            for label, fits in methods(one, epsilon, asked):
                if not label.startswith(asked.only or ""):
                    continue
                made = [
                    figures for fit in fits if (figures := measured(one, held_out, fit)) is not None
                ]
                if not made:
                    continue
                cell[label] = mean(made)
                print(
                    line(
                        f"{label}, epsilon = {epsilon:g}",
                        *(f"{cell[label][f]:.3g}" for f in FIGURES),
                    ),
                    flush=True,
                )
            if asked.json:
                rounded = json.loads(
                    json.dumps(kept), parse_float=lambda said: float(f"{float(said):.4g}")
                )
                Path(asked.json).write_text(json.dumps(rounded, indent=1) + "\n")


if __name__ == "__main__":
    main()
