"""Cutting people into the owner's table, others, and whom the attacker trains on: no one is in two of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfk_plugin.audit.attacked import Sample
from cfk_plugin.audit.attacked.sample import Rows
from cfk_plugin.errors import InputError

FEWEST = 2
"""People in each part below which there is nothing to measure."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Parts:
    """Three disjoint parts of one sample. Host side only.

    Attributes
    ----------
    table : Sample
        The owner's: who is a member.
    others : Sample
        Who is none, from the same population.
    pool : Sample
        The attacker's, whom shadow services are trained on.
    """

    table: Sample
    others: Sample
    pool: Sample

    @classmethod
    def cut(cls, sample: Sample, n_train: int | None = None, seed: int = 0) -> Parts:
        """Draw the parts.

        Parameters
        ----------
        sample : Sample
        n_train : int, optional
            People in the owner's table. Default: three tenths of the sample.
        seed : int

        Returns
        -------
        Parts
            Of the rest, up to a third and up to `n_train` are the others, and the pool is everybody else.

        Raises
        ------
        InputError
            If a part would have fewer than two people.
        """
        n = len(sample)
        size = n * 3 // 10 if n_train is None else n_train
        if not isinstance(size, int) or isinstance(size, bool) or size < FEWEST:
            raise InputError(f"n_train must be a whole number of at least {FEWEST}")
        apart = min(size, (n - size) // 3)
        if apart < FEWEST:
            raise InputError(
                f"{n} people leave nobody to compare with beside a table of {size}; take fewer or bring more"
            )
        order = np.random.default_rng([seed, 0]).permutation(n)
        return cls(*(sample.take(rows) for rows in np.split(order, [size, size + apart])))

    @property
    def shadow_size(self) -> int:
        """Return on how many people a shadow is trained: as many as the owner has, at most four fifths of the pool.

        Shadows must differ in whom they see. With a pool below 5/4 of the owner's table they are trained on fewer
        people than the owner, which makes attacks that use them weaker than they could be.
        """
        return max(min(len(self.table), len(self.pool) * 4 // 5), 1)

    def shadow_rows(self, shadow: int, seed: int) -> Rows:
        """Return the positions in the pool of the people of a shadow, drawn without replacement."""
        return np.random.default_rng([seed, 1, shadow]).choice(len(self.pool), self.shadow_size, replace=False)
