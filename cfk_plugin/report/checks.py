"""The checks behind the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, isclose, log
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from cfk_plugin.audit.result import WITHOUT_EXPLANATIONS
from cfk_plugin.report.data import (
    NOT_MEASURED,
    OF_MODELS,
    Amount,
    Attack,
    CheckResult,
    Group,
    Metric,
    Status,
    Verdict,
    load,
)
from cfk_plugin.report.inputs import Asked, HumanInputs, is_promised
from cfk_plugin.report.runs import Audited, Compared, compared, whole
from cfk_plugin.tracking.record import PER_EXPLANATION
from cfk_plugin.tracking.tally import figures

if TYPE_CHECKING:
    from cfk_plugin.report.runs import Evidence, Pooled, RunEvidence


OWN_POLICY = "the policy of the runs"
"""Source of a threshold that people do not ask for."""

_BY_CHANCE = "linkage"
"""The family whose attacks name one of k people: k-anonymity admits one in k."""

EXPECTED = (_BY_CHANCE, *OF_MODELS)
"""Families of attacks that a complete report needs; prototypes stand for nobody who could be
linked.
"""

_ATTACKS = 9
_COMPARED = {"ncp": "information loss", "pureness": "pureness", "withheld": "share withheld"}
_TAIL = 0.025  # of a two-sided 95 % interval
_NONE = Amount(value=0)


class Judgment(NamedTuple):
    """What a check says of a case; its words are in ``texts/checks.toml``, by `why`, else by the
    status.
    """

    status: Status
    measured: Amount = NOT_MEASURED
    evidence: tuple[str, ...] = ()
    why: str = ""
    words: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class JudgedCase:
    """Everything that a check may look at."""

    evidence: Evidence
    pooled: Pooled
    figures: Mapping[str, Metric]
    inputs: HumanInputs
    thresholds: Mapping[str, Asked]
    groups: tuple[Group, ...]
    audited: tuple[Audited, ...]
    n_open_questions: int

    @property
    def attacks(self) -> list[Attack]:
        return [found.attack for found in self.audited]

    def audit_of(self, attack: Attack) -> Mapping[str, Any]:
        return next(found.audit for found in self.audited if found.attack is attack)

    @property
    def of_prototypes(self) -> bool:
        """Whether the report is about prototypes: a run has a policy without k."""
        return any(run.policy is not None and "k" not in run.policy for run in self.pooled.runs)

    @property
    def of_regions(self) -> bool:
        """Whether it is about regions; also where nothing is known."""
        return self.pooled.k is not None or not self.of_prototypes

    @property
    def asked_k(self) -> int | None:
        """The largest k asked of any explanation; None if there is none."""
        asked = self.pooled.rows["asked_k"].dropna()
        return int(asked.max()) if len(asked) else None

    def figure(self, name: str) -> Amount:
        """Return a figure; one without a value if it is missing."""
        return self.figures[name].amount if name in self.figures else NOT_MEASURED

    def asked(
        self, name: str, setting: str | None = None, strictest: Callable[[list[Any]], Any] = max
    ) -> Asked:
        """Return what people or the house ask for, else the strictest setting in the runs'
        policies.
        """
        chosen = self.thresholds.get(name)
        if chosen is not None and chosen.value is not None:
            return chosen
        found = [run.setting(setting) for run in self.pooled.runs] if setting else []
        values = [value for value in found if value is not None]
        return Asked(strictest(values), OWN_POLICY) if values else Asked()

    @property
    def policies(self) -> list[Mapping[str, Any]]:
        return [run.policy for run in self.pooled.runs if run.policy is not None]

    def accepted(self, check: str) -> bool:
        """Say whether people accepted this risk."""
        return self.inputs.accepts(check, self.policies)


# --- what a release discloses of people ---


def _asked_k(case: JudgedCase) -> Asked:
    asked, chosen = case.asked_k, case.thresholds["k"]
    if asked is None:
        return Asked()
    return Asked(asked, chosen.source if (chosen.value or 0) >= asked else OWN_POLICY)


def _unknown(case: JudgedCase) -> Judgment:
    return Judgment(
        "not_measured", why="not_counted" if len(case.pooled.regions) else "nothing_released"
    )


def _left(column: str, case: JudgedCase, _: float | None) -> Judgment:
    """Judge whether k people are left: it fails where a run's policy promises that, else a person
    must look.
    """
    name, below = f"{column}_min", case.pooled.below(column)
    promised = np.array([is_promised(name, run.policy) for run in case.pooled.runs], dtype=bool)
    broken = below[promised[below["run"].to_numpy(dtype=np.int64)]]
    if len(found := broken if len(broken) else below):
        why = "" if len(broken) else "accepted" if case.accepted(name) else "not_promised"
        least = Amount(value=int(found[column].min()))
        return Judgment(
            "fail" if len(broken) else "review", least, case.pooled.evidence(found), why
        )
    return Judgment("pass", case.figure(name)) if case.pooled.complete(column) else _unknown(case)


def _native_leak(case: JudgedCase, _: float | None) -> Judgment:
    """Look for regions of a single combination of quasi-identifiers that too few people have."""
    if not (case.pooled.complete("ncp") and case.pooled.complete("k")):
        return _unknown(case)
    below = case.pooled.below("k")
    leaks = below[(below["ncp"] == 0).to_numpy()]
    return Judgment(
        "fail" if len(leaks) else "pass", Amount(value=len(leaks)), case.pooled.evidence(leaks)
    )


def _keeps(name: str, sign: int, case: JudgedCase, limit: float | None) -> Judgment | None:
    """Judge a limit that the policy may set; None if it sets none."""
    figure = case.figure(name)
    if limit is None:
        return None
    if figure.value is None:
        return Judgment("not_measured", why="not_counted")
    return Judgment("pass" if sign * figure.value >= sign * limit else "fail", figure)


def _attribute_disclosure(case: JudgedCase, limit: float | None) -> Judgment:
    figure = case.figure("attribute_disclosure_max")
    if figure.value is None:
        known = [run.population for run in case.pooled.runs if run.population is not None]
        roles = {
            attribute.get("role") for facts in known for attribute in facts.get("attributes", ())
        }
        return (
            _unknown(case)
            if not known or "sensitive" in roles
            else Judgment("review", why="undeclared")
        )
    if limit is None:
        return Judgment("review", figure, why="no_limit")
    if figure.value <= limit:
        return Judgment("pass", figure)
    above = case.pooled.regions[(case.pooled.regions["disclosure"] > limit).to_numpy(dtype=bool)]
    return Judgment("fail", figure, case.pooled.evidence(above))


# --- what protection leaves of an explanation ---


def _pureness(case: JudgedCase, floor: float | None) -> Judgment:
    """Judge, by the lower end of its interval, whether pureness reaches the floor in every
    region.
    """
    measured, regions = case.figure("pureness_min"), case.pooled.regions
    if not (case.pooled.complete("pureness") and case.pooled.complete("pureness_low")):
        return Judgment("not_measured")
    if floor is None:
        return Judgment("review", measured, why="no_floor")
    chosen = case.thresholds["pureness"].value  # else each run is judged by its own floor
    held = [run.setting("min_pureness") if chosen is None else chosen for run in case.pooled.runs]
    floors = np.array(held, dtype=float)[regions["run"].to_numpy()]
    failing = regions[(regions["pureness"] < floors).to_numpy()]
    if len(failing):
        return Judgment("fail", measured, case.pooled.evidence(failing))
    if np.isnan(floors).any():
        return Judgment("review", measured, why="no_floor_somewhere")
    short = regions[(regions["pureness_low"] < floors).to_numpy()]
    if len(short):
        # After so many draws without a failure, the lower end of a 95 % Clopper-Pearson interval is
        # the floor.
        draws = ceil(log(_TAIL) / log(floor)) if 0 < floor < 1 else 0
        needed = (
            f"{draws} draws without one failure are needed"
            if draws
            else "the floor needs an exact count"
        )
        return Judgment(
            "review", measured, case.pooled.evidence(short), "few_draws", {"needed": needed}
        )
    return Judgment("pass", measured)


def _ncp(case: JudgedCase, ceiling: float | None) -> Judgment:
    measured = case.figure("ncp_mean")
    if measured.value is None:
        return Judgment("not_measured")
    if ceiling is None:
        return Judgment("review", measured, why="no_ceiling")
    if measured.value > ceiling:
        return Judgment("fail", measured)
    if any(
        g.metric == "ncp" and g.mean.value is not None and g.mean.value > ceiling
        for g in case.groups
    ):
        return Judgment("review", measured, why="of_group")
    return Judgment("pass", measured)


def _group_gap(case: JudgedCase, tolerance: float | None) -> Judgment:
    known = [
        g
        for g in case.groups
        if g.metric in _COMPARED and g.gap.low is not None and g.gap.high is not None
    ]
    if not known or tolerance is None:
        return Judgment("not_measured")
    ends = [(g.gap.low or 0.0, g.gap.high or 0.0) for g in known]
    largest = [max(map(abs, pair)) for pair in ends]
    status, why, widest = "review", "unsure", known[largest.index(max(largest))]
    if any(low > tolerance or high < -tolerance for low, high in ends):
        status, why = "fail", ""
    elif max(largest) <= tolerance:
        status, why = (
            ("pass", "") if case.pooled.rows["group"].notna().all() else ("review", "incomplete")
        )
    where = f"{_COMPARED[widest.metric]} where {widest.attribute} is {widest.group}"
    measured = replace(widest.gap, n=None, band=None)
    return Judgment(cast("Status", status), measured, (), why, {"widest": where})


# --- how explanations came about and were recorded, and what only people can say ---


def _verification(case: JudgedCase, _: float | None) -> Judgment:
    """Judge protectors: the recount withholds proposals that do not keep the promise."""
    if not len(case.pooled):
        return Judgment("not_measured")
    refused = case.pooled.withheld[
        (case.pooled.withheld["reason"] == "verification_failed").to_numpy()
    ]
    if len(refused):
        return Judgment("fail", case.figure("refused_k"), case.pooled.evidence(refused))
    return Judgment("pass", case.figure("k_min"))


def _records(case: JudgedCase, _: float | None) -> Judgment:
    """Compare runs with themselves: summary, policy and logged explanations."""
    runs = case.pooled.runs
    missing = case.evidence.missing
    if not runs:
        return Judgment("not_measured")
    if forged := [run.run_id for run in runs if not run.policy_agrees]:
        return Judgment("fail", Amount(value=len(forged)), tuple(forged[:5]))
    if missing:
        amount = Amount(value=sum(missing.values()))
        return Judgment("review", amount, tuple(sorted(missing)[:5]), "missing")
    # A period may cover only part of a run, while its summary covers the whole.
    period = case.evidence.since is not None or case.evidence.until is not None
    complete = [run for run in runs if not (period and _is_part(run))]
    if differing := [run.run_id for run in complete if not _summary_agrees(run)]:
        return Judgment("review", Amount(value=len(differing)), tuple(differing[:5]), "differing")
    return Judgment("pass", _NONE, why="in_part" if len(complete) < len(runs) else "")


def _summary_agrees(run: RunEvidence) -> bool:
    """Say whether the run's own figures are those of its explanations."""
    if run.rows is None:
        return False
    status, regions = run.rows["status"], run.rows[run.rows["k"].notna().to_numpy()]
    found = figures({name: regions[name].to_numpy(dtype=float) for name in PER_EXPLANATION})
    said = {
        name: value
        for name, value in found.items()
        if value is not None and run.figures.get(name) is not None
    }
    said |= {name: int((status == name).sum()) for name in ("released", "withheld")}
    said["asked"] = len(status)
    return all(_agrees(run.figures.get(name), value) for name, value in said.items())


