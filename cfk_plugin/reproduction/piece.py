"""A piece of work: what is measured on one table in one go, and kept when a run is killed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cfk_plugin.reproduction.outcome import Setting

Kind = Literal["certificates", "distances", "candidates"]
"""What the certificates say; distances to training rows as well; choosing between several counterfactuals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One call of one method; becomes one `Measurement`.

    Attributes
    ----------
    table : str
    method : str
    k : int
        0 for what has none.
    options : mapping
        Settings of the method that are not its usual ones.
    asked : int, optional
        How many explanations; all of the setting's without it.
    kind : {"certificates", "distances", "candidates"}
    """

    table: str
    method: str
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)
    asked: int | None = None
    kind: Kind = "certificates"

    def key(self, setting: Setting) -> str:
        """Return a digest of the piece and of what it is measured on."""
        text = json.dumps([setting.key, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
