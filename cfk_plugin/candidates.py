"""Which of several counterfactuals of a query is released: the best by the policy's order, distance included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.anonymizer import KAnonymizer
from cfk_plugin.counterfactual import Entry, GeneralizedCounterfactual
from cfk_plugin.entries import EntryStage
from cfk_plugin.errors import AdapterError, InputError, PolicyError
from cfk_plugin.heom import Heom
from cfk_plugin.intake import require_features, take_in
from cfk_plugin.metrics.plausibility import heom_of
from cfk_plugin.protection.preference import rank
from cfk_plugin.recorded import RecordedRelease
from cfk_plugin.source import CounterfactualBatch, RankingSource

if TYPE_CHECKING:
    from cfk_plugin.policy import PrivacyPolicy
    from cfk_plugin.protection.base import Progress

_DIGITS = 12  # sums that differ by less are equal: the same terms in another order are


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Choice:
    """What protection made of every candidate, and which one of each query is the best. Host side only.

    Attributes
    ----------
    entries : list of Entry
        One per candidate. None of them has left, and no ledger knows of them.
    distances : float64 array, shape (n_candidates,)
        HEOM distance between the query and each candidate, over all features.
    chosen : int64 array, shape (n_queries,)
        Position of the best candidate of each query; -1 where it has none.
    stage : EntryStage
        Releases candidates through the ledger, if there is one, and repeats what was found of them here.
    """

    entries: list[Entry]
    distances: NDArray[np.float64]
    chosen: NDArray[np.int64]
    stage: EntryStage


def choose_candidates(
    anonymizer: KAnonymizer,
    candidates: pd.DataFrame,
    query: NDArray[np.int64],
    queries: pd.DataFrame,
    *,
    desired: Any = None,
    heom: Heom | None = None,
    progress: Progress | None = None,
) -> Choice:
    """Protect every candidate and say which one of each query is best. Nothing is released.

    Plugins are not told of releases, and no ledger is asked or written. Who comes first: see `best_of`.

    Parameters
    ----------
    anonymizer : KAnonymizer
        Fitted, for any guarantee but the catalogue.
    candidates : DataFrame, shape (n, n_features or more)
        Raw counterfactuals, those of one query in the generator's order.
    query : int array, shape (n,)
        Position of the query that each candidate answers.
    queries : DataFrame, shape (n_queries, n_features or more)
        Instances to explain.
    desired : label, or callable from labels to booleans, optional
        The outcome that the candidates were asked for, where the call named one; see `KAnonymizer.goal_of_call`.
    heom : Heom, optional
        The distance. Default: `heom_of` the population, which reads all rows.
    progress : callable, optional
        Called with (done, total) candidates.

    Returns
    -------
    Choice

    Raises
    ------
    PolicyError
        If the guarantee is the catalogue, which answers with an entry of its own in the place of a candidate.
    InputError
        If a table lacks features, or the population has no rows here.
    ModelError
        If the model fails.
    """
    _check(anonymizer)
    population = anonymizer.population_
    frame = require_features(candidates, population.schema.features, "candidates")
    asked = require_features(queries, population.schema.features, "queries")
    goal = anonymizer.goal_of_call(desired)
    labels = anonymizer.factual_labels(asked)[query] if (goal or anonymizer.goal_).is_opposite else None
    rehearsal, stage = _with_memory(anonymizer.stage_)
    entries = rehearsal.of_counterfactuals(take_in(frame, population), query, labels, progress, goal)
    heom = heom or heom_of(population)
    parts = heom.parts(population.conform(asked).take(query), population.conform(frame))
    distances = parts.mean(axis=1)
    return Choice(entries, distances, best_of(anonymizer.policy_, entries, distances, query, len(asked)), stage)


def best_of(
    policy: PrivacyPolicy,
    entries: Sequence[Entry],
    distances: NDArray[np.float64],
    query: NDArray[np.int64],
    n_queries: int,
) -> NDArray[np.int64]:
    """Return the position of the best entry of each query; -1 where it has none.

    Released comes before withheld. Of the released ones the policy's objective decides, with distance + NCP in the
    place of NCP; whether bounds (`max_ncp`, `min_pureness`) are met is settled by then, on NCP and pureness alone. Of
    equally good ones the first is best.
    """
    order = replace(policy, max_ncp=None, min_pureness=None)
    ranks = [
        (0, *rank(order, round(float(away) + entry.certificate.ncp, _DIGITS), entry.certificate.pureness))
        if isinstance(entry, GeneralizedCounterfactual)
        else (1, 0.0, 0.0, 0.0)
        for entry, away in zip(entries, distances, strict=True)
    ]
    best = np.full(n_queries, -1, dtype=np.int64)
    for i, asked in enumerate(query.tolist()):
        if best[asked] < 0 or ranks[i] < ranks[best[asked]]:
            best[asked] = i
    return best


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chooser:
    """Asks a generator for m candidates of each query and keeps the best; bound once by `protect`.

    Attributes
    ----------
    m : int
    source : RankingSource
    anonymizer : KAnonymizer
    heom : Heom
    """

    m: int
    source: RankingSource
    anonymizer: KAnonymizer
    heom: Heom

    @classmethod
    def of(cls, m: int, source: object, anonymizer: KAnonymizer) -> Self:
        """Bind a generator and a fitted anonymizer.

        Raises
        ------
        AdapterError
            If the generator cannot name several counterfactuals.
        PolicyError, InputError
            See `choose_candidates`.
        """
        if not isinstance(source, RankingSource):
            raise AdapterError(
                f"{getattr(source, 'name', 'the explainer')} cannot be asked for several counterfactuals of a query; "
                "NearestUnlikeNeighbour, DiCE and adapters with a method `candidates` can. Leave out candidates="
            )
        _check(anonymizer)
        return cls(m, source, anonymizer, heom_of(anonymizer.population_))

    def ask(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask for the candidates."""
        return self.source.candidates(queries, self.m, **options)

    def best(
        self, batch: CounterfactualBatch, queries: pd.DataFrame, progress: Progress | None
    ) -> tuple[CounterfactualBatch, EntryStage | None]:
        """Return the best candidate of each query, and the stage that releases it without working it out again."""
        if not len(batch.frame):
            return CounterfactualBatch.one_each(batch.frame, np.zeros(len(queries), bool), batch.desired), None
        ranked = np.argsort(batch.slot)
        frame, query = batch.frame.take(ranked), batch.query[batch.slot[ranked]]
        asked = {"desired": batch.desired, "heom": self.heom, "progress": progress}
        choice = choose_candidates(self.anonymizer, frame, query, queries, **asked)
        found = choice.chosen >= 0
        return CounterfactualBatch.one_each(frame.take(choice.chosen[found]), found, batch.desired), choice.stage


