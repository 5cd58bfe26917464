"""JSON Schemas of the package's files, and the check of a file against its schema."""

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

_MOST_FAULTS = 1000
_SUFFIX = ".schema.json"


@dataclass(frozen=True, slots=True)
class Fault:
    """A place in a file that breaks its format. It never quotes the content."""

    path: tuple[int | str, ...]  # keys and positions that lead there
    problem: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path)) or 'top'} {self.problem}"


def faults(content: Any, form: str, names: Collection[str] = ()) -> list[Fault]:
    """Compare the content of a file with its JSON Schema, which lists every possible key.

    Parameters
    ----------
    content : the parsed JSON
    form : str
        Name and version of the schema, as in ``"explanations-1"``, or a part of it:
        ``"run-1#/$defs/summary"``.
    names : collection of str
        Further keys that a fault may name, such as the declared columns.

    Returns
    -------
    list of Fault
        Without duplicates.
    """
    known_keys = {*_keys(), *names}
    # A schema with conditions can report the same fault several times.
    distinct: dict[Fault, None] = {}
    with quiet("the file cannot be compared with the JSON Schema", InputError):
        for error in islice(_validator(form).iter_errors(content), _MOST_FAULTS):
            path = _without_unknown_keys(error.absolute_path, known_keys)
            distinct[Fault(path, _problem(error))] = None
    return list(distinct)


@cache
def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return every JSON Schema of the package by its name and version."""
    content_of_name = {}
    for file in (files("cfk_plugin") / "schemas").iterdir():
        if file.name.endswith(_SUFFIX):
            name = file.name.removesuffix(_SUFFIX)
            content_of_name[name] = json.loads(file.read_text("utf-8"))
    return content_of_name


@cache
def _keys() -> frozenset[str]:
    """Return every key of every format. Any other key could be a value of a row."""
    return frozenset(_keys_in(list(schemas().values())))


def _keys_in(node: Any) -> Iterator[str]:
    """Yield every key that a schema, or a part of one, names."""
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
    """Return a validator for a schema; jsonschema is only imported when a file is checked."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # 1.0 is not an integer here. Python's parser reads NaN and infinity, which JSON does not have.
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": lambda _, value: type(value) is int, "number": _is_number}
    )
    # All schemas are in one document, so that they can refer to each other by their names. If a
    # part had the key "$schema", jsonschema would use its own validator, without these types.
    parts = {
        name: {key: value for key, value in schema.items() if key != "$schema"}
        for name, schema in schemas().items()
    }
    document = {"$ref": f"urn:cfk-plugin:{form}", "$defs": parts}
    return extend(Draft202012Validator, type_checker=types)(document)


def _is_number(_: Any, value: Any) -> bool:
    """Return True if a value is a finite number within the range of float64."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _without_unknown_keys(
    path: Sequence[Any], known_keys: Collection[str]
) -> tuple[int | str, ...]:
    """Replace the unknown keys of a path, which could be values of a row, with a placeholder."""
    steps = []
    for step in path:
        is_unknown = isinstance(step, str) and step not in known_keys
        visible_step = "(an unknown key)" if is_unknown else step
        steps.append(visible_step)
    return tuple(steps)


def _problem(error: Any) -> str:
    """Describe an error without quoting the content, as jsonschema's own message does."""
    rule = error.validator
    if rule in ("required", "dependentRequired"):
        return f"lacks {', '.join(_missing_keys(error))}"
    if rule == "type":
        expected = error.validator_value
        types = [expected] if isinstance(expected, str) else expected
        return f"is not of type {' or '.join(types)}"
    if rule in ("additionalProperties", "unevaluatedProperties"):
        return "has an unknown key"
    if rule in ("enum", "const"):
        return "is not one of the values that the format allows"
    if rule == "uniqueItems":
        return "has duplicate items"
    return "is not what the format allows"


def _missing_keys(error: Any) -> list[str]:
    """Return the required keys that an object lacks."""
    needed = error.validator_value
    if error.validator == "dependentRequired":
        needed = [name for key in needed if key in error.instance for name in needed[key]]
    return [name for name in needed if name not in error.instance]
