"""Released entries of a file: read, and compared with the columns, domains and hierarchies that are declared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.commands.form import Finding
from cfk_plugin.data.domain import UNKNOWN, Domain, bin_codes, bin_part
from cfk_plugin.data.region import Region, json_value, part_from_dict, to_text
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import InputError, quiet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?")


@dataclass(frozen=True, slots=True)
class Released:
    """One released region of a file, read and fit to be counted. Host side only.

    Attributes
    ----------
    where : str
        Place in the file.
    entry : mapping
        The entry as it stands there.
    region : Region
    rows : int array
        Rows of the population inside.
    axes : mapping
        Codes that each private attribute stands for: of what is released exactly one, `UNKNOWN` for a number that no
        row has; those of the bin; all, where it is withheld.
    """

    where: str
    entry: Mapping[str, Any]
    region: Region
    rows: NDArray[np.int64]
    axes: Mapping[str, NDArray[np.int32]]

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What is certified."""
        found: Mapping[str, Any] = self.entry["certificate"]
        return found

    @property
    def exact(self) -> Mapping[str, Any]:
        """Private attributes that are released as they are."""
        return {name: value for name, value in self.entry["released"].items() if not isinstance(value, dict)}


def read(
    content: Mapping[str, Any], population: Population, policy: PrivacyPolicy
) -> tuple[list[Released], list[Finding]]:
    """Return the released regions of a file that can be counted, and what is wrong with the others."""
    found, wrong = [], []
    for i, entry in enumerate(content["explanations"]):
        if entry["status"] == "suppressed":
            continue
        where = f"explanation {i}"
        faults = [*_of_region(entry, population), *_of_private(entry, population, policy)]
        wrong += [Finding(where, fault) for fault in faults]
        if not faults:
            region = Region({n: part_from_dict(entry["region"][n]) for n in population.schema.quasi_identifiers})
            axes = {name: _codes(entry, population.domains[name]) for name in population.schema.private}
            found.append(Released(where, entry, region, population.members(region), axes))
    return found, wrong


def wrong_columns(content: Mapping[str, Any], population: Population) -> Iterator[Finding]:
    """Yield where a file names other columns than the schema's features."""
    features = population.schema.features
    if sorted(content["columns"]) != sorted(features):
        yield Finding("columns", f"are not the features {', '.join(features)}")
    elif content["columns"] != list(features):
        yield Finding("columns", "are in another order than in the table", fails=False)
    for i, entry in enumerate(content["explanations"]):
        named = entry.get("columns", []) + entry.get("certificate", {}).get("inferred", [])
        if not set(named) <= set(features) or len(set(named)) != len(named):
            yield Finding(f"explanation {i}", "names a column that is no feature, or one twice")


def wrong_prototypes(content: Mapping[str, Any], population: Population) -> Iterator[Finding]:
    """Yield prototypes that are no rows of the declared domain."""
    features = population.schema.features
    for i, entry in enumerate(content["explanations"]):
        if entry["status"] == "suppressed":
            continue
        if set(entry["prototype"]) != set(features):
            yield Finding(f"explanation {i}", f"its prototype is not of the features {', '.join(features)}")
            continue
        for name, value in entry["prototype"].items():
            if not _declared(value, population.domains[name]):
                yield Finding(f"explanation {i}, prototype.{name}", "is not in the domain that the schema declares")


def _of_region(entry: Mapping[str, Any], population: Population) -> Iterator[str]:
    quasi, parts = population.schema.quasi_identifiers, entry["region"]
    if set(parts) != set(quasi):
        yield f"its region is not over the quasi-identifiers {', '.join(quasi)}"
        return
    for name in quasi:
        domain = population.domains[name]
        with quiet(f"the region of {name} cannot be read", InputError):
            fits = _is_range(parts[name], domain) if domain.is_interval else _is_set(parts[name], domain)
        if not fits:
            yield f"its region of {name} is none of a {domain.attribute.kind} attribute"


def _is_range(part: Mapping[str, Any], domain: Domain) -> bool:
    if part["kind"] != "interval" or (part.get("missing", False) and not domain.has_missing):
        return False
    low, high, levels = part["low"], part["high"], part.get("levels")
    ordinal = domain.attribute.kind == "ordinal"
    if low is None or high is None:  # missing values alone are inside
        return low is high and part.get("missing", False) and levels == ([] if ordinal else None)
    if not ordinal:
        return (
            levels is None and all(_is_number(end, domain) for end in (low, high)) and to_number(low) <= to_number(high)
        )
    line = list(domain.values)
    if not levels or not {*levels, low, high} <= set(line):
        return False
    return bool(levels == line[line.index(levels[0]) : line.index(levels[0]) + len(levels)]) and (low, high) == (
        levels[0],
        levels[-1],
    )


