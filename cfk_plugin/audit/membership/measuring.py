"""From what was answered to the results of attacks."""

from __future__ import annotations

import numpy as np

from cfk_plugin.audit.attack_report import Curve
from cfk_plugin.audit.membership.asking import together
from cfk_plugin.audit.membership.attacks import Attack, Seen
from cfk_plugin.audit.membership.bounds import largest_balanced_accuracy, published_balanced_accuracy
from cfk_plugin.audit.membership.parts import Parts
from cfk_plugin.audit.membership.roc import Roc, measure_roc
from cfk_plugin.audit.membership.scores import Direction, Floats
from cfk_plugin.audit.result import AuditResult, Rate
from cfk_plugin.audit.running.pieces import Found


def seen_by_attacker(parts: Parts, target: Found, shadows: list[Found], direction: Direction, seed: int) -> Seen:
    """Put side by side what the target and the shadows answered.

    Parameters
    ----------
    parts : Parts
    target : mapping
        Of `ask_target`.
    shadows : list of mapping
        Of `ask_shadow`.
    direction : {"larger", "smaller"}
    seed : int

    Returns
    -------
    Seen
        Members first.
    """
    empty = np.empty((0, len(target["found"])))
    many = {
        name: np.stack([shadow[name] for shadow in shadows]) if shadows else empty.astype(target[name].dtype)
        for name in ("distance", "found", "confidence")
    }
    return Seen(
        distance=target["distance"],
        found=target["found"],
        confidence=target["confidence"],
        outcome=together(parts, target["members"], target["others"]).y,
        shadow_distance=many["distance"],
        shadow_found=many["found"],
        shadow_confidence=many["confidence"],
        direction=direction,
        seed=seed,
    )


def shared_figures(target: Found, n_shadows: int, allowed: tuple[float, float] | None) -> dict[str, float]:
    """Return the figures that all attacks share."""
    figures = {name: float(target[name]) for name in ("train_accuracy", "test_accuracy")}
    figures["shadows"] = float(n_shadows)
    if allowed is not None:
        figures["bound_tight"] = largest_balanced_accuracy(*allowed)
        figures["bound_paper"] = published_balanced_accuracy(*allowed)
    return figures


def measure(name: str, attack: Attack, seen: Seen, members: int, shared: dict[str, float]) -> tuple[AuditResult, Curve]:
    """Return what an attack reached, and its curve.

    Parameters
    ----------
    name : str
    attack : Attack
    seen : Seen
        Members first.
    members : int
        How many they are.
    shared : mapping
        Figures of all attacks.
    """
    scores = attack.scores(seen)
    roc = measure_roc(scores[:members], scores[members:], seen.seed)
    figures = roc.figures() | shared
    if not attack.shadows:
        figures["shadows"] = 0.0
    if attack.explains:
        figures |= _unanswered(seen, members, attack.shadows)
    if "bound_tight" in figures:
        figures["exceeds_bound"] = float(roc.balanced_accuracy.low > figures["bound_tight"])
    return AuditResult(
        attack=name,
        scenario=attack.scenario,
        main=roc.auc,
        baseline=Rate(0.5, 0.5, 0.5, roc.auc.n),
        control=_control(scores[members:], seen.seed),
        figures=figures,
        seed=seen.seed,
        n=len(scores),
    ), roc.curve


def _control(others: Floats, seed: int) -> Rate:
    """Take one half of the others for members: nothing tells the halves apart."""
    first, second = np.array_split(np.random.default_rng([seed, 4]).permutation(others), 2)
    return measure_roc(first, second, seed).auc


def _unanswered(seen: Seen, members: int, shadows: bool) -> dict[str, float]:
    """Return who got no answer, and what that fact alone tells."""
    inside, outside = seen.found[:members], seen.found[members:]
    alone: Roc = measure_roc(inside.astype(float), outside.astype(float), seen.seed)
    figures = {
        "unanswered_members": 1 - float(inside.mean()) if len(inside) else np.nan,
        "unanswered_others": 1 - float(outside.mean()) if len(outside) else np.nan,
        "unanswered_auc": alone.auc.value,
        "unanswered_auc_low": alone.auc.low,
        "unanswered_auc_high": alone.auc.high,
    }
    if shadows and seen.shadow_found.size:
        figures["shadows_answering"] = float(seen.shadow_found.sum(axis=0).mean())
    return figures
