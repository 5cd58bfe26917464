"""The kinds of guarantee by their name in a policy, and how `fit` makes the one that is asked for.

This is the only place that asks a policy for the name of its guarantee.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from cfk_plugin.data.display import doing
from cfk_plugin.data.eligibility import EligibilityClasses
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import GuaranteeName, PrivacyPolicy
from cfk_plugin.data.predictions import AnyOutcome
from cfk_plugin.data.sealing import BundleContent
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import ModelError, PolicyError
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.sealing import catalogue_from_arrays
from cfk_plugin.protection.partition.microaggregation import partition_of
from cfk_plugin.protection.partition.partial_dependence import partial_dependence
from cfk_plugin.protection.partition.partition import Partition
from cfk_plugin.release.catalogue_guarantee import CatalogueGuarantee, SealedCatalogueGuarantee
from cfk_plugin.release.guarantee import Guarantee, LookupGuarantee

_log = logging.getLogger("cfk_plugin")
_NOTHING = 'the bundle has nothing for guarantee="{}"; seal a fitted KAnonymizer'

KINDS: Mapping[GuaranteeName, type[Guarantee]] = MappingProxyType(
    {
        "lookup": LookupGuarantee,
        "catalogue": CatalogueGuarantee,
    }
)
"""The class of each guarantee that a policy can name."""


def make_guarantee(
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    rows: TrainingLabels,
) -> Guarantee:
    """Divide people into groups and find answers, where the policy's guarantee has these.

    The margin that outcomes must have is lowered in ``rows.requirement`` where the policy leaves it
    open and no group has it.

    Raises
    ------
    PolicyError
        If there are too few people for a catalogue, or the file has none.
    ModelError
        If the model is not the one that a catalogue was sealed with.
    """
    if policy.guarantee == "lookup":
        return LookupGuarantee(policy, rows, EligibilityClasses(policy, goal, rows))
    sealed = rows.population.sealed
    if sealed is not None:
        catalogue = _sealed_catalogue(sealed, rows, policy, goal)
        eligibility = EligibilityClasses(policy, goal, rows)
        return SealedCatalogueGuarantee(policy, rows, eligibility, catalogue, sealed)
    eligibility = EligibilityClasses(policy, goal, rows)
    partition = _divide_people(policy, goal, rows, eligibility)
    if not partition.regions and policy.margin == "auto" and rows.requirement.margin:
        # Those with the margin form no group. A margin that the policy names is refused below.
        rows.requirement = AnyOutcome(margin=0.0)
        eligibility = EligibilityClasses(policy, goal, rows)
        partition = _divide_people(policy, goal, rows, eligibility)
    with doing("finding answers for the catalogue"):
        catalogue = Catalogue.build(partition, policy, goal, rows)
        _log_wide_regions(catalogue)
        return CatalogueGuarantee(policy, rows, eligibility, catalogue)


def _divide_people(
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    rows: TrainingLabels,
    eligibility: EligibilityClasses,
) -> Partition:
    """Divide people into groups that lose little and, unless the policy says "ncp", are pure."""
    with doing("dividing people into groups"):
        likely = None
        if policy.objective != "ncp":
            likely = partial_dependence(rows, goal)
        return partition_of(rows.population, policy, eligibility.of_rows, likely)


def _sealed_catalogue(
    sealed: BundleContent, rows: TrainingLabels, policy: PrivacyPolicy, goal: DesiredOutcome
) -> Catalogue:
    """Return the catalogue that was sealed."""
    population = rows.population
    catalogue = catalogue_from_arrays(sealed, population, policy, goal, rows)
    if catalogue is None:
        raise PolicyError(_NOTHING.format(policy.guarantee))
    if not isinstance(rows.requirement, AnyOutcome):
        # There are no rows on which probabilities could be compared with labels, but entries.
        by_probability = rows.predictions(catalogue.points).labels
        if not np.array_equal(rows.ask(catalogue.points), by_probability):
            raise ModelError(
                "the model's predict and predict_proba disagree on entries of the catalogue; give"
                " the model that it was sealed with"
            )
    return catalogue


def _log_wide_regions(catalogue: Catalogue) -> None:
    """Warn in the log if most regions have too many combinations for answers to be moved."""
    is_wide = catalogue.is_wide(catalogue.weakest)
    if 2 * is_wide.sum() > len(is_wide):
        _log.warning(
            "%d of %d regions have more than 10,000 combinations of values, and those of people"
            " inside are too many or would tell outcomes, so their answers are not moved towards"
            ' who asks: all private values change. Name the outcome instead of "opposite", or round'
            " quasi-identifiers to what others can know of a person",
            is_wide.sum(),
            len(is_wide),
        )
