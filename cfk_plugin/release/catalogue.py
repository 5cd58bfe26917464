"""The catalogue: a fixed list of answers for each outcome that a query may ask for.

People with an outcome form the groups of the catalogue for it (`protection.catalogue`). If the
outcome is named, there is one catalogue. If each query asks for another outcome than its own, there
is one for each label of the model, so every person is a member of groups of one catalogue only; a
query is answered from the catalogues of the labels that it may ask for.

A call goes this way: queries become codes; the model labels them; the search finds answers; the
certifier counts each again; explanations are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.call_rules import CallRules
from cfk_plugin.data.codes import Codes, Floats, Ints, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome, Outcome
from cfk_plugin.data.outcome_model import N_CHECKED, IsDesired, Model, choose_margin
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population, configured_key
from cfk_plugin.data.region import natural, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.errors import CFKError, HostOnly, ModelError, PolicyError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.metrics.provenance import facts_of
from cfk_plugin.protection.answers import Answer, explain, least_values
from cfk_plugin.protection.catalogue import Catalogue as OutcomeCatalogue
from cfk_plugin.protection.catalogue import Settings
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.certify import (
    Certifier,
    Claims,
    People,
    PeopleElsewhere,
    PeopleHere,
    TrainingTable,
)
from cfk_plugin.release.fail_closed import failing_closed, withheld
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.release.verdicts import Certified, titles_of, values_of

_AT_ONCE = 256  # entries that are certified, or queries that are answered, together
_FEW = 4  # up to so many queries are answered with as few calls of the model as possible


@dataclass(frozen=True, eq=False, repr=False)
class _Part(HostOnly):
    """The catalogue of one outcome.

    Attributes
    ----------
    label : label of the model, optional
        The outcome, if there is a catalogue for each label.
    catalogue : OutcomeCatalogue
    certifier : Certifier
    """

    label: Any
    catalogue: OutcomeCatalogue
    certifier: Certifier


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Catalogue(HostOnly):
    """A fixed list of answers, from which queries are answered.

    Made by `KAnonymizer.fit`, as its ``catalogue_``. It does not hide who is in the training table.

    Attributes
    ----------
    schema : Schema
    policy : PrivacyPolicy
    fingerprint : str
        That of the population.
    facts : mapping
        What runs state of the training table; see `cfk_plugin.metrics.provenance`.
    notes : mapping
        What the caller of `save` wrote into the file.
    """

    schema: Schema
    policy: PrivacyPolicy
    goal: DesiredOutcome
    model: Model
    parts: Sequence[_Part]
    fingerprint: str
    facts: Mapping[str, Any]
    notes: Mapping[str, Any]

    @classmethod
    def build(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        goal: DesiredOutcome,
        label_model: LabelModel,
        later: Sequence[LabelModel],
        seed: int,
    ) -> Catalogue:
        """Build the catalogue of a training table.

        Raises
        ------
        PolicyError
            If too few people have the outcome.
        ModelError
            If there is a margin, and a model has no probabilities.
        """
        model = _model(population, policy, label_model, goal, later)
        settings = Settings(
            k=policy.k,
            least_pureness=policy.least_pureness,
            l=policy.l,
            t=policy.t,
            max_ncp=policy.max_ncp,
        )
        parts = []
        refusals = []
        for label, model_of_label in _models(model, goal, population):
            try:
                catalogue = _outcome_catalogue(population, policy, model_of_label, settings, seed)
            except PolicyError as error:
                refusals.append(error)
                continue
            people = PeopleHere(TrainingTable(population, catalogue.model), catalogue.members)
            parts.append(
                _Part(
                    label, catalogue, _certifier(catalogue, policy, people, population.fingerprint)
                )
            )
        if not parts:
            raise refusals[0]
        return cls(
            schema=population.schema,
            policy=policy,
            goal=goal,
            model=model,
            parts=parts,
            fingerprint=population.fingerprint,
            facts=facts_of(population, policy.k),
            notes={},
        )

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.model.codes

    @property
    def n_people(self) -> int:
        """People in the training table."""
        return int(self.facts["people"])

    @property
    def n_entries(self) -> int:
        """Number of entries, for all outcomes."""
        return sum(len(part.catalogue.entries) for part in self.parts)

    @property
    def n_regions(self) -> int:
        """Number of regions, for all outcomes."""
        return sum(len(part.catalogue.regions) for part in self.parts)

    def __len__(self) -> int:
        return self.n_entries

    def _counts(self) -> str:
        return f"{self.n_entries} entries, {self.n_regions} regions"

    # Answers

    def explain(
        self,
        queries: pd.DataFrame,
        number: Ints,
        rules: CallRules,
        *,
        goal: DesiredOutcome | None = None,
        counterfactuals: pd.DataFrame | None = None,
        progress: Progress | None = None,
    ) -> list[Explanation]:
        """Return one explanation for each row; rows with equal numbers get different answers.

        Parameters
        ----------
        queries : DataFrame, shape (n_rows, n_features)
        number : shape (n_rows,)
            The number of the query that each row repeats.
        rules : CallRules
        goal : DesiredOutcome, optional
            The outcome that this call asks for.
        counterfactuals : DataFrame, shape (n_rows, n_features), optional
            Of an explainer whose answers depend on no single training row: more starts of the
            search.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        list of Explanation
            All are withheld if the model fails.
        """
        try:
            with failing_closed():
                call = _Call(self, goal or self.goal, rules, progress)
                return call.explanations(queries, number, counterfactuals)
        except CFKError as error:
            return withheld(number, error)

    def published(self) -> Iterator[Explanation]:
        """Yield every entry as an explanation, or `Withheld` with the reason.

        Raises
        ------
        CFKError
            If the model fails; what was yielded before is not the whole catalogue.
        """
        for part in self.parts:
            entries = part.catalogue.entries
            for first in range(0, len(entries), _AT_ONCE):
                some = entries.take(np.arange(first, min(first + _AT_ONCE, len(entries))))
                with failing_closed():
                    verdicts = part.certifier.verdicts(Claims(some.region, some.values))
                    outcome = self._outcome(part)
                    explanations = [
                        self.entry(verdict, values, outcome)
                        if isinstance(verdict, Certified)
                        else verdict
                        for verdict, values in zip(verdicts, some.values, strict=True)
                    ]
                yield from explanations

    def entry(
        self,
        verdict: Certified,
        private: Floats,
        outcome: Outcome,
        *,
        query: int = -1,
        advised: Mapping[str, Any] = MappingProxyType({}),
        least: Mapping[str, Any] = MappingProxyType({}),
    ) -> GeneralizedCounterfactual:
        """Return a certified region with private values, shape (n_private,), as an explanation."""
        return GeneralizedCounterfactual(
            query=query,
            region=verdict.region,
            released=values_of(self.codes, self.codes.private, private),
            certificate=verdict.certificate,
            recount=verdict.recount,
            titles=titles_of(verdict.region, self.codes),
            outcome=outcome,
            presentation=self.presentation,
            advised=advised,
            least=least,
        )

    @property
    def presentation(self) -> Presentation:
        """What sentences of explanations need."""
        return Presentation.of(self.schema)

    def _outcome(self, part: _Part) -> Outcome:
        """Return the outcome that certificates of a part's entries state."""
        if part.label is None:
            return self.goal.common_outcome or Outcome()
        return Outcome(natural(part.label))

    # The file

    def save(
        self, path: str | Path, *, key: bytes | None = None, notes: Mapping[str, Any] | None = None
    ) -> None:
        """Write the catalogue to one file, with which another process gives the same answers.

        The file has no row of the training table, and of private values only those that k people
        share or nobody has. It belongs to the data holder, like the training table: it is not a
        release. `published` is.

        Parameters
        ----------
        path : str or Path
        key : bytes, optional
            Seals the file; default: the environment variable ``CFK_KEY``. Without a key, changes on
            purpose are not detected.
        notes : mapping, optional
            Plain values for the reader of the file, found in `notes`.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        key = configured_key(key)
        public: dict[int, Floats] = {}
        facts_of_parts = []
        arrays: dict[str, NDArray[Any]] = {}
        for i, part in enumerate(self.parts):
            facts, arrays_of_part = part.catalogue.content()
            facts_of_parts.append({"label": natural(part.label), **facts})
            arrays |= {f"{i}.{name}": array for name, array in arrays_of_part.items()}
            arrays[f"{i}.n_people"] = part.certifier.n_people()
            for j, values in part.catalogue.public.items():
                public[j] = np.union1d(public.get(j, values[:0]), values)
        facts = {
            "parts": facts_of_parts,
            "policy": self.policy.to_dict(),
            "goal": self.goal.to_json(),
            "has_probabilities": self.model.has_probabilities,
            "n_later": len(self.model.later),
            "fingerprint": self.fingerprint,
            "facts": dict(self.facts),
            "notes": {**self.notes, **(notes or {})},
        }
        file = CatalogueFile.of_table(self.schema, self.codes, public, key)
        file.with_content(facts, arrays).write(path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Any,
        *,
        key: bytes | None = None,
        later: Sequence[Any] = (),
    ) -> Catalogue:
        """Read a catalogue, to answer queries without the training table.

        Parameters
        ----------
        path : str or Path
        model : object with ``predict``, or callable
            The model with which the catalogue was fitted.
        key : bytes, optional
            The key of the file; default: the environment variable ``CFK_KEY``.
        later : sequence of models, optional
            The later models with which it was fitted.

        Raises
        ------
        BundleError
            If the file is not a catalogue, was changed, or needs another key.
        ModelError
            If the model is not the one with which the catalogue was fitted.
        """
        return cls.of_file(CatalogueFile.read(path, configured_key(key)), model, later)

    @classmethod
    def of_file(cls, file: CatalogueFile, model: Any, later: Sequence[Any] = ()) -> Catalogue:
        """Return the catalogue of a file that was read; see `load`."""
        facts = file.facts
        policy = PrivacyPolicy(**facts["policy"])
        goal = DesiredOutcome.of_json(facts["goal"])
        if len(later) != facts["n_later"]:
            raise ModelError(
                f"the catalogue was fitted with {facts['n_later']} later models, and {len(later)}"
                " are given; give the same ones as later="
            )
        label_models = [LabelModel(some, file.codes.names, goal) for some in [model, *later]]
        asked = Model(file.codes, label_models[0], _is_met(goal, None), later=label_models[1:])
        if not facts["has_probabilities"]:
            asked = asked.without_probabilities()
        parts = []
        for i, facts_of_part in enumerate(facts["parts"]):
            prefix = f"{i}."
            arrays = {
                name.removeprefix(prefix): array
                for name, array in file.arrays.items()
                if name.startswith(prefix)
            }
            label = facts_of_part["label"]
            model_of_label = asked.with_outcome(_is_met(goal, label))
            catalogue = OutcomeCatalogue.of_content(facts_of_part, arrays, model_of_label)
            people = PeopleElsewhere(
                catalogue.required,
                catalogue.entries.region,
                catalogue.entries.values,
                arrays["n_people"],
                policy.k,
            )
            certifier = _certifier(catalogue, policy, people, facts["fingerprint"])
            parts.append(_Part(label, catalogue, certifier))
        return cls(
            schema=file.schema,
            policy=policy,
            goal=goal,
            model=asked,
            parts=parts,
            fingerprint=facts["fingerprint"],
            facts=facts["facts"],
            notes=facts["notes"],
        )


# Building


def _model(
    population: Population,
    policy: PrivacyPolicy,
    label_model: LabelModel,
    goal: DesiredOutcome,
    later: Sequence[LabelModel],
) -> Model:
    """Return the model without an outcome, whose labels follow from its probabilities."""
    margin = 0.0 if policy.margin == "auto" else policy.margin
    model = Model(population.row_codes, label_model, _is_met(goal, None), margin, later)
    return model.checked(population.coded_rows[:N_CHECKED])


def _models(
    model: Model, goal: DesiredOutcome, population: Population
) -> Iterator[tuple[Any, Model]]:
    """Yield the label, None for a named outcome, and the model of each catalogue."""
    if not goal.needs_factual_labels:
        yield None, model
        return
    labels = set(model.labels(population.coded_rows).tolist())
    for label in sorted(labels, key=to_text):
        yield label, model.with_outcome(_is_met(goal, label))


def _is_met(goal: DesiredOutcome, label: Any) -> IsDesired:
    """Return the test whether labels are the outcome of a catalogue.

    `label` is that of the catalogue. Without it the outcome is named, or it is any label.
    """
    if label is not None:
        return lambda labels: np.asarray(labels == label, dtype=bool)
    if goal.needs_factual_labels:
        return lambda labels: np.ones(len(labels), dtype=bool)
    return goal.is_met


def _outcome_catalogue(
    population: Population, policy: PrivacyPolicy, model: Model, settings: Settings, seed: int
) -> OutcomeCatalogue:
    """Build the catalogue of one outcome.

    If the policy leaves the margin open, and the people with the margin form no group, there is no
    margin.
    """
    rows = population.coded_rows
    person = population.person_of_row

    def build(margin: float) -> OutcomeCatalogue:
        random = np.random.default_rng(seed)
        model_with_margin = model.with_margin(margin)
        return OutcomeCatalogue.build(
            population.row_codes, rows, person, model_with_margin, settings, random, population.key
        )

    if policy.margin != "auto":
        return build(policy.margin)
    margin = choose_margin(model, rows, person, policy.k)
    try:
        return build(margin)
    except PolicyError:
        if margin == 0:
            raise
        return build(0.0)


def _certifier(
    catalogue: OutcomeCatalogue, policy: PrivacyPolicy, people: People, fingerprint: str
) -> Certifier:
    """Return what certifies the answers of one outcome's catalogue."""
    has_margin = policy.margin != 0 and not (policy.margin == "auto" and catalogue.model.later)
    margin = catalogue.model.margin if has_margin else None
    return Certifier(
        model=catalogue.model,
        policy=policy,
        regions=[catalogue.regions.region(i) for i in range(len(catalogue.regions))],
        people=people,
        fingerprint=fingerprint,
        margin=margin,
    )


