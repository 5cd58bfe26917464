"""What a pickle, or a file of code, imports when it is loaded: read, and nothing of it executed."""

from __future__ import annotations

import ast
import dis
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
