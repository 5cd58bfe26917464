"""Made-up rows: an input example that nobody is, and what a model is tried with where there are no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api import types

from cfk_plugin.release.detection import Detector

if TYPE_CHECKING:
    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import Population

_TRIES = 200


def example_of(population: Population, k: int) -> pd.DataFrame | None:
    """Return one made-up query, or None where none can be made without looking at somebody.

    Each value is drawn alone: from what the schema declares (bounds, bins, levels, a hierarchy), or, of a
    quasi-identifier, from the values that at least k people have. A combination of quasi-identifiers that a training
    row has is drawn again. A private value is never taken from a row.

    Parameters
    ----------
    population : Population
        With its rows.
    k : int
        People who must have a value of a quasi-identifier that the schema does not declare.

    Returns
    -------
    DataFrame of one row, or None
        None if an attribute is neither declared nor common enough, or every combination tried is somebody's.
    """
    choices = {}
    for name in population.schema.features:
        values = _declared(population.domains[name])
        if values is None and name in population.schema.quasi_identifiers:
            values = _common(population, name, k)
        if values is None or not len(values):
            return None
        choices[name] = values
    # Seeded: the same population gives the same example, so logging a model twice shows nothing more.
    draws, detector = _draws(choices, population, _TRIES), Detector(population)
    for at in range(_TRIES):
        one = draws.iloc[[at]].reset_index(drop=True)
        # Alone, as its decimals in company would be another matter.
        if not detector.equal_rows(*population.encode(one))[1].any():
            return one
    return None


def made_up(population: Population, n: int) -> pd.DataFrame | None:
    """Return made-up rows to see what a model answers, for the server alone: quasi-identifiers are drawn from people's.

    Parameters
    ----------
    population : Population
        With or without rows.
    n : int

    Returns
    -------
    DataFrame or None
        None if a quasi-identifier has no value at all.
    """
    choices = {}
    for name, domain in population.domains.items():
        found = _declared(domain)
        if found is None:
            found = _common(population, name, 1) if name in population.schema.quasi_identifiers else _any(domain)
        if not found:
            return None
        choices[name] = found
    return _draws(choices, population, n)


def _any(domain: Domain) -> list[Any]:
    """Return values of an attribute of which nothing is known but the kind."""
    if domain.attribute.kind != "numeric":
        return [""]
    return [domain.natural(sign * 10.0**power) for power in range(10) for sign in (0, 1, -1)]


def _draws(choices: dict[str, list[Any]], population: Population, n: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    columns = {name: [values[i] for i in random.integers(len(values), size=n)] for name, values in choices.items()}
    return population.conform(pd.DataFrame(columns))


def _declared(domain: Domain) -> list[Any] | None:
    """Return values that the schema declares; of a range its quarters, of bins their middles."""
    attribute = domain.attribute
    if attribute.bins is not None:
        edges = np.asarray(attribute.bins)
        return _numbers(domain, (edges[:-1] + edges[1:]) / 2)
    if attribute.bounds is not None:
        return _numbers(domain, np.linspace(*attribute.bounds, 5))
    if types.is_bool_dtype(domain.dtype):
        return [False, True]
    declared = attribute.levels or (attribute.hierarchy.leaves if attribute.hierarchy else None)
    if declared is None:
        return None
    codes = [domain.code(text) for text in declared]
    return [text if domain.is_open else domain.originals[code] for text, code in zip(declared, codes, strict=True)]


def _numbers(domain: Domain, numbers: Any) -> list[Any]:
    """Return numbers as the column would show them; whole ones for whole numbers."""
    whole = types.is_integer_dtype(domain.dtype)
    return [domain.natural(float(round(number)) if whole else float(number)) for number in numbers]


def _common(population: Population, name: str, k: int) -> list[Any]:
    """Return the values of a quasi-identifier that at least k people have."""
    at, domain = population.schema.quasi_identifiers.index(name), population.domains[name]
    people = np.bincount(population.cells[:, at], weights=population.cell_people, minlength=domain.size)
    return [domain.value(code) for code in np.flatnonzero(people >= k).tolist() if code != domain.missing_code]
