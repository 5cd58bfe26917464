"""What a run says of the environment: versions and settings, nothing of the machine or its user."""

from __future__ import annotations

import getpass
import json
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cfk_plugin import KAnonymizer, hookimpl
from worlds import World


class Plugin:
    """A plugin that is passed."""

    __version__ = "7.8"

    @hookimpl
    def cfk_released(self) -> None:
        pass


def environment_of(anonymizer: KAnonymizer, world: World) -> dict[str, Any]:
    """Return the environment of a call."""
    environment = anonymizer.transform(world.native, world.refused).about.environment
    assert environment is not None
    return environment


def test_environment_names_no_machine(applicants: World, tmp_path: Path) -> None:
    """It has versions and settings, but neither the user nor a path."""
    anonymizer = applicants.fit(guarantee="lookup", random_state=5, plugins=[Plugin()])
    environment = environment_of(anonymizer, applicants)
    assert environment["packages"]["numpy"] == version("numpy")
    assert [plugin for plugin in environment["plugins"] if plugin.endswith("Plugin 7.8")]
    assert (environment["seed"], environment["generator"]) == (5, "table")
    text = json.dumps(environment)
    for secret in (socket.gethostname(), getpass.getuser()):
        assert f'"{secret}"' not in text
    assert str(Path.home()) not in text


def test_environment_lists_active_plugins_only(applicants: World) -> None:
    """The plugin of another fit is not there."""
    plugins = environment_of(applicants.lookup, applicants)["plugins"]
    assert not [plugin for plugin in plugins if "Plugin" in plugin]
