"""Requirements of a protected model: exact versions of what it needs to be loaded, and of nothing else."""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path

import mlflow

from cfk_plugin.serving.imports import modules_of, modules_of_code

_FIXED = ("cfk-plugin", "mlflow")  # in the version that logs, whatever an inner model was logged with
_OWN_MODULES = {"cfk_plugin", "cfk_adapters"}
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def requirements_of(
    sources: Iterable[str | bytes], given: Sequence[str] = (), code_paths: Sequence[str] = ()
) -> list[str]:
    """Return pip requirements of a protected model.

    Parameters
    ----------
    sources : iterable of str or bytes
        What is protected: the URI of a logged model, whose own requirements are taken over, or a pickle, whose
        modules are looked up among the installed distributions.
    given : sequence of str
        What the user says; it stands in the place of what was found for the same project.
    code_paths : sequence of str
        Files and folders of code that is logged with the model; what it imports is looked up, too.

    Returns
    -------
    list of str
        ``cfk-plugin`` and ``mlflow`` first. Only what is needed directly is pinned: pip brings what that needs in turn.

    Warns
    -----
    UserWarning
        If a pickle needs a module that no installed distribution has and no code path brings; if two sources need
        different versions of a project; if a logged model's requirements cannot all be taken over.
    """
    found: dict[str, str] = {}
    code = [modules_of_code(Path(path)) for path in code_paths]
    asked = [
        _pins_of_pickle(source, code_paths) if isinstance(source, bytes) else _lines_of_model(source)
        for source in sources
    ]
    for line in itertools.chain(*asked, *(sorted(_pinned(modules)[0]) for modules in code)):
        name = _project(line)
        if found.setdefault(name, line) != line:
            found[name] = _settled(name, found[name], line, given)
    chosen = found | {name: f"{name}=={version(name)}" for name in _FIXED} | {_project(line): line for line in given}
    return [chosen.pop(name) for name in _FIXED] + [chosen[name] for name in sorted(chosen)]


def _lines_of_model(uri: str) -> list[str]:
    """Return the requirements that a model was logged with."""
    with tempfile.TemporaryDirectory() as folder:
        model = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
        text = (Path(model) / "requirements.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if options := [line for line in lines if not _PROJECT.match(line)]:
        warnings.warn(
            f"{len(options)} options in the requirements of {uri} are not taken over (constraints, indexes, files); "
            "give what is needed as requirements=",
            stacklevel=4,
        )
    return [line for line in lines if line not in options]


def _pins_of_pickle(pickled: bytes, code_paths: Sequence[str]) -> list[str]:
    """Return the distributions behind the modules that a pickle names."""
    pins, unknown = _pinned(modules_of(pickled))
    brought = {path.stem for given in map(Path, code_paths) for path in (given, *given.glob("*"))}
    if unknown := unknown - brought:
        warnings.warn(
            f"no installed distribution has the module {', '.join(sorted(unknown))}, so it cannot be pinned and the "
            "model will not load where the module is missing; give its file or folder as code_paths=",
            stacklevel=4,
        )
    return sorted(pins)


def _pinned(modules: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the distributions of modules, as they are installed, and the top-level modules that none has."""
    owners = packages_distributions()
    pins: set[str] = set()
    unknown: set[str] = set()
    for module in modules:
        top = module.split(".")[0]
        if top in owners:
            pins |= {f"{_canonical(name)}=={version(name)}" for name in _owners(module, owners[top])}
        elif top not in sys.stdlib_module_names | _OWN_MODULES | {"__main__"}:
            unknown.add(top)
    return pins, unknown


def _owners(module: str, candidates: Sequence[str]) -> set[str]:
    """Return which distributions of a top-level package that several share have a module."""
    distinct = set(candidates)
    if len(distinct) == 1:
        return distinct
    path = module.replace(".", "/")
    forms = {f"{path}.py", f"{path}/__init__.py"}
    having = {name for name in distinct if forms & {file.as_posix() for file in distribution(name).files or ()}}
    return having or distinct


def _settled(name: str, first: str, second: str, given: Sequence[str]) -> str:
    """Choose between two requirements of one project: what is installed here, where both were tried."""
    try:
        chosen = f"{name}=={version(name)}"
    except PackageNotFoundError:
        chosen = first
    if name not in _FIXED and name not in {_project(line) for line in given}:
        warnings.warn(
            f"{first} and {second} are needed by what is protected; the model is logged with {chosen}. "
            "Give another one as requirements=",
            stacklevel=4,
        )
    return chosen


def _project(line: str) -> str:
    found = _PROJECT.match(line)
    return _canonical(found[0]) if found else line


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
