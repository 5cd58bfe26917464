"""Runs as MLflow would hold them, written by hand: for tests that want one with exactly one thing
wrong.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.entities import Metric, Param, RunTag
from numpy.typing import NDArray

from cfk_plugin import PrivacyPolicy, PrivacyReport
from cfk_plugin.audit.epsilon_bounds import bound_curves
from cfk_plugin.audit.result import AttackReport, AuditResult, Curve, Rate
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.report.data import ReportData
from cfk_plugin.tracking.tally import PLOTTED
from parts import packed, summary_with

START = pd.Timestamp("2026-10-01T08:00:00Z")
ATTACKS = ("linkage", "membership", "extraction", "attribute_inference")
POLICY = PrivacyPolicy(guarantee="lookup", k=12, min_pureness=0.5, max_ncp=0.5)
OF_POLICY = {"policy": POLICY.to_dict(), "population": "f" * 64}
PUBLIC = "step timestamp status reason k ncp pureness pureness_low pureness_high exact optimal gap method guarantee"
PUBLIC_COLUMNS = {*PUBLIC.split(), "policy_hash", "population", "epsilon", "delta", "certificate"}
"""What a run says of an explanation itself; everything else is in its recount."""
_numbers = itertools.count()


@contextmanager
def store(folder: Path, empty: Path) -> Iterator[str]:
    """Make a copy of an empty store the one in use, with an experiment `tests`."""
    shutil.copyfile(empty, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        mlflow.set_tracking_uri(uri)
        mlflow.create_experiment("tests", artifact_location=(folder / "artifacts").as_uri())
        yield uri


def rows(n: int = 100, policy: PrivacyPolicy = POLICY, **columns: Any) -> pd.DataFrame:
    """Return `n` released regions with which nothing is wrong, but for the columns that are
    given.
    """
    place = np.arange(n)
    table = {
        "step": place,
        "timestamp": START + pd.to_timedelta(place, unit="min"),
        "status": "released",
        "reason": pd.array([None] * n, dtype="string"),
        "k": 12 + place % 30,
        "ncp": 0.1 + 0.2 * (place % 7) / 7,
        **dict.fromkeys(("pureness", "pureness_low", "pureness_high"), 0.95),
        "exact": True,
        "optimal": False,
        "gap": np.nan,
        "policy_hash": policy.sha256,
        "k_desired": 12 + place % 20,
        "k_consistent": 12 + place % 5,
        "k_effective": 12 + place % 10,
        "k_private": 1,
        "private_matches": 3,
        "l": 4,
        "t": 0.1,
        "disclosure": 0.2,
        "majority": True,
        "finding": "native",
        "seconds": 0.01,
        "group": np.where(place % 2, "women", "men"),
        "ncp.age": 0.1,
        "ncp.city": 0.3,
    }
    return pd.DataFrame(table).assign(**columns)


def withheld(table: pd.DataFrame, last: int, reason: str = "infeasible") -> pd.DataFrame:
    """Return a table in which the explanations up to `last` were withheld."""
    table = table.astype({"k": float})
    table.loc[:last, ["k", "ncp", "pureness", "pureness_low", "pureness_high"]] = np.nan
    table.loc[:last, ["status", "reason"]] = ["withheld", reason]
    return table


def population(**changes: Any) -> dict[str, Any]:
    """Return what a run says of a population of 1,000 people."""
    columns = [
        ("age", "quasi-identifier", "numeric", 60),
        ("city", "quasi-identifier", "nominal", 12),
    ]
    columns += [("salary", "sensitive", "numeric", 300)]
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
            {"from": a, "to": b, "people": n}
            for a, b, n in ((1, 12, 900), (12, 24, 60), (24, None, 40))
        ],
        "tolerance": 0.05,
        "attributes": [
            {
                "name": name,
                "role": role,
                "kind": kind,
                "weight": 0.5,
                "distinct": n,
                "bounds": "declared",
                "learned": [],
            }
            for name, role, kind, n in columns
        ],
    }
    return facts | changes


def rate(value: float, n: int = 200) -> dict[str, Any]:
    return {"value": value, "low": max(value - 0.01, 0), "high": value + 0.01, "n": n}


def audit(name: str, main: float = 0.02, control: float = 0.02, **said: Any) -> dict[str, Any]:
    """Return what an audit of the run's policy logs of one attack, which did no better than its
    control.

    For extraction the number to be compared with is the baseline: what queries alone give.
    """
    kind = next((kind for kind in ATTACKS if name.startswith(kind)), "linkage")
    result = {
        "attack": name,
        "scenario": "Knows everything.",
        "main": rate(main),
        "control": rate(control),
    }
    result |= {
        "baseline": rate(control if kind == "extraction" else 0.001),
        "worked": main > control,
    }
    result |= {"figures": {"success": main}, "seed": 0, "n": 200}
    return {"schema_version": 1, "kind": kind, **OF_POLICY, "results": [result]} | said


def audits(*others: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return some audits, and one without a finding of each kind of attack that they are not of."""
    kinds = {other["kind"] for other in others}
    return [*others, *(audit(name) for name in ATTACKS if name not in kinds)]


