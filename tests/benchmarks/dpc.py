"""DPC as published beside DiCE, and beside the figures that its paper prints; print a Markdown
table.

Run it with ``python tests/benchmarks/dpc.py --data FOLDER [--tables adult] [--queries 500]
[--epochs 300]
[--dice genetic]``. Of the paper's six tables, Adult and Hospital (diabetes130 here) are at hand;
HomeCredit, MNIST, Purchase and Texas cannot be had or are no tables of records; ``--tables digits``
explains the 8x8 digits that ship with scikit-learn as a stand-in for MNIST. Of the baselines DiCE
is the library itself and the others are this package's. Figure 4 is a picture, so there are no
printed times. Domains are read from the table, as if a code book said the same.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from cfk_plugin import DPPrototypes, Population, Schema
from cfk_plugin.dp import PublicDomain, PublicEncoder, infer_domains
from cfk_plugin.errors import PrivacyLeakWarning
from cfk_plugin.plugins import generator
from cfk_recourse.dpc import DPC
from printing import DATA, arguments, heading, line
from tables import read, split

PUBLISHED: dict[str, dict[str, tuple[float, float | None]]] = {
    "adult": {
        "DiCE": (0.972, 1.32), "CADEX": (0.926, 0.61), "C-CHVAE": (0.946, 1.66), "REVISE": (0.902, 1.61),
        "DPC 0.025": (0.918, 1.62), "DPC 0.75": (0.968, None),
    },
    "diabetes130": {
        "DiCE": (0.892, 2.51), "CADEX": (0.810, 1.54), "C-CHVAE": (0.838, 2.68), "REVISE": (0.788, 2.70),
        "DPC 0.025": (0.826, 2.63), "DPC 0.75": (0.884, None),
    },
    "digits": {
        "DiCE": (0.812, 2.89), "CADEX": (0.724, 1.81), "C-CHVAE": (0.788, 3.04), "REVISE": (0.682, 3.09),
        "DPC 0.025": (0.756, 2.99), "DPC 0.75": (0.790, None),
    },
}  # fmt: skip
"""Flipping ratio and average distance: Tables 2 and 3 of Yang et al. (2022), rows Adult, Hospital,
and MNIST without a specified class, beside which the digits stand."""

LEFT_OUT = {"diabetes130": ["diag_1", "diag_2", "diag_3"]}
"""Codes of diseases with 700 to 800 values each: the paper's table has 127 features in all, too few
to hold them.
"""

BALANCED = {"diabetes130"}
"""Tables of which as many rows of each class are kept.

The paper does not say so, but its network is right on 70.1 % of Hospital (Table 4), of which 88.8 %
have one outcome."""

Explain = Callable[[pd.DataFrame, int], NDArray[np.float64]]
"""From queries and a number to encoded counterfactuals, shape (n, number, n_inputs), NaN where none
was found.
"""


@dataclass(frozen=True)
class Case:
    """One table: its training rows, the network that is explained, and queries."""

    name: str
    train: pd.DataFrame
    population: Population
    model: Pipeline
    queries: pd.DataFrame

    @property
    def encoder(self) -> PublicEncoder:
        return self.model.steps[0][1]


def read_digits() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the 1,797 digits: 64 pixels of 17 shades, and which digit each is."""
    digits = load_digits(as_frame=True).frame.astype(int)
    pixels = [column for column in digits if column != "target"]
    return digits, {"features": pixels, "quasi_identifiers": pixels[26:30], "target": "target"}


