"""From report data to document: what stands where, before anything is said of HTML or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfk_plugin.report.data import Amount, Attack, Check, Distribution, Group, ReportData
from cfk_plugin.report.document import (
    Bars,
    Block,
    Bullets,
    Cell,
    Chart,
    Curves,
    Document,
    Folded,
    Intervals,
    Kind,
    Link,
    Mark,
    Open,
    Paragraph,
    Section,
    Table,
    kind_of,
    shown,
)
from cfk_plugin.report.inputs import QUESTIONS
from cfk_plugin.report.statements import BOUNDS, COIN, receiver_sentence, short


def compose(data: ReportData, *, address: str | None = None) -> Document:
    """Lay a report out; with the address of the tracking server run ids become links. A pure function of the two."""
    sections = (
        ("0", "Verdict", _verdict(data, address)),
        ("1", "Scope and release context", _scope(data)),
        ("2", "Population and schema", _population(data)),
        ("3", "Policy and method", _policy(data)),
        ("4", "Releases in the period", _releases(data)),
        ("5", "Privacy risk of a single release", _risk(data)),
        ("6", "Composition of several releases", _composition(data)),
        ("7", "Validity", _validity(data)),
        ("8", "Utility", _utility(data)),
        ("9", "Attacks", _attacks(data)),
        ("10", "Group differences", _groups(data)),
        ("11", "Differential privacy", _dp(data)),
        ("12", "Limits, assumptions, sign-off", _limits(data)),
        ("13", "Reproducibility", _reproducibility(data, address)),
        ("A", "Certificates", _certificates(data)),
        ("B", "Definitions", _definitions(data)),
        ("C", "Control map", _controls(data)),
    )
    return Document(
        title=str(data.report["title"]),
        edition=data.report["edition"],
        verdict=data.verdict,
        headline=_headline(data),
        not_covered=tuple(data.report["not_covered"]),
        facts=_facts(data),
        sections=[Section(f"section-{number}", number, title, tuple(blocks)) for number, title, blocks in sections],
        data=data.to_json(),
    )


def _headline(data: ReportData) -> str:
    statuses: list[str] = [check.status for check in data.checks]
    said = {"fail": "failed", "review": "need a decision", "not_measured": "were not measured"}
    found = [f"{count} {words}" for status, words in said.items() if (count := statuses.count(status))]
    if not found:
        return f"All {len(statuses)} checks passed."
    failed = [data.definitions[check.id].name for check in data.checks if check.status == "fail"]
    named = f" Failed: {'; '.join(failed)}." if failed else ""
    return f"Of {len(statuses)} checks, {', '.join(found)}.{named}"


def _facts(data: ReportData) -> tuple[tuple[str, str], ...]:
    period, released = data.report["period"], data.releases
    first, last, since, until = (str(period[name] or "")[:10] for name in ("first", "last", "since", "until"))
    facts = {
        "Explanations": f"{first} to {last}" if first else "none in the period",
        "Period asked for": f"{since or '…'} to {until or '…'}" if since or until else "",
        "Asked, released": f"{shown(released['asked'], 'count')}, {shown(released['released'], 'count')}",
        "As of": str(data.report["as_of"] or ""),
        "Why this report": str(data.report["reason"] or ""),
        "Report": str(data.report["id"]),
    }
    return tuple((name, text) for name, text in facts.items() if text)


# What several sections say alike.


_FIGURES: Mapping[str, tuple[str, str, str]] = {
    "raw": (
        "The explainer before protection",
        "native_rate near_native_rate native_qi_rate near_native_tolerance",
        "These rates are about raw counterfactuals, none of which left.",
    ),
    "crowd": (
        "People behind a released region",
        "k_min k_p05 k_median k_mean k_desired_min k_desired_median k_consistent_min k_effective_min",
        "",
    ),
    "risk": (
        "Risk of re-identification",
        "prosecutor_risk_max prosecutor_risk_mean journalist_risk_max marketer_risk at_risk_009 at_risk_020",
        (
            "Averages are over releases; other tools average over records or classes. Without a reference population "
            "all that can be said of the journalist risk is: at most the prosecutor risk."
        ),
    ),
    "private": (
        "What regions and private values tell besides",
        "k_private_min private_matches_min l_min t_max attribute_disclosure_max",
        "",
    ),
    "ledger": ("Several releases together", "k_intersection_min ledger_again ledger_refused", ""),
    "validity": ("Does the advice hold?", "pureness_mean pureness_min pureness_low flips", ""),
    "utility": (
        "What explanations still say",
        "ncp_mean ncp_p95 cdm cdm_per_release cm optimal_rate plausibility",
        "",
    ),
    "dp-figures": ("Budget", "epsilon delta epsilon_spent membership_bound", ""),
}
"""Tables of figures: caption, metrics in order, note."""


def _figures(data: ReportData, name: str) -> Table:
    """Return figures as a table; what was not measured is there and says so."""
    caption, metrics, note = _FIGURES[name]
    known = {metric.id: metric for metric in data.metrics}
    rows = [
        (_named(data, each), shown(of.amount, kind_of(each)), _number(of.amount.n), of.method or "–")
        for each in metrics.split()
        if (of := known.get(each))
    ]
    return Table(f"table-{name}", caption, ("Figure", "Value", "Over", "How"), rows, numeric=(1, 2), note=note)


def _named(data: ReportData, name: str) -> Link:
    """Return the name of something that is defined, as a link to its definition."""
    return Link(data.definitions[name].name, f"#definition-{name}")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _on_record(value: object, otherwise: str = "not on record") -> str:
    return otherwise if value is None or value == "" else str(value)


def _yes_no(value: object) -> str:
    return "not known" if value is None else "yes" if value else "no"


def _run_link(where: str, address: str | None) -> str | Link:
    """Return a run id, or one explanation of it as ``run/step``; a link where the server's address is known."""
    return where if address is None else Link(where, f"{address.rstrip('/')}/#/runs/{where.partition('/')[0]}")


