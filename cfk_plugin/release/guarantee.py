"""What a released region guarantees: a class per kind, chosen once, in `fit`.

The pipeline asks a guarantee which points may be released for a call, which training rows are
released with a region, and which explanations of one query must not stand together. No step of the
pipeline asks which kind of guarantee is in force. `cfk_plugin.release.guarantee_choice` chooses the
kind from the policy.
"""

# ruff: noqa: ARG002, ARG003 - a kind may need arguments that a default, or another kind, does not

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import Domain, Rows
from cfk_plugin.data.eligibility import EligibilityClasses
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.policy import PrivacyPolicy, SearchStart
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.errors import (
    HostOnly,
    LookupGuaranteeWarning,
    PolicyError,
)
from cfk_plugin.hookspecs import Protector
from cfk_plugin.protection.partition.partition import Partition
from cfk_plugin.release.call import Call, Candidates, DesiredCounterfactuals, Selection, rows_of
from cfk_plugin.release.protector_choice import choose_protector
from cfk_plugin.release.results import Explanation
from cfk_plugin.release.verdicts import Verdict
from cfk_plugin.release.verification import Verifier

if TYPE_CHECKING:
    from cfk_plugin.protection.catalogue.catalogue import Catalogue

RegisteredProtectors = Callable[[], Mapping[str, Callable[[], Protector]]]
"""Returns the protectors of plugins by their names."""

_NO_CATALOGUE = '{} needs a catalogue: fit with PrivacyPolicy(guarantee="catalogue")'
_WEAK = (
    "a lookup guarantee counts the people in a region; somebody who reruns the algorithm, or asks"
    ' the model, may be left with fewer. guarantee="catalogue" holds against both'
)


