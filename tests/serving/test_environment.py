"""What a run says of the environment: versions and settings, nothing of the machine or of who uses
it.
"""

from __future__ import annotations

import getpass
import json
import socket
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, hookimpl

TRAIN = pd.DataFrame({"age": [20, 21, 22, 23] * 10, "pay": range(40)})


class Plugin:
    """A plugin that is passed."""

    __version__ = "7.8"

    @hookimpl
    def cfk_released(self) -> None:
        pass


def test_versions_and_settings_of_a_fit(tmp_path: Path) -> None:
    population = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age"]))
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(guarantee="lookup", k=4),
        random_state=5,
        plugins=[Plugin()],
    )
    anonymizer.fit(population, model=lambda rows: rows["pay"] > 3, desired=True)
    found = anonymizer.transform(TRAIN.tail(2)).about.environment
    assert found is not None
    assert found["packages"]["numpy"] == version("numpy")
    assert [plugin for plugin in found["plugins"] if plugin.endswith("Plugin 7.8")]
    assert {name: found[name] for name in ("seed", "generator")} == {
        "seed": 5,
        "generator": "table",
    }
    secrets = (
        f'"{socket.gethostname()}"',
        f'"{getpass.getuser()}"',
        str(tmp_path),
        str(Path.home()),
    )
    assert not [secret for secret in secrets if secret in json.dumps(found)]


def test_what_is_not_used_is_said_too() -> None:
    population = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=4)).fit(
        population, model=lambda rows: rows["pay"] > 3, desired=True
    )
    found = anonymizer.transform(TRAIN.tail(2)).about.environment
    assert found is not None
    assert not [plugin for plugin in found["plugins"] if "Plugin" in plugin]
