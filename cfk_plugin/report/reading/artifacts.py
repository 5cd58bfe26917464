"""Files of a run, wherever MLflow keeps them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import TrackingError
from cfk_plugin.records.run import kind_of, tracking_errors

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

_VERSIONS = (None, 1)  # of a JSON file; the older ones do not say
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifacts:
    """What a run holds in files. Errors name the run and the file, never what is in it.

    Attributes
    ----------
    run_id : str
    folder : Path
        Where files are kept while they are read.
    """

    run_id: str
    folder: Path
    _repository: ArtifactRepository = field(repr=False)

    @classmethod
    def of(cls, run: Run, tracking_uri: str, folder: Path) -> Artifacts:
        """Open the files of a run.

        Raises
        ------
        TrackingError
            If MLflow cannot read where they are.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tracking_errors(f"run {run.info.run_id}: its artifacts cannot be opened"):
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=tracking_uri)
        return cls(run.info.run_id, folder, repository)

    def where(self, path: str) -> str:
        """Name a file in a message."""
        return f"run {self.run_id}, {path}"

    def names(self, path: str) -> list[str]:
        """Return the names of what is in a folder, sorted; nothing if there is no such folder.

        Raises
        ------
        TrackingError
            If the store cannot be read.
        """
        with tracking_errors(f"{self.where(path)}: it cannot be listed"):
            found = self._repository.list_artifacts(path)
        return sorted(Path(info.path).name for info in found)

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """Give a copy of a file for as long as it is read.

        Raises
        ------
        TrackingError
            If it cannot be fetched.
        """
        copy = self.folder / f"{next(_numbers)}{Path(path).suffix}"
        try:
            # What every repository implements: `download_artifacts` asks twice, and draws a progress bar per file.
            self._repository._download_file(path, str(copy))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise TrackingError(
                f"{self.where(path)}: it cannot be fetched ({kind_of(error)}); check that the artifact store "
                "answers, still has it, and lets this machine read it"
            ) from error
        try:
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def document(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object.

        Raises
        ------
        TrackingError
            If it cannot be fetched, is no JSON object, or was written in a layout that is not known.
        """
        with self.local(path) as copy:
            try:
                content = json.loads(copy.read_bytes())
            except (ValueError, RecursionError):
                raise TrackingError(f"{self.where(path)}: it is damaged: no JSON") from None
        if not isinstance(content, dict):
            raise TrackingError(f"{self.where(path)}: it is damaged: expected a JSON object")
        if (version := content.get("schema_version")) not in _VERSIONS:
            said = version if isinstance(version, int) else "none that is a number"
            raise TrackingError(
                f"{self.where(path)}: schema_version is {said}, expected {_VERSIONS[-1]}; a newer cfk_plugin wrote it"
            )
        return content
