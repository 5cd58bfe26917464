"""Reading the JSON of a report back: strictly, since whoever compares reports relies on what the file says."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from cfk_plugin.errors import InputError
from cfk_plugin.report.data import SCHEMA_VERSION, Amount, Edition, ReportData, Verdict

_HEAD = ("id", "edition", "title", "verdict", "period", "as_of", "reason", "command", "not_covered")
_AMOUNT = frozenset(field.name for field in fields(Amount))
_PLAIN: Mapping[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def parse_json(text: str) -> ReportData:
    """Read the JSON of a report; see `ReportData.from_json`."""
    where = ""
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
    except RecursionError:
        where = "too deeply nested"
    if where:
        raise InputError(f"the report is not valid JSON ({where})")
    return parse(content)


def parse(content: Any) -> ReportData:
    """Read a report from JSON-ready values; see `ReportData.from_dict`."""
    if not isinstance(content, Mapping):
        raise InputError("the report is no JSON object; give the JSON that a report was written as")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        found = version if isinstance(version, int) else "none"
        raise InputError(
            f"the report has schema_version {found}, and this release reads {SCHEMA_VERSION}; "
            "make it again, or read it with the release that wrote it"
        )
    data: ReportData = _object(ReportData, content, "")
    for name in _HEAD:
        if name not in data.report:
            _missing(f"report.{name}")
    _value(Edition, data.report["edition"], "report.edition")
    _value(Verdict, data.report["verdict"], "report.verdict")
    return data


def _object(kind: Any, content: Any, where: str) -> Any:
    """Read one of the report's own classes: every key that it needs, and no other."""
    if not isinstance(content, Mapping):
        _wrong(where, "an object")
    hints, needed = _form(kind)
    for name in content:
        if name not in hints:
            raise InputError(f"the report has an unknown key {_path(where, str(name)[:60])}")
    for name in needed:
        if name not in content:
            _missing(_path(where, name))
    return kind(**{name: _value(hints[name], each, _path(where, name)) for name, each in content.items()})


@cache
def _form(kind: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the types of a class's fields, and the names of those that it cannot do without."""
    needed = (f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)
    return get_type_hints(kind), tuple(needed)


def _value(hint: Any, value: Any, where: str) -> Any:
    """Read a value of the annotated type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return _free(value)
    if is_dataclass(hint):
        return _object(hint, value, where)
    if origin is Literal:
        return value if value in args else _wrong(where, f"one of {', '.join(args)}")
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in args:
            return None
        return _value(next(arg for arg in args if arg is not types.NoneType), value, where)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            _wrong(where, "an object")
        return {str(name): _value(args[1], each, _path(where, str(name))) for name, each in value.items()}
    if origin in (Sequence, tuple):
        if not isinstance(value, list | tuple):
            _wrong(where, "a list")
        return tuple(_value(args[0], each, f"{where}[{place}]") for place, each in enumerate(value))
    return _plain(hint, value, where)


def _plain(hint: Any, value: Any, where: str) -> Any:
    allowed = (int, float) if hint is float else hint
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        _wrong(where, _PLAIN[hint])
    if isinstance(value, float) and not math.isfinite(value):
        _wrong(where, "a finite number")
    return value


def _free(value: Any) -> Any:
    """Read a value whose form is not fixed: what looks like an amount is one, at any depth."""
    if isinstance(value, Mapping):
        if value.keys() == _AMOUNT:
            return _object(Amount, value, "amount")
        return {str(name): _free(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_free(each) for each in value)
    return value


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _missing(where: str) -> NoReturn:
    raise InputError(f"the report has no {where}")


def _wrong(where: str, expected: str) -> NoReturn:
    raise InputError(f"{where} in the report must be {expected}")


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"the report holds {name}, which is no JSON")
