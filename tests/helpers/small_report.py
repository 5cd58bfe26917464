"""A small report that has something of everything, with texts that break renderings which do not escape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cfk_plugin.report.data import (
    Amount,
    Attack,
    CheckResult,
    Definition,
    Distribution,
    Group,
    Metric,
    Placeholder,
    ReportData,
)

HOSTILE = "a|b <script>alert(1)</script> *x* _y_ `z`\nnext & \"q\" 'r' [l](javascript:1)\x07"
"""What markup of any kind would take for its own."""

_DEFINITION = Definition(
    name="People per explanation",
    formula="number of people who fit the region",
    range="1 to the population",
    direction="higher is better",
    source="Samarati 2001",
    does_not_say="Who knows a private value may be left with fewer people.",
)


def check(
    name: str, status: Any = "pass", measured: float | None = 12, needed: float = 12, **changes: Any
) -> CheckResult:
    """Return one check."""
    settings: dict[str, Any] = {
        "source": "policy",
        "section": 5,
        "text": f"The {name} check found what it found.",
        "evidence": ("run1/3",),
    }
    return CheckResult(
        id=name, status=status, measured=Amount(value=measured), threshold=Amount(value=needed), **settings | changes
    )


def report(**changes: Any) -> ReportData:
    """Return a report whose verdict is review; `changes` are fields of `ReportData`."""
    data = ReportData(
        report={
            "id": "0123456789abcdef",
            "edition": "internal",
            "title": "Privacy of explanations: loans",
            "verdict": "review",
            "period": {
                "first": "2026-11-01T08:00:00Z",
                "last": "2026-11-20T17:00:00Z",
                "since": None,
                "until": None,
            },
            "as_of": "2026-11-20T17:00:00Z",
            "reason": "scheduled",
            "command": "cfk report --run run1 -o report.html",
            "not_covered": (
                "Who knows a private value may recognise a person.",
                "Copies of the model are not measured.",
                "Drift of the population is not measured.",
            ),
        },
        system={"purpose": None, "recipients": "applicants"},
        population={
            "people": Amount(value=1200),
            "rows": Amount(value=1300),
            "unique": Amount(value=0.21),
            "below_k": Amount(value=0.6),
            "subject_key": True,
            "fingerprint": "f00d",
            "k": 12,
            "populations": 1,
        },
        attributes=(
            {
                "name": "age",
                "role": "quasi-identifier",
                "kind": "numeric",
                "weight": 1.0,
                "distinct": Amount(value=60),
                "bounds_source": "learned",
            },
        ),
        policy={
            "preset": "ema-0070",
            "policies": (
                {"sha256": "abc", "settings": {"k": 12}, "first": None, "last": None, "asked": Amount(value=3)},
            ),
            "methods": ("exact",),
            "guarantees": ("nominal",),
            "generators": ("dice",),
            "seed": ("0",),
            "deviations": (),
            "thresholds": ({"id": "k_min", "value": 12, "source": "EMA Policy 0070"},),
            "techniques": ("generalization",),
        },
        releases={
            "exact": Amount(value=20),
            "generalised": Amount(value=1460),
            "prototypes": Amount(value=0),
            "suppressed": Amount(value=20),
            "asked": Amount(value=1500),
            "released": Amount(value=1480),
            "untracked": Amount(),
            "reasons": {"infeasible": Amount(value=20)},
            "latency": {"0.5": Amount(value=0.0123)},
        },
        checks=(
            check("k_min", measured=13),
            replace(
                check("pureness", "review", measured=None, needed=0.95),
                measured=Amount(value=0.96, low=0.93, high=0.98, n=100),
            ),
            check("attack_linkage", "not_measured", measured=None, needed=0.05, section=9, evidence=()),
        ),
        metrics=(
            Metric(id="k_min", amount=Amount(value=13, n=1480), section=5),
            Metric(id="pureness_mean", amount=Amount(value=0.96, low=0.93, high=0.98), section=7),
            Metric(id="ncp_mean", amount=Amount(value=0.12), section=8),
        ),
        distributions=(
            Distribution(
                id="class_sizes",
                section=2,
                labels=("below 12", "12 and more"),
                series={"before": (Amount(value=0.6), Amount(value=0.4)), "after": (Amount(value=0), Amount(value=1))},
                marks={"k": 12.0},
            ),
        ),
        groups=(
            Group(
                attribute="sex",
                group="f",
                metric="ncp",
                n=Amount(value=700),
                mean=Amount(value=0.13),
                rest=Amount(value=0.11),
                gap=Amount(value=0.02, low=-0.01, high=0.05),
            ),
        ),
        attacks=(
            Attack(
                id="linkage",
                family="linkage",
                scenario="Knows everybody's quasi-identifiers.",
                main=Amount(value=0.02, low=0.01, high=0.05),
                baseline=Amount(value=0.01),
                control=Amount(),
                figures={"raw_singled_out": Amount(value=0.4)},
                worked=True,
                run="run2",
            ),
        ),
        criteria=({"criterion": "singling out", "evidence": "k_min", "status": "pass", "text": "k holds."},),
        dp=None,
        limits=("The attacker knows the quasi-identifiers alone.",),
        placeholders=(Placeholder(id="purpose", question="What is the purpose?", role="owner", section=1),),
        sign_off=({"role": "DPO", "name": None, "date": None},),
        controls=(
            {
                "control": "NIST AI RMF MEASURE 2.10",
                "requires": "privacy risk examined",
                "section": "5",
                "status": "voluntary",
                "checked_on": "2026-11-01",
            },
        ),
        environment={
            "packages": {"cfk-plugin": "0.1.0"},
            "plugins": ("dice 0.1.0", "nice 1.0.0"),
            "python": "3.11.9",
            "ledger": None,
            "model": "m-1",
        },
        runs=(
            {
                "run": "run1",
                "name": "first",
                "experiment": "loans",
                "started": "2026-11-01T08:00:00Z",
                "asked": 1500,
                "verdict": "pass",
                "audits": (),
            },
        ),
        certificates=(
            {
                "id": "run1/3",
                "k": Amount(value=13),
                "ncp": Amount(value=0.3),
                "pureness": Amount(),
                "optimality": "heuristic",
                "status": "released",
            },
        ),
        changes=None,
        suppressed_cells=("population.attributes.age",),
        definitions=dict.fromkeys(("k_min", "pureness", "attack_linkage", "pureness_mean", "ncp_mean"), _DEFINITION),
    )
    return replace(data, **changes)


def with_head(data: ReportData, **changes: Any) -> ReportData:
    """Return a report whose head says something else, such as its edition."""
    return replace(data, report={**data.report, **changes})
