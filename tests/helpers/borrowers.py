"""People who ask for a loan, and a lender who looks at their private values: tables for attacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

QUASI_IDENTIFIERS = ("age", "town")
N_PEOPLE = 800
UNIT = 1000  # of amounts: the smaller, the fewer people have the same


def borrowers(rng: np.random.Generator) -> pd.DataFrame:
    """Draw people whose private values go together: who earns more owes less, and so on."""
    n = N_PEOPLE
    wealth = rng.normal(0, 1, n)

    def amounts(typical: float, slope: float, noise: float) -> np.ndarray:
        drawn = np.maximum(typical + slope * wealth + rng.normal(0, noise, n), 0)
        return drawn.astype(int) // UNIT * UNIT

    def one_of(*choices: str) -> np.ndarray:
        place = (wealth + rng.normal(0, 0.4, n) + 1.5) / 3 * len(choices)
        return np.array(choices)[np.clip(place.astype(int), 0, len(choices) - 1)]

    age = rng.integers(20, 70, n)
    return pd.DataFrame(
        {
            "age": age,
            "town": rng.choice(["Ghent", "Leuven", "Mons", "Namur", "Ypres"], n),
            "income": amounts(35_000, 9_000, 3_000),
            "debt": amounts(10_000, -3_000, 2_000),
            "savings": amounts(20_000, 6_000, 3_000),
            "phone": one_of("none", "landline", "mobile"),
            "contract": one_of("open", "self", "fixed"),
            "purpose": one_of("studies", "travel", "car", "house"),
            "guarantor": one_of("parent", "partner", "no"),
        }
    )


@dataclass(frozen=True)
class Lender:
    """A model: accepts people who have enough after their debts; age counts a little."""

    enough: float = 24_000

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        left = rows["income"].to_numpy(float) - rows["debt"].to_numpy(float)
        return (left + 100 * rows["age"].to_numpy(float) > self.enough + 4_500).astype(int)
