"""What a person can change, against plain Python: schema, call and query say which values an answer
may have.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Interval, Population, Region, Schema
from cfk_plugin._files import read_schema
from cfk_plugin.data.constraints import Constraints, DistinctParts, rules_of
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.region import part_of
from cfk_plugin.data.schema import SchemaAttribute
from cfk_plugin.errors import InputError, SchemaError

LEVELS = ["low", "mid", "high", "top"]
FEATURES = ["age", "born", "city", "grade", "zip", "pay", "job"]


def table(seed: int, n: int = 50) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "age": rng.integers(18, 40, n).astype(float),
            "born": pd.Timestamp("1980-01-01")
            + pd.to_timedelta(rng.integers(0, 9, n) * 300, unit="D"),
            "city": rng.choice(["A", "B", "C"], n).astype(object),
            "grade": rng.choice(LEVELS, n).astype(object),
            "zip": rng.choice([1000, 2000, 3000], n),
            "pay": rng.normal(30, 9, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n).astype(object),
        }
    )
    for name in ("age", "grade", "pay", "city"):
        rows.loc[rows.index[1:][rng.random(n - 1) < 0.1], name] = None
    return rows


def schema_of(
    rows: pd.DataFrame, columns: dict[str, Attribute] | None = None, **changes: Any
) -> Schema:
    tree = {city: ["north" if city == "A" else "south"] for city in "ABC"}
    options: dict[str, Any] = {
        "columns": {"city": Attribute(hierarchy=tree), **(columns or {})},
        "ordinal": {"grade": LEVELS},
        "nominal": ["zip"],
    }
    return Schema.from_frame(
        rows, quasi_identifiers=["age", "born", "city", "grade", "zip"], **options, **changes
    )


CALLS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"immutable": ["city", "zip", "pay"], "monotone": {"age": "increase", "grade": "increase"}},
        {},
    ),
    (
        {
            "monotone": {
                "age": "decrease",
                "born": "increase",
                "grade": "decrease",
                "pay": "increase",
            }
        },
        {},
    ),
    ({}, {"features_to_vary": ["age", "pay", "grade", "job"]}),
    ({}, {"features_to_vary": ["born", "city", "zip"], "permitted_range": {"pay": [20, 40]}}),
    (
        {"monotone": {"age": "increase"}},
        {
            "permitted_range": {
                "age": [25.5, 33],
                "born": ["1981-01-01", "1984-06-01"],
                "city": ["A", None],
                "grade": ["low", "top"],
                "zip": ["1000", 3000],
                "job": ["nurse"],
            }
        },
    ),
    (
        {
            "never_advise": {
                "age": [None],
                "city": ["B", None],
                "grade": ["mid"],
                "zip": [1000],
                "pay": [None],
                "job": ["clerk", "smith"],
            }
        },
        {},
    ),
    (
        {
            "monotone": {"age": "increase", "grade": "increase"},
            "never_advise": {"age": [None], "grade": ["top", None], "zip": ["3000"]},
        },
        {
            "features_to_vary": ["age", "grade", "zip", "pay"],
            "permitted_range": {"grade": ["mid", "top"], "zip": [2000, 3000], "pay": [20, 40]},
        },
    ),
]


def permits(schema: Schema, call: dict[str, Any], name: str, own: Any, value: Any) -> bool:
    """Say in plain words whether somebody with a value may be told to have another one."""
    within, change = call.get("permitted_range", {}).get(name), schema[name].change
    change = change if name in call.get("features_to_vary", FEATURES) else "never"
    if within is not None and name in ("age", "born", "pay"):
        low, high = (pd.Timestamp(end) if name == "born" else end for end in within)
        if pd.isna(value) or not low <= value <= high:
            return False
    elif within is not None and str(value) not in [str(known) for known in within]:
        return False
    own_text, text = (None if pd.isna(v) else str(v) for v in (own, value))
    if text in schema[name].never_advised and text != own_text:
        return False
    if change == "any" or (pd.isna(own) and pd.isna(value)):
        return True
    if pd.isna(own) or pd.isna(value):
        return False
    own, value = (LEVELS.index(v) if name == "grade" else v for v in (own, value))
    return {"never": value == own, "increase": value >= own, "decrease": value <= own}[change]


def offered(rows: pd.DataFrame, schema: Schema, seed: int) -> list[dict[str, Any]]:
    """Return regions, as hulls of a few rows, with the private values of one."""
    rng, answers = np.random.default_rng(seed), []
    for _ in range(20):
        few = rows.iloc[rng.choice(len(rows), rng.integers(1, 5), replace=False)]
        parts: dict[str, Any] = {name: part_of(few[name].iloc[0]) for name in schema.private}
        for name in schema.quasi_identifiers:
            here, missing = few[name].dropna(), bool(few[name].isna().any())
            if name == "grade":
                ranks = [LEVELS.index(level) for level in here]
                levels = tuple(LEVELS[min(ranks) : max(ranks) + 1]) if ranks else ()
                parts[name] = Interval(
                    *((levels[0], levels[-1]) if levels else (None, None)), missing, levels
                )
            elif name in ("age", "born"):
                parts[name] = Interval(
                    *((here.min(), here.max()) if len(here) else (None, None)), missing
                )
            else:
                parts[name] = frozenset([*here, *([None] if missing else [])])
        answers.append(parts)
    return answers


def values_inside(
    rows: pd.DataFrame, call: dict[str, Any], name: str, part: Any, own: Any
) -> list[Any]:
    """Return the table's values inside of a part; also the own number and the ends of what is
    permitted.
    """
    known = [*rows[name].dropna().unique(), *([None] if rows[name].isna().any() else [])]
    if name in ("age", "born", "pay"):
        ends = call.get("permitted_range", {}).get(name, [])
        known += [own, *(pd.Timestamp(end) if name == "born" else end for end in ends)]
    return [value for value in known if Region({name: part}).contains({name: value})]


@pytest.fixture(scope="module", params=range(len(CALLS)))
def case(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    changes, call = CALLS[request.param]
    rows = table(request.param)
    schema = schema_of(rows, **changes)
    encoder = Population.from_frame(rows, schema).encoder
    queries = pd.concat([table(50).head(14), rows.head(6)], ignore_index=True)
    queries.loc[:3, "age"] = [10.0, 27.25, 99.0, np.nan]
    answers = offered(rows, schema, request.param)
    constraints = Constraints(encode(queries, encoder), rules_of(encoder, **call))
    distinct_parts = {
        name: DistinctParts.build(encoder.domains[name], [answer[name] for answer in answers])
        for name in FEATURES
    }
    return rows, schema, call, queries, answers, constraints, distinct_parts


def test_an_answer_may_be_given_where_every_part_leaves_a_permitted_value(
    case: tuple[Any, ...],
) -> None:
    rows, schema, call, queries, answers, constraints, distinct_parts = case
    expected = [
        [
            all(
                any(
                    permits(schema, call, name, query[name], v)
                    for v in values_inside(rows, call, name, part, query[name])
                )
                for name, part in answer.items()
            )
            for answer in answers
        ]
        for query in queries.to_dict("records")
    ]
    found = constraints.admits_all(distinct_parts, len(answers))
    assert found.tolist() == expected
    assert 0 < found.sum() < found.size
    at = np.arange(len(queries)) % len(answers)
    alone = {
        name: DistinctParts.build(o.domain, [answers[i][name] for i in at])
        for name, o in distinct_parts.items()
    }
    assert constraints.admits_paired(alone).tolist() == found[np.arange(len(queries)), at].tolist()
    few = np.array([7, 3, 11])
    assert (
        constraints.take(few).admits_all(distinct_parts, len(answers)).tolist()
        == found[few].tolist()
    )


def test_the_nearest_point_of_a_region_is_chosen_among_what_is_permitted(
    case: tuple[Any, ...],
) -> None:
    rows, schema, call, queries, answers, constraints, distinct_parts = case
    query, answer = np.nonzero(constraints.admits_all(distinct_parts, len(answers)))
    for name in schema.quasi_identifiers:
        domain, own = distinct_parts[name].domain, queries[name].tolist()
        points = pd.Series(
            domain.column(
                *constraints.nearest(
                    name, distinct_parts[name], query, distinct_parts[name].of[answer]
                )
            )
        )
        assert points.dtype == rows[name].dtype
        for q, a, point in zip(query.tolist(), answer.tolist(), points.tolist(), strict=True):
            inside = values_inside(rows, call, name, answers[a][name], own[q])
            near = [value for value in inside if permits(schema, call, name, own[q], value)]
            assert point in near or (pd.isna(point) and None in near)
            assert away(name, own[q], point) <= min(away(name, own[q], value) for value in near)


def away(name: str, own: Any, value: Any) -> float:
    if pd.isna(own) or pd.isna(value) or name in ("city", "zip"):
        return float(not (own == value or (pd.isna(own) and pd.isna(value)))) * 1e9
    if name == "born":
        return abs((own - value).total_seconds())
    return abs(LEVELS.index(own) - LEVELS.index(value)) if name == "grade" else abs(own - value)


def test_what_is_read_shows_counts_and_is_not_copied(case: tuple[Any, ...]) -> None:
    *_, constraints, distinct_parts = case
    assert repr(constraints) == "Constraints(20 rows)"
    assert repr(distinct_parts["age"]) == "DistinctParts(20 rows)"
    with pytest.raises(InputError, match="pickled"):
        copy.copy(constraints)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"features_to_vary": ["age", "height"]}, "features_to_vary: height"),
        ({"features_to_vary": "age"}, "not one string"),
        ({"features_to_vary": []}, "at least one"),
        ({"features_to_vary": 3}, "list"),
        ({"permitted_range": ["age"]}, "mapping"),
        ({"permitted_range": {"height": [1, 2]}}, "permitted_range: height"),
        ({"permitted_range": {"age": [30, 20]}}, "'age' is empty"),
        ({"permitted_range": {"shoe": [41.2, 41.8]}}, "'shoe' is empty"),
        ({"permitted_range": {"age": [20]}}, "'age' must be two"),
        ({"permitted_range": {"age": [20, float("inf")]}}, "'age' must be two finite"),
        ({"permitted_range": {"age": ["young", "old"]}}, "'age' must be two finite"),
        ({"permitted_range": {"age": 20}}, "'age' must be"),
        ({"permitted_range": {"pay": [-20, -10]}}, "'pay' is outside"),
        ({"permitted_range": {"city": []}}, "'city' has no value"),
        ({"permitted_range": {"city": ["A", "Atlantis"]}}, "'city' has 1 values"),
        ({"permitted_range": {"city": "A"}}, "'city' must be a list"),
        ({"permitted_range": {"grade": [["low"]]}}, "'grade'"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_without_its_values(
    call: dict[str, Any], named: str
) -> None:
    rows = table(0).assign(shoe=range(50))
    encoder = Population.from_frame(
        rows, schema_of(rows, columns={"pay": Attribute(bounds=(0, 99))})
    ).encoder
    with pytest.raises(InputError) as caught:
        rules_of(encoder, **call)
    assert named in str(caught.value)
    assert not any(value in str(caught.value) for value in ("Atlantis", "young", "-20"))


def test_nothing_is_constrained_where_nothing_is_said() -> None:
    rows = table(0)
    encoder = Population.from_frame(rows, schema_of(rows)).encoder
    assert (
        rules_of(encoder)
        == rules_of(encoder, "all", {})
        == rules_of(encoder, FEATURES)
        == rules_of(encoder, None)
        == {}
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"immutable": ["height"]}, "immutable: unknown column height"),
        ({"immutable": "age"}, "immutable columns must be a list"),
        ({"monotone": {"height": "increase"}}, "monotone: unknown column height"),
        ({"monotone": {"age": "up"}}, "neither for age"),
        ({"monotone": {"city": "increase"}}, "'city': monotone"),
        ({"monotone": ["age"]}, "monotone must be a mapping"),
        ({"immutable": ["age"], "monotone": {"age": "increase"}}, "immutable and monotone: age"),
        ({"immutable": ["job"], "identifiers": ["job"]}, "'job': only features"),
        ({"monotone": {"pay": "increase"}, "target": "pay"}, "'pay': only features"),
    ],
)
def test_a_schema_names_what_cannot_be_immutable_or_monotone(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(SchemaError, match=named):
        schema_of(table(0), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"never_advise": {"jbo": ["nurse"]}},
            (
                "never_advise: unknown column jbo; the table has ['age', 'born', 'city', 'grade',"
                " 'zip', 'pay', 'job']; did you mean 'job'?"
            ),
        ),
        (
            {"never_advise": ["job"]},
            (
                "never_advise must be a mapping, column to a list of values, such as"
                ' {"savings": ["unknown"]}; got list'
            ),
        ),
        (
            {"never_advise": {"job": "nurse"}},
            "column 'job': never_advise must be a list of values, got str",
        ),
        (
            {"never_advise": {"grade": ["top", "midd"]}},
            "column 'grade': never_advise names midd, which is not declared; did you mean 'mid'?",
        ),
        (
            {"never_advise": {"city": ["a"]}},
            "column 'city': never_advise names a, which is not declared; did you mean 'A'?",
        ),
        (
            {
                "never_advise": {"job": ["nurs"]},
                "columns": {"job": Attribute(categories=["clerk", "nurse", "smith"])},
            },
            "column 'job': never_advise names nurs, which is not declared; did you mean 'nurse'?",
        ),
        (
            {"never_advise": {"job": ["nurs"]}},
            (
                "column 'job': never_advise names nurs, which no row has; check the spelling, or"
                " declare all values in categories"
            ),
        ),
        (
            {"never_advise": {"zip": [1000, "2000", 3000.0]}},
            (
                "column 'zip': never_advise names every value, so nobody could be told to change it;"
                ' write immutable=["zip"] instead'
            ),
        ),
        (
            {"never_advise": {"pay": [None, 0]}},
            (
                "column 'pay': never_advise can name None, a missing value, but no number or date:"
                " limit these with bounds, or with permitted_range in a call"
            ),
        ),
        (
            {"never_advise": {"born": ["1980-01-01"]}},
            (
                "column 'born': never_advise can name None, a missing value, but no number or date:"
                " limit these with bounds, or with permitted_range in a call"
            ),
        ),
        (
            {"never_advise": {"job": ["nurse"]}, "immutable": ["job"]},
            (
                "immutable and never_advise: job; no value is ever advised of what never changes, so"
                " leave it out of never_advise"
            ),
        ),
        (
            {"never_advise": {"job": ["nurse"]}, "identifiers": ["job"]},
            "column 'job': never_advise is of features only",
        ),
    ],
)
def test_a_schema_says_in_full_what_cannot_be_meant_by_never_advise(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        schema_of(table(0), **options)
    assert str(caught.value) == message


def test_rows_have_no_say_where_all_is_declared() -> None:
    rows = table(0)
    nullable = ["age", "grade", "pay", "city"]
    schema = schema_of(rows, never_advise={"job": ["retired", None]}, nullable=nullable)
    assert schema.never_advised == {"job": {"retired", None}}
    with pytest.raises(SchemaError, match="'grade': never_advise names retired"):
        schema_of(rows, never_advise={"grade": ["retired"]}, nullable=nullable)


def test_a_schema_counts_values_that_are_never_advised_and_names_none() -> None:
    never_advise = {"job": ["nurse"], "grade": ["top", None]}
    schema = schema_of(table(0), never_advise=never_advise, monotone={"grade": "increase"})
    shown = schema._repr_html_()
    assert "yes, but never to 1 value<" in shown
    assert "upwards only, but never to 2 values<" in shown
    assert "nurse" not in shown


def test_what_cannot_change_is_in_files_and_in_no_fingerprint(tmp_path: Path) -> None:
    rows, key = table(0), b"key"
    plain = schema_of(rows)
    said = schema_of(
        rows,
        immutable=["city"],
        monotone={"age": "increase"},
        never_advise={"job": ["nurse", None], "zip": [1000]},
    )
    both = [Population.from_frame(rows, schema, key=key) for schema in (plain, said)]
    assert both[0].fingerprint == both[1].fingerprint
    (tmp_path / "schema.json").write_text(
        '{"quasi_identifiers": ["age", "zip"], "immutable": ["zip"], "monotone": {"age": "increase"},'
        ' "never_advise": {"job": ["nurse", null]}}'
    )
    read = read_schema(tmp_path / "schema.json", rows)
    assert [read[name].change for name in ("zip", "age", "job")] == ["never", "increase", "any"]
    assert read.never_advised == {"job": {"nurse", None}}
    with pytest.raises(SchemaError, match="change is one of"):
        SchemaAttribute(name="age", change="sometimes")  # type: ignore[arg-type]
