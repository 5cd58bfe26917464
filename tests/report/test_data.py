"""The JSON of a report is read back as it was written, or refused with the place that is wrong."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cfk_plugin.errors import InputError
from cfk_plugin.report.amounts import Amount
from cfk_plugin.report.data import ReportData, json_schema
from small_report import report


def content() -> Any:
    return json.loads(report().to_json())


def test_what_was_written_is_read_back() -> None:
    data = report()
    assert ReportData.from_json(data.to_json()) == data
    assert ReportData.from_dict(data.to_dict()).to_json() == data.to_json()


def test_amounts_are_amounts_at_any_depth() -> None:
    data = ReportData.from_json(report().to_json())
    assert data.releases["reasons"]["infeasible"] == Amount(value=20)
    assert data.distributions[0].series["before"][0] == Amount(value=0.6)
    assert data.certificates[0]["k"] == Amount(value=13)


@pytest.mark.parametrize("name", list(content()))
def test_a_missing_key_is_named(name: str) -> None:
    damaged = content()
    del damaged[name]
    if name == "schema_version":
        with pytest.raises(InputError, match="schema_version none"):
            ReportData.from_dict(damaged)
    else:
        with pytest.raises(InputError, match=f"has no {name}$"):
            ReportData.from_dict(damaged)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["schema_version"], 2, "schema_version 2, and this release reads 1"),
        (["schema_version"], True, "schema_version"),
        (["more"], 1, "unknown key more"),
        (["checks", 0, "more"], 1, r"unknown key checks\[0\]\.more"),
        (["checks", 1, "measured", "value"], "canary", r"checks\[1\]\.measured\.value in the report must be a number"),
        (["checks", 0, "status"], "canary", r"checks\[0\]\.status in the report must be one of pass, review, fail"),
        (["checks", 0, "section"], True, r"checks\[0\]\.section in the report must be a whole number"),
        (["checks"], {"canary": 1}, "checks in the report must be a list"),
        (["groups", 0], "canary", r"groups\[0\] in the report must be an object"),
        (["report", "verdict"], "canary", r"report\.verdict in the report must be one of pass, review, fail"),
        (["report", "edition"], None, r"report\.edition in the report must be one of internal, external"),
        (["definitions", "k_min", "name"], 3, r"definitions\.k_min\.name in the report must be text"),
        (["metrics", 0, "amount", "value"], float("inf"), "must be a finite number"),
        (
            ["policy", "thresholds", 0, "value"],
            "canary",
            r"policy\.thresholds\[0\]\.value in the report must be a number",
        ),
        (
            ["releases", "reasons", "infeasible"],
            "canary",
            r"releases\.reasons\.infeasible in the report must be an object",
        ),
        (["report", "id"], "canary", r"report\.id in the report must be 16 hexadecimal digits"),
        (["report", "not_covered"], ["canary"], r"report\.not_covered in the report must be a list of another length"),
        (["runs", 0, "asked"], 1.5, r"runs\[0\]\.asked in the report must be a whole number"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(path: list[Any], value: Any, said: str) -> None:
    damaged = content()
    place = damaged
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InputError, match=said) as caught:
        ReportData.from_dict(damaged)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["verdict", "edition", "as_of", "period"])
def test_a_missing_part_of_the_head_is_named(name: str) -> None:
    damaged = content()
    del damaged["report"][name]
    with pytest.raises(InputError, match=rf"has no report\.{name}$"):
        ReportData.from_dict(damaged)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1"),
        ("[1]", "no JSON object"),
        ('{"a": NaN}', "holds NaN"),
        ("[" * 100_000, "deeply nested|not valid"),
    ],
)
def test_what_is_no_report_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ReportData.from_json(text)


def test_a_report_of_before_audits_were_named_opens() -> None:
    older = content()
    for name in ("subject", "concerns", "judged"):
        del older["attacks"][0][name]
    assert ReportData.from_dict(older) == report()


def test_the_shipped_schema_is_that_of_the_types() -> None:
    shipped = json.loads((files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text("utf-8"))
    assert shipped == json_schema()
    Draft202012Validator.check_schema(shipped)
    Draft202012Validator(shipped).validate(content())
