"""The owners that are compared, and their reports side by side."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from cfk_plugin.audit.result import AttackReport, AuditResult, Rate, readable, side_by_side
from cfk_plugin.audit.targets import PrototypeOwner, Sample, Target, compare, standard_owners
from cfk_plugin.errors import InputError
from overfitted import QUASI, forest, nearest, people

EVERYBODY = people(120)
MODEL = forest(EVERYBODY, trees=3)


def owners(**settings: Any) -> list[Target]:
    return standard_owners(EVERYBODY, MODEL, {"one": nearest, "other": nearest}, QUASI, **settings)


def test_there_is_one_for_every_way_to_answer() -> None:
    made = owners(k=4, epsilon=0.5)
    assert [owner.name for owner in made] == ["one", "other", "exact", "reciprocal", "catalogue", "dp", "dp-reverted"]
    policies = {owner.name: owner.policy for owner in made}
    assert [policies[name]["guarantee"] for name in ("exact", "reciprocal", "catalogue")] == [
        "nominal",
        "reciprocal",
        "catalogue",
    ]
    assert policies["exact"]["k"] == 4
    assert policies["dp"]["epsilon"] == 0.5
    assert [owner.revert for owner in made if isinstance(owner, PrototypeOwner)] == [False, True]
    assert pickle.loads(pickle.dumps(made))[3].rules.k == 4


def test_what_is_protected_must_be_there() -> None:
    with pytest.raises(InputError, match="one, other"):
        owners(protects="third")
    with pytest.raises(InputError, match="there is none"):
        standard_owners(EVERYBODY, MODEL, {}, QUASI)


def found(owner: Target, sample: Sample, seed: int) -> AttackReport:
    """Ask a trained service something that depends on people and seed alone."""
    share = float(owner.train(sample, seed).desired(sample.X).mean())
    figures = {"balanced_accuracy": 0.5, "balanced_accuracy_low": 0.4, "balanced_accuracy_high": 0.6, "own": 1.0}
    n = len(sample)
    rate = Rate(share, share - 0.1, share + 0.1, n)
    result = AuditResult(
        "membership_made_up", "Counts.", rate, Rate(0.5, 0.5, 0.5, 1), None, figures, seed, len(sample)
    )
    return AttackReport(kind="membership", subject=owner.name, results=(result,), settings={})


def test_one_attack_runs_on_all_with_the_same_people_and_seed() -> None:
    reports = compare(owners()[:2], EVERYBODY, found, seed=3)
    table = side_by_side(reports)
    assert table["subject"].tolist() == ["one", "other"]
    assert table["main"].nunique() == 1  # the same forest of the same people
    assert table["balanced_accuracy_high"].tolist() == [0.6, 0.6]
    assert "own" not in table
    assert "tpr_at_0_1" not in table  # of no report
    assert side_by_side(reports, ["own"])["own"].tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="same name"):
        compare(owners()[:1] * 2, EVERYBODY, found, seed=3)


def test_a_value_is_read_with_its_interval() -> None:
    nothing = AuditResult(
        "membership_made_up", "Counts.", Rate(math.nan, 0, 1, 0), Rate(0.5, 0.5, 0.5, 1), None, {"own": 0.25}, 0, 0
    )
    report = AttackReport(kind="membership", subject="s", results=(nothing,), settings={})
    shown = readable(side_by_side([report], ["own"]))
    assert shown.to_dict("records") == [
        {"subject": "s", "attack": "membership_made_up", "n": 0, "main": "–", "baseline": "0.50", "own": "0.25"}
    ]
    table = readable(side_by_side(compare(owners()[:1], EVERYBODY, found, seed=3)), digits=1)
    assert table["balanced_accuracy"].tolist() == ["0.5 [0.4, 0.6]"]
