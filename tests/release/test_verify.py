"""`cfk verify` counts the people of a released file again, and fails a file that says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin import Population
from cfk_plugin._files import read_schema
from cfk_plugin.cli import app

CANARY = "secret-7f3a"
ROW = {
    "name": CANARY,
    "age": 34,
    "sex": 1,
    "zip": "2018",
    "school": "low",
    "salary": 31337,
    "job": "spy",
}
FEATURES = ["age", "sex", "zip", "school", "salary", "job"]
SCHEMA: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex", "zip", "school"],
    "identifiers": ["name"],
    "target": "outcome",
    "sensitive": ["job"],
    "nominal": ["sex"],
    "ordinal": {"school": ["low", "mid", "high"]},
    "columns": {
        "zip": {"hierarchy": {"2000": ["2*"], "2018": ["2*"], "9000": ["9*"], "9050": ["9*"]}}
    },
}
PUBLIC: dict[str, Any] = {
    "quasi_identifiers": ["age"],
    "columns": {
        "age": {"bounds": [18, 60]},
        "salary": {"bounds": [20, 120]},
        "job": {"categories": ["a", "b", "c"]},
    },
    "nullable": [],
}
POLICIES: dict[str, dict[str, Any]] = {
    "lookup": {"k": 5, "guarantee": "lookup"},
    "catalogue": {"k": 5, "guarantee": "catalogue"},
    # so that some are less pure than 1
    "diverse": {"k": 5, "l": 2, "t": 0.9, "min_pureness": 0.5},
}
KINDS = [*POLICIES, "prototypes"]
MODEL = "-m model.joblib -d yes"
PROTECT = "protect train.csv cf.csv -s schema.json -m model.joblib -d yes"
KEYED = f"{PROTECT} --factuals factuals.csv --k 5 -o keyed.json"


def people() -> pd.DataFrame:
    random = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(n)],
            "age": random.integers(18, 60, n),
            "sex": random.integers(0, 2, n),
            "zip": random.choice(["2000", "2018", "9000", "9050"], n),
            "school": random.choice(["low", "mid", "high"], n),
            "salary": random.integers(20, 120, n),
            "job": random.choice(["a", "b", "c"], n),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 100, "yes", "no")
    return frame


def cfk(command: str, code: int | None = None, **environment: str) -> Result:
    result = CliRunner().invoke(app, command.split(), env=environment)
    assert code is None or result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a release of each kind, as the commands write them."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_releases()
    return folder


def write_releases() -> None:
    train = people()
    train.to_csv("train.csv", index=False)
    rows = pd.read_csv("train.csv")
    numbers = make_column_transformer(("passthrough", ["age", "sex", "salary"]))
    model = make_pipeline(numbers, DecisionTreeClassifier(max_depth=4, random_state=0))
    joblib.dump(model.fit(rows[FEATURES], rows["outcome"]), "model.joblib")
    label = model.predict(rows[FEATURES])
    accepted, rejected = rows[label == "yes"][FEATURES], rows[label == "no"][FEATURES]
    pd.concat([accepted.head(2), rejected.head(1)]).to_csv("cf.csv", index=False)
    pd.concat([rejected.head(2), accepted.head(1)]).to_csv("factuals.csv", index=False)
    Path("schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    rows[["age", "salary", "job"]].to_csv("people.csv", index=False)
    Path("public.json").write_text(json.dumps(PUBLIC), encoding="utf-8")
    for name, policy in POLICIES.items():
        Path(f"{name}.policy").write_text(json.dumps(policy), encoding="utf-8")
        factuals = "" if name == "lookup" else "--factuals factuals.csv"
        cfk(f"{PROTECT} {factuals} --policy {name}.policy -o {name}.json")
    Path("prototypes.json").write_text(prototypes(rows), encoding="utf-8")


def prototypes(rows: pd.DataFrame) -> str:
    pytest.importorskip("opendp")
    from cfk_plugin import DPPrototypes

    table = rows[["age", "salary", "job"]]
    population = Population.from_frame(table, read_schema(Path("public.json"), table))
    fitted = DPPrototypes(epsilon=1.0, rows=500).fit(
        population, model=lambda x: x["salary"] > 60, desired=True
    )
    text: str = fitted.explain(table[table["salary"] <= 60].head(2)).to_json()
    return text


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return that folder to work in; what a test adds to it is taken away."""
    there = set(made.iterdir())
    monkeypatch.chdir(made)
    yield made
    for path in set(made.iterdir()) - there:
        path.unlink()