def _answers(data: ReportData, section: int) -> Iterator[Block]:
    """Yield the answers of people to the questions of a section, open ones as such."""
    asked = [q for q in QUESTIONS.values() if q.section == section and data.system.get(q.id)]
    if asked:
        rows = [(q.question, str(data.system[q.id]), q.role) for q in asked]
        yield Table(f"table-answers-{section}", "What people said", ("Question", "Answer", "Role"), rows)
    yield from (Open(p.question, p.role) for p in data.placeholders if p.section == section)


# Charts of distributions.


_CHARTS: Mapping[str, tuple[str, str, str, str]] = {
    "class_sizes": (
        "Class sizes before and after protection",
        (
            "Share of the people by the number of people who have the same quasi-identifiers, before protection, and "
            "share of the released explanations by the number of people who fit them. Bars below k should be empty "
            "after protection."
        ),
        "People in the class",
        "share (%)",
    ),
    "risk": (
        "Releases with a prosecutor risk above a value",
        (
            "Read it so: of all released explanations, this share has a prosecutor risk above the value on the "
            "horizontal axis. The curve should be at 0 from 1 / k on."
        ),
        "prosecutor risk",
        "share of releases above it (%)",
    ),
    "intersection": (
        "People left after several releases",
        (
            "Fewest people who fit all of one, two and more releases about one record, under settings that change from "
            "release to release, as the audit found."
        ),
        "releases about one record",
        "fewest people left",
    ),
    "pureness": (
        "Pureness of all releases, sorted",
        (
            "Pureness of the released explanations, from the lowest to the highest, with the ends of the 95 % interval "
            "where it was drawn and not computed exactly."
        ),
        "share of the releases at or below (%)",
        "pureness",
    ),
    "ncp_by_attribute": (
        "Information loss by attribute",
        "Mean information loss of each quasi-identifier over the released explanations, largest first.",
        "Attribute",
        "mean NCP",
    ),
    "frontier": (
        "What a larger k costs",
        (
            "Mean information loss and mean pureness of the same counterfactuals, protected under several k: what a "
            "larger k would cost."
        ),
        "k",
        "NCP and pureness",
    ),
}
"""Charts of distributions: title, description, and the names of the axes, which say where shares are percentages."""


def _chart(data: ReportData, name: str) -> Iterator[Chart]:
    """Yield the chart of a distribution, if the report has it."""
    found = _distribution(data, name)
    if found is None:
        return
    title, description, x, y = _CHARTS[name]
    if len(found.series) == 1:
        title = title.replace("before and after", "after")
    kind: Kind = "share" if y.endswith("(%)") else "number"
    series = {
        label: tuple(_scaled(amount.value, kind) for amount in amounts) for label, amounts in found.series.items()
    }
    picture: Bars | Curves
    if name in ("class_sizes", "ncp_by_attribute"):
        texts = tuple(tuple(shown(amount, kind) for amount in amounts) for amounts in found.series.values())
        picture = Bars(found.labels, tuple(series.items()), texts, y, top=100.0 if kind == "share" else None)
    elif name == "pureness":
        lines = _points(found, _with_ends(found))
        picture = Curves(lines, x, y, horizontals=tuple(found.marks.items()))
    else:
        picture = Curves(_points(found, series), x, y, steps=name == "risk", verticals=tuple(found.marks.items()))
    table = _numbers(found, f"data-{name}", f"{title}: the numbers", x, kind, found.note)
    yield Chart(f"chart-{name}", title, description, picture, table)


