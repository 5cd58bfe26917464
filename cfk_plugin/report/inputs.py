"""What only people can say, read strictly; and thresholds, by people, a preset, or the house."""

from __future__ import annotations

import datetime as dt
import math
import textwrap
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import yaml

from cfk_plugin.data.policy import PRESETS as POLICIES
from cfk_plugin.data.policy import PrivacyPolicy, promised
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.report.data import OpenQuestion, Signature, load

SIGN_OFF_SECTION = 12
_TO_SIGN = "Name and date of the signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: str
    question: str
    role: str
    section: int
    kind: Literal["text", "date", "choice"] = "text"
    choices: Sequence[str] = ()


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {told["id"]: Question(**told) for told in load("questions")["questions"]}
)
"""Id to question, in the order of the report."""

SIGNERS: Mapping[str, str] = MappingProxyType(
    {told["id"]: told["role"] for told in load("questions")["signatures"]}
)
"""Id to the role of everybody who signs a report."""


LARGEST = 200_000
"""Bytes of the largest file that is read."""


class _Written(yaml.BaseLoader):
    """A loader that makes only mappings, lists and text, whatever tags say, and refuses repeated
    keys.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping without repeated keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise InputError(
                    f"{key_text(key.value)} stands there twice (line {key.start_mark.line + 1});"
                    " keep one"
                )
            seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


def read_written(path: str | Path) -> Any:
    """Read a YAML file as mappings, lists and text."""
    path, problem = Path(path), ""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give the file that people filled in"
        ) from None
    if len(content) > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST:,} bytes; answers are short texts")
    try:
        return _Written(content.decode("utf-8-sig")).get_single_data()
    except InputError:
        raise
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        problem = f"is no valid YAML{line}; put quotes around texts with a colon or a number sign"
    except (yaml.YAMLError, ValueError, RecursionError):
        problem = "is no valid YAML, or holds characters that cannot be printed"
    raise InputError(f"{path} {problem}")


def key_text(key: object) -> str:
    """Return a key for use in messages: short and printable."""
    text = key if isinstance(key, str) else type(key).__name__
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= 40 else f"{plain[:37]}..."


LONGEST = 2_000
"""Characters of the longest answer."""

Form = Callable[[Any, str, str], Any]
"""Reads a value, given how errors name it and its key."""

_EMPTY = ("", "~", "null")
# what people see must be what is stored
_TURNS_TEXT = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in _EMPTY)


def check_keys(given: Mapping[Any, Any], where: str, known: Iterable[str]) -> None:
    """Refuse an unknown key: a misspelt one would silently lose its answer."""
    if unknown := [key for key in given if key not in known]:
        raise InputError(
            f"{where}{key_text(unknown[0])} is unknown; known: {', '.join(known)}"
            f"{did_you_mean(unknown[:1], known)}"
        )


def read_each(
    given: object, where: str, known: Iterable[str], read: Form
) -> MappingProxyType[str, Any]:
    """Read every value of one part; empty ones are left out."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where} must hold keys and values, got {type(given).__name__}")
    check_keys(given, f"{where}.", known)
    found = {name: read(given[name], f"{where}.{name}", name) for name in known if name in given}
    return MappingProxyType({name: value for name, value in found.items() if value is not None})


def read_text(value: object, where: str) -> str | None:
    """Return a stripped text, or None if it is empty; ``where`` is how errors name it."""
    if is_empty(value):
        return None
    if not isinstance(value, str):
        raise InputError(f"{where} must be text, got {type(value).__name__}; put quotes around it")
    text = value.strip()
    if len(text) > LONGEST:
        raise InputError(f"{where} has {len(text):,} characters; say it in {LONGEST:,}")
    if any(_unprintable(letter) for letter in text):
        raise InputError(f"{where} holds characters that cannot be printed; type it anew")
    return text


def _unprintable(letter: str) -> bool:
    """Say whether a character is not printable, or changes the direction of the text after it."""
    return letter not in "\n\t" and (
        unicodedata.category(letter) in ("Cc", "Cs", "Co", "Cn") or letter in _TURNS_TEXT
    )


def read_answer(value: object, where: str, asked: Question) -> str | None:
    if asked.kind == "date":
        return read_date(value, where)
    if isinstance(value, bool):  # as other YAML readers parse yes and no
        value = "yes" if value else "no"
    text = read_text(value, where)
    if text is not None and asked.choices and text.lower() not in asked.choices:
        raise InputError(f"{where} must be one of {', '.join(asked.choices)}")
    return text.lower() if text is not None and asked.choices else text


