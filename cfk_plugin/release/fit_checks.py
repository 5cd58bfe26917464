"""Checks of `KAnonymizer.fit`: whether policy, method and population fit together."""

from __future__ import annotations

import warnings

import numpy as np

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import LookupGuaranteeWarning, PolicyError, WideRegionsWarning, warn
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.protector_choice import AUTO

_WEAK = (
    "the lookup guarantee counts the people in a region; an attacker who reruns the algorithm, or"
    ' queries the model, may exclude some of them. guarantee="catalogue" stops both attacks'
)

_MANY = 10  # with fewer quasi-identifiers, regions are wide because of k and not of the columns
_WIDE = 0.5  # NCP: half of a quasi-identifier's range


def check(policy: PrivacyPolicy, method: object, population: Population) -> None:
    """Raise `PolicyError` if the population or the method cannot satisfy the policy.

    Warn of attacks that the lookup guarantee does not stop.
    """
    if policy.guarantee == "lookup" and population.whole is not None:
        raise PolicyError(
            "the lookup guarantee needs all training rows in this process, and they are on Spark;"
            ' use guarantee="catalogue", or Population.from_frame'
        )
    if policy.guarantee == "lookup":
        warnings.warn(_WEAK, LookupGuaranteeWarning, stacklevel=3)
    if policy.k > population.n_people:
        raise PolicyError(
            f"k = {policy.k} is above the number of people, {population.n_people}; choose a smaller"
            " k, or use more training rows"
        )
    if (policy.l or policy.t is not None) and not population.schema.sensitive:
        raise PolicyError(
            "l and t need sensitive attributes in the schema; name them with `sensitive=`"
        )
    if method != AUTO and policy.guarantee != "lookup":
        raise PolicyError(
            f'guarantee="{policy.guarantee}" fixes all regions before the first query and needs'
            ' method="auto"; a method that chooses a region per counterfactual needs'
            ' guarantee="lookup"'
        )


def warn_of_wide_regions(catalogue: Catalogue) -> None:
    """Warn if so many quasi-identifiers make the regions too wide to be useful."""
    n_quasi = len(catalogue.schema.quasi_identifiers)
    ncp = np.concatenate([part.catalogue.regions.ncp for part in catalogue.parts])
    if n_quasi <= _MANY or ncp.mean() <= _WIDE:
        return
    warn(
        f"with {n_quasi} quasi-identifiers, a region covers {ncp.mean():.0%} of each of them on"
        " average (NCP), which is too wide to be useful. Name as quasi-identifiers only the columns"
        " that other people may know; hierarchies, more people or a lower k make regions narrower,"
        " too",
        WideRegionsWarning,
    )
