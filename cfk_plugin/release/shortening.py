"""Choosing the short part of a catalogue, by the refused people of the table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.data.constraints import Constraints, rules_of
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.population import Population
from cfk_plugin.errors import PolicyError
from cfk_plugin.protection.answers.points import TIE
from cfk_plugin.protection.answers.search import distances_if_true
from cfk_plugin.protection.axes import Floats
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.short_part import (
    greedy_order,
    mean_cost,
    share_reached,
    short_part,
)
from cfk_plugin.release.publication import numbered
from cfk_plugin.release.results import GeneralizedCounterfactual
from cfk_plugin.release.short_catalogue import CatalogueRule, ShortCatalogue

if TYPE_CHECKING:
    from cfk_plugin.release.pipeline import Pipeline

MOST_PEOPLE = 1_000
"""Refused people for whom the short part is chosen; of more, so many are drawn."""

MOST_RULES = 4
"""Entries that a page and a report show as rules."""

_NOT_HERE = (
    "within= chooses entries by the refused people of the table, whose rows are not here; publish"
    " where the rows are, or the whole catalogue without within="
)
_NOBODY = (
    "within= chooses entries by the refused people of the table, and no entry is true and permitted"
    " for any of them; publish the whole catalogue, without within="
)


def check_rows_are_here(population: Population) -> None:
    """Raise a `PolicyError` without rows: it is not known which people are refused."""
    population.require_rows(PolicyError(_NOT_HERE))


def shortened(
    pipeline: Pipeline,
    catalogue: Catalogue,
    entries: Mapping[int, GeneralizedCounterfactual],
    within: float,
) -> tuple[list[GeneralizedCounterfactual], ShortCatalogue]:
    """Return the short part of the entries that may be published, and what is known of it.

    Parameters
    ----------
    entries : mapping of int to GeneralizedCounterfactual
        All explanations that may be published, in the order of publication, by the positions of
        their entries in the catalogue.
    within : float
        Share by which the mean distance of refused people may grow.

    Raises
    ------
    PolicyError
        If no entry is true and permitted for a refused person.
    """
    positions = np.array(list(entries), dtype=np.int64)
    costs = _costs_for_refused_people(pipeline, catalogue, positions)
    if not np.isfinite(costs).any():
        raise PolicyError(_NOBODY)
    chosen = short_part(costs, within)
    costs_of_part = costs[:, chosen]
    rule_places = list(islice(greedy_order(costs_of_part), MOST_RULES))
    short_catalogue = ShortCatalogue(
        entries=len(chosen),
        of=len(entries),
        within=float(within),
        relative_cost=_relative(mean_cost(costs_of_part), mean_cost(costs)),
        reached=_rounded_down(share_reached(costs)),
        reached_by_rules=_rounded_down(share_reached(costs_of_part[:, rule_places])),
        rules=tuple(_rule(place, costs_of_part[:, [place]]) for place in rule_places),
    )
    return numbered([entries[i] for i in positions[chosen].tolist()]), short_catalogue


def _costs_for_refused_people(pipeline: Pipeline, catalogue: Catalogue, positions: Rows) -> Floats:
    """Return the distances of refused people to some entries; see `distances_if_true`.

    A person counts with one row. Of more than `MOST_PEOPLE` refused people some are drawn. The
    population's key decides on both, whatever the order of the table. Under the goal "opposite"
    every person counts as refused, and entries with the person's own outcome are no answers. The
    result has the shape (n_people, n_entries).
    """
    population = pipeline.population
    rows = np.arange(population.n_rows)
    is_met = pipeline.goal.is_met_already(len(rows), lambda: pipeline.rows.labels(rows))
    rows = rows[~is_met]
    if not len(rows):
        return np.empty((0, len(positions)))
    rows = rows[np.argsort(population.keyed_numbers(rows), kind="stable")]
    first_of_person = np.sort(population.first_rows(rows))
    rows = rows[first_of_person[:MOST_PEOPLE]]
    queries = encode(population.rows(rows), population.encoder)
    constraints = Constraints(queries, rules_of(population.encoder))
    labels = pipeline.rows.labels(rows)
    open_to = pipeline.guarantee.eligibility.open_to(pipeline.goal, None, labels, len(rows))
    return distances_if_true(catalogue, constraints, open_to, positions)


def _rule(place: int, costs: Floats) -> CatalogueRule:
    """Return what is known of one entry; its costs have the shape (n_people, 1)."""
    return CatalogueRule(
        query=place,
        reached=_rounded_down(share_reached(costs)),
        distance=round(mean_cost(costs), 2),
    )


def _relative(cost: float, cost_of_all: float) -> float:
    """Return a ratio of mean costs; 1 where both are 0."""
    if cost_of_all == 0:
        return 1.0
    return round(cost / cost_of_all, 2)


def _rounded_down(share: float) -> float:
    """Round to two decimals; 1 remains for a share that is 1."""
    return floor(100 * share + TIE) / 100
