"""The states an explanation can be in: raw, generalised with a certificate, or suppressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar

from cfk_plugin.errors import InputError
from cfk_plugin.policy import NOT_STOPPED, PrivacyPolicy
from cfk_plugin.prototype import PrototypeCounterfactual, PrototypePolicy
from cfk_plugin.region import Interval, Part, Region, json_value, part_of, part_to_text
from cfk_plugin.wording import Phrase, sentence

Finding = Literal["native", "near-native", "native-qi", "synthetic"]
"""Equal to a training row; closer than the calibrated tolerance; equal on the quasi-identifiers; none of these."""

SUPPRESSION_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "none_found": "the explainer found no counterfactual",
        "not_desired": "the model does not give the desired outcome at the counterfactual",
        "unknown_category": "a category that the population does not have",
        "missing_value": "a missing value where the population has none",
        "invalid_value": "a value that cannot be read, or is not a finite number",
        "outside_domain": "a value outside the declared bounds",
        "infeasible": "no region with enough people was found",
        "pureness_below_floor": "pureness is below the policy's floor",
        "ncp_above_ceiling": "information loss is above the policy's ceiling",
        "l_diversity": "too few distinct sensitive values among the people in the region",
        "t_closeness": "sensitive values in the region differ too much from the population",
        "homogeneous": "a private value that too many people in the region share",
        "verification_failed": "the independent recount does not meet the policy",
        "intersection": "with what was released before for this record, fewer than k people would be left",
        "ledger_failed": "the ledger of releases failed",
        "not_recorded": "no record of it can be kept",
        "protector_failed": "the protector failed",
        "model_failed": "the model failed",
        "explainer_failed": "the explainer failed",
    }
)
"""Why an explanation is withheld: code and plain words. Neither depends on a value of a row."""


_Kind = TypeVar("_Kind", bound=type)


def _fields_hidden(kind: _Kind) -> _Kind:
    """Make a dataclass pass for an ordinary class: what writes out objects writes every field of a dataclass.

    `dataclasses.asdict`, web frameworks and printers do. Here some fields are for the data holder alone.
    """
    del kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind


@dataclass(frozen=True, slots=True, repr=False)
class Counterfactual:
    """One raw counterfactual instance. Host side only: its `repr` shows no value.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping
        Feature to value.
    """

    query: int
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        """Show which query it answers, never a value."""
        return f"Counterfactual(query={self.query}, {len(self.values)} values withheld)"


@_fields_hidden
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate:
    """What an independent recount found for one released region. Holds no value of a row.

    `public` is what may go to the receiver, and all that `repr` shows. The other counts are for the data holder:
    k_private says whether the released private values are somebody's, which is itself a leak. So they are attributes
    and in `to_dict`; nothing takes them along unasked: it refuses to be pickled, and is no dataclass for others.

    Attributes
    ----------
    k : int
        Distinct people of the population inside the region.
    k_desired : int, optional
        People inside the region whose own prediction is the desired one; None where there are no rows to ask about.
    k_consistent : int
        People inside the region for whom the model gives the desired outcome with their own quasi-identifiers and
        the released private values: who is left for an adversary with access to the model. Of a private attribute
        that is binned or withheld, the counterfactual's own value is asked.
    k_effective : int, optional
        People in the region that the algorithm maps to the same region; None where it was not computed.
    k_private : int, optional
        Rows inside the region that fit what is released of the private values: the exact values and the bins; every
        row fits a withheld attribute. 1 means that somebody who knows the private values is singled out.
    private_matches : int, optional
        Rows of the whole population that fit what is released of the private values. Both are None where there are
        no rows to look at.
    ncp : float
        Normalised certainty penalty of the region, in [0, 1]; lower is better.
    pureness : float
        Share of the value combinations with the desired outcome, in [0, 1]; higher is better. Over the values in
        the region and of the private attributes that are binned (values in the bin) or withheld (all values).
    pureness_low, pureness_high : float
        Two-sided 95 % Clopper-Pearson interval; equal to `pureness` when `exact`.
    exact : bool
        Whether every combination was asked.
    l : int, optional
        Least number of distinct values of a sensitive attribute in the region; None without sensitive attributes.
    t : float, optional
        Largest distance between a sensitive attribute's distribution in the region and in the population.
    prosecutor_risk, journalist_risk : float
        1 / k in the population, and 1 / count in the reference population (None when none was given).
    optimal : bool
        Whether the protector claims a proof that no better region exists.
    gap : float, optional
        Proven upper bound of how much lower NCP could be (0 when optimal); None for a heuristic.
    method, guarantee, policy_hash, population : str
        Protector, guarantee, SHA-256 of the policy, keyed fingerprint of the population.
    majority : bool, optional
        Whether the majority of the rows inside are predicted the desired outcome (a tie counts as yes).
    binned, withheld : tuple of str
        Private attributes that are released as their bin, and not at all; the others are released exactly.
    ncp_parts : tuple of float
        Unweighted NCP of each quasi-identifier, in the order of ``Schema.quasi_identifiers``.
    disclosure : float, optional
        How much surer somebody becomes of the likeliest value of a sensitive attribute, the largest of all; None
        without sensitive attributes, or without rows.
    ledger : str, optional
        What a ledger decided: ``new``, ``again`` or ``earlier``; None without one.
    k_intersection : int, optional
        People who are left after everything that was released for the record, as far as the ledger knows.
    """

    k: int
    k_desired: int | None
    k_consistent: int
    k_effective: int | None = None
    k_private: int | None
    private_matches: int | None
    ncp: float
    pureness: float
    pureness_low: float
    pureness_high: float
    exact: bool
    l: int | None = None  # noqa: E741 - the field's name of the parameter
    t: float | None = None
    prosecutor_risk: float
    journalist_risk: float | None = None
    optimal: bool
    gap: float | None
    method: str
    guarantee: str
    policy_hash: str
    population: str
    majority: bool | None
    binned: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    ncp_parts: tuple[float, ...] = ()
    disclosure: float | None = None
    # Of this release, not of the region: released again, the certificate is the same one.
    ledger: str | None = field(default=None, compare=False)
    k_intersection: int | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Show what may go to the receiver."""
        return f"Certificate({', '.join(f'{name}={value!r}' for name, value in self.public().items())})"

    def __copy__(self) -> Certificate:
        """Return itself, as it cannot be changed."""
        return self

    def __deepcopy__(self, _: object) -> Certificate:
        """Return itself, as it cannot be changed."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold counts that are for the data holder."""
        raise InputError(
            "a certificate, and with it a released entry, holds counts for the data holder alone and refuses to be "
            "pickled; send what may leave, to_dict() of the entry, and keep to_dict() of the certificate"
        )

    @property
    def not_stopped(self) -> list[str]:
        """Attacks that the guarantee does not stop; see the threat model in the documentation."""
        return list(NOT_STOPPED.get(self.guarantee, ()))

    def public(self) -> dict[str, Any]:
        """Return the fields that may go to the receiver of the explanation."""
        names = (
            "k ncp pureness pureness_low pureness_high exact optimal gap method guarantee not_stopped policy_hash "
            "population"
        )
        return {name: getattr(self, name) for name in names.split()}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for the data holder."""
        return {name: getattr(self, name) for name in self.__slots__}

    def counted(self, **counts: Any) -> Certificate:
        """Return it with counts that were not known when it was issued."""
        return Certificate(**{**self.to_dict(), **counts})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a certificate is about: the outcome that was asked of the model.

    Attributes
    ----------
    label : object
        The desired label, or with `is_other` the one that any other is desired to. None where neither is known, as a
        function says what is desired.
    is_other : bool
        Whether any label but `label` is desired.
    bounds : tuple of float, optional
        Lowest and highest number desired of a regressor, both included.
    """

    label: Any = None
    is_other: bool = False
    bounds: tuple[float, float] | None = None

    def __str__(self) -> str:
        """Say it in words."""
        if self.bounds is not None:
            return part_to_text(Interval(*self.bounds))
        if self.label is None:
            return "as desired"
        return f"not {self.label}" if self.is_other else str(self.label)

    def to_dict(self) -> dict[str, Any] | None:
        """Return it as JSON-ready values; None where a function says what is desired."""
        if self.bounds is not None:
            return {"low": json_value(self.bounds[0]), "high": json_value(self.bounds[1])}
        return None if self.label is None else {"not" if self.is_other else "label": json_value(self.label)}


