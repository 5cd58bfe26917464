"""The figures of a result, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from cfk_plugin.data.display import card, number, table


class ExplanationSummary(dict[str, Any]):
    """The figures of `Explanations.summary`: a dict that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """Return the main figures in words, and the others by name."""
        rows = [
            (number(self[name]), text, Markup("<small>{}</small>").format(name))
            for name, text in _IN_WORDS.items()
            if self.get(name) is not None
        ]
        n_of_reason = self.get("reasons", {})
        reasons = ", ".join(f"{reason} {n}" for reason, n in n_of_reason.items())
        if reasons:
            rows.append(("", f"withheld for {reasons}", Markup("<small>reasons</small>")))
        shown_names = {*_IN_WORDS, "reasons"}
        other_names = [
            name for name, value in self.items() if name not in shown_names and value is not None
        ]
        note = f"Also: {', '.join(other_names)}." if other_names else ""
        return card("Summary", table((), rows), note=note)


_IN_WORDS: Mapping[str, str] = {
    "asked": "explanations asked for",
    "released": "released",
    "withheld": "withheld",
    "prototypes": "prototypes",
    "k_min": "fewest people behind an explanation",
    "k_worst_min": "fewest people left for any attacker that was counted",
    "prosecutor_risk_max": "highest risk of a look-up",
    "ncp_mean": "cost: information loss, mean",
    "pureness_mean": "truth: pureness, mean",
    "pureness_min": "truth: pureness, lowest",
    "native_rate": "raw counterfactuals that were training rows, share",
    "released_native": "released with too few people, which must be 0",
    "epsilon": "epsilon",
    "delta": "delta",
}
"""Figures that a notebook shows first, and their names in words."""
