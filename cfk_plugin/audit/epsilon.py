"""Lower bounds on epsilon: an audit can refute a claim of differential privacy, but never prove
it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from cfk_plugin.audit.epsilon_bounds import (
    Agreement,
    EpsilonBound,
    Floats,
    ManyAgreements,
    Relation,
    Score,
    bound_of,
    canaries_needed,
    ceiling,
    check_claim,
    choose_rule,
    epsilon_from_scores,
    learn,
    matrix,
    one_run_bound,
    p_value,
    runs_needed,
    unseen_scores,
    vector_of,
)
from cfk_plugin.audit.result import AuditResult, Rate, Verdict, metrics
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import whole_number
from cfk_plugin.data.values import conform
from cfk_plugin.errors import HostOnly, InputError, quiet
from cfk_plugin.hookspecs import Progress
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.tracking.run import LoggedReport, ReportContents


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Worlds(HostOnly):
    """Two tables that differ in one person. Host side only."""

    inside: pd.DataFrame
    outside: pd.DataFrame

    def _counts(self) -> str:
        return f"{len(self.inside)} rows inside, {len(self.outside)} outside"


def neighbours(
    table: pd.DataFrame,
    canary: pd.DataFrame,
    schema: Schema | None = None,
    relation: Relation = "add-remove",
    seed: int = 0,
) -> Worlds:
    if relation not in get_args(Relation):
        raise InputError(f"relation must be one of {', '.join(get_args(Relation))}")
    rows, canary = table.reset_index(drop=True), fitting(table, canary, schema)
    subject = None if schema is None else schema.subject
    if subject is None and len(canary) > 1 and schema is not None:
        raise InputError(
            f"the canary has {len(canary)} rows, and the schema names no subject whose rows they"
            " could be"
        )
    if subject is not None and canary[subject].nunique(dropna=False) > 1:
        raise InputError(f"the canary is one person; column {subject!r} names several")
    outside = rows
    if relation == "replace-one":
        outside = rows.copy()
        chosen = int(np.random.default_rng(seed).integers(len(rows)))
        gone = (
            rows[subject] == rows[subject].iloc[chosen]
            if subject is not None
            else rows.index == chosen
        )
        rows = rows[~gone]
    return Worlds(joined(rows, canary), outside)


def joined(table: pd.DataFrame, canaries: pd.DataFrame) -> pd.DataFrame:
    """Return a table with canaries below its rows, in the dtypes that pandas gives both
    together.
    """
    return (
        pd.concat([table, canaries], ignore_index=True)
        if len(canaries)
        else table.reset_index(drop=True)
    )


def fitting(table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None) -> pd.DataFrame:
    """Return canaries in the table's columns, and in its dtypes where no value changes: anybody may
    be in a table.
    """
    if not len(table) or not len(canary):
        raise InputError("the table and the canary must have at least one row")
    if set(canary.columns) != set(table.columns) or not canary.columns.is_unique:
        odd = sorted(map(str, set(canary.columns) ^ set(table.columns)))
        raise InputError(
            "a canary has the columns of the table, each once; check"
            f" {', '.join(odd) or 'for doubles'}"
        )
    found = pd.DataFrame({name: conform(canary[name], table[name].dtype) for name in table.columns})
    if schema is not None and (
        lost := [n for n in (*schema.features, *schema.names("subject")) if n not in found]
    ):
        raise InputError(f"the table lacks {', '.join(lost)}, which the schema names")
    _check_made_up(table, found, schema)
    return found.reset_index(drop=True)


def _check_made_up(table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None) -> None:
    subject = None if schema is None else schema.subject
    if subject is not None and bool(canary[subject].isin(table[subject]).any()):
        raise InputError(
            f"column {subject!r} of the canary names a subject of the table; make one up"
        )
    names = list(table.columns)
    if schema is not None:
        names = [name for name in (*schema.features, *schema.names("target")) if name in names]
    rows = pd.util.hash_pandas_object(table[names], index=False)
    if bool(pd.util.hash_pandas_object(canary[names], index=False).isin(rows).any()):
        raise InputError(
            "the canary is a row of the table; make one up, of values that are rare together"
        )


Fit = Callable[..., Any]
"""From a table to an output.

