"""What a report says besides figures: definitions, limits, criteria, controls, policies,
population.
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any

import pandas as pd

from cfk_plugin.data.promises import PROMISES, promise_of
from cfk_plugin.release.results import PrototypeCertificate
from cfk_plugin.report.data import (
    Amount,
    Attack,
    CheckResult,
    Column,
    Criterion,
    Definition,
    DpStatement,
    Environment,
    Metric,
    Policies,
    PolicyInForce,
    PopulationSummary,
    ReportData,
    Status,
    load,
)
from cfk_plugin.report.inputs import Asked
from cfk_plugin.report.runs import Evidence, Pooled, RunEvidence
from cfk_plugin.tracking.record import FLOOR

# --- definitions ---

_PARTS = tuple(part.name for part in fields(Definition))


def _load_definitions() -> dict[str, Definition]:
    """Return the definitions of all groups, without what is for the reference page alone."""
    definitions = {}
    for entries in load("definitions").values():
        for name, entry in entries.items():
            definitions[name] = Definition(**{part: entry[part] for part in _PARTS})
    return definitions


DEFINITIONS: Mapping[str, Definition] = MappingProxyType(_load_definitions())
"""Id to definition. A figure and the check of the same id, such as ``k_min``, share one."""

_CHECK = "attack_"
_FAMILIES = ("membership", "extraction", "attribute_inference")  # each has several attacks


def definitions_of(
    checks: Iterable[CheckResult], metrics: Iterable[Metric], attacks: Sequence[Attack]
) -> Mapping[str, Definition]:
    """Return the definitions of checks, metrics, attacks and their figures, by id; parts use their
    attack's.
    """
    ran = {attack.id for attack in attacks}
    names = [*(check.id for check in checks), *(metric.id for metric in metrics)]
    names += [name for name in ran if name.partition("/")[0] not in ran - {name}]
    names += [figure for attack in attacks for figure in attack.figures if figure in DEFINITIONS]
    return {name: _definition(name, attacks) for name in sorted(set(names))}


def _definition(name: str, attacks: Sequence[Attack]) -> Definition:
    """Return the definition of a name: its own, that of its kind of attack, or what the audit
    said.
    """
    if name in DEFINITIONS:
        return DEFINITIONS[name]
    attack = name.removeprefix(_CHECK)
    prefix = name[: -len(attack)]
    parts = attack.replace("/", "_/").split("_")
    for length in range(len(parts) - 1, 0, -1):
        kind = "_".join(parts[:length])
        if kind.startswith(_FAMILIES) and prefix + kind in DEFINITIONS:
            found = DEFINITIONS[prefix + kind]
            return replace(
                found, name=f"{found.name}: {' '.join(parts[length:]).removeprefix('/')}"
            )
    if prefix and attack in DEFINITIONS:
        return DEFINITIONS[attack]
    return Definition(
        name=attack.replace("_", " "),
        formula=next(
            (found.scenario for found in attacks if found.id == attack), "not known to this version"
        ),
        range="0 to 1",
        direction="lower is better",
        source="the audit that ran it",
        does_not_say=(
            "this version of the report does not know the attack, so nothing but its own words is"
            " shown"
        ),
    )


# --- what stays unprotected ---

_MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the sentences depend on; None stands for unknown."""

    guarantees: Collection[str]  # of the regions and prototypes in the period
    # private attributes of which an explainer's values are released
    raw_private: Sequence[str] | None
    prototypes: bool  # whether any were released
    dp_covers: str | None  # see `PrototypeCertificate.covers`
    sensitive_declared: bool = False
    subject_key: bool | None = None  # people are told apart by a key
    shares_values: bool = False  # all policies are those of catalogues

    @property
    def kinds(self) -> list[str]:
        """The guarantees of regions, weakest first."""
        return [kind for kind in PROMISES if kind in self.guarantees]


def limits(case: Circumstances) -> tuple[str, ...]:
    """Return sentences on what stays unprotected, those about regions first."""
    said, kinds = load("limits"), case.kinds
    found: list[str] = []
    if kinds:
        found += _of_knowledge(kinds)
        found.append("separate_fits")
        found += ["raw_private"] if case.raw_private is None or case.raw_private else []
        found += ["shared_private"] if case.shares_values else []
        found += [
            "sensitive" if case.sensitive_declared else "no_sensitive",
            "membership",
            "undeclared",
        ]
        found.append(
            {True: "one_person", False: "rows_counted", None: "rows_unknown"}[case.subject_key]
        )
        found.append("one_table")
    if case.prototypes:
        found += ["prototypes", *(["unproven"] if "none" in case.guarantees else [])]
        found += ["general", "refits", "not_noised"]
    own = {"raw_private": _private(case.raw_private), "prototypes": _covers(case.dp_covers)}
    return tuple(own.get(name) or said[name] for name in (*found, "model", "process"))


