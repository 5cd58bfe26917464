"""The result: an immutable sequence of explanations, one per counterfactual asked for, and its
figures.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, Self, TypeGuard, overload

import numpy as np
import pandas as pd
from markupsafe import Markup

from cfk_plugin.data.constraints import Rules
from cfk_plugin.data.display import card, marked, number, table
from cfk_plugin.data.encoded_table import Encoder, require_features
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import (
    Interval,
    part_contains,
    part_of,
    part_to_text,
    to_text,
)
from cfk_plugin.data.values import as_pandas, to_number
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import HostOnly, InputError, counted, did_you_mean, require
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.metrics import GroupGap, group_gap, ncp_by_attribute
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.record import FLOOR, RunRecord
from cfk_plugin.records.record import SCHEMA_VERSION as RUN_VERSION
from cfk_plugin.records.tally import FIELDS, figures, rates
from cfk_plugin.release.results import (
    Certificate,
    Explanation,
    GeneralizedCounterfactual,
    Policy,
    PrototypeCounterfactual,
    PrototypePolicy,
    Released,
    Withheld,
)
from cfk_plugin.release.short_catalogue import ShortCatalogue
from cfk_plugin.release.still_true import (
    NewModel,
    StillTrue,
    answers_of,
    rows_asked_for,
    still_true_at,
    still_true_within,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cfk_plugin.data.population import Population


MOST_GROUPS = 50
"""Most labels that one call may have: an attribute with more is not a group but, say, an age or a
name.
"""

_MISSING = "missing"
_MOST_SHOWN = 20
_FIGURES_OF_REGIONS = (
    "k: people who fit. NCP: share of the columns' ranges that is given instead of one value."
    " Pureness: share of the combinations that lead to the outcome."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Request:
    """One call of an explainer: when it began, and to which group each query belongs."""

    attribute: str | None = None
    labels: tuple[str, ...] = ()  # one per query
    started: float = field(default_factory=time.perf_counter)
    is_for_people: bool = False  # whether the people who ask are known
    # What they asked about, indexed by the number of the query; no result keeps it.
    queries: pd.DataFrame | None = None
    # features of which the schema or the call says how they may change
    decided: frozenset[str] = frozenset()
    rules: Rules = field(default_factory=dict)  # how they may change

    @classmethod
    def of(cls, queries: pd.DataFrame, attribute: str | None) -> Request:
        queries = as_pandas(queries)
        request = cls(attribute, is_for_people=True)
        if isinstance(queries, pd.DataFrame):
            request = replace(request, queries=queries.reset_index(drop=True))
        if attribute is None:
            return request
        columns = list(queries.columns) if isinstance(queries, pd.DataFrame) else []
        n_columns = columns.count(attribute)
        if n_columns != 1:
            raise InputError(
                f"the queries have {n_columns} columns {attribute!r}; to group results by it they"
                f" need one{did_you_mean([attribute], columns)}"
            )
        return replace(request, labels=_labels(attribute, queries[attribute]))


def _labels(attribute: str, found: object) -> tuple[str, ...]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise InputError(
            f"labels of {attribute!r} must be a list, one per query, got {type(found).__name__}"
        )
    labels = tuple(_MISSING if pd.isna(label) else to_text(label) for label in list(found))
    if (different := len(set(labels))) > MOST_GROUPS:
        raise InputError(
            f"column {attribute!r} has {different} different values in one call; groups are at most"
            f" {MOST_GROUPS}: name an attribute with few values, or bin it first"
        )
    return labels


Kind = Literal["answers", "catalogue"]
"""What a file holds: answers to queries, or all entries of a catalogue."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultContext:
    """What the data holder's records say of a result; nothing in it leads to a training row."""

    # see `cfk_plugin.metrics.provenance`, also for the next
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    seconds: float | None = None  # of the call, per entry
    attribute: str | None = None  # name of the attribute that defines groups
    # group of the person who asked, one per entry; empty without an attribute
    groups: tuple[str, ...] = ()
    is_for_people: bool = False
    # what detection found among an explainer's counterfactuals at fit; see `RunRecord.sample`
    sample: Mapping[str, int] | None = None
    kind: Kind = "answers"
    short_catalogue: ShortCatalogue | None = None  # of a catalogue whose entries are not all here
    # per entry, the features whose released value is the query's own; no run logs them
    own: tuple[frozenset[str], ...] = ()
    wording: Wording = field(default_factory=Wording)
    # reads queries in the population's terms; None for prototypes. It knows values of columns, and
    # no row.
    encoder: Encoder | None = None
    rules: Rules = field(
        default_factory=dict
    )  # how features may change, by the schema and the call

    def of_call(self, call: Request, entries: Sequence[Explanation]) -> Self:
        """Add what is known of a call that these entries answer."""
        queries = [entry.query for entry in entries]
        seconds = (time.perf_counter() - call.started) / max(len(queries), 1)
        own = own_values(entries, call.queries)
        timed = replace(
            self, seconds=seconds, is_for_people=call.is_for_people, own=own, rules=call.rules
        )
        return (
            timed if call.attribute is None else timed.grouped(call.attribute, call.labels, queries)
        )

    def grouped(self, attribute: str, labels: Sequence[str], queries: Sequence[int]) -> Self:
        if len(queries) and max(queries) >= len(labels):
            raise InputError(
                f"{len(labels)} labels of {attribute!r}, and query {max(queries)} was answered;"
                " give one label per query, in the order of the queries"
            )
        return replace(self, attribute=attribute, groups=tuple(labels[query] for query in queries))


