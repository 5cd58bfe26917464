"""The promise of each guarantee, one class for each kind.

A policy and a certificate name a guarantee, and `promise_of` returns its promise. The modules
`release.catalogue` and `release.lookup` keep the promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class Promise:
    """The properties of a guarantee: what it promises, and which attacks it does not stop.

    Each subclass sets all attributes.
    """

    # --- attackers --------------------------------------------------------------------------------

    statement: ClassVar[str]
    """The promise about every region, without the last full stop; ``{}`` stands for "k people"."""

    not_stopped: ClassVar[tuple[str, ...]]
    """The attacks that it does not stop, regardless of other settings of the policy."""

    promised_counts: ClassVar[frozenset[str]]
    """The counts of people that are at least k for every region, by their names on certificates.

    "k" counts the people whose quasi-identifiers fit the region. "k_effective" counts the people
    who remain if an attacker reruns the protection. "k_desired" counts those of them who have the
    desired outcome, and "k_consistent" the people who would get it with the released private
    values.
    """

    # --- who counts -------------------------------------------------------------------------------

    counts_everyone_inside: ClassVar[bool]
    """Whether every person inside a region counts; if not, only the people mapped to it count.

    The sensitive attributes of the people who count must also be diverse.
    """

    counts_only_eligible: ClassVar[bool]
    """Whether only people whose predicted outcome is the desired one count among the k."""

    # --- regions ----------------------------------------------------------------------------------

    has_fixed_regions: ClassVar[bool]
    """Whether each person is mapped to a region before the first query, and independent of queries.

    Such a region can be built again from the people and the model, without random numbers. It
    belongs to every person of the population, not only to people with a released explanation.
    """

    may_claim_optimality: ClassVar[bool]
    """Whether a certificate may state that its region is optimal, or the gap to the optimum.

    Only a search for the region of a single counterfactual can prove that.
    """

    default_least_pureness: ClassVar[float]
    """The pureness below which explanations are withheld if the policy does not set one.

    The model should give the outcome for most combinations of a region.
    """

    # --- private values ---------------------------------------------------------------------------

    releases_counterfactuals: ClassVar[bool]
    """Whether the private values of an explainer's counterfactuals are released.

    If so, there is no answer without an explainer, and an explanation may have a value that is in
    no training row.
    """

    can_be_published: ClassVar[bool]
    """Whether all possible explanations exist before the first query, and can be published."""

    # --- answers ----------------------------------------------------------------------------------

    promises_true_answers: ClassVar[bool]
    """Whether the applicant gets the desired outcome by following an answer exactly."""

    may_have_margin: ClassVar[bool]
    """Whether a policy may require a margin, or the agreement of later models."""


class LookupPromise(Promise):
    """At least k people are inside each region, so looking people up identifies no one.

    The search for a region starts from one counterfactual. An attacker who repeats the search for
    every person may be left with a single person.
    """

    statement = (
        "At least {} fit each region. An attacker who reruns the algorithm for every person may be"
        " left with fewer"
    )
    not_stopped = (
        "inversion",
        "model filter",
        "query steering",
        "intersection",
        "private value linkage",
    )
    promised_counts = frozenset({"k"})
    counts_everyone_inside = True
    counts_only_eligible = False
    has_fixed_regions = False
    may_claim_optimality = True
    default_least_pureness = 0.0  # the model gives the outcome at least for the counterfactual
    releases_counterfactuals = True
    can_be_published = False
    promises_true_answers = False
    may_have_margin = False


class CataloguePromise(Promise):
    """At least k people with the outcome are mapped to each region, and the model also gives k of
    them the outcome with the released private values.

    So k people remain even if an attacker reruns the protection and asks the model about every
    person. Entries exist before the first query, and the search for an answer starts from them.
    """

    statement = (
        "At least {} are left even if an attacker reruns the protection and asks the model about"
        " every person"
    )
    not_stopped = ("intersection after a change",)
    promised_counts = frozenset({"k", "k_effective", "k_desired", "k_consistent"})
    counts_everyone_inside = False
    counts_only_eligible = True
    has_fixed_regions = True
    may_claim_optimality = False
    default_least_pureness = 0.5
    releases_counterfactuals = False
    can_be_published = True
    promises_true_answers = True
    may_have_margin = True


PROMISES: Mapping[str, type[Promise]] = MappingProxyType(
    {"lookup": LookupPromise, "catalogue": CataloguePromise}
)
"""Each promise by the name of its guarantee in policies and certificates; the weakest first."""


def promise_of(guarantee: str) -> type[Promise]:
    """Return the promise of the guarantee with this name.

    Raises
    ------
    KeyError
        If there is no such guarantee.
    """
    return PROMISES[guarantee]