def _distribution(data: ReportData, name: str) -> Distribution | None:
    return next((found for found in data.distributions if found.id == name), None)


def _numbers(found: Distribution, name: str, caption: str, heading: str, kind: Kind, note: str) -> Table:
    rows = [
        (label, *(shown(amounts[place], kind) for amounts in found.series.values()))
        for place, label in enumerate(found.labels)
    ]
    numeric = tuple(range(1, len(found.series) + 1))
    return Table(name, caption, (heading, *found.series), rows, numeric=numeric, note=note)


def _scaled(value: float | None, kind: Kind) -> float | None:
    return value if value is None or kind != "share" else 100 * value


def _points(
    found: Distribution, series: Mapping[str, Sequence[float | None]]
) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    """Return series over categories that are numbers; a category with a band alone has no point."""
    at = [float(label.rstrip(" %")) for label in found.labels]
    return tuple(
        (name, tuple((x, y) for x, y in zip(at, values, strict=True) if y is not None))
        for name, values in series.items()
    )


def _with_ends(found: Distribution) -> dict[str, list[float | None]]:
    """Return a sorted quantity and, where there are any, the two ends of its interval."""
    amounts = next(iter(found.series.values()))
    ends = {
        "upper end": [a.value if a.high is None else a.high for a in amounts],
        "pureness": [a.value for a in amounts],
        "lower end": [a.value if a.low is None else a.low for a in amounts],
    }
    exact = ends["upper end"] == ends["pureness"] == ends["lower end"]
    return {"pureness": ends["pureness"]} if exact else ends


# Section 0: the verdict.


_ORDER = ("fail", "review", "not_measured", "pass")
_MEANING = {
    "fail": "Something that the policy or this report asks for does not hold. Do not rely on the protection until it "
    "is settled.",
    "review": "No check fails. Some need a decision by people, or were not measured; unmeasured is never a pass.",
    "pass": "Everything that was asked for was measured and holds, and people have answered what only they can.",
}


def _verdict(data: ReportData, address: str | None) -> Iterator[Block]:
    checks = sorted(data.checks, key=lambda check: _ORDER.index(check.status))
    yield Paragraph(_MEANING[data.verdict])
    columns = ("Check", "Status", "Measured", "Asked for, by whom", "What it means")
    rows = [_check(data, check) for check in checks]
    yield Table("table-checks", "All checks, the ones to look at first", columns, rows, numeric=(2,))
    evidence = [
        (_named(data, check.id), _run_link(where, address))
        for check in checks
        if check.status != "pass"
        for where in check.evidence
    ]
    if evidence:
        note = "Explanations are named by run and step. At most five for each check."
        table = Table("table-evidence", "Evidence", ("Check", "Run, or run/step"), evidence, note=note)
        yield Folded("Evidence of checks that did not pass", (table,))
    if count := len(data.placeholders):
        link = Link("section 12", "#section-12")
        yield Paragraph((f"{count} questions are open that only people can answer: see ", link, "."))
    if data.changes:
        changed = [(change["what"], change["before"], change["after"]) for change in data.changes]
        yield Table("table-changes", "What changed since the earlier report", ("What", "Before", "Now"), changed)
    elif data.changes is not None:
        yield Paragraph("Nothing changed since the earlier report.")


def _check(data: ReportData, check: Check) -> tuple[Cell, ...]:
    """Return a check as a row: it leads to its section, and its meaning to the definition."""
    kind = kind_of(check.id)
    asked, source = shown(check.threshold, kind), check.source.partition(":")[0]  # section 3 has it in full
    return (
        Link(data.definitions[check.id].name, f"#section-{check.section}"),
        Mark(check.status),
        shown(check.measured, kind),
        "–" if not check.threshold.measured else f"{asked} ({source})" if source else asked,
        (f"{check.text} ", Link("Definition", f"#definition-{check.id}")),
    )


# Sections 1 to 3: what the report is about, the population, and the policy.


