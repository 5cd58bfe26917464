"""Attacks through a copy of the model, a surrogate: on membership and private attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.extraction import (
    SETS,
    Architecture,
    Halves,
    Network,
    RowsAsNumbers,
    Sets,
    Surrogate,
    architectures,
    ask,
    called,
    describe,
    draw_sets,
    everybody,
    fit,
    gain,
    name_of,
    outcomes,
    train,
)
from cfk_plugin.audit.result import AttackReport, AuditResult, Rate, Roc, measure_roc, rate
from cfk_plugin.audit.targets import (
    AuditRun,
    Checkpoints,
    Floats,
    Found,
    Job,
    Mask,
    Rows,
    Sample,
    Target,
)
from cfk_plugin.data.region import to_text
from cfk_plugin.data.values import is_numeric, to_numbers
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

HALVES = ("members", "others")
WAYS = ("explained", "alone")
"""Surrogates with counterfactuals, and without."""

Profile = Callable[[Surrogate, pd.DataFrame], Floats]
"""What an attack asks a surrogate about people: an array of numbers whose first axis is people."""


@dataclass(frozen=True, slots=True, repr=False)
class Extracted:
    """Makes and asks surrogates of the owner's model and of three shadows, all trained and
    extracted alike.
    """

    owner: Target
    sample: Sample
    sets: Sets
    architecture: Architecture
    queries: int
    attacked: int
    outcome_known: bool
    layers: tuple[int, ...]
    seed: int

    @classmethod
    def of(
        cls,
        owner: Target,
        sample: Sample,
        architecture: Architecture | None,
        queries: int,
        layers: Sequence[int],
        **rest: Any,
    ) -> Extracted:
        """Split the sample; `queries` is at most the people of two sets, `architecture` by default
        the owner's.
        """
        sets, kind = (
            draw_sets(sample, rest["seed"]),
            architecture or next(iter(architectures(owner).values())),
        )
        most = len(everybody(sets[:2]))
        return cls(owner, sample, sets, kind, min(queries, most), layers=tuple(layers), **rest)

    @property
    def settings(self) -> dict[str, str | int | float | bool]:
        return {
            "people": len(self.sample),
            "trained_on": len(self.sets[0].members),
            "queries": self.queries,
            "architecture": name_of(self.architecture),
            "seed": self.seed,
            "attacked": len(self.halves(0).members),
            "outcome_known": self.outcome_known,
            "layers": ", ".join(map(str, self.layers)),
        }

    def pieces(self, attack: str, profile: Profile) -> list[Job]:
        """Return one piece for the owner's model and one for each shadow model."""
        table = self.sample.fingerprint()
        settings = f"{self.queries}:{self.attacked}:{self.seed}:{describe(self.architecture)}"
        return [
            Job(
                f"{attack}:{self.owner.name}:{table}:{settings}:set={at}",
                partial(self.measured, at, profile),
            )
            for at in range(SETS)
        ]

    def halves(self, at: int) -> Halves:
        """Return the people under attack for the model of a set, as many members as others."""
        halves = self.sets[at]
        return Halves(halves.members[: self.attacked], halves.others[: self.attacked])

    def fresh(self) -> Rows:
        """Return as many of the attacker's people as members, neither trained on nor asked
        about.
        """
        return self._order(0)[self.queries :][: len(self.halves(0).members)]

    def measured(self, at: int, profile: Profile) -> Found:
        """Train the model of a set, extract it, and ask the surrogates about its members, others,
        and fresh people.
        """
        sample, halves = self.sample, self.halves(at)
        service = train(self.owner, sample.take(self.sets[at].members), self.seed)
        transfer = ask(service, sample.X.take(self._order(at)[: self.queries]))
        groups = {"members": halves.members, "others": halves.others} | (
            {} if at else {"fresh": self.fresh()}
        )
        unseen = sample.X.take(halves.others)
        truth = outcomes(service, unseen)
        found: dict[str, Floats] = {}
        for way in WAYS:
            pairs = transfer.pairs(self.queries, explained=way == "explained")
            surrogate = fit(self.architecture, pairs, self.seed)
            found[f"fidelity_{way}"] = np.array((surrogate.desired(unseen) == truth).mean())
            found |= {
                f"{name}_{way}": profile(surrogate, sample.X.take(rows))
                for name, rows in groups.items()
            }
        return found | {"answers": np.array(float(transfer.answers(self.queries)))}

    def _order(self, at: int) -> Rows:
        asked = [halves for who, halves in enumerate(self.sets) if who not in (0, at)]
        return np.random.default_rng([self.seed, 2, at]).permutation(everybody(asked))


