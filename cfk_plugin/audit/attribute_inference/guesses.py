"""One guess per person and private attribute, from all answers that fit the person."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attribute_inference.answered import Answered
from cfk_plugin.audit.attribute_inference.register import Mask, Register, Rows, near
from cfk_plugin.data.region import Part

_DIGITS = 9  # votes are sums of fractions: equal ones may differ in the last bits


class Guesses(NamedTuple):
    """What is guessed of an attribute, cell by cell.

    Attributes
    ----------
    parts : tuple of Interval or frozenset
        The distinct guesses, in the order in which answers said them first. Host side only.
    guess : int array, shape (n_cells,)
        Which of them; -1 where no answer says anything.
    place : int array, shape (n_cells,)
        Place of the answer that the guess rests on; -1 where there is none.
    right : bool array, shape (n_guesses, n_values)
        Whether a guess is right about somebody who has a value.
    """

    parts: tuple[Part, ...]
    guess: Rows
    place: Rows
    right: Mask

    def of(self, cells: Rows) -> tuple[Rows, Rows]:
        """Return which of people in these cells something is guessed of, and the places that the guesses rest on."""
        about = np.flatnonzero(self.guess[cells] >= 0)
        return about, self.place[cells[about]]

    def hits(self, cells: Rows, codes: NDArray[np.int32]) -> Mask:
        """Say of people whom something is guessed of whether the guess is right."""
        return self.right[self.guess[cells], codes]


def guesses(answered: Answered, register: Register, name: str, tolerance: float) -> Guesses:
    """Guess one attribute of everybody whom an answer fits.

    An answer that fits m people of the table is a vote of 1 / m for what it says: it is the value of one of them. The
    value with most votes is guessed; of equal ones the one that most distinct answers say, whomever they fit; of those
    the one that an answer which fits said first.

    Parameters
    ----------
    answered : Answered
    register : Register
    name : str
        Private attribute.
    tolerance : float
        See `near`.

    Returns
    -------
    Guesses
    """
    found: dict[Part, int] = {}
    votes = [
        (first, place, found.setdefault(said[name], len(found)))
        for first, (said, place) in enumerate(zip(answered.distinct, answered.place_of.tolist(), strict=True))
        if name in said
    ]
    domain = register.domain(name)
    right = np.array([near(domain, part, tolerance) for part in found], dtype=bool).reshape(len(found), domain.size)
    guess, place = np.full((2, len(register.cells)), -1, dtype=np.int64)
    if votes:
        winners = _winners(votes, answered)
        guess[winners["cell"]], place[winners["cell"]] = winners["guess"], winners["place"]
    return Guesses(tuple(found), guess, place, right)


def _winners(votes: list[tuple[int, int, int]], answered: Answered) -> pd.DataFrame:
    """Return per cell the guess with most votes, and the place of its weightiest vote."""
    by = {"cell": True, "all": False, "often": False, "first": True, "vote": False, "place": True}  # ascending or not
    each = pd.DataFrame(votes, columns=["first", "place", "guess"])
    each["vote"] = 1.0 / np.maximum(answered.people[each["place"]], 1)
    said = each.groupby(["place", "guess"]).agg(vote=("vote", "sum"), first=("first", "min")).reset_index()
    said["often"] = said["guess"].map(each["guess"].value_counts())
    cells = [answered.cells[place] for place in said["place"]]
    there = said.loc[said.index.repeat([len(own) for own in cells])].assign(cell=np.concatenate(cells))
    of_guess = there.groupby(["cell", "guess"])
    there = there.assign(all=of_guess["vote"].transform("sum").round(_DIGITS), first=of_guess["first"].transform("min"))
    return there.sort_values(list(by), ascending=list(by.values())).drop_duplicates("cell")
