"""The wheel of this package, for logged models if no index has this version."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

_PROJECT = "cfk-plugin"
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the time of all members, so that equal code gives equal files


def pinned() -> str:
    """Return the requirement for pip that pins this version of the package."""
    return f"{_PROJECT}=={distribution(_PROJECT).version}"


def is_from_index() -> bool:
    """Return whether this package was installed from an index; installers record other origins."""
    return distribution(_PROJECT).read_text("direct_url.json") is None


def write_wheel(folder: Path) -> Path:
    """Write the installed code as a wheel to a folder, and return its path.

    The code is pure Python, so no build and no network are needed.
    """
    project = distribution(_PROJECT)
    stem = f"{_PROJECT.replace('-', '_')}-{project.version}"
    contents: dict[str, bytes] = {}
    for package in sorted({entry.module.partition(".")[0] for entry in project.entry_points}):
        contents |= _files_of(package)
    for name in _METADATA:
        contents[f"{stem}.dist-info/{name}"] = (project.read_text(name) or "").encode()
    record = f"{stem}.dist-info/RECORD"
    lines = [_record_line(name, content) for name, content in contents.items()]
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in contents.items():
            wheel.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
    return path


def _files_of(package: str) -> dict[str, bytes]:
    """Return the content of each file of an installed package, by its name in a wheel."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return {}
    root = Path(spec.origin).parent
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {
        path.relative_to(root.parent).as_posix(): path.read_bytes()
        for path in paths
        if "__pycache__" not in path.parts
    }


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"