def _scope(data: ReportData) -> Iterator[Block]:
    yield Paragraph(
        "A counterfactual explanation can be a row of the training data, or nearly one. Whoever receives it may then "
        "learn private attributes of somebody else. This report says what was done about that, and how well it held. "
        "It is about explanations that were released, relative to one population and to the quasi-identifiers that "
        "were declared."
    )
    generators, model = ", ".join(data.policy["generators"]), data.environment.get("model")
    yield Paragraph(f"Explainers in the period: {_on_record(generators)}. Model: {_on_record(model)}.")
    if data.metric("k_min").measured:
        told = receiver_sentence(data.metric("pureness_mean").value)
        yield Paragraph(f"What may be told to the person who receives an explanation: “{told}”")
    yield from _answers(data, 1)


_PERSON = {
    None: "not on record",
    True: "distinct values of the subject key",
    False: "each row is assumed to be a person",
}


def _population(data: ReportData) -> Iterator[Block]:
    facts = data.population
    yield Paragraph(
        "All statements are relative to this population and to these quasi-identifiers. Counts are in bands."
    )
    fewer = f"People in a class of fewer than {_on_record(facts['k'], 'k')}, before protection"
    rows = [
        ("People", shown(facts["people"], "count")),
        ("Rows", shown(facts["rows"], "count")),
        ("Who counts as a person", _PERSON[facts["subject_key"]]),
        ("People alone in their class, before protection", shown(facts["unique"], "share")),
        (fewer, shown(facts["below_k"], "share")),
        ("Keyed fingerprint of the population", _on_record(facts["fingerprint"])),
    ]
    yield Table("table-population", "The population, before protection", ("What", "Value"), rows)
    if data.attributes:
        yield _attributes(data)
    else:
        yield Paragraph("The schema is not on record.")
    if (number := facts.get("populations", 0)) > 1:
        yield Paragraph(f"{number} populations were protected in the period; this is the latest.")


def _attributes(data: ReportData) -> Table:
    rows = [
        (
            *(str(each[name]) for name in ("name", "role", "kind")),
            shown(each["distinct"], "count"),
            str(each["bounds_source"]),
            f"{each['weight']:.3g}" if each["weight"] else "–",
        )
        for each in data.attributes
    ]
    columns = ("Attribute", "Role", "Kind", "Distinct values", "Bounds", "Weight in NCP")
    note = "Values of attributes are not shown anywhere in this report."
    return Table("table-attributes", "Attributes, as declared", columns, rows, numeric=(3, 5), note=note)


def _policy(data: ReportData) -> Iterator[Block]:
    policy = data.policy
    yield Paragraph("Techniques, in the words of ISO/IEC 20889:")
    yield Bullets(tuple(policy["techniques"]))
    yield Table(
        "table-thresholds",
        "Thresholds beyond the policies, with their source",
        ("Threshold", "Value", "Source"),
        [(str(each["id"]), f"{each['value']:.3g}", str(each["source"])) for each in policy["thresholds"]],
        numeric=(1,),
        note="What is not listed is judged by the policy of each run.",
    )
    yield from (_settings(place, each) for place, each in enumerate(policy["policies"], start=1))
    yield from _answers(data, 3)
    none = "none. One policy, method, explainer and population during the whole period."
    yield Paragraph(f"Deviations in the period: {' '.join(policy['deviations']) or none}")


def _settings(place: int, policy: Mapping[str, Any]) -> Folded:
    rows = [
        (name, _yes_no(value) if isinstance(value, bool) else str(value))
        for name, value in policy["settings"].items()
        if value is not None
    ]
    first, last = (str(policy[name])[:10] for name in ("first", "last"))
    table = Table(
        f"table-policy-{place}",
        f"Settings of policy {place}",
        ("Setting", "Value"),
        rows,
        note=f"SHA-256 {policy['sha256']}",
    )
    return Folded(f"Policy {place}: {shown(policy['asked'], 'count')} explanations, {first} to {last}", (table,))


# Sections 4 to 6: what was released, the risk of one release, and of several together.


_RELEASES = {
    "asked": "Asked for",
    "released": "Released",
    "generalised": "– of these with generalised quasi-identifiers",
    "exact": "– of these with exact quasi-identifiers that enough people have",
    "prototypes": "– of these prototypes, which stand for nobody",
    "suppressed": "Suppressed",
    "untracked": "Released without a record",
}


def _releases(data: ReportData) -> Iterator[Block]:
    from cfk_plugin.release.results import SUPPRESSION_REASONS

    released: Mapping[str, Any] = data.releases
    rows = [(title, shown(released[name], "count")) for name, title in _RELEASES.items()]
    yield Table("table-releases", "Explanations in the period", ("What", "Number"), rows, numeric=(1,))
    reasons = [
        (SUPPRESSION_REASONS.get(name, name), name, shown(amount, "count"))
        for name, amount in released["reasons"].items()
    ]
    if reasons:
        columns = ("Reason", "Code", "Number")
        yield Table("table-reasons", "Why explanations were suppressed", columns, reasons, numeric=(2,))
    else:
        yield Paragraph("Nothing was suppressed.")
    yield _figures(data, "raw")
    known = [(name, amount) for name, amount in released["latency"].items() if amount.measured]
    if known:
        said = ", ".join(f"{shown(amount, 'seconds')} ({name})" for name, amount in known)
        yield Paragraph(f"Time per explanation, explainer included: {said}.")


