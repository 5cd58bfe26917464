"""Writes ``tests/public_api.txt`` anew from the code.

Run: python tests/packaging/public_api.py

The file says which names, members and commands are public; their signatures are read from the code.
To make a method or an attribute public, add a line ``member CLASS.NAME`` to the file, and run this
program. The API page shows these members.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import cfk_plugin
from cfk_plugin.cli import app
from cfk_plugin.release import results

LIST = Path(__file__).parents[1] / "public_api.txt"
SHOWN = (bool, int, float, str, tuple, type(None))
"""Types of defaults that are written out."""
MADE_BY_OTHERS = (
    *("Population", "ProtectedExplainer", "Explanations", "PrivacyReport", "hookimpl"),
    *("GeneralizedCounterfactual", "PrototypeCounterfactual", "Withheld"),
    *("Certificate", "PrototypeCertificate"),
)
"""Names that nobody calls: users get such objects from other functions, or from pluggy."""


class OtherDefault:
    """A default of another type."""

    def __repr__(self) -> str:
        return "..."


def lines() -> Iterator[str]:
    """Yield a line for each public name and command, and each member that the list has."""
    for name in sorted(cfk_plugin.__all__):
        called = None if name in MADE_BY_OTHERS else getattr(cfk_plugin, name)
        yield f"name {name}{signature(called)}"
    for path in sorted(set(re.findall(r"^member ([\w.]+)", LIST.read_text("utf-8"), re.M))):
        owner, name = path.split(".")
        kind = getattr(cfk_plugin, owner, None) or getattr(results, owner)
        # Attributes of fitted objects are not in the class.
        member = None if name.endswith("_") else inspect.getattr_static(kind, name)
        yield f"member {path}{signature(member)}"
    yield from sorted(commands(typer.main.get_command(app), ""))


def signature(thing: Any) -> str:
    """Return the parameters with their defaults; an empty text for what cannot be called."""
    thing = getattr(thing, "__func__", thing)
    if not callable(thing):
        return ""
    parameters = []
    for name, parameter in inspect.signature(thing).parameters.items():
        default = parameter.default
        if not isinstance(default, SHOWN) and default is not inspect.Parameter.empty:
            default = OtherDefault()
        if name not in ("self", "cls"):
            parameters.append(
                parameter.replace(annotation=inspect.Parameter.empty, default=default)
            )
    return str(inspect.Signature(parameters))


def commands(command: Any, path: str) -> Iterator[str]:
    """Yield a line for a command, or for each of its commands."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")
        return
    words = []
    for parameter in command.params:
        if "--help" not in parameter.opts:
            words.append("/".join(parameter.opts))
    yield f"command{path} {' '.join(words)}".strip()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    LIST.write_text("\n".join(lines()) + "\n", encoding="utf-8")
