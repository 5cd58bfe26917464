"""Tables of explanations: for the recipient, for the data holder, for print and for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from cfk_plugin.data.display import marked
from cfk_plugin.data.region import Interval, Part, part_of, part_to_text, sorted_values
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.release.certificate import figure_as_text
from cfk_plugin.release.results import (
    Explanation,
    GeneralizedCounterfactual,
    PrototypeCounterfactual,
    Released,
    Withheld,
)

_STATES = ("query", "status", "reason")
_FIGURES = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
_PRINTED_FIRST = ("query", "status", "reason", "k", "ncp", "pureness")
_FIRST_OR_NOT_PRINTED = (*_PRINTED_FIRST, "pureness_low", "pureness_high")


def table_of(
    explanations: Sequence[Explanation],
    columns: Sequence[str],
    ranges: Collection[str],
    index: pd.Index | None,
) -> pd.DataFrame:
    """Return one row per explanation: status, features as values, figures.

    Parameters
    ----------
    explanations : sequence of Explanation
    columns : sequence of str
        The features.
    ranges : collection of str
        The features with a low and a high end; the others have sets of values.
    index : Index, optional
        The label of each row.
    """
    rows = []
    for explanation in explanations:
        row = {"reason": None} | explanation.row(())
        if not isinstance(explanation, Withheld):
            row |= _values(explanation, ranges)
        rows.append(row)
    title_of_key = {name: name for name in _STATES}
    for name in columns:
        for part in ("low", "high", "value") if name in ranges else ("set", "value"):
            title = f"{name}_{part}"
            key = f"feature.{title}"
            title_of_key[key] = key if title in _FIGURES else title
    title_of_key |= {name: name for name in _FIGURES}
    table = pd.DataFrame(rows, index=index, columns=list(title_of_key))
    return table.set_axis(list(title_of_key.values()), axis=1)


def _values(explanation: Released, ranges: Collection[str]) -> dict[str, Any]:
    """Return the cells of the features. Without missing cells, columns of numbers stay numeric."""
    cells: dict[str, Any] = {}
    point = explanation.point()
    for name, part in explanation.parts().items():
        members = _members(part)
        if name in ranges:
            cells[f"feature.{name}_low"] = members[0]
            cells[f"feature.{name}_high"] = members[-1]
        else:
            cells[f"feature.{name}_set"] = members
        cells[f"feature.{name}_value"] = point.get(name)
    return {key: cell for key, cell in cells.items() if cell is not None}


def _members(part: Part) -> list[Any]:
    """Return the values of a set, or the ends of a range; equal ends are returned once."""
    if not isinstance(part, Interval):
        return sorted_values(part)
    return [part.low] if part.low == part.high else [part.low, part.high]


def text_table_of(explanations: Sequence[Explanation], columns: Sequence[str]) -> pd.DataFrame:
    """Return one row per explanation: status, features as text, figures.

    A feature with the name of another column is ``feature.NAME``.
    """
    without_figures = {"reason": None, **dict.fromkeys(_FIGURES)}
    rows = []
    for explanation in explanations:
        row = explanation.row(columns)
        if isinstance(explanation, Withheld):
            rows.append(row)
        else:
            rows.append(without_figures | row)
    other_columns = {*_STATES, *_FIGURES}
    title_of_key = {name: name for name in _STATES}
    for name in columns:
        key = f"feature.{name}"
        title_of_key[key] = key if name in other_columns else name
    title_of_key |= {name: name for name in _FIGURES}
    table = pd.DataFrame(rows, columns=list(title_of_key))
    return table.set_axis(list(title_of_key.values()), axis=1)


def audit_table_of(
    explanations: Sequence[Explanation], findings: Sequence[NativeStatus | None]
) -> pd.DataFrame:
    """Return all figures and the finding of each explanation, for the data holder only."""
    rows = []
    for explanation, finding in zip(explanations, findings, strict=True):
        row: dict[str, Any] = {
            "query": explanation.query,
            "status": explanation.status,
            "finding": finding,
        }
        if isinstance(explanation, Withheld):
            row["reason"] = explanation.reason
        else:
            row |= _all_figures(explanation)
        rows.append(row)
    return pd.DataFrame(rows)


def _all_figures(
    explanation: GeneralizedCounterfactual | PrototypeCounterfactual,
) -> dict[str, Any]:
    """Return the figures of the certificate and, for a region, of the recount."""
    figures = explanation.certificate.to_dict()
    if isinstance(explanation, GeneralizedCounterfactual):
        figures |= explanation.recount.to_dict()
    return figures


def printed(table: pd.DataFrame) -> str:
    """Return a table of `text_table_of` as text: figures first, without empty columns."""
    table = table.convert_dtypes().astype(object)  # a column of k has no decimals
    figures = [name for name in _PRINTED_FIRST if table[name].notna().any()]
    features = [name for name in table.columns if name not in _FIRST_OR_NOT_PRINTED]
    table = table[[*figures, *features]]
    table = table.where(table.notna(), "")
    return table.to_string(index=False, float_format="{:.3g}".format, line_width=100)


def notebook_row(
    explanation: Explanation,
    columns: Sequence[str],
    figures: Sequence[str],
    query: Mapping[str, Any] | None,
) -> list[object]:
    """Return the cells of an explanation in a notebook's table: query, figures, features.

    `query` is None unless readers may see it. If they may, each feature that changes is marked and
    shown with the applicant's value.
    """
    if isinstance(explanation, Withheld):
        return [explanation.query, explanation.text_for_operator()]
    certificate = explanation.certificate
    row: list[object] = [explanation.query]
    row += [figure_as_text(getattr(certificate, name)) for name in figures]
    factual = {} if query is None else query
    changes = explanation.changes(factual)
    cells = explanation.cells()
    for name in columns:
        cell = cells.get(name, "")
        if name in changes:
            row.append(marked(cell, part_to_text(part_of(factual[name]))))
        else:
            row.append(cell)
    return row