def _risk(data: ReportData) -> Iterator[Block]:
    yield Paragraph("One attacker per number: each definition says who it is about, and what it does not say.")
    yield _figures(data, "crowd")
    yield from _chart(data, "class_sizes")
    yield _figures(data, "risk")
    yield from _chart(data, "risk")
    yield _figures(data, "private")
    yield Table(
        "table-criteria",
        "Three criteria",
        ("Criterion", "Evidence", "Status", "What it means"),
        [(str(c["criterion"]), str(c["evidence"]), Mark(c["status"]), str(c["text"])) for c in data.criteria],
        note="The criteria of WP29 Opinion 05/2014. k-anonymity alone addresses the first of them.",
    )


def _composition(data: ReportData) -> Iterator[Block]:
    pool = data.system.get("recipients_pool") or "not known"
    yield Paragraph(
        "Releases are linkable when they are about the same record: the same private values, or the same handle in the "
        f"ledger. Whether recipients put together what they receive: {pool}; the figures assume that they do."
    )
    yield _figures(data, "ledger")
    yield from _chart(data, "intersection")


# Sections 7, 8 and 10: whether advice holds, what it still says, and for whom.


def _validity(data: ReportData) -> Iterator[Block]:
    yield Paragraph(
        "A generalised explanation is advice for everybody inside its region: it holds as far as the region leads "
        "to the desired outcome. The check was made when each explanation was released, with the model of that "
        f"time. Model version: {_on_record(data.environment.get('model'))}."
    )
    yield _figures(data, "validity")
    yield from _chart(data, "pureness")


def _utility(data: ReportData) -> Iterator[Block]:
    yield Paragraph("What generalising costs. 0 is an exact value, 1 the whole range of an attribute.")
    yield _figures(data, "utility")
    yield from _chart(data, "ncp_by_attribute")
    yield from _chart(data, "frontier")
    if (found := _distribution(data, "comparison")) is None:
        yield Paragraph(
            "Not compared with no protection and with Mondrian over the whole table: run cfk audit frontier --compare "
            "and log the result."
        )
    else:
        caption = "The same counterfactuals under this policy, under Mondrian, and without protection"
        note = "Means over what each releases. Close to training rows is good for advice, not for privacy: 0 is a row."
        yield _numbers(found, "table-comparison", caption, "", "number", note)


_METRICS = {"ncp": "NCP", "pureness": "Pureness", "suppressed": "Share suppressed", "k": "People behind a region"}


def _groups(data: ReportData) -> Iterator[Block]:
    if not data.groups:
        yield Paragraph(
            "No groups were logged, so nothing can be said of differences. Give protect() the column with groups=."
        )
        return
    yield Paragraph("Whether some of those who ask get worse explanations than the rest.")
    yield Table(
        "table-groups",
        "Metrics by group of those who asked",
        ("Group", "Metric", "Explanations", "Mean in the group", "Mean of the rest", "Difference (95 %)"),
        [
            (
                f"{group.attribute}: {group.group}",
                _METRICS.get(group.metric, group.metric),
                shown(group.n, "count"),
                *map(shown, (group.mean, group.rest, group.gap)),
            )
            for group in data.groups
        ],
        numeric=(2, 3, 4, 5),
        note="Groups of fewer than 11 are pooled. Intervals are not corrected for looking at several groups.",
    )
    for metric in ("ncp", "pureness", "suppressed"):
        if measured := [group for group in data.groups if group.metric == metric and group.gap.low is not None]:
            yield _gaps(data, metric, measured)


