"""The exact protector and GRASP as searches: what they join, where they stop, and what they claim of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    Suppressed,
)
from cfk_plugin.data.model import Goal, LabelModel, Oracle, RowOracle
from cfk_plugin.data.region import Part
from cfk_plugin.hookspecs import Proposal, Protector, Task
from cfk_plugin.metrics import ncp
from cfk_plugin.protection import ExactProtector, GraspProtector

LEVELS = ["low", "mid", "high", "top"]
TREE = {"a": ["west"], "b": ["west"], "c": ["east"], "d": ["east"], "e": ["east"]}
QUASI = ["age", "grade", "town", "job"]


def people(seed: int) -> Population:
    """Return forty people with a quasi-identifier of each kind; ages and grades are missing here and there."""
    random, n = np.random.default_rng(seed), 40
    table = pd.DataFrame(
        {
            "age": random.choice([20.0, 23.0, 30.0, 31.0, 44.0, 60.0, np.nan], n),
            "grade": random.choice(np.array([*LEVELS, None], dtype=object), n),
            "town": random.choice(list(TREE), n),
            "job": random.choice(["x", "y", "z"], n),
            "pay": random.integers(0, 5, n),
        }
    )
    schema = Schema.from_frame(
        table,
        quasi_identifiers=QUASI,
        ordinal={"grade": LEVELS},
        hierarchies={"town": TREE},
        weights={"age": 0.4, "town": 1.5},
    )
    return Population.from_frame(table, schema)


def values_of(population: Population, name: str) -> list[Any]:
    """Return the values of an attribute in order, None for a missing one at the end."""
    domain = population.domains[name]
    return [domain.value(code) for code in range(domain.size)]


def is_inside(part: Part, value: Any) -> bool:
    return (np.nan if value is None else value) in part if isinstance(part, Interval) else value in part


def part_of(population: Population, name: str, chosen: list[Any]) -> Part:
    """Return the part that holds some values, filled up: a range between its ends, a node with all of its leaves."""
    known = [value for value in chosen if value is not None]
    if name == "job":
        return frozenset(chosen)
    if name == "town":
        groups = {TREE[value][0] for value in known}
        whole = [town for town, (group,) in TREE.items() if len(groups) > 1 or group in groups]
        return frozenset(known if len(known) == 1 else whole)
    if not known:
        return Interval(None, None, True, () if name == "grade" else None)
    if name == "age":
        return Interval(min(known), max(known), None in chosen)
    at = sorted(map(LEVELS.index, known))
    levels = tuple(LEVELS[at[0] : at[-1] + 1])
    return Interval(levels[0], levels[-1], None in chosen, levels)


def neighbours(region: Region, own: dict[str, Any], population: Population) -> Iterator[Region]:
    """Yield regions with one value more in the place of a single one, or one less: an end of a range, not of a node."""
    for name, part in region.items():
        every = values_of(population, name)
        held = [value for value in every if is_inside(part, value)]
        numbers = [value for value in held if value is not None]
        if len(held) > 1:
            ends = {"age": [*numbers[:1], *numbers[-1:], None], "town": [], "job": held}
            gone = [value for value in ends.get(name, ends["age"]) if value in held and value != own[name]]
            others = [[value for value in held if value != lost] for lost in gone]
        elif name in ("town", "job"):
            others = [[*held, value] for value in every if value not in held]
        else:
            known = [value for value in every if value is not None]
            at = known.index(numbers[0]) if numbers else -9
            others = [[*held, known[near]] for near in (at - 1, at + 1) if 0 <= near < len(known)]
        for chosen in others:
            yield Region({**region, name: part_of(population, name, chosen)})


class CoinFlips:
    """Says yes or no to each combination of values, by a table of coin flips."""

    def __init__(self, seed: int, share: float) -> None:
        self.share, self.salt = share, str(seed)

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        drawn = pd.util.hash_pandas_object(rows.astype(str).sum(axis=1) + self.salt, index=False)
        return (drawn.to_numpy() % 1000) < 1000 * self.share


def pureness(region: Region, own: dict[str, Any], population: Population, model: Any) -> float:
    held = [[v for v in values_of(population, name) if is_inside(region[name], v)] for name in QUASI]
    rows = pd.DataFrame(itertools.product(*held), columns=QUASI).assign(pay=own["pay"])
    rows["age"] = rows["age"].astype(float)
    return float(model.predict(rows.where(rows.notna(), np.nan)).mean())


def worth(policy: PrivacyPolicy, loss: float, pure: float) -> tuple[float, ...]:
    """What the policy minimises, after how far its floor is missed; rounded, as one after the other is compared."""
    missed = round(max(0.0, (policy.min_pureness or 0.0) - pure), 9)
    if policy.objective == "pureness":
        return missed, -round(pure, 9), round(loss, 9)
    return missed, round(loss if policy.objective == "ncp" else loss + policy.pureness_weight * (1 - pure), 9)


def check_that_no_small_change_is_better(
    seed: int, method: Protector, share: float, exact: bool = True, **settings: Any
) -> int:
    """Return how many released regions were compared with all that differ from them by one value."""
    population, model = people(seed), CoinFlips(seed, share)
    policy = PrivacyPolicy(**{"k": 6, "guarantee": "nominal", **settings})
    wanted = population.frame[model.predict(population.frame[[*QUASI, "pay"]])].head(6)
    found = KAnonymizer(policy=policy, method=method).fit(population, model, desired=True).transform(wanted)
    for entry, (_, row) in zip(found, wanted.iterrows(), strict=True):
        if not isinstance(entry, GeneralizedCounterfactual):
            assert entry == Suppressed(entry.query, "pureness_below_floor")
            continue
        own = {str(name): None if pd.isna(value) else value for name, value in row.items()}
        certificate = entry.certificate
        assert certificate.ncp == pytest.approx(ncp(entry.region, population))
        if exact:
            assert certificate.pureness == pytest.approx(pureness(entry.region, own, population, model))
        ours = worth(policy, certificate.ncp, certificate.pureness)
        for other in neighbours(entry.region, own, population):
            if population.count(other) >= policy.k:
                pure = pureness(other, own, population, model) if share < 1 else 1.0
                assert ours <= worth(policy, ncp(other, population), pure)
    return len(found.released)


@pytest.mark.parametrize(
    ("share", "settings"),
    [
        (0.5, {"objective": "pureness"}),
        (0.5, {"objective": "weighted", "pureness_weight": 0.4}),
        (0.8, {"objective": "ncp", "min_pureness": 0.8}),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_no_small_change_of_an_exact_region_is_better(seed: int, share: float, settings: dict[str, Any]) -> None:
    assert check_that_no_small_change_is_better(seed, ExactProtector(), share, **settings) > 2


@pytest.mark.parametrize("k", [2, 12])
@pytest.mark.parametrize("seed", range(3))
def test_no_small_change_of_what_grasp_finds_costs_less(seed: int, k: int) -> None:
    grasp = GraspProtector(iterations=1, samples=5)
    assert check_that_no_small_change_is_better(seed, grasp, 1.0, objective="ncp", k=k) == 6


# --- what is claimed -------------------------------------------------------------------------------------------


def propose(method: Protector, population: Population, row: pd.DataFrame, model: Any, **policy: Any) -> Proposal:
    """Return what a protector answers for one counterfactual, before anybody verifies it."""
    labels = LabelModel(model, population.schema.features)
    frame = row[list(population.schema.features)].reset_index(drop=True)
    oracle = Oracle(labels, Goal(True).judge(None, np.ones(1)), RowOracle(labels, population), frame)
    codes, numbers = population.encode(frame)
    at = [population.schema.features.index(name) for name in population.schema.quasi_identifiers]
    progress: list[tuple[int, int]] = []
    settings = PrivacyPolicy(guarantee="nominal", **policy)
    task = Task(population, settings, codes[:, at], numbers[:, at], oracle, progress=lambda *p: progress.append(p))
    (proposal,) = method.protect(task)
    assert set(progress) <= {(0, 1), (1, 1)}
    return proposal


def ages(*given: float, **columns: Any) -> Population:
    table = pd.DataFrame({"age": given, "pay": 1, **columns})
    return Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", *columns]))


def older_than(age: float) -> Any:
    return lambda rows: (rows["age"] > age).to_numpy()


@pytest.mark.parametrize("objective", ["ncp", "pureness", "weighted"])
def test_that_no_region_has_k_people_is_proven_where_no_model_is_asked(objective: Any) -> None:
    population = ages(20, 30, 40)
    found = propose(ExactProtector(), population, population.frame.head(1), older_than(0), k=4, objective=objective)
    assert found.region is None
    assert found.optimal == (objective == "ncp")


@pytest.mark.parametrize(
    ("policy", "pure_above", "claim"),
    [
        ({"objective": "ncp"}, 25, (True, 0.0)),
        ({"objective": "ncp", "min_pureness": 0.5}, 25, (True, 0.0)),  # 22 and 30: half of it is pure, as is asked for
        ({"objective": "ncp", "min_pureness": 0.6}, 25, (False, None)),
        ({"objective": "pureness"}, 0, (True, 0.0)),
        ({"objective": "weighted"}, 0, (True, 0.0)),  # pure, and of least NCP
        ({"objective": "pureness", "max_ncp": 0.2}, 0, (True, 0.0)),
        ({"objective": "pureness", "max_ncp": 0.1}, 0, (False, None)),
        ({"objective": "pureness", "min_pureness": 0.9}, 65, (False, None)),
    ],
    ids=str,
)
def test_what_is_proven_is_claimed_and_nothing_else(policy: dict[str, Any], pure_above: float, claim: Any) -> None:
    population = ages(22, 30, 45, 70)  # 22 to 30 is 8 of 48 wide
    found = propose(ExactProtector(), population, population.frame.iloc[[1]], older_than(pure_above), k=2, **policy)
    assert found.region is not None
    assert (found.optimal, found.gap) == claim
    if claim[0]:
        assert found.region["age"] == Interval(22, 30)


def test_few_nodes_leave_a_gap_that_holds() -> None:
    random = np.random.default_rng(3)
    table = pd.DataFrame({name: random.choice(list("abcdefg"), 120) for name in QUASI}).assign(pay=1)
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=QUASI))
    best, few = (
        propose(ExactProtector(node_limit=n), population, table.head(1), older_than, k=15, objective="ncp")
        for n in (200_000, 1)
    )
    assert best.optimal
    assert best.gap == 0
    assert best.region is not None
    assert few.region is not None
    assert not few.optimal
    assert few.gap is not None
    assert few.gap > 0
    assert ncp(few.region, population) - few.gap <= ncp(best.region, population) <= ncp(few.region, population)


# --- what GRASP joins, with one neighbour to draw from ----------------------------------------------------------


def joined(population: Population, model: Any, k: int) -> Region:
    grasp = GraspProtector(alpha=1, iterations=1)
    found = propose(grasp, population, population.frame.head(1), model, k=k, objective="pureness")
    assert (found.optimal, found.gap) == (False, None)
    assert found.region is not None
    return found.region


def test_grasp_joins_the_nearest_with_the_outcome() -> None:
    assert joined(ages(30, 29, 40, 44, 90), older_than(29), 2)["age"] == Interval(30, 40)  # 29 has another one
    assert joined(ages(30, 30, 29, 40, 90), older_than(29), 3)["age"] == Interval(30, 40)


def test_grasp_joins_whoever_is_nearest_when_nobody_else_has_the_outcome() -> None:
    assert joined(ages(90, 60, 75, 10), older_than(80), 2)["age"] == Interval(75, 90)


def test_grasp_measures_from_what_it_has_joined() -> None:
    # 14 is nearer to 30 than 59 is, but not nearer to the range from 30 to 45.
    assert joined(ages(30, 45, 14, 59, 130), older_than(0), 2)["age"] == Interval(30, 45)
    assert joined(ages(30, 45, 14, 59, 130), older_than(0), 3)["age"] == Interval(30, 59)


def test_grasp_counts_another_category_as_the_whole_range() -> None:
    population = ages(30, 31, 60, 130, town=list("ABAB"))
    found = joined(population, older_than(0), 2)
    assert (found["age"], found["town"]) == (Interval(30, 60), frozenset("A"))
