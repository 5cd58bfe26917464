"""Bundles that were sealed by the code of before open and protect as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfk_plugin import Population
from make_sealed import HERE, KEYS, protected

STORED = json.loads((HERE / "sealed.json").read_text())


@pytest.mark.parametrize("name", STORED)
def test_a_bundle_of_before_protects_as_it_did(name: str) -> None:
    opened = Population.open(Path(HERE / f"{name}.cfk"), key=KEYS[name.rpartition("_")[2]])
    assert json.loads(json.dumps(protected(opened))) == STORED[name]


def test_the_stored_bundles_release_something_and_not_all() -> None:
    assert all(len(facts["released"]) >= 2 for facts in STORED.values())
    regions = [str(region) for facts in STORED.values() for region in facts["regions"]]
    assert any("interval" in region for region in regions)
    assert any("missing" in region for region in regions)