@dataclass(frozen=True, slots=True)
class GeneralizedCounterfactual:
    """A released explanation: quasi-identifiers generalised to a region, private values as the policy has them.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    region : Region
        What the quasi-identifiers are generalised to.
    released : mapping
        Private attribute to released value: exactly, or an `Interval` that is a declared bin.
    certificate : Certificate
        What the recount found.
    labels : mapping
        Name of the node that a hierarchical quasi-identifier was generalised to.
    withheld : tuple of str
        Private attributes that are not released.
    outcome : Outcome
        What the certificate's figures of the model are about.
    """

    query: int
    region: Region
    released: Mapping[str, Any]
    certificate: Certificate
    labels: Mapping[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    outcome: Outcome = Outcome()

    def __post_init__(self) -> None:
        """Refuse values in another form than was certified: an exact one must not slip through."""
        exact = [name for name in self.certificate.withheld if name in self.released]
        exact += [n for n in self.certificate.binned if not isinstance(self.released.get(n), Interval)]
        if exact or set(self.withheld) != set(self.certificate.withheld):
            raise ValueError(f"private attributes are released otherwise than certified: {', '.join(exact)}")

    status = "released"

    def parts(self) -> dict[str, Part]:
        """Return region and released values alike: every feature that something is said of, with that part."""
        return {**self.region.parts, **{name: part_of(value) for name, value in self.released.items()}}

    def cells(self) -> dict[str, str]:
        """Return every feature as the text of a table cell: ``24–27``, ``{A, B}``, ``60``, a node's name, withheld."""
        said = {name: self.labels.get(name) or part_to_text(part) for name, part in self.parts().items()}
        return {**said, **dict.fromkeys(self.withheld, "withheld")}

    def text(self, factual: Mapping[str, Any], phrases: Mapping[str, Phrase] | None = None) -> str:
        """Write the explanation as a sentence for the person described by `factual`.

        Parameters
        ----------
        factual : mapping or Series
            Values of the person who is told, every feature.
        phrases : mapping, optional
            Wording per attribute, see `Phrase`.

        Returns
        -------
        str
        """
        return sentence(self.parts(), factual, phrases, self.labels, self.withheld)

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "outcome": self.outcome.to_dict(),
            "region": self.region.to_dict(),
            "released": {name: _private_json(value) for name, value in self.released.items()},
            "withheld": list(self.withheld),
            "certificate": self.certificate.public(),
        }


