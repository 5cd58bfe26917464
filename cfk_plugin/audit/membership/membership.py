"""The audit of membership: how well somebody tells who is in the training table from what a service answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cfk_plugin.audit.attack_report import AttackReport
from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.epsilon.worlds import Relation
from cfk_plugin.audit.membership.asking import ask_target, shadow_call, together
from cfk_plugin.audit.membership.attacks import choose_attacks
from cfk_plugin.audit.membership.bounds import bound_curves, replace_one
from cfk_plugin.audit.membership.distance import Distance, choose_distance
from cfk_plugin.audit.membership.measuring import measure, seen_by_attacker, shared_figures
from cfk_plugin.audit.membership.parts import Parts
from cfk_plugin.audit.membership.scores import Direction
from cfk_plugin.audit.result import check_seed
from cfk_plugin.audit.running import Kept, Piece, Work, run_pieces
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

_SCORING = 0.2  # seconds for scores and intervals of all attacks


def membership(
    owner: Owner,
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
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> AttackReport:
    """Attack a service by asking who is in its training table.

    The owner trains on one part of the sample. Members of that part and other people, all of whom the service gives the
    undesired outcome, are told apart by the attacker, who has a third part to train shadow services on.

    Parameters
    ----------
    owner : Owner
    sample : Sample
        People of one population.
    n_train : int, optional
        People in the owner's table; see `Parts.cut` for the default and for what becomes of the rest.
    n_shadows : int
        Services that the attacker trains, at least 2.
    attacked : int
        Most members, and most others.
    distance : {"heom", "l1"} or callable, optional
        Between people and their counterfactuals. "heom" (default): sum over features of HEOM's parts, with ranges of
        the attacker's part. "l1": sum of absolute differences, of tables of numbers.
    direction : {"larger", "smaller"}
        Which distance speaks for a member; "smaller" for generators that stay near the training rows.
    attacks : sequence of str, optional
        Names of `ATTACKS`. Default: all but the coin.
    epsilon, delta : float, optional
        Claimed of the whole way from the table to what is asked, the training of the model included.
    relation : {"add-remove", "replace-one"}
        Which neighbouring tables the claim speaks of. The game replaces a person, so the first counts twice.
    seed : int
    n_jobs : int
        Shadows at the same time; -1 on all cores.
    kept : Kept, optional
        Where results of trainings are kept. Owners of one folder are told apart by their name alone.
    progress : callable, optional
        Called with (done, total) trainings.

    Returns
    -------
    AttackReport
        One result per attack: `main` is the area under the ROC curve, `baseline` 0.5, `control` the same attack with
        one half of the others in the place of members.

    Raises
    ------
    InputError
        If a setting is out of its range, or the sample too small.

    Notes
    -----
    Where nobody on one side gets the undesired outcome, nothing is measured: NaN with an interval of (0, 1). Intervals
    are over people, for these trained services; another training gives other numbers. An attack that does not work is
    no evidence of protection.

    References
    ----------
    Pawelczyk, Lakkaraju, Neel (2023), On the privacy risks of algorithmic recourse.
    """
    started = time.perf_counter()
    check_seed(seed)
    chosen, allowed = choose_attacks(attacks), None if epsilon is None else replace_one(epsilon, delta, relation)
    _check(n_shadows, attacked, direction)
    n_shadows = n_shadows if any(attack.shadows for attack in chosen.values()) else 0
    parts = Parts.cut(sample, n_train, seed)
    name, measured = choose_distance(distance, parts.pool.X)
    asked = measured if any(attack.explains for attack in chosen.values()) else None
    run = _Run(owner, parts, asked, n_shadows, attacked, seed, n_jobs, kept, progress)
    data = "" if kept is None else sample.fingerprint()
    target, shadows = run.ask(f"membership {owner.name} {data} {len(parts.table)} {name if asked else None} {seed}")
    seen = seen_by_attacker(parts, target, shadows, direction, seed)
    shared = shared_figures(target, n_shadows, allowed)
    results, curves = [], {} if allowed is None else bound_curves(*allowed)
    for attack, of in chosen.items():
        result, curves[attack] = measure(attack, of, seen, len(target["members"]), shared)
        results.append(result)
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
    seconds = time.perf_counter() - started
    return AttackReport(
        kind="membership",
        subject=owner.name,
        results=tuple(results),
        settings=settings,
        curves=curves,
        policy=getattr(owner, "policy", None),
        seconds=seconds,
    )


def membership_work(*, n_shadows: int = 8, attacked: int = 200, attacks: Sequence[str] | None = None) -> Work:
    """Say what `membership` has to do with the same settings, at most: who is not undesired is not explained."""
    chosen = choose_attacks(attacks).values()
    trainings = 1 + (n_shadows if any(attack.shadows for attack in chosen) else 0)
    explained = 2 * attacked * trainings if any(attack.explains for attack in chosen) else 0
    return Work(trainings, explained, _SCORING)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Run:
    """The trainings of one audit. Host side only."""

    owner: Owner
    parts: Parts
    distance: Distance | None
    n_shadows: int
    attacked: int
    seed: int
    n_jobs: int
    kept: Kept | None
    progress: Progress | None

    def ask(self, key: str) -> tuple[Found, list[Found]]:
        """Ask the target, and then the shadows about the same people."""
        total = 1 + self.n_shadows
        key = f"{key} {self.attacked}"

        def report(done: int, _: int) -> None:
            if self.progress is not None:
                self.progress(done, total)

        def target() -> Found:
            return ask_target(self.owner, self.parts, self.attacked, self.distance, self.seed)

        first = run_pieces([Piece(f"{key} target", target)], kept=self.kept, progress=report)[0]
        queries = together(self.parts, first["members"], first["others"]).X
        calls = [
            shadow_call(self.owner, self.parts, queries, self.distance, shadow, self.seed)
            for shadow in range(self.n_shadows)
        ]
        pieces = [Piece(f"{key} shadow {shadow}", call) for shadow, call in enumerate(calls)]
        return first, run_pieces(
            pieces, n_jobs=self.n_jobs, kept=self.kept, progress=lambda done, _: report(done + 1, total)
        )


def _check(n_shadows: int, attacked: int, direction: str) -> None:
    for name, value, least in (("n_shadows", n_shadows, 2), ("attacked", attacked, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}")
    if direction not in ("larger", "smaller"):
        raise InputError('direction must be "larger" or "smaller"')