def _gaps(data: ReportData, metric: str, groups: Sequence[Group]) -> Chart:
    """Draw a dot and an interval per group; those without an interval are in the table alone."""
    tolerance = next((each["value"] for each in data.policy["thresholds"] if each["id"] == "group_gap"), None)
    lines = (("no difference", 0.0), *((("tolerance", -tolerance), ("tolerance", tolerance)) if tolerance else ()))
    title, axis = f"{_METRICS[metric]}: difference between each group and the rest", "difference of the means"
    rows = [(f"{group.attribute}: {group.group}", group.gap) for group in groups]
    known = [
        (label, gap.value, gap.low, gap.high, shown(gap))
        for label, gap in rows
        if gap.value is not None and gap.low is not None and gap.high is not None
    ]
    picture = Intervals([row[:4] for row in known], [row[4] for row in known], axis, lines)
    texts = [(label, shown(gap)) for label, gap in rows]
    table = Table(f"data-groups-{metric}", f"{title}: the numbers", ("", axis), texts, numeric=(1,))
    description = f"Difference of the mean ({_METRICS[metric]}) with its 95 % interval; no difference is at 0."
    return Chart(f"chart-groups-{metric}", title, description, picture, table)


# Section 9: attacks that were run.


def _attacks(data: ReportData) -> Iterator[Block]:
    judged = [attack for attack in data.attacks if attack.judged]
    others = [attack for attack in data.attacks if not attack.judged]
    if data.attacks:
        yield Paragraph(
            "Main: success of the attack. Baseline: the same guess without what the attack adds. Control: the same "
            "attack against people who are not in the training data. Of a copy of the model the success is how often "
            "both agree, and what counts is the gain over the baseline; of membership it is the area under the curve, "
            "0.5 for a coin. Intervals are 95 %, not corrected for looking at several."
        )
    else:
        yield Paragraph("No attack was run in the period. Run cfk audit and log the result to the experiment.")
    if judged:
        yield _attack_table(data, judged)
        yield from (
            _roc_chart(data, each) for each in data.distributions if each.id == "roc" or each.id.startswith("roc-")
        )
    yield from (_attack_figures(data, attack) for attack in judged if attack.figures and "/" not in attack.id)
    if others:
        yield Table(
            "table-attacks-others",
            "For comparison, and judged by no check",
            ("Attack", "What was attacked", "Main", "Baseline", "Control"),
            [(_attack(data, each), each.subject or "–", *_success(each)) for each in others],
            numeric=(2, 3, 4),
            note="The same attacks on something else than what is released, and guesses that are no attack.",
        )
    missing = [check for check in data.checks if check.id.startswith("attack_") and check.status == "not_measured"]
    if missing:
        names = ", ".join(check.id.removeprefix("attack_").replace("_", " ") for check in missing)
        yield Paragraph(f"Not run, so nothing is known of them: {names}.")


def _attack_table(data: ReportData, attacks: Iterable[Attack]) -> Table:
    rows = [
        (
            _attack(data, attack),
            *_success(attack),
            _number(attack.main.n),
            _yes_no(attack.worked),
            _attacker(attack),
        )
        for attack in attacks
    ]
    successes = ("Main", "Baseline", "Control", "Over")
    columns = ("Attack", *successes, "Better than the baseline", "What the attacker knows and does")
    note = "An attack that is no better than the baseline did not work here, which is no evidence of protection."
    return Table("table-attacks", "Attacks", columns, rows, numeric=(1, 2, 3, 4), note=note)


def _attack(data: ReportData, attack: Attack) -> Link:
    """Return the name of an attack, or of what it found of a single attribute, as a link to the definition."""
    if attack.id in data.definitions:
        return _named(data, attack.id)
    whole, _, attribute = attack.id.partition("/")
    return Link(f"– {attribute}", f"#definition-{whole}")


def _success(attack: Attack) -> tuple[str, str, str]:
    return shown(attack.main), shown(attack.baseline), shown(attack.control)


def _attacker(attack: Attack) -> str:
    scenario = "The same, of one attribute." if "/" in attack.id else attack.scenario  # its attack is the row above
    told = f"Attacked: {attack.subject}. {scenario}" if attack.subject else scenario
    if not attack.concerns:
        return f"{told} What was attacked is not released."
    return told if attack.covers else f"{told} Of another policy or population."


def _attack_figures(data: ReportData, attack: Attack) -> Folded:
    """Return the attack's own figures; the two ends of an interval stand beside its figure."""
    figures = attack.figures
    beside = {f"{name}_{end}" for name in figures for end in ("low", "high")}
    rows: list[tuple[Cell, str]] = []
    for name, amount in figures.items():
        if name in beside:
            continue
        low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
        whole = amount if low is None or high is None else replace(amount, low=low.value, high=high.value)
        rows.append((_named(data, name) if name in data.definitions else name, shown(whole)))
    caption, note = f"Figures of the attack {attack.id}", "Defined in the reference of audits."
    table = Table(f"table-attack-{attack.id}", caption, ("Figure", "Value"), rows, numeric=(1,), note=note)
    return Folded(caption, (table,))


