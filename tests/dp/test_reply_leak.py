"""What a model's bare reply tells of who trained it: no explanation, however private, makes up for
that.

People whom the model would accept are added to the training table one at a time, with the wrong
outcome. A model that knows its people by heart then replies "rejected" to them, and to hardly any
of them otherwise. The reply comes before any explanation does, so that an epsilon of explanations
says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from cfk_plugin.audit import epsilon_from_scores
from cfk_plugin.metrics import clopper_pearson
from public_tables import read

pytestmark = pytest.mark.slow

TRAIN, OTHERS, CANARIES = 1_000, 1_000, 40
People = tuple[pd.DataFrame, NDArray[np.bool_]]


def adult(request: pytest.FixtureRequest) -> People:
    frame, about = read("adult", request.getfixturevalue("shared_data"))
    drawn = frame.sample(TRAIN + OTHERS, random_state=0).reset_index(drop=True)
    return drawn[about["features"]], (drawn[about["target"]] == about["desired_outcome"]).to_numpy()


def made(request: pytest.FixtureRequest) -> People:
    random = np.random.default_rng(0)
    features = pd.DataFrame(
        {name: random.normal(size=TRAIN + OTHERS).round(2) for name in "abcdef"}
    )
    return features, (
        features["a"] + features["b"] + 0.5 * random.normal(size=len(features)) > 0
    ).to_numpy()


def rejected(
    X: NDArray[np.float64], y: NDArray[np.bool_], **settings: object
) -> list[NDArray[np.bool_]]:
    """Say of every canary whether it is rejected when it was trained on with the wrong outcome, and
    when it was not.
    """

    def forest(
        rows: NDArray[np.int64], outcomes: NDArray[np.bool_], seed: int
    ) -> RandomForestClassifier:
        return RandomForestClassifier(15, random_state=seed, n_jobs=1, **settings).fit(
            X[rows], outcomes
        )

    table, others = np.arange(TRAIN), np.arange(TRAIN, len(X))
    canaries = others[forest(table, y[table], 0).predict(X[others])][:CANARIES]
    replies = []
    for at, canary in enumerate(canaries):
        inside = forest(np.append(table, canary), np.append(y[table], False), 2 * at + 1)
        outside = forest(table, y[table], 2 * at + 2)
        replies.append([not model.predict(X[[canary]])[0] for model in (inside, outside)])
    assert len(replies) == CANARIES
    return list(np.array(replies).T)


@pytest.mark.parametrize("people", [adult, made])
def test_the_bare_reply_of_an_overfitted_model_gives_a_mislabelled_person_away(
    people: Callable[[pytest.FixtureRequest], People], request: pytest.FixtureRequest
) -> None:
    features, y = people(request)
    X = pd.get_dummies(features).to_numpy(dtype=float)
    inside, outside = rejected(X, y, bootstrap=False)  # of full depth
    found = epsilon_from_scores(inside.astype(float), outside.astype(float))
    share = clopper_pearson(int(inside.sum()), CANARIES)
    print(
        f"rejected with {inside.mean():.3f} {share}, without {outside.mean():.3f}; epsilon at least {found.epsilon:.2f}"
    )
    assert share.low > 0.85
    assert clopper_pearson(int(outside.sum()), CANARIES).high < 0.35
    assert found.epsilon > 0.5  # five times an epsilon of 0.1 that the explanations may have
    # Leaves of twenty people know nobody by heart.
    inside, outside = rejected(X, y, min_samples_leaf=20)
    print(f"leaves of twenty: rejected with {inside.mean():.3f}, without {outside.mean():.3f}")
    assert inside.mean() - outside.mean() < 0.3
