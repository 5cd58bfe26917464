"""Attribute inference through a surrogate: what a copy of a model tells about a private attribute of people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.attacked.sample import Mask, Rows
from cfk_plugin.audit.extraction.agreement import gain
from cfk_plugin.audit.extraction.architecture import Architecture, architectures, name_of
from cfk_plugin.audit.extraction.guessing import KNOWING, People, guess
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.extraction.sets import SETS, draw_sets
from cfk_plugin.audit.extraction.shadows import Extracted, most_queries, part_of
from cfk_plugin.audit.extraction.telling import LAYERS
from cfk_plugin.audit.extraction.transfer import Surrogate
from cfk_plugin.audit.extraction.values import Values, values_of
from cfk_plugin.audit.result import AuditResult, check_seed, rate
from cfk_plugin.audit.running import Kept, Piece, run_pieces
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

_ENOUGH = 10  # members with a value, for its own figures
_SCENARIO = (
    "Knows everything about a member of the training table but one attribute, extracts a surrogate, does the same with "
    "three shadow models on own people, and guesses the value that networks name which learnt on the shadows."
)


def attribute_inference_through_surrogate(
    owner: Owner,
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
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Guess an attribute of people of the training table from what a surrogate predicts for each of its values.

    Parameters
    ----------
    owner : Owner
    sample : Sample
        At least 80 people; split into four sets, each into members and others.
    attribute : str
        The private one. Guessed are the ten most frequent categories, or ranges of a number.
    edges : sequence of float, optional
        Between ranges of a number. Default: terciles of the attacker's own people.
    queries : int
        Asked of each of four models; at most half of the sample.
    outcome_known : bool
        Whether the attacker knows the true outcomes of the people attacked.
    architecture : callable, optional
        Of the surrogates. Default: the owner's kind if the owner says it, else a network.
    layers : sequence of int
        Hidden layers of the networks that guess.
    attacked : int
        Most members, and most others.
    seed : int
    n_jobs : int
        Models at the same time.
    kept : Kept, optional
        Where confidences are kept, by position.
    progress : callable, optional
        Called with (done, total) of seven trainings: four models, three networks.

    Returns
    -------
    AttackReport
        Result ``attribute_inference_surrogate``. `main`: share of members guessed right; `baseline`: the same by the
        same networks, which learnt from the same people, without any surrogate: what their other attributes tell;
        `control`: the attack on people who were not trained on. Intervals are over people, for these trained models.

    Raises
    ------
    InputError
        If the sample is too small, the attribute is unknown or has fewer than two values, or edges do not fit it.
    ModelError
        If training or asking fails; with the class of the failure alone.

    Notes
    -----
    A network sees the other attributes as numbers, the true outcome where it is known, and the surrogate's confidence
    for every value that could stand in the place of the attribute. Main above baseline says that the model tells
    something; main above control that it tells more about whom it was trained on.

    References
    ----------
    Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional Mechanism, section 5.3.3.
    """
    started = time.perf_counter()
    check_seed(seed)
    if attribute not in sample.X.columns:
        raise InputError(f"there is no column {attribute!r}")
    sets = draw_sets(sample, seed)
    kind = architecture or next(iter(architectures(owner).values()))
    extracted = Extracted(owner, sample, sets, kind, most_queries(sets, queries), attacked, seed)
    values = values_of(sample.X[attribute].iloc[sets.own], edges)
    first = extracted.pieces(f"attribute:{attribute}:{edges}", partial(profile, attribute=attribute, values=values))
    total = len(first) + len(sets.attackers)
    measured = run_pieces(first, n_jobs=n_jobs, kept=kept, progress=part_of(progress, 0, total))
    groups = _groups(extracted, measured, attribute, values, outcome_known=outcome_known)
    networks = [
        Piece(
            f"{first[at].key}:{outcome_known}:{tuple(layers)}",
            partial(guess, groups[at]["members"], groups[0], len(values.examples), tuple(layers), seed + at),
        )
        for at in range(1, SETS)
    ]
    votes = run_pieces(networks, n_jobs=n_jobs, kept=kept, progress=part_of(progress, len(first), total))
    return AttackReport(
        kind="attribute_inference",
        subject=owner.name,
        results=(_result(votes, groups[0]["members"].codes, groups[0]["others"].codes, measured[0], seed),),
        settings={
            "people": len(sample),
            "trained_on": len(sets.owners.members),
            "attribute": attribute,
            "values": len(values.examples),
            "queries": extracted.queries,
            "attacked": len(groups[0]["members"].codes),
            "outcome_known": outcome_known,
            "architecture": name_of(kind),
            "layers": ", ".join(map(str, layers)),
            "seed": seed,
        },
        policy=getattr(owner, "policy", None),
        seconds=time.perf_counter() - started,
    )


def profile(surrogate: Surrogate, X: pd.DataFrame, *, attribute: str, values: Values) -> Floats:
    """Return the confidence in the desired outcome with every value in the place of the attribute, a column each."""
    own = X[attribute]
    asked = (X.assign(**{attribute: pd.Series([value] * len(X), own.index, own.dtype)}) for value in values.examples)
    return np.column_stack([surrogate.confidence(rows) for rows in asked])


def _groups(
    extracted: Extracted, measured: Sequence[Found], attribute: str, values: Values, *, outcome_known: bool
) -> list[dict[str, People]]:
    """Return members and others of every set."""
    return [
        {
            name: _people(extracted, found, name, rows, attribute, values, outcome_known=outcome_known)
            for name, rows in extracted.halves(at)._asdict().items()
        }
        for at, found in enumerate(measured)
    ]


def _people(
    extracted: Extracted, found: Found, group: str, rows: Rows, attribute: str, values: Values, *, outcome_known: bool
) -> People:
    """Return people who have a value, without it."""
    sample = extracted.sample.take(rows)
    codes = values.codes(sample.X[attribute])
    has = codes > -2
    truth = sample.y[has].astype(np.float64)[:, None] if outcome_known else np.empty((int(has.sum()), 0))
    profiles = {way: found[f"{group}_{way}"][has] for way in KNOWING if way != "nothing"}
    return People(sample.X.drop(columns=attribute)[has], truth, profiles, codes[has])


def _result(votes: Sequence[Found], members: Rows, others: Rows, target: Found, seed: int) -> AuditResult:
    right = {
        f"{group}_{way}": np.mean([vote[f"{group}_{way}"] for vote in votes], axis=0).argmax(axis=1) == codes
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
    """Return the shares among people with one value each, numbered from 1; who has few people is left out."""
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
