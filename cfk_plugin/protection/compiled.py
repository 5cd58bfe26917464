"""Kernels: functions that numba compiles, once per machine if there is a folder to keep them.

Kernels are kept in ``NUMBA_CACHE_DIR`` if that is set and can be written. Otherwise they are kept
in the first of these folders that can be written: one beside this module, one in the user's cache
folder, one among temporary files. Kernels are also read from folders that cannot be written. If
there is no folder at all, each process compiles for itself.
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
_HERE = Path(__file__).parent
# Much of numba has no type hints.
_numba: Any = numba
_dumps: Any = dumps
_rebuild: Any = CompileResult._rebuild
KERNELS: list[Any] = []
"""The kernels that Python calls."""
_log = logging.getLogger("cfk_plugin")


def jit(function: _F, **options: Any) -> _F:
    """Compile a kernel and keep it on disk.

    It releases the interpreter lock, so that threads run in parallel.
    """
    kernel = _numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    name = f"{function.__module__}.{function.__qualname__}"
    kernel._cache = _Kept(name, Path(function.__code__.co_filename))
    KERNELS.append(kernel)
    return cast("_F", kernel)


def inner(function: _F, **options: Any) -> _F:
    """Compile a function that only kernels call, as part of them.

    It has no wrapper for calls from Python, which would take longest to compile.
    """
    options = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast("_F", _numba.njit(nogil=True, **options)(function))


class _Kept(NullCache):
    """The compiled forms of one kernel: a file per signature and machine.

    Numba's own cache fails where nothing can be written.
    """

    def __init__(self, kernel: str, source: Path) -> None:
        self._kernel = kernel
        self._source = source
        self.folder: Path | None = None  # where the kernel was found or stored

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what `save_overload` stored for a signature, None if there is nothing."""
        target_context.refresh()
        name = self._file_name(sig, target_context.codegen())
        for folder in _folders():
            # Whatever is wrong with a file, the kernel can be compiled again.
            with suppress(Exception):
                stamp, reduced = pickle.loads((folder / name).read_bytes())  # noqa: S301 - the user's own file
                if stamp == _stamp(self._source):
                    self.folder = folder
                    return _rebuild(target_context, *reduced)
        _announce_compiling()
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Store a kernel in the first writable folder."""
        name = self._file_name(sig, cres.library.codegen)
        content = _dumps((_stamp(self._source), cres._reduce()))
        for folder in _folders():
            draft = folder / f"{name}.{uuid4().hex[:8]}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                draft.write_bytes(content)
                draft.replace(folder / name)
            except OSError:
                with suppress(OSError):
                    draft.unlink()
            else:
                self.folder = folder
                return
        _warn_that_none_is_kept()

    def _file_name(self, sig: Any, codegen: Any) -> str:
        """Return a name that differs by signature, processor, and versions of numba and Python."""
        machine = codegen.magic_tuple()
        variant = repr((sig, machine, numba.__version__, sys.version_info[:2]))
        digest = hashlib.sha256(variant.encode()).hexdigest()
        return f"{self._kernel}-{digest[:16]}.nbc"


@cache
def _stamp(source: Path) -> str:
    """Return a digest of all sources that a kernel may be compiled from.

    A compiled kernel contains the functions that it calls. These are in its own module, in this
    folder, or, for kernels in a package of this folder, in that package.
    """
    sources = {source, *_HERE.glob("*.py")}
    if source.parent.parent == _HERE:
        sources |= {*source.parent.glob("*.py")}
    contents = [path.read_bytes() for path in sorted(sources) if path.is_file()]
    return hashlib.sha256(b"".join(contents)).hexdigest()


def _folders() -> Iterator[Path]:
    """Yield the folders in which kernels may be kept, in the order in which they are tried."""
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
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise PermissionError("somebody else's folder")
    if os.name == "posix" and (status.st_uid != user or status.st_mode & 0o077):
        raise PermissionError("somebody else's folder")
    return folder


@cache
def _announce_compiling() -> None:
    if is_watched():
        text = (
            "compiling what searches for groups, once on this machine: some seconds (`cfk warm-up`"
            " does it ahead)"
        )
        sys.stderr.write(f"\rcfk_plugin: {text}\n")


@cache
def _warn_that_none_is_kept() -> None:
    _log.warning(
        "no folder for compiled kernels can be written, so each process compiles them anew for some"
        " seconds; name one in NUMBA_CACHE_DIR, or run `cfk warm-up` while the package's own folder"
        " can be written"
    )
