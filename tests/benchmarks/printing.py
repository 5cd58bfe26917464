"""Options of benchmarks, and what they print; without heavy imports, as some measure the memory of
their processes.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DATA = Path("../shared/data")


def arguments(
    about: str | None, argv: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Read options; each has the type of its default, and lists are separated by spaces or
    commas.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, (list, tuple)):
            parser.add_argument(flag, nargs="+", default=list(map(str, default)))
        else:
            parser.add_argument(
                flag, default=default, type=str if default is None else type(default)
            )
    given = parser.parse_args(argv)
    for name, default in defaults.items():
        if isinstance(default, (list, tuple)):
            kind = type(default[0]) if default else str
            setattr(
                given, name, [kind(one) for one in ",".join(getattr(given, name)).split(",") if one]
            )
    return given


def heading(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def peak() -> float:
    """Return the largest resident size of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
