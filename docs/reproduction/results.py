"""The content of page and plots: the paper's numbers, aggregates, verdicts and studies, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml
from pydantic import TypeAdapter

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import mean_of
from reproduction.measure import METHODS, NICE, Figure, Measurement
from reproduction.prepare import Config, DataSummary
from reproduction.tables import NAMES

SCHEMA_VERSION = 1

Printed = Literal["cf-k", "mondrian"]
Row = Mapping[str, Any]
"""A row of a study: text, numbers and None."""

Word = Literal["reached", "equal", "tied", "missed", "not measured"]

OURS = ("exact-pureness", "exact-ncp")
"""Methods that are judged. The first has the paper's objective: purest, then least NCP."""

THEIRS, PAPER = "grasp", "paper"

_PAIRS = (
    *((method, yardstick) for yardstick in (PAPER, THEIRS) for method in OURS),
    (THEIRS, PAPER),
    (THEIRS, "mondrian-raw"),
    (OURS[0], "mondrian"),
)
"""Comparisons: ours with the paper and its method and, as in the paper, with Mondrian."""

_NOTHING = 1e-9  # means of the same numbers may differ in the last digits
_COMPARED = ("ncp", "pureness")
_PERCENT = ("unique", "below_10", *_COMPARED)


def label(method: str) -> str:
    """Return a method's name in tables and plots."""
    if method in METHODS:
        return METHODS[method].label
    return f"NICE ({NICE[method]})" if method in NICE else {"cf-k": "CF-K"}.get(method, method)


def tables_in_order(rows: Iterable[Row]) -> list[str]:
    """Return the tables of rows once each, as the paper orders them."""
    return _in_order((row["table"] for row in rows), NAMES)


def methods_in_order(rows: Iterable[Row]) -> list[str]:
    """Return the methods of rows once each, as they are shown."""
    return _in_order((row["method"] for row in rows), (*NICE, *METHODS))


def _in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(
        set(names), key=lambda name: (order.index(name) if name in order else len(order), name)
    )


