"""Charts of rows: a name and a number in text, and below them a strip that shows the number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from cfk_plugin.report.rendering.charts.scale import Scale, named, written
from cfk_plugin.report.rendering.charts.svg import LINE, Drawing, anchor_at, element, percent, rule, text, wrapped
from cfk_plugin.report.rendering.document import Bars, Intervals

ROOM = 34
"""Characters that fit on a line at 320 pixels."""
_SHORTEST_LABEL = 14
_MOST_LINES = 3
_TONES = 4
_BAR, _STRIP, _GAP = 8.0, 16.0, 10.0
_INSET = 0.02  # so that a dot at the end of an axis is whole


def draw_bars(bars: Bars) -> Drawing:
    """Draw horizontal bars; where there are several series, each bar names its own."""
    values = [value for _, of_series in bars.series for value in of_series if value is not None]
    scale = Scale.over(values, low=0.0, high=bars.top)
    parts: list[Markup] = []
    y = 0.0
    several = len(bars.series) > 1
    for place, category in enumerate(bars.categories):
        if several:
            heading, y = _heading(category, "", y, class_="label strong")
            parts += heading
        for tone, ((name, of_series), texts) in enumerate(zip(bars.series, bars.texts, strict=True)):
            heading, y = _heading(name if several else category, texts[place], y)
            parts += [*heading, element("rect", x="0", y=y, width="100%", height=_BAR, class_="track")]
            value = of_series[place]
            if value is not None and math.isfinite(value):
                parts.append(_bar(scale.at(value), y, tone))
            y += _BAR + (_GAP / 2 if several else _GAP)
        y += _GAP if several else 0.0
    return Drawing((*parts, *_ends(scale, y)), y + LINE, "", bars.axis)


def draw_intervals(intervals: Intervals) -> Drawing:
    """Draw a dot and an interval per row, and what is asked as a line through all rows."""
    ends = [number for _, *numbers in intervals.rows for number in numbers] + [at for _, at in intervals.lines]
    scale = Scale.over(ends, low=intervals.low, high=intervals.high)
    texts = intervals.texts or [
        f"{written(at)} ({written(low)}–{written(high)})" for _, at, low, high in intervals.rows
    ]
    top, y = _line_names(intervals.lines, scale)
    rows: list[Markup] = []
    strips: list[Markup] = []
    for (label, at, low, high), shown in zip(intervals.rows, texts, strict=True):
        heading, y = _heading(label, shown, y)
        rows += heading
        strips += _interval(scale, (at, low, high), y)
        strips += [rule(_inset(scale, line), y - 1, y + _STRIP + 1, class_="mark") for _, line in intervals.lines]
        y += _STRIP + _GAP
    through = [
        rule(_inset(scale, at), LINE * (row + 1), y, class_="guide") for row, (_, at) in enumerate(intervals.lines)
    ]
    parts = (*through, *top, *rows, *strips, *_ends(scale, y))
    return Drawing(parts, y + LINE, "", intervals.axis)


def _heading(label: str, shown: str, y: float, *, class_: str = "label") -> tuple[list[Markup], float]:
    """Write a row's name to the left and its number to the right; below the name where both have no room."""
    beside = ROOM - len(shown) - 2
    apart = bool(shown) and beside < min(_SHORTEST_LABEL, len(label))
    lines = wrapped(label, ROOM if apart or not shown else beside) or [""]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][:-1] + "…"]
    parts = [text(line, 0, y + LINE * (place + 0.75), class_=class_) for place, line in enumerate(lines)]
    rows = len(lines) + apart
    if shown:
        parts.append(text(shown, 1, y + LINE * (rows - 0.25), anchor="end", class_="value"))
    return parts, y + LINE * rows + 2


def _bar(share: float, y: float, tone: int) -> Markup:
    return element("rect", x="0", y=y, width=percent(share), height=_BAR, class_=f"bar tone{tone % _TONES}")


def _interval(scale: Scale, numbers: tuple[float, float, float], y: float) -> list[Markup]:
    middle = y + _STRIP / 2
    parts = [element("line", x1="0", x2="100%", y1=middle, y2=middle, class_="base")]
    if not all(math.isfinite(number) for number in numbers):
        return parts
    at, low, high = (_inset(scale, number) for number in numbers)
    parts.append(element("line", x1=percent(low), x2=percent(high), y1=middle, y2=middle, class_="span"))
    parts += [rule(end, middle - 5, middle + 5, class_="cap") for end in (low, high)]
    return [*parts, element("circle", cx=percent(at), cy=middle, r=5.0, class_="dot")]


def _line_names(lines: Sequence[tuple[str, float]], scale: Scale) -> tuple[list[Markup], float]:
    """Name each line on a row of its own, so that names of lines that lie close do not collide."""
    places = [_inset(scale, at) for _, at in lines]
    names = [
        text(named(line), x, LINE * (row + 0.75), anchor=anchor_at(x), class_="name")
        for row, (line, x) in enumerate(zip(lines, places, strict=True))
    ]
    return names, LINE * len(lines) + (6 if lines else 0)


def _inset(scale: Scale, value: float) -> float:
    return _INSET + (1 - 2 * _INSET) * scale.at(value)


def _ends(scale: Scale, y: float) -> tuple[Markup, Markup]:
    """Write the ends of the axis."""
    return (
        text(written(scale.low), 0, y + LINE * 0.7, class_="tick"),
        text(written(scale.high), 1, y + LINE * 0.7, anchor="end", class_="tick"),
    )
