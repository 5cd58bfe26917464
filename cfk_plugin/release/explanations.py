"""The result of a call: an immutable sequence of explanations with its figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import pandas as pd

from cfk_plugin.data.display import card, table
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Interval
from cfk_plugin.data.tables import require_features
from cfk_plugin.data.values import cells_of
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import HostOnly, InputError, counted, require
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.release.explanation_tables import (
    audit_table_of,
    notebook_row,
    printed,
    table_of,
    text_table_of,
)
from cfk_plugin.release.request import Groups
from cfk_plugin.release.result_context import Kind, ResultContext
from cfk_plugin.release.results import (
    Explanation,
    GeneralizedCounterfactual,
    Policy,
    PrototypeCertificate,
    PrototypeCounterfactual,
    PrototypePolicy,
    RegionRecount,
    Released,
    Withheld,
)
from cfk_plugin.tracking.logger import RunLogger
from cfk_plugin.tracking.record import FLOOR, RunRecord
from cfk_plugin.tracking.record import SCHEMA_VERSION as RUN_VERSION
from cfk_plugin.tracking.tally import FIELDS, figures, rates

__all__ = [
    "SCHEMA_VERSION",
    "Explanations",
    "Kind",
    "ResultContext",
    "class_sizes_of",
]

_MOST_SHOWN = 20
_FIGURES_OF_REGIONS = (
    "k: least number of people in the region. NCP: width of the region, from 0 (one value) to 1"
    " (all values). Pureness: share of the combinations in the region with the outcome."
)

SCHEMA_VERSION = 1
"""Version of the layout of `Explanations.to_json`."""

_SETTINGS = ("method", "generator", "epsilon")  # keys of `provenance` that a run logs


class Explanations(HostOnly, Sequence[Explanation]):
    """Explanations in the order of the call. Each is released with a certificate, or withheld.

    All released explanations are of one kind: regions if the policy is a `PrivacyPolicy`, or
    prototypes of one fit if it is a `PrototypePolicy`.

    `to_frame`, `to_json` and `text` contain only what the recipient may see. The object itself also
    has exact counts, for the data holder only: it cannot be pickled.

    Parameters
    ----------
    entries : sequence of GeneralizedCounterfactual, PrototypeCounterfactual or Withheld
    policy : PrivacyPolicy or PrototypePolicy
    columns : sequence of str
        Features in the training table's order.
    findings : sequence, optional
        Whether each raw counterfactual equals a training row, for the data holder only.
    n_people : int, optional
        Number of people in the population, for the discernibility metric.
    provenance : mapping of str, optional
        Settings that a run logs: method, generator, plugins.
    about : ResultContext, optional
        Further context that a run logs.

    Raises
    ------
    InputError
        If an explanation does not fit the policy, prototypes are of several fits, or the number of
        findings differs from the number of explanations.

    Examples
    --------
    >>> from cfk_plugin import Explanations, PrivacyPolicy, Withheld
    >>> explanations = Explanations(
    ...     [Withheld(0, "infeasible")], policy=PrivacyPolicy(), columns=["age"]
    ... )
    >>> explanations[0].reason
    'infeasible'
    >>> explanations.summary()["withheld_rate"]
    1.0
    """

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
        self.policy = policy
        self.columns = tuple(columns)
        if findings is None:
            findings = [None] * len(entries)
        self.findings = tuple(findings)
        self.n_people = n_people
        self.provenance = {} if provenance is None else dict(provenance)
        self.about = ResultContext() if about is None else about
        explanations: list[Explanation] = []
        for entry in entries:
            if isinstance(entry, Withheld):
                explanations.append(entry.with_wording(self.about.wording))
            else:
                explanations.append(entry)
        self._explanations = tuple(explanations)
        # the applicants' values by query, only after `compare`
        self._shown_queries: list[dict[str, Any]] | None = None
        self._check()

    def _check(self) -> None:
        """Raise `InputError` if explanations do not fit together, or do not fit the policy."""
        if len(self.findings) != len(self._explanations):
            raise InputError("give one finding for each explanation")
        kind: type[Released] = GeneralizedCounterfactual
        if isinstance(self.policy, PrototypePolicy):
            kind = PrototypeCounterfactual
        if not {kind, Withheld}.issuperset(map(type, self._explanations)):
            raise InputError(
                f"with a {type(self.policy).__name__}, explanations must be {kind.__name__} or"
                " Withheld; make one Explanations for each kind"
            )
        if isinstance(self.policy, PrototypePolicy):
            self._check_fit(self.policy)

    def _check_fit(self, policy: PrototypePolicy) -> None:
        """Raise `InputError` if prototypes are of several fits or exceed the policy's budget."""
        certificates = {prototype.certificate for prototype in self.prototypes}
        if len(certificates) > 1:
            raise InputError(
                "the prototypes are of several fits, and each fit has its budget; make one"
                " Explanations for each fit"
            )
        if not all(map(policy.allows, certificates)):
            raise InputError(
                "the certificate of the prototypes has a budget or a model that the policy does not"
                " allow; use the policy of their fit"
            )

    def __len__(self) -> int:
        return len(self._explanations)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        """Return one explanation, or a slice as `Explanations`."""
        if not isinstance(index, slice):
            return self._explanations[index]
        return self._with(
            _explanations=self._explanations[index],
            findings=self.findings[index],
            about=self.about.sliced(index),
        )

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self._explanations)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanations):
            return NotImplemented
        return self._explanations == other._explanations and self.policy == other.policy

    __hash__ = None  # type: ignore[assignment]

    def _counts(self) -> str:
        return f"{len(self.released)} released, {len(self.withheld)} withheld"

    def _repr_html_(self) -> str:
        """Return an HTML table; it shows the applicants' values only after `compare`."""
        figures: tuple[str, ...] = ("k", "ncp", "pureness")
        meaning = _FIGURES_OF_REGIONS
        if isinstance(self.policy, PrototypePolicy):
            figures = ("epsilon",)
            meaning = "epsilon: the privacy budget of these prototypes."
        rows = []
        for explanation in self._explanations[:_MOST_SHOWN]:
            query = None
            if self._shown_queries is not None:
                query = self._shown_queries[explanation.query]
            rows.append(notebook_row(explanation, self.columns, figures, query))
        notes = [meaning]
        if len(self) > len(rows):
            notes.append(f"{len(self) - len(rows):,} more are not shown.")
        if self._shown_queries is None:
            notes.append("compare(queries) marks the changes, if readers may see the queries.")
        # Figures are before the features, so that a wide table does not hide them.
        titles = [name.replace("ncp", "NCP") for name in figures]
        head = ("query", *titles, *self.columns)
        return card(
            f"{counted(len(self), 'explanation')}: {self._counts()}",
            table(head, rows),
            note=" ".join(notes),
        )

    def compare(self, queries: pd.DataFrame) -> Explanations:
        """Return the same explanations; a notebook shows them with the applicants' values.

        The notebook marks each changed value. Use it only if every reader of the notebook may see
        the queries: public data, for example. No other output shows these values.

        Parameters
        ----------
        queries : DataFrame
            As for `text`.

        Returns
        -------
        Explanations
        """
        return self._with(_shown_queries=self._values_of_queries(queries))

    def _with(self, **changes: Any) -> Explanations:
        """Return a copy with some attributes changed, which are not checked again."""
        copy = object.__new__(Explanations)
        copy.__dict__.update(vars(self), **changes)
        return copy

    def without_record(self) -> Explanations:
        """Return the result with every explanation withheld, because it could not be recorded."""
        withheld = tuple(
            Withheld(explanation.query, "not_recorded", wording=self.about.wording)
            for explanation in self._explanations
        )
        return self._with(_explanations=withheld, findings=(None,) * len(withheld))

    @property
    def released(self) -> tuple[Released, ...]:
        """The released explanations of both kinds."""
        return tuple(
            explanation
            for explanation in self._explanations
            if not isinstance(explanation, Withheld)
        )

    @property
    def generalized(self) -> tuple[GeneralizedCounterfactual, ...]:
        """The released explanations that are regions, with k, NCP and pureness."""
        return tuple(
            explanation
            for explanation in self._explanations
            if isinstance(explanation, GeneralizedCounterfactual)
        )

    @property
    def prototypes(self) -> tuple[PrototypeCounterfactual, ...]:
        """The released explanations that are prototypes, with epsilon and delta."""
        return tuple(
            explanation
            for explanation in self._explanations
            if isinstance(explanation, PrototypeCounterfactual)
        )

    @property
    def withheld(self) -> tuple[Withheld, ...]:
        """The withheld explanations."""
        return tuple(
            explanation for explanation in self._explanations if isinstance(explanation, Withheld)
        )

    def for_query(self, query: int) -> tuple[Explanation, ...]:
        """Return the explanations that answer the query at this position."""
        return tuple(
            explanation for explanation in self._explanations if explanation.query == query
        )

    def by_group(self, attribute: str, labels: Sequence[Any] | pd.Series) -> Explanations:
        """Return the same explanations with each applicant's group, for figures of a run by group.

        A label is a value of the applicant, and a run logs it. It is not in `to_frame` or
        `to_json`.

        Parameters
        ----------
        attribute : str
            Attribute that defines the groups, for example ``sex``. You need the permission to store
            its values.
        labels : sequence
            One label for each query, in their order, for example ``queries["sex"]``. A missing
            label is the group ``missing``.

        Returns
        -------
        Explanations

        Raises
        ------
        InputError
            If there are fewer labels than queries, or more than 50 different labels.
        """
        groups = Groups.of(attribute, labels)
        return self._with(about=self.about.grouped(groups, self._explanations))

    def text(
        self, queries: pd.DataFrame | None = None, wording: Wording | None = None
    ) -> list[str]:
        """Return the text of each explanation for the applicant; withheld ones have a text too.

        Parameters
        ----------
        queries : DataFrame, shape (n_queries, n_features or more), optional
            The explained instances, in the same order. Each text then has the applicant's value
            next to the new value, and omits features that need no change.
        wording : Wording, optional
            The words and language to use, instead of those of the schema.

        Returns
        -------
        list of str

        Raises
        ------
        InputError
            If `queries` is not a table with every feature, or lacks a query that was explained.
        """
        rows = None if queries is None else self._values_of_queries(queries)
        if wording is None:
            wording = self.about.wording
        else:
            require("wording", wording, Wording, 'give Wording(language="de", titles=...)')
        if rows is None:
            return [explanation.text(None, wording) for explanation in self._explanations]
        return [
            explanation.text(rows[explanation.query], wording) for explanation in self._explanations
        ]

    def __str__(self) -> str:
        """Return a table of the explanations, with the reason of each withheld explanation."""
        table = self.to_frame(text=True).head(_MOST_SHOWN)
        lines = [f"{counted(len(self), 'explanation')}: {self._counts()}"]
        if len(table):
            lines.append(printed(table))
        if len(self) > len(table):
            lines.append(f"{len(self) - len(table):,} more are not shown")
        return "\n".join(lines)

    def _values_of_queries(self, queries: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the values of each query by feature.

        Raises `InputError` if a feature or a query is missing.
        """
        table = require_features(queries, self.columns, "queries")
        columns = [cells_of(table[name]) for name in self.columns]
        rows = [
            dict(zip(self.columns, values, strict=True)) for values in zip(*columns, strict=True)
        ]
        last = max((explanation.query for explanation in self._explanations), default=-1)
        if last >= len(rows):
            raise InputError(
                f"there are {len(rows)} queries, but query {last} was explained; give all queries"
                " of the call"
            )
        return rows

    def to_frame(self, *, text: bool = False) -> pd.DataFrame:
        """Return a table with one row per explanation: status, features, k, NCP and pureness.

        The recipient may see the table. Prototypes have no k, NCP and pureness.

        Parameters
        ----------
        text : bool
            Whether each feature is one column of text, and the rows are numbered from 0. If a
            feature has the name of another column, its column is ``feature.NAME``.

        Returns
        -------
        DataFrame, shape (n_explanations, n_columns)
            The index has the labels of the queries in the table of the call.
            A number, a date or an ordinal feature has three columns: ``NAME_low`` and ``NAME_high``
            are the ends of its range, both included, and ``NAME_value`` is the advised or private
            value. Any other feature has two columns: ``NAME_set``, a list of values, and
            ``NAME_value``. All columns of a private feature have the same value. Published entries
            and lookups advise no value of a quasi-identifier, so it is missing. If the advised
            value is the applicant's own, it may be outside the range.
        """
        if text:
            return text_table_of(self._explanations, self.columns)
        return table_of(self._explanations, self.columns, self._ranges(), self.about.index)

    def _ranges(self) -> set[str]:
        """Return the features with a low and a high end: numbers, dates and ordinal features."""
        if self.about.population is not None:
            declared = self.about.population.get("attributes", [])
            kinds = {attribute["name"]: attribute["kind"] for attribute in declared}
            return {name for name, kind in kinds.items() if kind in ("numeric", "ordinal")}
        return {
            name
            for explanation in self.released
            for name, part in explanation.parts().items()
            if isinstance(part, Interval)
        }

    def audit_frame(self) -> pd.DataFrame:
        """Return a table with all figures of each explanation, for the data holder only.

        It has the figures of the certificate and the recount, and whether the raw counterfactual
        equals a training row.
        """
        return audit_table_of(self._explanations, self.findings)

    def to_json(self, indent: int | None = None) -> str:
        """Return the content that the recipient may see as JSON, ordered by query.

        The format is described by the JSON Schema `explanations-1.schema.json`.
        """
        return json.dumps(self._content(), indent=indent, allow_nan=False, ensure_ascii=False)

    def to_json_with_sentences(
        self, queries: pd.DataFrame | None = None, wording: Wording | None = None
    ) -> str:
        """Return the JSON of `to_json` with the sentence of each explanation; see `text`."""
        content = self._content()
        sentences = zip(self._explanations, self.text(queries, wording), strict=True)
        by_query = sorted(sentences, key=lambda pair: pair[0].query)
        for entry, (_, sentence) in zip(content["explanations"], by_query, strict=True):
            entry["sentence"] = sentence
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)

    def _content(self) -> dict[str, Any]:
        """Return the content of `to_json`."""
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "kind": self.about.kind,
            "policy": self.policy.to_dict(),
        }
        if not isinstance(self.policy, PrototypePolicy):
            content["least_pureness"] = self.policy.least_pureness
        content["columns"] = list(self.columns)
        by_query = sorted(self._explanations, key=lambda explanation: explanation.query)
        content["explanations"] = [explanation.to_dict() for explanation in by_query]
        return content

    def _column(self, figure: str) -> list[Any]:
        """Return a figure of each released region, from its recount or its certificate."""
        if hasattr(RegionRecount, figure):
            return [getattr(explanation.recount, figure) for explanation in self.generalized]
        return [getattr(explanation.certificate, figure) for explanation in self.generalized]

    def summary(self) -> dict[str, Any]:
        """Return the figures of all explanations together.

        They are defined in docs/reference/metrics.md.

        Returns
        -------
        dict
            Counts: ``asked`` (all explanations), ``released``, ``withheld``, ``reasons`` (a dict),
            ``prototypes``. ``withheld_rate`` leaves out queries that have the desired outcome
            already. Figures of the released regions, such as ``k_min`` and ``ncp_mean``, are None
            if there are none. Rates of raw counterfactuals that equal training rows.
            ``released_native`` must be 0. ``epsilon`` and ``delta`` are the budget of all
            prototypes together; None if there is no guarantee.
        """
        n_of_reason = Counter(explanation.reason for explanation in self.withheld)
        # A query that has the desired outcome already needs no explanation.
        n_needed = len(self) - n_of_reason[ALREADY_DESIRED]
        n_refused = len(self.withheld) - n_of_reason[ALREADY_DESIRED]
        cdm = None
        n_below_k = 0
        if not isinstance(self.policy, PrototypePolicy):
            sizes = [explanation.recount.k for explanation in self.generalized]
            cdm = sum(sizes) + self.n_people * n_refused
            n_below_k = sum(size < self.policy.k for size in sizes)
        epsilon = None
        delta = None
        certificate = self._prototype_certificate()
        if certificate is not None and certificate.guarantee != "none":
            epsilon = certificate.epsilon
            delta = certificate.delta
        withheld_rate = n_refused / n_needed if n_needed else None
        n_of_finding = self._n_of_finding()
        sample = self.about.sample
        n_sampled = None if sample is None else sample["examined"]
        if n_of_finding["examined"] == 0 and sample is not None:
            n_of_finding = dict(sample)
        summary: dict[str, Any] = {
            "asked": len(self),
            "released": len(self.released),
            "withheld": len(self.withheld),
            "reasons": dict(n_of_reason),
            **figures({name: self._column(name) for name in FIELDS}),
            "cdm": cdm,
            **rates(n_of_finding),
            "sampled": n_sampled,
            "withheld_rate": withheld_rate,
            "released_native": n_below_k,
            "prototypes": len(self.prototypes),
            "epsilon": epsilon,
            "delta": delta,
        }
        return summary

    def to_record(self) -> RunRecord:
        """Return the record of the explanations that a run logs."""
        context = self.about
        quasi_identifiers = self._quasi_identifiers()
        rows = [
            {**explanation.row_to_log(self.columns), **counts}
            for explanation, counts in zip(
                self._explanations, self._audit_rows(quasi_identifiers), strict=True
            )
        ]
        population = None if context.population is None else dict(context.population)
        environment = None if context.environment is None else dict(context.environment)
        sample = None if context.sample is None else dict(context.sample)
        return RunRecord(
            params=self._logged_settings(),
            tags=self._logged_tags(),
            policy=self.policy.to_dict(),
            columns=list(self.columns),
            rows=rows,
            n_of_finding=self._n_of_finding(),
            epsilon_spent=self._epsilon_spent(),
            quasi_identifiers=quasi_identifiers,
            population=population,
            environment=environment,
            sample=sample,
        )

    def _prototype_certificate(self) -> PrototypeCertificate | None:
        """Return the certificate of all prototypes, or None if no prototype was released."""
        prototypes = self.prototypes
        return prototypes[0].certificate if prototypes else None

    def _logged_settings(self) -> dict[str, str]:
        """Return the parameters of a run."""
        settings = {
            f"cfk.{name}": str(self.provenance[name])
            for name in _SETTINGS
            if self.provenance.get(name)
        }
        if self.about.attribute:
            settings["cfk.groups"] = self.about.attribute
        for name in ("model", "seed"):
            value = (self.about.environment or {}).get(name)
            if value is not None:
                settings[f"cfk.{name}"] = str(value)
        if isinstance(self.policy, PrototypePolicy):
            of_policy, _ = self.policy.settings(self._prototype_certificate())
            return settings | of_policy
        for name, value in self.policy.to_dict().items():
            if value is not None:
                settings[f"cfk.{name}"] = str(value)
        settings[FLOOR] = str(self.policy.least_pureness)
        return settings

    def _logged_tags(self) -> dict[str, str]:
        """Return the tags of a run, without empty ones."""
        tags = {
            "cfk.schema_version": str(RUN_VERSION),
            "cfk.policy_sha256": self.policy.sha256,
            "cfk.plugins": self.provenance.get("plugins", ""),
        }
        if isinstance(self.policy, PrototypePolicy):
            # No fingerprint of the population: it depends on the exact table, and no epsilon
            # covers that.
            _, of_policy = self.policy.settings(self._prototype_certificate())
            tags |= of_policy
        else:
            fingerprints = sorted(
                {explanation.certificate.population for explanation in self.generalized}
            )
            population = self.provenance.get("population") or ",".join(fingerprints)
            tags["cfk.population_fingerprint"] = population
        return {name: value for name, value in tags.items() if value}

    def _epsilon_spent(self) -> float | None:
        """Return the epsilon spent so far, or None if there is no budget or no guarantee."""
        certificate = self._prototype_certificate()
        if certificate is not None and certificate.guarantee == "none":
            return None
        spent = self.provenance.get("epsilon_spent")
        return None if spent is None else float(spent)

    def _n_of_finding(self) -> dict[str, int]:
        """Return the number of raw counterfactuals that were compared, and that of each finding."""
        findings: Counter[str] = Counter(
            finding for finding in self.findings if finding is not None
        )
        return {"examined": findings.total(), **findings}

    def _quasi_identifiers(self) -> list[str]:
        """Return the quasi-identifiers in the order of ``ncp_parts``; empty if they are unknown."""
        declared: Sequence[Mapping[str, Any]] = []
        if self.about.population is not None:
            declared = self.about.population.get("attributes", [])
        names = [
            attribute["name"] for attribute in declared if attribute["role"] == "quasi-identifier"
        ]
        generalized = self.generalized
        if not names and generalized:
            names = list(generalized[0].region)
        return sorted(names)

    def _audit_rows(self, quasi_identifiers: Sequence[str]) -> list[dict[str, Any]]:
        """Return the figures of each explanation for the data holder only, without missing ones."""
        seconds = None if self.about.seconds is None else round(self.about.seconds, 6)
        groups: Sequence[str | None] = self.about.groups
        if not groups:
            groups = [None] * len(self)
        rows = []
        for explanation, finding, group in zip(
            self._explanations, self.findings, groups, strict=True
        ):
            row = self._audit_counts(explanation, finding, quasi_identifiers)
            row["seconds"] = seconds
            row["group"] = group
            rows.append({name: value for name, value in row.items() if value is not None})
        return rows

    def _audit_counts(
        self,
        explanation: Explanation,
        finding: NativeStatus | None,
        quasi_identifiers: Sequence[str],
    ) -> dict[str, Any]:
        """Return the finding and the counts of an explanation; a prototype has none."""
        if isinstance(self.policy, PrototypePolicy):
            return {}
        if isinstance(explanation, PrototypeCounterfactual):
            return {}
        row = {"finding": finding, **explanation.audit_row(quasi_identifiers)}
        promises_truth = promise_of(self.policy.guarantee).promises_true_answers
        if self.about.is_for_people and promises_truth and row.get("k_consistent"):
            row["true"] = True
        return row

    def log(
        self,
        run_id: str | None = None,
        *,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Log parameters, metrics and released explanations to MLflow.

        Parameters
        ----------
        run_id : str, optional
            The run to log to. By default, the active run, or a new run. If the run has explanations
            of another process or with other settings, these go to a child run.
        experiment : str, optional
            Begin a new run in this experiment, which is created if necessary.
        tracking_uri : str, optional
            The MLflow store; by default MLflow's own setting.
        run_name : str, optional
            Begin a new run with this name, nested in the active run if there is one.
        tags : mapping, optional
            Further tags of the run.

        Returns
        -------
        str
            The id of the run that contains the explanations.

        Raises
        ------
        TrackingError
            If MLflow does not accept them.
        """
        if run_id is not None:
            require("run_id", run_id, str, "give the id of a run, or settings by name")
        return RunLogger(run_id, experiment, tracking_uri, run_name, tags).log(self)


def class_sizes_of(explanations: Explanations | Sequence[int]) -> list[int]:
    """Return the number of people in each released region.

    Numbers instead of `Explanations` are checked and returned.
    """
    if isinstance(explanations, Explanations):
        _check_no_prototypes(explanations)
        return [explanation.recount.k for explanation in explanations.generalized]
    sizes = [int(size) for size in explanations]
    if sizes and min(sizes) < 1:
        raise InputError("a class size is below 1; each class needs at least one person")
    return sizes


def _check_no_prototypes(explanations: Explanations) -> None:
    if isinstance(explanations.policy, PrototypePolicy):
        raise InputError(
            "the explanations are prototypes, which have no region and no people in it; see epsilon"
            " and delta in summary()"
        )
