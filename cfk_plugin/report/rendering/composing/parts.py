"""Building blocks that several chapters share: how a figure, a check, a chart becomes text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cfk_plugin.report.data import Amount, Check, Distribution, Metric, ReportData
from cfk_plugin.report.rendering.document import Cell, Link, Mark, Table
from cfk_plugin.report.rendering.text import kind_of, shown


def written(name: str, amount: Amount) -> str:
    """Write the amount of a figure or check."""
    return shown(amount, kind_of(name))


def named(data: ReportData, name: str) -> Link:
    """Return the name of something that is defined, as a link to its definition."""
    return Link(data.definitions[name].name, f"#definition-{name}")


def check_table(data: ReportData, checks: Sequence[Check], name: str, caption: str) -> Table:
    """Return checks as a table: each leads to its section, and its meaning to the definition."""
    rows: list[list[Cell]] = [
        [
            Link(data.definitions[check.id].name, f"#section-{check.section}"),
            Mark(check.status),
            written(check.id, check.measured),
            _asked_for(check),
            (f"{check.text} ", Link("Definition", f"#definition-{check.id}")),
        ]
        for check in checks
    ]
    columns = ("Check", "Status", "Measured", "Asked for, by whom", "What it means")
    return Table(id=name, caption=caption, columns=columns, rows=rows, numeric=(2,))


def _asked_for(check: Check) -> str:
    """Write what is asked for and by whom, in short; section 3 has the sources in full."""
    if not check.threshold.measured:
        return "–"
    asked, source = written(check.id, check.threshold), check.source.partition(":")[0]
    return f"{asked} ({source})" if source else asked


def run_link(where: str, address: str | None) -> str | Link:
    """Return a run id, or one explanation of it as ``run/step``; a link where the server's address is known."""
    if address is None:
        return where
    return Link(where, f"{address.rstrip('/')}/#/runs/{where.partition('/')[0]}")


def metric_table(data: ReportData, names: Iterable[str], name: str, caption: str, note: str = "") -> Table:
    """Return figures as a table; what was not measured is there and says so."""
    found: Mapping[str, Metric] = {metric.id: metric for metric in data.metrics}
    rows: list[list[Cell]] = []
    for one in names:
        if one not in found:
            continue
        amount = found[one].amount
        over = "–" if amount.n is None else f"{amount.n:,}"
        rows.append([named(data, one), written(one, amount), over, found[one].method or "–"])
    columns = ("Figure", "Value", "Over", "How")
    return Table(id=name, caption=caption, columns=columns, rows=rows, numeric=(1, 2), note=note)


def distribution(data: ReportData, name: str) -> Distribution | None:
    """Return a distribution, if the report has it."""
    return next((found for found in data.distributions if found.id == name), None)


def text_or(value: object, otherwise: str) -> str:
    """Return a text, or what is said where there is none."""
    return otherwise if value is None or value == "" else str(value)


def yes_no(value: object) -> str:
    """Write a flag that may be unknown."""
    return "not known" if value is None else ("yes" if value else "no")
