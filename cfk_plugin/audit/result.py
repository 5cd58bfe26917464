"""What an attack returns: one shape for all of them, with an interval and something to compare with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import bootstrap, clopper_pearson

NO_BETTER = "no better than the baseline: the attack did not work here, which is no evidence of protection"


class Rate(NamedTuple):
    """A success rate with its 95 % interval.

    Attributes
    ----------
    value : float
        In [0, 1]; lower is better for the people in the table. NaN when nothing could be attacked.
    low, high : float
        Ends of the interval, (0, 1) when nothing could be attacked.
    n : int
        Releases (or guesses) behind it.
    """

    value: float
    low: float
    high: float
    n: int


def rate(successes: ArrayLike, seed: int = 0) -> Rate:
    """Return the mean of success probabilities, one per release, with a 95 % interval over releases.

    Parameters
    ----------
    successes : array of float in [0, 1]
        Probability of success at each release; 0 or 1 where a guess is right or wrong for sure.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Rate

    Notes
    -----
    Probabilities that differ are bootstrapped. Where all are 0 or 1, or all are equal, the interval is
    Clopper-Pearson's, with the sum rounded outwards: a value in [0, 1] varies at most as much as a coin of the same
    mean, so it is too wide rather than too narrow. A bootstrap would have width 0 there.

    Examples
    --------
    >>> rate([1, 0, 1, 1]).value
    0.75
    """
    values = np.asarray(successes, dtype=np.float64)
    if not len(values):
        return Rate(math.nan, 0.0, 1.0, 0)
    total, n = float(values.sum()), len(values)
    coins = bool(np.isin(values, (0.0, 1.0)).all()) or np.ptp(values) < 1e-12
    if coins:
        low = clopper_pearson(math.floor(total + 1e-9), n).low
        high = clopper_pearson(min(math.ceil(total - 1e-9), n), n).high
    else:
        low, high = bootstrap(values, random_state=seed)
    return Rate(total / n, low, high, n)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What one attack reached. Counts and shares alone: nothing in it is a value of a row.

    Attributes
    ----------
    attack : str
        Its name.
    scenario : str
        What the attacker knows and does, in one sentence.
    main : Rate
        Success of the attack.
    baseline : Rate
        Success of the same guess without what the attack adds; each attack says what that is.
    control : Rate or None
        The same attack against people who are not in the training data: what a hit is worth that is none.
    figures : mapping
        The attack's own numbers, defined in ``docs/reference/audits.md``.
    seed : int
        Of everything that was drawn.
    n : int
        Releases that were attacked.
    """

    attack: str
    scenario: str
    main: Rate
    baseline: Rate
    control: Rate | None
    figures: Mapping[str, float]
    seed: int
    n: int

    def __post_init__(self) -> None:
        """Keep the figures as they were measured."""
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def worked(self) -> bool:
        """Whether the whole interval of the attack lies above its baseline."""
        return self.main.low > self.baseline.value

    @property
    def warning(self) -> str | None:
        """What to keep in mind when reading the numbers; None where the attack worked."""
        return None if self.worked else NO_BETTER

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        return {
            "attack": self.attack,
            "scenario": self.scenario,
            "main": _plain_rate(self.main),
            "baseline": _plain_rate(self.baseline),
            "control": _plain_rate(self.control),
            "worked": self.worked,
            "figures": {name: _plain(value) for name, value in self.figures.items()},
            "seed": self.seed,
            "n": self.n,
        }


def to_frame(results: Iterable[AuditResult]) -> pd.DataFrame:
    """Return one row per result: the three rates with their ends, and every figure as ``figures.<name>``."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"attack": result.attack, "n": result.n, "worked": result.worked}
        for name in ("main", "baseline", "control"):
            found: Rate | None = getattr(result, name)
            for end in ("value", "low", "high"):
                row[name if end == "value" else f"{name}_{end}"] = math.nan if found is None else getattr(found, end)
        rows.append(row | {f"figures.{name}": value for name, value in result.figures.items()})
    return pd.DataFrame(rows)


def crowd_figures(counts: ArrayLike, k: int, name: str) -> dict[str, float]:
    """Summarise how many people are left, one count per release.

    Parameters
    ----------
    counts : array of numbers
    k : int
        The policy's.
    name : str
        What the count is called.

    Returns
    -------
    dict
        ``<name>_min``, ``<name>_median``, ``<name>_p05`` (5 % quantile), ``<name>_below_k`` and ``<name>_one``
        (shares of the releases with fewer than k and with exactly one), all NaN without releases.
    """
    values = np.asarray(counts, dtype=np.float64)
    parts = ("min", "median", "p05", "below_k", "one")
    if not len(values):
        return {f"{name}_{part}": math.nan for part in parts}
    found = (
        values.min(),
        np.median(values),
        np.percentile(values, 5),
        (values < k - 1e-9).mean(),
        (np.abs(values - 1) < 1e-9).mean(),
    )
    return {f"{name}_{part}": float(value) for part, value in zip(parts, found, strict=True)}


def check_seed(seed: object) -> None:
    """Refuse a seed that is no whole number of at least 0.

    Raises
    ------
    InputError
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {type(seed).__name__}")


def _plain_rate(found: Rate | None) -> dict[str, Any] | None:
    return None if found is None else {name: _plain(value) for name, value in found._asdict().items()}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
