"""One run of the attack, in counts: train, ask, link, guess, and compare with the truth. No value leaves it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked import Owner, Sample, Service
from cfk_plugin.audit.attribute_inference.answered import Answered, Said, said_by
from cfk_plugin.audit.attribute_inference.baseline import baseline
from cfk_plugin.audit.attribute_inference.guesses import Guesses, guesses
from cfk_plugin.audit.attribute_inference.register import Mask, Register, Rows
from cfk_plugin.audit.running.pieces import Found

RIGHT, ALL, BASE, CONTROL_RIGHT, CONTROL_ALL = range(5)
"""Columns of ``counts``: guesses about the table that are right, all, right without answers; and about the control."""

FEW = 3
"""An answer that fits at most so many people of the table singles them out."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run.

    Attributes
    ----------
    quasi_identifiers, private : tuple of str
        What the adversary knows of everybody, and what is guessed.
    n_train, queries : int
        People of the table, and queries at most.
    tolerance : float
        Share of a range by which the guess of a number may be off.
    seed : int
    """

    quasi_identifiers: tuple[str, ...]
    private: tuple[str, ...]
    n_train: int
    queries: int
    tolerance: float
    seed: int

    def split(self, n: int) -> tuple[Rows, Rows, Rows]:
        """Return the table, the adversary's own people and the control: disjoint, drawn by the seed."""
        order = np.random.default_rng(self.seed).permutation(n)
        own = (n - self.n_train + 1) // 2
        table, mine, rest = np.split(order, [self.n_train, self.n_train + own])
        return table, mine, rest


@dataclass(frozen=True, repr=False)
class Run:
    """The attack on one owner: a piece of an audit, to be called once."""

    owner: Owner
    sample: Sample
    setup: Setup

    def __call__(self) -> Found:
        """Train, ask and count.

        Returns
        -------
        mapping
            ``asked`` and ``answered``: queries. ``sizes``: people of the table who fit, per answer. ``people``: the
            same per place. ``counts``, shape (n_private, n_places, 5): guesses by the place that they rest on.
            ``shares``, shape (n_private, n_answers): share of the people who fit an answer and hold what it says; NaN
            where it says nothing or fits nobody. ``guessed``, shape (2, 2): people of the table and of the control
            whom anything is guessed of; then those whom answers single out.
        """
        table, own, control = self.setup.split(len(self.sample))
        service = self.owner.train(self.sample.take(table), self.setup.seed)
        asked, said, given = _ask(service, self.sample.X.take(own), self.setup.queries)
        register = Register(self.sample.X, self.setup.quasi_identifiers)
        answered = Answered(said, register, table)
        link = _Link(register, answered, (table, own, control), self.setup)
        found = [link.attribute(name) for name in self.setup.private]
        return {
            "asked": np.array(asked),
            "answered": np.array(given),
            "sizes": answered.sizes,
            "people": answered.people,
            "counts": np.array([counts for counts, _ in found]),
            "shares": np.array([shares for _, shares in found]),
            "guessed": link.guessed,
        }


def _ask(service: Service, people: pd.DataFrame, queries: int) -> tuple[int, list[Said], int]:
    """Return how many of the people are undesired and ask, what they are told, and how many get an answer."""
    undesired = np.flatnonzero(~service.desired(people))[:queries]
    if not len(undesired):
        return 0, [], 0
    answers = service.explain(people.take(undesired).reset_index(drop=True))
    return len(undesired), said_by(answers), int(answers.found.sum())


def few(people: Rows) -> Mask:
    """Say of numbers of people who fit whether they are singled out."""
    return (people > 0) & (people <= FEW)


class _Link:
    """Everybody, and the answers that fit them."""

    def __init__(self, register: Register, answered: Answered, people: tuple[Rows, Rows, Rows], setup: Setup) -> None:
        self._register, self._answered, self._setup = register, answered, setup
        self._table, self._own, self._control = people
        self._few = few(answered.people)
        self._rests_on = np.zeros((2, len(register.cells)), dtype=bool)

    @property
    def guessed(self) -> Rows:
        """People of the table and of the control whom anything was guessed of; then those by answers that fit few."""
        cell_of = self._register.cell_of
        return np.array(
            [[cells[cell_of[rows]].sum() for rows in (self._table, self._control)] for cells in self._rests_on]
        )

    def attribute(self, name: str) -> tuple[Rows, NDArray[np.float64]]:
        """Return counts of right guesses by place, and the share of right ones by answer."""
        guessed = guesses(self._answered, self._register, name, self._setup.tolerance)
        about = np.flatnonzero(guessed.guess >= 0)
        self._rests_on[0, about] = True
        self._rests_on[1, about[self._few[guessed.place[about]]]] = True
        counts = np.zeros((len(self._answered.cells), 5), dtype=np.int64)
        for rows, right, everybody in ((self._table, RIGHT, ALL), (self._control, CONTROL_RIGHT, CONTROL_ALL)):
            about, place = guessed.of(self._register.cell_of[rows])
            people = rows[about]
            hits = guessed.hits(self._register.cell_of[people], self._register.codes(name, people))
            np.add.at(counts[:, right], place[hits], 1)
            np.add.at(counts[:, everybody], place, 1)
            if everybody == ALL and len(people):
                np.add.at(counts[:, BASE], place[self._without(guessed, name, people)], 1)
        return counts, self._shares(name, guessed)

    def _without(self, guessed: Guesses, name: str, people: Rows) -> Mask:
        setup = self._setup
        return baseline(guessed, self._register, name, self._own, people, tolerance=setup.tolerance, seed=setup.seed)

    def _shares(self, name: str, guessed: Guesses) -> NDArray[np.float64]:
        register, answered = self._register, self._answered
        shares, which = np.full(len(answered.distinct), np.nan), {part: i for i, part in enumerate(guessed.parts)}
        table_cells, codes = register.cell_of[self._table], register.codes(name, self._table)
        inside = np.zeros(len(register.cells), dtype=bool)
        for at, said in enumerate(answered.distinct):
            place = answered.place_of[at]
            if name in said and answered.people[place]:
                inside[answered.cells[place]] = True
                shares[at] = guessed.right[which[said[name]], codes[inside[table_cells]]].mean()
                inside[answered.cells[place]] = False
        return np.repeat(shares, answered.times)
