"""From outputs to scores, counts and lower bounds on epsilon; and from epsilon to what attacks can
reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from cfk_plugin.audit.result import Curve, Rate
from cfk_plugin.data.region import to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import is_numeric, to_numbers
from cfk_plugin.errors import InputError, quiet
from cfk_plugin.metrics.intervals import clopper_pearson, clopper_pearson_table

Floats = NDArray[np.float64]

Relation = Literal["add-remove", "replace-one"]
"""Which tables are neighbors: with one person more or less, or one person replaced by another."""
_NEAR = 0.05  # numbers within this share of the column's range agree


class Agreement:
    """Counts of released rows that agree with a canary in columns and pairs; numbers agree within 5
    % of the range.
    """

    def __init__(
        self, table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None = None
    ) -> None:
        self._canary = canary
        self._columns = _columns(table, schema)
        self._reach = {
            name: _reach(table[name], canary[name])
            for name, numeric in self._columns.items()
            if numeric
        }

    def __call__(self, released: pd.DataFrame) -> Floats:
        parts: list[Floats] = [np.array([len(released)], dtype=np.float64)]
        upper = np.triu_indices(len(self._columns))
        for at in range(len(self._canary)):
            agrees = np.column_stack(
                [self._agrees(released, name, at) for name in self._columns]
            ).astype(np.float64)
            most = agrees.sum(axis=1)
            parts += [
                (agrees.T @ agrees)[upper],
                np.array([(most == len(self._columns)).sum(), most.max(initial=0.0)]),
            ]
        for name in self._reach:
            if name in released.columns:
                numbers, _ = to_numbers(released[name])
                seen = numbers[np.isfinite(numbers)]
                parts.append(
                    np.array([seen.mean(), seen.min(), seen.max()]) if len(seen) else np.zeros(3)
                )
        return np.concatenate(parts)

    def _agrees(self, released: pd.DataFrame, name: str, at: int) -> NDArray[np.bool_]:
        if name not in released.columns:
            return np.zeros(len(released), dtype=bool)
        if name in self._reach:
            own = float(to_numbers(self._canary[name].iloc[[at]])[0][0])
            numbers, _ = to_numbers(released[name])
            return (
                np.isnan(numbers) if np.isnan(own) else np.abs(numbers - own) <= self._reach[name]
            )
        own_text = _texts(self._canary[name].iloc[[at]])[0]
        codes, values = pd.factorize(released[name], use_na_sentinel=False)
        return np.isin(codes, np.flatnonzero(_texts(pd.Series(values, dtype=object)) == own_text))


class ManyAgreements:
    """One number per canary: how much more often than in the table its values, and pairs of them,
    are released.
    """

    def __init__(
        self, table: pd.DataFrame, canaries: pd.DataFrame, schema: Schema | None = None
    ) -> None:
        self._table, self._canaries = table, canaries
        self._columns = _columns(table, schema)

    def __call__(self, released: pd.DataFrame) -> Floats:
        coded = [self._codes(released, name) for name in self._columns if name in released.columns]
        total, sizes = np.zeros(len(self._canaries)), (len(self._table), max(len(released), 1))
        for before, own, after in _combinations(coded):
            base = _counts(before, own) / sizes[0]
            total += (_counts(after, own) / sizes[1] - base) / np.sqrt(base + 1 / sizes[0])
        return total

    def _codes(self, released: pd.DataFrame, name: str) -> tuple[NDArray[np.int64], ...]:
        columns = [frame[name] for frame in (self._table, self._canaries, released)]
        if self._columns[name]:
            numbers = [to_numbers(column)[0] for column in columns]
            known = np.concatenate(numbers[:2])
            low, width = np.nanmin(known, initial=0.0), _reach(columns[0], columns[1]) or 1.0
            return tuple(
                np.nan_to_num(
                    np.floor((n - low) / width), nan=-1.0, posinf=-2.0, neginf=-2.0
                ).astype(np.int64)
                for n in numbers
            )
        codes = pd.factorize(np.concatenate([_texts(column) for column in columns]))[0].astype(
            np.int64
        )
        ends = np.cumsum([len(column) for column in columns])[:-1]
        return tuple(np.split(codes, ends))


def _combinations(
    coded: list[tuple[NDArray[np.int64], ...]],
) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield the codes of every column, of every pair and of whole rows, for each of the tables."""
    yield from coded
    if len(coded) > 2:
        rows = [np.column_stack(parts) for parts in zip(*coded, strict=True)]
        whole = np.unique(np.vstack(rows), axis=0, return_inverse=True)[1].ravel()
        yield tuple(np.split(whole, np.cumsum([len(part) for part in rows])[:-1]))
    for at, left in enumerate(coded):
        for right in coded[at + 1 :]:
            size = max(int(part.max(initial=0)) for part in right) + 3  # codes begin at -2
            yield tuple(a * size + b for a, b in zip(left, right, strict=True))


