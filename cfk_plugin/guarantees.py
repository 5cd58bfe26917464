"""What a policy's guarantee stands on: who counts, the fixed partition, and the catalogue; bound once, at fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.catalogue import Catalogue
from cfk_plugin.errors import PolicyError
from cfk_plugin.goal import Goal
from cfk_plugin.oracle import RowOracle
from cfk_plugin.outlook import desired_shares
from cfk_plugin.partition import Partition
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection.base import Protector
from cfk_plugin.protection.partitioning import partition_of
from cfk_plugin.protection.reciprocal import ReciprocalProtector
from cfk_plugin.protection.sealing import coarser, partition_from_arrays


class Sides:
    """Which rows may be in one group, and to which of those sides a counterfactual belongs.

    Where everybody counts there is one side. Where only eligible rows count, those with a desired prediction are on a
    side; with the goal "opposite" any outcome may be desired, so each predicted outcome is a side.
    """

    def __init__(self, policy: PrivacyPolicy, goal: Goal, rows: RowOracle) -> None:
        n = rows.population.n_rows
        self._of_label: dict[object, int] | None = None
        self.of_rows = np.zeros(n, dtype=np.int64)
        if not policy.counts_eligible or rows.population.is_sealed:  # who is on which side was sealed
            return
        labels = rows.labels(np.arange(n))
        if not goal.is_opposite:
            self.of_rows = np.where(goal.met(labels), 0, -1).astype(np.int64)
            return
        self._of_label = {label: side for side, label in enumerate(sorted(set(labels.tolist()), key=str))}
        self.of_rows = self.of(labels)

    def of(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the side of counterfactuals from the model's labels there; -1 for a label that no row has."""
        if self._of_label is None:
            return np.zeros(len(labels), dtype=np.int64)
        return np.array([self._of_label.get(label, -1) for label in labels.tolist()], dtype=np.int64)

    def open_to(self, own: NDArray[Any] | None, factual: NDArray[Any] | None, n: int) -> NDArray[np.bool_]:
        """Say which sides answer each of n queries: those that do not have the factual's label, or the own one."""
        count = 1 if self._of_label is None else len(self._of_label)
        if self._of_label is None:
            return np.ones((n, 1), dtype=bool)
        if factual is not None:
            return np.asarray(self.of(factual)[:, None] != np.arange(count))
        if own is None:
            raise PolicyError('desired="opposite" needs the factuals; give them, or name the outcome')
        return np.asarray(self.of(own)[:, None] == np.arange(count))


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """The fixed structures behind a guarantee.

    Attributes
    ----------
    sides : Sides
    partition : Partition, optional
        None for a nominal guarantee.
    catalogue : Catalogue, optional
        For the guarantee of that name.
    """

    sides: Sides
    partition: Partition | None = None
    catalogue: Catalogue | None = None

    @classmethod
    def prepare(cls, policy: PrivacyPolicy, goal: Goal, rows: RowOracle) -> Ground:
        """Build what the policy's guarantee needs; nothing of it depends on a query."""
        sides = Sides(policy, goal, rows)
        if policy.guarantee == "nominal":
            return cls(sides)
        if rows.population.is_sealed:
            return cls(sides, _sealed(rows.population, policy))
        outlook = None if policy.objective == "ncp" else desired_shares(rows, goal)
        partition = partition_of(rows.population, policy, sides.of_rows, outlook)
        if policy.guarantee == "reciprocal":
            return cls(sides, partition)
        return cls(sides, partition, Catalogue.build(partition, policy, goal, rows))

    @property
    def protector(self) -> tuple[Protector, str] | None:
        """The protector that the guarantee prescribes, with its name; None where a method may be chosen."""
        if self.partition is None:
            return None
        name = "reciprocal" if self.catalogue is None else "catalogue"
        return ReciprocalProtector(self.partition, name), name


def _sealed(population: Population, policy: PrivacyPolicy) -> Partition:
    """Return the partition that was sealed with a population; for a larger k, unions of its groups.

    Raises
    ------
    PolicyError
        If there is none.
    """
    partition = partition_from_arrays(population, population.sealed.arrays)
    if partition is None or policy.guarantee == "catalogue":
        raise PolicyError(f'the bundle has nothing for guarantee="{policy.guarantee}"; seal a fitted KAnonymizer')
    floor = None if population.policy is None else population.policy.k
    return partition if policy.k == floor else coarser(partition, policy.k)
