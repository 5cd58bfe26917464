"""Writes ``tests/public_api.txt`` anew from the code.

Run: python tests/packaging/public_api.py

The file says which names are public; their signatures are read from the code. To make a method or
an attribute public, add a line ``member CLASS.NAME`` to the file, and run this program. Everything
else (names of `cfk_plugin`, hooks, commands, metrics, formats, environment variables, errors and
reasons) is listed because it exists.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

import cfk_plugin
from cfk_plugin import _files, errors, hookspecs
from cfk_plugin.audit import epsilon as audit_epsilon
from cfk_plugin.audit import result as audit_result
from cfk_plugin.cli import app
from cfk_plugin.data import wording
from cfk_plugin.metrics import provenance
from cfk_plugin.release import explanations, results
from cfk_plugin.report import data as report_data
from cfk_plugin.tracking import journal, record, tally

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "public_api.txt"

MADE_BY_OTHERS = (
    *("Population", "ProtectedExplainer", "Explanations", "PrivacyReport", "hookimpl"),
    *("GeneralizedCounterfactual", "PrototypeCounterfactual", "Withheld"),
    *("Certificate", "PrototypeCertificate"),
)
"""Names that nobody calls: users get such objects from other functions, or from pluggy."""

FORMATS = {
    "explanations": explanations.SCHEMA_VERSION,
    "run": record.SCHEMA_VERSION,
    "report": report_data.SCHEMA_VERSION,
    "audit": audit_result.SCHEMA_VERSION,
    "epsilon audit": audit_epsilon.SCHEMA_VERSION,
    "population of a run": provenance.SCHEMA_VERSION,
    "summary of a run": record.SCHEMA_VERSION,
    "schema of a table": _files.TABLE_SCHEMA_VERSION,
    "policy": _files.POLICY_VERSION,
    "journal": journal.JOURNAL_VERSION,
    "language": wording.LANGUAGE_VERSION,
}


def main() -> None:
    """Write the list."""
    LIST.write_text("\n".join(lines(listed_members())) + "\n", encoding="utf-8")


def listed_members() -> list[str]:
    """Return the members that the list says are public, as ``CLASS.NAME``."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("member "):
            found.append(re.match(r"member ([\w.]+)", line)[1])  # type: ignore[index]
    return sorted(set(found))


def lines(members: list[str]) -> Iterator[str]:
    """Yield a line for everything that is public."""
    for name in sorted(cfk_plugin.__all__):
        if name in MADE_BY_OTHERS:
            yield f"name {name}"
        else:
            yield f"name {name}{_signature(getattr(cfk_plugin, name))}"
    for member in members:
        yield f"member {member}{_signature(_member(member))}"
    yield from _hooks()
    yield from sorted(_commands(typer.main.get_command(app), ""))
    yield from _listed("metric", map(tally.metric_of, (*record.PER_EXPLANATION, *tally.PLOTTED)))
    yield from _listed("format", (f"{name} {version}" for name, version in FORMATS.items()))
    yield from _listed("variable", _environment_variables())
    yield from _listed("error", _errors())
    yield from _listed("reason", results.WITHHOLDING_REASONS)


def _listed(kind: str, names: Iterable[str]) -> Iterator[str]:
    for name in sorted(names):
        yield f"{kind} {name}"


def _hooks() -> Iterator[str]:
    for name, hook in sorted(vars(hookspecs).items()):
        if name.startswith("cfk_"):
            yield f"hook {name}{_signature(hook)}"


def _member(path: str) -> Any:
    owner, name = path.split(".")
    kind = getattr(cfk_plugin, owner, None) or getattr(results, owner)
    if name.endswith("_"):
        return None  # an attribute of a fitted object
    return inspect.getattr_static(kind, name)


def _signature(thing: Any) -> str:
    """Return the parameters with their defaults; an empty text for what cannot be called."""
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    if not callable(thing):
        return ""
    parts = []
    is_keyword_only = False
    for name, parameter in inspect.signature(thing).parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_keyword_only:
            parts.append("*")
        if parameter.kind in (
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
        ):
            is_keyword_only = True
        default = parameter.default
        shown = "" if default is inspect.Parameter.empty else f"={_default(default)}"
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        parts.append(f"{stars}{name}{shown}")
    return f"({', '.join(parts)})"


def _default(value: Any) -> str:
    if isinstance(value, (bool, int, float, str, tuple, type(None))):
        return repr(value)
    if dataclasses.is_dataclass(value) or isinstance(value, dict):
        return type(value).__name__
    return "..."


def _commands(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _commands(each, f"{path} {name}".strip())
        return
    words = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        word = "/".join(parameter.opts) if is_option else str(parameter.name).upper()
        if "--help" not in parameter.opts:
            words.append(word)
    yield f"command {path} {' '.join(words)}".strip()


def _environment_variables() -> set[str]:
    found: set[str] = set()
    for path in [*ROOT.glob("cfk_plugin/**/*.py"), *ROOT.glob("adapters/**/*.py")]:
        found |= set(re.findall(r"\bCFK_[A-Z_]+", path.read_text(encoding="utf-8")))
    return found


def _errors() -> Iterator[str]:
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, (errors.CFKError, Warning)):
            yield name


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
