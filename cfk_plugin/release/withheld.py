"""Withheld explanations, and the reasons for withholding in words."""

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
    """A reason for withholding, in words that contain no value of a row.

    Attributes
    ----------
    meaning : str
        The cause, for the operator.
    remedy : str
        Advice for the operator.
    person_text_key : str
        The key of the text for the applicant in the language files.
    """

    meaning: str
    remedy: str
    person_text_key: str


REASONS: Mapping[str, WithholdingReason] = MappingProxyType(
    {
        ALREADY_DESIRED: WithholdingReason(
            meaning="the model already gives the desired outcome: nothing needs to change",
            remedy="if this is the reason for every query, check `desired`",
            person_text_key="already_desired",
        ),
        "none_found": WithholdingReason(
            meaning="the explainer found no counterfactual",
            remedy="try other settings of the explainer, or let the catalogue answer",
            person_text_key="found_none",
        ),
        "not_desired": WithholdingReason(
            meaning="the model does not give the desired outcome at the counterfactual",
            remedy="check `desired`; an explainer that rounds values can lose the outcome",
            person_text_key="found_none",
        ),
        "unknown_category": WithholdingReason(
            meaning="a category that is not in the population",
            remedy=(
                "check the spelling, or build the population from the rows that the explainer uses"
            ),
            person_text_key="input",
        ),
        "missing_value": WithholdingReason(
            meaning="a missing value in a column that has none in the population",
            remedy="give a value, or impute it before the call",
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
            remedy="choose a smaller k, or use more training rows",
            person_text_key="privacy",
        ),
        "no_actionable_answer": WithholdingReason(
            meaning="every answer needs an excluded change, or too many changes",
            remedy=(
                "check which columns the schema or the call fixes, and how many changes it"
                " permits; the model may accept changes that no entry of the catalogue has"
            ),
            person_text_key="none_open",
        ),
        "no_other_answer": WithholdingReason(
            meaning="no further answer differs enough from the other answers to the query",
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
            remedy="report it to the author of the protector: this is a defect",
            person_text_key="technical",
        ),
        "not_recorded": WithholdingReason(
            meaning="the explanation cannot be recorded",
            remedy="free space on the disk, or restart the tracking server",
            person_text_key="technical",
        ),
        "protector_failed": WithholdingReason(
            meaning="the protector failed",
            remedy="read the log `cfk_plugin`, which names the class of the error",
            person_text_key="technical",
        ),
        "model_failed": WithholdingReason(
            meaning="the model failed",
            remedy="call the model on the counterfactuals yourself",
            person_text_key="technical",
        ),
    }
)
"""Every reason for withholding, by its code."""

WITHHOLDING_REASONS: Mapping[str, str] = MappingProxyType(
    {code: reason.meaning for code, reason in REASONS.items()}
)
"""The meaning of each reason, by its code."""

_PLAIN_WORDING = Wording()


class Withheld:
    """The place of an explanation that is not released, with the reason.

    Two withheld explanations are equal if their query, reason and columns are equal.

    Attributes
    ----------
    query : int
        Position of the query without an explanation.
    reason : str
        A code of `WITHHOLDING_REASONS`.
    columns : tuple of str
        The columns at fault, if they are known.
    refused_k : int, optional
        The number of people in a region that had too few, for the data holder only.
    wording : Wording
        The language, and the titles of columns, of the text for the applicant.

    Raises
    ------
    ValueError
        If the reason is not a code of `WITHHOLDING_REASONS`: free text might disclose a value.

    Examples
    --------
    >>> Withheld(0, "infeasible").to_dict()
    {'query': 0, 'status': 'withheld', 'reason': 'infeasible', 'columns': []}
    """

    # Not a dataclass: `asdict`, web frameworks and printers would write `refused_k` as a field.

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
        """Return the same withheld explanation with another wording."""
        return Withheld(self.query, self.reason, self.columns, self.refused_k, wording)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _disclosed(self) -> tuple[int, str, tuple[str, ...]]:
        """Return the attributes that recipients may see, in the order of the parameters."""
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
        """Leave `refused_k` out of serializers that read the state of an object."""
        return self._disclosed()

    def text(self, factual: object = None, wording: Wording | None = None) -> str:  # noqa: ARG002 - as a released explanation takes
        """Return a sentence for the applicant, without technical terms.

        Parameters
        ----------
        factual : object
            Ignored; released explanations have the same parameter.
        wording : Wording, optional
            The words and language to use, instead of those of the schema.
        """
        return str(self.message(None, wording))

    def message(self, factual: object = None, wording: Wording | None = None) -> Message:  # noqa: ARG002 - as a released explanation takes
        """Return the sentence as a message without a list of changes; see `text`."""
        if wording is None:
            wording = self.wording
        titles = [wording.title(column) or wording.name(column) for column in self.columns]
        columns = f": {', '.join(titles)}" if titles else ""
        frame = REASONS[self.reason].person_text_key
        return Message(wording.language.frame("withheld", frame, columns=columns), ())

    def text_for_operator(self) -> str:
        """Return the reason, its meaning, the columns at fault, and advice."""
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        reason = REASONS[self.reason]
        return f"{self.reason}: {reason.meaning}{columns}; {reason.remedy}"

    def __str__(self) -> str:
        """Return the sentence for the applicant."""
        return self.text()

    def _repr_html_(self) -> str:
        return card(f"Withheld explanation, query {self.query}", self.text_for_operator())

    def to_dict(self) -> dict[str, Any]:
        """Return the content that the recipient may see, as values for JSON."""
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
        """Return figures that a run logs, for the data holder only."""
        return {"refused_k": self.refused_k}
