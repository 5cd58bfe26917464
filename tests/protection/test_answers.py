"""Answers are least, permitted and useful; the oracle recounts that they are true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.data.codes import MISSING, Codes, Column, Floats, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.data.region import spelled
from cfk_plugin.data.rounding import DAY
from cfk_plugin.protection.answers import Answer, differ_usefully, explain, least_values
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.moves import Distance, round_change, take_back
from cfk_plugin.protection.starts import Starts
from cfk_plugin.protection.values import ColumnPeople, SharedValues
from worlds import World


class CountedModel:
    """The bank's model, which counts its calls."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.classes_ = model.classes_
        self.n_calls = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.model.predict(rows)

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        self.n_calls += 1
        return self.model.predict_proba(rows)


@pytest.fixture(scope="module")
def catalogue(applicants: World) -> Catalogue:
    return applicants.anonymizer.catalogue_.parts[0].catalogue


@pytest.fixture(scope="module")
def queries(applicants: World, catalogue: Catalogue) -> Floats:
    """Return twenty people whom the bank refuses."""
    people = applicants.strangers
    refused = people[applicants.model.predict(people) == 0]
    return catalogue.codes.encode(refused.head(20))


@pytest.fixture(scope="module")
def limits(catalogue: Catalogue, queries: Floats) -> Limits:
    """Return limits of the queries that forbid nothing."""
    return Limits.of(catalogue.codes, queries)


@pytest.fixture(scope="module")
def answers(catalogue: Catalogue, queries: Floats, limits: Limits) -> list[Answer]:
    """Return the answer to each query."""
    return [of_query[0] for of_query in explain(catalogue, queries, limits)]


def points_of(answers: list[Answer]) -> Floats:
    return np.array([answer.point for answer in answers])


def leads(catalogue: Catalogue, rows: Floats) -> Floats:
    """Ask the bank's model, without what remembers its answers."""
    frame = catalogue.codes.decode(rows)
    lead: Floats = 2 * catalogue.model.label_model.model.predict_proba(frame)[:, 1] - 1
    return lead


def sure(catalogue: Catalogue, rows: Floats) -> Mask:
    return leads(catalogue, rows) >= catalogue.model.margin - 1e-9


def test_no_change_is_needless(
    catalogue: Catalogue, queries: Floats, answers: list[Answer]
) -> None:
    """The model accepts the point, and refuses it without any one of its changes."""
    assert len(answers) == len(queries)
    assert sure(catalogue, points_of(answers)).all()
    for answer in answers:
        factual = queries[answer.query]
        changed = np.flatnonzero(answer.point != factual)
        trials = np.repeat(answer.point[None], len(changed), axis=0)
        trials[np.arange(len(changed)), changed] = factual[changed]
        assert len(changed) > 0
        assert not sure(catalogue, trials).any()


def test_answers_agree_with_k_people(
    applicants: World, catalogue: Catalogue, answers: list[Answer]
) -> None:
    """Without the recount, k members of the region have the outcome with the private values."""
    codes = catalogue.codes
    rows = applicants.population.coded_rows
    for answer in answers:
        quasi = rows[np.ix_(catalogue.members[answer.region], codes.quasi)]
        members = codes.rows_of(quasi, answer.point[codes.private])
        assert np.count_nonzero(leads(catalogue, members) >= 0) >= applicants.k


def test_dearest_changes_go_first(catalogue: Catalogue, queries: Floats, limits: Limits) -> None:
    """If one change has to stay, it is the smallest one."""
    names = catalogue.codes.names
    start = queries[:1].copy()
    for name, change in {"age": 10.0, "debt": 500.0, "income": 9_000.0}.items():
        start[0, names.index(name)] += change
    distance = Distance(limits, catalogue.spans, 0.1)
    end = take_back(
        start, np.zeros(1, np.int64), distance, lambda rows, _: (rows != queries[0]).any(axis=1)
    )
    assert np.flatnonzero(end[0] != queries[0]).tolist() == [names.index("debt")]


