"""Requirements of a protected model: exact versions of what it needs to be loaded, and of nothing
else.
"""

from __future__ import annotations

import ast
import dis
import inspect
import io
import itertools
import operator
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import cloudpickle
import mlflow

PICKLE = ".pkl"
"""Ending of a pickled object's file."""

_FIXED = ("cfk-plugin", "mlflow")  # always as installed when logging
_OWN_MODULES = {"cfk_plugin", "cfk_adapters", "cfk_recourse"}
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def requirements_of(
    sources: Iterable[str | set[str]], given: Sequence[str] = (), code_paths: Sequence[str] = ()
) -> list[str]:
    """Return pip requirements of a protected model, ``cfk-plugin`` and ``mlflow`` first, without
    their dependencies.

    Sources are URIs of logged models, whose own requirements are taken over, and modules of pickles
    (see `pickled`), looked up like those that code of `code_paths` imports. What is `given`
    replaces what was found for the same project. What cannot be found or reconciled gives a
    warning.
    """
    found: dict[str, str] = {}
    code = [modules_of_code(Path(path)) for path in code_paths]
    asked = [
        _lines_of_model(source) if isinstance(source, str) else _pins_of_pickle(source, code_paths)
        for source in sources
    ]
    for line in itertools.chain(*asked, *(sorted(_pinned(modules)[0]) for modules in code)):
        name = _project(line)
        if found.setdefault(name, line) != line:
            found[name] = _settled(name, found[name], line, given)
    # maybe installed as mlflow-skinny
    here = {"cfk-plugin": version("cfk-plugin"), "mlflow": mlflow.__version__}
    chosen = (
        found
        | {name: f"{name}=={here[name]}" for name in _FIXED}
        | {_project(line): line for line in given}
    )
    return [chosen.pop(name) for name in _FIXED] + [chosen[name] for name in sorted(chosen)]


def _lines_of_model(uri: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        model = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
        text = (Path(model) / "requirements.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if options := [line for line in lines if not _PROJECT.match(line)]:
        warnings.warn(
            f"{len(options)} options in the requirements of {uri} are not taken over (constraints,"
            " indexes, files); give what is needed as requirements=",
            stacklevel=4,
        )
    return [line for line in lines if line not in options]


def _pins_of_pickle(modules: set[str], code_paths: Sequence[str]) -> list[str]:
    pins, unknown = _pinned(modules)
    brought = {path.stem for given in map(Path, code_paths) for path in (given, *given.glob("*"))}
    if unknown := unknown - brought:
        warnings.warn(
            f"no installed distribution has the module {', '.join(sorted(unknown))}, so it cannot"
            " be pinned and the model will not load where the module is missing; give its file or"
            " folder as code_paths=",
            stacklevel=4,
        )
    return sorted(pins)


def _pinned(modules: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the installed distributions of modules, pinned, and the top-level modules that none
    has.
    """
    owners = packages_distributions()
    pins: set[str] = set()
    unknown: set[str] = set()
    for module in modules:
        top = module.split(".")[0]
        if top in owners:
            pins |= {
                f"{_canonical(name)}=={version(name)}" for name in _owners(module, owners[top])
            }
        elif top not in sys.stdlib_module_names | _OWN_MODULES | {"__main__"}:
            unknown.add(top)
    return pins, unknown


def _owners(module: str, candidates: Sequence[str]) -> set[str]:
    """Return which of the distributions that share a top-level package have a module."""
    distinct = set(candidates)
    if len(distinct) == 1:
        return distinct
    path = module.replace(".", "/")
    forms = {f"{path}.py", f"{path}/__init__.py"}
    having = {
        name
        for name in distinct
        if forms & {file.as_posix() for file in distribution(name).files or ()}
    }
    return having or distinct


def _settled(name: str, first: str, second: str, given: Sequence[str]) -> str:
    """Choose between two requirements of one project: the version installed here, with which both
    were used.
    """
    try:
        chosen = f"{name}=={version(name)}"
    except PackageNotFoundError:
        chosen = first
    if name not in _FIXED and name not in {_project(line) for line in given}:
        warnings.warn(
            f"{first} and {second} are needed by what is protected; the model is logged with"
            f" {chosen}. Give another one as requirements=",
            stacklevel=4,
        )
    return chosen


def _project(line: str) -> str:
    found = _PROJECT.match(line)
    return _canonical(found[0]) if found else line


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pickled(thing: Any) -> tuple[bytes, set[str]]:
    """Return the pickle of a thing (cloudpickle), and the modules needed to load it or to call what
    it holds.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(thing)
    return file.getvalue(), pickler.modules


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def persistent_id(self, thing: Any) -> None:
        """Note what is about to be pickled; returns None, so that everything is pickled as
        usual.
        """
        if isinstance(thing, ModuleType):
            self.modules.add(thing.__name__)
        elif isinstance(thing, CodeType):
            self.modules |= {
                step.argval for step in dis.get_instructions(thing) if step.opname == "IMPORT_NAME"
            }
        elif (isinstance(thing, type) or inspect.isroutine(thing)) and _is_taken_by_name(thing):
            self.modules.add(thing.__module__)


def _is_taken_by_name(thing: Any) -> bool:
    """Say whether a class or function can be imported by its name, so that a pickle holds only the
    name.
    """
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    try:
        return operator.attrgetter(thing.__qualname__)(module) is thing
    except AttributeError:
        return False


def modules_of_code(path: Path) -> set[str]:
    """Return the modules that a file of Python code, or those of a folder, import by absolute
    names.
    """
    found: set[str] = set()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_bytes())) if file.suffix == ".py" else ():
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module)
    return found
