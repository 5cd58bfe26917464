"""A real tracking server of MLflow over HTTP that can be stopped, killed, hung and started
again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_server import free_port, wait_for


@dataclass(slots=True)
class TrackingServer:
    """Its store is in a folder, so that it knows everything again after a restart."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        command += [
            "--backend-store-uri",
            f"sqlite:///{self.folder / 'tracking.db'}",
            "--workers",
            "1",
        ]
        command += ["--artifacts-destination", str(self.folder / "served")]
        env = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its consumers would outlive it
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        env = {name: value for name, value in env.items() if name != "MLFLOW_TRACKING_URI"}
        console = self.folder / "tracking.txt"
        with console.open("ab") as said:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=said, stderr=said, start_new_session=True
            )
        wait_for(f"{self.url}/health", self.process, console)

    def hang(self) -> None:
        """Stop all of its processes where they are; they accept connections and never answer."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self.process = None

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, number)


@contextmanager
def tracking_server(folder: Path) -> Iterator[TrackingServer]:
    """Give a tracking server that is not started yet; kill it afterwards."""
    server = TrackingServer(folder, free_port())
    try:
        yield server
    finally:
        server.kill()
