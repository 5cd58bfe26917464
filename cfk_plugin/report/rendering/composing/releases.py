"""Sections 4 to 6: what was released, the risk of one release, and of several together."""

from __future__ import annotations

from cfk_plugin.report.data import ReportData
from cfk_plugin.report.rendering.composing.charts import bars, curve
from cfk_plugin.report.rendering.composing.parts import distribution, metric_table
from cfk_plugin.report.rendering.document import Block, Cell, Mark, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown

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
