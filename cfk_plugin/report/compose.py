"""From report data to document: what stands where, before anything is said of HTML or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cfk_plugin.report.data import Amount, Attack, Check, Definition, Distribution, Group, Metric, ReportData
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


def written(name: str, amount: Amount) -> str:
    """Write the amount of a figure or check."""
    return shown(amount, kind_of(name))


def named(data: ReportData, name: str) -> Link:
    """Return the name of something that is defined, as a link to its definition."""
    return Link(data.definitions[name].name, f"#definition-{name}")


def check_table(data: ReportData, checks: Sequence[Check], name: str, caption: str) -> Table:
    """Return checks as a table: each leads to its section, and its meaning to the definition."""
    rows: list[list[Cell]] = [
        [
            Link(data.definitions[check.id].name, f"#section-{check.section}"),
            Mark(check.status),
            written(check.id, check.measured),
            _asked_for(check),
            (f"{check.text} ", Link("Definition", f"#definition-{check.id}")),
        ]
        for check in checks
    ]
    columns = ("Check", "Status", "Measured", "Asked for, by whom", "What it means")
    return Table(id=name, caption=caption, columns=columns, rows=rows, numeric=(2,))


def _asked_for(check: Check) -> str:
    """Write what is asked for and by whom, in short; section 3 has the sources in full."""
    if not check.threshold.measured:
        return "–"
    asked, source = written(check.id, check.threshold), check.source.partition(":")[0]
    return f"{asked} ({source})" if source else asked


def run_link(where: str, address: str | None) -> str | Link:
    """Return a run id, or one explanation of it as ``run/step``; a link where the server's address is known."""
    if address is None:
        return where
    return Link(where, f"{address.rstrip('/')}/#/runs/{where.partition('/')[0]}")


def metric_table(data: ReportData, names: Iterable[str], name: str, caption: str, note: str = "") -> Table:
    """Return figures as a table; what was not measured is there and says so."""
    found: Mapping[str, Metric] = {metric.id: metric for metric in data.metrics}
    rows: list[list[Cell]] = []
    for one in names:
        if one not in found:
            continue
        amount = found[one].amount
        over = "–" if amount.n is None else f"{amount.n:,}"
        rows.append([named(data, one), written(one, amount), over, found[one].method or "–"])
    columns = ("Figure", "Value", "Over", "How")
    return Table(id=name, caption=caption, columns=columns, rows=rows, numeric=(1, 2), note=note)


def distribution(data: ReportData, name: str) -> Distribution | None:
    """Return a distribution, if the report has it."""
    return next((found for found in data.distributions if found.id == name), None)


def text_or(value: object, otherwise: str) -> str:
    """Return a text, or what is said where there is none."""
    return otherwise if value is None or value == "" else str(value)


def yes_no(value: object) -> str:
    """Write a flag that may be unknown."""
    return "not known" if value is None else ("yes" if value else "no")


def bars(found: Distribution, title: str, description: str, axis: str, heading: str, *, percent: bool = False) -> Chart:
    """Draw every series as bars over the categories."""
    kind: Kind = "share" if percent else "number"
    picture = Bars(
        categories=found.labels,
        series=tuple((name, tuple(_scaled(a, percent) for a in amounts)) for name, amounts in found.series.items()),
        texts=tuple(tuple(shown(a, kind) for a in amounts) for amounts in found.series.values()),
        axis=axis,
        top=100.0 if percent else None,
    )
    return _chart_of(found, title, description, picture, heading, kind)


def curve(
    found: Distribution,
    title: str,
    description: str,
    axes: tuple[str, str],
    *,
    percent: bool = False,
    steps: bool = False,
) -> Chart:
    """Draw every series over categories that are numbers; a category with a band alone has no point."""
    kind: Kind = "share" if percent else "number"
    series = tuple(
        (
            name,
            tuple(
                (float(label.rstrip(" %")), y)
                for label, a in zip(found.labels, amounts, strict=True)
                if (y := _scaled(a, percent)) is not None
            ),
        )
        for name, amounts in found.series.items()
    )
    picture = Curves(series=series, x=axes[0], y=axes[1], steps=steps, verticals=tuple(found.marks.items()))
    return _chart_of(found, title, description, picture, axes[0], kind)


