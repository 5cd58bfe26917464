"""The explanations of several runs as one table, each with the k that it had to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.report.evidence import Evidence, RunEvidence


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """All explanations of the period.

    Attributes
    ----------
    rows : DataFrame
        Those of `RunEvidence.rows`, one run after the other, and ``run`` (position in `runs`) and ``asked_k``
        (the k of the run's policy, or the larger one that the report asks for; missing where there is none).
    runs : sequence of RunEvidence
        Those with explanations.
    """

    rows: pd.DataFrame
    runs: Sequence[RunEvidence]

    @classmethod
    def of(cls, evidence: Evidence, k: int | None = None) -> Pooled:
        """Pool the runs of the evidence.

        Parameters
        ----------
        evidence : Evidence
        k : int, optional
            Asked of every release, where it is more than the run's own policy asks for.
        """
        runs = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
        tables = []
        for i, run in enumerate(runs):
            own = (run.policy or {}).get("k")
            asked = np.nan if own is None else max(int(own), k or 0)
            tables.append(run.rows.assign(run=np.int32(i), asked_k=asked))  # type: ignore[union-attr]
        if not tables:
            return cls(pd.DataFrame({name: [] for name in ("status", "k", "run", "asked_k")}), runs)
        return cls(pd.concat(tables, ignore_index=True, sort=False), runs)

    def __len__(self) -> int:
        """Return the number of explanations asked for."""
        return len(self.rows)

    @cached_property
    def released(self) -> pd.DataFrame:
        """Rows of what was released."""
        return self.rows[(self.rows["status"] == "released").to_numpy()]

    @cached_property
    def suppressed(self) -> pd.DataFrame:
        """Rows of what was withheld."""
        return self.rows[(self.rows["status"] == "suppressed").to_numpy()]

    @cached_property
    def regions(self) -> pd.DataFrame:
        """Rows of the regions that were released."""
        return self.released[self.released["k"].notna().to_numpy()]

    @cached_property
    def prototypes(self) -> pd.DataFrame:
        """Rows of the prototypes that were released."""
        return self.released[self.released["k"].isna().to_numpy()]

    @cached_property
    def k(self) -> int | None:
        """The least k that was asked for."""
        asked = self.rows["asked_k"].dropna()
        return int(asked.min()) if len(asked) else None

    def of_all(self, name: str) -> pd.Series[Any]:
        """Return what is known of something, of all explanations."""
        return self.rows[name].dropna() if name in self.rows else pd.Series(dtype=object)

    def values(self, name: str) -> NDArray[np.float64]:
        """Return what is known of a figure of the released regions: one value each, those without left out."""
        if name not in self.regions:
            return np.empty(0)
        return self.regions[name].dropna().to_numpy(dtype=np.float64)

    def complete(self, name: str) -> bool:
        """Say whether every released region has the figure, and a k to compare with."""
        if not len(self.regions) or name not in self.regions:
            return False
        return bool(self.regions[[name, "asked_k"]].notna().all(axis=None))

    def evidence(self, rows: pd.DataFrame, most: int = 5) -> tuple[str, ...]:
        """Return where some rows are: ``run/step``, at most a few."""
        some = rows.head(most)
        return tuple(
            f"{self.runs[run].run_id}/{step}"
            for run, step in zip(some["run"], some.get("step", some.index), strict=True)
        )
