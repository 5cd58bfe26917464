"""The sealed form of a catalogue: arrays of numbers from which explanations are made without rows.

A process that has the sealed form can answer queries, check that its model is the one that the
catalogue was sealed with, and recount what certificates state of regions. The form has the regions
of groups with entries and how many people are in each, the private values of entries, and where in
a region the weakest entry has its outcome. It has no training row, and of a person only what the
catalogue releases anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.combinations import Grid
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.eligibility import OUTCOMES
from cfk_plugin.data.margin import SEALED, sealed_requirement
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import natural
from cfk_plugin.data.sealing import BundleContent
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import HostOnly, ModelError, PolicyError
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.model_calls import calls_of
from cfk_plugin.protection.catalogue.private_values import EncodedValues
from cfk_plugin.protection.catalogue.required_combinations import MovableRegion
from cfk_plugin.protection.partition.partition import Partition
from cfk_plugin.protection.regions import ends_of_region, region_of, side_by_side

_PREFIX = "catalogue."
PEOPLE = _PREFIX + "people"
"""Name of the array with the number of people in each region."""


@dataclass(frozen=True, eq=False, repr=False)
class _SealedArrays(HostOnly):
    """The arrays of a sealed catalogue, by the names that they have in the bundle.

    Regions are numbered by their position in `Catalogue.movable_regions`, and eligibility classes
    from 0.
    """

    side: Ints  # shape (n_regions,); eligibility class of each region
    people: Ints  # shape (n_regions,); number of people inside
    # Codes of each quasi-identifier whose smallest region is the region, as columns next to each
    # other: shape (n_ends, n_quasi_identifiers), and the region of each row, shape (n_ends,).
    ends: Codes
    ends_of: Ints
    # One bit for each combination that the model is asked about: is it required? Region by region,
    # in the order of `_order_of_bits`; filled up to whole bytes.
    held: NDArray[np.uint8]
    group: Ints  # shape (n_entries,); region of each entry
    codes: Codes  # shape (n_entries, n_private)
    pure: Floats  # shape (n_entries,); share of the region with the outcome
    outcome: Mask  # shape (n_entries,); whether the entry has its outcome at `Catalogue.points`
    # The sets of `combinations_of_people`: codes of each quasi-identifier as columns next to each
    # other, shape (n, n_quasi_identifiers), and the region and the set of each row, shape (n, 2).
    # Left out of the bundle if there are none.
    inside: Codes | None = None
    inside_of: Ints | None = None

    def named(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names in the bundle."""
        arrays = {column.name: getattr(self, column.name) for column in fields(self)}
        return {_PREFIX + name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def of(cls, named: Mapping[str, NDArray[Any]]) -> _SealedArrays | None:
        """Return the arrays of a bundle; None if it has no catalogue."""
        names = {column.name for column in fields(cls)}
        arrays = {name: named[_PREFIX + name] for name in names if _PREFIX + name in named}
        if not names - {"inside", "inside_of"} <= arrays.keys():
            return None
        return cls(**arrays)


def catalogue_to_arrays(
    catalogue: Catalogue,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any], dict[str, Domain]]:
    """Return the sealed form of a catalogue; it has no row.

    Returns
    -------
    arrays : dict
        Numbers, by their names in the bundle.
    facts : dict
        What the outcome of an entry must be: the requirement and, for the goal "opposite", the
        outcome of each eligibility class.
    domains : dict
        Domains of the private attributes, with no more values than the entries have.
    """
    domains = _sealed_domains(catalogue)
    if catalogue.sealed is not None:  # opened and sealed again
        return dict(catalogue.sealed.arrays), dict(catalogue.sealed.facts), domains
    arrays = _arrays_of(catalogue, domains)
    return arrays.named(), _facts_of(catalogue), domains


def _sealed_domains(catalogue: Catalogue) -> dict[str, Domain]:
    """Return the domains of the entries' private values, with the population's missing values.

    Whether a value is missing for somebody is a fact about the column, which queries need as well.
    """
    domains = {}
    for name, domain in catalogue.domains.items():
        of_population = catalogue.partition.population.domains[name]
        domains[name] = replace(
            domain,
            has_missing=of_population.has_missing,
            missing=of_population.missing,
            is_open=not domain.attribute.declared_values,
        )
    return domains


def _arrays_of(catalogue: Catalogue, domains: Mapping[str, Domain]) -> _SealedArrays:
    """Return the numbers of a catalogue; private values are encoded by the given domains."""
    partition = catalogue.partition
    population = partition.population
    groups = catalogue.group_of_region
    no_combinations = catalogue.required_combinations.no_combinations
    regions = [partition.regions[group] for group in groups.tolist()]
    _, eligibility_class = np.unique(partition.eligibility_of_group[groups], return_inverse=True)
    ends, ends_of = side_by_side(
        [ends_of_region(population, region) for region in regions], no_combinations
    )
    codes = [domain.encode(catalogue.private[name])[0] for name, domain in domains.items()]
    arrays = _SealedArrays(
        side=eligibility_class.astype(np.int64),
        people=np.array([population.count(region) for region in regions], dtype=np.int64),
        ends=ends,
        ends_of=ends_of,
        held=np.packbits(_required_bits(catalogue)),
        group=catalogue.region_of_entry,
        codes=np.column_stack([*codes, np.empty((len(catalogue), 0), dtype=np.int32)]),
        pure=catalogue.pure,
        outcome=_has_own_outcome(catalogue),
    )
    sets: list[tuple[Codes, ...]] = []
    region_of_set: list[int] = []
    for region, group in enumerate(groups.tolist()):
        for grid in catalogue.inside.get(group, ()):
            sets.append(grid.codes)
            region_of_set.append(region)
    if len(sets) == 0:
        return arrays
    inside, set_of_row = side_by_side(sets, no_combinations)
    inside_of = np.column_stack([np.array(region_of_set)[set_of_row], set_of_row])
    return replace(arrays, inside=inside, inside_of=inside_of)