A parameter ``random_state``, if any, gets another whole number in every run.
"""


def measure(
    fit: Fit,
    statistic: Callable[[Any], Floats],
    worlds: Worlds,
    runs: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[list[Floats], list[Floats]]:
    """Run a function in both worlds in turn; return its statistics inside and outside."""
    total = 2 * runs
    seeds: list[int | None] = [None] * total
    if takes_seed(fit):
        seeds = np.random.SeedSequence(seed).generate_state(total, np.uint32).tolist()
    found: list[Floats] = []
    for at, own_seed in enumerate(seeds):
        table = worlds.outside if at % 2 else worlds.inside
        found.append(statistic(run(fit, table, own_seed)))
        if progress is not None:
            progress(len(found), total)
    return found[::2], found[1::2]


def run(fit: Fit, table: pd.DataFrame, seed: int | None) -> Any:
    with quiet(
        "the audited function failed ({}); run it on the table by hand to see why", InputError
    ):
        return fit(table.copy()) if seed is None else fit(table.copy(), random_state=seed)


def takes_seed(fit: Fit) -> bool:
    try:
        return "random_state" in inspect.signature(fit).parameters
    except (TypeError, ValueError):
        return False


SCHEMA_VERSION = 1
"""Version of the layout of `EpsilonAudit.to_json`."""

Attack = Literal["epsilon", "epsilon_one_run"]

NO_NOISE = (
    "every run of a world gave the same output: nothing random is in it, or the function draws the"
    " same numbers in every run; if it should not, give each run fresh ones"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonAudit(LoggedReport):
    """A lower bound on the epsilon of a function.

    It holds counts, shares and settings alone, so it may leave the host.

    It can refute a claim but never prove it: "pass" says that this attack, with so many runs, found
    nothing.
    """

    attack: Attack
    scenario: str  # what the attacker knows and does, in one sentence
    relation: str  # which tables are neighbors, for both claim and bound
    claimed: float
    delta: float
    confidence: float  # of the bound
    epsilon_low: float  # the bound
    ceiling: float  # the largest bound that these sizes could print
    # least runs in each world, or canaries, that could show a violation; None: no number is enough
    needed: int | None
    runs: int  # in each world; 1 for a one-run audit
    main: Rate  # guesses about the canary that were right
    tpr: Rate | None = None  # how often the canary was found in counted runs with it
    fpr: Rate | None = None  # the same in runs without it; None for a one-run audit
    figures: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    constant: bool = False  # whether every run of a world gave the same output

    def __post_init__(self) -> None:
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def verdict(self) -> Verdict:
        """Return "fail" when the bound exceeds the claim, "review" when it never could, else
        "pass": not refuted.
        """
        if self.epsilon_low > self.claimed:
            return "fail"
        return "review" if self.ceiling <= self.claimed else "pass"

    @property
    def advice(self) -> str:
        """What the bound means, in one sentence."""
        claim = f"epsilon = {self.claimed:g}" + (f", delta = {self.delta:g}" if self.delta else "")
        if self.verdict == "fail":
            return f"the claim {claim} is refuted: the bound exceeds it"
        if self.verdict == "pass":
            return f"the claim {claim} is not refuted, which does not prove it"
        limit = f"this audit cannot fail: it can show at most {self.ceiling:.2f}"
        unit = "runs in each world" if self.attack == "epsilon" else "canaries"
        if self.needed is None:
            return f"{limit}, and no number of {unit} within reach could refute {claim}"
        return f"{limit}; to see a violation of {claim} you need at least {self.needed} {unit}"

    @property
    def warning(self) -> str | None:
        return NO_NOISE if self.constant else self.result.warning

    @property
    def result(self) -> AuditResult:
        """The audit in the form of every attack; its baseline is a coin, and there is no
        control.
        """
        own = ("epsilon_low", "claimed", "delta", "ceiling", "confidence", "runs", "needed")
        figures = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        for name, rate in (("tpr", self.tpr), ("fpr", self.fpr)):
            figures |= {} if rate is None else rate.figures(name)
        figures |= self.figures
        coin = Rate(0.5, 0.5, 0.5, self.main.n)
        return AuditResult(
            self.attack, self.scenario, self.main, coin, None, figures, self.seed, self.main.n
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.attack,
            "verdict": self.verdict,
            "advice": self.advice,
            "warning": self.warning,
            "relation": self.relation,
            **self.result.to_dict(),
        }

    def _contents(self) -> ReportContents:
        name, settings = (
            f"audit.{self.attack}",
            ("claimed", "delta", "confidence", "relation", "runs", "seed"),
        )
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=f"cfk/audit-{self.attack.replace('_', '-')}.json",
            metrics=tuple(metrics((self.result,))),
            params={f"{name}.{setting}": str(getattr(self, setting)) for setting in settings},
            tags={f"cfk.{name}.verdict": self.verdict},
        )


FEWEST = 20
"""Least number of runs in each world to learn a rule from."""

_WITH: Mapping[Relation, str] = {
    "add-remove": "with",
    "replace-one": "with, in the place of somebody else,",
}


def canary_audit(
    fit: Fit,
    table: pd.DataFrame,
    canary: pd.DataFrame,
    *,
    claimed: float,
    delta: float = 0.0,
    runs: int = 400,
    score: Score | None = None,
    schema: Schema | None = None,
    relation: Relation = "add-remove",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> EpsilonAudit:
    """Bound the epsilon of any function of a table from below.

    The attacker knows the whole table except whether the canary was in it, knows the function, and
    sees one output.

    Parameters
    ----------
    fit : callable
        From a table to an output. It must draw fresh random numbers in every run; a parameter
        ``random_state``, if any, gets another whole number in every run.
    table : DataFrame
        The training rows.
    canary : DataFrame
        One made-up person, of values that are rare together. They may also be values that the
        table's dtype cannot hold or the schema does not declare: whoever is in a table must be
        protected.
    claimed, delta : float
        What the function claims, for the same relation.
    runs : int
        In each world, at least 20. See `runs_needed`.
    score : callable, optional
        From an output to a number that tells the worlds apart, or to an array of numbers, on which
        a linear discriminant is learnt. Default: a number or an array as it is; for a table, the
        counts of rows that agree with the canary in every column and pair of columns.
    schema : Schema, optional
        Names the subject, if a person has several rows.
    relation : {"add-remove", "replace-one"}
        Which tables are neighbors; see `replace_one`.
    confidence : float
        Of the bound.
    seed : int
        For ``random_state``, and for the choice of the person whom the canary replaces.
    progress : callable, optional
        Called with (done, total) runs.

    Returns
    -------
    EpsilonAudit
        Discriminant, threshold and direction are learnt on the first half of the runs of each
        world, and success is counted on the second. A weak attack gives a small bound, which says
        nothing about how private the function is.
    """
    check_claim(claimed, delta, confidence)
    whole_number("seed", seed, 0)
    whole_number("runs", runs, FEWEST)
    worlds = neighbours(table, canary, schema, relation, seed)
    statistic = partial(
        vector_of,
        score,
        None if score else Agreement(table, fitting(table, canary, schema), schema),
    )
    inside, outside = measure(fit, statistic, worlds, runs, seed=seed, progress=progress)
    bound = epsilon_from_vectors(inside, outside, delta, confidence)
    tpr, fpr = bound.tpr, bound.fpr
    right, of = round(tpr.value * tpr.n) + fpr.n - round(fpr.value * fpr.n), tpr.n + fpr.n
    person = "a made-up person" if len(canary) == 1 else f"a made-up person of {len(canary)} rows"
    return EpsilonAudit(
        attack="epsilon",
        scenario=(
            f"Knows the table and the function, has run it {runs} times {_WITH[relation]} and"
            f" {runs} times without {person}, sees one more output, and says which of the two"
            " it is."
        ),
        relation=relation,
        claimed=float(claimed),
        delta=delta,
        confidence=confidence,
        epsilon_low=bound.epsilon,
        ceiling=ceiling(runs, delta, confidence),
        needed=runs_needed(claimed, delta, confidence),
        runs=runs,
        main=Rate(right / of, *clopper_pearson(right, of, confidence), of),
        tpr=tpr,
        fpr=fpr,
        seed=seed,
        constant=_constant(inside)
        and _constant(outside)
        and not np.array_equal(inside[0], outside[0]),
    )


def epsilon_from_vectors(
    inside: Sequence[Floats], outside: Sequence[Floats], delta: float, confidence: float
) -> EpsilonBound:
    """Like `epsilon_from_scores`, for one vector per run; the first half of them trains a
    discriminant.
    """
    lengths = {len(vector) for vector in (*inside, *outside)}
    if not lengths - {0, 1} and len(lengths) == 1:
        return epsilon_from_scores(
            np.concatenate(inside), np.concatenate(outside), delta, confidence
        )
    half = len(inside) // 2
    width = max(len(vector) for vector in (*inside[:half], *outside[:half]))
    with_canary, without = matrix(inside, width), matrix(outside, width)
    rule = choose_rule(*unseen_scores(with_canary[:half], without[:half]), delta, confidence)
    of = learn(with_canary[:half], without[:half])
    return bound_of(rule, of(with_canary[half:]), of(without[half:]), delta, confidence)


def _constant(vectors: Sequence[Floats]) -> bool:
    return all(np.array_equal(vector, vectors[0], equal_nan=True) for vector in vectors)


FEWEST_CANARIES = 8
"""Least number of canaries with which anything can be shown."""


def one_run_audit(
    fit: Fit,
    table: pd.DataFrame,
    canaries: pd.DataFrame,
    *,
    claimed: float,
    delta: float = 0.0,
    guesses: int | None = None,
    score: Score | None = None,
    schema: Schema | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> EpsilonAudit:
    """Bound the epsilon of a function from below with a single run; see `p_value`.

    The attacker knows the table and every canary; a fair coin put each canary in or left it out.
    The attacker sees one output and guesses the surest coins. The bound is weaker than that of
    `canary_audit` wherever canaries disturb each other: it shows gross violations at the price of
    one run.

    Parameters
    ----------
    fit, table, claimed, delta, score, schema, confidence
        See `canary_audit`; neighbors are add-remove. `score` returns one number per canary, in
        their order; higher means "in". Default for a table: how much more often than in the
        training rows the canary's values, and pairs of them, occur.
    canaries : DataFrame
        Made-up people who differ from each other, one row each. See `canaries_needed`.
    guesses : int, optional
        An even number: the upper half of the guesses says "in", the lower "out". Default: half of
        the canaries.
    seed : int
        For the coins and ``random_state``. The function must not use the same seed for its own
        numbers.
    """
    check_claim(claimed, delta, confidence)
    whole_number("seed", seed, 0)
    people = fitting(table, canaries, schema)
    _check_people(people, schema)
    tried = 2 * (len(people) // 4) if guesses is None else guesses
    if not isinstance(tried, int) or tried % 2 or not 2 <= tried <= len(people):
        raise InputError(
            "guesses must be an even number, at least 2 and at most the number of canaries"
        )
    coins_of, runs_of = np.random.SeedSequence(seed).spawn(2)
    coins = np.random.default_rng(coins_of).random(len(people)) < 0.5
    own_seed = int(runs_of.generate_state(1, np.uint32)[0]) if takes_seed(fit) else None
    output = run(fit, joined(table, people[coins]), own_seed)
    scores = vector_of(score, ManyAgreements(table, people, schema), output)
    if len(scores) != len(people) or np.isnan(scores).any():
        raise InputError(
            f"{len(people)} canaries and {len(scores)} scores, or some NaN; return one number per"
            " canary"
        )
    # "in" for the highest, "out" for the lowest
    order, half = np.argsort(scores, kind="stable"), tried // 2
    right = int((~coins[order[:half]]).sum() + coins[order[len(order) - half :]].sum())
    return EpsilonAudit(
        attack="epsilon_one_run",
        scenario=(
            f"Knows the table, the function and {len(people)} made-up people of whom each was in by"
            f" a coin, sees one output, and guesses {tried} of the coins."
        ),
        relation="add-remove",
        claimed=float(claimed),
        delta=delta,
        confidence=confidence,
        epsilon_low=one_run_bound(len(people), tried, right, delta, confidence),
        ceiling=one_run_bound(len(people), tried, tried, delta, confidence),
        needed=canaries_needed(claimed, delta, confidence),
        runs=1,
        main=Rate(right / tried, *clopper_pearson(right, tried, confidence), tried),
        figures={
            "canaries": len(people),
            "guesses": tried,
            "right": right,
            "p_value": p_value(len(people), tried, right, claimed, delta),
        },
        seed=seed,
    )


def _check_people(people: pd.DataFrame, schema: Schema | None) -> None:
    if len(people) < FEWEST_CANARIES:
        raise InputError(
            f"a one-run audit needs at least {FEWEST_CANARIES} canaries, got {len(people)}"
        )
    subject = None if schema is None else schema.subject
    if subject is not None and not people[subject].is_unique:
        raise InputError(
            f"column {subject!r}: each canary of a one-run audit must be a person of its own"
        )
    if bool(people.duplicated().any()):
        raise InputError("two canaries are equal; nobody could tell which of them was in")
