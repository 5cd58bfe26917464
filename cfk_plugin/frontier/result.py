"""What was measured for every k, and how it is logged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from cfk_plugin.frontier.baselines import Baseline
from cfk_plugin.metrics import Estimate
from cfk_plugin.records.run import LoggedReport, ReportContents, Value

ARTIFACT = "cfk/frontier.json"
SCHEMA_VERSION = 1
"""Version of the layout of `Frontier.to_json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one k costs. Means and shares have 95 % intervals over counterfactuals.

    Attributes
    ----------
    k : int
    asked, released : int
        Counterfactuals.
    k_min : int or None
        Fewest people who fit a released region; None when nothing is released.
    reasons : mapping of str to int
        Why the others are withheld, see `SUPPRESSION_REASONS`: a failure is not a price of k.
    ncp_mean, pureness_mean : Estimate
        Over what is released at this k, which differs from k to k.
    suppressed_rate : Estimate
        Share withheld of all asked.
    common_ncp_mean, common_pureness_mean : Estimate
        Over the counterfactuals that are released at every k of the frontier: these compare.
    """

    k: int
    asked: int
    released: int
    k_min: int | None
    reasons: Mapping[str, int]
    ncp_mean: Estimate
    pureness_mean: Estimate
    suppressed_rate: Estimate
    common_ncp_mean: Estimate
    common_pureness_mean: Estimate

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Return the figures that have an interval, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        counts = {"k": self.k, "asked": self.asked, "released": self.released, "k_min": self.k_min}
        figures = {name: found.to_dict() for name, found in self.estimates.items()}
        return {**counts, "reasons": dict(self.reasons), **figures}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(LoggedReport):
    """What every k costs on the same counterfactuals. Holds counts, means and settings, no value of a row.

    For the data holder: counts are exact, and small ones say something of single people.

    Attributes
    ----------
    points : tuple of Point
        Smallest k first.
    policy : mapping
        Settings of the policy that was asked about, with its own k.
    method : str
        The protector's name.
    population : str
        Keyed fingerprint of the population.
    asked, common : int
        Counterfactuals, and those of them that are released at every k.
    seed : int
    baselines : tuple of Baseline
        The policy at its own k beside Mondrian and no protection; empty where nobody asked for it.
    """

    points: tuple[Point, ...]
    policy: Mapping[str, Any]
    method: str
    population: str
    asked: int
    common: int
    seed: int
    baselines: tuple[Baseline, ...] = ()

    def __iter__(self) -> Iterator[Point]:
        """Iterate over the points."""
        return iter(self.points)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per k; a figure with an interval has three columns, as ``ncp_mean``, ``ncp_mean_low``, ...

        ``common`` is the number of counterfactuals behind the figures whose names begin with it.
        """
        rows = []
        for point in self.points:
            row: dict[str, Any] = {"k": point.k, "asked": point.asked, "released": point.released, "k_min": point.k_min}
            for name, found in point.estimates.items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row | {"common": self.common})
        return pd.DataFrame(rows).astype({"k_min": "Int64"})

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "frontier",
            "policy": dict(self.policy),
            "method": self.method,
            "population": self.population,
            "asked": self.asked,
            "common": self.common,
            "seed": self.seed,
            "points": [point.to_dict() for point in self.points],
            "baselines": [baseline.to_dict() for baseline in self.baselines],
        }

    def _contents(self) -> ReportContents:
        """Return metrics ``frontier/<figure>`` with k as their step, the settings, and the report."""
        settings = {
            "ks": ",".join(str(point.k) for point in self.points),
            "asked": self.asked,
            "common": self.common,
            "guarantee": self.policy["guarantee"],
            "method": self.method,
            "seed": self.seed,
        }
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=ARTIFACT,
            metrics=tuple(self._values()),
            params={f"frontier.{name}": str(value) for name, value in settings.items()},
            tags={
                "cfk.frontier": str(SCHEMA_VERSION),
                "cfk.population_fingerprint": self.population,
            },
        )

    def _values(self) -> Iterator[Value]:
        for point in self.points:
            if point.k_min is not None:
                yield Value("frontier/k_min", point.k_min, point.k)
            for name, found in point.estimates.items():
                for end, value in (("", found.value), ("_low", found.low), ("_high", found.high)):
                    if math.isfinite(value):
                        yield Value(f"frontier/{name}{end}", value, point.k)
