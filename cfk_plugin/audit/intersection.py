"""Intersection: the same record released several times, and the people who are in all of its regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cfk_plugin.audit.releases import Mask, Releases
from cfk_plugin.audit.rerun import is_random, simulation_seed, variant
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.policy import Objective, PrivacyPolicy
from cfk_plugin.errors import InputError
from cfk_plugin.release.explanations import Explanations

Again = Callable[[pd.DataFrame, int], Explanations]
SCENARIO = (
    "Knows the quasi-identifiers of everybody, receives the same record several times, recognises it by its private "
    "values, and keeps whoever is inside all of its regions."
)
_OBJECTIVES: tuple[Objective, ...] = ("pureness", "ncp", "weighted")


def intersection(
    setting: Setting, release: Again | None = None, *, times: Sequence[int] = (1, 2, 5, 10)
) -> AuditResult:
    """Attack regions by intersecting all that were released for one record.

    Parameters
    ----------
    setting : Setting
    release : callable, optional
        From a table of counterfactuals and the turn (0, 1, ...) to what is released for them in this turn; give one
        that asks an anonymizer with a ledger to attack that. Default: `again`.
    times : sequence of int
        Numbers of releases after which people are counted; the last one is attacked.

    Returns
    -------
    AuditResult
        `main`: chance to name the right person among those inside all regions. `baseline`: the same after the first
        release. `control`: the same among people of the holdout; a hit is a person who carries the released values
        by coincidence. Figures: ``k_after_<t>_...`` over records for every t of `times`, ``released`` (mean number of
        releases of a record that were recognised).

    Notes
    -----
    k_after_t = number of distinct people in the intersection of the first t regions; a suppressed turn, and a turn
    with other private values (which is not recognised), adds nothing. Higher is better.
    """
    wanted = sorted(set(times))
    if not wanted or wanted[0] < 1:
        raise InputError("times must hold whole numbers of at least 1")
    repeat = release if release is not None else again(setting)
    first = Releases(list(repeat(setting.raw, 0)), setting.raw, setting.crowd)
    left = first.everybody()
    outside = None if setting.outsiders is None else first.places(setting.outsiders)
    beyond: list[Mask] = [] if outside is None else [np.ones(len(rows), dtype=bool) for rows in outside.rows]
    after: dict[int, list[Mask]] = {1: [mask.copy() for mask in left]}
    seen = np.ones(len(first))
    for turn in range(1, wanted[-1]):
        entries = {r.at: r for r in Releases(list(repeat(setting.raw, turn)), setting.raw, setting.crowd)}
        for i, one in enumerate(first):
            other = entries.get(one.at)
            if other is None or dict(other.entry.released) != dict(one.entry.released):
                continue
            seen[i] += 1
            left[i] &= np.isin(one.rows, other.rows)
            if outside is not None:
                beyond[i] &= np.isin(outside.rows[i], outside.crowd.people.members(other.region))
        after[turn + 1] = [mask.copy() for mask in left]
    figures = {"released": float(seen.mean()) if len(seen) else float("nan")}
    for t in wanted:
        figures |= crowd_figures(first.people(after[t]), setting.k, f"k_after_{t}")
    control = None
    if setting.outsiders is not None and outside is not None:
        control = rate(first.coincidence(setting.outsiders, outside, beyond), setting.seed)
    return AuditResult(
        "intersection",
        SCENARIO,
        rate(first.found(left), setting.seed),
        rate(first.found(after[1]), setting.seed),
        control,
        figures,
        setting.seed,
        len(first),
    )


def again(setting: Setting) -> Again:
    """Return what releases the same counterfactuals anew in every turn, the first time as the anonymizer did.

    An algorithm that draws random numbers gets a fresh seed every turn; any other gets another policy, never a weaker
    one: the objective changes, and every third turn k grows by a fifth.
    """
    random = is_random(setting)

    def release(counterfactuals: pd.DataFrame, turn: int) -> Explanations:
        if turn == 0:
            return setting.explanations
        if random:
            other = variant(setting.anonymizer, seed=simulation_seed(setting, turn))
        else:
            other = variant(
                setting.anonymizer, policy=policy_of(setting.anonymizer.policy_, turn, setting.population.n_people)
            )
        return other.transform(counterfactuals, setting.factuals)

    return release


def policy_of(policy: PrivacyPolicy, turn: int, people: int) -> PrivacyPolicy:
    """Return the policy of a turn: objectives in a circle, k growing with every round up to the number of people."""
    start = _OBJECTIVES.index(policy.objective)
    k = policy.k + (turn // len(_OBJECTIVES)) * max(1, policy.k // 5)
    return replace(policy, objective=_OBJECTIVES[(start + turn) % len(_OBJECTIVES)], k=min(k, people))
