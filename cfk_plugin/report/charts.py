"""The report's charts as inline SVG, drawn here: few kinds, no script, no size in pixels that a phone would shrink.

Horizontal places are shares of the width, and text keeps the size that the style sheet gives it. So a chart is as
readable at 320 pixels as on paper, without a second version of it. In dark and in print it takes the page's colours.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cfk_plugin.report.data import Amount
from cfk_plugin.report.disclosure import shown


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars: one or several series over categories. Values that are None have no bar, only their text."""

    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    texts: Sequence[Sequence[str]]  # label of each bar, per series
    axis: str
    top: float | None = None  # end of the axis; the largest value without it


@dataclass(frozen=True, slots=True)
class Intervals:
    """A dot and an interval per row, with vertical lines where something is asked."""

    rows: Sequence[tuple[str, float, float, float]]  # label, value, low, high
    texts: Sequence[str]  # label of each interval
    axis: str
    lines: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines through points; where there are several, their names stand above the plot."""

    series: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    x: str
    y: str
    steps: bool = False
    verticals: Sequence[tuple[str, float]] = ()
    horizontals: Sequence[tuple[str, float]] = ()
    guides: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()  # lines to compare with
    logarithmic: bool = False  # both axes; what is not above 0 is not drawn
    legend: Sequence[str] = ()  # names of the series and the guides, in this order, where they differ from theirs


ROOM = 34
"""Characters that fit on a line at 320 pixels."""
_LINE = 18.0  # height of a line of text in CSS pixels; the style sheet sets the text of charts at 14
_PAGE = 1050.0  # CSS pixels of a chart that fit on a page of A4 or Letter, as the style sheet prints it


def draw(picture: Bars | Intervals | Curves, *, name: str, title: str, description: str) -> Markup:
    """Return a picture as one ``<svg>`` with its title and description, between the names of its axes.

    The numbers of a chart stand in its table, too; a picture shortens names that have no room, the table does not.
    """
    above, below = (picture.y, picture.x) if isinstance(picture, Curves) else ("", picture.axis)
    match picture:
        case Bars():
            parts, height = _bars(picture)
        case Curves():
            parts, height = _curves(picture)
        case Intervals():
            parts, height = _intervals(picture)
    svg = _element(
        "svg",
        _element("title", title, id=f"{name}-title"),
        _element("desc", description, id=f"{name}-desc"),
        *parts,
        class_="chart tall" if height > _PAGE else "chart",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=height,
    )
    over, under = (_element("p", words, class_="axis") if words else "" for words in (above, below))
    return Markup("").join([over, svg, under])


# Elements: everything escaped, numbers always written alike.


def _element(tag: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """Return an element; ``class_`` stands for ``class``, and ``_`` for ``-`` in names of attributes."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _coordinate(value))
        for name, value in attributes.items()
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, written, inside)


def _coordinate(value: str | float) -> str:
    """Write a coordinate with two decimals at most; text stays as it is."""
    if isinstance(value, str):
        return value
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _percent(share: float) -> str:
    return f"{_coordinate(100 * share)}%"


