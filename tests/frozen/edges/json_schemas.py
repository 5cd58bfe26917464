"""The published JSON Schemas as lines: where in the schema, and what stands there, but no prose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any


def measure() -> list[str]:
    lines: list[str] = []
    for file in (files("cfk_plugin") / "schemas").iterdir():
        if file.name.endswith(".json"):
            lines.extend(_lines_of(json.loads(file.read_text("utf-8")), file.name))
    return sorted(lines)


def _lines_of(node: Any, place: str) -> Iterator[str]:
    """Yield one line for each value; those of a list of values may stand in any order."""
    if isinstance(node, dict) and node:
        for name, value in node.items():
            if name == "description" and isinstance(value, str):
                continue
            yield from _lines_of(value, f"{place} {name}")
    elif isinstance(node, list) and node:
        for position, value in enumerate(node):
            is_schema = isinstance(value, dict)
            place_of_value = f"{place} {position}" if is_schema else place
            yield from _lines_of(value, place_of_value)
    else:
        yield f"{place} = {json.dumps(node, ensure_ascii=False)}"
