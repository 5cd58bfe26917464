"""Sections 9 and 11: attacks that were run, and what differential privacy states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cfk_plugin.report.data import Amount, Attack, ReportData
from cfk_plugin.report.rendering.composing.parts import metric_table, named, yes_no
from cfk_plugin.report.rendering.composing.roc import roc_charts
from cfk_plugin.report.rendering.document import Block, Cell, Folded, Link, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown

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
