"""Compare DPC, as published, with recourse methods and `DPPrototypes` on two tables of its paper.

    PYTHONPATH=docs .venv/bin/python -m reproduction.dpc FOLDER [--tables adult diabetes130]

Yang, Feng, Zhou, Chen and Hu (2022) print the flipping ratio (equation 20) and the average distance
(equation 21) in Tables 2 and 3. Domains are read from the table here, so the epsilon of
`DPPrototypes` would not hold for a release.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from cfk_plugin import DPPrototypes, Population, Schema
from cfk_plugin.dp import PublicDomain, PublicEncoder, infer_domains
from cfk_plugin.errors import PrivacyLeakWarning
from cfk_plugin.plugins import generator
from cfk_recourse.dpc import DPC

PUBLISHED = {
    "adult": {"cadex": (0.926, 0.61), "c-chvae": (0.946, 1.66), "revise": (0.902, 1.61)}
    | {"DPC 0.025": (0.918, 1.62), "DPC 0.75": (0.968, None)},
    "diabetes130": {"cadex": (0.810, 1.54), "c-chvae": (0.838, 2.68), "revise": (0.788, 2.70)}
    | {"DPC 0.025": (0.826, 2.63), "DPC 0.75": (0.884, None)},
}
"""Flipping ratio and average distance of the paper's rows Adult and Hospital."""

LEFT_OUT = ("diag_1", "diag_2", "diag_3")
"""Codes of diabetes130 with 700 to 800 values each, too many for the paper's 127 features."""

Explain = Callable[[pd.DataFrame], pd.DataFrame]
"""From queries to one counterfactual each; a row of missing values if there is none."""


@dataclass(frozen=True)
class Case:
    """A table, the network that is explained, and queries."""

    train: pd.DataFrame
    population: Population
    model: Pipeline  # encoder and network
    queries: pd.DataFrame


def read_case(name: str, folder: Path, n_queries: int) -> Case:
    """Split a table 70/30, with as many rows of each outcome, and fit a network with tanh units."""
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    text = {c["name"]: str for c in about["columns"] if c["type"] != "numeric"}
    frame = pd.read_csv(folder / f"{name}.csv.gz", dtype=text)
    features = [column for column in about["features"] if column not in LEFT_OUT]
    table = frame[features].fillna({column: "unknown" for column in features if column in text})
    table["outcome"] = (frame[about["target"]] == about["desired_outcome"]).astype(int)
    n_of_class = table["outcome"].value_counts().min()
    table = table.groupby("outcome").sample(n_of_class, random_state=0)
    train, test = train_test_split(table, train_size=0.7, random_state=0)
    schema = Schema.from_frame(
        table, quasi_identifiers=about["quasi_identifiers"], target="outcome", nullable=[]
    )
    population = Population.from_frame(train, infer_domains(table, schema))
    encoder = PublicEncoder(PublicDomain.of(population))
    network = MLPClassifier((64, 32), activation="tanh", max_iter=20, random_state=0)
    model = make_pipeline(encoder, network).fit(train[features], train["outcome"])
    return Case(train, population, model, test[features].head(n_queries).reset_index(drop=True))


def of_dpc(case: Case, epsilon: float) -> Explain:
    """Return DPC with a claimed epsilon."""
    return DPC(epsilon, seed=0).fit(case.population, case.model, "opposite").generate


def of_prototypes(case: Case, epsilon: float) -> Explain:
    """Return the differentially private prototypes of this library."""
    prototypes = DPPrototypes(epsilon).fit(case.population, case.model, "opposite")

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        rows, is_answer = prototypes.generate(queries)
        return rows.reset_index(drop=True).where(pd.Series(is_answer), axis=0)

    return explain


def of_recourse(case: Case, name: str) -> Explain:
    """Return a recourse method by its name."""
    make: Any = generator(name)
    explain: Explain = make(case.train[[*case.queries]], None, case.model, "opposite", 0).explain
    return explain


METHODS: dict[str, Callable[[Case], Explain]] = {
    "cadex": lambda case: of_recourse(case, "cadex"),
    "c-chvae": lambda case: of_recourse(case, "c-chvae"),
    "revise": lambda case: of_recourse(case, "revise"),
    "DPC 0.025": lambda case: of_dpc(case, 0.025),
    "DPC 0.75": lambda case: of_dpc(case, 0.75),
    "DPPrototypes 0.025": lambda case: of_prototypes(case, 0.025),
    "DPPrototypes 1": lambda case: of_prototypes(case, 1.0),
}


def measure(case: Case, explain: Explain) -> tuple[float, float]:
    """Return the flipping ratio and the average distance in the network's inputs."""
    encoder = case.model.steps[0][1]
    answers = explain(case.queries)
    is_answer = answers.notna().all(axis=1).to_numpy()
    queries = case.queries[is_answer]
    rows = answers[is_answer].astype(case.queries.dtypes)[[*queries]]
    has_flipped = case.model.predict(rows) != case.model.predict(queries)
    gaps: NDArray[np.float64] = encoder.transform(rows) - encoder.transform(queries)
    return has_flipped.sum() / len(case.queries), float(np.linalg.norm(gaps, axis=1).mean())


def main() -> None:
    """Measure the methods on tables, and print them with the published figures."""
    parser = argparse.ArgumentParser(prog="reproduction.dpc", description=__doc__)
    parser.add_argument("data", type=Path, help="folder with NAME.csv.gz and NAME.json")
    parser.add_argument("--tables", nargs="+", choices=[*PUBLISHED], default=["adult"])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)  # domains are read from the table
    print(f"{'table':12} {'method':18} flips  paper  distance  paper")
    for name in options.tables:
        case = read_case(name, options.data, options.queries)
        for method in options.methods:
            flips, distance = measure(case, METHODS[method](case))
            paper_flips, paper_distance = PUBLISHED[name].get(method, (None, None))
            print(
                f"{name:12} {method:18} {flips:.3f}  {paper_flips}  {distance:.2f}  {paper_distance}"
            )


if __name__ == "__main__":
    main()
