"""`cfk audit all` end to end: a budget, several who answer, a file, runs in MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import joblib
import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner, Result

from cfk_plugin.cli import app

CANARY = "town-7e1f"
ALL = "audit all people.csv -s schema.json -d yes -m model.joblib"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    n = 600
    people = pd.DataFrame(
        {
            "age": random.integers(18, 80, n),
            "household": random.integers(1, 6, n),
            "income": random.integers(15, 90, n),
            "savings": random.integers(0, 60, n),
        }
    )
    people["granted"] = np.where(people["income"] + random.normal(0, 15, n) > 50, "yes", "no")
    people.to_csv("people.csv", index=False)
    people.assign(town=[f"{CANARY}-{i}" for i in range(n)]).to_csv("towns.csv", index=False)
    schema = {"quasi_identifiers": ["age", "household"], "target": "granted"}
    Path("schema.json").write_text(json.dumps(schema), encoding="utf-8")
    joblib.dump(LogisticRegression(max_iter=200), "model.joblib")
    joblib.dump(len, "length.joblib")


def cfk(command: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def audits(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    assert content["kind"] == "all"
    return {(report["owner"], report["audit"]): report for report in content["reports"]}


@pytest.mark.slow
def test_what_will_be_shown_is_said_before_and_what_was_found_after() -> None:
    result = cfk(
        f"{ALL} --against raw,reciprocal --only linkage,membership,attribute_inference --budget 30m -o out.json"
    )
    said = " ".join(result.stderr.split())
    assert "5 audits, about" in said
    assert "models are trained on 180 of 600 people" in said
    assert "membership: sees an AUC of" in said
    assert "nothing at a false positive rate of 0.01 or 0.001" in said
    assert list(audits("out.json")) == [
        ("raw", "attribute_inference"),
        ("raw", "membership"),
        ("reciprocal", "linkage"),
        ("reciprocal", "attribute_inference"),
        ("reciprocal", "membership"),
    ]
    for report in audits("out.json").values():
        for found in report["results"]:
            assert found["scenario"] in " ".join(result.stdout.split())
            assert found["main"]["low"] <= (found["main"]["value"] or 0.5) <= found["main"]["high"]
    raw, protected = (audits("out.json")[name, "attribute_inference"]["results"][0] for name in ("raw", "reciprocal"))
    assert raw["figures"]["fits_one"] > 0.1
    assert protected["figures"]["fits_one"] == 0


@pytest.mark.slow
def test_a_stopped_audit_goes_on_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"{ALL} --against raw --only membership --budget 30m --keep kept"
    cfk(f"{command} -o first.json")
    assert len(list(Path("kept").rglob("*.npz"))) > 2
    cfk(f"{command} -o again.json")
    first, again = (audits(name)["raw", "membership"]["results"] for name in ("first.json", "again.json"))
    assert first == again
    # Another model is another way of training, though its owner has the same name.
    joblib.dump(LogisticRegression(C=1e-4), "model.joblib")
    cfk(f"{command} -o other.json")
    assert audits("other.json")["raw", "membership"]["results"] != first


def test_an_explainer_of_ones_own_is_a_function_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    text = "def richer(train, labels, model, desired, seed):\n    return lambda queries: queries.assign(income=90)\n"
    Path("own_explainers.py").write_text(text, encoding="utf-8")
    command = f"{ALL} --against raw --only attribute_inference --budget 30m"
    cfk(f"{command} --explainer own_explainers:richer -o out.json")
    found = {result["attack"]: result for result in audits("out.json")["raw", "attribute_inference"]["results"]}
    assert found["attribute_inference_linkage"]["figures"]["answers"] > 10
    assert "own_explainers:nobody: cannot be imported" in cfk(f"{command} --explainer own_explainers:nobody", 2).stderr


@pytest.mark.slow
def test_each_who_answers_has_a_run() -> None:
    mlflow.set_tracking_uri("sqlite:///runs.db")
    cfk(f"{ALL} --against raw,exact --only membership,attribute_inference --budget 30m --experiment leaks")
    runs = mlflow.search_runs(experiment_names=["leaks"], output_format="list")
    assert {run.info.run_name for run in runs} == {"audit of raw", "audit of exact"}
    for run in runs:
        assert run.data.metrics["audit/membership_cfd/baseline"] == 0.5
        kept = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id, "cfk")}
        assert kept == {"cfk/audit-membership.json", "cfk/audit-attribute_inference.json"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--budget soon", "a budget is a time such as 90s, 5m or 1h"),
        ("--budget 0.1s --only membership", "give more time, or fewer audits or owners"),
        ("--only guessing", "known are linkage, attribute_inference, membership"),
        ("--only linkage --against raw", "none of the owners gives answers that this attacks"),
        ("--against raw,secret", "--against secret: known are raw, exact, reciprocal, catalogue, dp, dp-reverted"),
        ("--explainer oracle", "no generator 'oracle'"),
        ("-d maybe", "--desired maybe: some people must have it and some not; granted has no, yes"),
        ("--target income", "--target income: is a feature; outcomes are none"),
        ("--target nobody", "--target nobody: is no column of the table"),
        ("-m length.joblib", "cannot be trained again; give a scikit-learn classifier or pipeline"),
        ("-o out.csv", "the report must end in .json"),
    ],
)
def test_wrong_input_is_one_line(options: str, said: str) -> None:
    result = cfk(f"{ALL} {options}", code=2)
    (line,) = result.stderr.strip().splitlines()
    assert said in line


def test_no_value_of_a_row_is_shown_where_the_model_fails() -> None:
    # Text that no step of the model encodes: what scikit-learn raises quotes it.
    result = cfk(f"{ALL.replace('people.csv', 'towns.csv')} --only membership --against raw", code=2)
    assert "cannot be fitted" in result.stderr


@pytest.mark.slow
def test_a_table_of_few_hundred_people_is_audited() -> None:
    people = pd.read_csv("people.csv").head(303)  # as many as the smallest table of the paper has
    people.to_csv("people.csv", index=False)
    cfk(f"{ALL} --against raw,reciprocal --budget 10m -o out.json")
    assert {audit for _, audit in audits("out.json")} >= {"linkage", "membership", "extraction", "membership_surrogate"}
