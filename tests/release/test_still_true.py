"""The answers that `cfk verify` says another model still accepts, against a count by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cfk_plugin import (
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
)
from cfk_plugin._files import read_schema
from cfk_plugin.cli import app

LEVELS = ["low", "mid", "high"]
QUASI = ("age", "zip", "school")
SECRET = 31_337  # a salary that no message may tell


def people(n: int = 300, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "zip": random.choice(["A", "B", "C"], n),
            "school": random.choice(LEVELS, n),
            "pay": random.integers(0, 100, n).astype(float),
            "job": random.choice(["a", "b"], n),
        }
    )


class Bank:
    """Grants where the score reaches a limit; another limit is another model."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def predict(self, rows: pd.DataFrame) -> Any:
        school = rows["school"].map({level: 6 * i for i, level in enumerate(LEVELS)}).astype(float)
        score = rows["pay"] + rows["age"] + school - 9 * (rows["zip"] == "C")
        return np.where(score >= self.limit, "yes", "no")


TABLE = people()
SCHEMA = Schema.from_frame(
    TABLE,
    quasi_identifiers=list(QUASI),
    ordinal={"school": LEVELS},
    monotone={"school": "increase"},
)
POPULATION = Population.from_frame(TABLE, SCHEMA, key=b"the key of these tests")
OLD = Bank(95)
QUERIES = people(80, seed=1)
REFUSED = QUERIES[OLD.predict(QUERIES) == "no"].reset_index(drop=True)


@cache
def catalogue() -> KAnonymizer:
    return fitted()


def fitted(guarantee: str = "catalogue", desired: Any = "yes", **options: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee, **options)  # type: ignore[arg-type]
    return KAnonymizer(policy=policy).fit(POPULATION, OLD, desired)


def nearest_by_hand(name: str, part: Any, own: Any) -> Any:
    """Return the value of a region that the person would take, looking at all values one by one."""
    if name == "zip":
        return own if own in part else min(part)
    if name == "age":
        candidates = [age for age in {*TABLE["age"], own} if age in part]
        return min(candidates, key=lambda age: abs(age - own))
    candidates = [level for level in LEVELS if level in part]
    permitted = [each for each in candidates if LEVELS.index(each) >= LEVELS.index(own)]
    return min(permitted, key=lambda each: LEVELS.index(each) - LEVELS.index(own))


