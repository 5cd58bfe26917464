"""The page on the experiments: how its numbers are written. The template has the text.

``python -m reproduction.page`` writes page, tables and figures again from the results in this
folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reproduction import published
from reproduction.export import printed_distance, write_tables
from reproduction.figures import draw_figures
from reproduction.measure import LABELS
from reproduction.results import OURS, Results

HERE = Path(__file__).resolve().parent

PAGE = "page.md.j2"
"""The template of the page for any results."""

PAGE_WITH_FINDINGS = "findings.md.j2"
"""The same with comments on the results that are kept here, which were written by hand."""

NONE = "–"


def main() -> None:
    """Write page, tables and figures from the results in this folder."""
    results = Results.from_json((HERE / "results.json").read_text(encoding="utf-8"))
    draw_figures(results, HERE / "figures")
    write_tables(results, HERE / "tables")
    (HERE / "index.md").write_text(render(results, PAGE_WITH_FINDINGS), encoding="utf-8")


def render(results: Results, template: str = PAGE) -> str:
    """Return the page as Markdown."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - the page is Markdown
    )
    environment.filters |= {"percent": percent, "number": number}
    text = environment.get_template(template).render(
        time_span=time_span,
        printed_distance=printed_distance,
        results=results,
        published=published,
        labels=LABELS,
        ours=OURS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def percent(share: float | None, digits: int = 2) -> str:
    """Write a share in percent without the sign; only exactly 0 and 100 are written as such."""
    if share is None:
        return NONE
    text = f"{100 * share:.{digits}f}"
    step = 10**-digits
    if share > 0 and float(text) == 0:
        return f"<{step:.{digits}f}"
    if share < 1 and float(text) == 100:
        return f">{100 - step:.{digits}f}"
    return text


def number(value: float | None, digits: int = 2) -> str:
    """Write a number with a fixed number of decimals."""
    if value is None:
        return NONE
    return f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Write a time in seconds, or in milliseconds if it is short."""
    if value is None:
        return NONE
    if value >= 1:
        return f"{value:.1f} s"
    milliseconds = 1000 * value
    if milliseconds == 0:
        return "0 ms"
    digits = 0
    if milliseconds < 100:
        # Two digits that count, but no more than three decimals.
        digits = min(max(0, 1 - math.floor(math.log10(milliseconds))), 3)
    return f"{milliseconds:.{digits}f} ms"


def time_span(values: Sequence[float | None]) -> str:
    """Write the shortest and the longest of some times."""
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    return f"{seconds(min(known))} to {seconds(max(known))}"


if __name__ == "__main__":
    main()
