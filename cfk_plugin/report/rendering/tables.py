"""The checks of a report as CSV, for a spreadsheet."""

from __future__ import annotations

import csv
import io

from cfk_plugin.report.data import Amount, Check, ReportData
from cfk_plugin.report.rendering.escaping import csv_cell

COLUMNS = ("id", "status", "value", "low", "high", "band", "threshold", "source", "section", "text")
"""Columns of the CSV."""


def render_csv(data: ReportData) -> str:
    """Write one line per check, in the order of the report, under a line of names.

    Parameters
    ----------
    data : ReportData

    Returns
    -------
    str
        CSV as RFC 4180 has it, with lines that end in CRLF. Numbers have all their digits, what was not measured is
        empty, and a text that a spreadsheet would take for a formula begins with an apostrophe. Evidence is not in it.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\r\n")
    lines.writerow(COLUMNS)
    lines.writerows(_line(check) for check in data.checks)
    return text.getvalue()


def _line(check: Check) -> tuple[str, ...]:
    measured = check.measured
    return (
        csv_cell(check.id),
        check.status,
        # Where only a band may be shown, no number is.
        *(_number(each if measured.band is None else None) for each in (measured.value, measured.low, measured.high)),
        csv_cell(measured.band or ""),
        _threshold(check.threshold),
        csv_cell(check.source),
        str(check.section),
        csv_cell(check.text),
    )


def _threshold(amount: Amount) -> str:
    return csv_cell(amount.band) if amount.band is not None else _number(amount.value)


def _number(value: float | None) -> str:
    return "" if value is None else str(value)
