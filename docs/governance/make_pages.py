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
from cfk_plugin.report.statements import controls

HERE = Path(__file__).resolve().parent
METRICS_PAGE = HERE.parent / "reference" / "metrics.md"
CONTROLS_PAGE = HERE / "controls.md"

WIDTH = 120

METRICS = """\
# Metrics

*For a reader who has a figure in front of them: what does it measure, which direction is better, and what does it not
say?*

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
| Do answers survive a new model? | [still_true](#still_true) |
| What does a check of a report mean? | [Checks](#checks) |

Every entry has its formula, its direction and range, and what it does not say. *Where* names the code that returns the
figure. Functions are in `cfk_plugin.metrics` unless the entry says otherwise. *The summary* is
`Explanations.summary()`, over the explanations of one call. A report uses the same formulas over the logged runs. A
`Certificate` holds the figures of one release, and a `RegionRecount` those that only the data holder may see. An entry
without a source is a plain count, a definition of this package, or has the source of an entry above it.

Signs: *D* is the training population with rows x_i, *Q* its quasi-identifiers, *f* the model, *c\\** the desired
outcome. A release *r* is a region *R* (one range or set per quasi-identifier) with released private values s_r. *E(r)*
are the people of *D* whose quasi-identifiers are in *R*, counted as distinct people if a subject key is declared. Every
statement holds for this population and these quasi-identifiers.
"""

INTERVALS = """\
## Intervals

All intervals are two-sided at 95 % unless another level is given. An `Estimate` is a figure with its interval: `value`,
`low`, `high`, and `n`, the number of cases.

* **Clopper–Pearson**, `clopper_pearson`, for sampled pureness: quantiles of the beta distribution. Without a failure in
  m draws, the lower end is (α/2)^(1/m). It is wider than necessary for draws without replacement.
* **Wilson**, `wilson`, for attack rates and shares withheld: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n). Its
  coverage is approximate.
* **Percentile bootstrap**, `bootstrap`, for means and groups: quantiles of the figure over resamples. It says little for
  samples of a few values.
* **Area under a ROC curve**, `auc_interval`, for [membership](audits.md#membership): the outer ends of DeLong's interval
  on the logit scale and Newcombe's method 5. It does not cover other trainings.
* **Balanced accuracy**, `balanced_interval`, for [membership](audits.md#membership): p ± √((p₁ − l₁)² + (p₂ − l₂)²) / 2,
  with the Clopper–Pearson ends l. It is not valid if the threshold was chosen on the same people.
"""

GROUPS = {
    "Checks": """\
A check compares a figure with a threshold. It gives *pass*, *review* (a person has to decide) or *fail*, or *not measured*
if there is nothing to judge. A figure and a check with the same name, such as `k_min`, share one entry above.
""",
    "Attacks": """\
[Audits](audits.md) describes what each attacker knows and does. Here are the success rates that reports show.
""",
}
"""Group to the paragraph below its heading."""

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


NAME = r"[^\W\d_]+(?: [A-Z][^\W\d_]+)?"
AUTHORS = re.compile(rf"((?:{NAME}, )+{NAME}) \((\d{{4}})\)")
"""The authors and the year of a publication with two authors or more."""


def cited(source: str) -> str:
    """Return a source with the first author only, of three or more."""

    def shortened(found: re.Match[str]) -> str:
        first, *others = found[1].split(", ")
        return found[0] if len(others) == 1 else f"{first} and others ({found[2]})"

    return AUTHORS.sub(shortened, source)


PLAIN = ("count ", "counted ", "own definition")
"""Beginnings of sources that the page says once, in its first lines."""


def described(
    name: str, entry: Mapping[str, str], like: str | None, formula: str, *, has_source: bool
) -> str:
    """Return one definition as a heading, a list and remarks.

    `like` is the name of an earlier entry, with that `formula`, from which this one differs in
    name or formula alone. `has_source` is false if an earlier entry of the group has the source.
    """
    is_check = entry["formula"].startswith("pass: ")
    lines = [f"### {name}", ""]
    title = entry["name"]
    if like is not None and entry["formula"] == formula:
        return "\n".join([*lines, f"**{title}**: as [{like}](#{like}).", ""])
    if is_check:
        lines += [f"**{title}**", ""]
        lines += [
            "* *{}*: {}.".format(*part.split(": ", 1)) for part in STATUS.split(entry["formula"])
        ]
    else:
        lines += [f"**{title}**: {spelled(entry['formula'])}.", ""]
    if like is not None:
        lines += [f"* Otherwise as [{like}](#{like})."]
    else:
        if not is_check:
            lines += [f"* {sentence(spelled(entry['direction']))} ({spelled(entry['range'])})."]
        lines += [f"* *Does not say* {spelled(entry['does_not_say'])}"]
    if "where" in entry:
        lines += [f"* *Where:* {entry['where']}."]
    if has_source:
        lines += [f"* *Source:* {spelled(cited(entry['source']))}."]
    if "remarks" in entry:
        lines += ["", entry["remarks"].rstrip()]
    return "\n".join(wrapped(line) for line in lines) + "\n"


STATUS = re.compile(r"; (?=(?:review|fail): )")


def spelled(text: str) -> str:
    """Return a text in which no sign means anything to Markdown."""
    return text.replace("*", r"\*")


def sentence(text: str) -> str:
    """Return a text with a capital letter."""
    return text[0].upper() + text[1:]


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


SHARED = ("range", "direction", "source", "does_not_say")


def metrics_page() -> str:
    """Return metrics.md."""
    parts = [METRICS]
    for title, entries in load("definitions").items():
        parts.append(f"## {title}\n")
        if title in GROUPS:
            parts.append(GROUPS[title])
        first_with: dict[tuple[str, ...], str] = {}
        named: set[str] = set()  # sources that the group has named
        for name, entry in entries.items():
            shared = tuple(entry[part] for part in SHARED)
            like = first_with.get(shared)
            first_with.setdefault(shared, name)
            formula = "" if like is None else entries[like]["formula"]
            source = entry["source"]
            has_source = source not in named and not source.startswith(PLAIN)
            named.add(source)
            parts.append(described(name, entry, like, formula, has_source=has_source))
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
