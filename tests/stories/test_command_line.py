"""From CSV files to a report with the command `cfk` alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pytest

OPTIONS = "-s schema.json -m model.joblib --desired 1"


@pytest.fixture(autouse=True)
def _files(mlflow_store: str, cfk: Callable, applicants: pd.DataFrame, model: Any) -> None:
    """Write the table, the model, and the schema that `cfk schema` proposes, filled in."""
    applicants.to_csv("train.csv", index=False)
    joblib.dump(model, "model.joblib")
    assert cfk("schema train.csv -o schema.json") == 0
    proposal = json.loads(Path("schema.json").read_text())
    public = {"quasi_identifiers": ["age", "town", "education"]}
    Path("schema.json").write_text(json.dumps(proposal | public))


def test_verify_recounts_a_catalogue(cfk: Callable) -> None:
    """A colleague with the table recounts the file, and notices more people than there are."""
    assert cfk(f"catalogue train.csv {OPTIONS} -o file.json") == 0
    assert cfk(f"verify file.json --train train.csv {OPTIONS}") == 0
    release = json.loads(Path("file.json").read_text())
    release["explanations"][0]["certificate"]["k"] += 100
    Path("file.json").write_text(json.dumps(release))
    assert cfk(f"verify file.json --train train.csv {OPTIONS}") == 1


def test_releases_become_a_report(
    cfk: Callable, applicants: pd.DataFrame, model: Any, refused: pd.DataFrame
) -> None:
    """Counterfactuals in a file are protected, verified, logged, and reported."""
    refused.to_csv("people.csv", index=False)
    applicants[model.predict(applicants) == 1].head(8).to_csv("counterfactuals.csv", index=False)
    tracked = "--factuals people.csv --track --experiment loans"
    assert cfk(f"protect train.csv counterfactuals.csv {OPTIONS} {tracked} -o answers.json") == 0
    assert cfk(f"verify answers.json --train train.csv {OPTIONS}") == 0
    assert cfk("report --experiment loans -o report.json") == 3  # questions are open
    assert json.loads(Path("report.json").read_text())["releases"]["released"]["value"] == 8