def content_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{name}.json").read_text(encoding="utf-8"))
    return found


def verify(content: Any, options: str = "") -> Result:
    """Write a file and verify it as it stands; nothing of what was put into it may be told."""
    text = content if isinstance(content, str) else json.dumps(content)
    Path("changed.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    table = "people.csv -s public.json" if '"prototype"' in text else "train.csv -s schema.json"
    result = cfk(f"verify changed.json --train {table} {options}")
    assert CANARY not in result.output
    assert "31337" not in result.output
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("folder")
def test_a_release_passes_as_it_was_written(kind: str) -> None:
    result = verify(content_of(kind))
    assert result.exit_code == (3 if kind == "prototypes" else 0), result.output
    assert "not checked: who wrote the file" in result.output
    assert ("pureness (--model)" in result.output) == (kind != "prototypes")


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.usefixtures("folder")
def test_a_release_passes_with_its_model(kind: str) -> None:
    result = verify(content_of(kind), MODEL)
    assert result.exit_code == 0, result.output
    assert "(--model)" not in result.output


def entry(content: dict[str, Any], i: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["explanations"][i]
    return found


POINT = {"age": 30, "sex": 1, "zip": "2018", "school": "low"}
PURENESS = ("pureness", "pureness_low", "pureness_high")
FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a note": (
        lambda c: entry(c).update(note=f"this is {CANARY}"),
        "explanation 0 has a key that the format does not know",
    ),
    "a row in place of an entry": (lambda c: c["explanations"].append(ROW), "explanation 3"),
    "a number that is none": (
        lambda c: entry(c)["certificate"].update(ncp=float("nan")),
        "certificate.ncp is not of type number",
    ),
    "another version": (lambda c: c.update(schema_version=2), "schema_version is none of"),
    "an undeclared column": (
        lambda c: entry(c)["released"].update(iban=CANARY),
        "releases a column that is not in the schema",
    ),
    "an identifier": (lambda c: entry(c)["released"].update(name=CANARY), "releases name exactly"),
    "another column": (lambda c: c["columns"].append(CANARY), "columns are not the features"),
    "a name in a set": (
        lambda c: entry(c)["region"]["sex"]["values"].append(CANARY),
        "its region of sex is none of",
    ),
    "a name as a level": (
        lambda c: entry(c)["region"]["school"]["levels"].append(CANARY),
        "its region of school is none of",
    ),
    "a name as an end": (
        lambda c: entry(c)["region"]["age"].update(low=CANARY),
        "its region of age is none of a numeric attribute",
    ),
    "a name as a category": (lambda c: entry(c)["released"].update(job=CANARY), "releases job"),
    "a name as advice": (
        lambda c: entry(c).update(advised=POINT | {"age": CANARY}),
        "advises age otherwise than as a value in its domain",
    ),
    "a name as the least value": (
        lambda c: entry(c).update(advised=POINT, least={"job": CANARY}),
        "advises job otherwise than as a value in its domain",
    ),
    "advice about a private attribute": (
        lambda c: entry(c).update(advised=POINT | {"job": "a"}),
        "its advice is not about the quasi-identifiers",
    ),
    "a policy with another k": (lambda c: c["policy"].update(k=2), "policy_hash is not"),
    "fewer people than k": (
        lambda c: entry(c)["region"].update(age={"kind": "interval", "low": 18, "high": 18}),
        "people, fewer than k",
    ),
    "fewer attacks": (
        lambda c: entry(c)["certificate"]["not_stopped"].remove("intersection after a change"),
        "not_stopped is not what the policy does not stop",
    ),
}


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.usefixtures("folder")
def test_a_forged_entry_is_named_by_its_place(how: str) -> None:
    change, problem = FORGED[how]
    content = content_of("catalogue")
    change(content)
    result = verify(content)
    assert result.exit_code == 1
    assert problem in " ".join(result.output.replace("│", " ").split())


