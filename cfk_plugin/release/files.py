"""The recount of a file of released explanations, for `cfk verify`.

1. The file is compared with its JSON Schema, and each entry with the columns of the training table.
2. The people of each region, its information loss and, with the model, its outcomes are counted
   again by `cfk_plugin.release.recount`, and compared with the certificate.

A file does not tell who wrote it, whether entries were removed, whether its policy is the agreed
one, and who the members of a region are. Here everyone inside counts as a member. Therefore `t` is
not checked for a catalogue's region, and `l` is checked with more people than before the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Codes, Column, Floats, Ints, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.formats import faults
from cfk_plugin.data.model import LabelModel, thresholded
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.outcome_model import N_CHECKED, IsDesired, Model
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Region, json_value, part_from_dict
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import require_features
from cfk_plugin.errors import HostOnly, InputError, ModelError, PolicyError, quiet
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.rebuilt_proposals import rebuilt_part
from cfk_plugin.release.recount import (
    OUTCOME_RULES,
    REGION_RULES,
    Advice,
    Claims,
    PeopleHere,
    Recounter,
    TrainingTable,
    is_t_close,
    region_figures,
    rounded_up,
)
from cfk_plugin.release.results import Policy, PrototypePolicy

_OF_THE_MODEL = ("pureness", "pureness_low", "pureness_high", "exact")
"""Figures of certificates that are counted again with the model."""
_OF_THE_TABLE = ("ncp", *_OF_THE_MODEL)
"""Figures of certificates that may differ if the table has changed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a file. It does not quote the content."""

    where: str  # the place: names of the format and of declared columns, and positions
    problem: str
    fails: bool = True  # if False, a person must review it


@dataclass(slots=True)
class FileRecount:
    """The faults of a file, and the properties that could not be checked.

    Attributes
    ----------
    findings : list of Finding
        The faults.
    unchecked : list of str
        Properties that could not be checked.
    n_people : list of int
        The number of people in each region that was counted.
    not_stopped : list of str
        Attacks that the policy does not stop.
    n_answers : int, optional
        The number of answers that were checked with the model; None without a model.
    untrue : list of int
        Positions, among all entries, of the answers without the outcome under the model.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    n_people: list[int] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)
    n_answers: int | None = None
    untrue: list[int] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether at least one finding fails."""
        return any(finding.fails for finding in self.findings)

    @property
    def verdict(self) -> str:
        """``fail``, ``review`` (a person must review the findings) or ``pass``."""
        if self.has_failed:
            return "fail"
        return "review" if self.findings else "pass"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {
            "verdict": self.verdict,
            "findings": [
                {"where": finding.where, "problem": finding.problem, "fails": finding.fails}
                for finding in self.findings
            ],
            "answers": self.n_answers,
            "untrue": self.untrue,
            "fewest_people": min(self.n_people, default=None),
            "not_stopped": self.not_stopped,
            "not_checked": self.unchecked,
        }


def recount(
    content: Mapping[str, Any],
    population: Population,
    *,
    model: Any = None,
    desired: Any = "opposite",
    threshold: float | None = None,
    queries: pd.DataFrame | None = None,
    k: int | None = None,
) -> FileRecount:
    """Count the explanations of a file again, and compare them with their certificates.

    It does not show who wrote the file, or whether entries were removed.

    Parameters
    ----------
    content : mapping
        The content of a file of `Explanations.to_json`.
    population : Population
        The training table.
    model : object with ``predict``, or callable, optional
        The model of the explanations, or one that was trained later. Without it, only people are
        counted.
    desired : label, set of labels, (low, high) or "opposite"
        The desired outcome, as for `KAnonymizer.fit`.
    threshold : float, optional
        As in `KAnonymizer.fit`.
    queries : DataFrame, optional
        The explained instances, in their order. The model then checks whether the answers are true
        for them.
    k : int, optional
        The number of people that each region must contain, if it is above the policy's k.

    Returns
    -------
    FileRecount
        Has ``verdict`` ("pass", "review" or "fail"), ``findings`` and ``unchecked``.

    Raises
    ------
    InputError
        If a feature or a query is missing in `queries`.

    Examples
    --------
    >>> import json
    >>> import pandas as pd
    >>> from cfk_plugin import Population, Schema, protect, recount
    >>> train = pd.DataFrame({"age": [24, 25, 26, 27, 50], "salary": [60, 60, 30, 80, 90]})
    >>> schema = Schema.from_frame(train, quasi_identifiers=["age"])
    >>> population = Population.from_frame(train, schema)
    >>> private = protect(model=lambda x: x.salary > 50, population=population, k=2, desired=True)
    >>> explanations = private.explain(pd.DataFrame({"age": [26], "salary": [30]}))
    >>> recount(json.loads(explanations.to_json()), population).verdict
    'pass'
    """
    report = FileRecount(findings=wrong_form(content, population.schema.features))
    if report.findings:
        report.unchecked.append("anything else, because the form is wrong")
        return report
    policy = _policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    report.unchecked.append("who wrote the file, and whether entries were removed or exchanged")
    report.unchecked.append("that its policy is the one that was agreed on")
    released = {
        i: entry for i, entry in enumerate(content["explanations"]) if entry["status"] == "released"
    }
    if not released:
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    if any("sentence" in entry for entry in released.values()):
        report.unchecked.append("that sentences say what their entries say")
    if sorted(content["columns"]) != sorted(population.schema.features):
        report.findings.append(Finding("columns", "are not the features of the schema"))
        return report
    label_source = None if model is None else thresholded(model, threshold)
    if isinstance(policy, PrototypePolicy):
        if k is not None or queries is not None:
            report.unchecked.append("--k and --queries, which prototypes do not need")
        _recount_prototypes(released, population, label_source, desired, report)
        return report
    report.not_stopped += policy.not_stopped
    required = policy if k is None else replace(policy, k=max(k, policy.k))
    regions = _Regions(content, population, policy, required, report)
    entries = regions.read(released)
    regions.count(entries)
    if label_source is None:
        report.unchecked.append("pureness (--model)")
    else:
        regions.check_outcomes(entries, label_source, desired, queries)
    return report


# The form


def wrong_form(content: Mapping[str, Any], columns: Sequence[str]) -> list[Finding]:
    """Return the faults of a file's form by its JSON Schema; they name only these columns."""
    form = f"explanations-{SCHEMA_VERSION}"
    findings = {
        Finding(_place(fault.path), fault.problem) for fault in faults(content, form, columns)
    }
    return sorted(findings, key=lambda finding: (finding.where, finding.problem))