def sorted_intervals(found: Distribution, title: str, description: str, axes: tuple[str, str]) -> Chart:
    """Draw a sorted quantity and the two ends of its interval over percentiles."""
    amounts = next(iter(found.series.values()))
    at = [float(label.rstrip(" %")) for label in found.labels]
    ends = {
        "upper end": [a.value if a.high is None else a.high for a in amounts],
        "pureness": [a.value for a in amounts],
        "lower end": [a.value if a.low is None else a.low for a in amounts],
    }
    exact = ends["upper end"] == ends["pureness"] == ends["lower end"]
    shown_ends = {"pureness": ends["pureness"]} if exact else ends
    series = tuple(
        (name, tuple((x, float(y)) for x, y in zip(at, values, strict=True) if y is not None))
        for name, values in shown_ends.items()
    )
    picture = Curves(series=series, x=axes[0], y=axes[1], horizontals=tuple(found.marks.items()))
    return _chart_of(found, title, description, picture, axes[0], "number")


def intervals(
    name: str,
    title: str,
    description: str,
    rows: list[tuple[str, Amount]],
    axis: str,
    lines: tuple[tuple[str, float], ...],
) -> Chart:
    """Draw a dot and an interval per row; rows without an interval are in the table alone."""
    known = [(label, a) for label, a in rows if a.value is not None and a.low is not None and a.high is not None]
    drawn = tuple((label, float(a.value or 0), float(a.low or 0), float(a.high or 0)) for label, a in known)
    cells: list[list[Cell]] = [[label, shown(amount)] for label, amount in rows]
    table = Table(id=f"data-{name}", caption=f"{title}: the numbers", columns=("", axis), rows=cells, numeric=(1,))
    texts = tuple(shown(amount) for _, amount in known)
    picture = Intervals(rows=drawn, axis=axis, lines=lines, texts=texts)
    return Chart(id=f"chart-{name}", title=title, description=description, picture=picture, table=table)


def _chart_of(
    found: Distribution, title: str, description: str, picture: Bars | Curves, heading: str, kind: Kind
) -> Chart:
    rows: list[list[Cell]] = [
        [label, *(shown(amounts[i], kind) for amounts in found.series.values())] for i, label in enumerate(found.labels)
    ]
    table = Table(
        id=f"data-{found.id}",
        caption=f"{title}: the numbers",
        columns=(heading, *found.series),
        rows=rows,
        numeric=tuple(range(1, len(found.series) + 1)),
        note=found.note,
    )
    return Chart(id=f"chart-{found.id}", title=title, description=description, picture=picture, table=table)


def _scaled(amount: Amount, percent: bool) -> float | None:
    if amount.value is None:
        return None
    return 100 * amount.value if percent else amount.value


_ORDER = ("fail", "review", "not_measured", "pass")
_MEANING = {
    "fail": "Something that the policy or this report asks for does not hold. Do not rely on the protection until it "
    "is settled.",
    "review": "No check fails. Some need a decision by people, or were not measured; unmeasured is never a pass.",
    "pass": "Everything that was asked for was measured and holds, and people have answered what only they can.",
}


def front_sections(data: ReportData, address: str | None) -> tuple[Section, ...]:
    """Return sections 0 to 3."""
    return _verdict(data, address), _scope(data), _population(data), _policy(data)


def _verdict(data: ReportData, address: str | None) -> Section:
    ordered = sorted(data.checks, key=lambda check: _ORDER.index(check.status))
    blocks: list[Block] = [
        Paragraph(_MEANING[data.verdict]),
        check_table(data, ordered, "table-checks", "All checks, the ones to look at first"),
        *_evidence(data, ordered, address),
    ]
    if data.placeholders:
        text = (
            f"{len(data.placeholders)} questions are open that only people can answer: see ",
            Link("section 12", "#section-12"),
            ".",
        )
        blocks.append(Paragraph(text))
    if data.changes is not None:
        blocks.append(_changes(data))
    return Section(id="section-0", number="0", title="Verdict", blocks=blocks)


def _evidence(data: ReportData, checks: Sequence[Check], address: str | None) -> list[Block]:
    """Return where the evidence of checks is: runs, and single explanations as ``run/step``."""
    rows: list[list[Cell]] = []
    for check in checks:
        if check.status != "pass":
            rows += [[named(data, check.id), run_link(where, address)] for where in check.evidence]
    if not rows:
        return []
    note = "Explanations are named by run and step. At most five for each check."
    columns = ("Check", "Run, or run/step")
    table = Table(id="table-evidence", caption="Evidence", columns=columns, rows=rows, note=note)
    return [Folded("Evidence of checks that did not pass", (table,))]