# Answering


@dataclass(frozen=True, eq=False, repr=False)
class _Queries(HostOnly):
    """The queries of a call that are searched for, n of them.

    Attributes
    ----------
    number : shape (n,)
        By which the caller knows them.
    rows : shape (n, n_features)
    limits : Limits
    starts : shape (n_starts, n, n_features)
        Counterfactuals of an explainer; NaN for none.
    """

    number: Ints
    rows: Floats
    limits: Limits
    starts: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, queries: Ints) -> _Queries:
        """Return some of the queries."""
        return _Queries(
            self.number[queries],
            self.rows[queries],
            self.limits.take(queries),
            self.starts[:, queries],
        )


class _Candidate(NamedTuple):
    """An answer to a query, and the part of the catalogue that it comes from."""

    part: _Part
    answer: Answer


@dataclass(frozen=True, eq=False, repr=False)
class _Call(HostOnly):
    """One call of `Catalogue.explain`."""

    catalogue: Catalogue
    goal: DesiredOutcome
    rules: CallRules
    progress: Progress | None

    def explanations(
        self, frame: pd.DataFrame, number: Ints, counterfactuals: pd.DataFrame | None
    ) -> list[Explanation]:
        """Return one explanation for each row of a table; see `Catalogue.explain`."""
        codes = self.catalogue.codes
        rows = codes.encode(frame)
        explanations: dict[int, Explanation] = {}
        for i, fault in enumerate(codes.faults(frame, rows)):
            if fault is not None:
                explanations[i] = Withheld(int(number[i]), fault.reason, fault.columns)
        valid = np.setdiff1d(np.arange(len(rows)), np.array([*explanations], dtype=np.int64))
        explanations_of_number: dict[int, list[Explanation]] = {}
        if len(valid):
            starts = self._starts(counterfactuals, number, valid)
            explanations_of_number = self._of_queries(rows[valid], number[valid], starts)
        for i in valid.tolist():
            explanations[i] = explanations_of_number[int(number[i])].pop(0)
        return [explanations[i] for i in range(len(rows))]

    def _starts(self, counterfactuals: pd.DataFrame | None, number: Ints, valid: Ints) -> Floats:
        """Return the counterfactuals of each query, shape (n_starts, n_queries, n_features).

        Queries are in the order of their numbers. NaN stands for none.
        """
        codes = self.catalogue.codes
        distinct, query = np.unique(number[valid], return_inverse=True)
        if counterfactuals is None:
            return np.empty((0, len(distinct), len(codes.columns)))
        order = np.argsort(query, kind="stable")
        rank = np.empty(len(valid), dtype=np.int64)
        rank[order] = np.arange(len(valid)) - np.searchsorted(query[order], query[order])
        starts = np.full((int(rank.max()) + 1, len(distinct), len(codes.columns)), np.nan)
        starts[rank, query] = codes.encode(counterfactuals.iloc[valid])
        return starts

    def _of_queries(
        self, rows: Floats, number: Ints, starts: Floats
    ) -> dict[int, list[Explanation]]:
        """Return as many explanations of each query as it has rows, by its number."""
        numbers, first, n_answers = np.unique(number, return_index=True, return_counts=True)
        queries = _Queries(
            numbers,
            rows[first],
            self.rules.limits(self.catalogue.codes, rows[first]),
            starts,
        )
        candidates = None
        if len(queries) <= _FEW and not self.goal.needs_factual_labels:
            # The first question of the search is about the queries as well, which saves a call.
            candidates = self._candidates(queries, int(n_answers.max()))
        is_met = self.goal.is_met_already(len(queries), lambda: self._labels(queries))
        explanations: dict[int, list[Explanation]] = {
            query: [Withheld(query, ALREADY_DESIRED)] * n
            for query, n in zip(numbers.tolist(), n_answers.tolist(), strict=True)
        }
        unmet = np.flatnonzero(~is_met)
        for start in range(0, len(unmet), _AT_ONCE):
            some = unmet[start : start + _AT_ONCE]
            if candidates is None:
                of_some = self._candidates(queries.take(some), int(n_answers[some].max()))
            else:
                of_some = [candidates[query] for query in some.tolist()]
            explanations |= self._answered(queries.take(some), n_answers[some], of_some)
            if self.progress is not None:
                self.progress(start + len(some), len(unmet))
        return explanations

    def _labels(self, queries: _Queries) -> Labels:
        """Return the model's label of each query."""
        return self.catalogue.model.labels(queries.rows)

    def _answered(
        self, queries: _Queries, n_answers: Ints, candidates: Sequence[Sequence[_Candidate]]
    ) -> dict[int, list[Explanation]]:
        """Return the answers to some queries, by number, and why there are no more."""
        answers: dict[int, list[Explanation]] = {number: [] for number in queries.number.tolist()}
        for part in self.catalogue.parts:
            chosen = [
                replace(candidate.answer, query=query)
                for query, of_query in enumerate(candidates)
                for candidate in of_query[: n_answers[query]]
                if candidate.part is part
            ]
            if chosen:
                self._certify(part, queries, chosen, answers)
        for number, n in zip(queries.number.tolist(), n_answers.tolist(), strict=True):
            reason = "no_other_answer" if answers[number] else self._reason_without_answer
            n_lacking = n - len(answers[number])
            answers[number] += [Withheld(number, reason)] * n_lacking
        return answers

    @property
    def _reason_without_answer(self) -> str:
        may_be_constraints = self.rules.restricts(self.catalogue.codes) and len(self.catalogue) > 0
        return "no_actionable_answer" if may_be_constraints else "infeasible"

    def _candidates(self, queries: _Queries, n_answers: int) -> list[list[_Candidate]]:
        """Return the nearest answers to each query from all parts, near ones first."""
        candidates: list[list[_Candidate]] = [[] for _ in range(len(queries))]
        for part in self.catalogue.parts:
            open_queries = np.flatnonzero(self._may_ask_for(part, queries))
            some = queries.take(open_queries)
            answers = explain(part.catalogue, some.rows, some.limits, n_answers, some.starts)
            for query, answers_to_query in zip(open_queries.tolist(), answers, strict=True):
                candidates[query] += [_Candidate(part, answer) for answer in answers_to_query]
        for of_query in candidates:
            of_query.sort(key=lambda candidate: candidate.answer.distance)
        return candidates

    def _may_ask_for(self, part: _Part, queries: _Queries) -> Mask:
        """Return which queries may ask for a part's outcome."""
        if part.label is None:
            return np.ones(len(queries), dtype=bool)
        outcome = np.empty(1, dtype=object)
        outcome[0] = part.label
        return self.goal.is_met_by_query(outcome, self._labels(queries))[:, 0]

    def _certify(
        self,
        part: _Part,
        queries: _Queries,
        chosen: Sequence[Answer],
        answers: dict[int, list[Explanation]],
    ) -> None:
        """Add an explanation for each chosen answer of a part to those of its query."""
        query = np.array([answer.query for answer in chosen], dtype=np.int64)
        points = np.stack([answer.point for answer in chosen])
        region = np.array([answer.region for answer in chosen], dtype=np.int64)
        codes = self.catalogue.codes
        every_column = np.arange(len(codes.columns))
        private = points[:, codes.private]
        claims = Claims(region, private, points)
        questions = part.certifier.questions(claims)
        least = least_values(part.catalogue, chosen, queries.rows, queries.limits, questions)
        verdicts = part.certifier.verdicts(claims, queries.limits.take(query))
        outcomes = self.goal.outcomes(
            part.catalogue.model.labels(points),
            self._labels(queries)[query],
            part.catalogue.model.label_model.classes,
        )
        for i, (verdict, outcome) in enumerate(zip(verdicts, outcomes, strict=True)):
            number = int(queries.number[query[i]])
            if isinstance(verdict, Withheld):
                answers[number].append(Withheld(number, verdict.reason))
                continue
            noted = self._noted(verdict, part, points[i], queries.rows[query[i]])
            answers[number].append(
                self.catalogue.entry(
                    noted,
                    private[i],
                    outcome,
                    query=number,
                    advised=values_of(codes, codes.quasi, points[i][codes.quasi]),
                    least=values_of(codes, every_column, least[i]),
                )
            )

    def _noted(self, verdict: Certified, part: _Part, point: Floats, query: Floats) -> Certified:
        """Note the private values that are the query's own, and those that are nobody's but this
        answer's.
        """
        codes = self.catalogue.codes
        unchanged: list[str] = []
        moved: list[str] = []
        for j, shared in zip(codes.private.tolist(), part.catalogue.shared, strict=True):
            if point[j] == query[j]:
                unchanged.append(codes.names[j])
            elif point[j] not in shared.values:
                moved.append(codes.names[j])
        return verdict.with_counts(moved=tuple(moved), unchanged=tuple(unchanged))