_ROC_TITLE = "Members found, by false alarms"
_ROC = (
    "Read it so: an attacker who takes this share of the people who were not trained on for members (horizontal) finds "
    "this share of those who were (vertical). Both axes are logarithmic, since an attacker who is sure of a few people "
    "works on the left. On the line of the coin nobody learns anything."
)
_ROC_BOUNDS = " Where an epsilon is claimed no attack may be above its line."
_ROC_RATES = ("0.1", "0.01", "0.001")


def _roc_chart(data: ReportData, found: Distribution) -> Chart:
    """Draw members found over false alarms, both on logarithmic axes."""
    points = {name: _above_zero(found, amounts) for name, amounts in found.series.items()}
    curves = {name: of for name, of in points.items() if name not in BOUNDS}
    drawn = sorted({x for of in curves.values() for x, _ in of})
    guides = [(COIN, [(x, x) for x in (drawn[0], drawn[-1])] if drawn else [])]
    bounds = [name for name in BOUNDS if name in points]
    guides += [(name, [point for point in points[name] if drawn and point[0] >= drawn[0]]) for name in bounds]
    picture = Curves(
        tuple(curves.items()),
        "share of others taken for members (FPR)",
        "share of members found (TPR)",
        guides=guides,
        legend=(*(_curve_name(data, name) for name in curves), COIN, *(BOUNDS[name] for name in bounds)),
        logarithmic=True,
    )
    description = _ROC + (_ROC_BOUNDS if bounds else "")
    return Chart(f"chart-{found.id}", _ROC_TITLE, description, picture, _roc_table(found, [*curves, *bounds]))


def _above_zero(found: Distribution, amounts: Sequence[Amount]) -> list[tuple[float, float]]:
    pairs = zip(found.labels, amounts, strict=True)
    return [(float(label), amount.value) for label, amount in pairs if amount.value is not None and amount.value > 0]


def _roc_table(found: Distribution, names: Iterable[str]) -> Table:
    told = [rate for rate in _ROC_RATES if rate in found.labels]
    places = [found.labels.index(rate) for rate in told]
    rows = [
        (BOUNDS.get(name) or short(name), *(shown(found.series[name][place]) for place in places)) for name in names
    ]
    return Table(
        f"data-{found.id}",
        f"{_ROC_TITLE}: the shares that matter most",
        ("", *(f"Found at {float(rate) * 100:g} % false alarms" for rate in told)),
        [*rows, (COIN, *told)],
        numeric=tuple(range(1, len(told) + 1)),
        note=" ".join(filter(None, (found.note, "All points are in the data of the report."))),
    )


def _curve_name(data: ReportData, name: str) -> str:
    """Return the name of a curve with the area below it, where the attack's success is that area."""
    area = next((attack.main for attack in data.attacks if attack.judged and attack.id == name), None)
    if area is None or not area.measured or name.startswith("membership_surrogate"):
        return short(name)
    return f"{short(name)}: AUC {shown(area)}"


# Section 11: what differential privacy states.


def _dp(data: ReportData) -> Iterator[Block]:
    dp = data.dp
    if dp is None:
        yield Paragraph(
            "Not used in the period: the explanations are generalised counterfactuals, and no epsilon is claimed."
        )
        return
    nothing, bound = dp["guarantee"] == "none", dp["membership_bound"]
    if nothing:
        yield Paragraph(
            "No guarantee; see the audit. Epsilon is a claim here: noise was seeded, a domain was read from rows, or "
            "the method has no proof."
        )
    else:
        yield Paragraph(f"What is guaranteed: {dp['covers']}.")
    total = f"not stated: {'nothing is guaranteed' if nothing else 'the model is not covered'}"
    rows = [
        ("Guarantee", str(dp["guarantee"])),
        ("Epsilon, delta of the answers", f"{dp['epsilon']:g}, {dp['delta']:g}"),
        (
            "Epsilon, delta of everything that leaves",
            total if dp["total"] is None else f"{dp['total'][0]:g}, {dp['total'][1]:g}",
        ),
        ("Unit of privacy", str(dp["unit"])),
        ("Neighbouring tables", str(dp["neighbours"])),
        ("Mechanism and accountant", str(dp["mechanism"])),
        ("What may be known of the model", str(dp["model_access"])),
        ("Noise seeded", _yes_no(dp["seeded"])),
        ("Domains read from rows", ", ".join(dp["inferred"]) or "none"),
        (
            "Largest balanced accuracy of a membership attack",
            "no bound" if bound is None else f"{bound:.3g} (e^ε + δ over 1 + e^ε)",
        ),
    ]
    yield Table("table-dp", "What is stated", ("What", "Value"), rows)
    if models := [(name, str(text)) for name, text in dp["threat_models"].items()]:
        caption = "What epsilon covers, by access to the model"
        yield Table("table-dp-models", caption, ("Access", "What holds"), models)
    yield _figures(data, "dp-figures")


