"""The sensitive attributes inside a region, all of them together: the worst that is said of any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfk_plugin.metrics.disclosure import closeness_and_disclosure, l_diversity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfk_plugin.population import Population


@dataclass(frozen=True, slots=True)
class SensitiveFigures:
    """Figures over all sensitive attributes; None where there are none, or no rows.

    Attributes
    ----------
    diversity : int, optional
        Least number of distinct values.
    closeness : float, optional
        Largest distance to the distribution in the population (`t_closeness`).
    disclosure : float, optional
        Largest `attribute_disclosure`.
    """

    diversity: int | None = None
    closeness: float | None = None
    disclosure: float | None = None

    @classmethod
    def of(cls, population: Population, rows: NDArray[np.int64]) -> SensitiveFigures:
        """Look at the sensitive values of rows inside a region."""
        names = population.schema.sensitive
        if not names or not population.has_rows:
            return cls()
        diversity, shifts = [], []
        for name in names:
            everybody, domain = population.column(name), population.domains[name]
            inside = everybody.take(rows)
            diversity.append(l_diversity(inside).distinct)
            shifts.append(closeness_and_disclosure(inside, everybody, domain.is_interval))
        closeness, disclosure = zip(*shifts, strict=True)
        return cls(min(diversity), max(closeness), max(disclosure))
