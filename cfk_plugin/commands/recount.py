"""Recount a file of released explanations against a population: all that `cfk verify` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfk_plugin import bins
from cfk_plugin.errors import CFKError, InputError
from cfk_plugin.region import Region, json_value, part_from_dict

if TYPE_CHECKING:
    from cfk_plugin.population import Population


@dataclass(frozen=True, slots=True)
class Finding:
    """One explanation of the file, recounted.

    Attributes
    ----------
    position : int
        Position in the file.
    k : int or None
        People inside the region; None for a suppressed explanation.
    stated : int or None
        What its certificate says.
    problem : str
        What is wrong; empty when nothing is.
    fails : bool
        Whether the problem breaks the guarantee; otherwise it asks for a look.
    """

    position: int
    k: int | None = None
    stated: int | None = None
    problem: str = ""
    fails: bool = False


def stated_k(content: Mapping[str, Any]) -> int | None:
    """Return the k of the policy that a file of explanations says it was made with."""
    policy = content.get("policy")
    k = policy.get("k") if isinstance(policy, dict) else None
    return k if isinstance(k, int) and not isinstance(k, bool) else None


def refuse_prototypes(content: Mapping[str, Any]) -> None:
    """Refuse a file of prototypes: what is guaranteed of them is how they were made, and no rows show it.

    Raises
    ------
    InputError
        If an explanation is a prototype, or the policy one of prototypes.
    """
    entries, policy = content.get("explanations"), content.get("policy")
    listed = entries if isinstance(entries, list) else []
    if any(isinstance(entry, dict) and "prototype" in entry for entry in listed) or (
        isinstance(policy, dict) and "epsilon" in policy
    ):
        raise InputError(
            "it holds prototypes, which no people can be counted for: epsilon is of the way they were made, and is "
            "audited by fitting again"
        )


def recount(content: Mapping[str, Any], population: Population, k: int) -> list[Finding]:
    """Count the people inside every released region; where the policy asks for bins, look for values beside them.

    Parameters
    ----------
    content : mapping
        What `Explanations.to_json` wrote.
    population : Population
    k : int
        Least number of people.

    Returns
    -------
    list of Finding
        One per explanation, in order.

    Raises
    ------
    InputError
        If the file is none of released explanations, or of another schema.
    """
    entries = content.get("explanations")
    if not isinstance(entries, list):
        raise InputError("not a file of released explanations: it has no list `explanations`")
    policy = content.get("policy")
    in_bins = isinstance(policy, dict) and policy.get("private_values") == "bins"
    return [_entry(entry, i, population, k, in_bins) for i, entry in enumerate(entries)]


def verdict(findings: Sequence[Finding]) -> str:
    """Return ``fail``, ``review`` (nothing released, or a certificate that differs) or ``pass``."""
    if any(f.fails for f in findings):
        return "fail"
    if any(f.problem for f in findings) or all(f.k is None for f in findings):
        return "review"
    return "pass"


def _entry(entry: object, position: int, population: Population, k: int, in_bins: bool) -> Finding:
    if not isinstance(entry, dict) or entry.get("status") not in ("released", "suppressed"):
        raise InputError(f"explanation {position}: no status; not a file of released explanations")
    if entry["status"] == "suppressed":
        if entry.get("region") or entry.get("released"):
            return Finding(position, problem="suppressed, but holds values", fails=True)
        return Finding(position)
    count = population.count(_region(entry, position, population))
    certificate = entry.get("certificate")
    stated = certificate.get("k") if isinstance(certificate, dict) else None
    shared = population.schema.names("quasi-identifier", "identifier", "subject")
    if exact := [name for name in entry.get("released") or {} if name in shared]:
        return Finding(position, count, stated, f"releases {', '.join(exact)} exactly", fails=True)
    if otherwise := [name for name in entry.get("withheld") or () if name in (entry.get("released") or {})]:
        return Finding(position, count, stated, f"releases {', '.join(otherwise)}, said to be withheld", fails=True)
    if unbinned := _unbinned(entry, population) if in_bins else []:
        return Finding(position, count, stated, f"releases {', '.join(unbinned)} otherwise than as a bin", fails=True)
    if count < k:
        return Finding(position, count, stated, f"fewer than {k} people", fails=True)
    if stated != count:
        return Finding(position, count, stated, "the certificate says something else")
    return Finding(position, count, stated)


def _unbinned(entry: Mapping[str, Any], population: Population) -> list[str]:
    """Return the private attributes with declared bins that are released as something else; missing is no value."""
    found = []
    for name, value in (entry.get("released") or {}).items():
        if value is None or name not in population.domains or population.domains[name].attribute.bins is None:
            continue
        domain, edges = population.domains[name], population.domains[name].attribute.bins or ()
        ends = [bins.part(domain, at) for at in range(len(edges) - 1)]
        declared = [{"low": json_value(part.low), "high": json_value(part.high)} for part in ends]
        if value not in declared:
            found.append(name)
    return found


def _region(entry: Mapping[str, Any], position: int, population: Population) -> Region:
    parts, quasi = entry.get("region"), population.schema.quasi_identifiers
    if not isinstance(parts, dict) or set(parts) != set(quasi):
        raise InputError(f"explanation {position}: its region is not over the quasi-identifiers {', '.join(quasi)}")
    try:
        return Region({name: part_from_dict(parts[name]) for name in quasi})
    except CFKError:
        raise
    except Exception as error:
        raise InputError(f"explanation {position}: its region cannot be read ({type(error).__name__})") from error
