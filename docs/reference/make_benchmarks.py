"""Write the tables of docs/reference/benchmarks.md from the files that the benchmarks wrote.

python docs/reference/make_benchmarks.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = Path(__file__).parents[2] / "tests" / "benchmarks"
ATTACK_COLUMNS = [
    "attack",
    "table",
    "measure",
    "value",
    "low",
    "high",
    "guessing",
    "control",
    "n",
    "limit",
]


def quality() -> str:
    """Return the figures of the quality table, one column per data set, means over the splits."""
    figures = pd.read_csv(RESULTS / "quality-core.csv").drop(columns="split")
    means = figures.groupby("table").mean().T
    return _markdown(means.reset_index(names="figure"))


def attacks() -> str:
    """Return the attack table."""
    return _markdown(pd.read_csv(RESULTS / "attacks.csv")[ATTACK_COLUMNS])


def _markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown; numbers have three significant digits."""
    lines = [" | ".join(table), " | ".join("---" for _ in table)]
    for row in table.itertuples(index=False):
        lines.append(" | ".join(_cell(value) for value in row))
    return "\n".join(f"| {line} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return ""
    if value == float("inf"):
        return "∞"
    return f"{float(f'{value:.3g}'):,g}"


def rendered(page: str) -> str:
    """Return the page with its tables written again."""
    for name, table in (("quality", quality()), ("attacks", attacks())):
        block = f"<!-- {name} -->\n\n{table}\n\n<!-- end -->"
        page = re.sub(f"<!-- {name} -->.*?<!-- end -->", lambda _, new=block: new, page, flags=re.S)
    return page


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rendered(text), encoding="utf-8")
    sys.exit(0)
