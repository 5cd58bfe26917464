"""A report in a notebook's cell: verdict and checks, not the whole page."""

from __future__ import annotations

from html import escape

from cfk_plugin.report.data import Check, ReportData
from cfk_plugin.report.rendering.text import STATUS_TEXTS, kind_of, shown


def render_cell(data: ReportData) -> str:
    """Return verdict and checks as HTML without style, script or address."""
    head = "<tr><th>status</th><th>check</th><th>measured</th><th>asked</th></tr>"
    rows = "".join(_row(check) for check in data.checks)
    title = escape(str(data.report["title"]))
    return f"<p><strong>{title}: {data.verdict}</strong></p><table>{head}{rows}</table>"


def _row(check: Check) -> str:
    kind = kind_of(check.id)
    cells = (STATUS_TEXTS[check.status], check.id, shown(check.measured, kind), shown(check.threshold, kind))
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
