"""From checked counterfactuals to certified regions: protection, then verification."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Certificate
from cfk_plugin.errors import ModelError
from cfk_plugin.intake import Intake
from cfk_plugin.oracle import Oracle
from cfk_plugin.plugins import PluginManager
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection.base import Progress, Proposal, Protector, Task
from cfk_plugin.region import Region
from cfk_plugin.verification import Refusal, Verifier

_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")

Verdict = Refusal | tuple[Region, Certificate]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReleaseStage:
    """What protection and verification need, bound once.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    protector : Protector
    plugins : PluginManager
        May protect in the protector's place; what they return is verified alike.
    verifier : Verifier
    seed : int
    """

    population: Population
    policy: PrivacyPolicy
    protector: Protector
    plugins: PluginManager
    verifier: Verifier
    seed: int

    def run(
        self, intake: Intake, goals: Sequence[object], oracle: Oracle, progress: Progress | None = None
    ) -> list[Verdict]:
        """Return a certified region or a refusal per counterfactual; equal ones of equal goal are solved once."""
        first, inverse = _distinct(intake, goals)
        once = self._run_distinct(intake.take(first), oracle.restrict(first), progress)
        return [once[i] for i in inverse]

    def _run_distinct(self, intake: Intake, oracle: Oracle, progress: Progress | None) -> list[Verdict]:
        """Protect and verify; where sensitive values are too alike, ask again for twice as many people."""
        verdicts = self._attempt(self.policy, intake, oracle, progress)
        policy = self.policy
        for _ in range(_DOUBLINGS):
            alike = [i for i, v in enumerate(verdicts) if isinstance(v, Refusal) and v.reason in _DIVERSITY]
            if not alike or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            at = np.array(alike)
            for i, verdict in zip(alike, self._attempt(policy, intake.take(at), oracle.restrict(at), None), strict=True):
                verdicts[i] = verdict
        return verdicts

    def _attempt(
        self, policy: PrivacyPolicy, intake: Intake, oracle: Oracle, progress: Progress | None
    ) -> list[Verdict]:
        task = Task(self.population, policy, intake.codes, intake.numbers, oracle, self.seed, progress)
        try:
            proposals = self._proposals(task)
        except ModelError:
            raise
        except Exception as error:
            _log.warning("protector %s raised %s; its explanations are withheld", self.protector.name, type(error).__name__)
            return [Refusal("protector_failed")] * len(task)
        if policy.k > self.policy.k:  # more people than the policy's k: no claim that nothing better exists
            proposals = [Proposal(p.region) for p in proposals]
        certified = self.verifier.verify(
            proposals, intake.frame, intake.codes, intake.numbers, oracle, self.protector.name
        )
        return [
            (proposal.region, verdict) if isinstance(verdict, Certificate) and proposal.region is not None else _refusal(verdict)
            for proposal, verdict in zip(proposals, certified, strict=True)
        ]

    def _proposals(self, task: Task) -> Sequence[Proposal]:
        proposals = self.plugins.protect(task)
        if proposals is None:
            proposals = self.protector.protect(task)
        if len(proposals) != len(task) or not all(isinstance(p, Proposal) for p in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        return proposals


def _refusal(verdict: Certificate | Refusal) -> Refusal:
    return verdict if isinstance(verdict, Refusal) else Refusal("verification_failed")


def _distinct(intake: Intake, goals: Sequence[object]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each group of equal counterfactuals, and the group of each."""
    groups: dict[tuple[object, ...], int] = {}
    first, inverse = [], []
    for i, row in enumerate(intake.frame.itertuples(index=False, name=None)):
        group = groups.setdefault((*row, goals[i]), len(groups))
        if group == len(first):
            first.append(i)
        inverse.append(group)
    return np.array(first, dtype=np.int64), np.array(inverse, dtype=np.int64)