TEXTS: dict[str, tuple[Callable[[str], str], str]] = {
    "half a file": (lambda text: text[: len(text) // 2], "line"),
    "text after the end": (lambda text: text + CANARY, "line"),
    "nested without end": (lambda _: '{"a":' * 100_000, "RecursionError"),
    "a list": (lambda text: f"[{text}]", "no object at the top"),
}


@pytest.mark.parametrize("how", TEXTS)
@pytest.mark.usefixtures("folder")
def test_text_that_is_no_json_object_is_one_line(how: str) -> None:
    change, problem = TEXTS[how]
    result = verify(change(Path("lookup.json").read_text(encoding="utf-8")))
    assert result.exit_code == 2
    assert problem in result.output
    assert result.output.count("\n") == 1


def test_more_people_than_counted_fail_for_a_known_table(folder: Path) -> None:
    """Without the key, the difference may come from a table that has changed since."""
    cfk(KEYED, 0, CFK_KEY="one")
    content = content_of("keyed")
    entry(content)["certificate"]["k"] = 500
    Path("keyed.json").write_text(json.dumps(content), encoding="utf-8")
    verified = "verify keyed.json --train train.csv -s schema.json"
    for code, key in ((1, "one"), (3, "")):
        result = cfk(verified, code, CFK_KEY=key)
        assert "the certificate says something else" in " ".join(
            result.output.replace("│", " ").split()
        )


@pytest.mark.usefixtures("folder")
def test_a_pureness_that_the_model_contradicts_fails() -> None:
    protect = "protect train.csv train.csv -s schema.json -m model.joblib -d yes"
    wide = {"k": 60, "guarantee": "lookup", "objective": "ncp"}
    Path("wide.policy").write_text(json.dumps(wide), encoding="utf-8")
    cfk(f"{protect} --policy wide.policy -o many.json", 3)
    content = content_of("many")
    certificates = [e["certificate"] for e in content["explanations"] if "certificate" in e]
    impure = next(certificate for certificate in certificates if certificate["pureness"] < 1)
    impure.update(dict.fromkeys(PURENESS, 1.0))
    assert verify(content).exit_code == 0  # nobody asked the model
    result = verify(content, MODEL)
    assert result.exit_code == 1
    assert "pureness is not what the model says" in result.output


@pytest.mark.usefixtures("folder")
def test_a_file_without_its_schema_names_the_quasi_identifiers() -> None:
    roles = {"quasi_identifiers": ["age", "sex"], "nominal": ["sex"]}
    people()[["age", "sex", "salary"]].to_csv("plain.csv", index=False)
    pd.read_csv("plain.csv").head(3).to_csv("plain-cf.csv", index=False)
    Path("plain-schema.json").write_text(json.dumps(roles), encoding="utf-8")
    joblib.dump(OldEnough(), "plain.joblib")
    command = "protect plain.csv plain-cf.csv -s plain-schema.json -m plain.joblib -d 1"
    cfk(f"{command} --policy lookup.policy -o plain.json", 0)
    counted = cfk("verify plain.json --train plain.csv -m plain.joblib -d 1", 0).output
    assert "240 people in the table" in counted
    assert "not checked: that each row is a person" in counted
    with_schema = cfk("verify plain.json --train plain.csv -s plain-schema.json", 0).output
    assert counted.splitlines()[0] == with_schema.splitlines()[0]


class OldEnough:
    """A model that accepts everybody."""

    classes_ = np.array([0, 1])

    def predict(self, rows: pd.DataFrame) -> Any:
        return (rows["age"].to_numpy() > 0).astype(int)


@pytest.mark.usefixtures("folder")
def test_a_file_with_levels_needs_its_schema() -> None:
    result = cfk("verify lookup.json --train train.csv", 2)
    assert "does not say the order of all levels; give --schema" in result.output


@pytest.mark.usefixtures("folder")
def test_the_findings_are_json_on_request() -> None:
    content = content_of("catalogue")
    entry(content)["certificate"]["ncp"] = 0.5
    found = json.loads(verify(content, "--json").output)
    assert found["verdict"] == "review"
    assert [finding["where"] for finding in found["findings"]] == ["explanation 0"]
    assert found["fewest_people"] >= 5


def test_another_table_or_key_is_noticed_by_who_has_the_key(folder: Path) -> None:
    cfk(KEYED, 0, CFK_KEY="one")
    verified = "verify keyed.json --train train.csv -s schema.json"
    assert "set CFK_KEY" not in cfk(verified, 0, CFK_KEY="one").output
    assert "another population" in cfk(verified, 3, CFK_KEY="two").output


@pytest.mark.parametrize("name", ["lookup", "changed"])
@pytest.mark.usefixtures("folder")
def test_output_that_nobody_reads_changes_no_exit_code_and_is_no_error(name: str) -> None:
    """As with ``cfk verify ... | head -1``, whose reader ends before the output does."""
    content = content_of("lookup")
    if name == "changed":
        content["explanations"][0]["certificate"]["k"] = 3
    Path(f"{name}-read.json").write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "cfk_plugin.cli", "verify", f"{name}-read.json"]
    command += ["--train", "train.csv", "-s", "schema.json"]
    read = subprocess.run(command, capture_output=True, check=False)
    assert read.stdout
    nobody_reads, end = os.pipe()
    os.close(nobody_reads)
    unread = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, check=False)
    os.close(end)
    assert unread.returncode == read.returncode == (0 if name == "lookup" else 1)
    assert unread.stderr == read.stderr == b""


