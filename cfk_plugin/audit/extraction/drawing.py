"""One draw of queries: asked, copied, and compared with the owner's model on people whom neither has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.attacked.sample import Mask
from cfk_plugin.audit.extraction.architecture import Architecture, said
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.extraction.sets import Sets
from cfk_plugin.audit.extraction.transfer import Transfer, ask, fit, outcomes, train
from cfk_plugin.audit.running.pieces import Found

WAYS = ("explained", "alone", "further")
"""What a surrogate is trained on: queries and counterfactuals, queries, queries and as many further ones as there were
counterfactuals."""

_OWN = 1000  # most own people on whom the attacker sets a threshold, the last to be asked about


@dataclass(frozen=True, slots=True, repr=False)
class ExtractionTask:
    """One extraction: everything that a draw of queries depends on."""

    owner: Owner
    sample: Sample
    sets: Sets
    sizes: tuple[int, ...]
    kinds: Mapping[str, Architecture]
    held_out: int
    seed: int

    def __repr__(self) -> str:
        """Name the owner."""
        return f"ExtractionTask({self.owner.name!r})"

    def key(self, at: int) -> str:
        """Say what a draw depends on, for its result to be kept."""
        kinds = "|".join(f"{kind}={said(architecture)}" for kind, architecture in self.kinds.items())
        settings = f"{self.sizes}:{self.held_out}:{self.seed}:{at}"
        return f"extraction:{self.owner.name}:{self.sample.fingerprint()}:{settings}:{kinds}"

    def draw(self, at: int) -> Found:
        """Draw queries, ask them, train all surrogates; return everybody's outcomes among the held-out people.

        Queries of a smaller size are the first of those of a larger one, so that sizes can be compared. Outcomes come
        twice, as the surrogate gives them and matched, see `matched`.
        """
        random = np.random.default_rng([self.seed, 1, at])
        order = random.permutation(self.sets.own)
        service = train(self.owner, self.sample.take(self.sets.owners.members), self.seed)
        most = self.sizes[-1]
        asked = self.sample.X.take(order[: 2 * most])
        transfer = ask(service, asked, explained=most)
        needed = [size + transfer.answers(size) for size in self.sizes]
        spent = max(most, *(count for count in needed if count <= len(order)))
        free = np.concatenate([self.sets.owners.others, order[spent:]])
        people = random.permutation(free)[: self.held_out]
        X, known = self.sample.X.take(people), self.sample.X.take(order[-_OWN:])
        found: dict[str, NDArray[Any]] = {"people": people, "target": outcomes(service, X)}
        for size, count in zip(self.sizes, needed, strict=True):
            found[f"replies_{size}"] = np.array([transfer.answers(size), transfer.undesired(size)])
            for way, pairs in _pairs(transfer, size, count if count <= len(order) else None).items():
                for kind, architecture in self.kinds.items():
                    surrogate = fit(architecture, pairs, self.seed + at)
                    sure, own = surrogate.confidence(X), surrogate.confidence(known)
                    found[f"{kind}_{size}_{way}"] = surrogate.desired(X)
                    found[f"{kind}_{size}_{way}_matched"] = matched(sure, own, transfer.desired[:size].mean())
        return found


def matched(confidence: Floats, own: Floats, desired: float) -> Mask:
    """Say who gets the desired outcome where the attacker corrects what answers did to the shares of the outcomes.

    Answers are all labelled with the desired outcome, so that a surrogate gives it too often. The attacker knows how
    often the model gave it to the queries, and moves the surrogate's threshold until own people get it as often.

    Parameters
    ----------
    confidence : float array
        The surrogate's, of the people asked about.
    own : float array
        The same of the attacker's own people, for whom no reply of the model is needed.
    desired : float
        Share of the queries to which the model gave the desired outcome.
    """
    limits = np.append(np.unique(own), np.inf)
    shares = 1 - np.searchsorted(np.sort(own), limits) / len(own)
    return np.asarray(confidence >= limits[np.abs(shares - desired).argmin()])


def _pairs(transfer: Transfer, size: int, further: int | None) -> dict[str, tuple[pd.DataFrame, Mask]]:
    found = {
        "explained": transfer.pairs(size, explained=True),
        "alone": transfer.pairs(size, explained=False),
    }
    return found if further is None else found | {"further": transfer.pairs(further, explained=False)}
