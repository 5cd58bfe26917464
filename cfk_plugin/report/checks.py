"""The checks behind the verdict: each looks at a case and finds something, exact, before anything is hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import TYPE_CHECKING, Any, NamedTuple

from cfk_plugin.report.attacks import OF_MODELS, WITHOUT_EXPLANATIONS, Judgment, compared, judged_attack, whole
from cfk_plugin.report.data import NOT_MEASURED, Amount, Attack, Check, Group, Metric, Status, Verdict
from cfk_plugin.report.inputs import Asked, HumanInputs

if TYPE_CHECKING:
    from cfk_plugin.report.disclosure import Kind
    from cfk_plugin.report.runs import Evidence, Pooled, RunEvidence

OWN_POLICY = "the policy of the runs"
"""Source of what no preset and nobody asks for."""

_BY_CHANCE = "linkage"
"""Its attacks name one of k people: one in k is what k-anonymity admits."""

EXPECTED = (_BY_CHANCE, *OF_MODELS)
"""Families of attacks that a report without is not complete; prototypes stand for nobody whom one could link to."""

_ATTACKS = 9
_COMPARED = ("ncp", "pureness", "suppressed")
_TAIL = 0.025  # of a two-sided 95 % interval
_NONE = Amount(value=0)
_NOTHING_RELEASED = "No region was released in the period."
_NOT_COUNTED = "It was not counted for every release."


class Line(NamedTuple):
    """A line of the verdict, exact, and what its figure counts."""

    check: Check
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class JudgedCase:
    """Everything that a check may look at; groups and attacks are exact, too."""

    evidence: Evidence
    pooled: Pooled
    figures: Mapping[str, Metric]
    inputs: HumanInputs
    thresholds: Mapping[str, Asked]
    groups: tuple[Group, ...]
    attacks: tuple[Attack, ...]
    placeholders: int  # questions without an answer

    @property
    def of_prototypes(self) -> bool:
        """Whether the report speaks of prototypes: a run has a policy without k."""
        return any(run.policy is not None and "k" not in run.policy for run in self.pooled.runs)

    @property
    def of_regions(self) -> bool:
        """Whether it speaks of regions; it does where nothing is known."""
        return self.pooled.k is not None or not self.of_prototypes

    @property
    def asked_k(self) -> int | None:
        """The largest k that is asked of any explanation; None where none is."""
        asked = self.pooled.rows["asked_k"].dropna()
        return int(asked.max()) if len(asked) else None

    def figure(self, name: str) -> Amount:
        """Return a figure; one without a value where there is none."""
        return self.figures[name].amount if name in self.figures else NOT_MEASURED

    def settings(self, name: str) -> list[Any]:
        """Return the different values that a setting has in the policies of the runs, None left out."""
        found = [(run.policy or {}).get(name) for run in self.pooled.runs]
        return sorted({value for value in found if value is not None}, key=str)

    def asked(self, name: str, setting: str | None = None, strictest: Callable[[list[Any]], Any] = max) -> Asked:
        """Return what a preset, people or the house ask, else the strictest of a setting in the runs' policies."""
        chosen = self.thresholds.get(name)
        if chosen is not None and chosen.value is not None:
            return chosen
        values = self.settings(setting) if setting else []
        return Asked(strictest(values), OWN_POLICY) if values else Asked()

    def accepted(self, check: str) -> bool:
        """Say whether people declared that a risk is accepted."""
        policies = [run.policy for run in self.pooled.runs if run.policy is not None]
        return self.inputs.accepted(check, policies) is not None


# --- what a release tells of people ---


def _asked_k(case: JudgedCase) -> Asked:
    asked, chosen = case.asked_k, case.thresholds.get("k")
    if asked is None:
        return Asked()
    raised = chosen is not None and chosen.value is not None and chosen.value >= asked
    return Asked(asked, chosen.source if chosen is not None and raised else OWN_POLICY)


def _unknown(case: JudgedCase) -> Judgment:
    return Judgment("not_measured", _NOT_COUNTED if len(case.pooled.regions) else _NOTHING_RELEASED)