def _changes(data: ReportData) -> Block:
    rows = [[str(change[name]) for name in ("what", "before", "after")] for change in data.changes or ()]
    if not rows:
        return Paragraph("Nothing changed since the earlier report.")
    return Table(
        id="table-changes",
        caption="What changed since the earlier report",
        columns=("What", "Before", "Now"),
        rows=rows,
    )


def answers(data: ReportData, section: int) -> list[Block]:
    """Return the answers of people to the questions of a section, open ones as such."""
    asked = [question for question in QUESTIONS.values() if question.section == section]
    rows: list[list[Cell]] = [[q.question, str(data.system[q.id]), q.role] for q in asked if data.system.get(q.id)]
    table = Table(
        id=f"table-answers-{section}", caption="What people said", columns=("Question", "Answer", "Role"), rows=rows
    )
    unanswered: list[Block] = [Open(p.question, p.role) for p in data.placeholders if p.section == section]
    return [*([table] if rows else []), *unanswered]


def _scope(data: ReportData) -> Section:
    about = (
        "A counterfactual explanation can be a row of the training data, or nearly one. Whoever receives it may then "
        "learn private attributes of somebody else. This report says what was done about that, and how well it held. "
        "It is about explanations that were released, relative to one population and to the quasi-identifiers that "
        "were declared."
    )
    generators = ", ".join(data.policy["generators"]) or "not on record"
    plain = [Paragraph(about), Paragraph(f"Explainers in the period: {generators}. Model: {_model(data)}.")]
    if data.metric("k_min").measured:
        told = receiver_sentence(data.metric("pureness_mean").value)
        plain.append(Paragraph(f"What may be told to the person who receives an explanation: “{told}”"))
    return Section(id="section-1", number="1", title="Scope and release context", blocks=[*plain, *answers(data, 1)])


def _model(data: ReportData) -> str:
    return text_or(data.environment.get("model"), "not on record")


def _population(data: ReportData) -> Section:
    facts = data.population
    rows: list[list[Cell]] = [
        ["People", shown(facts["people"], "count")],
        ["Rows", shown(facts["rows"], "count")],
        ["Who counts as a person", _subjects(facts["subject_key"])],
        ["People alone in their class, before protection", shown(facts["unique"], "share")],
        [
            f"People in a class of fewer than {text_or(facts['k'], 'k')}, before protection",
            shown(facts["below_k"], "share"),
        ],
        ["Keyed fingerprint of the population", text_or(facts["fingerprint"], "not on record")],
    ]
    table = Table(
        id="table-population", caption="The population, before protection", columns=("What", "Value"), rows=rows
    )
    blocks: list[Block] = [
        Paragraph(
            "All statements are relative to this population and to these quasi-identifiers. Counts are in bands."
        ),
        table,
        _attributes(data),
    ]
    if facts.get("populations", 0) > 1:
        blocks.append(
            Paragraph(f"{facts['populations']} populations were protected in the period; this is the latest.")
        )
    return Section(id="section-2", number="2", title="Population and schema", blocks=blocks)


def _subjects(key: object) -> str:
    if key is None:
        return "not on record"
    return "distinct values of the subject key" if key else "each row is assumed to be a person"


def _attributes(data: ReportData) -> Block:
    if not data.attributes:
        return Paragraph("The schema is not on record.")
    rows: list[list[Cell]] = [
        [
            str(a["name"]),
            str(a["role"]),
            str(a["kind"]),
            shown(a["distinct"], "count"),
            str(a["bounds_source"]),
            "–" if not a["weight"] else f"{a['weight']:.3g}",
        ]
        for a in data.attributes
    ]
    columns = ("Attribute", "Role", "Kind", "Distinct values", "Bounds", "Weight in NCP")
    note = "Values of attributes are not shown anywhere in this report."
    return Table(
        id="table-attributes", caption="Attributes, as declared", columns=columns, rows=rows, numeric=(3, 5), note=note
    )


def _policy(data: ReportData) -> Section:
    policy = data.policy
    blocks: list[Block] = [
        Paragraph("Techniques, in the words of ISO/IEC 20889:"),
        Bullets(tuple(policy["techniques"])),
        _thresholds(data),
        *_policies(data),
        *answers(data, 3),
    ]
    said = (
        " ".join(policy["deviations"]) or "none. One policy, method, explainer and population during the whole period."
    )
    blocks.append(Paragraph(f"Deviations in the period: {said}"))
    return Section(id="section-3", number="3", title="Policy and method", blocks=blocks)


