"""The model filter: strike out everybody inside a region whom the model would not give the desired outcome."""

from __future__ import annotations

import numpy as np

from cfk_plugin.audit.inversion import survivors
from cfk_plugin.audit.releases import Mask
from cfk_plugin.audit.rerun import is_random
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting

SCENARIO = (
    "Knows the quasi-identifiers of everybody and may ask the model, asks it about everybody inside the region with "
    "the private values received, and strikes out whom it does not give the desired outcome."
)


def model_filter(setting: Setting, *, with_inversion: bool = True) -> AuditResult:
    """Attack a region by asking the model about everybody inside, with the private values that were released.

    Parameters
    ----------
    setting : Setting
    with_inversion : bool
        Whether the filter is also combined with running the algorithm again, where that is deterministic.

    Returns
    -------
    AuditResult
        `main`: chance to name the right person among those who are left. `baseline`: naming anybody in the region,
        1 / k. `control`: the same among people of the holdout; a hit is a person who carries the released values by
        coincidence. Figures: ``k_consistent_...`` over releases, ``struck_out`` (mean share of the people inside who
        are), and combined with inversion ``k_both_...`` and ``both_success``.

    Notes
    -----
    k_consistent(R) = number of people j in R with f(own quasi-identifiers, released private values) = desired.
    Higher is better. In the published toy example k = 3 and k_consistent = 1. Where only a bin of a private value was
    released, the counterfactual's own value is used: the attacker is given a right guess.

    References
    ----------
    Goethals, Sörensen, Martens (2023), section 5.4 (pureness): cells without the desired outcome are nobody's.
    """
    releases, left = setting.releases, setting.consistent
    chance, counts = releases.found(left), releases.people(left)
    figures = {
        **crowd_figures(counts, setting.k, "k_consistent"),
        "struck_out": float((1 - counts / releases.sizes).mean()) if len(releases) else float("nan"),
        **(_combined(setting, left) if with_inversion and not is_random(setting) else {}),
    }
    control = None
    if setting.outsiders is not None:
        places = releases.places(setting.outsiders)
        outside = places.spread(setting.desired(places, releases))
        control = rate(releases.coincidence(setting.outsiders, places, outside), setting.seed)
    return AuditResult(
        "model_filter",
        SCENARIO,
        rate(chance, setting.seed),
        rate(releases.found(releases.everybody()), setting.seed),
        control,
        figures,
        setting.seed,
        len(releases),
    )


def _combined(setting: Setting, left: list[Mask]) -> dict[str, float]:
    """Strike out by both: the algorithm's map with the released private values, and the model."""
    both = [a & b for a, b in zip(left, survivors(setting, "released"), strict=True)]
    chance = setting.releases.found(both)
    return {
        **crowd_figures(setting.releases.people(both), setting.k, "k_both"),
        "both_success": float(np.mean(chance)) if len(chance) else float("nan"),
    }
