"""Figures of a released region: a certificate for the recipient, a recount for the data holder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

from cfk_plugin.data.display import card, facts
from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The figures of a released region that its recipient may see.

    It contains no value of a row. `k` is the policy's k and not a count: an attacker with the
    counts of two releases could tell who joined in between. Shares have two decimals, so that they
    do not disclose the ranges of the table: `ncp` and `gap` are rounded up, pureness down. The
    exact figures are in `RegionRecount`. docs/reference/metrics.md defines all figures.

    Attributes
    ----------
    k : int
        The least number of different people in the region.
    ncp : float
        Normalised certainty penalty of the region, in [0, 1]; lower is better.
    pureness : float
        Share of the value combinations with the desired outcome, in [0, 1]; higher is better.
    pureness_low, pureness_high : float
        Its two-sided 95 % Clopper-Pearson interval.
    exact : bool
        Whether the model labelled every combination; the interval is then a single point.
    optimal : bool
        Whether the protector claims a proof that no better region exists.
    gap : float, optional
        A proven bound on how much lower the NCP of a better region could be.
    method, guarantee : str
        The protector and the guarantee.
    not_stopped : tuple of str
        Attacks that the policy does not stop; see `docs/explanation/threat-model.md`.
    margin : float, optional
        The least confidence of the model in the answer; see `PrivacyPolicy`. It is 0 if the model
        has no probabilities, or if too few people would be left. It is None if the policy requires
        no margin. `pureness` does not include it.
    n_later : int
        The number of models that were trained again and give the outcome too; see
        `KAnonymizer.fit`.
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
        """Return every field as a value for JSON."""
        return asdict(self) | {"not_stopped": list(self.not_stopped)}

    def _repr_html_(self) -> str:
        figures = {name: figure_as_text(value) for name, value in self.to_dict().items()}
        return card("Certificate", facts(figures))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RegionRecount:
    """All figures of a released region, for the data holder only.

    Some counts would be a leak: `k_private` tells whether the released private values belong to a
    person. To prevent accidents, an object of this class cannot be pickled, its `repr` shows no
    count, and it is not a field of an explanation.

    Read `k_worst` first. It is the smallest of several counts, but not a lower bound: it does not
    cover an attacker whose count is None, or who combines two kinds of knowledge.
    docs/reference/metrics.md defines all figures.

    Attributes
    ----------
    k : int
        Number of people of the population inside the region.
    ncp, pureness, pureness_low, pureness_high : float
        As in the certificate, with all digits.
    k_desired : int, optional
        Number of people inside with the desired outcome under the model; None if this process has
        no training rows.
    k_consistent : int
        Number of people inside who have the desired outcome with their own quasi-identifiers and
        the released private values. An attacker with the model cannot exclude them.
    k_effective : int, optional
        Number of people whom the algorithm maps to the same region; None if regions are not fixed
        before the first query.
    k_private, private_matches : int, optional
        Number of rows with the released private values, in the region and in the whole table; None
        if this process has no training rows.
    l, t : int and float, optional
        l-diversity and t-closeness of the region's sensitive attributes; None without such
        attributes.
    majority : bool, optional
        Whether at least half of the rows inside have the desired outcome under the model.
    disclosure : float, optional
        The increase of an attacker's certainty about a sensitive value; the largest over all
        sensitive attributes.
    ncp_parts : tuple of float
        Unweighted NCP of each quasi-identifier, in the order of ``Schema.quasi_identifiers``.
    moved : tuple of str
        Private attributes whose value in an answer is neither shared nor the query's own, but
        between the two.
    unchanged : tuple of str
        Private attributes whose value in an answer is the query's own, so that the recipient learns
        nothing from it. Empty without a query.
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
        """The smallest of `k`, `k_desired`, `k_consistent` and `k_effective`, without None."""
        counts = (self.k, self.k_desired, self.k_consistent, self.k_effective)
        return min(count for count in counts if count is not None)

    @property
    def prosecutor_risk(self) -> float:
        """1 / k: an attacker's probability of picking the right person in the region."""
        return 1.0 / self.k

    def __repr__(self) -> str:
        return "RegionRecount(for the data holder)"

    def __deepcopy__(self, _: object = None) -> RegionRecount:
        return self

    def __getstate__(self) -> NoReturn:
        """Raise `InputError`: a pickle would contain counts."""
        raise InputError(
            "a recount is for the data holder only and refuses to be pickled; save the"
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
"""Figures of a recount that its certificate rounds or replaces."""

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
    """Return the text of a figure for a notebook."""
    if isinstance(figure, (list, tuple)):
        return ", ".join(map(str, figure)) or "none"
    if isinstance(figure, float):
        return f"{figure:.3g}"
    if figure is None:
        return "unknown"
    return str(figure)
