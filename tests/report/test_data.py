"""The JSON of a report is read back, or refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.data.formats import faults
from cfk_plugin.errors import InputError
from cfk_plugin.report.data import ReportData
from reported import content, example

SCHEMA = json.loads(
    (Path(reported.__file__).parents[2] / "cfk_plugin/schemas/report-1.schema.json").read_text()
)


def test_a_report_is_read_back_and_rendered_alike(tmp_path: Path) -> None:
    report = example()
    report.save(tmp_path / "report.json")
    again = PrivacyReport.read(tmp_path / "report.json")
    assert again.data == report.data
    assert isinstance(again.data, ReportData)
    assert again.to_html() == report.to_html()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema_version"], 2, "schema_version 2, and this release reads 1"),
        (["schema_version"], True, "schema_version True"),
        (["more"], 1, "unknown key"),
        (["checks", 1, "measured", "value"], "canary", r"checks\.1\.measured\.value is not of"),
        (["checks", 0, "status"], "canary", r"checks\.0\.status is not one of the values"),
        (["checks", 0, "section"], True, r"checks\.0\.section is not of type integer"),
        (["groups", 0], "canary", r"groups\.0 is not of type object"),
        (["metrics", 0, "amount", "value"], float("inf"), "holds Infinity"),
        (["report", "id"], "canary", r"report\.id is not what the format allows"),
        (["report", "not_covered"], ["canary"], r"report\.not_covered is not what"),
    ],
)
def test_a_fault_is_named_and_not_shown(
    path: list[Any], value: Any, message: str, tmp_path: Path
) -> None:
    damaged = content()
    part = damaged
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (tmp_path / "report.json").write_text(json.dumps(damaged))
    with pytest.raises(InputError, match=message) as caught:
        PrivacyReport.read(tmp_path / "report.json")
    assert "canary" not in str(caught.value)


def test_a_missing_part_is_named() -> None:
    for name in set(content()) - {"schema_version"}:
        damaged = content()
        del damaged[name]
        with pytest.raises(InputError, match=f"lacks {name}$"):
            ReportData.from_dict(damaged)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1"),
        ("[1]", "no JSON object"),
        ('{"a": NaN}', "holds NaN"),
        ("{}", "schema_version none"),
        ("[" * 100_000, "deeply nested|not valid"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReportData.from_json(text)


def test_reports_follow_the_schema(store: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    troubled = reported.withheld(reported.rows(80), 8, "verification_failed")
    attacked = json.loads(reported.membership({"membership_cfd": 1.0}).to_json())
    for changes in (
        {},
        {"table": troubled},
        {"population": None, "environment": None},
        {"audits": [attacked]},
    ):
        data = PrivacyReport.of_runs(reported.run(**changes)).data
        assert faults(json.loads(data.to_json()), "report-1") == []
        names = {each.id for each in (*data.checks, *data.metrics, *data.attacks)}
        assert names <= set(data.definitions)


def test_the_id_follows_from_the_content(store: str) -> None:
    run_id = reported.run()
    inputs = (None, None, {"thresholds": {"k": 20}})
    ids = [PrivacyReport.of_runs(run_id, inputs=each).data.report["id"] for each in inputs]
    assert ids[0] == ids[1] != ids[2]
