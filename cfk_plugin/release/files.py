"""A file of released explanations: what is wrong with it, by a recount. `cfk verify` prints it.

The form is compared with the JSON Schema, and each entry with the columns of the training table.
Then the people of each region, its information loss and, with the model, its outcomes are counted
again by `cfk_plugin.release.recount`, and compared with the certificate.

**What a file does not tell.** Who wrote it, whether entries were removed, whether its policy is the
one that was agreed on, and which of the people inside a region are its members. Everyone inside
counts as a member here. So a catalogue's region is not compared with `t`, and `l` is compared with
more people than before the release.
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
"""Figures that are others if the table has changed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a file; never its content."""

    where: str  # in names of the format and of declared columns, and positions
    problem: str
    fails: bool = True  # if False, a person has to look


@dataclass(slots=True)
class FileRecount:
    """What is wrong with a file, and what was not checked.

    Attributes
    ----------
    findings : list of Finding
    unchecked : list of str
    n_people : list of int
        People in each region that was counted.
    not_stopped : list of str
        Attacks that the policy does not stop.
    n_answers : int, optional
        Answers about which the model was asked; None if it was not.
    untrue : list of int
        Positions of the answers, among all entries, that the model refuses.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    n_people: list[int] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)
    n_answers: int | None = None
    untrue: list[int] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether a finding shows that the file is wrong."""
        return any(finding.fails for finding in self.findings)

    @property
    def verdict(self) -> str:
        """``fail``, ``review`` (a person has to look) or ``pass``."""
        if self.has_failed:
            return "fail"
        return "review" if self.findings else "pass"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
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

    Parameters
    ----------
    content : mapping
        What `Explanations.to_json` wrote.
    population : Population
        The training table.
    model : object with ``predict``, or callable, optional
        That of the explanations, or one that was trained later. Without it, only people are
        counted.
    desired : label, set of labels, (low, high) or "opposite"
        The outcome, as for `KAnonymizer.fit`.
    threshold : float, optional
        As in `KAnonymizer.fit`.
    queries : DataFrame, optional
        The instances that were answered, in their order. The model then says which answers are
        true for them.
    k : int, optional
        Number of people that must be inside each region, if that is more than the policy asks
        for.

    Returns
    -------
    FileRecount

    Raises
    ------
    InputError
        If the queries cannot be those that were answered.
    """
    report = FileRecount(findings=wrong_form(content, population.schema.features))
    if report.findings:
        report.unchecked.append("anything else: the form has to be right first")
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
    asked = None if model is None else thresholded(model, threshold)
    if isinstance(policy, PrototypePolicy):
        if k is not None or queries is not None:
            report.unchecked.append("--k and --queries, which prototypes do not need")
        _recount_prototypes(released, population, asked, desired, report)
        return report
    report.not_stopped += policy.not_stopped
    required = policy if k is None else replace(policy, k=max(k, policy.k))
    regions = _Regions(content, population, policy, required, report)
    entries = regions.read(released)
    regions.count(entries)
    if asked is None:
        report.unchecked.append("pureness (--model)")
    else:
        regions.ask(entries, asked, desired, queries)
    return report


# The form


def wrong_form(content: Mapping[str, Any], columns: Sequence[str]) -> list[Finding]:
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


def _policy_of(content: Mapping[str, Any]) -> Policy | None:
    """Return the policy that a file of the right form claims; None if its settings are invalid."""
    settings = content["policy"]
    try:
        return PrototypePolicy(**settings) if "epsilon" in settings else PrivacyPolicy(**settings)
    except PolicyError:
        return None


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


# Prototypes


def _recount_prototypes(
    released: Mapping[int, Mapping[str, Any]],
    population: Population,
    model: Any,
    desired: Any,
    report: FileRecount,
) -> None:
    """Ask the model about prototypes; there are no people to count."""
    problem = "prototypes have no people who could be counted; see cfk audit epsilon"
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
    _note_answers([*released], outcome.is_met(labels), report)


def _note_answers(positions: Sequence[int], is_true: Mask, report: FileRecount) -> None:
    """Report the answers, at some positions of the file, that the model refuses."""
    report.n_answers = (report.n_answers or 0) + len(positions)
    for position, has_outcome in zip(positions, is_true.tolist(), strict=True):
        if not has_outcome:
            report.untrue.append(position)
            problem = "is not true: the model refuses what it advises, or its region lacks it"
            report.findings.append(Finding(f"explanation {position}", problem))


# Regions


@dataclass(frozen=True, eq=False, repr=False)
class _Entry(HostOnly):
    """A released region of a file, in the values of the training table.

    Attributes
    ----------
    position : int
        Among all entries.
    content : mapping
        As in the file.
    region : Region
    private : shape (n_private,)
    """

    position: int
    content: Mapping[str, Any]
    region: Region
    private: Floats

    @property
    def where(self) -> str:
        """How findings name the entry."""
        return f"explanation {self.position}"

    @property
    def outcome(self) -> Outcome:
        """The outcome that the entry states."""
        return Outcome.of(self.content["outcome"])


