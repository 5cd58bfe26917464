"""Sections 12 and 13: limits, open questions and signatures, and how to make the report again."""

from __future__ import annotations

from cfk_plugin.report.data import ReportData
from cfk_plugin.report.rendering.composing.front import answers
from cfk_plugin.report.rendering.composing.parts import run_link
from cfk_plugin.report.rendering.document import Block, Bullets, Cell, Open, Paragraph, Section, Table

_OPEN = "open"


def closing_sections(data: ReportData, address: str | None) -> tuple[Section, ...]:
    """Return sections 12 and 13."""
    return _limits(data), _reproducibility(data, address)


def _limits(data: ReportData) -> Section:
    blocks: list[Block] = [
        Paragraph("What stays unprotected, and what the figures assume:"),
        Bullets(tuple(data.limits)),
    ]
    blocks += answers(data, 12)
    elsewhere: list[Block] = [Open(p.question, p.role) for p in data.placeholders if p.section not in (1, 3, 12)]
    rows: list[list[Cell]] = [[str(s["role"]), s["name"] or _OPEN, s["date"] or _OPEN] for s in data.sign_off]
    signed = Table(
        id="table-sign-off",
        caption="Signatures",
        columns=("Role", "Name", "Date"),
        rows=rows,
        note="People sign; the tool never does.",
    )
    return Section(
        id="section-12", number="12", title="Limits, assumptions, sign-off", blocks=[*blocks, *elsewhere, signed]
    )


def _reproducibility(data: ReportData, address: str | None) -> Section:
    rows: list[list[Cell]] = [
        ["Report", str(data.report["id"])],
        ["Command", str(data.report["command"] or "not in this edition")],
        ["Latest evidence", str(data.report["as_of"] or "none")],
        ["Clock", "the times in the records; the report has none of its own"],
        ["Fingerprint of the population", str(data.population["fingerprint"] or "not on record")],
        ["Seed", ", ".join(data.policy["seed"]) or "not on record"],
        ["Python", str(data.environment["python"] or "not on record")],
        ["Packages", _versions(data)],
        ["Plugins", ", ".join(data.environment["plugins"]) or "not on record"],
    ]
    table = Table(id="table-made", caption="How this report was made", columns=("What", "Value"), rows=rows)
    blocks: list[Block] = [table, *_runs(data, address), *_hidden(data)]
    return Section(id="section-13", number="13", title="Reproducibility", blocks=blocks)


def _versions(data: ReportData) -> str:
    return (
        ", ".join(f"{name} {version}" for name, version in sorted(data.environment["packages"].items()))
        or "not on record"
    )


def _runs(data: ReportData, address: str | None) -> list[Block]:
    if not data.runs:
        return [Paragraph("Runs are not named in this edition.")]
    rows: list[list[Cell]] = [
        [
            run_link(str(run["run"]), address),
            str(run["name"] or "–"),
            str(run["experiment"]),
            str(run["started"]),
            f"{run['asked']:,}",
            ", ".join(run["audits"]) or "–",
        ]
        for run in data.runs
    ]
    columns = ("Run", "Name", "Experiment", "Started", "Explanations", "Audits")
    return [
        Table(id="table-runs", caption="Runs that this report is made from", columns=columns, rows=rows, numeric=(4,))
    ]


def _hidden(data: ReportData) -> list[Block]:
    if not data.suppressed_cells:
        return [Paragraph("Nothing had to be hidden in this report.")]
    number = len(data.suppressed_cells)
    return [
        Paragraph(
            f"Disclosure control of this report hides {number} {'place' if number == 1 else 'places'}; counts of 1 to "
            "10 people are never shown, nor what they could be computed from. The places are listed in the data."
        )
    ]