def _place(path: Sequence[int | str]) -> str:
    """Return the text of a place in a file, such as "explanation 3, region.age"."""
    if len(path) > 1 and path[0] == "explanations":
        inside = ".".join(map(str, path[2:]))
        return f"explanation {path[1]}, {inside}".removesuffix(", ")
    return ".".join(map(str, path)) or "top"


def _policy_of(content: Mapping[str, Any]) -> Policy | None:
    """Return the policy of a file whose form is right; None if its settings are invalid."""
    settings = content["policy"]
    try:
        return PrototypePolicy(**settings) if "epsilon" in settings else PrivacyPolicy(**settings)
    except PolicyError:
        return None


def schema_in_file(content: Mapping[str, Any], rows: pd.DataFrame) -> Schema:
    """Return a schema for the training rows, with the columns and regions of a file.

    With this schema, every row is a person, and all quasi-identifiers have the same weight.

    Raises
    ------
    InputError
        If the file has no region or an ordinal column, or the rows lack a column.
    """
    columns = require_features(rows, content["columns"], "training rows")[content["columns"]]
    regions = [entry["region"] for entry in content["explanations"] if "region" in entry]
    if not regions:
        raise InputError(
            "the file has no region, which would name the quasi-identifiers; give --schema"
        )
    parts = [part for region in regions for part in region.items()]
    if any("levels" in part for _, part in parts):
        raise InputError("the file does not contain the order of all levels; give --schema")
    nominal = {name for name, part in parts if part["kind"] == "set"}
    return Schema.from_frame(columns, quasi_identifiers=list(regions[0]), nominal=sorted(nominal))


# Prototypes


