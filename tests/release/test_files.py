"""Files of released explanations are counted again, and a file that says otherwise is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pytest
from typer.testing import CliRunner

from cfk_plugin import Attribute, Hierarchy, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.errors import InputError
from cfk_plugin.release.files import FileRecount, recount
from worlds import Bank, residents

CANARY = "secret-7f3a"
LEVELS = ["low", "mid", "high"]
ZIPS = {"A1": ["A"], "A2": ["A"], "B1": ["B"], "B2": ["B"]}
QUASI = ["age", "zip", "school"]
KEY = b"the key of these tests"
K = 5


TABLE = residents().table.assign(name=[f"{CANARY}-{i}" for i in range(240)])
ROLES: dict[str, Any] = {
    "quasi_identifiers": QUASI,
    "identifiers": ["name"],
    "sensitive": ["job"],
    "ordinal": {"school": LEVELS},
    "columns": {"zip": Attribute(hierarchy=Hierarchy.of(ZIPS))},
}
SCHEMA = Schema.from_frame(TABLE, **ROLES)
POPULATION = Population.from_frame(TABLE, SCHEMA, key=KEY)
BANK = Bank(100)
IS_GRANTED = BANK.predict(TABLE) == "yes"
REFUSED = TABLE[~IS_GRANTED].drop(columns="name").head(12).reset_index(drop=True)
WITH_UNKNOWN = REFUSED.assign(job=["an unknown job", *REFUSED["job"][1:]])


@pytest.fixture(scope="module")
def files() -> Mapping[str, Any]:
    """Return the content of a file of each kind; of the catalogue, one entry in twenty."""
    fitted = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(POPULATION, BANK, "yes")
    opposite = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(POPULATION, BANK, "opposite")
    diverse = PrivacyPolicy(k=K, l=2, t=0.9, guarantee="lookup")
    lookup = KAnonymizer(policy=diverse).fit(POPULATION, BANK, "yes")
    native = TABLE[IS_GRANTED].head(4).drop(columns="name")
    synthetic = native.assign(age=native["age"] + 0.5)
    texts = {
        "answers": fitted.explain(REFUSED).to_json(),
        "withheld": fitted.explain(WITH_UNKNOWN).to_json(),
        "opposite": opposite.explain(REFUSED).to_json(),
        "catalogue": fitted.published().to_json(),
        "lookup": lookup.transform(pd.concat([native, synthetic])).to_json(),
    }
    contents = {kind: json.loads(text) for kind, text in texts.items()}
    contents["catalogue"]["explanations"] = contents["catalogue"]["explanations"][::20]
    return contents


@pytest.fixture
def content(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a catalogue, which a test may change."""
    catalogue: dict[str, Any] = deepcopy(files["catalogue"])
    return catalogue


def problems(report: FileRecount) -> str:
    """Return all problems as one text; no value of the file may be in it."""
    text = "; ".join(f"{finding.where} {finding.problem}" for finding in report.findings)
    assert CANARY not in text
    return text


@pytest.mark.parametrize("kind", ["answers", "opposite", "catalogue", "lookup"])
def test_file_passes_as_it_was_written(files: Mapping[str, Any], kind: str) -> None:
    """With the people only, with the model, and with the queries as well."""
    desired = "opposite" if kind == "opposite" else "yes"
    calls: list[dict[str, Any]] = [{}, {"model": BANK, "desired": desired}]
    if kind in ("answers", "opposite"):
        calls.append({**calls[-1], "queries": REFUSED})
    for call in calls:
        report = recount(files[kind], POPULATION, **call)
        assert (report.verdict, report.findings) == ("pass", [])
        assert min(report.n_people) >= K


