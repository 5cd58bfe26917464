"""A counterfactual that is nobody's: a row that was drawn from noised counts, and what is guaranteed of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cfk_plugin.errors import PolicyError
from cfk_plugin.policy import sha256_of
from cfk_plugin.region import Part, json_value, natural, part_of, part_to_text
from cfk_plugin.wording import Phrase, sentence

Method = Literal["dp", "dpc"]
ModelAccess = Literal["public", "dp", "private", "surrogate"]
DPGuarantee = Literal["pure", "approximate", "none"]

_MODEL: Mapping[str, str] = {
    "public": "the model is public, or was not trained on these people: epsilon covers everything that leaves",
    "dp": "the model was itself trained with differential privacy on these people: both budgets add up",
    "private": "the model is private: epsilon covers the rows, not what its outcomes tell of its training",
    "surrogate": "a surrogate fitted on the rows stands in for the model: epsilon covers everything that leaves",
}
"""What epsilon covers, by what may be known of the model."""

MOST_DELTA = 1e-6
"""Largest delta where the number of people is not declared."""

_ROUNDING = 1e-9  # relative: composition rounds up


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypePolicy:
    """The rules that prototypes are given out under: what was asked for, before anything was fitted.

    Attributes
    ----------
    method : {"dp", "dpc"}
        Differentially private rows, or the published method of the same name, which guarantees nothing.
    epsilon, delta : float
        The budget, epsilon above 0; of "dpc" a claim. With probability delta anything may leave, somebody's row as it
        is for example, so delta must be below 1 / `people`, the model's included; at most 1e-6 where that is not given.
    rows_per_person : int
        Most rows of one person that count.
    model_access : {"public", "dp", "private", "surrogate"}
        What may be known of the model; see `PrototypeCertificate.covers`.
    model_epsilon, model_delta : float, optional
        Budget that the model was trained with; needed for "dp" (delta is 0 unless given), refused otherwise.
    people : int, optional
        How many people the table is publicly known to have, about: declared, never counted.

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
        """Validate every setting."""
        for name, known in (("method", Method), ("model_access", ModelAccess)):
            if getattr(self, name) not in get_args(known):
                raise PolicyError(f"{name} must be one of {', '.join(get_args(known))}, got {getattr(self, name)!r}")
        if isinstance(self.rows_per_person, bool) or not isinstance(self.rows_per_person, int):
            raise PolicyError(f"rows_per_person must be a whole number, got {self.rows_per_person!r}")
        if self.rows_per_person < 1:
            raise PolicyError(f"rows_per_person must be at least 1, got {self.rows_per_person}")
        _check_budget("", self.epsilon, self.delta)
        if self.model_access == "dp":
            if self.model_epsilon is None:
                raise PolicyError('model_access="dp" needs model_epsilon, the budget that the model was trained with')
            _check_budget("model_", self.model_epsilon, self.model_delta or 0.0)
        elif self.model_epsilon is not None or self.model_delta is not None:
            raise PolicyError('model_epsilon and model_delta belong to model_access="dp"; leave them out')
        self._check_delta()

    def _check_delta(self) -> None:
        delta, people = self.delta + (self.model_delta or 0.0), self.people
        if people is None:
            if delta > MOST_DELTA:
                raise PolicyError(
                    f"delta must be at most {MOST_DELTA:g} where the number of people is not declared, got {delta:g}; "
                    "give people=, a round number that is publicly known, and not counted in the table"
                )
        elif isinstance(people, bool) or not isinstance(people, int) or people < 1:
            raise PolicyError(f"people must be a whole number >= 1, got {people!r}")
        elif delta * people >= 1:
            raise PolicyError(f"delta must be below 1 / people = {1 / people:g}, got {delta:g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def allows(self, certificate: PrototypeCertificate) -> bool:
        """Say whether a certificate stays within what was asked for: its budget, and what is known of the model."""
        ours = (self.model_access, self.model_epsilon, self.model_delta or 0.0)
        theirs = (certificate.model_access, certificate.model_epsilon, certificate.model_delta or 0.0)
        spends = (certificate.epsilon, self.epsilon), (certificate.delta, self.delta)
        proven = self.guarantee != "none" or certificate.guarantee == "none"
        return proven and ours == theirs and all(spent <= most * (1 + _ROUNDING) for spent, most in spends)

    @property
    def guarantee(self) -> DPGuarantee:
        """What is asked for in one word: "pure", "approximate" or "none"."""
        if self.method == "dpc":
            return "none"
        return "approximate" if self.delta else "pure"

    @property
    def sha256(self) -> str:
        """SHA-256 of the settings as canonical JSON."""
        return sha256_of(self.to_dict())


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeCertificate:
    """What is guaranteed of all answers of one fit together, however many there are. Holds no value of a row.

    For every two tables that differ by one person (at most `rows_per_person` rows added or removed) and every set of
    answers S: P(S | one) <= exp(epsilon) P(S | other) + delta.

    Attributes
    ----------
    guarantee : {"pure", "approximate", "none"}
        "none" where the noise was seeded, a domain was read from rows, or the method has no proof.
    epsilon, delta : float
        The budget, which all that was asked of the rows does not exceed by OpenDP's maps; with the guarantee "none" a
        claim.
    unit : str
        Whose presence is hidden.
    neighbours : str
        Which tables are neighbours.
    mechanism : str
        Noise and composition, with the version of the library.
    model_access : str
        What may be known of the model, as the operator says; see `covers`.
    model_epsilon, model_delta : float, optional
        Budget that the model was trained with.
    seeded : bool
        Whether the noise can be repeated: then nothing is guaranteed.
    inferred : tuple of str
        Columns whose domain was read from rows: then nothing is guaranteed.
    reverted : bool
        Whether rows were moved towards the query, which tells more of the model.
    fit : str
        Random name of the fit, of which all answers share one budget.

    Raises
    ------
    ValueError
        If it guarantees what cannot be: with seeded noise or an inferred domain, or "pure" with a delta.
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
    reverted: bool = False
    fit: str

    def __post_init__(self) -> None:
        """Refuse a guarantee that other fields contradict: a claim must not pass for a proof."""
        if self.guarantee != "none" and (self.seeded or self.inferred):
            raise ValueError("seeded noise and inferred domains guarantee nothing")
        if self.guarantee == "pure" and self.delta:
            raise ValueError("a pure guarantee has no delta")

    @property
    def total(self) -> tuple[float, float] | None:
        """Epsilon and delta of everything that leaves, the model's part included; None where there is no such bound."""
        if self.guarantee == "none" or self.model_access == "private":
            return None
        if self.model_access != "dp":
            return self.epsilon, self.delta
        if self.model_epsilon is None:
            return None
        return self.epsilon + self.model_epsilon, self.delta + (self.model_delta or 0.0)

    @property
    def membership_bound(self) -> float | None:
        """Largest balanced accuracy of telling whether a person was in: (e^epsilon + delta) / (1 + e^epsilon)."""
        if self.total is None:
            return None
        epsilon, delta = self.total
        return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))

    @property
    def covers(self) -> str:
        """What is guaranteed, in words."""
        if self.guarantee == "none":
            return "nothing is guaranteed; see audit"
        return _MODEL[self.model_access]

    @property
    def threat_models(self) -> dict[str, str]:
        """What epsilon covers for each access to the model, in words; empty where nothing is guaranteed."""
        return {} if self.guarantee == "none" else dict(_MODEL)

    def public(self) -> dict[str, Any]:
        """Return what may go to the receiver: all of it."""
        return {**asdict(self), "inferred": list(self.inferred), "covers": self.covers}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields."""
        return self.public()


@dataclass(frozen=True, slots=True)
class PrototypeCounterfactual:
    """A released prototype: a whole row that stands for nobody.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping
        Feature to value.
    certificate : PrototypeCertificate
        What is guaranteed of this answer and of all others of the fit together.
    """

    query: int
    values: Mapping[str, Any]
    certificate: PrototypeCertificate

    status = "released"

    def __post_init__(self) -> None:
        """Keep plain values, whatever table they come from, in a mapping of our own."""
        object.__setattr__(self, "values", {name: natural(value) for name, value in self.values.items()})

    def parts(self) -> dict[str, Part]:
        """Return every feature with the single value that is said of it."""
        return {name: part_of(value) for name, value in self.values.items()}

    def cells(self) -> dict[str, str]:
        """Return every feature as the text of a table cell."""
        return {name: part_to_text(part) for name, part in self.parts().items()}

    def text(self, factual: Mapping[str, Any], phrases: Mapping[str, Phrase] | None = None) -> str:
        """Write the explanation as a sentence for the person described by `factual`; see `Phrase` for the wording."""
        return sentence(self.parts(), factual, phrases, {}, ())

    def to_dict(self) -> dict[str, Any]:
        """Return what may leave, as JSON-ready values."""
        return {
            "query": self.query,
            "status": self.status,
            "prototype": {name: json_value(value) for name, value in self.values.items()},
            "certificate": self.certificate.public(),
        }


def _check_budget(prefix: str, epsilon: float, delta: float) -> None:
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < math.inf:
        raise PolicyError(f"{prefix}epsilon must be a finite number above 0, got {epsilon!r}")
    if not 0 <= delta < 1:
        raise PolicyError(f"{prefix}delta must be in [0, 1), got {delta!r}")