def _counts(codes: NDArray[np.int64], wanted: NDArray[np.int64]) -> Floats:
    return np.asarray(
        pd.Series(codes).value_counts().reindex(wanted, fill_value=0), dtype=np.float64
    )


def _columns(table: pd.DataFrame, schema: Schema | None) -> dict[str, bool]:
    """Return the columns to compare, and whether each is numeric."""
    if schema is None:
        return {str(name): is_numeric(table[name]) for name in table.columns}
    names = [name for name in (*schema.features, *schema.names("target")) if name in table.columns]
    return {name: schema[name].kind == "numeric" and is_numeric(table[name]) for name in names}


def _reach(column: pd.Series, canary: pd.Series) -> float:
    numbers = np.concatenate([to_numbers(column)[0], to_numbers(canary)[0]])
    seen = numbers[np.isfinite(numbers)]
    return _NEAR * float(np.ptp(seen)) if len(seen) else 0.0


def _texts(column: pd.Series) -> NDArray[np.object_]:
    """Spell categories in one way whatever the dtype; a missing value is the empty text."""
    return np.array(
        ["" if pd.isna(value) else to_text(value) for value in column.astype(object)], dtype=object
    )


Score = Callable[[Any], Any]


def vector_of(
    score: Score | None, agreement: Agreement | ManyAgreements | None, output: Any
) -> Floats:
    """Return an output as numbers: by the user's score, for a table by agreement with a canary,
    else as it is.
    """
    said = (
        "the output is no table, number or array of numbers ({}); say with score= what to look at"
        " in it"
    )
    if score is not None:
        said = "the score failed, or is no number or array of numbers ({})"
    with quiet(said, InputError):
        if score is not None:
            output = score(output)
        elif isinstance(output, pd.DataFrame) and agreement is not None:
            output = agreement(output)
        return np.asarray(output, dtype=np.float64).ravel()


def matrix(vectors: Sequence[Floats], width: int) -> Floats:
    """Stack vectors as finite numbers; two more columns have their lengths and numbers of
    non-finite entries.
    """
    found = np.zeros((len(vectors), width + 2))
    for row, vector in zip(found, vectors, strict=True):
        finite = np.isfinite(vector)
        kept = np.where(finite, vector, 0.0)[:width]
        row[: len(kept)] = kept
        row[width:] = len(vector), len(vector) - finite.sum()
    return found


_FOLDS = 5
_RIDGE = 1e-6  # of the variance: what has no noise gets a large weight instead of an infinite one


def learn(inside: Floats, outside: Floats) -> Callable[[Floats], Floats]:
    """Learn the linear discriminant of two worlds (Ledoit, Wolf), with 0 halfway and the noise
    within each as unit.
    """
    from sklearn.covariance import ledoit_wolf

    together = np.vstack([inside, outside])
    spread = together.std(axis=0)
    varies = spread > 1e-12 * np.maximum(np.abs(together).max(axis=0), 1e-300)
    scale = np.where(varies, spread, 1.0)
    scaled = [np.where(varies, side / scale, 0.0) for side in (inside, outside)]
    means = [side.mean(axis=0) for side in scaled]
    within = np.vstack([side - mean for side, mean in zip(scaled, means, strict=True)])
    covariance, _ = ledoit_wolf(within, assume_centered=True)
    covariance = np.atleast_2d(covariance) + _RIDGE * np.eye(within.shape[1])
    weights = np.linalg.solve(covariance, means[0] - means[1])
    noise = float(np.sqrt(weights @ covariance @ weights)) or 1.0
    weights = weights / noise
    offset = float(weights @ (means[0] + means[1]) / 2)
    return lambda vectors: np.asarray(vectors @ (weights / scale) - offset, dtype=np.float64)