@dataclass(frozen=True, eq=False, repr=False)
class _Regions(HostOnly):
    """The recount of a file of regions.

    Attributes
    ----------
    content : mapping
    population : Population
    policy : PrivacyPolicy
        That of the file, which its certificates state.
    required : PrivacyPolicy
        The same, with the k that is required of it.
    report : FileRecount
        Gets all that is wrong.
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
        """Return the entries that can be counted; report what is wrong with the others."""
        entries: list[_Entry] = []
        for position, content in released.items():
            try:
                region = self._region(content["region"])
                private = self._codes_of(content["released"], self.codes.private)
                if "advised" in content:
                    self._codes_of(content["advised"], self.codes.quasi)
                elif self._advises:
                    raise InputError("it advises nothing")
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
            self.report.unchecked.append("optimal and gap, which are the method's own claim")
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
        """Return the codes of values that must be those of some columns, shape (n_columns,)."""
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
                is_known = rule.is_met is not is_t_close or self._counts_everyone
                if is_known and not rule.is_met(region, self.required):
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
        """Report the figures of a certificate that are not what was counted.

        The difference may come from a table that has changed, unless the certificate is known to be
        about this one. A catalogue always is.
        """
        certificate = entry.content["certificate"]
        is_of_today = self._is_of_table(entry) or self._is_catalogue
        for name, figure in expected.items():
            if certificate[name] != figure:
                fails = is_of_today or name not in _OF_THE_TABLE
                problem = f"its certificate says something else of {name} than the recount"
                self.report.findings.append(Finding(entry.where, problem, fails))

    def _is_of_table(self, entry: _Entry) -> bool:
        """Whether a certificate is known to be about the training table."""
        fingerprint = entry.content["certificate"]["population"]
        return self.population.has_key and bool(fingerprint == self.population.fingerprint)

    def _find(self, entry: _Entry, problem: str) -> None:
        self.report.findings.append(Finding(entry.where, problem))

    @property
    def _advises(self) -> bool:
        """Whether each explanation must tell its person what to become."""
        promises_truth = promise_of(self.policy.guarantee).promises_true_answers
        return promises_truth and not self._is_catalogue

    @property
    def _counts_everyone(self) -> bool:
        return promise_of(self.policy.guarantee).counts_everyone_inside

    @property
    def _is_catalogue(self) -> bool:
        return bool(self.content["kind"] == "catalogue")

    # The model

    def ask(
        self,
        entries: Sequence[_Entry],
        model: Any,
        desired: Any,
        queries: pd.DataFrame | None,
    ) -> None:
        """Count outcomes again, and ask which answers are true, by outcome."""
        goal = DesiredOutcome.of(desired)
        if queries is not None:
            self.report.unchecked.append("that --queries are those that were answered")
        elif not self._is_catalogue:
            self.report.unchecked.append("that answers are true for the model (--queries)")
        for outcome in dict.fromkeys(entry.outcome for entry in entries):
            some = [entry for entry in entries if entry.outcome == outcome]
            if goal.common_outcome not in (None, Outcome(), outcome):
                for entry in some:
                    self._find(entry, "is about another outcome than --desired names")
                continue
            test = _test_of(outcome, goal)
            if test is None:
                self._leave_unchecked(some, "has no outcome on record: name it with --desired")
                continue
            try:
                label_model = LabelModel(model, self.codes.names, None)
                _require_class(outcome, label_model)
                asked = Model(self.codes, label_model, test)
                asked = asked.checked(self.population.coded_rows[:N_CHECKED])
            except ModelError:  # whose text may quote an outcome of the file
                self._leave_unchecked(some, "has an outcome that this model cannot give")
                continue
            self._count_outcomes(some, asked)
            if queries is not None:
                self._ask_about_points(some, asked, queries)

    def _leave_unchecked(self, entries: Sequence[_Entry], problem: str) -> None:
        """Report entries about which the model cannot be asked, so that a person looks at them."""
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
        """Return what counts entries with the same outcome again; everyone inside is a member."""
        regions = [entry.region for entry in entries]
        return Recounter(
            model=model,
            policy=self.policy,
            people=PeopleHere(TrainingTable(self.population, model), regions),
            fingerprint=self.population.fingerprint,
        )

    def _ask_about_points(
        self, entries: Sequence[_Entry], model: Model, queries: pd.DataFrame
    ) -> None:
        """Ask whether what answers advise is true, permitted, and in their region.

        The margin is not asked for, as the model may be a later one.
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
        _note_answers([entry.position for entry in answers], are_true, self.report)

    def _rows_of(self, queries: pd.DataFrame, numbers: list[int]) -> Floats:
        """Return the encoded queries with some numbers, shape (n_numbers, n_features).

        Raises
        ------
        InputError
            If they cannot be those that were answered.
        """
        table = require_features(queries, self.codes.names, "queries")
        if max(numbers) >= len(table):
            raise InputError(
                f"{len(table)} queries, and query {max(numbers)} was answered; give all queries of"
                " the call, in their order"
            )
        rows = self.codes.encode(table.iloc[numbers])
        if np.isnan(rows).any():
            raise InputError(
                "queries: a query that was answered has a value that cannot be read, or that the"
                " training table lacks; give all queries of the call, in their order"
            )
        return rows


def _code_of(value: Any, column: Column) -> float:
    """Return the code of a value; raise if the column cannot have it.

    A text that could be read as a number is not one. Days may be written with or without a time.
    """
    series = pd.Series([value], dtype=object)
    code = column.encode(series)
    has_fault = any(mask[0] for mask in column.faults(series, code).values())
    is_date = column.kind == "date"
    if has_fault or (not is_date and json_value(column.value(float(code[0]))) != value):
        kind = "date" if is_date else column.attribute.kind
        raise InputError(f"its value of {column.name} is not one of a {kind} column")
    return float(code[0])


def _test_of(outcome: Outcome, goal: DesiredOutcome) -> IsDesired | None:
    """Return the test whether labels are an outcome.

    If the file does not name the outcome, it is the one that the user names; None if that depends
    on the query.
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