@_fields_hidden
@dataclass(frozen=True, slots=True)
class Suppressed:
    """An explanation that is withheld.

    Attributes
    ----------
    query : int
        Position of the query it would have answered.
    reason : str
        A code of `SUPPRESSION_REASONS`.
    columns : tuple of str
        Columns at fault, where that can be said.
    refused_k : int, optional
        For the data holder alone: what the recount of a region came to that had too few people.
    """

    query: int
    reason: str
    columns: tuple[str, ...] = ()
    refused_k: int | None = field(default=None, repr=False, compare=False)

    status = "suppressed"

    def __post_init__(self) -> None:
        """Accept documented reasons only, so that no free text can carry a value out."""
        if self.reason not in SUPPRESSION_REASONS:
            raise ValueError("unknown suppression reason; use a key of SUPPRESSION_REASONS")

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is for the data holder."""
        return Suppressed, (self.query, self.reason, self.columns)

    def text(self, factual: object = None, phrases: object = None) -> str:  # noqa: ARG002 - as a released entry takes
        """Say that the explanation is withheld, and why."""
        where = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"This explanation is withheld: {SUPPRESSION_REASONS[self.reason]}{where}."

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {"query": self.query, "status": self.status, "reason": self.reason, "columns": list(self.columns)}


Released = GeneralizedCounterfactual | PrototypeCounterfactual
Entry = Released | Suppressed
Policy = PrivacyPolicy | PrototypePolicy
"""What entries are released under: regions under the one, prototypes under the other."""


def _private_json(value: Any) -> Any:
    if isinstance(value, Interval):
        return {"low": json_value(value.low), "high": json_value(value.high)}
    return json_value(value)
