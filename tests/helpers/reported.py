"""Evidence as runs would hold it, written down: for tests that want a run with exactly one thing wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import PrivacyPolicy
from cfk_plugin.report.inputs import QUESTIONS, SIGNERS, HumanInputs
from cfk_plugin.report.runs import Evidence, RunEvidence

START = pd.Timestamp("2026-10-01T08:00:00Z")
ATTACKS = ("linkage", "membership", "extraction", "attribute_inference")
POLICY = PrivacyPolicy(k=12, anonymity_set="eligible", min_pureness=0.5, max_ncp=0.5)


def rows(n: int = 100, policy: PrivacyPolicy = POLICY, **columns: Any) -> pd.DataFrame:
    """Return `n` released regions with which nothing is wrong, but for the columns that are given."""
    table = pd.DataFrame(
        {
            "step": np.arange(n),
            "timestamp": START + pd.to_timedelta(np.arange(n), unit="min"),
            "status": "released",
            "reason": None,
            "k": 12 + np.arange(n) % 30,
            "ncp": 0.1 + 0.2 * (np.arange(n) % 7) / 7,
            "pureness": 0.95,
            "pureness_low": 0.95,
            "pureness_high": 0.95,
            "exact": True,
            "optimal": False,
            "gap": np.nan,
            "policy_hash": policy.sha256,
            "k_desired": 12 + np.arange(n) % 20,
            "k_consistent": 5,
            "k_effective": 12 + np.arange(n) % 10,
            "k_private": 1,
            "private_matches": 3,
            "l": 4,
            "t": 0.1,
            "disclosure": 0.2,
            "majority": True,
            "finding": "native",
            "ledger": "new",
            "k_intersection": 12 + np.arange(n) % 10,
            "seconds": 0.01,
            "group": np.where(np.arange(n) % 2, "women", "men"),
            "ncp.age": 0.1,
            "ncp.city": 0.3,
        }
    )
    return table.assign(**columns)


def population(**changes: Any) -> dict[str, Any]:
    """Return what a run says of a population of 1,000 people."""
    facts: dict[str, Any] = {
        "schema_version": 1,
        "fingerprint": "f" * 64,
        "rows": 1_000,
        "people": 1_000,
        "subject_key": True,
        "k": 12,
        "unique": 400,
        "below_k": 900,
        "classes": [
            {"from": 1, "to": 12, "people": 900},
            {"from": 12, "to": 24, "people": 60},
            {"from": 24, "to": None, "people": 40},
        ],
        "tolerance": 0.05,
        "attributes": [
            {
                "name": "age",
                "role": "quasi-identifier",
                "kind": "numeric",
                "weight": 0.5,
                "distinct": 60,
                "bounds": "declared",
                "learned": [],
            },
            {
                "name": "city",
                "role": "quasi-identifier",
                "kind": "nominal",
                "weight": 0.5,
                "distinct": 12,
                "bounds": None,
                "learned": [],
            },
            {
                "name": "salary",
                "role": "sensitive",
                "kind": "numeric",
                "weight": 0.0,
                "distinct": 300,
                "bounds": "declared",
                "learned": [],
            },
        ],
    }
    return facts | changes


def audit(name: str, main: float = 0.02, control: float = 0.02, n: int = 200, **said: Any) -> dict[str, Any]:
    """Return what an audit of the run's policy logs of one attack, which did no better than its control.

    For extraction the number to be compared with is the baseline: what queries alone give.
    """

    def rate(value: float) -> dict[str, Any]:
        return {"value": value, "low": max(value - 0.01, 0), "high": value + 0.01, "n": n}

    kind = next((kind for kind in ATTACKS if name.startswith(kind)), "linkage")
    baseline = control if kind == "extraction" else 0.001
    result = {"attack": name, "scenario": "Knows everything.", "main": rate(main), "baseline": rate(baseline)}
    result |= {"control": rate(control), "worked": main > control, "figures": {"success": main}, "seed": 0, "n": n}
    about = {"policy": POLICY.to_dict(), "population": "f" * 64}
    return {"schema_version": 1, "kind": kind, **about, "results": [result]} | said


def run(table: pd.DataFrame | None = None, asked: PrivacyPolicy = POLICY, **changes: Any) -> RunEvidence:
    """Return a run with which nothing is wrong, but for what is given."""
    table = rows(policy=asked) if table is None else table
    regions = table[table["k"].notna()]
    metrics = {
        "cfk.asked": float(len(table)),
        "cfk.released": float((table["status"] == "released").sum()),
        "cfk.suppressed": float((table["status"] == "suppressed").sum()),
        "cfk.untracked": 0.0,
        **(
            {"cfk.k.min": float(regions["k"].min()), "cfk.ncp.mean": float(regions["ncp"].mean())}
            if len(regions)
            else {}
        ),
    }
    parts: dict[str, Any] = {
        "run_id": "0123456789abcdef0123456789abcdef",
        "name": "release",
        "experiment": "credit",
        "started": int(START.value // 1_000_000),
        "params": {
            "cfk.k": str(asked.k),
            "cfk.method": "reciprocal",
            "cfk.guarantee": asked.guarantee,
            "cfk.groups": "sex",
        },
        "tags": {"cfk.policy_sha256": asked.sha256, "cfk.population_fingerprint": "f" * 64, "cfk.verdict": "pass"},
        "metrics": metrics,
        "policy": asked.to_dict(),
        "population": population(),
        "environment": {
            "python": "3.11.7",
            "packages": {"numpy": "2.4.6"},
            "plugins": [],
            "seed": 0,
            "ledger": "sqlite",
        },
        "rows": table,
        "audits": [audit(name) for name in ATTACKS],
    }
    return RunEvidence(**(parts | changes))


def evidence(*runs: RunEvidence) -> Evidence:
    """Return evidence of some runs; of one with which nothing is wrong without any."""
    return Evidence(runs=runs or (run(),))


def inputs(thresholds: Mapping[str, float] | None = None, **changes: Any) -> HumanInputs:
    """Return answers to every question, and every signature."""
    answers = {name: _answer(asked.kind, asked.choices) for name, asked in QUESTIONS.items()}
    parts: dict[str, Any] = {
        "answers": answers,
        "sign_off": {name: {"name": "N. N.", "date": "2026-11-01"} for name in SIGNERS},
        "thresholds": thresholds or {"attribute_disclosure": 0.5, "group_gap": 0.3},
        "reason": "monthly review",
    }
    return HumanInputs(**(parts | changes))


def _answer(kind: str, choices: Sequence[str]) -> str:
    return {"text": "answered", "date": "2027-01-31"}.get(kind) or choices[0]