def _text(words: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """Return a line of text at a share of the width, its base line at `y`."""
    return _element("text", words, x=_percent(x), y=y, text_anchor=anchor, class_=class_)


def _rule(x: float, top: float, bottom: float, class_: str) -> Markup:
    """Return a vertical line at a share of the width."""
    return _element("line", x1=_percent(x), x2=_percent(x), y1=top, y2=bottom, class_=class_)


def _level(y: float, class_: str, left: float = 0.0, right: float = 1.0) -> Markup:
    """Return a horizontal line between two shares of the width."""
    return _element("line", x1=_percent(left) if left else "0", x2=_percent(right), y1=y, y2=y, class_=class_)


def _names(lines: Sequence[tuple[str, float]], places: Sequence[float]) -> list[Markup]:
    """Name each vertical line on a row of its own, so that names of lines that lie close do not collide."""
    return [
        _text(_named(line), x, _LINE * (row + 0.75), anchor=_anchor(x), class_="name")
        for row, (line, x) in enumerate(zip(lines, places, strict=True))
    ]


def _anchor(x: float) -> str:
    """Return how text at a share of the width is anchored to stay inside."""
    return "start" if x < 1 / 3 else "end" if x > 2 / 3 else "middle"


def _named(line: tuple[str, float]) -> str:
    """Write what a line in a chart is, with its place unless the name says it."""
    name, value = line
    return name if _number(value) in name else f"{name}: {_number(value)}"


def _number(value: float) -> str:
    return shown(Amount(value=value), "count")


# Axes: from values to places.


@dataclass(frozen=True, slots=True)
class Ruler:
    """An axis from `low` to `high`, which is larger; on a logarithmic one both are above 0."""

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, logarithmic: bool = False) -> Ruler:
        """Return the axis that shows all finite values that have a place on it."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        low, high = min(known, default=0.1 if logarithmic else 0.0), max(known, default=1.0)
        if logarithmic:
            return cls(low if high > low else high / 10, high, logarithmic=True)
        return cls(low, high if high > low else low + 1.0)

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if self.logarithmic:
            return min(1.0, math.log(max(value, self.low) / self.low) / math.log(self.high / self.low))
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[float]:
        """Return three to six round numbers on the axis, or powers of ten; its two ends where these are too few."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [float(f"1e{power}") for power in range(first, last + 1)]
            return powers if len(powers) > 1 else [self.low, self.high]
        step = self._step()
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]

    def rounded(self) -> Ruler:
        """Return the axis with its high end at a tick."""
        step = self._step()
        return Ruler(self.low, self.low + step * math.ceil((self.high - self.low) / step - 1e-9))

    def _step(self) -> float:
        rough = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


# Charts of rows: a name and a number in text, and below them a strip that shows the number.


_SHORTEST_LABEL = 14
_MOST_LINES = 3
_TONES = 4
_BAR, _STRIP, _GAP = 8.0, 16.0, 10.0
_INSET = 0.02  # so that a dot at the end of an axis is whole
_PARTS = re.compile(r"[^\s_./,;:-]*[\s_./,;:-]+|[^\s_./,;:-]+")


def _bars(bars: Bars) -> tuple[list[Markup], float]:
    """Draw horizontal bars; where there are several series, each bar names its own."""
    values = [value for _, of_series in bars.series for value in of_series if value is not None]
    axis = Ruler.over([*values, 0.0, *([] if bars.top is None else [bars.top])])
    parts: list[Markup] = []
    y = 0.0
    several = len(bars.series) > 1
    for place, category in enumerate(bars.categories):
        if several:
            heading, y = _heading(category, "", y, "label strong")
            parts += heading
        for tone, ((name, of_series), texts) in enumerate(zip(bars.series, bars.texts, strict=True)):
            heading, y = _heading(name if several else category, texts[place], y)
            parts += [*heading, _element("rect", x="0", y=y, width="100%", height=_BAR, class_="track")]
            value = of_series[place]
            if value is not None and math.isfinite(value):
                width, class_ = _percent(axis.at(value)), f"bar tone{tone % _TONES}"
                parts.append(_element("rect", x="0", y=y, width=width, height=_BAR, class_=class_))
            y += _BAR + (_GAP / 2 if several else _GAP)
        y += _GAP if several else 0.0
    return [*parts, *_ends(axis, y)], y + _LINE


def _intervals(intervals: Intervals) -> tuple[list[Markup], float]:
    """Draw a dot and an interval per row, and what is asked as a line through all rows."""
    axis = Ruler.over([end for _, *ends in intervals.rows for end in ends] + [at for _, at in intervals.lines])
    marks = [_inset(axis, at) for _, at in intervals.lines]
    y = _LINE * len(marks) + (6 if marks else 0)
    rows: list[Markup] = []
    strips: list[Markup] = []
    for (label, *numbers), text in zip(intervals.rows, intervals.texts, strict=True):
        heading, y = _heading(label, text, y)
        rows += heading
        strips += _interval(axis, numbers, y + _STRIP / 2)
        strips += [_rule(x, y - 1, y + _STRIP + 1, "mark") for x in marks]
        y += _STRIP + _GAP
    through = [_rule(x, _LINE * (row + 1), y, "guide") for row, x in enumerate(marks)]
    return [*through, *_names(intervals.lines, marks), *rows, *strips, *_ends(axis, y)], y + _LINE


