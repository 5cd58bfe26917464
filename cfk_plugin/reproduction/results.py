"""What the page and the plots are made of: the paper's numbers, aggregates, verdicts and studies, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import yaml

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.information import discernibility
from cfk_plugin.metrics.intervals import mean_of
from cfk_plugin.reproduction.prepare import Figure, Measurement, Scene, Setting

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """What one method gave on one table at one k, as the paper's tables say it and some more.

    Figures are over the explanations that were released; None where nothing was released or measured.

    Attributes
    ----------
    table, method : str
    k : int
    options : mapping
        Settings of the method that are not its usual ones.
    n, released : int
        Explanations asked for, and of them released.
    ncp, ncp_low, ncp_high, pureness, pureness_low, pureness_high : float or None
        Means, shares in [0, 1], with 95 % bootstrap intervals.
    cdm, cdm_per_explanation : float or None
        Sum of the people in each region; the same per released explanation.
    cm : float or None
        Share of explanations whose class is mostly predicted another outcome.
    k_min, k_desired_min, k_consistent_min, k_effective_min : float or None
        Least over explanations.
    k_desired, k_consistent, k_effective : float or None
        Mean over explanations.
    k_effective_n : int
        Of how many explanations the effective k was measured.
    proven, pure : float or None
        Share proven optimal; share whose pureness is exactly 1.
    seconds, search_seconds, model_seconds : float or None
        Per explanation asked for: the whole call, what of it is not the model's predict, and the model's predict. None
        where the aggregate is over the first of them only: times are of a whole batch.
    fit_seconds : float
        Once per method: binding model and population.
    run_id : str or None
        The MLflow run that holds the figures of each explanation.
    """

    table: str
    method: str
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int
    released: int
    ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    cdm: float | None
    cdm_per_explanation: float | None
    cm: float | None
    k_min: float | None
    k_desired: float | None
    k_desired_min: float | None
    k_consistent: float | None
    k_consistent_min: float | None
    k_effective: float | None
    k_effective_min: float | None
    k_effective_n: int
    proven: float | None
    pure: float | None
    seconds: float | None
    search_seconds: float | None
    model_seconds: float | None
    fit_seconds: float
    run_id: str | None = None


def aggregate(outcome: Measurement, first: int | None = None, *, run_id: str | None = None) -> Aggregate:
    """Return the figures of an outcome, or of its first explanations alone.

    Parameters
    ----------
    outcome : Measurement
    first : int, optional
        Only the first so many explanations count, so that a method that was asked for fewer compares.
    run_id : str, optional
        The MLflow run of the outcome.

    Returns
    -------
    Aggregate
        The same outcome gives the same intervals.

    Raises
    ------
    InputError
        If there are fewer explanations than `first`.
    """
    n = outcome.asked if first is None else first
    if not 0 <= n <= outcome.asked:
        raise InputError(f"{outcome.method} was asked for {outcome.asked} explanations, not for {n}")
    found = {name: _known(values[:n]) for name, values in outcome.figures.items()}
    whole = n == outcome.asked and n > 0
    sizes = found.get("k", [])
    cdm = discernibility([int(size) for size in sizes]) if sizes else None
    agrees = _mean(found.get("agrees", []))
    effective = found.get("k_effective", [])
    return Aggregate(
        table=outcome.setting.table,
        method=outcome.method,
        k=outcome.k,
        options=dict(outcome.options),
        n=n,
        released=len(found.get("ncp", [])),
        **_estimate("ncp", found.get("ncp", [])),
        **_estimate("pureness", found.get("pureness", [])),
        cdm=cdm,
        cdm_per_explanation=None if cdm is None else cdm / len(sizes),
        cm=None if agrees is None else 1 - agrees,
        k_min=min(sizes, default=None),
        **_mean_and_least("k_desired", found),
        **_mean_and_least("k_consistent", found),
        **_mean_and_least("k_effective", found),
        k_effective_n=len(effective),
        proven=_mean(found.get("proven", [])),
        pure=_mean([float(value == 1) for value in found.get("pureness", [])]),
        seconds=outcome.seconds / n if whole else None,
        search_seconds=(outcome.seconds - outcome.model_seconds) / n if whole else None,
        model_seconds=outcome.model_seconds / n if whole else None,
        fit_seconds=outcome.fit_seconds,
        run_id=run_id,
    )


def aggregates(
    outcomes: Iterable[Measurement], runs: Mapping[tuple[str, str, int], str] | None = None
) -> list[Aggregate]:
    """Return one aggregate per outcome that has the usual settings of its method.

    Parameters
    ----------
    outcomes : iterable of Measurement
    runs : mapping, optional
        (table, method, k) to the id of the MLflow run.

    Returns
    -------
    list of Aggregate
    """
    known = runs or {}
    return [
        aggregate(outcome, run_id=known.get((outcome.setting.table, outcome.method, outcome.k)))
        for outcome in outcomes
        if not outcome.options
    ]


def _known(values: Figure) -> list[float]:
    return [float(value) for value in values if value is not None]


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_and_least(name: str, found: Mapping[str, list[float]]) -> dict[str, Any]:
    values = found.get(name, [])
    return {name: _mean(values), f"{name}_min": min(values, default=None)}


def _estimate(name: str, values: list[float]) -> dict[str, Any]:
    mean = mean_of(np.asarray(values), np.random.default_rng(0)).to_dict()
    return {name: mean["value"], f"{name}_low": mean["low"], f"{name}_high": mean["high"]}


Word = Literal["reached", "equal", "tied", "missed", "not measured"]

OURS = ("exact-pureness", "exact-ncp", "exact-weighted")
"""Methods that are judged. The first has the paper's objective: purest, and of those least NCP."""

