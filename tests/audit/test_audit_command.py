"""`cfk audit linkage` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin.audit import ATTACKS
from cfk_plugin.cli import app

CANARY = "canary-5c1d"
FEATURES = ["age", "sex", "salary"]
AUDIT = "audit linkage train.csv cf.csv -s schema.json -m model.joblib --desired yes --k 5"
FAST = "--attacks linkage,inversion_own"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(150)],
            "age": random.integers(18, 80, 150),
            "sex": random.integers(0, 2, 150),
            "salary": random.integers(20, 120, 150),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 110, "yes", "no")
    return frame


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train, holdout = rows.head(110), rows.tail(40)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(train[FEATURES], train["outcome"])
    yes = model.predict(train[FEATURES]) == "yes"
    train.to_csv("train.csv", index=False)
    holdout.to_csv("holdout.csv", index=False)
    train[yes].head(6)[FEATURES].to_csv("cf.csv", index=False)
    train[~yes].head(6)[FEATURES].to_csv("facts.csv", index=False)
    joblib.dump(model, "model.joblib")
    schema = {"quasi_identifiers": ["age", "sex"], "identifiers": ["name"], "target": "outcome", "nominal": ["sex"]}
    Path("schema.json").write_text(json.dumps(schema), encoding="utf-8")


def cfk(command: str, code: int) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def report(path: str = "audit.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue"])
def test_what_the_guarantee_promises_holds(guarantee: str) -> None:
    result = cfk(f"{AUDIT} --guarantee {guarantee} --holdout holdout.csv -o audit.json", code=0)
    found = report()
    assert (found["verdict"], found["policy"]["guarantee"]) == ("pass", guarantee)
    assert [one["attack"] for one in found["results"]] == list(ATTACKS)
    assert all(f"{name}: " in result.stdout for name in ATTACKS)
    assert "inversion_own/everyone_k_effective_min" in result.stdout
    assert f"pass: 6 of 6 released, guarantee {guarantee}, k = 5" in result.stdout
    controls = {one["attack"]: one["control"] for one in found["results"]}
    assert controls["linkage"]["n"] > 0
    assert controls["steering"] is None


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.NominalGuaranteeWarning")
def test_a_nominal_guarantee_promises_the_look_up_alone() -> None:
    cfk(f"{AUDIT} --guarantee nominal --method exact {FAST} -o audit.json", code=0)
    assert [check["name"] for check in report()["checks"]] == ["linkage/k_min"]


def test_a_broken_promise_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfk_plugin.audit import result as results

    monkeypatch.setattr(results, "promised", lambda policy: ("inversion_own/k_releasable_min",))
    result = cfk(f"{AUDIT} --guarantee reciprocal {FAST}", code=1)
    assert "promised at least 5" in result.stdout
    assert "fail: " in result.stdout


def test_a_promise_that_was_not_tested_is_exit_code_3() -> None:
    result = cfk(f"{AUDIT} --attacks uniqueness", code=3)
    assert "linkage/k_min: not tested" in result.stdout
    Path("facts.csv").rename("cf.csv")
    assert "0 of 6 released" in cfk(f"{AUDIT} {FAST}", code=3).stdout


def test_policy_file_seed_limit_and_factuals() -> None:
    Path("policy.json").write_text(json.dumps({"k": 7, "guarantee": "catalogue"}), encoding="utf-8")
    command = AUDIT.replace("--k 5", "--policy policy.json").replace("yes", "opposite")
    cfk(f"{command} --factuals facts.csv --limit 4 --seed 9 {FAST},model_filter -o audit.json", code=0)
    found = report()
    assert (found["policy"]["k"], found["asked"], found["seed"]) == (7, 4, 9)


def test_the_same_command_gives_the_same_report() -> None:
    for name in ("one", "two"):
        cfk(f"{AUDIT} -o {name}.json", code=0)
    one, two = report("one.json"), report("two.json")
    one.pop("population"), two.pop("population")  # keyed: comparable within one process only
    assert one == two


def test_a_report_is_logged(mlflow_store: str, tmp_path: Path) -> None:
    import mlflow

    result = cfk(f"{AUDIT} {FAST} --experiment audits", code=0)
    experiment = mlflow.get_experiment_by_name("audits").experiment_id
    (run,) = mlflow.search_runs([experiment], output_format="list")
    assert run.info.run_id in result.stderr
    assert run.data.metrics["audit/inversion_own/k_effective_min"] >= 5
    assert run.data.tags["cfk.audit"] == "linkage"


WRONG = {
    "no training file": (AUDIT.replace("train.csv", "nope.csv"), "nope.csv: no such file"),
    "no holdout": (f"{AUDIT} --holdout nope.csv", "nope.csv: no such file"),
    "holdout without features": (f"{AUDIT} --holdout thin.csv", "holdout: missing columns"),
    "unknown attack": (f"{AUDIT} --attacks linkage,magic", "--attacks magic: known are linkage"),
    "no attack": (f"{AUDIT} --attacks ,", "--attacks names nothing: known are linkage"),
    "unknown guarantee": (f"{AUDIT} --guarantee magic", "guarantee must be one of"),
    "factuals of another length": (f"{AUDIT} --factuals thin.csv", "queries"),
    "report of another kind": (f"{AUDIT} -o audit.csv", "audit.csv: the report must end in .json"),
    "folder missing": (f"{AUDIT} -o no/audit.json", "the folder does not exist"),
    "limit of none": (f"{AUDIT} --limit 0", "Invalid value for '--limit'"),
    "negative seed": (f"{AUDIT} --seed -1", "Invalid value for '--seed'"),
    "k above the population": (AUDIT.replace("--k 5", "--k 1000"), "k = 1000 is above the number of people, 110"),
}


@pytest.mark.parametrize(("command", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_clear_line(command: str, message: str) -> None:
    Path("thin.csv").write_text("age\n30\n", encoding="utf-8")
    result = cfk(command, code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output
