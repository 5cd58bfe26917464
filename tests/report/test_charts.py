"""Charts as SVG: places of values, names that fit, and numbers that are written alike everywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from cfk_plugin.report.charts import ROOM, Bars, Curves, Intervals, draw
from cfk_plugin.report.render import Chart
from documented import LONG_NAME, bars, frontier, intervals, risk, roc
from parsed import Element, Tree

CHARTS = [bars(1), bars(24), bars(5, 2), bars(3, 3), intervals(), frontier(), risk(), roc()]


def drawn(chart: Chart) -> Element:
    of = {"name": chart.id, "title": chart.title, "description": chart.description}
    return Tree(str(draw(chart.picture, **of))).root.all("svg")[0]


def of_class(svg: Element, name: str) -> list[Element]:
    return [element for element in svg.walk() if name in (element.attributes.get("class") or "").split()]


def share(text: str | None) -> float:
    assert text is not None
    assert text.endswith("%")
    return float(text[:-1]) / 100


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.id)
def test_every_place_is_inside(chart: Chart) -> None:
    svg = drawn(chart)
    height = float(svg.attributes["height"] or 0)
    for element in svg.walk():
        for name in ("x", "x1", "x2", "cx", "width"):
            value = element.attributes.get(name) or "0"
            assert not value.endswith("%") or 0 <= share(value) <= 1, element
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.attributes.get(name) or 0) <= height, element


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.id)
def test_no_line_of_text_is_too_long_for_a_phone(chart: Chart) -> None:
    assert all(len(text.text) <= ROOM for text in drawn(chart).all("text"))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.id)
def test_no_coordinate_is_endless(chart: Chart) -> None:
    names = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "points"}
    written_numbers = [
        part
        for element in drawn(chart).walk()
        for name in names & set(element.attributes)
        for part in re.split(r"[ ,]", element.attributes[name] or "")
    ]
    assert len(written_numbers) > 5
    assert all(re.fullmatch(r"-?\d+(?:\.\d{1,2})?%?", part) for part in written_numbers)


def test_bars_are_as_long_as_their_values() -> None:
    chart = bars(5)
    assert isinstance(chart.picture, Bars)
    lengths = [share(bar.attributes["width"]) for bar in of_class(drawn(chart), "bar")]
    assert lengths == pytest.approx([value for value in chart.picture.series[0][1] if value is not None])


def test_a_bar_that_was_not_measured_has_only_its_text() -> None:
    svg = drawn(bars(5))
    assert len(of_class(svg, "bar")) == 4
    assert len(of_class(svg, "track")) == 5
    assert "not measured" in [text.text for text in svg.all("text")]


def test_every_bar_of_several_names_its_series() -> None:
    words = [text.text for text in drawn(bars(5, 2)).all("text")]
    assert words.count("before protection") == words.count("after protection") == 5


def test_series_differ_without_colour() -> None:
    assert {bar.attributes["class"] for bar in of_class(drawn(bars(3, 3)), "bar")} == {f"bar tone{n}" for n in range(3)}


def test_an_interval_is_where_its_numbers_are() -> None:
    picture = Intervals([("a", 0.5, 0.25, 0.75)], ["0.5 (0.25–0.75)"], "x", [("0", 0.0), ("floor", 0.5), ("1", 1.0)])
    svg = drawn(replace(intervals(), picture=picture))
    (span,), (dot,), (_, mark, _) = of_class(svg, "span"), of_class(svg, "dot"), of_class(svg, "mark")
    low, high = share(span.attributes["x1"]), share(span.attributes["x2"])
    assert share(dot.attributes["cx"]) == share(mark.attributes["x1"]) == pytest.approx(0.5)
    assert (0.5 - low, high - 0.5) == (pytest.approx(0.24), pytest.approx(0.24))
    assert [text.text for text in svg.all("text")] == ["0", "floor: 0.5", "1", "a", "0.5 (0.25–0.75)", "0", "1"]


def test_an_interval_that_is_not_finite_is_not_drawn() -> None:
    picture = Intervals([("a", float("nan"), 0.2, 0.7)], ["not measured"], "x")
    assert not of_class(drawn(replace(intervals(), picture=picture)), "dot")


def test_steps_keep_their_value_until_the_next_point() -> None:
    picture = Curves(series=[("a", [(0, 1), (1, 0)])], x="x", y="y", steps=True)
    (line,) = drawn(replace(risk(), picture=picture)).all("polyline")
    assert line.attributes["points"] == "0,0 1000,0 1000,1000"


def test_lines_are_named_and_told_apart_by_strokes() -> None:
    svg = drawn(frontier())
    assert {"NCP (lower is better)", "pureness (higher is better)"} <= {text.text for text in svg.all("text")}
    assert [line.attributes["class"] for line in svg.all("polyline")] == ["curve style0", "curve style1"]


def ticks(picture: Curves) -> list[tuple[str, float]]:
    """Return the numbers below the plot, and where they stand."""
    texts = [text for text in drawn(replace(risk(), picture=picture)).all("text") if text.attributes["class"] == "tick"]
    lowest = max(float(text.attributes["y"] or 0) for text in texts)
    return [(text.text, share(text.attributes["x"])) for text in texts if float(text.attributes["y"] or 0) == lowest]


def test_logarithmic_axes_have_a_place_for_every_power_of_ten() -> None:
    found = ticks(Curves([("a", [(0.001, 0.1), (1.0, 1.0), (0.0, 0.5), (-1.0, 0.5)])], "x", "y", logarithmic=True))
    assert [text for text, _ in found] == ["0.001", "0.01", "0.1", "1"]
    gaps = [right - left for (_, left), (_, right) in pairwise(found)]
    assert gaps == pytest.approx([gaps[0]] * 3, abs=1e-3)
    narrow = ticks(Curves([("a", [(0.3, 0.5), (0.7, 0.5)])], "x", "y", logarithmic=True))
    assert [text for text, _ in narrow] == ["0.3", "0.7"]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.0909), (2, 30), (0.871, 1), (-3, 5), (0, 48_842), (3, 3)])
def test_ticks_are_few_and_where_their_numbers_are(low: float, high: float) -> None:
    found = ticks(Curves([("a", [(low, 1.0), (high, 1.0)])], "x", "y"))
    numbers = [float(text.replace(",", "").replace("−", "-")) for text, _ in found]
    assert 2 <= len(found) <= 6
    assert numbers == sorted(set(numbers))
    assert low <= numbers[0] <= numbers[-1] <= max(high, low + 1)
    steps = [
        (right - left) / (b - a)
        for ((_, left), (_, right)), (a, b) in zip(pairwise(found), pairwise(numbers), strict=True)
    ]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-2)


def test_lines_that_coincide_are_named_in_a_legend() -> None:
    chart = roc()
    svg = drawn(chart)
    assert isinstance(chart.picture, Curves)
    texts = [text for text in svg.all("text") if text.attributes["class"] == "label"]
    assert [text.text for text in texts] == list(chart.picture.legend)
    samples = [line.attributes["class"] for line in svg.all("line") if line.attributes.get("x2") == "36"]
    drawn_lines = [line.attributes["class"] for line in svg.all("polyline")]
    assert len(set(samples)) == len(samples) == len(drawn_lines)  # told apart without colour
    assert set(samples) == set(drawn_lines)


def test_nothing_is_drawn_of_a_rate_of_0_on_logarithmic_axes() -> None:
    points = [line.attributes["points"] or "" for line in drawn(roc()).all("polyline")]
    (zero,) = [line.split() for line in points if line.startswith("333.33,")]  # from 0.01 on
    assert len(zero) == 21


def test_empty_pictures_can_be_drawn() -> None:
    for picture in (
        Curves(series=[("a", [])], guides=[("b", [])], legend=["a", "b"], x="x", y="y", logarithmic=True),
        Bars(categories=[], series=[("a", [])], texts=[[]], axis="x"),
        Intervals(rows=[], texts=[], axis="x"),
        Curves(series=[("a", []), ("b", [])], x="x", y="y"),
        Curves(series=[], x="x", y="y"),
    ):
        assert drawn(replace(risk(), picture=picture)).all("text")


def test_names_stay_clear_of_lines_and_of_each_other() -> None:
    picture = Curves([("above", [(0, 1.0), (1, 1.0)]), ("below", [(0, 0.7), (1, 0.7)])], "x", "y")
    svg = drawn(replace(risk(), picture=picture))
    (plot,) = [each for each in svg.all("svg") if each.attributes.get("viewbox") or each.attributes.get("viewBox")]
    top, height = (float(plot.attributes[name] or 0) for name in ("y", "height"))
    lines = [top, top + 0.3 * height]
    for name in of_class(svg, "name"):
        y = float(name.attributes["y"] or 0)
        assert all(not y - 12 < line < y + 6 for line in lines), name.text
    assert len({name.attributes["y"] for name in of_class(svg, "name")}) == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("floor", 0.95, "floor: 0.95"),
        ("k = 10", 10.0, "k = 10"),
        ("a", 0.99996, "a: 0.999"),
        ("a", -0.25, "a: −0.25"),
        ("a", 1234567.0, "a: 1,234,567"),
        ("a", float("inf"), "a: not measured"),
    ],
)
def test_lines_say_their_value_once_with_three_digits(name: str, value: float, text: str) -> None:
    picture = Intervals([("row", 0.5, 0.25, 0.75)], ["0.5"], "x", [(name, value)])
    assert drawn(replace(intervals(), picture=picture)).all("text")[0].text == text


@pytest.mark.parametrize("name", [LONG_NAME, "x" * 80, "two words", LONG_NAME + "y" * 20])
def test_names_are_wrapped_at_their_joints(name: str) -> None:
    picture = Bars([name], [("a", [0.5])], [[""]], "x")
    lines = [text.text for text in of_class(drawn(replace(bars(1), picture=picture)), "label")]
    assert "".join(lines) == name
    assert all(len(line) <= ROOM for line in lines)
    assert all(line.endswith(("_", "x")) for line in lines[:-1])
