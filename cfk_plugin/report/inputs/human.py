"""The answers of people: read strictly, since a report is signed with them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cfk_plugin.errors import InputError
from cfk_plugin.report.data import Placeholder
from cfk_plugin.report.inputs.answers import (
    LONGEST,
    Form,
    check_keys,
    is_empty,
    read_answer,
    read_each,
    read_number,
    read_signature,
    read_text,
)
from cfk_plugin.report.inputs.questions import QUESTIONS, SIGN_OFF_SECTION, SIGNERS
from cfk_plugin.report.inputs.written import read_written

ACCEPTABLE = (
    "k_desired_min",
    "k_effective_min",
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
"""Checks that may fail as a declared risk: they speak of attackers whom not every policy stops.

The last three stand for all attacks of their families.
"""

THRESHOLDS = ("k", "pureness", "ncp", "attribute_disclosure", "group_gap", "attack_over_control", "epsilon")
"""What people may choose themselves; the highest risk follows from k."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HumanInputs:
    """What people said for a report. Without arguments: nothing yet.

    Attributes
    ----------
    answers : mapping of str to str
        By the ids of `QUESTIONS`; dates as YYYY-MM-DD.
    sign_off : mapping of str to mapping
        By the ids of `SIGNERS`: ``name`` and ``date``.
    accepted_risks : mapping of str to str
        Check to the reason why people accept that it does not hold; see `ACCEPTABLE`.
    thresholds : mapping of str to float
        Some of `THRESHOLDS`.
    reason : str, optional
        Why the report is made.

    Raises
    ------
    InputError
        If a key is unknown, a value has another form, or a text is too long. The message names the key and never
        shows what was answered.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    sign_off: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    accepted_risks: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None

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
        """Read a filled-in `template`.

        Parameters
        ----------
        path : path

        Returns
        -------
        HumanInputs

        Raises
        ------
        InputError
            If the file cannot be read or is no YAML, and as for the class.
        """
        content = read_written(path)
        parts = {} if is_empty(content) else content
        if not isinstance(parts, Mapping):
            raise InputError(f"{path} must hold keys and values; start from the template")
        known = [part.name for part in fields(cls)]
        check_keys(parts, "", known)
        return cls(**{name: value for name, value in parts.items() if not is_empty(value)})

    def accepted(self, check: str, policies: Iterable[Mapping[str, Any]]) -> str | None:
        """Return why people accept that a check does not hold.

        Parameters
        ----------
        check : str
        policies : iterable of mapping
            Settings of the policies in the period.

        Returns
        -------
        str or None
            None where nobody does, where a policy promises it (a broken promise cannot be accepted), and where no
            policy is known.
        """
        known = list(policies)
        if not known or any(check in promised(policy) for policy in known):
            return None
        return self.accepted_risks.get(check)

    def system(self) -> dict[str, str | None]:
        """Return the answer to every question; None where there is none."""
        return {name: self.answers.get(name) for name in QUESTIONS}

    def signatures(self) -> tuple[dict[str, str | None], ...]:
        """Return ``role``, ``name`` and ``date`` of everybody who signs; None where nobody did."""
        return tuple(
            {"role": role, **{part: self.sign_off.get(name, {}).get(part) for part in ("name", "date")}}
            for name, role in SIGNERS.items()
        )


def promised(policy: Mapping[str, Any]) -> frozenset[str]:
    """Return the checks of `ACCEPTABLE` that a policy promises to hold, from its settings."""
    eligible = policy.get("guarantee") == "catalogue" or policy.get("anonymity_set") == "eligible"
    effective = policy.get("guarantee") in ("reciprocal", "catalogue")
    reruns = ["k_effective_min", "attack_inversion_own", "attack_inversion_released"] * effective
    asks = ["attack_model_filter"] * (policy.get("guarantee") == "catalogue")
    return frozenset(["k_desired_min"] * eligible + reruns + asks)


def placeholders(inputs: HumanInputs) -> tuple[Placeholder, ...]:
    """Return every question that is open, and every signature that is missing."""
    questions = [
        Placeholder(id=name, question=asked.question, role=asked.role, section=asked.section)
        for name, asked in QUESTIONS.items()
        if name not in inputs.answers
    ]
    signatures = [
        Placeholder(
            id=f"sign_off.{name}", question="Name and date of the signature", role=role, section=SIGN_OFF_SECTION
        )
        for name, role in SIGNERS.items()
        if set(inputs.sign_off.get(name, {})) != {"name", "date"}
    ]
    return (*questions, *signatures)


def template() -> str:
    """Return an ``inputs.yaml`` to fill in. As it is, every question in it is open."""
    lines = [
        "# Answers for a privacy report. What is left empty stays visible in it as an open question, and the verdict",
        f"# is at best `review`. Plain text of at most {LONGEST:,} characters; put quotes around texts with a colon or",
        "# a number sign. Where a question does not apply, say so and why.",
        "",
        "# Why is this report made (schedule, new model, new policy, a complaint)?",
        'reason: ""',
        "",
        "answers:",
    ]
    for name, asked in QUESTIONS.items():
        form = {"text": "", "date": " (YYYY-MM-DD)", "choice": f" ({', '.join(asked.choices)})"}[asked.kind]
        lines += _comment(f"{asked.question}{form} [{asked.role}]", "  ")
        lines += [f'  {name}: ""', ""]
    lines += ["# Who signs, once the report was read.", "sign_off:"]
    for name, role in SIGNERS.items():
        lines += [f"  {name}:  # {role}", '    name: ""', '    date: ""']
    lines += [
        "",
        "# Own thresholds, instead of those of the preset or the house. Leave out what is not needed.",
        "thresholds:",
    ]
    numbers = {"k": "whole number of people", "epsilon": "number above 0"}
    lines += [f"  # {name}: {numbers.get(name, 'number from 0 to 1')}" for name in THRESHOLDS]
    lines += [""]
    lines += _comment(
        "Checks that do not hold, with the reason why that is accepted. Only where the policy promises nothing else, "
        "and the verdict is at best `review`.",
        "",
    )
    lines += ["accepted_risks:", *(f"  # {name}: reason" for name in ACCEPTABLE)]
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _set(inputs: HumanInputs, name: str, value: object) -> None:
    object.__setattr__(inputs, name, value)
