"""A package that no index has travels with the model as its own wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import model_server
from cfk_plugin.serving import save_protected_model
from cfk_plugin.serving.wheel import write_wheel
from model_server import fitted, free_port, wait_for


def test_wheel_has_package_with_adapters(tmp_path: Path) -> None:
    """Everything that an entry point names is there, with the version of this package."""
    with zipfile.ZipFile(write_wheel(tmp_path)) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"cfk_plugin-{version('cfk-plugin')}.dist-info/METADATA").decode()
    for name in ("cfk_plugin/languages/de.json", "cfk_adapters/dice.py", "cfk_recourse/dpc.py"):
        assert name in names
    assert f"Version: {version('cfk-plugin')}" in metadata
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.slow
def test_model_serves_from_an_empty_environment(tmp_path: Path) -> None:
    """MLflow builds it from the model's folder, with pins for what the model imports."""
    save_protected_model(fitted(), tmp_path / "model", code_paths=[model_server.__file__])
    pins = (tmp_path / "model" / "requirements.txt").read_text(encoding="utf-8").split()
    assert {f"{name}=={version(name)}" for name in ("mlflow", "scikit-learn", "pandas")} <= {*pins}
    assert len([pin for pin in pins if "cfk" in pin]) == 1
    port = free_port()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"MLFLOW_ENV_ROOT": str(tmp_path / "envs"), "UV_LINK_MODE": "copy"}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    command = ["mlflow", "models", "serve", "-m", str(tmp_path / "model"), "--env-manager", "uv"]
    console = tmp_path / "console.txt"
    with console.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env=env, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, console, tries=3_000)
            body = (tmp_path / "model" / "serving_input_example.json").read_bytes()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/invocations",
                data=body,
                headers={"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as reply:
                answer = json.loads(reply.read())["predictions"]
        finally:
            process.terminate()
            process.wait()
    assert [entry["status"] for entry in answer["explanations"]] == ["released"]