def test_changed_quasi_identifiers_are_inside(catalogue: Catalogue, queries: Floats) -> None:
    """A point lies outside of its region only in what the query keeps."""
    change = dict.fromkeys(["income", "debt", "job"], "never")
    limits = Limits.of(catalogue.codes, queries, change=change)
    answers = [own[0] for own in explain(catalogue, queries, limits) if own]
    assert len(answers) > 5
    regions = np.array([answer.region for answer in answers])
    factual = queries[[answer.query for answer in answers]]
    for j, part in zip(catalogue.codes.quasi.tolist(), catalogue.regions.parts, strict=True):
        values = points_of(answers)[:, j]
        is_inside = part.contains_by_region(values)[np.arange(len(regions)), regions]
        assert (is_inside | (values == factual[:, j])).all()


def test_numbers_change_hardly_more(
    catalogue: Catalogue, queries: Floats, answers: list[Answer]
) -> None:
    """A tenth less of a change is refused, unless the column has no number in between."""
    for answer in answers:
        for name, finest in {"age": 1.0, "income": 1.0, "debt": 500.0}.items():
            j = catalogue.codes.names.index(name)
            change = answer.point[j] - queries[answer.query, j]
            step = max(np.abs(change) / 10, finest)
            smaller = answer.point.copy()
            smaller[j] -= np.sign(change) * step
            assert np.abs(change) <= step or not sure(catalogue, smaller[None])[0]


def test_least_values_need_no_margin(
    catalogue: Catalogue, queries: Floats, limits: Limits, answers: list[Answer]
) -> None:
    """All smaller changes together have the outcome; what does not change has none."""
    least = least_values(catalogue, answers, queries, limits)
    points = points_of(answers)
    is_smaller = ~np.isnan(least)
    nearer = np.where(is_smaller, least, points)
    assert (leads(catalogue, nearer) >= 0).all()
    assert (np.abs(nearer - queries) < np.abs(points - queries))[is_smaller].all()
    assert (nearer != queries)[is_smaller].all()
    assert not is_smaller[:, ~catalogue.codes.is_line].any()
    assert is_smaller.any(axis=1).mean() > 0.5


def test_least_values_obey_limits(catalogue: Catalogue, queries: Floats) -> None:
    """A number whose change is permitted only from some value on has no smaller one."""
    j = catalogue.codes.names.index("income")
    limits = Limits.of(catalogue.codes, queries, permitted={"income": (45_000.0, 80_000.0)})
    answers = [own[0] for own in explain(catalogue, queries, limits) if own]
    least = least_values(catalogue, answers, queries, limits)[:, j]
    is_smaller = ~np.isnan(least)
    assert is_smaller.any()
    assert (least >= 45_000)[is_smaller].all()


def test_least_values_need_a_margin(
    catalogue: Catalogue, queries: Floats, limits: Limits, answers: list[Answer]
) -> None:
    """Without a margin every answer changes as little as it can."""
    exact = replace(catalogue, model=catalogue.model.with_margin(0.0))
    assert np.isnan(least_values(exact, answers, queries, limits)).all()


def test_lone_query_has_same_answer(
    applicants: World, catalogue: Catalogue, queries: Floats, limits: Limits, answers: list[Answer]
) -> None:
    """It does not depend on who else asks, and the model is called at most 7 times on average."""
    together = least_values(catalogue, answers, queries, limits)
    counted = CountedModel(applicants.model)
    model = Model.of(catalogue.codes, counted, 1, catalogue.model.margin)
    alone = replace(catalogue, model=model)
    for i, answer in enumerate(answers[:6]):
        own_limits = limits.take(np.array([i]))
        [[lone]] = explain(alone, queries[[i]], own_limits)
        assert np.array_equal(lone.point, answer.point)
        assert lone.region == answer.region
        least = least_values(alone, [lone], queries[[i]], own_limits)
        assert np.array_equal(least[0], together[i], equal_nan=True)
    assert counted.n_calls <= 6 * 7


def test_dear_columns_change_less(
    catalogue: Catalogue, queries: Floats, limits: Limits, answers: list[Answer]
) -> None:
    """If a change of income costs ten times as much, fewer answers ask for one."""
    j = catalogue.codes.names.index("income")
    costs = np.ones(len(catalogue.codes.names))
    costs[j] = 10.0
    dear = [own[0] for own in explain(catalogue, queries, replace(limits, costs=costs))]
    n_changes = np.count_nonzero(points_of(answers)[:, j] != queries[:, j])
    assert np.count_nonzero(points_of(dear)[:, j] != queries[:, j]) < n_changes