def _thresholds(data: ReportData) -> Block:
    rows = [[str(t["id"]), f"{t['value']:.3g}", str(t["source"])] for t in data.policy["thresholds"]]
    return Table(
        id="table-thresholds",
        caption="Thresholds beyond the policies, with their source",
        columns=("Threshold", "Value", "Source"),
        rows=rows,
        numeric=(1,),
        note="What is not listed is judged by the policy of each run.",
    )


def _policies(data: ReportData) -> list[Block]:
    found: list[Block] = []
    for i, policy in enumerate(data.policy["policies"], start=1):
        settings = {name: value for name, value in policy["settings"].items() if value is not None}
        rows: list[list[Cell]] = [
            [name, yes_no(value) if isinstance(value, bool) else str(value)] for name, value in settings.items()
        ]
        first, last = (str(policy[name])[:10] for name in ("first", "last"))
        title = f"Policy {i}: {shown(policy['asked'], 'count')} explanations, {first} to {last}"
        table = Table(
            id=f"table-policy-{i}",
            caption=f"Settings of policy {i}",
            columns=("Setting", "Value"),
            rows=rows,
            note=f"SHA-256 {policy['sha256']}",
        )
        found.append(Folded(title, (table,)))
    return found


_CROWD = (
    "k_min",
    "k_p05",
    "k_median",
    "k_mean",
    "k_desired_min",
    "k_desired_median",
    "k_consistent_min",
    "k_effective_min",
)
_RISKS = (
    "prosecutor_risk_max",
    "prosecutor_risk_mean",
    "journalist_risk_max",
    "marketer_risk",
    "at_risk_009",
    "at_risk_020",
)
_PRIVATE = ("k_private_min", "private_matches_min", "l_min", "t_max", "attribute_disclosure_max")
_LEDGER = ("k_intersection_min", "ledger_again", "ledger_refused")
_RAW = ("native_rate", "near_native_rate", "native_qi_rate", "near_native_tolerance")


def release_sections(data: ReportData) -> tuple[Section, ...]:
    """Return sections 4 to 6."""
    return _releases(data), _risk(data), _composition(data)


def _releases(data: ReportData) -> Section:
    released = data.releases
    names = {
        "asked": "Asked for",
        "released": "Released",
        "generalised": "– of these with generalised quasi-identifiers",
        "exact": "– of these with exact quasi-identifiers that enough people have",
        "prototypes": "– of these prototypes, which stand for nobody",
        "suppressed": "Suppressed",
        "untracked": "Released without a record",
    }
    rows: list[list[Cell]] = [
        [title, shown(released[name], "count")] for name, title in names.items() if name in released
    ]
    table = Table(
        id="table-releases", caption="Explanations in the period", columns=("What", "Number"), rows=rows, numeric=(1,)
    )
    raw = metric_table(
        data,
        _RAW,
        "table-raw",
        "The explainer before protection",
        "These rates are about raw counterfactuals, none of which left.",
    )
    blocks: list[Block] = [table, *_reasons(data), raw, *_latency(data)]
    return Section(id="section-4", number="4", title="Releases in the period", blocks=blocks)


def _reasons(data: ReportData) -> list[Block]:
    reasons = data.releases["reasons"]
    if not reasons:
        return [Paragraph("Nothing was suppressed.")]
    from cfk_plugin.release.results import SUPPRESSION_REASONS

    rows: list[list[Cell]] = [
        [SUPPRESSION_REASONS.get(name, name), name, shown(amount, "count")] for name, amount in reasons.items()
    ]
    return [
        Table(
            id="table-reasons",
            caption="Why explanations were suppressed",
            columns=("Reason", "Code", "Number"),
            rows=rows,
            numeric=(2,),
        )
    ]


def _latency(data: ReportData) -> list[Block]:
    known = {name: amount for name, amount in data.releases["latency"].items() if amount.measured}
    if not known:
        return []
    said = ", ".join(f"{shown(amount, 'seconds')} ({name})" for name, amount in known.items())
    return [Paragraph(f"Time per explanation, explainer included: {said}.")]


def _risk(data: ReportData) -> Section:
    blocks: list[Block] = [
        Paragraph("One attacker per number: each definition says who it is about, and what it does not say."),
        metric_table(data, _CROWD, "table-crowd", "People behind a released region"),
        *_class_sizes(data),
        metric_table(
            data,
            _RISKS,
            "table-risk",
            "Risk of re-identification",
            "Averages are over releases; other tools average over records or classes. Without a reference population "
            "all that can be said of the journalist risk is: at most the prosecutor risk.",
        ),
        *_risk_curve(data),
        metric_table(data, _PRIVATE, "table-private", "What regions and private values tell besides"),
        _criteria(data),
    ]
    return Section(id="section-5", number="5", title="Privacy risk of a single release", blocks=blocks)


