"""Membership inference: telling from what a service publishes and answers whether a person is in
its training table.

People who got the desired outcome are attacked by what is made of their rows: published entries,
and answers to others. People who got the undesired one are attacked by the answers to themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import pandas as pd

from cfk_plugin.audit.epsilon_bounds import (
    Relation,
    bound_curves,
    largest_balanced_accuracy,
    published_balanced_accuracy,
    replace_one,
)
from cfk_plugin.audit.result import (
    AttackReport,
    AuditResult,
    Curve,
    Rate,
    mean,
    measure_roc,
)
from cfk_plugin.audit.targets import (
    Answers,
    Floats,
    Found,
    Mask,
    Publishing,
    Rows,
    Sample,
    Target,
    TrainedTarget,
    check_sample,
    plain,
    report_on,
)
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.metrics.heom import Heom

Direction = Literal["larger", "smaller"]
"""Which distance means a member. "larger": training pushes the boundary away from people trained
on. "smaller": generators, such as autoencoders, draw answers near to those they were trained on."""

_SURE = 1e-8  # confidences are at least this far from 0 and 1, so that their logit is finite
_SAME = 1e-9  # differences of logarithms below this are rounding


def distance_scores(distance: Floats, found: Mask, direction: Direction = "larger") -> Floats:
    """Score by the distance between a person and their counterfactual (CFD): from the threshold on,
    a member.

    A missing answer says nothing: such people get the median of the other scores, so they are never
    among the first who are named. Source: Pawelczyk, Lakkaraju, Neel (2023), equation 3.
    """
    return _neutral(distance if direction == "larger" else -distance, found)


def distance_ratio_scores(
    distance: Floats,
    found: Mask,
    shadow_distance: Floats,
    shadow_found: Mask,
    direction: Direction = "larger",
) -> Floats:
    """Score by how far a distance lies outside of those from services that never saw the person
    (CFD-LRT).

    (log t - mu) / sigma, of the person's log distances under the shadows, arrays of shape
    (n_shadows, n). People without an answer, or without any from a shadow (as when each gives them
    the desired outcome), get the median of the other scores. A distance of 0 counts as half of the
    smallest one. Algorithm 1 names a member where t exceeds the 1 - alpha quantile of the
    log-normal fit: the same as this score above the normal quantile. (It prints the two outputs in
    the opposite order, contrary to equation 3 and its own text.)
    """
    known = np.concatenate([distance[found], shadow_distance[shadow_found]])
    positive = known[known > 0]
    least = positive.min() / 2 if len(positive) else 1.0
    logs, shadow_logs = (
        np.log(np.maximum(np.nan_to_num(d, nan=0.0), least)) for d in (distance, shadow_distance)
    )
    score = standardized(logs, shadow_logs, shadow_found)
    return _neutral(score if direction == "larger" else -score, found & shadow_found.any(axis=0))


def confidence_scores(confidence: Floats, outcome: Mask) -> Floats:
    """Score by the model's confidence in the true outcome (Loss): low loss means a member.

    ln(p / (1 - p)) of the true outcome's p, kept at least 1e-8 from 0 and 1. It orders people as
    the negative cross-entropy does. Source: Yeom, Giacomelli, Fredrikson, Jha (2018); scaled as by
    Carlini and others (2022).
    """
    right = np.clip(np.where(outcome, confidence, 1 - confidence), _SURE, 1 - _SURE)
    return np.asarray(np.log(right / (1 - right)), dtype=np.float64)


def confidence_ratio_scores(confidence: Floats, shadow_confidence: Floats, outcome: Mask) -> Floats:
    """Score (l - mu) / sigma of `confidence_scores` under models that never saw the person (Carlini
    et al., 2022).
    """
    shadows = confidence_scores(shadow_confidence, outcome)
    return standardized(
        confidence_scores(confidence, outcome), shadows, np.ones(shadows.shape, dtype=bool)
    )


def standardized(value: Floats, shadow: Floats, used: Mask) -> Floats:
    """Return (value - mean) / deviation by column over the used entries; the mean deviation
    replaces one of 0.
    """
    count = used.sum(axis=0)
    several = np.maximum(count, 1)
    mean = np.where(used, shadow, 0.0).sum(axis=0) / several
    variance = (np.where(used, shadow - mean, 0.0) ** 2).sum(axis=0) / several
    rounding = _SAME * np.maximum(np.abs(mean), 1.0)
    variance[variance <= rounding**2] = 0.0
    shared = float(variance[count > 1].mean()) if (count > 1).any() else 0.0
    deviation = np.sqrt(np.where((count > 1) & (variance > 0), variance, shared))
    difference = np.where((count > 0) & (np.abs(value - mean) > rounding), value - mean, 0.0)
    certain = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
    return np.where(deviation > 0, difference / np.where(deviation > 0, deviation, 1.0), certain)


def _neutral(score: Floats, known: Mask) -> Floats:
    """Give the median of the known scores to everybody else."""
    ranked = np.sort(score[known])
    return np.where(known, score, ranked[len(ranked) // 2] if len(ranked) else 0.0)


def nearness_scores(heom: Heom, people: pd.DataFrame, values: pd.DataFrame) -> Floats:
    """Score by how near a person is to the nearest of some values: minus that distance.

    Only the columns of `heom` count. Without any values, everybody has the same score.
    """
    if values.empty:
        return np.zeros(len(people))
    distinct = values[~values.astype(object).duplicated()]
    _, distance = heom.nearest(heom.encode(people), heom.encode(distinct))
    return -distance[:, 0]


Distance = Callable[[pd.DataFrame, pd.DataFrame], Floats]
"""From people and their counterfactuals, row by row, to distances >= 0; can be pickled."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HeomSum:
    """Sum of HEOM's parts over features, with kinds and ranges from a table that the attacker has.

    Host side only.
    """

    heom: Heom

    @classmethod
    def fit(cls, pool: pd.DataFrame) -> HeomSum:
        return cls(Heom.fit(pool))

    def __call__(self, a: pd.DataFrame, b: pd.DataFrame) -> Floats:
        return np.asarray(self.heom.parts(a, b).sum(axis=1))


