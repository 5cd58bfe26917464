"""Checks of how explanations came about and were recorded, and of what only people can say."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.records.tally import PER_EXPLANATION, figures, metric_of
from cfk_plugin.report.assessment.checks.case import Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.report.evidence import RunEvidence

_SCHEMA, _RELEASES, _RISK, _SIGN_OFF, _RUNS = 2, 4, 5, 12, 13
_NONE = Figure(value=0)


def verification(case: Case) -> Judgement:
    """Whether protectors kept what they promised: the recount withholds a proposal that does not hold."""
    line = Line("verification", _RISK, case.asked_k, "recount by the host")
    if not len(case.pooled):
        return line.says("not_measured", "Nothing was asked for in the period.")
    suppressed = case.pooled.suppressed
    refused = suppressed[(suppressed["reason"] == "verification_failed").to_numpy()]
    if len(refused):
        text = (
            "A protector proposed regions that do not hold what the policy asks for; the recount withheld them. "
            "Do not use this protector until it is known why."
        )
        return line.says("fail", text, case.figure("refused_k"), case.pooled.evidence(refused))
    return line.says("pass", "The recount confirmed every region that was proposed.", case.figure("k_min"))


def records(case: Case) -> Judgement:
    """Whether the runs agree with themselves: summary, policy and logged explanations."""
    line = Line("records", _RUNS, _NONE, "recomputed from the explanations")
    if not case.pooled.runs:
        return line.says("not_measured", "No run holds explanations of the period.")
    forged = [run.run_id for run in case.pooled.runs if not _policy_agrees(run)]
    if forged:
        text = "The policy that a run holds is not the one that its explanations were certified under."
        return line.says("fail", text, Figure(value=len(forged)), tuple(forged[:5]))
    if uncounted := {run: count for run, count in case.evidence.uncounted.items() if count}:
        text = (
            "Explanations are in files that no summary counts yet, so this report does not cover them. Make it again."
        )
        return line.says("review", text, Figure(value=sum(uncounted.values())), tuple(sorted(uncounted)[:5]))
    # In a period, a run may be there in part; its summary is of the whole.
    period = case.evidence.since is not None or case.evidence.until is not None
    whole = [run for run in case.pooled.runs if not (period and _is_part(run))]
    differing = [run.run_id for run in whole if not _summary_agrees(run)]
    if differing:
        text = "The summary of a run is not that of its explanations; this report is made from the explanations."
        return line.says("review", text, Figure(value=len(differing)), tuple(differing[:5]))
    if len(whole) < len(case.pooled.runs):
        text = "Policies and explanations agree; summaries were compared of runs that lie in the period as a whole."
        return line.says("pass", text, _NONE)
    return line.says("pass", "Summaries, policies and explanations of all runs agree.", _NONE)


def _is_part(run: RunEvidence) -> bool:
    return run.rows is not None and len(run.rows) < run.metrics.get("cfk.asked", 0)


def _policy_agrees(run: RunEvidence) -> bool:
    """Say whether the logged policy has the hash that the run, and every certificate in it, states."""
    if run.policy is None or run.rows is None:
        return False
    found = sha256_of(run.policy)
    stated = run.rows["policy_hash"].dropna() if "policy_hash" in run.rows else ()
    return run.tags.get("cfk.policy_sha256") == found and all(value == found for value in set(stated))


def _summary_agrees(run: RunEvidence) -> bool:
    if run.rows is None:
        return False
    metrics, rows = run.metrics, run.rows
    counts = {"asked": len(rows), **{name: int((rows["status"] == name).sum()) for name in ("released", "suppressed")}}
    if any(metrics.get(f"cfk.{name}") != count for name, count in counts.items()):
        return False
    return all(
        isclose(metrics[name], value, rel_tol=1e-6, abs_tol=1e-9)
        for name, value in _figures_of(rows).items()
        if name in metrics
    )


def _figures_of(rows: pd.DataFrame) -> dict[str, float]:
    regions = rows[rows["k"].notna().to_numpy()] if "k" in rows else rows.iloc[:0]
    found = figures({name: regions[name].to_numpy(dtype=float) for name in PER_EXPLANATION})
    return {metric_of(name): value for name, value in found.items() if value is not None}


def untracked(case: Case) -> Judgement:
    """Whether explanations were given out of which no record could be kept."""
    line, measured = Line("untracked", _RELEASES, _NONE, "setting of the operator"), case.figure("untracked")
    if measured.value is None:
        return line.says("not_measured", "The runs do not say whether explanations left without a record.")
    if measured.value:
        text = "Explanations left without a record, so this report does not cover them."
        return line.says("review", text, measured)
    return line.says("pass", "Every explanation that left is on record.", measured)


def schema_declared(case: Case) -> Judgement:
    """Whether roles and bounds were declared, or read from the rows."""
    line = Line("schema_declared", _SCHEMA, _NONE, "schema")
    known = [run.population for run in case.pooled.runs if run.population is not None]
    if not known or len(known) < len(case.pooled.runs):
        return line.says("not_measured", "Not every run says what its schema was.")
    learned = {a["name"] for facts in known for a in facts.get("attributes", ()) if a.get("bounds") == "learned"}
    measured = Figure(value=len(learned))
    if learned:
        text = (
            f"Bounds or categories were learned from the rows, not declared: {', '.join(sorted(learned))}. "
            "Declare them in the schema, so that no range follows from one person."
        )
        return line.says("review", text, measured)
    return line.says("pass", "Roles and bounds are declared.", measured)


def human_inputs(case: Case) -> Judgement:
    """Whether people have answered what only people can."""
    line, measured = Line("human_inputs", _SIGN_OFF, _NONE, "this report"), Figure(value=case.placeholders)
    if case.placeholders:
        text = "Questions are open that only people can answer; they are listed in section 12."
        return line.says("review", text, measured)
    return line.says("pass", "Every question to people is answered, and the report is signed.", measured)
