"""Regions of too many combinations to ask about: what their answers keep, and what a bundle says of
people inside.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import GeneralizedCounterfactual, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.sealing import read_bundle, write_bundle
from cfk_plugin.protection.answers.request import CatalogueRequest
from cfk_plugin.protection.answers.search import find_answers
from cfk_plugin.protection.catalogue.catalogue import Catalogue

QUASI = ["height", "weight", "income"]
PRIVATE = ["pay", "debt", "job"]
K, KEY, CELLS = 4, b"a key", 10_000


def people(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    table = pd.DataFrame({name: random.normal(size=n).round(5) for name in QUASI})
    return table.assign(
        pay=random.integers(0, 60, n),
        debt=random.normal(10, 4, n).round(1),
        job=random.choice(["clerk", "nurse"], n),
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    bonus = 4 * rows["height"].to_numpy() + 5 * (rows["job"] == "nurse").to_numpy()
    return np.where(rows["pay"].to_numpy() - rows["debt"].to_numpy() + bonus > 25, "yes", "no")


def fitted(train: pd.DataFrame, desired: str = "yes", **policy: Any) -> KAnonymizer:
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=QUASI), key=KEY
    )
    return KAnonymizer(policy=PrivacyPolicy(k=K, **policy)).fit(
        population, model=model, desired=desired
    )


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    return people(240, 0)


@pytest.fixture(scope="module")
def queries() -> pd.DataFrame:
    asked = people(80, 1)
    return asked[model(asked) == "no"].head(30).reset_index(drop=True)


@pytest.fixture(scope="module")
def anonymizer(train: pd.DataFrame) -> KAnonymizer:
    return fitted(train)


@pytest.fixture(scope="module")
def answers(anonymizer: KAnonymizer, queries: pd.DataFrame) -> list[GeneralizedCounterfactual]:
    return [*anonymizer.explain(queries).generalized]


@pytest.fixture(scope="module")
def bundle(anonymizer: KAnonymizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "catalogue.cfk"
    anonymizer.seal(path)
    return path


def inside(entry: Any, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[[entry.region.contains(row) for row in rows[QUASI].to_dict("records")]]


def catalogue_of(anonymizer: KAnonymizer) -> Catalogue:
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    return catalogue


def test_nearly_all_answers_are_in_large_regions_and_keep_own_values(
    answers: list[GeneralizedCounterfactual], train: pd.DataFrame, queries: pd.DataFrame
) -> None:
    sizes = [
        np.prod([train[n].between(e.region[n].low, e.region[n].high).sum() for n in QUASI])
        for e in answers
    ]  # type: ignore[union-attr]
    kept = [[e.released[name] == queries.loc[e.query, name] for name in PRIVATE] for e in answers]
    assert len(answers) == len(queries)
    assert np.mean(np.array(sizes) > CELLS) > 0.9
    assert np.mean(kept) > 0.5


def test_k_members_keep_the_outcome(
    anonymizer: KAnonymizer,
    answers: list[GeneralizedCounterfactual],
    train: pd.DataFrame,
    queries: pd.DataFrame,
) -> None:
    regions, desired = anonymizer.regions_of(train), model(train) == "yes"
    for entry in answers:
        mapped = desired & [region == entry.region for region in regions]
        held, around = model(train[mapped].assign(**entry.released)) == "yes", inside(entry, train)
        assert held.sum() >= K
        assert mapped.sum() == entry.recount.k_effective
        assert (model(around) == "yes").sum() == entry.recount.k_desired
        assert (model(around.assign(**entry.released)) == "yes").sum() == entry.recount.k_consistent
        own = queries.loc[entry.query, QUASI]
        nearest = {
            n: own[n] if entry.region.contains({**around.iloc[0], n: own[n]}) else None
            for n in QUASI
        }
        for name in (name for name in QUASI if nearest[name] is None):
            nearest[name] = min(
                train[name][train[name].between(*_ends(entry, name))],
                key=lambda v: abs(v - own[name]),
            )
        assert model(pd.DataFrame([{**nearest, **entry.released}])) == ["yes"]
        assert entry.certificate.pureness_low >= 0.8


def _ends(entry: Any, name: str) -> tuple[float, float]:
    return entry.region[name].low, entry.region[name].high


def sets_of(bundle: Path) -> dict[int, list[dict[str, np.ndarray]]]:
    """Return the values that a bundle says people inside of each region have, set by set."""
    _, arrays = read_bundle(bundle, KEY)
    values, of = arrays["catalogue.inside"], arrays["catalogue.inside_of"]
    opened, found = Population.open(bundle, key=KEY), dict[int, list[dict[str, np.ndarray]]]()
    for region, number in np.unique(of, axis=0).tolist():
        columns = zip(opened.schema.quasi_identifiers, values[of[:, 1] == number].T, strict=True)
        found.setdefault(region, []).append(
            {n: opened.domains[n].values[np.unique(codes)] for n, codes in columns}
        )
    return found


def region_numbers(anonymizer: KAnonymizer) -> list[Any]:
    """Return the regions in the order in which a bundle has them."""
    catalogue = catalogue_of(anonymizer)
    place = dict(zip(catalogue.region_of_entry.tolist(), catalogue.group.tolist(), strict=True))
    return [catalogue.partition.regions[place[at]] for at in sorted(place)]


def test_no_combination_of_values_of_people_inside_is_lost(
    anonymizer: KAnonymizer,
    answers: list[GeneralizedCounterfactual],
    bundle: Path,
    train: pd.DataFrame,
) -> None:
    sets, numbers, catalogue = sets_of(bundle), region_numbers(anonymizer), catalogue_of(anonymizer)
    for entry in answers:
        at = numbers.index(entry.region)
        if at not in sets:
            continue
        cells = pd.concat(
            [pd.DataFrame(itertools.product(*axes.values()), columns=[*axes]) for axes in sets[at]]
        )
        entries = catalogue.private[catalogue.region_of_entry == at].to_dict("records")
        kept = model(cells.assign(**entry.released)) == "yes"
        assert any(not ((model(cells.assign(**one)) == "yes") & ~kept).any() for one in entries)


def test_a_bundle_says_of_people_inside_neither_outcomes_nor_which_values_go_together(
    anonymizer: KAnonymizer, bundle: Path, train: pd.DataFrame
) -> None:
    """Everybody with another outcome who is inside is in one set, beside members; columns are
    sorted values.
    """
    sets, numbers = sets_of(bundle), region_numbers(anonymizer)
    people_of: dict[int, set[int]] = {at: set() for at in sets}
    for at, some in sets.items():
        for axes in some:
            there = train[np.all([train[n].isin(axis) for n, axis in axes.items()], axis=0)]
            assert len(there) * K <= np.prod([*map(len, axes.values())])
            people_of[at] |= {*there.index}
    others = train.index[model(train) == "no"]
    around = {
        i for i in others for at in sets if numbers[at].contains(train.loc[i, QUASI].to_dict())
    }
    assert around == {i for found in people_of.values() for i in found if i in {*others}}
    assert sum(map(len, people_of.values())) == len(set.union(*people_of.values()))
    around_each = [
        train.index[[numbers[at].contains(row) for row in train[QUASI].to_dict("records")]]
        for at in sets
    ]
    alike = [
        [np.mean(~np.isin([*some], others)) for some in each]
        for each in (people_of.values(), around_each)
    ]
    # as many in sets as inside have the outcome
    assert np.mean(alike[0]) == pytest.approx(np.mean(alike[1]), abs=0.03)
    _, arrays = read_bundle(bundle, KEY)
    values, of = arrays["catalogue.inside"], arrays["catalogue.inside_of"]
    for number in np.unique(of[:, 1]):
        for column in values[of[:, 1] == number].T:
            assert (np.resize(np.unique(column), len(column)) == column).all()


def test_a_bundle_answers_alike_and_one_without_the_values_moves_nothing(
    anonymizer: KAnonymizer, bundle: Path, queries: pd.DataFrame, tmp_path: Path
) -> None:
    own, opened = anonymizer.explain(queries).to_json(), Population.open(bundle, key=KEY)
    assert KAnonymizer().fit(opened, model=model, desired="yes").explain(queries).to_json() == own
    facts, arrays = read_bundle(bundle, KEY)
    before = {n: a for n, a in arrays.items() if "inside" not in n}  # as it was sealed before
    write_bundle(tmp_path / "before.cfk", facts, before, KEY)
    server = KAnonymizer().fit(
        Population.open(tmp_path / "before.cfk", key=KEY), model=model, desired="yes"
    )
    large = set(sets_of(bundle))
    given = [
        e
        for e in server.explain(queries).generalized
        if region_numbers(server).index(e.region) in large
    ]
    offered = [*map(tuple, catalogue_of(server).private[PRIVATE].to_numpy())]
    assert given
    assert all(tuple(entry.released[name] for name in PRIVATE) in offered for entry in given)


def test_the_order_of_rows_does_not_matter(
    train: pd.DataFrame, queries: pd.DataFrame, answers: list[GeneralizedCounterfactual]
) -> None:
    again = fitted(train.sample(frac=1, random_state=3, ignore_index=True)).explain(queries)
    assert [entry.to_dict() for entry in again.generalized] == [
        entry.to_dict() for entry in answers
    ]


def test_answers_are_a_function_of_query_catalogue_and_model(
    anonymizer: KAnonymizer,
    answers: list[GeneralizedCounterfactual],
    queries: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalogue = catalogue_of(anonymizer)
    asked = Constraints(encode(queries, anonymizer.population_.encoder), {})
    for read in (
        "rows",
        "members",
        "column",
        "cell_of",
        "cells_inside",
        "people",
        "codes",
        "frame",
    ):
        monkeypatch.setattr(Population, read, None)
    request = CatalogueRequest(
        constraints=asked,
        open_to=np.ones((len(queries), 1), dtype=bool),
        person_of_query=np.arange(len(queries)),
        options=anonymizer.pipeline_.search,
    )
    again = find_answers(replace(catalogue), request)
    assert again.points is not None
    given = pd.DataFrame([entry.released for entry in answers])
    pd.testing.assert_frame_equal(again.points.frame[PRIVATE], given[PRIVATE], check_dtype=False)


def test_everybody_in_a_group_gets_its_region_behind_an_explainer(
    anonymizer: KAnonymizer, train: pd.DataFrame
) -> None:
    regions, desired, asks = (
        anonymizer.regions_of(train),
        model(train) == "yes",
        train[model(train) == "no"].head(8),
    )
    entries = anonymizer.transform(
        people(80, 2).loc[lambda rows: model(rows) == "yes"].head(8), asks
    )
    for entry, (_, query) in zip(entries, asks.iterrows(), strict=True):
        everybody = train[desired & [region == entry.region for region in regions]].assign(
            **entry.released
        )
        again = anonymizer.transform(everybody, pd.DataFrame([query] * len(everybody)))
        assert {each.region for each in again.released} == {entry.region}
        assert K <= len(again.released) <= entry.recount.k_effective


def test_values_that_would_say_which_go_together_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few people have the second value, all of them the outcome: inside is a line of them."""
    monkeypatch.setattr("cfk_plugin.protection.catalogue.required_combinations.MOST_CELLS", 50)
    random = np.random.default_rng(0)
    train = pd.DataFrame(
        {
            "born": np.arange(1000),
            "left": random.random(1000) < 0.05,
            "pay": random.integers(9, 60, 1000),
        }
    )
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["born", "left"]), key=KEY
    )
    found = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(
        population, model=lambda rows: (rows["left"] & (rows["pay"] > 5)).to_numpy(), desired=True
    )
    catalogue = catalogue_of(found)
    assert catalogue.is_wide(np.arange(len(catalogue))).mean() > 0.5
    assert not catalogue.inside


def test_nothing_is_moved_and_the_log_says_so_where_everybody_is_in_a_group(
    train: pd.DataFrame, queries: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    anonymizer = fitted(train, "opposite")
    assert not catalogue_of(anonymizer).inside
    assert anonymizer.explain(queries).released
    assert "so their answers are not moved" in caplog.text
