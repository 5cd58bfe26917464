"""The protectors of the lookup guarantee: they answer a request with the searches of this room."""

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
    """Branch and bound over regions, and a loop that keeps undesired combinations out.

    Of all regions with the counterfactual and k people it returns the one of least NCP (objective
    "ncp"), or of least NCP among those of pureness 1 (objective "pureness"). If no region is pure,
    it returns the best trade-off that it came across, without a proof. Its results are
    deterministic, so it does not protect against an attacker who runs it again for other people, or
    who asks the model about each candidate.

    Parameters
    ----------
    node_limit : int
        Steps of the search for a counterfactual. Then the best region so far is returned, with a
        proven gap.
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
    """CF-K as published: GRASP of Goethals, Sörensen and Martens (2023), Algorithm 1, for
    comparison.

    It protects against linking a region to people by quasi-identifiers. Nothing about its result is
    proven. Its parameters are those of `cfk_plugin.protection.grasp.GraspSettings`.
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
    """Generalise a counterfactual to the part of a Mondrian partition that it falls into.

    The table is split at weighted medians of the widest quasi-identifier until no part can be split
    into two of k people. Regions never overlap partly, so intersecting them reveals nothing, but
    information loss is much larger.

    Parameters
    ----------
    normalise : bool
        Compare the widths of quasi-identifiers as shares of their range. False compares widths of
        numbers with counts of categories, as the implementations do that the paper compares with;
        its results are much worse.
    """

    normalise: bool = True

    name = "mondrian"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the part of each counterfactual, stretched to contain it if it is not a row."""
        cells = _cells_of(request.population)
        proposals = mondrian_regions(
            cells, request.rows, request.policy.k, normalise=self.normalise
        )
        return _released(cells, proposals)


def _goal_of(policy: PrivacyPolicy) -> Goal:
    """Return what a policy chooses regions by."""
    max_ncp = np.inf if policy.max_ncp is None else policy.max_ncp
    return Goal(
        k=policy.k,
        objective=policy.objective,
        min_pureness=policy.min_pureness or 0.0,
        max_ncp=max_ncp,
    )


def _released(cells: Cells, proposals: Sequence[BoxProposal | None]) -> list[Proposal]:
    """Return proposals of a search as a protector returns them."""
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
    """Return the cells of a population, which are counted once."""
    cells = _cells_of_population.get(population)
    if cells is None:
        cells = Cells.of(population.row_codes, population.coded_rows, population.person_of_row)
        _cells_of_population[population] = cells
    return cells