def not_covered(case: Circumstances) -> tuple[str, str, str]:
    """Return the three sentences that stand beside the verdict."""
    said, kinds, covers = load("limits"), case.kinds, _covers(case.dp_covers)
    if not kinds:
        return covers, said["general"], said["outside_prototypes"]
    weakest = kinds[0]
    none_raw = case.raw_private is not None and not case.raw_private
    values = said["membership"] if none_raw else _private(case.raw_private)
    return (
        said[f"short_{weakest}"],
        values,
        covers if case.prototypes else said["outside"],
    )


def _of_knowledge(kinds: Sequence[str]) -> list[str]:
    """Return the names of the sentences about attackers who do more than look up
    quasi-identifiers.
    """
    promises = [promise_of(kind) for kind in kinds]
    found: list[str] = []
    if any("k_effective" not in promise.promised_counts for promise in promises):
        found.append("rerun")
    if any("k_consistent" not in promise.promised_counts for promise in promises):
        found += ["ask_model", "steering", "outcomes"]
    if any(promise.promises_true_answers for promise in promises):
        found.append("steering_catalogue")
    return found


def _private(raw: Sequence[str] | None) -> str:
    if raw is None:
        return str(load("limits")["raw_private_unknown"])
    more = len(raw) - _MOST_NAMES
    names = ", ".join(raw[:_MOST_NAMES])
    return str(load("limits")["raw_private"]).replace(
        "{names}", f"{names} and {more} more" if more > 0 else names
    )


def _covers(covers: str | None) -> str:
    if covers is None:
        return str(load("limits")["prototypes_unknown"])
    return str(load("limits")["prototypes"]).replace("{covers}", covers)


# --- singling out, linkability and inference ---

_BY_K = "singling out"  # the only criterion that a number of people is about
# criteria that exactly released private values leave open
_BY_VALUES = ("singling out", "inference")


def criteria(
    statuses: Mapping[str, Status],
    raw_private: Sequence[str] | None,
    *,
    regions: bool = True,
    prototypes: bool = False,
) -> tuple[Criterion, ...]:
    """Judge the criteria of WP29 Opinion 05/2014: k is about singling out alone, and unmeasured is
    not a pass.
    """
    texts, exposed = load("criteria"), ""
    if regions and (raw_private is None or raw_private):
        exposed = texts["raw_unknown" if raw_private is None else "raw"]
    rows: list[Criterion] = []
    for told in texts["criteria"]:
        name = told["name"]
        asked = dict.fromkeys(told["regions"] * regions + told["prototypes"] * prototypes)
        needed = dict.fromkeys(check for each in asked for check in _of_family(each, statuses))
        needed |= dict.fromkeys(check for check in told["if_run"] if check in statuses)
        status = _together([statuses.get(check, "not_measured") for check in needed])
        concerned, parts = bool(exposed) and name in _BY_VALUES, [told["asks"]]
        if concerned and status == "pass":
            status = "review"
        else:
            parts.append(texts["statuses"][status])
        parts += [texts["k_alone"]] * (regions and name != _BY_K)
        parts += [exposed] * concerned
        rows.append(
            {
                "criterion": name,
                "evidence": ", ".join(needed),
                "status": status,
                "text": " ".join(parts),
            }
        )
    return tuple(rows)


def _of_family(check: str, statuses: Mapping[str, Status]) -> list[str]:
    """Return the checks that a name stands for: those of a family's attacks, or itself."""
    attacks = [name for name in statuses if name.startswith(f"{check}_")]
    attacks = attacks if check.removeprefix(_CHECK) in _FAMILIES else []
    return [*([check] if check in statuses or not attacks else []), *attacks]


def _together(found: Sequence[Status]) -> Status:
    if "fail" in found:
        return "fail"
    if not found or set(found) == {"not_measured"}:
        return "not_measured"
    return "pass" if set(found) == {"pass"} else "review"


# --- rules, standards and their words ---


def controls() -> tuple[dict[str, str], ...]:
    """Return the control map: where each requirement is addressed.

    Whether a rule is met is for people to decide.
    """
    return tuple(
        {
            "control": told["control"],
            "requires": told["requires"],
            "section": ", ".join(map(str, told["sections"])),
            **{name: told[name] for name in ("status", "verified", "checked_on", "source")},
        }
        for told in load("controls")["controls"]
    )


def outdated(entries: Iterable[Mapping[str, str]], on: date) -> tuple[str, ...]:
    """Return the names of the entries of the control map that were checked more than a year before
    `on`.

    An entry that gives only the month counts as checked on the last day of that month.
    """
    return tuple(entry["control"] for entry in entries if _a_year_after(entry["checked_on"]) < on)


