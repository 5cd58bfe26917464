"""The benchmark of survival, next to counts by hand on a made-up table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.data.region import Part, part_contains
from survival import Checkpoints, Trial, measure, trial

CITIES = ["Antwerp", "Brussels", "Ghent"]
WHOLE_NUMBERS = range(101)  # all that a column of the table may hold


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Return a trial of logistic regression on 400 made-up people."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 60, 400),
            "city": random.choice(CITIES, 400),
            "pay": random.integers(0, 101, 400),
            "hours": random.integers(10, 41, 400),
        }
    )
    score = frame["pay"] + frame["hours"] + 10 * (frame["city"] == "Ghent")
    is_good = score + random.normal(0, 15, 400) > 85
    frame["loan"] = is_good.map({True: "yes", False: "no"})
    about = {
        "columns": [
            {"name": name, "type": "categorical" if name in ("city", "loan") else "numeric"}
            for name in frame
        ],
        "features": ["age", "city", "pay", "hours"],
        "quasi_identifiers": ["age", "city"],
        "target": "loan",
        "desired_outcome": "yes",
    }
    folder = tmp_path_factory.mktemp("data")
    frame.to_csv(folder / "loans.csv.gz", index=False)
    (folder / "loans.json").write_text(json.dumps(about), encoding="utf-8")
    return trial("loans", "logistic", folder, people=15)


def nearest_by_hand(part: Part, value: Any) -> Any:
    """Return the nearest of all values that a part holds; the first city where another is held."""
    if isinstance(value, str):
        inside = [city for city in CITIES if part_contains(part, city)]
        return value if value in inside else inside[0]
    inside = [number for number in WHOLE_NUMBERS if part_contains(part, number)]
    return min(inside, key=lambda number: abs(number - value))


@pytest.mark.parametrize("method", ["margin-0", "default", "later"])
def test_survival_is_the_count_of_answers_that_judges_accept(one: Trial, method: str) -> None:
    margin = {"margin-0": 0.0}.get(method, "auto")
    later = {"later": one.choosing}.get(method, [])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(margin=margin))
    anonymizer.fit(one.case.population, one.case.model, one.case.desired, later=later)
    entries = anonymizer.explain(one.case.queries).generalized
    accepted = []  # one list per answer
    for entry in entries:
        person = one.case.queries.iloc[entry.query].to_dict()
        point = {name: nearest_by_hand(entry.parts()[name], person[name]) for name in person}
        row = pd.DataFrame([point])
        accepted.append([model.predict(row)[0] == "yes" for model in one.judging])
    figures = measure(one, method)
    assert figures.answered == len(entries) / 15
    assert figures.survival == sum(map(sum, accepted)) / (8 * len(entries))
    assert figures.survival_all == sum(map(all, accepted)) / len(entries)
    assert 0 < figures.survival_all < figures.survival < 1


def test_distance_and_changes_are_beside_the_nearest_row(one: Trial) -> None:
    figures = measure(one, "nearest")
    changes = (one.case.queries != one.case.counterfactuals).sum(axis=1)
    assert figures.distance == pytest.approx(1)
    assert figures.changes_mean == changes.mean()
    assert figures.changes_median == changes.median()


@pytest.mark.parametrize("method", ["nearest", "later"])
def test_judges_do_not_change_the_answers(one: Trial, method: str) -> None:
    class Refusing:
        def predict(self, rows: pd.DataFrame) -> np.ndarray:
            return np.full(len(rows), "no")

    figures = measure(one, method)
    refused = measure(replace(one, judging=[Refusing()]), method)
    assert (refused.survival, refused.survival_all) == (0, 0)
    assert (refused.true, refused.distance) == (figures.true, figures.distance)


def test_models_that_choose_are_not_those_that_judge(one: Trial) -> None:
    rows = one.case.queries
    opinions = [tuple(model.predict_proba(rows)[:, 0]) for model in [*one.choosing, *one.judging]]
    assert len(set(opinions)) == 16


def test_figures_are_kept_once_for_each_method(one: Trial, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    figures = measure(one, "nearest")
    Checkpoints(str(path)).add("loans logistic nearest", figures)
    kept = Checkpoints(str(path))
    assert kept.has("loans logistic nearest")
    assert not kept.has("loans logistic margin-0")
    assert json.loads(path.read_text("utf-8"))["loans logistic nearest"]["people"] == 15
