"""`cfk demo` tells its story, logs it and writes a report."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest

from commands import cfk


@pytest.mark.slow
def test_demo_logs_what_it_shows(tmp_path: Path) -> None:
    result = cfk(f"demo --k 5 --patients 2 --folder {tmp_path}")
    assert "before" in result.stdout
    assert "people match this" in result.stdout
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("cfk demo")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id in result.stdout
    assert run.data.metrics["cfk.k_min"] >= 5
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_demo_works_without_dice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.demo.find_spec", lambda _: None)
    result = cfk(f"demo --k 5 --patients 2 --folder {tmp_path}")
    assert "nearest unlike neighbour: before and after" in result.stdout
