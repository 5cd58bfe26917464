"""What linkage attacks use: an anonymizer, its releases, and the people who may be behind them.

Host side only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from cfk_plugin.audit.result import AuditResult, Rate, rate
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.tables import require_features, whole_number
from cfk_plugin.errors import HostOnly, InputError, require
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


class AuditRows(HostOnly):
    """Base of what an audit knows of training rows."""


class CandidatePeople(AuditRows):
    """People who may be behind a release, in the terms of the population: the training rows, or a
    holdout.
    """

    def __init__(self, people: Population, population: Population) -> None:
        self.people, self.population = people, population

    def _counts(self) -> str:
        return repr(self.people)

    @cached_property
    def coded(self) -> Floats:
        """The rows in the codes of the population, shape (n_rows, n_features)."""
        return self.population.row_codes.encode(self.people.frame)

    def carriers(self, rows: Rows, released: Mapping[str, Any]) -> Mask:
        """Return which of some rows have the released private values, shape (n_rows,)."""
        codes = self.population.row_codes
        is_carrier = np.ones(len(rows), dtype=bool)
        for name, value in released.items():
            j = codes.names.index(name)
            code = codes.columns[j].encode(pd.Series([value], dtype=object))
            is_carrier &= self.coded[rows, j] == code
        return is_carrier


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Release(AuditRows):
    """One released explanation, and what only the data holder knows of it."""

    at: int
    entry: GeneralizedCounterfactual
    rows: Rows
    k: int
    targets: Rows

    @property
    def region(self) -> Region:
        return self.entry.region

    @property
    def values(self) -> Mapping[str, Any]:
        return disclosed(self.entry)


def disclosed(entry: GeneralizedCounterfactual) -> dict[str, Any]:
    """Return the private values that could be another person's: neither moved nor the query's."""
    recount = entry.recount
    is_of_query = {*recount.moved, *recount.unchanged}
    return {name: value for name, value in entry.released.items() if name not in is_of_query}


class Releases(AuditRows):
    """Released explanations of one pass, with all their private values in one table."""

    def __init__(
        self,
        entries: Sequence[Explanation],
        raw: pd.DataFrame,
        crowd: CandidatePeople,
    ) -> None:
        self.crowd, population = crowd, crowd.population
        kept = [(at, e) for at, e in enumerate(entries) if isinstance(e, GeneralizedCounterfactual)]
        self.private = _private_values(
            [entry for _, entry in kept], raw.take([at for at, _ in kept]), population
        )
        counterfactuals = population.row_codes.encode(raw)
        self._items = tuple(self._read(at, entry, counterfactuals[at]) for at, entry in kept)

    def _read(self, at: int, entry: GeneralizedCounterfactual, counterfactual: Floats) -> Release:
        """Return a release; its targets are the people inside who have the released values.

        If the explainer returned the row of one of them, that person is the only target.
        """
        population = self.crowd.population
        rows = population.members(entry.region)
        carriers = rows[self.crowd.carriers(rows, disclosed(entry))]
        same = self._in_place_of(carriers, counterfactual)
        targets = same if len(same) else carriers
        return Release(at, entry, rows, population.people(rows), targets)

    def _in_place_of(self, rows: Rows, counterfactual: Floats) -> Rows:
        """Return those of some rows that equal a counterfactual, shape (n_features,), in codes.

        If none is equal on all columns, return those with equal quasi-identifiers.
        """
        coded = self.crowd.coded[rows]
        is_equal = (coded == counterfactual).all(axis=1)
        if not is_equal.any():
            quasi = self.crowd.population.row_codes.quasi
            is_equal = (coded[:, quasi] == counterfactual[quasi]).all(axis=1)
        equal: Rows = rows[is_equal]
        return equal

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, i: int) -> Release:
        return self._items[i]

    def __iter__(self) -> Iterator[Release]:
        return iter(self._items)

    @property
    def at(self) -> Rows:
        return np.array([r.at for r in self._items], dtype=np.int64)

    @property
    def sizes(self) -> Rows:
        return np.array([r.k for r in self._items], dtype=np.int64)

    def places(self, crowd: CandidatePeople | None = None) -> DistinctRecords:
        """Return the distinct quasi-identifier combinations of the people inside each region."""
        chosen = self.crowd if crowd is None else crowd
        same = chosen is self.crowd
        return DistinctRecords(
            chosen, tuple(r.rows if same else chosen.people.members(r.region) for r in self._items)
        )

    def found(self, survivors: Sequence[Mask]) -> NDArray[np.float64]:
        """Return the chance of naming the right person when guessing among the surviving rows."""
        chances = []
        for release, left in zip(self._items, survivors, strict=True):
            if len(release.targets):
                rows = release.rows[left]
                hit = np.isin(release.targets, rows).any()
                chances.append(1.0 / self.crowd.people.people(rows) if hit else 0.0)
        return np.array(chances)

    def coincidence(
        self, places: DistinctRecords, survivors: Sequence[Mask]
    ) -> NDArray[np.float64]:
        """Return the chance that a survivor outside of the table carries the released values; see
        `found`.
        """
        chances = []
        for release, inside, left in zip(self._items, places.rows, survivors, strict=True):
            if len(release.targets):
                rows = inside[left]
                chances.append(
                    float(places.crowd.carriers(rows, release.values).mean()) if len(rows) else 0.0
                )
        return np.array(chances)

    def people(self, survivors: Sequence[Mask]) -> Rows:
        pairs = zip(self._items, survivors, strict=True)
        return np.array(
            [self.crowd.people.people(r.rows[left]) for r, left in pairs], dtype=np.int64
        )

    def everybody(self) -> list[Mask]:
        return [np.ones(len(r.rows), dtype=bool) for r in self._items]


class DistinctRecords(AuditRows):
    """Distinct quasi-identifier combinations of the people inside each region, so that each is
    asked about once.
    """

    def __init__(self, crowd: CandidatePeople, rows: Sequence[Rows]) -> None:
        self.crowd, self.rows = crowd, tuple(rows)
        which, first, self._spread, count = [], [], [], 0
        for i, inside in enumerate(self.rows):
            _, at, inverse = np.unique(
                crowd.people.class_of_row[inside], return_index=True, return_inverse=True
            )
            which.append(np.full(len(at), i))
            first.append(inside[at])
            self._spread.append(inverse + count)
            count += len(at)
        self.which = np.concatenate([np.empty(0, np.int64), *which]).astype(np.int64)
        self.first = np.concatenate([np.empty(0, np.int64), *first]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.which)

    def questions(self, private: pd.DataFrame) -> pd.DataFrame:
        """Return one row per place: its quasi-identifiers with the released private values of its
        region.
        """
        population = self.crowd.population
        if not len(self):
            return population.rows(np.empty(0, dtype=np.int64))[list(population.schema.features)]
        quasi = self.crowd.people.rows(self.first)[
            list(population.schema.quasi_identifiers)
        ].reset_index(drop=True)
        rest = private[list(population.schema.private)].take(self.which).reset_index(drop=True)
        return population.conform(
            pd.concat([quasi, rest], axis=1)[list(population.schema.features)]
        )

    def spread(self, answers: NDArray[Any]) -> list[NDArray[Any]]:
        """Expand answers per place to answers per row, region by region."""
        return [answers[places] for places in self._spread]


def _private_values(
    entries: Sequence[GeneralizedCounterfactual], raw: pd.DataFrame, population: Population
) -> pd.DataFrame:
    """Return the released private values."""
    frame = raw[list(population.schema.features)].reset_index(drop=True).astype(object)
    for name in population.schema.private:
        values = [entry.released[name] for entry in entries]
        frame[name] = pd.Series(values, dtype=object, index=frame.index)
    return population.conform(frame)


_BLOCK = 50_000  # rows that a model is asked about at once


@dataclass(frozen=True, repr=False, eq=False)
class Setting(AuditRows):
    """An anonymizer under attack. Host side only: it holds rows, and refuses to be pickled.

    Nothing is released before the first attack; all attacks use the same releases.
    """

    # fitted; attacks release through it: no plugin that counts releases
    anonymizer: KAnonymizer
    counterfactuals: pd.DataFrame  # raw ones, as an explainer returned them
    # the instance behind each; needed for a catalogue and for ``desired="opposite"``
    queries: pd.DataFrame | None = None
    # people who are not in the training table: the control of the attacks
    holdout: pd.DataFrame | None = None
    seed: int = 0  # for everything that is drawn
    limit: int = 100  # most counterfactuals attacked; more are sampled, without replacement

    def __post_init__(self) -> None:
        require(
            "anonymizer",
            self.anonymizer,
            KAnonymizer,
            "give the one whose releases are attacked, fitted",
        )
        if getattr(self.anonymizer, "population_", None) is None:
            raise NotFittedError(
                "call fit(population, model=..., desired=...) on the anonymizer first"
            )
        whole_number("seed", self.seed, 0)
        whole_number("limit", self.limit, 1)
        require_features(self.counterfactuals, self.population.schema.features, "counterfactuals")
        if self.queries is None and self.anonymizer.catalogue_ is not None:
            raise InputError(
                "a catalogue answers the person whom a counterfactual explains; give their queries"
            )
        if self.queries is not None:
            require_features(self.queries, self.population.schema.features, "queries")
            if len(self.queries) != len(self.counterfactuals):
                raise InputError(
                    f"{len(self.queries)} queries for {len(self.counterfactuals)} counterfactuals;"
                    " give one each"
                )
        if self.holdout is not None:
            require_features(self.holdout, self.population.schema.features, "holdout")

    def _counts(self) -> str:
        return f"{self.anonymizer!r}, {min(len(self.counterfactuals), self.limit)} counterfactuals"

    @property
    def population(self) -> Population:
        return require(
            "population", self.anonymizer.population_, Population, "fit with training rows"
        )

    @property
    def k(self) -> int:
        return self.anonymizer.policy_.k

    @cached_property
    def raw(self) -> pd.DataFrame:
        return self._sampled(self.counterfactuals)

    @cached_property
    def factuals(self) -> pd.DataFrame | None:
        return None if self.queries is None else self._sampled(self.queries)

    @cached_property
    def explanations(self) -> Explanations:
        return self.anonymizer.transform(self.raw, self.factuals)

    @cached_property
    def crowd(self) -> CandidatePeople:
        return CandidatePeople(self.population, self.population)

    @cached_property
    def outsiders(self) -> CandidatePeople | None:
        if self.holdout is None:
            return None
        return CandidatePeople(
            Population.from_frame(self.holdout, self.population.schema), self.population
        )

    @cached_property
    def releases(self) -> Releases:
        return Releases(list(self.explanations), self.raw, self.crowd)

    @cached_property
    def places(self) -> DistinctRecords:
        """The people inside the released regions, by distinct quasi-identifiers."""
        return self.releases.places()

    @cached_property
    def consistent(self) -> list[Mask]:
        """Per release and row inside: whether its own quasi-identifiers with the released values
        are desired.
        """
        return self.places.spread(self.desired(self.places, self.releases))

    def labels(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels, block by block."""
        model = self.anonymizer.model_
        parts = [
            model(frame.iloc[at : at + _BLOCK]).astype(object)
            for at in range(0, len(frame), _BLOCK)
        ]
        return np.concatenate([np.empty(0, dtype=object), *parts])

    def desired(self, places: DistinctRecords, releases: Releases) -> Mask:
        """Say for every place whether the released values would be desired there."""
        if not len(places):
            return np.zeros(0, dtype=bool)
        return self.judge(
            self.labels(places.questions(releases.private)), releases.at[places.which]
        )

    def judge(self, labels: NDArray[Any], at: Rows) -> Mask:
        return np.asarray(self._judge(labels, at), dtype=bool)

    @cached_property
    def _judge(self) -> Any:
        goal = self.anonymizer.goal_
        no_labels = np.empty(0, dtype=object)
        factuals = self.factuals
        if factuals is not None:
            factual_labels = goal.labels_if_needed(
                lambda: self.labels(self.population.conform(factuals))
            )
            return goal.test_for(no_labels, factual_labels)
        own_labels = goal.labels_if_needed(lambda: self.labels(self.population.conform(self.raw)))
        return goal.test_for(no_labels if own_labels is None else own_labels)

    def control(self, survivors: Callable[[DistinctRecords], list[Mask]]) -> Rate | None:
        """Attack people of the holdout as well: a hit carries the released values by
        coincidence.
        """
        if self.outsiders is None:
            return None
        places = self.releases.places(self.outsiders)
        return rate(self.releases.coincidence(places, survivors(places)), self.seed)

    def result(
        self,
        attack: str,
        scenario: str,
        chance: ArrayLike,
        figures: Mapping[str, float],
        control: Rate | None = None,
        *,
        baseline: ArrayLike | None = None,
    ) -> AuditResult:
        """Build a result.

        The default baseline is naming anybody in the region.
        """
        anybody = self.releases.found(self.releases.everybody()) if baseline is None else baseline
        main, base = rate(chance, self.seed), rate(anybody, self.seed)
        n_releases = len(self.releases)
        return AuditResult(attack, scenario, main, base, control, figures, self.seed, n_releases)

    def _sampled(self, frame: pd.DataFrame) -> pd.DataFrame:
        features = frame[list(self.population.schema.features)].reset_index(drop=True)
        if len(features) <= self.limit:
            return features
        chosen = np.random.default_rng(self.seed).choice(len(features), self.limit, replace=False)
        return features.take(np.sort(chosen)).reset_index(drop=True)
