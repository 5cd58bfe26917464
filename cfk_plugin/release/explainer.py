"""A protected explainer: the explainer as before, except that everything it gives out is protected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.intake import require_features, select, take_in
from cfk_plugin.errors import AdapterError, CFKError, InputError, ModelError, NotForwardedError, PolicyError, quiet
from cfk_plugin.hookspecs import (
    CounterfactualBatch,
    CounterfactualSource,
    ExplainerError,
    Finding,
    NoneFoundError,
    Progress,
    RankingSource,
    protecting,
)
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.protection.base import rank
from cfk_plugin.records.logger import RunLogger, may_observe, observe
from cfk_plugin.release.anonymizer import EntryStage, KAnonymizer, failing_closed, withheld
from cfk_plugin.release.explanations import Explanations, Request
from cfk_plugin.release.pipeline import RecordedRelease
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual, Suppressed

if TYPE_CHECKING:
    from cfk_plugin.data.policy import PrivacyPolicy


# Which of several counterfactuals of a query is released: the best by the policy's order, distance included.

_DIGITS = 12  # sums that differ by less are equal: the same terms in another order are


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Choice:
    """What protection made of every candidate, and which one of each query is the best. Host side only."""

    entries: list[Entry]  # One per candidate. None of them has left, and no ledger knows of them.
    # shape (n_candidates,); hEOM distance between the query and each candidate, over all features
    distances: NDArray[np.float64]
    chosen: NDArray[np.int64]  # shape (n_queries,); position of the best candidate of each query; -1 where it has none
    # Releases candidates through the ledger, if there is one, and repeats what was found of them here
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
        The distance. Default: `Heom.of` the population, which reads all rows.
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
    entries = rehearsal.of_counterfactuals(take_in(frame, population.encoder), query, labels, progress, goal)
    heom = heom or Heom.of(population)
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
    """Asks a generator for m candidates of each query and keeps the best; bound once by `protect`."""

    m: int
    source: RankingSource
    anonymizer: KAnonymizer
    heom: Heom

    @classmethod
    def of(cls, m: int, source: object, anonymizer: KAnonymizer) -> Self:
        """Bind a generator and a fitted anonymizer."""
        if not isinstance(source, RankingSource):
            raise AdapterError(
                f"{getattr(source, 'name', 'the explainer')} cannot be asked for several counterfactuals of a query; "
                "NearestUnlikeNeighbour, DiCE and adapters with a method `candidates` can. Leave out candidates="
            )
        _check(anonymizer)
        return cls(m, source, anonymizer, Heom.of(anonymizer.population_))

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
    """Return the number of candidates per query, or refuse it."""
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


# A protected explainer: the explainer as before, except that everything it gives out is protected.

_log = logging.getLogger("cfk_plugin")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Kept:
    """What a protected explainer stands for and works with."""

    explainer: Any
    source: CounterfactualSource
    name: str
    anonymizer: KAnonymizer
    track: bool | RunLogger
    groups: str | None
    chooser: Chooser | None

    def methods(self) -> Mapping[str, Any]:
        """Return the explainer's methods that give out counterfactuals."""
        with quiet("the adapter cannot say what it maps", AdapterError):
            return dict(self.source.methods)

    def forwarded(self) -> tuple[str, ...]:
        """Return the names that are given as they are."""
        with quiet("the adapter cannot say what it forwards", AdapterError):
            return tuple(getattr(self.source, "forwarded", ()))


KEPT: WeakKeyDictionary[ProtectedExplainer, _Kept] = WeakKeyDictionary()
"""Beside the objects and not on them, so that none of their attributes leads to an explainer."""


