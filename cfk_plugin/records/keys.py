"""Files that must be complete as soon as their name exists, and the folder for them."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from cfk_plugin.errors import InputError, quiet


def create_once(path: Path, content: bytes) -> None:
    """Create a file that is complete as soon as its name exists; the first one wins."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def state_folder() -> Path:
    """Return the folder for what no setting has a place for."""
    with quiet("this user has no home to keep things in; set XDG_STATE_HOME", InputError):
        return (
            Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser())
            / "cfk_plugin"
        )


def sync_folder(folder: Path) -> None:
    """Make a new file survive a crash of the machine, where the system supports it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