def case(name: str, data: Path, queries: int, seed: int) -> Case:
    """Split 70/30, fit a network with tanh units, take random test rows as queries."""
    frame, about = read_digits() if name == "digits" else read(name, data)
    features = [feature for feature in about["features"] if feature not in LEFT_OUT.get(name, [])]
    frame = frame.fillna(
        {c: "unknown" for c in features if not pd.api.types.is_numeric_dtype(frame[c])}
    )
    label = frame[about["target"]]
    is_binary = "desired_outcome" in about
    table = frame[features].assign(
        outcome=(label == about["desired_outcome"]).astype(int) if is_binary else label
    )
    if name in BALANCED:
        table = table.groupby("outcome").sample(
            table["outcome"].value_counts().min(), random_state=seed
        )
    train, test = split(table, 0.7, seed)
    quasi = about["quasi_identifiers"]
    schema = Schema.from_frame(table, quasi_identifiers=quasi, target="outcome", nullable=[])
    with warnings.catch_warnings(action="ignore"):
        population = Population.from_frame(train, infer_domains(table, schema))
        network = MLPClassifier((64, 32), activation="tanh", max_iter=20, random_state=seed)
        encoder = PublicEncoder(PublicDomain.of(population))
        model = make_pipeline(encoder, network).fit(train[features], train["outcome"])
    accuracy = model.score(test[features], test["outcome"])
    print(
        f"# {name}: {len(train)} training rows, {encoder.n_inputs} inputs, accuracy {accuracy:.3f}",
        flush=True,
    )
    return Case(name, train, population, model, test[features].head(queries).reset_index(drop=True))