def test_answer_needs_a_change(catalogue: Catalogue, queries: Floats) -> None:
    """A query that must not change has no answer."""
    change = dict.fromkeys(catalogue.codes.names, "never")
    limits = Limits.of(catalogue.codes, queries, change=change)
    assert explain(catalogue, queries, limits) == [[] for _ in queries]


NO_UNIVERSITY = np.array([True, True, False])


@pytest.mark.parametrize(
    ("declared", "name", "factual", "value", "is_permitted"),
    [
        ({}, "debt", 5.0, MISSING, True),
        ({"never_advised": {"debt": [None]}}, "debt", 5.0, MISSING, False),
        ({"never_advised": {"debt": [None]}}, "debt", MISSING, MISSING, True),
        ({"never_advised": {"job": ["nurse"]}}, "job", 0.0, 1.0, False),
        ({"never_advised": {"job": ["nurse"]}}, "job", 1.0, 1.0, True),
        ({"never_advised": {"education": ["university"]}}, "education", 0.0, 2.0, False),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, 4.0, True),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, 6.0, False),
        ({"change": {"debt": "decrease"}}, "debt", 5.0, MISSING, False),
        ({"change": {"debt": "decrease"}}, "debt", MISSING, 4.0, False),
        ({"change": {"education": "increase"}}, "education", 1.0, 0.0, False),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, 4.0, False),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, 5.0, True),
        ({"permitted": {"debt": (0.0, 3.0)}}, "debt", 5.0, MISSING, False),
        ({"permitted": {"job": np.array([True, False, True])}}, "job", 0.0, 1.0, False),
        ({"permitted": {"education": NO_UNIVERSITY}}, "education", 0.0, 1.0, True),
        ({"permitted": {"education": NO_UNIVERSITY}}, "education", 0.0, MISSING, False),
        ({"permitted": {"education": NO_UNIVERSITY}}, "education", MISSING, MISSING, True),
        (
            {"permitted": {"education": np.append(NO_UNIVERSITY, True)}},
            "education",
            0.0,
            MISSING,
            True,
        ),
    ],
)
def test_limits_permit_values(
    catalogue: Catalogue,
    queries: Floats,
    declared: dict[str, Any],
    name: str,
    factual: float,
    value: float,
    is_permitted: bool,
) -> None:
    """Own values are always permitted; a missing one has no direction."""
    j = catalogue.codes.names.index(name)
    factuals = queries[:1].copy()
    factuals[0, j] = factual
    rows = factuals.copy()
    rows[0, j] = value
    limits = Limits.of(catalogue.codes, factuals, **declared)
    assert limits.permits(rows, np.zeros(1, dtype=np.int64))[0] == is_permitted


def test_near_answers_come_first(
    catalogue: Catalogue, queries: Floats, limits: Limits, answers: list[Answer]
) -> None:
    """The first of several answers is as near as a single one, and others change other columns."""
    pairs = [pair for pair in explain(catalogue, queries, limits, n_answers=2) if len(pair) == 2]
    assert len(pairs) >= 0.9 * len(queries)
    n_same = 0
    for first, second in pairs:
        assert first.distance <= second.distance
        assert first.distance <= answers[first.query].distance + 1e-9
        is_changed = first.point != queries[first.query]
        n_same += (second.point != queries[first.query])[is_changed].all()
    assert n_same <= 0.15 * len(pairs)


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ({"income": 20.0}, {"debt": 5.0}, True),
        ({"income": 20.0}, {"income": 19.0, "age": 31.0}, False),  # only adds a change
        ({"income": 20.0}, {"income": 15.0, "age": 31.0}, True),  # half of the first change
        ({"income": 20.0}, {"income": 30.0}, False),  # only asks for more
        ({"income": 20.0}, {"income": 5.0}, True),  # the other direction
        ({"job": 1.0}, {"job": 2.0}, True),
        ({"job": 1.0, "income": 20.0}, {"job": 1.0, "income": 19.0}, False),
    ],
)
def test_different_answers_spare_something(
    catalogue: Catalogue, first: dict[str, float], second: dict[str, float], differ: bool
) -> None:
    """Each asks for at most half of a change that the other asks for."""
    factual = dict.fromkeys(catalogue.codes.names, 0.0) | {
        "age": 30.0,
        "income": 10.0,
        "debt": 10.0,
    }
    rows = [np.array([*(factual | changes).values()]) for changes in ({}, first, second)]
    is_line = catalogue.codes.is_line
    assert differ_usefully(rows[1], rows[2], rows[0], is_line) == differ
    assert differ_usefully(rows[2], rows[1], rows[0], is_line) == differ


