"""Four sets of people of one population: one is the owner's, three are the attacker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cfk_plugin.audit.attacked.sample import Rows, Sample
from cfk_plugin.errors import InputError

SETS = 4
LEAST = 10  # people of one half: fewer cannot be attacked


class Halves(NamedTuple):
    """One set, as positions in the sample: who is trained on, and who is not."""

    members: Rows
    others: Rows


@dataclass(frozen=True, slots=True)
class Sets:
    """Who belongs to whom; nobody belongs to two.

    Attributes
    ----------
    owners : Halves
    attackers : tuple of Halves
        Three sets. The attacker knows everything about them and trains shadow models on their first halves.
    """

    owners: Halves
    attackers: tuple[Halves, ...]

    @property
    def own(self) -> Rows:
        """Everybody whom the attacker knows."""
        return np.concatenate([np.concatenate(halves) for halves in self.attackers])


def draw_sets(sample: Sample, seed: int) -> Sets:
    """Split a sample at random into four sets of equal size, and each into two halves.

    Parameters
    ----------
    sample : Sample
        Up to seven people are left over.
    seed : int

    Raises
    ------
    InputError
        If a half would have fewer than 10 people.
    """
    half = len(sample) // (2 * SETS)
    if half < LEAST:
        raise InputError(
            f"{len(sample)} people make halves of {half}, and these attacks need {LEAST}; "
            f"give at least {2 * SETS * LEAST} people"
        )
    order = np.random.default_rng([seed, 0]).permutation(len(sample)).astype(np.int64)
    parts = [order[at * half : (at + 1) * half] for at in range(2 * SETS)]
    owners, *attackers = (Halves(parts[at], parts[at + 1]) for at in range(0, 2 * SETS, 2))
    return Sets(owners, tuple(attackers))