def _facts_of(catalogue: Catalogue) -> dict[str, Any]:
    """Return what the outcome of an entry must be, in a form that JSON can hold."""
    partition = catalogue.partition
    facts: dict[str, Any] = {SEALED: sealed_requirement(catalogue.model.requirement)}
    if catalogue.goal.has_class_per_label:
        eligibility_of_entry = partition.eligibility_of_group[catalogue.group].tolist()
        outcome_of_class = dict(zip(eligibility_of_entry, catalogue.labels, strict=True))
        classes = np.unique(partition.eligibility_of_group[catalogue.group_of_region])
        facts[OUTCOMES] = [natural(outcome_of_class[number]) for number in classes.tolist()]
    return facts


def _order_of_bits(regions: Sequence[MovableRegion]) -> Ints:
    """Return regions in the order of their bits: those with a sample are last."""
    is_large = np.array([region.is_large for region in regions], dtype=bool)
    return np.argsort(is_large, kind="stable")


def _required_bits(catalogue: Catalogue) -> Mask:
    """Ask the model which combinations are required, region by region in the order of bits."""
    required = catalogue.required_combinations
    order = _order_of_bits(catalogue.movable_regions)
    bits = [np.empty(0, dtype=bool)]
    for call in calls_of(required.n_asked[order]):
        bits.append(required.ask(order[call]))
    return np.concatenate(bits)


def _has_own_outcome(catalogue: Catalogue) -> Mask:
    """Return a mask of shape (n_entries,): True where an entry has its outcome at its point.

    It may not have it there, as an entry need not have the outcome everywhere in its region.
    """
    points = catalogue.points
    return catalogue.have_outcome(points.take, np.arange(len(catalogue)))


def catalogue_from_arrays(
    sealed: BundleContent,
    population: Population,
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    model: TrainingLabels,
) -> Catalogue | None:
    """Return the catalogue that was sealed, without rows; None if none was sealed.

    Raises
    ------
    PolicyError
        If only one of the goal and the sealed catalogue is for the goal "opposite".
    ModelError
        If an entry's outcome at its point is not the one that was sealed.
    """
    arrays = _SealedArrays.of(sealed.arrays)
    if arrays is None:
        return None
    outcomes = sealed.facts.get(OUTCOMES)
    if goal.has_class_per_label != (outcomes is not None):
        raise PolicyError(
            'a catalogue for the goal "opposite" answers that alone, and no other does; seal one'
            " for yours"
        )
    n_entries = len(arrays.group)
    no_rows = np.empty(0, dtype=np.int64)
    regions = tuple(
        region_of(population, arrays.ends[arrays.ends_of == region])
        for region in range(len(arrays.side))
    )
    catalogue = Catalogue(
        partition=Partition(population, regions, no_rows, arrays.side, {}),
        rows=no_rows,
        group=arrays.group,
        labels=_sealed_labels(arrays, outcomes),
        private=EncodedValues.of_codes(arrays.codes).frame(population),
        consistent=np.full(n_entries, policy.k),  # at least so many
        pure=arrays.pure,
        goal=goal,
        model=model,
        inside=_sealed_sets(arrays),
        sealed=sealed,
    )
    required = catalogue.required_combinations
    order = _order_of_bits(catalogue.movable_regions)
    is_required = np.unpackbits(arrays.held, count=required.n_asked.sum()).astype(bool)
    required.remember(order, is_required)
    if not np.array_equal(_has_own_outcome(catalogue), arrays.outcome):
        raise ModelError(
            "the model, or the outcome that is desired, is not the one that the catalogue was"
            " sealed with"
        )
    return catalogue


def _sealed_labels(arrays: _SealedArrays, outcomes: Sequence[Any] | None) -> NDArray[Any]:
    """Return the label of each entry, that of its eligibility class; shape (n_entries,).

    None for every entry if outcomes were not sealed, as they are all the desired one.
    """
    labels = np.full(len(arrays.group), None, dtype=object)
    if outcomes is not None:
        eligibility_of_entry = arrays.side[arrays.group].tolist()
        labels[:] = [outcomes[number] for number in eligibility_of_entry]
    return labels


def _sealed_sets(arrays: _SealedArrays) -> dict[int, list[Grid]]:
    """Return the sets of combinations of people in large regions, by region."""
    sets: dict[int, list[Grid]] = {}
    if arrays.inside is None or arrays.inside_of is None or len(arrays.inside) == 0:
        return sets
    region_of_row, set_of_row = arrays.inside_of.T
    first_rows = np.flatnonzero(np.diff(set_of_row)) + 1
    for rows in np.split(np.arange(len(arrays.inside)), first_rows):
        grid = Grid(tuple(np.unique(column) for column in arrays.inside[rows].T))
        sets.setdefault(int(region_of_row[rows[0]]), []).append(grid)
    return sets