def _agrees(told: float | None, counted: float) -> bool:
    return told is not None and isclose(told, counted, rel_tol=1e-6, abs_tol=1e-9)


def _is_part(run: RunEvidence) -> bool:
    return run.rows is not None and len(run.rows) < (run.figures.get("asked") or 0)


def _untracked(case: JudgedCase, _: float | None) -> Judgment:
    measured = case.figure("untracked")
    return Judgment(
        "not_measured" if measured.value is None else "review" if measured.value else "pass",
        measured,
    )


def _schema_declared(case: JudgedCase, _: float | None) -> Judgment:
    known = [run.population for run in case.pooled.runs if run.population is not None]
    if not known or len(known) < len(case.pooled.runs):
        return Judgment("not_measured")
    learned = {
        a["name"]
        for facts in known
        for a in facts.get("attributes", ())
        if a.get("bounds") == "learned"
    }
    words = {"learned": ", ".join(sorted(learned))}
    return Judgment("review" if learned else "pass", Amount(value=len(learned)), words=words)


def _human_inputs(case: JudgedCase, _: float | None) -> Judgment:
    n_open = case.n_open_questions
    return Judgment("review" if n_open else "pass", Amount(value=n_open))


# --- prototypes, which stand for nobody ---


def _dp_guarantee(case: JudgedCase, _: float | None) -> Judgment:
    certificates = [run.prototype for run in case.pooled.runs if run.prototype is not None]
    if not certificates:
        return Judgment("not_measured")
    measured = Amount(value=max(float(c["epsilon"]) for c in certificates))
    if any(c["guarantee"] == "none" for c in certificates):
        return Judgment("fail", measured)
    return Judgment(
        "review" if any(c["model_access"] == "private" for c in certificates) else "pass", measured
    )


