"""Tables as arrays for recourse methods, and back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.encoding import Encoding, Points
from cfk_plugin.errors import AdapterError
from loan_table import CANARY, loans, numbers


def test_rows_come_back_as_they_were() -> None:
    rows = loans().astype({"children": "Int64", "income": "float32"})
    encoding = Encoding(rows)
    points = encoding.encode(rows)
    pd.testing.assert_frame_equal(encoding.decode(points), rows)
    assert encoding.numeric == ["age", "income", "children"]
    assert encoding.categorical == ["job", "owner", "region"]
    assert (encoding.sizes, encoding.whole.tolist()) == ([4, 2, 2], [True, False, True])


def test_a_category_that_no_training_row_has_is_kept_and_not_learned() -> None:
    rows, other = loans(), loans(3).assign(job=["pilot", None, "smith"])
    known = Encoding(rows[rows["region"] == "north"]).knowing(other.assign(region="south"))
    back = known.decode(known.encode(other.assign(region="south")))
    assert back["job"].fillna("none").tolist() == ["pilot", "none", "smith"]
    assert back["region"].tolist() == ["south"] * 3
    assert known.sizes == [4, 2, 1]


def test_distance_is_in_ranges_and_counts_categories() -> None:
    rows = pd.DataFrame({"age": [20.0, 60.0, 30.0], "city": ["a", "b", "a"]})
    encoding = Encoding(rows)
    points = encoding.encode(rows)
    first = points.take(np.zeros(3, dtype=int))
    np.testing.assert_allclose(encoding.distance(points, first), [0, 2, 0.25])
    np.testing.assert_allclose(encoding.distance(points, first, "l2"), [0, np.sqrt(2), 0.25])


def test_settled_numbers_are_whole_within_ranges_and_what_the_dtype_holds() -> None:
    rows = pd.DataFrame({"age": [20, 60], "pay": np.array([0.1, 0.9], dtype="float32"), "debt": [0.5, 1.0]})
    encoding = Encoding(rows)
    own = np.array([[20.0, 0.5, 7.5], [19.5, 0.5, 0.6]])
    moved = own + np.array([[3.4, 0.0001, 9.0], [0.0, 1.0, -9.0]])
    inside = encoding.settled(moved, own, encoding.bounds(own, within_ranges=True))
    np.testing.assert_allclose(inside, [[23, 0.5001, 7.5], [19.5, 0.9, 0.5]], atol=1e-6)
    assert (inside[:, 1] == inside[:, 1].astype("float32")).all()
    free = encoding.settled(moved, own, encoding.bounds(own, within_ranges=False))
    np.testing.assert_allclose(free, [[23, 0.5001, 16.5], [19.5, 1.5, -8.4]], atol=1e-6)
    assert not encoding.is_fine
    assert Encoding(rows[["debt"]]).is_fine


def test_a_wide_table_of_numbers_is_encoded_in_one_piece() -> None:
    rows = numbers(30, 7000)
    encoding = Encoding(rows)
    points = encoding.encode(rows)
    np.testing.assert_array_equal(points.numbers, rows.to_numpy())
    pd.testing.assert_frame_equal(encoding.decode(points), rows)


def test_whole_numbers_of_a_small_dtype_stay_in_it() -> None:
    rows = pd.DataFrame({"age": np.array([20, 60], dtype="uint8"), "x": [0.5, 1.0]})
    encoding = Encoding(rows)
    own = encoding.encode(rows).numbers
    far = encoding.settled(own + 1000, own, encoding.bounds(own, within_ranges=False))
    assert encoding.decode(Points(far, np.empty((2, 0), dtype=int)))["age"].dtype == "uint8"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"age": [1.0, np.nan], "pay": [1, 2]}), "missing or infinite numbers.*impute column age$"),
        (pd.DataFrame({"age": [1.0, np.inf]}), "column age"),
        (pd.DataFrame({"born": pd.to_datetime(["2001-01-01"])}), "columns born hold dates"),
        (pd.DataFrame({"age": []}), "at least one training row"),
    ],
)
def test_rows_that_cannot_be_searched_in_are_refused(rows: pd.DataFrame, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        Encoding(rows)


def test_nothing_of_a_row_is_shown() -> None:
    encoding = Encoding(loans())
    assert repr(encoding) == "Encoding(3 numbers, 3 categories)"
    assert CANARY not in repr(encoding.encode(loans()))