def read_date(value: object, where: str) -> str | None:
    """Return a date as YYYY-MM-DD, or None if there is none."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    text = read_text(value, where)
    if text is None:
        return None
    try:
        day = dt.date.fromisoformat(text) if len(text) == len("YYYY-MM-DD") else None
    except ValueError:
        day = None
    if day is None:
        raise InputError(f"{where} must be a date, YYYY-MM-DD")
    return day.isoformat()


def read_signature(value: object, where: str) -> Mapping[str, str] | None:
    """Return ``name`` and ``date``, as far as given; None if neither is."""
    if is_empty(value):
        return None
    forms = {"name": read_text, "date": read_date}
    found = read_each(value, where, tuple(forms), lambda part, at, name: forms[name](part, at))
    return found or None


def read_number(value: object, where: str, name: str) -> float | None:
    """Return a threshold, if there is one: people for ``k``, a number above 0 for ``epsilon``, else
    a share.
    """
    if is_empty(value):
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    holds, asked = _NUMBERS.get(name, (lambda number: 0 <= number <= 1, "a number between 0 and 1"))
    if not holds(number):
        raise InputError(f"{where} must be {asked}")
    return int(number) if name == "k" else number


_NUMBERS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "k": (lambda number: number >= 2 and number.is_integer(), "a whole number >= 2"),
    "epsilon": (lambda number: 0 < number < math.inf, "a finite number above 0"),
}


ACCEPTABLE = (
    "k_desired_min",
    "k_effective_min",
    "k_consistent_min",
    "attack_inversion_own",
    "attack_inversion_released",
    "attack_model_filter",
    "attack_steering",
    "attack_intersection",
    "attack_homogeneity",
    "attack_uniqueness",
    "attack_downcoding",
    "attack_membership",
    "attack_extraction",
    "attack_attribute_inference",
)
"""Checks that may fail as an accepted risk: they are about attackers that not every policy stops.

The last three stand for all attacks of their families.
"""

THRESHOLDS = (
    "k",
    "pureness",
    "ncp",
    "attribute_disclosure",
    "group_gap",
    "attack_over_control",
    "epsilon",
)
"""Thresholds that people may choose; the highest risk follows from k."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HumanInputs:
    """What people said for a report. Without arguments: nothing yet.

    Raises `InputError` if a key is unknown, a value has another form, or a text is too long. The
    message names the key and never shows what was answered.
    """

    # by the ids of `QUESTIONS`; dates as YYYY-MM-DD
    answers: Mapping[str, str] = field(default_factory=dict)
    # name and date, by the ids of `SIGNERS`
    sign_off: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accepted_risks: Mapping[str, str] = field(default_factory=dict)  # why, by check of `ACCEPTABLE`
    thresholds: Mapping[str, float] = field(default_factory=dict)  # some of `THRESHOLDS`
    reason: str | None = None  # why the report is made

    def __post_init__(self) -> None:
        """Check everything; leave out what was left empty."""
        forms: Mapping[str, tuple[Iterable[str], Form]] = {
            "answers": (QUESTIONS, lambda value, at, name: read_answer(value, at, QUESTIONS[name])),
            "sign_off": (SIGNERS, lambda value, at, _: read_signature(value, at)),
            "accepted_risks": (ACCEPTABLE, lambda value, at, _: read_text(value, at)),
            "thresholds": (THRESHOLDS, read_number),
        }
        for part, (known, read) in forms.items():
            object.__setattr__(self, part, read_each(getattr(self, part), part, known, read))
        object.__setattr__(self, "reason", read_text(self.reason, "reason"))

    @classmethod
    def read(cls, path: str | Path) -> HumanInputs:
        """Read a filled-in `template`; raises `InputError` if it is no readable YAML, and as for
        the class.
        """
        content = read_written(path)
        parts = {} if is_empty(content) else content
        if not isinstance(parts, Mapping):
            raise InputError(f"{path} must hold keys and values; start from the template")
        known = [part.name for part in fields(cls)]
        check_keys(parts, "", known)
        return cls(**{name: value for name, value in parts.items() if not is_empty(value)})

    def accepted(self, check: str, policies: Iterable[Mapping[str, Any]]) -> str | None:
        """Return why people accept that a check fails."""
        known = list(policies)
        if not known or any(is_promised(check, policy) for policy in known):
            return None
        return self.accepted_risks.get(check)

    def system(self) -> dict[str, str | None]:
        """Return the answer to every question; None where there is none."""
        return {name: self.answers.get(name) for name in QUESTIONS}

    def signatures(self) -> tuple[Signature, ...]:
        """Return ``role``, ``name`` and ``date`` of everybody who signs; None where nobody did."""
        signed = {name: self.sign_off.get(name, {}) for name in SIGNERS}
        return tuple(
            {"role": role, "name": signed[name].get("name"), "date": signed[name].get("date")}
            for name, role in SIGNERS.items()
        )


_OF_COUNTS: Mapping[str, tuple[str, ...]] = {
    "k": ("k_min", "attack_linkage"),
    "k_desired": ("k_desired_min",),
    "k_effective": ("k_effective_min", "attack_inversion_own", "attack_inversion_released"),
    "k_consistent": ("k_consistent_min", "attack_model_filter"),
}
"""By count of people: the checks that a policy promises if it promises this count."""


