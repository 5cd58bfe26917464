"""Where records wait for MLflow, how much room they get, and what happens when there is none left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cfk_plugin.errors import InputError

_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Settings of a spool; the operator's, so they come from the environment.

    Attributes
    ----------
    folder : Path
        ``CFK_SPOOL``, else ``cfk_plugin/spool`` in the user's state folder. A local disk: network file systems do not
        lock as SQLite needs it.
    most : int
        Bytes that the spool may take: ``CFK_SPOOL_MB``, else 1,024 MB.
    fsync : bool
        Whether each record is forced to disk, so that it survives a power cut: ``CFK_SPOOL_FSYNC=always``. Else it
        survives the end of the process, however it ends, and a power cut may take the last seconds.
    on_full : "suppress" or "release"
        What becomes of an explanation of which no record can be kept: ``CFK_SPOOL_FULL``, else it is withheld.
    """

    folder: Path
    most: int = _MEGABYTES * 1_000_000
    fsync: bool = False
    on_full: str = "suppress"

    @classmethod
    def of(cls, folder: Path | None = None) -> SpoolSettings:
        """Read the environment.

        Parameters
        ----------
        folder : Path, optional
            Default: what the environment says.

        Raises
        ------
        InputError
            If a variable has a value that it cannot have.
        """
        return cls(
            (folder or spool_folder()).absolute(),  # the same one after a change of folder
            most=_megabytes() * 1_000_000,
            fsync=_choice("CFK_SPOOL_FSYNC", ("normal", "always")) == "always",
            on_full=_choice("CFK_SPOOL_FULL", ("suppress", "release")),
        )


def spool_folder() -> Path:
    """Return where records wait: ``CFK_SPOOL``, else a folder in the user's state folder."""
    if chosen := os.environ.get("CFK_SPOOL"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "cfk_plugin" / "spool"


def _megabytes() -> int:
    text = os.environ.get("CFK_SPOOL_MB") or str(_MEGABYTES)
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"CFK_SPOOL_MB is {text!r}; it must be a whole number of megabytes, 1 or more")
    return int(text)


def _choice(name: str, choices: tuple[str, ...]) -> str:
    """Return the value of a variable; the first choice is the default."""
    value = os.environ.get(name) or choices[0]
    if value not in choices:
        raise InputError(f"{name} is {value!r}; it must be {' or '.join(choices)}")
    return value
