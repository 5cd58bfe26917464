"""The privacy policy: the rules that an explanation has to satisfy before its release."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from cfk_plugin.data.display import card, facts
from cfk_plugin.data.promises import PROMISES, promise_of
from cfk_plugin.errors import PolicyError, did_you_mean, require, shown

T = TypeVar("T")
GuaranteeName = Literal["lookup", "catalogue"]
Objective = Literal["pureness", "ncp"]

NOT_STOPPED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {guarantee: promise.not_stopped for guarantee, promise in PROMISES.items()}
)
"""The attacks that each guarantee does not stop; see the threat model in the documentation."""


def promised(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the counts of people that a policy with these settings promises to be at least k."""
    guarantee = settings.get("guarantee")
    if not isinstance(guarantee, str) or guarantee not in PROMISES:
        return frozenset({"k"})
    return promise_of(guarantee).promised_counts


def _refuses_unknown_settings(policy: type[T]) -> type[T]:
    """Decorate a dataclass so that an unknown setting raises a `PolicyError`.

    The error lists all settings and suggests the most similar name. Python's own `TypeError` says
    only that the name is unknown.
    """
    init_of_dataclass: Callable[..., None] = policy.__init__
    names = list(inspect.signature(policy).parameters)

    @wraps(init_of_dataclass)
    def init_refusing_unknown(self: T, /, *args: Any, **settings: Any) -> None:
        unknown = [name for name in settings if name not in names]
        if unknown:
            raise PolicyError(
                f"a policy has no setting {', '.join(unknown)}; its settings are"
                f" {', '.join(names)}{did_you_mean(unknown, names)}"
            )
        init_of_dataclass(self, *args, **settings)

    policy.__init__ = init_refusing_unknown  # type: ignore[method-assign,assignment]
    return policy