def is_promised(check: str, policy: Mapping[str, Any] | None) -> bool:
    """Say whether a policy's settings promise that a check holds; an unknown policy is assumed
    to.
    """
    return policy is None or any(check in _OF_COUNTS.get(count, ()) for count in promised(policy))


def open_questions(inputs: HumanInputs) -> tuple[OpenQuestion, ...]:
    """Return every open question and every missing signature."""
    questions = [
        OpenQuestion(id=name, question=asked.question, role=asked.role, section=asked.section)
        for name, asked in QUESTIONS.items()
        if name not in inputs.answers
    ]
    signatures = [
        OpenQuestion(id=f"sign_off.{name}", question=_TO_SIGN, role=role, section=SIGN_OFF_SECTION)
        for name, role in SIGNERS.items()
        if set(inputs.sign_off.get(name, {})) != {"name", "date"}
    ]
    return (*questions, *signatures)


def template() -> str:
    """Return an ``inputs.yaml`` to fill in. As it is, every question in it is open."""
    lines = [
        (
            "# Answers for a privacy report. The report shows every question without an answer as"
            " open, and its verdict is"
        ),
        (
            f"# then at best `review`. Write plain text of at most {LONGEST:,} characters. Put"
            " quotes around texts with a colon"
        ),
        "# or a number sign. If a question does not apply, say so and give the reason.",
        "",
        "# Why is this report made (schedule, new model, new policy, a complaint)?",
        'reason: ""',
        "",
        "answers:",
    ]
    for name, asked in QUESTIONS.items():
        form = {"text": "", "date": " (YYYY-MM-DD)", "choice": f" ({', '.join(asked.choices)})"}[
            asked.kind
        ]
        lines += _comment(f"{asked.question}{form} [{asked.role}]", "  ")
        lines += [f'  {name}: ""', ""]
    lines += ["# Signatures, after the signers have read the report.", "sign_off:"]
    for name, role in SIGNERS.items():
        lines += [f"  {name}:  # {role}", '    name: ""', '    date: ""']
    lines += [
        "",
        (
            "# Your own thresholds. They replace those of the preset and the defaults. Leave out"
            " those that you do not need."
        ),
        "thresholds:",
    ]
    numbers = {"k": "whole number of people", "epsilon": "number above 0"}
    lines += [f"  # {name}: {numbers.get(name, 'number from 0 to 1')}" for name in THRESHOLDS]
    lines += [""]
    lines += _comment(
        "Risks that you accept: the check that does not pass, and the reason for accepting it. You"
        " can accept a risk only if the policy does not promise protection from it, and the verdict"
        " is then at best `review`.",
        "",
    )
    lines += ["accepted_risks:", *(f"  # {name}: reason" for name in ACCEPTABLE)]
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


HOUSE = "house choice, no external source"
BY_PEOPLE = "inputs.yaml"
_HOUSE_VALUES = {"group_gap": 0.1, "attack_over_control": 0.05}
_WITHOUT_DEFAULT = ("pureness", "ncp", "attribute_disclosure", "epsilon")


class Asked(NamedTuple):
    """A threshold and its source; without a value the figure is reported but not judged."""

    value: float | None = None
    source: str = ""
    id: str = ""


def thresholds(preset: str | None, inputs: HumanInputs) -> Mapping[str, Asked]:
    """Return the thresholds of a report's checks, by id; without a value if nobody asks for one.

    A preset asks for a k (none sets a floor for pureness or makes a release lawful); without one,
    the policy of each run does. What people chose overrides both, and is refused if it is a k below
    the preset's.
    """
    chosen = inputs.thresholds
    found = {name: Asked(None, "no limit is set") for name in ("k", "risk", *_WITHOUT_DEFAULT)}
    found |= {name: Asked(value, HOUSE) for name, value in _HOUSE_VALUES.items()}
    if preset is not None:
        if preset not in POLICIES:
            raise InputError(
                f"unknown preset {preset!r}; known: {', '.join(POLICIES)}"
                f"{did_you_mean([preset], POLICIES)}"
            )
        k, told = PrivacyPolicy.preset(preset).k, load("presets")[preset]
        if "k" in chosen and chosen["k"] < k:
            raise InputError(
                f"thresholds.k is below that of the preset {preset}; leave one of the two out"
            )
        found["k"] = Asked(k, f"{preset}: {told['source']}")
        risk = float(told.get("risk", 1 / k))
        found["risk"] = Asked(risk, f"{preset}: {'1 / k' if risk == 1 / k else told['source']}")
    found |= {name: Asked(value, BY_PEOPLE) for name, value in chosen.items()}
    if "k" in chosen:
        risks = [1 / chosen["k"], found["risk"].value or 1.0]
        found["risk"] = Asked(min(risks), f"{BY_PEOPLE}: 1 / k")
    return {name: asked._replace(id=name) for name, asked in found.items()}