def _dp_budget(case: JudgedCase, ceiling: float | None) -> Judgment:
    spent = case.figure("epsilon_spent")
    if spent.value is None or ceiling is None:
        return Judgment("not_measured" if spent.value is None else "review", spent)
    return Judgment("fail" if spent.value > ceiling else "pass", spent)


def _audit_of_epsilon(case: JudgedCase) -> Attack | None:
    found = (attack for attack in case.attacks if attack.family == "epsilon")
    return max(
        found,
        key=lambda a: (a.figure("epsilon_low") or 0) - (a.figure("claimed") or 0),
        default=None,
    )


def _claimed(case: JudgedCase) -> Asked:
    worst = _audit_of_epsilon(case)
    return Asked() if worst is None else Asked(worst.figures["claimed"].value, "the claim")


def _attack_epsilon(case: JudgedCase, claimed: float | None) -> Judgment:
    worst = _audit_of_epsilon(case)
    if worst is None:
        return Judgment("not_measured")
    low, ceiling = (worst.figures[name].value for name in ("epsilon_low", "ceiling"))
    measured, evidence = Amount(value=low), _run_of(worst)
    if low is None or claimed is None or ceiling is None:
        return Judgment("not_measured", evidence=evidence, why="nothing")
    released = case.figure("epsilon").value
    if low > claimed:
        return Judgment("fail", measured, evidence)
    if released is not None and claimed > released:
        return Judgment("review", measured, evidence, "larger")
    small = ceiling <= claimed
    return Judgment("review" if small else "pass", measured, evidence, "small" if small else "")


