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
ROWS = st.lists(ROW, min_size=1, max_size=8)
COLUMNS = ["i", "f", "c", "b"]


def table(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object).astype(
        {"i": float, "f": float, "b": bool}
    )


def by_definition(x: pd.Series, y: pd.Series, others: pd.DataFrame) -> float:
    total = 0.0
    for name in COLUMNS:
        width = others[name].max() - others[name].min() if name in "if" else None
        if pd.isna(x[name]) or pd.isna(y[name]):
            total += pd.isna(x[name]) != pd.isna(y[name])
        elif width is None:
            total += x[name] != y[name]
        else:
            total += abs(x[name] - y[name]) / width if width else 0
    return total / len(COLUMNS)


@settings(max_examples=60)
@given(ROWS, ROWS, st.integers(1, 4))
def test_distances_and_the_nearest_rows_are_what_the_definition_says(
    left: list, right: list, k: int
) -> None:
    a, b = table(left), table(right)
    heom = Heom.fit(b)
    expected = np.array(
        [[by_definition(x, y, b) for _, y in b.iterrows()] for _, x in a.iterrows()]
    )
    np.testing.assert_allclose(heom.distances(a, b), expected, atol=1e-12)
    pairs = min(len(a), len(b))
    parts = heom.parts(a.head(pairs), b.head(pairs))
    np.testing.assert_allclose(parts.mean(axis=1), np.diag(expected)[:pairs], atol=1e-12)
    indices, found = heom.nearest(a, b, k)
    for row, distances in enumerate(expected):
        order = np.argsort(np.round(distances, 11), kind="stable")[:k]
        assert indices[row, : len(order)].tolist() == order.tolist()
        np.testing.assert_allclose(found[row, : len(order)], distances[order], atol=1e-12)
    assert (indices[:, len(b) :] == -1).all()
    assert np.isinf(found[:, len(b) :]).all()


def test_parts_are_feature_by_feature() -> None:
    a = pd.DataFrame({"city": ["A", None], "pay": [1.0, np.nan], "age": [20, 30]})
    b = pd.DataFrame({"city": ["B", None], "pay": [3.0, 5.0], "age": [20, 31]})
    heom = Heom(["pay", "age"], ["city"], {"pay": 4.0})  # no range: no distance
    assert heom.parts(a, b).tolist() == [[0.5, 0, 1], [1, 0, 0]]
    with pytest.raises(InputError, match="2 and 1"):
        heom.parts(a, b.head(1))


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
    b, same = pd.DataFrame({"n": [1, 1, 2, 9]}), pd.DataFrame({"n": [1, 1]})
    assert Heom.fit(b).nearest(b, b, exclude_same=True)[0][:, 0].tolist() == [2, 2, 0, 2]
    for others, left_out in ((same, True), (same[:0], False)):
        indices, distances = Heom.fit(same).nearest(same, others, exclude_same=left_out)
        assert (indices == -1).all()
        assert np.isinf(distances).all()


def test_spelling_and_dtype_do_not_matter_and_dates_are_numbers() -> None:
    a = pd.DataFrame({"c": pd.Categorical(["3", "b"])})
    b = pd.DataFrame({"c": np.array([3.0, "b"], dtype=object)})
    assert Heom([], ["c"], {}).distances(a, b).tolist() == [[0, 1], [1, 0]]
    days = pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-11"])})
    assert Heom.fit(days).distances(days - pd.Timedelta(days=-5), days).tolist() == [
        [0.5, 0.5],
        [1.5, 0.5],
    ]


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


def test_a_row_is_read_alone_as_it_is_among_others_whatever_its_dtypes() -> None:
    columns = {
        "float32": pd.Series([0.1, 2.0, np.nan], dtype="float32"),
        "int8": pd.Series([1, -2, 3], dtype="int8"),
        "whole": pd.Series([2**53 + 1, -(2**63), 2**63 - 1]),
        "nullable": pd.Series([1, None, 3], dtype="Int64"),
        "bool": pd.Series([True, False, True]),
        "text": pd.Series(["1", None, "b"]),
        "mixed": pd.Series([np.float32(0.1), np.int8(3), "3.0"], dtype=object),
        "odd": pd.Series([np.bool_(1), None, pd.NA], dtype=object),
        "lists": pd.Series([[1, 2], (3,), {}], dtype=object),
        "category": pd.Series([1.0, 2.5, None], dtype="category"),
        "date": pd.Series(pd.to_datetime(["2020-01-01", None, "2021-05-06"])),
        "zone": pd.Series(pd.to_datetime(["2020-01-01", None, "2021-05-06"], utc=True)),
    }
    frame = pd.DataFrame(columns)
    numeric = ["float32", "int8", "whole", "nullable", "date", "zone"]
    for numbers in (numeric, []):
        heom = Heom(numbers, [name for name in frame if name not in numbers], {})
        together = heom.encode(frame)
        for i in range(len(frame)):
            for rows in (frame.iloc[[i]], frame.iloc[[i]].reset_index(drop=True)):
                alone = heom.encode(rows)
                np.testing.assert_array_equal(alone.numbers[0], together.numbers[i])
                assert alone.codes[0].tolist() == together.codes[i].tolist()
