"""Withheld explanations: the reasons, and how they are worded for the person and the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn

from cfk_plugin.data.display import card
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.sentences import Message
from cfk_plugin.data.wording import Wording


@dataclass(frozen=True, slots=True, kw_only=True)
class WithholdingReason:
    """Why an explanation is withheld, in words that depend on no value of a row.

    Attributes
    ----------
    meaning : str
        What happened.
    remedy : str
        What an operator can do about it.
    person_text_key : str
        The text that the person reads, by its name in the files of the languages.
    """

    meaning: str
    remedy: str
    person_text_key: str


REASONS: Mapping[str, WithholdingReason] = MappingProxyType(
    {
        ALREADY_DESIRED: WithholdingReason(
            meaning="the model already gives the desired outcome: nothing needs to change",
            remedy="if it is so for everybody, check `desired`",
            person_text_key="already_desired",
        ),
        "none_found": WithholdingReason(
            meaning="the explainer found no counterfactual",
            remedy="try other settings of the explainer, or answer from the catalogue",
            person_text_key="found_none",
        ),
        "not_desired": WithholdingReason(
            meaning="the model does not give the desired outcome at the counterfactual",
            remedy="check `desired`; generators that round can lose the outcome",
            person_text_key="found_none",
        ),
        "unknown_category": WithholdingReason(
            meaning="a category that the population does not have",
            remedy=(
                "check the spelling, or build the population from the rows that the explainer uses"
            ),
            person_text_key="input",
        ),
        "missing_value": WithholdingReason(
            meaning="a missing value where the population has none",
            remedy="give a value, or impute it before you ask",
            person_text_key="input",
        ),
        "invalid_value": WithholdingReason(
            meaning="a value that cannot be read, or is not a finite number",
            remedy="give one finite number, date or category",
            person_text_key="input",
        ),
        "outside_domain": WithholdingReason(
            meaning="a value outside the declared bounds",
            remedy="check the value, or the schema's `bounds`",
            person_text_key="input",
        ),
        "infeasible": WithholdingReason(
            meaning="no region with enough people was found",
            remedy="choose a smaller k, or take more rows",
            person_text_key="privacy",
        ),
        "no_actionable_answer": WithholdingReason(
            meaning="every answer would ask for a change that is excluded, or for too many changes",
            remedy=(
                "look at which columns the schema or the call holds fixed, and how many changes"
                " it permits; the model may accept changes that no entry of the catalogue has"
            ),
            person_text_key="none_open",
        ),
        "no_other_answer": WithholdingReason(
            meaning="no other answer differs enough from those to the same query",
            remedy="ask for fewer answers",
            person_text_key="no_more",
        ),
        "pureness_below_floor": WithholdingReason(
            meaning="pureness is below the policy's floor",
            remedy="choose a lower `min_pureness`, a smaller k, or another counterfactual",
            person_text_key="found_none",
        ),
        "ncp_above_ceiling": WithholdingReason(
            meaning="information loss is above the policy's ceiling",
            remedy="choose a higher `max_ncp`, a smaller k, or a coarser description of the data",
            person_text_key="privacy",
        ),
        "l_diversity": WithholdingReason(
            meaning="too few distinct sensitive values among the people in the region",
            remedy="choose a smaller `l`",
            person_text_key="privacy",
        ),
        "t_closeness": WithholdingReason(
            meaning="sensitive values in the region differ too much from the population",
            remedy="choose a larger `t`",
            person_text_key="privacy",
        ),
        "verification_failed": WithholdingReason(
            meaning="the independent recount does not meet the policy",
            remedy="report it to the protector's author: this is a defect",
            person_text_key="technical",
        ),
        "not_recorded": WithholdingReason(
            meaning="no record of it can be kept",
            remedy="make room on the disk, or bring the tracking server back",
            person_text_key="technical",
        ),
        "protector_failed": WithholdingReason(
            meaning="the protector failed",
            remedy="look into the log `cfk_plugin`, which names the class of the error",
            person_text_key="technical",
        ),
        "model_failed": WithholdingReason(
            meaning="the model failed",
            remedy="call the model on the counterfactuals yourself",
            person_text_key="technical",
        ),
        "explainer_failed": WithholdingReason(
            meaning="the explainer failed",
            remedy="call the explainer on the queries yourself",
            person_text_key="technical",
        ),
    }
)
"""Every reason for withholding, by its code."""

WITHHOLDING_REASONS: Mapping[str, str] = MappingProxyType(
    {code: reason.meaning for code, reason in REASONS.items()}
)
"""What each reason means, by its code."""

_PLAIN_WORDING = Wording()


class Withheld:
    """An explanation that is withheld.

    It is not a dataclass, because `asdict`, web frameworks and printers write every field of one,
    and `refused_k` is for the data holder only. Two withheld explanations are equal if they agree
    in their query, reason and columns.

    Attributes
    ----------
    query : int
        Position of the query that the explanation would have answered.
    reason, columns : str, tuple of str
        A code of `WITHHOLDING_REASONS`, and the columns at fault, if they are known.
    refused_k : int, optional
        For the data holder only: the number of people in a refused region that had too few.
    wording : Wording
        In whose language, and by whose titles of columns, the person is told.

    Raises
    ------
    ValueError
        If the reason is not documented, as free text might disclose a value.
    """

    __slots__ = ("columns", "query", "reason", "refused_k", "wording")
    __match_args__ = ("query", "reason", "columns", "refused_k")
    status: ClassVar[Literal["withheld"]] = "withheld"

    query: int
    reason: str
    columns: tuple[str, ...]
    refused_k: int | None
    wording: Wording

    def __init__(
        self,
        query: int,
        reason: str,
        columns: tuple[str, ...] = (),
        refused_k: int | None = None,
        wording: Wording = _PLAIN_WORDING,
    ) -> None:
        if reason not in REASONS:
            raise ValueError("unknown reason for withholding; use a key of WITHHOLDING_REASONS")
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "refused_k", refused_k)
        object.__setattr__(self, "wording", wording)

    def with_wording(self, wording: Wording) -> Withheld:
        """Return the same withheld explanation, told in other words."""
        return Withheld(self.query, self.reason, self.columns, self.refused_k, wording)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _disclosed(self) -> tuple[int, str, tuple[str, ...]]:
        """Return everything but what is for the data holder, in the order of the parameters."""
        return self.query, self.reason, self.columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Withheld):
            return NotImplemented
        return self._disclosed() == other._disclosed()

    def __hash__(self) -> int:
        return hash(self._disclosed())

    def __repr__(self) -> str:
        return f"Withheld(query={self.query!r}, reason={self.reason!r}, columns={self.columns!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave `refused_k` out of pickles and copies."""
        return Withheld, (*self._disclosed(), None, self.wording)

    def __getstate__(self) -> tuple[int, str, tuple[str, ...]]:
        """Leave `refused_k` out for serializers that ask for the state of an object."""
        return self._disclosed()

    def text(self, factual: object = None, wording: Wording | None = None) -> str:  # noqa: ARG002 - as a released explanation takes
        """Tell the person, without technical terms, that there is no explanation."""
        return str(self.message(None, wording))

    def message(self, factual: object = None, wording: Wording | None = None) -> Message:  # noqa: ARG002 - as a released explanation takes
        """Return the text as a message without changes."""
        if wording is None:
            wording = self.wording
        titles = [wording.title(column) or wording.name(column) for column in self.columns]
        columns = f": {', '.join(titles)}" if titles else ""
        frame = REASONS[self.reason].person_text_key
        return Message(wording.language.frame("withheld", frame, columns=columns), ())

    def text_for_operator(self) -> str:
        """Return why the explanation is withheld, and what can be done about it."""
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        reason = REASONS[self.reason]
        return f"{self.reason}: {reason.meaning}{columns}; {reason.remedy}"

    def __str__(self) -> str:
        """Return the text for the person."""
        return self.text()

    def _repr_html_(self) -> str:
        return card(f"Withheld explanation, query {self.query}", self.text_for_operator())

    def to_dict(self) -> dict[str, Any]:
        """Return everything that may be disclosed, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "reason": self.reason,
            "columns": list(self.columns),
        }

    def row(self, columns: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released explanation takes
        """Return the explanation as a row of a table."""
        return {"query": int(self.query), "status": self.status, "reason": self.reason}

    def row_to_log(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the row that a run logs."""
        return self.row(columns)

    def audit_row(self, quasi_identifiers: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released explanation takes
        """Return the figures that a run logs for the data holder only."""
        return {"refused_k": self.refused_k}
