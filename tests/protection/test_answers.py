"""Answers: they are true, least, permitted, and agree with k people."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.data.codes import MISSING, Codes, Floats, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.data.region import spelled
from cfk_plugin.data.rounding import DAY
from cfk_plugin.protection.answers import Answer, differ_usefully, explain, least_values
from cfk_plugin.protection.catalogue import Catalogue, Settings
from cfk_plugin.protection.moves import Distance, round_change, shrink, take_back
from cfk_plugin.protection.starts import Starts
from cfk_plugin.protection.values import ColumnPeople, SharedValues
from oracle import Rules

K = 5
MARGIN = 0.1
NOT_HIGH = np.array([True, True, False])
FINEST = {"age": 1.0, "income": 0.1, "debt": 1.0}


def chances(rows: pd.DataFrame) -> Any:
    """Return the probability of a loan; a missing debt counts as 20."""
    score = (
        rows["income"] / 8
        - rows["debt"].astype(float).fillna(20) / 10
        + (rows["job"].astype(str) == "nurse")
        - (rows["town"].astype(str) == "Aa")
        + (rows["age"] - 45).abs() / 20
    )
    return 1 / (1 + np.exp(-score.to_numpy(dtype=float)))


class Classifier:
    """A model that counts its calls."""

    classes_ = np.array([0, 1])
    n_calls = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        return (chances(rows) >= 0.5).astype(int)

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        self.n_calls += 1
        chance = chances(rows)
        return np.column_stack([1 - chance, chance])


def applicants() -> pd.DataFrame:
    """Return 400 applicants, some without a debt."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 70, 400),
            "town": random.choice(["Aa", "Bree", "Ceel"], 400),
            "income": np.round(random.normal(10, 8, 400), 1),
            "debt": random.integers(0, 40, 400).astype(float),
            "job": random.choice(["clerk", "nurse", "smith"], 400),
            "school": random.choice(["none", "low", "high"], 400),
        }
    )
    frame.loc[random.choice(400, 40, replace=False), "debt"] = None
    return frame


class World:
    """The applicants, encoded, with a catalogue and 20 queries that are refused."""

    def __init__(self) -> None:
        frame = applicants()
        self.schema = Schema.from_frame(
            frame, quasi_identifiers=["age", "town"], ordinal={"school": ["none", "low", "high"]}
        )
        self.codes = Codes.read(frame, self.schema)
        self.rows = self.codes.encode(frame)
        self.person = np.arange(len(frame))
        self.catalogue = Catalogue.build(
            self.codes,
            self.rows,
            self.person,
            Model.of(self.codes, Classifier(), 1, MARGIN),
            Settings(k=K, n_rounds=3),
            np.random.default_rng(0),
            b"a key",
        )
        refused = self.rows[self.leads(self.rows) < 0]
        self.queries = refused[:20]

    def leads(self, rows: Floats) -> Floats:
        """Ask the model itself, without `Model`."""
        lead: Floats = 2 * chances(self.codes.decode(rows)) - 1
        return lead

    def sure(self, rows: Floats) -> Mask:
        return self.leads(rows) >= MARGIN - 1e-9

    def column(self, name: str) -> int:
        return self.codes.names.index(name)

    def limits(self, **declared: Any) -> Limits:
        return Limits.of(self.codes, self.queries, **declared)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def answers(world: World) -> list[Answer]:
    """Return the answer to each query."""
    return [of_query[0] for of_query in explain(world.catalogue, world.queries)]


def points_of(answers: list[Answer]) -> Floats:
    return np.array([answer.point for answer in answers])


def test_answers_have_the_outcome(world: World, answers: list[Answer]) -> None:
    """The model gives the outcome with the margin at every point."""
    assert len(answers) == len(world.queries)
    assert world.sure(points_of(answers)).all()


def test_answers_agree_with_k_people(world: World, answers: list[Answer]) -> None:
    """At least k members of the region have the outcome with the point's private values."""
    for answer in answers:
        members = world.rows[world.catalogue.members[answer.region]]
        quasi = members[:, world.codes.quasi]
        rows = world.codes.rows_of(quasi, answer.point[world.codes.private])
        assert np.count_nonzero(world.leads(rows) >= 0) >= K