def _class_sizes(data: ReportData) -> list[Block]:
    found = distribution(data, "class_sizes")
    if found is None:
        return []
    title = "Class sizes before and after protection" if len(found.series) > 1 else "Class sizes after protection"
    description = (
        "Share of the people by the number of people who have the same quasi-identifiers, before protection, and share "
        "of the released explanations by the number of people who fit them. Bars below k should be empty after "
        "protection."
    )
    return [bars(found, title, description, "share (%)", "People in the class", percent=True)]


def _risk_curve(data: ReportData) -> list[Block]:
    found = distribution(data, "risk")
    if found is None:
        return []
    description = (
        "Read it so: of all released explanations, this share has a prosecutor risk above the value on the horizontal "
        "axis. The curve should be at 0 from 1 / k on."
    )
    return [
        curve(
            found,
            "Releases with a prosecutor risk above a value",
            description,
            ("prosecutor risk", "share of releases above it (%)"),
            percent=True,
            steps=True,
        )
    ]


def _criteria(data: ReportData) -> Block:
    rows: list[list[Cell]] = [
        [str(c["criterion"]), str(c["evidence"]), Mark(c["status"]), str(c["text"])] for c in data.criteria
    ]
    columns = ("Criterion", "Evidence", "Status", "What it means")
    note = "The criteria of WP29 Opinion 05/2014. k-anonymity alone addresses the first of them."
    return Table(id="table-criteria", caption="Three criteria", columns=columns, rows=rows, note=note)


def _composition(data: ReportData) -> Section:
    pool = data.system.get("recipients_pool") or "not known"
    rule = (
        "Releases are linkable when they are about the same record: the same private values, or the same handle in the "
        f"ledger. Whether recipients put together what they receive: {pool}; the figures assume that they do."
    )
    blocks: list[Block] = [
        Paragraph(rule),
        metric_table(data, _LEDGER, "table-ledger", "Several releases together"),
    ]
    if (found := distribution(data, "intersection")) is not None:
        description = (
            "Fewest people who fit all of one, two and more releases about one record, under settings that change from "
            "release to release, as the audit found."
        )
        chart = curve(
            found,
            "People left after several releases",
            description,
            ("releases about one record", "fewest people left"),
        )
        blocks.append(chart)
    return Section(id="section-6", number="6", title="Composition of several releases", blocks=blocks)


_VALIDITY = ("pureness_mean", "pureness_min", "pureness_low", "flips")
_UTILITY = ("ncp_mean", "ncp_p95", "cdm", "cdm_per_release", "cm", "optimal_rate", "plausibility")
_METRICS = {"k": "People behind a region", "ncp": "NCP", "pureness": "Pureness", "suppressed": "Share suppressed"}


def quality_sections(data: ReportData) -> tuple[Section, ...]:
    """Return sections 7, 8 and 10."""
    return _validity(data), _utility(data), _groups(data)


def _validity(data: ReportData) -> Section:
    model = data.environment.get("model") or "not on record"
    blocks: list[Block] = [
        Paragraph(
            "A generalised explanation is advice for everybody inside its region: it holds as far as the region leads "
            "to the desired outcome. The check was made when each explanation was released, with the model of that "
            f"time. Model version: {model}."
        ),
        metric_table(data, _VALIDITY, "table-validity", "Does the advice hold?"),
    ]
    if (found := distribution(data, "pureness")) is not None:
        description = (
            "Pureness of the released explanations, from the lowest to the highest, with the ends of the 95 % interval "
            "where it was drawn and not computed exactly."
        )
        axes = ("share of the releases at or below (%)", "pureness")
        blocks.append(sorted_intervals(found, "Pureness of all releases, sorted", description, axes))
    return Section(id="section-7", number="7", title="Validity", blocks=blocks)


def _utility(data: ReportData) -> Section:
    blocks: list[Block] = [
        Paragraph("What generalising costs. 0 is an exact value, 1 the whole range of an attribute."),
        metric_table(data, _UTILITY, "table-utility", "What explanations still say"),
    ]
    if (found := distribution(data, "ncp_by_attribute")) is not None:
        description = "Mean information loss of each quasi-identifier over the released explanations, largest first."
        blocks.append(bars(found, "Information loss by attribute", description, "mean NCP", "Attribute"))
    if (found := distribution(data, "frontier")) is not None:
        description = (
            "Mean information loss and mean pureness of the same counterfactuals, protected under several k: what a "
            "larger k would cost."
        )
        blocks.append(curve(found, "What a larger k costs", description, ("k", "NCP and pureness")))
    blocks.append(_comparison(data))
    return Section(id="section-8", number="8", title="Utility", blocks=blocks)


