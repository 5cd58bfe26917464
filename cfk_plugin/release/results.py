"""What an explanation can be: a region with a certificate, a prototype, or withheld; and how it
is worded.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

from cfk_plugin.data.display import card, facts, marked, picture, table
from cfk_plugin.data.encoded_table import require_person
from cfk_plugin.data.outcome import ALREADY_DESIRED, Outcome
from cfk_plugin.data.policy import PrivacyPolicy, plain_settings, sha256_of
from cfk_plugin.data.region import (
    Interval,
    Part,
    Region,
    json_value,
    natural,
    part_contains,
    part_of,
    part_to_text,
)
from cfk_plugin.data.sentences import Answer, Message, Presentation, message
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import HostOnly, InputError, PolicyError, require

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["dp"]
ModelAccess = Literal["public", "dp", "private", "surrogate"]
DPGuarantee = Literal["pure", "approximate", "none"]

_MODEL: Mapping[str, str] = {
    "public": (
        "the model is public, or was not trained on these people: epsilon covers everything that"
        " leaves"
    ),
    "dp": (
        "the model was itself trained with differential privacy on these people: both budgets"
        " add up"
    ),
    "private": (
        "the model is private: epsilon covers the rows, not what its outcomes tell of its training"
    ),
    "surrogate": (
        "a surrogate fitted on the rows stands in for the model: epsilon covers everything that"
        " leaves"
    ),
}
"""What epsilon covers, by what may be known of the model."""

_MOVED = "; rows are moved towards who asks, which "

MOST_DELTA = 1e-6
"""Largest delta where the number of people is not declared."""

_ROUNDING = 1e-9  # relative: composition rounds up


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypePolicy:
    """The rules under which prototypes are released: what was asked for, before anything was
    fitted.

    Attributes
    ----------
    method : {"dp"}
        Differentially private rows.
    epsilon, delta : float
        The budget. With probability delta anything may leave, even somebody's row: delta, the
        model's included, must be below 1 / `people`; at most 1e-6 where that is not given.
    rows_per_person : int
        Most rows of one person that count.
    model_access : {"public", "dp", "private", "surrogate"}
        What may be known of the model; see `PrototypeCertificate.covers`.
    model_epsilon, model_delta : float, optional
        For ``model_access="dp"`` alone: the budget that the model was trained with.
    people : int, optional
        About how many people the table is publicly known to have: declared, never counted.

    Raises
    ------
    PolicyError
        If a setting is out of range.
    """

    method: Method
    epsilon: float
    delta: float = 0.0
    rows_per_person: int = 1
    model_access: ModelAccess = "private"
    model_epsilon: float | None = None
    model_delta: float | None = None
    people: int | None = None

    def __post_init__(self) -> None:  # noqa: C901 - one check after the other
        plain_settings(self)
        for name, known in (("method", Method), ("model_access", ModelAccess)):
            if getattr(self, name) not in get_args(known):
                raise PolicyError(
                    f"{name} must be one of {', '.join(get_args(known))}, got"
                    f" {getattr(self, name)!r}"
                )
        for name, value in (("rows_per_person", self.rows_per_person), ("people", self.people)):
            if not (value is None and name == "people") and (type(value) is not int or value < 1):
                raise PolicyError(f"{name} must be a whole number >= 1, got {value!r}")
        _check_budget("", self.epsilon, self.delta)
        if self.model_access == "dp":
            if self.model_epsilon is None:
                raise PolicyError(
                    'model_access="dp" needs model_epsilon, the budget that the model was trained'
                    " with"
                )
            _check_budget("model_", self.model_epsilon, self.model_delta or 0.0)
        elif self.model_epsilon is not None or self.model_delta is not None:
            raise PolicyError(
                'model_epsilon and model_delta belong to model_access="dp"; leave them out'
            )
        delta, people = self.delta + (self.model_delta or 0.0), self.people
        if people is None:
            if delta > MOST_DELTA:
                raise PolicyError(
                    f"delta must be at most {MOST_DELTA:g} where the number of people is not"
                    f" declared, got {delta:g}; give people=, a round number that is publicly"
                    " known, and not counted in the table"
                )
        elif delta * people >= 1:
            raise PolicyError(f"delta must be below 1 / people = {1 / people:g}, got {delta:g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def allows(self, certificate: PrototypeCertificate) -> bool:
        """Say whether a certificate stays within what was asked for: its budget, and what is known
        of the model.
        """
        ours = (self.model_access, self.model_epsilon, self.model_delta or 0.0)
        theirs = (
            certificate.model_access,
            certificate.model_epsilon,
            certificate.model_delta or 0.0,
        )
        spends = (certificate.epsilon, self.epsilon), (certificate.delta, self.delta)
        return ours == theirs and all(spent <= most * (1 + _ROUNDING) for spent, most in spends)

    @property
    def guarantee(self) -> DPGuarantee:
        """What is asked for in one word: "pure" or "approximate"."""
        return "approximate" if self.delta else "pure"

    @property
    def sha256(self) -> str:
        """SHA-256 of the settings as canonical JSON."""
        return sha256_of(self.to_dict())

    def settings(
        self, certificate: PrototypeCertificate | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return parameters and tags of a run; without a certificate (nothing was released) what
        was asked for.
        """
        params = {
            "cfk.method": self.method,
            "cfk.epsilon": str(self.epsilon),
            "cfk.delta": str(self.delta),
        }
        tags: dict[str, str] = {"cfk.dp.model_access": self.model_access}
        if certificate is not None:
            known = certificate.guarantee
            params["cfk.guarantee"] = "none" if known == "none" else f"dp-{known}"
            tags["cfk.dp.guarantee"] = "no guarantee; see audit" if known == "none" else known
            tags |= {"cfk.dp.covers": certificate.covers, "cfk.dp.fit": certificate.fit}
        return params, tags


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeCertificate:
    """What is guaranteed for all answers of one fit together, however many there are.

    Holds no value of a row.

    For every two tables that differ by one person's rows and every set of answers S:
    P(S | one) <= exp(epsilon) P(S | other) + delta.

    Attributes
    ----------
    guarantee : {"pure", "approximate", "none"}
        "none" where the noise was seeded or a domain was read from rows.
    epsilon, delta : float
        Budget that nothing asked of the rows exceeds, by OpenDP's maps; with the guarantee "none" a
        claim.
    unit, neighbours, mechanism : str
        Whose presence is hidden; which tables are neighbors; noise and composition, with the
        library's version.
    model_access, model_epsilon, model_delta : str and float, optional
        What may be known of the model, as the operator says (see `covers`), and the budget it was
        trained with.
    seeded, inferred : bool, tuple of str
        Whether the noise can be repeated, and columns whose domain was read from rows: both void
        the guarantee.
    moved_towards_query : bool
        Whether rows were moved towards the query, which discloses more of the model; see `covers`.
    fit : str
        Random name of the fit, of which all answers share one budget.

    Raises
    ------
    ValueError
        If it claims the impossible: a guarantee with seeded noise or an inferred domain, or "pure"
        with a delta.
    """

    guarantee: DPGuarantee
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    mechanism: str
    model_access: ModelAccess
    model_epsilon: float | None = None
    model_delta: float | None = None
    seeded: bool = False
    inferred: tuple[str, ...] = ()
    moved_towards_query: bool = False
    fit: str

    def __post_init__(self) -> None:
        # A claim must not pass for a proof.
        if self.guarantee != "none" and (self.seeded or self.inferred):
            raise ValueError("seeded noise and inferred domains guarantee nothing")
        if self.guarantee == "pure" and self.delta:
            raise ValueError("a pure guarantee has no delta")

    @property
    def total(self) -> tuple[float, float] | None:
        """Epsilon and delta of everything that leaves, the model's part included; None where there
        is no such bound.
        """
        if self.guarantee == "none" or self.model_access == "private":
            return None
        if self.model_access != "dp":
            return self.epsilon, self.delta
        if self.model_epsilon is None:
            return None
        return self.epsilon + self.model_epsilon, self.delta + (self.model_delta or 0.0)

    @property
    def membership_bound(self) -> float | None:
        """Largest balanced accuracy of guessing membership in the table: (e^epsilon + delta) / (1 +
        e^epsilon).
        """
        if self.total is None:
            return None
        epsilon, delta = self.total
        return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))

    @property
    def covers(self) -> str:
        """What is guaranteed, in words."""
        if self.guarantee == "none":
            return "nothing is guaranteed; see audit"
        told = "tells more of its outcomes" if self.model_access == "private" else "that covers"
        return _MODEL[self.model_access] + (_MOVED + told if self.moved_towards_query else "")

    @property
    def threat_models(self) -> dict[str, str]:
        """What epsilon covers for each access to the model, in words; empty where nothing is
        guaranteed.
        """
        return {} if self.guarantee == "none" else dict(_MODEL)

    def to_dict(self) -> dict[str, Any]:
        """Return every field, and what the budget covers, as JSON-ready values."""
        return {**asdict(self), "inferred": list(self.inferred), "covers": self.covers}


