"""Copying a model from its answers, and how much better that works with explanations than with
outcomes alone.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special
from sklearn.base import BaseEstimator, TransformerMixin

from cfk_plugin.audit.result import AttackReport, AuditResult, Rate, rate
from cfk_plugin.audit.targets import (
    Floats,
    Found,
    KnownArchitecture,
    Mask,
    Rows,
    Sample,
    Target,
    TrainedTarget,
    check_sample,
    report_on,
)
from cfk_plugin.data.region import to_text
from cfk_plugin.data.tables import whole_number
from cfk_plugin.data.values import conform, is_numeric, to_numbers
from cfk_plugin.errors import CFKError, InputError, ModelError, quiet
from cfk_plugin.metrics.intervals import bootstrap

T = TypeVar("T")


def called(what: str, call: Callable[[], T]) -> T:
    """Call without warnings, and without the text of foreign errors."""
    failed = f"{what} failed ({{}}); try it on the table without an attack"
    with quiet(failed, ModelError, let=CFKError), warnings.catch_warnings():
        # of single trainings among many: not converged, an unknown category
        warnings.simplefilter("ignore")
        return call()


class RowsAsNumbers(TransformerMixin, BaseEstimator):
    """Scale numbers and dates, missing ones to the mean; give every known category a column.

    Host side only.
    """

    def fit(self, X: pd.DataFrame, y: Any = None) -> RowsAsNumbers:  # noqa: ARG002 - scikit-learn hands it over
        self.numbers_ = {name: _scale(_finite(X[name])) for name in X if is_numeric(X[name])}
        self.categories_ = {
            name: pd.Index(sorted({text for text in _texts(X[name]) if text is not None}))
            for name in X
            if name not in self.numbers_
        }
        return self

    def transform(self, X: pd.DataFrame) -> Floats:
        columns: list[Floats] = [np.empty((len(X), 0))]
        for name, (mean, deviation) in self.numbers_.items():
            columns.append(np.nan_to_num((_finite(X[name]) - mean) / deviation)[:, None])
        for name, known in self.categories_.items():
            at = known.get_indexer(pd.Index(_texts(X[name])))
            columns.append((at[:, None] == np.arange(len(known))).astype(np.float64))
        return np.hstack(columns)


def _finite(column: pd.Series) -> Floats:
    numbers, bad = to_numbers(column)
    return np.where(bad, np.nan, numbers)


def _scale(numbers: Floats) -> tuple[float, float]:
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return 0.0, 1.0
    return float(present.mean()), float(present.std()) or 1.0


def _texts(column: pd.Series) -> list[str | None]:
    return [
        None if missing else to_text(value)
        for value, missing in zip(column, column.isna(), strict=True)
    ]


Architecture = Callable[[int], Any]
"""From a seed to a new classifier that takes a DataFrame of features; see `KnownArchitecture`."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network of dense layers on rows as numbers."""

    layers: tuple[int, ...] = (64, 32)
    epochs: int = 100

    def __call__(self, seed: int) -> Any:
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline

        network = MLPClassifier(self.layers, max_iter=self.epochs, random_state=seed)
        return make_pipeline(RowsAsNumbers(), network)


def architectures(
    owner: Target, known: Architecture | None = None, unknown: Architecture | None = None
) -> dict[str, Architecture]:
    """Return what attackers train who know the owner's kind of model ("known"), and who do not
    ("unknown").
    """
    if known is None and isinstance(owner, KnownArchitecture):
        known = owner.architecture
    found = {} if known is None else {"known": known}
    return found | {"unknown": unknown or _another(known)}


def name_of(architecture: Architecture) -> str:
    return type(_last_step(architecture(0))).__name__


def _another(known: Architecture | None) -> Architecture:
    from sklearn.neural_network import MLPClassifier

    of_owner = None if known is None else _last_step(known(0))
    if not isinstance(of_owner, MLPClassifier):
        return Network()
    layers = tuple(int(width) for width in np.atleast_1d(of_owner.hidden_layer_sizes))
    return Network((*layers, (64, *layers)[-1]), of_owner.max_iter)