def _k_min(case: JudgedCase, _: float | None) -> Judgment:
    if not case.pooled.complete("k"):
        return _unknown(case)
    if len(below := case.pooled.below("k")):
        text = "Regions were released that fewer people fit than was asked for. Stop releasing, and find out why."
        return Judgment("fail", text, case.figure("k_min"), case.pooled.evidence(below))
    text = "Every released region fits at least as many people as was asked for."
    return Judgment("pass", text, case.figure("k_min"))


def _left_for(column: str, does: str, remedy: str) -> Callable[[JudgedCase, float | None], Judgment]:
    """Return a check of whether k people are left for somebody who knows or does more than look people up."""

    def check(case: JudgedCase, _: float | None) -> Judgment:
        name = f"{column}_min"
        if len(below := case.pooled.below(column)):
            least, evidence = Amount(value=int(below[column].min())), case.pooled.evidence(below)
            found = f"Somebody who {does} is left with fewer people than was asked for."
            if case.accepted(name):
                return Judgment("review", f"{found} This is declared as an accepted risk.", least, evidence)
            return Judgment("fail", f"{found} {remedy}", least, evidence)
        if not case.pooled.complete(column):
            return _unknown(case)
        text = f"Somebody who {does} is left with at least as many people as was asked for."
        return Judgment("pass", text, case.figure(name))

    return check


def _k_intersection(case: JudgedCase, _: float | None) -> Judgment:
    name = "k_intersection"
    if len(below := case.pooled.below(name)):
        text = "Releases of one record have fewer people in common than was asked for."
        return Judgment("fail", text, Amount(value=int(below[name].min())), case.pooled.evidence(below))
    if not case.pooled.has_ledger:
        text = "No ledger was used, so nobody knows what several releases together tell. Give protect() a ledger."
        return Judgment("review", text)
    if not case.pooled.complete(name):
        return _unknown(case)
    if case.inputs.answers.get("recipients_pool") not in ("yes", "no"):
        text = "Releases of one record keep enough people in common; who pools what they receive is not known."
        return Judgment("review", text, case.figure("k_intersection_min"))
    text = "All releases of one record together keep at least as many people in common as was asked for."
    return Judgment("pass", text, case.figure("k_intersection_min"))


def _native_leak(case: JudgedCase, _: float | None) -> Judgment:
    """Look for regions of one combination of quasi-identifiers that fewer people have than was asked for."""
    if not (case.pooled.complete("ncp") and case.pooled.complete("k")):
        return _unknown(case)
    below = case.pooled.below("k")
    leaks = below[(below["ncp"] == 0).to_numpy()]
    measured = Amount(value=len(leaks))
    if len(leaks):
        text = "Explanations left with exact quasi-identifiers that too few people have."
        return Judgment("fail", text, measured, case.pooled.evidence(leaks))
    text = "No explanation left with exact quasi-identifiers that fewer people have than was asked for."
    return Judgment("pass", text, measured)


def _keeps(name: str, sign: int) -> Callable[[JudgedCase, float | None], Judgment | None]:
    """Return a check of a limit that the policy may set; it says nothing where it sets none."""

    def check(case: JudgedCase, limit: float | None) -> Judgment | None:
        figure = case.figure(name)
        if limit is None:
            return None
        if figure.value is None:
            return Judgment("not_measured", _NOT_COUNTED)
        if sign * figure.value >= sign * limit:
            return Judgment("pass", "Every region keeps to the policy.", figure)
        return Judgment("fail", "A region does not keep to the policy.", figure)

    return check


def _attribute_disclosure(case: JudgedCase, limit: float | None) -> Judgment:
    figure = case.figure("attribute_disclosure_max")
    if figure.value is None:
        known = [run.population for run in case.pooled.runs if run.population is not None]
        roles = {attribute.get("role") for facts in known for attribute in facts.get("attributes", ())}
        if not known or "sensitive" in roles:
            return _unknown(case)
        return Judgment(
            "review",
            "No sensitive attribute is declared, so nobody knows whether the people in a region share one. "
            "Name the sensitive columns in the schema.",
        )
    if limit is None:
        text = "No limit is set, so nobody judged it. Set thresholds: attribute_disclosure in the inputs."
        return Judgment("review", text, figure)
    if figure.value <= limit:
        text = "The people in a region share sensitive values no more than the limit allows."
        return Judgment("pass", text, figure)
    above = case.pooled.regions[(case.pooled.regions["disclosure"] > limit).to_numpy(dtype=bool)]
    text = "The people in a region share sensitive values more than the limit allows."
    return Judgment("fail", text, figure, case.pooled.evidence(above))


