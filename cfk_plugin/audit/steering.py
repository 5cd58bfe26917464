"""Query steering: ask the explainer as each candidate would, and see for whom the same answer comes back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.releases import Mask, Rows
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.population import Population
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations

Ask = Callable[[pd.DataFrame], Explanations]
SCENARIO = (
    "Knows the quasi-identifiers of everybody and may ask for explanations, asks as each candidate inside the region "
    "with the private values received, spoiled until the outcome is not the desired one, and strikes out whose answer "
    "does not hold the same private values."
)

_TRIES = 100  # ways tried to spoil a query, per number of changed values
_CHANGES = (1, 2)
_BLOCK = 200  # queries spoiled at once


def steering(setting: Setting, ask: Ask | None = None) -> AuditResult:
    """Attack a region by steering queries to each candidate inside it.

    Parameters
    ----------
    setting : Setting
    ask : callable, optional
        From a table of queries to what is released for them, `Explanations` whose ``query`` counts rows from 0; for
        example ``ProtectedExplainer.explain``. Default: ``anonymizer.explain`` with a catalogue, else `nearest_row`,
        an explainer that returns training rows.

    Returns
    -------
    AuditResult
        `main`: chance to name the right person among those for whom the private values came back. `baseline`: naming
        anybody in the region, 1 / k. `control`: None; whoever is not in the table is no candidate for an answer
        that is a row of it. Figures: ``k_steered_...`` (people left) over releases, ``right_survives`` (share of
        releases whose person is left), ``queries`` (asked in all), ``not_spoiled`` (share of candidates for whom no
        undesired query was found; they cannot be struck out).

    Notes
    -----
    One query per candidate: own quasi-identifiers with the released private values, of which as few as possible are
    replaced by values of their domains until the model's outcome is no longer the desired one; of those found the one
    nearest by HEOM. Success is in [0, 1]; lower is better; 1 / k is what the region alone gives.
    """
    releases = setting.releases
    answer = ask if ask is not None else _default(setting.anonymizer)
    places = setting.places
    queries, asked = spoil(setting, places.questions(releases.private), releases.at[places.which])
    back = np.ones(len(places), dtype=bool)
    if asked.any():
        at = np.flatnonzero(asked)
        back[at] = _came_back(setting, answer(queries.take(at).reset_index(drop=True)), places.which[at])
    left: list[Mask] = places.spread(back)
    chance = releases.found(left)
    figures = {
        **crowd_figures(releases.people(left), setting.k, "k_steered"),
        "right_survives": float((chance > 0).mean()) if len(chance) else float("nan"),
        "queries": float(asked.sum()),
        "not_spoiled": float(1 - asked.mean()) if len(asked) else float("nan"),
    }
    return AuditResult(
        "steering",
        SCENARIO,
        rate(chance, setting.seed),
        rate(releases.found(releases.everybody()), setting.seed),
        None,
        figures,
        setting.seed,
        len(releases),
    )


def nearest_row(anonymizer: KAnonymizer) -> Ask:
    """Return an explainer that answers with the nearest training row of the desired outcome, protected.

    The nearest unlike neighbour is what instance-based explainers return, and what steering works best on.
    """
    population, goal = anonymizer.population_, anonymizer.goal_
    heom = Heom.of(population)
    codes = heom.encode(population.frame)
    labels = anonymizer.model_(population.conform(population.frame)).astype(object)

    def ask(queries: pd.DataFrame) -> Explanations:
        own = anonymizer.model_(population.conform(queries)).astype(object)
        found = np.zeros(len(queries), dtype=np.int64)
        for label in pd.unique(own) if goal.is_opposite else [None]:
            asked = np.flatnonzero(own == label) if goal.is_opposite else np.arange(len(queries))
            wanted = np.flatnonzero(goal.met(labels, np.full(len(labels), label, dtype=object)))
            if len(wanted):
                nearest, _ = heom.nearest(queries.take(asked), codes.take(wanted))
                found[asked] = wanted[nearest[:, 0]]
        return anonymizer.transform(population.rows(found).reset_index(drop=True), queries)

    return ask


def spoil(setting: Setting, queries: pd.DataFrame, at: Rows) -> tuple[pd.DataFrame, Mask]:
    """Change as few private values as possible until the outcome is not the desired one.

    Parameters
    ----------
    setting : Setting
    queries : DataFrame
    at : int array
        Position of the counterfactual that each belongs to.

    Returns
    -------
    queries : DataFrame
        With private values changed where that was needed.
    undesired : bool array
        Where the outcome is not the desired one now.
    """
    undesired = ~setting.judge(setting.labels(queries), at) if len(queries) else np.zeros(0, dtype=bool)
    out = queries.astype(object)
    random = np.random.default_rng([setting.seed, 1])
    for changes in _CHANGES:
        open_ = np.flatnonzero(~undesired)
        for start in range(0, len(open_), _BLOCK):
            block = open_[start : start + _BLOCK]
            found, spoiled = _spoiled(setting, queries.take(block), at[block], changes, random)
            out.iloc[block[found]] = spoiled.astype(object).to_numpy()
            undesired[block[found]] = True
    return setting.population.conform(out) if len(out) else queries, undesired


def _spoiled(
    setting: Setting, queries: pd.DataFrame, at: Rows, changes: int, random: np.random.Generator
) -> tuple[Rows, pd.DataFrame]:
    """Return which queries could be spoiled by so many changes, and the nearest spoiled form of each."""
    population = setting.population
    tried = _changed(population, queries.take(np.repeat(np.arange(len(queries)), _TRIES)), changes, random)
    bad = ~setting.judge(setting.labels(tried), np.repeat(at, _TRIES))
    heom = Heom.of(population)
    found, best = [], []
    for i in range(len(queries)):
        ways = i * _TRIES + np.flatnonzero(bad[i * _TRIES : (i + 1) * _TRIES])
        if len(ways):
            distance = heom.distances(queries.take([i]), tried.take(ways))[0]
            found.append(i)
            best.append(int(ways[int(np.argmin(distance))]))
    return np.array(found, dtype=np.int64), tried.take(best)


def _changed(population: Population, rows: pd.DataFrame, changes: int, random: np.random.Generator) -> pd.DataFrame:
    """Replace some private values of every row by values of their domains."""
    private = population.schema.private
    order = np.argsort(random.random((len(rows), len(private))), axis=1)[:, : min(changes, len(private))]
    codes = population.encode(rows)[0]
    columns = {name: rows[name].reset_index(drop=True) for name in population.schema.features}
    for j, name in enumerate(private):
        domain, hit = population.domains[name], (order == j).any(axis=1)
        drawn = domain.restore(random.integers(0, domain.size, len(rows)))
        known = codes[:, population.schema.features.index(name)]
        if (known >= 0).all():
            columns[name] = domain.restore(np.where(hit, domain.encode(drawn)[0], known))
        else:
            columns[name] = columns[name].astype(object).mask(hit, drawn.astype(object))
    return population.conform(pd.DataFrame(columns))


def _came_back(setting: Setting, answers: Explanations, which: NDArray[np.int64]) -> Mask:
    """Say of every query whether an answer to it has the private values of its release."""
    back = np.zeros(len(which), dtype=bool)
    for entry in answers.generalized:
        if dict(entry.released) == dict(setting.releases[int(which[entry.query])].entry.released):
            back[entry.query] = True
    return back


def _default(anonymizer: KAnonymizer) -> Ask:
    if anonymizer.policy_.guarantee == "catalogue":
        return anonymizer.explain
    return nearest_row(anonymizer)