class ProtectedExplainer:
    """Stands in for an explainer: its methods that give out counterfactuals, protected. Made by `protect`.

    `explain` returns `Explanations`. The explainer's own methods that return counterfactuals keep their names and
    result types; the result is rebuilt and holds no training row. Only `explain` asks for candidates and chooses among
    them. Of everything else the explainer has, that is given which its adapter names in ``forwarded``; all other names
    raise `NotForwardedError`. No attribute of this object leads to the explainer, but nothing in Python can be kept
    from code that runs in the same process and looks for it: give callers results, not this object. It refuses to be
    pickled and copied, as it would take the training rows along.
    """

    __slots__ = ("__weakref__",)  # what it stands for is kept beside it: no attribute may lead there

    def __init__(
        self,
        explainer: Any,
        source: CounterfactualSource,
        anonymizer: KAnonymizer,
        track: bool | RunLogger = False,
        groups: str | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        KEPT[self] = _Kept(explainer, source, str(source.name), anonymizer, track, groups, chooser)

    def explain(self, queries: Any, *, progress: Progress | None = None, **options: Any) -> Any:
        """Explain queries; the only counterfactuals that leave are protected ones.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features)
            Instances to explain, raw feature space. Anything else is given to the explainer's own ``explain``, if
            it has one (NICE takes an array), and comes back in the explainer's own result type, protected.
        progress : callable, optional
            Called with (done, total) while protecting.
        **options
            Passed to the explainer.

        Returns
        -------
        Explanations
            One entry per counterfactual asked for, in the order of the queries; of candidates one per query, the
            best. An explainer that raises gives suppressed entries; its exception's text may quote rows and is not
            repeated.

        Raises
        ------
        InputError
            If `queries` is no table with every feature, or lacks the column of groups.
        AdapterError
            If what the explainer returned cannot be read as counterfactuals, or does not belong to the queries.
        """
        kept = KEPT[self]
        if not isinstance(queries, pd.DataFrame) and "explain" in kept.methods():
            return self._protected_method("explain")(queries, **options)
        population = kept.anonymizer.population_
        frame = require_features(queries, population.schema.features, "queries")
        call, ask = Request.of(queries, kept.groups), kept.source.generate
        if (chooser := kept.chooser) is not None:
            call, ask = replace(call, candidates=chooser.m), chooser.ask
        features = select(frame, population.schema.features)
        what = "the adapter raised {}; its text is withheld as it may quote rows"
        try:
            with quiet(what, ExplainerError, let=CFKError), protecting():
                batch = ask(select(frame, population.schema.features, renumber=False).copy(deep=True), **options)
        except ExplainerError as error:
            _log.warning("%s", error)  # holds the class of the exception alone
        else:
            if chooser is not None:
                return self._release_best(chooser, batch, features, call, progress)
            return self._release(batch, features, call, progress)
        return self._withheld(np.arange(len(frame)), "explainer_failed", call)

    def __call__(self, queries: Any, **options: Any) -> Any:
        """Do as `explain`, for explainers that are functions."""
        return self.explain(queries, **options)

    def __getattr__(self, name: str) -> Any:
        """Return the protected form of a method that gives out counterfactuals, or what the adapter forwards."""
        kept = KEPT[self]
        if name in kept.methods():
            return self._protected_method(name)
        if name in self._forwarded_names():
            return self._forwarded(name)
        passed = ", ".join(sorted({"explain", *kept.methods(), *self._forwarded_names()}))
        raise NotForwardedError(
            f"{name!r} of {kept.name} is not passed on, as it may give out training rows; this protected explainer has "
            f"{passed}. Ask the explainer itself where you hold it. To add the name, let the adapter map it in "
            "`methods` if it returns counterfactuals, or name it in `forwarded` if nothing of a row is in it: see "
            "docs/how-to/write-an-adapter.md"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse changes."""
        raise NotForwardedError(f"{name!r} cannot be set on a protected explainer; set it before you protect it")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse changes."""
        raise NotForwardedError(f"{name!r} cannot be deleted from a protected explainer")

    def __dir__(self) -> list[str]:
        """List what it has."""
        return sorted({*dir(type(self)), *KEPT[self].methods(), *self._forwarded_names()})

    def __repr__(self) -> str:
        """Name what is wrapped; the explainer's own repr may show rows."""
        kept = KEPT[self]
        return f"ProtectedExplainer({kept.name}, {kept.anonymizer!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled."""
        raise InputError("a protected explainer holds training rows and refuses to be pickled")

    def _forwarded_names(self) -> tuple[str, ...]:
        return KEPT[self].forwarded()

    def _forwarded(self, name: str) -> Any:
        """Return an attribute as it is, and a method as a function, which does not lead to its explainer."""
        with quiet(f"{name} of the explainer cannot be read", NotForwardedError):
            value = getattr(KEPT[self].explainer, name)
        if not callable(value):
            return value
        del value

        def forwarded(*args: Any, **kwargs: Any) -> Any:
            with quiet(f"{name} of the explainer failed", AdapterError):
                return getattr(KEPT[self].explainer, name)(*args, **kwargs)

        forwarded.__name__ = name
        return forwarded

    def _protected_method(self, name: str) -> Callable[..., Any]:
        def protected(*args: Any, **kwargs: Any) -> Any:
            source = KEPT[self].source  # not of the function: who sends it to another process would send the explainer
            nothing, started = None, Request().started
            try:
                with quiet(f"{name} failed", AdapterError, let=CFKError), protecting():
                    batch, native, queries = source.methods[name](*args, **kwargs)
            except NoneFoundError as error:
                nothing = error.native
            if nothing is not None:  # raised out here, so that it carries no context
                raise nothing
            call = replace(Request.of(queries, KEPT[self].groups), started=started)
            explanations = self._release(batch, queries, call, None)
            with quiet(f"the adapter cannot rebuild what {name} returns; use explain()", AdapterError, let=CFKError):
                restored = source.restore(native, explanations)
            if restored is native and native is not None:
                raise AdapterError(f"the adapter gives back what {name} returned instead of rebuilding it")
            return restored

        protected.__name__ = name
        protected.__doc__ = f"{name} of the explainer; what it returns is protected and holds no training row."
        return protected

    def _release_best(
        self,
        chooser: Chooser,
        batch: CounterfactualBatch,
        queries: pd.DataFrame,
        call: Request,
        progress: Progress | None,
    ) -> Explanations:
        """Release the best candidate of each query as if it were the explainer's answer; if that fails, none."""
        self._check(batch, queries)
        KEPT[self].anonymizer.goal_of_call(batch.desired)  # another outcome is refused, and not withheld
        try:
            with failing_closed():
                best, stage = chooser.best(batch, queries, progress)
        except CFKError as error:
            return self._finish(withheld(np.arange(len(queries)), error), [None] * len(queries), call)
        return self._release(best, queries, call, None, stage)

    def _check(self, batch: CounterfactualBatch, queries: pd.DataFrame) -> None:
        if not isinstance(batch, CounterfactualBatch):
            raise AdapterError(f"an adapter returned {type(batch).__name__} instead of a CounterfactualBatch")
        if len(batch.query) and not 0 <= batch.query.min() <= batch.query.max() < len(queries):
            raise AdapterError("an adapter answered queries that were not asked")
        if len(batch.frame):
            features = KEPT[self].anonymizer.population_.schema.features
            require_features(batch.frame, features, "the explainer's answer")

    def _release(
        self,
        batch: CounterfactualBatch,
        queries: pd.DataFrame,
        call: Request,
        progress: Progress | None,
        stage: EntryStage | None = None,
    ) -> Explanations:
        self._check(batch, queries)
        anonymizer, instance_based = KEPT[self].anonymizer, KEPT[self].source.instance_based
        goal = anonymizer.goal_of_call(batch.desired)
        entries: list[Entry] = [Suppressed(int(q), "none_found") for q in batch.query]
        findings: list[Finding | None] = [None] * len(entries)
        if anonymizer.ledger is not None and not may_observe(len(batch.query), KEPT[self].track):
            return self._withheld(batch.query, "not_recorded", call)  # and not on record as left
        if len(batch.frame):
            query = batch.query[batch.slot]
            labels = None
            if (goal or anonymizer.goal_).is_opposite:
                try:
                    labels = anonymizer.factual_labels(queries)[query]
                except ModelError as error:
                    _log.warning("explanations withheld: %s", error)
                    return self._withheld(batch.query, "model_failed", call)
            done, found = anonymizer.release(
                batch.frame, query, labels, instance_based=instance_based, progress=progress, stage=stage, goal=goal
            )
            for slot, entry, finding in zip(batch.slot, done, found, strict=True):
                entries[slot], findings[slot] = entry, finding
        return self._finish(entries, findings, call)

    def _withheld(self, query: NDArray[np.int64], reason: str, call: Request) -> Explanations:
        return self._finish([Suppressed(int(q), reason) for q in query], [None] * len(query), call)

    def _finish(self, entries: list[Entry], findings: list[Finding | None], call: Request) -> Explanations:
        kept = KEPT[self]

        def record(result: Explanations) -> bool:
            return observe(result, kept.track)

        return kept.anonymizer.result_.wrap(entries, findings, kept.name, call, record)
