"""Writing a report to a file: whole, or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from cfk_plugin.errors import InputError


def check_place(path: Path, suffixes: Iterable[str]) -> None:
    """Refuse, before any work, a place that cannot be written.

    Raises
    ------
    InputError
        If the name does not end in one of the suffixes, its folder does not exist, or a folder has this name.
    """
    known = tuple(suffixes)
    if path.suffix.lower() not in known:
        raise InputError(f"{path}: the name must end in {' or '.join(known)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a file")


def write_whole(path: Path, text: str) -> None:
    """Write a text; who reads the file at that moment finds the earlier one or this one, never half of it.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(text.encode("utf-8"))  # no line end is translated: the same report, the same bytes
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror or type(error).__name__})") from error
