"""The last stage: entries become the result that leaves, and plugins are told what was released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from cfk_plugin.about import About, Call
from cfk_plugin.counterfactual import Entry, Finding, Suppressed
from cfk_plugin.detection import Detector
from cfk_plugin.environment import environment_of
from cfk_plugin.errors import InfeasibleError
from cfk_plugin.explanations import Explanations
from cfk_plugin.hookspecs import ReleaseRecord
from cfk_plugin.plugins import PluginManager
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.population_facts import facts_of


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultStage:
    """What a result says of where it comes from, bound once. Host side only.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    method : str
        Name of the method, as certificates and runs show it.
    manager : PluginManager
        Plugins that are told.
    detector : Detector
        Whose tolerance is told.
    about : About
        What is known of population and environment.
    """

    population: Population
    policy: PrivacyPolicy
    method: str
    manager: PluginManager
    detector: Detector
    about: About

    @classmethod
    def of(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        method: str,
        manager: PluginManager,
        detector: Detector,
        **used: Any,
    ) -> Self:
        """Make the stage of a fit; `used` are further settings, see `environment_of`."""
        about = About(facts_of(population, policy.k), environment_of(plugins=manager.versions(), **used))
        return cls(population, policy, method, manager, detector, about)

    def wrap(
        self,
        entries: Sequence[Entry],
        findings: Sequence[Finding | None],
        generator: str,
        call: Call,
        record: Callable[[Explanations], bool] | None = None,
    ) -> Explanations:
        """Return entries as a result, in order.

        Parameters
        ----------
        entries : sequence of Entry
        findings : sequence of Finding or None
        generator : str
        call : Call
            Which call this answers.
        record : callable, optional
            Keeps a record of the result and says whether it may be given out; if not, every entry is withheld.

        Raises
        ------
        InfeasibleError
            If the policy says ``on_infeasible="raise"`` and an entry had to be suppressed.
        """
        about = self._about(generator).of_call(call, [entry.query for entry in entries])
        made = {"generator": generator} | ({"candidates": str(call.candidates)} if call.candidates > 1 else {})
        result = self._result(entries, findings, made, about)
        if record is not None and not record(result):
            withheld = [Suppressed(entry.query, "not_recorded") for entry in entries]
            result = self._result(withheld, [None] * len(withheld), made, about)
        if self.policy.on_infeasible == "raise" and result.suppressed:
            reasons = ", ".join(sorted({entry.reason for entry in result.suppressed}))
            raise InfeasibleError(f"{len(result.suppressed)} of {len(result)} explanations are withheld: {reasons}")
        policy = self.policy.sha256
        for entry in result:
            self.manager.released(ReleaseRecord.of(entry, self.method, policy, self.population.fingerprint))
        return result

    def _about(self, generator: str) -> About:
        facts = {"fingerprint": self.population.fingerprint, "tolerance": self.detector.used}
        return replace(
            self.about,
            population={**(self.about.population or {}), **facts},
            environment={**(self.about.environment or {}), "generator": generator},
        )

    def _result(
        self, entries: Sequence[Entry], findings: Sequence[Finding | None], made: Mapping[str, str], about: About
    ) -> Explanations:
        versions = self.manager.versions().items()
        return Explanations(
            entries,
            policy=self.policy,
            columns=self.population.schema.features,
            findings=findings,
            n_people=self.population.n_people,
            provenance={
                "method": self.method,
                "population": self.population.fingerprint,
                "plugins": ", ".join(f"{name} {version}" for name, version in versions),
                **made,
            },
            about=about,
        )
