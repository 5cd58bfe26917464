"""The reciprocal protector: a counterfactual is released with the region of the group that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.partition import Partition
from cfk_plugin.protection.base import Proposal, Task


@dataclass(slots=True)
class ReciprocalProtector:
    """Looks up the group of a counterfactual in a partition that was fixed beforehand.

    Whoever reruns it for every person of the population is left with a whole group, at least k people. It proves
    nothing about information loss, and does not ask the model: see `Certificate.k_consistent`.

    Parameters
    ----------
    partition : Partition
    name : str
        For the certificate.

    References
    ----------
    Kalnis, Ghinita, Mouratidis, Papadias: Preventing location-based identity inference in anonymous spatial queries.
    IEEE Transactions on Knowledge and Data Engineering 19 (12), 2007: reciprocity.
    """

    partition: Partition
    name: str = "reciprocal"

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return the region of each counterfactual's group; none where its side has too few people."""
        groups = np.full(len(task), -1) if task.groups is None else task.groups
        if task.progress is not None:
            task.progress(len(task), len(task))
        return [Proposal(None if g < 0 else self.partition.regions[g]) for g in groups.tolist()]
