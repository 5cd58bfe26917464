"""Guessing an attribute with networks that learnt from members of shadow models, with and without a surrogate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked.sample import Rows
from cfk_plugin.audit.extraction.architecture import Network
from cfk_plugin.audit.extraction.failing import called
from cfk_plugin.audit.extraction.numbers import Floats, RowsAsNumbers
from cfk_plugin.audit.running.pieces import Found

KNOWING = ("explained", "alone", "nothing")
"""What is asked beside what is known anyway: a surrogate with counterfactuals, one without, none."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class People:
    """People whose attribute is guessed or learnt from. Host side only.

    Attributes
    ----------
    X : DataFrame
        Everything but the attribute.
    truth : float array, shape (n, 1) or (n, 0)
        The true outcome, where it is known.
    profiles : mapping
        Kind of surrogate to its confidences, one column per value that could be.
    codes : int array
        Which value each has; -1 for one that is not guessed.
    """

    X: pd.DataFrame
    truth: Floats
    profiles: Mapping[str, Floats]
    codes: Rows

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"People({len(self.codes)})"


def guess(shadow: People, target: Mapping[str, People], values: int, layers: tuple[int, ...], seed: int) -> Found:
    """Learn from a shadow's members, and return a probability of every value for the target's people.

    Parameters
    ----------
    shadow : People
    target : mapping
        Group to people.
    values : int
        How many there are.
    layers : tuple of int
    seed : int

    Returns
    -------
    mapping
        ``<group>_<knowing>`` to an array of shape (n_people, n_values), for each of `KNOWING`. All zero for a value
        that no member of the shadow has.
    """
    usable = shadow.codes >= 0
    encoder = RowsAsNumbers().fit(shadow.X[usable])
    found: dict[str, Floats] = {}
    for knowing in KNOWING:
        rows = _inputs(encoder, shadow, knowing)[usable]
        codes = shadow.codes[usable]
        for group, people in target.items():
            found[f"{group}_{knowing}"] = np.zeros((len(people.codes), values))
        present = np.unique(codes)
        if len(present) < 2:
            for group in target:
                found[f"{group}_{knowing}"][:, present] = 1.0
            continue
        network = Network(layers).classifier(seed)
        called("training the attack", lambda: network.fit(rows, codes))  # noqa: B023 - called at once
        for group, people in target.items():
            if len(people.codes):
                found[f"{group}_{knowing}"][:, present] = network.predict_proba(_inputs(encoder, people, knowing))
    return found


def _inputs(encoder: RowsAsNumbers, people: People, knowing: str) -> Floats:
    known = [encoder.transform(people.X), people.truth]
    return np.hstack(known if knowing == "nothing" else [*known, people.profiles[knowing]])
