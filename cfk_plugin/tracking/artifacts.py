"""Files of a run in an MLflow store: their names, and what is in them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.stores import kind_of, tracking_errors

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

_VERSIONS = (None, 1)  # of a JSON file; some have none


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifacts:
    """The files of one run. Errors name the run and the file, never what is in it."""

    run_id: str
    _folder: Path  # for copies; whoever made it deletes it, also if a store still writes a copy
    _repository: ArtifactRepository

    @classmethod
    def of(cls, run: Run, tracking_uri: str, folder: Path) -> Artifacts:
        """Return the files of a run; copies of them are in a folder as long as they are read."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tracking_errors(f"run {run.info.run_id}: its artifacts cannot be opened"):
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=tracking_uri)
        return cls(run.info.run_id, folder, repository)

    def where(self, path: str) -> str:
        """Return how messages name a file."""
        return f"run {self.run_id}, {path}"

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        with tracking_errors(f"{self.where(path)}: it cannot be listed"):
            files = self._repository.list_artifacts(path)
        return sorted(Path(file.path).name for file in files)

    def content(self, path: str) -> bytes:
        """Return the content of a file."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = Path(folder, "copy")
            try:
                # Every repository implements this method. `mlflow.artifacts.download_artifacts`
                # calls it in threads that the process waits for at its end, however long a store
                # does not answer, and does not say which file failed.
                self._repository._download_file(path, str(copy))  # type: ignore[no-untyped-call]
            except Exception as error:
                raise TrackingError(
                    f"{self.where(path)}: it cannot be fetched ({kind_of(error)}); check that the"
                    " artifact store answers, still has it, and lets this machine read it"
                ) from error
            return copy.read_bytes()

    def document(self, path: str) -> Mapping[str, Any]:
        """Return the object in a JSON file."""
        return parsed_document(self.content(path), self.where(path))


def parsed_document(content: bytes, where: str) -> Mapping[str, Any]:
    """Return the object in the content of a JSON file.

    Raises
    ------
    TrackingError
        If it is damaged, or its version is another one. It quotes nothing of the file.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise TrackingError(f"{where}: it is damaged: no JSON") from None
    if not isinstance(document, dict):
        raise TrackingError(f"{where}: it is damaged: expected a JSON object")
    version = document.get("schema_version")
    if version not in _VERSIONS:
        shown = version if isinstance(version, int) else "none that is a number"
        raise TrackingError(
            f"{where}: schema_version is {shown}, expected {_VERSIONS[-1]}; a newer cfk_plugin"
            " wrote it"
        )
    return document