def vote(
    audit: AuditRun,
    extracted: Extracted,
    first: Sequence[Job],
    learner: Callable[[int], Callable[[], Found]],
) -> Found:
    """Train a network on every shadow, and return their mean prediction for the owner's people."""
    settings = f"{extracted.outcome_known}:{extracted.layers}"
    votes = audit.run([Job(f"{first[at].key}:{settings}", learner(at)) for at in range(1, SETS)])
    return {name: np.mean([each[name] for each in votes], axis=0) for name in votes[0]}


LAYERS = (64, 32)
"""Hidden layers of the learned attack."""

PAPER_LAYERS = (1024, 512, 256, 64)
"""The paper's layers; about a hundred times as slow."""

Scores = Mapping[str, Floats]
"""By group and way, such as ``members_explained``: rows of features, or a number per person, >= 0
for a member.
"""


def predictions(confidence: Floats, truth: Mask | None = None) -> Floats:
    """Return prediction vectors, likelier outcome first."""
    columns = [np.maximum(confidence, 1 - confidence), np.minimum(confidence, 1 - confidence)]
    if truth is not None:
        columns.append(np.where(truth, confidence, 1 - confidence))
    return np.column_stack(columns)


def by_threshold(target: Scores, shadows: Sequence[Scores]) -> Scores:
    """Return how far people are above the threshold that is best over all shadows."""
    found: dict[str, Floats] = {}
    for way in WAYS:
        inside, outside = (
            np.concatenate([_sure(s[f"{group}_{way}"]) for s in shadows]) for group in HALVES
        )
        limit = best_threshold(inside, outside)
        found |= {name: _sure(rows) - limit for name, rows in target.items() if name.endswith(way)}
    return found


def best_threshold(members: Floats, others: Floats) -> float:
    """Return the threshold of the largest TPR - FPR, the highest of ties, halfway to the next score
    below.
    """
    scores = np.unique(np.concatenate([members, others]))
    hits, alarms = (
        len(group) - np.searchsorted(np.sort(group), scores) for group in (members, others)
    )
    gains = hits / len(members) - alarms / len(others)
    best = int(np.flatnonzero(gains >= gains.max() - 1e-12)[-1])
    return float((scores[best] + scores[best - 1]) / 2) if best else float(scores[0])


def learn(
    known: Mapping[str, tuple[Floats, Rows]],
    asked: Mapping[str, Floats],
    layers: Sequence[int],
    seed: int,
    classes: int,
) -> Found:
    """Train a network per way on rows with labels, and return every label's probability for the
    rows of that way.
    """
    found: dict[str, Floats] = {}
    for way, (rows, labels) in known.items():
        names = [name for name in asked if name.endswith(f"_{way}")]
        found |= {name: np.zeros((len(asked[name]), classes)) for name in names}
        present, network = np.unique(labels), Network(tuple(layers)).classifier(seed)
        if len(present) > 1:
            called("training the attack", lambda: network.fit(rows, labels))  # noqa: B023 - called at once
        for name in names:
            if len(present) < 2:
                found[name][:, present] = 1.0
            elif len(asked[name]):
                found[name][:, present] = network.predict_proba(asked[name])
    return found


def learn_members(shadow: Scores, target: Scores, layers: Sequence[int], seed: int) -> Found:
    """Learn from a shadow's members and others; return the target's people's probabilities of being
    members.
    """
    known = {}
    for way in WAYS:
        others, members = shadow[f"others_{way}"], shadow[f"members_{way}"]
        known[way] = (
            np.concatenate([members, others]),
            np.repeat([1, 0], [len(members), len(others)]),
        )
    return {name: each[:, 1] for name, each in learn(known, target, layers, seed, 2).items()}


def _sure(rows: Floats) -> Floats:
    return np.asarray(rows[:, 2] if rows.shape[1] == 3 else rows[:, 0])


_KNOWS = (
    "Extracts a surrogate and does the same with three shadow models on own people; names as"
    " members whom "
)
_SCENARIOS = {
    "threshold": (
        _KNOWS + "the surrogate is surer of than a threshold that was best on the shadows."
    ),
    "learned": _KNOWS + "three networks name that learnt from the shadows' predictions.",
}


