"""DPC as published tells neighbouring tables apart, through one counterfactual and far beyond the
epsilon it claims.

Both tables have 19,999 equal rows and one more: the only person with the rare outcome, of the north
ward in one table and of the south ward in the other. The model is the same in both and was fitted
on public rows. The adversary asks for one counterfactual of one query and bets on the ward that it
shows. With an epsilon of 0.025 a bet on the north could come true in at most e^0.025 = 1.025 times
as many runs in one world as in the other.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from cfk_plugin import Attribute, Population, Schema
from cfk_plugin.audit import epsilon_from_scores
from cfk_plugin.dp import PublicDomain, PublicEncoder
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_recourse.dpc import DPC

pytestmark = pytest.mark.slow

CLAIMED = 0.025
N, RUNS = 20_000, 60
DECLARED = {"ward": ["north", "south", "none"], "test": ["pos", "neg"], "sex": ["f", "m"]}
PUBLIC = pd.DataFrame(
    [
        {"ward": w, "test": t, "sex": "f", "age": 50}
        for w, t in product(["north", "south"], ["pos", "neg"])
    ]
)
QUERY = pd.DataFrame([{"ward": "none", "test": "pos", "sex": "m", "age": 100}])


def world(ward: str) -> Population:
    others = PUBLIC.iloc[np.resize(np.arange(len(PUBLIC)), N - 1)].assign(outcome="common")
    person = PUBLIC.head(1).assign(ward=ward, outcome="rare")
    rows = pd.concat([others, person], ignore_index=True)
    columns = {name: Attribute(categories=values) for name, values in DECLARED.items()}
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=["age"],
        target="outcome",
        nullable=[],
        columns={"age": Attribute(bounds=(0, 100)), **columns},
    )
    return Population.from_frame(rows, schema)


def epsilon_at_least(right: int, wrong: int, runs: int) -> float:
    """Return a lower bound on epsilon that holds with 95 % confidence.

    `right` counts a bet on the north in its own world and `wrong` the same bet in the other world;
    the bet was fixed before the runs. Each rate is on the wrong side of its end of the interval in
    2.5 % of cases.
    """
    return float(
        np.log(max(clopper_pearson(right, runs).low, 1e-12) / clopper_pearson(wrong, runs).high)
    )


def test_counterfactual_refutes_claimed_epsilon() -> None:
    """A bet on the ward that one counterfactual shows comes true too often."""
    worlds = {ward: world(ward) for ward in ("north", "south")}
    encoder = PublicEncoder(PublicDomain.of(worlds["north"]))
    outcomes = np.where(PUBLIC["test"] == "pos", "rare", "common")
    model = make_pipeline(encoder, LogisticRegression(C=100)).fit(PUBLIC, outcomes)

    def shown(ward: str, seed: int) -> bool:
        method = DPC(CLAIMED, hidden=(16, 8), batch_size=None, rate=0.03, seed=seed)
        return bool(
            method.fit(worlds[ward], model, "rare").generate(QUERY)["ward"].item() == "north"
        )

    north = [shown("north", seed) for seed in range(RUNS)]
    south = [shown("south", RUNS + seed) for seed in range(RUNS)]
    bound = epsilon_at_least(sum(north), sum(south), RUNS)
    print(f"claimed {CLAIMED}, at least {bound:.2f}: north {sum(north)} and {sum(south)} of {RUNS}")
    assert bound > 40 * CLAIMED
    audited = epsilon_from_scores(np.array(north, dtype=float), np.array(south, dtype=float))
    # the audit chooses its bet on half of the runs and bounds with the other
    assert audited.epsilon > 20 * CLAIMED
    # The same world in both places: the bound claims nothing.
    half = RUNS // 2
    assert epsilon_at_least(sum(north[:half]), sum(north[half:]), half) <= 0
