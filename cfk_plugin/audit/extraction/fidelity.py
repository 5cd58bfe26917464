"""Model extraction: how much better a model can be copied by who gets explanations beside outcomes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.attacked.sample import Mask, Rows
from cfk_plugin.audit.extraction.agreement import balanced, deviation, gain, share
from cfk_plugin.audit.extraction.architecture import Architecture, architectures, name_of
from cfk_plugin.audit.extraction.drawing import WAYS, ExtractionTask
from cfk_plugin.audit.extraction.sets import draw_sets
from cfk_plugin.audit.result import AuditResult, check_seed
from cfk_plugin.audit.running import Kept, Piece, run_pieces
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

QUERIES = (250, 500, 1000, 2000)
"""How many are asked in the paper."""

_SCENARIO = (
    "Knows people of the same population, asks {queries} queries, gets outcomes and counterfactuals of the undesired "
    "ones, and trains {kind} on both."
)
_KINDS = {"known": "a model of the owner's kind", "unknown": "a model of another kind"}


def extraction(
    owner: Owner,
    sample: Sample,
    *,
    queries: Sequence[int] = QUERIES,
    known: Architecture | None = None,
    unknown: Architecture | None = None,
    repeats: int = 3,
    held_out: int = 2000,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Copy a model from its outcomes and counterfactuals, and measure what the counterfactuals add.

    The sample is split into four sets of equal size: the owner trains on half of one, the attacker knows three. An
    attacker who reads answers learns more replies than one who does not: the control asks as many further ordinary
    queries as there were answers, so that only what is better than both is due to explanations being explanations.

    Parameters
    ----------
    owner : Owner
    sample : Sample
        At least 80 people.
    queries : sequence of int
        One result each. Sizes beyond the people of the attacker are left out, and named in the settings.
    known, unknown : callable, optional
        From a seed to a classifier that takes a DataFrame; see `architectures` for the defaults.
    repeats : int
        Draws of the queries. The owner trains on the same people with the same seed in all of them.
    held_out : int
        Most people on whom agreement is measured, in each draw others: neither trained on nor asked.
    seed : int
    n_jobs : int
        Draws at the same time.
    kept : Kept, optional
        Where outcomes of held-out people are kept, by position.
    progress : callable, optional
        Called with (done, total) draws.

    Returns
    -------
    AttackReport
        Results ``extraction_known_<queries>`` and ``extraction_unknown_<queries>``. `main`: share of held-out people to
        whom surrogate and model give the same outcome (fidelity), with explanations; `baseline`: with queries alone;
        `control`: with further queries, None where the attacker has not enough people. Intervals cover people and, with
        several repeats, draws of queries; not other trainings of the owner.

    Raises
    ------
    InputError
        If the sample is too small, a size is no whole number above 0, or no size fits.
    ModelError
        If training or asking fails; with the class of the failure alone.

    Notes
    -----
    Counterfactuals are labelled with the desired outcome, Eq. 22 of the paper. It says nothing about attackers who
    choose their queries by what they have learnt.

    References
    ----------
    Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional Mechanism, section 5.3.2.
    """
    started = time.perf_counter()
    check_seed(seed)
    if repeats < 1 or held_out < 1:
        raise InputError("repeats and held_out must be at least 1")
    sets = draw_sets(sample, seed)
    sizes, left_out = sizes_that_fit(queries, len(sets.own))
    kinds = architectures(owner, known, unknown)
    task = ExtractionTask(owner, sample, sets, sizes, kinds, held_out, seed)
    pieces = [Piece(task.key(at), partial(task.draw, at)) for at in range(repeats)]
    draws = run_pieces(pieces, n_jobs=n_jobs, kept=kept, progress=progress)
    settings: dict[str, str | int | float | bool] = {
        "people": len(sample),
        "trained_on": len(sets.owners.members),
        "queries": ", ".join(map(str, sizes)),
        "queries_left_out": ", ".join(map(str, left_out)),
        "repeats": repeats,
        "held_out": held_out,
        "seed": seed,
        **{kind: name_of(architecture) for kind, architecture in kinds.items()},
    }
    return AttackReport(
        kind="extraction",
        subject=owner.name,
        results=tuple(_result(kind, size, draws, sample.y, seed) for kind in kinds for size in sizes),
        settings=settings,
        policy=getattr(owner, "policy", None),
        seconds=time.perf_counter() - started,
    )


def sizes_that_fit(queries: Sequence[int], people: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of queries that so many people are enough for, ascending, and the others.

    Raises
    ------
    InputError
        If one is no whole number above 0, or none fits.
    """
    sizes = sorted(set(queries))
    if not sizes or any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
        raise InputError("queries must be whole numbers above 0")
    fit_in = tuple(size for size in sizes if size <= people)
    if not fit_in:
        raise InputError(f"{sizes[0]} queries need as many people, and the attacker has {people}; ask fewer")
    return fit_in, tuple(sizes[len(fit_in) :])


def _result(kind: str, size: int, draws: Sequence[Found], truth: Mask, seed: int) -> AuditResult:
    people, target = [draw["people"] for draw in draws], [draw["target"] for draw in draws]
    ways = [way for way in WAYS if all(f"{kind}_{size}_{way}" in draw for draw in draws)]
    guessed = {way: [draw[f"{kind}_{size}_{way}"] for draw in draws] for way in ways}
    right = {way: [a == b for a, b in zip(guessed[way], target, strict=True)] for way in ways}
    rates = {way: share(right[way], people, seed) for way in ways}
    corrected = {way: [draw[f"{kind}_{size}_{way}_matched"] == draw["target"] for draw in draws] for way in ways}
    figures: dict[str, float] = {}
    for name, of in (("gain", right), ("matched_gain", corrected)):
        figures |= gain(of["explained"], of["alone"], people, seed).figures(name)
        if "further" in ways:
            figures |= gain(of["explained"], of["further"], people, seed).figures(f"{name}_over_further")
    figures["draws_sd"] = deviation([float(values.mean()) for values in right["explained"]])
    figures |= _replies(np.array([draw[f"replies_{size}"] for draw in draws]))
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


def _replies(counts: NDArray[np.int64]) -> dict[str, float]:
    answers, undesired = counts.sum(axis=0)
    return {
        "answers": float(answers / len(counts)),
        "answered": float(answers / undesired) if undesired else math.nan,
    }


def _accuracy(guessed: Sequence[Mask], people: Sequence[Rows], truth: Mask) -> float:
    return float(np.mean(np.concatenate([a == truth[who] for a, who in zip(guessed, people, strict=True)])))
