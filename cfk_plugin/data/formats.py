"""JSON Schemas of the files that the package writes and reads, and the check of a file against its
schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from cfk_plugin.errors import InputError, quiet

_MANY = 1000  # faults that are looked for
_SUFFIX = ".schema.json"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something in a file that its format does not allow; never its content."""

    path: tuple[int | str, ...]  # keys and positions that lead there
    problem: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path)) or 'top'} {self.problem}"


def faults(content: Any, form: str, names: Collection[str] = ()) -> list[Fault]:
    """Compare what was read from a file with its JSON Schema, which lists every key that may occur.

    Parameters
    ----------
    content : values as JSON has them
    form : str
        Name and version of the schema, as in ``"explanations-1"``, or a part of it:
        ``"run-1#/$defs/summary"``.
    names : collection of str
        Keys that may be named although no format has them, such as those of declared columns.

    Returns
    -------
    list of Fault, each once
    """
    known = {*_keys(), *names}
    # A schema with conditions can report the same fault several times.
    found: dict[Fault, None] = {}
    with quiet("the file cannot be compared with the JSON Schema", InputError):
        for error in islice(_validator(form).iter_errors(content), _MANY):
            found[Fault(_named(error.absolute_path, known), _said(error))] = None
    return list(found)


@cache
def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return every JSON Schema of the package by its name and version."""
    found = {}
    for file in (files("cfk_plugin") / "schemas").iterdir():
        if file.name.endswith(_SUFFIX):
            found[file.name.removesuffix(_SUFFIX)] = json.loads(file.read_text("utf-8"))
    return found


@cache
def _keys() -> frozenset[str]:
    """Return every key of every format; a key that is none of them could be a value."""
    return frozenset(_keys_in(list(schemas().values())))


def _keys_in(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _keys_in(part)


@cache
def _validator(form: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # 1.0 is no integer; Python reads NaN and infinity, which are no JSON.
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": lambda _, value: type(value) is int, "number": _is_number}
    )
    # All schemas are in one document, so that they can refer to each other by their names. At a key
    # "$schema" jsonschema would take its own validator, which knows nothing of these types.
    parts = {
        name: {key: value for key, value in schema.items() if key != "$schema"}
        for name, schema in schemas().items()
    }
    document = {"$ref": f"urn:cfk-plugin:{form}", "$defs": parts}
    return extend(Draft202012Validator, type_checker=types)(document)


def _is_number(_: Any, value: Any) -> bool:
    """Say whether a value is a number that float64 can hold, and so neither NaN nor infinite."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _named(path: Sequence[Any], known: Collection[str]) -> tuple[int | str, ...]:
    """Return a path in which no key is left that could be a value."""
    steps = []
    for step in path:
        is_secret = isinstance(step, str) and step not in known
        steps.append("(a name that is not known)" if is_secret else step)
    return tuple(steps)


def _said(error: Any) -> str:
    """Say what was expected; the error's own message quotes the content."""
    rule, expected = error.validator, error.validator_value
    if rule in ("required", "dependentRequired"):
        return _lacks(error)
    if rule == "type":
        return f"is not of type {expected if isinstance(expected, str) else ' or '.join(expected)}"
    if rule in ("additionalProperties", "unevaluatedProperties"):
        return "has a key that the format does not know"
    if rule in ("enum", "const"):
        return "is none of the values that the format has for it"
    return "has something twice" if rule == "uniqueItems" else "is not what the format allows"


def _lacks(error: Any) -> str:
    needed = error.validator_value
    if error.validator == "dependentRequired":
        needed = [name for key in needed if key in error.instance for name in needed[key]]
    return f"lacks {', '.join(name for name in needed if name not in error.instance)}"