@dataclass(frozen=True, kw_only=True)
class SealedContent:
    """What the file of a sealed catalogue holds: no row, and no private value of a row."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    entries: Mapping[str, Domain]  # domains of the entries' private attributes


class Guarantee(HostOnly, ABC):
    """What is released for a call, and who shares it.

    As it stands, an explainer's counterfactuals are released themselves, with the region that the
    protector gives them. A kind says which rows are released with a region (`members`) and by which
    protector regions are proposed (`choose_protector`), and replaces what differs.

    Attributes
    ----------
    may_choose_method : bool
        Whether a protector may be chosen.
    asks_for_more_people : bool
        Whether a region is proposed again, for twice as many people, where those inside are too
        similar in their sensitive attributes.
    knows_group_of_counterfactuals : bool
        Whether a search may start at an explainer's counterfactual.
    """

    may_choose_method: ClassVar[bool] = False
    asks_for_more_people: ClassVar[bool] = False
    knows_group_of_counterfactuals: ClassVar[bool] = True

    def __init__(
        self, policy: PrivacyPolicy, rows: TrainingLabels, eligibility: EligibilityClasses
    ) -> None:
        self.policy = policy
        self.rows = rows
        self.eligibility = eligibility

    @property
    def population(self) -> Population:
        """The people among whom explanations hide."""
        return self.rows.population

    # --- the people who share a region ------------------------------------------------------------

    @abstractmethod
    def members(self, region: Region) -> Rows:
        """Return the training rows that are released with a region, whatever is asked."""

    def verifier(self, *, seed: int) -> Verifier:
        """Return a verifier that counts the `members` of a region, or knows what was sealed."""
        return Verifier(
            self.population,
            self.policy,
            mapped_rows=self.members,
            sealed=self.sealed_regions,
            requirement=self.rows.requirement,
            seed=seed,
        )

    @property
    def sealed_regions(self) -> Callable[[Region], SealedRegion | None] | None:
        """A function from a region to what was sealed of it; None where people are counted."""
        return None

    # --- what may be released for a call ----------------------------------------------------------

    def is_for_query(self, *, is_limited: bool) -> bool:
        """Return True if a row of a call is answered for its query, which must then be valid.

        `is_limited` says whether the schema or the call limits what the person can change.
        """
        return is_limited

    def candidates(self, call: Call) -> Selection:
        """Return what may be released for counterfactuals, and the reasons where nothing may."""
        return self._themselves(call, self._desired_counterfactuals(call))

    def answers(self, call: Call) -> Selection:
        """Return what may be released for queries without any counterfactual."""
        raise PolicyError(_NO_CATALOGUE.format("explain()"))

    def _desired_counterfactuals(self, call: Call) -> DesiredCounterfactuals:
        """Ask for the labels of valid counterfactuals, and leave out those that are not desired.

        Labels of factuals that are not known are asked for in the same model call.
        """
        position = call.valid_rows()
        labels, factual_labels = self.rows.outcomes(
            call.points.take(position), call.factuals_to_label(position)
        )
        has_outcome = np.zeros(len(call), dtype=bool)
        if call.known_already_desired is not None:
            has_outcome[call.known_already_desired] = True
        if call.query_outcomes is not None and factual_labels is not None:
            has_outcome |= call.query_outcomes.with_outcome(call.goal, factual_labels)
            factual_labels = None  # one outcome is desired for all, whatever their labels
        is_answered = ~has_outcome[position]
        if len(position):
            judge = call.goal.test_for(labels, factual_labels)
            is_answered &= judge(labels, np.arange(len(position)))
        return DesiredCounterfactuals(
            position=position[is_answered],
            labels=labels[is_answered],
            factual_labels=rows_of(factual_labels, is_answered),
            already_desired=np.flatnonzero(has_outcome),
        )

    def _themselves(self, call: Call, desired: DesiredCounterfactuals) -> Selection:
        """Return the counterfactuals themselves as candidates."""
        withheld = dict.fromkeys(desired.already_desired.tolist(), ALREADY_DESIRED)
        if not len(desired):
            return Selection(None, withheld)
        points = call.points.take(desired.position)
        combination_outcomes = CombinationOutcomes(
            call.goal.test_for(desired.labels, desired.factual_labels),
            self.rows,
            points,
            desired_at=points.quasi_identifiers[0],
        )
        candidates = Candidates(
            position=desired.position,
            points=points,
            query=call.query[desired.position],
            goal=call.goal,
            labels=desired.labels,
            factual_labels=desired.factual_labels,
            combination_outcomes=combination_outcomes,
            eligibility=self.eligibility.of(desired.labels),
            constraints=call.constraints_of(desired.position),
            progress=call.progress,
        )
        return Selection(candidates, withheld)

    # --- regions ----------------------------------------------------------------------------------

    @abstractmethod
    def choose_protector(
        self, method: str | Protector, registered: RegisteredProtectors
    ) -> tuple[Protector, str]:
        """Return the protector that proposes regions, and its name.

        `method` is what the user asks for. `registered` asks plugins for their protectors; it is
        called only where one may be chosen, so that a broken plugin does no harm elsewhere.
        """

    def groups_of(self, candidates: Candidates) -> Rows | None:
        """Return the group of each candidate, -1 for none; None if there are no groups."""
        return None

    def is_admissible(self, region: Region, group: int) -> bool:
        """Return True if a proposed region may be released for a candidate of this group."""
        return True

    # --- several releases -------------------------------------------------------------------------

    def combine(self, explanations: Sequence[Explanation], query: Rows) -> list[Explanation]:
        """Withhold explanations that must not stand beside others of the same query."""
        return list(explanations)

    # --- what is said of explanations -------------------------------------------------------------

    def with_answer_facts(
        self, candidates: Candidates, verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Note on certificates what is true of an answer and not of its region alone."""
        return list(verdicts)

    @property
    def presentation(self) -> Presentation:
        """What sentences of explanations need."""
        return Presentation.of(self.population.schema)

    def provenance(self, start: SearchStart) -> dict[str, str]:
        """Return what a run notes about where the search for answers started."""
        return {}

    def facts_for_card(self) -> dict[str, str]:
        """Return what the card of a fitted anonymizer shows of the guarantee."""
        return {}

    # --- a catalogue, its publication and sealing -------------------------------------------------

    @property
    def partition(self) -> Partition | None:
        """The groups that are fixed beforehand; None if there are none."""
        return None

    @property
    def catalogue(self) -> Catalogue | None:
        """The catalogue that answers come from; None if they come from an explainer."""
        return None

    def require_catalogue(self, caller: str) -> Catalogue:
        """Return the catalogue; without one, refuse what needs it and is named in the message."""
        raise PolicyError(_NO_CATALOGUE.format(caller))

    def sealed_content(self) -> SealedContent:
        """Return what another process needs to give the same guarantee, without rows."""
        raise PolicyError(_NO_CATALOGUE.format("seal()"))

    @classmethod
    def warning(cls, policy: PrivacyPolicy) -> tuple[str, type[Warning]] | None:
        """Return what `fit` warns of under a policy, with the warning's category."""
        return None


class LookupGuarantee(Guarantee):
    """At least k people are inside a region, which a protector chooses for each counterfactual.

    Somebody who reruns the protector for each of them may find that fewer get this region.
    """

    may_choose_method = True
    asks_for_more_people = True

    def members(self, region: Region) -> Rows:
        """Return no rows: regions are not fixed beforehand, so nobody belongs to one."""
        return np.empty(0, dtype=np.int64)

    def verifier(self, *, seed: int) -> Verifier:
        """Return a verifier that counts everyone inside a region."""
        return Verifier(
            self.population,
            self.policy,
            requirement=self.rows.requirement,
            seed=seed,
        )

    def choose_protector(
        self, method: str | Protector, registered: RegisteredProtectors
    ) -> tuple[Protector, str]:
        """Return the protector that the user asks for."""
        return choose_protector(method, registered())

    @classmethod
    def warning(cls, policy: PrivacyPolicy) -> tuple[str, type[Warning]] | None:
        """Return how this guarantee can be circumvented."""
        return _WEAK, LookupGuaranteeWarning
