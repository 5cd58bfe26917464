"""Public domains and their encoding: declared, never read from rows; known numbers, and every kind
of column back.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from cfk_plugin import Attribute, Population, Schema
from cfk_plugin.dp import PublicDomain, PublicEncoder, infer_domains
from cfk_plugin.errors import InputError, PrivacyLeakWarning, SchemaError

DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex"],
    "columns": {
        "age": Attribute(bounds=(17, 90), whole=True),
        "kids": Attribute(bounds=(0, 5), whole=True),
        "pay": Attribute(bounds=(0, 100)),
        "since": Attribute(bounds=("2019-01-01", "2021-01-01")),
        "debt": Attribute(bins=[0, 1, 1000, 5000], whole=True),
        "sex": Attribute(categories=["m", "f", "x"]),
        "smokes": Attribute(categories=[True, False]),
        "town": Attribute(hierarchy={"A": ["north"], "B": ["north"], "C": ["south"]}),
    },
    "ordinal": {"level": [1, 2, 3]},
    "nullable": ["age"],
}


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": pd.array([20, 30, 77, None], dtype="Int64"),
            "kids": [0, 1, 2, 5],
            "sex": ["m", "f", "f", "m"],
            "pay": [1.5, 2.5, 99.0, 100.0],
            "since": pd.to_datetime(["2020-01-01", "2019-01-01", "2020-06-01", "2021-01-01"]),
            "debt": [0, 1, 999, 5000],
            "smokes": [True, False, True, True],
            "level": [1, 2, 3, 1],
            "town": ["A", "B", "C", "A"],
        }
    )


def schema_of(train: pd.DataFrame, columns: dict[str, Attribute], **changes: Any) -> Schema:
    """Return what is declared above, with other settings of some columns."""
    columns = {**DECLARED["columns"], **columns}
    return Schema.from_frame(train, **{**DECLARED, **changes, "columns": columns})


def domain(
    train: pd.DataFrame | None = None, columns: dict[str, Attribute] | None = None, **changes: Any
) -> PublicDomain:
    train = table() if train is None else train
    return PublicDomain.of(Population.from_frame(train, schema_of(train, columns or {}, **changes)))


def test_drawn_numbers_are_round_and_in_their_bins() -> None:
    """Steps are at most 5 % of a bin; dates with days as bounds are days."""
    random = np.random.default_rng(0)
    for column in domain().columns:
        if not column.is_numeric:
            continue
        codes = np.repeat(np.arange(column.listed, dtype=np.int32), 200)
        drawn = column.draw(codes, random)
        np.testing.assert_array_equal(column.codes(drawn), codes)
    pay = domain().columns[3]
    texts = pay.draw(np.repeat(np.arange(16, dtype=np.int32), 50), random).astype(str)
    assert max(map(len, texts)) <= len("100.0")
    since = domain().columns[4]
    days = since.draw(np.repeat(np.arange(16, dtype=np.int32), 50), random)
    assert (days == days.dt.normalize()).all()
    assert days.nunique() > 100


def test_sizes_and_codes_follow_from_what_is_declared_alone() -> None:
    # 16 bins of bounds and missing; a bin per whole number; categories; declared bins; levels;
    # leaves
    assert domain().sizes == domain(table().head(2)).sizes == (17, 6, 3, 16, 16, 3, 2, 3, 3)
    codes = domain().codes(table())
    assert codes[:, 1].tolist() == [0, 1, 2, 5]
    # a bin starts with its number, and the last one is closed
    assert codes[:, 5].tolist() == [0, 1, 1, 2]
    assert codes[:, 0].tolist() == [0, 2, 13, 16]


def test_groups_of_codes_are_the_levels_of_a_hierarchy_below_its_root() -> None:
    tree = {"A": ["a", "north"], "B": ["b", "north"], "C": ["c", "south"], "D": ["c", "south"]}
    columns = {"town": Attribute(hierarchy=tree)}
    column = domain(columns=columns, nullable=["age", "town"]).columns[-1]
    assert column.values == ("A", "B", "C", "D")
    assert [pd.factorize(group)[0].tolist() for group in column.groups] == [
        [0, 1, 2, 2, 3],
        [0, 0, 1, 1, 2],
    ]
    assert [other.groups for other in domain().columns[:-1]] == [[]] * 8


def test_numbers_outside_of_the_bounds_count_as_the_nearest_and_undeclared_values_as_none() -> None:
    other = table().assign(
        kids=[-3, 9, 1, 1], sex=["m", "q", None, "f"], pay=[np.inf, np.nan, -1.0, 200.0]
    )
    codes = domain().codes(other)
    assert codes[:, 1].tolist() == [0, 5, 1, 1]
    assert codes[:, 2].tolist() == [0, -1, -1, 1]
    assert codes[:, 3].tolist() == [-1, -1, 0, 15]
    assert domain().outside(other) == {"sex": 2, "pay": 2}


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_what_is_drawn_for_codes_has_these_codes(seed: int) -> None:
    random, found = np.random.default_rng(seed), domain()
    codes = np.column_stack([random.integers(0, size, 50) for size in found.sizes]).astype(np.int32)
    assert found.codes(found.draw(codes, random)).tolist() == codes.tolist()


def test_what_is_drawn_has_the_types_that_are_declared_whatever_the_tables_are() -> None:
    sex = Attribute(categories=pd.CategoricalDtype(["m", "f", "x"]))
    declared = schema_of(table(), {"sex": sex})
    for other in (table(), table().astype(object), table().astype(str)):
        found = PublicDomain.of(Population.from_frame(other, declared))
        drawn = found.draw(domain().codes(table()), np.random.default_rng(0))
        # a number with gaps is float64; dates count in microseconds
        expected = [
            *table()
            .dtypes.drop("age")
            .drop("sex")
            .replace(table()["since"].dtype, "datetime64[us]")
        ]
        assert drawn.dtypes.drop(["age", "sex"]).tolist() == expected
        assert drawn["age"].dtype == "float64"
        assert drawn["sex"].cat.categories.tolist() == ["m", "f", "x"]
        assert drawn["age"].isna().tolist() == [False, False, False, True]
        assert (drawn["age"].dropna() % 1 == 0).all()


def test_a_missing_declaration_is_refused_by_name_and_without_a_value() -> None:
    with pytest.raises(SchemaError) as caught:
        domain(columns=dict.fromkeys(["age", "sex", "debt"], Attribute()), nullable=None)
    said = str(caught.value)
    for lack in (
        "'age' lacks bounds or bins and whether it is in nullable",
        "'sex' lacks categories",
        "'debt' lacks bounds or bins",
    ):
        assert lack in said
    assert not any(str(value) in said for value in ("77", "99.0", "5000", "2020"))


def test_inferring_warns_is_remembered_and_leaves_what_it_was_not_asked_for() -> None:
    train = table()
    schema = Schema.from_frame(train, quasi_identifiers=["age", "sex"], nullable=[])
    with pytest.warns(PrivacyLeakWarning, match="read from the rows"):
        filled = infer_domains(train, schema)
    assert set(PublicDomain.of(Population.from_frame(train, filled)).inferred) == set(train.columns)
    assert filled["kids"].bounds == (0.0, 5.0)
    with pytest.warns(PrivacyLeakWarning, match="domains of kids are read"):
        some = infer_domains(train, schema, ["kids"])
    with pytest.raises(SchemaError, match="'age' lacks"):
        PublicDomain.of(Population.from_frame(train, some))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {"sex": Attribute(categories=[])}}, "at least one"),
        ({"columns": {"sex": Attribute(categories=["m", "m"])}}, "distinct"),
        ({"columns": {"level": Attribute(categories=["m"])}}, "nominal"),
        ({"columns": {"sex": Attribute(categories=[None])}}, "number or boolean"),
        ({"nullable": ["nobody"]}, "unknown column"),
    ],
)
def test_wrong_declarations_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        domain(**changes)


# --- the encoding ---------------------------------------------------------------------------------

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


@pytest.fixture(scope="module")
def encoder() -> PublicEncoder:
    schema = Schema.from_frame(
        ROWS,
        quasi_identifiers=["age"],
        ordinal={"grade": pd.CategoricalDtype(["low", "mid", "high"])},
        columns={
            "age": Attribute(bounds=(0, 100), whole=True),
            "pay": Attribute(bounds=(0, 50)),
            "since": Attribute(bounds=("2020-01-01", "2022-01-01")),
            "city": Attribute(categories=["A", "B", "C"]),
            "smokes": Attribute(categories=[False, True]),
        },
        nullable=["pay", "city"],
    )
    return PublicEncoder(PublicDomain.of(Population.from_frame(ROWS, schema)))


def test_inputs_are_scaled_numbers_one_hot_categories_and_indicators_of_missing(
    encoder: PublicEncoder,
) -> None:
    found = encoder.transform(ROWS)
    assert found.shape == (3, encoder.n_inputs)
    #                                   age  pay    city        grade    smokes since
    np.testing.assert_allclose(found[0], [0.2, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(found[1, :12], [0.9, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0])
    np.testing.assert_allclose(found[2, :3], [0.55, 0.51, 0])
    assert encoder.transform(ROWS.assign(age=[-5, 300, 50]))[:, 0].tolist() == [0, 1, 0.5]


def test_rows_and_any_numbers_decode_to_declared_values_and_dtypes(encoder: PublicEncoder) -> None:
    back = encoder.decode(encoder.transform(ROWS))
    pd.testing.assert_frame_equal(
        back, ROWS.assign(since=ROWS["since"].astype(back["since"].dtype))
    )
    drawn = encoder.decode(np.random.default_rng(0).random((200, encoder.n_inputs)))
    assert not encoder.domain.outside(drawn)
    pd.testing.assert_frame_equal(drawn, encoder.decode(encoder.transform(drawn)))


def test_fitting_learns_nothing(encoder: PublicEncoder) -> None:
    other = pickle.loads(pickle.dumps(clone(encoder).fit(ROWS.assign(age=7))))
    assert other.layout == encoder.layout
    np.testing.assert_array_equal(other.transform(ROWS), encoder.transform(ROWS))


@pytest.mark.parametrize(
    "wrong", [{"city": ["B", "Xanadu", "A"]}, {"age": [20, np.nan, 30]}, {"pay": [np.inf, 0, 0]}]
)
def test_what_is_not_declared_is_named_by_its_column(
    encoder: PublicEncoder, wrong: dict[str, list[object]]
) -> None:
    with pytest.raises(InputError, match=f"^columns {next(iter(wrong))} hold values") as caught:
        encoder.transform(ROWS.assign(**wrong))
    assert "Xanadu" not in str(caught.value)
    with pytest.raises(InputError, match="lacks the features city, since"):
        encoder.transform(ROWS.drop(columns=["city", "since"]))
    with pytest.raises(InputError, match="takes a pandas DataFrame; got ndarray"):
        encoder.transform(ROWS.to_numpy())


@pytest.mark.parametrize(
    "declared",
    [
        Attribute(bounds=("2019-01-01", "2021-01-01"), whole=True),
        Attribute(bounds=("2019-01-01", "2019-01-09"), whole=True),
        Attribute(bounds=("2018-12-31 18:00", "2021-01-01 06:00"), whole=True),
        Attribute(bins=["2019-01-01", "2019-06-30", "2021-01-01"], whole=True),
    ],
    ids=["bounds", "few days", "times", "bins"],
)
def test_whole_dates_are_days(declared: Attribute) -> None:
    """Nobody is hired at 4:38 in the morning."""
    columns = DECLARED["columns"] | {"since": declared}
    schema = Schema.from_frame(table(), **(DECLARED | {"columns": columns}))
    domain = PublicDomain.of(Population.from_frame(table(), schema))
    (column,) = [column for column in domain.columns if column.name == "since"]
    random = np.random.default_rng(0)
    drawn = column.draw(random.integers(0, column.listed, 400).astype(np.int32), random)
    assert (drawn == drawn.dt.normalize()).all()
    assert drawn.between(drawn.min(), pd.Timestamp(column.edges[-1], unit="s")).all()
    encoder = PublicEncoder(domain)
    decoded = encoder.decode(random.random((50, encoder.n_inputs)))["since"].dropna()
    assert (decoded == decoded.dt.normalize()).all()


def test_queries_get_the_declared_dtypes() -> None:
    """A query in another spelling has the codes of the table's own."""
    schema = Schema.from_frame(table(), **DECLARED)
    domain = PublicDomain.of(Population.from_frame(table(), schema))
    rows = domain.draw(domain.codes(table()), np.random.default_rng(0))
    texts = rows.astype({"since": str, "smokes": str, "kids": str, "level": float})
    conformed = domain.conform(texts, rows.dtypes)
    pd.testing.assert_frame_equal(conformed, rows)
