"""A report's document with every kind of block, and with what is hard to set: long names, many rows, odd letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cfk_plugin.report.charts import Bars, Curves, Intervals
from cfk_plugin.report.render import (
    Block,
    Bullets,
    Chart,
    Document,
    Folded,
    Link,
    Mark,
    Open,
    Paragraph,
    Section,
    TableBlock,
)

TITLE = 'Credit decisions <retail & "private" customers>, Lübeck'
LONG_NAME = "marital_status_of_the_first_applicant_at_the_time_of_the_application"
RUNS = "https://mlflow.example.org/#/experiments/1/runs/"
ATTRIBUTES = [
    "age",
    LONG_NAME,
    "postcode",
    "Straße & Hausnummer",
    'income "net" < 1 000',
    "AttributeWithoutAnyJointWhatsoeverInItsWholeLength",
    *(f"attribute {number}" for number in range(7, 25)),
]

CHECKS = [
    ("k_min", "Smallest class", "7", "11", "cms-11", "fail", "5"),
    ("attribute_disclosure", "Attribute disclosure", "0.62 (0.55–0.69)", "0.5", "policy", "fail", "5"),
    ("pureness", "Pureness", "0.982 (0.964–1)", "0.99", "policy", "review", "7"),
    ("attack_membership", "Membership attack", "not measured", "0.05", "house choice", "not_measured", "9"),
    ("human_inputs", "Questions to people", "3 open", "0 open", "this report", "review", "12"),
    ("k_desired_min", "Smallest class with the outcome", "12", "11", "cms-11", "pass", "5"),
    ("k_intersection", "Smallest class over releases", "11", "11", "policy", "pass", "6"),
    ("ncp", "Information loss (NCP)", "0.143", "0.3", "policy", "pass", "8"),
    ("native_leak", "Released training rows", "0", "0", "definition", "pass", "5"),
    ("attack_linkage", "Linkage attack", "0.012 (0.004–0.027)", "0.05", "house choice", "pass", "9"),
    ("group_gap", "Differences between groups", "0.021 (0.003–0.04)", "0.05", "policy", "pass", "10"),
    ("schema_declared", "Declared schema", "declared", "declared", "policy", "pass", "2"),
]


def verdict() -> Section:
    """The section that a reader must not have to look for."""
    rows = [
        (
            Link(name, f"#definition-{key}"),
            found,
            asked,
            source,
            Mark(status),
            Link(f"Section {place}", f"#section-{place}"),
        )
        for key, name, found, asked, source, status, place in CHECKS
    ]
    return Section(
        id="section-0",
        number="0",
        title="Verdict",
        blocks=[
            TableBlock(
                id="checks",
                caption="Checks: those that fail first",
                columns=["Check", "Measured", "Threshold", "Source of threshold", "Status", "Evidence"],
                rows=rows,
                numeric=[1, 2],
                note="Intervals are two-sided, at 95 %, and not corrected for the number of checks.",
            ),
            Bullets(
                ["Judged by the end of an interval.", ("Not measured is no pass: ", Link("why", "#section-9"), ".")]
            ),
        ],
    )


def table(rows: int, **changes: object) -> TableBlock:
    """A table of releases with so many rows."""
    made = TableBlock(
        id=f"releases-{rows}",
        caption="Releases, those with the smallest classes first",
        columns=["Release", "Run", "k", "NCP", "Pureness", "Optimality", "Status", "Attributes that were widened"],
        rows=[
            (
                f"{number:032x}",
                Link(f"run {number}", f"{RUNS}{number:032x}"),
                str(7 + number),
                f"{0.01 * number:.2f}",
                "0.982 (0.964–1)",
                "proved",
                Mark("fail" if number < 3 else "pass"),
                (LONG_NAME, ", age; ", Link("definition", "#definition-ncp")),
            )
            for number in range(rows)
        ],
        numeric=[2, 3, 4],
    )
    return replace(made, **changes)


def chart(
    name: str, title: str, description: str, picture: Bars | Intervals | Curves, columns: Any, rows: Any
) -> Chart:
    """A chart and its table, of which all columns but the first are numbers."""
    table = TableBlock(f"{name}-table", title, columns, rows, numeric=range(1, len(columns)))
    return Chart(name, title, description, picture, table)


def bars(categories: int, series: int = 1) -> Chart:
    """A chart of so many bars."""
    labels = ATTRIBUTES[:categories]
    values = [[round(0.9 * 0.87**place / (1 + number), 3) for place in range(categories)] for number in range(series)]
    names = ["NCP"] if series == 1 else ["before protection", "after protection", "without the partition"][:series]
    texts = [[f"{value:.3g}" for value in of_series] for of_series in values]
    missing: list[list[float | None]] = [list(of_series) for of_series in values]
    if categories > 2:
        missing[0][2], texts[0][2] = None, "not measured"
    axis = "NCP: 0 is the value itself, 1 the whole range"
    rows = [(label, *(text[place] for text in texts)) for place, label in enumerate(labels)]
    return chart(
        f"bars-{categories}-{series}",
        "Information loss by attribute",
        f"The first of {categories} attributes pays most; the loss falls from one to the next.",
        Bars(labels, list(zip(names, missing, strict=True)), texts, axis, top=1.0),
        ["Attribute", *names],
        rows,
    )


def intervals() -> Chart:
    """A chart of intervals with two lines."""
    rows = [
        ("Women", 0.962, 0.94, 0.981),
        ("Men", 0.991, 0.982, 0.997),
        ("Alleinerziehende über 60 Jahre in Thüringen", 0.9, 0.871, 0.93),
        ("Other groups", 1.0, 0.964, 1.0),
    ]
    texts = [f"{at:.3g} ({low:.3g}–{high:.3g})" for _, at, low, high in rows]
    return chart(
        "groups",
        "Pureness by group",
        "One group of four lies below the floor with its whole interval.",
        Intervals(rows, texts, "Pureness", [("floor of the policy", 0.95), ("all", 0.97)]),
        ["Group", "Pureness", "95 % from", "to"],
        [(name, *(f"{number:.3g}" for number in numbers)) for name, *numbers in rows],
    )


def frontier() -> Chart:
    """A chart of two lines over k."""
    ks = (2, 3, 5, 8, 10, 12, 15, 20, 25, 30)
    ncp = [(float(k), round(0.04 * k**0.6, 4)) for k in ks]
    pureness = [(float(k), round(1 - 0.004 * k, 4)) for k in ks]
    lines = [("NCP (lower is better)", ncp), ("pureness (higher is better)", pureness)]
    return chart(
        "frontier",
        "What a larger k would cost",
        "From k = 2 to k = 30 the information loss grows from 0.06 to 0.31, and pureness falls to 0.88.",
        Curves(lines, "k: people who share a release", "Share", verticals=[("policy: k = 10", 10.0)]),
        ["k", "NCP", "Pureness"],
        [(str(k), f"{a:.3g}", f"{b:.3g}") for k, (_, a), (_, b) in zip(ks, ncp, pureness, strict=True)],
    )


def risk() -> Chart:
    """A chart of steps with lines both ways."""
    steps = [(0.0, 1.0), (0.02, 0.83), (0.04, 0.41), (0.0625, 0.22), (0.0833, 0.05), (0.0909, 0.0), (0.12, 0.0)]
    return chart(
        "risk",
        "Share of releases above a risk",
        "No release has a prosecutor risk above 0.0909; 5 % lie above 0.0833.",
        Curves(
            [("releases", steps)],
            "Prosecutor risk: 1 divided by the people who match",
            "Share of releases above it",
            steps=True,
            verticals=[("EMA", 0.09), ("1/k", 0.1)],
            horizontals=[("tolerated share", 0.05)],
        ),
        ["x", "Share above"],
        [(f"{x:.3g}", f"{share:.3g}") for x, share in steps],
    )


def roc() -> Chart:
    """A chart on logarithmic axes: curves that all but coincide, one that leaves them, and lines to compare with."""
    rates = [10 ** (power / 10) for power in range(-30, 1)]
    curves = {
        "CFD: AUC 0.512 (0.478–0.547)": [rate**0.98 for rate in rates],
        "CFD-LRT: AUC 0.498 (0.463–0.533)": [rate**1.01 for rate in rates],
        "Loss: AUC 0.831 (0.803–0.857)": [rate**0.4 for rate in rates],
        "surrogate thresh": [0.0 if rate < 0.01 else rate for rate in rates],
    }
    bound = [min(1.0, 2.71828 * rate) for rate in rates]
    names = ("a coin", "most that epsilon admits", "the same, as published")
    guides = ([(0.001, 0.001), (1.0, 1.0)], zip(rates, bound, strict=True), [(0.001, 0.633), (1.0, 1.0)])
    return chart(
        "roc",
        "Members found, by false alarms",
        "One attack finds 6 % of the members at 0.1 % false alarms, the others find as many of both.",
        Curves(
            [(name, list(zip(rates, curve, strict=True))) for name, curve in curves.items()],
            "share of others taken for members (FPR)",
            "share of members found (TPR)",
            guides=[(name, list(points)) for name, points in zip(names, guides, strict=True)],
            legend=[*curves, *names],
            logarithmic=True,
        ),
        ["Attack", "Found at 10 %", "at 1 %", "at 0.1 %"],
        [(name, *(f"{curve[place]:.3g}" for place in (20, 10, 0))) for name, curve in curves.items()],
    )


def definitions() -> Section:
    """What each check is, as tables with anchors of their own."""
    blocks: list[Block] = [
        TableBlock(
            id=f"definition-{key}",
            caption=name,
            columns=["Part", "Text"],
            rows=[
                ("Formula", "min over releases r of |E(r)|, E(r) = { i ∈ D : x_i ∈ R(r) }"),
                ("Range", "1 to the number of people; higher is better"),
                ("Does not say", "What somebody knows who has more than the quasi-identifiers."),
            ],
        )
        for key, name, *_ in CHECKS
    ]
    return Section(id="annex-b", number="B", title="Definitions", blocks=blocks)


def document() -> Document:
    """A whole report."""
    titles = {
        "1": "Scope and release context",
        "2": "Population and schema",
        "3": "Policy and method",
        "4": "Releases in the period",
        "5": "Privacy risk of a single release",
        "6": "Composition",
        "7": "Validity",
        "8": "Utility",
        "9": "Attacks",
        "10": "Group differences",
        "11": "Differential privacy",
        "12": "Limits, assumptions, sign-off",
        "13": "Reproducibility",
    }
    blocks: dict[str, list[Block]] = {
        "1": [
            Open("Who receives the explanations, and may they pool them?", "product owner"),
            Paragraph("Straße < & >"),
        ],
        "2": [table(0, id="nothing", caption="Attributes without a declared bound"), bars(5, 2)],
        "4": [table(4), Folded("Reasons for suppression", [Paragraph("One release had none."), table(2)])],
        "5": [risk()],
        "7": [intervals()],
        "8": [frontier(), bars(24), bars(1)],
        "9": [roc()],
        "10": [bars(3, 3)],
        "12": [Open("Who signs this report?", "data protection officer")],
        "13": [Paragraph(("Run ", Link("4f1d", f"{RUNS}4f1d"), " and ", Link("a script", "javascript:alert(1)"), "."))],
    }
    words = Paragraph(
        "Figures are recomputed by the verifier from what was released; nothing is taken from the search."
    )
    sections = [
        Section(id=f"section-{number}", number=number, title=title, blocks=[words, *blocks.get(number, [])])
        for number, title in titles.items()
    ]
    annex = Section(id="annex-a", number="A", title="Certificates", blocks=[table(30)])
    return Document(
        title=TITLE,
        edition="internal",
        verdict="fail",
        headline="Two of twelve checks fail: the smallest class has 7 people where 11 are asked, and attribute "
        "disclosure is above its limit. One attack was not measured.",
        facts=[
            ("Period", "1 June to 30 June 2026"),
            ("Explanations", "10,000 asked, 9,311 released, 689 suppressed"),
            ("Population", "48,842 people, fingerprint 5d1c0a7e44aa90b2"),
            ("Policy", "preset cms-11, k = 11"),
        ],
        sections=[verdict(), *sections, annex, definitions()],
        not_covered=[
            "Who knows a private value of somebody may recognise it in a release.",
            "The membership attack was not run; nothing is said of it.",
            "Whether the decision is right, and what recipients do with an explanation.",
        ],
        data='{\n "verdict": "fail",\n "title": "Lübeck <&>"\n}\n',
    )


def brief() -> Document:
    """A report with one block of each kind."""
    whole = document()
    blocks = [
        Open("Who signs this report?", "data protection officer"),
        Folded("Reasons for suppression", [table(2)]),
        Bullets(["one", ("two, ", Link("run", f"{RUNS}1"))]),
        bars(3, 2),
        intervals(),
        frontier(),
        roc(),
    ]
    anchors = [TableBlock(id="definition-ncp", caption="NCP", columns=["Part", "Text"], rows=[("Range", "0 to 1")])]
    first = replace(whole.sections[0], blocks=[table(1, id="checks"), *blocks])
    return replace(whole, sections=[first, Section(id="annex-b", number="B", title="Definitions", blocks=anchors)])
