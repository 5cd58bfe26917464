"""Methods and guarantees in the words of ISO/IEC 20889."""

from __future__ import annotations

from collections.abc import Collection

_REGIONS = frozenset({"nominal", "reciprocal", "catalogue"})
_PROTOTYPES = frozenset({"pure", "approximate"})


def techniques(methods: Collection[str], guarantees: Collection[str], *, withheld: bool = False) -> list[str]:
    """Return the techniques and formal models in use, each with what it is here.

    Parameters
    ----------
    methods : collection of str
        Of certificates, such as ``exact``, ``grasp``, ``mondrian``, ``reciprocal``, ``catalogue``, ``dp``, ``dpc``.
    guarantees : collection of str
        Of policies and certificates: ``nominal``, ``reciprocal``, ``catalogue``, ``pure``, ``approximate``, ``none``.
    withheld : bool
        Whether single private attributes may be withheld.

    Returns
    -------
    list of str
    """
    found = ["record suppression: explanations that do not meet the policy are withheld"]
    kinds = set(guarantees)
    if kinds & {"reciprocal", "catalogue"}:
        found.append("generalization: quasi-identifiers, one region for all people of a group")
    if "nominal" in kinds:
        found.append("local generalization: quasi-identifiers, a region for each explanation")
    if withheld:
        found.append("local suppression: single private attributes are withheld")
    if kinds & _REGIONS:
        found.append("k-anonymity (formal model), for the people who fit a region")
    if set(methods) & {"dp", "dpc"}:
        found.append("noise addition: to the counts or coefficients that answers come from")
        found.append("synthetic data: answers are drawn, and stand for nobody")
    if kinds & _PROTOTYPES:
        found.append("differential privacy (formal model), server model")
    return found
