"""An amount: a number as the report may show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number as the report may show it.

    Attributes
    ----------
    value : float or int, optional
        None where it was not measured, and where only a band is shown.
    low, high : float, optional
        Ends of its interval.
    n : int, optional
        What it is over, where that may be shown.
    band : str, optional
        What is shown in its place, such as ``1–10``.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    band: str | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or self.band is not None


NOT_MEASURED = Amount()
