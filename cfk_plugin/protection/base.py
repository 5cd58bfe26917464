"""What a protector gets, what it gives back, and which of two regions is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.model import Oracle
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region

# What a protector gets and what it gives back.

Progress = Callable[[int, int], None]
"""Called with (done, total) counterfactuals."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Task:
    """Counterfactuals to protect in one go. Host side only.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    codes : int32 array, shape (n, n_quasi_identifiers)
        Coded quasi-identifiers of the counterfactuals; -1 where a number is not a value of the population.
    numbers : float64 array, shape (n, n_quasi_identifiers)
        Their numbers (numeric attributes; dates in seconds), NaN otherwise.
    oracle : Oracle
        Answers whether a cell of a counterfactual has the desired outcome; asks the model once per cell.
    seed : int
        For protectors that draw random numbers.
    progress : callable, optional
        Told how far the work is.
    groups : int64 array, shape (n,), optional
        Group of the partition that each belongs to, where the guarantee has one; -1 where there is none.
    """

    population: Population
    policy: PrivacyPolicy
    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    oracle: Oracle
    seed: int = 0
    progress: Progress | None = None
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of counterfactuals."""
        return len(self.codes)


@dataclass(frozen=True, slots=True, repr=False)
class Proposal:
    """A protector's answer for one counterfactual; verification recounts everything it says.

    Its `repr` shows no value: a region that was not verified may be somebody's row.

    Attributes
    ----------
    region : Region or None
        None when no region with enough people was found.
    optimal : bool
        Whether the protector proved that no better region exists (for the policy's objective).
    gap : float, optional
        Proven bound on how much lower the objective's NCP could be; None for a heuristic.
    """

    region: Region | None
    optimal: bool = False
    gap: float | None = None

    def __repr__(self) -> str:
        """Show whether there is a region, never a value."""
        region = "None" if self.region is None else "withheld"
        return f"Proposal(region={region}, optimal={self.optimal}, gap={self.gap})"


class Protector(Protocol):
    """Turns counterfactuals into regions. A plugin may bring its own; what it returns is verified.

    One that draws random numbers says so with an attribute ``randomised = True``.
    """

    name: str

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return one proposal per counterfactual of the task, in order."""
        ...


# Which of two regions is better, as the policy says.

Rank = tuple[float, float, float]


def rank(policy: PrivacyPolicy, ncp: float, pureness: float) -> Rank:
    """Return a sort key: smaller is better.

    First comes how far the policy's bounds (`min_pureness`, `max_ncp`) are missed, then the objective: pureness
    before NCP (the paper's order), NCP before pureness, or the weighted sum.
    """
    missed = max(0.0, (policy.min_pureness or 0.0) - pureness)
    if policy.max_ncp is not None:
        missed += max(0.0, ncp - policy.max_ncp)
    if policy.objective == "pureness":
        return (missed, -pureness, ncp)
    if policy.objective == "ncp":
        return (missed, ncp, -pureness)
    return (missed, ncp + policy.pureness_weight * (1.0 - pureness), -pureness)


def needs_model(policy: PrivacyPolicy) -> bool:
    """Say whether the choice of a region depends on pureness at all."""
    return policy.objective != "ncp" or bool(policy.min_pureness)
