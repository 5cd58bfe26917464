"""What all audits of models keep: a scenario, rates with intervals, a control, and no value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import extraction
from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.targets import Sample
from cfk_plugin.errors import InputError
from copied_owners import IslandOwner, RememberingOwner, noisy_people

CANARY = "CANARY-7731"
Audit = Callable[..., AttackReport]


@dataclass(frozen=True)
class Counted(RememberingOwner):
    """Keeps whom it trains on."""

    trained: list[Sample] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> Any:
        self.trained.append(people)
        return super().train(people, seed)


def of(audit: Audit, **sizes: Any) -> Audit:
    return lambda owner, sample, **options: audit(owner, sample, **sizes, **options)


AUDITS: dict[str, Audit] = {
    "membership": of(membership, n_shadows=3, attacked=20),
    "extraction": of(extraction, queries=(30,), repeats=2, unknown=IslandOwner().architecture),
    "attribute_inference": of(attribute_inference, quasi_identifiers=["kind"]),
}
every = pytest.mark.parametrize("name", AUDITS)


def people() -> Sample:
    sample = noisy_people(160)
    sample.X["kind"] = [f"{CANARY}-{row % 3}" for row in range(160)]
    return sample


def plain(report: AttackReport) -> dict[str, Any]:
    return {**report.to_dict(), "seconds": 0}


@every
def test_a_report_holds_no_value_and_is_repeatable(name: str) -> None:
    audit = AUDITS[name]
    report = audit(RememberingOwner(), people())
    assert report.subject == "remembering"
    assert report.seconds > 0
    for result in report:
        assert result.attack.startswith(report.kind)
        assert result.scenario.endswith(".")
        for rate in (result.main, result.baseline, result.control):
            assert rate is not None
            assert 0 <= rate.low <= rate.high <= 1
            assert math.isnan(rate.value) or rate.low <= rate.value <= rate.high
        assert result.worked == (result.main.low > result.baseline.value)
        assert result.figures
    assert set(report.curves) <= {result.attack for result in report}
    assert json.loads(report.to_json())["results"] == [result.to_dict() for result in report]
    assert list(report.to_frame()["attack"]) == [result.attack for result in report]
    assert CANARY not in report.to_json() + repr(report)

    assert plain(audit(RememberingOwner(), people())) == plain(report)
    assert plain(audit(RememberingOwner(), people(), seed=1)) != plain(report)


@every
def test_nobody_is_trained_on_where_a_seed_is_refused(name: str) -> None:
    owner = Counted()
    for seed in (-1, 0.5):
        with pytest.raises(InputError, match="seed"):
            AUDITS[name](owner, people(), seed=seed)
    assert not owner.trained