def _recount_prototypes(
    released: Mapping[int, Mapping[str, Any]],
    population: Population,
    model: Any,
    desired: Any,
    report: FileRecount,
) -> None:
    """Check with the model whether prototypes have the outcome; there are no people to count."""
    problem = "prototypes have no people to count; see cfk audit epsilon"
    report.findings.append(Finding("explanations", problem, fails=False))
    features = list(population.schema.features)
    for i, entry in released.items():
        if sorted(entry["prototype"]) != sorted(features):
            report.findings.append(Finding(f"explanation {i}", "lacks features, or has others"))
    outcome = DesiredOutcome.of(desired)
    if model is None or outcome.needs_factual_labels:
        needed = "--model" if model is None else "--desired"
        report.unchecked.append(f"that answers are true for the model ({needed})")
        return
    if report.has_failed or not released:
        return
    values = pd.DataFrame([entry["prototype"] for entry in released.values()], dtype=object)
    labels = LabelModel(model, features, outcome)(population.conform(values)).astype(object)
    _report_answers([*released], outcome.is_met(labels), report)


def _report_answers(positions: Sequence[int], is_true: Mask, report: FileRecount) -> None:
    """Report answers that are not true; `positions` are theirs among all entries."""
    report.n_answers = (report.n_answers or 0) + len(positions)
    for position, has_outcome in zip(positions, is_true.tolist(), strict=True):
        if not has_outcome:
            report.untrue.append(position)
            problem = (
                "is not true: what it advises lacks the outcome under the model, or is outside its"
                " region"
            )
            report.findings.append(Finding(f"explanation {position}", problem))


# Regions


@dataclass(frozen=True, eq=False, repr=False)
class _Entry(HostOnly):
    """A released region of a file.

    Attributes
    ----------
    position : int
        Its position among all entries.
    content : mapping
        The entry in the file.
    region : Region
        The region, made of the training table's values.
    private : shape (n_private,)
        The codes of the private values.
    """

    position: int
    content: Mapping[str, Any]
    region: Region
    private: Floats

    @property
    def where(self) -> str:
        """The name of the entry in findings."""
        return f"explanation {self.position}"

    @property
    def outcome(self) -> Outcome:
        """The outcome in the entry."""
        return Outcome.of(self.content["outcome"])


