"""The catalogue against brute force in plain pandas: which entries there are, and what answers a
query.
"""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    Attribute,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    Withheld,
    protect,
)
from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.errors import InputError, ModelError, NotFittedError, PolicyError
from cfk_plugin.metrics import ncp
from cfk_plugin.protection.answers.request import CatalogueRequest
from cfk_plugin.protection.answers.search import find_answers
from cfk_plugin.protection.catalogue.entries import SearchLimits

QUASI = ["age", "born", "city", "grade"]
PRIVATE = ["pay", "debt", "job"]
LEVELS = ["low", "mid", "high"]
TREE = {city: ["north" if city < "C" else "south"] for city in "ABCD"}
K = 4
PURE = 0.8
LIMITS = "cfk_plugin.protection.catalogue.catalogue.SEARCH_LIMITS"
EVERYTHING = SearchLimits(
    rows_per_training_row=10**6, least_combinations=10**6, most_combinations=10**6
)


@pytest.fixture(autouse=True)
def every_candidate() -> Iterator[pytest.MonkeyPatch]:
    """Try every candidate on all combinations, as brute force does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, EVERYTHING)
        yield patch


def table(seed: int, n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    train = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "born": pd.Timestamp("1980-01-01")
            + pd.to_timedelta(rng.integers(0, 3, n) * 900, unit="D"),
            "city": rng.choice(list(TREE), n).astype(object),
            "grade": rng.choice(LEVELS, n).astype(object),
            "pay": rng.integers(10, 60, n),
            "debt": rng.normal(10, 4, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
        }
    )
    for name in ("born", "grade", "debt"):
        train.loc[train.index[1:][rng.random(n - 1) < 0.1], name] = None
    return pd.concat([train, train.head(n // 6)], ignore_index=True)


def score(rows: pd.DataFrame) -> np.ndarray:
    bonus = rows["city"].map({"A": 0, "B": 6, "C": -6, "D": 3}).to_numpy(dtype=float)
    return np.asarray(
        rows["pay"].to_numpy(dtype=float)
        - rows["debt"].fillna(12).to_numpy()
        + rows["age"].to_numpy() / 4
        + bonus
    )


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 38, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score(rows), [28, 45])]


def wants_more(labels: Any) -> Any:
    return np.isin(labels, ["mid", "high"])


def fitted(
    train: pd.DataFrame,
    model: Any = two,
    desired: Any = "yes",
    *,
    options: Mapping[str, Any] | None = None,
    **policy: Any,
) -> KAnonymizer:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        subject="person" if "person" in train else None,
        ordinal={"grade": LEVELS},
        columns={"city": Attribute(hierarchy=TREE)},
    )
    settings = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **policy})
    anonymizer = KAnonymizer(policy=settings, **({} if options is None else options))
    return anonymizer.fit(Population.from_frame(train, schema), model=model, desired=desired)


BY_DISTANCE = {"change_cost": 0.0, "rounding": False}


@dataclass
class Explanation:
    region: Region
    private: dict[str, Any]
    label: Any  # of the group's members, where any other outcome is desired
    loss: float


def entries_of(anonymizer: KAnonymizer) -> list[Explanation]:
    """Return the entries of a catalogue; each has a label where any other outcome is desired."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    has_label = anonymizer.goal_.has_class_per_label
    entries = []
    for i, private in enumerate(catalogue.private[PRIVATE].to_dict("records")):
        region = catalogue.partition.regions[catalogue.group[i]]
        label = catalogue.labels[i] if has_label else None
        loss = ncp(region, anonymizer.population_)
        entries.append(Explanation(region, private, label, loss))
    return entries


def widths_of(anonymizer: KAnonymizer) -> dict[str, float]:
    """Return the range of each private number by which the catalogue measures distances."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    return {name: catalogue.domains[name].width for name in ("pay", "debt")}


def combinations(region: Region, train: pd.DataFrame) -> pd.DataFrame:
    """Return all combinations of the table's values that are inside of a region."""
    inside = [
        [v for v in train[name].unique() if Region({name: region[name]}).contains({name: v})]
        for name in QUASI
    ]
    return pd.DataFrame(list(itertools.product(*inside)), columns=QUASI)


def has_outcome(desired: Any, labels: np.ndarray) -> np.ndarray:
    """Say of the labels of queries whether they are the outcome that is named as desired."""
    if callable(desired):
        return np.asarray(desired(labels))
    return np.asarray(labels == desired)  # no label is "opposite"


