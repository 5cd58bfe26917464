"""What the paper prints, for comparison; the numbers are in ``published.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

import yaml

Printed = Literal["cf-k", "mondrian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedData:
    """A column of Table 5.

    Attributes
    ----------
    rows : int
    unique, below_10 : float
        Share of rows that are alone with their quasi-identifiers; in equivalence classes of fewer than 10.
    source : str
    """

    rows: int
    unique: float
    below_10: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResult:
    """A column of one of the Tables 6, 7 and 9 to 12.

    Attributes
    ----------
    ncp, pureness, cm : float
        Means, as shares.
    seconds : float
        Mean execution time on the authors' machine.
    cdm, cdm_per_explanation : float
    source : str
    """

    ncp: float
    pureness: float
    seconds: float
    cdm: float
    cdm_per_explanation: float
    cm: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDistance:
    """A column of Table 8: mean distance to the nearest training row, and to the five nearest; german alone.

    Attributes
    ----------
    method : str
        ``"nice-none"`` and so on, or ``"cf-k"``.
    k : int or None
        None for NICE.
    nearest, nearest_5 : float
    source : str
    """

    method: str
    k: int | None
    nearest: float
    nearest_5: float
    source: str


@dataclass(frozen=True, slots=True)
class Published:
    """Everything that is compared with.

    Attributes
    ----------
    paper, machine : str
        Where it was printed, and on what it was measured.
    data : mapping
        By table.
    results : mapping
        By method (``"cf-k"`` or ``"mondrian"``), k and table.
    plausibility : tuple of PublishedDistance
        Of german.
    """

    paper: str
    machine: str
    data: Mapping[str, PublishedData]
    results: Mapping[tuple[Printed, int, str], PublishedResult]
    plausibility: tuple[PublishedDistance, ...]

    def result(self, method: Printed, k: int, table: str) -> PublishedResult | None:
        """Return what is printed for a method, k and table; None where nothing is."""
        return self.results.get((method, k, table))


@cache
def published() -> Published:
    """Return the paper's numbers: shares in [0, 1], times in seconds."""
    found = yaml.safe_load((files(__package__) / "published.yaml").read_text("utf-8"))
    names = found["tables"]
    data = found["data"]
    results = {
        (printed["method"], printed["k"], name): _result(printed, place)
        for printed in found["methods"]
        for place, name in enumerate(names)
    }
    near = found["plausibility"]
    return Published(
        paper=found["paper"],
        machine=found["machine"],
        data=MappingProxyType({name: _data(data, place) for place, name in enumerate(names)}),
        results=MappingProxyType(results),
        plausibility=tuple(PublishedDistance(**row, source=_source(near)) for row in near["rows"]),
    )


def _data(printed: Mapping[str, Any], place: int) -> PublishedData:
    return PublishedData(
        rows=printed["rows"][place],
        unique=_share(printed["unique"][place]),
        below_10=_share(printed["below_10"][place]),
        source=_source(printed),
    )


def _result(printed: Mapping[str, Any], place: int) -> PublishedResult:
    return PublishedResult(
        ncp=_share(printed["ncp"][place]),
        pureness=_share(printed["pureness"][place]),
        seconds=float(printed["seconds"][place]),
        cdm=float(printed["cdm"][place]),
        cdm_per_explanation=float(printed["cdm_per_explanation"][place]),
        cm=float(printed["cm"][place]),
        source=_source(printed),
    )


def _share(percent: float) -> float:
    return round(percent / 100, 6)  # 0.55 / 100 is not 0.0055 in floating point


def _source(printed: Mapping[str, Any]) -> str:
    where = printed["source"]["section"]
    return f"Table {printed['source']['table']}, {where if where.startswith('appendix') else f'section {where}'}"
