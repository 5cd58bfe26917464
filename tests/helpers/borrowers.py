"""People who ask for a loan, and a lender who looks at their private values: tables for attacks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Columns:
    """The columns of a table, on which it depends what a nearest neighbour gives away."""

    quasi_identifiers: tuple[str, ...]
    private: tuple[str, ...]
    unit: int  # of amounts: the smaller, the fewer people have the same
    go_together: bool  # whether private values depend on each other
    n_people: int = 320


MOST_KNOWN = Columns(
    quasi_identifiers=("age", "children", "town", "job", "housing", "school", "transport"),
    private=("income", "debt", "phone"),
    unit=1000,
    go_together=True,
)
MOST_PRIVATE = Columns(
    quasi_identifiers=("age", "town"),
    private=("income", "debt", "savings", "phone", "contract", "purpose", "guarantor"),
    unit=1000,
    go_together=True,
    n_people=800,
)
EXACT_AMOUNTS = Columns(
    quasi_identifiers=("age", "children", "town", "job", "housing"),
    private=("income", "debt", "savings", "phone", "contract", "purpose", "guarantor"),
    unit=1,
    go_together=True,
)
FAR_APART = replace(EXACT_AMOUNTS, go_together=False)


def borrowers(columns: Columns, rng: np.random.Generator) -> pd.DataFrame:
    """Draw people; if their private values go together, who earns more owes less, and so on."""
    n = columns.n_people
    wealth = rng.normal(0, 1, n)

    def amounts(typical: float, slope: float, noise: float) -> np.ndarray:
        drawn = rng.uniform(0, 2 * typical, n)
        if columns.go_together:
            drawn = np.maximum(typical + slope * wealth + rng.normal(0, noise, n), 0)
        return drawn.astype(int) // columns.unit * columns.unit

    def one_of(*choices: str) -> np.ndarray:
        if not columns.go_together:
            return rng.choice(choices, n)
        place = (wealth + rng.normal(0, 0.4, n) + 1.5) / 3 * len(choices)
        return np.array(choices)[np.clip(place.astype(int), 0, len(choices) - 1)]

    rows = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "children": rng.integers(0, 4, n),
            "town": rng.choice(["Ghent", "Leuven", "Mons", "Namur", "Ypres"], n),
            "job": rng.choice(["clerk", "nurse", "smith", "tutor"], n),
            "housing": rng.choice(["own", "rent"], n),
            "school": rng.choice(["first", "second", "third"], n),
            "transport": rng.choice(["bus", "car", "train"], n),
            "income": amounts(35_000, 9_000, 3_000),
            "debt": amounts(10_000, -3_000, 2_000),
            "savings": amounts(20_000, 6_000, 3_000),
            "phone": one_of("none", "landline", "mobile"),
            "contract": one_of("open", "self", "fixed"),
            "purpose": one_of("studies", "travel", "car", "house"),
            "guarantor": one_of("parent", "partner", "no"),
        }
    )
    return rows[[*columns.quasi_identifiers, *columns.private]]


@dataclass(frozen=True)
class Lender:
    """A model: accepts people who have enough after their debts; age counts a little."""

    enough: float = 24_000

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        left = rows["income"].to_numpy(float) - rows["debt"].to_numpy(float)
        return (left + 100 * rows["age"].to_numpy(float) > self.enough + 4_500).astype(int)
