"""What only people can say of a release: their answers, accepted risks and thresholds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from cfk_plugin.data.policy import promised
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.report.data import OpenQuestion, load

T = TypeVar("T")

QUESTIONS: Mapping[str, OpenQuestion] = MappingProxyType(
    {entry["id"]: OpenQuestion(**entry) for entry in load("questions")["questions"]}
)
"""Id to question, in the order of the report."""

THRESHOLDS = (
    "k",
    "pureness",
    "ncp",
    "attribute_disclosure",
    "group_gap",
    "attack_over_control",
    "epsilon",
)
"""Thresholds that people may choose."""

_OF_COUNTS: Mapping[str, tuple[str, ...]] = {
    "k": ("k_min", "attack_linkage"),
    "k_desired": ("k_desired_min",),
    "k_effective": ("k_effective_min",),
    "k_consistent": ("k_consistent_min", "attack_model_filter"),
}
"""By count of people: the checks that a policy promises if it promises this count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInputs:
    """What people say for a report; without arguments every question is open."""

    answers: Mapping[str, str] = field(default_factory=dict)  # by the ids of `QUESTIONS`
    accepted_risks: Mapping[str, str] = field(default_factory=dict)  # reason, by the id of a check
    thresholds: Mapping[str, float] = field(default_factory=dict)  # by the names in `THRESHOLDS`

    @classmethod
    def read(cls, source: Mapping[str, Any] | str | Path | None) -> HumanInputs:
        """Read the inputs from a mapping or a JSON file.

        Raises
        ------
        InputError
            If the file cannot be read, a key is unknown, or a value has another form. The message
            names the key, not the value.
        """
        if source is None:
            return cls()
        if isinstance(source, str | Path):
            content = _content_of(Path(source))
        elif isinstance(source, Mapping):
            content = source
        else:
            raise InputError(
                f"inputs must be a mapping or the path of a JSON file, got {type(source).__name__}"
            )
        _check_keys(content, "", ("answers", "accepted_risks", "thresholds"))
        answers = _part(content, "answers", QUESTIONS, _text)
        checks = _acceptable(content.get("accepted_risks"))
        risks = _part(content, "accepted_risks", checks, _text)
        thresholds = _part(content, "thresholds", THRESHOLDS, _number)
        return cls(
            answers={name: answers[name] for name in QUESTIONS if answers.get(name)},
            accepted_risks={name: reason for name, reason in risks.items() if reason},
            thresholds=thresholds,
        )

    def accepts(self, check: str, policies: Collection[Mapping[str, Any]]) -> bool:
        """Return whether people accept that a check fails which no policy promises."""
        is_broken_promise = any(is_promised(check, policy) for policy in policies)
        return check in self.accepted_risks and len(policies) > 0 and not is_broken_promise


def _content_of(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: not valid JSON") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: must be a JSON object")
    return content


def _part(
    content: Mapping[str, Any],
    name: str,
    names: Collection[str],
    read: Callable[[object, str], T],
) -> dict[str, T]:
    part = content.get(name, {})
    if not isinstance(part, Mapping):
        raise InputError(f"{name} must have keys and values, got {type(part).__name__}")
    _check_keys(part, f"{name}.", names)
    return {str(key): read(value, f"{name}.{key}") for key, value in part.items()}


def _acceptable(risks: object) -> list[str]:
    """Return the checks about attackers whom not every policy stops."""
    names = ["k_desired_min", "k_effective_min", "k_consistent_min"]
    if isinstance(risks, Mapping):
        names += [str(check) for check in risks if str(check).startswith("attack_")]
    return names


def _check_keys(content: Mapping[str, Any], where: str, names: Collection[str]) -> None:
    """Raise if a key is unknown: a misspelt one would silently lose its value."""
    unknown = [key for key in content if key not in names]
    if unknown:
        raise InputError(
            f"{where}{unknown[0]} is unknown; known: {', '.join(names)}"
            f"{did_you_mean(unknown[:1], names)}"
        )


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} must be text, got {type(value).__name__}")
    return value.strip()


def _number(value: object, where: str) -> float:
    """Return a threshold: people for k, a number above 0 for epsilon, otherwise a share."""
    name = where.removeprefix("thresholds.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where} must be a number, got {type(value).__name__}")
    if name == "k":
        if value < 2 or not float(value).is_integer():
            raise InputError(f"{where} must be a whole number >= 2")
        return int(value)
    if name == "epsilon":
        if not 0 < value < math.inf:
            raise InputError(f"{where} must be a finite number above 0")
    elif not 0 <= value <= 1:
        raise InputError(f"{where} must be a number between 0 and 1")
    return value


def is_promised(check: str, policy: Mapping[str, Any] | None) -> bool:
    """Return whether a policy's settings promise that a check passes; True if it is unknown."""
    return policy is None or any(check in _OF_COUNTS.get(count, ()) for count in promised(policy))


def open_questions(inputs: HumanInputs) -> tuple[OpenQuestion, ...]:
    """Return every question without an answer."""
    return tuple(question for name, question in QUESTIONS.items() if name not in inputs.answers)


HOUSE = "house choice, no external source"
BY_PEOPLE = "inputs"
_HOUSE_VALUES = {"group_gap": 0.1, "attack_over_control": 0.05}


class Asked(NamedTuple):
    """A threshold and its source; without a value the figure is reported but not judged."""

    value: float | None = None
    source: str = ""


def thresholds(inputs: HumanInputs) -> Mapping[str, Asked]:
    """Return the thresholds of a report's checks, by id.

    One that has no value here may be set by the policies of the runs.
    """
    limits = {name: Asked(_HOUSE_VALUES.get(name), HOUSE) for name in THRESHOLDS}
    limits |= {name: Asked(value, BY_PEOPLE) for name, value in inputs.thresholds.items()}
    return limits