# --- what protection leaves of an explanation ---


def draws_needed(floor: float) -> int:
    """Return how many draws without a failure bring the lower end of a 95 % Clopper-Pearson interval to a floor.

    Examples
    --------
    >>> draws_needed(0.99)
    368
    """
    return ceil(log(_TAIL) / log(floor))


def _pureness(case: JudgedCase, floor: float | None) -> Judgment:
    """Judge by the lower end of the interval whether the advice holds in every region."""
    measured, regions = case.figure("pureness_min"), case.pooled.regions
    if not case.pooled.complete("pureness"):
        return Judgment("not_measured", "Pureness is not on record for every release.")
    if floor is None:
        text = "No floor is set, so nobody judged it. Set min_pureness in the policy, or a threshold in the inputs."
        return Judgment("review", text, measured)
    failing = regions[(regions["pureness"] < floor).to_numpy()]
    if len(failing):
        text = "In some released regions, fewer value combinations than asked for lead to the desired outcome."
        return Judgment("fail", text, measured, case.pooled.evidence(failing))
    short = regions[(regions["pureness_low"] < floor).to_numpy()]
    if len(short):
        needed = f"{draws_needed(floor)} draws without one failure are needed" if 0 < floor < 1 else "ask exactly"
        text = f"Too few combinations were drawn to be sure of the floor: {needed}."
        return Judgment("review", text, measured, case.pooled.evidence(short))
    return Judgment("pass", "In every released region, the lower end of pureness is at or above the floor.", measured)


def _ncp(case: JudgedCase, ceiling: float | None) -> Judgment:
    measured = case.figure("ncp_mean")
    if measured.value is None:
        return Judgment("not_measured", "Information loss is not on record.")
    if ceiling is None:
        text = "No ceiling is set, so nobody judged it. Set max_ncp in the policy, or a threshold in the inputs."
        return Judgment("review", text, measured)
    if measured.value > ceiling:
        return Judgment("fail", "Explanations lose more information on average than the ceiling allows.", measured)
    if any(g.metric == "ncp" and g.mean.value is not None and g.mean.value > ceiling for g in case.groups):
        text = "On average explanations keep to the ceiling, those of one group do not."
        return Judgment("review", text, measured)
    return Judgment("pass", "Explanations keep to the ceiling of information loss on average.", measured)


def _group_gap(case: JudgedCase, tolerance: float | None) -> Judgment:
    known = [g for g in case.groups if g.metric in _COMPARED and g.gap.low is not None and g.gap.high is not None]
    if not known or tolerance is None:
        text = "No groups were logged, so nobody knows whether some get worse explanations. Give protect() groups=."
        return Judgment("not_measured", text)
    ends = {id(g): (g.gap.low or 0.0, g.gap.high or 0.0) for g in known}
    widest = max(known, key=lambda g: max(map(abs, ends[id(g)])))
    measured = Amount(value=widest.gap.value, low=widest.gap.low, high=widest.gap.high)
    where = f"Widest: {widest.metric}, {widest.attribute}: {widest.group}."
    inside = all(-tolerance <= low and high <= tolerance for low, high in ends.values())
    if inside and not bool(case.pooled.rows["group"].notna().all()):
        text = f"No group differs by more than the tolerance, but not every explanation has a group on record. {where}"
        return Judgment("review", text, measured)
    if inside:
        return Judgment("pass", f"No group differs from the rest by more than the tolerance. {where}", measured)
    if any(low > tolerance or high < -tolerance for low, high in ends.values()):
        text = f"A group gets explanations that differ from those of the rest by more than the tolerance. {where}"
        return Judgment("fail", text, measured)
    return Judgment("review", f"A difference between groups may be larger than the tolerance. {where}", measured)


# --- how explanations came about and were recorded, and what only people can say ---


