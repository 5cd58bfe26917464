"""What the report says by itself: definitions, limits, criteria, techniques and controls, from the texts beside it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from cfk_plugin.report.data import Attack, CheckResult, Criterion, Definition, Metric, Status


@cache
def load(name: str) -> Any:
    """Return what a file of texts holds, by its name without ``.yaml``: shared by all callers, not to be changed."""
    return yaml.safe_load((files("cfk_plugin.report") / f"texts/{name}.yaml").read_text("utf-8"))


# --- definitions ---

GROUPS: Mapping[str, Mapping[str, Definition]] = MappingProxyType(
    {
        title: MappingProxyType({name: Definition(**parts) for name, parts in entries.items()})
        for title, entries in load("definitions").items()
    }
)
"""Heading to its definitions, in the order of the reference page."""

DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {name: found for entries in GROUPS.values() for name, found in entries.items()}
)
"""Id to definition. A figure and the check of the same id, such as ``k_min``, share one."""

_CHECK = "attack_"
_FAMILIES = ("membership", "extraction", "attribute_inference")  # each of several attacks


def definitions_of(
    checks: Iterable[CheckResult], metrics: Iterable[Metric], attacks: Sequence[Attack]
) -> Mapping[str, Definition]:
    """Return the definition of every check, metric and attack, by id; and of figures of attacks that have one.

    What an attack found of a single attribute is defined with the attack.
    """
    ran = {attack.id for attack in attacks}
    names = [*(check.id for check in checks), *(metric.id for metric in metrics)]
    names += [name for name in ran if name.partition("/")[0] not in ran - {name}]
    names += [figure for attack in attacks for figure in attack.figures if figure in DEFINITIONS]
    return {name: _definition(name, attacks) for name in sorted(set(names))}


def _definition(name: str, attacks: Sequence[Attack]) -> Definition:
    """Return what is known of a name: of itself, of the kind of attack that it is one of, or what the audit said."""
    if name in DEFINITIONS:
        return DEFINITIONS[name]
    attack = name.removeprefix(_CHECK)
    prefix = name[: -len(attack)]
    parts = attack.replace("/", "_/").split("_")
    for length in range(len(parts) - 1, 0, -1):
        kind = "_".join(parts[:length])
        if kind.startswith(_FAMILIES) and prefix + kind in DEFINITIONS:
            found = DEFINITIONS[prefix + kind]
            return replace(found, name=f"{found.name}: {' '.join(parts[length:]).removeprefix('/')}")
    if prefix and attack in DEFINITIONS:
        return DEFINITIONS[attack]
    return Definition(
        name=attack.replace("_", " "),
        formula=next((found.scenario for found in attacks if found.id == attack), "not known to this version"),
        range="0 to 1",
        direction="lower is better",
        source="the audit that ran it",
        does_not_say="this version of the report does not know the attack, so nothing but its own words is shown",
    )


# --- what stays unprotected ---

_REGIONS = ("nominal", "reciprocal", "catalogue")  # guarantees, weakest first
_MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the sentences depend on; None stands for what is not known."""

    guarantees: Collection[str]  # of the regions and prototypes in the period
    has_ledger: bool | None  # all the time
    raw_private: Sequence[str] | None  # private attributes that are released as they are
    prototypes: bool  # were released
    dp_covers: str | None  # see `PrototypeCertificate.covers`
    sensitive_declared: bool = False
    subject_key: bool | None = None  # people are told apart by a key
    eligible: bool = False  # only people with the desired predicted outcome counted, in all policies

    @property
    def kinds(self) -> list[str]:
        """The guarantees of regions, weakest first."""
        return [kind for kind in _REGIONS if kind in self.guarantees]


def limits(case: Circumstances) -> tuple[str, ...]:
    """Return sentences on what stays unprotected, those about regions first."""
    said, kinds = load("limits"), case.kinds
    found: list[str] = []
    if kinds:
        found += _of_knowledge(kinds, case.eligible)
        found.append({True: "ledger", False: "no_ledger", None: "ledger_unknown"}[case.has_ledger])
        found += ["raw_private"] if case.raw_private is None or case.raw_private else []
        found += ["sensitive" if case.sensitive_declared else "no_sensitive", "membership", "undeclared"]
        found.append({True: "one_person", False: "rows_counted", None: "rows_unknown"}[case.subject_key])
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
    variants = {
        "reciprocal": "eligible" if case.eligible else "reciprocal",
        "catalogue": "catalogue_ledger" if case.has_ledger else "catalogue",
    }
    none_raw = case.raw_private is not None and not case.raw_private
    values = said["membership"] if none_raw else _private(case.raw_private)
    return said[f"short_{variants.get(kinds[0], kinds[0])}"], values, covers if case.prototypes else said["outside"]


