"""Three forms that pack several steps into one statement are not used in rewritten folders."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
REWRITTEN = (
    "cfk_plugin/data",
    "cfk_plugin/protection",
    "cfk_plugin/release",
    "docs/reproduction",
    "tests/frozen",
    "tests/packaging",
    "tests/reproduction",
)
"""Folders in which the forms are forbidden; each joins when it has been rewritten."""

EXCUSE = "# form: "
"""Begins a comment on the line of an exception, which gives its reason."""

SEVERAL = "a tuple assigned to several targets: write one assignment per line"
STARRED = "a local tuple unpacked into a call: name its parts, or make it an object"
CONDITIONAL = "a conditional expression inside a call or another one: give it a name first"


def forms_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and description of each forbidden form."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_several_assignments(node):
            yield node.lineno, SEVERAL
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from starred_tuples(node)
        if isinstance(node, (ast.Call, ast.IfExp)):
            for child in ast.iter_child_nodes(node):
                yield from ((inner.lineno, CONDITIONAL) for inner in conditionals_in(child))


def conditionals_in(node: ast.AST) -> Iterator[ast.IfExp]:
    """Yield the conditional expressions in an argument, but not those in functions inside it."""
    if isinstance(node, ast.IfExp):
        yield node
    elif not isinstance(node, (ast.Lambda, ast.Call)):
        for child in ast.iter_child_nodes(node):
            yield from conditionals_in(child)


def is_several_assignments(node: ast.Assign) -> bool:
    """Return True for ``a, b = f(), g()``, but not for a swap such as ``a, b = b, a``."""
    target = node.targets[0]
    value = node.value
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(
        value, (ast.Tuple, ast.List)
    ):
        return False
    return {ast.unparse(part) for part in target.elts} != {ast.unparse(part) for part in value.elts}


def starred_tuples(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    """Yield the calls in a function into which one of its own tuples is unpacked."""
    tuples = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            for argument in node.args:
                if isinstance(argument, ast.Starred) and ast.unparse(argument.value) in tuples:
                    yield argument.lineno, STARRED


def unexcused(text: str) -> list[str]:
    """Return the forbidden forms of a module that no comment excuses."""
    lines = text.splitlines()
    forms = sorted(set(forms_in(ast.parse(text))))
    return [f"{line}: {form}" for line, form in forms if EXCUSE not in lines[line - 1]]


@pytest.mark.parametrize("folder", REWRITTEN)
def test_forms_are_not_used(folder: str) -> None:
    paths = sorted((REPOSITORY / folder).rglob("*.py"))
    assert paths
    forms = [
        f"{path.relative_to(REPOSITORY).as_posix()}:{form}"
        for path in paths
        for form in unexcused(path.read_text(encoding="utf-8"))
    ]
    assert not forms, "\n".join(forms)


@pytest.mark.parametrize(
    ("code", "form"),
    [
        ("a, b = f(), g()", SEVERAL),
        ("low, high = 0, 1", SEVERAL),
        ("def f():\n    rest = 1, 2\n    g(*rest)", STARRED),
        ("f(a if b else c)", CONDITIONAL),
        ("f(key=a if b else c)", CONDITIONAL),
        ("f([1, a if b else c])", CONDITIONAL),
        ("x = a if b else c if d else e", CONDITIONAL),
    ],
)
def test_a_forbidden_form_is_found(code: str, form: str) -> None:
    assert [message.partition(": ")[2] for message in unexcused(code)] == [form]


@pytest.mark.parametrize(
    "code",
    [
        "a, b = b, a",
        "rows, columns = table.shape",
        "x = a if b else c",
        "f(*arguments)",
        "f(lambda: a if b else c)",
        "a, b = 1, 2  # form: the two ends of an interval",
    ],
)
def test_other_forms_are_permitted(code: str) -> None:
    assert unexcused(code) == []