def _verification(case: JudgedCase, _: float | None) -> Judgment:
    """Judge protectors: the recount withholds a proposal that does not hold what was promised."""
    if not len(case.pooled):
        return Judgment("not_measured", "Nothing was asked for in the period.")
    suppressed = case.pooled.suppressed
    refused = suppressed[(suppressed["reason"] == "verification_failed").to_numpy()]
    if len(refused):
        text = (
            "A protector proposed regions that do not hold what the policy asks for; the recount withheld them. "
            "Do not use this protector until it is known why."
        )
        return Judgment("fail", text, case.figure("refused_k"), case.pooled.evidence(refused))
    return Judgment("pass", "The recount confirmed every region that was proposed.", case.figure("k_min"))


def _records(case: JudgedCase, _: float | None) -> Judgment:
    """Compare runs with themselves: summary, policy and logged explanations."""
    if not case.pooled.runs:
        return Judgment("not_measured", "No run holds explanations of the period.")
    if forged := [run.run_id for run in case.pooled.runs if not run.policy_agrees]:
        text = "The policy that a run holds is not the one that its explanations were certified under."
        return Judgment("fail", text, Amount(value=len(forged)), tuple(forged[:5]))
    if uncounted := {run: count for run, count in case.evidence.uncounted.items() if count}:
        text = (
            "Explanations are in files that no summary counts yet, so this report does not cover them. Make it again."
        )
        return Judgment("review", text, Amount(value=sum(uncounted.values())), tuple(sorted(uncounted)[:5]))
    # In a period, a run may be there in part; its summary is of the whole.
    period = case.evidence.since is not None or case.evidence.until is not None
    complete = [run for run in case.pooled.runs if not (period and _is_part(run))]
    if differing := [run.run_id for run in complete if not run.summary_agrees]:
        text = "The summary of a run is not that of its explanations; this report is made from the explanations."
        return Judgment("review", text, Amount(value=len(differing)), tuple(differing[:5]))
    if len(complete) < len(case.pooled.runs):
        text = "Policies and explanations agree; summaries were compared of runs that lie in the period as a whole."
        return Judgment("pass", text, _NONE)
    return Judgment("pass", "Summaries, policies and explanations of all runs agree.", _NONE)


def _is_part(run: RunEvidence) -> bool:
    return run.rows is not None and len(run.rows) < run.metrics.get("cfk.asked", 0)


def _untracked(case: JudgedCase, _: float | None) -> Judgment:
    measured = case.figure("untracked")
    if measured.value is None:
        return Judgment("not_measured", "The runs do not say whether explanations left without a record.")
    if measured.value:
        return Judgment("review", "Explanations left without a record, so this report does not cover them.", measured)
    return Judgment("pass", "Every explanation that left is on record.", measured)


def _schema_declared(case: JudgedCase, _: float | None) -> Judgment:
    known = [run.population for run in case.pooled.runs if run.population is not None]
    if not known or len(known) < len(case.pooled.runs):
        return Judgment("not_measured", "Not every run says what its schema was.")
    learned = {a["name"] for facts in known for a in facts.get("attributes", ()) if a.get("bounds") == "learned"}
    if learned:
        text = (
            f"Bounds or categories were learned from the rows, not declared: {', '.join(sorted(learned))}. "
            "Declare them in the schema, so that no range follows from one person."
        )
        return Judgment("review", text, Amount(value=len(learned)))
    return Judgment("pass", "Roles and bounds are declared.", _NONE)


def _human_inputs(case: JudgedCase, _: float | None) -> Judgment:
    if case.placeholders:
        text = "Questions are open that only people can answer; they are listed in section 12."
        return Judgment("review", text, Amount(value=case.placeholders))
    return Judgment("pass", "Every question to people is answered, and the report is signed.", _NONE)


# --- prototypes, which stand for nobody ---


def _dp_guarantee(case: JudgedCase, _: float | None) -> Judgment:
    certificates = [run.prototype for run in case.pooled.runs if run.prototype is not None]
    if not certificates:
        return Judgment("not_measured", "No prototype was released in the period, so no certificate is on record.")
    measured = Amount(value=max(float(c["epsilon"]) for c in certificates))
    if any(c["guarantee"] == "none" for c in certificates):
        text = "Nothing is guaranteed: noise was seeded, a domain was read from rows, or the method has no proof."
        return Judgment("fail", text, measured)
    if any(c["model_access"] == "private" for c in certificates):
        text = (
            "The mechanism is covered, the model is not: it was trained on the same people, so no total is stated. "
            "Say what may be known of the model with model_access."
        )
        return Judgment("review", text, measured)
    return Judgment("pass", "The guarantee covers the whole path from data to explanation, as declared.", measured)