@_refuses_unknown_settings
@dataclass(frozen=True, kw_only=True)
class PrivacyPolicy:
    """The rules that an explanation has to satisfy before its release.

    Independent code checks them again after protection. With every policy, an attacker who knows
    the quasi-identifiers of all people finds at least k people who fit a released region. The
    guarantee decides which stronger attackers are stopped; `not_stopped` lists the attacks that are
    not. See the page "Choose a policy".

    Parameters
    ----------
    k : int, at least 2
        The least number of people whose quasi-identifiers fit a released region.
    guarantee : {"catalogue", "lookup"}
        With "catalogue", explanations come from a fixed list of regions and private values. At
        least k people with the desired outcome are mapped to each region, and the model gives the
        outcome to k of them with the private values of the explanation. So k people remain even if
        an attacker reruns the algorithm and asks the model about every person. The private values
        of an entry, one by one and all together, belong to at least k people or to no one. An
        answer is the smallest change of the query for which the model gives the outcome. Each of
        its private values is the query's own, a shared value, or between these two. The model gives
        the outcome if the person follows the answer exactly. The search starts from an explainer's
        counterfactual as well only if the adapter declares that no answer depends on a single row.

        With "lookup", at least k people fit each region, as the paper defines it, and the private
        values of the explainer's counterfactual are released. An attacker who reruns the algorithm
        for each of these people often excludes some of them, and sometimes all but one.
    objective : {"pureness", "ncp"}
        The quantity that the search optimises first: pureness and then NCP, as in the paper; or NCP
        and then pureness.
    min_pureness, max_ncp : float in [0, 1], optional
        An explanation is withheld if its pureness is lower, or its information loss (NCP) higher.
        Of a sampled pureness, the lower end of the interval counts. The default of `min_pureness`
        is 0.5 for "catalogue" and 0, no limit, for "lookup"; see `least_pureness`.
    l : int, optional
        Distinct l-diversity of every sensitive attribute among the people in the region.
    t : float in [0, 1], optional
        t-closeness of every sensitive attribute among the people in the region.
    near_native : "auto" or float in [0, 1]
        The HEOM distance to a training row below which a counterfactual is near-native; "auto"
        calibrates it on the population.
    margin : "auto" or float, at least 0 and below 1
        How sure the model must be of the answers of a catalogue, so that more of them still hold
        after the model is retrained. For two classes, the probability of the desired outcome must
        be at least ``t + margin (1 - t)``, where t is the least probability at which the model
        gives the outcome. For more classes, it must exceed the probability of every other outcome
        by at least `margin`. 0 means no margin. "auto" is the largest multiple of 0.05, at most
        0.3, with which three in four of the people with the outcome keep it, and at least 5 k
        people. There is no margin if these people form no group with `l` and `t`.

        The k people of a region have the outcome with the margin, and so has every answer at its
        advised values. The margin plays no part in pureness, nor in whether a query already has the
        outcome. A margin needs a model with ``predict_proba``, or `threshold`. Without
        probabilities "auto" is no margin, and certificates say so. A margin does not guarantee
        which share of the answers still holds: see the page "When data or model change".

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
    guarantee: GuaranteeName = "catalogue"
    objective: Objective = "pureness"
    min_pureness: float | None = None
    max_ncp: float | None = None
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    near_native: Literal["auto"] | float = "auto"
    margin: Literal["auto"] | float = "auto"

    def __post_init__(self) -> None:
        plain_settings(self)
        _check_whole_number("k", self.k, least=2)
        if self.l is not None:
            _check_whole_number("l", self.l, least=1)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise PolicyError(
                    f"{name} must be one of {', '.join(map(str, choices))}; got {shown(value)}"
                    f"{did_you_mean([value], choices)}"
                )
        self._check_shares()
        self._check_margin()

    def _check_margin(self) -> None:
        """Raise a PolicyError if the margin is out of range; set it to 0 without a catalogue."""
        margin = self.margin
        may_have_margin = promise_of(self.guarantee).may_have_margin
        if margin == "auto":
            if not may_have_margin:
                object.__setattr__(self, "margin", 0.0)
            return
        if not _is_number(margin) or not 0 <= margin < 1:
            raise PolicyError(
                f'margin must be "auto" or a number from 0 to below 1, got {shown(margin)}'
            )
        if margin > 0 and not may_have_margin:
            raise PolicyError(
                "only the answers of a catalogue have a margin; leave margin out, or write"
                ' guarantee="catalogue"'
            )
        object.__setattr__(self, "margin", float(margin))

    def _check_shares(self) -> None:
        """Raise a PolicyError if a setting is not a number between 0 and 1."""
        for name in ("min_pureness", "max_ncp", "t", "near_native"):
            value = getattr(self, name)
            if value is None or (name == "near_native" and value == "auto"):
                continue
            if not _is_number(value) or not 0 <= value <= 1:
                raise PolicyError(f"{name} must be a number between 0 and 1, got {shown(value)}")
            # policies with 1 and with 1.0 are the same and need the same hash
            object.__setattr__(self, name, float(value))

    def with_guarantee(self, guarantee: GuaranteeName, **changes: Any) -> PrivacyPolicy:
        """Return the policy with another guarantee and other settings.

        Parameters
        ----------
        guarantee : {"catalogue", "lookup"}
            If it differs from the guarantee of this policy, `margin` becomes "auto" unless it is in
            `changes`.
        **changes
            Settings to replace.
        """
        settings: dict[str, Any] = {"guarantee": guarantee, **changes}
        if guarantee != self.guarantee:
            settings.setdefault("margin", "auto")
        return replace(self, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name, as plain values."""
        return asdict(self)

    @cached_property
    def counts_eligible(self) -> bool:
        """Whether only people whose predicted outcome is the desired one count among the k."""
        return promise_of(self.guarantee).counts_only_eligible

    @cached_property
    def least_pureness(self) -> float:
        """The pureness below which explanations are withheld: `min_pureness` or its default."""
        if self.min_pureness is not None:
            return self.min_pureness
        return promise_of(self.guarantee).default_least_pureness

    @property
    def promise(self) -> str:
        """The promise about every region, as one or two sentences without the last full stop."""
        condition = " with the desired predicted outcome" if self.counts_eligible else ""
        return promise_of(self.guarantee).statement.format(f"{self.k} people{condition}")

    @cached_property
    def not_stopped(self) -> tuple[str, ...]:
        """The attacks that the policy does not stop, as the threat model names them."""
        return promise_of(self.guarantee).not_stopped

    def _repr_html_(self) -> str:
        defaults = PrivacyPolicy(guarantee=self.guarantee).to_dict()
        rows = {"not stopped": ", ".join(self.not_stopped)} | {
            name: repr(value)
            for name, value in self.to_dict().items()
            if value != defaults[name] and name != "k"
        }
        return card(
            f"Privacy policy: k = {self.k}, {self.guarantee}", f"{self.promise}.", facts(rows)
        )

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the settings as canonical JSON, which names the policy in certificates."""
        return sha256_of(self.to_dict())


_CHOICES = {
    name: get_args(kind)
    for name, kind in get_type_hints(PrivacyPolicy).items()
    if get_origin(kind) is Literal
}


def plain_settings(settings: Any) -> None:
    """Convert NumPy scalars among the fields of a frozen dataclass to plain Python values."""
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, np.generic):
            object.__setattr__(settings, setting.name, value.item())


def sha256_of(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings as canonical JSON, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()


def policy_or(policy: object) -> PrivacyPolicy:
    """Return the policy, or the default policy for None; raise a PolicyError for other types."""
    if policy is None:
        return PrivacyPolicy()
    return require(
        "policy",
        policy,
        PrivacyPolicy,
        "write PrivacyPolicy(k=10), or with other settings",
        PolicyError,
    )


def _check_whole_number(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PolicyError(f"{name} must be a whole number >= {least}, got {shown(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
