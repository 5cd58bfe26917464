"""Membership inference through a surrogate: what a copy of a model still tells about whom the model was trained on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.extraction.architecture import Architecture, architectures, name_of
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.extraction.sets import SETS, draw_sets
from cfk_plugin.audit.extraction.shadows import WAYS, Extracted, most_queries, part_of
from cfk_plugin.audit.extraction.telling import LAYERS, Scores, by_threshold, by_vote, learn, predictions
from cfk_plugin.audit.extraction.transfer import Surrogate
from cfk_plugin.audit.membership.roc import Roc, measure_roc
from cfk_plugin.audit.result import AuditResult, Rate, check_seed, rate
from cfk_plugin.audit.running import Kept, Piece, run_pieces
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.hookspecs import Progress

_KNOWS = "Extracts a surrogate and does the same with three shadow models on own people; names as members whom "
_SCENARIOS = {
    "threshold": _KNOWS + "the surrogate is surer of than a threshold that was best on the shadows.",
    "learned": _KNOWS + "three networks name that learnt from the shadows' predictions.",
}


def membership_through_surrogate(
    owner: Owner,
    sample: Sample,
    *,
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
    """Tell people of the training table from others by what a surrogate predicts of them.

    The attacker never asks the model about the people attacked: only queries of own people, and their explanations,
    carry anything over. Half of the people attacked are members, and the attacker knows that.

    Parameters
    ----------
    owner : Owner
    sample : Sample
        At least 80 people; split into four sets, each into members and others.
    queries : int
        Asked of each of four models; at most half of the sample.
    outcome_known : bool
        Whether the attacker knows the true outcomes of the people attacked. The paper's attacker does not.
    architecture : callable, optional
        Of the surrogates, see `extraction`. Default: the owner's kind if the owner says it, else a network.
    layers : sequence of int
        Hidden layers of the learned attack; `PAPER_LAYERS` has the paper's.
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
        Results ``membership_surrogate_threshold`` and ``membership_surrogate_learned``. `main`: share of members and
        others, as many of each, who are told right; `baseline`: 0.5, a coin; `control`: the same with fresh people in
        the place of members. Intervals are over people, for these trained models.

    Raises
    ------
    InputError
        If the sample is too small.
    ModelError
        If training or asking fails; with the class of the failure alone.

    Notes
    -----
    The threshold attack's score is the surrogate's confidence in the true outcome, or in the likelier one where that is
    not known. In the learned one a network per shadow model sees the sorted prediction vector, and the confidence in
    the true outcome where it is known; the three vote by their mean. Yang et al. train 30 epochs with Adagrad; here it
    is Adam. An attack that does not work is no evidence of protection: other attacks ask the model itself.

    References
    ----------
    Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional Mechanism, section 5.3.3.
    """
    started = time.perf_counter()
    check_seed(seed)
    sets = draw_sets(sample, seed)
    kind = architecture or next(iter(architectures(owner).values()))
    extracted = Extracted(owner, sample, sets, kind, most_queries(sets, queries), attacked, seed)
    first = extracted.pieces("membership", confidence)
    total = len(first) + len(sets.attackers)
    measured = run_pieces(first, n_jobs=n_jobs, kept=kept, progress=part_of(progress, 0, total))
    asked = [_features(extracted, at, found, outcome_known=outcome_known) for at, found in enumerate(measured)]
    networks = [
        Piece(
            f"{first[at].key}:{outcome_known}:{tuple(layers)}",
            partial(learn, asked[at], asked[0], tuple(layers), seed + at),
        )
        for at in range(1, SETS)
    ]
    votes = run_pieces(networks, n_jobs=n_jobs, kept=kept, progress=part_of(progress, len(first), total))
    guessed = {"threshold": by_threshold(asked[0], asked[1:]), "learned": by_vote(votes)}
    rocs = {
        attack: {way: measure_roc(scores[f"members_{way}"], scores[f"others_{way}"], seed) for way in WAYS}
        for attack, scores in guessed.items()
    }
    return AttackReport(
        kind="membership",
        subject=owner.name,
        results=tuple(_result(attack, guessed[attack], rocs[attack], measured[0], seed) for attack in guessed),
        settings={
            "people": len(sample),
            "trained_on": len(sets.owners.members),
            "queries": extracted.queries,
            "attacked": len(extracted.halves(0).members),
            "outcome_known": outcome_known,
            "architecture": name_of(kind),
            "layers": ", ".join(map(str, layers)),
            "seed": seed,
        },
        curves={f"membership_surrogate_{attack}": found["explained"].curve for attack, found in rocs.items()},
        policy=getattr(owner, "policy", None),
        seconds=time.perf_counter() - started,
    )


def confidence(surrogate: Surrogate, X: pd.DataFrame) -> Floats:
    """Return what is asked of a surrogate here: the probability of the desired outcome."""
    return surrogate.confidence(X)


def _features(extracted: Extracted, at: int, found: Found, *, outcome_known: bool) -> Scores:
    """Return the prediction vectors of every group and way, with the confidence in the true outcome where known."""
    truth = extracted.sample.y
    groups = {**extracted.halves(at)._asdict()} | ({} if at else {"fresh": extracted.fresh()})
    return {
        f"{group}_{way}": predictions(found[f"{group}_{way}"], truth[rows] if outcome_known else None)
        for group, rows in groups.items()
        for way in WAYS
    }


def _result(attack: str, scores: Scores, rocs: Mapping[str, Roc], target: Found, seed: int) -> AuditResult:
    """Compare guesses, which are right above 0, with the truth."""
    found = {way: _rate(scores[f"members_{way}"], scores[f"others_{way}"], seed) for way in WAYS}
    n = found["explained"].n
    figures: dict[str, float] = {}
    for way, name in (("explained", ""), ("alone", "_alone")):
        area = rocs[way].auc
        figures |= {f"auc{name}": area.value, f"auc{name}_low": area.low, f"auc{name}_high": area.high}
        figures[f"fidelity{name}"] = float(target[f"fidelity_{way}"])
    alone = found["alone"]
    figures |= {"accuracy_alone": alone.value, "accuracy_alone_low": alone.low, "accuracy_alone_high": alone.high}
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
