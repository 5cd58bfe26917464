"""`cfk audit epsilon` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from cfk_plugin.cli import app

CANARY_ROW = "row-7e1f"
MADE_UP = "made-up-31b9"
AUDIT = "audit epsilon train.csv -s schema.json --claimed 1 --canary canary.json --runs 40"
MODULE = """
import numpy as np

def noisy(rows, random_state):
    assert "name" not in rows
    return (rows["town"] == "made-up-31b9").sum() + np.random.default_rng(random_state).laplace()

def exact(rows):
    return rows["age"].sum()

def copied(rows):
    return rows

def broken(rows):
    raise ValueError(str(rows))

def size(output):
    return len(output)

number = 3
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"name": [f"{CANARY_ROW}-{i}" for i in range(60)], "age": random.integers(18, 80, 60)})
    rows.assign(town=[f"{CANARY_ROW}-{i % 4}" for i in range(60)]).to_csv("train.csv", index=False)
    schema = {"quasi_identifiers": ["age"], "identifiers": ["name"], "bounds": {"age": [0, 99]}}
    Path("schema.json").write_text(json.dumps(schema), encoding="utf-8")
    Path("canary.json").write_text(json.dumps({"age": 99, "town": MADE_UP}), encoding="utf-8")
    many = pd.DataFrame({"age": np.arange(40) % 90, "town": [f"{MADE_UP}-{i}" for i in range(40)]})
    many.to_csv("many.csv", index=False)
    Path("audited_functions.py").write_text(MODULE, encoding="utf-8")


def cfk(command: str, code: int) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY_ROW not in result.output
    assert MADE_UP not in result.output
    assert result.exit_code == code, result.output
    return result


def report(path: str = "report.json") -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    assert CANARY_ROW not in text
    assert MADE_UP not in text
    content: dict[str, Any] = json.loads(text)
    return content


def test_a_claim_that_is_not_refuted() -> None:
    result = cfk(f"{AUDIT} --fit audited_functions:noisy -o report.json", code=0)
    assert "80 runs, about" in result.stderr
    assert "these sizes could show at most 1.60" in result.stdout
    assert "pass: the claim epsilon = 1 is not refuted, which does not prove it" in result.stdout
    found = report()
    assert (found["verdict"], found["figures"]["runs"], found["relation"]) == ("pass", 40, "add-remove")


def test_a_claim_that_is_refuted() -> None:
    result = cfk(f"{AUDIT} --fit audited_functions:exact --relation replace-one -o report.json", code=1)
    assert "fail: the claim epsilon = 1 is refuted" in result.stdout
    assert "note: every run of a world gave the same output" in result.stdout
    assert report()["relation"] == "replace-one"
    cfk(f"{AUDIT} --fit audited_functions:copied --score audited_functions:size", code=1)


def test_so_few_runs_that_nothing_can_be_refuted() -> None:
    result = cfk(f"{AUDIT.replace('--claimed 1', '--claimed 3')} --fit audited_functions:exact", code=3)
    assert "so few runs cannot refute the claim" in result.stderr
    assert "at least 152 runs in each world" in " ".join(result.stdout.split())


def test_one_run() -> None:
    command = AUDIT.replace("canary.json", "many.csv")
    result = cfk(f"{command} --fit audited_functions:copied --one-run -o report.json", code=1)
    assert "40 made-up people" in result.stdout
    assert (report()["kind"], report()["figures"]["canaries"]) == ("epsilon_one_run", 40)


def test_the_same_command_gives_the_same_report() -> None:
    for name in ("one", "two"):
        cfk(f"{AUDIT} --fit audited_functions:noisy --seed 5 -o {name}.json", code=0)
    assert report("one.json") == report("two.json")


def test_audits_are_logged(mlflow_store: str) -> None:
    import mlflow

    cfk(f"{AUDIT} --fit audited_functions:noisy --delta 0.001 --experiment audits", code=0)
    experiment = mlflow.get_experiment_by_name("audits").experiment_id
    (run,) = mlflow.search_runs([experiment], output_format="list")
    assert run.data.metrics["audit/epsilon/epsilon_low"] < run.data.metrics["audit/epsilon/ceiling"]
    assert run.data.tags["cfk.audit.epsilon.verdict"] == "pass"
    assert (run.data.params["audit.epsilon.claimed"], run.data.params["audit.epsilon.delta"]) == ("1.0", "0.001")
    text = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/cfk/audit-epsilon.json")
    assert json.loads(text)["verdict"] == "pass"


def test_our_own_prototypes_are_audited_by_name() -> None:
    pytest.importorskip("opendp", reason="the extra [dp] is not installed")
    declared = {"categories": {"town": [MADE_UP, *(f"{CANARY_ROW}-{i}" for i in range(4))]}, "nullable": []}
    schema = json.loads(Path("schema.json").read_text(encoding="utf-8"))
    Path("schema.json").write_text(json.dumps({**schema, **declared}), encoding="utf-8")
    result = cfk(f"{AUDIT} --method dp -o report.json", code=0)
    assert "epsilon = 1 is not refuted" in result.stdout
    assert report()["figures"]["epsilon_low"] < 1


FIT = "--fit audited_functions:noisy"
WRONG = {
    "no canary": (f"{AUDIT.replace('--canary canary.json', '')} {FIT}", "--canary is missing: give one made-up person"),
    "no canaries": (f"{AUDIT.replace('--canary canary.json', '')} {FIT} --one-run", "give 20 made-up people"),
    "one canary for one run": (f"{AUDIT} {FIT} --one-run", "at least 8 canaries, got 1"),
    "canary of other columns": (f"{AUDIT.replace('canary.json', 'thin.csv')} {FIT}", "check town"),
    "canary of no JSON": (f"{AUDIT.replace('canary.json', 'bad.json')} {FIT}", "bad.json: not a row"),
    "no module": (f"{AUDIT} --fit nowhere:noisy", "nowhere:noisy: cannot be imported (ModuleNotFoundError)"),
    "no such function": (f"{AUDIT} --fit audited_functions:none", "the module has no none"),
    "no function": (f"{AUDIT} --fit audited_functions:number", "audited_functions:number: is no function"),
    "no name": (f"{AUDIT} --fit audited_functions", "give a function as module:function"),
    "broken function": (f"{AUDIT} --fit audited_functions:broken", "the audited function failed (ValueError)"),
    "unknown relation": (f"{AUDIT} {FIT} --relation swap", "relation must be one of"),
    "unknown backend": (f"{AUDIT} {FIT} --backend gpu", "backend must be one of"),
    "delta of 1": (f"{AUDIT} {FIT} --delta 1", "delta must be at least 0 and below 1"),
    "nothing to audit": (AUDIT, "give --fit module:function, or --method (dp), and not both"),
    "two things to audit": (f"{AUDIT} {FIT} --method dp", "and not both"),
    "unknown method": (f"{AUDIT} --method magic", "unknown method magic; known: dp"),
    "score of a method": (f"{AUDIT} --method dp --score a:b", "--score goes with --fit"),
    "no public domain": (f"{AUDIT} --method dp", "'town' lacks categories"),
    "too few runs": (f"{AUDIT.replace('--runs 40', '--runs 4')} {FIT}", "Invalid value for '--runs'"),
    "report of another kind": (f"{AUDIT} {FIT} -o report.csv", "the report must end in .json"),
}


@pytest.mark.parametrize(("command", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_clear_line(command: str, message: str) -> None:
    Path("thin.csv").write_text("age\n30\n", encoding="utf-8")
    Path("bad.json").write_text("{", encoding="utf-8")
    result = cfk(command, code=2)
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output
