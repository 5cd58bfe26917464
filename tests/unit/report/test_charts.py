"""Charts as SVG: places of values, names that fit, and numbers that are written alike everywhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cfk_plugin.report.charts import ROOM, Box, LogScale, Scale, draw, named, number, place_name, wrapped, written
from cfk_plugin.report.document import Bars, Chart, Curves, Intervals
from documented import LONG_NAME, bars, frontier, intervals, risk, roc
from parsed import Element, Tree

CHARTS = [bars(1), bars(24), bars(5, 2), bars(3, 3), intervals(), frontier(), risk(), roc()]


def drawn(chart: Chart) -> Element:
    return Tree(str(draw(chart))).root.all("svg")[0]


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
    rows = [("a", 0.5, 0.25, 0.75)]
    chart = replace(intervals(), picture=Intervals(rows=rows, axis="x", low=0.0, high=1.0, lines=[("floor", 0.5)]))
    svg = drawn(chart)
    (span,), (dot,), (mark,) = of_class(svg, "span"), of_class(svg, "dot"), of_class(svg, "mark")
    low, high = share(span.attributes["x1"]), share(span.attributes["x2"])
    assert share(dot.attributes["cx"]) == share(mark.attributes["x1"]) == pytest.approx(0.5)
    assert (0.5 - low, high - 0.5) == (pytest.approx(0.24), pytest.approx(0.24))
    assert [text.text for text in svg.all("text")] == ["floor: 0.5", "a", "0.5 (0.25–0.75)", "0", "1"]


def test_texts_of_intervals_can_be_given() -> None:
    chart = replace(intervals(), picture=Intervals(rows=[("a", 0.5, 0.2, 0.7)], axis="x", texts=["50 % (20–70 %)"]))
    assert "50 % (20–70 %)" in [text.text for text in drawn(chart).all("text")]


def test_an_interval_that_is_not_finite_is_not_drawn() -> None:
    chart = replace(intervals(), picture=Intervals(rows=[("a", float("nan"), 0.2, 0.7)], axis="x"))
    svg = drawn(chart)
    assert not of_class(svg, "dot")
    assert "not measured" in svg.all("text")[1].text


def test_steps_keep_their_value_until_the_next_point() -> None:
    picture = Curves(series=[("a", [(0, 1), (1, 0)])], x="x", y="y", steps=True)
    (line,) = drawn(replace(risk(), picture=picture)).all("polyline")
    assert line.attributes["points"] == "0,0 1000,0 1000,1000"


def test_lines_are_named_and_told_apart_by_strokes() -> None:
    svg = drawn(frontier())
    assert {"NCP (lower is better)", "pureness (higher is better)"} <= {text.text for text in svg.all("text")}
    assert [line.attributes["class"] for line in svg.all("polyline")] == ["curve style0", "curve style1"]


def test_logarithmic_axes_have_a_place_for_every_power_of_ten() -> None:
    axis = LogScale.over([0.001, 1.0, 0.02, 0.0, -1.0])
    assert [axis.at(tick) for tick in axis.ticks()] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [written(tick) for tick in axis.ticks()] == ["0.001", "0.01", "0.1", "1"]
    assert (axis.at(0.0), axis.at(5.0)) == (0.0, 1.0)
    assert LogScale.over([0.3, 0.7]).ticks() == [0.3, 0.7]
    assert LogScale.over([]).at(0.5) > 0
    assert LogScale.over([0.2]).high > LogScale.over([0.2]).low


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
        Intervals(rows=[], axis="x"),
        Curves(series=[("a", []), ("b", [])], x="x", y="y"),
        Curves(series=[], x="x", y="y"),
    ):
        assert drawn(replace(risk(), picture=picture)).all("text")


def test_name_stays_clear_of_lines_and_names() -> None:
    plot = Box(0, 0, 240, 240)
    heights = [lambda _: 100.0, lambda _: 140.0]
    first = place_name((80, 18), heights, 0, [], within=plot)
    assert first.bottom < 100  # above, as the other line runs below
    second = place_name((80, 18), heights, 0, [first], within=plot)
    assert second.apart(first) > 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (0.12345, "0.123"),
        (0.99996, "0.999"),
        (-0.25, "−0.25"),
        (12.345, "12.3"),
        (1234567.0, "1,234,567"),
        (0.00012, "0.00012"),
        (float("inf"), "not measured"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert written(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (1.004, "1"), (-0.001, "0"), (99.99, "99.99"), (100, "100")])
def test_coordinates_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_lines_say_their_value_once() -> None:
    assert named(("k = 10", 10.0)) == "k = 10"
    assert named(("floor", 0.95)) == "floor: 0.95"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.0909), (2, 30), (0.871, 1), (-3, 5), (0, 48_842)])
def test_ticks_are_few_round_and_on_the_axis(low: float, high: float) -> None:
    ticks = Scale(low, high).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    assert Scale(low, high).rounded().high >= high


def test_an_axis_of_one_value_has_a_length() -> None:
    assert Scale.over([0.0]).at(0.0) == 0
    assert Scale.over([]).high > Scale.over([]).low


def test_names_are_wrapped_at_their_joints() -> None:
    assert wrapped(LONG_NAME, ROOM)[0] == "marital_status_of_the_first_"
    assert "".join(wrapped("x" * 80, ROOM)) == "x" * 80
    assert wrapped("two words", ROOM) == ["two words"]
    assert max(map(len, wrapped(LONG_NAME + "y" * 50, 14))) <= 14