# Sections 12 and 13: limits, open questions and signatures, and how to make the report again.


def _limits(data: ReportData) -> Iterator[Block]:
    yield Paragraph("What stays unprotected, and what the figures assume:")
    yield Bullets(tuple(data.limits))
    yield from _answers(data, 12)
    yield from (Open(p.question, p.role) for p in data.placeholders if p.section not in (1, 3, 12))
    signed = [(str(each["role"]), each["name"] or "open", each["date"] or "open") for each in data.sign_off]
    columns, note = ("Role", "Name", "Date"), "People sign; the tool never does."
    yield Table("table-sign-off", "Signatures", columns, signed, note=note)


def _reproducibility(data: ReportData, address: str | None) -> Iterator[Block]:
    environment = data.environment
    rows = [
        ("Report", str(data.report["id"])),
        ("Command", str(data.report["command"] or "not in this edition")),
        ("Latest evidence", str(data.report["as_of"] or "none")),
        ("Clock", "the times in the records; the report has none of its own"),
        ("Fingerprint of the population", _on_record(data.population["fingerprint"])),
        ("Seed", _on_record(", ".join(data.policy["seed"]))),
        ("Python", _on_record(environment["python"])),
        ("Packages", _on_record(", ".join(f"{name} {of}" for name, of in sorted(environment["packages"].items())))),
        ("Plugins", _on_record(", ".join(environment["plugins"]))),
    ]
    yield Table("table-made", "How this report was made", ("What", "Value"), rows)
    if data.runs:
        yield _runs(data, address)
    else:
        yield Paragraph("Runs are not named in this edition.")
    if number := len(data.suppressed_cells):
        yield Paragraph(
            f"Disclosure control of this report hides {number} {'place' if number == 1 else 'places'}; counts of 1 to "
            "10 people are never shown, nor what they could be computed from. The places are listed in the data."
        )
    else:
        yield Paragraph("Nothing had to be hidden in this report.")


def _runs(data: ReportData, address: str | None) -> Table:
    rows = [
        (
            _run_link(str(run["run"]), address),
            str(run["name"] or "–"),
            str(run["experiment"]),
            str(run["started"]),
            f"{run['asked']:,}",
            ", ".join(run["audits"]) or "–",
        )
        for run in data.runs
    ]
    columns = ("Run", "Name", "Experiment", "Started", "Explanations", "Audits")
    return Table("table-runs", "Runs that this report is made from", columns, rows, numeric=(4,))


# Annexes: certificates, definitions, and the control map.


def _certificates(data: ReportData) -> Iterator[Block]:
    if not data.certificates:
        yield Paragraph("Certificates of single releases are not in this edition, or no region was released.")
        return
    rows = [
        (
            str(each["id"]),
            shown(each["k"], "count"),
            shown(each["ncp"]),
            shown(each["pureness"]),
            str(each["optimality"]),
        )
        for each in data.certificates
    ]
    caption = "The releases with the fewest people and the lowest pureness"
    columns = ("Run and step", "k", "NCP", "Pureness", "Optimality")
    note = "All others are in the runs: cfk/explanations. No value of an attribute is shown here."
    table = Table("table-certificates", caption, columns, rows, numeric=(1, 2, 3), note=note)
    yield Folded(f"{len(rows)} certificates", (table,))


def _definitions(data: ReportData) -> Iterator[Block]:
    yield Paragraph("Every figure and check of this report: how it is computed, and what it does not say.")
    for name, found in data.definitions.items():
        rows = [
            ("Formula", found.formula),
            ("Range", f"{found.range}; {found.direction}"),
            ("Source", found.source),
            ("Does not say", found.does_not_say),
        ]
        yield Table(f"definition-{name}", f"{found.name} ({name})", ("", ""), rows)


def _controls(data: ReportData) -> Iterator[Block]:
    yield Paragraph(
        "Where each rule is answered. This is no legal advice, and the report claims no compliance with any of them."
    )
    columns = {
        "control": "Source",
        "requires": "What it asks that touches this",
        "section": "Section",
        "status": "Status",
        "verified": "How that was verified",
        "checked_on": "Checked",
    }
    rows = [tuple(str(control[name]) for name in columns) for control in data.controls]
    yield Table("table-controls", "Control map", tuple(columns.values()), rows)
