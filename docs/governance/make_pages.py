"""Write docs/reference/metrics.md and controls.md from what reports are made with; ``--check``
compares instead.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from cfk_plugin.report.data import load
from cfk_plugin.report.page import SECTIONS
from cfk_plugin.report.statements import controls

HERE = Path(__file__).resolve().parent
METRICS_PAGE = HERE.parent / "reference" / "metrics.md"
CONTROLS_PAGE = HERE / "controls.md"

WIDTH = 120

METRICS = """\
# Metrics

*For a reader who has a figure in front of them: what does it measure, and which direction is better?*

Search this page for the name of the figure, as the code, the run or the report spells it (`k_min`). If you do not know
the name, start here:

| Question | Figure |
|---|---|
| How many people could an explanation be about? | [k_min](#k_min) |
| How many remain for the strongest attacker that was counted? | [k_worst_min](#k_worst_min) |
| How often does the advice work? | [pureness_mean](#pureness_mean), [true_rate](#true_rate) |
| How vague is the advice? | [ncp_mean](#ncp_mean) |
| How many requests get no explanation? | [withheld_rate](#withheld_rate) |
| Does the explainer copy training rows? | [native_rate](#native_rate) |
| What does a check of a report mean? | [Checks](#checks) |

Every entry has a formula, a range and a source. In square brackets, ↑ means that higher is better, and ↓ that lower is better. An
entry without a source has that of the entry above it, or is a count or a definition of our own. *Where* names functions of
`cfk_plugin.metrics` and other places.

`Explanations.summary()` has many of the figures, over the explanations of one call. `Certificate` and `RegionRecount` have
those of one release, without `_min`, `_mean` or `_max`. A report computes them over the logged runs, and its JSON also says what each
does not show.

Signs: *D* is the training population with rows x_i, *f* the model, *c\\** the desired outcome. A release *r* is a region
*R* (one range or set per quasi-identifier) with private values s_r. *E(r)* are the people of *D* whose quasi-identifiers
are in *R*: distinct people if the schema has a `subject`, rows otherwise. Figures with *r* are taken over all releases.
"""

INTERVALS = """\
## Intervals

All intervals are two-sided, at 95 % unless another level is given. An `Estimate` has `value`, `low`, `high`, and `n`, the
number of cases.

* **Clopper–Pearson**, `clopper_pearson`, for sampled pureness: quantiles of the beta distribution. Without a failure in
  m draws, the lower end is (α/2)^(1/m).
* **Wilson**, `wilson`, for attack rates and shares withheld: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n).
* **Percentile bootstrap**, `bootstrap`, for means and groups: quantiles of the figure over resamples. It says little for
  few values.
* **Area under a ROC curve**, `auc_interval`, for [membership](audits.md#membership): the outer ends of DeLong's interval
  on the logit scale and Newcombe's method 5. It does not cover other trainings.
* **Balanced accuracy**, `balanced_interval`, for [membership](audits.md#membership): p ± √((p₁ − l₁)² + (p₂ − l₂)²) / 2,
  with the Clopper–Pearson ends l. The threshold must be chosen on other people.
"""

GROUPS = {
    "Checks": """\
A check compares a figure with a threshold. It gives *pass*, *review* (a person has to decide) or *fail*, or *not measured*
if there is nothing to judge. A check has the source of the figure that it judges. Some checks have the name of a figure
above: `k_min`, `k_desired_min`, `k_consistent_min` and `k_effective_min` must be at least k, `untracked` must be 0, and the
interval of each `group_gap` must be inside the tolerance, with a group for every explanation.
""",
    "Attacks": """\
Success rates of attacks. [Audits](audits.md) describes what each attacker knows and does. An attack that does not work is
no evidence of protection.
""",
}
"""Group to the paragraph below its heading."""

CONTROLS = """\
# Control map

*For a data protection officer or an auditor: which section of a privacy report helps with which rule or standard?*

Each row names a rule or a standard, what it asks for, and the sections of the [privacy report](index.md) with evidence for
a part of it. Whether that is enough is your decision. *Note* begins a remark about the report that is not part of the rule.

**This is not legal advice, and it does not claim that a rule is met.** Rules change. Have counsel check every row that you
rely on. The map has no rows for recital 26, Art. 25 and Art. 35 of the GDPR (identifiable persons, data protection by
design, impact assessment): they concern your whole processing.

The last column says what was read for the row, and when:

* *text*: the rule itself, or an official page about it.
* *abstract*: the abstract of a standard that is sold.
* *secondary sources*: notes about the rule, such as those of law firms. Read the rule itself.
* *recalled*: nothing. The author wrote the row from memory.

If this is a link, it leads to the page that was read, in a stored copy that may be older than the date next to it. The link
*published* says where the rule is, and was not opened.

A report says how many rows were checked more than a year before its own date. Its JSON has the same rows under `controls`.

Sections: {sections}. *checks* is the first page with the checks, and *answers* is "Answers and remaining risks".
"""

UNNUMBERED = {"0": "checks", "12": "answers"}
"""Sections whose number the report does not show, by number."""

NUMBERED = [str(number) for number in range(1, 14) if str(number) not in UNNUMBERED]

REGIONS = {
    "European Union": ("GDPR", "CJEU", "EU AI Act", "Article 29", "WP216", "EDPB", "EMA"),
    "United States": (
        *("CMS", "HIPAA", "SR ", "ECOA", "Regulation B", "CFPB"),
        *("Colorado", "California"),
    ),
    "Standards and frameworks": ("ISO", "NIST", "Model cards"),
}
"""Heading to the beginnings of the names of its rules."""

ENDED = "No longer in force"
"""Heading of the rules that were rescinded or withdrawn, wherever they are from."""


def escaped(text: str) -> str:
    """Return a text as a cell of a Markdown table shows it."""
    return text.replace("|", r"\|").replace("*", r"\*")


NAME = r"[^\W\d_]+(?: [A-Z][^\W\d_]+)?"
AUTHORS = re.compile(rf"((?:{NAME}, )+{NAME}) \((\d{{4}})\)")
"""The authors and the year of a publication with two authors or more."""


def cited(source: str) -> str:
    """Return a source with the first author only, of three or more."""

    def shortened(found: re.Match[str]) -> str:
        first, *others = found[1].split(", ")
        return found[0] if len(others) == 1 else f"{first} and others ({found[2]})"

    return AUTHORS.sub(shortened, source)


PLAIN = (
    *("baseline", "calibrated", "count", "measured", "own definition", "recount"),
    *("the privacy accountant", "the protector", "the recount", "the smallest"),
)
"""Beginnings of sources that are no publication; the page says so once, in its first lines."""


def described(
    name: str, entry: Mapping[str, str], twin: str | None, *, repeats_source: bool
) -> str:
    """Return one definition as a heading and paragraphs.

    `twin` is the name of an earlier entry with the same formula. `repeats_source` is true if the
    entry before has the same source.
    """
    title = entry["name"]
    lines = [f"### {name}", ""]
    if twin is not None:
        return "\n".join([*lines, f"**{title}**: as [{twin}](#{twin}).", ""])
    source = f"*Source:* {cited(entry['source'])}."
    if repeats_source or entry["source"].startswith(PLAIN):
        source = ""
    if entry["formula"].startswith("pass: "):
        statuses = [part.split(": ", 1) for part in STATUS.split(entry["formula"])]
        lines += [f"**{title}**", "", *(f"* *{status}*: {rule}." for status, rule in statuses)]
    else:
        where = f"*Where:* {entry['where']}." if "where" in entry else ""
        formula = entry["formula"].partition("; the check")[0]
        formula = f"**{title}**: {spelled(formula)} [{values_of(entry)}]."
        lines += [" ".join(part for part in (formula, where, source) if part)]
    if "remarks" in entry:
        lines += ["", entry["remarks"].rstrip()]
    return "\n".join(wrapped(line) for line in lines) + "\n"


ARROWS = {"higher is better": "↑ ", "lower is better": "↓ ", "no direction": ""}


def values_of(entry: Mapping[str, str]) -> str:
    """Return range and direction of a figure, the direction as an arrow if it is a plain one."""
    direction, values = entry["direction"], entry["range"]
    for words, arrow in ARROWS.items():
        if direction.startswith(words):
            return f"{arrow}{values}{direction.removeprefix(words)}"
    return f"{values}; {direction}"


STATUS = re.compile(r"; (?=(?:review|fail): )")


def spelled(text: str) -> str:
    """Return a text in which no sign means anything to Markdown."""
    return text.replace("*", r"\*")


def wrapped(line: str) -> str:
    """Return a line, broken where it is too long to read in an editor."""
    if len(line) <= WIDTH or "\n" in line:
        return line
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(
        line,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def metrics_page() -> str:
    """Return metrics.md."""
    parts = [METRICS]
    for title, entries in load("definitions").items():
        parts.append(f"## {title}\n")
        if title in GROUPS:
            parts.append(GROUPS[title])
        first_with: dict[str, str] = {}
        source = ""
        for name, entry in entries.items():
            first = first_with.setdefault(entry["formula"], name)
            twin = None if first == name else first
            repeats_source = entry["source"] == source
            parts.append(described(name, entry, twin, repeats_source=repeats_source))
            source = entry["source"]
    return "\n".join([*parts, INTERVALS])


def controls_page() -> str:
    """Return controls.md."""
    numbered = [f"{number} {title}" for number, title in SECTIONS.items() if number in NUMBERED]
    under: dict[str, list[str]] = {heading: [] for heading in (*REGIONS, ENDED)}
    for entry in controls():
        numbers = entry["section"].split(", ")
        sections = ", ".join(UNNUMBERED.get(number, number) for number in numbers)
        cells = [
            escaped(entry["control"]),
            escaped(entry["requires"]),
            sections,
            escaped(entry["status"]),
            checked(entry),
        ]
        under[heading_of(entry)].append(f"| {' | '.join(cells)} |")
    titles = ["Rule or standard", "It asks for", "Sections", "Status", "Checked"]
    head = [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles))]
    parts = ["\n".join([f"## {name}\n", *head, *rows]) for name, rows in under.items()]
    introduction = CONTROLS.format(sections="; ".join(numbered))
    return introduction + "\n" + "\n\n".join(parts) + "\n"


def heading_of(entry: Mapping[str, str]) -> str:
    """Return the heading below which an entry of the control map stands."""
    if entry["status"].startswith(("rescinded", "withdrawn")):
        return ENDED
    (heading,) = (name for name, begins in REGIONS.items() if entry["control"].startswith(begins))
    return heading


def checked(entry: Mapping[str, str]) -> str:
    """Return what was read for an entry and when; only an entry with a day links to what was
    read.
    """
    how, _, _ = entry["verified"].partition(",")
    if len(entry["checked_on"]) > len("2026-11"):
        return f"[{how}]({entry['source']}), {entry['checked_on']}"
    return f"{how}, {entry['checked_on']}; [published]({entry['source']})"


def pages() -> Mapping[Path, str]:
    """Return what is in which page."""
    return {METRICS_PAGE: metrics_page(), CONTROLS_PAGE: controls_page()}


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
