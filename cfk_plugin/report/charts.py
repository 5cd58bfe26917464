"""The report's charts as inline SVG, drawn here: few kinds, no script, no size in pixels that a phone would shrink.

Horizontal places are shares of the width, and text keeps the size that the style sheet gives it. So a chart is as
readable at 320 pixels as on paper, without a second version of it.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cfk_plugin.report.document import Bars, Chart, Curves, Intervals

_DIGITS = 3  # significant ones


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear axis from `low` to `high`, which is larger."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], *, low: float | None = None, high: float | None = None) -> Scale:
        """Return the axis that shows all finite values; an end that is given moves where a value lies beyond it."""
        shown = [value for value in (*values, low, high) if value is not None and math.isfinite(value)]
        bottom, top = min(shown, default=0.0), max(shown, default=1.0)
        return cls(bottom, top if top > bottom else bottom + 1.0)

    def rounded(self) -> Scale:
        """Return the axis with its high end at a tick."""
        step = _round_step((self.high - self.low) / 4)
        return Scale(self.low, self.low + step * math.ceil((self.high - self.low) / step - 1e-9))

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[float]:
        """Return three to six round numbers on the axis."""
        step = _round_step((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic axis from `low` to `high`, which is larger; both above 0."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> LogScale:
        """Return the axis that shows all finite values above 0."""
        shown = [value for value in values if value > 0 and math.isfinite(value)]
        bottom, top = min(shown, default=0.1), max(shown, default=1.0)
        return cls(bottom if top > bottom else top / 10, top)

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if value <= self.low:
            return 0.0
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Return the powers of ten on the axis; its two ends where there are fewer than two."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        powers = [float(f"1e{power}") for power in range(first, last + 1)]
        return powers if len(powers) > 1 else [self.low, self.high]


Axis = Scale | LogScale


def written(value: float) -> str:
    """Write a number with three significant digits; what is short of 1 is not written as 1."""
    if not math.isfinite(value):
        return "not measured"
    decimals = 0 if value == 0 else min(9, max(0, _DIGITS - 1 - math.floor(math.log10(abs(value)))))
    text = f"{abs(value):,.{decimals}f}"
    if abs(value) < 1 <= float(text.replace(",", "")):
        text = "0." + "9" * decimals
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"−{text}" if value < 0 else text


def named(line: tuple[str, float]) -> str:
    """Write what a line in a chart is, with its place unless the name says it."""
    name, value = line
    return name if written(value) in name else f"{name}: {written(value)}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


LINE = 18.0
"""Height of a line of text in CSS pixels; the style sheet sets the text of charts at 14."""

_PARTS = re.compile(r"[^\s_./,;:-]*[\s_./,;:-]+|[^\s_./,;:-]+")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and what its axes are: texts that stand above and below it, where they can be set on lines.

    Attributes
    ----------
    parts : tuple of Markup
    height : float
        What they take, in CSS pixels.
    above, below : str
    """

    parts: tuple[Markup, ...]
    height: float
    above: str
    below: str


def wrapped(words: str, room: int) -> list[str]:
    """Return words on lines of so many characters, broken at blanks and after signs where they can be."""
    lines = [""]
    for part in _PARTS.findall(words):
        while len(lines[-1] + part.rstrip()) > room:
            if lines[-1]:
                lines.append("")
            else:
                lines[-1:] = [part[:room], ""]
                part = part[room:]  # noqa: PLW2901 - what is left of it
        lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()]


