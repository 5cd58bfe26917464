"""Exact search and GRASP, against all regions of small tables: what they find, where they stop, and
what they claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Interval, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from cfk_plugin.metrics import ncp
from cfk_plugin.protection import ExactProtector, GraspProtector, MondrianProtector
from every_part import parts_with, people, plain

MANY = 4  # people who are asked for at once


def task_for(
    population: Population, rows: pd.DataFrame, model: Any, **policy: Any
) -> ProtectionRequest:
    labels = LabelModel(model, population.schema.features)
    frame = rows[list(population.schema.features)].reset_index(drop=True)
    combination_outcomes = CombinationOutcomes(
        DesiredOutcome.of(True).test_for(np.ones(len(frame))),
        TrainingLabels(labels, population),
        frame,
    )
    codes, numbers = population.encode(frame)
    at = list(population.schema.quasi_positions)
    return ProtectionRequest(
        population,
        PrivacyPolicy(guarantee="lookup", **policy),
        codes[:, at],
        numbers[:, at],
        combination_outcomes,
    )


def propose(
    method: Protector, population: Population, rows: pd.DataFrame, model: Any, **policy: Any
) -> list[Proposal]:
    """Return what a protector answers for counterfactuals, before anybody verifies it."""
    done: list[tuple[int, int]] = []
    request = task_for(population, rows, model, **policy)
    proposals = list(method.protect(replace(request, progress=lambda *p: done.append(p))))
    assert set(done) <= {(i, len(rows)) for i in range(len(rows) + 1)}
    return proposals


@dataclass
class Flips:
    """A model that says yes or no to each combination of values by the flip of a coin."""

    salt: int
    share: float

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        drawn = pd.util.hash_pandas_object(
            rows.astype(str).sum(axis=1) + str(self.salt), index=False
        )
        return np.asarray((drawn.to_numpy() % 1000) < 1000 * self.share)


class AllRegions:
    """Every region around somebody: how many people are in it, what it loses, how pure it is."""

    def __init__(self, population: Population, row: pd.Series, model: Any) -> None:
        self.names = population.schema.quasi_identifiers
        table = population.frame
        self.own = {name: plain(row[name]) for name in self.names}
        self.options = [list(parts_with(self.own[n], table[n]).items()) for n in self.names]
        self.values = [
            sorted(frozenset().union(*(v for v, _ in parts)), key=str) for parts in self.options
        ]
        grid = list(itertools.product(*self.values))
        asked = (
            pd.DataFrame(grid, columns=self.names)
            .astype(table[list(self.names)].dtypes)
            .assign(pay=1)
        )
        here = pd.Series(
            [tuple(map(plain, r)) for r in table[list(self.names)].astype(object).to_numpy()]
        )
        self.people = self._sums(here.value_counts().reindex(grid, fill_value=0))
        cells = self._sums(np.ones(len(grid)))
        self.pureness = self._sums(model.predict(asked[table.columns])) / cells
        weights = [population.schema[name].weight for name in self.names]
        losses = [
            w * np.array([loss for _, loss in parts])
            for w, parts in zip(weights, self.options, strict=True)
        ]
        self.loss = sum(np.ix_(*losses), start=np.zeros(()))

    def _sums(self, per_cell: Any) -> np.ndarray:
        """Add up a number per combination of values, inside of every region."""
        total = np.asarray(per_cell, dtype=float).reshape([len(v) for v in self.values])
        for values, parts in zip(self.values, self.options, strict=True):
            total = np.tensordot(
                total, [[v in inside for v in values] for inside, _ in parts], axes=(0, 1)
            )
        return total

    def place(self, region: Region) -> tuple[int, ...]:
        """Return which of them it is."""
        held = [
            frozenset(v for v in values if Region({name: region[name]}).contains({name: v}))
            for name, values in zip(self.names, self.values, strict=True)
        ]
        return tuple(
            [inside for inside, _ in parts].index(h)
            for parts, h in zip(self.options, held, strict=True)
        )

    def changed(self, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield regions with one value more in the place of a single one, or one less: of a node no
        leaf is taken.
        """
        for j, (name, parts) in enumerate(zip(self.names, self.options, strict=True)):
            here = parts[at[j]][0]
            for i, (other, _) in enumerate(parts):
                one_less = (
                    len(other) == len(here) - 1 and other < here and not name.startswith("leaf")
                )
                grows = (
                    len(here) == 1
                    and here < other
                    and (not name.startswith(("number", "level")) or None not in other)
                )
                if one_less or (grows and (len(other) == 2 or name.startswith("leaf"))):
                    yield (*at[:j], i, *at[j + 1 :])


