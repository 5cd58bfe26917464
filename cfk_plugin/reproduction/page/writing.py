"""How numbers and tables of the page are written, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOT_RUN = "not run"
NONE = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table, or that there is none.

    Parameters
    ----------
    head : sequence of str
    rows : iterable of sequence of str
    left : int
        Columns that hold text; the others are aligned to the right.
    """
    body = [list(row) for row in rows]
    if not body:
        return f"_{NOT_RUN.capitalize()}._"
    rule = ["---" if place < left else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in (list(head), rule, *body))


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in percent without the sign. What is not exactly 0 or 100 is not written as if it were."""
    if share is None:
        return NONE
    text, step = f"{100 * share:.{digits}f}", 10**-digits
    if share > 0 and float(text) == 0:
        return f"<{step:.{digits}f}"
    if share < 1 and float(text) == 100:
        return f">{100 - step:.{digits}f}"
    return text


def points(difference: float | None) -> str:
    """Return a difference of shares in percentage points, with its sign."""
    if difference is None:
        return NONE
    return signed(100 * difference)


def signed(number: float) -> str:
    """Return a number with its sign, two decimals, or the first digit that is not 0."""
    if number == 0:
        return "0"
    text = f"{number:+.2f}" if abs(number) >= 0.01 else f"{number:+.1g}"
    return text.replace("-", "−")


def amount(share: float) -> str:
    """Return a size in percentage points, without a sign."""
    return points(abs(share)).lstrip("+")


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of a difference of shares, in percentage points."""
    return "" if low is None or high is None else f" ({points(low)} to {points(high)})"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with thousands set apart; whole ones without decimals where no digits are asked for."""
    return NONE if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Return a time: seconds, or milliseconds where it is short."""
    if value is None:
        return NONE
    if value >= 1:
        return f"{value:.1f} s"
    milliseconds = 1000 * value
    if milliseconds == 0:
        return "0 ms"
    digits = max(0, 1 - math.floor(math.log10(milliseconds))) if milliseconds < 100 else 0
    return f"{milliseconds:.{min(digits, 3)}f} ms"


def times(n: int, of: int) -> str:
    """Return a count out of another."""
    return f"{n} of {of}"


def listed(names: Iterable[str], joint: str = "and") -> str:
    """Return names as a sentence has them."""
    every = list(names)
    return f" {joint} ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