def membership_through_surrogate(
    owner: Target,
    sample: Sample,
    *,
    queries: int = 2000,
    outcome_known: bool = True,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Checkpoints | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Tell people of the training table from others by a surrogate's predictions.

    Source: Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional
    Mechanism, 5.3.3.

    Parameters
    ----------
    owner, sample
        At least 80 people; split into four sets, each into members and others.
    queries : int
        Number of queries to each of four models; at most half of the sample.
    outcome_known : bool
        Whether the attacker knows the true outcomes of the people attacked. The paper's attacker
        does not.
    architecture : callable, optional
        Of the surrogates; see `extraction`. Default: the owner's kind of model if known, else a
        network.
    layers : sequence of int
        Hidden layers of the learned attack; `PAPER_LAYERS` are the paper's.
    attacked : int
        Largest number of members, and of others.
    seed, n_jobs, kept, progress
        As in `membership`.

    Returns
    -------
    AttackReport
        Two attacks: a threshold on the surrogate's confidence in the true outcome, or in the
        likelier one; and the mean vote of networks that learnt from the predictions of three
        shadows. `main`: share of members and others, equally many, who are classified correctly;
        `control`: the same with fresh people as members. Intervals are over people.
    """
    audit = AuditRun(owner, seed, n_jobs, kept, progress, 2 * SETS - 1)
    extracted = Extracted.of(
        owner,
        sample,
        architecture,
        queries,
        layers,
        attacked=attacked,
        outcome_known=outcome_known,
        seed=seed,
    )
    first = extracted.pieces("membership", Surrogate.confidence)
    measured = audit.run(first)
    asked = [_features(extracted, at, found) for at, found in enumerate(measured)]

    def learner(at: int) -> Callable[[], Found]:
        return partial(learn_members, asked[at], asked[0], extracted.layers, seed + at)

    voted = {name: mean - 0.5 for name, mean in vote(audit, extracted, first, learner).items()}
    guessed = {"threshold": by_threshold(asked[0], asked[1:]), "learned": voted}
    rocs = {
        attack: {
            way: measure_roc(scores[f"members_{way}"], scores[f"others_{way}"], seed)
            for way in WAYS
        }
        for attack, scores in guessed.items()
    }
    return audit.report(
        "membership",
        [
            _membership_result(attack, guessed[attack], rocs[attack], measured[0], seed)
            for attack in guessed
        ],
        extracted.settings,
        {
            f"membership_surrogate_{attack}": found["explained"].curve
            for attack, found in rocs.items()
        },
    )


def _features(extracted: Extracted, at: int, found: Found) -> Scores:
    """Return the prediction vectors of every group and way, with the confidence in the true outcome
    if known.
    """
    truth = extracted.sample.y
    groups = {**extracted.halves(at)._asdict()} | ({} if at else {"fresh": extracted.fresh()})
    return {
        f"{group}_{way}": predictions(
            found[f"{group}_{way}"], truth[rows] if extracted.outcome_known else None
        )
        for group, rows in groups.items()
        for way in WAYS
    }


def _membership_result(
    attack: str, scores: Scores, rocs: Mapping[str, Roc], target: Found, seed: int
) -> AuditResult:
    """Compare guesses, which name members above 0, with the truth."""
    found = {way: _rate(scores[f"members_{way}"], scores[f"others_{way}"], seed) for way in WAYS}
    n = found["explained"].n
    figures: dict[str, float] = {}
    for way, name in (("explained", ""), ("alone", "_alone")):
        figures |= rocs[way].auc.figures(f"auc{name}")
        figures[f"fidelity{name}"] = float(target[f"fidelity_{way}"])
    figures |= found["alone"].figures("accuracy_alone")
    return AuditResult(
        attack=f"membership_surrogate_{attack}",
        scenario=_SCENARIOS[attack],
        main=found["explained"],
        baseline=Rate(0.5, 0.5, 0.5, n),
        control=_rate(scores["fresh_explained"], scores["others_explained"], seed),
        figures=figures | {"answers": float(target["answers"])},
        seed=seed,
        n=n,
    )


def _rate(members: Floats, others: Floats, seed: int) -> Rate:
    return rate(np.concatenate([members >= 0, others < 0]), seed)


MOST = 10
"""Most categories to guess among, the most frequent ones; others are never guessed right."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Values:
    """The values that an attacker guesses among. Holds values of rows: host side only."""

    examples: tuple[Any, ...]
    categories: tuple[str, ...] | None
    edges: Floats

    def codes(self, column: pd.Series) -> Rows:
        """Return which of the values each person has; -1 for another value, -2 for none."""
        missing = column.isna().to_numpy()
        if self.categories is not None:
            texts = pd.Index([to_text(value) for value in column])
            found = pd.Index(self.categories).get_indexer(texts)
        else:
            numbers, bad = to_numbers(column)
            missing = missing | bad
            found = np.searchsorted(self.edges, np.where(missing, 0.0, numbers), side="right")
        return np.where(missing, -2, found).astype(np.int64)


def values_of(known: pd.Series, edges: Sequence[float] | None = None) -> Values:
    if not is_numeric(known):
        if edges is not None:
            raise InputError(f"column {known.name!r} holds categories, which have no edges")
        return _categories(known)
    numbers, bad = to_numbers(known)
    usable = ~bad & ~np.isnan(numbers)
    present, numbers = known[usable], numbers[usable]
    if edges is None and len(numbers):  # terciles
        edges = [edge for edge in np.quantile(numbers, [1 / 3, 2 / 3]) if edge > numbers.min()]
    at = np.unique(np.asarray([] if edges is None else edges, dtype=np.float64))
    where = np.searchsorted(at, numbers, side="right")
    counts = np.bincount(where, minlength=len(at) + 1)
    if len(counts) < 2 or not counts.all():
        raise InputError(
            f"column {known.name!r}: {int((counts > 0).sum())} of {len(counts)} ranges have people;"
            " guessing needs two ranges or more, all with people: give other edges"
        )
    return Values(tuple(_median(present[where == code]) for code in range(len(counts))), None, at)


def _categories(known: pd.Series) -> Values:
    present = known.dropna()
    texts = pd.Series([to_text(value) for value in present], dtype=object)
    counts = texts.value_counts()
    frequent = sorted(counts.index, key=lambda text: (-counts[text], text))[:MOST]
    if len(frequent) < 2:
        raise InputError(
            f"column {known.name!r} has fewer than two values; there is nothing to guess"
        )
    example = dict(zip(reversed(texts.tolist()), reversed(present.tolist()), strict=True))
    return Values(tuple(example[text] for text in frequent), tuple(frequent), np.empty(0))


def _median(column: pd.Series) -> Any:
    return column.iloc[
        int(np.argsort(to_numbers(column)[0], kind="stable")[(len(column) - 1) // 2])
    ]


KNOWING = ("explained", "alone", "nothing")
"""What is used besides known attributes: a surrogate with counterfactuals, one without, or none."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class People:
    """People whose attribute is guessed or learnt from. Host side only."""

    X: pd.DataFrame
    truth: Floats
    profiles: Mapping[str, Floats]
    codes: Rows


def guess(
    shadow: People, target: Mapping[str, People], values: int, layers: Sequence[int], seed: int
) -> Found:
    """Learn from a shadow's members, and return every value's probability for the target's
    people.
    """
    usable = shadow.codes >= 0
    encoder = RowsAsNumbers().fit(shadow.X[usable])
    known = {way: (_inputs(encoder, shadow, way)[usable], shadow.codes[usable]) for way in KNOWING}
    asked = {
        f"{group}_{way}": _inputs(encoder, people, way)
        for group, people in target.items()
        for way in KNOWING
    }
    return learn(known, asked, layers, seed, values)


def _inputs(encoder: RowsAsNumbers, people: People, knowing: str) -> Floats:
    known = [encoder.transform(people.X), people.truth]
    return np.hstack(known if knowing == "nothing" else [*known, people.profiles[knowing]])


_ENOUGH = 10  # least members with a value, for figures of it
_SCENARIO = (
    "Knows everything about a member of the training table but one attribute, extracts a surrogate,"
    " does the same with three shadow models on own people, and guesses the value that networks"
    " name which learnt on the shadows."
)


def attribute_inference_through_surrogate(
    owner: Target,
    sample: Sample,
    *,
    attribute: str,
    edges: Sequence[float] | None = None,
    queries: int = 2000,
    outcome_known: bool = True,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Checkpoints | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Guess an attribute of people in the training table from a surrogate's predictions for each of
    its values.

    Parameters
    ----------
    attribute : str
        The private one. Guesses are among the ten most frequent categories, or among ranges of a
        number.
    edges : sequence of float, optional
        Between ranges of a number. Default: terciles of the attacker's own people.
    owner, sample, queries, outcome_known, architecture, layers, attacked, seed, n_jobs, kept,
    progress
        As in `membership_through_surrogate`, with its source.

    Returns
    -------
    AttackReport
        `main`: share of members guessed right; `baseline`: the same networks without any surrogate;
        `control`: the attack on people who were not trained on. Main above baseline shows that the
        model discloses something; main above control, that it discloses more about its training
        people. Intervals are over people.
    """
    audit = AuditRun(owner, seed, n_jobs, kept, progress, 2 * SETS - 1)
    if attribute not in sample.X.columns:
        raise InputError(f"there is no column {attribute!r}")
    extracted = Extracted.of(
        owner,
        sample,
        architecture,
        queries,
        layers,
        attacked=attacked,
        outcome_known=outcome_known,
        seed=seed,
    )
    values = values_of(sample.X[attribute].iloc[everybody(extracted.sets[1:])], edges)
    first = extracted.pieces(
        f"attribute:{attribute}:{edges}", partial(profile, attribute=attribute, values=values)
    )
    measured = audit.run(first)
    groups = [
        {
            name: _people(extracted, found, name, rows, attribute, values)
            for name, rows in extracted.halves(at)._asdict().items()
        }
        for at, found in enumerate(measured)
    ]
    kinds = len(values.examples)

    def learner(at: int) -> Callable[[], Found]:
        return partial(guess, groups[at]["members"], groups[0], kinds, extracted.layers, seed + at)

    voted = vote(audit, extracted, first, learner)
    members, others = (groups[0][name].codes for name in HALVES)
    return audit.report(
        "attribute_inference",
        [_attribute_result(voted, members, others, measured[0], seed)],
        extracted.settings | {"attribute": attribute, "values": kinds, "attacked": len(members)},
    )


def profile(surrogate: Surrogate, X: pd.DataFrame, *, attribute: str, values: Values) -> Floats:
    """Return the confidence in the desired outcome for each value of the attribute, one column per
    value.
    """
    own = X[attribute]
    asked = (
        X.assign(**{attribute: pd.Series([value] * len(X), own.index, own.dtype)})
        for value in values.examples
    )
    return np.column_stack([surrogate.confidence(rows) for rows in asked])


def _people(
    extracted: Extracted, found: Found, group: str, rows: Rows, attribute: str, values: Values
) -> People:
    sample = extracted.sample.take(rows)
    codes = values.codes(sample.X[attribute])
    has = codes > -2
    truth = (
        sample.y[has].astype(np.float64)[:, None]
        if extracted.outcome_known
        else np.empty((int(has.sum()), 0))
    )
    profiles = {way: found[f"{group}_{way}"][has] for way in KNOWING if way != "nothing"}
    return People(sample.X.drop(columns=attribute)[has], truth, profiles, codes[has])


def _attribute_result(
    voted: Found, members: Rows, others: Rows, target: Found, seed: int
) -> AuditResult:
    right = {
        f"{group}_{way}": voted[f"{group}_{way}"].argmax(axis=1) == codes
        for group, codes in (("members", members), ("others", others))
        for way in KNOWING
    }
    who = [np.arange(len(members))]
    figures: dict[str, float] = {}
    if len(members):
        hits = [right["members_explained"]]
        figures |= gain(hits, [right["members_nothing"]], who, seed).figures("gain")
        figures |= gain(hits, [right["members_alone"]], who, seed).figures("gain_by_explanations")
    figures |= {
        "accuracy_alone": rate(right["members_alone"], seed).value,
        "control_baseline": rate(right["others_nothing"], seed).value,
        "fidelity": float(target["fidelity_explained"]),
        "fidelity_alone": float(target["fidelity_alone"]),
        "answers": float(target["answers"]),
        **_by_value(right, members, others),
    }
    return AuditResult(
        attack="attribute_inference_surrogate",
        scenario=_SCENARIO,
        main=rate(right["members_explained"], seed),
        baseline=rate(right["members_nothing"], seed),
        control=rate(right["others_explained"], seed),
        figures=figures,
        seed=seed,
        n=len(members),
    )


def _by_value(right: dict[str, Mask], members: Rows, others: Rows) -> dict[str, float]:
    """Return the shares among people with each value, numbered from 1, without values of few
    people.
    """
    found: dict[str, float] = {}
    for code in np.unique(members[members >= 0]):
        has, control = members == code, others == code
        if min(has.sum(), control.sum()) < _ENOUGH:
            continue
        name = f"value_{code + 1}"
        found[f"{name}_people"] = float(has.sum())
        found[f"{name}_accuracy"] = float(right["members_explained"][has].mean())
        found[f"{name}_baseline"] = float(right["members_nothing"][has].mean())
        found[f"{name}_control"] = float(right["others_explained"][control].mean())
    return found