def check(seed: int, method: Protector, share: float, **policy: Any) -> int:
    """Hold what is proposed against all regions; return how many proposals are claimed to be the
    best.
    """
    rng = np.random.default_rng(seed)
    population, model = (
        people(rng, int(rng.integers(6, rng.choice([31, 1500])))),
        Flips(seed, share),
    )
    rows = population.frame.iloc[rng.integers(0, population.n_rows, MANY)].reset_index(drop=True)
    for name in rows:
        # a number of nobody's, perhaps out of the range
        if name.startswith("number") and rng.random() < 0.4:
            rows[name] += rng.choice([0, 0.5, 17])
    k = int(rng.integers(2, min(population.n_rows + 2, 40)))
    rule = PrivacyPolicy(guarantee="lookup", **{"k": k, **policy})
    proposals = propose(method, population, rows, model, **{"k": k, **policy})
    for (_, row), found in zip(rows.iterrows(), proposals, strict=True):
        every = AllRegions(population, row, model)
        fit = every.people >= rule.k
        if found.region is None:
            assert not fit.any()
            continue
        at = every.place(found.region)
        assert fit[at]
        assert ncp(found.region, population) == pytest.approx(every.loss[at])
        missed = np.maximum(0, (rule.min_pureness or 0) - every.pureness)
        worth = every.loss if rule.objective == "ncp" else -every.pureness
        # one after the other
        rank = 1e6 * np.round(missed, 9) + 1e3 * np.round(worth, 9) + every.loss
        if found.optimal:
            assert found.gap == 0
            assert rank[at] <= rank[fit].min() + 1e-6
            continue
        if method == ExactProtector() and rule.min_pureness is None:
            assert not (fit & (every.pureness == 1)).any(), (
                "a pure region is found, and proven to be the best"
            )
        if found.gap is not None:
            sure = fit & (every.pureness == 1) if rule.objective != "ncp" else fit
            assert every.loss[at] - found.gap <= every.loss[sure].min() + 1e-9
        else:
            assert all(rank[at] <= rank[other] + 1e-6 for other in every.changed(at) if fit[other])
    return sum(found.optimal for found in proposals)


@pytest.mark.parametrize(
    ("share", "policy"),
    [
        (1.0, {"objective": "ncp"}),
        (0.7, {"objective": "pureness"}),
        (0.7, {"objective": "ncp", "min_pureness": 0.8}),
    ],
    ids=str,
)
def test_no_region_is_better_than_a_proven_one_and_no_small_change_than_another(
    share: float, policy: Any
) -> None:
    assert sum(check(seed, ExactProtector(), share, **policy) for seed in range(20)) > 3


@settings(max_examples=20, deadline=None)
@given(st.integers(10_000, 2**32), st.integers(1, 9))
def test_few_nodes_and_few_rounds_claim_what_holds(seed: int, few: int) -> None:
    check(seed, ExactProtector(node_limit=few), 1.0, objective="ncp")
    check(seed, ExactProtector(node_limit=few, rounds=few), 0.5)


@pytest.mark.parametrize("seed", range(12))
def test_no_small_change_of_what_grasp_finds_costs_less(seed: int) -> None:
    assert check(seed, GraspProtector(iterations=1, samples=5), 1.0, objective="ncp") == 0


