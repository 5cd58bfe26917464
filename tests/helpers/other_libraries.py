"""The functions that the documentation gives for libraries without an adapter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "wrap-an-explainer.md"
FILE = PAGE.with_suffix("") / "other_libraries.py"


def functions() -> dict[str, Any]:
    """Return them by name."""
    section = PAGE.read_text(encoding="utf-8").partition("## Other libraries")[2]
    (code, *_) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    found: dict[str, Any] = {"__name__": PAGE.stem}
    exec(code, found)
    exec(FILE.read_text(encoding="utf-8"), found)
    return found
