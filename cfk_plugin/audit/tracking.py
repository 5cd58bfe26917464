"""The figures of attacks as MLflow holds them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from cfk_plugin.audit.result import AuditResult
from cfk_plugin.records.run import Value

_NOT_ALLOWED = re.compile(r"[^\w\-. :/]", re.ASCII)  # MLflow's rule for names of metrics


def metrics(results: tuple[AuditResult, ...]) -> Iterator[Value]:
    """Yield name and value of every figure that is a number; columns are named as MLflow allows."""
    for result in results:
        attack = f"audit/{_NOT_ALLOWED.sub('_', result.attack)}"
        for name in ("main", "baseline", "control"):
            found = getattr(result, name)
            for end in ("value", "low", "high") if found is not None else ():
                value = float(getattr(found, end))
                if math.isfinite(value):
                    yield Value(f"{attack}/{name if end == 'value' else f'{name}_{end}'}", value)
        for name, value in result.figures.items():
            if math.isfinite(value):
                yield Value(f"{attack}/{_NOT_ALLOWED.sub('_', name)}", float(value))