def _dp_budget(case: JudgedCase, ceiling: float | None) -> Judgment:
    spent = case.figure("epsilon_spent")
    if spent.value is None:
        return Judgment("not_measured", "No accountant was used, so nobody adds up what several fits spend.")
    if ceiling is None:
        return Judgment("review", "No ceiling is set. Set thresholds: epsilon in the inputs.", spent)
    if spent.value > ceiling:
        return Judgment("fail", "More was spent than the ceiling allows.", spent)
    return Judgment("pass", "What was spent is within the ceiling.", spent)


def _audit_of_epsilon(case: JudgedCase) -> Attack | None:
    """Return the audit that is worst for the claim."""
    found = [attack for attack in case.attacks if attack.family == "epsilon"]
    over = [(a.figures["epsilon_low"].value or 0) - (a.figures["claimed"].value or 0) for a in found]
    return found[over.index(max(over))] if found else None


def _claimed(case: JudgedCase) -> Asked:
    worst = _audit_of_epsilon(case)
    return Asked() if worst is None else Asked(worst.figures["claimed"].value, "the claim")


def _attack_epsilon(case: JudgedCase, claimed: float | None) -> Judgment:
    worst = _audit_of_epsilon(case)
    if worst is None:
        return Judgment("not_measured", "The epsilon was not audited. Run cfk audit epsilon and log the result.")
    low, ceiling = (worst.figures[name].value for name in ("epsilon_low", "ceiling"))
    measured, evidence = Amount(value=low), (worst.run,) if worst.run else ()
    if low is None or claimed is None or ceiling is None:
        return Judgment("not_measured", "The audit found nothing to judge by.", evidence=evidence)
    if low > claimed:
        text = "The audit refutes the epsilon that is claimed: its lower bound is above."
        return Judgment("fail", text, measured, evidence)
    released = case.figure("epsilon").value
    if released is not None and claimed > released:
        text = "The audit is of a larger epsilon than was released with, so it says nothing of this one."
        return Judgment("review", text, measured, evidence)
    if ceiling <= claimed:
        return Judgment("review", "The audit was too small to refute the claim, whatever is true.", measured, evidence)
    return Judgment("pass", "The audit does not refute the claim, which does not prove it.", measured, evidence)


# --- attacks that were run: the upper end of the interval, over what the attack reaches anyway ---


def _attacks(case: JudgedCase) -> list[Line]:
    """Return a line for every attack that is judged, and one for every expected family of which none was run."""
    judged = [attack for attack in case.attacks if attack.judged and attack.family != "epsilon"]
    names = {attack.id for attack in judged}
    ran = [attack for attack in judged if attack.id == whole(attack.id) or whole(attack.id) not in names]
    measured = {attack.family for attack in ran if attack.id not in WITHOUT_EXPLANATIONS}
    expected = [family for family in EXPECTED if family != _BY_CHANCE or case.of_regions]
    text = "This attack was not run, so nobody knows whether it works. Run it with cfk audit and log the result."
    not_run = Judgment("not_measured", text)
    lines = [_of_attack(case, one, [a for a in judged if a is not one and whole(a.id) == one.id]) for one in ran]
    missing = [family for family in expected if family not in measured]
    return [*lines, *(_line(f"attack_{family}", _ATTACKS, "plain", Asked(), not_run) for family in missing)]


def _of_attack(case: JudgedCase, attack: Attack, parts: Sequence[Attack]) -> Line:
    """Judge an attack, and what it found of single attributes."""
    asked = case.asked("attack_over_control")
    if attack.family == _BY_CHANCE and (k := case.asked_k):
        asked = Asked(1 / k, "1 / k of the policy: the chance that k-anonymity admits")
    found, tolerance = compared(attack), asked.value
    if found is None:
        finding = Judgment("not_measured", "The attack had nothing to attack.")
    elif tolerance is None:
        finding = Judgment("not_measured", "Nothing says how much is tolerated.", found.over)
    else:
        finding = judged_attack(attack, found, parts, tolerance, case.accepted)._replace(measured=found.over)
    kind: Kind = "rate" if attack.family in OF_MODELS else "plain"
    finding = finding._replace(evidence=(attack.run,) if attack.run else ())
    return _line(f"attack_{attack.id}", _ATTACKS, kind, asked, finding)