# --- attacks that were run: the upper end of the interval, compared with what a guess reaches
# anyway ---


_SEVERITY: Mapping[str, int] = {"fail": 3, "review": 2, "pass": 1, "not_measured": 0}


def _attacks(case: JudgedCase) -> list[CheckResult]:
    """Return a line for every attack that names people, and for each family of attacks on models
    one that shows the worst result; also for every expected family without any.

    Attacks that use only the model have lines of their own: what protects explanations does not
    stop them.
    """
    judged = [attack for attack in case.attacks if attack.judged and attack.family != "epsilon"]
    names = {attack.id for attack in judged}
    ran = [
        attack
        for attack in judged
        if attack.id == whole(attack.id) or whole(attack.id) not in names
    ]
    of_kind: dict[str, list[JudgedAttack]] = {}
    for attack in ran:
        parts = [each for each in judged if each is not attack and whole(each.id) == attack.id]
        result = JudgedAttack(attack, _of_attack(case, attack, parts))
        of_kind.setdefault(_kind_of(attack), []).append(result)
    lines = [_worst_line(kind, results) for kind, results in of_kind.items()]
    not_run = Judgment("not_measured", why="not_run")
    expected = [family for family in EXPECTED if family != _BY_CHANCE or case.of_regions]
    families = {attack.family for attack in ran if attack.id not in WITHOUT_EXPLANATIONS}
    for family in expected:
        if family not in families:
            lines.append(_line(f"attack_{family}", _ATTACKS, Asked(), not_run, "attack"))
    return lines


