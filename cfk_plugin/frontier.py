"""The frontier: what every k costs, measured on the same counterfactuals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.encoded_table import Counterfactual, as_table, require_features
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy, policy_or
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.region import Interval, Part, part_contains
from cfk_plugin.errors import InputError, refitting
from cfk_plugin.metrics import Estimate, wilson
from cfk_plugin.metrics.combinations import Plausibility, plausibility, region_plausibility
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.metrics.intervals import Figures, mean_of
from cfk_plugin.records.run import LoggedReport, ReportContents, Value
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.fit_checks import check
from cfk_plugin.release.protector_choice import AUTO
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld

if TYPE_CHECKING:
    from cfk_plugin.hookspecs import Progress, Protector


KS = (2, 3, 5, 10, 15, 20, 25, 30)
"""The values of k that are tried by default."""


def frontier(
    counterfactuals: pd.DataFrame | Sequence[Counterfactual],
    *,
    population: Population,
    model: Any,
    desired: Any,
    policy: PrivacyPolicy | None = None,
    ks: Iterable[int] | None = None,
    factuals: pd.DataFrame | None = None,
    method: str | Protector = AUTO,
    compare: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Frontier:
    """Protect the same counterfactuals under every k and measure what each k costs.

    Nothing is released.

    It says what k costs and not what it protects against: that is the policy's guarantee. Plugins
    are not told of releases, and no ledger is asked or written. `LookupGuaranteeWarning` warns of
    a lookup guarantee.

    Parameters
    ----------
    counterfactuals, population, model, desired, factuals, method
        As for `KAnonymizer` and its `fit` and `transform`.
    policy : PrivacyPolicy, optional
        Its k is replaced. Default: the population's, else ``PrivacyPolicy()``.
    ks : iterable of int, optional
        Default: those of `KS` that the population allows.
    compare : bool
        Whether to compare the policy at its own k with no protection and with Mondrian over the
        whole table, and to measure distances to training rows; needs the rows.
    seed : int
        For protectors and samples that draw random numbers, and for the bootstrap.
    progress : callable, optional
        Called with (done, total) k.

    Raises
    ------
    PolicyError
        If a k is above the number of people or below the floor of a sealed population, or as
        `KAnonymizer.fit`.
    ModelError
        If the model cannot be used.
    InputError
        If a table lacks features, there is not one factual each, or `ks` holds anything but whole
        numbers.
    """
    check_population(population)
    if compare:
        population.require_rows(
            InputError(
                "baselines need the training rows, and a sealed or distributed population has none"
                " here"
            )
        )
    policy = policy_or(policy, population.policy)
    tried = _whole(ks, population)
    # refuses, and warns of a lookup guarantee, once
    check(replace(policy, k=tried[-1]), method, population)
    frame, query = as_table(counterfactuals, population.schema.features)
    facts = (
        None
        if factuals is None
        else require_features(factuals, population.schema.features, "factuals")
    )
    if facts is not None and len(facts) != len(frame):
        raise InputError(f"{len(facts)} factuals for {len(frame)} counterfactuals; give one each")

    def released(
        asked: PrivacyPolicy, how: str | Protector
    ) -> tuple[KAnonymizer, NDArray[Any] | None, list[Explanation]]:
        anonymizer = KAnonymizer(policy=asked, method=how, seed=seed)
        with refitting():
            anonymizer.fit(population, model, desired)
        labels = None
        if facts is not None:
            labels = anonymizer.goal_.labels_if_needed(lambda: anonymizer.factual_labels(facts))
        rules = anonymizer.rules_for(facts)
        return (
            anonymizer,
            labels,
            anonymizer.pipeline_.release(frame, query, labels, factuals=facts, rules=rules)[0],
        )

    found: list[list[Explanation]] = []
    for done, k in enumerate(tried, start=1):
        anonymizer, labels, entries = released(replace(policy, k=k), method)
        found.append(entries)
        if progress is not None:
            progress(done, len(tried))
    beside: list[Baseline] = []
    if compare:
        plain = policy.with_guarantee("lookup")
        goal = DesiredOutcome.of(desired)
        ask = LabelModel(model, population.schema.features, goal)
        asks = _Asking(population, goal, ask, facts, labels, seed)
        for name, asked, how in (("policy", policy, method), ("mondrian", plain, "mondrian")):
            beside.append(_protected(name, released(asked, how)[2], frame, population, asks))
        beside.append(_raw(frame, _needing_an_answer(found[0]), population, asks))
    common = np.all(
        [[isinstance(e, GeneralizedCounterfactual) for e in entries] for entries in found], axis=0
    )
    return Frontier(
        points=tuple(
            _point(k, entries, common, seed) for k, entries in zip(tried, found, strict=True)
        ),
        policy=policy.to_dict(),
        method=anonymizer.method_,
        population=population.fingerprint,
        asked=len(frame),
        common=int(common.sum()),
        seed=seed,
        baselines=tuple(beside),
    )


def _whole(ks: Iterable[int] | None, population: Population) -> list[int]:
    if ks is None:
        floor = 2 if population.policy is None else population.policy.k
        return [k for k in KS if floor <= k <= population.n_people] or [floor]
    try:
        tried = sorted({index(k) for k in ks})
    except TypeError:
        tried = []
    if not tried:
        raise InputError("ks must be whole numbers, at least one; leave it out for the usual ones")
    return tried


def _point(k: int, entries: Sequence[Explanation], common: NDArray[np.bool_], seed: int) -> Point:
    certificates = [
        e.certificate if isinstance(e, GeneralizedCounterfactual) else None for e in entries
    ]
    found = [c for c in certificates if c is not None]
    alike = [
        c for c, is_common in zip(certificates, common, strict=True) if c is not None and is_common
    ]
    reasons = Counter(e.reason for e in entries if isinstance(e, Withheld))
    # nobody is left without an answer whose outcome is the desired one already
    needed = len(entries) - reasons[ALREADY_DESIRED]
    withheld = needed - len(found)
    rate = Estimate(math.nan, math.nan, math.nan, 0)
    if needed:
        rate = Estimate(withheld / needed, *wilson(withheld, needed), needed)
    return Point(
        k=k,
        asked=len(entries),
        released=len(found),
        k_min=min((c.k for c in found), default=None),
        reasons=dict(sorted(reasons.items())),
        ncp_mean=_mean([c.ncp for c in found], seed),
        pureness_mean=_mean([c.pureness for c in found], seed),
        withheld_rate=rate,
        common_ncp_mean=_mean([c.ncp for c in alike], seed),
        common_pureness_mean=_mean([c.pureness for c in alike], seed),
    )


def _mean(values: ArrayLike, seed: int) -> Estimate:
    """Return a mean with its interval; every k resamples the same counterfactuals."""
    return mean_of(np.asarray(values, dtype=np.float64), np.random.default_rng(seed))


ARTIFACT = "cfk/frontier.json"
SCHEMA_VERSION = 1
"""Version of the layout of `Frontier.to_json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Figures):
    """What one k costs. Means and shares have 95 % intervals over counterfactuals."""

    k: int
    asked: int  # counterfactuals
    released: int
    k_min: int | None  # fewest people who fit a released region; None when nothing is released
    reasons: Mapping[str, int]  # why the others are withheld; see `WITHHOLDING_REASONS`
    ncp_mean: Estimate  # over what is released at this k, which differs from k to k
    pureness_mean: Estimate
    withheld_rate: Estimate  # share withheld of those who needed an answer
    common_ncp_mean: Estimate  # over what is released at every k of the frontier, so comparable
    common_pureness_mean: Estimate

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Return the figures that have an interval, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Estimate)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(Figures, LoggedReport):
    """What every k costs on the same counterfactuals.

    Holds counts, means and settings, no value of a row.

    For the data holder: counts are exact, and small ones say something of single people.
    """

    points: tuple[Point, ...]  # smallest k first
    policy: Mapping[str, Any]  # settings of the policy that was given, with its own k
    method: str  # the protector's name
    population: str  # keyed fingerprint
    asked: int  # counterfactuals
    common: int  # those of them that are released at every k
    seed: int
    # the policy at its own k beside Mondrian and no protection, where asked for
    baselines: tuple[Baseline, ...] = ()

    def __iter__(self) -> Iterator[Point]:
        """Iterate over the points."""
        return iter(self.points)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per k; a figure with an interval has three columns, as ``ncp_mean``,
        ``ncp_mean_low``, ...
        """
        rows = []
        for point in self.points:
            row: dict[str, Any] = {
                "k": point.k,
                "asked": point.asked,
                "released": point.released,
                "k_min": point.k_min,
            }
            for name, found in point.estimates.items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row | {"common": self.common})
        return pd.DataFrame(rows).astype({"k_min": "Int64"})

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        return {"schema_version": SCHEMA_VERSION, "kind": "frontier", **Figures.to_dict(self)}

    def _contents(self) -> ReportContents:
        """Return metrics ``frontier/<figure>`` with k as their step, the settings, and the report,
        which also has the intervals.
        """
        settings = {
            "ks": ",".join(str(point.k) for point in self.points),
            "asked": self.asked,
            "common": self.common,
            "guarantee": self.policy["guarantee"],
            "method": self.method,
            "seed": self.seed,
        }
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=ARTIFACT,
            metrics=tuple(self._values()),
            params={f"frontier.{name}": str(value) for name, value in settings.items()},
            tags={
                "cfk.frontier": str(SCHEMA_VERSION),
                "cfk.population_fingerprint": self.population,
            },
        )

    def _values(self) -> Iterator[Value]:
        for point in self.points:
            if point.k_min is not None:
                yield Value("frontier/k_min", point.k_min, point.k)
            for name, found in point.estimates.items():
                if math.isfinite(found.value):
                    yield Value(f"frontier/{name}", found.value, point.k)


_MOST, _DRAWN = 100, 20  # counterfactuals looked at, and combinations of each region


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Figures):
    """What one way of protecting costs on the same counterfactuals.

    Means with 95 % intervals over what is released.
    """

    # "policy"; "mondrian" over the whole table, as published; "raw", where all leave as they are,
    # apart from those of people who have the desired outcome already
    name: str
    released: int
    ncp_mean: Estimate
    pureness_mean: Estimate
    # Plausibility: HEOM distance from what an explanation stands for (20 draws of its region) to
    # the nearest training row, and to the five nearest; over at most 100 explanations. 0 is a
    # training row.
    nearest: Estimate
    nearest_5: Estimate
    # With factuals: mean HEOM distance from each to the nearest point of what is released, and the
    # share for whom the model gives the desired outcome there.
    distance: Estimate | None = None
    true: Estimate | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Asking:
    population: Population
    goal: DesiredOutcome
    model: LabelModel
    facts: pd.DataFrame | None
    labels: NDArray[Any] | None
    seed: int

    def reached(self, rows: pd.DataFrame, at: NDArray[np.int64]) -> NDArray[np.float64]:
        labels = self.model(self.population.conform(rows))
        # Where no factual's label is known, the outcome is the one that the row itself has.
        factual_labels = None if self.labels is None else self.labels[at]
        is_desired = self.goal.test_for(labels, factual_labels)
        return is_desired(labels, np.arange(len(rows))).astype(float)

    def measured(self, points: pd.DataFrame, at: NDArray[np.int64]) -> dict[str, Estimate]:
        """Return how far the points are from the factuals, and the share at which the outcome is
        desired.
        """
        if self.facts is None or not len(points):
            return {}
        heom, features = Heom.of(self.population), list(self.population.schema.features)
        facts, there = (
            self.population.conform(rows[features]) for rows in (self.facts.take(at), points)
        )
        away = heom.parts(facts, there).mean(axis=1)
        return {
            "distance": _mean(away, self.seed),
            "true": _mean(self.reached(points, at), self.seed),
        }


def nearest_points(
    entries: Sequence[GeneralizedCounterfactual],
    queries: Sequence[Mapping[str, Any]],
    population: Population,
) -> pd.DataFrame:
    """Return the point of each entry that is nearest to its query; the query's own values are kept
    where inside.
    """
    points = [
        {
            **query,
            **{
                name: _nearest(population.domains[name], part, query[name])
                for name, part in entry.parts().items()
            },
        }
        for entry, query in zip(entries, queries, strict=True)
    ]
    return pd.DataFrame(points, columns=list(population.schema.features), dtype=object)


def _nearest(domain: Domain, part: Part, value: Any) -> Any:
    if part_contains(part, value):
        return value
    if isinstance(part, Interval) and domain.attribute.kind == "numeric":
        if part.low is None:
            return None
        low, high = (
            (math.ceil(part.low), math.floor(part.high))
            if domain.is_whole
            else (part.low, part.high)
        )
        return high if not pd.isna(value) and value > high else low
    return domain.value(int(np.argmax(domain.inside(part))))


def _protected(
    name: str,
    entries: Sequence[Explanation],
    frame: pd.DataFrame,
    population: Population,
    asks: _Asking,
) -> Baseline:
    regions = [(i, e) for i, e in enumerate(entries) if isinstance(e, GeneralizedCounterfactual)]
    certificates = [e.certificate for _, e in regions]
    near, told = [], {}
    for i, entry in regions[:_MOST]:
        draws = np.random.default_rng([asks.seed, i])
        near.append(
            region_plausibility(
                entry.region, frame.iloc[[i]], population, n=_DRAWN, random_state=draws
            )
        )
    if asks.facts is not None:
        at = np.array([i for i, _ in regions], dtype=np.int64)
        queries = asks.facts.take(at).to_dict("records")
        told = asks.measured(nearest_points([e for _, e in regions], queries, population), at)  # type: ignore[arg-type]
    return _baseline(
        name,
        [c.ncp for c in certificates],
        [c.pureness for c in certificates],
        near,
        asks.seed,
        told,
    )


def _needing_an_answer(entries: Sequence[Explanation]) -> NDArray[np.int64]:
    """Return the positions of those whose outcome is not the desired one already."""
    needs = [not (isinstance(e, Withheld) and e.reason == ALREADY_DESIRED) for e in entries]
    return np.flatnonzero(needs)


def _raw(
    frame: pd.DataFrame, at: NDArray[np.int64], population: Population, asks: _Asking
) -> Baseline:
    """Measure some counterfactuals as they are."""
    rows = frame.take(at)
    near = [plausibility(rows.iloc[[i]], population) for i in range(min(len(rows), _MOST))]
    pureness = asks.reached(rows, at) if len(rows) else np.empty(0)
    told = asks.measured(rows, at)
    return _baseline("raw", np.zeros(len(rows)), pureness, near, asks.seed, told)


def _baseline(
    name: str,
    ncp: ArrayLike,
    pureness: ArrayLike,
    near: Sequence[Plausibility],
    seed: int,
    told: Mapping[str, Estimate],
) -> Baseline:
    return Baseline(
        name=name,
        released=len(np.asarray(ncp)),
        ncp_mean=_mean(ncp, seed),
        pureness_mean=_mean(pureness, seed),
        nearest=_mean([found.nearest for found in near], seed),
        nearest_5=_mean([found.nearest_5 for found in near], seed),
        **told,
    )
