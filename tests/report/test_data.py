"""The JSON of a report is read back or refused with the place that is wrong, and says what changed
since another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.errors import InputError
from cfk_plugin.report.data import json_schema
from cfk_plugin.report.delivery import compare
from reported import amount, content, example, line

SCHEMA = json.loads(
    (files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text(encoding="utf-8")
)


def read(text: str, folder: Path) -> PrivacyReport:
    path = folder / "report.json"
    path.write_text(text, encoding="utf-8")
    return PrivacyReport.read(path)


def at(made: Any, path: list[Any]) -> Any:
    for step in path:
        made = made[step]
    return made


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["schema_version"], 2, "schema_version 2, and this release reads 1"),
        (["schema_version"], True, "schema_version"),
        (["more"], 1, "unknown key more"),
        (["checks", 0, "more"], 1, r"unknown key checks\[0\]\.more"),
        (
            ["checks", 1, "measured", "value"],
            "canary",
            r"checks\[1\]\.measured\.value in the report must be a number",
        ),
        (
            ["checks", 0, "status"],
            "canary",
            r"checks\[0\]\.status in the report must be one of pass, review, fail",
        ),
        (
            ["checks", 0, "section"],
            True,
            r"checks\[0\]\.section in the report must be a whole number",
        ),
        (["checks"], {"canary": 1}, "checks in the report must be a list"),
        (["groups", 0], "canary", r"groups\[0\] in the report must be an object"),
        (
            ["report", "edition"],
            None,
            r"report\.edition in the report must be one of internal, external",
        ),
        (
            ["definitions", "k_min", "name"],
            3,
            r"definitions\.k_min\.name in the report must be text",
        ),
        (["metrics", 0, "amount", "value"], float("inf"), "must be a finite number|holds Infinity"),
        (
            ["policy", "thresholds", 0, "value"],
            "canary",
            r"policy\.thresholds\[0\]\.value .* must be a number",
        ),
        (
            ["releases", "reasons", "x"],
            "canary",
            r"releases\.reasons\.x in the report must be an object",
        ),
        (["report", "id"], "canary", r"report\.id in the report must be 16 hexadecimal digits"),
        (
            ["report", "not_covered"],
            ["canary"],
            r"report\.not_covered in the report must be a list of another length",
        ),
        (["runs", 0, "asked"], 1.5, r"runs\[0\]\.asked in the report must be a whole number"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(
    path: list[Any], value: Any, said: str, tmp_path: Path
) -> None:
    damaged = content()
    at(damaged, path[:-1])[path[-1]] = value
    with pytest.raises(InputError, match=said) as caught:
        read(json.dumps(damaged), tmp_path)
    assert "canary" not in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for name in set(content()) - {"schema_version"}:
        with pytest.raises(InputError, match=f"has no {name}$"):
            read(
                json.dumps({key: value for key, value in content().items() if key != name}),
                tmp_path,
            )
    for name in ("verdict", "edition", "as_of", "period"):
        damaged = content()
        del damaged["report"][name]
        with pytest.raises(InputError, match=rf"has no report\.{name}$"):
            read(json.dumps(damaged), tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1"),
        ("[1]", "no JSON object"),
        ('{"a": NaN}', "holds NaN"),
        ("{}", "schema_version none"),
        ("[" * 100_000, "deeply nested|not valid"),
    ],
)
def test_what_is_no_report_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read(text, tmp_path)


def test_reports_follow_the_schema_that_is_shipped(store: str) -> None:
    assert json_schema() == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    troubled = reported.withheld(reported.rows(80), 8, "verification_failed")
    attacked = json.loads(
        reported.membership({"membership_cfd": 1.0}, epsilon=1.0, **reported.OF_POLICY).to_json()
    )
    for changes in (
        {},
        {"table": troubled},
        {"population": None, "environment": None},
        {"audits": [attacked]},
    ):
        run_id = reported.run(**changes)
        for edition in ("internal", "external"):
            data = PrivacyReport.of_runs(run_id, edition=edition).data  # type: ignore[arg-type]
            jsonschema.validate(
                json.loads(data.to_json()), SCHEMA, cls=jsonschema.Draft202012Validator
            )
            shown = (
                {c.id for c in data.checks}
                | {m.id for m in data.metrics}
                | {a.id for a in data.attacks}
            )
            assert shown <= set(data.definitions)
            assert all(found.does_not_say.strip() for found in data.definitions.values())


def test_the_name_of_a_report_follows_from_its_content(store: str) -> None:
    run_id = reported.run()
    ids = [
        PrivacyReport.of_runs(run_id, preset=preset).data.report["id"]
        for preset in (None, None, "k20")
    ]
    assert ids[0] == ids[1] != ids[2]


# --- what changed ---


def changes(
    after: PrivacyReport, before: PrivacyReport | None = None
) -> dict[str, tuple[str, str]]:
    return {
        change["what"]: (change["before"], change["after"])
        for change in compare((before or example()).data, after.data)
    }


def test_the_same_report_has_not_changed() -> None:
    assert changes(example()) == {}
    metrics = [each for each in content()["metrics"] if each["amount"]["value"]]
    nearly = [
        each | {"amount": each["amount"] | {"value": each["amount"]["value"] * 1.000001}}
        for each in metrics
        if isinstance(each["amount"]["value"], float)
        and each["amount"]["low"] != each["amount"]["value"]
        if not each["amount"]["value"].is_integer()  # whole counts are shown to the last digit
    ]
    same = {each["id"] for each in nearly}
    kept = [each for each in content()["metrics"] if each["id"] not in same]
    # what three digits do not show is no change
    assert changes(example(metrics=[*kept, *nearly])) == {}


def test_checks_thresholds_and_the_verdict_are_compared() -> None:
    before = example(
        checks=[line("k_min"), line("pureness"), line("ncp", "not_measured", amount())],
        report={"verdict": "fail"},
    )
    after = example(
        checks=[line("k_min", "fail", 7), line("pureness", needed=10), line("l_diversity")],
        report={"verdict": "review"},
    )
    assert changes(after, before) == {
        "verdict": ("fail", "review"),
        "check k_min": ("pass (12)", "fail (7)"),
        "threshold of pureness": ("12", "10"),
        "check ncp": ("not measured", "not in the report"),
        "check l_diversity": ("not in the report", "pass (12)"),
    }


@pytest.mark.parametrize(
    ("after", "overlap", "text"),
    [
        (amount(0.91, 0.9, 0.94), " (intervals overlap)", "0.91 (0.9–0.94)"),
        (amount(0.91, 0.8, 0.92), " (intervals do not overlap)", "0.91 (0.8–0.92)"),
        (amount(0.91), "", "0.91"),
        (amount(7, band="1–10"), "", "1–10"),
    ],
)
def test_figures_say_whether_intervals_overlap(
    after: Mapping[str, Any], overlap: str, text: str
) -> None:
    def of(found: Mapping[str, Any]) -> PrivacyReport:
        attack = content()["attacks"][0] | {"id": "linkage", "main": found}
        metric = {"id": "pureness_mean", "amount": found, "section": 7, "method": ""}
        return example(metrics=[metric], attacks=[attack])

    told = ("0.96 (0.93–0.98)", text)
    assert changes(of(after), of(amount(0.96, 0.93, 0.98))) == {
        f"metric pureness_mean{overlap}": told,
        f"attack linkage{overlap}": told,
    }


def test_policy_population_schema_answers_and_software_are_compared() -> None:
    def policies(*settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        none = {"first": None, "last": None, "asked": amount(3)}
        return [{"sha256": f"hash {one['k']}", "settings": one, **none} for one in settings]

    column = {**content()["attributes"][0], "name": "age", "bounds_source": "learned"}
    software = {
        "packages": {"numpy": "2.0"},
        "plugins": ["dice 0.1.0", "nice 1.0.0"],
        "python": "3.11.9",
        "model": "m-1",
    }
    before = example(
        policy={"policies": policies({"k": 12, "l": None})},
        attributes=[column],
        environment=software,
    )
    software = {
        "packages": {"numpy": "2.1"},
        "plugins": ["dice 0.2.0"],
        "python": "3.12.1",
        "model": "m-2",
    }
    after = example(
        policy={"policies": policies({"k": 10, "l": 2}), "preset": "paper"},
        population={"fingerprint": "beef", "people": amount(band="1–10")},
        attributes=[{**column, "bounds_source": "declared"}, {**column, "name": "zip"}],
        system={"system": "risk 4"},
        environment=software,
    )
    old = example().data
    assert changes(after, before) == {
        "policy: preset": ("ema-0070", "paper"),
        "policy: k": ("12", "10"),
        "policy: l": ("none", "2"),
        "population: fingerprint": (old.population["fingerprint"], "beef"),
        "population: people": (old.population["people"].band, "1–10"),
        "attribute age: bounds_source": ("learned", "declared"),
        "attribute zip": ("not in the report", "quasi-identifier"),
        "answer: system": (old.system["system"], "risk 4"),
        "plugin: dice": ("0.1.0", "0.2.0"),
        "plugin: nice": ("1.0.0", "not in the report"),
        "package: numpy": ("2.0", "2.1"),
        "python": ("3.11.9", "3.12.1"),
        "model": ("m-1", "m-2"),
    }
    two = example(policy={"policies": policies({"k": 12}, {"k": 10})})
    assert changes(two, before)["policies"] == ("hash 12", "hash 10, hash 12")


def test_editions_are_not_compared(store: str) -> None:
    run_id = reported.run()
    internal = PrivacyReport.of_runs(run_id)
    with pytest.raises(InputError, match="give one of the same edition"):
        PrivacyReport.of_runs(run_id, edition="external", previous=internal)


def test_changes_stand_in_the_next_report(store: str) -> None:
    run_id = reported.run()
    first = PrivacyReport.of_runs(run_id)
    low = reported.rows()
    low.loc[5, "k"] = 3
    then = PrivacyReport.of_runs([run_id, reported.run(low)], previous=first)
    assert "check k_min" in {change["what"] for change in then.data.changes or ()}
    assert PrivacyReport.of_runs(run_id, previous=first).data.changes == ()
