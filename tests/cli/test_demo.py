from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cfk_plugin.demo import explainers
from parts import tables_of


@pytest.mark.slow
def test_the_demo_tells_its_story_and_logs_it(tmp_path: Path) -> None:
    import mlflow

    command = [
        sys.executable,
        "-m",
        "cfk_plugin.cli",
        "demo",
        "--k",
        "5",
        "--patients",
        "4",
        "--folder",
        "out",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    for text in (
        "before",
        "after",
        "The model would predict a slow progression",
        "people match this",
        "nearest unlike neighbour",
        "DiCE",
        "mlflow ui",
    ):
        assert text in done.stdout, text
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("cfk demo")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in runs} == {"DiCE (kd-tree)", "nearest unlike neighbour"}
    for run in runs:
        assert run.data.tags["cfk.verdict"] == "pass"
        assert run.data.metrics["cfk.k_min"] >= 5
        assert run.info.run_id in done.stdout
        folder = client.download_artifacts(run.info.run_id, "cfk/explanations", str(tmp_path))
        rows = tables_of(Path(folder).glob("part-*.jsonl.gz"))
        assert rows.loc[rows["status"] == "released", "k"].min() >= 5
    assert "verdict review (" in done.stdout, (
        "what is not promised, or nobody has done yet, is no failure"
    )
    assert not (tmp_path / "mlruns").exists()


def test_the_demo_goes_on_without_dice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dice_ml", None)
    said = io.StringIO()
    assert list(explainers(Console(file=said, width=100))) == ["nearest unlike neighbour"]
    assert "dice-ml is not installed" in said.getvalue()
