"""What answers tell of who was trained on: reverted rows a lot, rows and regions no more than the bare outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import PrivacyPolicy
from cfk_plugin.audit.membership import HeomSum, Parts, membership
from cfk_plugin.audit.result import Rate, Roc, measure_roc, side_by_side
from cfk_plugin.audit.targets import (
    ProtectedOwner,
    PrototypeOwner,
    RawOwner,
    Sample,
    Target,
    compare,
    full_depth_forest,
    measured_schema,
    standard_owners,
)
from overfitted import QUASI, forest, nearest, people
from tables import read

EVERYBODY = people(2400)
MODEL = forest(EVERYBODY)


def owner(name: str) -> Target:
    if name == "raw":
        return RawOwner(name, full_depth_forest(EVERYBODY.X), nearest)
    if name in ("dp", "dp-reverted"):
        schema = measured_schema(EVERYBODY, QUASI)
        return PrototypeOwner(name, MODEL, schema, revert=name != "dp", rows=4_000, repeatable=True)
    catalogue = name == "catalogue"
    rules = PrivacyPolicy(k=5, guarantee="catalogue" if catalogue else "reciprocal")
    return ProtectedOwner(name, MODEL, None if catalogue else nearest, QUASI, rules=rules)


def area(one: Target) -> Rate:
    attack = "membership_cfd"
    found = membership(one, EVERYBODY, n_train=600, attacked=600, attacks=[attack])[attack].main
    assert found.n > 450
    return found


def test_rows_that_are_moved_to_the_border_of_an_overfitted_model_betray_members() -> None:
    assert area(owner("dp-reverted")).low > 0.5


def test_differentially_private_rows_do_not() -> None:
    found = area(owner("dp"))
    assert found.low < 0.5 < found.high


def both(name: str, n_train: int, *, with_any_outcome: bool, seed: int = 0) -> Roc:
    """Measure distances of everybody whose true outcome is undesired; or of whom the model says so as well."""
    parts = Parts.cut(EVERYBODY, n_train, seed=seed)
    service, apart = owner(name).train(parts.table, seed), HeomSum.fit(parts.pool.X)

    def distances(side: Sample) -> Any:
        queries = side.X[~side.y if with_any_outcome else ~side.y & ~service.desired(side.X)]
        answers = service.explain(queries)
        assert answers.found.all()
        return apart(queries, answers.rows)

    strangers = Sample(pd.concat([parts.others.X, parts.pool.X]), np.append(parts.others.y, parts.pool.y))
    return measure_roc(distances(parts.table), distances(strangers))


@pytest.mark.parametrize("name", ["raw", "reciprocal", "catalogue"])
def test_rows_and_regions_say_nothing_beside_the_outcome(name: str) -> None:
    """Over several splits: the interval of one knows that people were drawn, and not that they were divided."""
    found = [both(name, 200, with_any_outcome=True, seed=seed).auc.value for seed in range(4)]
    apart = 3.18 * np.std(found, ddof=1) / 2  # half of a 95 % interval of Student's t, of four values
    assert abs(np.mean(found) - 0.5) < apart < 0.1


def test_but_the_outcome_itself_says_something_beside_them() -> None:
    """Who is refused among people who are not has been learnt by heart: members are nearer to desired rows."""
    assert both("raw", 600, with_any_outcome=False).auc.high < 0.5


@pytest.mark.slow
def test_on_german_reverted_rows_betray_members_and_protected_ones_do_not(shared_data: Path) -> None:
    frame, about = read("german", shared_data)
    sample = Sample(frame[about["features"]], (frame[about["target"]] == about["desired_outcome"]).to_numpy())
    model = full_depth_forest(sample.X)
    owners = standard_owners(sample, model, {"nearest": nearest}, about["quasi_identifiers"], repeatable=True)
    chosen = [one for one in owners if one.name in ("reciprocal", "dp", "dp-reverted")]
    table = side_by_side(compare(chosen, sample, membership, n_train=300, attacks=["membership_cfd"]))
    low, high = (table.set_index("subject")[f"main_{end}"] for end in ("low", "high"))
    assert low["dp-reverted"] > 0.5
    for name in ("reciprocal", "dp"):
        assert low[name] < 0.5 < high[name]
