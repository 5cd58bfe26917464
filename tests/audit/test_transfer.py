from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.extraction import RowsAsNumbers, ask, fit
from cfk_plugin.audit.targets import Answers
from cfk_plugin.errors import ModelError

QUERIES = pd.DataFrame({"age": [10, 50, 20, 60, 30], "job": ["a", "b", "a", "b", None]}, index=[7, 3, 9, 1, 5])


class TrainedTarget:
    """Desired is 50 and more; it answers 10 and 20 with a part of a row, and 30 with nothing."""

    def confidence(self, X: pd.DataFrame) -> Any:
        return self.desired(X).astype(float)

    def desired(self, X: pd.DataFrame) -> Any:
        return (X["age"] >= 50).to_numpy()

    def explain(self, X: pd.DataFrame) -> Answers:
        assert X["age"].tolist() == [10, 20, 30]
        rows = pd.DataFrame({"job": [None, "c", None], "age": [51.0, np.nan, np.nan]})
        return Answers(rows, np.array([True, True, True]))


def test_what_an_answer_does_not_give_is_the_querys_own() -> None:
    transfer = ask(TrainedTarget(), QUERIES)
    assert transfer.rows["age"].tolist() == [51, 20]
    assert transfer.rows["job"].tolist() == ["a", "c"]
    assert transfer.rows["age"].dtype == QUERIES["age"].dtype
    assert transfer.query.tolist() == [0, 2]  # of the last one nothing was said
    assert repr(transfer) == "Transfer(5 queries, 2 answers)"


def test_pairs_are_queries_with_outcomes_and_answers_as_desired() -> None:
    transfer = ask(TrainedTarget(), QUERIES)
    X, desired = transfer.pairs(2, explained=True)
    assert X["age"].tolist() == [10, 50, 51]
    assert desired.tolist() == [False, True, True]
    assert transfer.pairs(2, explained=False)[1].tolist() == [False, True]
    assert [transfer.answers(n) for n in range(6)] == [0, 1, 1, 2, 2, 2]
    assert [transfer.undesired(n) for n in (1, 3, 5)] == [1, 2, 3]


def test_a_service_that_does_not_answer_each_query_is_refused() -> None:
    class Short(TrainedTarget):
        def desired(self, X: pd.DataFrame) -> Any:
            return np.array([False])

    class Few(TrainedTarget):
        def explain(self, X: pd.DataFrame) -> Answers:
            return Answers(X[:1], np.array([True]))

    with pytest.raises(ModelError, match="1 outcomes for 5 rows"):
        ask(Short(), QUERIES)
    with pytest.raises(ModelError, match="1 answers to 3 queries"):
        ask(Few(), QUERIES)


def test_one_outcome_alone_is_copied_as_that() -> None:
    surrogate = fit(lambda seed: None, (QUERIES, np.ones(5, dtype=bool)), 0)
    assert surrogate.desired(QUERIES).all()
    assert surrogate.confidence(QUERIES).tolist() == [1.0] * 5


def test_rows_as_numbers_ignore_what_they_do_not_know() -> None:
    encoder = RowsAsNumbers().fit(QUERIES)
    found = encoder.transform(pd.DataFrame({"age": [34.0, np.nan], "job": ["z", "b"]}))
    assert found.tolist() == [[0, 0, 0], [0, 0, 1]]  # 34 is the mean age; a missing one becomes it
    assert encoder.transform(QUERIES)[:, 0].std() == pytest.approx(1)
    constant = pd.DataFrame({"age": [3, 3], "empty": [np.nan, np.nan]})
    assert RowsAsNumbers().fit(constant).transform(constant).tolist() == [[0, 0], [0, 0]]