def test_changed_quasi_identifiers_are_in_the_region(world: World, answers: list[Answer]) -> None:
    """A point lies outside of its region only in what the query keeps."""
    for answer in answers:
        factual = world.queries[answer.query]
        for j, part in zip(world.codes.quasi, world.catalogue.regions.parts, strict=True):
            is_inside = part.contains(answer.point[[j]], answer.region)[0]
            assert is_inside or answer.point[j] == factual[j]


def test_no_change_is_needless(world: World, answers: list[Answer]) -> None:
    """Without any one of its changes, the model refuses the point."""
    for answer in answers:
        factual = world.queries[answer.query]
        changed = np.flatnonzero(answer.point != factual)
        trials = np.repeat(answer.point[None], len(changed), axis=0)
        trials[np.arange(len(changed)), changed] = factual[changed]
        assert len(changed) > 0
        assert not world.sure(trials).any()


def test_numbers_change_hardly_more_than_needed(world: World, answers: list[Answer]) -> None:
    """A tenth less of a change is refused, unless the column has no number in between."""
    for answer in answers:
        factual = world.queries[answer.query]
        for name, finest in FINEST.items():
            j = world.column(name)
            change = answer.point[j] - factual[j]
            if change == 0 or MISSING in (answer.point[j], factual[j]):
                continue
            smaller = answer.point.copy()
            step = max(np.abs(change) / 10, finest)
            smaller[j] -= np.sign(change) * step
            is_taken_back = np.abs(change) <= step
            assert is_taken_back or not world.sure(smaller[None])[0]


def test_least_values_need_no_margin(world: World, answers: list[Answer]) -> None:
    """All smaller changes together have the outcome, and most answers have one."""
    least = least_values(world.catalogue, answers, world.queries, world.limits())
    points = points_of(answers)
    factual = world.queries[[answer.query for answer in answers]]
    is_smaller = ~np.isnan(least)
    nearer = np.where(is_smaller, least, points)
    assert (world.leads(nearer) >= 0).all()
    assert (np.abs(nearer - factual) < np.abs(points - factual))[is_smaller].all()
    assert (nearer != factual)[is_smaller].all()
    assert is_smaller.any(axis=1).mean() > 0.5


def test_unchanged_columns_have_no_least_value(world: World, answers: list[Answer]) -> None:
    """Columns that do not change, categories and missing values have none."""
    least = least_values(world.catalogue, answers, world.queries, world.limits())
    points = points_of(answers)
    is_changed = points != world.queries
    has_missing = (points == MISSING) | (world.queries == MISSING)
    assert np.isnan(least[~is_changed | has_missing | ~world.codes.is_line]).all()


def test_least_values_obey_limits(world: World) -> None:
    """A number whose change is permitted only from some value on has no smaller one."""
    limits = world.limits(permitted={"income": (18.0, 40.0)})
    answers = [own[0] for own in explain(world.catalogue, world.queries, limits) if own]
    least = least_values(world.catalogue, answers, world.queries, limits)[:, world.column("income")]
    is_smaller = ~np.isnan(least)
    assert is_smaller.any()
    assert (least >= 18)[is_smaller].all()


def test_least_values_need_a_margin(world: World, answers: list[Answer]) -> None:
    """Without a margin every answer changes as little as it can."""
    model = world.catalogue.model.with_margin(0.0)
    least = least_values(
        replace(world.catalogue, model=model), answers, world.queries, world.limits()
    )
    assert np.isnan(least).all()


def test_a_lone_answer_has_the_same_least_values(world: World, answers: list[Answer]) -> None:
    """One more call of the model is enough for it."""
    classifier = Classifier()
    together = least_values(world.catalogue, answers, world.queries, world.limits())
    model = Model.of(world.codes, classifier, 1, MARGIN)
    for i, answer in enumerate(answers[:6]):
        catalogue = replace(world.catalogue, model=model)
        lone = least_values(catalogue, [answer], world.queries, world.limits())
        assert np.array_equal(lone[0], together[i], equal_nan=True)
    assert classifier.n_calls <= 6


def test_a_lone_query_has_the_same_answer(world: World, answers: list[Answer]) -> None:
    """It does not depend on who else asks."""
    for answer in answers[:6]:
        query = answer.query
        [[lone]] = explain(world.catalogue, world.queries[[query]])
        assert np.array_equal(lone.point, answer.point)
        assert lone.region == answer.region


