from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest


@pytest.mark.slow
def test_the_demo_tells_its_story_and_logs_it(tmp_path: Path) -> None:
    import mlflow

    command = [sys.executable, "-m", "cfk_plugin.cli", "demo", "--k", "5", "--patients", "6", "--folder", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    for text in ("before", "after", "If you", "people fit this", "nearest unlike neighbour", "DiCE", "mlflow ui"):
        assert text in done.stdout, text
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("cfk demo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in runs} == {"DiCE (kd-tree)", "nearest unlike neighbour"}
    for run in runs:
        assert run.data.tags["cfk.verdict"] == "pass"
        assert run.data.metrics["cfk.released_native"] == 0
        assert run.data.metrics["cfk.k.min"] >= 5
        assert run.info.run_id in done.stdout
        folder = client.download_artifacts(run.info.run_id, "cfk/explanations", str(tmp_path))
        rows = pd.concat([pd.read_parquet(part) for part in Path(folder).glob("part-*.parquet")])
        assert rows.loc[rows["status"] == "released", "k"].min() >= 5
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.slow
def test_the_demo_goes_on_without_dice(tmp_path: Path) -> None:
    script = "import sys; sys.modules['dice_ml'] = None; from cfk_plugin.cli import main; main()"
    command = [sys.executable, "-c", script, "demo", "--patients", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert "dice-ml is not installed" in done.stdout
    assert "nearest unlike neighbour" in done.stdout
    assert (tmp_path / "mlflow.db").is_file()
