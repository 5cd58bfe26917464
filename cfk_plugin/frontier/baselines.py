"""The policy at its own k beside what else could be done: nothing at all, or Mondrian over the whole table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.model import Goal, Grid, LabelModel, rows_for_cells
from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.metrics.intervals import Estimate, mean_of
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual

if TYPE_CHECKING:
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population
    from cfk_plugin.hookspecs import Protector

_MOST, _DRAWS, _NEAREST = 100, 20, 5  # counterfactuals looked at; combinations of each region; neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What one way of protecting costs on the same counterfactuals. Means with 95 % intervals over what is released.

    Attributes
    ----------
    name : {"policy", "mondrian", "raw"}
        The policy in question; Mondrian over the whole table, k people in each class, as the published baseline; no
        protection, of which every counterfactual leaves as it is.
    released : int
    ncp_mean, pureness_mean : Estimate
    nearest, nearest_5 : Estimate
        Plausibility: HEOM distance from what an explanation stands for (20 draws of its region) to the nearest
        training row, and to the five nearest; over at most 100 explanations. 0 is a training row.
    """

    name: str
    released: int
    ncp_mean: Estimate
    pureness_mean: Estimate
    nearest: Estimate
    nearest_5: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        means = {name: getattr(self, name) for name in ("ncp_mean", "pureness_mean", "nearest", "nearest_5")}
        return {"name": self.name, "released": self.released} | {name: of.to_dict() for name, of in means.items()}


def baselines(
    frame: pd.DataFrame,
    query: NDArray[np.int64],
    labels: NDArray[Any] | None,
    *,
    population: Population,
    model: Any,
    desired: Any,
    policy: PrivacyPolicy,
    method: str | Protector,
    seed: int,
) -> tuple[Baseline, ...]:
    """Protect the counterfactuals under the policy, by Mondrian, and not at all.

    Raises
    ------
    InputError
        If the population has no rows here: distances to training rows cannot be told.
    """
    if not population.has_rows:
        raise InputError("baselines need the training rows, and a sealed or distributed population has none here")
    plain = replace(policy, guarantee="nominal", anonymity_set="population", on_infeasible="suppress")
    ways = {"policy": (replace(policy, on_infeasible="suppress"), method), "mondrian": (plain, "mondrian")}
    found = []
    for name, (asked, how) in ways.items():
        anonymizer = KAnonymizer(policy=asked, method=how, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NominalGuaranteeWarning)
            anonymizer.fit(population, model, desired)
        entries = anonymizer.pipeline_.release(frame, query, labels)[0]
        found.append(_of_entries(name, entries, frame, population, seed))
    return (*found, _of_raw(frame, labels, population, model, desired, seed))


def _of_entries(
    name: str, entries: Sequence[Entry], frame: pd.DataFrame, population: Population, seed: int
) -> Baseline:
    regions = [(i, e) for i, e in enumerate(entries) if isinstance(e, GeneralizedCounterfactual)]
    rows, owner = _drawn([(i, e) for i, e in regions[:_MOST]], frame, population, seed)
    return _baseline(
        name,
        np.array([e.certificate.ncp for _, e in regions]),
        np.array([e.certificate.pureness for _, e in regions]),
        _distances(rows, owner, population),
        seed,
    )


def _of_raw(
    frame: pd.DataFrame, labels: NDArray[Any] | None, population: Population, model: Any, desired: Any, seed: int
) -> Baseline:
    goal = Goal(desired)
    found = LabelModel(model, population.schema.features, fractions=callable(desired))(population.conform(frame))
    if goal.is_opposite:
        reached = np.ones(len(frame)) if labels is None else (found.astype(object) != labels).astype(float)
    else:
        reached = goal.met(found).astype(float)
    some = frame.head(_MOST)
    distances = _distances(some, np.arange(len(some)), population)
    return _baseline("raw", np.zeros(len(frame)), reached, distances, seed)


def _baseline(
    name: str,
    ncp: NDArray[np.float64],
    pureness: NDArray[np.float64],
    distances: NDArray[np.float64],
    seed: int,
) -> Baseline:
    def mean(values: NDArray[np.float64]) -> Estimate:
        return mean_of(values, np.random.default_rng(seed))

    return Baseline(
        name=name,
        released=len(ncp),
        ncp_mean=mean(ncp),
        pureness_mean=mean(pureness),
        nearest=mean(distances[:, 0]),
        nearest_5=mean(distances[:, 1]),
    )


def _drawn(
    regions: Sequence[tuple[int, GeneralizedCounterfactual]], frame: pd.DataFrame, population: Population, seed: int
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return value combinations that regions stand for, and which region each is of."""
    random = np.random.default_rng(seed)
    rows, owner = [frame.iloc[:0]], [np.empty(0, dtype=np.int64)]
    for place, (i, entry) in enumerate(regions):
        own = population.conform(frame.iloc[[i]])
        codes = [int(population.domains[q].encode(own[q])[0][0]) for q in population.schema.quasi_identifiers]
        grid = Grid.of(entry.region, population, [code if code >= 0 else UNKNOWN for code in codes])
        cells = grid.sample(_DRAWS, random)
        rows.append(rows_for_cells(population.encoder, own, np.zeros(len(cells), dtype=np.int64), cells))
        owner.append(np.full(len(cells), place))
    return pd.concat(rows, ignore_index=True), np.concatenate(owner)


def _distances(rows: pd.DataFrame, owner: NDArray[np.int64], population: Population) -> NDArray[np.float64]:
    """Return, for each owner, the mean distance to the nearest training row and to the five nearest."""
    if not len(rows):
        return np.empty((0, 2))
    features, heom = list(population.schema.features), Heom.of(population)
    table = heom.encode(population.frame[features])
    _, found = heom.nearest(heom.encode(population.conform(rows[features])), table, k=min(_NEAREST, population.n_rows))
    each = pd.DataFrame({"nearest": found[:, 0], "nearest_5": found.mean(axis=1)}).groupby(owner).mean()
    return np.asarray(each.to_numpy(), dtype=np.float64)