def row_by_hand(entry: Any, query: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(query)
    for name in QUASI:
        row[name] = nearest_by_hand(name, entry.region[name], query[name])
    return {**row, **entry.advised, **entry.released}


def broken_by_hand(explanations: Explanations, model: Bank, queries: pd.DataFrame) -> list[int]:
    broken = []
    for position, entry in enumerate(explanations):
        if entry.status == "released":
            row = row_by_hand(entry, queries.iloc[entry.query].to_dict())
            if model.predict(pd.DataFrame([row]))[0] != "yes":
                broken.append(position)
    return broken


# --- cfk verify -----------------------------------------------------------------------------------


def cfk(command: str, code: int) -> str:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with answers, a catalogue and models, as a user of the commands has them."""
    folder = tmp_path_factory.mktemp("made")
    TABLE.to_csv(folder / "train.csv", index=False)
    REFUSED.to_csv(folder / "queries.csv", index=False)
    roles = {
        "quasi_identifiers": list(QUASI),
        "ordinal": {"school": LEVELS},
        "monotone": {"school": "increase"},
    }
    (folder / "schema.json").write_text(json.dumps(roles), encoding="utf-8")
    for limit in (95, 97, 110):
        joblib.dump(Bank(limit), folder / f"{limit}.joblib")
    answers = catalogue().explain(REFUSED)
    (folder / "answers.json").write_text(answers.to_json(), encoding="utf-8")
    (folder / "catalogue.json").write_text(catalogue().published().to_json(), encoding="utf-8")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


VERIFY = "verify {} --train train.csv -s schema.json -d yes"


def counted(file: str, limit: float, options: str = "", code: int = 0) -> dict[str, Any]:
    """Return what the command finds with a model, as JSON."""
    command = f"{VERIFY.format(file)} -m {limit}.joblib {options} --json"
    found: dict[str, Any] = json.loads(cfk(command, code))
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("limit", "code"), [(95, 0), (97, 1), (110, 1)])
def test_answers_are_counted_as_by_hand(limit: float, code: int) -> None:
    explanations = catalogue().explain(REFUSED)
    broken = broken_by_hand(explanations, Bank(limit), REFUSED)
    found = counted("answers.json", limit, "--queries queries.csv", code)
    still_true = found["still_true"]
    assert still_true["broken"] == broken
    assert still_true["queries"] == [explanations[i].query for i in broken]  # type: ignore[union-attr]
    assert still_true["answers"] == len(explanations.released) > 20
    assert still_true["still_true"] == still_true["answers"] - len(broken)
    assert still_true["share"] == pytest.approx(still_true["still_true"] / still_true["answers"])
    refused = [each["where"] for each in found["findings"] if "not true" in each["problem"]]
    assert refused == [f"explanation {position}" for position in broken]
    assert found["verdict"] == ("fail" if code else "pass")
    assert "that --queries are those that were answered, in this order" in found["not_checked"]


@pytest.mark.usefixtures("folder")
def test_an_advised_point_is_asked_about_as_it_is(folder: Path) -> None:
    """The point may be outside of the region, and even where the region has no permitted value."""
    content = json.loads((folder / "answers.json").read_text("utf-8"))
    points = {}
    for position, entry in enumerate(content["explanations"]):
        if entry["status"] == "released":
            query = REFUSED.iloc[entry["query"]]
            entry["advised"] = {"age": int(query["age"]), "zip": "C", "school": "low"}
            points[position] = entry["advised"] | entry["released"]
    (folder / "points.json").write_text(json.dumps(content), encoding="utf-8")
    has_outcome = OLD.predict(pd.DataFrame([*points.values()])) == "yes"
    broken = [position for position, holds in zip(points, has_outcome, strict=True) if not holds]
    still_true = counted("points.json", 95, "--queries queries.csv", 1)["still_true"]
    assert still_true["broken"] == broken
    assert 0 < len(broken) < len(points) == still_true["answers"]


def share_by_hand(entry: Any, model: Bank) -> float:
    values = [
        [value for value in sorted(set(TABLE[name])) if value in entry.region[name]]
        for name in QUASI
    ]
    rows = [dict(zip(QUASI, cell, strict=True)) | dict(entry.released) for cell in product(*values)]
    return float((model.predict(pd.DataFrame(rows)) == "yes").mean())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("limit", "code"), [(95, 0), (110, 1)])
def test_an_entry_needs_the_least_pureness_of_the_policy(limit: float, code: int) -> None:
    published = catalogue().published()
    shares = [share_by_hand(entry, Bank(limit)) for entry in published]
    still_true = counted("catalogue.json", limit, code=code)["still_true"]
    assert still_true["broken"] == [i for i, share in enumerate(shares) if share < 0.5]
    assert still_true["answers"] == len(published) > 5


@pytest.mark.usefixtures("folder")
def test_without_queries_the_command_says_that_nobody_asked() -> None:
    told = cfk(f"{VERIFY.format('answers.json')} -m 95.joblib", 0)
    assert "not checked: that answers are true for the model (--queries)" in told
    assert "still true" not in told
    assert "--queries needs --model" in cfk(
        f"{VERIFY.format('answers.json')} --queries queries.csv", 2
    )


@pytest.mark.usefixtures("folder")
def test_other_queries_than_those_that_were_answered_are_refused(folder: Path) -> None:
    options = f"{VERIFY.format('answers.json')} -m 95.joblib --queries other.csv"
    REFUSED.head(2).to_csv(folder / "other.csv", index=False)
    assert "give all that were asked about" in cfk(options, 2)
    REFUSED.drop(columns="job").to_csv(folder / "other.csv", index=False)
    assert "missing columns" in cfk(options, 2)


@pytest.mark.usefixtures("folder")
def test_prototypes_are_asked_about_as_they_are(folder: Path) -> None:
    pytest.importorskip("opendp")
    table = TABLE[["age", "pay"]]
    roles = {
        "quasi_identifiers": ["age"],
        "columns": {"age": {"bounds": [20, 60]}, "pay": {"bounds": [0, 100]}},
        "nullable": [],
    }
    (folder / "plain-schema.json").write_text(json.dumps(roles), encoding="utf-8")
    population = Population.from_frame(table, read_schema(folder / "plain-schema.json", table))
    fit = DPPrototypes(epsilon=5.0, rows=300)
    fit.fit(population, model=lambda rows: (rows["pay"] > 60).astype(int), desired=1)
    explanations = fit.explain(table[table["pay"] <= 60].head(20))
    table.to_csv(folder / "plain.csv", index=False)
    (folder / "prototypes.json").write_text(explanations.to_json(), encoding="utf-8")
    joblib.dump(PaysMore(80), folder / "80.joblib")
    verify = "verify prototypes.json --train plain.csv -s plain-schema.json -d 1 -m 80.joblib"
    found = json.loads(cfk(f"{verify} --json", 1))
    expected = [
        i
        for i, entry in enumerate(explanations)
        if entry.status == "released" and not entry.values["pay"] > 80  # type: ignore[union-attr]
    ]
    assert found["still_true"]["broken"] == expected
    assert found["still_true"]["answers"] == len(explanations.prototypes) > 10


class PaysMore:
    """Grants above a limit of the pay."""

    classes_ = np.array([0, 1])

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def predict(self, rows: pd.DataFrame) -> Any:
        return (rows["pay"] > self.limit).to_numpy().astype(int)


@pytest.mark.usefixtures("folder")
def test_false_answers_without_a_promise_are_for_review(folder: Path) -> None:
    """Lookup answers are not asked about for the person, so a false one is no wrong file."""
    given = TABLE[OLD.predict(TABLE) == "yes"].head(len(REFUSED)).reset_index(drop=True)
    factuals = REFUSED.head(len(given))
    policy = PrivacyPolicy(k=40, guarantee="lookup", objective="ncp")
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, OLD, "yes")
    explanations = anonymizer.transform(given.head(len(factuals)), factuals)
    (folder / "lookup.json").write_text(explanations.to_json(), encoding="utf-8")
    found = counted("lookup.json", 95, "--queries queries.csv", 3)
    assert found["still_true"]["broken"] == broken_by_hand(explanations, OLD, factuals) != []