def l1(a: pd.DataFrame, b: pd.DataFrame) -> Floats:
    if not plain(a):
        raise InputError(
            'distance="l1" is for tables of numbers alone; leave it out for mixed ones'
        )
    first, second = (table.to_numpy(dtype=np.float64, na_value=np.nan) for table in (a, b))
    return np.asarray(np.abs(first - second).sum(axis=1))


def choose_distance(
    distance: Literal["heom", "l1"] | Distance | None, pool: pd.DataFrame
) -> tuple[str, Distance]:
    if distance is None or distance == "heom":
        return "heom", HeomSum.fit(pool)
    if distance == "l1":
        return "l1", l1
    if not callable(distance):
        raise InputError('distance must be "heom", "l1" or a callable from two tables to an array')
    return str(getattr(distance, "__qualname__", type(distance).__qualname__)), distance


FEWEST = 2
"""Least number of people in each part to measure anything."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SampleParts:
    """Three disjoint parts of one sample. Host side only."""

    table: Sample
    others: Sample
    pool: Sample

    @classmethod
    def cut(cls, sample: Sample, n_train: int | None = None, seed: int = 0) -> SampleParts:
        check_sample(sample)
        n = len(sample)
        size = n * 3 // 10 if n_train is None else n_train
        whole_number("n_train", size, FEWEST)
        apart = min(size, (n - size) // 3)
        if apart < FEWEST:
            raise InputError(
                f"{n} people leave nobody to compare with beside a table of {size}; take fewer or"
                " bring more"
            )
        order = np.random.default_rng([seed, 0]).permutation(n)
        return cls(*(sample.take(rows) for rows in np.split(order, [size, size + apart])))

    @property
    def shadow_size(self) -> int:
        """Number of people a shadow is trained on: as many as the owner has, at most four fifths of
        the pool.
        """
        return max(min(len(self.table), len(self.pool) * 4 // 5), 1)


def ask_target(
    owner: Target,
    parts: SampleParts,
    attacked: int,
    distance: Distance | None,
    reads: bool,
    seed: int,
) -> Found:
    """Train the service under attack, and ask it about members and others with the undesired
    outcome.

    With `reads`, also score members and others with the desired outcome by how near they are to
    what is published, and to what was answered.
    """
    service = owner.train(parts.table, seed)
    refused = []
    accepted = []
    accuracies = []
    for number, people in enumerate((parts.table, parts.others)):
        desired = service.desired(people.X)
        accuracies.append(float((desired == people.y).mean()))
        refused.append(_drawn(np.flatnonzero(~desired), attacked, [seed, 2, number]))
        accepted.append(_drawn(np.flatnonzero(desired), attacked, [seed, 5, number]))
    queries = together(parts, refused[0], refused[1]).X
    asks = np.ones(len(queries), dtype=bool)
    answers = None if distance is None else _answers_to(service, queries, asks)
    seen = {
        "members": refused[0],
        "others": refused[1],
        "train_accuracy": np.array(accuracies[0]),
        "test_accuracy": np.array(accuracies[1]),
        **_seen_of(service, queries, asks, distance, answers),
    }
    if reads:
        seen["accepted_members"] = accepted[0]
        seen["accepted_others"] = accepted[1]
        judged = together(parts, accepted[0], accepted[1]).X
        texts = {"entries": _published_values(service), "answers": _answered_values(answers)}
        for name, values in texts.items():
            n_values = 0 if values.empty else len(values)  # without a column, nothing can be read
            seen[f"n_{name}"] = np.array(float(n_values))
            heom = Heom.fit(parts.pool.X[list(values.columns)])
            seen[name] = nearness_scores(heom, judged, values)
    return seen


def _drawn(rows: Rows, most: int, seed: list[int]) -> Rows:
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _published_values(service: TrainedTarget) -> pd.DataFrame:
    """Return the private values of published entries; no rows if nothing is published."""
    published = service.published() if isinstance(service, Publishing) else None
    if published is None:
        return pd.DataFrame()
    return pd.DataFrame([dict(entry.released) for entry in published.generalized])


def _answered_values(answers: Answers | None) -> pd.DataFrame:
    """Return the private values of answers, or whole answers where they are no regions."""
    if answers is None:
        return pd.DataFrame()
    if answers.explanations is not None and answers.explanations.generalized:
        return pd.DataFrame([dict(entry.released) for entry in answers.explanations.generalized])
    return answers.rows[answers.found]


def ask_shadow(
    owner: Target,
    parts: SampleParts,
    queries: pd.DataFrame,
    distance: Distance | None,
    shadow: int,
    seed: int,
) -> Found:
    """Train a shadow, whose number determines people and seed, and ask it about the same people as
    the target.
    """
    own_seed = int(np.random.default_rng([seed, 3, shadow]).integers(2**31))
    people = np.random.default_rng([seed, 1, shadow]).choice(
        len(parts.pool), parts.shadow_size, replace=False
    )
    service = owner.train(parts.pool.take(people), own_seed)
    asks = np.zeros(len(queries), dtype=bool)
    answers = None
    if distance is not None:
        asks = ~service.desired(queries)
        answers = _answers_to(service, queries, asks)
    return _seen_of(service, queries, asks, distance, answers)


def together(parts: SampleParts, members: Rows, others: Rows) -> Sample:
    """Return the people under attack, members first."""
    inside, outside = parts.table.take(members), parts.others.take(others)
    return Sample(
        pd.concat([inside.X, outside.X], ignore_index=True), np.concatenate([inside.y, outside.y])
    )


def _answers_to(service: TrainedTarget, queries: pd.DataFrame, asks: Mask) -> Answers | None:
    """Ask some of the queries; None if there are none."""
    if not asks.any():
        return None
    asked = queries[asks].reset_index(drop=True)
    answers = service.explain(asked)
    n_given = len(answers.found)
    if n_given != len(asked) or len(answers.rows) != len(asked):
        raise InputError(
            f"{len(asked)} queries got {len(answers.rows)} answers; a service gives one to each"
        )
    return answers


def _seen_of(
    service: TrainedTarget,
    queries: pd.DataFrame,
    asks: Mask,
    distance: Distance | None,
    answers: Answers | None,
) -> Found:
    """Return what is seen of each person who may ask: distance of the answer, and confidence."""
    n = len(queries)
    measured = np.zeros(n)
    found = np.zeros(n, dtype=bool)
    if distance is not None and answers is not None:
        asked = queries[asks].reset_index(drop=True)
        given = np.asarray(answers.found, dtype=bool)
        apart = np.full(len(asked), np.nan)
        if given.any():
            apart[given] = distance(asked[given], answers.rows.loc[:, asked.columns][given])
        known = np.isfinite(apart)
        measured[asks] = np.where(known, apart, 0.0)
        found[asks] = known
    confidence = np.asarray(service.confidence(queries), dtype=np.float64) if n else np.empty(0)
    return {"distance": measured, "found": found, "confidence": confidence}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AttackView:
    """What an attacker sees of people: arrays of shape (n,), for shadows (n_shadows, n).

    Host side only.
    """

    target: Found
    shadows: Found
    outcome: Mask
    direction: Direction
    seed: int

    def answers(self, of: Found) -> tuple[Floats, Mask]:
        return of["distance"], of["found"]


@dataclass(frozen=True, slots=True)
class MembershipAttack:
    scenario: str
    explains: bool  # uses answers
    shadows: bool
    scores: Callable[[AttackView], Floats]
    # what is compared with people who got the desired outcome; None: people who did not are asked
    # about themselves
    reads: Literal["entries", "answers"] | None = None


_ASKS = (
    "Receives one counterfactual of a person who got the undesired outcome, knows nothing of the"
    " model, "
)

_KNOWS = "Knows the whole record of a person who got the desired outcome, "

ATTACKS: Mapping[str, MembershipAttack] = MappingProxyType(
    {
        "membership_entries": MembershipAttack(
            f"{_KNOWS}reads the published catalogue, and takes the person for a member of the"
            " training table if some entry has nearly the same private values.",
            False,
            False,
            lambda seen: seen.target["entries"],
            reads="entries",
        ),
        "membership_answers": MembershipAttack(
            f"{_KNOWS}collects the answers to other people, who did not, and takes the person for a"
            " member of the training table if some answer has nearly the same private values.",
            True,
            False,
            lambda seen: seen.target["answers"],
            reads="answers",
        ),
        "membership_cfd": MembershipAttack(
            f"{_ASKS}and takes the person for a member of the training table if the counterfactual"
            " is far away.",
            True,
            False,
            lambda seen: distance_scores(*seen.answers(seen.target), seen.direction),
        ),
        "membership_cfd_lrt": MembershipAttack(
            f"{_ASKS}trains the same kind of service on other people of the population, and takes"
            " the person for a member if the counterfactual is farther away than those services"
            " say.",
            True,
            True,
            lambda seen: distance_ratio_scores(
                *seen.answers(seen.target), *seen.answers(seen.shadows), seen.direction
            ),
        ),
        "membership_loss": MembershipAttack(
            "Sees the model's confidence in a person whose true outcome is known, and takes the"
            " person for a member of the training table if the model is sure of that outcome.",
            False,
            False,
            lambda seen: confidence_scores(seen.target["confidence"], seen.outcome),
        ),
        "membership_loss_lrt": MembershipAttack(
            "Sees the model's confidence in a person whose true outcome is known, trains the same"
            " kind of model on other people of the population, and takes the person for a member if"
            " the model is surer of that outcome.",
            False,
            True,
            lambda seen: confidence_ratio_scores(
                seen.target["confidence"], seen.shadows["confidence"], seen.outcome
            ),
        ),
        "membership_random": MembershipAttack(
            "Knows nothing and takes people for members of the training table by a coin.",
            False,
            False,
            lambda seen: np.random.default_rng(seen.seed).random(len(seen.outcome)),
        ),
    }
)
"""All attacks, in the order of reports; the last one shows what luck reaches at these sizes."""


def choose_attacks(names: Sequence[str] | None) -> dict[str, MembershipAttack]:
    """Return attacks by name, in the order of `ATTACKS`; by default all but the coin."""
    chosen = [name for name in ATTACKS if name != "membership_random"] if names is None else names
    if unknown := [name for name in chosen if name not in ATTACKS]:
        raise InputError(
            f"unknown attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}"
            f"{did_you_mean(unknown, ATTACKS)}"
        )
    if not chosen:
        raise InputError(f"choose at least one attack of {', '.join(ATTACKS)}")
    return {name: attack for name, attack in ATTACKS.items() if name in chosen}


def seen_by_attacker(
    parts: SampleParts, target: Found, shadows: list[Found], direction: Direction, seed: int
) -> AttackView:
    """Combine the answers of target and shadows, members first."""
    outcome = together(parts, target["members"], target["others"]).y
    stacked = {
        name: (
            np.array([shadow[name] for shadow in shadows], target[name].dtype).reshape(
                len(shadows), len(outcome)
            )
        )
        for name in ("distance", "found", "confidence")
    }
    return AttackView(target, stacked, outcome, direction, seed)


def shared_figures(
    target: Found, n_shadows: int, allowed: tuple[float, float] | None
) -> dict[str, float]:
    figures = {name: float(target[name]) for name in ("train_accuracy", "test_accuracy")}
    figures["shadows"] = float(n_shadows)
    if allowed is not None:
        figures["bound_tight"] = largest_balanced_accuracy(*allowed)
        figures["bound_paper"] = published_balanced_accuracy(*allowed)
    return figures


def measure(
    name: str, attack: MembershipAttack, seen: AttackView, shared: dict[str, float]
) -> tuple[AuditResult, Curve]:
    scores = attack.scores(seen)
    side = "members" if attack.reads is None else "accepted_members"
    members = len(seen.target[side])
    if attack.reads is not None and not seen.target[f"n_{attack.reads}"]:
        scores = scores[:0]
        members = 0
    roc = measure_roc(scores[:members], scores[members:], seen.seed)
    figures = roc.figures() | shared
    if not attack.shadows:
        figures["shadows"] = 0.0
    if attack.reads is not None:
        figures["compared_with"] = float(seen.target[f"n_{attack.reads}"])
    elif attack.explains:
        figures |= _unanswered(seen, members, attack.shadows)
    if "bound_tight" in figures:
        figures["exceeds_bound"] = float(roc.balanced_accuracy.low > figures["bound_tight"])
    return (
        AuditResult(
            attack=name,
            scenario=attack.scenario,
            main=roc.auc,
            baseline=Rate(0.5, 0.5, 0.5, roc.auc.n),
            control=_control(scores[members:], seen.seed),
            figures=figures,
            seed=seen.seed,
            n=len(scores),
        ),
        roc.curve,
    )


def _control(others: Floats, seed: int) -> Rate:
    """Treat one half of the others as members: nothing tells the halves apart."""
    first, second = np.array_split(np.random.default_rng([seed, 4]).permutation(others), 2)
    return measure_roc(first, second, seed).auc


def _unanswered(seen: AttackView, members: int, shadows: bool) -> dict[str, float]:
    """Return the shares without an answer, and what that fact alone reveals."""
    inside, outside = seen.target["found"][:members], seen.target["found"][members:]
    alone = measure_roc(inside.astype(float), outside.astype(float), seen.seed).auc
    figures = {"unanswered_members": 1 - mean(inside), "unanswered_others": 1 - mean(outside)}
    figures |= alone.figures("unanswered_auc")
    if shadows and seen.shadows["found"].size:
        figures["shadows_answering"] = float(seen.shadows["found"].sum(axis=0).mean())
    return figures


def membership(
    owner: Target,
    sample: Sample,
    *,
    n_train: int | None = None,
    n_shadows: int = 8,
    attacked: int = 200,
    distance: Literal["heom", "l1"] | Distance | None = None,
    direction: Direction = "larger",
    attacks: Sequence[str] | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    relation: Relation = "add-remove",
    seed: int = 0,
) -> AttackReport:
    """Attack a service by asking who is in its training table.

    The owner trains on one part of the sample. The attacker tells members of that part from other
    people, and has a third part to train shadow services on. People with the desired outcome are
    compared with what is made of members' rows: published entries, and answers to others. People
    with the undesired one are told by the answer to themselves, or by the model's confidence.

    Source, for people with the undesired outcome: Pawelczyk, Lakkaraju, Neel (2023), On the privacy
    risks of algorithmic recourse.

    Parameters
    ----------
    owner : Target
    sample : Sample
        People of one population.
    n_train : int, optional
        People in the owner's table. Default: 30 %. As many others are attacked, at most a third of
        the rest; everybody else is the attacker's.
    n_shadows : int
        Services that the attacker trains, at least 2.
    attacked : int
        Largest number of members, and of others, with either outcome.
    distance : {"heom", "l1"} or callable, optional
        Between people and their counterfactuals. "heom" (default): sum of HEOM's parts over
        features, with ranges from the attacker's part. "l1": sum of absolute differences, for
        tables of numbers.
    direction : {"larger", "smaller"}
        Which distance means a member; "smaller" for generators that stay near the training rows.
    attacks : sequence of str, optional
        Names of `ATTACKS`. Default: all but the coin.
    epsilon, delta : float, optional
        The claim for everything between table and answers, including the training of the model.
    relation : {"add-remove", "replace-one"}
        The claim's neighboring tables. The attack replaces a person, so "add-remove" counts twice.
    seed : int

    Returns
    -------
    AttackReport
        One result per attack: `main` is the area under the ROC curve, `baseline` 0.5, `control` the
        same attack with one half of the others as members. Intervals are over people, for these
        trained services. If one side has nobody with the outcome, or the attack has nothing to
        read, nothing is measured. `AttackReport.worst` is the result to look at first.
    """
    chosen, allowed = (
        choose_attacks(attacks),
        None if epsilon is None else replace_one(epsilon, delta, relation),
    )
    whole_number("seed", seed, 0)
    whole_number("n_shadows", n_shadows, 2)
    whole_number("attacked", attacked, 1)
    if direction not in ("larger", "smaller"):
        raise InputError('direction must be "larger" or "smaller"')
    n_shadows = n_shadows if any(attack.shadows for attack in chosen.values()) else 0
    started = time.perf_counter()
    parts = SampleParts.cut(sample, n_train, seed)
    name, measured = choose_distance(distance, parts.pool.X)
    asked = measured if any(attack.explains for attack in chosen.values()) else None
    reads = any(attack.reads is not None for attack in chosen.values())
    target = ask_target(owner, parts, attacked, asked, reads, seed)
    queries = together(parts, target["members"], target["others"]).X
    shadows = [
        ask_shadow(owner, parts, queries, asked, shadow, seed) for shadow in range(n_shadows)
    ]
    seen = seen_by_attacker(parts, target, shadows, direction, seed)
    shared = shared_figures(target, n_shadows, allowed)
    found = {attack: measure(attack, of, seen, shared) for attack, of in chosen.items()}
    curves = {} if allowed is None else bound_curves(*allowed)
    settings: dict[str, str | int | float | bool] = {
        "n_train": len(parts.table),
        "n_others": len(parts.others),
        "n_pool": len(parts.pool),
        "n_shadows": n_shadows,
        "shadow_size": parts.shadow_size,
        "attacked": attacked,
        "distance": name,
        "direction": direction,
        "seed": seed,
    }
    if epsilon is not None:
        settings |= {"epsilon": epsilon, "delta": delta, "relation": relation}
    curves |= {attack: curve for attack, (_, curve) in found.items()}
    results = [result for result, _ in found.values()]
    return report_on(owner, "membership", results, settings, started=started, curves=curves)
