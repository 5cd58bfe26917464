"""The published JSON Schema is valid, says what the code writes, and refuses everything else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, get_args

import pandas as pd
import pytest
from jsonschema import Draft202012Validator, ValidationError

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.policy import Guarantee, Objective, OnHomogeneous, OnInfeasible, PrivateForm, RareValues
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.results import SUPPRESSION_REASONS, DPGuarantee, Method, ModelAccess, Suppressed
from prototyped import certificate, policy, prototype, prototypes, unproven

SCHEMA = json.loads((files("cfk_plugin") / f"schemas/explanations-{SCHEMA_VERSION}.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
DEFINITIONS = SCHEMA["$defs"]


def train() -> pd.DataFrame:
    """Return a table with every kind of attribute, and missing values where a region can hold them."""
    n = 60
    return pd.DataFrame(
        {
            "age": [20 + i % 12 for i in range(n)],
            "weight": [None if i % 9 == 0 else 50.5 + i % 7 for i in range(n)],
            "since": pd.to_datetime(["2020-01-01"]).repeat(n) + pd.to_timedelta([i % 5 for i in range(n)], "D"),
            "school": [("low", "mid", "high")[i % 3] for i in range(n)],
            "city": [("Antwerp", "Ghent", None)[i % 3] for i in range(n)],
            "zip": [("2000", "2018", "9000")[i % 3] for i in range(n)],
            "smoker": [i % 2 == 0 for i in range(n)],
            "salary": [30 + i for i in range(n)],
            "note": [None if i % 4 == 0 else "text" for i in range(n)],
        }
    )


def written(k: int = 5, **settings: Any) -> dict[str, Any]:
    """Return what is written of explanations of which some are withheld."""
    rows = train()
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=["age", "weight", "since", "school", "city", "zip", "smoker"],
        ordinal={"school": ["low", "mid", "high"]},
        hierarchies={"zip": {"2000": ["2*"], "2018": ["2*"], "9000": ["9*"]}},
        bins={"salary": [30, 40, 60, 90]},
    )
    population = Population.from_frame(rows, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", k=k, **settings))
    anonymizer.fit(population, model=lambda table: table["salary"] > 40, desired=True)
    answer: dict[str, Any] = json.loads(anonymizer.transform(rows.iloc[::4]).to_json())
    return answer


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "settings", [{}, {"min_pureness": 0.5, "max_ncp": 0.9, "near_native": 0.1, "objective": "ncp"}]
)
def test_real_output_is_valid(settings: dict[str, Any]) -> None:
    content = written(**settings)
    VALIDATOR.validate(content)
    found = {entry["status"] for entry in content["explanations"]}
    assert found == {"released", "suppressed"}
    parts = [p for e in content["explanations"] if e["status"] == "released" for p in e["region"].values()]
    assert {part["kind"] for part in parts} == {"interval", "set"}
    assert any("levels" in part for part in parts)
    assert any(isinstance(part.get("low"), str) and "levels" not in part for part in parts)  # a date


def test_a_sampled_pureness_and_a_wide_region_are_valid() -> None:
    content = written(k=40)
    VALIDATOR.validate(content)
    assert any(part.get("missing") for e in content["explanations"] for part in e.get("region", {}).values())


def test_bins_and_withheld_attributes_are_valid() -> None:
    content = written(private_values="bins", rare_values="withhold", alpha=0.9, min_lift=1.1)
    VALIDATOR.validate(content)
    values = [v for e in content["explanations"] if e["status"] == "released" for v in e["released"].values()]
    assert any(isinstance(value, dict) for value in values)
    assert any(entry.get("withheld") for entry in written(rare_values="withhold")["explanations"])


@pytest.mark.parametrize("asked", [{}, {"delta": 1e-6}, {"model_access": "dp", "model_epsilon": 2.0}])
def test_prototypes_are_valid(asked: dict[str, Any]) -> None:
    said = dict(asked, guarantee="approximate") if "delta" in asked else asked
    row = prototype(0, of=certificate(**said), city=None, since=pd.Timestamp("2020-02-29"), smoker=True)
    content = json.loads(prototypes(row, Suppressed(1, "none_found"), under=policy(**asked)).to_json())
    VALIDATOR.validate(content)
    found = content["explanations"][0]["certificate"]
    assert set(found) == set(DEFINITIONS["prototypeCertificate"]["required"])
    assert set(content["policy"]) == set(DEFINITIONS["prototypePolicy"]["required"])
    VALIDATOR.validate(json.loads(unproven().to_json()))


def break_values(content: dict[str, Any]) -> None:
    content["explanations"][0]["prototype"]["age"] = [31, 32]


def break_k(content: dict[str, Any]) -> None:
    content["explanations"][0]["certificate"]["k"] = 10


def break_fingerprint(content: dict[str, Any]) -> None:
    content["explanations"][0]["certificate"]["population"] = "0000000000000000"


def break_mixture(content: dict[str, Any]) -> None:
    content["explanations"].append(released(written()))


def break_kind(content: dict[str, Any]) -> None:
    content["policy"] = written()["policy"]


def break_epsilon(content: dict[str, Any]) -> None:
    content["policy"]["epsilon"] = 0


def break_mechanism(content: dict[str, Any]) -> None:
    content["explanations"][0]["certificate"]["mechanism"] = "he earns 52"


def break_covers(content: dict[str, Any]) -> None:
    content["explanations"][0]["certificate"]["covers"] = "everything"


def break_seed(content: dict[str, Any]) -> None:
    content["explanations"][0]["certificate"]["seeded"] = True


@pytest.mark.parametrize(
    "harm",
    [
        break_values,
        break_k,
        break_fingerprint,
        break_mixture,
        break_kind,
        break_epsilon,
        break_seed,
        break_mechanism,
        break_covers,
    ],
    ids=lambda harm: harm.__name__,
)
def test_other_content_of_prototypes_is_refused(harm: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(prototypes().to_json())
    harm(content)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(content)


def break_asked(content: dict[str, Any]) -> None:
    del content["asked"]


def break_part(content: dict[str, Any]) -> None:
    released(content)["region"]["age"]["values"] = [24]


def break_not_stopped(content: dict[str, Any]) -> None:
    released(content)["certificate"]["not_stopped"] = ["somebody earns 41"]


def break_bin(content: dict[str, Any]) -> None:
    released(content)["released"]["salary"] = {"low": 40, "high": 60, "exact": 41}


def break_withheld(content: dict[str, Any]) -> None:
    released(content)["withheld"] = [41]


def break_unknown_key(content: dict[str, Any]) -> None:
    content["rows"] = []


def break_policy(content: dict[str, Any]) -> None:
    content["policy"]["k"] = 1


def break_certificate(content: dict[str, Any]) -> None:
    released(content)["certificate"]["k_private"] = 1


def break_region(content: dict[str, Any]) -> None:
    released(content)["region"] = {}


def break_reason(content: dict[str, Any]) -> None:
    next(e for e in content["explanations"] if e["status"] == "suppressed")["reason"] = "age is 24"


def break_suppression(content: dict[str, Any]) -> None:
    next(e for e in content["explanations"] if e["status"] == "suppressed")["released"] = {"salary": 60}


def released(content: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = next(e for e in content["explanations"] if e["status"] == "released")
    return entry


@pytest.mark.parametrize(
    "harm",
    [
        break_unknown_key,
        break_policy,
        break_certificate,
        break_region,
        break_reason,
        break_suppression,
        break_bin,
        break_withheld,
        break_asked,
        break_part,
        break_not_stopped,
    ],
    ids=lambda harm: harm.__name__,
)
def test_other_content_is_refused(harm: Callable[[dict[str, Any]], None]) -> None:
    content = copy.deepcopy(written())
    harm(content)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(content)


def test_every_object_of_fixed_keys_is_closed() -> None:
    def objects(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in objects(item)]
        if not isinstance(node, dict):
            return []
        return [node] * ("properties" in node) + [found for item in node.values() for found in objects(item)]

    assert all(node["additionalProperties"] is False for node in objects(SCHEMA) if node.get("type") == "object")


def test_settings_and_reasons_are_those_of_the_code() -> None:
    settings = DEFINITIONS["policy"]
    assert set(settings["properties"]) == set(settings["required"]) == set(PrivacyPolicy(guarantee="nominal").to_dict())
    assert set(DEFINITIONS["modelAccess"]["enum"]) == set(get_args(ModelAccess))
    assert set(DEFINITIONS["prototypePolicy"]["properties"]["method"]["enum"]) == set(get_args(Method))
    assert set(DEFINITIONS["prototypeCertificate"]["properties"]["guarantee"]["enum"]) == set(get_args(DPGuarantee))
    assert set(DEFINITIONS["guarantee"]["enum"]) >= set(get_args(Guarantee))
    assert set(settings["properties"]["objective"]["enum"]) == set(get_args(Objective))
    assert set(settings["properties"]["on_infeasible"]["enum"]) == set(get_args(OnInfeasible))
    assert set(settings["properties"]["private_values"]["enum"]) == set(get_args(PrivateForm))
    assert set(settings["properties"]["rare_values"]["enum"]) == set(get_args(RareValues))
    assert set(settings["properties"]["on_homogeneous"]["enum"]) == set(get_args(OnHomogeneous))
    assert DEFINITIONS["suppressed"]["properties"]["reason"]["enum"] == list(SUPPRESSION_REASONS)
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


def test_certificate_has_the_public_fields() -> None:
    certificate = DEFINITIONS["certificate"]
    content = released(written())["certificate"]
    assert set(certificate["properties"]) == set(certificate["required"]) == set(content)
