"""The published JSON Schema is valid, says what the code writes, and refuses everything else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any, get_args

import pandas as pd
import pytest
from jsonschema import Draft202012Validator, ValidationError

import tracked
from cfk_plugin.data.policy import GuaranteeName, Objective
from cfk_plugin.release.explanations import SCHEMA_VERSION
from cfk_plugin.release.results import (
    WITHHOLDING_REASONS,
    DPGuarantee,
    Method,
    ModelAccess,
    Withheld,
)
from prototyped import certificate, policy, prototype, prototypes, unproven
from worlds import World

SCHEMA = json.loads(
    (files("cfk_plugin") / f"schemas/explanations-{SCHEMA_VERSION}.schema.json").read_text("utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)
DEFINITIONS = SCHEMA["$defs"]
Content = dict[str, Any]
QUASI_IDENTIFIERS = ["age", "zip", "school", "job", "since"]  # a column of each kind; gaps


def write(world: World, **settings: Any) -> Content:
    """Return what is written of counterfactuals, the last of which is withheld."""
    rows = pd.concat([world.native.head(3), world.refused.head(1)])
    roles = {**world.roles, "quasi_identifiers": QUASI_IDENTIFIERS, "sensitive": []}
    anonymizer = replace(world, roles=roles).fit(guarantee="lookup", **settings)
    content: Content = json.loads(anonymizer.transform(rows).to_json())
    return content


@pytest.fixture(scope="module")
def written(residents: World) -> Content:
    return write(residents)


def entry(content: Content, status: str = "released") -> Content:
    """Return the first explanation with a status."""
    return next(one for one in content["explanations"] if one["status"] == status)


def test_written_content_is_valid(written: Content, residents: World) -> None:
    """Of every kind of column, of wide regions, and with floors."""
    Draft202012Validator.check_schema(SCHEMA)
    floors = {"min_pureness": 0.5, "max_ncp": 0.9, "near_native": 0.1, "objective": "ncp"}
    everyone = write(residents, k=240)
    for content in (written, everyone, write(residents, **floors)):
        VALIDATOR.validate(content)
    assert entry(written, "withheld")
    region = entry(written)["region"]
    assert {part["kind"] for part in region.values()} == {"interval", "set"}
    assert isinstance(region["since"]["low"], str)
    assert "levels" in region["school"]
    assert None in entry(everyone)["region"]["job"]["values"]


def test_advised_values_are_valid() -> None:
    """They may be missing."""
    released = tracked.released(advised={"age": 26, "city": None}, least={"age": 25})
    content = json.loads(tracked.explanations(released).to_json())
    entry(content)["certificate"]["population"] = "0" * 16
    VALIDATOR.validate(content)


@pytest.mark.parametrize(
    "settings", [{}, {"delta": 1e-6}, {"model_access": "dp", "model_epsilon": 2.0}]
)
def test_prototypes_are_valid(settings: dict[str, Any]) -> None:
    """Values are of every kind."""
    fields = {**settings, **({"guarantee": "approximate"} if "delta" in settings else {})}
    day = pd.Timestamp("2020-02-29")
    row = prototype(0, of=certificate(**fields), city=None, since=day, smoker=True)
    result = prototypes(row, Withheld(1, "none_found"), under=policy(**settings))
    content = json.loads(result.to_json())
    VALIDATOR.validate(content)
    VALIDATOR.validate(json.loads(unproven().to_json()))
    required = set(DEFINITIONS["prototypeCertificate"]["required"])
    assert set(entry(content)["certificate"]) == required
    assert set(content["policy"]) == set(DEFINITIONS["prototypePolicy"]["required"])


HARMS: dict[str, Callable[[Content], object]] = {
    "unknown key": lambda content: content.update(rows=[]),
    "a k of one": lambda content: content["policy"].update(k=1),
    "a count of the holder's": lambda content: entry(content)["certificate"].update(k_private=1),
    "a region of nothing": lambda content: entry(content).update(region={}),
    "values in an interval": lambda content: entry(content)["region"]["age"].update(values=[24]),
    "a reason of its own": lambda content: entry(content, "withheld").update(reason="age is 24"),
    "values that are withheld": lambda content: entry(content, "withheld").update(
        released={"salary": 60}
    ),
    "a range of a private number": lambda content: entry(content)["released"].update(
        salary={"low": 40, "high": 60}
    ),
    "a sentence of its own": lambda content: entry(content)["certificate"].update(
        not_stopped=["somebody earns 41"]
    ),
}
HARMS_OF_PROTOTYPES: dict[str, Callable[[Content], object]] = {
    "two values": lambda content: entry(content)["prototype"].update(age=[31, 32]),
    "a k": lambda content: entry(content)["certificate"].update(k=10),
    "a fingerprint": lambda content: entry(content)["certificate"].update(population="0" * 16),
    "no epsilon": lambda content: content["policy"].update(epsilon=0),
    "a sentence of its own": lambda content: entry(content)["certificate"].update(
        mechanism="he earns 52"
    ),
    "a wider cover": lambda content: entry(content)["certificate"].update(covers="everything"),
    "a seed": lambda content: entry(content)["certificate"].update(seeded=True),
}


@pytest.mark.parametrize("harm", HARMS)
def test_other_content_is_refused(harm: str, written: Content) -> None:
    """Nothing can be added to what the code writes."""
    content = copy.deepcopy(written)
    HARMS[harm](content)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(content)


@pytest.mark.parametrize("harm", HARMS_OF_PROTOTYPES)
def test_other_prototypes_are_refused(harm: str) -> None:
    """Neither can it to prototypes."""
    content = json.loads(prototypes().to_json())
    HARMS_OF_PROTOTYPES[harm](content)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(content)


def test_kinds_are_not_mixed(written: Content) -> None:
    """Regions among prototypes, and prototypes under a policy of regions."""
    mixed = json.loads(prototypes().to_json())
    mixed["explanations"].append(entry(written))
    other = {**json.loads(prototypes().to_json()), "policy": written["policy"]}
    for content in (mixed, other):
        with pytest.raises(ValidationError):
            VALIDATOR.validate(content)


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a schema that list their keys."""
    if isinstance(node, dict) and "properties" in node:
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from objects(child)


def test_objects_are_closed() -> None:
    """Each object with fixed keys refuses others."""
    for node in objects(SCHEMA):
        assert node.get("type") != "object" or node["additionalProperties"] is False


def test_choices_are_those_of_the_code(written: Content) -> None:
    """Whoever adds a setting, a reason or a field adds it to the schema."""
    settings = DEFINITIONS["policy"]
    assert set(settings["properties"]) == set(settings["required"]) == set(written["policy"])
    fields = DEFINITIONS["certificate"]
    assert (
        set(fields["properties"]) == set(fields["required"]) == set(entry(written)["certificate"])
    )
    choices = [
        (DEFINITIONS["modelAccess"], ModelAccess),
        (DEFINITIONS["prototypePolicy"]["properties"]["method"], Method),
        (DEFINITIONS["prototypeCertificate"]["properties"]["guarantee"], DPGuarantee),
        (settings["properties"]["objective"], Objective),
    ]
    for node, literal in choices:
        assert set(node["enum"]) == set(get_args(literal))
    assert set(DEFINITIONS["guarantee"]["enum"]) >= set(get_args(GuaranteeName))
    assert DEFINITIONS["withheld"]["properties"]["reason"]["enum"] == list(WITHHOLDING_REASONS)
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION
