"""A file of released explanations: its form, its policy, and its regions, ready to be counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Column
from cfk_plugin.data.formats import faults
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region, part_from_dict, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import require_features
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import InputError, PolicyError, quiet
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.results import Policy, PrototypePolicy
from cfk_plugin.release.still_true import ReleasedAnswer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a file; never its content."""

    where: str  # in names of the format and of declared columns, and positions
    problem: str
    fails: bool = True  # if False, a person has to look


def unfit(content: Mapping[str, Any], columns: Sequence[str]) -> list[Finding]:
    """Compare a file with the JSON Schema; `columns` may be named."""
    form = f"explanations-{SCHEMA_VERSION}"
    findings = {
        Finding(_place(fault.path), fault.problem) for fault in faults(content, form, columns)
    }
    return sorted(findings, key=lambda finding: (finding.where, finding.problem))


def _place(path: Sequence[int | str]) -> str:
    """Write a place; entries are called explanations."""
    if len(path) > 1 and path[0] == "explanations":
        inside = ".".join(map(str, path[2:]))
        return f"explanation {path[1]}, {inside}".removesuffix(", ")
    return ".".join(map(str, path)) or "top"


def policy_of(content: Mapping[str, Any]) -> Policy | None:
    """Return the policy that a file of the right form claims; None if its settings are invalid."""
    settings = content["policy"]
    try:
        return PrototypePolicy(**settings) if "epsilon" in settings else PrivacyPolicy(**settings)
    except PolicyError:
        return None


def wrong_certificates(content: Mapping[str, Any], policy: PrivacyPolicy) -> Iterator[Finding]:
    """Yield certificates that the policy of the file contradicts."""
    for i, entry in enumerate(content["explanations"]):
        if entry["status"] == "withheld":
            continue
        certificate = entry["certificate"]
        problems = {
            "policy_hash is not the SHA-256 of the policy in the file": (
                certificate["policy_hash"] != policy.sha256
            ),
            "guarantee is not the policy's": certificate["guarantee"] != policy.guarantee,
            "k is below the policy's": certificate["k"] < policy.k,
            "not_stopped is not what the policy does not stop": (
                tuple(certificate["not_stopped"]) != policy.not_stopped
            ),
            "pureness_low is below the policy's floor": (
                certificate["pureness_low"] < policy.least_pureness
            ),
            "ncp is above the policy's max_ncp": (
                policy.max_ncp is not None and certificate["ncp"] > policy.max_ncp
            ),
        }
        for problem, has_problem in problems.items():
            if has_problem:
                yield Finding(f"explanation {i}, certificate", problem)


def wrong_columns(content: Mapping[str, Any], population: Population) -> Iterator[Finding]:
    """Yield if a file, or a prototype in it, has other columns than the schema's features."""
    features = sorted(population.schema.features)
    listed = f"are not the features {', '.join(features)}"
    if sorted(content["columns"]) != features:
        yield Finding("columns", listed)
    for i, entry in enumerate(content["explanations"]):
        if "prototype" in entry and sorted(entry["prototype"]) != features:
            yield Finding(f"explanation {i}", f"its columns {listed}")


def schema_in_file(content: Mapping[str, Any], rows: pd.DataFrame) -> Schema:
    """Return the schema that the columns and regions of a file imply for the training rows.

    Every row then counts as a person, and quasi-identifiers weigh the same.

    Raises
    ------
    InputError
        If the regions do not tell enough, or the rows lack a column.
    """
    columns = require_features(rows, content["columns"], "training rows")[content["columns"]]
    regions = [entry["region"] for entry in content["explanations"] if "region" in entry]
    if not regions:
        raise InputError("the file has no region, so it names no quasi-identifiers; give --schema")
    parts = [part for region in regions for part in region.items()]
    if any("levels" in part for _, part in parts):
        raise InputError("the file does not say the order of all levels; give --schema")
    nominal = {name for name, part in parts if part["kind"] == "set"}
    return Schema.from_frame(columns, quasi_identifiers=list(regions[0]), nominal=sorted(nominal))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """One released region of a file, read and ready to be counted."""

    position: int  # among all entries
    entry: Mapping[str, Any]  # as in the file
    region: Region
    rows: NDArray[np.int64]  # of the population, inside

    @property
    def where(self) -> str:
        """How findings name it."""
        return f"explanation {self.position}"

    @classmethod
    def of(cls, position: int, entry: Mapping[str, Any], population: Population) -> Released:
        """Read an entry that has no faults."""
        region = Region(
            {
                name: part_from_dict(entry["region"][name])
                for name in population.schema.quasi_identifiers
            }
        )
        rows = population.row_codes.rows_inside(region, population.coded_rows)
        return cls(position, entry, region, rows)


def read(
    content: Mapping[str, Any], population: Population
) -> tuple[list[Released], list[Finding]]:
    """Return the released regions of a file that can be counted, and what is wrong with the
    rest.
    """
    released_regions: list[Released] = []
    findings: list[Finding] = []
    for i, entry in enumerate(content["explanations"]):
        if entry["status"] == "withheld":
            continue
        place = f"explanation {i}"
        problems = [
            *_wrong_region(entry["region"], population),
            *_wrong_private(entry, population),
            *_wrong_advice(entry, population),
        ]
        findings += [Finding(place, problem) for problem in problems]
        if not problems:
            released_regions.append(Released.of(i, entry, population))
    return released_regions, findings


def answers_in_file(released_regions: Sequence[Released]) -> list[ReleasedAnswer]:
    """Return what the released regions of a file tell people to do."""
    answers = []
    for released_region in released_regions:
        entry = released_region.entry
        answers.append(
            ReleasedAnswer(
                position=released_region.position,
                query=entry["query"],
                region=released_region.region.parts,
                values={**entry["released"], **entry.get("advised", {})},
                outcome=Outcome.of(entry["outcome"]),
            )
        )
    return answers


def prototypes_in_file(content: Mapping[str, Any]) -> list[ReleasedAnswer]:
    """Return the prototypes of a file that has no faults; their outcome is not in the file."""
    return [
        ReleasedAnswer(
            position=position,
            query=entry["query"],
            region={},
            values=entry["prototype"],
            outcome=Outcome(),
        )
        for position, entry in enumerate(content["explanations"])
        if entry["status"] == "released"
    ]


def require_answered(
    content: Mapping[str, Any], queries: pd.DataFrame, population: Population
) -> pd.DataFrame:
    """Return the queries; refused where they cannot be those that a file answers."""
    table = require_features(queries, population.schema.features, "queries")
    numbers = [entry.get("query") for entry in content["explanations"] if isinstance(entry, dict)]
    last = max((number for number in numbers if isinstance(number, int)), default=-1)
    if last >= len(table):
        raise InputError(
            f"{len(table)} queries, and query {last} was answered; give all that were asked about"
        )
    return table


def _column_of(population: Population) -> dict[str, Column]:
    """Return the columns of features by name."""
    return {column.name: column for column in population.row_codes.columns}


def _wrong_region(parts: Mapping[str, Any], population: Population) -> Iterator[str]:
    quasi = population.schema.quasi_identifiers
    if set(parts) != set(quasi):
        yield f"its region is not over the quasi-identifiers {', '.join(quasi)}"
        return
    column_of = _column_of(population)
    for name in quasi:
        column = column_of[name]
        with quiet(f"the region of {name} cannot be read", InputError):
            if column.is_line:
                is_fitting = _is_range(parts[name], column)
            else:
                is_fitting = _is_set(parts[name], column)
        if not is_fitting:
            yield f"its region of {name} is none of a {column.attribute.kind} attribute"


def _is_range(part: Mapping[str, Any], column: Column) -> bool:
    if part["kind"] != "interval" or (part.get("missing", False) and not column.has_missing):
        return False
    low = part["low"]
    high = part["high"]
    levels = part.get("levels")
    is_ordinal = column.kind == "ordinal"
    if low is None or high is None:  # only missing values are inside
        expected_levels: list[str] | None = [] if is_ordinal else None
        return low is high and part.get("missing", False) and levels == expected_levels
    if not is_ordinal:
        has_numeric_ends = levels is None and all(_is_number(end, column) for end in (low, high))
        return has_numeric_ends and to_number(low) <= to_number(high)
    line = [to_text(level) for level in column.values.tolist()]
    if not levels or not {*levels, low, high} <= set(line):
        return False
    first = line.index(levels[0])
    return bool(levels == line[first : first + len(levels)]) and [low, high] == [
        levels[0],
        levels[-1],
    ]


def _is_set(part: Mapping[str, Any], column: Column) -> bool:
    if part["kind"] != "set":
        return False
    values = [value for value in part["values"] if value is not None]
    codes = column.encode(pd.Series(values, dtype=object))
    if np.isnan(codes).any() or len(np.unique(codes)) != len(values):
        return False
    if None in part["values"] and not column.has_missing:
        return False
    hierarchy = column.attribute.hierarchy
    if hierarchy is None or not values:
        return True
    inside = [to_text(value) for value in values]
    if None in part["values"]:
        values_of_node = hierarchy.leaves
    else:
        values_of_node = hierarchy.values_under(hierarchy.cover(inside))
    return set(inside) == set(values_of_node)


def _wrong_private(entry: Mapping[str, Any], population: Population) -> Iterator[str]:
    released = entry["released"]
    schema = population.schema
    column_of = _column_of(population)
    shared = {attribute.name for attribute in schema.attributes} - set(schema.private)
    for name in released:
        if name in shared:
            yield f"releases {name} exactly"
        elif name not in schema.private:
            yield "releases a column that is not in the schema"
        elif not _is_possible(released[name], column_of[name]):
            column = column_of[name]
            kind = "date" if column.kind == "date" else column.attribute.kind
            yield f"releases {name} otherwise than as a value of a {kind} attribute in its domain"
    unmentioned = [name for name in schema.private if name not in released]
    if unmentioned:
        yield f"says nothing of {', '.join(unmentioned)}"


def _wrong_advice(entry: Mapping[str, Any], population: Population) -> Iterator[str]:
    """Yield what is wrong with the advised values, and with those without the margin."""
    quasi = population.schema.quasi_identifiers
    column_of = _column_of(population)
    advised = entry.get("advised", {})
    if advised and set(advised) != set(quasi):
        yield f"its advice is not about the quasi-identifiers {', '.join(quasi)}"
    for values in (advised, entry.get("least", {})):
        for name in values:
            if name not in column_of:
                yield "advises a column that is not in the schema"
            elif not _is_possible(values[name], column_of[name]):
                yield f"advises {name} otherwise than as a value in its domain"


def _is_possible(value: Any, column: Column) -> bool:
    """Return whether a value is possible for its attribute."""
    if value is None:
        return column.has_missing
    if not column.is_numeric:
        return not np.isnan(column.encode(pd.Series([value], dtype=object))[0])
    low, high = column.attribute.bounds or (-np.inf, np.inf)
    return _is_number(value, column) and low <= to_number(value) <= high


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?")


def _is_number(value: Any, column: Column) -> bool:
    """Say whether a value is a number, or a date in a column of dates; a text that could be read as
    one is not.
    """
    if column.kind == "date":
        return (
            isinstance(value, str)
            and _DATE.fullmatch(value) is not None
            and bool(np.isfinite(to_number(value)))
        )
    return isinstance(value, (int, float)) and not isinstance(value, bool)
