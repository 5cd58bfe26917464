"""The checks behind the verdict: each looks at a case and gives one line, with exact figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isclose, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.records.tally import PER_EXPLANATION, figures, metric_of
from cfk_plugin.report.attacks import (
    OF_MODELS,
    WITHOUT_EXPLANATIONS,
    Compared,
    compared,
    fell_short,
    few_alarms,
    whole,
)
from cfk_plugin.report.data import Attack, Status, Verdict
from cfk_plugin.report.disclosure import Figure, Kind

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.report.data import Attack, Group
    from cfk_plugin.report.figures import Pooled
    from cfk_plugin.report.inputs import HumanInputs, Threshold
    from cfk_plugin.report.runs import Evidence, RunEvidence


NOTHING = Figure(value=None)
OWN_POLICY = "the policy of the runs"
"""Source of what no preset and nobody asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One line of the verdict, with exact figures.

    Attributes
    ----------
    id : str
    status : Status
    measured, threshold : Figure
    source : str
    section : int
    text : str
        Names no figure that an edition may hide: those are in `measured` and `threshold`.
    evidence : tuple of str
    """

    id: str
    status: Status
    text: str
    section: int
    measured: Figure = NOTHING
    threshold: Figure = NOTHING
    source: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A judgement before it is spoken: which check it is, and what it compares with.

    Attributes
    ----------
    id : str
    section : int
    threshold : Figure
    source : str
    """

    id: str
    section: int
    threshold: Figure = NOTHING
    source: str = ""

    def says(self, status: Status, text: str, measured: Figure = NOTHING, evidence: tuple[str, ...] = ()) -> Judgement:
        """Return the judgement."""
        return Judgement(
            id=self.id,
            status=status,
            text=text,
            section=self.section,
            measured=measured,
            threshold=self.threshold,
            source=self.source,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Case:
    """Everything that a check may look at.

    Attributes
    ----------
    evidence : Evidence
    pooled : Pooled
    figures : mapping of str to Figure
    inputs : HumanInputs
    thresholds : mapping of str to Threshold
        Asked by a preset, by people, or by the house.
    groups : sequence of Group
        Exact.
    attacks : sequence of Attack
        Exact.
    placeholders : int
        Questions without an answer.
    """

    evidence: Evidence
    pooled: Pooled
    figures: Mapping[str, Figure]
    inputs: HumanInputs
    thresholds: Mapping[str, Threshold]
    groups: tuple[Group, ...]
    attacks: tuple[Attack, ...]
    placeholders: int

    @property
    def of_prototypes(self) -> bool:
        """Whether the report speaks of prototypes: a run has a policy without k."""
        return any(run.policy is not None and "k" not in run.policy for run in self.pooled.runs)

    @property
    def of_regions(self) -> bool:
        """Whether it speaks of regions; it does where nothing is known."""
        return self.pooled.k is not None or not self.of_prototypes

    @property
    def asked_k(self) -> Figure:
        """The largest k that is asked of any explanation; without a value where none is."""
        asked = self.pooled.rows["asked_k"].dropna()
        return Figure(value=int(asked.max())) if len(asked) else NOTHING

    def figure(self, name: str) -> Figure:
        """Return a figure; one without a value where there is none."""
        return self.figures.get(name, NOTHING)

    def settings(self, name: str) -> list[Any]:
        """Return the different values that a setting has in the policies of the runs, None left out."""
        found = [(run.policy or {}).get(name) for run in self.pooled.runs]
        return sorted({value for value in found if value is not None}, key=str)

    def threshold(self, name: str, setting: str | None = None, strictest: str = "max") -> tuple[Figure, str]:
        """Return what is asked, and by whom: a preset, people or the house, else the policies of the runs.

        Parameters
        ----------
        name : str
            Of the threshold.
        setting : str, optional
            Of the policy.
        strictest : {"max", "min"}
            Which of the policies' values counts.
        """
        chosen = self.thresholds.get(name)
        if chosen is not None and chosen.value is not None:
            return Figure(value=chosen.value), chosen.source
        values = self.settings(setting) if setting else []
        if not values:
            return NOTHING, ""
        return Figure(value=max(values) if strictest == "max" else min(values)), OWN_POLICY

    def accepted(self, check: str) -> bool:
        """Say whether people declared that a risk is accepted."""
        policies = [run.policy for run in self.pooled.runs if run.policy is not None]
        return self.inputs.accepted(check, policies) is not None


_RISK, _COMPOSITION = 5, 6
_NOTHING_RELEASED = "No region was released in the period."
_NOT_COUNTED = "It was not counted for every release."


def k_min(case: Case) -> Judgement:
    """Whether every released region holds the k people that its own policy, or this report, asks for."""
    line, measured = _asked(case, "k_min"), case.figure("k_min")
    if not case.pooled.complete("k"):
        return line.says("not_measured", _unknown(case))
    regions = case.pooled.regions
    below = regions[(regions["k"] < regions["asked_k"]).to_numpy()]
    if len(below):
        text = "Regions were released that fewer people fit than was asked for. Stop releasing, and find out why."
        return line.says("fail", text, measured, case.pooled.evidence(below))
    return line.says("pass", "Every released region fits at least as many people as was asked for.", measured)


def k_desired_min(case: Case) -> Judgement:
    """Whether k people are left for somebody who knows who got the desired outcome."""
    return _crowd(
        case,
        "k_desired",
        "Somebody who knows who got the desired outcome",
        'Set anonymity_set="eligible", or declare the risk as accepted.',
    )


def k_effective_min(case: Case) -> Judgement:
    """Whether k people are left for somebody who reruns the protection for everybody."""
    return _crowd(
        case,
        "k_effective",
        "Somebody who reruns the protection for everybody",
        'Use guarantee="reciprocal" or "catalogue".',
    )


def _crowd(case: Case, column: str, who: str, remedy: str) -> Judgement:
    name = f"{column}_min"
    line, regions = _asked(case, name), case.pooled.regions
    if column in regions and len(below := regions[_below(case, column)]):
        least = Figure(value=int(below[column].min()), kind="class_size")
        found = f"{who} is left with fewer people than was asked for."
        evidence = case.pooled.evidence(below)
        if case.accepted(name):
            return line.says("review", f"{found} This is declared as an accepted risk.", least, evidence)
        return line.says("fail", f"{found} {remedy}", least, evidence)
    if not case.pooled.complete(column):
        return line.says("not_measured", _unknown(case))
    return line.says("pass", f"{who} is left with at least as many people as was asked for.", case.figure(name))


def k_intersection(case: Case) -> Judgement:
    """Whether k people are left for somebody who puts several releases together."""
    name = "k_intersection"
    line, regions = _asked(case, name, _COMPOSITION), case.pooled.regions
    if name in regions and len(below := regions[_below(case, name)]):
        least = Figure(value=int(below[name].min()), kind="class_size")
        text = "Releases of one record have fewer people in common than was asked for."
        return line.says("fail", text, least, case.pooled.evidence(below))
    if not has_ledger(case):
        text = "No ledger was used, so nobody knows what several releases together tell. Give protect() a ledger."
        return line.says("review", text)
    if not case.pooled.complete(name):
        return line.says("not_measured", _unknown(case))
    measured = case.figure("k_intersection_min")
    if case.inputs.answers.get("recipients_pool") not in ("yes", "no"):
        text = "Releases of one record keep enough people in common; who pools what they receive is not known."
        return line.says("review", text, measured)
    text = "All releases of one record together keep at least as many people in common as was asked for."
    return line.says("pass", text, measured)


def has_ledger(case: Case) -> bool:
    """Say whether every run with regions kept a ledger."""
    regions = case.pooled.regions
    if "ledger" not in regions or not len(regions):
        return False
    kept = regions.groupby("run", observed=True)["ledger"].count()
    return bool((kept > 0).all())


def native_leak(case: Case) -> Judgement:
    """Whether a released region is one combination of quasi-identifiers that fewer people have than was asked for."""
    line, regions = Line("native_leak", _RISK, Figure(value=0), "invariant of the product"), case.pooled.regions
    if not (case.pooled.complete("ncp") and case.pooled.complete("k")):
        return line.says("not_measured", _unknown(case))
    leaks = regions[((regions["ncp"] == 0) & (regions["k"] < regions["asked_k"])).to_numpy()]
    measured = Figure(value=len(leaks), kind="requests")
    if len(leaks):
        text = "Explanations left with exact quasi-identifiers that too few people have."
        return line.says("fail", text, measured, case.pooled.evidence(leaks))
    text = "No explanation left with exact quasi-identifiers that fewer people have than was asked for."
    return line.says("pass", text, measured)


def l_diversity(case: Case) -> Judgement | None:
    """Whether sensitive values are as diverse as the policy asks; None where it asks nothing."""
    asked, figure = case.settings("l"), case.figure("l_min")
    if not asked:
        return None
    return _kept(Line("l_diversity", _RISK, Figure(value=max(asked)), OWN_POLICY), figure, sign=1)


def t_closeness(case: Case) -> Judgement | None:
    """Whether sensitive values are as close to the population's as the policy asks; None where it asks nothing."""
    asked, figure = case.settings("t"), case.figure("t_max")
    if not asked:
        return None
    return _kept(Line("t_closeness", _RISK, Figure(value=min(asked)), OWN_POLICY), figure, sign=-1)


def _kept(line: Line, figure: Figure, sign: int) -> Judgement:
    if figure.value is None or line.threshold.value is None:
        return line.says("not_measured", _NOT_COUNTED)
    if sign * figure.value >= sign * line.threshold.value:
        return line.says("pass", "Every region keeps to the policy.", figure)
    return line.says("fail", "A region does not keep to the policy.", figure)


def attribute_disclosure(case: Case) -> Judgement:
    """Whether a region tells too much of a sensitive attribute."""
    figure = case.figure("attribute_disclosure_max")
    threshold, source = case.threshold("attribute_disclosure")
    line = Line("attribute_disclosure", _RISK, threshold, source)
    if figure.value is None and _none_declared(case):
        text = (
            "No sensitive attribute is declared, so nobody knows whether the people in a region share one. "
            "Name the sensitive columns in the schema."
        )
        return line.says("review", text)
    if figure.value is None:
        return line.says("not_measured", _unknown(case))
    if threshold.value is None:
        text = "No limit is set, so nobody judged it. Set thresholds: attribute_disclosure in the inputs."
        return line.says("review", text, figure)
    if figure.value <= threshold.value:
        return line.says("pass", "The people in a region share sensitive values no more than the limit allows.", figure)
    regions = case.pooled.regions
    above = regions[(regions["disclosure"] > threshold.value).to_numpy(dtype=bool)]
    text = "The people in a region share sensitive values more than the limit allows."
    return line.says("fail", text, figure, case.pooled.evidence(above))


def _none_declared(case: Case) -> bool:
    known = [run.population for run in case.pooled.runs if run.population is not None]
    roles = {attribute.get("role") for facts in known for attribute in facts.get("attributes", ())}
    return bool(known) and "sensitive" not in roles


def _asked(case: Case, name: str, section: int = _RISK) -> Line:
    """Return a line that compares with the k that is asked for."""
    asked, chosen = case.asked_k, case.thresholds.get("k")
    if asked.value is None:
        return Line(name, section)
    raised = chosen is not None and chosen.value is not None and chosen.value >= asked.value
    return Line(name, section, asked, chosen.source if chosen is not None and raised else OWN_POLICY)


def _below(case: Case, column: str) -> NDArray[np.bool_]:
    regions = case.pooled.regions
    return np.asarray((regions[column] < regions["asked_k"]).fillna(False), dtype=np.bool_)


def _unknown(case: Case) -> str:
    return _NOT_COUNTED if len(case.pooled.regions) else _NOTHING_RELEASED


_VALIDITY, _UTILITY, _GROUPS = 7, 8, 10
_COMPARED = ("ncp", "pureness", "suppressed")
_TAIL = 0.025  # of a two-sided 95 % interval


def draws_needed(floor: float) -> int:
    """Return how many draws without a failure bring the lower end of a 95 % Clopper-Pearson interval to a floor.

    Examples
    --------
    >>> draws_needed(0.99)
    368
    """
    return ceil(log(_TAIL) / log(floor))


def pureness(case: Case) -> Judgement:
    """Whether the advice holds in every region, judged by the lower end of its interval."""
    threshold, source = case.threshold("pureness", "min_pureness")
    line, measured = Line("pureness", _VALIDITY, threshold, source), case.figure("pureness_min")
    regions, floor = case.pooled.regions, threshold.value
    if not case.pooled.complete("pureness"):
        return line.says("not_measured", "Pureness is not on record for every release.")
    if floor is None:
        text = "No floor is set, so nobody judged it. Set min_pureness in the policy, or a threshold in the inputs."
        return line.says("review", text, measured)
    failing = regions[(regions["pureness"] < floor).to_numpy()]
    if len(failing):
        text = "In some released regions, fewer value combinations than asked for lead to the desired outcome."
        return line.says("fail", text, measured, case.pooled.evidence(failing))
    short = regions[(regions["pureness_low"] < floor).to_numpy()]
    if len(short):
        needed = f"{draws_needed(floor)} draws without one failure are needed" if 0 < floor < 1 else "ask exactly"
        text = f"Too few combinations were drawn to be sure of the floor: {needed}."
        return line.says("review", text, measured, case.pooled.evidence(short))
    return line.says("pass", "In every released region, the lower end of pureness is at or above the floor.", measured)


def ncp(case: Case) -> Judgement:
    """Whether explanations still say something on average, for every group."""
    threshold, source = case.threshold("ncp", "max_ncp", "min")
    line, measured, ceiling = Line("ncp", _UTILITY, threshold, source), case.figure("ncp_mean"), threshold.value
    if measured.value is None:
        return line.says("not_measured", "Information loss is not on record.")
    if ceiling is None:
        text = "No ceiling is set, so nobody judged it. Set max_ncp in the policy, or a threshold in the inputs."
        return line.says("review", text, measured)
    if measured.value > ceiling:
        return line.says("fail", "Explanations lose more information on average than the ceiling allows.", measured)
    above = [g for g in case.groups if g.metric == "ncp" and g.mean.value is not None and g.mean.value > ceiling]
    if above:
        text = "On average explanations keep to the ceiling, those of one group do not."
        return line.says("review", text, measured)
    return line.says("pass", "Explanations keep to the ceiling of information loss on average.", measured)


def group_gap(case: Case) -> Judgement:
    """Whether one group gets worse explanations than the rest."""
    threshold, source = case.threshold("group_gap")
    line, tolerance = Line("group_gap", _GROUPS, threshold, source), threshold.value
    known = [g for g in case.groups if g.metric in _COMPARED and g.gap.low is not None and g.gap.high is not None]
    if not known or tolerance is None:
        text = "No groups were logged, so nobody knows whether some get worse explanations. Give protect() groups=."
        return line.says("not_measured", text)
    ends = {id(g): (g.gap.low or 0.0, g.gap.high or 0.0) for g in known}
    widest = max(known, key=lambda g: max(map(abs, ends[id(g)])))
    measured = Figure(value=widest.gap.value, low=widest.gap.low, high=widest.gap.high, section=_GROUPS)
    where = f"Widest: {widest.metric}, {widest.attribute}: {widest.group}."
    inside = all(-tolerance <= low and high <= tolerance for low, high in ends.values())
    if inside and not bool(case.pooled.rows["group"].notna().all()):
        text = f"No group differs by more than the tolerance, but not every explanation has a group on record. {where}"
        return line.says("review", text, measured)
    if inside:
        return line.says("pass", f"No group differs from the rest by more than the tolerance. {where}", measured)
    if any(low > tolerance or high < -tolerance for low, high in ends.values()):
        text = f"A group gets explanations that differ from those of the rest by more than the tolerance. {where}"
        return line.says("fail", text, measured)
    return line.says("review", f"A difference between groups may be larger than the tolerance. {where}", measured)


_SCHEMA, _RELEASES, _SIGN_OFF, _RUNS = 2, 4, 12, 13
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


_DP = 11


def dp_guarantee(case: Case) -> Judgement:
    """Whether anything is guaranteed of the prototypes, and whether the guarantee reaches the model."""
    line = Line("dp_guarantee", _DP, source="certificate of the prototypes")
    certificates = [run.prototype for run in case.pooled.runs if run.prototype is not None]
    if not certificates:
        return line.says("not_measured", "No prototype was released in the period, so no certificate is on record.")
    measured = Figure(value=max(float(c["epsilon"]) for c in certificates), section=_DP)
    if any(c["guarantee"] == "none" for c in certificates):
        text = "Nothing is guaranteed: noise was seeded, a domain was read from rows, or the method has no proof."
        return line.says("fail", text, measured)
    if any(c["model_access"] == "private" for c in certificates):
        text = (
            "The mechanism is covered, the model is not: it was trained on the same people, so no total is stated. "
            "Say what may be known of the model with model_access."
        )
        return line.says("review", text, measured)
    return line.says("pass", "The guarantee covers the whole path from data to explanation, as declared.", measured)


def dp_budget(case: Case) -> Judgement:
    """Whether the budget that was spent is on record and within what people set."""
    spent = case.figure("epsilon_spent")
    threshold, source = case.threshold("epsilon")
    line = Line("dp_budget", _DP, threshold, source)
    if spent.value is None:
        return line.says("not_measured", "No accountant was used, so nobody adds up what several fits spend.")
    if threshold.value is None:
        return line.says("review", "No ceiling is set. Set thresholds: epsilon in the inputs.", spent)
    if spent.value > threshold.value:
        return line.says("fail", "More was spent than the ceiling allows.", spent)
    return line.says("pass", "What was spent is within the ceiling.", spent)


def attack_epsilon(case: Case) -> Judgement:
    """Whether an audit refutes the epsilon that is claimed."""
    found = [a for a in case.attacks if a.family == "epsilon"]
    if not found:
        text = "The epsilon was not audited. Run cfk audit epsilon and log the result."
        return Line("attack_epsilon", _DP).says("not_measured", text)
    worst = max(found, key=lambda a: (a.figures["epsilon_low"].value or 0) - (a.figures["claimed"].value or 0))
    low, claimed, ceiling = (worst.figures[name].value for name in ("epsilon_low", "claimed", "ceiling"))
    line = Line("attack_epsilon", _DP, Figure(value=claimed), "the claim")
    evidence = (worst.run,) if worst.run else ()
    measured = Figure(value=low, section=_DP, method="lower bound")
    if low is None or claimed is None or ceiling is None:
        return line.says("not_measured", "The audit found nothing to judge by.", evidence=evidence)
    if low > claimed:
        return line.says(
            "fail", "The audit refutes the epsilon that is claimed: its lower bound is above.", measured, evidence
        )
    released = case.figure("epsilon").value
    if released is not None and claimed > released:
        text = "The audit is of a larger epsilon than was released with, so it says nothing of this one."
        return line.says("review", text, measured, evidence)
    if ceiling <= claimed:
        return line.says("review", "The audit was too small to refute the claim, whatever is true.", measured, evidence)
    return line.says("pass", "The audit does not refute the claim, which does not prove it.", measured, evidence)


_ATTACKS = 9
_BY_CHANCE = "linkage"
"""Its attacks name one of k people: one in k is what k-anonymity admits."""
EXPECTED = (_BY_CHANCE, *OF_MODELS)
"""Families of attacks that a report without is not complete; prototypes stand for nobody whom one could link to."""


class _Finding(NamedTuple):
    status: Status
    text: str


def attacks(case: Case) -> tuple[Judgement, ...]:
    """Return a line for every attack that is judged, and one for every expected family of which none was run."""
    judged = [attack for attack in case.attacks if attack.judged and attack.family != "epsilon"]
    names = {attack.id for attack in judged}
    ran = [attack for attack in judged if attack.id == whole(attack.id) or whole(attack.id) not in names]
    measured = {attack.family for attack in ran if attack.id not in WITHOUT_EXPLANATIONS}
    expected = [family for family in EXPECTED if family != _BY_CHANCE or case.of_regions]
    missing = [family for family in expected if family not in measured]
    lines = [_line(case, attack, [a for a in judged if a is not attack and whole(a.id) == attack.id]) for attack in ran]
    return (*lines, *(_missing(family) for family in missing))


def _missing(family: str) -> Judgement:
    text = "This attack was not run, so nobody knows whether it works. Run it with cfk audit and log the result."
    return Line(f"attack_{family}", _ATTACKS).says("not_measured", text)


def _line(case: Case, attack: Attack, parts: Sequence[Attack]) -> Judgement:
    """Judge an attack, and what it found of single attributes."""
    tolerance, source = _tolerance(case, attack.family)
    line = Line(f"attack_{attack.id}", _ATTACKS, Figure(value=tolerance), source)
    found = compared(attack)
    evidence = (attack.run,) if attack.run else ()
    if found is None:
        return line.says("not_measured", "The attack had nothing to attack.", evidence=evidence)
    over = found.over
    kind: Kind = "rate" if attack.family in OF_MODELS else "plain"
    measured = Figure(value=over.value, low=over.low, high=over.high, n=over.n, section=_ATTACKS, kind=kind)
    if tolerance is None:
        return line.says("not_measured", "Nothing says how much is tolerated.", measured, evidence)
    finding = _finding(case, attack, found, tolerance)
    if finding.status != "fail":
        finding = _of_parts(case, parts, tolerance) or finding
    return line.says(finding.status, finding.text, measured, evidence)


def _finding(case: Case, attack: Attack, found: Compared, tolerance: float) -> _Finding:
    if not attack.concerns:
        return _Finding(
            "review",
            "What was attacked is not released: no explanation is under its policy, or it has none. Nothing is known "
            "of what is released.",
        )
    return _against(case, attack, found, tolerance) or _doubt(attack, found, tolerance)


def _against(case: Case, attack: Attack, found: Compared, tolerance: float) -> _Finding | None:
    """Return what speaks against the release, if anything does."""
    if _refutes(attack):
        return _Finding("fail", "The attack refutes the epsilon that is claimed: it did better than epsilon admits.")
    if (found.over.value or 0.0) <= tolerance:
        return None
    text = f"The attack does better than the {found.with_what} by more than is tolerated."
    if attack.id in WITHOUT_EXPLANATIONS:
        return _Finding("review", f"{text} It needs no explanation: protect the model, or who may ask it.")
    if case.accepted(f"attack_{attack.id}") or (
        attack.family in OF_MODELS and case.accepted(f"attack_{attack.family}")
    ):
        return _Finding("review", f"{text} This is declared as an accepted risk.")
    return _Finding("fail", text)


def _of_parts(case: Case, parts: Sequence[Attack], tolerance: float) -> _Finding | None:
    """Return what speaks against the release of some attributes alone.

    There may be many, and chance puts some of them above what is tolerated: only whole intervals count.
    """
    above = []
    for part in parts:
        found = compared(part) if part.concerns else None
        if found is not None and found.over.low is not None and found.over.low > tolerance:
            above.append(part)
    if not above:
        return None
    names = ", ".join(part.id.partition("/")[2] for part in above)
    text = f"For single attributes the attack does better by more than is tolerated: {names}."
    if case.accepted(f"attack_{above[0].family}"):
        return _Finding("review", f"{text} This is declared as an accepted risk.")
    return _Finding("fail", text)


def _doubt(attack: Attack, found: Compared, tolerance: float) -> _Finding:
    """Return why the attack is no evidence for the release, else that it is."""
    if found.over.high is None or found.over.high > tolerance:
        text = "The attack may do better than is tolerated: the upper end of its interval is above."
    elif not attack.covers:
        text = (
            "The attack was run on another policy or population than some of the explanations, or nothing tells: "
            "fingerprints of different processes compare only with CFK_KEY. Run it on what is released."
        )
    elif fell_short(attack):
        text = "The attack did worse than a guess without it: it did not work here, which is no evidence of protection."
    elif few_alarms(attack.figures):
        text = (
            "On the whole the attack is within what is tolerated, but with few false alarms it picks out more people "
            "of the training data than others. Look at the left of the curve."
        )
    else:
        said = f"In this attack the adversary did not do better than the {found.with_what} by more than is tolerated."
        return _Finding("pass", said)
    return _Finding("review", text)


def _refutes(attack: Attack) -> bool:
    reached, bound = (attack.figures.get(name) for name in ("balanced_accuracy_low", "bound_tight"))
    if reached is None or bound is None or reached.value is None or bound.value is None:
        return False
    return reached.value > bound.value


def _tolerance(case: Case, family: str) -> tuple[float | None, str]:
    chosen = case.thresholds.get("attack_over_control")
    if family == _BY_CHANCE and (k := case.asked_k.value):
        return 1 / k, "1 / k of the policy: the chance that k-anonymity admits"
    return (None, "") if chosen is None else (chosen.value, chosen.source)


__all__ = ["Case", "Judgement", "judged", "verdict"]

Checker = Callable[[Case], Judgement | None]

_OF_REGIONS: Sequence[Checker] = (
    k_min,
    k_desired_min,
    k_effective_min,
    k_intersection,
    native_leak,
    l_diversity,
    t_closeness,
    attribute_disclosure,
    pureness,
    ncp,
    verification,
)
_OF_PROTOTYPES: Sequence[Checker] = (dp_guarantee, dp_budget, attack_epsilon)
_OF_ALL: Sequence[Checker] = (records, untracked, schema_declared, group_gap, human_inputs)


def judged(case: Case) -> tuple[Judgement, ...]:
    """Return a line for every check that applies: those of regions, of prototypes, and of all.

    One that applies and cannot be judged is there, as not measured.
    """
    checkers = [*(_OF_REGIONS if case.of_regions else ()), *(_OF_PROTOTYPES if case.of_prototypes else ())]
    found = [checker(case) for checker in (*checkers, *_OF_ALL)]
    return (*(line for line in found if line is not None), *attacks(case))


def verdict(statuses: Iterable[Status]) -> Verdict:
    """Return fail if anything fails, else review if anything is open or was not measured, else pass."""
    found = set(statuses)
    if "fail" in found:
        return "fail"
    return "pass" if found == {"pass"} else "review"