def dpc(case: Case, epsilon: float, options: argparse.Namespace) -> Iterator[tuple[str, Explain]]:
    method = DPC(epsilon, epochs=options.epochs, seed=options.seed).fit(
        case.population, case.model, "opposite"
    )

    def shaped(encoded: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        return encoded.reshape(n, -1, encoded.shape[1])

    def rows(queries: pd.DataFrame, number: int) -> NDArray[np.float64]:
        return shaped(
            case.encoder.transform(method.generate(queries, per_query=number)), len(queries)
        )

    def decoded(queries: pd.DataFrame, number: int) -> NDArray[np.float64]:
        return shaped(method.search(queries, per_query=number), len(queries))

    yield f"DPC {epsilon:g}", rows
    yield f"DPC {epsilon:g}, not rounded to rows", decoded


def prototypes(
    case: Case, epsilon: float, options: argparse.Namespace
) -> Iterator[tuple[str, Explain]]:
    method = DPPrototypes(epsilon).fit(case.population, case.model, "opposite")
    served = method.served_

    def explain(queries: pd.DataFrame, number: int) -> NDArray[np.float64]:
        found = np.full((len(queries), number, case.encoder.n_inputs), np.nan)
        labels = case.model.predict(queries)
        for label in np.unique(labels):
            at, others = np.flatnonzero(labels == label), np.flatnonzero(served.labels != label)
            asked, offered = served.heom.encode(queries.iloc[at]), served.codes.take(others)
            near, _ = served.heom.nearest(asked, offered, k=number, cost=served.cost[others])
            rows = served.frame.take(others[near.ravel()])
            found[at] = case.encoder.transform(rows).reshape(len(at), number, -1)
        return found

    yield f"DPPrototypes {epsilon:g}", explain


def dice(case: Case, options: argparse.Namespace) -> Iterator[tuple[str, Explain]]:
    import dice_ml
    from raiutils.exceptions import UserConfigValidationException

    numeric = [c for c in case.queries if pd.api.types.is_numeric_dtype(case.queries[c])]
    text = {c: object for c in case.queries if c not in numeric}
    data = dice_ml.Data(
        dataframe=case.train.astype(text), continuous_features=numeric, outcome_name="outcome"
    )
    explainer = dice_ml.Dice(
        data, dice_ml.Model(model=case.model, backend="sklearn"), method=options.dice
    )
    seeded: dict[str, Any] = {"random_seed": options.seed} if options.dice == "random" else {}

    def explain(queries: pd.DataFrame, number: int) -> NDArray[np.float64]:
        found = np.full((len(queries), number, case.encoder.n_inputs), np.nan)
        for i in range(len(queries)):
            query = queries.iloc[[i]].astype(text)
            try:
                result = explainer.generate_counterfactuals(
                    query, total_CFs=number, desired_class="opposite", verbose=False, **seeded
                )
            except UserConfigValidationException:  # "No counterfactuals found"
                continue
            rows = result.cf_examples_list[0].final_cfs_df
            if rows is not None and len(rows):
                found[i, : len(rows)] = case.encoder.transform(rows[list(queries)])[:number]
        return found

    yield "DiCE", explain


def recourse(
    case: Case, options: argparse.Namespace, *, name: str
) -> Iterator[tuple[str, Explain]]:
    """One answer for each query, however many are asked for: these methods know no others."""
    explainer = generator(name)(
        case.train[list(case.queries)], None, case.model, "opposite", options.seed
    )

    def explain(queries: pd.DataFrame, number: int) -> NDArray[np.float64]:
        answers = explainer.explain(queries)
        there = answers.notna().all(axis=1).to_numpy()
        found = np.full((len(queries), 1, case.encoder.n_inputs), np.nan)
        if there.any():
            found[there, 0] = case.encoder.transform(
                answers[there].astype(case.train.dtypes[list(answers)])
            )
        return found

    yield name.upper(), explain


METHODS: dict[str, Callable[[Case, argparse.Namespace], Iterator[tuple[str, Explain]]]] = {
    "dice": dice,
    **{name: partial(recourse, name=name) for name in ("cadex", "c-chvae", "revise")},
    "dp-0.025": partial(prototypes, epsilon=0.025),
    "dp-1": partial(prototypes, epsilon=1.0),
    "dpc-0.025": partial(dpc, epsilon=0.025),
    "dpc-0.75": partial(dpc, epsilon=0.75),
}
"""Each fits itself and yields what it explains with, under the name that the table shows."""


def measure(case: Case, name: str, explain: Explain, fitted: float) -> str:
    """Return a line: flipping ratio (Eq.

    20), average distance (Eq. 21), seconds for 10 queries (mean of 5 sets).
    """
    network, encoded = case.model.steps[-1][1], case.encoder.transform(case.queries)
    one = explain(case.queries, 1)[:, 0]
    there = ~np.isnan(one[:, 0])
    flipped = (network.predict(one[there]) != network.predict(encoded[there])).sum() / len(encoded)
    some = case.queries.head(50)
    away = np.linalg.norm(explain(some, 10) - encoded[: len(some), None], axis=2)
    sets = [
        case.queries.iloc[start : start + 10] for start in range(0, min(50, len(case.queries)), 10)
    ]
    started = time.perf_counter()
    for queries in sets:
        explain(queries, 1)
    seconds = (time.perf_counter() - started) / len(sets)
    ratio, distance = PUBLISHED[case.name].get(name, (None, None))
    shown = [f"{flipped:.3f}", ratio or "–", f"{np.nanmean(away):.2f}", distance or "–"]
    return line(case.name, name, *shown, f"{fitted:.0f}", f"{seconds:.2f}")


def main() -> None:
    tables, methods = list(PUBLISHED), list(METHODS)
    options = arguments(
        __doc__,
        data=DATA,
        tables=tables,
        methods=methods,
        queries=100,
        epochs=300,
        dice="random",
        seed=0,
    )
    print(
        f"# load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; DiCE {options.dice}; {options.epochs} epochs"
    )
    columns = ("flipping ratio", "printed", "average distance", "printed", "fit s", "10 queries s")
    lines = [heading("table", "method", *columns)]
    warnings.simplefilter("ignore", ConvergenceWarning)
    # domains are read from the table, see above
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    warnings.simplefilter("ignore", DeprecationWarning)  # DiCE's, of pandas
    for name in options.tables:
        table = case(name, options.data, options.queries, options.seed)
        for method in options.methods:
            started = time.perf_counter()
            fitted = 0.0
            for shown, explain in METHODS[method](table, options=options):
                fitted = fitted or time.perf_counter() - started
                lines.append(measure(table, shown, explain, fitted))
                print(lines[-1], flush=True)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