def met(
    model: Any, desired: Any, label: Any, points: pd.DataFrame, private: dict[str, Any]
) -> np.ndarray:
    """Say of points whether they get the outcome with some private values."""
    said = model(points.assign(**private))
    return np.asarray(
        desired(said) if callable(desired) else said == (desired if label is None else label)
    )


def plain_distance(
    query: Any,
    entry: Explanation,
    train: pd.DataFrame,
    widths: dict[str, float],
) -> float:
    """Return region and private values against a query, value by value."""
    total = entry.loss * len(QUASI) / 2
    for name, part in entry.region.items():
        value = query[name]
        total += 0.1 * (not Region({name: part}).contains({name: value}))
        if not isinstance(part, Interval) or part.levels is not None or pd.isna(value):
            total += not Region({name: part}).contains({name: value})
        elif part.low is None:
            total += 1
        else:
            outside = max(part.low - value, value - part.high, value - value)
            total += outside / (train[name].max() - train[name].min())
    for name, other in entry.private.items():
        if name == "job" or pd.isna(query[name]) or pd.isna(other):
            total += query[name] != other and not (pd.isna(query[name]) and pd.isna(other))
        else:
            total += abs(query[name] - other) / widths[name]
    return float(total)


GOALS = [(two, "yes"), (two, "opposite"), (three, "opposite"), (three, wants_more)]