def main_k(rows: Iterable[Row]) -> int | None:
    """Return the k to show where there is room for one: the paper's 10, else the middle one; None
    without any.
    """
    known = sorted({row["k"] for row in rows})
    return 10 if 10 in known else known[len(known) // 2] if known else None


class PublishedData(NamedTuple):
    """A column of the paper's Table 5; shares are of rows, as in `DataSummary`."""

    rows: int
    unique: float
    below_10: float


class PublishedResult(NamedTuple):
    """A column of one of the Tables 6, 7 and 9 to 12: means, NCP and pureness as shares; `source`
    is the table.
    """

    ncp: float
    pureness: float
    seconds: float
    cdm: float
    cdm_per_explanation: float
    cm: float
    source: str


class PublishedDistance(NamedTuple):
    """A column of Table 8: mean distance to the nearest training row, and to the five nearest; NICE
    has no k.
    """

    method: str
    k: int | None
    nearest: float
    nearest_5: float


class Published(NamedTuple):
    """Everything the paper prints: by table; by method, k and table; and for german alone."""

    paper: str
    machine: str
    data: Mapping[str, PublishedData]
    results: Mapping[tuple[Printed, int, str], PublishedResult]
    plausibility: tuple[PublishedDistance, ...]

    def result(self, method: Printed, k: int, table: str) -> PublishedResult | None:
        return self.results.get((method, k, table))


@cache
def published() -> Published:
    """Return what the paper prints: shares in [0, 1], times in seconds."""
    found = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text("utf-8"))

    def columns(printed: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        rows = {name: values for name, values in printed.items() if isinstance(values, list)}
        for place, table in enumerate(found["tables"]):
            # 0.55 / 100 is not 0.0055 in floating point.
            yield (
                table,
                {
                    n: round(v[place] / 100, 6) if n in _PERCENT else v[place]
                    for n, v in rows.items()
                },
            )

    return Published(
        paper=found["paper"],
        machine=found["machine"],
        data={table: PublishedData(**column) for table, column in columns(found["data"])},
        results={
            (printed["method"], printed["k"], table): PublishedResult(
                **column, source=printed["source"]
            )
            for printed in found["methods"]
            for table, column in columns(printed)
        },
        plausibility=tuple(PublishedDistance(**row) for row in found["plausibility"]),
    )


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Results of one method on one table at one k, over what was released; None if nothing was."""

    table: str
    method: str
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int  # explanations asked for
    released: int
    ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    cdm: float | None  # sum of the people in each region
    cdm_per_explanation: float | None
    cm: float | None  # share whose class is mostly predicted a different outcome
    k_min: float | None  # least over explanations, like all that end in _min
    k_desired: float | None  # mean, like the next two
    k_desired_min: float | None
    k_consistent: float | None
    k_consistent_min: float | None
    k_effective: float | None
    k_effective_min: float | None
    k_effective_n: int  # number of explanations it was measured for
    proven: float | None  # share proven optimal
    pure: float | None  # share whose pureness is exactly 1
    seconds: float | None  # per explanation asked for: the whole call
    search_seconds: float | None  # of that, outside of the model's predict
    model_seconds: float | None
    fit_seconds: float  # once per method: binding model and population
    run_id: str | None = None  # the MLflow run that holds the figures of each explanation


def aggregate(found: Measurement, run_id: str | None = None) -> Aggregate:
    n, sizes, agrees = found.asked, found.known("k"), mean(found.known("agrees"))
    figures: dict[str, Any] = {}
    for name in ("ncp", "pureness"):
        ends = mean_of(np.asarray(found.known(name)), np.random.default_rng(0)).to_dict()
        figures |= {name: ends["value"], f"{name}_low": ends["low"], f"{name}_high": ends["high"]}
    for name in ("k_desired", "k_consistent", "k_effective"):
        figures |= {
            name: mean(found.known(name)),
            f"{name}_min": min(found.known(name), default=None),
        }
    return Aggregate(
        table=found.config.table,
        method=found.method,
        k=found.k,
        options=dict(found.options),
        n=n,
        released=len(found.known("ncp")),
        **figures,
        cdm=math.fsum(sizes) if sizes else None,
        cdm_per_explanation=mean(sizes),
        cm=None if agrees is None else 1 - agrees,
        k_min=min(sizes, default=None),
        k_effective_n=len(found.known("k_effective")),
        proven=mean(found.known("proven")),
        pure=mean([float(value == 1) for value in found.known("pureness")]),
        seconds=found.seconds / n if n else None,
        search_seconds=(found.seconds - found.model_seconds) / n if n else None,
        model_seconds=found.model_seconds / n if n else None,
        fit_seconds=found.fit_seconds,
        run_id=run_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one method beats the paper or another method, on what both released; intervals of
    ours minus theirs.
    """

    table: str
    method: str
    k: int
    against: str
    n: int  # explanations behind our figures
    ncp: float | None
    their_ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    their_pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    optimal: bool  # whether all results of the method are proven optimal for its objective

    @property
    def ncp_by(self) -> float | None:
        return None if self.ncp is None or self.their_ncp is None else self.ncp - self.their_ncp

    @property
    def pureness_by(self) -> float | None:
        return (
            None
            if self.pureness is None or self.their_pureness is None
            else self.pureness - self.their_pureness
        )

    @property
    def ncp_word(self) -> Word:
        """Whether NCP is lower; "equal" at 0, or if both figures tie and ours are proven
        optimal.
        """
        return self._word(
            self.ncp_by, better=-1, at_bound=self.ncp is not None and self.ncp <= _NOTHING
        )

    @property
    def pureness_word(self) -> Word:
        """Whether pureness is higher; "equal" at 1, or if both figures tie and ours are proven
        optimal.
        """
        at_bound = self.pureness is not None and self.pureness >= 1 - _NOTHING
        return self._word(self.pureness_by, better=1, at_bound=at_bound)

    @property
    def is_measured(self) -> bool:
        return self.ncp_by is not None and self.pureness_by is not None

    @property
    def is_reached(self) -> bool:
        """Whether both are better, or equal if nothing better is possible."""
        return {self.ncp_word, self.pureness_word} <= {"reached", "equal"}

    def _word(self, by: float | None, *, better: int, at_bound: bool) -> Word:
        if by is None:
            return "not measured"
        if abs(by) > _NOTHING:
            return "reached" if better * by > 0 else "missed"
        both_tie = all(
            apart is not None and abs(apart) <= _NOTHING
            for apart in (self.ncp_by, self.pureness_by)
        )
        return "equal" if at_bound or (self.optimal and both_tie) else "tied"


def verdicts(measured: Iterable[Measurement]) -> list[Verdict]:
    """Judge methods on every table and k that was measured: ours against paper and GRASP, both
    against Mondrian.
    """
    usual = {(m.config.table, m.k, m.method): m for m in measured if not m.options}
    found = []
    for method, yardstick in _PAIRS:
        for table, k in dict.fromkeys(key[:2] for key in usual):
            ours, theirs = usual.get((table, k, method)), usual.get((table, k, yardstick))
            printed = published().result("cf-k", k, table) if yardstick == PAPER else None
            if ours is not None and theirs is not None:
                if ours.config != theirs.config:
                    raise InputError(
                        f"{table}: {method} and {yardstick} were measured on different settings"
                    )
                first = min(ours.asked, theirs.asked)
                figures = {name: theirs.figures[name][:first] for name in _COMPARED}
                found.append(_verdict(ours, yardstick, figures))
            elif ours is not None and printed is not None:
                figures = {name: (getattr(printed, name),) * ours.asked for name in _COMPARED}
                found.append(_verdict(ours, yardstick, figures))
    return found


def _verdict(ours: Measurement, against: str, figures: Mapping[str, Figure]) -> Verdict:
    first = len(figures["ncp"])
    own = {
        name: np.array(ours.figures[name][:first], dtype=np.float64)
        for name in (*_COMPARED, "proven")
    }
    their = {name: np.array(figures[name], dtype=np.float64) for name in _COMPARED}
    both = ~np.isnan(own["ncp"]) & ~np.isnan(their["ncp"])
    found: dict[str, Any] = {}
    for name in _COMPARED:
        a, b = own[name][both], their[name][both]
        ends = mean_of(a - b, np.random.default_rng(0)).to_dict()
        found |= {name: mean(a.tolist()), f"their_{name}": mean(b.tolist())}
        found |= {f"{name}_low": ends["low"], f"{name}_high": ends["high"]}
    return Verdict(
        table=ours.config.table,
        method=ours.method,
        k=ours.k,
        against=against,
        n=int(both.sum()),
        **found,
        optimal=bool(both.any() and (own["proven"][both] == 1).all()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that the page says about the experiments. No value of a row."""

    command: str
    machine: str = ""
    settings: Mapping[str, Config] = field(default_factory=dict)
    scenes: Mapping[str, DataSummary] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    studies: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Measurement],
        *,
        command: str,
        machine: str = "",
        studies: Mapping[str, Iterable[Row]] | None = None,
        runs: Mapping[str, str] | None = None,
    ) -> Results:
        """Summarise measurements by the key of their job; those with unusual settings belong to
        `studies`.
        """
        usual = {key: found for key, found in measured.items() if not found.options}
        settings: dict[str, Config] = {}
        for found in usual.values():
            name = found.config.table
            if settings.setdefault(name, found.config) != found.config:
                raise InputError(
                    f"{name}: outcomes of different settings do not compare; summarise one setting"
                )
        return cls(
            command=command,
            machine=machine,
            settings=settings,
            scenes={found.config.table: found.summary for found in usual.values()},
            aggregates=tuple(
                aggregate(found, (runs or {}).get(key)) for key, found in usual.items()
            ),
            verdicts=tuple(verdicts(usual.values())),
            studies={name: tuple(rows) for name, rows in (studies or {}).items()},
        )

    def find(self, table: str, method: str, k: int) -> Aggregate | None:
        return next(
            (a for a in self.aggregates if (a.table, a.method, a.k) == (table, method, k)), None
        )

    def rows(self, study: str) -> tuple[Row, ...]:
        return self.studies.get(study, ())

    def to_json(self) -> str:
        return json.dumps(
            {"schema_version": SCHEMA_VERSION, **asdict(self)},
            indent=1,
            sort_keys=True,
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read what `to_json` wrote; other versions are refused."""
        found = json.loads(text)
        version = found.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InputError(
                f"results of schema version {version}, expected {SCHEMA_VERSION}; run it again"
            )
        return TypeAdapter(cls).validate_python(found)
