"""How large audits are: steps from a first look to what a reviewer wants to see."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """Sizes of one step.

    Attributes
    ----------
    people : int
        Most people that a model is trained on.
    shadows : int
        Shadow models of membership inference.
    attacked : int
        Most undesired people attacked, members and others each.
    queries : tuple of int
        What extraction asks, one result each.
    repeats : int
        How often extraction draws its queries.
    explained : int
        Explanations from which attributes are inferred, and which linkage attacks.
    """

    people: int
    shadows: int
    attacked: int
    queries: tuple[int, ...]
    repeats: int
    explained: int


STEPS: tuple[Sizes, ...] = (
    Sizes(500, 2, 50, (100,), 1, 30),
    Sizes(1_000, 4, 100, (250,), 1, 50),
    Sizes(2_000, 8, 200, (250, 500), 1, 100),
    Sizes(3_000, 8, 300, (250, 500), 3, 150),
    Sizes(5_000, 8, 500, (250, 1_000), 3, 200),
    Sizes(10_000, 16, 1_000, (250, 500, 1_000, 2_000), 3, 400),
    Sizes(20_000, 32, 2_000, (250, 500, 1_000, 2_000), 5, 1_000),
)
"""From the smallest to the largest; `Plan` takes the largest that fits the budget."""
