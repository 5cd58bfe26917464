"""Protecting an explainer or counterfactuals: answers belong to queries and to nothing else."""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.data.tables import Counterfactual
from cfk_plugin.errors import PolicyError
from worlds import World

GUARANTEES = ["lookup", "catalogue"]


def neighbour_of(world: World) -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(world.table[[*world.strangers]], world.model, world.desired)


def private(world: World, explainer: Any, guarantee: Any = "lookup", **settings: Any) -> Any:
    policy = PrivacyPolicy(k=world.k, guarantee=guarantee)
    return world.protect(explainer, **{"policy": policy, **settings})


def contents(explanations: Any) -> list[Any]:
    """Return explanations as JSON without the numbers of their queries."""
    return [{**entry.to_dict(), "query": 0} for entry in explanations]


# --- progress -------------------------------------------------------------------------------------


class CallerError(Exception):
    """What a caller's own code raises."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_error_in_progress_reaches_the_caller(guarantee: str, residents: World) -> None:
    """It is not mistaken for a failure of the protector, which would withhold every answer."""

    def stop(done: int, total: int) -> None:
        raise CallerError

    explainer = private(residents, neighbour_of(residents), guarantee)
    with pytest.raises(CallerError):
        explainer.explain(residents.refused, progress=stop)
    assert explainer.explain(residents.refused).released


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_progress_rises_to_the_total(method: str, residents: World) -> None:
    """Answers stay in the order of the queries."""
    reports: list[tuple[int, int]] = []
    explainer = private(residents, neighbour_of(residents), method=method)
    explanations = explainer.explain(
        residents.refused, progress=lambda *report: reports.append(report)
    )
    assert [entry.query for entry in explanations] == [*range(8)]
    assert {entry.certificate.method for entry in explanations.generalized} == {method}
    assert reports == sorted(reports)
    assert reports[-1][0] == reports[-1][1] > 0


# --- queries and their answers --------------------------------------------------------------------


def test_counterfactuals_may_be_objects(residents: World) -> None:
    """Each names its query."""
    rows = residents.accepted.to_dict("records")
    explanations = residents.lookup.transform(
        [Counterfactual(7, rows[2]), Counterfactual(2, rows[3])]
    )
    assert [entry.query for entry in explanations] == [7, 2]
    assert contents(explanations) == contents(residents.lookup.transform(residents.accepted[2:4]))


@pytest.mark.parametrize("desired", ["yes", lambda labels: labels == "yes", "opposite"])
def test_lone_request_equals_batch(desired: Any, residents: World) -> None:
    """A batch of many is computed in another way than a few."""
    counterfactuals = pd.concat([residents.native, residents.accepted] * 3, ignore_index=True)
    counterfactuals.loc[::3, "salary"] += 1
    factuals = pd.concat([residents.refused] * 6, ignore_index=True)
    anonymizer = residents.fit(guarantee="lookup", min_pureness=0, desired=desired)
    batch = anonymizer.transform(counterfactuals, factuals)
    assert batch.released
    for i in range(16):
        single = anonymizer.transform(counterfactuals.iloc[[i]], factuals.iloc[[i]])
        assert contents(single) == contents(batch[i : i + 1])


def test_repeated_query_asks_no_model(residents: World) -> None:
    """All labels that the model gave are remembered."""
    n_calls = Counter[str]()

    def model(rows: pd.DataFrame) -> Any:
        n_calls["model"] += 1
        return residents.model.predict(rows)

    anonymizer = residents.fit(model=model)
    explanations = anonymizer.explain(residents.refused)
    n_calls.clear()
    assert anonymizer.explain(residents.refused) == explanations
    assert not n_calls


class Careless:
    """An explainer that changes its argument and the global random states."""

    instance_based = True

    def __init__(self, world: World) -> None:
        self.neighbour = neighbour_of(world)

    def explain(self, rows: pd.DataFrame) -> pd.DataFrame:
        answers = self.neighbour.explain(rows)
        random.random()
        np.random.seed(1)  # noqa: NPY002
        rows.loc[:, "age"] = 0
        return answers


def random_states() -> str:
    with np.printoptions(threshold=1_000):
        return f"{random.getstate()} {np.random.get_state()}"  # noqa: NPY002


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_nothing_of_the_caller_changes(
    guarantee: str,
    residents: World,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tables, settings and random states stay as they are, and the terminal stays empty."""
    caplog.set_level(logging.INFO)
    before = random_states()
    queries = residents.refused.copy()
    table = residents.table.copy()
    policy = PrivacyPolicy(k=residents.k, guarantee=guarantee)
    settings = KAnonymizer(policy=policy, random_state=9)
    one, two = (
        private(residents, Careless(residents), policy=None, method=settings) for _ in range(2)
    )
    assert one.explain(queries) == two.explain(queries) == two(queries)
    assert random_states() == before
    pd.testing.assert_frame_equal(queries, residents.refused)
    pd.testing.assert_frame_equal(table, residents.table)
    assert not hasattr(settings, "policy_")
    assert capsys.readouterr() == ("", "")
    messages = [record.message for record in caplog.records if record.name.startswith("cfk")]
    # `fit` must say this of a table.
    assert [text for text in messages if "in groups without an entry" not in text] == []


# --- settings -------------------------------------------------------------------------------------


def test_fit_replaces_the_one_before(residents: World) -> None:
    """Nothing of another model is left."""
    anonymizer = residents.fit(guarantee="lookup")
    before = anonymizer.transform(residents.accepted)
    bands = lambda rows: np.digitize(rows["salary"], [40, 65])  # noqa: E731
    anonymizer.fit(residents.population, bands, 2)
    assert anonymizer.transform(residents.accepted) != before
    anonymizer.fit(residents.population, residents.model, "yes")
    assert anonymizer.transform(residents.accepted) == before


@pytest.mark.parametrize(
    "setting", [{"policy": PrivacyPolicy()}, {"k": 5}, {"plugins": [object()]}]
)
def test_anonymizer_has_its_own_settings(setting: dict[str, Any], residents: World) -> None:
    """They cannot be given twice."""
    (name,) = setting
    settings = {"policy": None, "method": KAnonymizer(policy=PrivacyPolicy()), **setting}
    with pytest.raises(PolicyError, match=name):
        private(residents, None, **settings)


def test_no_persons_label_is_shown(residents: World) -> None:
    """The certificate names the outcome that was asked for, and not the column of the table."""
    outcomes = np.where(residents.model.predict(residents.table) == "yes", "granted", "refused")
    train = residents.table.assign(outcome=outcomes)
    world = World(
        train,
        residents.strangers,
        residents.model,
        "yes",
        {**residents.roles, "target": "outcome"},
        residents.k,
    )
    explanations = world.lookup.transform(train.head(10))
    frame = explanations.to_frame(text=True)
    assert {*residents.strangers} <= {*frame}
    assert "granted" not in explanations.to_json() + frame.to_csv()