def _a_year_after(checked_on: str) -> date:
    """Return the day a year after ``YYYY-MM-DD``, or after the last day of ``YYYY-MM``."""
    year, month, *days = map(int, checked_on.split("-"))
    last = monthrange(year + 1, month)[1]
    return date(year + 1, month, min([*days, last]))


def techniques(methods: Collection[str], guarantees: Collection[str]) -> tuple[str, ...]:
    """Return the techniques and formal models in use, in the terms of ISO/IEC 20889, with what each
    is here.
    """
    kinds = set(guarantees)
    promises = [promise_of(kind) for kind in PROMISES if kind in kinds]
    uses = {
        "record suppression: explanations that do not meet the policy are withheld": True,
        "generalization: quasi-identifiers, one region for all people of a group": (
            any(promise.has_fixed_regions for promise in promises)
        ),
        "local generalization: quasi-identifiers, a region for each explanation": (
            any(not promise.has_fixed_regions for promise in promises)
        ),
        "k-anonymity (formal model), for the people who match a region": len(promises) > 0,
        "noise addition: to the counts from which answers are sampled": ("dp" in methods),
        "synthetic data: answers are sampled, and describe no single person": "dp" in methods,
        "differential privacy (formal model), server model": kinds & {"pure", "approximate"},
    }
    return tuple(text for text, used in uses.items() if used)


def receiver_sentence(data: ReportData) -> str:
    """Return what holds for every receiver, about generalised values only, as private ones may be
    somebody's; or "".
    """
    fits = any(check.id == "k_min" and check.status == "pass" for check in data.checks)
    asked = [each["settings"]["k"] for each in data.policy["policies"] if "k" in each["settings"]]
    if not (fits and asked) or data.releases["prototypes"].value != 0:
        return ""
    # with several, the attributes are those of the latest
    one = data.population["populations"] <= 1
    named = [
        each["name"] for each in data.attributes if one and each["role"] == "quasi-identifier"
    ][:_MOST_NAMES]
    listed = (
        " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))
        or "the values that others may know"
    )
    who = "people" if data.population["subject_key"] else "records"
    told = (
        f"The explanation gives {listed} in a form that at least {min(asked):,} {who} in the"
        " data match"
    )
    pure = data.metric("pureness_min")
    least = pure.value if pure.low is None else pure.low
    if not least:
        return f"{told}."
    share = "all" if least == 1 else f"at least {math.floor(100 * least + 1e-9)} % of the"
    sure = "" if least == pure.value else " (an estimate)"
    return (
        f"{told}; {share} combinations of values inside{sure} lead to the decision that it names."
    )


def title_of(data: ReportData, name: str) -> str:
    """Return the name of a figure, a check or an attack; its id if nobody defined it."""
    definition = data.definitions.get(name, DEFINITIONS.get(name))
    return name if definition is None else definition.name


# --- from the runs ---


def circumstances(evidence: Evidence, pooled: Pooled, dp: DpStatement | None) -> Circumstances:
    """Return what the limits depend on: guarantees, private values, what was released."""
    facts = evidence.latest("population")
    roles = {attribute["name"]: attribute["role"] for attribute in facts.get("attributes", ())}
    stated = [run.params["cfk.guarantee"] for run in pooled.runs if "cfk.guarantee" in run.params]
    policies = [run.policy for run in pooled.runs if run.policy is not None and "k" in run.policy]
    shares_values = bool(policies) and all(p.get("guarantee") == "catalogue" for p in policies)
    raw_private: list[str] | None = None
    if shares_values:
        raw_private = []
    elif roles:
        raw_private = sorted(n for n, role in roles.items() if role in ("sensitive", "other"))
    return Circumstances(
        guarantees={guarantee.removeprefix("dp-") for guarantee in stated},
        raw_private=raw_private,
        prototypes=len(pooled.prototypes) > 0 or dp is not None,
        dp_covers=None if dp is None else dp["covers"],
        sensitive_declared="sensitive" in roles.values(),
        subject_key=facts.get("subject_key"),
        shares_values=shares_values,
    )


def day(moment: pd.Timestamp | datetime | None) -> str | None:
    """Write a moment as ISO 8601 in UTC, to the second."""
    if moment is None or pd.isna(moment):
        return None
    return pd.Timestamp(moment).tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")


def of_milliseconds(value: int | None) -> str | None:
    return None if value is None else day(datetime.fromtimestamp(value / 1000, UTC))


def population_summary(evidence: Evidence, figures: Mapping[str, Metric]) -> PopulationSummary:
    """Describe the population before protection."""
    facts = evidence.latest("population")
    prints = {
        run.population.get("fingerprint") for run in evidence.runs if run.population is not None
    }

    return {
        "people": _people(facts.get("people")),
        "rows": _people(facts.get("rows")),
        "unique": figures["unique"].amount,
        "below_k": figures["below_k"].amount,
        "subject_key": facts.get("subject_key"),
        "fingerprint": facts.get("fingerprint"),
        "k": facts.get("k"),
        "populations": len(prints - {None}),
    }


