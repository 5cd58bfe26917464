"""Annexes: certificates, definitions, and the control map."""

from __future__ import annotations

from cfk_plugin.report.data import Definition, ReportData
from cfk_plugin.report.rendering.document import Block, Cell, Folded, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown


def annexes(data: ReportData) -> tuple[Section, ...]:
    """Return annexes A to C."""
    return _certificates(data), _definitions(data), _controls(data)


def _certificates(data: ReportData) -> Section:
    title = "Certificates"
    if not data.certificates:
        text = "Certificates of single releases are not in this edition, or no region was released."
        return Section(id="section-A", number="A", title=title, blocks=(Paragraph(text),))
    rows: list[list[Cell]] = [
        [str(c["id"]), shown(c["k"], "count"), shown(c["ncp"]), shown(c["pureness"]), str(c["optimality"])]
        for c in data.certificates
    ]
    table = Table(
        id="table-certificates",
        caption="The releases with the fewest people and the lowest pureness",
        columns=("Run and step", "k", "NCP", "Pureness", "Optimality"),
        rows=rows,
        numeric=(1, 2, 3),
        note="All others are in the runs: cfk/explanations. No value of an attribute is shown here.",
    )
    return Section(id="section-A", number="A", title=title, blocks=(Folded(f"{len(rows)} certificates", (table,)),))


def _definitions(data: ReportData) -> Section:
    blocks: list[Block] = [
        Paragraph("Every figure and check of this report: how it is computed, and what it does not say.")
    ]
    blocks += [_definition(name, found) for name, found in data.definitions.items()]
    return Section(id="section-B", number="B", title="Definitions", blocks=blocks)


def _definition(name: str, found: Definition) -> Block:
    rows: list[list[Cell]] = [
        ["Formula", found.formula],
        ["Range", f"{found.range}; {found.direction}"],
        ["Source", found.source],
        ["Does not say", found.does_not_say],
    ]
    return Table(id=f"definition-{name}", caption=f"{found.name} ({name})", columns=("", ""), rows=rows)


def _controls(data: ReportData) -> Section:
    rows: list[list[Cell]] = [
        [
            str(c["control"]),
            str(c["requires"]),
            str(c["section"]),
            str(c["status"]),
            str(c["verified"]),
            str(c["checked_on"]),
        ]
        for c in data.controls
    ]
    columns = ("Source", "What it asks that touches this", "Section", "Status", "How that was verified", "Checked")
    text = "Where each rule is answered. This is no legal advice, and the report claims no compliance with any of them."
    table = Table(id="table-controls", caption="Control map", columns=columns, rows=rows)
    return Section(id="section-C", number="C", title="Control map", blocks=(Paragraph(text), table))