def _comparison(data: ReportData) -> Block:
    found = distribution(data, "comparison")
    if found is None:
        text = (
            "Not compared with no protection and with Mondrian over the whole table: run cfk audit frontier --compare "
            "and log the result."
        )
        return Paragraph(text)
    rows: list[list[Cell]] = [
        [label, *(shown(amounts[i]) for amounts in found.series.values())] for i, label in enumerate(found.labels)
    ]
    return Table(
        id="table-comparison",
        caption="The same counterfactuals under this policy, under Mondrian, and without protection",
        columns=("", *found.series),
        rows=rows,
        numeric=tuple(range(1, len(found.series) + 1)),
        note="Means over what each releases. Close to training rows is good for advice, not for privacy: 0 is a row.",
    )


def _groups(data: ReportData) -> Section:
    if not data.groups:
        text = "No groups were logged, so nothing can be said of differences. Give protect() the column with groups=."
        return Section(id="section-10", number="10", title="Group differences", blocks=(Paragraph(text),))
    rows: list[list[Cell]] = [
        [
            f"{group.attribute}: {group.group}",
            _METRICS.get(group.metric, group.metric),
            shown(group.n, "count"),
            shown(group.mean),
            shown(group.rest),
            shown(group.gap),
        ]
        for group in data.groups
    ]
    table = Table(
        id="table-groups",
        caption="Metrics by group of those who asked",
        columns=("Group", "Metric", "Explanations", "Mean in the group", "Mean of the rest", "Difference (95 %)"),
        rows=rows,
        numeric=(2, 3, 4, 5),
        note="Groups of fewer than 11 are pooled. Intervals are not corrected for looking at several groups.",
    )
    blocks: list[Block] = [
        Paragraph("Whether some of those who ask get worse explanations than the rest."),
        table,
        *(_group_chart(data, metric) for metric in ("ncp", "pureness", "suppressed") if _drawn(data, metric)),
    ]
    return Section(id="section-10", number="10", title="Group differences", blocks=blocks)


def _drawn(data: ReportData, metric: str) -> list[Group]:
    return [group for group in data.groups if group.metric == metric and group.gap.low is not None]


def _group_chart(data: ReportData, metric: str) -> Block:
    tolerance = next((t["value"] for t in data.policy["thresholds"] if t["id"] == "group_gap"), None)
    lines = (("no difference", 0.0), *((("tolerance", -tolerance), ("tolerance", tolerance)) if tolerance else ()))
    rows = [(f"{group.attribute}: {group.group}", group.gap) for group in _drawn(data, metric)]
    title = f"{_METRICS[metric]}: difference between each group and the rest"
    description = f"Difference of the mean ({_METRICS[metric]}) with its 95 % interval; no difference is at 0."
    return intervals(f"groups-{metric}", title, description, rows, "difference of the means", lines)


_DP = ("epsilon", "delta", "epsilon_spent", "membership_bound")


def attack_sections(data: ReportData) -> tuple[Section, ...]:
    """Return section 9, and 11 where there are prototypes."""
    return (_attacks(data), _dp(data))


def _attacks(data: ReportData) -> Section:
    missing = [check for check in data.checks if check.id.startswith("attack_") and check.status == "not_measured"]
    blocks: list[Block] = []
    judged = [attack for attack in data.attacks if attack.judged]
    if data.attacks:
        blocks.append(Paragraph(_COLUMNS))
        blocks += [_table(data, judged), *roc_charts(data)] if judged else []
        blocks += [_figures(data, attack) for attack in judged if attack.figures and "/" not in attack.id]
        blocks += _others(data)
    else:
        blocks.append(Paragraph("No attack was run in the period. Run cfk audit and log the result to the experiment."))
    if missing:
        names = ", ".join(check.id.removeprefix("attack_").replace("_", " ") for check in missing)
        blocks.append(Paragraph(f"Not run, so nothing is known of them: {names}."))
    return Section(id="section-9", number="9", title="Attacks", blocks=blocks)


_COLUMNS = (
    "Main: success of the attack. Baseline: the same guess without what the attack adds. Control: the same attack "
    "against people who are not in the training data. Of a copy of the model the success is how often both agree, and "
    "what counts is the gain over the baseline; of membership it is the area under the curve, 0.5 for a coin. "
    "Intervals are 95 %, not corrected for looking at several."
)


