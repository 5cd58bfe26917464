"""What the page says about the experiments: means, verdicts and studies, kept as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.metrics.intervals import mean_of
from reproduction import published
from reproduction.measure import Measurement
from reproduction.prepare import TableSummary

KS = (5, 10, 20)
"""The k of the paper's Tables 6, 7 and 9 to 12."""

OURS = ("exact-pureness", "exact-ncp")
"""The methods that are judged. The first has the objective of the paper: purest, then least NCP."""

YARDSTICKS = (
    ("exact-pureness", "paper"),
    ("exact-ncp", "paper"),
    ("exact-pureness", "grasp"),
    ("exact-ncp", "grasp"),
    ("grasp", "paper"),
    ("grasp", "mondrian-raw"),
    ("exact-pureness", "mondrian"),
)
"""Which method is compared with which: ours with the paper and its method, and, as in the paper,
both with Mondrian.
"""

NEARLY_ZERO = 1e-9
"""Means of the same numbers may differ in the last digits."""

Word = Literal["reached", "equal", "tied", "missed", "not measured"]
StudyRow = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """The means of one method on one table at one k, over the explanations that were released.

    A figure is None if no explanation has it.
    """

    table: str
    method: str
    k: int
    n: int  # explanations that were asked for
    released: int
    ncp: float | None
    ncp_low: float | None  # ends of the 95 % bootstrap interval
    ncp_high: float | None
    pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    cdm: float | None  # the sum of the people in each region
    cdm_per_explanation: float | None
    cm: float | None  # share of regions in which most people are predicted another outcome
    k_min: float | None  # the smallest region
    k_desired: float | None
    k_desired_min: float | None
    k_consistent: float | None
    k_consistent_min: float | None
    proven: float | None  # share that is proven optimal
    pure: float | None  # share with a pureness of exactly 1
    seconds: float | None  # per explanation
    search_seconds: float | None  # of that, outside of the model's predict
    model_seconds: float | None


def mean(values: Sequence[float] | NDArray[Any]) -> float | None:
    """Return the mean, or None without values."""
    if len(values) == 0:
        return None
    return math.fsum(values) / len(values)


def smallest(values: NDArray[Any]) -> float | None:
    """Return the smallest value, or None without values."""
    if len(values) == 0:
        return None
    return float(values.min())


