"""The folder in which an experiment keeps what it has measured, so that a killed one goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cfk_plugin.reproduction.outcome import Measurement, Scene, Setting
from cfk_plugin.reproduction.piece import Piece


class Workspace:
    """Outcomes, what settings led to, and which runs they were logged to. Figures alone: no row, no model.

    A file appears whole or not at all. One that cannot be read counts as missing: it is measured again.

    Parameters
    ----------
    folder : Path
        Made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        """Name the folder."""
        return f"Workspace({str(self.folder)!r})"

    def outcome(self, key: str) -> Measurement | None:
        """Return what a piece gave, if it was measured; see `Piece.key`."""
        text = self._read(self._outcome(key))
        try:
            return None if text is None else Measurement.from_json(text)
        except (ValueError, TypeError, KeyError):
            return None

    def keep(self, piece: Piece, outcome: Measurement) -> None:
        """Keep what a piece gave."""
        self._write(self._outcome(piece.key(outcome.setting)), outcome.to_json())

    def scene(self, setting: Setting) -> Scene | None:
        """Return what a setting led to, if it is known."""
        text = self._read(self._scene(setting))
        try:
            return None if text is None else Scene(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def keep_scene(self, setting: Setting, scene: Scene) -> None:
        """Keep what a setting led to."""
        self._write(self._scene(setting), json.dumps(asdict(scene), sort_keys=True))

    def runs(self) -> dict[str, Any]:
        """Return what is known of runs of MLflow: whatever was kept last."""
        text = self._read(self.folder / "runs.json")
        try:
            return {} if text is None else dict(json.loads(text))
        except (ValueError, TypeError):
            return {}

    def keep_runs(self, runs: Mapping[str, Any]) -> None:
        """Keep what is known of runs of MLflow."""
        self._write(self.folder / "runs.json", json.dumps(runs, indent=1, sort_keys=True))

    def _outcome(self, key: str) -> Path:
        return self.folder / "outcomes" / f"{key}.json"

    def _scene(self, setting: Setting) -> Path:
        return self.folder / "scenes" / f"{setting.key}.json"

    def _read(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