def _last_step(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


SETS = 4
LEAST = 10  # people of one half: fewer cannot be attacked


class Halves(NamedTuple):
    """One set, as positions in the sample."""

    members: Rows
    others: Rows


Sets = tuple[Halves, ...]
"""The owner's set, and three disjoint ones of the attacker, who knows everything about them."""


def draw_sets(sample: Sample, seed: int) -> Sets:
    """Split a sample at random into four sets of equal size, and each into two halves."""
    check_sample(sample)
    half = len(sample) // (2 * SETS)
    if half < LEAST:
        raise InputError(
            f"{len(sample)} people make halves of {half}, and these attacks need {LEAST}; "
            f"give at least {2 * SETS * LEAST} people"
        )
    order = np.random.default_rng([seed, 0]).permutation(len(sample)).astype(np.int64)
    return tuple(
        Halves(*np.split(order[at * 2 * half : (at + 1) * 2 * half], 2)) for at in range(SETS)
    )


def everybody(sets: Sequence[Halves]) -> Rows:
    return np.concatenate([rows for halves in sets for rows in halves])


def train(owner: Target, people: Sample, seed: int) -> TrainedTarget:
    return called("the owner's training", lambda: owner.train(people, seed))


def outcomes(service: TrainedTarget, X: pd.DataFrame) -> Mask:
    found = called(
        "the owner's model", lambda: np.asarray(service.desired(X), dtype=bool).reshape(-1)
    )
    if len(found) != len(X):
        raise ModelError(
            f"the owner's model gave {len(found)} outcomes for {len(X)} rows; it must give one each"
        )
    return found


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Transfer:
    """Queries in order, and the replies. Holds rows, only in memory."""

    X: pd.DataFrame
    desired: Mask
    rows: pd.DataFrame
    query: Rows

    def answers(self, queries: int) -> int:
        return int(np.searchsorted(self.query, queries))

    def pairs(self, queries: int, *, explained: bool) -> tuple[pd.DataFrame, Mask]:
        """Return the training data of a surrogate: the first queries with outcomes, and their
        answers as desired.
        """
        X, desired = self.X.iloc[:queries], self.desired[:queries]
        count = self.answers(queries) if explained else 0
        if not count:
            return X, desired
        both = pd.concat([X, self.rows.iloc[:count]], ignore_index=True)
        return both, np.concatenate([desired, np.ones(count, dtype=bool)])


def ask(service: TrainedTarget, X: pd.DataFrame, explained: int | None = None) -> Transfer:
    """Ask for outcomes of rows, and for counterfactuals of those with the undesired outcome."""
    X = X.reset_index(drop=True)
    desired = outcomes(service, X)
    undesired = np.flatnonzero(~desired[: len(X) if explained is None else explained])
    queries = X.take(undesired)
    if not len(queries):
        return Transfer(X, desired, queries, undesired)
    answers = called("the owner's explainer", lambda: service.explain(queries))
    found = np.asarray(answers.found, dtype=bool).reshape(-1)
    if len(found) != len(queries) or len(answers.rows) != len(queries):
        raise ModelError(
            f"the owner's explainer gave {len(answers.rows)} answers to {len(queries)} queries"
        )
    rows = answers.rows[list(X.columns)].set_axis(queries.index)
    found = found & rows.notna().any(axis=1).to_numpy()
    filled = {name: _filled(rows[name][found], queries[name][found]) for name in X}
    return Transfer(X, desired, pd.DataFrame(filled).reset_index(drop=True), undesired[found])


def fit(architecture: Architecture, pairs: tuple[pd.DataFrame, Mask], seed: int) -> Surrogate:
    X, desired = pairs
    if desired.all() or not desired.any():
        return Surrogate(None, bool(desired[0]))
    return Surrogate(
        called("training the surrogate", lambda: architecture(seed).fit(X, desired)), False
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Surrogate:
    model: Any
    always: bool

    def desired(self, X: pd.DataFrame) -> Mask:
        if self.model is None:
            return np.full(len(X), self.always)
        return called("the surrogate", lambda: np.asarray(self.model.predict(X), dtype=bool))

    def confidence(self, X: pd.DataFrame) -> Floats:
        if self.model is None:
            return np.full(len(X), float(self.always))
        at = list(self.model.classes_).index(True)
        return called(
            "the surrogate",
            lambda: np.asarray(self.model.predict_proba(X)[:, at], dtype=np.float64),
        )


def _filled(given: pd.Series, own: pd.Series) -> pd.Series:
    missing = given.isna()
    if missing.any():
        given = given.astype(object).where(~missing, own.astype(object)).infer_objects()
    return conform(given, own.dtype)


def share(right: Sequence[Mask], people: Sequence[Rows], seed: int) -> Rate:
    return _widened(rate(_per_person(right, people), seed), right, (0.0, 1.0))


def gain(first: Sequence[Mask], second: Sequence[Mask], people: Sequence[Rows], seed: int) -> Rate:
    """Return how much more often the first guesses are right than the second, on the same people;
    in [-1, 1].
    """
    differences = [a.astype(np.float64) - b for a, b in zip(first, second, strict=True)]
    each = _per_person(differences, people)
    found = Rate(float(each.mean()), *bootstrap(each, random_state=seed), len(each))
    return _widened(found, differences, (-1.0, 1.0))


def _widened(found: Rate, draws: Sequence[NDArray[Any]], within: tuple[float, float]) -> Rate:
    """Add the spread between draws to an interval over people, in quadrature."""
    shares, spread = [float(values.mean()) for values in draws], 0.0
    if len(shares) > 1:
        spread = (
            float(special.stdtrit(len(shares) - 1, 0.975))
            * deviation(shares)
            / math.sqrt(len(shares))
        )
    low = found.value - math.hypot(found.value - found.low, spread)
    high = found.value + math.hypot(found.high - found.value, spread)
    return Rate(found.value, max(low, within[0]), min(high, within[1]), found.n)


def deviation(shares: Sequence[float]) -> float:
    return float(np.std(shares, ddof=1)) if len(shares) > 1 else math.nan


def balanced(right: Sequence[Mask], desired: Sequence[Mask]) -> float:
    """Return the mean of the shares right for either outcome; NaN if an outcome does not occur."""
    hits, of = np.concatenate(right), np.concatenate(desired)
    if of.all() or not of.any():
        return math.nan
    return float((hits[of].mean() + hits[~of].mean()) / 2)


def _per_person(values: Sequence[NDArray[Any]], people: Sequence[Rows]) -> Floats:
    who: NDArray[np.intp] = np.unique(np.concatenate(people), return_inverse=True)[1]
    return np.asarray(np.bincount(who, np.concatenate(values)) / np.bincount(who), dtype=np.float64)


WAYS = ("explained", "alone", "further")
"""What a surrogate is trained on: queries and counterfactuals, queries alone, or queries and as
many further ones as there were counterfactuals."""

_OWN = 1000  # most of the attacker's own people used to set a threshold: the last ones asked about


@dataclass(frozen=True, slots=True, repr=False)
class ExtractionTask:
    owner: Target
    sample: Sample
    sets: Sets
    sizes: tuple[int, ...]
    kinds: Mapping[str, Architecture]
    held_out: int
    seed: int

    def draw(self, at: int) -> Found:
        """Draw queries, ask, train all surrogates; return the held-out people's outcomes, plain and
        `matched`.
        """
        random = np.random.default_rng([self.seed, 1, at])
        order = random.permutation(everybody(self.sets[1:]))
        service = train(self.owner, self.sample.take(self.sets[0].members), self.seed)
        most = self.sizes[-1]
        asked = self.sample.X.take(order[: 2 * most])
        transfer = ask(service, asked, explained=most)
        needed = [size + transfer.answers(size) for size in self.sizes]
        spent = max(most, *(count for count in needed if count <= len(order)))
        free = np.concatenate([self.sets[0].others, order[spent:]])
        people = random.permutation(free)[: self.held_out]
        X, known = self.sample.X.take(people), self.sample.X.take(order[-_OWN:])
        found: dict[str, NDArray[Any]] = {"people": people, "target": outcomes(service, X)}
        for size, count in zip(self.sizes, needed, strict=True):
            found[f"replies_{size}"] = np.array(
                [transfer.answers(size), int((~transfer.desired[:size]).sum())]
            )
            ways = {
                "explained": transfer.pairs(size, explained=True),
                "alone": transfer.pairs(size, explained=False),
            }
            if count <= len(order):
                ways["further"] = transfer.pairs(count, explained=False)
            for way, pairs in ways.items():
                for kind, architecture in self.kinds.items():
                    surrogate = fit(architecture, pairs, self.seed + at)
                    sure, own = surrogate.confidence(X), surrogate.confidence(known)
                    found[f"{kind}_{size}_{way}"] = surrogate.desired(X)
                    found[f"{kind}_{size}_{way}_matched"] = matched(
                        sure, own, transfer.desired[:size].mean()
                    )
        return found


def matched(confidence: Floats, own: Floats, desired: float) -> Mask:
    """Say who gets the desired outcome, at the threshold where own people get it as often as
    queries did.
    """
    limits = np.append(np.unique(own), np.inf)
    shares = 1 - np.searchsorted(np.sort(own), limits) / len(own)
    return np.asarray(confidence >= limits[np.abs(shares - desired).argmin()])


QUERIES = (250, 500, 1000, 2000)
"""Numbers of queries in the paper."""

_SCENARIO = (
    "Knows people of the same population, asks {queries} queries, gets outcomes and counterfactuals"
    " of the undesired ones, and trains {kind} on both."
)
_KINDS = {"known": "a model of the owner's kind", "unknown": "a model of another kind"}


def extraction(
    owner: Target,
    sample: Sample,
    *,
    queries: Sequence[int] = QUERIES,
    known: Architecture | None = None,
    unknown: Architecture | None = None,
    repeats: int = 3,
    held_out: int = 2000,
    seed: int = 0,
) -> AttackReport:
    """Copy a model from its outcomes and counterfactuals, and measure what the counterfactuals add.

    An attacker who uses counterfactuals has more replies than one who does not, so the control asks
    as many further ordinary queries as there were counterfactuals: only what exceeds both is due to
    the explanations themselves. Source: Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private
    Counterfactuals via Functional Mechanism, 5.3.2.

    Parameters
    ----------
    owner, sample
        At least 80 people, split into four sets: the owner trains on half of one, the attacker
        knows the others.
    queries : sequence of int
        One result each. Sizes above the attacker's number of people are left out, and named in the
        settings.
    known, unknown : callable, optional
        From a seed to a classifier that takes a DataFrame; see `architectures` for the defaults.
    repeats : int
        Draws of the queries. The owner trains on the same people with the same seed in all of them.
    held_out : int
        Most people on whom agreement is measured, different in each draw: neither trained on nor
        asked about.
    seed : int

    Returns
    -------
    AttackReport
        `main`: share of held-out people for whom surrogate and model agree, with explanations,
        which are labelled with the desired outcome (Eq. 22 of the paper); `baseline`: with queries
        alone; `control`: with further queries, None if there are not enough people. Intervals cover
        people and draws.
    """
    started = time.perf_counter()
    whole_number("seed", seed, 0)
    if repeats < 1 or held_out < 1:
        raise InputError("repeats and held_out must be at least 1")
    sets = draw_sets(sample, seed)
    sizes, left_out = sizes_that_fit(queries, len(everybody(sets[1:])))
    kinds = architectures(owner, known, unknown)
    task = ExtractionTask(owner, sample, sets, sizes, kinds, held_out, seed)
    draws = [task.draw(at) for at in range(repeats)]
    settings: dict[str, str | int | float | bool] = {
        "people": len(sample),
        "trained_on": len(sets[0].members),
        "queries": ", ".join(map(str, sizes)),
        "queries_left_out": ", ".join(map(str, left_out)),
        "repeats": repeats,
        "held_out": held_out,
        "seed": seed,
        **{kind: name_of(architecture) for kind, architecture in kinds.items()},
    }
    results = [_result(kind, size, draws, sample.y, seed) for kind in kinds for size in sizes]
    return report_on(owner, "extraction", results, settings, started=started)


def sizes_that_fit(queries: Sequence[int], people: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of queries that this many people allow, ascending, and the others."""
    sizes = sorted(set(queries))
    if not sizes or any(
        not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes
    ):
        raise InputError("queries must be whole numbers above 0")
    fit_in = tuple(size for size in sizes if size <= people)
    if not fit_in:
        raise InputError(
            f"{sizes[0]} queries need as many people, and the attacker has {people}; ask fewer"
        )
    return fit_in, tuple(sizes[len(fit_in) :])


def _result(kind: str, size: int, draws: Sequence[Found], truth: Mask, seed: int) -> AuditResult:
    people, target = [draw["people"] for draw in draws], [draw["target"] for draw in draws]
    ways = [way for way in WAYS if all(f"{kind}_{size}_{way}" in draw for draw in draws)]
    guessed = {way: [draw[f"{kind}_{size}_{way}"] for draw in draws] for way in ways}
    right = {way: [a == b for a, b in zip(guessed[way], target, strict=True)] for way in ways}
    rates = {way: share(right[way], people, seed) for way in ways}
    corrected = {
        way: [draw[f"{kind}_{size}_{way}_matched"] == draw["target"] for draw in draws]
        for way in ways
    }
    figures: dict[str, float] = {}
    for name, of in (("gain", right), ("matched_gain", corrected)):
        figures |= gain(of["explained"], of["alone"], people, seed).figures(name)
        if "further" in ways:
            figures |= gain(of["explained"], of["further"], people, seed).figures(
                f"{name}_over_further"
            )
    figures["draws_sd"] = deviation([float(values.mean()) for values in right["explained"]])
    answers, undesired = np.sum([draw[f"replies_{size}"] for draw in draws], axis=0)
    figures["answers"] = float(answers / len(draws))
    figures["answered"] = float(answers / undesired) if undesired else math.nan
    figures["accuracy_model"] = _accuracy(target, people, truth)
    for way in ways:
        name = "" if way == "explained" else f"_{way}"
        figures[f"matched_fidelity{name}"] = float(np.concatenate(corrected[way]).mean())
        figures[f"balanced_fidelity{name}"] = balanced(right[way], target)
        figures[f"accuracy{name}"] = _accuracy(guessed[way], people, truth)
    return AuditResult(
        attack=f"extraction_{kind}_{size}",
        scenario=_SCENARIO.format(queries=size, kind=_KINDS[kind]),
        main=rates["explained"],
        baseline=rates["alone"],
        control=rates.get("further"),
        figures=figures,
        seed=seed,
        n=rates["explained"].n,
    )


def _accuracy(guessed: Sequence[Mask], people: Sequence[Rows], truth: Mask) -> float:
    return float(
        np.mean(np.concatenate([a == truth[who] for a, who in zip(guessed, people, strict=True)]))
    )
