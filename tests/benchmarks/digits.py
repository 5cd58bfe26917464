"""DPC and prototypes on the 8x8 digits of scikit-learn, a stand-in for MNIST: a picture, and an
audit of epsilon.

``python tests/benchmarks/digits.py [--runs 40] [--picture docs/assets/digits.svg]`` draws, for each
digit, the mean of its images, what DPC decodes from its prototype, and a row of `DPPrototypes` that
the network takes for it; and asks of both, by one number that is chosen here, whether a person's
presence shows. For flips and distances see ``dpc.py``.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import DPPrototypes, Population
from cfk_plugin.audit import canary_audit
from cfk_plugin.dp.audited import measuring
from cfk_recourse.dpc import DPC
from dpc import Case, case
from printing import arguments

SHADES = 16
CANARY = pd.DataFrame([np.resize([SHADES, 0], 64)])  # stripes, which no digit has


def drawn(case: Case) -> dict[str, Any]:
    """Return rows of ten images, by what they are called."""
    pixels, digits = list(case.queries), range(10)
    means = case.train.groupby("outcome")[pixels].mean().to_numpy()
    rows = {"mean of the digit": means}
    for epsilon in (0.025, 0.75):
        found = [
            DPC(epsilon, seed=0, alpha=0, beta=0, gamma=1)
            .fit(case.population, case.model, digit)
            .search(case.queries.head(1))
            for digit in digits
        ]
        rows[f"DPC, {epsilon:g} claimed"] = np.vstack(found) * SHADES
    for epsilon in (1.0, 8.0):
        served = DPPrototypes(epsilon).fit(case.population, case.model, "opposite").served_
        blank = np.full((1, len(pixels)), np.nan)
        first = [
            served.frame[served.labels == digit][pixels].head(1).to_numpy(dtype=float)
            for digit in digits
        ]
        rows[f"DPPrototypes, {epsilon:g}"] = np.vstack(
            [row if len(row) else blank for row in first]
        )
    return rows


def picture(rows: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(rows), 10, figsize=(8, 0.85 * len(rows)))
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=SHADES)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def presence(case: Case, epsilon: float, runs: int) -> None:
    """Ask one answer of DPC, and all that `DPPrototypes` learns, whether the striped image is among
    300 digits.
    """
    pixels = list(case.queries)
    table = case.train.head(300)
    canary = CANARY.set_axis(pixels, axis=1).assign(outcome=9)
    schema = case.population.schema
    query = case.queries.head(1)

    def answer(rows: pd.DataFrame, random_state: int) -> float:
        people = Population.from_frame(rows, schema)
        found = DPC(epsilon, seed=random_state).fit(people, case.model, 9).search(query)
        return float(found[0] @ np.resize([1, -1], 64))  # how striped it is

    learned = measuring(schema, epsilon=epsilon)
    for name, release, score in (
        ("DPC", answer, None),
        ("DPPrototypes", learned, lambda found: found.seen(canary)),
    ):
        audit = canary_audit(
            release, table, canary, claimed=epsilon, runs=runs, score=score, schema=schema
        )
        bound = f"at least {audit.epsilon_low:.2f} of at most {audit.ceiling:.2f}"
        print(f"{name} {epsilon:g}: {audit.verdict}, {bound}", flush=True)


def main() -> None:
    given = arguments(__doc__, runs=40, picture="docs/assets/digits.svg", seed=0)
    warnings.simplefilter("ignore")
    digits = case("digits", Path(), 100, given.seed)
    picture(drawn(digits), Path(given.picture))
    for epsilon in (0.025, 0.75):
        presence(digits, epsilon, given.runs)


if __name__ == "__main__":
    main()
