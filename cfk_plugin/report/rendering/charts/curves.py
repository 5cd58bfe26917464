"""Charts of lines through points, over two axes."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cfk_plugin.report.rendering.charts.names import Box, place_name
from cfk_plugin.report.rendering.charts.scale import Axis, LogScale, Scale, named, written
from cfk_plugin.report.rendering.charts.strips import ROOM
from cfk_plugin.report.rendering.charts.svg import LINE, Drawing, anchor_at, element, number, percent, rule, text
from cfk_plugin.report.rendering.document import Curves

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