def unseen_scores(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Score every run by a discriminant that did not see it: scores of seen runs are too far
    apart.
    """
    scores = (np.empty(len(inside)), np.empty(len(outside)))
    fold = np.arange(len(inside)) % _FOLDS
    for held in np.unique(fold):
        score = learn(inside[fold != held], outside[fold != held])
        for side, found in zip((inside, outside), scores, strict=True):
            found[fold == held] = score(side[fold == held])
    return scores


_OUT_OF_REACH = 30.0


class EpsilonBound(NamedTuple):
    """A lower bound on epsilon, and the two rates behind it."""

    epsilon: float
    tpr: Rate  # of the runs with the canary in which it was found
    fpr: Rate  # of the runs without it in which it was found nevertheless


def epsilon_bound(
    found: int,
    runs_with: int,
    alarms: int,
    runs_without: int,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Return a lower bound on epsilon from how often a canary was found in runs with it, and in
    runs without it.

    max(ln((tpr_low - delta) / fpr_high), ln((1 - fpr_high - delta) / (1 - tpr_low)), 0), from the
    definition of differential privacy for "found" and for "not found". Each end is one-sided
    Clopper-Pearson and wrong with probability at most (1 - confidence) / 2, so both hold with the
    stated confidence. The rule must be fixed before these runs, and the runs independent. Source:
    Jagielski, Ullman, Oprea (2020), Auditing differentially private machine learning.

    >>> round(epsilon_bound(200, 200, 0, 200).epsilon, 2)
    3.98
    """
    check_claim(0.0, delta, confidence)
    rates = [_rate(found, runs_with, confidence), _rate(alarms, runs_without, confidence)]
    epsilon = float(log_ratios(np.array(rates[0].low), np.array(rates[1].high), delta))
    return EpsilonBound(max(epsilon, 0.0), *rates)


def log_ratios(tpr_low: Floats, fpr_high: Floats, delta: float) -> Floats:
    """Return the larger of the two logarithms of `epsilon_bound`; -inf where delta alone explains
    the rates.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = ((tpr_low - delta) / fpr_high, (1 - fpr_high - delta) / (1 - tpr_low))
        logs = [np.log(np.maximum(ratio, 0.0)) for ratio in pairs]
    return np.asarray(np.maximum(*logs), dtype=np.float64)


def ceiling(runs: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the largest bound a canary audit could print: always found with the canary, never
    without.
    """
    tested = runs - runs // 2  # the second half of each world is counted
    return epsilon_bound(tested, tested, 0, tested, delta, confidence).epsilon


def runs_needed(epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> int | None:
    """Return the fewest runs in each world with which a canary audit could show a violation of
    epsilon.

    Parameters
    ----------
    epsilon, delta : float
        What is claimed.
    confidence : float

    Returns
    -------
    int or None
        Their ceiling lies above epsilon. A mechanism that leaks less than everything needs more.
        None from epsilon = 30 on: nobody can run anything so often.

    Examples
    --------
    >>> runs_needed(1.0), runs_needed(3.0), runs_needed(5.0)
    (24, 152, 1100)
    """
    check_claim(epsilon, delta, confidence)
    if epsilon >= _OUT_OF_REACH:
        return None
    # Perfect separation in n counted runs: tpr_low = a^(1/n), a = (1 - confidence) / 2, must exceed
    # (e^epsilon + delta) / (1 + e^epsilon).
    shrink = math.exp(-epsilon)
    needed = math.log((1 - confidence) / 2) / -math.log1p(
        (1 - delta) * shrink / (1 + delta * shrink)
    )
    runs = 2 * max(int(needed), 1)
    while ceiling(runs, delta, confidence) <= epsilon:
        runs += 2
    return runs


def check_claim(epsilon: float, delta: float, confidence: float = 0.95) -> None:
    if not 0 <= delta < 1:
        raise InputError("delta must be at least 0 and below 1")
    if not 0 < confidence < 1:
        raise InputError("confidence must be between 0 and 1")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError("epsilon must be a finite number of at least 0")


def _rate(successes: int, n: int, confidence: float) -> Rate:
    low, high = clopper_pearson(successes, n, confidence)
    return Rate(successes / n if n else math.nan, low, high, n)


_SAME = 9  # decimals to which rules are compared


Rule = Callable[[Floats], int]
"""From scores to the number of runs judged to have the canary: those with scores from a threshold
on, or below it.
"""


def rule_of(threshold: float, *, upward: bool) -> Rule:
    """Return the rule with a threshold and a direction: whether high scores mean the canary."""
    return lambda scores: int(((scores >= threshold) == upward).sum())


def choose_rule(inside: Floats, outside: Floats, delta: float, confidence: float) -> Rule:
    """Return the rule with the largest bound, the middle one of ties; "never in" if no direction is
    better.
    """
    values = np.unique(np.concatenate([inside, outside]))
    with np.errstate(invalid="ignore"):  # scores may be infinite
        middle = values[:-1] / 2 + values[1:] / 2
    thresholds = np.where(middle > values[:-1], middle, values[1:])
    if not len(thresholds):
        return rule_of(math.inf, upward=True)
    (low, _), (_, high) = (
        clopper_pearson_table(len(scores), confidence) for scores in (inside, outside)
    )
    over_in, over_out = (
        len(s) - np.searchsorted(np.sort(s), thresholds, "left") for s in (inside, outside)
    )
    upward = log_ratios(low[over_in], high[over_out], delta).round(_SAME)
    downward = log_ratios(low[len(inside) - over_in], high[len(outside) - over_out], delta).round(
        _SAME
    )
    if upward.max() == downward.max():
        return rule_of(math.inf, upward=True)
    gains = upward if upward.max() > downward.max() else downward
    best = np.flatnonzero(gains == gains.max())
    return rule_of(
        float(thresholds[best[len(best) // 2]]), upward=bool(upward.max() > downward.max())
    )


def epsilon_from_scores(
    inside: ArrayLike, outside: ArrayLike, delta: float = 0.0, confidence: float = 0.95
) -> EpsilonBound:
    """Return a lower bound on epsilon from one score per run of two neighboring worlds.

    Parameters
    ----------
    inside, outside : array of float
        Scores of independent runs with and without the canary; equally many, at least 4. They may
        be infinite.
    delta, confidence : float

    Returns
    -------
    EpsilonBound
        Threshold and direction come from the first half of each, the counts from the second.

    Examples
    --------
    >>> round(epsilon_from_scores([1.0] * 400, [0.0] * 400).epsilon, 2)
    3.98
    """
    scores = [np.asarray(side, dtype=np.float64) for side in (inside, outside)]
    if (
        any(side.ndim != 1 for side in scores)
        or len(scores[0]) != len(scores[1])
        or len(scores[0]) < 4
    ):
        raise InputError("scores are two lists of equally many numbers, at least 4 each")
    if any(np.isnan(side).any() for side in scores):
        raise InputError("a score is NaN; return a number for every output")
    half = len(scores[0]) // 2
    rule = choose_rule(scores[0][:half], scores[1][:half], delta, confidence)
    return bound_of(rule, scores[0][half:], scores[1][half:], delta, confidence)


def bound_of(
    rule: Rule, inside: Floats, outside: Floats, delta: float, confidence: float
) -> EpsilonBound:
    return epsilon_bound(rule(inside), len(inside), rule(outside), len(outside), delta, confidence)


_OUT_OF_REACH_IN_ONE = 8.0
_STEPS = 60  # halvings: far more than the printed digits need


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0) -> float:
    """Bound the probability of at least `right` right guesses under (epsilon, delta)-differential
    privacy.

    p = P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i with B ~ Binomial(r, e^epsilon / (1 +
    e^epsilon)), for m canaries each put in by a fair coin, r guesses, v right ones and i = 1, ...,
    v. Given the output, a coin is guessed with a chance of at most e^epsilon / (1 + e^epsilon),
    whatever is known of the others. Source: Steinke, Nasr, Jagielski (2023), Privacy auditing with
    one (1) training run, theorem 5.2.

    >>> round(p_value(10, 10, 10, 0.0), 6) == round(0.5 ** 10, 6)
    True
    """
    if not 0 <= right <= guesses <= canaries:
        raise InputError("right guesses must be at most guesses, and guesses at most canaries")
    check_claim(epsilon, delta)
    chance = 1 / (1 + math.exp(-epsilon))
    p = float(stats.binom.sf(right - 1, guesses, chance))
    if delta and right:
        i = np.arange(1, right + 1)
        below = np.cumsum(stats.binom.pmf(right - i, guesses, chance))
        p += 2 * canaries * delta * float((below / i).max())
    return min(p, 1.0)


def one_run_bound(
    canaries: int, guesses: int, right: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return a lower bound on epsilon from the right guesses of one run: the largest one rejected,
    by bisection.
    """
    check_claim(0.0, delta, confidence)

    def rejected(epsilon: float) -> bool:
        return p_value(canaries, guesses, right, epsilon, delta) <= 1 - confidence

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
        if high > 64:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def canaries_needed(epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> int | None:
    """Return the fewest canaries, half of them guessed, with which a one-run audit could show a
    violation of epsilon.

    Parameters
    ----------
    epsilon, delta : float
        What is claimed.
    confidence : float

    Returns
    -------
    int or None
        A multiple of 4, as half of the guesses are "in" and half "out"; with a delta up to 2 %
        above the fewest. None where delta is so large that no number is enough, and from epsilon =
        8 on.

    Examples
    --------
    >>> canaries_needed(1.0), canaries_needed(3.0)
    (20, 124)
    """
    check_claim(epsilon, delta, confidence)
    if epsilon >= _OUT_OF_REACH_IN_ONE:
        return None
    guesses = math.log(1 - confidence) / -math.log1p(math.exp(-epsilon))  # enough where delta is 0
    quarter = first = math.floor(guesses / 2) + 1
    # beyond, more guesses add more by delta than they take from the binomial
    while quarter <= 4 * first:
        if p_value(4 * quarter, 2 * quarter, 2 * quarter, epsilon, delta) < 1 - confidence:
            return 4 * quarter
        quarter += max(quarter // 50, 1)
    return None


def replace_one(
    epsilon: float, delta: float = 0.0, relation: Relation = "add-remove"
) -> tuple[float, float]:
    """Return the guarantee for replacing one person; from add-remove: (2 epsilon, (1 + e^epsilon)
    delta).
    """
    check_claim(epsilon, delta)
    if relation == "replace-one":
        return epsilon, delta
    return 2 * epsilon, min((1 + math.exp(min(epsilon, 700.0))) * delta, 1.0)


def largest_balanced_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return (e^epsilon + delta) / (1 + e^epsilon), the largest possible, which randomised response
    reaches.

    Like all bounds here, for replacing one person; see `replace_one`. Source: Kairouz, Oh,
    Viswanath (2015), The composition theorem for differential privacy, theorem 2.1.

    >>> round(largest_balanced_accuracy(1.0), 3)
    0.731
    """
    shrink = math.exp(-epsilon)
    return (1 + delta * shrink) / (1 + shrink)


def published_balanced_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return 1 - e^-epsilon (1 - delta) / 2, the bound of the recourse paper: valid, but no attack
    comes near it.

    The paper has delta = 0; its proof extends to others. Source: Pawelczyk, Lakkaraju, Neel (2023),
    theorem 1.

    >>> round(published_balanced_accuracy(1.0), 3)
    0.816
    """
    return 0.5 + (1 - math.exp(-epsilon) * (1 - delta)) / 2


def largest_tpr(fpr: ArrayLike, epsilon: float, delta: float = 0.0) -> NDArray[np.float64]:
    """Return min(e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR), 1): the upper border of
    what is allowed.
    """
    rates = np.asarray(fpr, dtype=np.float64)
    few = math.exp(min(epsilon, 700.0)) * rates + delta
    many = 1 - math.exp(-epsilon) * np.maximum(1 - delta - rates, 0.0)
    return np.asarray(np.minimum(np.minimum(few, many), 1.0), dtype=np.float64)


def bound_curves(epsilon: float, delta: float = 0.0) -> dict[str, Curve]:
    """Return ``bound_tight`` and ``bound_paper`` as curves; the paper's is TPR at most FPR + 2 B -
    1 of its bound B.
    """
    fpr = np.concatenate([[0.0], np.logspace(-4, 0, 81)])
    lines = {
        "bound_tight": largest_tpr(fpr, epsilon, delta),
        "bound_paper": np.minimum(fpr + 2 * published_balanced_accuracy(epsilon, delta) - 1, 1.0),
    }
    return {name: Curve(tuple(fpr.tolist()), tuple(tpr.tolist())) for name, tpr in lines.items()}
