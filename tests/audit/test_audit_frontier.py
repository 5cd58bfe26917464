"""`cfk audit frontier` end to end, and a frontier in MLflow."""

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

from cfk_plugin.cli import app

CANARY = "canary-91be"
FEATURES = ["age", "sex", "salary"]
COMMAND = "audit frontier train.csv cf.csv -s schema.json -m model.joblib --desired yes --ks 2,5,12"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(90)],
            "age": random.integers(18, 80, 90),
            "sex": random.integers(0, 2, 90),
            "salary": random.integers(20, 120, 90),
        }
    )
    frame["outcome"] = np.where(frame["salary"] + frame["age"] > 110, "yes", "no")
    return frame


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(rows[FEATURES], rows["outcome"])
    yes = model.predict(rows[FEATURES]) == "yes"
    rows.to_csv("train.csv", index=False)
    rows[yes].head(6)[FEATURES].to_csv("cf.csv", index=False)
    rows[~yes].head(6)[FEATURES].to_csv("facts.csv", index=False)
    joblib.dump(model, "model.joblib")
    schema = {"quasi_identifiers": ["age", "sex"], "identifiers": ["name"], "target": "outcome", "nominal": ["sex"]}
    Path("schema.json").write_text(json.dumps(schema), encoding="utf-8")


def cfk(command: str, code: int) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def report(path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return content


def test_figures_and_plot_are_written(tmp_path: Path) -> None:
    result = cfk(f"{COMMAND} --k 5 -o frontier.json --plot frontier.png", code=0)
    found = report("frontier.json")
    assert (found["kind"], found["asked"], found["policy"]["k"]) == ("frontier", 6, 5)
    assert [point["k"] for point in found["points"]] == [2, 5, 12]
    assert all(point["k_min"] >= point["k"] for point in found["points"])
    assert Path("frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "over all 6 counterfactuals" in result.stdout
    assert f"{found['points'][2]['ncp_mean']['value']:.3f} (" in result.stdout


def test_policy_file_method_and_factuals() -> None:
    Path("policy.json").write_text(json.dumps({"k": 7, "guarantee": "catalogue"}), encoding="utf-8")
    command = COMMAND.replace("yes", "opposite").replace("2,5,12", "9,3")
    cfk(f"{command} --factuals facts.csv --policy policy.json --seed 4 -o frontier.json --plot frontier.svg", code=0)
    found = report("frontier.json")
    assert (found["policy"]["k"], found["method"], found["seed"]) == (7, "catalogue", 4)
    assert [point["k"] for point in found["points"]] == [3, 9]
    assert CANARY not in Path("frontier.svg").read_text(encoding="utf-8")


def test_nothing_released_is_exit_code_3() -> None:
    Path("facts.csv").rename("cf.csv")
    result = cfk(f"{COMMAND} --plot frontier.pdf", code=3)
    assert "rows do not compare" in result.stdout
    assert Path("frontier.pdf").exists()


def test_a_frontier_is_logged_with_k_as_the_step(mlflow_store: str) -> None:
    import mlflow

    result = cfk(f"{COMMAND} --experiment costs -o frontier.json", code=0)
    experiment = mlflow.get_experiment_by_name("costs").experiment_id
    (run,) = mlflow.search_runs([experiment], output_format="list")
    assert run.info.run_id in result.stderr
    assert (run.info.status, run.data.tags["cfk.frontier"]) == ("FINISHED", "1")
    assert run.data.params["frontier.ks"] == "2,5,12"
    points = report("frontier.json")["points"]
    for name in ("ncp_mean", "common_pureness_mean", "suppressed_rate"):
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, f"frontier/{name}")
        assert [(one.step, one.value) for one in history] == [(p["k"], pytest.approx(p[name]["value"])) for p in points]
    logged = mlflow.artifacts.load_dict(f"runs:/{run.info.run_id}/cfk/frontier.json")
    assert logged == report("frontier.json")


WRONG = {
    "no numbers": (COMMAND.replace("2,5,12", "few"), "--ks takes whole numbers with commas between"),
    "one person": (COMMAND.replace("2,5,12", "1,5"), "k must be a whole number >= 2"),
    "k above the population": (COMMAND.replace("12", "1000"), "k = 1000 is above the number of people, 90"),
    "report of another kind": (f"{COMMAND} -o frontier.csv", "frontier.csv: the report must end in .json"),
    "plot of another kind": (f"{COMMAND} --plot frontier.gif", "frontier.gif: the plot must end in .png, .svg or .pdf"),
    "folder missing": (f"{COMMAND} --plot no/frontier.png", "the folder does not exist"),
    "no counterfactuals": (COMMAND.replace("cf.csv", "nope.csv"), "nope.csv: no such file"),
    "method of another guarantee": (f"{COMMAND} --method exact", 'needs method="auto"'),
}


@pytest.mark.parametrize(("command", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_one_clear_line(command: str, message: str) -> None:
    result = cfk(command, code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output
