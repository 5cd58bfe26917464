"""What all audits of models keep: a scenario, rates with intervals, a control, and results that go
on and leave.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import extraction
from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.targets import Checkpoints, Sample
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


# with the pieces that each has, and the trainings among them
AUDITS: dict[str, tuple[Audit, int, int]] = {
    "membership": (of(membership, n_shadows=3, attacked=20), 4, 4),
    "extraction": (
        of(extraction, queries=(30,), repeats=2, unknown=IslandOwner().architecture),
        2,
        2,
    ),
    "attribute_inference": (of(attribute_inference, quasi_identifiers=["kind"]), 1, 1),
}
every = pytest.mark.parametrize("name", AUDITS)


def people() -> Sample:
    sample = noisy_people(160)
    sample.X["kind"] = [f"{CANARY}-{row % 3}" for row in range(160)]
    return sample


def plain(report: AttackReport) -> dict[str, Any]:
    return {**report.to_dict(), "seconds": 0}


@every
def test_a_report_holds_no_value_is_repeatable_and_goes_on_where_it_was_stopped(
    name: str, tmp_path: Path
) -> None:
    audit, pieces, trainings = AUDITS[name]
    owner, kept, told = Counted(), Checkpoints(tmp_path), []
    report = audit(owner, people(), kept=kept, progress=lambda *done: told.append(done))
    first = plain(report)
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
    assert told == sorted(told)
    assert (told[-1], {total for _, total in told}) == ((pieces, pieces), {pieces})
    assert json.loads(report.to_json())["results"] == [result.to_dict() for result in report]
    assert list(report.to_frame()["attack"]) == [result.attack for result in report]
    stored = [np.load(path) for path in tmp_path.iterdir()]
    assert len(stored) == pieces
    arrays = [found[key] for found in stored for key in found.files]
    assert all(array.dtype.kind in "bif" for array in arrays)
    everything = np.concatenate(
        [array.ravel() for array in arrays if array.dtype.kind == "f"] or [np.empty(0)]
    )
    assert not np.isin(everything, people().X[["x", "y"]].to_numpy()).any()
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("latin-1")
    assert CANARY not in report.to_json() + repr(report) + held

    assert plain(audit(owner, people(), kept=kept)) == first
    assert len(owner.trained) == trainings  # nothing is trained anew
    for half in (0, 1):
        for path in sorted(tmp_path.iterdir())[half::2]:
            path.unlink()
        assert plain(audit(owner, people(), kept=kept)) == first
    assert plain(audit(Counted(), people(), seed=1)) != first
    others, before = people(), len(owner.trained)
    others.X.loc[0, "x"] = 0.5
    audit(owner, others, kept=kept)
    assert len(owner.trained) == before + trainings  # other people: nothing is continued


@every
def test_nobody_is_trained_on_where_a_setting_is_refused(name: str) -> None:
    audit, owner = AUDITS[name][0], Counted()
    for settings in ({"seed": -1}, {"seed": 0.5}, {"n_jobs": 0}):
        with pytest.raises(InputError, match=next(iter(settings))):
            audit(owner, people(), **settings)
    assert not owner.trained


@pytest.mark.slow
@every
def test_processes_find_the_same(name: str) -> None:
    audit = AUDITS[name][0]
    assert plain(audit(RememberingOwner(), people(), n_jobs=2)) == plain(
        audit(RememberingOwner(), people())
    )
