"""Sections 9 and 11: attacks that were run, and what differential privacy states."""

from __future__ import annotations

from cfk_plugin.report.data import Attack, ReportData
from cfk_plugin.report.rendering.composing.parts import metric_table, named, yes_no
from cfk_plugin.report.rendering.document import Block, Cell, Folded, Paragraph, Section, Table
from cfk_plugin.report.rendering.text import shown

_DP = ("epsilon", "delta", "epsilon_spent", "membership_bound")


def attack_sections(data: ReportData) -> tuple[Section, ...]:
    """Return section 9, and 11 where there are prototypes."""
    return (_attacks(data), _dp(data))


def _attacks(data: ReportData) -> Section:
    missing = [check for check in data.checks if check.id.startswith("attack_") and check.status == "not_measured"]
    blocks: list[Block] = []
    if data.attacks:
        blocks.append(
            Paragraph(
                "Main: success of the attack. Baseline: the same guess without what the attack adds. Control: the same "
                "attack against people who are not in the training data. Intervals are 95 %, not corrected for "
                "looking at several."
            )
        )
        rows: list[list[Cell]] = [
            [
                named(data, attack.id),
                shown(attack.main),
                shown(attack.baseline),
                shown(attack.control),
                "–" if attack.main.n is None else f"{attack.main.n:,}",
                "yes" if attack.worked else "no",
                attack.scenario if attack.covers else f"{attack.scenario} Of another policy or population.",
            ]
            for attack in data.attacks
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
        table = Table(
            id="table-attacks", caption="Attacks", columns=columns, rows=rows, numeric=(1, 2, 3, 4), note=note
        )
        blocks += [table, *(_figures(attack) for attack in data.attacks if attack.figures)]
    else:
        blocks.append(Paragraph("No attack was run in the period. Run cfk audit and log the result to the experiment."))
    if missing:
        names = ", ".join(check.id.removeprefix("attack_").replace("_", " ") for check in missing)
        blocks.append(Paragraph(f"Not run, so nothing is known of them: {names}."))
    return Section(id="section-9", number="9", title="Attacks", blocks=blocks)


def _figures(attack: Attack) -> Block:
    rows: list[list[Cell]] = [[name, shown(amount)] for name, amount in attack.figures.items()]
    table = Table(
        id=f"table-attack-{attack.id}",
        caption=f"Figures of the attack {attack.id}",
        columns=("Figure", "Value"),
        rows=rows,
        numeric=(1,),
        note="Defined in the reference of audits.",
    )
    return Folded(f"Figures of the attack {attack.id}", (table,))


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
