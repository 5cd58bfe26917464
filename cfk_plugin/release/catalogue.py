"""The catalogue: a fixed list of answers for each outcome that a query may ask for.

People with an outcome form the groups of the catalogue for it (`protection.catalogue`). If the
outcome is named, there is one catalogue. If each query asks for another outcome than its own, there
is one for each label of the model, so every person is a member of groups of one catalogue only; a
query is answered from the catalogues of the labels that it may ask for.

`release.answering` answers queries from it.
"""

from __future__ import annotations

import hmac
import json
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
from cfk_plugin.errors import HostOnly, ModelError, PolicyError
from cfk_plugin.metrics.provenance import facts_of
from cfk_plugin.protection.catalogue import Catalogue as OutcomeCatalogue
from cfk_plugin.protection.catalogue import Settings
from cfk_plugin.protection.catalogue_file import CatalogueFile
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

_AT_ONCE = 256  # entries that are counted together
_CONTENT = ("outcome", "region", "released")  # what an entry says; no two entries say the same


@dataclass(frozen=True, eq=False, repr=False)
class Part(HostOnly):
    """The catalogue of one outcome.

    Attributes
    ----------
    label : label of the model, optional
        The outcome, if there is a catalogue for each label.
    catalogue : OutcomeCatalogue
    recounter : Recounter
    """

    label: Any
    catalogue: OutcomeCatalogue
    recounter: Recounter


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
    order_key : bytes
        Decides the order in which entries are published.
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

    @classmethod
    def build(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        goal: DesiredOutcome,
        label_model: LabelModel,
        later: Sequence[LabelModel],
        random_state: int,
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
                catalogue = _outcome_catalogue(
                    population, policy, model_of_label, settings, random_state
                )
            except PolicyError as error:
                refusals.append(error)
                continue
            table = TrainingTable(population, catalogue.model)
            people = PeopleHere(table, _regions(catalogue), catalogue.members)
            parts.append(
                Part(
                    label, catalogue, _recounter(catalogue, policy, people, population.fingerprint)
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
            order_key=hmac.digest(population.key, b"order of entries", "sha256"),
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

    def published(self) -> list[GeneralizedCounterfactual]:
        """Return every entry that meets the policy, each once.

        Their order follows from a keyed digest of what they say, so it says nothing else, and the
        same table gives the same list. Each entry has its position as its number.

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
        """Yield the entries of a part that meet the policy."""
        entries = part.catalogue.entries
        outcome = self.goal.common_outcome or Outcome()
        if part.label is not None:
            outcome = Outcome(natural(part.label))
        for first in range(0, len(entries), _AT_ONCE):
            some = entries.take(np.arange(first, min(first + _AT_ONCE, len(entries))))
            with failing_closed():
                verdicts = part.recounter.judge(Claims(some.region, some.values))
            for verdict, private in zip(verdicts, some.values, strict=True):
                if isinstance(verdict, Certified):
                    yield GeneralizedCounterfactual.of_verdict(
                        verdict, -1, private, outcome, self.codes, self.schema
                    )

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
            model=asked,
            parts=parts,
            fingerprint=facts["fingerprint"],
            facts=facts["facts"],
            notes=facts["notes"],
            order_key=bytes.fromhex(facts["order_key"]),
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
    population: Population,
    policy: PrivacyPolicy,
    model: Model,
    settings: Settings,
    random_state: int,
) -> OutcomeCatalogue:
    """Build the catalogue of one outcome.

    If the policy leaves the margin open, and the people with the margin form no group, there is no
    margin.
    """
    rows = population.coded_rows
    person = population.person_of_row

    def build(margin: float) -> OutcomeCatalogue:
        random = np.random.default_rng(random_state)
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


def _regions(catalogue: OutcomeCatalogue) -> list[Region]:
    """Return the regions of a catalogue as they are released."""
    return [catalogue.regions.region(i) for i in range(len(catalogue.regions))]


def _recounter(
    catalogue: OutcomeCatalogue,
    policy: PrivacyPolicy,
    people: PeopleHere | PeopleElsewhere,
    fingerprint: str,
) -> Recounter:
    """Return what counts the answers of one outcome's catalogue again."""
    has_margin = policy.margin != 0 and not (policy.margin == "auto" and catalogue.model.later)
    margin = catalogue.model.margin if has_margin else None
    return Recounter(
        model=catalogue.model,
        policy=policy,
        people=people,
        fingerprint=fingerprint,
        margin=margin,
    )