def own_values(
    entries: Sequence[Explanation], queries: pd.DataFrame | None
) -> tuple[frozenset[str], ...]:
    """Return, for each entry, the features whose released value is the query's own.

    Answers of a catalogue are skipped: their certificates name these features.
    """
    rows: dict[Any, Mapping[Any, Any]] = {}
    if queries is not None and queries.columns.is_unique and any(map(_is_to_compare, entries)):
        rows = dict(zip(queries.index.tolist(), queries.to_dict("records"), strict=True))
    return tuple(
        _own_values(entry, rows.get(entry.query, {})) if _is_to_compare(entry) else frozenset()
        for entry in entries
    )


def _is_to_compare(
    entry: Explanation,
) -> TypeGuard[GeneralizedCounterfactual | PrototypeCounterfactual]:
    if isinstance(entry, Withheld):
        return False
    if isinstance(entry, PrototypeCounterfactual):
        return True
    return not promise_of(entry.certificate.guarantee).names_own_values


def _own_values(
    entry: GeneralizedCounterfactual | PrototypeCounterfactual, query: Mapping[Any, Any]
) -> frozenset[str]:
    values = entry.released if isinstance(entry, GeneralizedCounterfactual) else entry.values
    return frozenset(
        name for name, value in values.items() if name in query and _is_own(value, query[name])
    )


def _is_own(value: Any, given: Any) -> bool:
    """Say whether a released value is what a query gave, in whatever spelling."""
    part = part_of(value)
    if part_contains(part, given) or to_text(value) == to_text(given):
        return True
    if not isinstance(part, Interval) or part.low is None or part.high is None:
        return False
    return bool(to_number(part.low) <= to_number(given) <= to_number(part.high))