def _table(data: ReportData, attacks: Sequence[Attack]) -> Table:
    rows: list[list[Cell]] = [
        [
            _name(data, attack),
            shown(attack.main),
            shown(attack.baseline),
            shown(attack.control),
            "–" if attack.main.n is None else f"{attack.main.n:,}",
            "yes" if attack.worked else "no",
            _told(attack),
        ]
        for attack in attacks
    ]
    columns = (
        "Attack",
        "Main",
        "Baseline",
        "Control",
        "Over",
        "Better than the baseline",
        "What the attacker knows and does",
    )
    note = "An attack that is no better than the baseline did not work here, which is no evidence of protection."
    return Table(id="table-attacks", caption="Attacks", columns=columns, rows=rows, numeric=(1, 2, 3, 4), note=note)


def _name(data: ReportData, attack: Attack) -> Link:
    """Return the name of an attack, or of what it found of a single attribute, as a link to the definition."""
    if attack.id in data.definitions:
        return named(data, attack.id)
    whole, _, attribute = attack.id.partition("/")
    return Link(f"– {attribute}", f"#definition-{whole}")


def _told(attack: Attack) -> str:
    scenario = "The same, of one attribute." if "/" in attack.id else attack.scenario  # its attack is the row above
    told = f"Attacked: {attack.subject}. {scenario}" if attack.subject else scenario
    if not attack.concerns:
        return f"{told} What was attacked is not released."
    return told if attack.covers else f"{told} Of another policy or population."


def _others(data: ReportData) -> list[Block]:
    """Return what the same attacks reached on something else."""
    others = [attack for attack in data.attacks if not attack.judged]
    if not others:
        return []
    rows: list[list[Cell]] = [
        [
            _name(data, attack),
            attack.subject or "–",
            *(shown(a) for a in (attack.main, attack.baseline, attack.control)),
        ]
        for attack in others
    ]
    table = Table(
        id="table-attacks-others",
        caption="For comparison, and judged by no check",
        columns=("Attack", "What was attacked", "Main", "Baseline", "Control"),
        rows=rows,
        numeric=(2, 3, 4),
        note="The same attacks on something else than what is released, and guesses that are no attack.",
    )
    return [table]


def _figures(data: ReportData, attack: Attack) -> Block:
    rows: list[list[Cell]] = [
        [named(data, name) if name in data.definitions else name, shown(amount)]
        for name, amount in _with_intervals(attack.figures).items()
    ]
    table = Table(
        id=f"table-attack-{attack.id}",
        caption=f"Figures of the attack {attack.id}",
        columns=("Figure", "Value"),
        rows=rows,
        numeric=(1,),
        note="Defined in the reference of audits.",
    )
    return Folded(f"Figures of the attack {attack.id}", (table,))


def _with_intervals(figures: Mapping[str, Amount]) -> dict[str, Amount]:
    """Put the two ends of an interval beside its figure."""
    beside = {f"{name}{end}" for name in figures for end in ("_low", "_high")}

    def told(name: str, amount: Amount) -> Amount:
        low, high = (figures.get(f"{name}_{end}", amount) for end in ("low", "high"))
        return amount if low is amount or high is amount else replace(amount, low=low.value, high=high.value)

    return {name: told(name, amount) for name, amount in figures.items() if name not in beside}