# --- tables that are too large for all regions ----------------------------------------------------


def always(rows: pd.DataFrame) -> np.ndarray:
    return np.ones(len(rows), dtype=bool)


def crowd(n: int, **columns: int) -> Population:
    """Return people whose attributes have so many values; those of upper case are categories."""
    rng = np.random.default_rng(n)
    table = pd.DataFrame({name: rng.integers(0, many, n) for name, many in columns.items()})
    table = table.assign(
        **{name: "v" + table[name].astype(str) for name in columns if name.isupper()}
    )
    return Population.from_frame(
        table.assign(pay=1), Schema.from_frame(table, quasi_identifiers=list(table))
    )


@pytest.mark.parametrize("towns", [5, 20, 100])
def test_least_of_all_ranges_with_the_most_crowded_categories(towns: int) -> None:
    population = crowd(1500, age=60, TOWN=towns)
    rows, k = population.frame.head(3), 20
    table = pd.crosstab(population.frame["age"], population.frame["TOWN"])
    for found, own in zip(
        propose(ExactProtector(), population, rows, always, k=k, objective="ncp"),
        rows.itertuples(),
        strict=True,
    ):
        best, here = np.inf, table.columns.get_loc(own.TOWN)
        for low, high in itertools.product(range(own.age + 1), range(own.age, 60)):
            inside = table.to_numpy()[low : high + 1].sum(axis=0)
            reach = inside[here] + np.cumsum([0, *-np.sort(-np.delete(inside, here))])
            if reach[-1] >= k:
                size = int(np.searchsorted(reach, k)) + 1
                best = min(best, ((high - low) / 59 + (size / towns if size > 1 else 0)) / 2)
        assert found.optimal
        assert found.region is not None
        assert ncp(found.region, population) == pytest.approx(best)


def test_a_hundred_thousand_categories() -> None:
    population = crowd(20_000, age=50, NAME=100_000)
    found = propose(
        ExactProtector(), population, population.frame.head(10), always, k=10, objective="ncp"
    )
    assert all(one.optimal for one in found)
    # Ten names cost 0.5 * 10 / all names, the least that ten people with different names can cost.
    most = max(ncp(one.region, population) for one in found if one.region is not None)
    assert most <= 5 / population.frame["NAME"].nunique() + 1e-12


def test_threads_and_repetition_change_nothing() -> None:
    population = crowd(400, age=30, NAME=9, town=4)
    plain_, *others = (
        propose(
            ExactProtector(**options), population, population.frame.head(40), Flips(1, 0.8), k=12
        )
        for options in ({}, {"threads": 3}, {"time_limit": 1000.0}, {})
    )
    assert all(again == plain_ for again in others)


def test_limits_end_in_a_region_and_a_gap_that_holds() -> None:
    population = crowd(600, **{f"x{j}": 40 for j in range(5)})
    rows = population.frame.head(2)
    best = propose(ExactProtector(), population, rows, always, k=20, objective="ncp")
    for limit in ({"node_limit": 1}, {"time_limit": 0.0}, {"time_limit": 0.02}):
        for one, found in zip(
            best,
            propose(ExactProtector(**limit), population, rows, always, k=20, objective="ncp"),
            strict=True,
        ):
            assert one.region is not None
            assert found.region is not None
            assert not found.optimal or limit == {"time_limit": 0.02}
            assert found.gap is not None
            assert population.count(found.region) >= 20
            loss = ncp(found.region, population)
            assert loss - found.gap <= ncp(one.region, population) <= loss + 1e-12


def test_codes_that_the_population_lacks_are_refused() -> None:
    population = crowd(50, age=9)
    request = task_for(population, population.frame.head(1), always, k=5, objective="ncp")
    for code, said in ((50, "code lies outside"), (-2, "code lies outside"), (-1, "finite")):
        wrong = replace(
            request, codes=np.full((1, 1), code, np.int32), numbers=np.full((1, 1), np.nan)
        )
        with pytest.raises(ValueError, match=said):
            ExactProtector().protect(wrong)