class ExplanationSummary(dict[str, Any]):
    """The figures of `Explanations.summary`: a dict that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        """Return the main figures in words, and the others by name."""
        rows = [
            (number(self[name]), text, Markup("<small>{}</small>").format(name))
            for name, text in _IN_WORDS.items()
            if self.get(name) is not None
        ]
        reasons = ", ".join(f"{reason} {n}" for reason, n in self.get("reasons", {}).items())
        if reasons:
            rows.append(("", f"withheld for {reasons}", Markup("<small>reasons</small>")))
        others = [
            name
            for name, value in self.items()
            if name not in (*_IN_WORDS, "reasons") and value is not None
        ]
        note = f"Also: {', '.join(others)}." if others else ""
        return card("Summary", table((), rows), note=note)


_IN_WORDS: Mapping[str, str] = {
    "asked": "explanations asked for",
    "released": "released",
    "withheld": "withheld",
    "prototypes": "prototypes",
    "k_min": "fewest people behind an explanation",
    "k_worst_min": "fewest people left for any attacker that was counted",
    "prosecutor_risk_max": "highest risk of a look-up",
    "ncp_mean": "cost: information loss, mean",
    "pureness_mean": "truth: pureness, mean",
    "pureness_min": "truth: pureness, lowest",
    "native_rate": "raw counterfactuals that were training rows, share",
    "released_native": "released with too few people, which must be 0",
    "epsilon": "epsilon",
    "delta": "delta",
}
"""Figures that a notebook shows first, and what they say."""


SCHEMA_VERSION = 1


class Explanations(HostOnly, Sequence[Explanation]):
    """Explanations in the order asked for; every entry is released with a certificate, or
    withheld.

    What is released is of one kind: regions under a `PrivacyPolicy`, or the prototypes of one fit
    under a `PrototypePolicy`.

    Parameters
    ----------
    entries : sequence of GeneralizedCounterfactual, PrototypeCounterfactual or Withheld
    policy : PrivacyPolicy or PrototypePolicy
    columns : sequence of str
        Features in the training table's order.
    findings : sequence, optional
        What detection found of each raw counterfactual; for the data holder, not in `to_frame` or
        `to_json`.
    n_people : int, optional
        People in the population, for the discernibility metric.
    provenance, about : mapping of str and ResultContext, optional
        Settings of the run (method, generator, plugins), and further context, for tracking.

    Raises
    ------
    InputError
        If entries do not fit the policy, prototypes are of several fits, or findings are not one
        per entry.
    """

    _refusal = InputError, "Explanations refuse to be pickled; use to_json() or to_frame()"

    def __init__(
        self,
        entries: Sequence[Explanation],
        *,
        policy: Policy,
        columns: Sequence[str],
        findings: Sequence[NativeStatus | None] | None = None,
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
        self._before: list[dict[str, Any]] | None = None
        if len(self.findings) != len(self._entries):
            raise InputError("findings must be one per entry")
        kind = (
            PrototypeCounterfactual
            if isinstance(policy, PrototypePolicy)
            else GeneralizedCounterfactual
        )
        if not {kind, Withheld}.issuperset(map(type, self._entries)):
            raise InputError(
                f"a result under a {type(policy).__name__} holds {kind.__name__} and Withheld"
                " alone; give each kind a result of its own"
            )
        if isinstance(policy, PrototypePolicy):
            self._check_fit(policy)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        """Return one entry, or a slice as `Explanations`."""
        if isinstance(index, slice):
            about = replace(
                self.about,
                groups=self.about.groups[index],
                own=self.about.own[index],
                kind="answers",
                short_catalogue=None,
            )
            return self._with(
                _entries=self._entries[index], findings=self.findings[index], about=about
            )
        return self._entries[index]

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanations):
            return NotImplemented
        return self._entries == other._entries and self.policy == other.policy

    __hash__ = None  # type: ignore[assignment]

    def _counts(self) -> str:
        return f"{len(self.released)} released, {len(self.withheld)} withheld"

    def _repr_html_(self) -> str:
        """Return a table of what was released; it shows the person's own values only after
        `compare`.
        """
        figures: tuple[str, ...] = ("k", "ncp", "pureness")
        meaning = _FIGURES_OF_REGIONS
        if isinstance(self.policy, PrototypePolicy):
            figures = ("epsilon",)
            meaning = "epsilon: the privacy budget that they were drawn with."
        rows = [self._shown(entry, figures) for entry in self._entries[:_MOST_SHOWN]]
        notes = [meaning]
        if len(self) > len(rows):
            notes.append(f"{len(self) - len(rows):,} more are not shown.")
        if self._before is None:
            notes.append("compare(queries) marks what changes, where queries may be shown.")
        # Figures stand before the features, so that a wide table does not hide them.
        head = ("query", *(name.replace("ncp", "NCP") for name in figures), *self.columns)
        return card(
            f"{counted(len(self), 'explanation')}: {self._counts()}",
            table(head, rows),
            note=" ".join(notes),
        )

    def _shown(self, entry: Explanation, figures: Sequence[str]) -> list[object]:
        if isinstance(entry, Withheld):
            return [entry.query, entry.text_for_operator()]
        cells, parts = entry.cells(), entry.parts()
        own = {} if self._before is None else self._before[entry.query]
        is_new = {
            name: name in own and name in parts and not part_contains(parts[name], own[name])
            for name in cells
        }
        values = [
            (
                marked(cells[name], part_to_text(part_of(own[name])))
                if is_new.get(name)
                else cells.get(name, "")
            )
            for name in self.columns
        ]
        return [
            entry.query,
            *(f"{getattr(entry.certificate, name):.3g}" for name in figures),
            *values,
        ]

    def compare(self, queries: pd.DataFrame) -> Explanations:
        """Return the same for notebooks with the person's own values: each changed value is marked
        beside them.

        Only for queries that may be shown to whoever sees the notebook: public data, or their own.
        No other output shows the person's own values.

        Parameters
        ----------
        queries : DataFrame
            As for `text`.
        """
        return self._with(_before=self.asked(queries))

    def _check_fit(self, policy: PrototypePolicy) -> None:
        certificates = {entry.certificate for entry in self.prototypes}
        if len(certificates) > 1:
            raise InputError(
                "prototypes of several fits: each has a budget of its own, so give each a result of"
                " its own"
            )
        if not all(map(policy.allows, certificates)):
            raise InputError(
                "the certificate of the prototypes states another budget or model than the policy"
                " allows"
            )

    def _with(self, **changes: Any) -> Explanations:
        other = object.__new__(Explanations)
        other.__dict__.update(vars(self), **changes)
        return other

    def without_record(self) -> Explanations:
        """Return the same with everything withheld, as no record of it can be kept."""
        entries = tuple(Withheld(entry.query, "not_recorded") for entry in self._entries)
        return self._with(_entries=entries, findings=(None,) * len(entries))

    @property
    def released(self) -> tuple[Released, ...]:
        """The entries that are released, of either kind."""
        return tuple(e for e in self._entries if not isinstance(e, Withheld))

    @property
    def generalized(self) -> tuple[GeneralizedCounterfactual, ...]:
        """The released entries that are regions: those with k, NCP and pureness."""
        return tuple(e for e in self._entries if isinstance(e, GeneralizedCounterfactual))

    @property
    def prototypes(self) -> tuple[PrototypeCounterfactual, ...]:
        """The released entries that are prototypes: those with epsilon and delta."""
        return tuple(e for e in self._entries if isinstance(e, PrototypeCounterfactual))

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        """The entries that are withheld."""
        return tuple(e for e in self._entries if isinstance(e, Withheld))

    @property
    def short_catalogue(self) -> ShortCatalogue | None:
        """What a short part of a catalogue leaves out and costs; None where entries are all there
        are.
        """
        return self.about.short_catalogue

    def for_query(self, query: int) -> tuple[Explanation, ...]:
        """Return the entries that answer one query."""
        return tuple(e for e in self._entries if e.query == query)

    def by_group(self, attribute: str, labels: Sequence[Any] | pd.Series) -> Explanations:
        """Return the same explanations with the group of each person who asked, for a run's figures
        by group.

        A label is a value of the person who asks. It is logged as it is, but not in `to_frame` and
        `to_json`.

        Parameters
        ----------
        attribute : str
            Attribute that defines the groups, for example ``sex``; one whose values you may store.
        labels : sequence
            One per query, in their order, for example ``queries["sex"]``; a missing one is the
            group ``missing``.

        Returns
        -------
        Explanations

        Raises
        ------
        InputError
            If there are fewer labels than queries, or more than 50 different ones.
        """
        queries = [entry.query for entry in self._entries]
        return self._with(about=self.about.grouped(attribute, _labels(attribute, labels), queries))

    def text(
        self, queries: pd.DataFrame | None = None, wording: Wording | None = None
    ) -> list[str]:
        """Return the text of each entry for the person who asked, also of a withheld one.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features or more), optional
            The instances that were explained, in the same order. The texts then have the person's
            own values beside the new ones, and leave out what needs no change.
        wording : Wording, optional
            Other words, or another language, than the schema's.

        Returns
        -------
        list of str

        Raises
        ------
        InputError
            If `queries` is not a table with every feature, or has fewer rows than were asked about.
        """
        rows = None if queries is None else self.asked(queries)
        words = self.about.wording
        if wording is not None:
            words = require("wording", wording, Wording, 'give Wording(language="de", titles=...)')
        return [
            entry.text(None if rows is None else rows[entry.query], words)
            for entry in self._entries
        ]

    def __str__(self) -> str:
        """Return a table of what was released, with the reasons of what was not."""
        table = self.to_frame().head(_MOST_SHOWN).astype(object)
        figures = [name for name in _PRINTED_FIRST if table[name].notna().any()]
        features = [name for name in table.columns if name not in _FIRST_OR_NOT_PRINTED]
        table = table[[*figures, *features]]
        table = table.where(table.notna(), "")
        lines = [f"{counted(len(self), 'explanation')}: {self._counts()}"]
        if len(table):
            lines.append(table.to_string(index=False, float_format="{:.3g}".format, line_width=100))
        if len(self) > len(table):
            lines.append(f"{len(self) - len(table):,} more are not shown")
        return "\n".join(lines)

    def asked(self, queries: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the values of each query by feature; refused where they cannot be those that were
        asked.
        """
        table = require_features(queries, self.columns, "queries")
        columns = [table[name].tolist() for name in self.columns]
        rows = [
            dict(zip(self.columns, values, strict=True)) for values in zip(*columns, strict=True)
        ]
        if (last := max((entry.query for entry in self._entries), default=-1)) >= len(rows):
            raise InputError(
                f"{len(rows)} queries, and query {last} was answered; give all that were asked"
                " about"
            )
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: status, features as text, k, NCP, pureness (not of prototypes).

        May leave.

        A feature with the name of another column is ``feature.NAME``.
        """
        none = {"reason": None, **dict.fromkeys(_SHOWN)}
        rows = [
            (none if entry.status == "released" else {}) | entry.row(self.columns)
            for entry in self._entries
        ]
        own = ("query", "status", "reason", *_SHOWN)
        names = {name: name for name in own[:3]}
        names |= {
            f"feature.{name}": f"feature.{name}" if name in own else name for name in self.columns
        }
        names |= {name: name for name in _SHOWN}
        return pd.DataFrame(rows, columns=list(names)).set_axis(list(names.values()), axis=1)

    def audit_frame(self) -> pd.DataFrame:
        """Return every figure of every certificate and recount, and the detection's finding.

        For the data holder only.
        """
        rows = []
        for entry, finding in zip(self._entries, self.findings, strict=True):
            row: dict[str, Any] = {
                "query": entry.query,
                "status": entry.status,
                "finding": finding,
            }
            if isinstance(entry, Withheld):
                row["reason"] = entry.reason
            else:
                row |= _figures_of(entry)
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self, indent: int | None = None) -> str:
        """Return what may leave as JSON, by query; the format is the JSON Schema
        `explanations-2.schema.json`.
        """
        asked, policy = Counter(entry.query for entry in self._entries), self.policy
        short = self.short_catalogue
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "kind": self.about.kind,
                "policy": policy.to_dict(),
                **(
                    {}
                    if isinstance(policy, PrototypePolicy)
                    else {"least_pureness": policy.least_pureness}
                ),
                "columns": list(self.columns),
                **({} if short is None else {"short_catalogue": short.to_dict()}),
                "asked": [
                    {"query": query, "explanations": asked[query]} for query in sorted(asked)
                ],
                "explanations": [
                    entry.to_dict()
                    for entry in sorted(self._entries, key=lambda entry: entry.query)
                ],
            },
            indent=indent,
            allow_nan=False,
            ensure_ascii=False,
        )

    def _column(self, figure: str) -> list[Any]:
        """Return a figure of every released region."""
        on_certificate = hasattr(Certificate, figure)
        return [
            getattr(entry.certificate if on_certificate else entry.recount, figure)
            for entry in self.generalized
        ]

    def summary(self) -> ExplanationSummary:
        """Return the figures of the whole set, which `docs/reference/metrics.md` defines.

        Returns
        -------
        ExplanationSummary
            A dict, which a notebook shows as a table. Counts (``asked``, ``released``,
            ``withheld``, ``reasons``, ``prototypes``);
            ``withheld_rate`` of those who needed an answer, which leaves out ``already_desired``;
            figures of the released regions, None over none; rates of what detection found;
            ``released_native``, which must be 0; ``epsilon`` and ``delta`` of all prototypes
            together, None where nothing is guaranteed.
        """
        certificates = [entry.certificate for entry in self.generalized]
        k = None if isinstance(self.policy, PrototypePolicy) else self.policy.k
        proven = next(
            (e.certificate for e in self.prototypes if e.certificate.guarantee != "none"), None
        )
        found = self._found()
        sample = self.about.sample
        reasons = Counter(e.reason for e in self.withheld)
        # nobody is left without an answer whose outcome is the desired one already
        needed = len(self) - reasons[ALREADY_DESIRED]
        refused = len(self.withheld) - reasons[ALREADY_DESIRED]
        summary = {
            "asked": len(self),
            "released": len(self.released),
            "withheld": len(self.withheld),
            "reasons": dict(reasons),
            **figures({name: self._column(name) for name in FIELDS}),
            "cdm": None if k is None else sum(c.k for c in certificates) + self.n_people * refused,
            **rates(found if found["examined"] or sample is None else sample),
            "sampled": None if sample is None else sample["examined"],
            "withheld_rate": refused / needed if needed else None,
            "released_native": sum(c.k < k for c in certificates if k is not None),
            "prototypes": len(self.prototypes),
            "epsilon": None if proven is None else proven.epsilon,
            "delta": None if proven is None else proven.delta,
        }
        return ExplanationSummary(summary)

    def still_true(
        self,
        model: Any,
        queries: pd.DataFrame | None = None,
        *,
        desired: Any = None,
        threshold: float | None = None,
    ) -> StillTrue:
        """Count the answers that are still true for another model, such as one trained again.

        An answer is still true if the model gives the outcome it was made for to the person who
        did what it says: who moved to the permitted point of the region that is nearest to the
        query, with the private values that were released. An entry of a published catalogue is
        still true if, of the value combinations of its region, at least the policy's least
        pureness get the outcome. The model's own outcome decides, without any margin. What was
        withheld is not counted.

        Judge survival with models that did not choose the answers. A model that did says nothing
        of the next one.

        Parameters
        ----------
        model : estimator, callable or pyfunc
            As for `protect`.
        queries : DataFrame, shape (n, n_features or more), optional
            The instances that were explained, in the same order. They are not kept, so give them
            again; a published catalogue and prototypes need none.
        desired : label, set, range or callable, optional
            The outcome that the answers were made for. It is needed only where they do not say:
            if a function decided, and for prototypes made for ``"opposite"``.
        threshold : float, optional
            As for `protect`, for a model that returns probabilities.

        Returns
        -------
        StillTrue

        Raises
        ------
        InputError
            If queries are needed and missing, or lack features, or an outcome is not known.
        ModelError
            If the model cannot be asked about these features, or has no such outcome.

        Examples
        --------
        >>> from cfk_plugin import PrivacyPolicy
        >>> nothing = Explanations([], policy=PrivacyPolicy(), columns=["age"])
        >>> nothing.still_true(lambda rows: rows["age"] > 30).answers
        0
        """
        answers = answers_of(self._entries)
        judge = NewModel(model, threshold, self.columns, answers, desired)
        if isinstance(self.policy, PrototypePolicy):
            rows = [answer.values for answer in answers]
            table = pd.DataFrame(rows, columns=list(self.columns))
            return still_true_at(table, answers, self.policy, judge)
        if not answers:
            return still_true_at(pd.DataFrame(), answers, self.policy, judge)
        encoder = self.about.encoder
        if encoder is None:
            raise InputError(
                "these explanations were made by hand and do not know the population's values; ask"
                " those that an explainer or an anonymizer returned"
            )
        if self.about.kind == "catalogue":
            floor = self.policy.least_pureness
            return still_true_within(encoder, answers, self.policy, floor, judge)
        if queries is None:
            raise InputError(
                "explanations do not keep what was asked: give queries=, the instances that were"
                " explained, in the same order"
            )
        self.asked(queries)
        points = rows_asked_for(answers, queries, encoder, self.about.rules)
        return still_true_at(points, answers, self.policy, judge)

    def to_record(self) -> RunRecord:
        """Return what is logged of them, as plain values."""
        policy, provenance, about = self.policy, self.provenance, self.about
        params = {
            f"cfk.{name}": str(provenance[name]) for name in _SETTINGS if provenance.get(name)
        }
        params |= {"cfk.groups": about.attribute} if about.attribute else {}
        tags = {"cfk.policy_sha256": policy.sha256, "cfk.plugins": provenance.get("plugins", "")}
        spent, quasi, people = (
            provenance.get("epsilon_spent"),
            self._quasi_identifiers(),
            self.n_people,
        )
        recount = self._audit_rows(quasi)
        if isinstance(policy, PrototypePolicy):
            # No fingerprint and no number of people: they depend on the exact table, which no
            # epsilon covers.
            certificate, people = next((entry.certificate for entry in self.prototypes), None), 0
            spent = None if certificate is not None and certificate.guarantee == "none" else spent
            more, marks = policy.settings(certificate)
        else:
            prints = sorted({entry.certificate.population for entry in self.generalized})
            more = {
                "cfk.k": str(policy.k),
                "cfk.guarantee": str(policy.guarantee),
                FLOOR: str(policy.least_pureness),
            }
            marks = {"cfk.population_fingerprint": provenance.get("population") or ",".join(prints)}
        return RunRecord(
            params=params | more,
            tags={
                "cfk.schema_version": str(RUN_VERSION),
                **{name: value for name, value in (tags | marks).items() if value},
            },
            policy=policy.to_dict(),
            columns=list(self.columns),
            rows=[
                entry.row_to_log(self.columns, own)
                for entry, own in zip(
                    self._entries, about.own or repeat(frozenset()), strict=bool(about.own)
                )
            ],
            found=self._found(),
            epsilon_spent=None if spent is None else float(spent),
            recount=recount,
            quasi_identifiers=quasi,
            people=people,
            population=None if about.population is None else dict(about.population),
            environment=None if about.environment is None else dict(about.environment),
            short_catalogue=(
                None
                if about.short_catalogue is None
                else about.short_catalogue.to_log(self.generalized)
            ),
            sample=None if about.sample is None else dict(about.sample),
        )

    def _found(self) -> dict[str, int]:
        found: Counter[str] = Counter(finding for finding in self.findings if finding is not None)
        return {"examined": found.total(), **found}

    def _quasi_identifiers(self) -> list[str]:
        """Return the attributes in the order of ``ncp_parts``, as far as they are known."""
        declared = (self.about.population or {}).get("attributes", ())
        if names := [each["name"] for each in declared if each["role"] == "quasi-identifier"]:
            return sorted(names)
        return sorted(next((entry.region for entry in self.generalized), {}))

    def _audit_rows(self, quasi: Sequence[str]) -> list[dict[str, Any]]:
        """Return one row per entry for the data holder, without missing figures; prototypes have no
        counts.
        """
        seconds = None if self.about.seconds is None else round(self.about.seconds, 6)
        rows = []
        groups = self.about.groups or (None,) * len(self)
        for entry, finding, group in zip(self._entries, self.findings, groups, strict=True):
            row: dict[str, Any] = {}
            if not isinstance(self.policy, PrototypePolicy) and not isinstance(
                entry, PrototypeCounterfactual
            ):
                row = {"finding": finding, **entry.audit_row(quasi)}
                if (
                    self.about.is_for_people
                    and row.get("k_consistent")
                    and promise_of(self.policy.guarantee).promises_true_answers
                ):
                    row["true"] = True
            row |= {"seconds": seconds, "group": group}
            rows.append({name: value for name, value in row.items() if value is not None})
        return rows

    def log(
        self,
        run_id: str | None = None,
        *,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Log parameters, metrics and the released records to MLflow now.

        Parameters
        ----------
        run_id : str, optional
            A run that exists. Default: the active run, or a new one.
        experiment : str, optional
            Experiment of a new run, created if need be; asks for a new run.
        tracking_uri : str, optional
            Default: MLflow's own setting.
        run_name : str, optional
            Name of a new run; asks for one, nested in the active run if there is one.
        tags : mapping, optional
            Further tags.

        Returns
        -------
        str
            The run's id.

        Raises
        ------
        TrackingError
            If MLflow does not take them, or the run holds explanations made with other settings.
        """
        if run_id is not None:
            require("run_id", run_id, str, "give the id of a run, or settings by name")
        return RunLogger(run_id, experiment, tracking_uri, run_name, tags).log(self)


