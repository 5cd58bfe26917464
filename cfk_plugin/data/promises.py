"""What each guarantee promises, as facts that can be asked about: a class per kind.

A policy and a certificate name a guarantee, and `promise_of` returns what that promises.
How a guarantee keeps its promise is in `release.catalogue` and `release.lookup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class Promise:
    """What a kind of guarantee promises, and what it leaves open.

    Each attribute is a property of the promise. A kind states all of them.
    """

    # --- against whom k holds ---------------------------------------------------------------------

    statement: ClassVar[str]
    """What holds of every region, without the last full stop; ``{}`` stands for "k people"."""

    not_stopped: ClassVar[tuple[str, ...]]
    """The attacks that it does not stop, whatever else the policy says."""

    promised_counts: ClassVar[frozenset[str]]
    """The counts of people that are at least k for every region, by their names on certificates.

    "k" counts those whose quasi-identifiers fit the region, "k_effective" those who are left after
    a rerun of the protection. "k_desired" counts those who have the desired outcome besides, and
    "k_consistent" those who would get it with the private values that are released.
    """

    # --- who counts -------------------------------------------------------------------------------

    counts_everyone_inside: ClassVar[bool]
    """Whether everyone inside a region counts. If not, only the people mapped to it do.

    These are the people whose sensitive attributes must be diverse, too.
    """

    counts_only_eligible: ClassVar[bool]
    """Whether only people with the desired predicted outcome count among the k."""

    # --- regions ----------------------------------------------------------------------------------

    has_fixed_regions: ClassVar[bool]
    """Whether every person is mapped to a region beforehand, whatever is asked and in any order.

    Such a region can be built again from the people and the model, draws no random number, and
    belongs to everyone in the population, not only to those for whom something was released.
    """

    may_claim_optimality: ClassVar[bool]
    """Whether a certificate may say that its region is the best one, or how far from it.

    Only a search for the region of a single counterfactual can prove that.
    """

    default_least_pureness: ClassVar[float]
    """Pureness below which nothing is released, where the policy does not set a floor.

    What a region states should hold for most of its combinations.
    """

    # --- what is released with a region -----------------------------------------------------------

    releases_counterfactuals: ClassVar[bool]
    """Whether an explainer's counterfactuals are released themselves, with their private values.

    There is then no answer without an explainer, and what is released may have a value that is in
    no training row.
    """

    can_be_published: ClassVar[bool]
    """Whether everything that can ever be released is known beforehand, and can be published."""

    # --- answers to a person's query --------------------------------------------------------------

    promises_true_answers: ClassVar[bool]
    """Whether the person who asks gets the desired outcome by following an answer exactly."""

    may_have_margin: ClassVar[bool]
    """Whether answers may have to be true with a margin, or for later models as well."""


class LookupPromise(Promise):
    """At least k people are inside each region: no one is named by looking people up.

    Regions are searched for one counterfactual at a time, so that somebody who repeats the search
    for everyone may be left with a single person.
    """

    statement = (
        "At least {} fit each region. Whoever reruns the algorithm for everybody may be left with"
        " fewer"
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
    default_least_pureness = 0.0  # a region at least holds for its own counterfactual
    releases_counterfactuals = True
    can_be_published = False
    promises_true_answers = False
    may_have_margin = False


class CataloguePromise(Promise):
    """At least k people with the outcome are mapped to each region, and would get it with the
    private values released.

    So k are left for somebody who reruns the protection and asks the model about everyone. Entries
    are made beforehand, and answers to queries are searched for among them.
    """

    statement = (
        "At least {} are left for whoever reruns the protection and asks the model about everybody"
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
"""What a guarantee promises, by its name in policies and on certificates; the weakest first."""


def promise_of(guarantee: str) -> type[Promise]:
    """Return what the guarantee with this name promises.

    Raises
    ------
    KeyError
        If it is not the name of a guarantee of regions.
    """
    return PROMISES[guarantee]
