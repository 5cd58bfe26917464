"""The HEOM distance: against its definition, ties, missing values, blocks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom

ROW = st.tuples(
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.floats(-2, 2, width=16)),
    st.one_of(st.none(), st.sampled_from(["a", "b", "c"])),
    st.booleans(),
)
COLUMNS = ["i", "f", "c", "b"]


def table(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS, dtype=object)
    return frame.astype({"i": float, "f": float, "b": bool})


def by_definition(x: pd.Series, y: pd.Series, ranges: dict[str, float]) -> float:
    total = 0.0
    for name in COLUMNS:
        if pd.isna(x[name]) or pd.isna(y[name]):
            total += pd.isna(x[name]) != pd.isna(y[name])
        elif name in ranges:
            total += abs(x[name] - y[name]) / ranges[name] if ranges[name] else 0
        else:
            total += x[name] != y[name]
    return total / len(COLUMNS)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6), st.lists(ROW, min_size=1, max_size=6))
def test_distance_is_what_the_definition_says(left: list, right: list) -> None:
    a, b = table(left), table(right)
    heom = Heom.fit(b)
    ranges = {}
    for name in ("i", "f"):
        present = b[name].dropna()
        ranges[name] = float(present.max() - present.min()) if len(present) else 0.0
    expected = [[by_definition(x, y, ranges) for _, y in b.iterrows()] for _, x in a.iterrows()]
    np.testing.assert_allclose(heom.distances(a, b), expected, atol=1e-12)
    pairs = min(len(a), len(b))
    parts = heom.parts(a.head(pairs), b.head(pairs))
    np.testing.assert_allclose(parts.mean(axis=1), np.diag(expected)[:pairs], atol=1e-12)


def test_parts_are_feature_by_feature() -> None:
    a = pd.DataFrame({"city": ["A", None], "pay": [1.0, np.nan], "age": [20, 30]})
    b = pd.DataFrame({"city": ["B", None], "pay": [3.0, 5.0], "age": [20, 31]})
    heom = Heom(["pay", "age"], ["city"], {"pay": 4.0})  # no range: no distance
    assert heom.parts(a, b).tolist() == [[0.5, 0, 1], [1, 0, 0]]
    with pytest.raises(InputError, match="2 and 1"):
        heom.parts(a, b.head(1))


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.lists(ROW, min_size=1, max_size=8), st.integers(1, 4))
def test_nearest_agrees_with_sorting_all_distances(left: list, right: list, k: int) -> None:
    a, b = table(left), table(right)
    heom = Heom.fit(b)
    indices, found = heom.nearest(a, b, k)
    for row, distances in enumerate(heom.distances(a, b)):
        order = np.argsort(np.round(distances, 11), kind="stable")[:k]
        assert indices[row, : len(order)].tolist() == order.tolist()
        np.testing.assert_allclose(found[row, : len(order)], distances[order])
    assert (indices[:, len(b) :] == -1).all()
    assert np.isinf(found[:, len(b) :]).all()


def test_ties_go_to_the_first_row_in_every_block() -> None:
    b = pd.DataFrame({"n": np.tile([5, 1], 2000), "c": "x"})
    a = pd.DataFrame({"n": np.repeat([1, 5], 300), "c": "x"})
    indices, _ = Heom.fit(b).nearest(a, b, 3)
    assert (indices == np.repeat([[1, 3, 5], [0, 2, 4]], 300, axis=0)).all()


def test_sums_in_another_order_are_a_tie() -> None:
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit.
    b = pd.DataFrame([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], columns=list("xyz"))
    a = pd.DataFrame([[0.0, 0.0, 0.0]], columns=list("xyz"))
    heom = Heom(list("xyz"), [], dict.fromkeys("xyz", 1.0))
    for order in (b, b[::-1]):
        assert heom.nearest(a, order)[0][0, 0] == 0
        assert heom.nearest(a, order, 2)[0][0].tolist() == [0, 1]


def test_a_row_and_its_duplicates_can_be_left_out() -> None:
    b = pd.DataFrame({"n": [1, 1, 2, 9]})
    indices, distances = Heom.fit(b).nearest(b, b, exclude_same=True)
    assert indices[:, 0].tolist() == [2, 2, 0, 2]
    same = pd.DataFrame({"n": [1, 1]})
    indices, distances = Heom.fit(same).nearest(same, same, exclude_same=True)
    assert (indices == -1).all()
    assert np.isinf(distances).all()


def test_spelling_and_dtype_of_a_category_do_not_matter() -> None:
    a = pd.DataFrame({"c": pd.Categorical(["3", "b"])})
    b = pd.DataFrame({"c": np.array([3.0, "b"], dtype=object)})
    assert Heom([], ["c"], {}).distances(a, b).tolist() == [[0, 1], [1, 0]]


def test_dates_are_numbers() -> None:
    b = pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-11"])})
    a = pd.DataFrame({"d": pd.to_datetime(["2020-01-06"])})
    assert Heom.fit(b).distances(a, b).tolist() == [[0.5, 0.5]]


def test_nearest_to_an_empty_table_is_nothing() -> None:
    b = pd.DataFrame({"n": [1, 2]})
    indices, distances = Heom.fit(b).nearest(b, b[:0], 2)
    assert (indices == -1).all()
    assert np.isinf(distances).all()


def test_wrong_input_names_the_column() -> None:
    frame = pd.DataFrame({"n": [1, 2]})
    with pytest.raises(InputError, match="missing column n"):
        Heom.fit(frame).encode(frame.rename(columns={"n": "m"}))
    with pytest.raises(InputError, match="unknown column m"):
        Heom.fit(frame, numeric=["m"])
    with pytest.raises(InputError, match="both numeric and categorical: n"):
        Heom(["n"], ["n"], {})
    with pytest.raises(InputError, match="k must"):
        Heom.fit(frame).nearest(frame, frame, 0)


def test_repr_shows_no_value() -> None:
    frame = pd.DataFrame({"n": [1234, 987654], "c": ["canary", "other"]})
    heom = Heom.fit(frame)
    shown = repr(heom) + repr(heom.encode(frame))
    assert not any(text in shown for text in ("1234", "986420", "canary"))
