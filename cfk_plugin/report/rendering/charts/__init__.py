"""The report's charts as inline SVG, drawn here: few kinds, no script, no size in pixels that a phone would shrink.

Horizontal places are shares of the width, and text keeps the size that the style sheet gives it. So a chart is as
readable at 320 pixels as on paper, without a second version of it.
"""

from __future__ import annotations

from markupsafe import Markup

from cfk_plugin.report.rendering.charts.curves import draw_curves
from cfk_plugin.report.rendering.charts.strips import draw_bars, draw_intervals
from cfk_plugin.report.rendering.charts.svg import element
from cfk_plugin.report.rendering.document import Bars, Chart, Curves

__all__ = ["draw"]

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
