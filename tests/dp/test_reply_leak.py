"""What a model's bare reply tells of who trained it: no explanation, however private, makes up for
that.

People whom the model would accept are added to the training table one at a time, with the wrong
outcome. A model that knows its people by heart then replies "rejected" to them, and to hardly any
of them otherwise. The reply comes before any explanation does, so that an epsilon of explanations
says nothing of it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from cfk_plugin.audit import epsilon_from_scores
from cfk_plugin.metrics import clopper_pearson

pytestmark = pytest.mark.slow

TRAIN, OTHERS, CANARIES = 500, 500, 40


def people() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
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


def test_bare_reply_gives_a_mislabelled_person_away() -> None:
    """A model of full depth is overfitted; leaves of twenty people know no one by heart."""
    features, y = people()
    X = features.to_numpy(dtype=float)
    inside, outside = rejected(X, y, bootstrap=False)  # of full depth
    bound = epsilon_from_scores(inside.astype(float), outside.astype(float))
    assert clopper_pearson(int(inside.sum()), CANARIES).low > 0.85
    assert clopper_pearson(int(outside.sum()), CANARIES).high < 0.35
    assert bound.epsilon > 0.5  # five times an epsilon of 0.1 that the explanations may have
    inside, outside = rejected(X, y, min_samples_leaf=20)
    assert inside.mean() - outside.mean() < 0.3
