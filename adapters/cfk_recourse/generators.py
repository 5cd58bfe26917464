"""Explainers by name, for the entry points of the group ``cfk_plugin.generators``; libraries are
imported on use.

Each takes training rows without outcomes, the true outcomes, a fitted model, the desired outcome,
and a seed, and may ignore some of these.
"""

# ruff: noqa: ARG001 - all of them take the same arguments

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_adapters.nearest import NearestUnlikeNeighbour
    from cfk_recourse.c_chvae import CChvae
    from cfk_recourse.cadex import Cadex
    from cfk_recourse.face import Face
    from cfk_recourse.growing_spheres import GrowingSpheres
    from cfk_recourse.libraries import DiceRows, NiceRows
    from cfk_recourse.revise import Revise
    from cfk_recourse.scfe import Scfe

    Labels = NDArray[Any]

Made = TypeVar("Made", bound=Callable[..., Any])

_NICE = {"nice": "pip install --no-deps NICEx==0.2.3"}
_DICE = {"dice_ml": 'pip install "cfk-plugin[dice]"'}


def _needing(needs: dict[str, str]) -> Callable[[Made], Made]:
    def mark(factory: Made) -> Made:
        factory.needs = needs  # type: ignore[attr-defined]
        return factory

    return mark


def nearest(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> NearestUnlikeNeighbour:
    """Make a nearest unlike neighbour."""
    from cfk_adapters.nearest import NearestUnlikeNeighbour

    return NearestUnlikeNeighbour(train, model, desired)


def c_chvae(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> CChvae:
    """Make C-CHVAE; its autoencoder is trained at the first query."""
    from cfk_recourse.c_chvae import CChvae

    return CChvae(train, model, desired, seed=seed)


def face(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> Face:
    """Make FACE."""
    from cfk_recourse.face import Face

    return Face(train, model, desired, seed=seed)


def scfe(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> Scfe:
    """Make SCFE; the model's gradients must be known."""
    from cfk_recourse.scfe import Scfe

    return Scfe(train, model, desired, seed=seed)


def cadex(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> Cadex:
    """Make CADEX; the model's gradients must be known."""
    from cfk_recourse.cadex import Cadex

    return Cadex(train, model, desired, seed=seed)


def revise(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> Revise:
    """Make REVISE, whose autoencoder is trained at the first query; the model's gradients must be
    known.
    """
    from cfk_recourse.revise import Revise

    return Revise(train, model, desired, seed=seed)


def growing_spheres(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> GrowingSpheres:
    """Make Growing Spheres."""
    from cfk_recourse.growing_spheres import GrowingSpheres

    return GrowingSpheres(train, model, desired, seed=seed)


@_needing(_NICE)
def nice(
    train: pd.DataFrame,
    labels: Labels,
    model: Any,
    desired: Any = "opposite",
    seed: int = 0,
    **settings: Any,
) -> NiceRows:
    """Make a justified NICE, without optimisation unless `settings` ask for it; `desired` must be a
    class.
    """
    from cfk_recourse.libraries import NiceRows

    return NiceRows(train, labels, model, desired, **settings)


@_needing(_DICE)
def dice_random(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> DiceRows:
    """Make DiCE with its random search."""
    from cfk_recourse.libraries import DiceRows

    return DiceRows(train, labels, model, desired, "random", seed)


@_needing(_DICE)
def dice_kdtree(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> DiceRows:
    """Make DiCE with its search among training rows."""
    from cfk_recourse.libraries import DiceRows

    return DiceRows(train, labels, model, desired, "kdtree", seed)


@_needing(_DICE)
def dice_genetic(
    train: pd.DataFrame, labels: Labels, model: Any, desired: Any = "opposite", seed: int = 0
) -> DiceRows:
    """Make DiCE with its genetic search, which starts from training rows."""
    from cfk_recourse.libraries import DiceRows

    return DiceRows(train, labels, model, desired, "genetic", seed)
