"""Figures of a released region: a certificate for its receiver, a recount for the data holder."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from cfk_plugin.data.display import card, facts
from cfk_plugin.errors import HostOnly

_Class = TypeVar("_Class", bound=type)


def _with_hidden_fields(dataclass_type: _Class) -> _Class:
    """Make a dataclass look like an ordinary class, so that no count is disclosed by accident.

    `asdict`, web frameworks and printers write every field of a dataclass, also of one inside
    another. They recognise it by this attribute.
    """
    del dataclass_type.__dataclass_fields__  # type: ignore[attr-defined]
    return dataclass_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Figures of one released region, by an independent recount, that its receiver may see.

    It holds no value of a row. Counts that are for the data holder only are in `RegionRecount`.
    The figures are defined in docs/reference/metrics.md.

    Attributes
    ----------
    k : int
        Distinct people of the population inside the region.
    ncp : float
        Normalised certainty penalty of the region, in [0, 1]; lower is better.
    pureness, pureness_low, pureness_high : float
        Share of the value combinations with the desired outcome, in [0, 1]; higher is better. The
        other two are the bounds of its two-sided 95 % Clopper-Pearson interval.
    exact : bool
        Whether the model was asked about every combination; the interval is then a point.
    optimal, gap : bool and float, optional
        Whether the protector claims a proof that no better region exists, and a bound on how much
        lower NCP could be.
    method, guarantee : str
        Protector and guarantee.
    not_stopped : tuple of str
        Attacks that are not stopped, given the policy and where the search for the answer started;
        see `docs/explanation/threat-model.md`.
    margin : float, optional
        How sure the model is of the answer; see `PrivacyPolicy`. It is 0 if the model has no
        probabilities to judge by, or if too few people would be left. It is None if the policy
        requires no margin. `pureness` does not include it.
    n_later : int
        How many models that were trained again give the outcome too; see `KAnonymizer.fit`.
    policy_hash, population : str
        SHA-256 of the policy, and keyed fingerprint of the population.
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
        """1 / k: the probability of naming a person who is known to be in the population."""
        return 1.0 / self.k

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON-ready value."""
        values = {name: getattr(self, name) for name in CERTIFICATE_FIGURES}
        return values | {"not_stopped": list(self.not_stopped)}

    def _repr_html_(self) -> str:
        figures = {name: figure_as_text(value) for name, value in self.to_dict().items()}
        return card("Certificate", facts(figures))


@_with_hidden_fields
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RegionRecount(HostOnly):
    """Everything that the recount of a released region found, for the data holder.

    All of it is for the data holder only, except what the released explanation shows as well: `k`
    and `unchanged`. For example, `k_private` discloses whether the released private
    values are those of a person, which is a leak. To prevent that a count is disclosed by accident,
    an object of this class cannot be pickled, its `repr` shows no count, and it does not look like
    a dataclass.

    Read `k_worst` first. It is the smallest of several counts, and not a lower bound: it leaves out
    an attacker whose count is None, and one who combines two kinds of knowledge. The figures are
    defined in docs/reference/metrics.md.

    Attributes
    ----------
    k : int
        Distinct people of the population inside the region, as in the certificate.
    k_desired : int, optional
        People inside for whom the model predicts the desired outcome; None if there are no rows to
        ask about.
    k_consistent : int
        People inside who get the desired outcome with their own quasi-identifiers and the released
        private values. An adversary with the model cannot exclude them.
    k_effective : int, optional
        People whom the algorithm maps to the same region; None if regions are not fixed beforehand.
    k_private, private_matches : int, optional
        Rows in the region, and anywhere, that fit the released private values; None if there are no
        rows.
    l, t : int and float, optional
        l-diversity and t-closeness of the region's sensitive attributes; None without such
        attributes.
    majority : bool, optional
        Whether the model predicts the desired outcome for the majority of the rows inside (a tie
        counts as yes).
    disclosure : float, optional
        How much more certain of a sensitive value an attacker becomes; the largest over all
        sensitive attributes.
    ncp_parts : tuple of float
        Unweighted NCP of each quasi-identifier, in the order of ``Schema.quasi_identifiers``.
    permitted_pureness : float, optional
        Pureness of the part of the region that the person is permitted: the part with the person's
        own values of everything that cannot change. None if nothing is constrained; sampled if the
        part is large.
    moved : tuple of str
        Private attributes whose values are no longer those of the catalogue's entry, or of the
        explainer's counterfactual, that the answer started from. They are the query's own, between
        the two, or rounded away from the start; see `KAnonymizer`. This discloses which of the
        released values are those of an entry.
    unchanged : tuple of str
        Private attributes that have the query's own value in the answer. The receiver knows both,
        and learns nothing from it. Empty if the query is not known.
    """

    k: int
    k_desired: int | None
    k_consistent: int
    k_effective: int | None = None
    # Of this release, not of the region: recounts of repeated releases are equal.
    k_private: int | None
    private_matches: int | None
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    majority: bool | None
    disclosure: float | None = None
    ncp_parts: tuple[float, ...] = ()
    permitted_pureness: float | None = field(default=None, compare=False)
    moved: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def k_worst(self) -> int:
        """The smallest of the known counts `k`, `k_desired`, `k_consistent` and `k_effective`."""
        counts = (self.k, self.k_desired, self.k_consistent, self.k_effective)
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
        unknown = sorted(set(counts).difference(self.__slots__))
        if unknown:
            raise TypeError(f"a recount has no {', '.join(unknown)}")
        copy = object.__new__(RegionRecount)
        for name in self.__slots__:
            object.__setattr__(copy, name, counts.get(name, getattr(self, name)))
        return copy


CERTIFICATE_FIGURES = tuple(figure.name for figure in fields(Certificate))
"""Fields of a certificate, in their order."""

AUDIT_FIGURES = (
    "k_worst",
    "k_desired",
    "k_consistent",
    "k_effective",
    "k_private",
    "private_matches",
    "l",
    "t",
    "disclosure",
    "majority",
)
"""Figures of a recount that a run logs for the data holder only."""


def figure_as_text(figure: Any) -> str:
    """Return a figure as a notebook shows it."""
    if isinstance(figure, (list, tuple)):
        return ", ".join(map(str, figure)) or "none"
    if isinstance(figure, float):
        return f"{figure:.3g}"
    if figure is None:
        return "unknown"
    return str(figure)
