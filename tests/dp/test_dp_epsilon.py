"""The audit of epsilon on differentially private prototypes: the sound mechanism passes, broken ones are refuted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.audit import canary_audit, one_run_audit
from cfk_plugin.dp.audited import measuring
from neighbouring import CANARY, domain_from_rows, heard, people, schema, sound, with_little_noise, without_pair_noise

pytest.importorskip("opendp", reason="the extra [dp] is not installed")
pytestmark = pytest.mark.slow
SURE = 1 - 1e-6  # noise cannot be seeded: at 95 % one run of these tests in twenty would accuse the innocent


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.0), (3.0, 0.0), (1.0, 1e-5)])
def test_the_sound_mechanism_is_not_accused(epsilon: float, delta: float) -> None:
    report = canary_audit(
        sound(epsilon, delta),
        people(),
        CANARY,
        claimed=epsilon,
        delta=delta,
        runs=200,
        score=heard,
        schema=schema(people()),
        confidence=SURE,
    )
    assert report.epsilon_low <= epsilon
    assert report.verdict != "fail"


@pytest.mark.parametrize(("mutant", "claimed"), [(without_pair_noise, 2.0), (with_little_noise, 0.5)])
def test_measurements_with_too_little_noise_are_refuted(mutant: Any, claimed: float) -> None:
    fit = mutant(claimed)
    report = canary_audit(fit, people(), CANARY, claimed=claimed, runs=150, score=heard, schema=schema(people()))
    assert report.verdict == "fail"


def test_a_domain_read_from_the_rows_is_refuted_at_the_ceiling() -> None:
    report = canary_audit(domain_from_rows(1.0), people(), CANARY, claimed=1.0, runs=100)
    assert report.verdict == "fail"
    assert report.epsilon_low == pytest.approx(report.ceiling)


def many() -> tuple[pd.DataFrame, pd.DataFrame, Schema]:
    """Return a table, and 200 made-up people of whom each has a value of their own."""
    values = [f"v{i}" for i in range(201)]
    table = pd.DataFrame({"a": ["v200"] * 2000, "b": np.tile(["x", "y"], 1000)})
    canaries = pd.DataFrame({"a": values[:200], "b": "x"})
    declared = Schema.from_frame(table, quasi_identifiers=["a"], categories={"a": values, "b": ["x", "y"]}, nullable=[])
    return table, canaries, declared


@pytest.mark.parametrize(("broken", "verdict"), [(False, "pass"), (True, "fail")])
def test_one_run_tells_the_sound_mechanism_from_one_with_little_noise(broken: bool, verdict: str) -> None:
    table, canaries, declared = many()
    fit = with_little_noise(1.0, declared) if broken else measuring(declared, 1.0)
    report = one_run_audit(
        fit,
        table,
        canaries,
        claimed=1.0,
        score=lambda found: found.scores(canaries),
        schema=declared,
        confidence=0.95 if broken else SURE,
    )
    assert report.verdict == verdict
