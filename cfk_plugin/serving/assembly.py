"""Putting a desk together: a sealed population with its policy, and what it stands in front of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin._protect import protect
from cfk_plugin.data.population import Population
from cfk_plugin.errors import PolicyError
from cfk_plugin.serving.desk import Desk

if TYPE_CHECKING:
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.release.explainer import ProtectedExplainer


def opened(bundle: str | Path) -> tuple[Population, PrivacyPolicy]:
    """Open a sealed population and its policy; do so first, as what else is loaded may run code.

    Raises
    ------
    PolicyError
        If the bundle has no policy: none is made up for it.
    BundleError
        See `Population.open`.
    """
    population = Population.open(bundle)
    if population.policy is None:
        raise PolicyError("the bundle has no policy; write it with KAnonymizer.seal, not with Population.seal")
    return population, population.policy


def desk_of(population: Population, floor: PrivacyPolicy, explainer: Any, *, most: int, **options: Any) -> Desk:
    """Return a desk in front of an explainer.

    Parameters
    ----------
    population : Population
    floor : PrivacyPolicy
        The one that was sealed, or with a larger k.
    explainer : object
    most : int
        Queries of one request.
    **options
        The other ones of `protect`.

    Raises
    ------
    CFKError
        See `protect`.
    """

    def make(policy: PrivacyPolicy) -> ProtectedExplainer:
        return protect(explainer, population=population, policy=policy, **options)

    return Desk(population, floor, make, most)
