"""Bundles: one file of plain numbers and JSON with a seal, readable without pickle."""

from __future__ import annotations

import hmac
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin import keyed
from cfk_plugin.errors import BundleError

VERSION = 2  # 1 had cells and keyed numbers in the table's order of columns, 2 has them in that of their names
_FACTS, _SEAL = "facts.json", "seal.json"
_CHECK = b"cfk bundle key"
_NO_KEY = b"cfk bundle without a key"


def write(path: str | Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], key: bytes) -> None:
    """Write a bundle; an existing file is replaced as a whole or not at all.

    Parameters
    ----------
    path : str or Path
    facts : mapping
        Plain values that JSON can hold.
    arrays : mapping
        Name to an array of numbers.
    key : bytes
        Key of the seal. Without one (empty) the seal shows damage, but whoever can write the file can seal it anew.

    Raises
    ------
    BundleError
        If the file cannot be written.
    """
    members = {_FACTS: json.dumps({"version": VERSION, **facts}, sort_keys=True).encode()}
    for name, array in arrays.items():
        text = io.BytesIO()
        np.save(text, array, allow_pickle=False)
        members[f"{name}.npy"] = text.getvalue()
    seal = {"digest": _digest(key, members), "key": keyed.digest(key, [_CHECK]).hex() if key else None}
    target = Path(path)
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in {**members, _SEAL: json.dumps(seal).encode()}.items():
                bundle.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        Path(draft).replace(target)
    except OSError as error:
        raise BundleError(f"the bundle cannot be written: {type(error).__name__}; check the folder") from None


def read(path: str | Path | IO[bytes], key: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle and check its seal.

    Parameters
    ----------
    path : str, Path or binary file
    key : bytes
        The key that it was sealed with; empty for none.

    Returns
    -------
    facts : dict
    arrays : dict

    Raises
    ------
    BundleError
        If there is no such file, it is no bundle, it was changed, the key is missing or another one, or the bundle
        was written by a newer version.
    """
    try:
        with zipfile.ZipFile(path) as bundle:
            members = {name: bundle.read(name) for name in bundle.namelist()}
        seal = json.loads(members.pop(_SEAL))
    except FileNotFoundError:
        raise BundleError("there is no bundle at this path; write one with seal()") from None
    except Exception:  # noqa: BLE001 - whatever a damaged file leads to
        raise BundleError("the file is no bundle, or it is damaged; seal the population again") from None
    if seal.get("key") is not None and not key:
        raise BundleError("the bundle was sealed with a key; give it, or set CFK_KEY")
    if seal.get("key") != (keyed.digest(key, [_CHECK]).hex() if key else None):
        raise BundleError("the bundle was sealed with another key, or without one; give the key that it has")
    if not hmac.compare_digest(str(seal.get("digest")), _digest(key, members)):
        raise BundleError("the bundle was changed after it was sealed; seal the population again")
    return _decoded(members)


def _decoded(members: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    facts = json.loads(members[_FACTS])
    if facts.get("version") != VERSION:
        raise BundleError(f"the bundle has another format than {VERSION}; upgrade cfk_plugin, or seal again")
    arrays = {
        name.removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
        for name, content in members.items()
        if name != _FACTS
    }
    return facts, arrays


def _digest(key: bytes, members: Mapping[str, bytes]) -> str:
    parts: list[bytes] = []
    for name in sorted(members):
        parts += [len(name).to_bytes(8, "big"), name.encode(), len(members[name]).to_bytes(8, "big"), members[name]]
    return keyed.digest(key or _NO_KEY, parts).hex()
