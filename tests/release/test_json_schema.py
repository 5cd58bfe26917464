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

import tracked
from cfk_plugin import Attribute, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.policy import (
    GuaranteeName,
    Objective,
)
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.results import (
    WITHHOLDING_REASONS,
    DPGuarantee,
    Method,
    ModelAccess,
    Withheld,
)
from prototyped import certificate, policy, prototype, prototypes, unproven

SCHEMA = json.loads(
    (files("cfk_plugin") / f"schemas/explanations-{SCHEMA_VERSION}.schema.json").read_text("utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)
DEFINITIONS = SCHEMA["$defs"]


def train() -> pd.DataFrame:
    """Return a table with every kind of attribute, and missing values where a region can hold
    them.
    """
    n = 60
    return pd.DataFrame(
        {
            "age": [20 + i % 12 for i in range(n)],
            "weight": [None if i % 9 == 0 else 50.5 + i % 7 for i in range(n)],
            "since": pd.to_datetime(["2020-01-01"]).repeat(n)
            + pd.to_timedelta([i % 5 for i in range(n)], "D"),
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
        columns={"zip": Attribute(hierarchy={"2000": ["2*"], "2018": ["2*"], "9000": ["9*"]})},
    )
    population = Population.from_frame(rows, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=k, **settings))
    anonymizer.fit(population, model=lambda table: table["salary"] > 40, desired=True)
    answer: dict[str, Any] = json.loads(anonymizer.transform(rows.iloc[::4]).to_json())
    return answer


WRITTEN = written()
SETTINGS: dict[str, dict[str, Any]] = {
    "floors": {"min_pureness": 0.5, "max_ncp": 0.9, "near_native": 0.1, "objective": "ncp"},
    "wide regions": {"k": 40},
}


def test_real_output_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    outputs = {name: written(**settings) for name, settings in SETTINGS.items()} | {
        "plain": WRITTEN
    }
    for content in outputs.values():
        VALIDATOR.validate(content)
    entries = {
        name: [e for e in c["explanations"] if e["status"] == "released"]
        for name, c in outputs.items()
    }
    parts = [part for entry in entries["plain"] for part in entry["region"].values()]
    assert {entry["status"] for entry in WRITTEN["explanations"]} == {"released", "withheld"}
    assert {part["kind"] for part in parts} == {"interval", "set"}
    assert any("levels" in part for part in parts)
    # a date
    assert any(isinstance(part.get("low"), str) and "levels" not in part for part in parts)
    assert any(
        part.get("missing")
        for entry in entries["wide regions"]
        for part in entry["region"].values()
    )


def test_advised_values_are_valid() -> None:
    entry = tracked.released(advised={"age": 26, "city": None}, least={"age": 25})
    content = json.loads(tracked.explanations(entry).to_json())
    content["explanations"][0]["certificate"]["population"] = "0" * 16
    VALIDATOR.validate(content)


@pytest.mark.parametrize(
    "asked", [{}, {"delta": 1e-6}, {"model_access": "dp", "model_epsilon": 2.0}]
)
def test_prototypes_are_valid(asked: dict[str, Any]) -> None:
    said = dict(asked, guarantee="approximate") if "delta" in asked else asked
    row = prototype(
        0, of=certificate(**said), city=None, since=pd.Timestamp("2020-02-29"), smoker=True
    )
    content = json.loads(
        prototypes(row, Withheld(1, "none_found"), under=policy(**asked)).to_json()
    )
    VALIDATOR.validate(content)
    found = content["explanations"][0]["certificate"]
    assert set(found) == set(DEFINITIONS["prototypeCertificate"]["required"])
    assert set(content["policy"]) == set(DEFINITIONS["prototypePolicy"]["required"])
    VALIDATOR.validate(json.loads(unproven().to_json()))


def released(content: dict[str, Any], status: str = "released") -> dict[str, Any]:
    entry: dict[str, Any] = next(e for e in content["explanations"] if e["status"] == status)
    return entry


def withheld(content: dict[str, Any]) -> dict[str, Any]:
    return released(content, "withheld")


HARMS: dict[str, Callable[[dict[str, Any]], object]] = {
    "unknown key": lambda content: content.update(rows=[]),
    "a k of one": lambda content: content["policy"].update(k=1),
    "a count of the holder's": lambda content: released(content)["certificate"].update(k_private=1),
    "a region of nothing": lambda content: released(content).update(region={}),
    "values in an interval": lambda content: released(content)["region"]["age"].update(values=[24]),
    "a reason of its own": lambda content: withheld(content).update(reason="age is 24"),
    "values of what is withheld": lambda content: withheld(content).update(released={"salary": 60}),
    "a range of a private number": lambda content: released(content)["released"].update(
        salary={"low": 40, "high": 60}
    ),
    "a sentence of its own": lambda content: released(content)["certificate"].update(
        not_stopped=["somebody earns 41"]
    ),
}
OF_PROTOTYPES: dict[str, Callable[[dict[str, Any]], object]] = {
    "two values": lambda content: released(content)["prototype"].update(age=[31, 32]),
    "a k": lambda content: released(content)["certificate"].update(k=10),
    "a fingerprint": lambda content: released(content)["certificate"].update(
        population="0000000000000000"
    ),
    "a region among them": lambda content: content["explanations"].append(released(WRITTEN)),
    "a policy of regions": lambda content: content.update(policy=WRITTEN["policy"]),
    "no epsilon": lambda content: content["policy"].update(epsilon=0),
    "a sentence of its own": lambda content: released(content)["certificate"].update(
        mechanism="he earns 52"
    ),
    "a wider cover": lambda content: released(content)["certificate"].update(covers="everything"),
    "a seed": lambda content: released(content)["certificate"].update(seeded=True),
}


@pytest.mark.parametrize("harm", [*HARMS, *(f"{harm}, of prototypes" for harm in OF_PROTOTYPES)])
def test_other_content_is_refused(harm: str) -> None:
    kind, _, of = harm.partition(", of ")
    content = json.loads(prototypes().to_json()) if of else copy.deepcopy(WRITTEN)
    (OF_PROTOTYPES if of else HARMS)[kind](content)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(content)


def test_every_object_of_fixed_keys_is_closed() -> None:
    def objects(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in objects(item)]
        if not isinstance(node, dict):
            return []
        return [node] * ("properties" in node) + [
            found for item in node.values() for found in objects(item)
        ]

    assert all(
        node["additionalProperties"] is False
        for node in objects(SCHEMA)
        if node.get("type") == "object"
    )


def test_settings_and_reasons_are_those_of_the_code() -> None:
    settings = DEFINITIONS["policy"]
    assert (
        set(settings["properties"]) == set(settings["required"]) == set(PrivacyPolicy().to_dict())
    )
    certificate, prototype = (
        DEFINITIONS[f"prototype{of}"]["properties"] for of in ("Certificate", "Policy")
    )
    for found, told in [
        (DEFINITIONS["modelAccess"], ModelAccess),
        (prototype["method"], Method),
        (certificate["guarantee"], DPGuarantee),
        (settings["properties"]["objective"], Objective),
    ]:
        assert set(found["enum"]) == set(get_args(told))
    assert set(DEFINITIONS["guarantee"]["enum"]) >= set(get_args(GuaranteeName))
    assert DEFINITIONS["withheld"]["properties"]["reason"]["enum"] == list(WITHHOLDING_REASONS)
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


def test_certificate_has_the_public_fields() -> None:
    certificate = DEFINITIONS["certificate"]
    content = released(WRITTEN)["certificate"]
    assert set(certificate["properties"]) == set(certificate["required"]) == set(content)
