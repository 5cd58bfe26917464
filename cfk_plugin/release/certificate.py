"""Figures of a released region: a certificate for its receiver, a recount for the data holder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

from cfk_plugin.data.display import card, facts
from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What the receiver of a released region may see of its recount.

    It contains no value of a row. k is what the policy promises, and not a count: an attacker with
    the counts of two releases could tell who joined in between. Shares have two decimals, so that
    they do not give away the ranges of the table. Pureness is rounded down, `ncp` and `gap` up. The
    exact figures are in `RegionRecount`; docs/reference/metrics.md defines them.

    Attributes
    ----------
    k : int
        At least so many different people are inside the region.
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
        Attacks that the policy does not stop; see `docs/explanation/threat-model.md`.
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

    def to_dict(self) -> dict[str, Any]:
        """Return every field as a JSON-ready value."""
        return asdict(self) | {"not_stopped": list(self.not_stopped)}

    def _repr_html_(self) -> str:
        figures = {name: figure_as_text(value) for name, value in self.to_dict().items()}
        return card("Certificate", facts(figures))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RegionRecount:
    """Everything that was counted of a released region, for the data holder only.

    For example, `k_private` discloses whether the released private values are those of a person,
    which is a leak. To prevent that a count is disclosed by accident, an object of this class
    cannot be pickled, its `repr` shows no count, and it is no field of an explanation.

    Read `k_worst` first. It is the smallest of several counts, and not a lower bound: it leaves out
    an attacker whose count is None, and one who combines two kinds of knowledge. The figures are
    defined in docs/reference/metrics.md.

    Attributes
    ----------
    k : int
        Distinct people of the population inside the region.
    ncp, pureness, pureness_low, pureness_high : float
        As in the certificate, with all digits.
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
    moved : tuple of str
        Private attributes whose value in an answer is neither shared nor the query's own, but
        between the two.
    unchanged : tuple of str
        Private attributes that have the query's own value in the answer. The receiver knows both,
        and learns nothing from it. Empty if the query is not known.
    """

    k: int
    ncp: float
    pureness: float
    pureness_low: float
    pureness_high: float
    k_desired: int | None
    k_consistent: int
    k_effective: int | None = None
    k_private: int | None
    private_matches: int | None
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    majority: bool | None
    disclosure: float | None = None
    ncp_parts: tuple[float, ...] = ()
    moved: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def k_worst(self) -> int:
        """The smallest of the known counts `k`, `k_desired`, `k_consistent` and `k_effective`."""
        counts = (self.k, self.k_desired, self.k_consistent, self.k_effective)
        return min(count for count in counts if count is not None)

    @property
    def prosecutor_risk(self) -> float:
        """1 / k: the probability of naming a person who is known to be in the population."""
        return 1.0 / self.k

    def __repr__(self) -> str:
        return "RegionRecount(for the data holder)"

    def __deepcopy__(self, _: object = None) -> RegionRecount:
        return self

    def __getstate__(self) -> NoReturn:
        """Refuse to be pickled: counts would be in a file."""
        raise InputError(
            "a recount is for the data holder only and refuses to be pickled; write the"
            " certificate instead"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return `k_worst`, `prosecutor_risk` and all fields."""
        return {
            "k_worst": self.k_worst,
            "prosecutor_risk": self.prosecutor_risk,
            **asdict(self),
        }


CERTIFICATE_FIGURES = tuple(figure.name for figure in fields(Certificate))
"""Fields of a certificate, in their order."""

EXACT_FIGURES = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
"""Figures of a recount that its certificate states less exactly."""

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