MIXED: list[tuple[str, dict[str, Any]]] = [
    ("1", {"k": 5, "guarantee": "lookup", "objective": "ncp"}),
    ("opposite", {"k": 30}),
    ("1", {"k": 5, "guarantee": "catalogue"}),
]


@pytest.mark.parametrize(("desired", "policy"), MIXED)
def test_what_comes_of_dates_gaps_and_numbers_that_no_row_has_passes(
    desired: str, policy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random, n = np.random.default_rng(1), 120
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 300, n), "D")
    train = people().head(n).drop(columns=["name", "outcome"])
    train["weight"] = np.where(
        random.random(n) < 0.1, np.nan, np.round(50 + 30 * random.random(n), 2)
    )
    train["since"], train["until"] = (
        days.strftime("%Y-%m-%d"),
        (days + pd.Timedelta(days=9)).strftime("%Y-%m-%d"),
    )
    train["note"] = random.choice(["x", "y", None], n)
    numbers = train[["age", "salary"]].sum(axis=1)
    model = make_pipeline(
        make_column_transformer(("passthrough", ["age", "salary"])),
        DecisionTreeClassifier(max_depth=4, random_state=0),
    ).fit(train, np.digitize(numbers, [90, 120]))
    joblib.dump(model, "model.joblib")
    train.to_csv("train.csv", index=False)
    native = train.sample(5, random_state=0)
    synthetic = native.assign(
        age=native["age"] + 0.5, weight=native["weight"] + 0.011, salary=native["salary"] + 0.25
    )
    pd.concat([native, synthetic]).to_csv("cf.csv", index=False)
    quasi = {
        "quasi_identifiers": ["age", "weight", "since", "school", "zip"],
        "columns": {"age": {"weight": 2.0}, **SCHEMA["columns"]},
    }
    kept = {name: SCHEMA[name] for name in ("ordinal", "sensitive", "nominal")}
    Path("schema.json").write_text(json.dumps(quasi | kept), encoding="utf-8")
    Path("policy.json").write_text(json.dumps(policy), encoding="utf-8")
    given = f"-s schema.json -m model.joblib -d {desired} --policy policy.json"
    if policy.get("guarantee") != "lookup":
        given += " --factuals cf.csv"
    assert cfk(f"protect train.csv cf.csv {given} -o released.json").exit_code in (0, 3)
    cfk(f"verify released.json --train train.csv -s schema.json -m model.joblib -d {desired}", 0)
