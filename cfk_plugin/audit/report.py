"""All attacks of one audit together: run them, read them, log them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cfk_plugin.audit.disclosure import homogeneity, uniqueness
from cfk_plugin.audit.downcoding import downcoding
from cfk_plugin.audit.intersection import Again, intersection
from cfk_plugin.audit.inversion import inversion
from cfk_plugin.audit.linkage import linkage
from cfk_plugin.audit.model_filter import model_filter
from cfk_plugin.audit.promise import Check, Verdict, checks, verdict
from cfk_plugin.audit.result import AuditResult, to_frame
from cfk_plugin.audit.setting import Setting
from cfk_plugin.audit.steering import Ask, steering
from cfk_plugin.audit.tracking import metrics
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.records.run import LoggedReport, ReportContents

ARTIFACT = "cfk/audit-linkage.json"
SCHEMA_VERSION = 1
"""Version of the layout of `AuditReport.to_json`."""

ATTACKS: Mapping[str, Callable[..., AuditResult]] = {
    "linkage": linkage,
    "inversion_own": functools.partial(inversion, rerun="own"),
    "inversion_released": functools.partial(inversion, rerun="released"),
    "model_filter": model_filter,
    "steering": steering,
    "intersection": intersection,
    "homogeneity": homogeneity,
    "uniqueness": uniqueness,
    "downcoding": downcoding,
}
"""The attacks by name, in the order in which they are run."""


@dataclass(frozen=True, slots=True)
class AuditReport(LoggedReport):
    """The results of several attacks on one anonymizer. Counts, shares and settings alone; it may leave the host.

    Attributes
    ----------
    results : tuple of AuditResult
    checks : tuple of Check
        What the policy's guarantee promises, and what was found.
    policy : mapping
        Settings of the policy.
    method : str
        The protector's name.
    population : str
        Keyed fingerprint of the population.
    asked, released : int
        Counterfactuals attacked, and released ones among them.
    seed : int
    """

    results: tuple[AuditResult, ...]
    checks: tuple[Check, ...]
    policy: Mapping[str, Any]
    method: str
    population: str
    asked: int
    released: int
    seed: int

    def __iter__(self) -> Iterator[AuditResult]:
        """Iterate over the results."""
        return iter(self.results)

    def __getitem__(self, attack: str) -> AuditResult:
        """Return the result of one attack."""
        for result in self.results:
            if result.attack == attack:
                return result
        raise KeyError(attack)

    @property
    def verdict(self) -> Verdict:
        """Return "pass" when every promise holds, "fail" when one is broken, "review" when one was not checked."""
        return verdict(self.checks)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per attack; see `cfk_plugin.audit.to_frame`."""
        return to_frame(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "linkage",
            "verdict": self.verdict,
            "checks": [check.to_dict() for check in self.checks],
            "policy": dict(self.policy),
            "method": self.method,
            "population": self.population,
            "asked": self.asked,
            "released": self.released,
            "seed": self.seed,
            "results": [result.to_dict() for result in self.results],
        }

    def _contents(self) -> ReportContents:
        """Return metrics ``audit/<attack>/<figure>``, the settings, and the report."""
        settings = {
            "audit.n": self.asked,
            "audit.seed": self.seed,
            "audit.attacks": ",".join(result.attack for result in self),
            "audit.k": self.policy["k"],
            "audit.guarantee": self.policy["guarantee"],
            "audit.method": self.method,
        }
        marks = {
            "cfk.audit": "linkage",
            "cfk.audit.verdict": self.verdict,
            "cfk.population_fingerprint": self.population,
        }
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=ARTIFACT,
            metrics=tuple(metrics(self.results)),
            params={name: str(value) for name, value in settings.items()},
            tags=marks,
        )


def run_linkage_audit(
    setting: Setting,
    attacks: Sequence[str] | None = None,
    *,
    ask: Ask | None = None,
    release: Again | None = None,
    simulations: int = 20,
    progress: Progress | None = None,
) -> AuditReport:
    """Run attacks that link explanations to people.

    Parameters
    ----------
    setting : Setting
    attacks : sequence of str, optional
        Names of `ATTACKS`. Default: all of them.
    ask : callable, optional
        What `steering` asks.
    release : callable, optional
        What `intersection` is released by.
    simulations : int
        Runs per candidate with which a randomised algorithm is inverted.
    progress : callable, optional
        Called with (done, total) attacks.

    Returns
    -------
    AuditReport

    Raises
    ------
    InputError
        If an attack is unknown.
    """
    wanted = list(ATTACKS) if attacks is None else list(dict.fromkeys(attacks))
    if unknown := [name for name in wanted if name not in ATTACKS]:
        raise InputError(f"unknown attack {', '.join(map(str, unknown))}; known: {', '.join(ATTACKS)}")
    options: Mapping[str, dict[str, Any]] = {
        "inversion_own": {"simulations": simulations},
        "inversion_released": {"simulations": simulations},
        "steering": {"ask": ask},
        "intersection": {"release": release},
    }
    results: list[AuditResult] = []
    for name in wanted:
        if progress is not None:
            progress(len(results), len(wanted))
        results.append(ATTACKS[name](setting, **options.get(name, {})))
    if progress is not None:
        progress(len(results), len(wanted))
    policy = setting.anonymizer.policy_
    return AuditReport(
        tuple(results),
        checks(policy, {result.attack: result for result in results}),
        policy.to_dict(),
        setting.anonymizer.method_,
        setting.population.fingerprint,
        len(setting.raw),
        len(setting.releases),
        setting.seed,
    )
