"""Putting a desk together: a sealed population with its policy, and what it stands in front of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import PolicyError
from cfk_plugin.pipeline import protect
from cfk_plugin.population import Population
from cfk_plugin.serving.desk import Desk

if TYPE_CHECKING:
    from cfk_plugin.pipeline import ProtectedExplainer
    from cfk_plugin.policy import PrivacyPolicy


def desk_of(bundle: str | Path, explainer: Any, *, most: int, k: int | None = None, **options: Any) -> Desk:
    """Return a desk whose floor is the policy that was sealed.

    Parameters
    ----------
    bundle : str or Path
        Of `KAnonymizer.seal`.
    explainer : object
    most : int
        Queries of one request.
    k : int, optional
        A higher floor.
    **options
        The other ones of `protect`.

    Raises
    ------
    PolicyError
        If the bundle has no policy: none is made up for it. Or if k is below its own.
    CFKError
        See `Population.open` and `protect`.
    """
    population = Population.open(bundle)
    if population.policy is None:
        raise PolicyError("the bundle has no policy; write it with KAnonymizer.seal, not with Population.seal")
    floor = population.policy if k is None else replace(population.policy, k=k)

    def make(policy: PrivacyPolicy) -> ProtectedExplainer:
        return protect(explainer, population=population, policy=policy, **options)

    return Desk(population, floor, make, most)
