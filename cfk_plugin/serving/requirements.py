"""Requirements of a protected model: exact versions of what it needs to be loaded, and of nothing else."""

from __future__ import annotations

import ast
import dis
import itertools
import pickletools
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from typing import Any, NamedTuple

import mlflow

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


_ARGUMENTS_OF_CODE = 9  # up to the names, in every supported version of Python: see `types.CodeType`
_BYTES, _NAMES = 6, 8


class _Global(NamedTuple):
    """Something that the pickle takes from a module."""

    module: str
    name: str


class _Mark:
    """Where a run of items starts."""


class _Tuple(tuple[Any, ...]):
    """A tuple whose items are known."""

    __slots__ = ()


def modules_of(pickled: bytes) -> set[str]:
    """Return the modules that a pickle imports when it is loaded, or when functions that it holds are called.

    Cloudpickle stores functions of ``__main__`` and lambdas by value: their ``import`` statements are read from their
    bytecode.

    Parameters
    ----------
    pickled : bytes

    Returns
    -------
    set of str
        Names as they are imported, such as ``sklearn.tree._classes``.
    """
    return {name for name in _Reader().read(pickled) if isinstance(name, str) and name}


def modules_of_code(path: Path) -> set[str]:
    """Return the modules that a file of Python code, or those of a folder, import by absolute names."""
    found: set[str] = set()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_bytes())) if file.suffix == ".py" else ():
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module)
    return found


class _Reader:
    """Follows a pickle on a stack of its own, which holds no more than names, strings and tuples of them."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> Iterator[Any]:
        """Yield the names of modules."""
        for opcode, argument, _ in pickletools.genops(pickled):
            yield from self._step(opcode, argument)

    def _step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> Iterator[Any]:
        stack, kind = self._stack, opcode.name
        if kind in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif kind in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo.get(argument))
        elif kind in ("GLOBAL", "INST", "STACK_GLOBAL"):
            taken = self._taken(opcode)
            module, name = taken if kind == "STACK_GLOBAL" else argument.split(" ", 1)
            yield module
            stack.append(_Global(module, name))
        elif kind == "REDUCE":
            yield from _imported(*self._taken(opcode))
            stack.append(None)
        elif kind == "MARK":
            stack.append(_Mark())
        elif kind in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(_Tuple(self._taken(opcode)))
        else:
            taken = self._taken(opcode)
            known = argument if isinstance(argument, (str, bytes)) else None
            stack.extend(taken * 2 if kind == "DUP" else [known] * len(opcode.stack_after))

    def _taken(self, opcode: pickletools.OpcodeInfo) -> list[Any]:
        """Pop what an opcode uses: up to the last mark, or as many items as it has."""
        before, stack = opcode.stack_before, self._stack
        fixed = before.index(pickletools.markobject) if pickletools.markobject in before else len(before)
        at = len(stack)
        if fixed < len(before):
            at = max(i for i, item in enumerate(stack) if isinstance(item, _Mark))
        taken = stack[at - fixed : at] + stack[at + 1 :]
        del stack[at - fixed :]
        return taken


def _imported(function: Any, arguments: Any) -> Iterator[Any]:
    """Yield what a call imports: cloudpickle's way to name a module, and code that it stores by value."""
    if not isinstance(arguments, _Tuple):
        return
    if isinstance(function, _Global) and function.name == "subimport" and len(arguments) == 1:
        yield arguments[0]
    code = arguments[:_ARGUMENTS_OF_CODE]
    if len(code) == _ARGUMENTS_OF_CODE and isinstance(code[_BYTES], bytes) and isinstance(code[_NAMES], _Tuple):
        yield from _statements(code[_BYTES], code[_NAMES])


def _statements(code: bytes, names: tuple[Any, ...]) -> Iterator[Any]:
    """Yield what the ``import`` statements of a function name."""
    extended, wanted = dis.opmap["EXTENDED_ARG"], dis.opmap["IMPORT_NAME"]
    high = 0
    for operation, argument in zip(code[::2], code[1::2], strict=True):
        whole = high | argument
        high = whole << 8 if operation == extended else 0
        if operation == wanted:
            yield names[whole]
