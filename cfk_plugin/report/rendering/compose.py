"""From report data to document: what stands where, before anything is said of HTML or Markdown."""

from __future__ import annotations

from cfk_plugin.report.data import ReportData
from cfk_plugin.report.rendering.composing.annexes import annexes
from cfk_plugin.report.rendering.composing.attacks import attack_sections
from cfk_plugin.report.rendering.composing.closing import closing_sections
from cfk_plugin.report.rendering.composing.front import front_sections
from cfk_plugin.report.rendering.composing.quality import quality_sections
from cfk_plugin.report.rendering.composing.releases import release_sections
from cfk_plugin.report.rendering.document import Document, Section
from cfk_plugin.report.rendering.text import shown


def compose(data: ReportData, *, address: str | None = None) -> Document:
    """Lay a report out.

    Parameters
    ----------
    data : ReportData
    address : str, optional
        Address of the tracking server, with which run ids become links. Without it they are text.

    Returns
    -------
    Document
        A pure function of the arguments.
    """
    sections = [
        *front_sections(data, address),
        *release_sections(data),
        *quality_sections(data),
        *attack_sections(data),
        *closing_sections(data, address),
        *annexes(data),
    ]
    return Document(
        title=str(data.report["title"]),
        edition=data.report["edition"],
        verdict=data.verdict,
        headline=_headline(data),
        not_covered=tuple(data.report["not_covered"]),
        facts=_facts(data),
        sections=sorted(sections, key=_place),
        data=data.to_json(),
    )


def _place(section: Section) -> tuple[bool, int, str]:
    number = section.number
    return (not number.isdigit(), int(number) if number.isdigit() else 0, number)


def _headline(data: ReportData) -> str:
    counts = {
        status: sum(check.status == status for check in data.checks) for status in ("fail", "review", "not_measured")
    }
    said = {"fail": "failed", "review": "need a decision", "not_measured": "were not measured"}
    found = [f"{count} {said[status]}" for status, count in counts.items() if count]
    number = len(data.checks)
    if not found:
        return f"All {number} checks passed."
    failed = [data.definitions[check.id].name for check in data.checks if check.status == "fail"]
    named = f" Failed: {'; '.join(failed)}." if failed else ""
    return f"Of {number} checks, {', '.join(found)}.{named}"


def _facts(data: ReportData) -> tuple[tuple[str, str], ...]:
    period, released = data.report["period"], data.releases
    first, last = (str(period[name] or "")[:10] for name in ("first", "last"))
    wanted = (
        " to ".join(str(period[name] or "…")[:10] for name in ("since", "until"))
        if period["since"] or period["until"]
        else ""
    )
    facts = [
        ("Explanations", f"{first} to {last}" if first else "none in the period"),
        ("Period asked for", wanted),
        ("Asked, released", f"{shown(released['asked'], 'count')}, {shown(released['released'], 'count')}"),
        ("As of", str(data.report["as_of"] or "")),
        ("Why this report", str(data.report["reason"] or "")),
        ("Report", str(data.report["id"])),
    ]
    return tuple((name, text) for name, text in facts if text)
