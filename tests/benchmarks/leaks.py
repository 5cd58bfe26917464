"""Run published attacks on synthetic populations and real tables, and keep what they found as JSON.

    python tests/benchmarks/leaks.py --data ../shared/data --only linear --jobs 2

Every case is one audit of one owner. A case that is in the output is not run again: delete it there
first.
"""

from __future__ import annotations

import fnmatch
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import extraction
from cfk_plugin.audit.membership import HypercubePopulation, membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.surrogate import (
    attribute_inference_through_surrogate,
    membership_through_surrogate,
)
from cfk_plugin.audit.targets import (
    RawOwner,
    Sample,
    Target,
    full_depth_forest,
    network,
    standard_owners,
)
from cfk_plugin.plugins import generator
from cfk_recourse.c_chvae import CChvae
from cfk_recourse.cadex import Cadex
from cfk_recourse.growing_spheres import GrowingSpheres
from cfk_recourse.revise import Revise
from cfk_recourse.scfe import Scfe
from printing import DATA, arguments
from tables import read

OUTPUT = Path(__file__).parents[2] / "docs/explanation/leaks.json"
TARGETS = {
    "adult": ("income", ">50K"),
    "german": ("credit_decision", "good"),
    "diabetes130": ("readmitted_30_days", "no"),
}
TABLES = {
    "adult": ("scfe", "cadex", "growing-spheres", "c-chvae", "revise"),
    "diabetes130": ("scfe", "cadex", "growing-spheres", "revise"),
}
NETWORKS = {"1000": (1000,), "100-100-100": (100,) * 3, "333-333-333": (333,) * 3}


@dataclass(frozen=True)
class Case:
    """One audit: its name begins with the experiment that it belongs to."""

    name: str
    run: Callable[[], AttackReport]


def cases(data: Path, jobs: int) -> Iterator[Case]:  # noqa: C901 - a list of cases
    for d in (100, 1000, 5000, 7000):
        yield Case(f"linear d={d}", partial(linear, d, 8.0, 20_000, 16))
    for separation in (3.4, 5.0, 6.0, 12.0):
        yield Case(
            f"linear d=5000 separation={separation:g}", partial(linear, 5000, separation, 15_000, 8)
        )
    for d in (50, 150):
        for name in NETWORKS:
            yield Case(f"network d={d} layers={name}", partial(nonlinear, d, name, jobs))
    for table, methods in TABLES.items():
        for method in methods:
            yield Case(f"table {table} {method}", partial(on_table, table, method, data, jobs))
    for table in ("german", "adult"):
        for owner in ("raw", "reciprocal", "catalogue", "dp"):
            yield Case(f"extraction {table} {owner}", partial(copied, table, owner, data, jobs))
            yield Case(
                f"surrogate {table} {owner}", partial(through_copy, table, owner, data, jobs)
            )
            yield Case(f"attributes {table} {owner}", partial(guessed, table, owner, data, jobs))
    for table, attribute in (("german", "savings"), ("adult", "occupation")):
        for owner in ("raw", "dp"):
            yield Case(
                f"asked {table} {owner}", partial(asked, table, attribute, owner, data, jobs)
            )


OF_THE_PAPER = [f"membership_{name}" for name in ("cfd", "cfd_lrt", "loss", "loss_lrt")]
"""The attacks whose figures are reproduced."""


def linear(d: int, separation: float, n: int, shadows: int) -> AttackReport:
    """Figure 2: logistic regression on n = 5,000 people, the l1-nearest point beyond its
    boundary.
    """
    sample = HypercubePopulation(d=d, separation=separation, seed=1).draw(n, seed=1)
    owner = RawOwner(
        "scfe", LogisticRegression(max_iter=200, tol=1e-3), Nearest(Scfe, within_ranges=False)
    )
    sizes: dict[str, Any] = {
        "n_train": 5000,
        "n_shadows": shadows,
        "attacked": n // 10,
        "distance": "l1",
    }
    return membership(owner, sample, **sizes, attacks=OF_THE_PAPER, seed=1)


def nonlinear(d: int, layers: str, jobs: int) -> AttackReport:
    """Figure 3: networks on n = 10,000 people, SCFE by gradient."""
    sample = HypercubePopulation(d=d, separation={50: 2.4, 150: 3.0}[d], seed=1).draw(
        40_000, seed=1
    )
    model = MLPClassifier(NETWORKS[layers], alpha=0.0, max_iter=60, n_iter_no_change=5)
    owner = RawOwner("scfe", model, Nearest(Scfe, within_ranges=False))
    sizes: dict[str, Any] = {"n_train": 10_000, "n_shadows": 4, "attacked": 1000, "distance": "l1"}
    return membership(owner, sample, **sizes, attacks=OF_THE_PAPER, seed=1, n_jobs=jobs)


