"""What may leave: the privacy policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cfk_plugin.errors import PolicyError

Guarantee = Literal["nominal"]
Objective = Literal["pureness", "ncp", "weighted"]
OnInfeasible = Literal["suppress", "raise"]

_PRESETS: dict[str, dict[str, Any]] = {
    # Goethals, Sörensen, Martens (2023), section 5.3.2
    "paper": {"k": 10},
    # US Centers for Medicare & Medicaid Services, cell size suppression policy: no cell of 1 to 10
    "cms-11": {"k": 11},
    # European Medicines Agency, policy 0070 guidance: maximum risk 0.09, so k = 12
    "ema-0070": {"k": 12},
    # house choice, no external source
    "k20": {"k": 20},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPolicy:
    """The rules a released explanation has to meet; checked again after protection, by other code.

    A policy of ``guarantee="nominal"`` protects against an adversary who knows the quasi-identifiers of
    everybody and links a released region to people. It does *not* protect against an adversary who reruns the
    algorithm or who queries the model to strike out candidates: read `Certificate.k_consistent`.

    Parameters
    ----------
    k : int, default 10
        Least number of people whose quasi-identifiers fit a released region (at least 2).
    guarantee : {"nominal"}
        Against whom k holds.
    objective : {"pureness", "ncp", "weighted"}
        What is optimised among the regions with k people: pureness first and then NCP (the paper's order), NCP
        alone, or ``NCP + pureness_weight * (1 - pureness)``.
    pureness_weight : float, default 1.0
        Weight of impurity for ``objective="weighted"``.
    min_pureness : float in [0, 1], optional
        An explanation whose pureness (lower end of its interval where it is sampled) is below this is suppressed.
    max_ncp : float in [0, 1], optional
        An explanation that loses more information than this is suppressed.
    l : int, optional
        Distinct l-diversity of every sensitive attribute among the people in the region.
    t : float in [0, 1], optional
        t-closeness of every sensitive attribute among the people in the region.
    near_native : "auto" or float in [0, 1]
        HEOM distance below which a counterfactual counts as near-native; "auto" calibrates it on the population.
    on_infeasible : {"suppress", "raise"}
        Put a `Suppressed` entry in the result, or raise `InfeasibleError`.

    Raises
    ------
    PolicyError
        If a setting is out of range.

    Examples
    --------
    >>> PrivacyPolicy(k=5, min_pureness=0.9).k
    5
    """

    k: int = 10
    guarantee: Guarantee = "nominal"
    objective: Objective = "pureness"
    pureness_weight: float = 1.0
    min_pureness: float | None = None
    max_ncp: float | None = None
    l: int | None = None  # noqa: E741 - the field's name of the parameter
    t: float | None = None
    near_native: Literal["auto"] | float = "auto"
    on_infeasible: OnInfeasible = "suppress"

    def __post_init__(self) -> None:
        """Validate every setting."""
        _whole_number("k", self.k, 2)
        if self.l is not None:
            _whole_number("l", self.l, 1)
        _one_of("guarantee", self.guarantee, ("nominal",))
        _one_of("objective", self.objective, ("pureness", "ncp", "weighted"))
        _one_of("on_infeasible", self.on_infeasible, ("suppress", "raise"))
        for name in ("min_pureness", "max_ncp", "t"):
            if getattr(self, name) is not None:
                _share(name, getattr(self, name))
        if self.near_native != "auto":
            _share("near_native", self.near_native)
        if not _is_number(self.pureness_weight) or not 0 <= self.pureness_weight < float("inf"):
            raise PolicyError("pureness_weight must be a finite number >= 0")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> PrivacyPolicy:
        """Return a policy from a published source: "paper", "cms-11", "ema-0070", "k20".

        Parameters
        ----------
        name : str
            The preset.
        **changes
            Settings that differ from the preset.

        Returns
        -------
        PrivacyPolicy

        Raises
        ------
        PolicyError
            If the preset is unknown.
        """
        if name not in _PRESETS:
            raise PolicyError(f"unknown preset {name!r}; known: {', '.join(_PRESETS)}")
        return cls(**{**_PRESETS[name], **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @property
    def sha256(self) -> str:
        """SHA-256 of the settings as canonical JSON: the policy's identity in certificates and runs."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole_number(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PolicyError(f"{name} must be a whole number >= {least}, got {value!r}")


def _share(name: str, value: object) -> None:
    if not _is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]
        raise PolicyError(f"{name} must be a number between 0 and 1, got {value!r}")


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PolicyError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
