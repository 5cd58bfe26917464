"""Kernels: functions that numba compiles, once per machine if there is a place to keep them.

That is ``NUMBA_CACHE_DIR``, else beside the package, in the user's cache folder, or among temporary
files: the first that can be written; kernels are also read from places that cannot be. Otherwise
each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from cfk_plugin.data.display import is_watched

_F = TypeVar("_F", bound=Callable[..., Any])
_HERE = Path(__file__).parent  # the folder of kernels
_numba: Any = numba  # much of it has no type hints
_dumps: Any = dumps
_rebuild: Any = CompileResult._rebuild
KERNELS: list[Any] = []  # those that Python calls
_log = logging.getLogger("cfk_plugin")


def jit(function: _F, **options: Any) -> _F:
    """Compile a kernel, kept on disk; it releases the interpreter lock, so that threads run in
    parallel.
    """
    kernel = _numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    kernel._cache = _Kept(
        f"{function.__module__}.{function.__qualname__}", Path(function.__code__.co_filename)
    )
    KERNELS.append(kernel)
    return cast("_F", kernel)


def inner(function: _F, **options: Any) -> _F:
    """Compile a function that only kernels call, as part of them: wrappers for calls from Python
    take longest.
    """
    kernel = _numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(
        function
    )
    return cast("_F", kernel)


class _Kept(NullCache):
    """A file per signature and machine; numba's own cache fails where nothing can be written."""

    def __init__(self, kernel: str, source: Path) -> None:
        self._kernel, self._source = kernel, source
        self.folder: Path | None = None  # where it was found or stored

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file(sig, target_context.codegen())
        for folder in _folders():
            # whatever is wrong with a file, the kernel can be compiled again
            with suppress(Exception):
                stamp, reduced = pickle.loads((folder / name).read_bytes())  # noqa: S301 - the user's own file
                if stamp == _stamp(self._source):
                    self.folder = folder
                    return _rebuild(target_context, *reduced)
        _say_that_it_compiles()
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Store a kernel in the first writable folder."""
        name, content = (
            self._file(sig, cres.library.codegen),
            _dumps((_stamp(self._source), cres._reduce())),
        )
        for folder in _folders():
            written = folder / f"{name}.{uuid4().hex[:8]}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                written.write_bytes(content)
                written.replace(folder / name)
            except OSError:
                with suppress(OSError):
                    written.unlink()
            else:
                self.folder = folder
                return
        _say_that_none_is_kept()

    def _file(self, sig: Any, codegen: Any) -> str:
        about = repr((sig, codegen.magic_tuple(), numba.__version__, sys.version_info[:2]))
        return f"{self._kernel}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.nbc"


@cache
def _stamp(source: Path) -> str:
    """Return a digest of a kernel's source and those in this folder, as each contains those that it
    calls.
    """
    sources = sorted({source, *_HERE.glob("*.py")})
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in sources if path.is_file())
    ).hexdigest()


def _folders() -> Iterator[Path]:
    if _numba.config.CACHE_DIR:  # NUMBA_CACHE_DIR
        named = Path(_numba.config.CACHE_DIR) / "cfk_plugin"
        with suppress(OSError):
            named.mkdir(parents=True, exist_ok=True)
        yield named
        if os.access(named, os.W_OK):
            return
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "cfk_plugin"
    with suppress(OSError):
        yield _own_temporary()


def _own_temporary() -> Path:
    """Return a folder that only this user can write to, as what is read from it is run."""
    user = os.getuid() if hasattr(os, "getuid") else "kernels"
    folder = Path(tempfile.gettempdir()) / f"cfk_plugin-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (
        os.name == "posix" and (found.st_uid != user or found.st_mode & 0o077)
    ):
        raise PermissionError("somebody else's folder")
    return folder


@cache
def _say_that_it_compiles() -> None:
    if is_watched():
        text = (
            "compiling what searches for groups, once on this machine: some seconds (`cfk warm-up`"
            " does it ahead)"
        )
        sys.stderr.write(f"\rcfk_plugin: {text}\n")


@cache
def _say_that_none_is_kept() -> None:
    _log.warning(
        "no folder for compiled kernels can be written, so each process compiles them anew for some"
        " seconds; name one in NUMBA_CACHE_DIR, or run `cfk warm-up` while the package's own folder"
        " can be written"
    )
