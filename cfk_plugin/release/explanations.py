"""The result: an immutable sequence of explanations, one per counterfactual asked for, and its figures."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import numpy as np
import pandas as pd

from cfk_plugin.data.columns import to_text
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Finding
from cfk_plugin.metrics import GroupGap, group_gap, ncp_by_attribute
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.tally import figures_of, rate
from cfk_plugin.release.results import (
    Entry,
    GeneralizedCounterfactual,
    Policy,
    PrototypeCounterfactual,
    PrototypePolicy,
    Released,
    Suppressed,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cfk_plugin.data.population import Population


# What is known of a result besides its entries: for the data holder's records, and no part of what leaves.

MOST_GROUPS = 50
"""Different labels that one call may have: what has more is no group but, say, an age or a name."""

_MISSING = "missing"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultContext:
    """What is known of a result. Plain values alone: nothing in it leads to a training row."""

    population: Mapping[str, Any] | None = None  # See `cfk_plugin.data.provenance`
    environment: Mapping[str, Any] | None = None  # See `cfk_plugin.data.provenance`
    seconds: float | None = None  # Wall time of the call per entry
    attribute: str | None = None  # What the groups are groups of
    groups: tuple[str, ...] = ()  # Group of whoever asked, one per entry; empty where nobody named an attribute

    def __getitem__(self, index: slice) -> Self:
        """Return the same of some of the entries."""
        return replace(self, groups=self.groups[index])

    def of_call(self, call: Request, queries: Sequence[int]) -> Self:
        """Return the same with what is known of a call; `queries` says which query each entry answers."""
        seconds = (time.perf_counter() - call.started) / max(len(queries), 1)
        return replace(self, seconds=seconds, attribute=call.attribute, groups=call.groups_of(queries))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Request:
    """One call of an explainer: when it began, and to which group each query belongs."""

    attribute: str | None = None
    labels: tuple[str, ...] = ()  # One per query
    started: float = field(default_factory=time.perf_counter)
    candidates: int = 1  # Counterfactuals that the explainer was asked for per query, of which one was chosen

    @classmethod
    def of(cls, queries: pd.DataFrame, attribute: str | None) -> Request:
        """Begin a call."""
        started = time.perf_counter()
        return (
            cls(started=started) if attribute is None else cls.grouped(attribute, _column(queries, attribute), started)
        )

    @classmethod
    def grouped(cls, attribute: str, labels: Sequence[Any] | pd.Series, started: float = 0.0) -> Request:
        """Return a call whose queries have these labels."""
        texts = tuple(_MISSING if pd.isna(label) else to_text(label) for label in list(labels))
        if (found := len(set(texts))) > MOST_GROUPS:
            raise InputError(
                f"column {attribute!r} has {found} different values in one call; groups are at most {MOST_GROUPS}: "
                "name an attribute with few values, or bin it first"
            )
        return cls(attribute, texts, started)

    def groups_of(self, queries: Sequence[int]) -> tuple[str, ...]:
        """Return the group of each entry."""
        if self.attribute is None:
            return ()
        if len(queries) and max(queries) >= len(self.labels):
            raise InputError(
                f"{len(self.labels)} labels of {self.attribute!r}, and query {max(queries)} was answered; give one "
                "label per query, in the order of the queries"
            )
        return tuple(self.labels[query] for query in queries)


def _column(queries: pd.DataFrame, name: str) -> pd.Series:
    found = list(queries.columns).count(name) if isinstance(queries, pd.DataFrame) else 0
    if found != 1:
        raise InputError(f"the queries have {found} columns {name!r}; to group results by it they need one")
    return queries[name]


# The result: an immutable sequence of explanations, one per counterfactual asked for.

SCHEMA_VERSION = 2


class Explanations(Sequence[Entry]):
    """Explanations in the order asked for; every entry is released with a certificate, or suppressed.

    What is released is of one kind: regions under a `PrivacyPolicy`, or the prototypes of one fit under a
    `PrototypePolicy`.

    Parameters
    ----------
    entries : sequence of GeneralizedCounterfactual, PrototypeCounterfactual or Suppressed
    policy : PrivacyPolicy or PrototypePolicy
    columns : sequence of str
        Features in the training table's order, for `to_frame`.
    findings : sequence, optional
        What detection said of each raw counterfactual; for the data holder, not part of `to_frame` or `to_json`.
    n_people : int, optional
        People in the population, for the discernibility metric.
    provenance : mapping of str, optional
        Settings of the run (method, generator, plugins) for tracking.
    about : ResultContext, optional
        What else is known, for tracking.

    Raises
    ------
    InputError
        If an entry is of the other kind than the policy, prototypes are of several fits or their certificate states
        more than the policy allows, or the findings are not one per entry.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        policy: Policy,
        columns: Sequence[str],
        findings: Sequence[Finding | None] | None = None,
        n_people: int = 0,
        provenance: Mapping[str, str] | None = None,
        about: ResultContext | None = None,
    ) -> None:
        self._entries = tuple(entries)
        self.policy = policy
        self.columns = tuple(columns)
        self.findings = tuple(findings) if findings is not None else (None,) * len(self._entries)
        self.n_people = n_people
        self.provenance = dict(provenance or {})
        self.about = about or ResultContext()
        if len(self.findings) != len(self._entries):
            raise InputError("findings must be one per entry")
        _check_kind(self._entries, policy)

    def __len__(self) -> int:
        """Return the number of counterfactuals asked for."""
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Entry | Explanations:
        """Return one entry, or a slice as `Explanations`."""
        if isinstance(index, slice):
            return self._with(self._entries[index], self.findings[index], self.about[index])
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries."""
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        """Compare entries and policy."""
        if not isinstance(other, Explanations):
            return NotImplemented
        return self._entries == other._entries and self.policy == other.policy

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show counts."""
        return f"Explanations({len(self.released)} released, {len(self) - len(self.released)} suppressed)"

    def _with(self, entries: Sequence[Entry], findings: Sequence[Finding | None], about: ResultContext) -> Explanations:
        return Explanations(
            entries,
            policy=self.policy,
            columns=self.columns,
            findings=findings,
            n_people=self.n_people,
            provenance=self.provenance,
            about=about,
        )

    @property
    def released(self) -> tuple[Released, ...]:
        """The entries that are released, of whichever kind."""
        return tuple(e for e in self._entries if not isinstance(e, Suppressed))

    @property
    def generalized(self) -> tuple[GeneralizedCounterfactual, ...]:
        """The released entries that are regions: those with k, NCP and pureness."""
        return tuple(e for e in self._entries if isinstance(e, GeneralizedCounterfactual))

    @property
    def prototypes(self) -> tuple[PrototypeCounterfactual, ...]:
        """The released entries that are prototypes: those with epsilon and delta."""
        return tuple(e for e in self._entries if isinstance(e, PrototypeCounterfactual))

    @property
    def suppressed(self) -> tuple[Suppressed, ...]:
        """The entries that are withheld."""
        return tuple(e for e in self._entries if isinstance(e, Suppressed))

    def for_query(self, query: int) -> tuple[Entry, ...]:
        """Return the entries that answer one query."""
        return tuple(e for e in self._entries if e.query == query)

    def by_group(self, attribute: str, labels: Sequence[Any] | pd.Series) -> Explanations:
        """Return the same explanations with the group of whoever asked, for figures by group of a run.

        Protects nothing: a label goes to the run's records as it is, next to what was released for the query. It is
        a value of the person who asks. Choose an attribute that you may keep. `to_frame` and `to_json` do not have it.

        Parameters
        ----------
        attribute : str
            What the groups are groups of, for example ``sex``.
        labels : sequence
            One per query, in the order of the queries, for example ``queries["sex"]``; a missing one is the group
            ``missing``.

        Returns
        -------
        Explanations

        Raises
        ------
        InputError
            If there are fewer labels than queries, or more than 50 different ones.
        """
        groups = Request.grouped(attribute, labels).groups_of([entry.query for entry in self._entries])
        return self._with(self._entries, self.findings, replace(self.about, attribute=attribute, groups=groups))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: status, features as text, k, NCP, pureness. May leave the host.

        Of prototypes the last three are empty.
        """
        rows = []
        for entry in self._entries:
            row: dict[str, Any] = {"query": entry.query, "status": entry.status, "reason": None}
            if isinstance(entry, Suppressed):
                row["reason"] = entry.reason
            else:
                shown = entry.cells()
                row.update({name: shown.get(name) for name in self.columns})
                row.update({name: getattr(entry.certificate, name, None) for name in _SHOWN})
            rows.append(row)
        return pd.DataFrame(rows, columns=["query", "status", "reason", *self.columns, *_SHOWN])

    def audit_frame(self) -> pd.DataFrame:
        """Return every field of every certificate and the detection's finding. For the data holder only."""
        rows = []
        for entry, finding in zip(self._entries, self.findings, strict=True):
            row: dict[str, Any] = {"query": entry.query, "status": entry.status, "finding": finding}
            if isinstance(entry, Suppressed):
                row["reason"] = entry.reason
            else:
                row.update(entry.certificate.to_dict())
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self, indent: int | None = None) -> str:
        """Return what may leave as JSON, by query; the format is the JSON Schema `explanations-2.schema.json`."""
        asked = Counter(entry.query for entry in self._entries)
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "policy": self.policy.to_dict(),
                "columns": list(self.columns),
                "asked": [{"query": query, "explanations": asked[query]} for query in sorted(asked)],
                "explanations": [entry.to_dict() for entry in sorted(self._entries, key=lambda entry: entry.query)],
            },
            indent=indent,
            allow_nan=False,
            ensure_ascii=False,
        )

    def summary(self) -> dict[str, Any]:
        """Return the figures of the whole set; definitions are in the metrics reference.

        Returns
        -------
        dict
            Counts (``asked``, ``released``, ``suppressed``, ``reasons``), and over the released entries ``k_min``,
            ``k_mean``, ``k_p05``, ``k_desired_min``, ``k_consistent_min``, ``k_effective_min`` (None unless every
            certificate has it), ``k_private_min``, ``ncp_mean``,
            ``ncp_p95``, ``pureness_mean``, ``pureness_min``, ``pureness_low``, ``optimal_rate``,
            ``prosecutor_risk_max``, ``marketer_risk``, ``cdm``, ``cm``; rates ``native_rate``,
            ``native_qi_rate``, ``near_native_rate`` (each counterfactual counts once, by the worst finding),
            ``suppressed_rate``; ``released_native``, which must be 0; ``prototypes``, how many of the released entries
            are some, with ``epsilon`` and ``delta`` of all of them together (None where nothing is guaranteed). A
            figure over no entry is None; so those of regions are for prototypes, ``cdm`` included.
        """
        k = None if isinstance(self.policy, PrototypePolicy) else self.policy.k
        certificates = [e.certificate for e in self.generalized]
        proven = next((e.certificate for e in self.prototypes if e.certificate.guarantee != "none"), None)
        asked, found = len(self), [f for f in self.findings if f is not None]
        return {
            "asked": asked,
            "released": len(self.released),
            "suppressed": len(self.suppressed),
            "reasons": dict(Counter(e.reason for e in self.suppressed)),
            **figures_of(certificates),
            "cdm": None if k is None else sum(c.k for c in certificates) + self.n_people * len(self.suppressed),
            "native_rate": rate([f == "native" for f in found]),
            "native_qi_rate": rate([f == "native-qi" for f in found]),
            "near_native_rate": rate([f == "near-native" for f in found]),
            "suppressed_rate": rate([isinstance(e, Suppressed) for e in self._entries]),
            "released_native": sum(c.k < k for c in certificates if k is not None),
            "prototypes": len(self.prototypes),
            "epsilon": None if proven is None else proven.epsilon,
            "delta": None if proven is None else proven.delta,
        }

    def log(self, logger: RunLogger | None = None, **options: Any) -> str:
        """Log parameters, metrics and the released records to MLflow.

        Parameters
        ----------
        logger : RunLogger, optional
            Where to log. Default: the active MLflow run, or a new one.
        **options
            Settings of a new `RunLogger` when none is given.

        Returns
        -------
        str
            The id of the run.
        """
        return (logger or RunLogger(**options)).log(self)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: the findings and inner counts are for the data holder; write `to_json` instead."""
        raise InputError("Explanations refuse to be pickled; use to_json() or to_frame()")


def _check_kind(entries: Sequence[Entry], policy: Policy) -> None:
    """Refuse entries that the policy does not stand for: its figures would be said of something else."""
    kind = PrototypeCounterfactual if isinstance(policy, PrototypePolicy) else GeneralizedCounterfactual
    if not all(isinstance(entry, (kind, Suppressed)) for entry in entries):
        raise InputError(
            f"a result under a {type(policy).__name__} holds {kind.__name__} and Suppressed alone; "
            "give each kind a result of its own"
        )
    certificates = {e.certificate for e in entries if isinstance(e, PrototypeCounterfactual)}
    if len(certificates) > 1:
        raise InputError("prototypes of several fits: each has a budget of its own, so give each a result of its own")
    if isinstance(policy, PrototypePolicy) and not all(map(policy.allows, certificates)):
        raise InputError("the certificate of the prototypes states another budget or model than the policy allows")


_SHOWN = ("k", "ncp", "pureness", "pureness_low", "pureness_high")


# Figures of a set of explanations, broken down: by attribute, by how many people fit, and by group of who asked.


def class_sizes_of(explanations: Explanations | Sequence[int]) -> list[int]:
    """Return the number of people who fit each released region."""
    if isinstance(explanations, Explanations):
        _refuse_prototypes(explanations)
        return [entry.certificate.k for entry in explanations.generalized]
    sizes = [int(size) for size in explanations]
    if sizes and min(sizes) < 1:
        raise InputError("each class needs at least one person")
    return sizes


def risk_by_group_size(explanations: Explanations | Sequence[int]) -> pd.DataFrame:
    """Return how many explanations were released with how many people, and the risk that goes with it.

    For the data holder: exact sizes of regions that differ by one say something of a single person.
    """
    people, releases = np.unique(class_sizes_of(explanations), return_counts=True)
    return pd.DataFrame(
        {
            "people": people.astype(np.int64),
            "releases": releases.astype(np.int64),
            "share_up_to": releases.cumsum() / max(releases.sum(), 1),
            "prosecutor_risk": 1 / people.astype(float),
        }
    )


def ncp_table(explanations: Explanations, population: Population) -> pd.DataFrame:
    """Return what each quasi-identifier loses by being generalised."""
    _refuse_prototypes(explanations)
    names = population.schema.quasi_identifiers
    losses = [ncp_by_attribute(entry.region, population) for entry in explanations.generalized]
    table = pd.DataFrame(losses, columns=list(names), dtype=float)
    found = pd.DataFrame(
        {
            "attribute": names,
            "weight": [population.schema[name].weight for name in names],
            "ncp_mean": table.mean().to_numpy(),
            "ncp_p95": table.quantile(0.95).to_numpy(),
            "exact": (table == 0).mean().to_numpy(),
        }
    )
    return found.sort_values("ncp_mean", ascending=False, kind="stable", ignore_index=True)


def group_gaps(
    explanations: Explanations,
    groups: ArrayLike | pd.Series,
    metrics: Sequence[str] = ("k", "ncp", "pureness", "suppressed"),
    *,
    random_state: int = 0,
) -> dict[str, tuple[GroupGap, ...]]:
    """Return for each metric by how much every group of those who asked differs from everybody else.

    For the data holder. See `cfk_plugin.metrics.group_gap`: groups of fewer than 11 are pooled.

    Parameters
    ----------
    explanations : Explanations
    groups : array, shape (n_explanations,)
        Group of who asked, one per entry; missing is a group of its own.
    metrics : sequence of {"k", "ncp", "pureness", "suppressed"}
        A withheld entry has none of the first three, and 1 for the last.
    random_state : int
        Seed of the intervals.

    Returns
    -------
    dict of str to tuple of GroupGap
        Metric to its differences, for `cfk_plugin.plots.plot_groups`.

    Raises
    ------
    InputError
        If the explanations are prototypes, a metric is unknown, or the groups are not one per entry.
    """
    _refuse_prototypes(explanations)
    if unknown := [name for name in metrics if name not in _METRICS]:
        raise InputError(f"unknown metric {', '.join(unknown)}; known: {', '.join(_METRICS)}")
    values = {name: [_METRICS[name](entry) for entry in explanations] for name in metrics}
    return {name: group_gap(found, groups, random_state=random_state) for name, found in values.items()}


def _of_certificate(name: str, entry: Entry) -> float:
    return float(getattr(entry.certificate, name)) if isinstance(entry, GeneralizedCounterfactual) else math.nan


_METRICS: Mapping[str, Callable[[Entry], float]] = {
    **{name: partial(_of_certificate, name) for name in ("k", "ncp", "pureness")},
    "suppressed": lambda entry: float(isinstance(entry, Suppressed)),
}


def _refuse_prototypes(explanations: Explanations) -> None:
    if isinstance(explanations.policy, PrototypePolicy):
        raise InputError(
            "prototypes stand for nobody: there are no people to count and nothing is generalised; "
            "see epsilon and delta in summary()"
        )
