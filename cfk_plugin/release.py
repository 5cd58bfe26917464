"""From checked counterfactuals to certified regions: protection, then verification."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Certificate
from cfk_plugin.errors import ModelError, PluginError, quiet
from cfk_plugin.intake import Intake
from cfk_plugin.oracle import Oracle
from cfk_plugin.plugins import PluginManager
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection.base import Progress, Proposal, Protector, Task
from cfk_plugin.rebuild import own_copy
from cfk_plugin.region import Region
from cfk_plugin.verification import Refusal, Verifier

_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
_PLUGIN = "plugin"  # method of a region that came from the hook instead of the protector

Verdict = Refusal | tuple[Region, Certificate]
Key = tuple[bytes, bytes, object]  # a counterfactual's codes and numbers, and what it is after


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReleaseStage:
    """What protection and verification need, bound once.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    protector : Protector
    method : str
        The protector's name, read before it saw any data.
    plugins : PluginManager
        May protect in the protector's place; what they return is verified alike.
    verifier : Verifier
    seed : int
    memory : dict, optional
        Verdicts that are given again where the same is asked; for one call alone, as its keys are counterfactuals.
    """

    population: Population
    policy: PrivacyPolicy
    protector: Protector
    method: str
    plugins: PluginManager
    verifier: Verifier
    seed: int
    memory: dict[Key, Verdict] | None = None

    def run(
        self,
        intake: Intake,
        goals: Sequence[object],
        oracle: Oracle,
        sides: NDArray[np.int64],
        progress: Progress | None = None,
    ) -> list[Verdict]:
        """Return a certified region or a refusal per counterfactual; equal ones of equal goal are solved once.

        Parameters
        ----------
        intake : Intake
        goals : sequence
            What each counterfactual is after: equal goals are judged alike.
        oracle : Oracle
        sides : int64 array, shape (n,)
            Side of the partition that each belongs to.
        progress : callable, optional
        """
        keys = [(intake.codes[i].tobytes(), intake.numbers[i].tobytes(), goal) for i, goal in enumerate(goals)]
        known: dict[Key, Verdict] = {} if self.memory is None else self.memory
        new: dict[Key, int] = {}
        for i, key in enumerate(keys):
            if key not in known:
                new.setdefault(key, i)
        if new:
            first = np.fromiter(new.values(), dtype=np.int64, count=len(new))
            found = self._run_distinct(intake.take(first), oracle.restrict(first), sides[first], progress)
            known.update(zip(new, found, strict=True))
            if progress is not None:
                progress(len(new), len(new))
        return [known[key] for key in keys]

    def _run_distinct(
        self, intake: Intake, oracle: Oracle, sides: NDArray[np.int64], progress: Progress | None
    ) -> list[Verdict]:
        """Protect and verify; where sensitive values are too alike, ask again for twice as many people.

        The groups of a partition are diverse from the start, as far as they can be.
        """
        verdicts = self._attempt(self.policy, intake, oracle, sides, progress)
        policy = self.policy
        for _ in range(_DOUBLINGS if self.verifier.partition is None else 0):
            alike = [i for i, v in enumerate(verdicts) if isinstance(v, Refusal) and v.reason in _DIVERSITY]
            if not alike or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            at = np.array(alike)
            again = self._attempt(policy, intake.take(at), oracle.restrict(at), sides[at], None)
            for i, verdict in zip(alike, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _attempt(
        self,
        policy: PrivacyPolicy,
        intake: Intake,
        oracle: Oracle,
        sides: NDArray[np.int64],
        progress: Progress | None,
    ) -> list[Verdict]:
        groups = self._groups(intake, sides)
        task = self._task(policy, intake, oracle, groups, progress)
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                found, method = self._proposals(task)
        except PluginError as error:
            _log.warning("protector %s %s", self.method, error)
            return [Refusal("protector_failed")] * len(intake)
        # With more people than the policy's k there is no claim that nothing better exists.
        proposals = [own_copy(p, self.population, claims=policy.k == self.policy.k) for p in found]
        sound = [Proposal(None) if p is None else p for p in proposals]
        certified = self.verifier.verify(sound, intake.codes, intake.numbers, oracle, method)
        verdicts: list[Verdict] = []
        for i, (proposal, verdict) in enumerate(zip(proposals, certified, strict=True)):
            if proposal is None or not self._is_own(groups, i, proposal):
                verdicts.append(Refusal("verification_failed", verdict.k if isinstance(verdict, Refusal) else None))
            elif isinstance(verdict, Refusal) or proposal.region is None:
                verdicts.append(verdict if isinstance(verdict, Refusal) else Refusal("verification_failed"))
            else:
                verdicts.append((proposal.region, verdict))
        return verdicts

    def _groups(self, intake: Intake, sides: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the group that each counterfactual belongs to, where a partition says so."""
        partition = self.verifier.partition
        return None if partition is None else partition.group_of(intake.codes, intake.numbers, sides)

    def _is_own(self, groups: NDArray[np.int64] | None, i: int, proposal: Proposal) -> bool:
        """Say whether a region is that of the counterfactual's own group: whoever is given another's stands out."""
        partition = self.verifier.partition
        if partition is None or groups is None or proposal.region is None:
            return True
        return bool(groups[i] >= 0) and proposal.region == partition.regions[groups[i]]

    def propose(self, intake: Intake, oracle: Oracle, sides: NDArray[np.int64]) -> list[Region | None]:
        """Return what protection alone proposes; nothing is verified, nothing of it may be released."""
        task = self._task(self.policy, intake, oracle, self._groups(intake, sides), None)
        return [proposal.region for proposal in self._proposals(task)[0]]

    def _task(
        self,
        policy: PrivacyPolicy,
        intake: Intake,
        oracle: Oracle,
        groups: NDArray[np.int64] | None,
        progress: Progress | None,
    ) -> Task:
        """Make a task of copies: what a protector does to it reaches neither verification nor the next attempt."""
        codes, numbers = intake.quasi_identifiers
        own = None if groups is None else groups.copy()
        return Task(self.population, replace(policy), codes, numbers, oracle, self.seed, progress, own)

    def _proposals(self, task: Task) -> tuple[list[Proposal], str]:
        n = len(task)
        answer = self.plugins.protect(task)
        method = self.method if answer is None else _PLUGIN
        proposals = list(self.protector.protect(task) if answer is None else answer)
        if len(proposals) != n or not all(type(p) is Proposal for p in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        return proposals, method
