"""The page on the experiments: how its numbers are written. The template has the text.

``python -m reproduction.page`` writes page, tables and figures anew from the results that are kept
here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reproduction import published
from reproduction.export import printed_distance, write_tables
from reproduction.figures import draw_figures
from reproduction.measure import LABELS
from reproduction.results import OURS, Results, StudyRow, Verdict

HERE = Path(__file__).resolve().parent

PAGE = "page.md.j2"
"""The template of the page for any results."""

PAGE_WITH_FINDINGS = "findings.md.j2"
"""The same with comments on the results that are kept here, which were written by hand."""

NONE = "–"


def main() -> None:
    """Write page, tables and figures from the results that are kept beside this script."""
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
    environment.filters |= {
        "percent": percent,
        "points": points,
        "number": number,
        "seconds": seconds,
    }
    text = environment.get_template(template).render(
        percent=percent,
        points=points,
        number=number,
        with_interval=with_interval,
        find_row=find_row,
        in_words=in_words,
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


def points(difference: float | None) -> str:
    """Write a difference of shares in percentage points: signed, with two decimals, or the first
    digit that is not 0.
    """
    if difference is None:
        return NONE
    if difference == 0:
        return "0"
    if abs(difference) >= 0.0001:
        text = f"{100 * difference:+.2f}"
    else:
        text = f"{100 * difference:+.1g}"
    return text.replace("-", "−")


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


def with_interval(
    write: Callable[[float | None], str],
    value: float | None,
    low: float | None,
    high: float | None,
) -> str:
    """Write a figure and the ends of its interval, where it has one."""
    if low is None or high is None:
        return write(value)
    return f"{write(value)} ({write(low)} to {write(high)})"


def find_row(rows: Sequence[StudyRow], **values: object) -> StudyRow:
    """Return the first row of a study that has some values."""
    for row in rows:
        if all(row[name] == value for name, value in values.items()):
            return row
    raise LookupError(f"no row has {values}")


def time_span(values: Sequence[float | None]) -> str:
    """Write the shortest and the longest of some times."""
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    return f"{seconds(min(known))} to {seconds(max(known))}"


def in_words(verdict: Verdict) -> str:
    """Return a verdict in words, with the amount by which a figure is missed."""
    if not verdict.is_measured:
        return "not measured"
    figures: Mapping[str, tuple[str, float | None]] = {
        "NCP": (verdict.ncp_word, verdict.ncp_by),
        "pureness": (verdict.pureness_word, verdict.pureness_by),
    }
    remarks = []
    for name, (word, difference) in figures.items():
        if word == "missed":
            amount = points(abs(difference or 0)).removeprefix("+")
            remarks.append(f"**{name} missed by {amount} points**")
        elif word != "reached":
            remarks.append(f"{name} {word}")
    if not verdict.is_reached:
        return ", ".join(remarks)
    if len(remarks) == 2:
        return "equal"
    if len(remarks) == 1:
        return f"reached ({remarks[0]})"
    return "reached"


if __name__ == "__main__":
    main()
