"""The form of a file of released explanations: the published JSON Schema, and what it cannot say by itself.

What is found is told by its place and by what was expected, never by what is in the file: that may be somebody's row,
in a value or in the name of a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, islice, pairwise
from typing import Any

from cfk_plugin.data.policy import NOT_STOPPED, PrivacyPolicy
from cfk_plugin.errors import InputError, PolicyError, quiet
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.results import Policy, PrototypeCertificate, PrototypePolicy

_MANY = 1000  # problems that are looked for
_OF_DETECTION = ("unknown_category", "missing_value", "invalid_value", "outside_domain")  # name their columns
_NEEDS = {
    "ncp_above_ceiling": "max_ncp",
    "l_diversity": "l",
    "t_closeness": "t",
    "homogeneous": "alpha",
}  # reasons that only a policy with this setting leads to


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a file.

    Attributes
    ----------
    where : str
        Place in the file: names of the format and of declared columns, and positions.
    problem : str
        What is wrong; never what stands there.
    fails : bool
        Whether the file must not be relied on; otherwise a person has to look.
    """

    where: str
    problem: str
    fails: bool = True


def require_version(content: Mapping[str, Any]) -> None:
    """Refuse a file that is none of released explanations, or of another version of the format.

    Raises
    ------
    InputError
        Says what to do.
    """
    version = content.get("schema_version")
    if not isinstance(content.get("explanations"), list) or version is None:
        raise InputError("not a file of released explanations: it has no list `explanations` or no `schema_version`")
    if version == SCHEMA_VERSION and not isinstance(version, bool | float):
        return
    if isinstance(version, int) and version == 1:
        raise InputError(
            "schema_version 1, of an earlier release: it does not say how many explanations were asked for, so that "
            f"none is missed. Write the file anew (schema_version {SCHEMA_VERSION}), or verify it with that release"
        )
    raise InputError(f"its schema_version is not {SCHEMA_VERSION}; verify it with the release that wrote it")


