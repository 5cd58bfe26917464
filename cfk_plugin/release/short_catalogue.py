"""The figures of a short catalogue, which is published instead of all entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from cfk_plugin.release.results import GeneralizedCounterfactual


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRule:
    """An entry of a short catalogue, and the people whom it helps.

    Attributes
    ----------
    query : int
        Number of the entry.
    reached : float
        Share of the refused people for whom the entry is true and permitted, rounded down.
    distance : float
        Mean distance of these people to it.
    """

    query: int
    reached: float
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortCatalogue:
    """The figures of a short catalogue; they may be published.

    All figures have two decimals: one person less seldom changes them.

    Attributes
    ----------
    entries, of : int
        How many entries it has, and how many the whole catalogue.
    within : float
        The share by which the mean distance was allowed to grow.
    relative_cost : float
        Mean distance of refused people to their nearest entry, relative to the whole catalogue.
    reached : float
        Share of refused people for whom an entry is true and permitted, rounded down; the same
        with the whole catalogue.
    reached_by_rules : float
        The same with the rules alone.
    rules : tuple of CatalogueRule
        At most four entries. Each is the one that helps the most in addition to those before it.
    """

    entries: int
    of: int
    within: float
    relative_cost: float
    reached: float
    reached_by_rules: float
    rules: tuple[CatalogueRule, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**asdict(self), "rules": [asdict(rule) for rule in self.rules]}

    def to_log(self, entries: Sequence[GeneralizedCounterfactual]) -> dict[str, Any]:
        """Return JSON-ready values for a run, each rule with its sentence."""
        rules = [
            {**asdict(rule), "text": entries[rule.query].message().lead} for rule in self.rules
        ]
        return {**asdict(self), "rules": rules}

    def __str__(self) -> str:
        """Return a sentence for the data holder."""
        return (
            f"{self.entries} of {self.of} entries: {self.relative_cost:.2f} times the distance of"
            f" the whole catalogue for refused people, of whom {self.reached:.0%} are reached"
        )


def check_within(within: object) -> None:
    """Raise an `InputError` unless `within` is a number from 0 to 1."""
    is_number = isinstance(within, (int, float)) and not isinstance(within, bool)
    if not is_number or not 0 <= within <= 1:  # type: ignore[operator]
        raise InputError(
            f"within must be a number from 0 to 1, got {within!r}: the share by which the distance"
            " of refused people may grow, such as 0.03 for 3 %"
        )