def aggregate(measurement: Measurement) -> Aggregate:
    """Summarise the explanations of a measurement."""
    figures: dict[str, float | None] = {}
    for name in ("ncp", "pureness"):
        estimate = mean_of(measurement.known(name), np.random.default_rng(0)).to_dict()
        figures[name] = estimate["value"]
        figures[f"{name}_low"] = estimate["low"]
        figures[f"{name}_high"] = estimate["high"]
    for name in ("k_desired", "k_consistent"):
        figures[name] = mean(measurement.known(name))
        figures[f"{name}_min"] = smallest(measurement.known(name))
    people = measurement.known("k")
    agreeing = mean(measurement.known("agrees"))
    if len(people) > 0:
        figures["cdm"] = math.fsum(people)
    if agreeing is not None:
        figures["cm"] = 1 - agreeing
    if measurement.n > 0:
        search_seconds = measurement.seconds - measurement.model_seconds
        figures["seconds"] = measurement.seconds / measurement.n
        figures["search_seconds"] = search_seconds / measurement.n
        figures["model_seconds"] = measurement.model_seconds / measurement.n
    not_measured = dict.fromkeys(("cdm", "cm", "seconds", "search_seconds", "model_seconds"))
    return Aggregate(
        table=measurement.table,
        method=measurement.method,
        k=measurement.k,
        n=measurement.n,
        released=measurement.n_released,
        cdm_per_explanation=mean(people),
        k_min=smallest(people),
        proven=mean(measurement.known("proven")),
        pure=mean(measurement.known("pureness") == 1),
        **{**not_measured, **figures},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one method is better than a yardstick, over the explanations that both released."""

    table: str
    method: str
    k: int
    against: str  # another method, or "paper" for the figures that it prints
    n: int  # explanations that are compared
    ncp: float | None
    their_ncp: float | None
    ncp_low: float | None  # ends of the 95 % bootstrap interval of ours minus theirs
    ncp_high: float | None
    pureness: float | None
    their_pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    optimal: bool  # whether every region of the method is proven optimal for its objective

    @property
    def ncp_by(self) -> float | None:
        """Our NCP minus theirs."""
        if self.ncp is None or self.their_ncp is None:
            return None
        return self.ncp - self.their_ncp

    @property
    def pureness_by(self) -> float | None:
        """Our pureness minus theirs."""
        if self.pureness is None or self.their_pureness is None:
            return None
        return self.pureness - self.their_pureness

    @property
    def ncp_word(self) -> Word:
        """ "reached" if our NCP is lower, "equal" if it cannot be lower."""
        if self.ncp is None or self.ncp_by is None:
            return "not measured"
        return self._word(gain=-self.ncp_by, is_at_bound=self.ncp <= NEARLY_ZERO)

    @property
    def pureness_word(self) -> Word:
        """ "reached" if our pureness is higher, "equal" if it cannot be higher."""
        if self.pureness is None or self.pureness_by is None:
            return "not measured"
        return self._word(gain=self.pureness_by, is_at_bound=self.pureness >= 1 - NEARLY_ZERO)

    def _word(self, *, gain: float, is_at_bound: bool) -> Word:
        if gain > NEARLY_ZERO:
            return "reached"
        if gain < -NEARLY_ZERO:
            return "missed"
        # A tie is as good as it gets at the bound, or if no region can be better in both figures.
        if is_at_bound or (self.optimal and self._ties_in_both):
            return "equal"
        return "tied"

    @property
    def _ties_in_both(self) -> bool:
        differences = (self.ncp_by, self.pureness_by)
        return all(by is not None and abs(by) <= NEARLY_ZERO for by in differences)

    @property
    def is_measured(self) -> bool:
        return self.ncp_by is not None and self.pureness_by is not None

    @property
    def is_reached(self) -> bool:
        """Whether both figures are better, or equal where nothing better is possible."""
        return {self.ncp_word, self.pureness_word} <= {"reached", "equal"}


def judge(measurements: Iterable[Measurement]) -> list[Verdict]:
    """Compare methods on every table and k: see `YARDSTICKS`.

    Measurements with other settings than the usual ones are left out.
    """
    usual = {(m.table, m.k, m.method): m for m in measurements if not m.settings}
    cases = list(dict.fromkeys((table, k) for table, k, _ in usual))
    verdicts = []
    for method, yardstick in YARDSTICKS:
        for table, k in cases:
            ours = usual.get((table, k, method))
            if ours is None:
                continue
            if yardstick == "paper":
                printed = published.RESULTS.get(("cf-k", k, table))
                if printed is not None:
                    n = ours.n
                    their_ncp = np.full(n, printed.ncp)
                    their_pureness = np.full(n, printed.pureness)
                    verdicts.append(_verdict(ours, yardstick, their_ncp, their_pureness))
            elif (table, k, yardstick) in usual:
                # The slower method explains only the first ones.
                theirs = usual[table, k, yardstick].figures.head(ours.n)
                their_ncp = theirs["ncp"].to_numpy()
                their_pureness = theirs["pureness"].to_numpy()
                verdicts.append(_verdict(ours, yardstick, their_ncp, their_pureness))
    return verdicts


def _verdict(
    ours: Measurement,
    against: str,
    their_ncp: NDArray[np.float64],
    their_pureness: NDArray[np.float64],
) -> Verdict:
    """Compare the first explanations of a method with figures of the same explanations."""
    our_figures = ours.figures.head(len(their_ncp))
    our_ncp = our_figures["ncp"].to_numpy()
    our_pureness = our_figures["pureness"].to_numpy()
    is_common = ~np.isnan(our_ncp) & ~np.isnan(their_ncp)
    is_proven = our_figures["proven"].to_numpy()[is_common] == 1
    pairs = {
        "ncp": (our_ncp[is_common], their_ncp[is_common]),
        "pureness": (our_pureness[is_common], their_pureness[is_common]),
    }
    figures: dict[str, float | None] = {}
    for name, (our_values, their_values) in pairs.items():
        difference = mean_of(our_values - their_values, np.random.default_rng(0)).to_dict()
        figures[name] = mean(our_values)
        figures[f"their_{name}"] = mean(their_values)
        figures[f"{name}_low"] = difference["low"]
        figures[f"{name}_high"] = difference["high"]
    return Verdict(
        table=ours.table,
        method=ours.method,
        k=ours.k,
        against=against,
        n=int(is_common.sum()),
        optimal=bool(is_common.any() and is_proven.all()),
        **figures,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that the page says about the experiments. No value of a row."""

    machine: str
    versions: Mapping[str, str]  # of libraries
    tables: Mapping[str, TableSummary]
    aggregates: Sequence[Aggregate]
    verdicts: Sequence[Verdict]
    studies: Mapping[str, Sequence[StudyRow]]  # rows by name; see ``studies.py``

    def find(self, table: str, method: str, k: int) -> Aggregate | None:
        """Return the means of a method, or None if it was not run."""
        for each in self.aggregates:
            if (each.table, each.method, each.k) == (table, method, k):
                return each
        return None

    def verdicts_of(self, method: str, against: str) -> list[Verdict]:
        """Return the verdicts on a method against a yardstick, by table and k."""
        chosen = [v for v in self.verdicts if (v.method, v.against) == (method, against)]
        tables = list(self.tables)
        return sorted(chosen, key=lambda verdict: (tables.index(verdict.table), verdict.k))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Results:
        content = json.loads(text)
        tables = {name: TableSummary(**summary) for name, summary in content["tables"].items()}
        return cls(
            machine=content["machine"],
            versions=content["versions"],
            tables=tables,
            aggregates=[Aggregate(**row) for row in content["aggregates"]],
            verdicts=[Verdict(**row) for row in content["verdicts"]],
            studies=content["studies"],
        )