class JudgedAttack(NamedTuple):
    """An attack, and what a check says of it."""

    attack: Attack
    check: CheckResult

    @property
    def rank(self) -> tuple[int, float]:
        """Order by how much it speaks against the release.

        An attack that fell short says nothing where another one did not.
        """
        check = self.check
        severity = _SEVERITY[check.status]
        if check.status == "review" and _fell_short(self.attack):
            severity = _SEVERITY["not_measured"]
        value = check.measured.value
        return severity, -inf if value is None else value


def _kind_of(attack: Attack) -> str:
    """Return the kind that has a line of its own."""
    if attack.family in OF_MODELS and attack.id not in WITHOUT_EXPLANATIONS:
        return attack.family
    return attack.id


def _worst_line(kind: str, results: Sequence[JudgedAttack]) -> CheckResult:
    """Return the line of the worst of several attacks of a kind; the first wins a tie."""
    worst = max(results, key=lambda each: each.rank)
    check = replace(worst.check, id=f"attack_{kind}")
    if len(results) > 1:
        words = {"n": len(results), "name": worst.attack.id}
        which = load("checks")["attack"]["worst"].format_map(words)
        check = replace(check, text=f"{check.text} {which}")
    return check


def _of_attack(case: JudgedCase, attack: Attack, parts: Sequence[Attack]) -> CheckResult:
    """Judge an attack, and what it found of single attributes."""
    if kept := _kept(case, attack):
        return kept
    asked = case.asked("attack_over_control")
    if attack.family == _BY_CHANCE and (k := case.asked_k):
        asked = Asked(1 / k, "1 / k of the policy: the chance that k-anonymity admits")
    found, tolerance, finding = compared(attack), asked.value or 0.0, Judgment("not_measured")
    if found is not None:
        finding = Judgment("review", why="elsewhere")
        if attack.concerns:
            finding = _against(case, attack, found, tolerance) or _doubt(attack, found, tolerance)
        if finding.status != "fail":
            finding = _of_parts(case, parts, tolerance) or finding
        finding = finding._replace(
            measured=found.over, words={"with_what": found.with_what, **finding.words}
        )
    finding = finding._replace(evidence=_run_of(attack))
    return _line(f"attack_{attack.id}", _ATTACKS, asked, finding, "attack")


def _kept(case: JudgedCase, attack: Attack) -> CheckResult | None:
    """Judge, as the audit does, how many people an attack left, if the guarantee promises a
    number.
    """
    told = [
        check
        for check in case.audit_of(attack).get("checks", ())
        if check["name"].partition("/")[0] == attack.id
    ]
    known = [check for check in told if check["value"] is not None]
    if not known:
        return None
    least, needed = (
        min(check["value"] for check in known),
        max(case.asked_k or 0, *(each["needed"] for each in known)),
    )
    finding = Judgment("pass", why="enough") if attack.covers else Judgment("review", why="other")
    if not attack.concerns:
        finding = Judgment("review", why="elsewhere")
    elif least < needed:
        finding = Judgment("fail", why="fewer")
    finding = finding._replace(measured=Amount(value=least), evidence=_run_of(attack))
    asked = Asked(needed, "k of the policy: the guarantee promises it")
    return _line(f"attack_{attack.id}", _ATTACKS, asked, finding, "attack")


