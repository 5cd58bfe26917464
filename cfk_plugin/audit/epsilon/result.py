"""What an audit of epsilon found: a bound, what it could have been at most, and what follows for the claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from cfk_plugin.audit.promise import Verdict
from cfk_plugin.audit.result import AuditResult, Rate
from cfk_plugin.audit.tracking import metrics
from cfk_plugin.records.run import LoggedReport, ReportContents

SCHEMA_VERSION = 1
"""Version of the layout of `EpsilonAudit.to_json`."""

Attack = Literal["epsilon", "epsilon_one_run"]

NO_NOISE = (
    "every run of a world gave the same output: nothing random is in it, or the function draws the same numbers in "
    "every run; if it should not, give each run fresh ones"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonAudit(LoggedReport):
    """A lower bound on the epsilon of a function. Counts, shares and settings alone; it may leave the host.

    An audit can refute a claim and never prove it: "pass" says that this attack, with so many runs, found nothing.

    Attributes
    ----------
    attack : {"epsilon", "epsilon_one_run"}
    scenario : str
        What the attacker knows and does, in one sentence.
    relation : str
        Which tables are neighbours: claim and bound speak of that relation.
    claimed, delta : float
        The claim.
    confidence : float
        Of the bound.
    epsilon_low : float
        The bound.
    ceiling : float
        The largest bound that these sizes could print.
    needed : int or None
        Runs in each world, or canaries of one run, below which no violation of the claim could be seen; None where
        no number within reach is enough.
    runs : int
        Runs in each world; 1 for a one-run audit.
    main : Rate
        Guesses about the canary that were right.
    tpr, fpr : Rate or None
        How often the canary was found with it and without it, in the runs that were counted; None for a one-run audit.
    figures : mapping
        The attack's own numbers.
    seed : int
    constant : bool
        Whether every run of a world gave the same output.
    """

    attack: Attack
    scenario: str
    relation: str
    claimed: float
    delta: float
    confidence: float
    epsilon_low: float
    ceiling: float
    needed: int | None
    runs: int
    main: Rate
    tpr: Rate | None = None
    fpr: Rate | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    constant: bool = False

    def __post_init__(self) -> None:
        """Keep the figures as they were measured."""
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def verdict(self) -> Verdict:
        """Return "fail" when the bound exceeds the claim, "review" when it never could, else "pass": not refuted."""
        if self.epsilon_low > self.claimed:
            return "fail"
        return "review" if self.ceiling <= self.claimed else "pass"

    @property
    def unit(self) -> str:
        """What `needed` counts."""
        return "runs in each world" if self.attack == "epsilon" else "canaries"

    @property
    def advice(self) -> str:
        """What follows from the bound, in one sentence."""
        claim = f"epsilon = {self.claimed:g}" + (f", delta = {self.delta:g}" if self.delta else "")
        if self.verdict == "fail":
            return f"the claim {claim} is refuted: the bound exceeds it"
        if self.verdict == "pass":
            return f"the claim {claim} is not refuted, which does not prove it"
        limit = f"this audit cannot fail: it can show at most {self.ceiling:.2f}"
        if self.needed is None:
            return f"{limit}, and no number of {self.unit} within reach could refute {claim}"
        return f"{limit}; to see a violation of {claim} you need at least {self.needed} {self.unit}"

    @property
    def warning(self) -> str | None:
        """What to keep in mind when reading the numbers, if anything."""
        return NO_NOISE if self.constant else self.result.warning

    @property
    def result(self) -> AuditResult:
        """The audit in the shape of every attack; its baseline is a coin, its control none."""
        own = {"epsilon_low": self.epsilon_low, "claimed": self.claimed, "delta": self.delta, "ceiling": self.ceiling}
        own |= {"confidence": self.confidence, "runs": self.runs}
        own |= {} if self.needed is None else {"needed": self.needed}
        for name, rate in (("tpr", self.tpr), ("fpr", self.fpr)):
            if rate is not None:
                own |= {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
        coin = Rate(0.5, 0.5, 0.5, self.main.n)
        figures = {**own, **self.figures}
        return AuditResult(self.attack, self.scenario, self.main, coin, None, figures, self.seed, self.main.n)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.attack,
            "verdict": self.verdict,
            "advice": self.advice,
            "warning": self.warning,
            "relation": self.relation,
            **self.result.to_dict(),
        }

    def _contents(self) -> ReportContents:
        """Return metrics ``audit/<attack>/<figure>``, the claim, the verdict, and the report."""
        name = f"audit.{self.attack}"
        params = {
            f"{name}.claimed": self.claimed,
            f"{name}.delta": self.delta,
            f"{name}.confidence": self.confidence,
            f"{name}.relation": self.relation,
            f"{name}.runs": self.runs,
            f"{name}.seed": self.seed,
        }
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=f"cfk/audit-{self.attack.replace('_', '-')}.json",
            metrics=tuple(metrics((self.result,))),
            params={key: str(value) for key, value in params.items()},
            tags={f"cfk.{name}.verdict": self.verdict},
        )