@dataclass(frozen=True, eq=False, repr=False)
class _Regions(HostOnly):
    """The recount of a file of regions.

    Attributes
    ----------
    content : mapping
        The content of the file.
    population : Population
    policy : PrivacyPolicy
        The policy in the file.
    required : PrivacyPolicy
        The same policy with the user's k, if that is larger.
    report : FileRecount
        The findings are added to it.
    """

    content: Mapping[str, Any]
    population: Population
    policy: PrivacyPolicy
    required: PrivacyPolicy
    report: FileRecount

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.population.row_codes

    def read(self, released: Mapping[int, Mapping[str, Any]]) -> list[_Entry]:
        """Return the entries that can be counted, and report the faults of the others."""
        entries: list[_Entry] = []
        for position, content in released.items():
            try:
                region = self._region(content["region"])
                private = self._codes_of(content["released"], self.codes.private)
                if "advised" in content:
                    self._codes_of(content["advised"], self.codes.quasi)
                elif self._advises:
                    raise InputError("it advises no values")
                names = content.get("least", {})
                changed = [j for j, name in enumerate(self.codes.names) if name in names]
                self._codes_of(names, np.array(changed, dtype=np.int64))
            except InputError as error:
                self.report.findings.append(Finding(f"explanation {position}", str(error)))
            else:
                entries.append(_Entry(position, content, region, private))
        if not self.population.has_key:
            self.report.unchecked.append(
                "that this is the population of the certificates (set CFK_KEY)"
            )
        if promise_of(self.policy.guarantee).may_claim_optimality:
            self.report.unchecked.append("optimal and gap, which the method claims")
        return entries

    def _region(self, content: Mapping[str, Any]) -> Region:
        """Return the region of an entry; raise if it is not made of the columns' values."""
        columns = [column for column in self.codes.columns if column.is_quasi_identifier]
        if sorted(content) != sorted(column.name for column in columns):
            raise InputError("its region is not over the quasi-identifiers")
        parts = {}
        for column in columns:
            problem = f"its region of {column.name} is not one of a {column.attribute.kind} column"
            with quiet(problem, InputError):
                parts[column.name] = rebuilt_part(part_from_dict(content[column.name]), column)
            if Region(parts).to_dict()[column.name] != content[column.name]:
                raise InputError(problem)
        return Region(parts)

    def _codes_of(self, values: Mapping[str, Any], positions: Ints) -> Floats:
        """Return the codes of values by column, shape (n_columns,); raise for any other column."""
        columns = [self.codes.columns[j] for j in positions.tolist()]
        names = [column.name for column in columns]
        if set(values) != set(names):
            raise InputError(f"it must give values of {', '.join(names)}, and of no other column")
        codes = [_code_of(values[column.name], column) for column in columns]
        return np.array(codes, dtype=np.float64)

    def count(self, entries: Sequence[_Entry]) -> None:
        """Count people and information loss again."""
        for entry in entries:
            rows = self.codes.rows_inside(entry.region, self.population.coded_rows)
            region = region_figures(self.population, entry.region, rows, rows)
            self.report.n_people.append(region.n_people)
            for rule in REGION_RULES:
                # t-closeness is one of the members, whom a catalogue's file does not name
                is_checked = rule.is_met is not is_t_close or self._counts_everyone
                if is_checked and not rule.is_met(region, self.required):
                    self._find(entry, rule.fault)
            expected = {
                "k": self.policy.k,
                "ncp": rounded_up(region.ncp),
                "guarantee": self.policy.guarantee,
                "policy_hash": self.policy.sha256,
                "not_stopped": list(self.policy.not_stopped),
            }
            self._compare(entry, expected)
            if self.population.has_key and not self._is_of_table(entry):
                problem = "is about another population, or was made with another key"
                self.report.findings.append(Finding(entry.where, problem, fails=False))

    def _compare(self, entry: _Entry, expected: Mapping[str, Any]) -> None:
        """Report figures of a certificate that differ from the recount.

        If the table may have changed since, a difference is to be reviewed. It has not changed if
        the fingerprints are equal, or for a catalogue, which must always fit the table.
        """
        certificate = entry.content["certificate"]
        is_of_today = self._is_of_table(entry) or self._is_catalogue
        for name, figure in expected.items():
            if certificate[name] != figure:
                fails = is_of_today or name not in _OF_THE_TABLE
                problem = f"its certificate and the recount differ in {name}"
                self.report.findings.append(Finding(entry.where, problem, fails))

    def _is_of_table(self, entry: _Entry) -> bool:
        """Return whether a certificate has the fingerprint of the training table."""
        fingerprint = entry.content["certificate"]["population"]
        return self.population.has_key and bool(fingerprint == self.population.fingerprint)

    def _find(self, entry: _Entry, problem: str) -> None:
        self.report.findings.append(Finding(entry.where, problem))

    @property
    def _advises(self) -> bool:
        """Whether each explanation must advise a point."""
        promises_truth = promise_of(self.policy.guarantee).promises_true_answers
        return promises_truth and not self._is_catalogue

    @property
    def _counts_everyone(self) -> bool:
        return promise_of(self.policy.guarantee).counts_everyone_inside

    @property
    def _is_catalogue(self) -> bool:
        return bool(self.content["kind"] == "catalogue")

    # The model

    def check_outcomes(
        self,
        entries: Sequence[_Entry],
        model: Any,
        desired: Any,
        queries: pd.DataFrame | None,
    ) -> None:
        """Count outcomes again with the model, and check whether answers are true."""
        goal = DesiredOutcome.of(desired)
        if queries is not None:
            self.report.unchecked.append("that --queries are those that were answered")
        elif not self._is_catalogue:
            self.report.unchecked.append("that answers are true for the model (--queries)")
        for outcome in dict.fromkeys(entry.outcome for entry in entries):
            same_outcome = [entry for entry in entries if entry.outcome == outcome]
            if goal.common_outcome not in (None, Outcome(), outcome):
                for entry in same_outcome:
                    self._find(entry, "is about another outcome than --desired names")
                continue
            is_desired = _desired_test(outcome, goal)
            if is_desired is None:
                self._leave_unchecked(same_outcome, "names no outcome: name it with --desired")
                continue
            try:
                label_model = LabelModel(model, self.codes.names, None)
                _require_class(outcome, label_model)
                outcome_model = Model(self.codes, label_model, is_desired)
                outcome_model = outcome_model.checked(self.population.coded_rows[:N_CHECKED])
            except ModelError:  # its text may quote an outcome of the file
                self._leave_unchecked(same_outcome, "has an outcome that this model cannot give")
                continue
            self._count_outcomes(same_outcome, outcome_model)
            if queries is not None:
                self._check_points(same_outcome, outcome_model, queries)

    def _leave_unchecked(self, entries: Sequence[_Entry], problem: str) -> None:
        """Report entries that the model cannot check, so that a person reviews them."""
        for entry in entries:
            self.report.findings.append(Finding(entry.where, problem, fails=False))

    def _count_outcomes(self, entries: Sequence[_Entry], model: Model) -> None:
        """Count the people and combinations with an outcome again."""
        recounter = self._recounter(entries, model)
        private = np.stack([entry.private for entry in entries])
        outcomes = recounter.outcomes(Claims(np.arange(len(entries)), private))
        for i, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True)):
            for rule in OUTCOME_RULES:
                if not rule.is_met(outcome, self.required):
                    self._find(entry, rule.fault)
            certificate = recounter.certificate(i, outcome).to_dict()
            self._compare(entry, {name: certificate[name] for name in _OF_THE_MODEL})

    def _recounter(self, entries: Sequence[_Entry], model: Model) -> Recounter:
        """Return the recounter of entries with the same outcome; everyone inside is a member."""
        regions = [entry.region for entry in entries]
        return Recounter(
            model=model,
            policy=self.policy,
            people=PeopleHere(TrainingTable(self.population, model), regions),
            fingerprint=self.population.fingerprint,
        )

    def _check_points(self, entries: Sequence[_Entry], model: Model, queries: pd.DataFrame) -> None:
        """Check whether the advised points are true, permitted, and in their region.

        The margin is not checked, because the model may have been trained later.
        """
        answers = [entry for entry in entries if "advised" in entry.content]
        if not answers:
            return
        factuals = self._rows_of(queries, [entry.content["query"] for entry in answers])
        points = factuals.copy()
        for i, entry in enumerate(answers):
            advised = entry.content["advised"]
            points[i, self.codes.quasi] = self._codes_of(advised, self.codes.quasi)
            points[i, self.codes.private] = entry.private
        private = np.stack([entry.private for entry in answers])
        claims = Claims(np.arange(len(answers)), private)
        advice = Advice(points, Limits.of(self.codes, factuals))
        are_permitted, are_true = self._recounter(answers, model).check(claims, advice)
        for entry, is_permitted in zip(answers, are_permitted.tolist(), strict=True):
            if not is_permitted:
                self._find(entry, "advises a change that the schema excludes")
        _report_answers([entry.position for entry in answers], are_true, self.report)

    def _rows_of(self, queries: pd.DataFrame, numbers: list[int]) -> Floats:
        """Return the encoded queries at some positions, shape (n_numbers, n_features).

        Raises
        ------
        InputError
            If a query is missing, or has a value that cannot be read.
        """
        table = require_features(queries, self.codes.names, "queries")
        if max(numbers) >= len(table):
            raise InputError(
                f"there are {len(table)} queries, but query {max(numbers)} was explained; give all"
                " queries of the call, in their order"
            )
        rows = self.codes.encode(table.iloc[numbers])
        if np.isnan(rows).any():
            raise InputError(
                "queries: an explained query has a value that cannot be read, or that is not in"
                " the training table; give all queries of the call, in their order"
            )
        return rows


