"""What `cfk verify` lets pass: nothing that was put into a file, and only what it says that it cannot know."""

from __future__ import annotations

import copy
import json
import os
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

from cfk_plugin import Population, Schema
from cfk_plugin.cli import app

CANARY = "secret-7f3a"
ROW = {"name": CANARY, "age": 34, "sex": 1, "zip": "2018", "school": "low", "salary": 31337, "job": "spy"}
FEATURES = ["age", "sex", "zip", "school", "salary", "job"]
SCHEMA: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex", "zip", "school"],
    "identifiers": ["name"],
    "target": "outcome",
    "sensitive": ["job"],
    "nominal": ["sex"],
    "ordinal": {"school": ["low", "mid", "high"]},
    "hierarchies": {"zip": {"2000": ["2*"], "2018": ["2*"], "9000": ["9*"], "9050": ["9*"]}},
    "bins": {"salary": [20, 40, 60, 90, 120]},
}
PUBLIC: dict[str, Any] = {
    "quasi_identifiers": ["age"],
    "bounds": {"age": [18, 60], "salary": [20, 120]},
    "categories": {"job": ["a", "b", "c"]},
    "nullable": [],
}
POLICIES: dict[str, dict[str, Any]] = {
    "nominal": {"k": 5, "guarantee": "nominal"},
    "reciprocal": {"k": 5},
    "catalogue": {"k": 5, "guarantee": "catalogue"},
    "coarse": {"k": 5, "private_values": "bins", "rare_values": "withhold", "alpha": 0.6, "l": 2, "t": 0.9},
}
OWN_CLAIMS = {"released", "reason", "gap", "prototype"}
"""Where another fitting value cannot be told from the true one by who has file and table alone."""


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
    here = Path.cwd()
    os.chdir(folder)
    train = people()
    train.to_csv("train.csv", index=False)
    rows = pd.read_csv("train.csv")
    numbers = make_column_transformer(("passthrough", ["age", "sex", "salary"]))
    model = make_pipeline(numbers, DecisionTreeClassifier(max_depth=4, random_state=0))
    joblib.dump(model.fit(rows[FEATURES], rows["outcome"]), "model.joblib")
    label = model.predict(rows[FEATURES])
    pd.concat([rows[label == "yes"].head(2), rows[label == "no"].head(1)])[FEATURES].to_csv("cf.csv", index=False)
    Path("schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    Path("public.json").write_text(json.dumps(PUBLIC | {"identifiers": ["name"], "target": "outcome"}), "utf-8")
    for name, policy in POLICIES.items():
        Path(f"{name}.policy").write_text(json.dumps(policy), encoding="utf-8")
        cfk(f"protect train.csv cf.csv -s schema.json -m model.joblib -d yes --policy {name}.policy -o {name}.json", 3)
    Path("prototypes.json").write_text(prototypes(rows), encoding="utf-8")
    os.chdir(here)
    return folder


def prototypes(rows: pd.DataFrame) -> str:
    pytest.importorskip("opendp")
    from cfk_plugin import DPPrototypes

    table = rows[["age", "salary", "job"]]
    population = Population.from_frame(table, Schema.from_frame(table, **PUBLIC))
    fitted = DPPrototypes(epsilon=1.0, rows=500).fit(population, model=lambda x: x["salary"] > 60, desired=True)
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
    table = "train.csv -s schema.json"
    if "prototype" in text and "people.csv" not in options:
        pd.read_csv("train.csv")[["age", "salary", "job"]].to_csv("people.csv", index=False)
        Path("dp.json").write_text(json.dumps(PUBLIC), encoding="utf-8")
        table = "people.csv -s dp.json"
    result = cfk(f"verify changed.json {table} {options}")
    assert CANARY not in result.output
    assert "31337" not in result.output
    return result


def mutations(content: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield what somebody could do to a file at each place of it: how, where, and the file that results."""
    for path in places(content):
        for how, change in CHANGES.items():
            whole = {"": copy.deepcopy(content)}
            holder: Any = whole
            for step in ("", *path)[:-1]:
                holder = holder[step]
            change(holder, ("", *path)[-1])
            if "" in whole and json.dumps(whole[""]) != json.dumps(content):
                yield how, path, whole[""]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, value in inner:
        yield from places(value, (*path, step))


def put(value: Any) -> Callable[[Any, Any], Any]:
    def change(holder: Any, step: Any) -> None:
        holder[step] = value

    return change


def within(kind: type | tuple[type, ...], act: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Change what is there, where it is of a kind; booleans are no numbers."""

    def change(holder: Any, step: Any) -> None:
        value = holder[step]
        if isinstance(value, kind) and (not isinstance(value, bool) or kind is bool):
            holder[step] = act(value)

    return change


def removed(holder: Any, step: Any) -> None:
    holder.pop(step)


def repeated(holder: Any, step: Any) -> None:
    if isinstance(holder, list):
        holder.insert(step, copy.deepcopy(holder[step]))


def swapped(value: list[Any]) -> list[Any]:
    return value[1:] + value[:1] if len(value) > 1 else value


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "a row in its place": put(ROW),
    "a value of a row in its place": put(31337),
    "a name in its place": put(CANARY),
    "none in its place": put(None),
    "a note added": within(dict, lambda value: {**value, "note": CANARY}),
    "a row added": within(dict, lambda value: {**value, "values": ROW}),
    "a key that is a value": within(dict, lambda value: {**value, CANARY: 1}),
    "a row appended": within(list, lambda value: [*value, ROW]),
    "a name appended": within(list, lambda value: [*value, CANARY]),
    "taken out": removed,
    "doubled": repeated,
    "other order": within(list, swapped),
    "one more": within((int, float), lambda value: value + 1),
    "a bit more": within((int, float), lambda value: value + 0.001),
    "less": within((int, float), lambda value: value / 2),
    "negative": within((int, float), lambda value: -value - 1),
    "as text": within((int, float), str),
    "a letter more": within(str, lambda value: value + "x"),
    "empty": within((str, list, dict), lambda value: type(value)()),
    "the contrary": within(bool, lambda value: not value),
}
KINDS = [*POLICIES, "prototypes"]
PASS = {"prototypes": 3}  # a person has to look: no people can be counted for them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("folder")
def test_what_is_written_passes_as_it_is(kind: str) -> None:
    result = verify(content_of(kind))
    assert result.exit_code == PASS.get(kind, 0), result.output
    assert "not checked: " in result.output


def judged(kind: str, step: int) -> tuple[int, list[tuple[str, tuple[Any, ...]]]]:
    """Verify every so many-th mutation; return how many, and those that were not noticed."""
    tried, passed, as_it_is = 0, [], verify(content_of(kind)).output
    for how, path, changed in list(mutations(content_of(kind)))[::step]:
        tried += 1
        result = verify(changed)
        if result.exit_code == PASS.get(kind, 0) and (kind not in PASS or result.output == as_it_is):
            passed.append((how, path))
        assert "unexpected" not in result.output, (how, path, result.output)
    return tried, passed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("folder")
def test_whatever_is_put_into_a_file_is_noticed(kind: str) -> None:
    tried, passed = judged(kind, step=13)
    assert tried > 90
    assert [(how, path) for how, path in passed if not OWN_CLAIMS & set(path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("folder")
def test_whatever_is_put_anywhere_into_a_file_is_noticed(kind: str) -> None:
    tried, passed = judged(kind, step=1)
    assert tried > 1200
    assert [(how, path) for how, path in passed if not OWN_CLAIMS & set(path)] == []
