"""What audits of some size can tell from chance, and what they cannot: said before they start."""

from __future__ import annotations

import math

from cfk_plugin.audit.membership import ALARMS, detectable_auc
from cfk_plugin.audit.planning.audits import AuditTask


def half_width(n: int) -> float:
    """Return half the width of a 95 % interval of a rate near one half, over n cases: 0.98 / sqrt(n), at most 1."""
    return min(1.96 * 0.5 / math.sqrt(n), 1.0) if n else 1.0


def unseen_rate(n: int) -> float:
    """Return the largest rate of success that n cases without any would leave open at 95 %: 1 - 0.05^(1/n)."""
    return 1 - 0.05 ** (1 / n) if n else 1.0


def can_detect(name: str, task: AuditTask) -> str:
    """Say of one audit what its size shows at best.

    Parameters
    ----------
    name : str
        Of `AUDITS`.
    task : AuditTask

    Returns
    -------
    str
        One sentence.
    """
    match name:
        case "membership":
            people = task.attacked
            missing = [f"{alarm:g}" for alarm in ALARMS if people < 1 / alarm]
            blind = f"; nothing at a false positive rate of {' or '.join(missing)}" if missing else ""
            area = detectable_auc(people, people)
            return f"sees an AUC of {area:.2f} or more ({people} members, {people} others){blind}"
        case "extraction":
            held_out = len(task.crowd) // 8
            return f"sees a gain of {100 * half_width(held_out):.1f} points or more ({held_out} people held out)"
        case "attribute_inference":
            n = task.explained
            return f"sees an advantage of {100 * half_width(n):.0f} points or more ({n} explanations)"
        case "linkage":
            n = task.explained
            return f"no success in {n} explanations leaves up to {100 * unseen_rate(n):.1f} % open"
        case _:
            people = 2 * min(task.sizes.attacked, len(task.crowd) // 8)
            return f"sees {100 * half_width(people):.0f} points above guessing or more ({people} people)"
