"""Made-up populations in any number of dimensions, on which attacks are studied: two clouds around two corners."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked import Sample
from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True)
class HypercubePopulation:
    """People of two kinds, each a Gaussian cloud of unit variance around a vertex of a hypercube.

    The kind is the true outcome. Both are equally frequent.

    Parameters
    ----------
    d : int
        Features, at least 2.
    separation : float
        Distance between the two vertices, which sets the size of the cube. A model that knew both would be right with
        probability Phi(separation / 2): 0.9987 at 6.
    seed : int
        Of the choice of the vertices.

    Raises
    ------
    InputError
        If there are fewer than two features or the distance is not positive.

    Notes
    -----
    The recourse paper describes its synthetic sets so and leaves the size of the cube open. Its linear models see d =
    100, 1000, 5000 and 7000 features of 5000 people, its networks d = 50 and 150.

    References
    ----------
    Pawelczyk, Lakkaraju, Neel (2023), section 6.1.

    Examples
    --------
    >>> HypercubePopulation(d=50).draw(100)
    Sample(100 people, 50 features)
    """

    d: int
    separation: float = 6.0
    seed: int = 0
    centres: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Choose the vertices."""
        if not isinstance(self.d, int) or isinstance(self.d, bool) or self.d < 2:
            raise InputError("d must be a whole number of at least 2")
        if not 0 < self.separation < np.inf:
            raise InputError("separation must be a positive number")
        corners = np.random.default_rng([self.seed, self.d]).integers(0, 2, (2, self.d)) - 0.5
        if (corners[0] == corners[1]).all():
            corners[1, 0] = -corners[0, 0]
        side = self.separation / np.sqrt((corners[0] != corners[1]).sum())
        object.__setattr__(self, "centres", corners * side)

    def draw(self, n: int, seed: int | np.random.Generator = 0) -> Sample:
        """Draw people.

        Parameters
        ----------
        n : int
        seed : int or Generator

        Returns
        -------
        Sample
            Columns are called ``x0``, ``x1``, ...
        """
        random = np.random.default_rng(seed)
        kind = random.random(n) < 0.5
        X = random.standard_normal((n, self.d))
        X += self.centres[kind.astype(np.int64)]
        return Sample(pd.DataFrame(X, columns=[f"x{j}" for j in range(self.d)], copy=False), kind)
