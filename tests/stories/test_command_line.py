"""From CSV files to a report with the command `cfk` alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pytest

from worlds import World

OPTIONS = "-s schema.json -m model.joblib --desired 1"


@pytest.fixture(autouse=True)
def _files(mlflow_store: str, cfk: Callable, applicants: World, model: Any) -> None:
    """Write the table, the model, and the schema that `cfk schema` proposes, filled in."""
    applicants.table.to_csv("train.csv", index=False)
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
    cfk: Callable, applicants: World, model: Any, refused: pd.DataFrame
) -> None:
    """Counterfactuals in a file are protected, verified, logged, and reported."""
    refused.to_csv("people.csv", index=False)
    applicants.table[model.predict(applicants.table) == 1].head(8).to_csv(
        "counterfactuals.csv", index=False
    )
    tracked = "--factuals people.csv --track --experiment loans"
    assert cfk(f"protect train.csv counterfactuals.csv {OPTIONS} {tracked} -o answers.json") == 0
    assert cfk(f"verify answers.json --train train.csv {OPTIONS}") == 0
    assert cfk("report --experiment loans -o report.json") == 3  # questions are open
    assert json.loads(Path("report.json").read_text())["releases"]["released"]["value"] == 8


def test_csv_recounts_a_catalogue_of_parquet(cfk: Callable, applicants: World) -> None:
    """With the schema or without; postal codes keep their zeros, and small floats their decimals."""
    proposal = json.loads(Path("schema.json").read_text())
    public = {"quasi_identifiers": ["rate", "zip"], "nominal": ["zip"]}
    Path("schema.json").write_text(json.dumps(proposal | public))
    people = applicants.table.head(120)
    table = people.assign(
        zip=people["town"].map({"Antwerp": "01250", "Ghent": "09000", "Namur": "10001"}),
        rate=(people["age"] / 100).astype("float32"),
        since=pd.Timestamp("2020-01-31") + pd.to_timedelta(people["age"], unit="D"),
    )
    table.to_parquet("train.parquet")
    table.to_csv("train.csv", index=False)
    assert cfk(f"catalogue train.parquet {OPTIONS} -o file.json") == 0
    part = json.loads(Path("file.json").read_text())["explanations"][0]["region"]
    assert set(part["zip"]["values"]) <= {"01250", "09000", "10001"}
    assert len(str(part["rate"]["low"])) <= len("0.25")
    for options in (OPTIONS, ""):
        assert cfk(f"verify file.json --train train.csv {options}") == 0