def entry(content: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = content["explanations"][0]
    return first


POINT = {"age": 30, "zip": "A2", "school": "low"}
FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a note": (lambda c: entry(c).update(note=CANARY), "unknown key"),
    "another version": (lambda c: c.update(schema_version=2), "schema_version"),
    "an undeclared column": (lambda c: entry(c)["released"].update(iban=CANARY), "no other column"),
    "an identifier": (lambda c: entry(c)["released"].update(name=CANARY), "no other column"),
    "another column": (lambda c: c["columns"].append(CANARY), "not the features"),
    "a name in a set": (
        lambda c: entry(c)["region"]["zip"]["values"].append(CANARY),
        "its region of zip",
    ),
    "a name as a level": (
        lambda c: entry(c)["region"]["school"]["levels"].append(CANARY),
        "its region of school",
    ),
    "a name as an end": (
        lambda c: entry(c)["region"]["age"].update(low=CANARY),
        "its region of age",
    ),
    "a name as a category": (lambda c: entry(c)["released"].update(job=CANARY), "its value of job"),
    "a number as text": (lambda c: entry(c)["released"].update(salary="60"), "its value of salary"),
    "a name as advice": (
        lambda c: entry(c).update(advised=POINT | {"zip": CANARY}),
        "its value of zip",
    ),
    "advice on a private attribute": (
        lambda c: entry(c).update(advised=POINT | {"job": "a"}),
        "no other column",
    ),
    "a policy with another k": (lambda c: c["policy"].update(k=2), "policy_hash"),
    "more people than the policy's": (lambda c: entry(c)["certificate"].update(k=9), "in k"),
    "another loss": (lambda c: entry(c)["certificate"].update(ncp=0.99), "in ncp"),
    "fewer attacks": (lambda c: entry(c)["certificate"]["not_stopped"].pop(), "in not_stopped"),
    "fewer people than k": (
        lambda c: entry(c)["region"].update(age={"kind": "interval", "low": 18, "high": 18}),
        "fewer than k people",
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_forged_part_is_named(content: dict[str, Any], how: str) -> None:
    """The report fails, and its problem names the key, the column or the figure."""
    forge, problem = FORGED[how]
    forge(content)
    report = recount(content, POPULATION)
    assert report.verdict == "fail"
    assert problem in problems(report)


def test_pureness_that_the_model_contradicts_fails(content: dict[str, Any]) -> None:
    """Without the model, no one can count pureness again, and the file passes."""
    shares = dict.fromkeys(("pureness", "pureness_low", "pureness_high"), 0.07)
    entry(content)["certificate"].update(shares)
    assert recount(content, POPULATION).verdict == "pass"  # nobody asked the model
    assert "in pureness" in problems(recount(content, POPULATION, model=BANK, desired="yes"))


def test_later_model_breaks_some_answers(files: Mapping[str, Any]) -> None:
    """As many as by hand: the row that an answer advises, with the query's own other values."""
    later = Bank(115)
    by_hand = []
    for position, answer in enumerate(files["answers"]["explanations"]):
        if answer["status"] == "released":
            row = pd.DataFrame([answer["advised"] | answer["released"]])
            if later.predict(row)[0] != "yes":
                by_hand.append(position)
    report = recount(files["answers"], POPULATION, model=later, desired="yes", queries=REFUSED)
    assert report.untrue == by_hand
    assert 0 < len(by_hand) <= (report.n_answers or 0)
    assert "is not true" in problems(report)


def test_untrue_answer_is_counted_if_forbidden(files: Mapping[str, Any]) -> None:
    """Answers that break the schema and that the model refuses have two findings."""
    schema = Schema.from_frame(TABLE, **ROLES, immutable=["age", "salary"])
    strict = Population.from_frame(TABLE, schema, key=KEY)
    call: dict[str, Any] = {"model": Bank(115), "desired": "yes", "queries": REFUSED}
    report = recount(files["answers"], strict, **call)
    assert "a change that the schema excludes" in problems(report)
    assert report.untrue == recount(files["answers"], POPULATION, **call).untrue


def test_withheld_query_need_not_be_readable(files: Mapping[str, Any]) -> None:
    """Only queries that were answered are asked about; the first has an unknown category."""
    call: dict[str, Any] = {"model": BANK, "desired": "yes", "queries": WITH_UNKNOWN}
    report = recount(files["withheld"], POPULATION, **call)
    assert (report.verdict, report.n_answers) == ("pass", len(REFUSED) - 1)


def test_later_model_leaves_entries_impure(content: dict[str, Any]) -> None:
    """A stricter model also leaves fewer than k people with the outcome."""
    report = recount(content, POPULATION, model=Bank(170), desired="yes")
    assert "below the policy's floor" in problems(report)
    assert "fewer than k people in its region have the outcome" in problems(report)


def test_call_cannot_lower_k(content: dict[str, Any]) -> None:
    """A larger k is checked; with a smaller one, that of the policy still is."""
    assert "fewer than k people" in problems(recount(content, POPULATION, k=len(TABLE)))
    few = Population.from_frame(TABLE.head(K), SCHEMA)
    assert "fewer than k people" in problems(recount(content, few, k=2))


def test_other_key_is_for_review(files: Mapping[str, Any]) -> None:
    """Whoever has another key, or another table, has to look; without a key nobody can tell."""
    other = Population.from_frame(TABLE, SCHEMA, key=b"another key")
    assert recount(files["answers"], other).verdict == "review"
    unkeyed = recount(files["answers"], Population.from_frame(TABLE, SCHEMA))
    assert unkeyed.verdict == "pass"
    assert any("CFK_KEY" in statement for statement in unkeyed.unchecked)


def test_other_outcome_than_asked_fails(files: Mapping[str, Any]) -> None:
    """The answers are about `yes`, and the call names `no`."""
    report = recount(files["answers"], POPULATION, model=BANK, desired="no")
    assert "another outcome than --desired" in problems(report)


@pytest.mark.parametrize("queries", [REFUSED.head(2), REFUSED.drop(columns="job")])
def test_other_queries_than_answered_raise(files: Mapping[str, Any], queries: pd.DataFrame) -> None:
    """There are fewer of them, or a column is missing."""
    with pytest.raises(InputError, match="queries"):
        recount(files["answers"], POPULATION, model=BANK, desired="yes", queries=queries)


def test_prototypes_are_judged_by_model_only() -> None:
    """No people can be counted for them, so that a person has to look."""
    pytest.importorskip("opendp")
    from cfk_plugin import DPPrototypes

    table = TABLE[["age", "salary"]]
    bounds = {"age": Attribute(bounds=(18, 60)), "salary": Attribute(bounds=(20, 120))}
    schema = Schema.from_frame(table, quasi_identifiers=["age"], columns=bounds, nullable=[])
    population = Population.from_frame(table, schema)
    fitted = DPPrototypes(epsilon=5.0, rows=300)
    fitted.fit(population, lambda rows: rows["salary"] > 60, True)
    explanations = fitted.explain(table[table["salary"] <= 60].head(20))
    content = json.loads(explanations.to_json())
    without_model = recount(content, population)
    assert without_model.verdict == "review"
    assert any("--model" in statement for statement in without_model.unchecked)
    assert any("--k" in statement for statement in recount(content, population, k=5).unchecked)
    report = recount(content, population, model=lambda rows: rows["salary"] > 80, desired=True)
    values = [prototype.values["salary"] for prototype in explanations.prototypes]
    assert report.untrue == [i for i, salary in enumerate(values) if not salary > 80]
    assert report.n_answers == len(values)


# The command


@pytest.fixture
def cfk(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, str]]:
    """Return a function that runs a command in a folder with a catalogue, its table and model."""
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("train.csv", index=False)
    joblib.dump(BANK, "model.joblib")
    Path("file.json").write_text(json.dumps(content), encoding="utf-8")
    roles = {
        "quasi_identifiers": QUASI,
        "identifiers": ["name"],
        "sensitive": ["job"],
        "ordinal": {"school": LEVELS},
        "columns": {"zip": {"hierarchy": ZIPS}},
    }
    Path("schema.json").write_text(json.dumps(roles), encoding="utf-8")

    def run(command: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, command.split(), env={"CFK_KEY": KEY.decode()})
        assert CANARY not in result.output
        return result.exit_code, " ".join(result.output.replace("│", " ").split())

    return run


def test_command_prints_what_it_counted(cfk: Callable[[str], tuple[int, str]]) -> None:
    """It also prints what it cannot check, such as who wrote the file."""
    model = "-m model.joblib -d yes"
    code, output = cfk(f"verify file.json --train train.csv -s schema.json {model}")
    assert code == 0, output
    assert "240 people in the table" in output
    assert "not checked: who wrote the file" in output


def test_command_prints_findings_as_json(
    cfk: Callable[[str], tuple[int, str]], content: dict[str, Any]
) -> None:
    """A finding has the place of its explanation, and the exit code is 1."""
    entry(content)["certificate"]["k"] = 9
    Path("file.json").write_text(json.dumps(content), encoding="utf-8")
    code, output = cfk("verify file.json --train train.csv -s schema.json --json")
    findings = json.loads(output)["findings"]
    assert (code, [finding["where"] for finding in findings]) == (1, ["explanation 0"])


def test_command_needs_a_schema_for_levels(cfk: Callable[[str], tuple[int, str]]) -> None:
    """A CSV file does not have their order; the message names the option."""
    code, output = cfk("verify file.json --train train.csv")
    assert (code, "give --schema" in output) == (2, True)


def test_command_infers_schema_of_plain_columns(cfk: Callable[[str], tuple[int, str]]) -> None:
    """It states that nobody declared whether each row is a person."""
    plain = TABLE[["age", "salary"]]
    plain.to_csv("plain.csv", index=False)
    population = Population.from_frame(plain, Schema.from_frame(plain, quasi_identifiers=["age"]))
    fitted = KAnonymizer(policy=PrivacyPolicy(k=K))
    fitted.fit(population, lambda rows: (rows["salary"] > 60).astype(int), 1)
    Path("plain.json").write_text(fitted.published().to_json(), encoding="utf-8")
    code, output = cfk("verify plain.json --train plain.csv")
    assert code in (0, 3), output
    assert "not checked: that each row is a person" in output


@pytest.mark.parametrize("text", ["{", '{"a":' * 100_000, "[1]"])
def test_unreadable_file_gives_one_line(cfk: Callable[[str], tuple[int, str]], text: str) -> None:
    """No traceback is printed for broken JSON, deep nesting, or a list."""
    Path("file.json").write_text(text, encoding="utf-8")
    code, output = cfk("verify file.json --train train.csv -s schema.json")
    assert code == 2
    assert output.startswith("cfk: ")
