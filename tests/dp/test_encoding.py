"""The public encoding: known numbers, a round trip through every kind of column, and errors that name columns."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from cfk_plugin import Population, Schema
from cfk_plugin.dp import PublicDomain, PublicEncoder
from cfk_plugin.errors import InputError

ROWS = pd.DataFrame(
    {
        "age": [20, 90, 55],
        "pay": [0.0, np.nan, 25.5],
        "city": pd.Series(["B", None, "A"]),
        "grade": pd.Categorical(["low", "high", "low"], categories=["low", "mid", "high"]),
        "smokes": [True, False, True],
        "since": pd.to_datetime(["2020-01-01", "2021-06-01", "2022-01-01"]),
    }
)
SCHEMA = Schema.from_frame(
    ROWS,
    quasi_identifiers=["age"],
    ordinal={"grade": pd.CategoricalDtype(["low", "mid", "high"])},
    bounds={"age": (0, 100), "pay": (0, 50), "since": ("2020-01-01", "2022-01-01")},
    categories={"city": ["A", "B", "C"], "smokes": [False, True]},
    nullable=["pay", "city"],
    whole=["age"],
)


@pytest.fixture
def encoder() -> PublicEncoder:
    return PublicEncoder(PublicDomain.of(Population.from_frame(ROWS, SCHEMA)))


def test_inputs_are_scaled_numbers_one_hot_categories_and_indicators_of_missing(encoder: PublicEncoder) -> None:
    found = encoder.transform(ROWS)
    assert found.shape == (3, encoder.n_inputs)
    #                                   age  pay    city        grade    smokes since
    np.testing.assert_allclose(found[0], [0.2, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(found[1, :12], [0.9, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0])
    np.testing.assert_allclose(found[2, :3], [0.55, 0.51, 0])


def test_decoding_gives_the_rows_back_in_their_dtypes(encoder: PublicEncoder) -> None:
    back = encoder.decode(encoder.transform(ROWS))
    pd.testing.assert_frame_equal(back, ROWS.assign(since=ROWS["since"].astype(back["since"].dtype)))
    assert back.dtypes.drop("since").to_dict() == ROWS.dtypes.drop("since").to_dict()


def test_any_numbers_decode_to_declared_values(encoder: PublicEncoder) -> None:
    drawn = encoder.decode(np.random.default_rng(0).random((200, encoder.n_inputs)))
    assert not encoder.domain.outside(drawn)
    again = encoder.decode(encoder.transform(drawn))
    pd.testing.assert_frame_equal(drawn, again)


def test_numbers_outside_of_the_bounds_count_as_the_nearest_one(encoder: PublicEncoder) -> None:
    assert encoder.transform(ROWS.assign(age=[-5, 300, 50]))[:, 0].tolist() == [0, 1, 0.5]


def test_fitting_learns_nothing(encoder: PublicEncoder) -> None:
    before = encoder.transform(ROWS)
    other = pickle.loads(pickle.dumps(clone(encoder).fit(ROWS.assign(age=7))))
    assert other.layout == encoder.layout
    np.testing.assert_array_equal(other.transform(ROWS), before)


@pytest.mark.parametrize("wrong", [{"city": ["B", "Xanadu", "A"]}, {"age": [20, np.nan, 30]}, {"pay": [np.inf, 0, 0]}])
def test_what_is_not_declared_is_named_by_its_column(encoder: PublicEncoder, wrong: dict[str, list[object]]) -> None:
    with pytest.raises(InputError, match=f"^columns {next(iter(wrong))} hold values") as caught:
        encoder.transform(ROWS.assign(**wrong))
    assert "Xanadu" not in str(caught.value)


def test_a_table_without_a_column_is_refused(encoder: PublicEncoder) -> None:
    with pytest.raises(InputError, match="lacks the features city, since"):
        encoder.transform(ROWS.drop(columns=["city", "since"]))
    with pytest.raises(InputError, match="takes a pandas DataFrame; got ndarray"):
        encoder.transform(ROWS.to_numpy())
