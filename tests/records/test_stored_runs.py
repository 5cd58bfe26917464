"""Runs, spools and files of explanations that an earlier version made are read; see `tests/stored/runs/make.py`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.entities import Metric, Param, RunTag
from typer.testing import CliRunner

from cfk_plugin import PrivacyReport
from cfk_plugin.cli import app

STORED = Path(__file__).parents[1] / "stored" / "runs"


def imported(name: str) -> str:
    """Return a run that holds what the stored one held."""
    said = json.loads((STORED / name / "run.json").read_text("utf-8"))
    client, (experiment,) = mlflow.MlflowClient(), mlflow.search_experiments(filter_string="name = 'tests'")
    run_id = str(client.create_run(experiment.experiment_id).info.run_id)
    params = [Param(*each) for each in said["params"].items()]
    tags = [RunTag(*each) for each in said["tags"].items()]
    client.log_batch(run_id, [Metric(*each) for each in said["metrics"]], params, tags)
    client.log_artifacts(run_id, str(STORED / name / "cfk"), "cfk")
    return run_id


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=lambda number: round(float(number), 12))  # the last digit is the library's


def stored_figures() -> Any:
    return parsed((STORED / "report.json").read_text("utf-8"))


def figures(*runs: str) -> dict[str, Any]:
    """Return of their report what was kept of the stored runs'."""
    said, kept = parsed(PrivacyReport.of_runs(list(runs)).to_json()), stored_figures()
    assert kept["checks"] == {each["id"]: each["status"] for each in said["checks"]}
    return {name: said[name] for name in kept if name != "checks"} | {"checks": kept["checks"]}


def test_runs_give_the_same_report(mlflow_store: str) -> None:
    assert figures(imported("regions"), imported("prototypes")) == stored_figures()


@pytest.mark.parametrize("name", ["regions", "prototypes"])
def test_a_spool_is_shipped_to_the_run_that_it_would_have_been(
    name: str, tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch that was on its way when its process ended is sent, and everything behind it."""
    shutil.copytree(STORED / "spool", tmp_path / "stored-spool")
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "stored-spool"))
    assert CliRunner().invoke(app, ["spool", "flush"]).exit_code == 0
    found = mlflow.search_runs(experiment_names=["stored"], output_format="list")
    (run,) = [run for run in found if ("cfk.prototypes" in run.data.metrics) == (name == "prototypes")]
    said = json.loads((STORED / name / "run.json").read_text("utf-8"))
    last = {key: value for key, value, _, step in sorted(said["metrics"], key=lambda each: each[3])}
    untracked = {"cfk.untracked": 2.0} if name == "regions" else {}
    assert run.data.metrics == {**last, **untracked}
    assert run.data.params == said["params"]
    assert run.data.tags["cfk.population_fingerprint"] if name == "regions" else run.data.tags["cfk.dp.guarantee"]
    assert (run.info.status, run.data.tags.get("team")) == ("FINISHED", "credit")
    client = mlflow.MlflowClient()
    for kind in ("explanations", "recount"):
        new, old = (
            pd.concat(map(pd.read_parquet, sorted(Path(folder).glob("*.parquet"))), ignore_index=True)
            for folder in (client.download_artifacts(run.info.run_id, f"cfk/{kind}"), STORED / name / "cfk" / kind)
        )
        pd.testing.assert_frame_equal(
            *(each.drop(columns=["timestamp", "seconds"], errors="ignore") for each in (new, old))
        )


@pytest.mark.parametrize("name", ["regions", "prototypes"])
def test_a_file_of_explanations_is_verified(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_KEY", "stored-for-tests")
    folder = STORED / "files"
    rows = [str(folder / "train.csv"), "--schema", str(folder / "schema.json")]
    result = CliRunner().invoke(app, ["verify", str(folder / f"{name}.json"), *rows, "--k", "5"])
    assert result.output.startswith("pass") if name == "regions" else "prototypes" in result.output, result.output
    assert result.exit_code == (0 if name == "regions" else 3)