def _of_knowledge(kinds: Sequence[str], eligible: bool) -> list[str]:
    """Return the names of the sentences about attackers who know or do more than look up quasi-identifiers."""
    found = ["rerun"] if "nominal" in kinds else []
    if kinds != ["catalogue"]:
        found += ["ask_model", "steering"]
        found += [] if eligible else ["outcomes"]
    if "catalogue" in kinds:
        found += ["steering_catalogue", "catalogue_behind_explainer"]
    return [*found, "other_anchors"] if "reciprocal" in kinds else found


def _private(raw: Sequence[str] | None) -> str:
    if raw is None:
        return str(load("limits")["raw_private_unknown"])
    more = len(raw) - _MOST_NAMES
    names = ", ".join(raw[:_MOST_NAMES])
    return str(load("limits")["raw_private"]).replace("{names}", f"{names} and {more} more" if more > 0 else names)


def _covers(covers: str | None) -> str:
    if covers is None:
        return str(load("limits")["prototypes_unknown"])
    return str(load("limits")["prototypes"]).replace("{covers}", covers)


# --- singling out, linkability and inference ---

_BY_K = "singling out"  # the one criterion that a number of people speaks of
_BY_VALUES = ("singling out", "inference")  # what private values that are released as they are stand against


def criteria(
    statuses: Mapping[str, Status], raw_private: Sequence[str] | None, *, regions: bool = True, prototypes: bool = False
) -> tuple[Criterion, ...]:
    """Return the table of the three criteria of the Article 29 Working Party's Opinion 05/2014, from checks' statuses.

    k people in a region speak of singling out alone: linkability and inference pass by attacks and by limits on what
    people of a region share, never by k. What is not measured is never a pass, and private values that are released as
    they are, or may be, keep singling out and inference from passing.
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
        rows.append({"criterion": name, "evidence": ", ".join(needed), "status": status, "text": " ".join(parts)})
    return tuple(rows)


def _of_family(check: str, statuses: Mapping[str, Status]) -> list[str]:
    """Return the checks that a name stands for: those of all attacks of a family, or itself."""
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
    """Return the control map: where something is answered, not that a rule is met, which is for people to decide."""
    return tuple(
        {
            "control": told["control"],
            "requires": told["requires"],
            "section": ", ".join(map(str, told["sections"])),
            **{name: told[name] for name in ("status", "verified", "checked_on")},
        }
        for told in load("controls")
    )


def techniques(methods: Collection[str], guarantees: Collection[str], *, withheld: bool = False) -> tuple[str, ...]:
    """Return the techniques and formal models in use, in the words of ISO/IEC 20889, each with what it is here.

    `methods` are those of certificates, `guarantees` those of policies and certificates; `withheld` says whether single
    private attributes may be.
    """
    kinds = set(guarantees)
    uses = {
        "record suppression: explanations that do not meet the policy are withheld": True,
        "generalization: quasi-identifiers, one region for all people of a group": kinds & {"reciprocal", "catalogue"},
        "local generalization: quasi-identifiers, a region for each explanation": "nominal" in kinds,
        "local suppression: single private attributes are withheld": withheld,
        "k-anonymity (formal model), for the people who fit a region": kinds & set(_REGIONS),
        "noise addition: to the counts or coefficients that answers come from": {"dp", "dpc"} & set(methods),
        "synthetic data: answers are drawn, and stand for nobody": {"dp", "dpc"} & set(methods),
        "differential privacy (formal model), server model": kinds & {"pure", "approximate"},
    }
    return tuple(text for text, used in uses.items() if used)


# --- names and sentences ---

COIN = "a coin"
"""The diagonal of a chart of membership attacks."""

BOUNDS: Mapping[str, str] = MappingProxyType(
    {"bound_tight": "most that epsilon admits", "bound_paper": "the same, as published"}
)
"""Curves that are no attacks: what differential privacy admits, where it is claimed."""

_SHORT = {"cfd": "CFD", "cfd_lrt": "CFD-LRT", "loss": "Loss", "loss_lrt": "Loss-LRT"}
_LONGEST = 16


def short(attack: str) -> str:
    """Return the name of an attack as a legend has room for it."""
    rest = attack.removeprefix("membership_")
    return _SHORT.get(rest, rest.replace("_", " "))[:_LONGEST]


def receiver_sentence(share: float | None) -> str:
    """Return what may be told to the person who receives an explanation with ranges; a share is rounded down."""
    told = "The values are given as ranges so that they do not describe another customer"
    if share is None:
        return f"{told}."
    if share == 1:
        return f"{told}; all combinations inside these ranges lead to the other decision."
    percent = math.floor(100 * share + 1e-9)
    return f"{told}; about {percent} % of combinations inside these ranges lead to the other decision."
