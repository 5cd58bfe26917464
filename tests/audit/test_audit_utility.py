"""`cfk audit utility` end to end, and the figures of a published table."""

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

import tables
from cfk_plugin.cli import app
from cfk_plugin.metrics import utility

CANARY = "canary-9d20"
FEATURES = ["age", "sex", "salary"]
UTILITY = "audit utility train.csv queries.csv cf.csv -s schema.json -m model.joblib"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "name": [f"{CANARY}-{i}" for i in range(150)],
            "age": random.integers(18, 80, 150),
            "sex": random.integers(0, 2, 150),
            "salary": random.integers(20, 120, 150),
        }
    )
    rows["outcome"] = np.where(rows["salary"] + rows["age"] > 110, "yes", "no")
    train, holdout = rows.head(110), rows.tail(40)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(train[FEATURES], train["outcome"])
    yes = model.predict(train[FEATURES]) == "yes"
    train.to_csv("train.csv", index=False)
    holdout.to_csv("holdout.csv", index=False)
    train[yes].head(6)[FEATURES].to_csv("cf.csv", index=False)
    train[~yes].head(6)[FEATURES].to_csv("queries.csv", index=False)
    joblib.dump(model, "model.joblib")
    schema = {"quasi_identifiers": ["age", "sex"], "identifiers": ["name"], "target": "outcome", "nominal": ["sex"]}
    Path("schema.json").write_text(json.dumps(schema), encoding="utf-8")


def cfk(command: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, command.split())
    assert CANARY not in result.output
    assert result.exit_code == code, result.output
    return result


def report() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("utility.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_figures_are_shown_and_written(desired: str) -> None:
    result = cfk(f"{UTILITY} -d {desired} --holdout holdout.csv -o utility.json")
    found = report()
    assert (found["flipping_ratio"]["value"], found["copies"]["value"], found["nn1"]["value"]) == (1, 1, 0)
    assert found["chance"]["rows"] == 40
    assert CANARY not in Path("utility.json").read_text(encoding="utf-8")
    for name in ("flipping_ratio", "l1", "euclidean", "features_changed", "nn1", "nn5", "unseen_pair", "singled_out"):
        assert name in result.stdout
        assert f"{found[name]['value']:.3f}" in result.stdout
    assert "6 of 6 queries answered" in result.stdout
    assert "among 40 training rows" in result.stdout


def test_without_a_holdout_nothing_is_said_of_chance() -> None:
    result = cfk(f"{UTILITY} -d yes -o utility.json")
    assert report()["chance"] is None
    assert "chance" not in result.stdout


def test_a_column_says_which_queries_are_answered() -> None:
    pd.read_csv("cf.csv").head(3).assign(query=[5, 0, 2]).to_csv("cf.csv", index=False)
    assert "3 of 6 queries answered" in cfk(f"{UTILITY} -d yes -o utility.json").stdout
    assert report()["flipping_ratio"]["value"] == 0.5


def test_no_answer_at_all_is_for_review() -> None:
    pd.read_csv("cf.csv").head(0).assign(query=[]).to_csv("cf.csv", index=False)
    assert "0 of 6 queries answered" in cfk(f"{UTILITY} -d yes --holdout holdout.csv -o utility.json", code=3).stdout
    assert (report()["flipping_ratio"]["value"], report()["l1"]["value"]) == (0, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-d maybe", "the model has no such outcome"),
        ("-d yes -o utility.txt", "must end in .json"),
        ("-d yes -o nowhere/utility.json", "the folder does not exist"),
        ("-d yes --holdout gone.csv", "gone.csv: no such file"),
    ],
)
def test_wrong_input_is_one_clear_line(options: str, message: str) -> None:
    assert message in cfk(f"{UTILITY} {options}", code=2).stderr


def test_a_wrong_query_column_is_one_clear_line() -> None:
    pd.read_csv("cf.csv").assign(query="first").to_csv("cf.csv", index=False)
    assert "column 'query' of the counterfactuals must hold whole numbers" in cfk(f"{UTILITY} -d yes", code=2).stderr
    pd.read_csv("cf.csv").assign(query=7).to_csv("cf.csv", index=False)
    assert "from 0 to 5" in cfk(f"{UTILITY} -d yes", code=2).stderr


def test_training_rows_as_answers_of_a_published_table(shared_data: Path) -> None:
    """Nearest training rows are copies and single people out; a holdout's rows are neither."""
    one = tables.case("german", shared_data, limit=60)
    frame, about = tables.read("german", shared_data)
    order = np.random.default_rng(0).permutation(len(frame))
    holdout = frame.iloc[order[int(0.6 * len(frame)) :]][about["features"]]
    answered = one.counterfactuals
    found = utility(one.queries, answered, one.population, model=one.model, desired=one.desired, holdout=holdout)
    assert (found.flipping_ratio.value, found.copies.value, found.nn1.value, found.unseen_pair.value) == (1, 1, 0, 0)
    assert found.singled_out.value > 0.9
    assert found.above_chance == {"copies": True, "singled_out": True}
    assert found.l1.value == pytest.approx(3.7, abs=0.5)
    assert found.chance is not None
    assert found.chance.fresh.nn1.value == pytest.approx(3.2, abs=0.4)
    assert found.chance.copies_holdout.value < 0.1
