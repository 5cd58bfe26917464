"""Runs, a spool and files of explanations that an earlier commit wrote are read.

`tests/stored/make_runs.py` makes them anew where a format changes.
"""

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
from cfk_plugin.errors import TrackingError
from cfk_plugin.records.logger import RunLogger
from parts import tables_of

STORED = Path(__file__).parents[1] / "stored" / "runs"
KINDS = ("regions", "prototypes")


def stored(name: str) -> Any:
    return json.loads((STORED / name / "run.json").read_text("utf-8"))


def imported(name: str) -> str:
    """Return a run that holds what the stored one held."""
    said, client = stored(name), mlflow.MlflowClient()
    run_id = str(client.create_run("1").info.run_id)
    params = [Param(*each) for each in said["params"].items()]
    tags = [RunTag(*each) for each in said["tags"].items()]
    client.log_batch(run_id, [Metric(*each) for each in said["metrics"]], params, tags)
    client.log_artifacts(run_id, str(STORED / name / "cfk"), "cfk")
    return run_id


def parsed(text: str) -> Any:
    # the last digit is the library's
    return json.loads(text, parse_float=lambda number: round(float(number), 12))


def test_runs_give_the_same_report(mlflow_store: str) -> None:
    said = parsed(PrivacyReport.of_runs([imported(name) for name in KINDS]).to_json())
    kept = parsed((STORED / "report.json").read_text("utf-8"))
    assert kept.pop("checks") == {each["id"]: each["status"] for each in said["checks"]}
    assert kept == {name: said[name] for name in kept}


def test_a_spool_is_shipped_to_the_runs_that_it_would_have_been(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch that was on its way when its process ended is sent, and everything behind it."""
    shutil.copytree(STORED / "spool", tmp_path / "stored-spool")
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "stored-spool"))
    assert CliRunner().invoke(app, ["spool", "flush"]).exit_code == 0
    found = mlflow.search_runs(experiment_names=["stored"], output_format="list")
    for name, run in zip(
        KINDS, sorted(found, key=lambda run: "cfk.epsilon_spent" in run.data.metrics), strict=True
    ):
        last = {
            key: value
            for key, value, _, step in sorted(stored(name)["metrics"], key=lambda each: each[3])
        }
        assert run.data.metrics == last | ({"cfk.untracked": 2.0} if name == "regions" else {})
        assert run.data.params == stored(name)["params"]
        assert run.data.tags[
            "cfk.population_fingerprint" if name == "regions" else "cfk.dp.guarantee"
        ]
        assert (run.info.status, run.data.tags.get("team")) == ("FINISHED", "credit")
        for kind in ("explanations", "recount"):
            downloaded = mlflow.artifacts.download_artifacts(
                run_id=run.info.run_id, artifact_path=f"cfk/{kind}"
            )
            new = tables_of(Path(downloaded).iterdir())
            old = tables_of((STORED / name / "cfk" / kind).iterdir())
            pd.testing.assert_frame_equal(new, old)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_explanations_is_verified(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_KEY", "stored-for-tests")
    folder = STORED / "files"
    rows = ["--train", str(folder / "train.csv"), "--schema", str(folder / "schema.json")]
    result = CliRunner().invoke(app, ["verify", str(folder / f"{name}.json"), *rows, "--k", "5"])
    assert (
        result.output.startswith("pass") if name == "regions" else "prototypes" in result.output
    ), result.output
    assert result.exit_code == (0 if name == "regions" else 3)


def test_a_spool_from_before_the_first_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(STORED.parent / "before_release" / "spool.db", tmp_path / "spool.db")
    before = (tmp_path / "spool.db").read_bytes()
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path))
    refused = CliRunner().invoke(app, ["spool", "flush"])
    assert refused.exit_code == 2
    assert "was written by another version of cfk_plugin" in refused.output
    with pytest.raises(TrackingError, match="another version"):
        RunLogger().check()
    assert (tmp_path / "spool.db").read_bytes() == before
