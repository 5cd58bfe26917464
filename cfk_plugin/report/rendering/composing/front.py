"""Sections 0 to 3: the verdict, what the report is about, the population, and the policy."""

from __future__ import annotations

from collections.abc import Sequence

from cfk_plugin.report.data import Check, ReportData
from cfk_plugin.report.inputs.questions import QUESTIONS
from cfk_plugin.report.rendering.composing.parts import check_table, named, run_link, text_or, yes_no
from cfk_plugin.report.rendering.document import Block, Bullets, Cell, Folded, Link, Open, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown
from cfk_plugin.report.statements.wording import receiver_sentence

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
