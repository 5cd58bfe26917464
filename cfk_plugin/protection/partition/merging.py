"""Merging groups that may not be released, each with the partner that loses least by it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cfk_plugin.data.decision import Mask
from cfk_plugin.protection.axes import NOMINAL, TREE, AxisArrays, Codes, Floats, Ints


def merge_unfit(
    axes: AxisArrays,
    codes: Codes,
    classes_of_group: list[Ints],
    people: Ints,
    eligibility: Ints,
    is_unfit: Callable[[Ints], bool],
) -> tuple[Ints, Ints]:
    """Merge groups of one eligibility class until no group is unfit, or no partner is left.

    Parameters
    ----------
    axes
        What the quasi-identifiers cost.
    codes : shape (n_classes, n_axes)
        The equivalence classes.
    classes_of_group
        The classes that each of n groups has people of.
    people, eligibility : shape (n,)
        The number of people and the eligibility class of each group.
    is_unfit
        Returns whether some groups, given by their numbers, together may not be released.

    Returns
    -------
    new_number : shape (n,)
        The number of the merged group that each group is part of; -1 if that one is still unfit.
    eligibility_of_new : shape (n_new,)
        The eligibility class of each merged group that is fit.
    """
    hulls = GroupHulls(axes, codes, classes_of_group, people)
    hulls.merge_while(is_unfit, eligibility)
    merged_groups, index = np.unique(hulls.merged_into, return_inverse=True)
    is_fit = np.array(
        [not is_unfit(np.flatnonzero(hulls.merged_into == group)) for group in merged_groups],
        dtype=bool,
    )
    new_number = np.where(is_fit, np.cumsum(is_fit) - 1, -1)
    return new_number[index], eligibility[merged_groups][is_fit]


class GroupHulls:
    """Groups of equivalence classes as hulls that grow when groups are merged.

    A merged group has the number of one of its parts; the other parts are not alive any more.
    """

    def __init__(
        self, axes: AxisArrays, codes: Codes, classes_of_group: list[Ints], people: Ints
    ) -> None:
        n_groups = len(classes_of_group)
        self._axes = axes
        # of each axis, which codes a group's classes have; shape (n_groups, n_codes)
        self._has_code: list[Mask] = [
            np.zeros((n_groups, int(n_codes)), dtype=bool) for n_codes in np.diff(axes.offset)
        ]
        for group, members in enumerate(classes_of_group):
            for j, has_code in enumerate(self._has_code):
                has_code[group, codes[members, j]] = True
        self.people = people.copy()
        self.merged_into = np.arange(n_groups)  # the group that each is now part of
        self._loss = np.zeros(n_groups)
        for j, has_code in enumerate(self._has_code):
            self._loss += self._axis_losses(j, has_code)

    def merge_while(self, is_unfit: Callable[[Ints], bool], eligibility: Ints) -> None:
        """Merge each unfit group with its cheapest partners of the same eligibility class."""
        for group in range(len(self.merged_into)):
            parts = np.array([group])
            while self.merged_into[group] == group and is_unfit(parts):
                partner = self._partner(group, eligibility)
                if partner is None:
                    break
                self._merge(group, partner)
                parts = np.flatnonzero(self.merged_into == group)

    def _partner(self, group: int, eligibility: Ints) -> int | None:
        """Return the group whose merger with this one adds least loss; None if none is left."""
        is_alive = self.merged_into == np.arange(len(self.merged_into))
        partners = np.flatnonzero(is_alive & (eligibility == eligibility[group]))
        partners = partners[partners != group]
        if not len(partners):
            return None
        joint_loss = np.zeros(len(partners))
        for j, has_code in enumerate(self._has_code):
            joint_loss += self._axis_losses(j, has_code[partners] | has_code[group])
        size = self.people[group]
        partner_people = self.people[partners]
        rise = joint_loss * (partner_people + size) - self._loss[partners] * partner_people
        return int(partners[np.argmin(np.round(rise - self._loss[group] * size, 12))])

    def _merge(self, group: int, partner: int) -> None:
        loss = np.zeros(1)
        for j, has_code in enumerate(self._has_code):
            has_code[group] |= has_code[partner]
            loss += self._axis_losses(j, has_code[[group]])
        self.people[group] += self.people[partner]
        self.merged_into[self.merged_into == partner] = group
        self._loss[group] = loss[0]

    def _axis_losses(self, j: int, has_code: Mask) -> Floats:
        """Return what hulls lose on axis j, by the codes inside; shape (n_hulls,)."""
        axes = self._axes
        weight = float(axes.weight[j])
        missing = int(axes.missing[j])
        if axes.kind[j] == NOMINAL:
            n_values = has_code.sum(axis=1)
            return np.where(n_values > 1, weight * n_values / int(axes.card[j]), 0.0)
        present = has_code if missing < 0 else np.delete(has_code, missing, axis=1)
        low = present.argmax(axis=1)
        high = present.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
        if axes.kind[j] == TREE:
            return self._node_losses(j, low, high)
        position = axes.position[axes.offset[j] : axes.offset[j + 1]]
        has_number = present.any(axis=1)
        width = np.minimum(position[high] - position[low], weight)
        losses = np.where(has_number, width, 0.0)
        if missing < 0:
            return losses
        return np.where(has_code[:, missing] & has_number, weight, losses)

    def _node_losses(self, j: int, low: Ints, high: Ints) -> Floats:
        """Return the cost of the lowest node that covers each range of leaves; shape (n_hulls,)."""
        axes = self._axes
        nodes = slice(int(axes.node_offset[j]), int(axes.node_offset[j + 1]))
        first_leaf = axes.node_low[nodes]
        last_leaf = axes.node_high[nodes]
        # (n_hulls, n_nodes)
        is_covering = (first_leaf <= low[:, None]) & (last_leaf >= high[:, None])
        n_leaves = np.where(is_covering, last_leaf - first_leaf + 1, np.iinfo(np.int64).max)
        cost = float(axes.weight[j]) * n_leaves.min(axis=1) / int(axes.card[j])
        return np.where(low == high, 0.0, cost)