def run(table: pd.DataFrame | None = None, policy: PrivacyPolicy = POLICY, **changes: Any) -> str:
    """Log a run with which nothing is wrong, but for what is given; a document that is None is left
    out.
    """
    client = mlflow.MlflowClient()
    table = rows(policy=policy) if table is None else table
    regions = table[table["k"].notna()]
    figures = {"asked": len(table), "released": int((table["status"] == "released").sum())}
    figures |= {"withheld": len(table) - figures["released"], "untracked": 0}
    if len(regions):
        figures |= {"k_min": int(regions["k"].min()), "ncp_mean": float(regions["ncp"].mean())}
    figures |= changes.pop("figures", {})
    metrics = {name: figures[name] for name in PLOTTED if name in figures}
    params = {"k": policy.k, "method": "exact", "guarantee": policy.guarantee, "groups": "sex"}
    params |= {"least_pureness": policy.least_pureness}
    tags = {"policy_sha256": policy.sha256, "population_fingerprint": "f" * 64, "verdict": "pass"}
    environment = {
        "python": "3.11.7",
        "packages": {"numpy": "2.4.6"},
        "plugins": [],
        "seed": 0,
    }
    experiment = client.get_experiment_by_name("tests")
    info = client.create_run(
        experiment.experiment_id, start_time=START.value // 1_000_000, run_name="release"
    ).info
    last = table["timestamp"].iloc[-1] if len(table) else START
    client.log_batch(
        info.run_id,
        [
            Metric(f"cfk.{name}", float(value), last.value // 1_000_000, len(table))
            for name, value in metrics.items()
        ],
        [
            Param(f"cfk.{name}", str(v))
            for name, v in (params | changes.pop("params", {})).items()
            if v is not None
        ],
        [RunTag(f"cfk.{name}", value) for name, value in tags.items()],
    )
    folder = Path(info.artifact_uri.removeprefix("file://")) / "cfk"
    part = f"part-{next(_numbers):06d}.json"
    (folder / "explanations").mkdir(parents=True)
    if len(table):
        (folder / "explanations" / part).write_bytes(packed(table))
    ran = changes.pop("audits", None)
    changes = {name.removesuffix(".json"): content for name, content in changes.items()}
    documents = {
        "summary": summary_with(**figures),
        "policy": policy.to_dict(),
        "population": population(),
        "environment": environment,
        **changes,
    }
    ran = [one | {"policy": policy.to_dict()} for one in audits()] if ran is None else ran
    documents |= {f"audit-{place}": one for place, one in enumerate(ran)}
    for name, content in documents.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return str(info.run_id)


def inputs(thresholds: Mapping[str, float] | None = None, **changes: Any) -> dict[str, Any]:
    """Return answers to every question, and limits."""
    from cfk_plugin.report.inputs import QUESTIONS

    answers = dict.fromkeys(QUESTIONS, "answered") | {"recipients_pool": "yes"}
    return {
        "answers": answers | changes.pop("answers", {}),
        "thresholds": thresholds or {"attribute_disclosure": 0.5, "group_gap": 0.3},
        **changes,
    }


def check(report: PrivacyReport, name: str) -> Any:
    return next(found for found in report.data.checks if found.id == name)


# --- what attacks of membership log, made by hand from scores; no attack is run ---

RATES = {"tpr_at_0_1": 0.1, "tpr_at_0_01": 0.01, "tpr_at_0_001": 0.001}


def membership(
    shifts: Mapping[str, float], n: int = 1_000, *, epsilon: float | None = None, **of: Any
) -> AttackReport:
    """Return a report of attacks whose scores of n members lie so many deviations above those of n
    others.
    """
    random = np.random.default_rng(0)
    found = {
        name: _roc(random.normal(shift, 1, n), random.normal(0, 1, n))
        for name, shift in shifts.items()
    }
    curves = {name: curve for name, (_, curve) in found.items()}
    results = tuple(_result(name, figures) for name, (figures, _) in found.items())
    settings: dict[str, Any] = {
        "kind": "membership",
        "subject": "nice",
        "settings": {},
        "results": results,
    }
    bounds = {} if epsilon is None else bound_curves(epsilon)
    return AttackReport(**(settings | {"curves": curves | bounds} | of))


def _result(name: str, found: dict[str, float]) -> AuditResult:
    area, n = found.pop("auc"), int(found["members"])
    half = 1.96 * (1 / (6 * n)) ** 0.5
    coin = Rate(0.5, 0.5, 0.5, 2 * n)
    return AuditResult(
        name, "Knows all.", Rate(area, area - half, area + half, 2 * n), coin, coin, found, 0, n
    )


def _roc(
    members: NDArray[np.float64], others: NDArray[np.float64]
) -> tuple[dict[str, float], Curve]:
    is_member = np.repeat([True, False], [len(members), len(others)])[
        np.argsort(-np.concatenate([members, others]))
    ]
    tpr = np.concatenate([[0.0], np.cumsum(is_member) / len(members)])
    fpr = np.concatenate([[0.0], np.cumsum(~is_member) / len(others)])
    figures = {
        "auc": float((members[:, None] > others).mean()),
        "members": len(members),
        "others": len(others),
    }
    for name, alarms in ((name, round(len(others) * rate)) for name, rate in RATES.items()):
        if alarms:
            hits = int((members > np.sort(others)[::-1][alarms]).sum())
            low, high = clopper_pearson(hits, len(members))
            figures |= {name: hits / len(members), f"{name}_low": low, f"{name}_high": high}
            figures[f"{name}_fpr_high"] = clopper_pearson(alarms, len(others)).high
    return figures, Curve(tuple(fpr.tolist()), tuple(tpr.tolist()))


def attack_report(
    kind: Any, name: str, main: Mapping[str, Any], against: Mapping[str, Any], **of: Any
) -> AttackReport:
    """Return a report of one attack, with what it reached and what that is compared with."""
    control = None if kind == "extraction" else Rate(**against)
    result = AuditResult(
        name, "Knows all.", Rate(**main), Rate(**against), control, {}, 0, main["n"]
    )
    return AttackReport(
        **({"kind": kind, "subject": "nice", "settings": {}, "results": (result,)} | of)
    )


# --- the report of the documentation, with other content ---

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "governance" / "example-report.json"
HOSTILE = (
    "a|b <script>alert(1)</script> *x* _y_ `z`\nnext & \"q\" 'r' [l](javascript:1) </style>\x07"
)
"""What markup of any kind would take for its own."""


def content() -> Any:
    return json.loads(EXAMPLE.read_text("utf-8"))


def example(base: Any = None, **changes: Any) -> PrivacyReport:
    """Return the example with other content; of a mapping, the parts that are given."""
    made = base or content()
    for name, value in changes.items():
        made[name] = (
            {**made[name], **value}
            if isinstance(made[name], dict) and isinstance(value, dict)
            else value
        )
    return PrivacyReport(ReportData.from_dict(made))


GAP = "One group gets explanations that differ"


def failed(made: dict[str, Any]) -> dict[str, Any]:
    """Return a report's content with a group gap that fails."""
    gap = {"status": "fail", "text": GAP}
    checks = [each | gap if each["id"] == "group_gap" else each for each in made["checks"]]
    return made | {"checks": checks, "report": made["report"] | {"verdict": "fail"}}


def bare(**changes: Any) -> PrivacyReport:
    """Return the same of a report with one check and little else, which is rendered in no time."""
    made = content()
    made |= {
        name: []
        for name in ("metrics", "distributions", "groups", "controls", "certificates", "attributes")
    }
    made |= {"checks": [line("records")]} | {name: made[name][:1] for name in ("limits", "attacks")}
    shown = {
        each["id"]
        for name in ("checks", "metrics", "attacks")
        for each in changes.get(name, made[name])
    }
    made["definitions"] = {
        name: told for name, told in made["definitions"].items() if name in shown
    }
    return example(made, **changes)


def amount(
    value: float | None = None, low: float | None = None, high: float | None = None, **more: Any
) -> Any:
    return {"value": value, "low": low, "high": high, "n": None, "band": None} | more


def line(
    name: str, status: str = "pass", measured: Any = 12, needed: Any = 12, **changes: Any
) -> dict[str, Any]:
    """Return a check as the JSON has it."""
    told = {"source": "policy", "section": 5, "text": f"The {name} check found it.", "evidence": []}
    told["step"] = ""
    amounts = {"measured": measured, "threshold": needed}
    return {"id": name, "status": status, **told, **changes} | {
        key: value if isinstance(value, dict) else amount(value) for key, value in amounts.items()
    }
