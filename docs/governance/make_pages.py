"""Write definitions.md and controls.md from what reports are made with; ``--check`` compares
instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from cfk_plugin.report.data import Definition
from cfk_plugin.report.statements import GROUPS, controls

HERE = Path(__file__).resolve().parent

DEFINITIONS = """\
# Definitions

What every figure, check, attack and chart of a privacy report is, and what it does not say. The JSON of each report
has the same texts for what is in it, annex B the formulas of the main ones. How figures are computed, in detail:
[metrics](../reference/metrics.md) and [audits](../reference/audits.md).

Signs: *D* is the training population with rows x_i, *Q* its quasi-identifiers, *f* the model, *c\\** the desired
outcome. A release *r* is a region *R* with released private values s_r; *E(r)* are the people of *D* whose
quasi-identifiers are in *R*, counted as distinct people where a subject key is declared.
"""

CONTROLS = """\
# Control map

Which rules and standards ask for something that a privacy report holds, and where it stands there; the JSON of
each report has the same. **This is no legal advice, and no claim that a rule is met.** Rules change: every entry says
how it was looked up and when. Have counsel check what you rely on.

*Verified*: "text" means that the rule itself or an official page was read; "secondary sources" that notes about it
were; "recalled" that it was written down from memory.
"""


def escaped(text: str) -> str:
    """Return a text as a cell of a Markdown table shows it."""
    return text.replace("|", r"\|").replace("*", r"\*")


def described(name: str, found: Definition) -> str:
    """Return one definition as a heading and a table."""
    rows = {
        "Name": found.name,
        "Formula": found.formula,
        "Range, direction": f"{found.range}; {found.direction}",
        "Source": found.source,
        "Does not say": found.does_not_say,
    }
    lines = [
        f"### {name}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {title} | {escaped(text)} |" for title, text in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def definitions_page() -> str:
    """Return definitions.md."""
    parts = [DEFINITIONS]
    for title, entries in GROUPS.items():
        parts += [f"## {title}\n", *(described(name, found) for name, found in entries.items())]
    return "\n".join(parts)


def controls_page() -> str:
    """Return controls.md."""
    titles = {
        "control": "Control",
        "requires": "Asks for",
        "section": "Section",
        "status": "Status of its text",
        "verified": "Verified",
        "checked_on": "Checked",
    }
    rows = [[escaped(entry[key]) for key in titles] for entry in controls()]
    lines = [
        f"| {' | '.join(cells)} |"
        for cells in (list(titles.values()), ["---"] * len(titles), *rows)
    ]
    return CONTROLS + "\n" + "\n".join(lines) + "\n"


def pages() -> Mapping[Path, str]:
    """Return what is in which page."""
    return {HERE / "definitions.md": definitions_page(), HERE / "controls.md": controls_page()}


def main() -> int:
    """Write the pages, or check them."""
    if "--check" in sys.argv[1:]:
        return (
            0
            if all(path.read_text(encoding="utf-8") == text for path, text in pages().items())
            else 1
        )
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
