"""Write docs/reference/metrics.md and controls.md from what reports are made with; ``--check``
compares instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from cfk_plugin.report.data import load
from cfk_plugin.report.statements import controls

HERE = Path(__file__).resolve().parent
METRICS_PAGE = HERE.parent / "reference" / "metrics.md"
CONTROLS_PAGE = HERE / "controls.md"

METRICS = """\
# Metrics

What every figure, check, attack and chart is, which direction is better, where it comes from, and what it does not
say. The JSON of a privacy report has the same texts for what is in it, annex B the formulas of the main ones. Attacks
are described in detail under [audits](audits.md).

*Where* names what holds a figure. Functions are in `cfk_plugin.metrics` unless said otherwise, and can be used alone, on
plain inputs. The summary is `Explanations.summary()`, which is over the explanations of one call; a report is over those
of the logged runs. A `Certificate` and, for the data holder, a `RegionRecount` have the figures of one release.

Signs: *D* is the training population with rows x_i, *Q* its quasi-identifiers, *f* the model, *c\\** the desired
outcome. A release *r* is a region *R* (one range or set per quasi-identifier) with released private values s_r; *E(r)*
are the people of *D* whose quasi-identifiers are in *R*, counted as distinct people where a subject key is declared. They
are counted in the region that is released, not among the rows that a search happened to use. All statements are relative
to this population and these quasi-identifiers.
"""

INTERVALS = """\
## Intervals

| | Formula | Used for | Does not say |
|---|---|---|---|
| Clopper–Pearson | Beta quantiles; without failures (α/2)^(1/m) | sampled pureness | anything when draws are not random; conservative without replacement |
| Wilson | (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) | attack rates, shares withheld | exact coverage |
| Percentile bootstrap | quantiles of the statistic over resamples | means, groups | much, for samples of a few values |
| Area under a ROC curve | the outer ends of DeLong's, on the logit scale, and Newcombe's method 5 | [membership](audits.md#membership) | anything of other trainings |
| Balanced accuracy | p ± √((p₁ − l₁)² + (p₂ − l₂)²) / 2, l the Clopper–Pearson ends | [membership](audits.md#membership) | anything where the threshold was chosen on the same people |

All are two-sided at 95 % unless given, and made by `clopper_pearson`, `wilson`, `bootstrap`, `auc_interval` and
`balanced_interval`. An `Estimate` is a figure with its interval: `value`, `low`, `high`, and `n`, the number of cases.
"""

CONTROLS = """\
# Control map

*For a data protection officer or an auditor: which section of a privacy report helps with which rule or standard?*

Each row names a rule or a standard, what it asks for, and the sections of the [privacy report](index.md) that help to answer
it. The JSON of every report holds the same rows under `controls`.

**This is not legal advice, and it does not claim that a rule is met.** Rules change. Have counsel check every row that you
rely on.

The last column says how and when the row was checked:

* *text*: the rule itself or an official page was read.
* *abstract*: the abstract of a standard was read, not the standard.
* *secondary sources*: notes about the rule were read, such as those of law firms.
* *recalled*: the row was written from memory.

If the date is a day, the link leads to a page that was read for this row, in a stored copy that may be older than that day.
If the date is a month, the row was checked in that month from other notes. The link only says where the rule is published.

A report says how many rows were checked more than a year before its own date. `make dates` says the same for today. To
correct a row, edit `cfk_plugin/report/texts/controls.yaml`, set its `checked_on`, and run
`python docs/governance/make_pages.py`.
"""


def escaped(text: str) -> str:
    """Return a text as a cell of a Markdown table shows it."""
    return text.replace("|", r"\|").replace("*", r"\*")


def described(name: str, entry: Mapping[str, str], like: str | None, formula: str) -> str:
    """Return one definition as a heading, a table and remarks.

    `like` is the name of an earlier entry, with that `formula`, from which this one differs in
    name or formula alone.
    """
    rows = {"Name": entry["name"]}
    if like is None or entry["formula"] != formula:
        rows["Formula"] = entry["formula"]
    if like is None:
        rows["Range, direction"] = f"{entry['range']}; {entry['direction']}"
        rows["Source"] = entry["source"]
    if "where" in entry:
        rows["Where"] = entry["where"]
    if like is None:
        rows["Does not say"] = entry["does_not_say"]
    else:
        rows["Otherwise"] = f"as [{like}](#{like})"
    lines = [f"### {name}", "", "| | |", "|---|---|"]
    lines += [f"| {title} | {escaped(text)} |" for title, text in rows.items()]
    if "remarks" in entry:
        lines += ["", entry["remarks"].rstrip()]
    return "\n".join(lines) + "\n"


SHARED = ("range", "direction", "source", "does_not_say")


def metrics_page() -> str:
    """Return metrics.md."""
    parts = [METRICS]
    for title, entries in load("definitions").items():
        parts.append(f"## {title}\n")
        first_with: dict[tuple[str, ...], str] = {}
        for name, entry in entries.items():
            shared = tuple(entry[part] for part in SHARED)
            like = first_with.get(shared)
            first_with.setdefault(shared, name)
            formula = "" if like is None else entries[like]["formula"]
            parts.append(described(name, entry, like, formula))
    return "\n".join([*parts, INTERVALS])


def controls_page() -> str:
    """Return controls.md."""
    titles = ["Rule or standard", "It asks for", "Section", "Status", "Checked"]
    rows = [
        [
            escaped(entry["control"]),
            escaped(entry["requires"]),
            entry["section"],
            escaped(entry["status"]),
            f"[{entry['verified']}]({entry['source']}), {entry['checked_on']}",
        ]
        for entry in controls()
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]
    return CONTROLS + "\n" + "\n".join(lines) + "\n"


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