# --- the table ---


class CheckRule(NamedTuple):
    """A check: where it stands, what its figure counts, what it compares with, and how it judges."""

    id: str
    section: int
    kind: Kind
    asked: Callable[[JudgedCase], Asked]
    judge: Callable[[JudgedCase, float | None], Judgment | None]


def _zero(source: str) -> Callable[[JudgedCase], Asked]:
    return lambda _: Asked(0, source)


_DESIRED = _left_for(
    "k_desired",
    "knows who got the desired outcome",
    'Set anonymity_set="eligible", or declare the risk as accepted.',
)
_EFFECTIVE = _left_for(
    "k_effective", "reruns the protection for everybody", 'Use guarantee="reciprocal" or "catalogue".'
)
_OF_REGIONS = (
    CheckRule("k_min", 5, "class_size", _asked_k, _k_min),
    CheckRule("k_desired_min", 5, "class_size", _asked_k, _DESIRED),
    CheckRule("k_effective_min", 5, "class_size", _asked_k, _EFFECTIVE),
    CheckRule("k_intersection", 6, "class_size", _asked_k, _k_intersection),
    CheckRule("native_leak", 5, "requests", _zero("invariant of the product"), _native_leak),
    CheckRule("l_diversity", 5, "plain", lambda case: case.asked("", "l"), _keeps("l_min", 1)),
    CheckRule("t_closeness", 5, "plain", lambda case: case.asked("", "t", min), _keeps("t_max", -1)),
    CheckRule(
        "attribute_disclosure", 5, "plain", lambda case: case.asked("attribute_disclosure"), _attribute_disclosure
    ),
    CheckRule("pureness", 7, "plain", lambda case: case.asked("pureness", "min_pureness"), _pureness),
    CheckRule("ncp", 8, "plain", lambda case: case.asked("ncp", "max_ncp", min), _ncp),
    CheckRule("verification", 5, "class_size", lambda case: Asked(case.asked_k, "recount by the host"), _verification),
)
_OF_PROTOTYPES = (
    CheckRule("dp_guarantee", 11, "plain", lambda _: Asked(source="certificate of the prototypes"), _dp_guarantee),
    CheckRule("dp_budget", 11, "plain", lambda case: case.asked("epsilon"), _dp_budget),
    CheckRule("attack_epsilon", 11, "plain", _claimed, _attack_epsilon),
)
_OF_ALL = (
    CheckRule("records", 13, "plain", _zero("recomputed from the explanations"), _records),
    CheckRule("untracked", 4, "requests", _zero("setting of the operator"), _untracked),
    CheckRule("schema_declared", 2, "plain", _zero("schema"), _schema_declared),
    CheckRule("group_gap", 10, "plain", lambda case: case.asked("group_gap"), _group_gap),
    CheckRule("human_inputs", 12, "plain", _zero("this report"), _human_inputs),
)


def judged(case: JudgedCase) -> list[Line]:
    """Return a line for every check that applies: those of regions, of prototypes, of all, and of attacks.

    One that applies and cannot be judged is there, as not measured.
    """
    rules = [*(_OF_REGIONS if case.of_regions else ()), *(_OF_PROTOTYPES if case.of_prototypes else ()), *_OF_ALL]
    lines = []
    for rule in rules:
        asked = rule.asked(case)
        finding = rule.judge(case, asked.value)
        if finding is not None:
            lines.append(_line(rule.id, rule.section, rule.kind, asked, finding))
    return lines + _attacks(case)


def _line(name: str, section: int, kind: Kind, asked: Asked, found: Judgment) -> Line:
    check = Check(
        id=name,
        status=found.status,
        measured=found.measured,
        threshold=Amount(value=asked.value),
        source=asked.source,
        section=section,
        text=found.text,
        evidence=found.evidence,
    )
    return Line(check, kind)


def verdict(statuses: Iterable[Status]) -> Verdict:
    """Return fail if anything fails, else review if anything is open or was not measured, else pass."""
    found = set(statuses)
    if "fail" in found:
        return "fail"
    return "pass" if found == {"pass"} else "review"