def _is_set(part: Mapping[str, Any], domain: Domain) -> bool:
    if part["kind"] != "set":
        return False
    values = [value for value in part["values"] if value is not None]
    codes = {domain.code(value) for value in values}
    if UNKNOWN in codes or len(codes) != len(values) or (None in part["values"] and not domain.has_missing):
        return False
    hierarchy = domain.attribute.hierarchy
    if hierarchy is None or not values:
        return True
    inside = [to_text(value) for value in values]
    node = hierarchy.values_under(hierarchy.cover(inside)) if None not in part["values"] else hierarchy.leaves
    return set(inside) == set(node)


def _of_private(entry: Mapping[str, Any], population: Population, policy: PrivacyPolicy) -> Iterator[str]:
    released, withheld, schema = entry["released"], entry["withheld"], population.schema
    shared = {attribute.name for attribute in schema.attributes} - set(schema.private)
    for name in released:
        if name in shared:
            yield f"releases {name} exactly"
        elif name not in schema.private:
            yield "releases a column that is not in the schema"
        elif name in withheld:
            yield f"releases {name}, said to be withheld"
        elif not _is_released(released[name], population.domains[name], policy):
            yield f"releases {name} otherwise than as {_form(population.domains[name], policy)}"
    coarsens = policy.alpha is not None and policy.on_homogeneous == "coarsen"
    for name in withheld:
        if name not in schema.private:
            yield "withholds a column that is no private attribute"
        elif not (
            coarsens
            or policy.rare_values == "withhold"
            or (policy.private_values == "bins" and population.domains[name].attribute.bins is not None)
        ):
            yield f"withholds {name}, which the policy does not"
    if lost := [name for name in schema.private if name not in released and name not in withheld]:
        yield f"says nothing of {', '.join(lost)}"


def _is_released(value: Any, domain: Domain, policy: PrivacyPolicy) -> bool:
    """Say whether a private value has a form that the policy releases, and is one that the attribute can have."""
    edges = domain.attribute.bins or ()
    must = policy.private_values == "bins" and bool(edges) and value is not None
    if isinstance(value, dict):
        may = must or (policy.alpha is not None and policy.on_homogeneous == "coarsen")
        return may and value in _bins(domain)
    return not must and _is_value(value, domain)


def _is_value(value: Any, domain: Domain) -> bool:
    if value is None:
        return domain.has_missing
    if domain.attribute.kind != "numeric":
        return domain.is_open or domain.code(value) != UNKNOWN
    low, high = domain.attribute.bounds or (-np.inf, np.inf)
    return _is_number(value, domain) and low <= to_number(value) <= high


def _is_number(value: Any, domain: Domain) -> bool:
    """Say whether a value is a number, or where the column has dates a date; not a text that could be read as one."""
    if domain.is_date:
        return isinstance(value, str) and _DATE.fullmatch(value) is not None and bool(np.isfinite(to_number(value)))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _form(domain: Domain, policy: PrivacyPolicy) -> str:
    if policy.private_values == "bins" and domain.attribute.bins is not None:
        return "a bin"
    return f"a value of a {'date' if domain.is_date else domain.attribute.kind} attribute in its domain"


def _bins(domain: Domain) -> list[dict[str, Any]]:
    """Return the declared bins of an attribute as files have them."""
    parts = [bin_part(domain, at) for at in range(len(domain.attribute.bins or ()) - 1)]
    return [{"low": json_value(part.low), "high": json_value(part.high)} for part in parts]


def _codes(entry: Mapping[str, Any], domain: Domain) -> NDArray[np.int32]:
    """Return the codes that a private attribute stands for."""
    name = domain.attribute.name
    if name in entry["withheld"]:
        return np.arange(domain.size, dtype=np.int32)
    value = entry["released"][name]
    if isinstance(value, dict):
        at = [json_value(bin_part(domain, i).low) for i in range(len(domain.attribute.bins or ()) - 1)].index(
            value["low"]
        )
        return np.arange(*bin_codes(domain, at), dtype=np.int32)
    return domain.encode_values([value])[0]


def _declared(value: Any, domain: Domain) -> bool:
    """Say whether a prototype's value is in the domain that is declared, or else in that of the table."""
    attribute = domain.attribute
    if value is None:
        return attribute.nullable
    if attribute.kind != "numeric":
        listed = attribute.categories or attribute.levels or (attribute.hierarchy and attribute.hierarchy.leaves)
        return to_text(value) in {to_text(known) for known in listed} if listed else domain.code(value) != UNKNOWN
    edges = attribute.bins or attribute.bounds or (domain.values[0], domain.values[-1])
    return _is_number(value, domain) and bool(edges[0] <= to_number(value) <= edges[-1])