# --- what is claimed ------------------------------------------------------------------------------


def ages(*given: float, **columns: Any) -> Population:
    table = pd.DataFrame({"age": given, "pay": 1, **columns})
    return Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["age", *columns])
    )


def older_than(age: float) -> Any:
    return lambda rows: (rows["age"] > age).to_numpy()


@pytest.mark.parametrize("objective", ["ncp", "pureness"])
def test_that_no_region_has_k_people_is_proven_where_no_model_is_asked(objective: Any) -> None:
    population = ages(20, 30, 40)
    (found,) = propose(
        ExactProtector(),
        population,
        population.frame.head(1),
        older_than(0),
        k=4,
        objective=objective,
    )
    assert (found.region, found.optimal) == (None, objective == "ncp")
    for baseline in (GraspProtector(), MondrianProtector()):
        assert propose(baseline, population, population.frame.head(1), older_than(0), k=4) == [
            Proposal(None)
        ]


@pytest.mark.parametrize(
    ("policy", "pure_above", "claim"),
    [
        ({"objective": "ncp"}, 25, (True, 0.0)),
        # 22 and 30: half of it is pure, as is asked for
        ({"objective": "ncp", "min_pureness": 0.5}, 25, (True, 0.0)),
        ({"objective": "ncp", "min_pureness": 0.6}, 25, (False, None)),
        ({"objective": "pureness"}, 0, (True, 0.0)),
        ({"objective": "pureness", "max_ncp": 0.2}, 0, (True, 0.0)),
        ({"objective": "pureness", "max_ncp": 0.1}, 0, (False, None)),
        ({"objective": "pureness", "min_pureness": 0.9}, 65, (False, None)),
    ],
    ids=str,
)
def test_what_is_proven_is_claimed_and_nothing_else(
    policy: dict[str, Any], pure_above: float, claim: Any
) -> None:
    population = ages(22, 30, 45, 70)  # 22 to 30 is 8 of 48 wide
    rows = population.frame.iloc[[1]]
    (found,) = propose(ExactProtector(), population, rows, older_than(pure_above), k=2, **policy)
    assert found.region is not None
    assert (found.optimal, found.gap) == claim
    if claim[0]:
        assert found.region["age"] == Interval(22, 30)


# --- what GRASP joins, with one neighbour to draw from --------------------------------------------


@pytest.mark.parametrize(
    ("given_", "above", "k", "joined"),
    [
        # The nearest with the outcome: 29 has another one.
        ((30, 29, 40, 44, 90), 29, 2, (30, 40)),
        ((30, 30, 29, 40, 90), 29, 3, (30, 40)),
        # Whoever is nearest when nobody else has the outcome.
        ((90, 60, 75, 10), 80, 2, (75, 90)),
        # 14 is nearer to 30 than 59 is, but not nearer to the range from 30 to 45.
        ((30, 45, 14, 59, 130), 0, 2, (30, 45)),
        ((30, 45, 14, 59, 130), 0, 3, (30, 59)),
    ],
)
def test_grasp_joins_the_nearest(
    given_: Any, above: float, k: int, joined: tuple[int, int]
) -> None:
    population, grasp = ages(*given_), GraspProtector(alpha=1, iterations=1)
    (found,) = propose(grasp, population, population.frame.head(1), older_than(above), k=k)
    assert found == Proposal(Region({"age": Interval(*joined)}), optimal=False, gap=None)


def test_grasp_counts_another_category_as_the_whole_range() -> None:
    population = ages(30, 31, 60, 130, town=list("ABAB"))
    (found,) = propose(
        GraspProtector(alpha=1, iterations=1),
        population,
        population.frame.head(1),
        older_than(0),
        k=2,
    )
    assert found.region == Region({"age": Interval(30, 60), "town": frozenset("A")})
