"""The catalogue: a fixed list of answers for each outcome. `release.answering` answers from it.

The groups of an outcome's catalogue consist of people with this outcome (`protection.catalogue`).
If the user names the desired outcome, there is one such catalogue. With "opposite", there is one
for each label of the model, and a query is answered from those of all labels except its own.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.outcome_model import N_CHECKED, IsDesired, Model, choose_margin
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population, configured_key
from cfk_plugin.data.region import Region, natural, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import HostOnly, InputError, ModelError, PolicyError
from cfk_plugin.metrics.provenance import facts_of
from cfk_plugin.protection.catalogue import Catalogue as OutcomeCatalogue
from cfk_plugin.protection.catalogue import Settings
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.protection.previous import Changes, PreviousOutcomes
from cfk_plugin.protection.previous import Previous as PreviousCatalogue
from cfk_plugin.protection.spark import SparkRecount
from cfk_plugin.release.fail_closed import failing_closed
from cfk_plugin.release.recount import (
    Certified,
    Claims,
    PeopleElsewhere,
    PeopleHere,
    Recounter,
    TrainingTable,
)
from cfk_plugin.release.results import GeneralizedCounterfactual

_log = logging.getLogger("cfk_plugin")
_BATCH_SIZE = 256  # entries that are recounted together
_CONTENT = ("outcome", "region", "released")  # keys that identify a published entry


@dataclass(frozen=True, eq=False, repr=False)
class Part(HostOnly):
    """The catalogue of one outcome.

    Attributes
    ----------
    label : label of the model, optional
        The outcome if there is a catalogue for each label; otherwise None.
    catalogue : OutcomeCatalogue
    recounter : Recounter
        Counts the answers of this catalogue again.
    """

    label: Any
    catalogue: OutcomeCatalogue
    recounter: Recounter


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Catalogue(HostOnly):
    """A fixed list of answers, from which queries are answered.

    `KAnonymizer.fit` makes it, as ``catalogue_``. It belongs to the data holder, like the training
    table; `published` returns the part that can be released. It does not hide who is in the
    training table.

    Attributes
    ----------
    schema : Schema
    policy : PrivacyPolicy
    goal : DesiredOutcome
    model : Model
    parts : sequence of Part
        The catalogue of each outcome.
    fingerprint : str
        The keyed fingerprint of the population.
    facts : mapping
        Facts about the training table that runs log; see `cfk_plugin.metrics.provenance`.
    notes : mapping
        The notes that the caller of `save` wrote into the file.
    order_key : bytes
        Determines the order of published entries.
    key : bytes
        The key of the population, or of the file.
    changes : Changes, optional
        The differences from the previous catalogue, after a fit with ``previous``.
    """

    schema: Schema
    policy: PrivacyPolicy
    goal: DesiredOutcome
    model: Model
    parts: Sequence[Part]
    fingerprint: str
    facts: Mapping[str, Any]
    notes: Mapping[str, Any]
    order_key: bytes
    key: bytes
    changes: Changes | None = None

    @classmethod
    def build(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        goal: DesiredOutcome,
        label_model: LabelModel,
        later: Sequence[LabelModel],
        random_state: int,
        previous: Catalogue | str | Path | None = None,
    ) -> Catalogue:
        """Build the catalogue of a training table; see `KAnonymizer.fit` for `previous`.

        Raises
        ------
        PolicyError
            If too few people have the outcome, or the catalogue cannot follow the previous one.
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
        previous_outcomes = None if previous is None else _previous(previous, population, goal)
        parts = []
        errors = []
        for label, model_of_label in _models(model, goal, population):
            try:
                previous_catalogue = None
                if previous_outcomes is not None:
                    previous_catalogue = previous_outcomes.of_label(natural(label))
                catalogue = _outcome_catalogue(
                    population, policy, model_of_label, settings, random_state, previous_catalogue
                )
            except PolicyError as error:
                errors.append(error)
                continue
            table = TrainingTable(population, catalogue.model)
            people = PeopleHere(table, _regions(catalogue), catalogue.members)
            recounter = _recounter(catalogue, policy, people, population.fingerprint)
            parts.append(Part(label, catalogue, recounter))
        if not parts:
            raise errors[0]
        changes = None
        if previous_outcomes is not None:
            changes = previous_outcomes.changes(
                {
                    natural(part.label): part.catalogue.changes
                    for part in parts
                    if part.catalogue.changes is not None
                }
            )
            _log.info("%s", changes)
        return cls(
            schema=population.schema,
            policy=policy,
            goal=goal,
            model=model,
            parts=parts,
            fingerprint=population.fingerprint,
            facts=facts_of(population, policy.k),
            notes={},
            order_key=hmac.digest(population.key, b"order of entries", "sha256"),
            key=population.key,
            changes=changes,
        )

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.model.codes

    @property
    def n_people(self) -> int:
        """The number of people in the training table."""
        return int(self.facts["people"])

    @property
    def n_entries(self) -> int:
        """The number of entries of all outcomes."""
        return sum(len(part.catalogue.entries) for part in self.parts)

    @property
    def n_regions(self) -> int:
        """The number of regions of all outcomes."""
        return sum(len(part.catalogue.regions) for part in self.parts)

    def __len__(self) -> int:
        return self.n_entries

    def _counts(self) -> str:
        return f"{self.n_entries} entries, {self.n_regions} regions"

    def published(self) -> list[GeneralizedCounterfactual]:
        """Return every entry that satisfies the policy, without duplicates.

        The entries are in the order of a keyed digest of their content: the order discloses nothing
        more, and the same table gives the same list. The `query` of an entry is its position.

        Raises
        ------
        CFKError
            If the model fails.
        """
        entry_of_digest: dict[bytes, GeneralizedCounterfactual] = {}
        for part in self.parts:
            for entry in self._entries(part):
                content = entry.to_dict()
                text = json.dumps([content[name] for name in _CONTENT], sort_keys=True)
                digest = hmac.digest(self.order_key, text.encode(), "sha256")
                entry_of_digest[digest] = entry
        digests = sorted(entry_of_digest)
        return [entry_of_digest[digest].with_query(i) for i, digest in enumerate(digests)]

    def _entries(self, part: Part) -> Iterator[GeneralizedCounterfactual]:
        """Yield the entries of a part that satisfy the policy."""
        entries = part.catalogue.entries
        outcome = self.goal.common_outcome or Outcome()
        if part.label is not None:
            outcome = Outcome(natural(part.label))
        for start in range(0, len(entries), _BATCH_SIZE):
            batch = entries.take(np.arange(start, min(start + _BATCH_SIZE, len(entries))))
            with failing_closed():
                verdicts = part.recounter.judge(Claims(batch.region, batch.values))
            for verdict, private in zip(verdicts, batch.values, strict=True):
                if isinstance(verdict, Certified):
                    yield GeneralizedCounterfactual.of_verdict(
                        verdict, -1, private, outcome, self.codes, self.schema
                    )

    # The file

    def save(
        self,
        path: str | Path,
        *,
        key: bytes | None = None,
        notes: Mapping[str, Any] | None = None,
        handles: bool = True,
    ) -> None:
        """Write the catalogue to a file, from which another process can give the same answers.

        The file contains no row of the training table. Its private values are shared by at least k
        people, or no person has them. It belongs to the data holder, like the training table, and
        must not be released; use `published` for that.

        Parameters
        ----------
        path : str or Path
        key : bytes, optional
            Authenticates the file; by default, the environment variable ``CFK_KEY``. Without a key,
            a reader cannot detect a deliberate change.
        notes : mapping, optional
            Plain values for the reader of the file, who gets them as `notes`.
        handles : bool
            Whether the file contains keyed digests of the people in its groups, which
            ``fit(previous=...)`` needs. They also require a key, and a subject in the schema.

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
            arrays[f"{i}.n_people"] = part.recounter.people_per_region()
            for j, values in part.catalogue.public.items():
                public[j] = np.union1d(public.get(j, values[:0]), values)
        facts = {
            "parts": facts_of_parts,
            "policy": self.policy.to_dict(),
            "goal": self.goal.to_json(),
            "has_probabilities": self.model.has_probabilities,
            "n_later": len(self.model.later),
            "fingerprint": self.fingerprint,
            "order_key": self.order_key.hex(),
            "facts": dict(self.facts),
            "notes": {**self.notes, **(notes or {})},
        }
        if not handles:
            arrays = {name: array for name, array in arrays.items() if ".first" not in name}
        file = CatalogueFile.of_table(self.schema, self.codes, public, key)
        file.with_content(facts, arrays).write(path)

    @classmethod
    def of_file(cls, file: CatalogueFile, model: Any, later: Sequence[Any] = ()) -> Catalogue:
        """Return the catalogue of a file; see `KAnonymizer.load`.

        Raises
        ------
        ModelError
            If there are more or fewer later models than at the fit.
        """
        facts = file.facts
        policy = PrivacyPolicy(**facts["policy"])
        goal = DesiredOutcome.of_json(facts["goal"])
        if len(later) != facts["n_later"]:
            raise ModelError(
                f"the catalogue was fitted with {facts['n_later']} later models, got {len(later)};"
                " give the same models as later="
            )
        label_model = LabelModel(model, file.codes.names, goal)
        later_models = [LabelModel(later_model, file.codes.names, goal) for later_model in later]
        base_model = Model(file.codes, label_model, _is_met(goal, None), later=later_models)
        if not facts["has_probabilities"]:
            base_model = base_model.without_probabilities()
        parts = []
        for i, facts_of_part in enumerate(facts["parts"]):
            arrays = file.arrays_of(i)
            label = facts_of_part["label"]
            model_of_label = base_model.with_outcome(_is_met(goal, label))
            catalogue = OutcomeCatalogue.of_content(facts_of_part, arrays, model_of_label)
            people = PeopleElsewhere(
                catalogue.codes,
                _regions(catalogue),
                catalogue.required,
                catalogue.entries.region,
                catalogue.entries.values,
                arrays["n_people"],
                policy.k,
            )
            recounter = _recounter(catalogue, policy, people, facts["fingerprint"])
            parts.append(Part(label, catalogue, recounter))
        return cls(
            schema=file.schema,
            policy=policy,
            goal=goal,
            model=base_model,
            parts=parts,
            fingerprint=facts["fingerprint"],
            facts=facts["facts"],
            notes=facts["notes"],
            order_key=bytes.fromhex(facts["order_key"]),
            key=file.key,
        )


# Building


def _previous(
    previous: Catalogue | str | Path, population: Population, goal: DesiredOutcome
) -> PreviousOutcomes:
    """Return the previous catalogue, in the codes of a training table."""
    handles = population.handles
    if handles is None:
        raise PolicyError(
            "previous= needs a key and a subject: set CFK_KEY, and name the column that identifies"
            " the person of a row in Schema.from_frame(..., subject=...)"
        )
    if isinstance(previous, Catalogue):
        schema = previous.schema
        codes = previous.codes
        previous_goal = previous.goal.to_json()
        parts = [
            (natural(part.label), part.catalogue.model.margin, part.catalogue.lasting)
            for part in previous.parts
        ]
    else:
        if not isinstance(previous, (str, Path)):
            raise InputError(
                f"previous must be a Catalogue or a path, got {type(previous).__name__}; pass"
                " catalogue_ of the anonymizer, or the path of its file"
            )
        file = CatalogueFile.read(previous, population.key)
        schema = file.schema
        codes = file.codes
        previous_goal = file.facts["goal"]
        parts = [
            (facts["label"], facts["margin"], file.arrays_of(i))
            for i, facts in enumerate(file.facts["parts"])
        ]
    if previous_goal != goal.to_json():
        raise PolicyError("the previous catalogue is for another outcome; fit without previous=")
    if _declared(schema) != _declared(population.schema):
        raise PolicyError(
            "the previous catalogue's columns, or their roles, kinds, weights or hierarchies,"
            " differ; fit without previous="
        )
    return PreviousOutcomes.of(codes, parts, population.row_codes, handles)


def _declared(schema: Schema) -> str:
    """Return the settings of a schema that a catalogue and its previous one must share."""
    attributes = [schema[name] for name in sorted(schema.features)]
    return repr([(a.name, a.role, a.kind, a.weight, a.hierarchy) for a in attributes])


def _model(
    population: Population,
    policy: PrivacyPolicy,
    label_model: LabelModel,
    goal: DesiredOutcome,
    later: Sequence[LabelModel],
) -> Model:
    """Return the model of all outcomes; without probabilities if its labels contradict them."""
    margin = 0.0 if policy.margin == "auto" else policy.margin
    model = Model(population.row_codes, label_model, _is_met(goal, None), margin, later)
    return model.checked(population.coded_rows[:N_CHECKED])


def _models(
    model: Model, goal: DesiredOutcome, population: Population
) -> Iterator[tuple[Any, Model]]:
    """Yield the label and the model of each outcome; the label is None if the user names it."""
    if not goal.needs_factual_labels:
        yield None, model
        return
    labels = set(model.labels(population.coded_rows).tolist())
    for label in sorted(labels, key=to_text):
        yield label, model.with_outcome(_is_met(goal, label))


def _is_met(goal: DesiredOutcome, label: Any) -> IsDesired:
    """Return a function from labels to whether each is the outcome of a catalogue.

    The outcome is `label` or, without it, the named outcome of the goal. With the goal "opposite"
    and no label, every label is.
    """
    if label is not None:
        return lambda labels: np.asarray(labels == label, dtype=bool)
    if goal.needs_factual_labels:
        return lambda labels: np.ones(len(labels), dtype=bool)
    return goal.is_met


def _outcome_catalogue(
    population: Population,
    policy: PrivacyPolicy,
    model: Model,
    settings: Settings,
    random_state: int,
    previous: PreviousCatalogue | None,
) -> OutcomeCatalogue:
    """Build the catalogue of one outcome.

    If the policy's margin is "auto", the margin is chosen, but it is at most that of the previous
    catalogue. If too few people satisfy it to form a group, the margin is 0.
    """
    rows = population.coded_rows
    person = population.person_of_row
    recount = None
    if population.whole is not None:
        recount = SparkRecount(population.whole, population.row_codes)

    def build(margin: float) -> OutcomeCatalogue:
        random = np.random.default_rng(random_state)
        model_with_margin = model.with_margin(margin)
        return OutcomeCatalogue.build(
            population.row_codes,
            rows,
            person,
            model_with_margin,
            settings,
            random,
            population.key,
            population.handles,
            previous,
            recount,
        )

    if policy.margin != "auto":
        return build(policy.margin)
    margin = choose_margin(model, rows, person, policy.k)
    if previous is not None:
        margin = min(margin, previous.margin)
    try:
        return build(margin)
    except PolicyError:
        if margin == 0:
            raise
        return build(0.0)


def _regions(catalogue: OutcomeCatalogue) -> list[Region]:
    """Return the regions of a catalogue in original units."""
    return [catalogue.regions.region(i) for i in range(len(catalogue.regions))]


def _recounter(
    catalogue: OutcomeCatalogue,
    policy: PrivacyPolicy,
    people: PeopleHere | PeopleElsewhere,
    fingerprint: str,
) -> Recounter:
    """Return the recounter of one outcome's catalogue."""
    has_margin = policy.margin != 0 and not (policy.margin == "auto" and catalogue.model.later)
    margin = catalogue.model.margin if has_margin else None
    return Recounter(
        model=catalogue.model,
        policy=policy,
        people=people,
        fingerprint=fingerprint,
        margin=margin,
    )