def _interval(axis: Ruler, numbers: Sequence[float], y: float) -> list[Markup]:
    base = _level(y, "base")
    if not all(math.isfinite(number) for number in numbers):
        return [base]
    at, low, high = (_inset(axis, number) for number in numbers)
    caps = [_rule(end, y - 5, y + 5, "cap") for end in (low, high)]
    return [base, _level(y, "span", low, high), *caps, _element("circle", cx=_percent(at), cy=y, r=5.0, class_="dot")]


def _inset(axis: Ruler, value: float) -> float:
    return _INSET + (1 - 2 * _INSET) * axis.at(value)


def _heading(label: str, number: str, y: float, class_: str = "label") -> tuple[list[Markup], float]:
    """Write a row's name to the left and its number to the right; below the name where both have no room."""
    beside = ROOM - len(number) - 2
    apart = bool(number) and beside < min(_SHORTEST_LABEL, len(label))
    lines = _wrapped(label, ROOM if apart or not number else beside) or [""]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][:-1] + "…"]
    parts = [_text(line, 0, y + _LINE * (place + 0.75), class_=class_) for place, line in enumerate(lines)]
    rows = len(lines) + apart
    if number:
        parts.append(_text(number, 1, y + _LINE * (rows - 0.25), anchor="end", class_="value"))
    return parts, y + _LINE * rows + 2


def _wrapped(words: str, room: int) -> list[str]:
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


def _ends(axis: Ruler, y: float) -> tuple[Markup, Markup]:
    """Write the ends of the axis."""
    y += _LINE * 0.7
    return _text(_number(axis.low), 0, y, class_="tick"), _text(_number(axis.high), 1, y, anchor="end", class_="tick")


# Charts of lines through points, over two axes.