_SHOWN = ("k", "ncp", "pureness", "pureness_low", "pureness_high")
_PRINTED_FIRST = ("query", "status", "reason", "k", "ncp", "pureness")
_FIRST_OR_NOT_PRINTED = (*_PRINTED_FIRST, "pureness_low", "pureness_high")
_SETTINGS = ("method", "generator", "start", "epsilon")


def _figures_of(entry: GeneralizedCounterfactual | PrototypeCounterfactual) -> dict[str, Any]:
    """Return the figures of a released entry, among them those for the data holder alone."""
    found = entry.certificate.to_dict()
    if isinstance(entry, GeneralizedCounterfactual):
        found["prosecutor_risk"] = entry.certificate.prosecutor_risk
        found |= entry.recount.to_dict()
    return found


def class_sizes_of(explanations: Explanations | Sequence[int]) -> list[int]:
    if isinstance(explanations, Explanations):
        _refuse_prototypes(explanations)
        return [entry.certificate.k for entry in explanations.generalized]
    sizes = [int(size) for size in explanations]
    if sizes and min(sizes) < 1:
        raise InputError("each class needs at least one person")
    return sizes


def risk_by_group_size(explanations: Explanations | Sequence[int]) -> pd.DataFrame:
    """Return, by number of people, how many explanations were released, and their risk.

    For the data holder.
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
    metrics: Sequence[str] = ("k", "ncp", "pureness", "withheld"),
    *,
    random_state: int = 0,
) -> dict[str, tuple[GroupGap, ...]]:
    """Return how every group of those who asked differs in each metric: "k", "ncp", "pureness",
    "withheld".

    For the data holder. Groups of fewer than 11 are pooled; see `cfk_plugin.metrics.group_gap`.
    `groups` has the group of the person who asked, one per entry; missing is a group of its own. A
    withheld entry has none of the first three metrics, and 1 for the last; the last leaves out
    entries whose query already has the desired outcome. Raises `InputError` if
    the explanations are prototypes, a metric is unknown, or the groups are not one per entry.
    """
    _refuse_prototypes(explanations)
    if unknown := [name for name in metrics if name not in _METRICS]:
        raise InputError(
            f"unknown metric {', '.join(unknown)}; known: {', '.join(_METRICS)}"
            f"{did_you_mean(unknown, _METRICS)}"
        )
    values = {name: [_figure(entry, name) for entry in explanations] for name in metrics}
    return {
        name: group_gap(found, groups, random_state=random_state) for name, found in values.items()
    }


_METRICS = ("k", "ncp", "pureness", "withheld")


def _figure(entry: Explanation, name: str) -> float:
    if name == "withheld":
        if isinstance(entry, Withheld) and entry.reason == ALREADY_DESIRED:
            return math.nan
        return float(isinstance(entry, Withheld))
    return (
        float(getattr(entry.certificate, name))
        if isinstance(entry, GeneralizedCounterfactual)
        else math.nan
    )


def _refuse_prototypes(explanations: Explanations) -> None:
    if isinstance(explanations.policy, PrototypePolicy):
        raise InputError(
            "prototypes stand for nobody: there are no people to count and nothing is generalised; "
            "see epsilon and delta in summary()"
        )