def unfit(content: Mapping[str, Any], columns: Sequence[str]) -> list[Finding]:
    """Compare a file with the JSON Schema, which lists every key that may occur; `columns` may be named."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)
    form = json.loads((files("cfk_plugin") / f"schemas/explanations-{SCHEMA_VERSION}.schema.json").read_text("utf-8"))
    known = {key for part in [form, *form["$defs"].values()] for key in part.get("properties", {})}
    found: list[Finding] = []
    with quiet("the file cannot be compared with the JSON Schema", InputError):
        errors = extend(Draft202012Validator, type_checker=types)(form).iter_errors(content)
        found = [Finding(_place(e.absolute_path, {*known, *columns}), _said(e)) for e in islice(errors, _MANY)]
    return sorted(set(found), key=lambda finding: finding.where)


def policy_of(content: Mapping[str, Any]) -> Policy | None:
    """Return the policy that a file of the right form says it was made under; None for one that cannot be."""
    settings = content["policy"]
    try:
        return PrototypePolicy(**settings) if "epsilon" in settings else PrivacyPolicy(**settings)
    except PolicyError:
        return None


def inconsistent(content: Mapping[str, Any], policy: Policy) -> Iterator[Finding]:
    """Yield what contradicts itself in a file of the right form; no population is needed to see it."""
    entries = content["explanations"]
    yield from _of_numbering(content)
    for i, entry in enumerate(entries):
        if entry["status"] == "suppressed":
            yield from _of_suppressed(entry, f"explanation {i}", policy)
    released = [(f"explanation {i}", e["certificate"]) for i, e in enumerate(entries) if e["status"] == "released"]
    same = released[0][1] if released and isinstance(policy, PrototypePolicy) else ("population", "method")
    for name in same:  # prototypes are of one fit, with one certificate
        if any(certificate[name] != released[0][1][name] for _, certificate in released):
            yield Finding(f"certificate.{name}", "is not the same everywhere")
    for where, certificate in released:
        if isinstance(policy, PrivacyPolicy):
            problems = _of_region(certificate, policy)
        else:
            problems = _of_prototype(certificate, policy)
        yield from (Finding(f"{where}, certificate", problem) for problem in problems)


def _of_numbering(content: Mapping[str, Any]) -> Iterator[Finding]:
    asked, found = content["asked"], [entry["query"] for entry in content["explanations"]]
    queries = [each["query"] for each in asked]
    if any(a >= b for a, b in pairwise(queries)):
        yield Finding("asked", "names a query twice, or not in order")
    expected = sum(each["explanations"] for each in asked)
    if expected != len(found):
        yield Finding("explanations", f"are {len(found)}, and {expected} were asked for")
    elif list(chain.from_iterable([each["query"]] * each["explanations"] for each in asked)) != found:
        yield Finding("explanations", "are for other queries, or in another order, than asked for")
    if queries != list(range(len(queries))):
        yield Finding("asked", "queries are not numbered 0, 1, 2, ...: this is a part of what was asked", fails=False)


def _of_suppressed(entry: Mapping[str, Any], where: str, policy: Policy) -> Iterator[Finding]:
    reason, columns = entry["reason"], entry["columns"]
    if bool(columns) and reason not in _OF_DETECTION:
        yield Finding(where, "names columns, which its reason never does")
    setting = _NEEDS.get(reason)
    if setting is not None and getattr(policy, setting, None) is None:
        yield Finding(where, f"its reason needs {setting} in the policy, which is not set")


def _of_region(said: Mapping[str, Any], policy: PrivacyPolicy) -> Iterator[str]:
    """Yield what a certificate of a region says that cannot be, whatever the region."""
    if said["policy_hash"] != policy.sha256:
        yield "policy_hash is not the SHA-256 of the policy in the file"
    if said["guarantee"] != policy.guarantee:
        yield "guarantee is not the policy's"
    if said["not_stopped"] != list(NOT_STOPPED[policy.guarantee]):
        yield "not_stopped is not what the guarantee does not stop"
    fixed = policy.guarantee != "nominal"  # then nothing was searched for, and nothing is proved
    if fixed and (said["method"] != policy.guarantee or said["optimal"] or said["gap"] is not None):
        yield "method, optimal or gap are not those of a region that was fixed beforehand"
    if not fixed and said["method"] in NOT_STOPPED:
        yield "method is not one of a nominal guarantee"
    if said["optimal"] and said["gap"] != 0:
        yield "optimal, with a gap"
    low, share, high = (said[name] for name in ("pureness_low", "pureness", "pureness_high"))
    if not low <= share <= high or (said["exact"] and not low == share == high):
        yield "pureness is outside of its own interval, or exact with one"
    if fixed and share == 0:
        yield "pureness of a region that was fixed beforehand is never 0"
    if policy.min_pureness is not None and low < policy.min_pureness:
        yield "pureness_low is below the policy's min_pureness"
    if policy.max_ncp is not None and said["ncp"] > policy.max_ncp:
        yield "ncp is above the policy's max_ncp"


def _of_prototype(said: Mapping[str, Any], policy: PrototypePolicy) -> Iterator[str]:
    """Yield what a certificate of prototypes says that cannot be."""
    fields = {name: value for name, value in said.items() if name != "covers"}
    try:
        certificate = PrototypeCertificate(**{**fields, "inferred": tuple(said["inferred"])})
    except ValueError:
        yield "guarantees what its other fields contradict"
        return
    rows = policy.rows_per_person
    person = "one person" if rows == 1 else f"one person with up to {rows} rows"
    unit = (person, f"tables that differ by {person}, added or removed")
    claim = ("one row, as claimed", "tables that differ in one row, as claimed")
    if not policy.allows(certificate) or (certificate.epsilon, certificate.delta) != (policy.epsilon, policy.delta):
        yield "states another budget or model than the policy"
    if certificate.guarantee not in (policy.guarantee, "none"):
        yield "guarantees something else than was asked for"
    if certificate.guarantee == "none" and policy.method == "dp" and not (certificate.seeded or certificate.inferred):
        yield "guarantees nothing, and does not say why"
    if (certificate.unit, certificate.neighbours) != (claim if policy.method == "dpc" else unit):
        yield "unit or neighbours are not those of the policy"
    if certificate.covers != said["covers"]:
        yield "covers is not what its other fields come to"
    seeded, published = "seeded noise", "functional mechanism"
    if (said["mechanism"].startswith(seeded), said["mechanism"].startswith(published)) != (
        certificate.seeded and policy.method == "dp",
        policy.method == "dpc",
    ):
        yield "mechanism is not the policy's"
    if policy.method == "dp" and not certificate.seeded and ("Gaussian" in said["mechanism"]) != (policy.delta > 0):
        yield "mechanism is not the policy's"


def _is_whole(checker: object, value: object) -> bool:  # noqa: ARG001 - as jsonschema calls it
    """Say whether a number is written as a whole one, as it is by us: 1.0 is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _place(path: Sequence[Any], known: set[str]) -> str:
    """Write a place; a name that is not one of the format's or a declared column's could be a value."""
    steps = [step if not isinstance(step, str) or step in known else "(a name that is not known)" for step in path]
    if len(steps) > 1 and steps[0] == "explanations":
        return ", ".join([f"explanation {steps[1]}", ".".join(map(str, steps[2:]))]).removesuffix(", ")
    return ".".join(map(str, steps)) or "top"


def _said(error: Any) -> str:
    """Say what was expected; the error's own message quotes what is there."""
    rule, expected = error.validator, error.validator_value
    if rule in ("additionalProperties", "unevaluatedProperties"):
        return "has a key that the format does not know"
    if rule == "required":
        return f"lacks {', '.join(name for name in expected if name not in error.instance)}"
    if rule == "type":
        return f"is not of type {expected if isinstance(expected, str) else ' or '.join(expected)}"
    if rule in ("enum", "const"):
        return "is none of the values that the format has for it"
    if rule == "uniqueItems":
        return "has something twice"
    return "is not what the format allows"