def _people(count: int | str | None) -> Amount:
    """Return a number of people; a run may have logged a band."""
    return Amount(band=count) if isinstance(count, str) else Amount(value=count)


def columns(evidence: Evidence) -> tuple[Column, ...]:
    """Describe the attributes: roles and kinds as declared, and numbers of distinct values."""
    return tuple(
        {
            "name": attribute["name"],
            "role": attribute["role"],
            "kind": attribute["kind"],
            "weight": attribute.get("weight"),
            "distinct": _people(attribute.get("distinct")),
            "bounds_source": attribute.get("bounds") or "not needed",
        }
        for attribute in evidence.latest("population").get("attributes", ())
    )


def policy_summary(
    pooled: Pooled,
    asked: Mapping[str, Asked],
    guarantees: Collection[str],
) -> Policies:
    """Describe the policies in force, and how settings changed in the period."""
    environments = [run.environment for run in pooled.runs if run.environment is not None]
    policies = _policies(pooled)
    names = ("method", "guarantee", "generator")
    found = {
        name: {run.params.get(f"cfk.{name}") for run in pooled.runs} - {None} for name in names
    }
    settings = {name: tuple(sorted(filter(None, values))) for name, values in found.items()}
    return {
        "policies": policies,
        "methods": settings["method"],
        "guarantees": settings["guarantee"],
        "generators": settings["generator"],
        "seed": tuple(
            sorted({str(found["seed"]) for found in environments if found.get("seed") is not None})
        ),
        "deviations": _deviations(pooled, len(policies), settings),
        "thresholds": tuple(
            {"id": name, "value": of.value, "source": of.source}
            for name, of in asked.items()
            if of.value is not None
        ),
        "techniques": techniques(settings["method"], guarantees),
    }


def _policies(pooled: Pooled) -> tuple[PolicyInForce, ...]:
    times = (
        pooled.rows["timestamp"]
        if "timestamp" in pooled.rows
        else pd.Series(dtype="datetime64[ms, UTC]")
    )
    by_policy: dict[str, list[int]] = {}
    for i, run in enumerate(pooled.runs):
        by_policy.setdefault(run.tags.get("cfk.policy_sha256", ""), []).append(i)
    of = {
        sha: times[pooled.rows["run"].isin(places).to_numpy()] for sha, places in by_policy.items()
    }
    policies: list[PolicyInForce] = [
        {
            "sha256": sha,
            "settings": _settings(pooled.runs[places[0]]),
            "first": day(of[sha].min()),
            "last": day(of[sha].max()),
            "asked": Amount(value=len(of[sha])),
        }
        for sha, places in by_policy.items()
    ]
    return tuple(policies)


def _settings(run: RunEvidence) -> dict[str, Any]:
    """Return the settings of a run's policy, with the floor of pureness that applied, if the run
    has it.
    """
    floor = {"least_pureness": run.setting("min_pureness") or 0.0} if FLOOR in run.params else {}
    return {**(run.policy or {}), **floor}


def _deviations(
    pooled: Pooled, policies: int, settings: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Say what changed during the period."""
    said = [f"{policies} different policies were in force."] if policies > 1 else []
    said += [
        f"{len(values)} different {name}s: {', '.join(values)}."
        for name, values in settings.items()
        if len(values) > 1
    ]
    prints = {run.tags.get("cfk.population_fingerprint") for run in pooled.runs} - {None}
    said += [f"{len(prints)} different populations were protected."] if len(prints) > 1 else []
    return tuple(said)


def dp_statement(evidence: Evidence) -> DpStatement | None:
    """Return what is guaranteed of the latest prototypes; None if there are none."""
    if not (found := evidence.latest("prototype")):
        return None
    stated = {name: value for name, value in found.items() if name != "covers"}
    certificate = PrototypeCertificate(**{**stated, "inferred": tuple(stated.get("inferred", ()))})
    statement: Any = {
        **certificate.to_dict(),
        "total": certificate.total,
        "membership_bound": certificate.membership_bound,
        "threat_models": certificate.threat_models,
    }
    return statement  # type: ignore[no-any-return]


def environment_of(evidence: Evidence) -> Environment:
    """Return versions of packages and plugins, from the latest run that has them."""
    found = evidence.latest("environment")
    plugins = {run.tags["cfk.plugins"] for run in evidence.runs if "cfk.plugins" in run.tags}
    return {
        "packages": dict(found.get("packages", {})),
        "plugins": tuple(found.get("plugins") or sorted(plugins)),
        "python": found.get("python"),
        "model": found.get("model"),
    }
