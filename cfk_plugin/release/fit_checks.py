"""Checks of `KAnonymizer.fit`: what a policy, a method and a population cannot give is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import (
    ExactValuesWarning,
    InputError,
    LookupGuaranteeWarning,
    PolicyError,
    did_you_mean,
)
from cfk_plugin.hookspecs import Protector
from cfk_plugin.protection import BUILT_IN

AUTO = "auto"
_LOOKUP = "exact"  # what "auto" stands for under a lookup guarantee
_MAY_CHANGE = ("k", "near_native", "on_infeasible")  # none of them weakens what was sealed
_WEAK = (
    "a lookup guarantee counts the people in a region; somebody who reruns the algorithm, or asks"
    ' the model, may be left with fewer. guarantee="reciprocal" holds against rerunning,'
    ' "catalogue" against both'
)
_EXACT = (
    'private_values="exact" gives each entry of the catalogue the private values of one person;'
    " somebody who knows them can tell whose they are, and who is in the table."
    ' private_values="shared", the default, gives entries values of at least k people or of no one'
)


def check(policy: PrivacyPolicy, method: object, population: Population) -> None:
    """Refuse what cannot be met: too few people, no sensitive attribute for l or t, an excluded
    method.
    """
    if policy.guarantee == "lookup":
        warnings.warn(_WEAK, LookupGuaranteeWarning, stacklevel=3)
    if policy.guarantee == "catalogue" and policy.private_values == "exact":
        warnings.warn(_EXACT, ExactValuesWarning, stacklevel=3)
    if population.policy is not None:
        _check_floor(policy, population.policy)
    if policy.k > population.n_people:
        raise PolicyError(
            f"k = {policy.k} is above the number of people, {population.n_people}; choose a smaller"
            " k, or take more people in"
        )
    if not population.has_rows:
        _check_without_rows(policy, population)
    if (policy.l or policy.t is not None) and not population.schema.sensitive:
        raise PolicyError(
            "l and t need sensitive attributes in the schema; name them with `sensitive=`"
        )
    if policy.guarantee != "lookup" and method != AUTO:
        raise PolicyError(
            f'guarantee="{policy.guarantee}" fixes everybody\'s region beforehand and needs'
            ' method="auto"; a method that chooses a region per counterfactual needs'
            ' guarantee="lookup"'
        )


def _check_without_rows(policy: PrivacyPolicy, population: Population) -> None:
    """Refuse what needs people's private values or predictions, which are not in this process."""
    needs = [name for name, value in (("l", policy.l), ("t", policy.t)) if value is not None]
    if population.is_sealed:
        if needs and policy.guarantee == "lookup":
            raise PolicyError(
                "l and t of a region of its own are counted in rows, and a sealed population has"
                " none"
            )
        return
    needs += ['guarantee="catalogue"'] if policy.guarantee == "catalogue" else []
    needs += ["rare_values"] if policy.rare_values != "release" else []
    needs += ["alpha"] if policy.alpha is not None else []
    needs += ["private_values"] if policy.private_values == "bins" else []
    if needs:
        raise PolicyError(
            f"{', '.join(needs)}: judged by private values or predictions of people, and these rows"
            ' stay on the cluster; use guarantee="reciprocal", or Population.from_frame or'
            " from_parquet"
        )


def _check_floor(policy: PrivacyPolicy, sealed: PrivacyPolicy) -> None:
    """Refuse a policy that is weaker than the sealed one: k may grow."""
    mine, theirs = policy.to_dict(), sealed.to_dict()
    if policy.k < sealed.k:
        raise PolicyError(f"k = {policy.k} is below the floor of the bundle, {sealed.k}")
    if changed := sorted(
        name for name, value in mine.items() if value != theirs[name] and name not in _MAY_CHANGE
    ):
        raise PolicyError(f"the bundle fixes {', '.join(changed)}; only k may be raised")


def choose(
    method: str | Protector, plugins: Mapping[str, Callable[[], Protector]]
) -> tuple[Protector, str]:
    """Return the protector of a method and its name, which is read before it sees data:
    certificates show the name.
    """
    method = _LOOKUP if method == AUTO else method
    if isinstance(method, str):
        if method == "dp":
            raise InputError(
                'method="dp" answers queries and has no use for counterfactuals: use'
                ' DPPrototypes, or protect(explainer, method="dp", ...)'
            )
        known: dict[str, Callable[[], Protector]] = {**plugins, **BUILT_IN}
        if method not in known:
            names = ["auto", *sorted(known)]
            raise InputError(
                f"unknown method {method!r}; known: {', '.join(names)}"
                f"{did_you_mean([method], names)}"
            )
        return known[method](), method
    name = getattr(method, "name", None)
    if type(name) is not str or not callable(getattr(method, "protect", None)):
        raise InputError(f"method must be a name or a protector; got {type(method).__name__}")
    if name in BUILT_IN and not isinstance(method, BUILT_IN[name]):
        raise InputError(
            f"a protector calls itself {name!r}, which is a built-in one; give it another name"
        )
    return method, name


def check_rerun(protector: Protector, policy: PrivacyPolicy) -> None:
    """Refuse to measure an effective k where rerunning a protector for other people says
    nothing.
    """
    if getattr(protector, "randomised", False) or policy.l is not None or policy.t is not None:
        raise PolicyError(
            "measure_k_effective needs a method that draws no random numbers and a policy without l"
            " and t; the inversion attack of the audit estimates it for others"
        )


def check_sealable(policy: PrivacyPolicy) -> None:
    """Refuse to seal a policy that needs people's private values."""
    judged = (
        policy.private_values == "bins"
        or policy.rare_values != "release"
        or policy.alpha is not None
    )
    if judged:
        raise PolicyError(
            "a bundle has no private values of people: it cannot hold bins, rare values or alpha"
        )
