"""The attacks by name: what each knows, what it looks at, and how it scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.membership.scores import (
    Direction,
    confidence_ratio_scores,
    confidence_scores,
    distance_ratio_scores,
    distance_scores,
    random_scores,
)
from cfk_plugin.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Seen:
    """What can be seen of the people under attack; arrays of shape (n,), of shadows (n_shadows, n). Host side only.

    Attributes
    ----------
    distance, found : array
        Between everybody and their counterfactual, and whether there was one.
    confidence : float array
        Of the service, in the desired outcome.
    outcome : bool array
        Whether the true outcome is the desired one.
    shadow_distance, shadow_found, shadow_confidence : array
        The same under shadows.
    direction : {"larger", "smaller"}
    seed : int
    """

    distance: Floats
    found: Mask
    confidence: Floats
    outcome: Mask
    shadow_distance: Floats
    shadow_found: Mask
    shadow_confidence: Floats
    direction: Direction
    seed: int


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes
    ----------
    scenario : str
        What the attacker knows and does, in one sentence.
    explains, shadows : bool
        Whether it looks at counterfactuals, and at shadow services.
    scores : callable
        From what is seen to one score per person; larger speaks for a member.
    """

    scenario: str
    explains: bool
    shadows: bool
    scores: Callable[[Seen], Floats]


_ASKS = "Receives one counterfactual of a person who got the undesired outcome, knows nothing of the model, "

ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "membership_cfd": Attack(
            f"{_ASKS}and takes the person for a member of the training table if the counterfactual is far away.",
            True,
            False,
            lambda seen: distance_scores(seen.distance, seen.found, seen.direction),
        ),
        "membership_cfd_lrt": Attack(
            f"{_ASKS}trains the same kind of service on other people of the population, and takes the person for a "
            "member if the counterfactual is farther away than those services say.",
            True,
            True,
            lambda seen: distance_ratio_scores(
                seen.distance, seen.found, seen.shadow_distance, seen.shadow_found, seen.direction
            ),
        ),
        "membership_loss": Attack(
            "Sees the model's confidence in a person whose true outcome is known, and takes the person for a member of "
            "the training table if the model is sure of that outcome.",
            False,
            False,
            lambda seen: confidence_scores(seen.confidence, seen.outcome),
        ),
        "membership_loss_lrt": Attack(
            "Sees the model's confidence in a person whose true outcome is known, trains the same kind of model on "
            "other people of the population, and takes the person for a member if the model is surer of that outcome.",
            False,
            True,
            lambda seen: confidence_ratio_scores(seen.confidence, seen.shadow_confidence, seen.outcome),
        ),
        "membership_random": Attack(
            "Knows nothing and takes people for members of the training table by a coin.",
            False,
            False,
            lambda seen: random_scores(len(seen.outcome), seen.seed),
        ),
    }
)
"""All attacks, in the order in which they are reported; the last one shows what luck reaches at these sizes."""

DEFAULT = tuple(name for name in ATTACKS if name != "membership_random")


def choose_attacks(names: Sequence[str] | None) -> dict[str, Attack]:
    """Return attacks by name, in the order of `ATTACKS`.

    Parameters
    ----------
    names : sequence of str, optional
        Default: all but the coin.

    Raises
    ------
    InputError
        If one is unknown or there is none.
    """
    chosen = DEFAULT if names is None else tuple(names)
    if unknown := [name for name in chosen if name not in ATTACKS]:
        raise InputError(f"unknown attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    if not chosen:
        raise InputError(f"choose at least one attack of {', '.join(ATTACKS)}")
    return {name: attack for name, attack in ATTACKS.items() if name in chosen}
