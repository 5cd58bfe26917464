"""A small table and a canary for audits of epsilon, and mechanisms that are broken in ways that an
audit has to see.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Attribute, Population, Schema
from cfk_plugin.dp import PublicDomain, infer_domains
from cfk_plugin.dp import audited as module
from cfk_plugin.dp.audited import Measurements, measuring

LEVELS = ["a", "b", "c", "d"]
# nobody else has the last level of anything
CANARY = pd.DataFrame({f"x{j}": ["d"] for j in range(4)})


def people(n: int = 300) -> pd.DataFrame:
    """Return a table of columns that belong together, so that pairs are worth counting."""
    random = np.random.default_rng(0)
    first = random.choice(3, n, p=[0.5, 0.3, 0.2])
    others = [np.where(random.random(n) < 0.8, first, random.integers(0, 3, n)) for _ in range(3)]
    return pd.DataFrame(
        {f"x{j}": np.take(LEVELS, column) for j, column in enumerate([first, *others])}
    )


def schema(table: pd.DataFrame) -> Schema:
    return Schema.from_frame(
        table,
        quasi_identifiers=["x0"],
        columns=dict.fromkeys(table, Attribute(categories=LEVELS)),
        nullable=[],
    )


def heard(found: Measurements) -> np.ndarray:
    """Return what counts of single columns, and those after them, say of the canary: all that an
    attacker can use.
    """
    first = 1 + len(found.domain.columns)
    parts = found.answers[:first], found.answers[first:]
    return np.array([Measurements(found.domain, part).scores(CANARY).sum() for part in parts])


def valid_rows(epsilon: float, delta: float = 0.0) -> Callable[[pd.DataFrame], Measurements]:
    return measuring(schema(people()), epsilon, delta)


class _NoLaterNoise(module.PrivateRows):
    """Has noise on the number of rows, and on nothing that is asked after it."""

    def _noised_counts(self, count: Any, tables: int, scale: float) -> Any:
        if len(self.answers):
            return self._exact(count)
        return super()._noised_counts(count, tables, scale)

    def _open(self, codes: Any, epsilon: float, delta: float) -> None:
        self._exact = lambda count: count(codes)
        super()._open(codes, epsilon, delta)


class _NoComposition(_NoLaterNoise):
    """Takes the noise of one table for each of several."""

    def _noised_counts(self, count: Any, tables: int, scale: float) -> Any:
        return self._with(count, scale / tables)

    def _divide(self) -> None:
        """Leave the sound rows out of it, which were not asked what came before."""

    def _noised_best(self, scores: Any, scale: float) -> int:
        exact = np.asarray(self._exact(scores))
        return int(np.argmax(exact + np.random.default_rng().exponential(scale, len(exact))))

    def _with(self, count: Any, scale: float) -> Any:
        exact = self._exact(count)
        return exact + np.rint(np.random.default_rng().laplace(0, scale, len(exact)))


class _LittleNoise(_NoComposition):
    """Takes a fiftieth of the noise."""

    def _noised_counts(self, count: Any, tables: int, scale: float) -> Any:
        return self._with(count, scale / 50)


def broken(
    kind: type, epsilon: float, declared: Schema | None = None
) -> Callable[[pd.DataFrame], Measurements]:
    """Return the same measurements by rows that keep their promise badly."""
    measure = measuring(schema(people()) if declared is None else declared, epsilon)

    def fit(table: pd.DataFrame) -> Measurements:
        sound_rows = module.PrivateRows
        module.PrivateRows = kind  # type: ignore[misc]
        try:
            return measure(table)
        finally:
            module.PrivateRows = sound_rows  # type: ignore[misc]

    return fit


def without_later_noise(epsilon: float) -> Callable[[pd.DataFrame], Measurements]:
    return broken(_NoLaterNoise, epsilon)


def with_little_noise(
    epsilon: float, declared: Schema | None = None
) -> Callable[[pd.DataFrame], Measurements]:
    return broken(_LittleNoise, epsilon, declared)


def domain_from_rows(epsilon: float) -> Callable[[pd.DataFrame], float]:
    """Return a mechanism with sound noise over the categories that happen to be in the table."""

    def fit(table: pd.DataFrame) -> float:
        bare = Schema.from_frame(table, quasi_identifiers=["x0"], nullable=[])
        with warnings.catch_warnings(action="ignore"):
            inferred = infer_domains(table, bare)
        measuring(inferred, epsilon)(table)
        return float(sum(PublicDomain.of(Population.from_frame(table, inferred)).sizes))

    return fit