def test_a_lone_query_needs_few_calls(world: World) -> None:
    """The model is called at most 6 times on average, by a catalogue whose regions are known."""
    classifier = Classifier()
    explain(world.catalogue, world.queries)
    catalogue = replace(world.catalogue, model=Model.of(world.codes, classifier, 1, MARGIN))
    for query in range(6):
        explain(catalogue, world.queries[[query]])
    assert classifier.n_calls <= 6 * 6


def test_answers_obey_limits(world: World) -> None:
    """Every answer is one that the oracle's rules permit."""
    rules = Rules(
        immutable=["town"],
        monotone={"age": "increase", "school": "increase"},
        permitted_range={"income": (0.0, 20.0)},
        never_advise={"job": ["nurse"]},
        levels={"school": ["none", "low", "high"]},
        max_changes=2,
    )
    limits = world.limits(
        change={"town": "never", "age": "increase", "school": "increase"},
        permitted={"income": (0.0, 20.0)},
        never_advised={"job": ["nurse"]},
        max_changes=2,
    )
    answers = [own[0] for own in explain(world.catalogue, world.queries, limits) if own]
    assert len(answers) > len(world.queries) / 2
    for answer in answers:
        factual = world.queries[answer.query]
        assert np.count_nonzero(answer.point != factual) <= 2
        for name, column, code, own in zip(
            world.codes.names, world.codes.columns, answer.point, factual, strict=True
        ):
            assert rules.permits(name, column.value(code), column.value(own))


def test_dear_columns_change_less(world: World, answers: list[Answer]) -> None:
    """If a change of income costs ten times as much, fewer answers ask for one."""
    j = world.column("income")
    costs = np.ones(len(world.codes.names))
    costs[j] = 10.0
    limits = replace(world.limits(), costs=costs)
    dear = [own[0] for own in explain(world.catalogue, world.queries, limits)]
    n_changes = np.count_nonzero(points_of(answers)[:, j] != world.queries[:, j])
    n_dear_changes = np.count_nonzero(points_of(dear)[:, j] != world.queries[:, j])
    assert n_dear_changes < n_changes


def test_nothing_is_answered_without_changes(world: World) -> None:
    """A query that must not change has no answer."""
    limits = world.limits(change=dict.fromkeys(world.codes.names, "never"))
    assert explain(world.catalogue, world.queries, limits) == [[] for _ in world.queries]


@pytest.mark.parametrize(
    ("declared", "name", "factual", "value", "is_permitted"),
    [
        ({}, "debt", 5.0, MISSING, True),
        ({"never_advised": {"debt": [None]}}, "debt", 5.0, MISSING, False),
        ({"never_advised": {"debt": [None]}}, "debt", MISSING, MISSING, True),
        ({"never_advised": {"job": ["nurse"]}}, "job", 0.0, 1.0, False),
        ({"never_advised": {"job": ["nurse"]}}, "job", 1.0, 1.0, True),
        ({"never_advised": {"school": ["high"]}}, "school", 0.0, 2.0, False),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, 4.0, True),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, 6.0, False),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, MISSING, False),
        ({"change": {"debt": "decrease"}}, "debt", MISSING, 4.0, False),
        ({"change": {"school": "increase"}}, "school", 1.0, 2.0, True),
        ({"change": {"school": "increase"}}, "school", 1.0, 0.0, False),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, 4.0, False),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, 5.0, True),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, MISSING, False),
        ({"permitted": {"job": np.array([True, False, True])}}, "job", 0.0, 1.0, False),
        ({"permitted": {"school": NOT_HIGH}}, "school", 0.0, 1.0, True),
        ({"permitted": {"school": NOT_HIGH}}, "school", 0.0, 2.0, False),
        ({"permitted": {"school": NOT_HIGH}}, "school", 0.0, MISSING, False),
        ({"permitted": {"school": NOT_HIGH}}, "school", MISSING, MISSING, True),
        ({"permitted": {"school": np.append(NOT_HIGH, True)}}, "school", 0.0, 2.0, False),
        ({"permitted": {"school": np.append(NOT_HIGH, True)}}, "school", 0.0, MISSING, True),
    ],
)
def test_limits_permit_values(
    world: World,
    declared: dict[str, Any],
    name: str,
    factual: float,
    value: float,
    is_permitted: bool,
) -> None:
    """Own values are always permitted; a missing one has no direction."""
    queries = world.queries[:1].copy()
    queries[0, world.column(name)] = factual
    limits = Limits.of(world.codes, queries, **declared)
    row = queries.copy()
    row[0, world.column(name)] = value
    assert limits.permits(row, np.zeros(1, dtype=np.int64))[0] == is_permitted