_PLAINLY = Presentation()
_FIGURES_SHOWN = ("k", "ncp", "pureness", "epsilon", "delta", "guarantee", "covers")


class _ReleasedEntry:
    __slots__ = ()
    status: ClassVar[Literal["released"]] = "released"
    query: int
    presentation: Presentation
    certificate: Certificate | PrototypeCertificate
    titles: Mapping[str, str] = MappingProxyType({})
    withheld: tuple[str, ...] = ()
    _figures: tuple[str, ...]  # fields of the certificate that a run logs in columns ...
    _texts: tuple[str, ...]  # ... and of `to_dict`, as JSON
    _values: str  # the one of `_texts` that has released values by feature

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Return every feature that the explanation gives, with its part."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""

    def changes(self, factual: Mapping[str, Any]) -> set[str]:
        """Return the features that a person has to change: those whose part lacks their value.

        Parameters
        ----------
        factual : mapping
            The person's value of some features, in the types of the training table.
        """
        parts = self.parts()
        return {
            name
            for name, value in factual.items()
            if name in parts and not part_contains(parts[name], value)
        }

    def cells(self) -> dict[str, str]:
        """Return every feature as text of a table cell: ``24–27``, ``{A, B}``, ``60``, a node's
        name, "withheld".
        """
        said = {
            name: self.titles.get(name) or part_to_text(part) for name, part in self.parts().items()
        }
        return {**said, **dict.fromkeys(self.withheld, "withheld")}

    @abstractmethod
    def answer(self) -> Answer:
        """Return what the explanation says, as far as a sentence needs it."""

    def text(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> str:
        """Write the explanation for the person who asked, in one or a few sentences.

        Parameters
        ----------
        factual : mapping or Series, optional
            The person's own value of every feature. They stand beside the new ones, and what needs
            no change is left out. Without them the text names everything.
        wording : Wording, optional
            Other words, or another language, than the schema's.

        Returns
        -------
        str

        Raises
        ------
        InputError
            If `factual` is not one person's values, or lacks a feature.
        """
        return str(self.message(factual, wording))

    def message(
        self,
        factual: Mapping[str, Any] | pd.Series[Any] | None = None,
        wording: Wording | None = None,
    ) -> Message:
        """Return the same as `text` in parts: lead, changes and notes, for pages with a list."""
        answer = self.answer()
        if factual is not None:
            require_person(factual, answer.parts)
        words = getattr(self, "presentation", _PLAINLY).wording
        if wording is not None:
            words = require("wording", wording, Wording, 'give Wording(language="de", titles=...)')
        return message(answer, factual, words)

    def __str__(self) -> str:
        """Return the sentence, without the person's own values."""
        return self.text()

    def _repr_html_(self) -> str:
        """Return sentence, figures, and where the region is among those of all groups."""
        figures, bars = (
            self.certificate.to_dict(),
            getattr(self, "presentation", _PLAINLY).bars(getattr(self, "region", {})),
        )
        rows = [
            (name, marked(said), picture(bars.get(name, ()), said))
            for name, said in self.cells().items()
        ]
        shown = {name: _written(figures[name]) for name in _FIGURES_SHOWN if name in figures}
        note = (
            "Bars: how many groups of people have such values, the explanation's dark."
            if bars
            else ""
        )
        return card(
            f"Released explanation, query {self.query}",
            self.text(),
            table((), rows),
            facts(shown),
            note=note,
        )

    @abstractmethod
    def features_from_the_query(self) -> frozenset[str]:
        """Return the features whose released value is the query's, or was computed from it."""

    def row(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return it as a row of a table: figures, parts as JSON, and each feature as text."""
        return self._row(columns, self.to_dict(), self.cells())

    def row_to_log(self, columns: Sequence[str], own: Collection[str]) -> dict[str, Any]:
        """Return the row that a run logs: without private values of the person who asks.

        `own` are the features whose released value is the query's. They are left out, as are values
        that were moved towards the query, or rounded away from it. The region stays.
        """
        left_out = {*own, *self.features_from_the_query()}
        content = self.to_dict()
        values = content[self._values]
        content[self._values] = {name: values[name] for name in values if name not in left_out}
        cells = {name: text for name, text in self.cells().items() if name not in left_out}
        return self._row(columns, content, cells)

    def _row(
        self, columns: Sequence[str], content: Mapping[str, Any], cells: Mapping[str, str]
    ) -> dict[str, Any]:
        return {
            "query": int(self.query),
            "status": self.status,
            **{name: content["certificate"][name] for name in self._figures},
            **{name: json.dumps(content[name], ensure_ascii=False) for name in self._texts},
            **{f"feature.{name}": cells.get(name) for name in columns},
        }


_Kind = TypeVar("_Kind", bound=type)


def _presentation_hidden(kind: _Kind) -> _Kind:
    """Hide the dataclass field `presentation`: `asdict`, web frameworks and printers write every
    field.
    """
    del kind.__dataclass_fields__["presentation"]  # type: ignore[attr-defined]
    return kind


@_presentation_hidden
@dataclass(frozen=True, slots=True)
class PrototypeCounterfactual(_ReleasedEntry):
    """A released prototype: a whole row that stands for nobody.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping
        Feature to value.
    certificate : PrototypeCertificate
        Shared with all other answers of the fit.
    presentation : Presentation
        What helps to show it but is no part of it: wording.
    outcome : Outcome
        The outcome that was asked for.
    """

    query: int
    values: Mapping[str, Any]
    certificate: PrototypeCertificate
    presentation: Presentation = field(default=_PLAINLY, repr=False, compare=False)
    outcome: Outcome = Outcome()  # noqa: RUF009 - frozen

    _figures = ("guarantee", "epsilon", "delta")
    _texts = ("prototype", "certificate")
    _values = "prototype"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "values", {name: natural(value) for name, value in self.values.items()}
        )

    def features_from_the_query(self) -> frozenset[str]:
        """Return all features of a row that was moved: it does not say which of them were."""
        return frozenset(self.values if self.certificate.moved_towards_query else ())

    def parts(self) -> dict[str, Part]:
        """Return every feature with its single value."""
        return {name: part_of(value) for name, value in self.values.items()}

    def answer(self) -> Answer:
        """Return what the prototype says: a single value of every feature."""
        return Answer(
            parts=self.parts(),
            outcome=self.outcome,
            nodes=self.titles,
            nobody_chooses=self.presentation.nobody_chooses,
            never_advised=self.presentation.never_advised,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "prototype": {name: json_value(value) for name, value in self.values.items()},
            "certificate": self.certificate.to_dict(),
        }


def _check_budget(prefix: str, epsilon: float, delta: float) -> None:
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not 0 < epsilon < math.inf
    ):
        raise PolicyError(f"{prefix}epsilon must be a finite number above 0, got {epsilon!r}")
    if not 0 <= delta < 1:
        raise PolicyError(f"{prefix}delta must be in [0, 1), got {delta!r}")


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
"""Why an explanation is withheld: code and plain words. Neither depends on a value of a row."""

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
"""Reason for withholding to the text of a language's file that the person who asked reads."""

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
"""Reason for withholding to what an operator can do about it."""

_BY_LEDGER = ("intersection", "too_few_remain", "too_few_new")


def _fields_hidden(kind: _Kind) -> _Kind:
    """Make a dataclass look like an ordinary class: `asdict`, web frameworks and printers write
    every field.
    """
    del kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What an independent recount found for one released region, as far as its receiver may see it.

    It holds no value of a row, and nothing in it is for the data holder alone: those counts are in
    `RegionRecount`. Figures are defined in docs/reference/metrics.md.

    Attributes
    ----------
    k : int
        Distinct people of the population inside the region. For a region that a ledger has on
        record, those of them who were inside when it was released before.
    ncp : float
        Normalised certainty penalty of the region, in [0, 1]; lower is better.
    pureness, pureness_low, pureness_high : float
        Share of the value combinations with the desired outcome, in [0, 1], higher is better;
        two-sided 95 % Clopper-Pearson interval.
    exact : bool
        Whether every combination was asked; the interval is then a point.
    optimal, gap : bool and float, optional
        Whether the protector claims a proof that no better region exists; a bound on how much lower
        NCP could be.
    method, guarantee : str
        Protector and guarantee.
    not_stopped : tuple of str
        Attacks that are not stopped, by the policy and by where the search for the answer started;
        see `docs/explanation/threat-model.md`.
    margin : float, optional
        How sure the model is of the answer: see `PrivacyPolicy`. 0 where the model has no
        probabilities to judge it by, or too few people would be left; None where the policy asks
        for no margin. `pureness` is stated without it.
    n_later : int
        How many models, trained again, give the outcome too; see `KAnonymizer.fit`.
    policy_hash, population : str
        SHA-256 of the policy, keyed fingerprint of the population.
    """

    k: int
    ncp: float
    pureness: float
    pureness_low: float
    pureness_high: float
    exact: bool
    optimal: bool
    gap: float | None
    method: str
    guarantee: str
    not_stopped: tuple[str, ...]
    policy_hash: str
    population: str
    margin: float | None = None
    n_later: int = 0

    @property
    def prosecutor_risk(self) -> float:
        """1 / k: the chance to name a person who is known to be in the population."""
        return 1.0 / self.k

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON-ready value."""
        found = {name: getattr(self, name) for name in _FIGURES_OF_A_REGION}
        return found | {"not_stopped": list(self.not_stopped)}

    def _repr_html_(self) -> str:
        figures = {name: _written(value) for name, value in self.to_dict().items()}
        return card("Certificate", facts(figures))


@_fields_hidden
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RegionRecount(HostOnly):
    """What the recount of a released region found, for the data holder.

    Everything here is for the data holder alone, except what a released entry shows as well: `k`,
    `withheld` and `unchanged`. `k_private`, for example, says whether the released private values
    are somebody's, which is itself a leak. So that no count leaves by accident, an object of this
    class cannot be pickled, `repr` shows none, and it is not seen as a dataclass.

    Read `k_worst` first. It is the smallest of several counts, and not a lower bound: an attacker
    whose count is None was not looked at, nor one who combines two kinds of knowledge. Figures are
    defined in docs/reference/metrics.md.

    Attributes
    ----------
    k : int
        The certificate's: distinct people of the population inside the region.
    k_desired : int, optional
        Those whose own prediction is the desired one; None where there are no rows to ask about.
    k_consistent : int
        Those who get the desired outcome with their own quasi-identifiers and the released private
        values (for a binned or withheld one, the counterfactual's own): who is left for an
        adversary with the model.
    k_effective : int, optional
        Those whom the algorithm maps to the same region; None where it was not computed. For a
        region that a ledger has on record, those of its group who are left.
    k_intersection : int, optional
        People left after all releases that a ledger has on record for this one's record.
    k_private, private_matches : int, optional
        Rows in the region, and anywhere, that fit the released private values; None where there are
        no rows.
    l, t : int and float, optional
        l-diversity and t-closeness of the region's sensitive attributes; None without any.
    journalist_risk : float, optional
        1 / count in the reference population; None when none was given.
    majority : bool, optional
        Whether the majority of the rows inside are predicted the desired outcome (a tie counts as
        yes).
    disclosure : float, optional
        How much more certain somebody becomes of a sensitive value, the largest over all sensitive
        attributes.
    ncp_parts : tuple of float
        Unweighted NCP of each quasi-identifier, in the order of ``Schema.quasi_identifiers``.
    permitted_pureness : float, optional
        Pureness of the part of the region, and of binned private values, that is permitted to the
        person who asks: with their own values of what cannot change. None where nothing is
        constrained; sampled where the part is large.
    binned, withheld : tuple of str
        Private attributes released as their bin, and those not released; the others are released
        exactly.
    moved : tuple of str
        Private attributes whose values are no longer those that the answer began with, an entry's
        or the explainer's counterfactual's, but the query's own, on the way to them, or rounded
        away from them; see `PrivacyPolicy.move_towards_query` and `KAnonymizer`. It tells which of
        the released values an entry has.
    unchanged : tuple of str
        Private attributes that have the query's own value in the answer. The receiver, who knows
        both, learns nothing from it. Empty where the query is not known.
    ledger : str, optional
        What a ledger decided: ``new``, ``again`` or ``earlier``, or ``no_record`` where the private
        values are nobody's.
    """

    k: int
    k_desired: int | None
    k_consistent: int
    k_effective: int | None = None
    # Of this release, not of the region: recounts of repeated releases are equal.
    k_intersection: int | None = field(default=None, compare=False)
    k_private: int | None
    private_matches: int | None
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    journalist_risk: float | None = None
    majority: bool | None
    disclosure: float | None = None
    ncp_parts: tuple[float, ...] = ()
    permitted_pureness: float | None = field(default=None, compare=False)
    binned: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    ledger: str | None = field(default=None, compare=False)

    _refusal = (
        InputError,
        (
            "a released entry holds counts for the data holder alone and refuses to be pickled;"
            " send what may leave, to_dict() of the entry, and keep to_dict() of its recount"
        ),
    )

    @property
    def k_worst(self) -> int:
        """The smallest of `k` and, where known, `k_desired`, `k_consistent`, `k_effective` and
        `k_intersection`.
        """
        counts = (
            self.k,
            self.k_desired,
            self.k_consistent,
            self.k_effective,
            self.k_intersection,
        )
        return min(count for count in counts if count is not None)

    def __repr__(self) -> str:
        return "RegionRecount(for the data holder)"

    def __deepcopy__(self, _: object = None) -> RegionRecount:
        return self

    __copy__ = __deepcopy__

    def to_dict(self) -> dict[str, Any]:
        """Return `k_worst` and all fields."""
        return {"k_worst": self.k_worst} | {name: getattr(self, name) for name in self.__slots__}

    def with_counts(self, **counts: Any) -> RegionRecount:
        """Return a copy with counts that were not known when it was made."""
        if unknown := sorted({*counts} - {*self.__slots__}):
            raise TypeError(f"a recount has no {', '.join(unknown)}")
        made = object.__new__(RegionRecount)
        for name in self.__slots__:
            object.__setattr__(made, name, counts.get(name, getattr(self, name)))
        return made


_FIGURES_OF_A_REGION = tuple(each.name for each in fields(Certificate))
_FOR_DATA_HOLDER = (
    *("k_worst", "k_desired", "k_consistent", "k_effective", "k_private", "private_matches", "l"),
    *("t", "disclosure", "journalist_risk", "majority", "ledger", "k_intersection"),
)


@_presentation_hidden
@dataclass(frozen=True, slots=True)
class GeneralizedCounterfactual(_ReleasedEntry):
    """A released explanation: quasi-identifiers generalised to a region, private values as the
    policy has them.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    region, titles : Region, mapping
        What the quasi-identifiers are generalised to, and names of the nodes of hierarchical ones.
    released, withheld : mapping, tuple of str
        Private attribute to its value, or to a declared bin as an `Interval`; attributes that are
        not released.
    certificate : Certificate
        What the recount found, as far as the receiver may see it.
    recount : RegionRecount
        What it found that is for the data holder alone.
    outcome : Outcome
        The outcome that the certificate's figures are about.
    presentation : Presentation
        What helps to show it but is no part of it: wording, and regions to draw it among.
    """

    query: int
    region: Region
    released: Mapping[str, Any]
    certificate: Certificate
    recount: RegionRecount = field(repr=False)
    titles: Mapping[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    outcome: Outcome = Outcome()  # noqa: RUF009 - frozen
    presentation: Presentation = field(default=_PLAINLY, repr=False, compare=False)

    _figures = _FIGURES_OF_A_REGION
    _texts = ("region", "released")
    _values = "released"

    def __post_init__(self) -> None:
        """Refuse values in a form other than certified: an exact one must not slip through."""
        withheld = set(self.recount.withheld)
        wrong = withheld.symmetric_difference(self.withheld)
        wrong |= withheld.intersection(self.released)
        for name in self.recount.binned:
            if not isinstance(self.released.get(name), Interval):
                wrong.add(name)
        if wrong:
            names = ", ".join(sorted(wrong))
            raise ValueError(f"private attributes are released otherwise than certified: {names}")

    def features_from_the_query(self) -> frozenset[str]:
        """Return the private attributes that have the query's value or one computed from it."""
        return frozenset((*self.recount.moved, *self.recount.unchanged))

    def parts(self) -> dict[str, Part]:
        """Return every feature of the region and the released values, each with its part."""
        return {
            **self.region.parts,
            **{name: part_of(value) for name, value in self.released.items()},
        }

    def answer(self) -> Answer:
        """Return what the explanation says of every feature."""
        return Answer(
            parts=self.parts(),
            outcome=self.outcome,
            nodes=self.titles,
            withheld=self.withheld,
            unchanged=self.recount.unchanged,
            pureness=self.certificate.pureness,
            nobody_chooses=self.presentation.nobody_chooses,
            never_advised=self.presentation.never_advised,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "outcome": self.outcome.to_dict(),
            "region": self.region.to_dict(),
            "released": {name: _private_json(value) for name, value in self.released.items()},
            "withheld": list(self.withheld),
            **({"unchanged": list(self.recount.unchanged)} if self.recount.unchanged else {}),
            "certificate": self.certificate.to_dict(),
        }

    def audit_row(self, quasi_identifiers: Sequence[str]) -> dict[str, Any]:
        """Return what a run logs of it for the data holder alone."""
        parts = zip(quasi_identifiers, self.recount.ncp_parts, strict=False)
        row = {name: getattr(self.recount, name) for name in _FOR_DATA_HOLDER}
        return row | {f"ncp.{name}": part for name, part in parts}


@_fields_hidden
@dataclass(frozen=True, slots=True)
class Withheld:
    """An explanation that is withheld.

    Attributes
    ----------
    query : int
        Position of the query it would have answered.
    reason, columns : str, tuple of str
        A code of `WITHHOLDING_REASONS`, and the columns at fault, where known.
    refused_k : int, optional
        For the data holder alone: people in a refused region that had too few.
    """

    query: int
    reason: str
    columns: tuple[str, ...] = ()
    refused_k: int | None = field(default=None, repr=False, compare=False)

    status: ClassVar[Literal["withheld"]] = "withheld"

    def __post_init__(self) -> None:
        """Accept documented reasons only, so that no free text can carry a value out."""
        if self.reason not in WITHHOLDING_REASONS:
            raise ValueError("unknown reason for withholding; use a key of WITHHOLDING_REASONS")

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out of pickles and copies what is for the data holder."""
        return Withheld, (self.query, self.reason, self.columns)

    def text(self, factual: object = None, wording: Wording | None = None) -> str:  # noqa: ARG002 - as a released entry takes
        """Tell the person who asked, without technical terms, that there is no explanation."""
        return str(self.message(None, wording))

    def message(self, factual: object = None, wording: Wording | None = None) -> Message:  # noqa: ARG002 - as a released entry takes
        """Return the text as a message without changes."""
        language = _PLAINLY.wording.language if wording is None else wording.language
        columns = f": {', '.join(self.columns)}" if self.columns else ""
        kind = TEXT_FOR_CUSTOMER[self.reason]
        return Message(language.frame("withheld", kind, columns=columns), ())

    def text_for_operator(self) -> str:
        """Say why the explanation is withheld, and what can be done about it."""
        where = f" ({', '.join(self.columns)})" if self.columns else ""
        reason = WITHHOLDING_REASONS[self.reason]
        return f"{self.reason}: {reason}{where}; {REMEDIES[self.reason]}"

    def __str__(self) -> str:
        """Return the text for the person who asked."""
        return self.text()

    def _repr_html_(self) -> str:
        return card(f"Withheld explanation, query {self.query}", self.text_for_operator())

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "reason": self.reason,
            "columns": list(self.columns),
        }

    def row(self, columns: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released entry takes
        """Return it as a row of a table."""
        return {"query": int(self.query), "status": self.status, "reason": self.reason}

    def row_to_log(self, columns: Sequence[str], own: Collection[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released entry takes
        """Return the row that a run logs."""
        return self.row(columns)

    def audit_row(self, quasi_identifiers: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - as a released entry takes
        """Return what a run logs of it for the data holder alone."""
        return {
            "refused_k": self.refused_k,
            "ledger": "refused" if self.reason in _BY_LEDGER else None,
        }


Released = GeneralizedCounterfactual | PrototypeCounterfactual
Explanation = Released | Withheld
Policy = PrivacyPolicy | PrototypePolicy
"""What entries are released under: regions under the first, prototypes under the second."""


def _written(figure: Any) -> str:
    """Write a figure as a notebook shows it."""
    if isinstance(figure, (list, tuple)):
        return ", ".join(map(str, figure)) or "none"
    return (
        f"{figure:.3g}"
        if isinstance(figure, float)
        else "unknown"
        if figure is None
        else str(figure)
    )


def _private_json(value: Any) -> Any:
    if isinstance(value, Interval):
        return {"low": json_value(value.low), "high": json_value(value.high)}
    return json_value(value)
