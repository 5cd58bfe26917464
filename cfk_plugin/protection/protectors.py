"""The protectors of the lookup guarantee: exact search, GRASP and Mondrian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from cfk_plugin.data.codes import Mask
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.protection.boxes import Cells, Goal, regions_of
from cfk_plugin.protection.boxes import Proposal as BoxProposal
from cfk_plugin.protection.exact import ExactLimits, exact_regions
from cfk_plugin.protection.grasp import GraspSettings, grasp_regions
from cfk_plugin.protection.mondrian import mondrian_regions

_FORBIDDEN_NODES = 10_000

_cells_of_population: WeakKeyDictionary[Population, Cells] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactProtector:
    """Branch and bound over regions, with a loop that excludes undesired combinations.

    For the objective "ncp" it returns, of all regions with the counterfactual and k people, the one
    of least NCP. For "pureness" it returns the one of least NCP among those of pureness 1. If no
    region is pure, it returns the best region that it found, without a proof. The results are
    deterministic. So it does not protect against an attacker who runs it again for other people, or
    asks the model about each candidate.

    Parameters
    ----------
    node_limit : int
        The number of search steps for a counterfactual. After that the best region so far is
        returned, with a proven gap.
    """

    node_limit: int = 50_000

    name = "exact"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the best region for each counterfactual."""
        cells = _cells_of(request.population)
        limits = ExactLimits(
            nodes=self.node_limit, forbidden_nodes=min(self.node_limit, _FORBIDDEN_NODES)
        )
        proposals = exact_regions(
            cells,
            request.rows,
            _goal_of(request.policy),
            request.has_outcome,
            limits=limits,
            random_state=request.random_state,
            progress=request.progress,
        )
        return _released(cells, proposals)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraspProtector(GraspSettings):
    """CF-K as in the paper: GRASP of Goethals, Sörensen and Martens (2023), for comparison.

    It protects against an attacker who links a region to people by quasi-identifiers. The region
    need not be optimal. The parameters are those of `cfk_plugin.protection.grasp.GraspSettings`.
    """

    name = "grasp"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the region that GRASP constructs for each counterfactual."""
        cells = _cells_of(request.population)
        every_row = request.population.coded_rows

        def neighbors_of(i: int) -> Mask:
            return request.has_outcome(np.full(len(every_row), i), every_row)

        proposals = grasp_regions(
            cells,
            request.rows,
            _goal_of(request.policy),
            request.has_outcome,
            neighbors_of,
            settings=self,
            random_state=request.random_state,
            progress=request.progress,
        )
        return _released(cells, proposals)


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianProtector:
    """Mondrian: generalises a counterfactual to its part of a partition of the table.

    The table is split at weighted medians of the widest quasi-identifier until no part can be split
    into two parts of k people. Two regions are either equal or disjoint, so their intersection
    discloses nothing, but the information loss is much larger.

    Parameters
    ----------
    normalise : bool
        Whether to compare the widths of quasi-identifiers as shares of their range. With False,
        widths of numbers are compared with counts of categories, as in the implementations with
        which the paper compares; the information loss is then much larger still.
    """

    normalise: bool = True

    name = "mondrian"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the part of each counterfactual, extended to contain it if it is not a row."""
        cells = _cells_of(request.population)
        proposals = mondrian_regions(
            cells, request.rows, request.policy.k, normalise=self.normalise
        )
        return _released(cells, proposals)


def _goal_of(policy: PrivacyPolicy) -> Goal:
    """Return the goal of the search for regions under a policy."""
    max_ncp = np.inf if policy.max_ncp is None else policy.max_ncp
    return Goal(
        k=policy.k,
        objective=policy.objective,
        min_pureness=policy.min_pureness or 0.0,
        max_ncp=max_ncp,
    )


def _released(cells: Cells, proposals: Sequence[BoxProposal | None]) -> list[Proposal]:
    """Convert the proposals of a search to those of a protector."""
    answers = [Proposal(None)] * len(proposals)
    positions = [i for i, proposal in enumerate(proposals) if proposal is not None]
    boxes = [proposal for proposal in proposals if proposal is not None]
    if not boxes:
        return answers
    regions = regions_of(cells.codes, boxes)
    for place, (i, box) in enumerate(zip(positions, boxes, strict=True)):
        answers[i] = Proposal(regions.region(place), optimal=box.is_optimal, gap=box.gap)
    return answers


def _cells_of(population: Population) -> Cells:
    """Return the cells of a population; they are counted once and remembered."""
    cells = _cells_of_population.get(population)
    if cells is None:
        cells = Cells.of(population.row_codes, population.coded_rows, population.person_of_row)
        _cells_of_population[population] = cells
    return cells
