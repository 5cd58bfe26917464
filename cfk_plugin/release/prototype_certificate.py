"""The policy of prototypes, and the certificate with their privacy budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cfk_plugin.data.policy import plain_settings, sha256_of
from cfk_plugin.errors import PolicyError, shown

Method = Literal["dp"]
ModelAccess = Literal["public", "dp", "private", "surrogate"]
DPGuarantee = Literal["pure", "approximate", "none"]

_COVERED: Mapping[str, str] = {
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
"""The scope of epsilon, for each access to the model."""

_MOVED = "; rows are moved towards the query, and "
"""The text that `covers` adds for rows that were moved towards the query."""

MOST_DELTA = 1e-6
"""The largest delta if the number of people is not declared."""

_ROUNDING = 1e-9  # relative tolerance, because composition rounds up


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypePolicy:
    """The settings under which prototypes are released, as requested before the fit.

    Attributes
    ----------
    method : {"dp"}
        Differentially private rows.
    epsilon, delta : float
        The privacy budget. With probability delta, anything may be disclosed, even a whole row.
        Therefore delta, including the model's, must be below 1 / `people`, or at most 1e-6 without
        `people`.
    rows_per_person : int
        The largest number of rows of one person that are used.
    model_access : {"public", "dp", "private", "surrogate"}
        How the model was trained and who knows it; see `PrototypeCertificate.covers`.
    model_epsilon, model_delta : float, optional
        The budget that the model was trained with; only with ``model_access="dp"``.
    people : int, optional
        The approximate number of people in the table, if it is public. It must not be counted in
        the table.

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

    def __post_init__(self) -> None:
        plain_settings(self)
        _check_choice("method", self.method, get_args(Method))
        _check_choice("model_access", self.model_access, get_args(ModelAccess))
        _check_count("rows_per_person", self.rows_per_person)
        if self.people is not None:
            _check_count("people", self.people)
        _check_budget("", self.epsilon, self.delta)
        self._check_model_budget()
        self._check_total_delta()

    def _check_model_budget(self) -> None:
        """Raise `PolicyError` if the model's budget is missing or does not fit `model_access`."""
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

    def _check_total_delta(self) -> None:
        """Raise `PolicyError` if delta is so large that a whole row might be released."""
        delta = self.delta + (self.model_delta or 0.0)
        if self.people is None:
            if delta > MOST_DELTA:
                raise PolicyError(
                    f"delta must be at most {MOST_DELTA:g} if the number of people is not"
                    f" declared, got {delta:g}; give people=, a round number that is public and"
                    " not counted in the table"
                )
        elif delta * self.people >= 1:
            raise PolicyError(
                f"delta must be below 1 / people = {1 / self.people:g}, got {delta:g}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def allows(self, certificate: PrototypeCertificate) -> bool:
        """Return True if a certificate is within the budget, and is about the same model."""
        is_same_model = (
            certificate.model_access == self.model_access
            and certificate.model_epsilon == self.model_epsilon
            and (certificate.model_delta or 0.0) == (self.model_delta or 0.0)
        )
        is_within_epsilon = certificate.epsilon <= self.epsilon * (1 + _ROUNDING)
        is_within_delta = certificate.delta <= self.delta * (1 + _ROUNDING)
        return is_same_model and is_within_epsilon and is_within_delta

    @property
    def guarantee(self) -> DPGuarantee:
        """The requested guarantee in one word: "pure" or "approximate"."""
        return "approximate" if self.delta else "pure"

    @property
    def sha256(self) -> str:
        """SHA-256 of the settings as canonical JSON."""
        return sha256_of(self.to_dict())

    def settings(
        self, certificate: PrototypeCertificate | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return parameters and tags of a run.

        Without a certificate, because nothing was released, they contain only the settings.
        """
        params = {
            "cfk.method": self.method,
            "cfk.epsilon": str(self.epsilon),
            "cfk.delta": str(self.delta),
        }
        tags: dict[str, str] = {"cfk.dp.model_access": self.model_access}
        if certificate is not None:
            guarantee = certificate.guarantee
            if guarantee == "none":
                params["cfk.guarantee"] = "none"
                tags["cfk.dp.guarantee"] = "no guarantee; see audit"
            else:
                params["cfk.guarantee"] = f"dp-{guarantee}"
                tags["cfk.dp.guarantee"] = guarantee
            tags["cfk.dp.covers"] = certificate.covers
            tags["cfk.dp.fit"] = certificate.fit
        return params, tags


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeCertificate:
    """The guarantee of differential privacy for all answers of one fit together.

    It contains no value of a row. The number of answers does not matter: for any two tables that
    differ by one person's rows, and any set of answers S,
    P(S | one) <= exp(epsilon) P(S | other) + delta.

    Attributes
    ----------
    guarantee : {"pure", "approximate", "none"}
        "none" if the noise was seeded, or a domain was read from rows.
    epsilon, delta : float
        The budget of all measurements of the rows together, by OpenDP's maps. If the guarantee is
        "none", the budget is not proven.
    unit, neighbours, mechanism : str
        Whose presence is hidden; which tables are neighbours; the noise and the composition, with
        the library's version.
    model_access : str
        How the model was trained and who knows it, as the operator declares; see `covers`.
    model_epsilon, model_delta : float, optional
        The budget that the model was trained with.
    seeded : bool
        Whether the noise can be repeated, which voids the guarantee.
    inferred : tuple of str
        The columns whose domain was read from rows; any such column voids the guarantee.
    moved_towards_query : bool
        Whether rows were moved towards the query, which discloses more about the model.
    fit : str
        Random name of the fit. All answers of a fit share one budget.

    Raises
    ------
    ValueError
        If the fields contradict each other: a guarantee with seeded noise or an inferred domain,
        or the guarantee "pure" with a delta.
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
        if self.guarantee != "none" and (self.seeded or self.inferred):
            raise ValueError("seeded noise and inferred domains guarantee nothing")
        if self.guarantee == "pure" and self.delta:
            raise ValueError("a pure guarantee has no delta")

    @property
    def total(self) -> tuple[float, float] | None:
        """Epsilon and delta of the answers and the model together; None if there is no bound."""
        if self.guarantee == "none" or self.model_access == "private":
            return None
        if self.model_access != "dp":
            return self.epsilon, self.delta
        if self.model_epsilon is None:
            return None
        return self.epsilon + self.model_epsilon, self.delta + (self.model_delta or 0.0)

    @property
    def membership_bound(self) -> float | None:
        """The largest balanced accuracy of an attacker who guesses membership in the table.

        It is (e^epsilon + delta) / (1 + e^epsilon); None if there is no bound.
        """
        if self.total is None:
            return None
        epsilon, delta = self.total
        return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))

    @property
    def covers(self) -> str:
        """The scope of epsilon in words."""
        if self.guarantee == "none":
            return "nothing is guaranteed; see audit"
        scope = _COVERED[self.model_access]
        if not self.moved_towards_query:
            return scope
        if self.model_access == "private":
            return f"{scope}{_MOVED}that discloses more about the model"
        return f"{scope}{_MOVED}epsilon covers that"

    @property
    def threat_models(self) -> dict[str, str]:
        """The scope of epsilon for each access to the model; empty without a guarantee."""
        return {} if self.guarantee == "none" else dict(_COVERED)

    def to_dict(self) -> dict[str, Any]:
        """Return every field and the scope of epsilon, as values for JSON."""
        return {**asdict(self), "inferred": list(self.inferred), "covers": self.covers}


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise PolicyError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")


def _check_count(name: str, value: object) -> None:
    # not `isinstance`, because a bool is an int
    if type(value) is not int or value < 1:
        raise PolicyError(f"{name} must be a whole number >= 1, got {shown(value)}")


def _check_budget(prefix: str, epsilon: float, delta: float) -> None:
    is_number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
    if not is_number or not 0 < epsilon < math.inf:
        raise PolicyError(f"{prefix}epsilon must be a finite number above 0, got {shown(epsilon)}")
    if not 0 <= delta < 1:
        raise PolicyError(f"{prefix}delta must be in [0, 1), got {shown(delta)}")