def test_several_answers_differ(world: World, answers: list[Answer]) -> None:
    """They come near ones first, the first one is that of a single answer, and all are useful."""
    several = explain(world.catalogue, world.queries, n_answers=3)
    for of_query, single in zip(several, answers, strict=True):
        factual = world.queries[single.query]
        distances = [answer.distance for answer in of_query]
        assert distances == sorted(distances)
        assert distances[0] <= single.distance + 1e-9
        for first, second in combinations(points_of(of_query), 2):
            assert differ_usefully(first, second, factual, world.codes.is_line)


def test_most_people_get_a_second_answer(world: World) -> None:
    """Another way exists for most people, and the search finds it."""
    answers = explain(world.catalogue, world.queries, n_answers=2)
    assert np.mean([len(of_query) == 2 for of_query in answers]) >= 0.9


def test_second_answers_prefer_other_changes(world: World) -> None:
    """Few of them change all the columns that the first answer changes."""
    answers = explain(world.catalogue, world.queries, n_answers=2)
    points = np.array([points_of(of_query) for of_query in answers if len(of_query) == 2])
    factual = world.queries[[of_query[0].query for of_query in answers if len(of_query) == 2]]
    is_changed = points != factual[:, None]  # (n_queries, n_answers, n_features)
    asks_again = (is_changed[:, 1] | ~is_changed[:, 0]).all(axis=1)
    assert asks_again.mean() <= 0.15


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ({"income": 20.0}, {"debt": 5.0}, True),
        ({"income": 20.0}, {"income": 19.0}, False),
        ({"income": 20.0}, {"income": 19.0, "age": 31.0}, False),  # only adds a change
        ({"income": 20.0}, {"income": 15.0, "age": 31.0}, True),  # half of the first change
        ({"income": 20.0}, {"income": 30.0}, False),  # only asks for more
        ({"income": 20.0}, {"income": 5.0}, True),  # the other direction
        ({"income": 20.0, "debt": 5.0}, {"income": 20.0, "age": 31.0}, True),
        ({"job": 1.0}, {"job": 2.0}, True),
        ({"job": 1.0, "income": 20.0}, {"job": 1.0, "income": 19.0}, False),
    ],
)
def test_answers_differ_if_both_spare_something(
    world: World, first: dict[str, float], second: dict[str, float], differ: bool
) -> None:
    """Each asks for at most half of a change that the other asks for."""
    factual = {"age": 30.0, "town": 0.0, "income": 10.0, "debt": 10.0, "job": 0.0, "school": 0.0}

    def row(changes: dict[str, float]) -> Floats:
        return np.array([(factual | changes)[name] for name in world.codes.names])

    is_line = world.codes.is_line
    assert differ_usefully(row(first), row(second), row({}), is_line) == differ
    assert differ_usefully(row(second), row(first), row({}), is_line) == differ


def test_counterfactuals_of_explainers_become_shared(world: World) -> None:
    """An explainer's own numbers and levels are replaced by shared ones."""
    random = np.random.default_rng(2)
    counterfactuals = world.rows[random.choice(len(world.rows), len(world.queries))].copy()
    counterfactuals[:, world.column("income")] += 0.01
    distance = Distance(world.limits(), world.catalogue.spans, 0.1)
    starts = Starts(world.catalogue, world.limits(), distance)
    points = starts.explained(counterfactuals[None])
    for j, shared in zip(world.codes.private, world.catalogue.shared, strict=True):
        is_own = points.rows[:, j] == world.queries[points.query, j]
        assert (is_own | np.isin(points.rows[:, j], shared.values)).all()
    assert len(explain(world.catalogue, world.queries, starts=counterfactuals)) == 20


