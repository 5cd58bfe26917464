"""Requirements of a protected model: exact versions of what it needs to be loaded, and of nothing
else.

MLflow infers requirements by loading a model in another process and noting what it imports. This is
not enough for what is pickled here: imports inside a function happen only when it is called, and a
model that needs the ledger of its server does not load where it is logged. So the pickle and the
code are read instead.
"""

from __future__ import annotations

import ast
import dis
import inspect
import io
import operator
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
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
    model_uris: Iterable[str] = (),
    modules: Iterable[str] = (),
    replacements: Sequence[str] = (),
    code_paths: Sequence[str] = (),
) -> list[str]:
    """Return pip requirements of a protected model, ``cfk-plugin`` and ``mlflow`` first, without
    their dependencies.

    Parameters
    ----------
    model_uris : iterable of str
        Logged models inside, whose own requirements are taken over.
    modules : iterable of str
        What pickles need (see `pickled`). The distributions that have these modules are pinned.
    replacements : sequence of str
        Requirements that replace what was found for the same project.
    code_paths : sequence of str
        Files and folders of code that are logged along. What they import is pinned, too.

    Returns
    -------
    list of str

    Warns
    -----
    UserWarning
        If a module is in no distribution and not in the code, if two requirements of one project
        differ, or if a logged model has requirements that are no distributions.
    """
    modules = set(modules)
    modules_in_code: set[str] = set()
    for path in code_paths:
        modules_in_code |= modules_of_code(Path(path))
    distributions = packages_distributions()
    _warn_of_missing(modules, distributions.keys(), code_paths)
    lines = []
    for uri in model_uris:
        lines += _lines_of_model(uri)
    lines += sorted(_pins(modules | modules_in_code, distributions))
    replaced = {_project(line): line for line in replacements}
    chosen: dict[str, str] = {}
    for line in lines:
        project = _project(line)
        other = chosen.setdefault(project, line)
        if other == line:
            continue
        chosen[project] = _pin_of_installed(project, otherwise=other)
        if project not in _FIXED and project not in replaced:
            warnings.warn(
                f"{other} and {line} are needed by what is protected; the model is logged with"
                f" {chosen[project]}. Give another one as requirements=",
                stacklevel=3,
            )
    chosen["cfk-plugin"] = f"cfk-plugin=={version('cfk-plugin')}"
    chosen["mlflow"] = f"mlflow=={mlflow.__version__}"  # mlflow-skinny may be what is installed
    chosen |= replaced
    others = sorted(chosen.keys() - _FIXED)
    return [chosen[project] for project in (*_FIXED, *others)]


def _warn_of_missing(
    modules: set[str], in_distributions: Iterable[str], code_paths: Sequence[str]
) -> None:
    """Warn of modules that are neither in a distribution nor in the code that is logged along."""
    in_code = set()
    for path in map(Path, code_paths):
        in_code |= {file.stem for file in (path, *path.glob("*"))}
    top_level = {module.split(".")[0] for module in modules}
    missing = top_level.difference(
        in_distributions, in_code, sys.stdlib_module_names, _OWN_MODULES, {"__main__"}
    )
    if missing:
        warnings.warn(
            f"no installed distribution has the module {', '.join(sorted(missing))}, so it cannot"
            " be pinned and the model will not load where the module is missing; give its file or"
            " folder as code_paths=",
            stacklevel=4,
        )


def _lines_of_model(uri: str) -> list[str]:
    """Return the requirements that a logged model was logged with."""
    with tempfile.TemporaryDirectory() as folder:
        model = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
        text = (Path(model) / "requirements.txt").read_text(encoding="utf-8")
    requirements = []
    n_options = 0
    for line in map(str.strip, text.splitlines()):
        if _PROJECT.match(line):
            requirements.append(line)
        elif line and not line.startswith("#"):
            n_options += 1
    if n_options:
        warnings.warn(
            f"{n_options} options in the requirements of {uri} are not taken over (constraints,"
            " indexes, files); give what is needed as requirements=",
            stacklevel=4,
        )
    return requirements


def _pins(modules: Iterable[str], distributions: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the installed distributions that have some of the modules, pinned.

    `distributions` maps top-level packages to the distributions that have a part of them.
    """
    pins = set()
    for module in modules:
        candidates = distributions.get(module.split(".")[0], [])
        for name in _distributions_with(module, candidates):
            pins.add(f"{_canonical(name)}=={version(name)}")
    return pins


def _distributions_with(module: str, candidates: Sequence[str]) -> set[str]:
    """Return which of the distributions that share a top-level package have a module; all of them
    if that cannot be seen.
    """
    if len(set(candidates)) <= 1:
        return set(candidates)
    path = module.replace(".", "/")
    having = set()
    for name in candidates:
        files = {file.as_posix() for file in distribution(name).files or ()}
        if f"{path}.py" in files or f"{path}/__init__.py" in files:
            having.add(name)
    return having or set(candidates)


def _pin_of_installed(project: str, otherwise: str) -> str:
    """Return the version that is installed here, with which everything was used."""
    try:
        return f"{project}=={version(project)}"
    except PackageNotFoundError:
        return otherwise


def _project(line: str) -> str:
    """Return the name of the project that a requirement is about."""
    name = _PROJECT.match(line)
    return line if name is None else _canonical(name[0])


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
    """Notes the modules of what it pickles."""

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
            for step in dis.get_instructions(thing):
                if step.opname == "IMPORT_NAME":
                    self.modules.add(step.argval)
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
    files = path.rglob("*.py") if path.is_dir() else [path]
    modules: set[str] = set()
    for file in files:
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                modules.add(node.module)
    return modules
