"""Charts from distributions, each with the same numbers as a table."""

from __future__ import annotations

from cfk_plugin.report.data import Amount, Distribution
from cfk_plugin.report.rendering.document import Bars, Cell, Chart, Curves, Intervals, Table
from cfk_plugin.report.rendering.text import Kind, shown


def bars(found: Distribution, title: str, description: str, axis: str, heading: str, *, percent: bool = False) -> Chart:
    """Draw every series as bars over the categories."""
    kind: Kind = "share" if percent else "number"
    picture = Bars(
        categories=found.labels,
        series=tuple((name, tuple(_scaled(a, percent) for a in amounts)) for name, amounts in found.series.items()),
        texts=tuple(tuple(shown(a, kind) for a in amounts) for amounts in found.series.values()),
        axis=axis,
        top=100.0 if percent else None,
    )
    return _chart(found, title, description, picture, heading, kind)


def curve(
    found: Distribution,
    title: str,
    description: str,
    axes: tuple[str, str],
    *,
    percent: bool = False,
    steps: bool = False,
) -> Chart:
    """Draw every series over categories that are numbers; a category with a band alone has no point."""
    kind: Kind = "share" if percent else "number"
    series = tuple(
        (
            name,
            tuple(
                (float(label.rstrip(" %")), y)
                for label, a in zip(found.labels, amounts, strict=True)
                if (y := _scaled(a, percent)) is not None
            ),
        )
        for name, amounts in found.series.items()
    )
    picture = Curves(series=series, x=axes[0], y=axes[1], steps=steps, verticals=tuple(found.marks.items()))
    return _chart(found, title, description, picture, axes[0], kind)


def sorted_intervals(found: Distribution, title: str, description: str, axes: tuple[str, str]) -> Chart:
    """Draw a sorted quantity and the two ends of its interval over percentiles."""
    amounts = next(iter(found.series.values()))
    at = [float(label.rstrip(" %")) for label in found.labels]
    ends = {
        "upper end": [a.value if a.high is None else a.high for a in amounts],
        "pureness": [a.value for a in amounts],
        "lower end": [a.value if a.low is None else a.low for a in amounts],
    }
    exact = ends["upper end"] == ends["pureness"] == ends["lower end"]
    shown_ends = {"pureness": ends["pureness"]} if exact else ends
    series = tuple(
        (name, tuple((x, float(y)) for x, y in zip(at, values, strict=True) if y is not None))
        for name, values in shown_ends.items()
    )
    picture = Curves(series=series, x=axes[0], y=axes[1], horizontals=tuple(found.marks.items()))
    return _chart(found, title, description, picture, axes[0], "number")


def intervals(
    name: str,
    title: str,
    description: str,
    rows: list[tuple[str, Amount]],
    axis: str,
    lines: tuple[tuple[str, float], ...],
) -> Chart:
    """Draw a dot and an interval per row; rows without an interval are in the table alone."""
    known = [(label, a) for label, a in rows if a.value is not None and a.low is not None and a.high is not None]
    drawn = tuple((label, float(a.value or 0), float(a.low or 0), float(a.high or 0)) for label, a in known)
    cells: list[list[Cell]] = [[label, shown(amount)] for label, amount in rows]
    table = Table(id=f"data-{name}", caption=f"{title}: the numbers", columns=("", axis), rows=cells, numeric=(1,))
    texts = tuple(shown(amount) for _, amount in known)
    picture = Intervals(rows=drawn, axis=axis, lines=lines, texts=texts)
    return Chart(id=f"chart-{name}", title=title, description=description, picture=picture, table=table)


def _chart(
    found: Distribution, title: str, description: str, picture: Bars | Curves, heading: str, kind: Kind
) -> Chart:
    rows: list[list[Cell]] = [
        [label, *(shown(amounts[i], kind) for amounts in found.series.values())] for i, label in enumerate(found.labels)
    ]
    table = Table(
        id=f"data-{found.id}",
        caption=f"{title}: the numbers",
        columns=(heading, *found.series),
        rows=rows,
        numeric=tuple(range(1, len(found.series) + 1)),
        note=found.note,
    )
    return Chart(id=f"chart-{found.id}", title=title, description=description, picture=picture, table=table)


def _scaled(amount: Amount, percent: bool) -> float | None:
    if amount.value is None:
        return None
    return 100 * amount.value if percent else amount.value