def _run_of(attack: Attack) -> tuple[str, ...]:
    return (attack.run,) if attack.run else ()


def _against(
    case: JudgedCase, attack: Attack, found: Compared, tolerance: float
) -> Judgment | None:
    """Return what speaks against the release, if anything does."""
    reached, bound = (attack.figure(name) for name in ("balanced_accuracy_low", "bound_tight"))
    if reached is not None and bound is not None and reached > bound:
        return Judgment("fail", why="refutes")
    if (found.over.value or 0.0) <= tolerance:
        return None
    if attack.id in WITHOUT_EXPLANATIONS:
        return Judgment("review", why="of_model")
    if case.accepted(f"attack_{attack.family}") or case.accepted(f"attack_{attack.id}"):
        return Judgment("review", why="accepted")
    own = case.audit_of(attack).get("policy")
    policies: list[Mapping[str, Any] | None] = (
        ([*case.policies] or [None]) if own is None else [own]
    )
    if attack.family == _BY_CHANCE and not any(
        is_promised(f"attack_{attack.id}", policy) for policy in policies
    ):
        return Judgment("review", why="not_promised")
    return Judgment("fail")


def _of_parts(case: JudgedCase, parts: Sequence[Attack], tolerance: float) -> Judgment | None:
    """Return what speaks against single attributes; as some are above by chance, whole intervals
    must be above.
    """
    compare = {part.id: compared(part) for part in parts if part.concerns}
    lows = {name: found.over.low for name, found in compare.items() if found is not None}
    above = [
        name.partition("/")[2] for name, low in lows.items() if low is not None and low > tolerance
    ]
    if not above:
        return None
    accepted, words = case.accepted(f"attack_{parts[0].family}"), {"names": ", ".join(above)}
    why = "parts_accepted" if accepted else "parts"
    return Judgment("review" if accepted else "fail", why=why, words=words)


def _doubt(attack: Attack, found: Compared, tolerance: float) -> Judgment:
    """Return why the attack is not evidence for the release, or that it is."""
    if found.over.high is None or found.over.high > tolerance:
        return Judgment("review", why="may")
    if not attack.covers:
        return Judgment("review", why="other")
    if _fell_short(attack):
        return Judgment("review", why="short")
    return Judgment("review", why="few_alarms") if _few_alarms(attack) else Judgment("pass")


def _fell_short(attack: Attack) -> bool:
    """Say whether an attack did worse than its baseline: by its value in linkage, else by its whole
    interval.
    """
    at_best = attack.main.value if attack.family == _BY_CHANCE else attack.main.high
    baseline = attack.baseline.value
    return at_best is not None and baseline is not None and at_best < baseline


def _few_alarms(attack: Attack) -> bool:
    """Say whether some members are found beyond chance at few false alarms, which the area under
    the curve hides.
    """
    ends = [
        [attack.figure(f"tpr_at_{rate}_{end}") for end in ("low", "fpr_high")]
        for rate in ("0_01", "0_001")
    ]
    return any(
        found is not None and alarms is not None and found > alarms for found, alarms in ends
    )


# --- the table ---


class CheckRule(NamedTuple):
    id: str
    section: int
    asked: Callable[[JudgedCase], Asked]
    judge: Callable[[JudgedCase, float | None], Judgment | None]


def _set(name: str, setting: str | None = None, strictest: Callable[[list[Any]], Any] = max) -> Any:
    return lambda case: case.asked(name, setting, strictest)


def _zero(source: str) -> Callable[[JudgedCase], Asked]:
    return lambda _: Asked(0, source)


