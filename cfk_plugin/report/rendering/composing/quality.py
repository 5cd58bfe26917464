"""Sections 7, 8 and 10: whether advice holds, what it still says, and for whom."""

from __future__ import annotations

from cfk_plugin.report.data import Group, ReportData
from cfk_plugin.report.rendering.composing.charts import bars, curve, intervals, sorted_intervals
from cfk_plugin.report.rendering.composing.parts import distribution, metric_table
from cfk_plugin.report.rendering.document import Block, Cell, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown

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
        *(_chart(data, metric) for metric in ("ncp", "pureness", "suppressed") if _drawn(data, metric)),
    ]
    return Section(id="section-10", number="10", title="Group differences", blocks=blocks)


def _drawn(data: ReportData, metric: str) -> list[Group]:
    return [group for group in data.groups if group.metric == metric and group.gap.low is not None]


def _chart(data: ReportData, metric: str) -> Block:
    tolerance = next((t["value"] for t in data.policy["thresholds"] if t["id"] == "group_gap"), None)
    lines = (("no difference", 0.0), *((("tolerance", -tolerance), ("tolerance", tolerance)) if tolerance else ()))
    rows = [(f"{group.attribute}: {group.group}", group.gap) for group in _drawn(data, metric)]
    title = f"{_METRICS[metric]}: difference between each group and the rest"
    description = f"Difference of the mean ({_METRICS[metric]}) with its 95 % interval; no difference is at 0."
    return intervals(f"groups-{metric}", title, description, rows, "difference of the means", lines)