def test_private_values_of_explainers_are_shared(
    catalogue: Catalogue, queries: Floats, limits: Limits
) -> None:
    """An explainer's own numbers are replaced by shared ones, before the search begins there."""
    counterfactuals = queries.copy()
    counterfactuals[:, catalogue.codes.names.index("income")] += 20_000.01
    starts = Starts(catalogue, limits, Distance(limits, catalogue.spans, 0.1))
    points = starts.explained(counterfactuals[None])
    for j, shared in zip(catalogue.codes.private, catalogue.shared, strict=True):
        is_own = points.rows[:, j] == queries[points.query, j]
        assert (is_own | np.isin(points.rows[:, j], shared.values)).all()
    assert all(explain(catalogue, queries, limits, starts=counterfactuals))


def test_excluded_entries_hide_no_others(catalogue: Catalogue, queries: Floats) -> None:
    """However many near entries a query may not have, the nearest permitted ones are starts."""
    limits = Limits.of(catalogue.codes, queries, never_advised={"job": ["nurse", "smith"]})
    starts = Starts(catalogue, limits, Distance(limits, catalogue.spans, 0.1))
    entries = catalogue.entries
    for query in range(5):
        rows = np.repeat(queries[[query]], len(entries), axis=0)
        rows[:, catalogue.codes.private] = entries.values
        is_possible = limits.permits(rows, np.full(len(rows), query))
        is_possible &= np.isfinite(starts.to_region[query, entries.region])
        assert len(starts.entries(np.array([query]))) == min(is_possible.sum(), 32)


# --- dates ------------------------------------------------------------------------------------------


def date_column(dates: Any) -> Column:
    """Return the column of dates of a table."""
    frame = pd.DataFrame({"age": range(len(dates)), "admitted": dates})
    return Codes.read(frame, Schema.from_frame(frame, quasi_identifiers=["age"])).columns[1]


@pytest.mark.parametrize("hour", [0, 5])
def test_dates_become_whole_days(hour: int) -> None:
    """A change of 3.6 days is rounded to days only if no date of the table has a time of day."""
    column = date_column(pd.date_range("2024-01-01", periods=3) + pd.Timedelta(hour, "h"))
    rounded = round_change(column, np.zeros(1), np.array([3.6 * DAY]))
    assert (rounded[0] == 4 * DAY) == (hour == 0)


@pytest.mark.parametrize("zone", ["Europe/Brussels", "Asia/Kolkata"])
def test_days_of_zone_stay_days(zone: str) -> None:
    """Midnight there is another time in UTC, and changes with the season."""
    column = date_column(pd.date_range("2018-01-01", periods=400, tz=zone))
    rounded = round_change(column, column.values[200:201], np.linspace(-300, 300, 41) * DAY)
    people = ColumnPeople.of(column.values[:200], np.arange(200))
    shared = SharedValues.of(column, people, column.values[:200], 5).values
    assert len(shared) > 0
    dates = [column.value(seconds) for seconds in [*rounded.tolist(), *shared.tolist()]]
    assert all(moment == moment.normalize() for moment in dates)


def test_times_become_round_times() -> None:
    """A table with minutes gets no seconds, and large changes end at midnight."""
    column = date_column(pd.date_range("2024-01-01 08:03", periods=50, freq="7h11min"))
    changes = np.array([50.0, 3000.0, 0.8 * DAY, 90 * DAY])
    rounded = round_change(column, column.values[:1], changes)
    texts = [spelled(column.value(seconds)) for seconds in rounded.tolist()]
    assert texts == ["2024-01-01 08:04", "2024-01-01 08:54", "2024-01-02 03:30", "2024-04-01"]
