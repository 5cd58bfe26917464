"""The privacy policy: the rules that an explanation has to meet before it is released."""

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
"""For each guarantee, the attacks that it does not stop; see the threat model in the documentation.
"""


def promised(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the counts of people that a policy's settings promise not to be below k."""
    guarantee = settings.get("guarantee")
    if not isinstance(guarantee, str) or guarantee not in PROMISES:
        return frozenset({"k"})
    return promise_of(guarantee).promised_counts


def _refuses_unknown_settings(policy: type[T]) -> type[T]:
    """Decorate a dataclass so that an unknown setting raises a `PolicyError`.

    The error lists the settings that there are, and suggests the one that was probably meant.
    Python's own `TypeError` would say only that the name is unknown.
    """
    init_of_dataclass: Callable[..., None] = policy.__init__
    names = list(inspect.signature(policy).parameters)

    @wraps(init_of_dataclass)
    def init_refusing_unknown(self: T, /, *args: Any, **settings: Any) -> None:
        unknown = [name for name in settings if name not in names]
        if unknown:
            raise PolicyError(
                f"a policy has no setting {', '.join(unknown)}; known: {', '.join(names)}"
                f"{did_you_mean(unknown, names)}"
            )
        init_of_dataclass(self, *args, **settings)

    policy.__init__ = init_refusing_unknown  # type: ignore[method-assign,assignment]
    return policy


@_refuses_unknown_settings
@dataclass(frozen=True, kw_only=True)
class PrivacyPolicy:
    """The rules that a released explanation has to meet.

    They are checked again after protection, by other code. Every policy protects against an
    adversary who knows the quasi-identifiers of all people and links a released region to people.
    The guarantee decides against which other adversaries k holds; `NOT_STOPPED` lists the attacks
    that it does not stop. See the page "Choose a policy".

    Parameters
    ----------
    k : int, least number of people whose quasi-identifiers fit a released region (at least 2)
    guarantee : {"catalogue", "lookup"}
        "lookup": k people are in the region (the paper's definition), and the explainer's own
        private values are released; an adversary who reruns the algorithm for each of these people
        is often left with fewer, at times with one. "catalogue": explanations come from a fixed
        list of regions and private values. k people with the desired outcome are mapped to a
        region, and the model is consistent with k of them, so that k are left even if somebody
        reruns the algorithm and asks the model about all people. An entry's private values, each
        and all together, belong to at least k people of the population, or to no one. An answer is
        the least change of the query for which the model gives the outcome: it keeps the query's
        own values, or moves between these and shared ones, and is true for exactly what it advises.
        An explainer's counterfactual is one more start of the search only if its adapter declares
        that no answer depends on a single row.
    objective : {"pureness", "ncp"}
        The quantity that is optimised: pureness, then NCP (the paper's order); or NCP, then
        pureness.
    min_pureness, max_ncp : float in [0, 1], optional
        Explanations that are less pure (if sampled, by the lower end of the interval) or lose more
        information are withheld. Without a `min_pureness` the floor is 0.5 for a catalogue, and
        "lookup" has none (`least_pureness`). 0 removes the floor.
    l : int, optional
        Distinct l-diversity of every sensitive attribute among the people in the region.
    t : float in [0, 1], optional
        t-closeness of every sensitive attribute among them.
    near_native : "auto" or float in [0, 1]
        HEOM distance below which a counterfactual counts as near-native; "auto" calibrates it on
        the population.
    margin : "auto" or float, at least 0 and below 1
        How sure the model must be of a catalogue's answers, so that they are still true after it is
        trained again. The probability of the desired outcome must be at least
        ``t + margin (1 - t)``, where t is the least one at which the model gives it; with more than
        two classes it must be at least `margin` above that of every other outcome. "auto": the
        largest multiple of 0.05, at most 0.3, that leaves three in four of the people with the
        outcome, and at least 5 k of them; none if these form no group with `l` and `t`. 0: none.
        The k people of a region have the outcome with the margin, and so does every answer at its
        nearest point. Whether a query has the outcome already, and pureness, are judged without
        it. A margin needs a model with ``predict_proba``, or `threshold`; without, "auto" is none,
        and certificates say so. It promises no share of answers that last: see the page "When the
        model is trained again".

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
        """Refuse a margin out of range; without a catalogue, "auto" is no margin."""
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
                "the answers of a catalogue have a margin, and other guarantees have none; leave"
                ' margin out, or write guarantee="catalogue"'
            )
        object.__setattr__(self, "margin", float(margin))

    def _check_shares(self) -> None:
        for name in ("min_pureness", "max_ncp", "t", "near_native"):
            value = getattr(self, name)
            if value is None or (name == "near_native" and value == "auto"):
                continue
            if not _is_number(value) or not 0 <= value <= 1:
                raise PolicyError(f"{name} must be a number between 0 and 1, got {shown(value)}")
            # 1 and 1.0 are one policy, and have one hash.
            object.__setattr__(self, name, float(value))

    def with_guarantee(self, guarantee: GuaranteeName, **changes: Any) -> PrivacyPolicy:
        """Return the policy under a guarantee, with further changes.

        If this is another guarantee, `margin` becomes its default.
        """
        settings: dict[str, Any] = {"guarantee": guarantee, **changes}
        if guarantee != self.guarantee:
            settings.setdefault("margin", "auto")
        return replace(self, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @cached_property
    def counts_eligible(self) -> bool:
        """Whether only people with the desired predicted outcome count among the k."""
        return promise_of(self.guarantee).counts_only_eligible

    @cached_property
    def least_pureness(self) -> float:
        """Pureness below which nothing is released: `min_pureness`, or what the guarantee has
        without one.
        """
        if self.min_pureness is not None:
            return self.min_pureness
        return promise_of(self.guarantee).default_least_pureness

    @property
    def promise(self) -> str:
        """What holds of every region, in words without the last full stop."""
        counted = " with the desired predicted outcome" if self.counts_eligible else ""
        return promise_of(self.guarantee).statement.format(f"{self.k} people{counted}")

    @cached_property
    def not_stopped(self) -> tuple[str, ...]:
        """Attacks that the policy does not stop."""
        return promise_of(self.guarantee).not_stopped

    def _repr_html_(self) -> str:
        changed = {
            name: value
            for name, value in self.to_dict().items()
            if value != getattr(PrivacyPolicy(guarantee=self.guarantee), name)
        }
        open_to = ", ".join(self.not_stopped)
        rows = {"not stopped": open_to} | {
            name: repr(value) for name, value in changed.items() if name != "k"
        }
        return card(
            f"Privacy policy: k = {self.k}, {self.guarantee}", f"{self.promise}.", facts(rows)
        )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the settings as canonical JSON: the policy's identity in certificates and
        runs.
        """
        return sha256_of(self.to_dict())


_CHOICES = {
    name: get_args(kind)
    for name, kind in get_type_hints(PrivacyPolicy).items()
    if get_origin(kind) is Literal
}


def plain_settings(settings: Any) -> None:
    """Turn NumPy scalars among the fields of a frozen dataclass into plain ones, so that k may be
    one of them.
    """
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, np.generic):
            object.__setattr__(settings, setting.name, value.item())


def sha256_of(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()


def policy_or(policy: object) -> PrivacyPolicy:
    """Return a policy that was given, or the default one in the place of None."""
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
