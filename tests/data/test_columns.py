"""Rare settings of single columns, which `Schema.from_frame` reads from `columns=`."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Attribute, Hierarchy, Schema
from cfk_plugin.errors import SchemaError

TABLE = pd.DataFrame(
    {
        "who": [7, 7, 8],
        "age": [20, 30, 40],
        "town": ["a", "b", "b"],
        "zip": [1000, 2000, 1000],
        "since": ["2020-01-01", "2021-06-01", "2020-01-01"],
        "label": [0, 1, 0],
    }
)
ZIP = {1000: ["1*"], 2000: ["2*"]}


def schema_of(**columns: Any) -> Schema:
    return Schema.from_frame(
        TABLE,
        quasi_identifiers=["age", "town", "zip"],
        subject="who",
        target="label",
        columns=columns,
        nullable=[],
    )


def test_settings_are_read_by_column() -> None:
    schema = schema_of(
        age=Attribute(bounds=(18, 99), bins=[18, 50, 99], weight=3, whole=True),
        town=Attribute(categories=["a", "b", "c"], weight=1, phrases={"a": "in a"}),
        zip=Attribute(hierarchy=ZIP, weight=0),
        since=Attribute(bounds=("2019-01-01", "2022-01-01")),
        label=Attribute(categories=[0, 1]),
    )
    age = schema["age"]
    assert (age.bounds, age.bins, age.weight, age.dtype) == ((18, 99), (18, 50, 99), 0.75, "int64")
    assert schema["town"].categories == ("a", "b", "c")
    assert schema["zip"].hierarchy == Hierarchy.of(ZIP)
    assert (schema["since"].kind, schema["since"].dtype) == ("numeric", "datetime64[us]")
    assert (schema["label"].kind, schema["label"].dtype) == ("nominal", "int64")
    assert schema.wording.phrases == {"town": {"a": "in a"}}
    assert schema.is_public


def test_an_empty_setting_changes_nothing() -> None:
    assert schema_of(age=Attribute(), town=Attribute()) == schema_of()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["age"], "columns must be a mapping, column to its Attribute; got list"),
        ({"agee": Attribute()}, "columns: unknown column agee; .*did you mean 'age'"),
        ({"age": {"bounds": (0, 99)}}, r"column 'age': write .*Attribute\(.*got dict"),
        ({"who": Attribute(whole=True)}, "column 'who' is subject, .*leave it out of columns"),
        ({"label": Attribute(bins=[0, 1])}, "column 'label': only numeric features can have bins"),
        ({"pay": Attribute(weight=1)}, "column 'pay': only quasi-identifiers can have a weight"),
        ({"age": Attribute(weight=-1)}, "column 'age': weight must be a finite number >= 0"),
        ({"age": Attribute(weight=float("nan"))}, "column 'age': weight must be a finite number"),
        ({"age": Attribute(weight="2")}, "column 'age': weight must be a number, got str"),
        ({"age": Attribute(weight=0)}, "positive sum"),
        ({"age": Attribute(bounds=3)}, "column 'age': bounds must be a list of values, got int"),
        ({"age": Attribute(bounds=(3, 1))}, r"column 'age': bounds are \(low, high\)"),
        ({"age": Attribute(bounds=(1, 2, 3))}, r"column 'age': bounds are \(low, high\)"),
        ({"town": Attribute(bounds=(1, 3))}, r"column 'town': bounds are \(low, high\)"),
        ({"age": Attribute(bins=["a", "b"])}, "column 'age': .*bins"),
        ({"town": Attribute(whole=True)}, "column 'town': whole=True is only for numeric columns"),
        ({"town": Attribute(categories="ab")}, "column 'town': categories must be a list"),
        ({"town": Attribute(hierarchy=3)}, "column 'town': a hierarchy is a table or a mapping"),
        ({"town": Attribute(hierarchy={})}, "column 'town': a hierarchy needs at least one value"),
    ],
)
def test_errors_name_the_column_of_a_setting(columns: Any, text: str) -> None:
    table = TABLE.assign(pay=[1.5, 2.5, 3.5])
    with pytest.raises(SchemaError, match=text):
        Schema.from_frame(
            table, quasi_identifiers=["age"], subject="who", target="label", columns=columns
        )
