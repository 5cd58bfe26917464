"""Charts in the page: values are where their numbers are, names fit, and series differ without colour."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

import reported
from cfk_plugin import PrivacyReport
from parsed import Element, Tree
from reported import amount, bare, content, example

ROOM = 34  # characters that fit on a line at 320 pixels
LONG = "marital_status_of_the_first_applicant_at_the_time_of_the_application"


def chart(name: str, labels: list[str], series: dict[str, list[Any]], **of: Any) -> dict[str, Any]:
    """Return a distribution; a number stands for its amount, None for what was not measured."""
    told = {key: [each if isinstance(each, dict) else amount(each) for each in found] for key, found in series.items()}
    return {"id": name, "section": 5, "labels": labels, "series": told, "marks": {}, "note": ""} | of


def drawn(*charts: dict[str, Any], name: str = "", **changes: Any) -> Element:
    """Return the picture of a chart, in a page with these."""
    root = Tree(bare(distributions=list(charts), **changes).to_html()).root
    name = name or charts[0]["id"]
    (figure,) = [figure for figure in root.all("figure") if figure.attributes["id"] == f"chart-{name}"]
    return figure.all("svg")[0]


def of_class(svg: Element, name: str) -> list[Element]:
    return [element for element in svg.walk() if name in (element.attributes.get("class") or "").split()]


def share(text: str | None) -> float:
    assert text is not None
    assert text.endswith("%")
    return float(text[:-1]) / 100


def points(line: Element) -> list[tuple[float, float]]:
    return [
        (float(x), float(y)) for x, _, y in (pair.partition(",") for pair in (line.attributes["points"] or "").split())
    ]


ROC = [f"{10 ** (power / 10):.3g}" for power in range(-30, 1)]
CURVES = {"membership_cfd": [float(x) ** 0.98 for x in ROC], "membership_loss": [float(x) ** 0.4 for x in ROC]}
CURVES |= {"membership_other": [0.0 if float(x) < 0.01 else float(x) for x in ROC]}
BOUNDS = {
    "bound_tight": [min(1.0, 2.7 * float(x)) for x in ROC],
    "bound_paper": [min(1.0, 2.72 * float(x)) for x in ROC],
}
KS = ["2", "5", "12", "30"]


@pytest.fixture(scope="module")
def roc() -> Element:
    return drawn(chart("roc", ROC, CURVES | BOUNDS))


def test_every_place_is_inside_and_every_text_fits_a_phone(roc: Element) -> None:
    columns = [
        each | {"labels": [LONG, *each["labels"][1:]]} for each in content()["distributions"] if each["marks"] == {}
    ]
    pages = (example(), example(distributions=[c for c in columns if c["id"] == "ncp_by_attribute"]))
    charts = [
        svg for page in pages for figure in Tree(page.to_html()).root.all("figure") for svg in figure.all("svg")[:1]
    ]
    assert len(charts) > 6
    for svg in (*charts, roc):
        height = float(svg.attributes["height"] or 0)
        written = []
        for element in svg.walk():
            for name in ("x", "x1", "x2", "cx", "width"):
                value = element.attributes.get(name) or "0"
                assert not value.endswith("%") or 0 <= share(value) <= 1, element
                written.append(value)
            for name in ("y", "y1", "y2", "cy"):
                value = element.attributes.get(name) or "0"
                assert 0 <= float(value) <= height, element
                written.append(value)
            written += re.split("[ ,]", element.attributes.get("points") or "0")
        assert all(re.fullmatch(r"-?\d+(?:\.\d{1,2})?%?", part) for part in written)
        assert all(len(text.text) <= ROOM for text in svg.all("text"))


def test_bars_are_as_long_as_their_values_and_name_their_series() -> None:
    sizes = ["under 12", "12–23", "24–59"]
    before, after = [0.9, 0.06, amount(band="not told apart")], [0.0, 0.25, None]
    svg = drawn(chart("class_sizes", sizes, {"before": before, "after": after}))
    assert [share(bar.attributes["width"]) for bar in of_class(svg, "bar")] == pytest.approx([0.9, 0.0, 0.06, 0.25])
    assert len(of_class(svg, "track")) == 6
    words = [text.text for text in svg.all("text")]
    assert {"not told apart", "not measured"} < set(words)
    assert words.count("before") == words.count("after") == 3
    assert {bar.attributes["class"] for bar in of_class(svg, "bar")} == {"bar tone0", "bar tone1"}  # without colour


def test_an_interval_is_where_its_numbers_are() -> None:
    gaps = [("women", -0.25, -0.3, -0.05), ("men", 0.25, 0.05, 0.5)]
    row = {"attribute": "sex", "metric": "ncp", "n": amount(30), "mean": amount(0.5), "rest": amount(0.5)}
    groups = [{**row, "group": name, "gap": amount(*gap)} for name, *gap in gaps]
    svg = drawn(name="groups-ncp", groups=groups)
    spans, dots, marks = (of_class(svg, name) for name in ("span", "dot", "mark"))
    zero = share(marks[0].attributes["x1"])
    places = [
        (share(d.attributes["cx"]), share(s.attributes["x1"]), share(s.attributes["x2"]))
        for d, s in zip(dots, spans, strict=True)
    ]
    assert places[1][2] == pytest.approx(0.98)  # so that a dot at the end of the axis is whole
    scale = (places[1][2] - zero) / 0.5
    for (_, *numbers), found in zip(gaps, places, strict=True):
        assert [(place - zero) / scale for place in found] == pytest.approx(numbers, abs=1e-3)
    words = [text.text for text in svg.all("text")]
    assert {"no difference: 0", "tolerance: −0.1", "tolerance: 0.1", "sex: women", "0.25 (0.05–0.5)"} < set(words)
    assert share(marks[2].attributes["x1"]) == pytest.approx(zero + 0.1 * scale, abs=1e-3)


def test_steps_keep_their_value_until_the_next_point() -> None:
    (line,) = drawn(chart("risk", ["1", "0.5", "0"], {"share of releases": [0.0, 0.25, 1.0]})).all("polyline")
    turns = [(x != a, y != b) for (x, y), (a, b) in pairwise(points(line))]
    assert turns == [(True, False), (False, True)] * 2


def test_lines_are_named_told_apart_by_strokes_and_where_their_numbers_are() -> None:
    svg = drawn(chart("frontier", KS, {"NCP": [0.05, 0.1, 0.25, 0.5], "pureness": [1.0, 0.9, 0.75, 0.5]}))
    ncp, pureness = svg.all("polyline")
    assert [line.attributes["class"] for line in (ncp, pureness)] == ["curve style0", "curve style1"]
    assert [text.text for text in of_class(svg, "label")] == ["NCP", "pureness"]
    samples = [line.attributes["class"] for line in svg.all("line") if line.attributes.get("x2") == "36"]
    assert samples == ["curve style0", "curve style1"]
    alone = drawn(chart("frontier", KS, {"NCP": [0.05, 0.1, 0.25, 0.5]}))
    assert of_class(alone, "label") == []  # is what the chart is about
    assert [x for x, _ in points(ncp)] == pytest.approx([1000 * (int(k) - 2) / 28 for k in KS], abs=0.01)
    assert [y for _, y in points(ncp)] == pytest.approx([950, 900, 750, 500])
    assert [y for _, y in points(pureness)] == pytest.approx([0, 100, 250, 500])
    assert len(of_class(svg, "point")) == 8


def ticks(svg: Element) -> list[tuple[str, float]]:
    """Return the numbers below the plot, and where they stand."""
    texts = of_class(svg, "tick")
    lowest = max(float(text.attributes["y"] or 0) for text in texts)
    return [(text.text, share(text.attributes["x"])) for text in texts if float(text.attributes["y"] or 0) == lowest]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.0909), (2, 30), (0.871, 1), (0, 48_842), (3, 3)])
def test_ticks_are_few_and_where_their_numbers_are(low: float, high: float) -> None:
    found = ticks(drawn(chart("frontier", [f"{low}", f"{high}"], {"NCP": [1.0, 1.0]})))
    numbers = [float(text.replace(",", "").replace("−", "-")) for text, _ in found]
    assert 2 <= len(found) <= 6
    assert numbers == sorted(set(numbers))
    assert low <= numbers[0] <= numbers[-1] <= max(high, low + 1)
    places = zip(pairwise(found), pairwise(numbers), strict=True)
    steps = [(right - left) / (b - a) for ((_, left), (_, right)), (a, b) in places]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-2)


def test_curves_of_attacks_are_on_logarithmic_axes_and_named_in_a_legend(roc: Element) -> None:
    assert [text for text, _ in ticks(roc)] == ["0.001", "0.01", "0.1", "1"]
    gaps = [right - left for (_, left), (_, right) in pairwise(ticks(roc))]
    assert gaps == pytest.approx([gaps[0]] * 3, abs=1e-3)
    names = ["CFD", "Loss", "other", "a coin", "most that epsilon admits", "the same, as published"]
    assert [text.text for text in of_class(roc, "label")] == names
    samples = [line.attributes["class"] for line in roc.all("line") if line.attributes.get("x2") == "36"]
    lines = roc.all("polyline")
    assert len(set(samples)) == len(samples) == len(lines)
    assert set(samples) == {line.attributes["class"] for line in lines}
    assert sorted(len(points(line)) for line in lines) == [2, 21, 31, 31, 31, 31]  # nothing of a rate of 0


def test_nothing_measured_can_be_drawn() -> None:
    for name, labels in (("frontier", KS), ("frontier", []), ("ncp_by_attribute", ["a"]), ("roc", ROC)):
        series = {"membership_cfd": [None] * len(labels), "other": [amount(band="hidden")] * len(labels)}
        assert drawn(chart(name, labels, series)).all("text")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("floor", 0.95, "floor: 0.95"),
        ("k = 10", 10.0, "k = 10"),
        ("a", 0.99996, "a: 0.999"),
        ("a", -0.25, "a: −0.25"),
        ("a", 1234567.0, "a: 1,234,567"),
    ],
)
def test_lines_say_their_value_once_with_three_digits(name: str, value: float, text: str) -> None:
    svg = drawn(chart("frontier", KS, {"NCP": [0.5] * 4}, marks={name: value}))
    assert text in [found.text for found in svg.all("text")]


@pytest.mark.parametrize("name", [LONG, "x" * 80, "two words"])
def test_names_are_wrapped_at_their_joints(name: str) -> None:
    lines = [text.text for text in of_class(drawn(chart("ncp_by_attribute", [name], {"mean NCP": [0.5]})), "label")]
    assert "".join(lines) == name
    assert all(len(line) <= ROOM for line in lines)
    assert all(line.endswith(("_", "x")) for line in lines[:-1])


def test_a_legend_says_what_an_attack_reached(store: str) -> None:
    audit = json.loads(reported.membership({"membership_cfd": 1.0}, 300, **reported.OF_POLICY).to_json())
    report = PrivacyReport.of_runs(reported.run(audits=[audit]))
    (attack,) = report.data.attacks
    assert re.search(rf"CFD: AUC {str(attack.main.value)[:4]}", report.to_html())