@pytest.mark.parametrize(("model", "desired"), GOALS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_counterfactual_becomes_the_entry_nearest_to_it(
    model: Any, desired: Any, seed: int
) -> None:
    train = table(seed)
    anonymizer = fitted(train, model, desired)
    entries, widths = entries_of(anonymizer), widths_of(anonymizer)
    asked = table(seed + 50)[[*QUASI, *PRIVATE]].head(30)
    asked.loc[:4, "age"] = [0, 200, 17, 90, 44]
    own = model(asked)
    for i, (found, row) in enumerate(
        zip(anonymizer.transform(asked), asked.to_dict("records"), strict=True)
    ):
        distinct_parts = [
            (plain_distance(row, e, train, widths), e)
            for e in entries
            if e.label is None or e.label == own[i]
        ]
        if isinstance(found, Withheld):
            assert (
                found.reason == "infeasible"
                if not distinct_parts
                else not met(model, desired, None, asked, {})[i]
            )
            continue
        nearest = [
            e
            for distance, e in distinct_parts
            if distance <= min(d for d, _ in distinct_parts) + 1e-9
        ]
        best = [e for e in nearest if e.loss <= min(e.loss for e in nearest) + 1e-9]
        assert (found.region, plain(found.released)) in [(e.region, plain(e.private)) for e in best]


def plain(private: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if pd.isna(value) else value for name, value in private.items()}


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_an_answer_is_no_farther_than_a_true_entry_and_true_wherever_an_entry_is(
    model: Any, desired: Any
) -> None:
    train = table(0)
    anonymizer = fitted(train, model, desired, options=BY_DISTANCE)
    entries, widths = entries_of(anonymizer), widths_of(anonymizer)
    queries = pd.concat([table(50).head(20), train.head(10)], ignore_index=True)[[*QUASI, *PRIVATE]]
    queries.loc[:4, "age"] = [0, 200, 17, 90, 44]
    own, n_moved = model(queries), 0
    already = has_outcome(desired, own)
    for i, (found, query) in enumerate(
        zip(anonymizer.explain(queries), queries.to_dict("records"), strict=True)
    ):
        if already[i]:
            assert found == Withheld(i, "already_desired")
            continue
        distinct_parts = [e for e in entries if e.label is None or e.label != own[i]]
        true = [
            e
            for e in distinct_parts
            if met(model, desired, e.label, nearest_point(e.region, query, train), e.private)[0]
        ]
        if not true:
            assert found == Withheld(i, "infeasible")
            continue
        assert isinstance(found, GeneralizedCounterfactual)
        behind = [e for e in distinct_parts if e.region == found.region]
        given, points = (
            Explanation(found.region, plain(found.released), None, behind[0].loss),
            combinations(found.region, train),
        )
        assert any(
            met(model, desired, e.label, nearest_point(e.region, query, train), given.private)[0]
            and not (
                met(model, desired, e.label, points, e.private)
                > met(model, desired, e.label, points, given.private)
            ).any()
            for e in behind
        )
        distance = plain_distance(query, given, train, widths)
        assert distance <= min(plain_distance(query, e, train, widths) for e in true) + 1e-9
        n_moved += plain(found.released) not in [plain(e.private) for e in entries]
        assert min(found.recount.k_effective or 0, found.recount.k_consistent) >= K
        assert found.certificate.pureness >= PURE
    assert n_moved > (~already).sum() / 2


def test_an_answer_is_no_farther_than_ones_own_values_with_one_of_an_entry(
    every_candidate: pytest.MonkeyPatch,
) -> None:
    """Where these have the outcome wherever the weakest entries of a region have it."""
    for name in ("NEAREST_COMBINED", "COMBINATIONS_TRIED"):
        every_candidate.setattr(f"cfk_plugin.protection.answers.candidates.{name}", 10**4)
    every_candidate.setattr("cfk_plugin.protection.answers.search.PAIRS_MOVED", 10**4)
    every_candidate.setattr("cfk_plugin.protection.catalogue.catalogue._SINGLE_VALUES", 10**4)
    train, queries, nearer = table(0), table(50)[[*QUASI, *PRIVATE]], 0
    queries = queries[two(queries) == "no"].head(25)
    anonymizer = fitted(train, options=BY_DISTANCE)
    entries, widths = entries_of(anonymizer), widths_of(anonymizer)
    single = {
        (name, e.private[name]) for e in entries for name in PRIVATE if not pd.isna(e.private[name])
    }
    must = {region: weakest_hold(region, entries, train) for region in {e.region for e in entries}}
    loss = {e.region: e.loss for e in entries}
    for found, query in zip(anonymizer.explain(queries), queries.to_dict("records"), strict=True):
        own, distances = {name: query[name] for name in PRIVATE}, []
        for region, cells in must.items():
            points = pd.concat([nearest_point(region, query, train), cells], ignore_index=True)
            for name, value in single:
                part = own | {name: value}
                if met(two, "yes", None, points, part).all():
                    distances.append(
                        plain_distance(
                            query, Explanation(region, part, None, loss[region]), train, widths
                        )
                    )
        if distances:
            given = Explanation(found.region, plain(found.released), None, loss[found.region])
            distance = plain_distance(query, given, train, widths)
            assert distance <= min(distances) + 1e-9
            nearer += distance < min(distances) - 1e-9
    assert nearer


def weakest_hold(region: Region, entries: list[Explanation], train: pd.DataFrame) -> pd.DataFrame:
    """Return the combinations of a region at which one of its entries with the fewest has the
    outcome.
    """
    cells = combinations(region, train)
    held = [met(two, "yes", None, cells, e.private) for e in entries if e.region == region]
    return cells[np.any([h for h in held if h.sum() == min(h.sum() for h in held)], axis=0)]


def nearest_point(region: Region, query: dict[str, Any], train: pd.DataFrame) -> pd.DataFrame:
    """Return the point of a region nearest to a query: its own values where they are inside."""
    point = {}
    for name in QUASI:
        inside = [
            v for v in train[name].unique() if Region({name: region[name]}).contains({name: v})
        ]
        if Region({name: region[name]}).contains(query) or pd.isna(query[name]):
            point[name] = query[name] if Region({name: region[name]}).contains(query) else inside[0]
        elif name in ("age", "born"):
            known = [v for v in inside if not pd.isna(v)]
            point[name] = min(known, key=lambda v: abs(v - query[name])) if known else None
        else:
            point[name] = inside[0]
    return pd.DataFrame([point])


EXCLUDING: list[dict[str, Any]] = [
    {"features_to_vary": ["age", "born", "city", "pay", "debt"]},
    {
        "features_to_vary": ["age", "grade", "pay", "debt"],
        "permitted_range": {"age": [19.5, 60.5], "debt": [2, 14]},
    },
    {
        "permitted_range": {
            "pay": [30, 60],
            "born": ["1981-01-01", "1990-01-01"],
            "job": ["clerk", "nurse"],
        }
    },
]


def permits(call: dict[str, Any], name: str, own: Any, value: Any) -> bool:
    """Say in plain words whether somebody with a value may be told to have another one."""
    within = call.get("permitted_range", {}).get(name)
    if within is not None and name == "job":
        return value in within
    if within is not None:
        low, high = map(pd.Timestamp, within) if name == "born" else within
        if pd.isna(value) or not low <= value <= high:
            return False
    is_same = value == own or (pd.isna(value) and pd.isna(own))
    return is_same or name in call.get("features_to_vary", [*QUASI, *PRIVATE])


def permitted_point(
    region: Region, query: dict[str, Any], train: pd.DataFrame, call: Any
) -> dict[str, Any] | None:
    """Return the point of a region nearest to a query, of those that are permitted; None where
    there is none.
    """
    point = {}
    for name in QUASI:
        ends = call.get("permitted_range", {}).get(name, [])
        known = [
            *train[name].unique(),
            query[name],
            *(map(pd.Timestamp, ends) if name == "born" else ends),
        ]
        inside = [value for value in known if Region({name: region[name]}).contains({name: value})]
        inside = sorted((v for v in inside if permits(call, name, query[name], v)), key=str)
        if not inside:
            return None
        point[name] = inside[0]
        if Region({name: region[name]}).contains(query) and permits(
            call, name, query[name], query[name]
        ):
            point[name] = query[name]
        elif name in ("age", "born") and not pd.isna(query[name]):
            numbers = [value for value in inside if not pd.isna(value)]
            point[name] = min(numbers, key=lambda v: abs(v - query[name])) if numbers else None
    return point


@pytest.mark.parametrize("call", EXCLUDING)
def test_answers_are_true_and_ask_for_no_excluded_change(
    call: dict[str, Any],
) -> None:
    train, queries = table(0), table(50).head(30)[[*QUASI, *PRIVATE]]
    answers = fitted(train).explain(queries, **call)
    assert len(answers.released) >= 10
    for entry in answers.generalized:
        query = queries.iloc[entry.query].to_dict()
        assert all(
            permits(call, name, query[name], value) for name, value in entry.released.items()
        )
        point = permitted_point(entry.region, query, train, call)
        assert two(pd.DataFrame([point]).assign(**entry.released))[0] == "yes"
        assert min(entry.recount.k_effective or 0, entry.recount.k_consistent) >= K


def test_an_answer_is_a_function_of_query_entries_and_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = table(5)
    anonymizer, queries = fitted(train), table(70).head(20)
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    encoded = Constraints(encode(queries, anonymizer.population_.encoder), {})
    sides = np.ones((len(queries), 1), dtype=bool)
    options = anonymizer.pipeline_.search
    request = CatalogueRequest(
        constraints=encoded,
        open_to=sides,
        person_of_query=np.arange(len(queries)),
        options=options,
    )
    before = find_answers(catalogue, request)
    for read in ("rows", "members", "column", "cell_of", "people", "codes", "frame"):
        monkeypatch.setattr(Population, read, None)
    again = find_answers(replace(catalogue), request)
    assert (again.entry == before.entry).all()
    assert again.points is not None
    assert before.points is not None
    pd.testing.assert_frame_equal(again.points.frame, before.points.frame)


def test_what_an_explainer_found_is_answered_truly_and_with_one_region_for_everybody_in_it() -> (
    None
):
    train = table(3, 90)
    anonymizer = fitted(train)
    regions = anonymizer.regions_of(train)
    asks, found = train[two(train) == "no"].head(12), table(30, 60)
    found = found[two(found) == "yes"].head(12).reset_index(drop=True)
    assert anonymizer.guarantee_.catalogue is not None
    parts, moved = anonymizer.guarantee_.catalogue.private.to_dict("records"), 0
    for entry, query, raw in zip(
        anonymizer.transform(found, asks),
        asks.to_dict("records"),
        found.to_dict("records"),
        strict=True,
    ):
        assert isinstance(entry, GeneralizedCounterfactual)
        assert two(nearest_point(entry.region, query, train).assign(**entry.released))[0] == "yes"
        mapped = (two(train) == "yes") & [region == entry.region for region in regions]
        everybody = train[mapped].assign(**entry.released)
        again = anonymizer.transform(everybody, pd.DataFrame([query] * len(everybody)))
        assert {each.region for each in again.released} == {entry.region}
        # Who would not get the outcome with these private values is none that could have been the
        # counterfactual.
        assert K <= len(again.released) <= (entry.recount.k_effective or 0)
        assert {each.reason for each in again.withheld} <= {"not_desired"}
        changed = {
            name
            for name in PRIVATE
            if plain(entry.released)[name] not in (plain(raw)[name], plain(query)[name])
        }
        names, told = entry.recount.moved, plain(entry.released)
        equal = [name for name in PRIVATE if told[name] == plain(query)[name]]
        assert sorted(entry.to_dict().get("unchanged", [])) == sorted(equal)
        kept = [name for name in PRIVATE if name not in names]
        assert any(all(told[n] == plain(source)[n] for n in kept) for source in [raw, *parts])
        # its own values are not moved
        assert not names or any(told[n] != plain(raw)[n] for n in PRIVATE)
        moved += len(changed) < len(PRIVATE)
    assert moved > len(found) / 2


def test_an_explainer_whose_answers_begin_at_the_query_is_not_asked() -> None:
    def explainer(_: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError

    train = table(5)
    settings: dict[str, Any] = {
        "model": two,
        "desired": "yes",
        "population": fitted(train).population_,
    }
    catalogue = PrivacyPolicy(k=K, guarantee="catalogue")
    private = protect(explainer, policy=catalogue, **settings)
    queries = train[two(train) == "no"].head(5)
    assert [*private.explain(queries)] == [*fitted(train).explain(queries)]


@pytest.mark.parametrize("model", [two, three])
def test_the_answer_has_another_outcome_than_the_query(model: Any) -> None:
    train = table(9, 90)
    answers, own = fitted(train, model, "opposite").explain(train), model(train)
    assert len(answers.released) == len(train)
    for entry in answers.released:
        inside = train[[entry.region.contains(row) for row in train.to_dict("records")]]
        swapped = model(inside.assign(**{name: entry.released[name] for name in PRIVATE}))
        assert (swapped != own[entry.query]).sum() == entry.recount.k_consistent >= K


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_answers_do_not_depend_on_batch_or_order_of_queries_or_table_or_on_blocks(
    desired: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = table(5).assign(person=np.random.default_rng(1).integers(0, 45, 70))
    anonymizer = fitted(train, two, desired)
    queries = pd.concat([train.head(12), table(70).head(12)], ignore_index=True)
    whole = [entry.to_dict() for entry in anonymizer.explain(queries)]
    order = np.random.default_rng(0).permutation(len(queries))
    turned = [entry.to_dict() for entry in anonymizer.explain(queries.iloc[order])]
    for place, i in enumerate(order):
        assert turned[place] == {**whole[i], "query": place}
        assert i % 5 or anonymizer.explain(queries.iloc[[i]])[0].to_dict() == {
            **whole[i],
            "query": 0,
        }
    # rows that the model is asked about at once
    monkeypatch.setattr("cfk_plugin.protection.answers.probe.Probe.most_rows", 8)
    monkeypatch.setattr("cfk_plugin.protection.answers.search._BLOCK", 50)
    monkeypatch.setattr("cfk_plugin.protection.catalogue.model_calls.ROWS_PER_CALL", 40)
    again = fitted(train.sample(frac=1, random_state=2, ignore_index=True), two, desired)
    assert [entry.to_dict() for entry in again.explain(queries)] == whole


def test_a_lone_answer_asks_the_model_a_few_times() -> None:
    train, queries = table(0), table(50)
    queries = queries[two(queries) == "no"].head(10)
    anonymizer = fitted(train)
    anonymizer.explain(queries.head(1))  # what is asked once for a fit
    before = anonymizer.model_.calls
    for i in range(len(queries)):
        assert anonymizer.explain(queries.iloc[[i]]).released
    assert anonymizer.model_.calls - before <= 6 * len(queries)


def test_bad_queries_cost_themselves_alone() -> None:
    train = table(8).fillna({"debt": 5.0})
    numeric = ["age", "pay", "debt"]
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(train[numeric], two(train))
    anonymizer = fitted(train, lambda rows: tree.predict(rows[numeric].astype(float)), "opposite")
    queries = train.head(6).astype(object).reset_index(drop=True)
    good = anonymizer.explain(queries)
    assert len(good.released) == 6
    for row, column, value in (
        (0, "age", "eighty"),
        (2, "city", "Atlantis"),
        (3, "pay", np.inf),
        (4, "debt", None),
    ):
        queries.loc[row, column] = value
    result = anonymizer.explain(queries)
    assert [getattr(entry, "reason", None) for entry in result] == [
        "invalid_value", None, "unknown_category", "invalid_value", "missing_value", None,
    ]  # fmt: skip
    assert (result[1], result[5]) == (good[1], good[5])
    assert len(anonymizer.explain(queries.assign(city="Atlantis")).withheld) == 6


def test_fewer_than_k_people_with_the_outcome_are_an_error() -> None:
    train = table(2)
    hardly = train[score(train) > np.sort(score(train))[-K]]
    with pytest.raises(PolicyError, match="desired outcome form no group with k = 4, so"):
        fitted(train, lambda rows: score(rows) >= score(hardly).min(), True)


def test_a_private_value_that_decides_alone_for_few_is_no_entry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only one member of the group gets the outcome with the entry's private value, so it would
    point at them.
    """
    ages = [20, 21, 22, 23, 24, 25]
    train = (
        table(0)
        .head(1)
        .loc[[0] * 6]
        .assign(age=ages, pay=range(10, 16), debt=1.0)
        .reset_index(drop=True)
    )
    anonymizer = fitted(
        train, lambda rows: (rows["pay"] - rows["age"] == -10).to_numpy(), True, k=3
    )
    assert len(set(anonymizer.regions_of(train))) == 2
    assert (
        "6 of 6 people who could be a counterfactual are in groups without an entry" in caplog.text
    )
    assert caplog.records[-1].levelname == "WARNING"
    assert "A smaller k, fewer quasi-identifiers or a lower min_pureness" in caplog.text
    queries = train.assign(pay=train["pay"] + 1)
    assert {entry.reason for entry in anonymizer.explain(queries).withheld} == {"infeasible"}


def test_few_people_in_groups_without_an_entry_are_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Their groups have no answer of their own, and people get those of other groups."""
    caplog.set_level(logging.INFO)
    train = table(0).head(1).loc[[0] * 18].reset_index(drop=True)
    train = train.assign(age=[*range(20, 32), *range(60, 66)], debt=1.0)
    train["pay"] = train["age"] - 10
    fitted(
        train,
        lambda rows: ((rows["age"] < 40) | (rows["pay"] - rows["age"] == -10)).to_numpy(),
        True,
        k=3,
    )
    (record,) = [each for each in caplog.records if "without an entry" in each.getMessage()]
    assert record.levelname == "INFO"
    assert record.getMessage().startswith("6 of 18 people who could be a counterfactual")


def test_a_failing_model_withholds_everything() -> None:
    broken = [False]

    def model(rows: pd.DataFrame) -> Any:
        if broken[0]:
            raise ValueError(str(rows))
        return two(rows)

    anonymizer = fitted(table(4), model, "opposite")
    broken[0] = True
    assert [entry.reason for entry in anonymizer.explain(table(4).head(3)).withheld] == [
        "model_failed"
    ] * 3
    with pytest.raises(ModelError):
        fitted(table(4), model, "opposite")


def test_explaining_without_a_catalogue_is_refused() -> None:
    with pytest.raises(NotFittedError):
        KAnonymizer().explain(table(1))
    anonymizer = fitted(table(1), guarantee="lookup")
    with pytest.raises(PolicyError, match="catalogue"):
        anonymizer.explain(table(1).head(2))


def test_a_group_offers_a_limited_number_of_private_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, replace(EVERYTHING, centers_per_group=2))
    train = table(5)
    answers = fitted(train).transform(train[two(train) == "yes"]).released
    offered = pd.Series([(e.region, tuple(e.released.values())) for e in answers])
    assert offered.drop_duplicates().map(lambda entry: entry[0]).value_counts().max() == 2


def test_schema_without_private_attributes() -> None:
    train = table(5)[["age", "city"]]
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "city"])
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee="catalogue"))
    result = anonymizer.fit(population, model=lambda rows: rows["age"] > 40, desired=True).explain(
        train[train["age"] <= 40].head(5)
    )
    assert [dict(entry.released) for entry in result.released] == [{}] * 5


def test_shows_counts_alone_and_refuses_pickle() -> None:
    guarantee = fitted(table(5)).guarantee_
    groups = len(guarantee.partition.regions)
    assert (
        repr(guarantee.catalogue)
        == f"Catalogue({len(guarantee.catalogue)} entries, {groups} groups)"
    )
    with pytest.raises(InputError, match="pickle"):
        pickle.dumps(guarantee.catalogue)
