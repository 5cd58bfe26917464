"""What a prototype, its certificate and its policy say, and what they refuse to say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import PrototypeCertificate, PrototypeCounterfactual
from cfk_plugin.errors import PolicyError
from cfk_plugin.release.results import PrototypePolicy
from prototyped import certificate, policy, prototype


def test_epsilon_and_delta_bound_what_somebody_learns_of_membership() -> None:
    epsilons = (1e-12, 0.1, 0.5, 1.0, 3.0, 10.0, 800.0)
    bounds = [certificate(epsilon=epsilon).membership_bound for epsilon in epsilons]
    assert bounds == pytest.approx([1 / (1 + math.exp(-epsilon)) for epsilon in epsilons])
    loose = certificate(guarantee="approximate", delta=0.01)
    assert loose.membership_bound == pytest.approx((math.e + 0.01) / (1 + math.e))


@pytest.mark.parametrize(
    ("fields", "total"),
    [
        ({}, (1.0, 0.0)),
        ({"model_access": "surrogate"}, (1.0, 0.0)),
        ({"model_access": "dp", "model_epsilon": 2.0, "model_delta": 1e-6}, (3.0, 1e-6)),
        ({"model_access": "dp", "model_epsilon": 2.0}, (3.0, 0.0)),
        ({"model_access": "dp"}, None),
        ({"model_access": "private"}, None),
        ({"guarantee": "none", "seeded": True}, None),
    ],
)
def test_the_total_holds_the_model_or_there_is_none(
    fields: dict[str, Any], total: tuple[float, float] | None
) -> None:
    found = certificate(**fields)
    assert found.total == (None if total is None else pytest.approx(total))
    assert (found.membership_bound is None) == (total is None)


def test_what_is_covered_is_said_in_words_for_every_access_to_the_model() -> None:
    said = {
        access: certificate(model_access=access).covers
        for access in ("public", "dp", "private", "surrogate")
    }
    assert said == certificate().threat_models
    assert "covers everything that leaves" in said["public"]
    assert "both budgets add up" in said["dp"]
    assert "not what its outcomes tell" in said["private"]
    assert len(set(said.values())) == 4
    nothing = certificate(guarantee="none")
    assert (nothing.covers, nothing.threat_models) == ("nothing is guaranteed; see audit", {})


@pytest.mark.parametrize("fields", [{"seeded": True}, {"inferred": ("age",)}, {"delta": 1e-6}])
def test_a_guarantee_that_its_fields_contradict_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="guarantee"):
        certificate(**fields)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "laplace"}, "method must be one of dp,"),
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number above 0"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\)"),
        ({"delta": -0.1}, r"delta must be in \[0, 1\)"),
        ({"rows_per_person": 0}, "rows_per_person must be a whole number >= 1"),
        ({"rows_per_person": True}, "rows_per_person must be a whole number"),
        ({"model_access": "secret"}, "model_access must be one of"),
        ({"model_access": "dp"}, "needs model_epsilon"),
        ({"model_access": "dp", "model_epsilon": -1}, "model_epsilon must be"),
        ({"model_epsilon": 1.0}, "belong to model_access"),
        ({"model_delta": 0.1}, "belong to model_access"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        policy(**settings)


def test_a_policy_says_what_is_asked_for() -> None:
    asked = [policy(), policy(delta=1e-6)]
    assert [each.guarantee for each in asked] == ["pure", "approximate"]
    assert policy().sha256 == policy().sha256 != policy(epsilon=2.0).sha256


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, True),
        ({"epsilon": 0.5}, True),
        ({"epsilon": 1.0 + 1e-12}, True),
        ({"epsilon": 1.0 + 1e-6}, False),
        ({"guarantee": "approximate", "delta": 1e-6}, False),
        ({"model_access": "private"}, False),
        ({"model_epsilon": 1.0}, False),
        ({"guarantee": "none", "seeded": True}, True),
    ],
)
def test_a_certificate_stays_within_its_policy(fields: dict[str, Any], allowed: bool) -> None:
    assert policy().allows(certificate(**fields)) is allowed


def test_json_says_all_and_can_be_read_back() -> None:
    asked = policy(model_access="dp", model_epsilon=2.0)
    assert PrototypePolicy(**json.loads(json.dumps(asked.to_dict()))) == asked
    entry = prototype(3, city=None, since=pd.Timestamp("2020-02-29"))
    plain = json.loads(json.dumps(entry.to_dict(), allow_nan=False))
    assert plain["prototype"] == {
        "age": 31,
        "city": None,
        "salary": 52.5,
        "since": "2020-02-29",
    }
    said = plain.pop("certificate")
    assert said.pop("covers") == entry.certificate.covers
    assert (
        PrototypeCertificate(**{**said, "inferred": tuple(said["inferred"])}) == entry.certificate
    )


def test_values_are_plain_whatever_table_they_come_from_and_stay_when_it_changes() -> None:
    row = {
        "age": 31,
        "city": "Ghent",
        "old": np.bool_(True),
        "salary": np.float32(2),
        "none": np.nan,
        "n": np.int64(7),
    }
    entry = PrototypeCounterfactual(0, row, certificate())
    row["age"] = 99
    assert entry.values == {
        "age": 31,
        "city": "Ghent",
        "old": True,
        "salary": 2.0,
        "none": None,
        "n": 7,
    }
    assert entry.cells() == {
        "age": "31",
        "city": "Ghent",
        "old": "True",
        "salary": "2",
        "none": "missing",
        "n": "7",
    }
    assert not any(isinstance(value, np.generic) for value in entry.values.values())


def test_repr_names_the_guarantee_and_the_sentence_tells_changes_alone() -> None:
    shown = repr(prototype(4))
    assert "query=4" in shown
    assert "guarantee='pure', epsilon=1.0" in shown
    assert prototype().text({"age": 29, "city": "Ghent", "salary": 60.0}) == (
        "The outcome would be the desired one if two things were different: salary 52.5 instead of"
        " 60; and an age of 31 years instead of 29."
    )
