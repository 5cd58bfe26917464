"""Surrogates of the owner's model and of shadow models, and what they say of people who were trained on and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.attacked.sample import Rows
from cfk_plugin.audit.extraction.architecture import Architecture, said
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.extraction.sets import SETS, Halves, Sets
from cfk_plugin.audit.extraction.transfer import Surrogate, ask, fit, outcomes, train
from cfk_plugin.audit.running import Piece
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.hookspecs import Progress

WAYS = ("explained", "alone")
"""Surrogates with counterfactuals, and without."""

Profile = Callable[[Surrogate, pd.DataFrame], Floats]
"""What an attack asks a surrogate about people: numbers, the first axis people."""


@dataclass(frozen=True, slots=True, repr=False)
class Extracted:
    """How surrogates of the owner's model and of three shadow models are made and asked.

    Shadow models are trained by the owner's own algorithm on the first half of each of the attacker's sets, and
    extracted as the owner's model is: so that what is learnt on them carries over. A surrogate never asks about people
    of the set of its own target.

    Attributes
    ----------
    owner : Owner
    sample : Sample
    sets : Sets
    architecture : callable
        Of the surrogates.
    queries : int
        Asked of each model; at most two of the four sets, which is what is left to a shadow.
    attacked : int
        Most people of each half who are looked at.
    seed : int
    """

    owner: Owner
    sample: Sample
    sets: Sets
    architecture: Architecture
    queries: int
    attacked: int
    seed: int

    def __repr__(self) -> str:
        """Name the owner."""
        return f"Extracted({self.owner.name!r})"

    def pieces(self, attack: str, profile: Profile) -> list[Piece]:
        """Return one piece for the owner's model and one for each shadow model."""
        table = self.sample.fingerprint()
        settings = f"{self.queries}:{self.attacked}:{self.seed}:{said(self.architecture)}"
        return [
            Piece(f"{attack}:{self.owner.name}:{table}:{settings}:set={at}", partial(self.measured, at, profile))
            for at in range(SETS)
        ]

    def halves(self, at: int) -> Halves:
        """Return whom the model of a set is attacked on, as many members as others."""
        halves = self._set(at)
        return Halves(halves.members[: self.attacked], halves.others[: self.attacked])

    def fresh(self) -> Rows:
        """Return as many of the attacker's people as there are members, neither trained on nor asked about."""
        return self._order(0)[self.queries :][: len(self.halves(0).members)]

    def measured(self, at: int, profile: Profile) -> Found:
        """Train the model of a set, extract it, and ask the surrogates about its members, others, and fresh people."""
        sample, halves = self.sample, self.halves(at)
        service = train(self.owner, sample.take(self._set(at).members), self.seed)
        transfer = ask(service, sample.X.take(self._order(at)[: self.queries]))
        groups = {"members": halves.members, "others": halves.others} | ({} if at else {"fresh": self.fresh()})
        unseen = sample.X.take(halves.others)
        truth = outcomes(service, unseen)
        found: dict[str, Floats] = {}
        for way in WAYS:
            pairs = transfer.pairs(self.queries, explained=way == "explained")
            surrogate = fit(self.architecture, pairs, self.seed)
            found[f"fidelity_{way}"] = np.array((surrogate.desired(unseen) == truth).mean())
            found |= {f"{name}_{way}": profile(surrogate, sample.X.take(rows)) for name, rows in groups.items()}
        return found | {"answers": np.array(float(transfer.answers(self.queries)))}

    def _set(self, at: int) -> Halves:
        return (self.sets.owners, *self.sets.attackers)[at]

    def _order(self, at: int) -> Rows:
        """Return everybody who can be asked about, in the order of asking."""
        sets: Sequence[Halves] = [halves for who, halves in enumerate(self.sets.attackers, 1) if who != at]
        return np.random.default_rng([self.seed, 2, at]).permutation(np.concatenate([np.concatenate(h) for h in sets]))


def most_queries(sets: Sets, queries: int) -> int:
    """Return how many queries are asked: no more than two sets have people."""
    return min(queries, 2 * len(np.concatenate(sets.owners)))


def part_of(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Return a progress of some pieces among more, of which so many are done before."""
    return None if progress is None else lambda done, _: progress(before + done, total)