def test_take_back_leaves_a_least_set(world: World) -> None:
    """The dearest changes go first, until what is kept needs all that are left."""
    limits = world.limits()
    distance = Distance(limits, np.ones(len(world.codes.names)), 0.1)
    query = np.zeros(1, dtype=np.int64)
    start = world.queries[:1] + np.arange(1.0, 7.0)

    def keeps(rows: Floats, _: Any) -> Mask:
        return (rows != world.queries[0]).sum(axis=1) >= 2

    end = take_back(start, query, distance, keeps)
    assert keeps(end, None).all()
    assert np.count_nonzero(end != world.queries[0]) == 2


def test_shrink_reaches_a_border(world: World) -> None:
    """A number shrinks to the least round change that is kept."""
    j = world.column("income")
    limits = world.limits()
    distance = Distance(limits, world.catalogue.spans, 0.1)
    query = np.zeros(1, dtype=np.int64)
    start = world.queries[:1].copy()
    start[0, j] += 100.0

    def keeps(rows: Floats, _: Any) -> Mask:
        kept: Mask = rows[:, j] - world.queries[0, j] >= 7.0
        return kept

    end = shrink(start, query, distance, keeps)
    assert 7.0 <= end[0, j] - world.queries[0, j] <= 7.0 * 1.1


@pytest.mark.parametrize("hour", [0, 5])
def test_dates_become_days_without_times(hour: int) -> None:
    """A change of 3.6 days is rounded to days only if no date of the table has a time of day."""
    dates = pd.date_range("2024-01-01", periods=3) + pd.Timedelta(hour, "h")
    frame = pd.DataFrame({"age": [30, 40, 50], "admitted": dates})
    codes = Codes.read(frame, Schema.from_frame(frame, quasi_identifiers=["age"]))
    rounded = round_change(codes.columns[1], np.zeros(1), np.array([3.6 * DAY]))
    assert (rounded[0] == 4 * DAY) == (hour == 0)


@pytest.mark.parametrize("zone", ["Europe/Brussels", "America/New_York", "Asia/Kolkata"])
def test_days_of_a_zone_stay_days(zone: str) -> None:
    """Midnight there is another time in UTC, and changes with the season."""
    days = pd.date_range("2018-01-01", periods=400, tz=zone)
    frame = pd.DataFrame({"age": range(400), "admitted": days})
    schema = Schema.from_frame(frame, quasi_identifiers=["age"])
    column = Codes.read(frame, schema).columns[1]
    changes = np.linspace(-300, 300, 41) * DAY
    rounded = round_change(column, column.values[200:201], changes)
    dates = [column.value(seconds) for seconds in rounded.tolist()]
    assert all(moment == moment.normalize() for moment in dates)
    people = ColumnPeople.of(column.values[:200], np.arange(200))
    shared = SharedValues.of(column, people, column.values[:200], 5).values
    shared_dates = [column.value(seconds) for seconds in shared.tolist()]
    assert len(shared_dates) > 0
    assert all(moment == moment.normalize() for moment in shared_dates)


def test_times_become_round_times() -> None:
    """A table with minutes gets no seconds, and large changes end at midnight."""
    times = pd.date_range("2024-01-01 08:03", periods=50, freq="7h11min")
    frame = pd.DataFrame({"age": range(50), "admitted": times})
    schema = Schema.from_frame(frame, quasi_identifiers=["age"])
    column = Codes.read(frame, schema).columns[1]
    changes = np.array([50.0, 3000.0, 0.8 * DAY, 90 * DAY])
    rounded = round_change(column, column.values[:1], changes)
    texts = [spelled(column.value(seconds)) for seconds in rounded.tolist()]
    assert texts == ["2024-01-01 08:04", "2024-01-01 08:54", "2024-01-02 03:30", "2024-04-01"]


def test_excluded_entries_do_not_hide_permitted_ones(world: World) -> None:
    """However many near entries a query may not have, the nearest permitted ones are starts."""
    catalogue = world.catalogue
    excluded = {"job": ["nurse", "smith"], "school": ["none", "low"]}
    limits = world.limits(never_advised=excluded)
    starts = Starts(catalogue, limits, Distance(limits, catalogue.spans, 0.1))
    entries = catalogue.entries
    for query in range(5):
        points = starts.entries(np.array([query]))
        rows = np.repeat(world.queries[[query]], len(entries), axis=0)
        rows[:, world.codes.private] = entries.values
        is_possible = limits.permits(rows, np.full(len(rows), query))
        is_possible &= np.isfinite(starts.to_region[query, entries.region])
        assert len(points) == min(is_possible.sum(), 32)