def on_table(table: str, method: str, data: Path, jobs: int) -> AttackReport:
    """Table 2 and Figure 1: a network of 1,000 hidden units on 5,000 people of a real table."""
    sample, _ = people(table, data, 20_000)
    known = {
        "scfe": Scfe,
        "cadex": Cadex,
        "growing-spheres": GrowingSpheres,
        "c-chvae": CChvae,
        "revise": Revise,
    }
    explainer = known[method]
    owner = RawOwner(method, network(sample.X, width=1000, epochs=100), Nearest(explainer))
    # what is decoded is nearer for members
    direction = "smaller" if method in ("c-chvae", "revise") else "larger"
    # the others ask the network for hundreds of points per person
    attacked = 1000 if method == "scfe" else 300
    sizes: dict[str, Any] = {
        "n_train": 5000,
        "n_shadows": 4,
        "attacked": attacked,
        "direction": direction,
    }
    return membership(owner, sample, **sizes, attacks=OF_THE_PAPER, seed=1, n_jobs=jobs)


def copied(table: str, owner: str, data: Path, jobs: int) -> AttackReport:
    """Table 4: fidelity of copies."""
    sample, quasi = people(table, data, 20_000)
    queries = (250, 500, 1000, 2000) if table == "adult" else (125, 250)
    return extraction(
        named(owner, sample, quasi), sample, queries=queries, repeats=3, seed=1, n_jobs=jobs
    )


def through_copy(table: str, owner: str, data: Path, jobs: int) -> AttackReport:
    """Figure 5: membership through a copy."""
    sample, quasi = people(table, data, 20_000)
    queries = 2000 if table == "adult" else 250
    return membership_through_surrogate(
        named(owner, sample, quasi), sample, queries=queries, seed=1, n_jobs=jobs
    )


def guessed(table: str, owner: str, data: Path, jobs: int) -> AttackReport:
    """Private attributes of people whom answers fit."""
    sample, quasi = people(table, data, 20_000)
    answers = named(owner, sample, quasi)
    return attribute_inference(
        answers, sample, quasi_identifiers=quasi, queries=400, seed=1, n_jobs=jobs
    )


def asked(table: str, attribute: str, owner: str, data: Path, jobs: int) -> AttackReport:
    """Figure 6: an attribute of members, through a copy."""
    sample, quasi = people(table, data, 20_000)
    sizes: dict[str, Any] = {"attribute": attribute, "queries": 2000 if table == "adult" else 250}
    return attribute_inference_through_surrogate(
        named(owner, sample, quasi), sample, **sizes, seed=1, n_jobs=jobs
    )


def people(table: str, data: Path, most: int) -> tuple[Sample, tuple[str, ...]]:
    """Return people drawn at random from a table, with median and most frequent value where one is
    missing.
    """
    frame, about = read(table, data)
    target, desired = TARGETS[table]
    frame = frame.sample(min(most, len(frame)), random_state=0)
    # Three columns of diagnoses have hundreds of codes each: one-hot, they would be nearly all of
    # the network's inputs.
    X = frame[
        [name for name in about["features"] if name not in ("diag_1", "diag_2", "diag_3")]
    ].copy()
    for name in X:
        numeric = pd.api.types.is_numeric_dtype(X[name])
        X[name] = X[name].fillna(X[name].median() if numeric else "unknown")
    return Sample(X, (frame[target] == desired).to_numpy()), tuple(about["quasi_identifiers"])


def named(owner: str, sample: Sample, quasi: tuple[str, ...]) -> Target:
    """Return one of the standard owners: a forest of full depth, explained by its nearest unlike
    training row.
    """
    found = standard_owners(
        sample, full_depth_forest(sample.X), {"raw": generator("nearest")}, quasi
    )
    return next(one for one in found if one.name == owner)


def as_text(found: dict[str, Any]) -> str:
    """Return JSON with one case per line."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(report, allow_nan=False)}"
        for name, report in found.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def thinned(report: dict[str, Any]) -> dict[str, Any]:
    """Keep of every curve the corners that a plot on logarithmic axes can show, as they are."""
    for curve in report["curves"].values():
        fpr = np.array(curve["fpr"])
        ends = (
            np.searchsorted(fpr, np.concatenate([[0.0], np.logspace(-4, 0, 120)]), side="right") - 1
        )
        kept = np.unique(np.append(ends, len(fpr) - 1))
        curve["fpr"], curve["tpr"] = ([curve[name][i] for i in kept] for name in ("fpr", "tpr"))
    return report


class Nearest:
    """An explainer's class with settings, as owners make explainers."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        self.kind, self.settings = kind, settings

    def __call__(
        self, train: pd.DataFrame, labels: Any, model: Any, desired: Any, seed: int
    ) -> Any:
        return self.kind(train, model, desired, seed=seed, **self.settings)


def main() -> None:
    given = arguments(__doc__, data=DATA, only="", jobs=1, output=OUTPUT)
    for case in cases(given.data, given.jobs):
        found = json.loads(given.output.read_text()) if given.output.exists() else {}
        if case.name in found or not fnmatch.fnmatch(case.name, f"{given.only}*"):
            continue
        started = time.perf_counter()
        report = case.run()
        found = json.loads(given.output.read_text()) if given.output.exists() else {}
        found[case.name] = thinned(report.to_dict())
        given.output.write_text(as_text(found), encoding="utf-8")
        print(f"{case.name}: {time.perf_counter() - started:.0f} s")
        print(
            report.to_frame()[["attack", "main", "main_low", "main_high"]]
            .round(3)
            .to_string(index=False),
            flush=True,
        )


if __name__ == "__main__":
    main()