def element(tag: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """Return an element; ``class_`` stands for ``class``, and ``_`` for ``-`` in names of attributes."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), number(value))
        for name, value in attributes.items()
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, written, inside)


def number(value: str | float) -> str:
    """Write a coordinate with two decimals at most; text stays as it is."""
    if isinstance(value, str):
        return value
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def percent(share: float) -> str:
    """Write a share of the width."""
    return f"{number(100 * share)}%"


def text(words: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """Return a line of text at a share of the width, its base line at `y`."""
    return element("text", words, x=percent(x), y=y, text_anchor=anchor, class_=class_)


def rule(x: float, top: float, bottom: float, *, class_: str) -> Markup:
    """Return a vertical line at a share of the width."""
    return element("line", x1=percent(x), x2=percent(x), y1=top, y2=bottom, class_=class_)


def anchor_at(x: float) -> str:
    """Return how text at a share of the width is anchored to stay inside."""
    return "start" if x < 1 / 3 else "end" if x > 2 / 3 else "middle"


_PLACES = 12
_CLOSE = 4.0  # pixels between a name and its own line


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; heights grow downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def apart(self, other: Box) -> float:
        """Return the gap between two boxes; negative where they overlap."""
        return max(other.left - self.right, self.left - other.right, other.top - self.bottom, self.top - other.bottom)


def place_name(
    size: tuple[float, float],
    heights: Sequence[Callable[[float], float]],
    mine: int,
    taken: Sequence[Box],
    *,
    within: Box,
) -> Box:
    """Return the box, above or below its own line, that is farthest from the other lines and from boxes taken.

    Parameters
    ----------
    size : (float, float)
        Width and height of the name.
    heights : sequence of callable
        The height of each line at a place across.
    mine : int
        The line that is named.
    taken : sequence of Box
    within : Box
    """
    width, height = size
    room = max(0.0, within.right - within.left - width)
    best: tuple[float, Box] | None = None
    for step in range(_PLACES + 1):
        left = within.left + room * step / _PLACES
        across = [left + width * part / 4 for part in range(5)]
        own = [heights[mine](x) for x in across]
        for top in (min(own) - _CLOSE - height, max(own) + _CLOSE):
            box = Box(left, top, left + width, top + height)
            clear = _clearance(box, across, heights, mine, taken)
            # A name that leaves the plot or lies far from the middle of its own line may be read as another's.
            beyond = max(0.0, within.top - box.top, box.bottom - within.bottom)
            off = min(abs(box.top - own[2]), abs(box.bottom - own[2])) - _CLOSE
            worth = min(clear, 3 * height) - 4 * beyond - off
            if best is None or worth > best[0] + 1e-9:
                best = (worth, box)
    assert best is not None  # noqa: S101 - there are places
    return best[1]


def _clearance(
    box: Box, across: Sequence[float], heights: Sequence[Callable[[float], float]], mine: int, taken: Sequence[Box]
) -> float:
    others = [height(x) for number, height in enumerate(heights) if number != mine for x in across]
    lines = [max(box.top - y, y - box.bottom) for y in others]
    return min([*lines, *(box.apart(other) for other in taken)], default=float("inf"))


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


_HEIGHT = 240.0
_RIGHT = 0.98
_NARROW = 288.0  # width of the picture on a screen of 320 pixels, for which places of names are chosen
_CHARACTER = 8.0
_UNITS = 1000  # of the inner picture that is stretched to the width
_FEW = 24  # points that are drawn one by one
_STYLES = 4
_SAMPLE = 36.0  # of a line, in the legend


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the plot lies: from `left` as a share of the width, from `top` in pixels."""

    x: Axis
    y: Axis
    left: float
    top: float

    def across(self, value: float) -> float:
        return self.left + (_RIGHT - self.left) * self.x.at(value)

    def down(self, value: float) -> float:
        return self.top + _HEIGHT * (1 - self.y.at(value))


def draw_curves(curves: Curves) -> Drawing:
    """Draw lines with their names beside them or above the plot, and asked values as straight lines."""
    points = [point for _, of_line in (*curves.series, *curves.guides) for point in of_line]
    x, y = _axes(curves, points)
    left = (max(len(written(tick)) for tick in y.ticks()) * _CHARACTER + 10) / _NARROW
    frame = _Frame(x, y, left, LINE * (len(curves.verticals) + len(curves.legend)) + 18)
    parts = [*_grid(frame), *_verticals(curves, frame), *_horizontals(curves, frame), _lines(curves, frame)]
    for style, (_, of_series) in enumerate(curves.series):
        if len(of_series) <= _FEW and not curves.steps:
            parts += [_point(frame.across(at), frame.down(value), style) for at, value in of_series]
    parts += _legend(curves) if curves.legend else _names(curves, frame)
    return Drawing(tuple(parts), frame.top + _HEIGHT + LINE + 6, curves.y, curves.x)


def _axes(curves: Curves, points: Sequence[tuple[float, float]]) -> tuple[Axis, Axis]:
    across = [point[0] for point in points] + [at for _, at in curves.verticals]
    up = [point[1] for point in points] + [at for _, at in curves.horizontals]
    if curves.logarithmic:
        return LogScale.over(across), LogScale.over(up)
    return Scale.over(across), Scale.over(up, low=0.0).rounded()


def _grid(frame: _Frame) -> list[Markup]:
    parts = []
    for tick in frame.y.ticks():
        y = frame.down(tick)
        parts.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(text(written(tick), 0, y - 4, class_="tick"))
    for tick in frame.x.ticks():
        x, bottom = frame.across(tick), frame.top + _HEIGHT
        parts.append(rule(x, bottom, bottom + 5, class_="grid"))
        parts.append(text(written(tick), x, bottom + LINE, anchor="end" if x > 0.95 else "middle", class_="tick"))
    return parts


def _verticals(curves: Curves, frame: _Frame) -> list[Markup]:
    parts = []
    for row, line in enumerate(curves.verticals):
        x, y = frame.across(line[1]), LINE * (row + 0.75)
        parts.append(rule(x, y + 4, frame.top + _HEIGHT, class_="asked"))
        parts.append(text(named(line), x, y, anchor=anchor_at(x), class_="name"))
    return parts


def _horizontals(curves: Curves, frame: _Frame) -> list[Markup]:
    parts = []
    for line in curves.horizontals:
        y = frame.down(line[1])
        parts.append(element("line", x1=percent(frame.left), x2="100%", y1=y, y2=y, class_="asked"))
    return parts


def _lines(curves: Curves, frame: _Frame) -> Markup:
    """Draw all lines in a picture that is stretched to the width, as shares cannot be written in a list of points."""
    lines = [(_guide(style), points) for style, (_, points) in enumerate(curves.guides)]
    lines += [
        (_curve(style), _corners(points) if curves.steps else points) for style, (_, points) in enumerate(curves.series)
    ]
    drawn = [_polyline(_written(points, curves, frame), class_) for class_, points in lines]
    return element(
        "svg",
        *drawn,
        x=percent(frame.left),
        y=frame.top,
        width=percent(_RIGHT - frame.left),
        height=_HEIGHT,
        viewBox=f"0 0 {_UNITS} {_UNITS}",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _written(points: Sequence[tuple[float, float]], curves: Curves, frame: _Frame) -> str:
    shown = [(x, y) for x, y in points if not curves.logarithmic or (x > 0 and y > 0)]
    return " ".join(f"{number(_UNITS * frame.x.at(x))},{number(_UNITS * (1 - frame.y.at(y)))}" for x, y in shown)


def _polyline(points: str, class_: str) -> Markup:
    return element("polyline", points=points, class_=class_, vector_effect="non-scaling-stroke")


def _curve(style: int) -> str:
    return f"curve style{style % _STYLES}"


def _guide(style: int) -> str:
    return f"bound style{style % _STYLES}"


def _legend(curves: Curves) -> list[Markup]:
    """Write the names of all lines above the plot, each behind a piece of its line."""
    classes = [_curve(style) for style in range(len(curves.series))]
    classes += [_guide(style) for style in range(len(curves.guides))]
    parts = []
    for row, (class_, words) in enumerate(zip(classes, curves.legend, strict=True)):
        y = LINE * (row + len(curves.verticals) + 0.75)
        parts.append(element("line", x1=0.0, x2=_SAMPLE, y1=y - 5, y2=y - 5, class_=class_))
        parts.append(element("text", words, x=_SAMPLE + 8, y=y, class_="label"))
    return parts


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a line that keeps its value until the next point."""
    corners = list(points[:1])
    for (_, before), (x, y) in itertools.pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


_SHAPES = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5l5,9h-10z", "M0,-5l5,5l-5,5l-5,-5z")


def _point(x: float, y: float, style: int) -> Markup:
    shape = element("path", d=_SHAPES[style % _STYLES], class_=f"point style{style % _STYLES}")
    return element("svg", shape, x=percent(x), y=y, width=1.0, height=1.0, overflow="visible")


def _names(curves: Curves, frame: _Frame) -> list[Markup]:
    """Write each name where it is farthest from the other lines; one line alone is what the chart is about."""
    width = (_RIGHT - frame.left) * _NARROW
    heights: dict[str, Callable[[float], float]] = {
        name: _height_of(points, frame, steps=curves.steps, width=width) for name, points in curves.series if points
    }
    shown = list(heights) if len(heights) > 1 else []
    for line in curves.horizontals:
        shown.append(named(line))
        heights[named(line)] = _level(frame.down(line[1]))
    lines = list(heights.values())
    taken: list[Box] = []
    parts = []
    for name in shown:
        size = (min(len(name), ROOM) * _CHARACTER, LINE)
        within = Box(0, frame.top, width, frame.top + _HEIGHT)
        box = place_name(size, lines, list(heights).index(name), taken, within=within)
        taken.append(box)
        x = frame.left + (box.left + box.right) / 2 / _NARROW
        parts.append(text(name, x, box.bottom - 6, anchor="middle", class_="name"))
    return parts


def _level(height: float) -> Callable[[float], float]:
    return lambda _: height


def _height_of(
    points: Sequence[tuple[float, float]], frame: _Frame, *, steps: bool, width: float
) -> Callable[[float], float]:
    """Return the height of a line in pixels at a place in pixels."""
    places = [frame.x.at(x) * width for x, _ in points]
    heights = [frame.down(y) for _, y in points]

    def at(place: float) -> float:
        after = bisect_right(places, place)
        if after in {0, len(places)} or steps:
            return heights[max(0, after - 1)]
        share = (place - places[after - 1]) / (places[after] - places[after - 1])
        return heights[after - 1] + share * (heights[after] - heights[after - 1])

    return at


_PAGE = 1050.0  # CSS pixels of a chart that fit on a page of A4 or Letter, as the style sheet prints it


def draw(chart: Chart) -> Markup:
    """Return the picture of a chart as one ``<svg>`` with its title and description, between the names of its axes.

    The numbers of a chart stand in its table, too; a picture shortens names that have no room, the table does not.
    """
    match chart.picture:
        case Bars():
            drawing = draw_bars(chart.picture)
        case Curves():
            drawing = draw_curves(chart.picture)
        case _:
            drawing = draw_intervals(chart.picture)
    title, description = f"{chart.id}-title", f"{chart.id}-desc"
    svg = element(
        "svg",
        element("title", chart.title, id=title),
        element("desc", chart.description, id=description),
        *drawing.parts,
        class_="chart tall" if drawing.height > _PAGE else "chart",
        role="img",
        aria_labelledby=f"{title} {description}",
        width="100%",
        height=drawing.height,
    )
    above, below = (element("p", words, class_="axis") if words else "" for words in (drawing.above, drawing.below))
    return Markup("").join([above, svg, below])
