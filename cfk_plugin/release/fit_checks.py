"""Checks of `KAnonymizer.fit`: what a policy, a method and a population cannot give is refused."""

from __future__ import annotations

import warnings

import numpy as np

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import LookupGuaranteeWarning, PolicyError, WideRegionsWarning, warn
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.protector_choice import AUTO

_WEAK = (
    "a lookup guarantee counts the people in a region; somebody who reruns the algorithm, or asks"
    ' the model, may be left with fewer. guarantee="catalogue" holds against both'
)

_MANY = 10  # with fewer quasi-identifiers, wide regions are the choice of k and not of columns
_WIDE = 0.5  # NCP: half of a quasi-identifier's range


def check(policy: PrivacyPolicy, method: object, population: Population) -> None:
    """Refuse what cannot be met: too few people, no sensitive attribute for l or t, an excluded
    method. Warn of what the guarantee leaves open.
    """
    if policy.guarantee == "lookup" and population.whole is not None:
        raise PolicyError(
            "a lookup guarantee compares counterfactuals with all training rows, which are on"
            ' Spark; use guarantee="catalogue", or Population.from_frame'
        )
    if policy.guarantee == "lookup":
        warnings.warn(_WEAK, LookupGuaranteeWarning, stacklevel=3)
    if policy.k > population.n_people:
        raise PolicyError(
            f"k = {policy.k} is above the number of people, {population.n_people}; choose a smaller"
            " k, or take more people in"
        )
    if (policy.l or policy.t is not None) and not population.schema.sensitive:
        raise PolicyError(
            "l and t need sensitive attributes in the schema; name them with `sensitive=`"
        )
    if method != AUTO and policy.guarantee != "lookup":
        raise PolicyError(
            f'guarantee="{policy.guarantee}" fixes everybody\'s region beforehand and needs'
            ' method="auto"; a method that chooses a region per counterfactual needs'
            ' guarantee="lookup"'
        )


def warn_of_wide_regions(catalogue: Catalogue) -> None:
    """Warn if there are so many quasi-identifiers that no region is of use to a recipient."""
    n_quasi = len(catalogue.schema.quasi_identifiers)
    ncp = np.concatenate([part.catalogue.regions.ncp for part in catalogue.parts])
    if n_quasi <= _MANY or ncp.mean() <= _WIDE:
        return
    warn(
        f"with {n_quasi} quasi-identifiers, a region covers {ncp.mean():.0%} of each of them on"
        " average (NCP), which says little. Name as quasi-identifiers only the columns that other"
        " people may know; hierarchies, more people or a lower k make regions narrower, too",
        WideRegionsWarning,
    )