def check_number(candidates: object) -> int:
    """Return the number of candidates per query, or refuse it.

    Raises
    ------
    InputError
        If it is no whole number, or below 1.
    """
    if not isinstance(candidates, (int, np.integer)) or isinstance(candidates, bool) or candidates < 1:
        raise InputError(f"candidates must be a whole number >= 1, got {candidates!r}")
    return int(candidates)


def _check(anonymizer: KAnonymizer) -> None:
    if anonymizer.policy_.guarantee == "catalogue":
        raise PolicyError(
            'guarantee="catalogue" answers with the nearest entry of its own, whatever the candidate; leave out '
            "candidates=, or choose another guarantee"
        )
    if not anonymizer.population_.has_rows:
        raise InputError(
            "distances to candidates need the ranges of all features, and a sealed or distributed population has no "
            "rows here; leave out candidates="
        )


def _with_memory(stage: EntryStage) -> tuple[EntryStage, EntryStage]:
    """Return the stage without its ledger, and with it; the second repeats what the first has found."""
    release = stage.release
    recorded = release if isinstance(release, RecordedRelease) else None
    plain = replace(release.stage if isinstance(release, RecordedRelease) else release, memory={})
    return (
        replace(stage, release=plain, measures=False),
        replace(stage, release=plain if recorded is None else replace(recorded, stage=plain)),
    )
