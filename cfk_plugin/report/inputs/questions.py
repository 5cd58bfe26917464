"""What only people can say: the questions, and who answers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from cfk_plugin.report.statements.texts import load

SIGN_OFF_SECTION = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to a person.

    Attributes
    ----------
    id : str
    question : str
    role : str
        Who answers it.
    section : int
        Of the report, where the answer stands.
    kind : {"text", "date", "choice"}
    choices : sequence of str
        The answers to choose from; empty for other kinds.
    """

    id: str
    question: str
    role: str
    section: int
    kind: Literal["text", "date", "choice"] = "text"
    choices: tuple[str, ...] = ()


def _question(told: Mapping[str, object]) -> Question:
    return Question(**{**told, "choices": tuple(told.get("choices", ()))})  # type: ignore[arg-type]


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {told["id"]: _question(told) for told in load("questions")["questions"]}
)
"""Id to question, in the order of the report."""

SIGNERS: Mapping[str, str] = MappingProxyType({told["id"]: told["role"] for told in load("questions")["signatures"]})
"""Id to the role of everybody who signs a report."""
