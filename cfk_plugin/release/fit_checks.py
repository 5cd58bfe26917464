"""Checks of `KAnonymizer.fit`: what a policy, a method and a population cannot give is refused."""

from __future__ import annotations

import warnings

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import PolicyError
from cfk_plugin.release.guarantee_choice import KINDS
from cfk_plugin.release.protector_choice import AUTO

# settings that may differ from those of a sealed policy: it weakens nothing that was sealed
_MAY_CHANGE = ("near_native",)


def check(policy: PrivacyPolicy, method: object, population: Population) -> None:
    """Refuse what cannot be met: too few people, no sensitive attribute for l or t, an excluded
    method. Warn of what the guarantee leaves open.
    """
    kind = KINDS[policy.guarantee]
    warning = kind.warning(policy)
    if warning is not None:
        text, category = warning
        warnings.warn(text, category, stacklevel=3)
    if population.policy is not None:
        _check_sealed(policy, population.policy)
    if policy.k > population.n_people:
        raise PolicyError(
            f"k = {policy.k} is above the number of people, {population.n_people}; choose a smaller"
            " k, or take more people in"
        )
    if (policy.l or policy.t is not None) and not population.schema.sensitive:
        raise PolicyError(
            "l and t need sensitive attributes in the schema; name them with `sensitive=`"
        )
    if method != AUTO and not kind.may_choose_method:
        raise PolicyError(
            f'guarantee="{policy.guarantee}" fixes everybody\'s region beforehand and needs'
            ' method="auto"; a method that chooses a region per counterfactual needs'
            ' guarantee="lookup"'
        )


def _check_sealed(policy: PrivacyPolicy, sealed: PrivacyPolicy) -> None:
    """Refuse a policy that differs from the one that a catalogue was sealed with."""
    fixed = sealed.to_dict()
    changed = sorted(
        name
        for name, value in policy.to_dict().items()
        if value != fixed[name] and name not in _MAY_CHANGE
    )
    if changed:
        raise PolicyError(f"the sealed catalogue fixes {', '.join(changed)}")
