"""Numbers with bars, and curves: as long, and where, as their numbers say; told apart without
colour.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from matplotlib.text import Text

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.audit.result import BOUNDS as CLAIMS
from cfk_plugin.audit.result import Curve, short
from cfk_plugin.plots import RocDisplay, RocLine
from parsed import Element, Tree
from reported import amount, bare


def chart(name: str, labels: list[str], series: dict[str, list[Any]], **of: Any) -> dict[str, Any]:
    """Return a distribution; a number stands for its amount, None for what was not measured."""
    told = {
        key: [each if isinstance(each, dict) else amount(each) for each in found]
        for key, found in series.items()
    }
    return {
        "id": name,
        "section": 5,
        "labels": labels,
        "series": told,
        "marks": {},
        "note": "",
    } | of


def page(*charts: dict[str, Any], **changes: Any) -> Element:
    return Tree(bare(distributions=list(charts), **changes).to_html()).root


def table(found: dict[str, Any]) -> Element:
    """Return the table of a distribution."""
    (made,) = [
        each
        for each in page(found).all("table")
        if each.attributes.get("id") == f"chart-{found['id']}"
    ]
    return made


def bars(found: Element) -> list[tuple[str, str, float | None]]:
    """Return of every number its text, its style, and how long its bar is."""
    cells = [(cell.text, cell.all("i")) for row in found.all("tr")[1:] for cell in row.all("td")]
    styles = [(text, bar[0].attributes if bar else {}) for text, bar in cells]
    return [(text, of.get("class") or "", _share(of.get("style"))) for text, of in styles]


def _share(style: str | None) -> float | None:
    return None if style is None else float(style.removeprefix("width:").removesuffix("%")) / 100


def test_bars_are_as_long_as_their_values_and_differ_by_series() -> None:
    before, after = [0.9, 0.06, amount(band="not told apart")], [0.0, 0.25, None]
    found = table(
        chart("class_sizes", ["under 12", "12–23", "24–59"], {"before": before, "after": after})
    )
    assert [cell.text for cell in found.all("thead")[0].all("th")] == [
        "People in the class",
        "before",
        "after",
    ]
    assert bars(found) == [
        *(("90 %", "tone0", 0.9), ("0 %", "tone1", 0.0)),
        *(("6 %", "tone0", 0.06), ("25 %", "tone1", 0.25)),
        *(("not told apart", "", None), ("not measured", "", None)),
    ]


def test_bars_of_numbers_are_shares_of_the_longest() -> None:
    found = table(chart("comparison", ["raw", "policy"], {"distance": [2.0, 0.5]}))
    assert [length for _, _, length in bars(found)] == [1.0, 0.25]


def test_what_is_asked_stands_above_the_numbers() -> None:
    found = table(
        chart("risk", ["0.2"], {"share of releases": [0.5]}, marks={"1 / k": 0.1, "floor": 0.99996})
    )
    assert "Asked: 1 / k: 0.1, floor: 0.999." in found.all("caption")[0].text


def test_of_many_percentiles_a_few_are_in_the_page_and_all_in_the_data() -> None:
    labels = [f"{percent} %" for percent in range(0, 101, 5)]
    made = chart("pureness", labels, {"pureness": [0.5 + place / 40 for place in range(21)]})
    shown = [row.all("th")[0].text for row in table(made).all("tr")[1:]]
    assert shown == ["0 %", "5 %", "25 %", "50 %", "75 %", "100 %"]
    assert len(bare(distributions=[made]).data.distributions[0].labels) == 21


# --- curves of attacks, on logarithmic axes ---

ROC = [f"{10 ** (power / 10):.3g}" for power in range(-30, 1)]
CURVES = {
    "membership_cfd": [float(x) ** 0.98 for x in ROC],
    "membership_loss": [float(x) ** 0.4 for x in ROC],
}
CURVES |= {"membership_other": [0.0 if float(x) < 0.01 else float(x) for x in ROC]}
BOUNDS = {
    "bound_tight": [min(1.0, 2.7 * float(x)) for x in ROC],
    "bound_paper": [min(1.0, 2.72 * float(x)) for x in ROC],
}


def picture(*of: Any) -> Element:
    """Return the picture of a distribution."""
    (figure,) = [each for each in page(chart(*of)).all("figure") if each.all("svg")]
    return figure.all("svg")[0]


def texts(ax: Any) -> set[str]:
    """Return what axes in a notebook say."""
    ax.figure.canvas.draw()
    found = {text.get_text() for text in ax.findobj(Text) if text.get_visible()}
    return found - {
        "",
        *(tick.get_text() for tick in (*ax.get_xticklabels(), *ax.get_yticklabels())),
    }


def test_curves_are_those_of_a_notebook_on_logarithmic_axes() -> None:
    rates = tuple(map(float, ROC))
    lines = [RocLine(short(name), Curve(rates, tuple(found))) for name, found in CURVES.items()]
    guides = {CLAIMS[name]: Curve(rates, tuple(found)) for name, found in BOUNDS.items()}
    said = [text.text for text in picture("roc", ROC, CURVES | BOUNDS).all("text")]
    assert texts(RocDisplay(lines, guides).plot().ax_) <= {*said}
    assert {
        "CFD",
        "Loss",
        "other",
        "a coin",
        "most that epsilon admits",
        "the same, as published",
    } <= {*said}
    assert said[:4] == ["0.001", "0.01", "0.1", "1"]


def test_few_points_are_drawn_on_whole_powers_of_ten_below_the_legend() -> None:
    found = picture("roc", ["0.25", "0.5", "1"], {"membership_cfd": [0.3, 0.5, 1.0]})
    assert [text.text for text in found.all("text")][:2] == ["0.1", "1"]
    assert not any("$" in text.text for text in found.all("text"))


def test_what_k_costs_is_drawn_as_in_a_notebook() -> None:
    found = {"NCP": [0.1, 0.2], "pureness": [1.0, 0.9], "withheld": [0.0, 0.5]}
    said = {text.text for text in picture("frontier", ["5", "10"], found).all("text")}
    assert {
        "information loss, NCP 0.20",
        "pureness 0.90",
        "withheld, of answers needed 0.50",
        "5",
        "10",
    } <= said
    assert not any(
        "withheld" in text.text for text in picture("frontier", ["5"], {"NCP": [0.1]}).all("text")
    )


def test_a_picture_leads_nowhere_and_what_a_curve_is_called_is_only_text() -> None:
    made = page(chart("roc", ROC, {"membership_<b>$x$": [float(x) for x in ROC]}))
    (svg,) = [figure.all("svg")[0] for figure in made.all("figure") if figure.all("svg")]
    assert "<b>$x$" in {text.text for text in svg.all("text")}
    held = {name: value for each in svg.walk() for name, value in each.attributes.items()}
    assert not any(
        name.startswith("xmlns") or "//" in (value or "") for name, value in held.items()
    )


@pytest.mark.parametrize(
    ("name", "labels"), [("frontier", []), ("ncp_by_attribute", ["a"]), ("roc", ROC)]
)
def test_nothing_measured_can_be_drawn(name: str, labels: list[str]) -> None:
    series = {
        "membership_cfd": [None] * len(labels),
        "other": [amount(band="hidden")] * len(labels),
    }
    assert table(chart(name, labels, series)).all("caption")[0].text


def test_a_legend_says_what_an_attack_reached(store: str) -> None:
    audit = json.loads(
        reported.membership({"membership_cfd": 1.0}, 300, **reported.OF_POLICY).to_json()
    )
    report = PrivacyReport.of_runs(reported.run(audits=[audit]))
    (attack,) = report.data.attacks
    assert re.search(rf"CFD: AUC {str(attack.main.value)[:4]}", report.to_html())
