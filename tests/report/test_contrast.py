"""Contrast of the report's colours as WCAG 2.2 computes it, in both schemes."""

from __future__ import annotations

import re
from functools import cache

import pytest

from cfk_plugin.report.render import render_html
from documented import document

TEXT, GRAPHICS = 4.5, 3.0

PAIRS = [
    *[(name, ground, TEXT) for name in ("ink", "quiet", "link") for ground in ("paper", "sheet")],
    *[(name, ground, TEXT) for name in ("pass", "review", "fail", "unknown") for ground in ("paper", "sheet")],
    *[(name, ground, GRAPHICS) for name in ("bar", "bar-second") for ground in ("paper", "track")],
    ("edge", "paper", GRAPHICS),
]


@cache
def schemes() -> dict[str, dict[str, str]]:
    """Return the colours of each scheme; the dark one takes over what it does not set."""
    css = render_html(document())
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "ground", "least"), PAIRS)
def test_contrast(scheme: str, name: str, ground: str, least: float) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[name], colours[ground]) >= least


def test_both_schemes_set_the_same_colours() -> None:
    found = schemes()
    assert len(found["light"]) == 14
    assert {name for name, colour in found["dark"].items() if colour == found["light"][name]} == set()


def test_colours_stand_in_one_place_alone() -> None:
    css = re.search(r"<style>(.*?)</style>", render_html(document()), re.DOTALL)
    assert css is not None
    rules = re.sub(r":root \{.*?\}", "", css[1], flags=re.DOTALL)
    # Margins of a page know no custom properties; theirs is the quiet colour of paper.
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", rules)) == {schemes()["light"]["quiet"]}


def test_series_differ_in_grey() -> None:
    for colours in schemes().values():
        assert contrast(colours["bar"], colours["bar-second"]) > 1.5
