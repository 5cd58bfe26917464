"""Withheld explanations: the reasons, and how they are worded for the person and the operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn

from cfk_plugin.data.display import card
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.sentences import Message
from cfk_plugin.data.wording import Wording

WITHHOLDING_REASONS: Mapping[str, str] = MappingProxyType(
    {
        ALREADY_DESIRED: "the model already gives the desired outcome: nothing needs to change",
        "none_found": "the explainer found no counterfactual",
        "not_desired": "the model does not give the desired outcome at the counterfactual",
        "unknown_category": "a category that the population does not have",
        "missing_value": "a missing value where the population has none",
        "invalid_value": "a value that cannot be read, or is not a finite number",
        "outside_domain": "a value outside the declared bounds",
        "infeasible": "no region with enough people was found",
        "no_actionable_answer": (
            "every answer would ask for a change that is excluded, or for too many changes"
        ),
        "no_other_answer": "no other answer may go with those to the same query",
        "pureness_below_floor": "pureness is below the policy's floor",
        "ncp_above_ceiling": "information loss is above the policy's ceiling",
        "l_diversity": "too few distinct sensitive values among the people in the region",
        "t_closeness": "sensitive values in the region differ too much from the population",
        "verification_failed": "the independent recount does not meet the policy",
        "intersection": (
            "with what was released before for this record, fewer than k people would be left"
        ),
        "too_few_remain": (
            "of the people who shared what was released before for this record, fewer than k remain"
        ),
        "too_few_new": (
            "it would be new since a catalogue was published, and fewer than k people of its group"
            " are"
        ),
        "ledger_failed": "the ledger of releases failed",
        "not_recorded": "no record of it can be kept",
        "protector_failed": "the protector failed",
        "model_failed": "the model failed",
        "explainer_failed": "the explainer failed",
    }
)
"""Why an explanation is withheld: code and plain words, which depend on no value of a row."""

TEXT_FOR_CUSTOMER: Mapping[str, str] = MappingProxyType(
    {
        ALREADY_DESIRED: "already_desired",
        "none_found": "found_none",
        "not_desired": "found_none",
        "unknown_category": "input",
        "missing_value": "input",
        "invalid_value": "input",
        "outside_domain": "input",
        "infeasible": "privacy",
        "no_actionable_answer": "none_open",
        "no_other_answer": "no_more",
        "pureness_below_floor": "found_none",
        "ncp_above_ceiling": "privacy",
        "l_diversity": "privacy",
        "t_closeness": "privacy",
        "verification_failed": "technical",
        "intersection": "privacy",
        "too_few_remain": "privacy",
        "too_few_new": "privacy",
        "ledger_failed": "technical",
        "not_recorded": "technical",
        "protector_failed": "technical",
        "model_failed": "technical",
        "explainer_failed": "technical",
    }
)
"""For each reason, the text in the files of the languages that the person reads."""

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        ALREADY_DESIRED: "if it is so for everybody, check `desired`",
        "none_found": "try other settings of the explainer, or answer from the catalogue",
        "not_desired": "check `desired`; generators that round can lose the outcome",
        "unknown_category": (
            "check the spelling, or build the population from the rows that the explainer uses"
        ),
        "missing_value": "give a value, or impute it before you ask",
        "invalid_value": "give one finite number, date or category",
        "outside_domain": "check the value, or the schema's `bounds`",
        "infeasible": "choose a smaller k, or take more rows",
        "no_actionable_answer": (
            "look at which columns the schema or the call holds fixed, and how many changes it"
            " permits; the model may accept changes that no entry of the catalogue has"
        ),
        "no_other_answer": "ask for fewer answers",
        "pureness_below_floor": (
            "choose a lower `min_pureness`, a smaller k, or another counterfactual"
        ),
        "ncp_above_ceiling": (
            "choose a higher `max_ncp`, a smaller k, or a coarser description of the data"
        ),
        "l_diversity": "choose a smaller `l`",
        "t_closeness": "choose a larger `t`",
        "verification_failed": "report it to the protector's author: this is a defect",
        "intersection": "keep policy, population and model as they were",
        "too_few_remain": "nothing can be done: they left, or another k is asked for",
        "too_few_new": "publish again when more people have joined, or use shared values",
        "ledger_failed": "look into the log `cfk_plugin`, and run `cfk ledger verify`",
        "not_recorded": "make room on the disk, and run `cfk spool flush`",
        "protector_failed": ("look into the log `cfk_plugin`, which names the class of the error"),
        "model_failed": "call the model on the counterfactuals yourself",
        "explainer_failed": "call the explainer on the queries yourself",
    }
)
"""For each reason, what an operator can do about it."""

_PLAIN_WORDING = Wording()
_BY_LEDGER = ("intersection", "too_few_remain", "too_few_new")  # reasons that a ledger gives


class Withheld:
    """An explanation that is withheld.

    It is not a dataclass, because `asdict`, web frameworks and printers write every field of one,
    and `refused_k` is for the data holder only. Explanations are equal if they agree in everything
    else.

    Attributes
    ----------
    query : int
        Position of the query that the explanation would have answered.
    reason, columns : str, tuple of str
        A code of `WITHHOLDING_REASONS`, and the columns at fault, if they are known.
    refused_k : int, optional
        For the data holder only: the number of people in a refused region that had too few.

    Raises
    ------
    ValueError
        If the reason is not documented, as free text might disclose a value.
    """

    __slots__ = ("columns", "query", "reason", "refused_k")
    __match_args__ = ("query", "reason", "columns", "refused_k")
    status: ClassVar[Literal["withheld"]] = "withheld"

    query: int
    reason: str
    columns: tuple[str, ...]
    refused_k: int | None

    def __init__(
        self,
        query: int,
        reason: str,
        columns: tuple[str, ...] = (),
        refused_k: int | None = None,
    ) -> None:
        if reason not in WITHHOLDING_REASONS:
            raise ValueError("unknown reason for withholding; use a key of WITHHOLDING_REASONS")
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "refused_k", refused_k)

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
        return Withheld, self._disclosed()

    def __getstate__(self) -> tuple[int, str, tuple[str, ...]]:
        """Leave `refused_k` out for serializers that ask for the state of an object."""
        return self._disclosed()

    def text(self, factual: object = None, wording: Wording | None = None) -> str:  # noqa: ARG002 - as a released explanation takes
        """Tell the person, without technical terms, that there is no explanation."""
        return str(self.message(None, wording))

    def message(self, factual: object = None, wording: Wording | None = None) -> Message:  # noqa: ARG002 - as a released explanation takes
        """Return the text as a message without changes."""
        language = _PLAIN_WORDING.language if wording is None else wording.language
        columns = f": {', '.join(self.columns)}" if self.columns else ""
        frame = TEXT_FOR_CUSTOMER[self.reason]
        return Message(language.frame("withheld", frame, columns=columns), ())

    def text_for_operator(self) -> str:
        """Return why the explanation is withheld, and what can be done about it."""
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        reason = WITHHOLDING_REASONS[self.reason]
        return f"{self.reason}: {reason}{columns}; {REMEDIES[self.reason]}"

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

    def row_to_log(
        self,
        columns: Sequence[str],
        query_features: Collection[str],  # noqa: ARG002 - as a released explanation takes
    ) -> dict[str, Any]:
        """Return the row that a run logs."""
        return self.row(columns)

    def audit_row(self, quasi_identifiers: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released explanation takes
        """Return the figures that a run logs for the data holder only."""
        ledger = "refused" if self.reason in _BY_LEDGER else None
        return {"refused_k": self.refused_k, "ledger": ledger}