_HEIGHT = 240.0
_RIGHT = 0.98
_NARROW = 288.0  # width of the picture on a screen of 320 pixels, for which the axis leaves room
_CHARACTER = 8.0
_UNITS = 1000  # of the inner picture that is stretched to the width
_FEW = 24  # points that are drawn one by one
_STYLES = 4
_SAMPLE = 36.0  # of a line, in the legend
_SHAPES = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5l5,9h-10z", "M0,-5l5,5l-5,5l-5,-5z")
_Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the plot lies: from `left` as a share of the width, from `top` in pixels."""

    x: Ruler
    y: Ruler
    left: float
    top: float

    def across(self, value: float) -> float:
        return self.left + (_RIGHT - self.left) * self.x.at(value)

    def down(self, value: float) -> float:
        return self.top + _HEIGHT * (1 - self.y.at(value))


def _curves(curves: Curves) -> tuple[list[Markup], float]:
    """Draw lines with their names above the plot, and asked values as straight lines."""
    several = len(curves.series) + len(curves.guides) > 1
    legend = curves.legend or [name for name, _ in (*curves.series, *curves.guides) if several]
    points = [point for _, of_line in (*curves.series, *curves.guides) for point in of_line]
    across = [x for x, _ in points] + [at for _, at in curves.verticals]
    up = [y for _, y in points] + [at for _, at in curves.horizontals]
    if curves.logarithmic:
        x, y = Ruler.over(across, logarithmic=True), Ruler.over(up, logarithmic=True)
    else:
        x, y = Ruler.over(across), Ruler.over([*up, 0.0]).rounded()
    left = (max(len(_number(tick)) for tick in y.ticks()) * _CHARACTER + 10) / _NARROW
    frame = _Frame(x, y, left, _LINE * (len(curves.verticals) + len(legend)) + 18)
    bottom = frame.top + _HEIGHT
    parts = _grid(frame)
    places = [frame.across(at) for _, at in curves.verticals]
    for row, (place, name) in enumerate(zip(places, _names(curves.verticals, places), strict=True)):
        parts += [_rule(place, _LINE * (row + 0.75) + 4, bottom, "asked"), name]
    for line in curves.horizontals:
        level = frame.down(line[1])
        parts += [_level(level, "asked", left), _text(_named(line), _RIGHT, level - 5, anchor="end", class_="name")]
    parts.append(_lines(curves, frame))
    for style, (_, of_series) in enumerate(curves.series):
        if len(of_series) <= _FEW and not curves.steps:
            parts += [_point(frame.across(at), frame.down(value), style) for at, value in of_series]
    parts += _legend(curves, legend)
    return parts, bottom + _LINE + 6


def _grid(frame: _Frame) -> list[Markup]:
    parts = []
    for tick in frame.y.ticks():
        y = frame.down(tick)
        parts += [_level(y, "grid"), _text(_number(tick), 0, y - 4, class_="tick")]
    for tick in frame.x.ticks():
        x, bottom = frame.across(tick), frame.top + _HEIGHT
        anchor = "end" if x > 0.95 else "middle"
        parts.append(_rule(x, bottom, bottom + 5, "grid"))
        parts.append(_text(_number(tick), x, bottom + _LINE, anchor=anchor, class_="tick"))
    return parts


def _lines(curves: Curves, frame: _Frame) -> Markup:
    """Draw all lines in a picture that is stretched to the width, as shares cannot be written in a list of points."""
    drawn = [_polyline(points, class_, curves, frame) for class_, points in _styled(curves)]
    return _element(
        "svg",
        *drawn[len(curves.series) :],
        *drawn[: len(curves.series)],
        x=_percent(frame.left),
        y=frame.top,
        width=_percent(_RIGHT - frame.left),
        height=_HEIGHT,
        viewBox=f"0 0 {_UNITS} {_UNITS}",
        preserveAspectRatio="none",
        overflow="visible",
    )


def _styled(curves: Curves) -> list[tuple[str, _Points]]:
    """Return the class and the points of every line: the series first, then the guides."""
    kinds = {"curve": curves.series, "bound": curves.guides}
    return [
        (f"{kind} style{style % _STYLES}", points)
        for kind, lines in kinds.items()
        for style, (_, points) in enumerate(lines)
    ]


def _polyline(points: _Points, class_: str, curves: Curves, frame: _Frame) -> Markup:
    if curves.steps and class_.startswith("curve"):
        points = _corners(points)
    places = [(frame.x.at(x), 1 - frame.y.at(y)) for x, y in points if not curves.logarithmic or (x > 0 and y > 0)]
    text = " ".join(f"{_coordinate(_UNITS * x)},{_coordinate(_UNITS * y)}" for x, y in places)
    return _element("polyline", points=text, class_=class_, vector_effect="non-scaling-stroke")


def _corners(points: _Points) -> _Points:
    """Return the points of a line that keeps its value until the next point."""
    steps = [corner for (_, before), (x, y) in itertools.pairwise(points) for corner in ((x, before), (x, y))]
    return [*points[:1], *steps]


def _point(x: float, y: float, style: int) -> Markup:
    shape = _element("path", d=_SHAPES[style % _STYLES], class_=f"point style{style % _STYLES}")
    return _element("svg", shape, x=_percent(x), y=y, width=1.0, height=1.0, overflow="visible")


def _legend(curves: Curves, legend: Sequence[str]) -> list[Markup]:
    """Write the names of all lines above the plot, each behind a piece of its line."""
    parts = []
    for row, ((class_, _), words) in enumerate(zip(_styled(curves), legend, strict=False)):  # one alone has none
        y = _LINE * (row + len(curves.verticals) + 0.75)
        parts.append(_element("line", x1=0.0, x2=_SAMPLE, y1=y - 5, y2=y - 5, class_=class_))
        parts.append(_element("text", words, x=_SAMPLE + 8, y=y, class_="label"))
    return parts