def _dp(data: ReportData) -> Section:
    title = "Differential privacy"
    if data.dp is None:
        text = "Not used in the period: the explanations are generalised counterfactuals, and no epsilon is claimed."
        return Section(id="section-11", number="11", title=title, blocks=(Paragraph(text),))
    dp = data.dp
    if dp["guarantee"] == "none":
        lead = (
            "No guarantee; see the audit. Epsilon is a claim here: noise was seeded, a domain was read from rows, or "
            "the method has no proof."
        )
    else:
        lead = f"What is guaranteed: {dp['covers']}."
    total = "not stated: " + ("nothing is guaranteed" if dp["guarantee"] == "none" else "the model is not covered")
    rows: list[list[Cell]] = [
        ["Guarantee", str(dp["guarantee"])],
        ["Epsilon, delta of the answers", f"{dp['epsilon']:g}, {dp['delta']:g}"],
        [
            "Epsilon, delta of everything that leaves",
            total if dp["total"] is None else f"{dp['total'][0]:g}, {dp['total'][1]:g}",
        ],
        ["Unit of privacy", str(dp["unit"])],
        ["Neighbouring tables", str(dp["neighbours"])],
        ["Mechanism and accountant", str(dp["mechanism"])],
        ["What may be known of the model", str(dp["model_access"])],
        ["Noise seeded", yes_no(dp["seeded"])],
        ["Domains read from rows", ", ".join(dp["inferred"]) or "none"],
        ["Largest balanced accuracy of a membership attack", _bound(dp["membership_bound"])],
    ]
    table = Table(id="table-dp", caption="What is stated", columns=("What", "Value"), rows=rows)
    models: list[list[Cell]] = [[name, str(text)] for name, text in dp["threat_models"].items()]
    threat = Table(
        id="table-dp-models",
        caption="What epsilon covers, by access to the model",
        columns=("Access", "What holds"),
        rows=models,
    )
    blocks: list[Block] = [Paragraph(lead), table, *([threat] if models else [])]
    blocks.append(metric_table(data, _DP, "table-dp-figures", "Budget"))
    return Section(id="section-11", number="11", title=title, blocks=blocks)


def _bound(value: object) -> str:
    return "no bound" if value is None else f"{value:.3g} (e^ε + δ over 1 + e^ε)"


_TOLD = ("0.1", "0.01", "0.001")
_TITLE = "Members found, by false alarms"
_DESCRIPTION = (
    "Read it so: an attacker who takes this share of the people who were not trained on for members (horizontal) finds "
    "this share of those who were (vertical). Both axes are logarithmic, since an attacker who is sure of a few people "
    "works on the left. On the line of the coin nobody learns anything."
)
_BELOW = " Where an epsilon is claimed no attack may be above its line."


def roc_charts(data: ReportData) -> list[Chart]:
    """Return a chart for every distribution of curves."""
    attacks = {attack.id: attack for attack in data.attacks if attack.judged}
    found = [each for each in data.distributions if each.id == "roc" or each.id.startswith("roc-")]
    return [_roc_chart(each, attacks) for each in found]


def _roc_chart(found: Distribution, attacks: dict[str, Attack]) -> Chart:
    curves = {name: _points(found, amounts) for name, amounts in found.series.items() if name not in BOUNDS}
    bounds = {name: _points(found, found.series[name]) for name in BOUNDS if name in found.series}
    drawn = sorted({x for points in curves.values() for x, _ in points})
    coin = [(x, x) for x in (drawn[0], drawn[-1])] if drawn else []
    within = {name: [point for point in points if drawn and point[0] >= drawn[0]] for name, points in bounds.items()}
    picture = Curves(
        series=tuple(curves.items()),
        guides=((COIN, coin), *within.items()),
        legend=(*(_said(name, attacks) for name in curves), COIN, *(BOUNDS[name] for name in bounds)),
        x="share of others taken for members (FPR)",
        y="share of members found (TPR)",
        logarithmic=True,
    )
    return Chart(
        id=f"chart-{found.id}",
        title=_TITLE,
        description=_DESCRIPTION + (_BELOW if bounds else ""),
        picture=picture,
        table=_roc_table(found, [*curves, *bounds]),
    )


def _points(found: Distribution, amounts: tuple[Amount, ...]) -> list[tuple[float, float]]:
    pairs = zip(found.labels, amounts, strict=True)
    return [(float(label), amount.value) for label, amount in pairs if amount.value is not None and amount.value > 0]


def _roc_table(found: Distribution, names: list[str]) -> Table:
    told = [rate for rate in _TOLD if rate in found.labels]
    places = [found.labels.index(rate) for rate in told]
    rows: list[list[Cell]] = [
        [BOUNDS.get(name) or short(name), *(shown(found.series[name][place]) for place in places)] for name in names
    ]
    rows.append([COIN, *told])
    return Table(
        id=f"data-{found.id}",
        caption=f"{_TITLE}: the shares that matter most",
        columns=("", *(f"Found at {float(rate) * 100:g} % false alarms" for rate in told)),
        rows=rows,
        numeric=tuple(range(1, len(told) + 1)),
        note=" ".join(filter(None, (found.note, "All points are in the data of the report."))),
    )


def _said(name: str, attacks: dict[str, Attack]) -> str:
    """Write the name of a curve with the area below it, where the attack's success is that area."""
    attack = attacks.get(name)
    if attack is None or name.startswith("membership_surrogate"):
        return short(name)
    area = attack.main
    return f"{short(name)}: AUC {shown(area)}" if area.measured else short(name)


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
