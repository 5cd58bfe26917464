"""The effective k: how many people get the same region when the protection is rerun for everyone.

An adversary who has algorithm and model can rerun it for everyone inside a released region, with
their own quasi-identifiers and the released private values. People who get another region cannot be
meant. Where groups are fixed beforehand, nobody gets another region, and no rerun is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfk_plugin.data.combinations import rows_for_cells
from cfk_plugin.data.domain import Codes, Rows
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.release.call import Candidates
from cfk_plugin.release.proposals import Proposer
from cfk_plugin.release.verification import Certified, Verdict


def with_k_effective(
    candidates: Candidates, verdicts: Sequence[Verdict], proposer: Proposer, rows: TrainingLabels
) -> list[Verdict]:
    """Add to certified verdicts the number of people who are left after a rerun."""
    population = proposer.population
    certified = {i: verdict for i, verdict in enumerate(verdicts) if isinstance(verdict, Certified)}
    if not certified:
        return list(verdicts)
    # An equivalence class is protected once for each region that it is inside of.
    inside = {
        i: np.flatnonzero(population.cells_inside(verdict.region))
        for i, verdict in certified.items()
    }
    candidate = np.repeat([*inside], [len(classes) for classes in inside.values()])
    equivalence_class = np.concatenate([*inside.values()])
    everyone = _in_their_place(candidates, candidate, population.cells[equivalence_class], rows)
    proposals = proposer.propose(everyone, proposer.policy).proposals
    result = list(verdicts)
    for i, verdict in certified.items():
        left = [
            equivalence_class[at]
            for at in np.flatnonzero(candidate == i).tolist()
            if (proposal := proposals[at]) is not None and proposal.region == verdict.region
        ]
        members = population.members(verdict.region)
        is_left = np.isin(population.cell_of(members), np.array(left, dtype=np.int64))
        result[i] = verdict.with_counts(k_effective=population.people(members[is_left]))
    return result


def _in_their_place(
    candidates: Candidates, candidate: Rows, cells: Codes, rows: TrainingLabels
) -> Candidates:
    """Return the candidates with other quasi-identifiers: ``cells[i]`` in ``candidate[i]``.

    `candidate` has shape (n,), and `cells` has shape (n, n_quasi_identifiers).
    """
    encoder = rows.population.encoder
    frame = rows_for_cells(encoder, candidates.points.frame, candidate, cells)
    points = encode(frame, encoder)
    judge = candidates.judge.take(candidate)
    return Candidates(
        position=candidates.position[candidate],
        points=points,
        query=candidates.query[candidate],
        goal=candidates.goal,
        labels=candidates.labels[candidate],
        factual_labels=None,
        combination_outcomes=CombinationOutcomes(judge, rows, points.frame),
        eligibility=candidates.eligibility[candidate],
    )
