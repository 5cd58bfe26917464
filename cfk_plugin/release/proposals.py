"""Regions that a protector proposes for candidates, and what the verifier decides on them.

Proposals of a plugin are copied into the population's own values before anything uses them. The
verifier recounts each. Where people in a region are too similar in their sensitive attributes, the
protector may be asked again, for twice as many people.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from cfk_plugin.data.domain import Rows
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.partition.partition import GroupProtector
from cfk_plugin.release.call import Candidates
from cfk_plugin.release.guarantee import Guarantee
from cfk_plugin.release.rebuilt_proposals import rebuild
from cfk_plugin.release.results import Withheld
from cfk_plugin.release.verdicts import Verdict, refused
from cfk_plugin.release.verification import Verifier

_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
# protectors whose regions are made of the population's own values
_OWN = (*BUILT_IN.values(), GroupProtector)


@dataclass(frozen=True, eq=False, repr=False)
class Proposals(HostOnly):
    """What a protector proposes for n candidates."""

    proposals: Sequence[Proposal | None]  # None for a malformed one
    groups: Rows | None  # shape (n,); -1 for no group; None if the guarantee has no groups


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Proposer(HostOnly):
    """Asks a protector for regions, and a verifier whether they may be released."""

    population: Population
    policy: PrivacyPolicy
    guarantee: Guarantee
    protector: Protector
    method: str  # the protector's name, read before it saw any data
    verifier: Verifier
    seed: int

    def protect(self, candidates: Candidates) -> list[Verdict]:
        """Return a certified region per candidate, or a refusal; equal candidates share one."""
        if not len(candidates):
            return []
        keys = _keys(candidates)
        first_of_key: dict[Hashable, int] = {}
        for i, key in enumerate(keys):
            first_of_key.setdefault(key, i)
        n_distinct = len(first_of_key)
        distinct = candidates
        if n_distinct < len(candidates):
            distinct = candidates.take(np.array([*first_of_key.values()]))
        verdicts = self._protect_for_enough_people(distinct)
        verdict_of_key = dict(zip(first_of_key, verdicts, strict=True))
        if candidates.progress is not None:
            candidates.progress(n_distinct, n_distinct)
        return [verdict_of_key[key] for key in keys]

    def _protect_for_enough_people(self, candidates: Candidates) -> list[Verdict]:
        """Ask for k people and, where they are too similar, again for 2k, 4k, ... people."""
        verdicts = self._protect_once(candidates, self.policy)
        if not self.guarantee.asks_for_more_people:
            return verdicts
        policy = self.policy
        for _ in range(_DOUBLINGS):
            too_similar = [i for i, verdict in enumerate(verdicts) if _is_too_similar(verdict)]
            if not too_similar or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            some = replace(candidates.take(np.array(too_similar)), progress=None)
            for i, verdict in zip(too_similar, self._protect_once(some, policy), strict=True):
                verdicts[i] = verdict
        return verdicts

    def _protect_once(self, candidates: Candidates, policy: PrivacyPolicy) -> list[Verdict]:
        """Ask for a region for the people that a policy wants, and verify it for our own policy."""
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                proposed = self.propose(candidates, policy)
        except PluginError as error:
            _log.warning("protector %s %s", self.method, error)
            return [refused("protector_failed")] * len(candidates)
        verdicts = self.verifier.verify(
            [self._claimed(proposal, policy) for proposal in proposed.proposals],
            candidates.points.codes,
            candidates.points.numbers,
            candidates.combination_outcomes,
            self.method,
        )
        return [
            verdict if self._is_admissible(proposed, i) else _refused_as(verdict)
            for i, verdict in enumerate(verdicts)
        ]

    def _claimed(self, proposal: Proposal | None, policy: PrivacyPolicy) -> Proposal:
        """Return what is verified of a proposal; optimality is not claimed for more people."""
        if proposal is None:
            return Proposal(None)
        if policy.k != self.policy.k:
            return Proposal(proposal.region)
        return proposal

    def _is_admissible(self, proposed: Proposals, i: int) -> bool:
        """Return True if a proposal is well-formed, and its region one that the guarantee allows.

        No region may be released for the want of one; the verifier withholds that.
        """
        proposal = proposed.proposals[i]
        if proposal is None:
            return False
        if proposal.region is None or proposed.groups is None:
            return True
        return self.guarantee.is_admissible(proposal.region, int(proposed.groups[i]))

    def propose(self, candidates: Candidates, policy: PrivacyPolicy) -> Proposals:
        """Ask the protector for a region per candidate.

        It gets copies of everything: what it does to its request must not reach verification, or
        the next request.

        Raises
        ------
        TypeError
            If it does not return one proposal per candidate.
        """
        groups = self.guarantee.groups_of(candidates)
        groups_for_protector = None if groups is None else groups.copy()
        codes, numbers = candidates.points.quasi_identifiers
        request = ProtectionRequest(
            population=self.population,
            policy=copy(policy),
            codes=codes.copy(),
            numbers=numbers.copy(),
            combination_outcomes=candidates.combination_outcomes,
            seed=self.seed,
            progress=candidates.progress,
            groups=groups_for_protector,
        )
        proposals = list(self.protector.protect(request))
        is_complete = len(proposals) == len(candidates)
        if not is_complete or any(type(proposal) is not Proposal for proposal in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        if type(self.protector) in _OWN:
            return Proposals(proposals, groups)
        return Proposals([rebuild(proposal, self.population) for proposal in proposals], groups)


def _keys(candidates: Candidates) -> list[Hashable]:
    """Return a key per candidate; those with the same one get the same region.

    It has the values of all features, the label to reach or to leave, and the entry that an answer
    is made of.
    """
    codes = candidates.points.codes
    numbers = candidates.points.numbers
    deciding_labels = candidates.labels
    if candidates.factual_labels is not None:
        deciding_labels = candidates.factual_labels
    entries = [-1] * len(candidates)
    if candidates.origin is not None:
        entries = candidates.origin.entries.tolist()
    return [
        (codes[i].tobytes(), numbers[i].tobytes(), label, entries[i])
        for i, label in enumerate(deciding_labels.tolist())
    ]


def _is_too_similar(verdict: Verdict) -> bool:
    return isinstance(verdict, Withheld) and verdict.reason in _DIVERSITY


def _refused_as(verdict: Verdict) -> Withheld:
    """Refuse a region that is not admissible, and keep how many people were too few, if so."""
    return refused("verification_failed", getattr(verdict, "refused_k", None))