THEIRS = "grasp"
PAPER = "paper"

_PAIRS = (
    *((method, yardstick) for yardstick in (PAPER, THEIRS) for method in OURS),
    (THEIRS, PAPER),
    (THEIRS, "mondrian-raw"),
    (OURS[0], "mondrian"),
)
"""Who is compared with whom: ours with the paper and its method, and as the paper does, with Mondrian."""

_NOTHING = 1e-9  # means of the same numbers may differ in the last digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One method against a yardstick, on one table at one k.

    Attributes
    ----------
    table, method : str
    k : int
    against : str
        "paper": the printed CF-K, over other explanations of another model; or a method on the same ones.
    n : int
        Explanations that our figures are over; against a method those that both released, of the first that both were
        asked for.
    ncp, pureness, their_ncp, their_pureness : float or None
        Means.
    ncp_low, ncp_high, pureness_low, pureness_high : float or None
        95 % bootstrap interval of ours minus theirs; against a method of the differences of single explanations.
    optimal : bool
        Whether each result of the method is proven optimal for its objective.
    """

    table: str
    method: str
    k: int
    against: str
    n: int
    ncp: float | None
    their_ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    their_pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    optimal: bool

    @property
    def ncp_word(self) -> Word:
        """Whether NCP is lower. "equal" at 0, or where both figures tie and ours are proven optimal."""
        return self._word(self.ncp, self.their_ncp, sign=-1, bound=0)

    @property
    def pureness_word(self) -> Word:
        """Whether pureness is higher. "equal" at 1, or where both figures tie and ours are proven optimal."""
        return self._word(self.pureness, self.their_pureness, sign=1, bound=1)

    @property
    def is_measured(self) -> bool:
        """Whether there is something to judge."""
        return self.ncp_word != "not measured" and self.pureness_word != "not measured"

    @property
    def is_reached(self) -> bool:
        """Whether both are better, or equal where nothing better is possible."""
        return {self.ncp_word, self.pureness_word} <= {"reached", "equal"}

    @property
    def ncp_missed_by(self) -> float:
        """How much higher our NCP is; 0 where it is not."""
        return 0.0 if self.ncp is None or self.their_ncp is None else max(self.ncp - self.their_ncp, 0.0)

    @property
    def pureness_missed_by(self) -> float:
        """How much lower our pureness is; 0 where it is not."""
        if self.pureness is None or self.their_pureness is None:
            return 0.0
        return max(self.their_pureness - self.pureness, 0.0)

    def _word(self, ours: float | None, theirs: float | None, *, sign: int, bound: float) -> Word:
        if ours is None or theirs is None:
            return "not measured"
        if abs(ours - theirs) > _NOTHING:
            return "reached" if sign * (ours - theirs) > 0 else "missed"
        return "equal" if abs(ours - bound) <= _NOTHING or (self.optimal and self._both_tie()) else "tied"

    def _both_tie(self) -> bool:
        pairs = ((self.ncp, self.their_ncp), (self.pureness, self.their_pureness))
        return all(a is not None and b is not None and abs(a - b) <= _NOTHING for a, b in pairs)


class _Compared(NamedTuple):
    """Means of ours and theirs, and the interval of the difference."""

    ours: float | None
    theirs: float | None
    low: float | None
    high: float | None


def verdicts(outcomes: Iterable[Measurement]) -> list[Verdict]:
    """Judge methods on every table and k that was measured: ours against the paper and GRASP, both against Mondrian.

    Parameters
    ----------
    outcomes : iterable of Measurement
        Those with settings that are not the method's usual ones are left out.

    Returns
    -------
    list of Verdict
        None where a method or its yardstick was not measured.

    Raises
    ------
    InputError
        If a method was measured on another model or other explanations than its yardstick.
    """
    usual = {(o.setting.table, o.k, o.method): o for o in outcomes if not o.options}
    places = list(dict.fromkeys(key[:2] for key in usual))
    found = []
    for method, yardstick in _PAIRS:
        for table, k in places:
            ours, theirs = usual.get((table, k, method)), usual.get((table, k, yardstick))
            if ours is not None and yardstick == PAPER:
                found += _against_paper(ours)
            elif ours is not None and theirs is not None:
                found.append(_against(theirs, ours))
    return found


def _against_paper(ours: Measurement) -> list[Verdict]:
    printed = published().result("cf-k", ours.k, ours.setting.table)
    if printed is None:
        return []
    places = [place for place in range(ours.asked) if ours.figures["ncp"][place] is not None]
    return [_verdict(ours, PAPER, places, [printed.ncp] * len(places), [printed.pureness] * len(places))]


def _against(theirs: Measurement, ours: Measurement) -> Verdict:
    if ours.setting != theirs.setting:
        raise InputError(f"{ours.setting.table}: {ours.method} and {theirs.method} were measured on different settings")
    first = range(min(ours.asked, theirs.asked))
    places = [p for p in first if ours.figures["ncp"][p] is not None and theirs.figures["ncp"][p] is not None]
    return _verdict(ours, theirs.method, places, _at(theirs, "ncp", places), _at(theirs, "pureness", places))


def _verdict(ours: Measurement, against: str, places: list[int], ncp: list[float], pureness: list[float]) -> Verdict:
    loss = _compare(_at(ours, "ncp", places), ncp)
    valid = _compare(_at(ours, "pureness", places), pureness)
    proven = _at(ours, "proven", places)
    return Verdict(
        table=ours.setting.table,
        method=ours.method,
        k=ours.k,
        against=against,
        n=len(places),
        ncp=loss.ours,
        their_ncp=loss.theirs,
        ncp_low=loss.low,
        ncp_high=loss.high,
        pureness=valid.ours,
        their_pureness=valid.theirs,
        pureness_low=valid.low,
        pureness_high=valid.high,
        optimal=bool(proven) and all(value == 1 for value in proven),
    )


def _at(outcome: Measurement, name: str, places: list[int]) -> list[float]:
    values = outcome.figures[name]
    return [math.nan if values[place] is None else float(values[place] or 0) for place in places]


def _compare(ours: list[float], theirs: list[float]) -> _Compared:
    if not ours:
        return _Compared(None, None, None, None)
    differences = mean_of(np.asarray(ours) - np.asarray(theirs), np.random.default_rng(0)).to_dict()
    return _Compared(_finite_mean(ours), _finite_mean(theirs), differences["low"], differences["high"])


def _finite_mean(values: list[float]) -> float | None:
    mean = math.fsum(values) / len(values)
    return mean if math.isfinite(mean) else None


SCHEMA_VERSION = 1
STUDIES = ("parameters", "fairness", "plausibility", "frontier", "candidates", "weights")

Row = Mapping[str, str | float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that is said about the experiments. No value of a row.

    Attributes
    ----------
    command : str
        The command line that gives these results.
    machine : str
        What the times were measured on; "" where nobody said.
    settings, scenes : mapping
        By table: what was asked for, and what it led to.
    aggregates : tuple of Aggregate
    verdicts : tuple of Verdict
    studies : mapping
        Name, one of `STUDIES`, to its rows; without those that were not run.
    """

    command: str
    machine: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    scenes: Mapping[str, Scene] = field(default_factory=dict)
    aggregates: tuple[Aggregate, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    studies: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        outcomes: Iterable[Measurement],
        *,
        command: str,
        machine: str = "",
        studies: Iterable[Mapping[str, Any]] = (),
        runs: Mapping[tuple[str, str, int], str] | None = None,
    ) -> Results:
        """Summarise outcomes and studies.

        Parameters
        ----------
        outcomes : iterable of Measurement
            One per table, method and k. Those with settings that are not the method's usual ones are left out: they
            belong to studies.
        command, machine : str
        studies : iterable of mapping
            ``{"name": one of STUDIES, "rows": [flat mapping, ...]}``.
        runs : mapping, optional
            (table, method, k) to the id of the MLflow run.

        Returns
        -------
        Results

        Raises
        ------
        InputError
            If outcomes of one table have different settings or two are of the same method and k, or a study is unknown
            or not flat.
        """
        usual = [outcome for outcome in outcomes if not outcome.options]
        settings: dict[str, Setting] = {}
        seen: set[tuple[str, str, int]] = set()
        for outcome in usual:
            name, key = outcome.setting.table, (outcome.setting.table, outcome.method, outcome.k)
            if settings.setdefault(name, outcome.setting) != outcome.setting:
                raise InputError(f"{name}: outcomes of different settings do not compare; summarise one setting")
            if key in seen:
                raise InputError(f"{name}: two outcomes of {outcome.method} at k = {outcome.k}; give each once")
            seen.add(key)
        return cls(
            command=command,
            machine=machine,
            settings=settings,
            scenes={outcome.setting.table: outcome.scene for outcome in usual},
            aggregates=tuple(aggregates(usual, runs)),
            verdicts=tuple(verdicts(usual)),
            studies=dict(_study(study) for study in studies),
        )

    @property
    def versions(self) -> dict[str, str]:
        """Library to version; several versions where tables were measured with different ones."""
        found: dict[str, set[str]] = {}
        for setting in self.settings.values():
            for name, version in setting.versions.items():
                found.setdefault(name, set()).add(version)
        return {name: ", ".join(sorted(found[name])) for name in sorted(found)}

    def find(self, table: str, method: str, k: int) -> Aggregate | None:
        """Return the aggregate of a table, method and k; None where it was not run."""
        return next((a for a in self.aggregates if (a.table, a.method, a.k) == (table, method, k)), None)

    def rows(self, study: str) -> tuple[Row, ...]:
        """Return the rows of a study; none where it was not run."""
        return self.studies.get(study, ())

    def to_json(self) -> str:
        """Return it as JSON; the same results give the same text."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read what `to_json` wrote.

        Raises
        ------
        InputError
            If it was written by another version.
        """
        found = json.loads(text)
        version = found.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InputError(f"results of schema version {version}, expected {SCHEMA_VERSION}; run it again")
        return cls(
            command=found["command"],
            machine=found["machine"],
            settings={name: Setting(**value) for name, value in found["settings"].items()},
            scenes={name: Scene(**value) for name, value in found["scenes"].items()},
            aggregates=tuple(Aggregate(**value) for value in found["aggregates"]),
            verdicts=tuple(Verdict(**value) for value in found["verdicts"]),
            studies={name: tuple(rows) for name, rows in found["studies"].items()},
        )


def _study(study: Mapping[str, Any]) -> tuple[str, tuple[Row, ...]]:
    name, rows = study["name"], study["rows"]
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}; expected one of {', '.join(STUDIES)}")
    return name, tuple(_flat(name, rows))


def _flat(study: str, rows: Sequence[Mapping[str, Any]]) -> Iterable[Row]:
    for row in rows:
        for column, value in row.items():
            is_number = isinstance(value, int | float) and math.isfinite(value)
            if not (value is None or isinstance(value, str) or is_number):
                raise InputError(f"study {study}: column {column} holds something that is no text, number or None")
        yield dict(row)