_OF_REGIONS = (
    CheckRule("k_min", 5, _asked_k, partial(_left, "k")),
    CheckRule("k_desired_min", 5, _asked_k, partial(_left, "k_desired")),
    CheckRule("k_effective_min", 5, _asked_k, partial(_left, "k_effective")),
    CheckRule("k_consistent_min", 5, _asked_k, partial(_left, "k_consistent")),
    CheckRule("native_leak", 5, _zero("invariant of the product"), _native_leak),
    CheckRule("l_diversity", 5, _set("", "l"), partial(_keeps, "l_min", 1)),
    CheckRule("t_closeness", 5, _set("", "t", min), partial(_keeps, "t_max", -1)),
    CheckRule("attribute_disclosure", 5, _set("attribute_disclosure"), _attribute_disclosure),
    CheckRule("pureness", 7, _set("pureness", "min_pureness"), _pureness),
    CheckRule("ncp", 8, _set("ncp", "max_ncp", min), _ncp),
    CheckRule(
        "verification", 5, lambda case: Asked(case.asked_k, "recount by the host"), _verification
    ),
)
_OF_PROTOTYPES = (
    CheckRule(
        "dp_guarantee", 11, lambda _: Asked(source="certificate of the prototypes"), _dp_guarantee
    ),
    CheckRule("dp_budget", 11, _set("epsilon"), _dp_budget),
    CheckRule("attack_epsilon", 11, _claimed, _attack_epsilon),
)
_OF_ALL = (
    CheckRule("records", 13, _zero("recomputed from the explanations"), _records),
    CheckRule("untracked", 4, _zero("setting of the operator"), _untracked),
    CheckRule("schema_declared", 2, _zero("schema"), _schema_declared),
    CheckRule("group_gap", 10, _set("group_gap"), _group_gap),
    CheckRule("human_inputs", 12, _zero("this report"), _human_inputs),
)


def judged(case: JudgedCase) -> list[CheckResult]:
    """Return a line for every check that applies, also if it was not measured."""
    rules = [
        *(_OF_REGIONS if case.of_regions else ()),
        *(_OF_PROTOTYPES if case.of_prototypes else ()),
        *_OF_ALL,
    ]
    asked = [(rule, rule.asked(case)) for rule in rules]
    found = [(rule, of, rule.judge(case, of.value)) for rule, of in asked]
    lines = [
        _line(rule.id, rule.section, of, finding)
        for rule, of, finding in found
        if finding is not None
    ]
    return lines + _attacks(case)


def _line(
    name: str,
    section: int,
    asked: Asked,
    found: Judgment,
    texts: str | None = None,
) -> CheckResult:
    """Return what was found, worded by the entry `texts`: the check's own, or that of all
    attacks.
    """
    words = {**load("checks")["common"], **load("checks")[texts or name]}
    finding = found.why or found.status
    return CheckResult(
        id=name,
        status=found.status,
        measured=found.measured,
        threshold=Amount(value=asked.value),
        source=asked.source,
        section=section,
        text=words[finding].format_map({**words, **found.words}),
        step=_step(name, finding),
        evidence=found.evidence,
    )


def _step(check: str, finding: str) -> str:
    """Return the id of the step that settles what a check found; "" if there is none."""
    names = {check, _kind_of_attack(check)}
    for step in load("steps")["steps"]:
        for name, findings in step["settles"].items():
            if name in names and finding in findings:
                return str(step["id"])
    return ""


def _kind_of_attack(check: str) -> str:
    """Return the entry of all attacks of a kind in ``texts/steps.toml``; "" for other checks."""
    if not check.startswith("attack_") or check == "attack_epsilon":
        return ""
    if check.startswith(tuple(f"attack_{family}" for family in OF_MODELS)):
        return "attack_on_model"
    return "attack_on_people"


def verdict(statuses: Iterable[Status]) -> Verdict:
    """Return fail if anything fails, else review if anything is open or was not measured, else
    pass.
    """
    found = set(statuses)
    if "fail" in found:
        return "fail"
    return "pass" if found == {"pass"} else "review"