def _code_of(value: Any, column: Column) -> float:
    """Return the code of a value; raise if it is not a value of the column.

    A number must not be written as text. A date may have a time.
    """
    series = pd.Series([value], dtype=object)
    code = column.encode(series)
    has_fault = any(mask[0] for mask in column.faults(series, code).values())
    is_date = column.kind == "date"
    if has_fault or (not is_date and json_value(column.value(float(code[0]))) != value):
        kind = "date" if is_date else column.attribute.kind
        raise InputError(f"its value of {column.name} is not one of a {kind} column")
    return float(code[0])


def _desired_test(outcome: Outcome, goal: DesiredOutcome) -> IsDesired | None:
    """Return a function from labels to whether each is the outcome of an entry.

    If the entry names no outcome, it is the user's goal; None if the goal depends on the query.
    """
    if outcome.is_other:
        return lambda labels: np.asarray(labels != outcome.label, dtype=bool)
    if outcome.desired is not None:
        return DesiredOutcome.of(outcome.desired).is_met
    return None if goal.needs_factual_labels else goal.is_met


def _require_class(outcome: Outcome, model: LabelModel) -> None:
    """Raise `ModelError` if the model cannot give an outcome."""
    desired = outcome.label if outcome.is_other else outcome.desired
    if desired is not None:
        DesiredOutcome.of(desired).check(model.classes, None)
