"""What may be set of differentially private prototypes, checked before anything is looked at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cfk_plugin.dp.statement import policy_of
from cfk_plugin.errors import PolicyError

if TYPE_CHECKING:
    from cfk_plugin.dp.prototypes import DPPrototypes


def check_settings(asked: DPPrototypes) -> None:
    """Refuse settings that are out of range, or that contradict each other.

    Raises
    ------
    PolicyError
    """
    policy_of(asked)  # refuses what a guarantee depends on
    for name in ("rows", "prototypes"):
        value = getattr(asked, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PolicyError(f"{name} must be a whole number >= 1, got {value!r}")
    if asked.serve not in ("rows", "prototypes"):
        raise PolicyError(f'serve must be "rows" or "prototypes", got {asked.serve!r}')
    weight = asked.plausibility
    if not isinstance(weight, (int, float)) or isinstance(weight, bool) or not 0 <= weight < math.inf:
        raise PolicyError(f"plausibility must be a finite number >= 0, got {weight!r}")
    if asked.seed is not None and not isinstance(asked.seed, int):
        raise PolicyError(f"seed must be a whole number or None, got {type(asked.seed).__name__}")
