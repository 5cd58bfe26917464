"""What a report says besides figures and checks: population, policies, releases, runs, the worst certificates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.release.results import PrototypeCertificate
from cfk_plugin.report.assessment.control import HIDDEN, Control, Figure
from cfk_plugin.report.assessment.figures import latest_population
from cfk_plugin.report.data import Amount

if TYPE_CHECKING:
    from cfk_plugin.report.assessment.pooled import Pooled
    from cfk_plugin.report.evidence import Evidence

_MOST_CERTIFICATES = 50
_LATENCIES = {"p50": "latency_p50", "p95": "latency_p95", "p99": "latency_p99"}


def day(moment: pd.Timestamp | datetime | None) -> str | None:
    """Write a moment as ISO 8601 in UTC, to the second."""
    return (
        None
        if moment is None or pd.isna(moment)
        else pd.Timestamp(moment).tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def of_milliseconds(value: int | None) -> str | None:
    """Write milliseconds since 1970 as ISO 8601."""
    return None if value is None else day(datetime.fromtimestamp(value / 1000, UTC))


def population(evidence: Evidence, figures: Mapping[str, Figure], control: Control) -> dict[str, Any]:
    """Describe the population before protection, in bands."""
    facts = latest_population(evidence) or {}
    counts = {name: control.amount(_people(facts.get(name)), f"population.{name}") for name in ("people", "rows")}
    shares = {name: control.amount(figures[name], f"population.{name}") for name in ("unique", "below_k")}
    about = {"subject_key": facts.get("subject_key"), "fingerprint": facts.get("fingerprint"), "k": facts.get("k")}
    prints = {run.population.get("fingerprint") for run in evidence.runs if run.population is not None}
    return {**counts, **shares, **about, "populations": len(prints - {None})}


def _people(count: int | str | None) -> Figure:
    """Return a number to be shown in bands; one that the run hides stays hidden."""
    if isinstance(count, str):
        return Figure(value=None, kind="people", band=count)
    return Figure(value=count, kind="people")


def attributes(evidence: Evidence, control: Control) -> tuple[dict[str, Any], ...]:
    """Describe the attributes: roles and kinds as declared, numbers of distinct values in bands."""
    facts = latest_population(evidence) or {}
    return tuple(
        {
            "name": attribute["name"],
            "role": attribute["role"],
            "kind": attribute["kind"],
            "weight": attribute.get("weight"),
            "distinct": control.amount(
                _people(attribute.get("distinct")),
                f"attributes.{attribute['name']}.distinct",
            ),
            "bounds_source": attribute.get("bounds") or "not needed",
        }
        for attribute in facts.get("attributes", ())
    )


def policy(pooled: Pooled, preset: str | None, control: Control) -> dict[str, Any]:
    """Describe the policies in force, and how settings changed in the period."""
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows else pd.Series(dtype="datetime64[ms, UTC]")
    by_policy: dict[str, dict[str, Any]] = {}
    for i, run in enumerate(pooled.runs):
        found = times[(pooled.rows["run"] == i).to_numpy()]
        sha = run.tags.get("cfk.policy_sha256", "")
        one = by_policy.setdefault(sha, {"settings": dict(run.policy or {}), "times": [], "asked": 0})
        one["times"] += [found.min(), found.max()]
        one["asked"] += len(found)
    counts = {sha: int(one["asked"]) for sha, one in by_policy.items()}
    asked = control.counts(counts, "policy.policies", people=False)
    policies = [
        {
            "sha256": sha,
            "settings": one["settings"],
            "first": day(min(one["times"])),
            "last": day(max(one["times"])),
            "asked": asked[sha],
        }
        for sha, one in by_policy.items()
    ]
    policies.sort(key=lambda one: (str(one["first"]), str(one["sha256"])))
    environments = [run.environment for run in pooled.runs if run.environment is not None]
    settings = {name: _of_params(pooled, f"cfk.{name}") for name in ("method", "guarantee", "generator")}
    return {
        "preset": preset,
        "policies": policies,
        "methods": settings["method"],
        "guarantees": settings["guarantee"],
        "generators": settings["generator"],
        "seed": sorted({str(found["seed"]) for found in environments if found.get("seed") is not None}),
        "deviations": _deviations(pooled, policies, settings),
    }


def _of_params(pooled: Pooled, name: str) -> list[str]:
    return sorted({run.params[name] for run in pooled.runs if name in run.params})


def _deviations(pooled: Pooled, policies: list[dict[str, Any]], settings: Mapping[str, list[str]]) -> list[str]:
    """Say what was not the same during the whole period."""
    said = [f"{len(policies)} different policies were in force."] if len(policies) > 1 else []
    said += [
        f"{len(values)} different {name}s: {', '.join(values)}." for name, values in settings.items() if len(values) > 1
    ]
    prints = {run.tags.get("cfk.population_fingerprint") for run in pooled.runs} - {None}
    said += [f"{len(prints)} different populations were protected."] if len(prints) > 1 else []
    return said


def releases(figures: Mapping[str, Figure], pooled: Pooled, control: Control) -> dict[str, Any]:
    """Describe what was asked for, and what became of it."""
    # What adds up to everything that was asked for: with a small one, a second one is hidden.
    parts = ("exact", "generalised", "prototypes", "suppressed")
    counts = {name: int(figures[name].value or 0) for name in parts if figures[name].value is not None}
    found: dict[str, Any] = dict.fromkeys(parts, Amount()) | control.counts(counts, "releases", people=False)
    found["asked"] = control.total(counts, "releases.asked")
    complement = found["suppressed"].band is not None  # of what was asked for
    released = Amount(band=HIDDEN) if complement else Amount(value=figures["released"].value)
    found |= {"released": released, "untracked": control.amount(figures["untracked"], "releases.untracked")}
    control.hides_released = control.external and complement
    reasons = pooled.suppressed["reason"].value_counts() if len(pooled.suppressed) else pd.Series(dtype=int)
    counted = {str(name): int(count) for name, count in sorted(reasons.items(), key=lambda item: str(item[0])) if count}
    found["reasons"] = control.counts(counted, "releases.reasons", people=False)
    latencies = {
        short: control.amount(figures[name], f"releases.latency.{short}") for short, name in _LATENCIES.items()
    }
    return found | {"latency": {} if control.external else latencies}


def runs(evidence: Evidence, pooled: Pooled, control: Control) -> tuple[dict[str, Any], ...]:
    """List the runs; in the external edition none."""
    if control.external:
        return ()
    asked = {run.run_id: int((pooled.rows["run"] == i).sum()) for i, run in enumerate(pooled.runs)}
    return tuple(
        {
            "run": run.run_id,
            "name": run.name,
            "experiment": run.experiment,
            "started": of_milliseconds(run.started),
            "asked": asked.get(run.run_id, 0),
            "verdict": run.tags.get("cfk.verdict", ""),
            "audits": [str(audit.get("kind", "")) for audit in run.audits],
        }
        for run in evidence.runs
    )


def certificates(pooled: Pooled, control: Control) -> tuple[dict[str, Any], ...]:
    """List the releases with the fewest people and the lowest pureness; in the external edition none."""
    if control.external or not len(pooled.regions):
        return ()
    order = ["k", "pureness_low", "pureness"]
    worst = pooled.regions.sort_values(order, kind="stable").head(_MOST_CERTIFICATES)
    return tuple(
        {
            "id": name,
            "k": Amount(value=int(row["k"])),
            "ncp": Amount(value=float(row["ncp"])),
            "pureness": _with_interval(row),
            "optimality": _optimality(row),
            "status": "released",
        }
        for name, (_, row) in zip(pooled.evidence(worst, len(worst)), worst.iterrows(), strict=True)
    )


def _with_interval(row: pd.Series) -> Amount:
    value, low, high = (float(row[name]) for name in ("pureness", "pureness_low", "pureness_high"))
    return Amount(value=value) if row.get("exact") else Amount(value=value, low=low, high=high)


def _optimality(row: pd.Series) -> str:
    if row.get("optimal"):
        return "proved"
    gap = row.get("gap")
    return "heuristic" if gap is None or pd.isna(gap) else f"gap at most {gap:.3g}"


def dp(evidence: Evidence) -> dict[str, Any] | None:
    """Return what is guaranteed of the latest prototypes; None where there are none."""
    found = next((run.prototype for run in reversed(evidence.runs) if run.prototype is not None), None)
    if found is None:
        return None
    stated = {name: value for name, value in found.items() if name != "covers"}
    certificate = PrototypeCertificate(**{**stated, "inferred": tuple(stated.get("inferred", ()))})
    total = certificate.total
    return {
        **certificate.public(),
        "total": None if total is None else list(total),
        "membership_bound": certificate.membership_bound,
        "threat_models": certificate.threat_models,
    }


def environment(evidence: Evidence) -> dict[str, Any]:
    """Return versions of packages and plugins, of the latest run that says them."""
    found = next((run.environment for run in reversed(evidence.runs) if run.environment is not None), None) or {}
    plugins = found.get("plugins") or sorted(
        {run.tags["cfk.plugins"] for run in evidence.runs if "cfk.plugins" in run.tags}
    )
    return {
        "packages": dict(found.get("packages", {})),
        "plugins": list(plugins),
        "python": found.get("python"),
        "ledger": found.get("ledger"),
        "model": found.get("model"),
    }
