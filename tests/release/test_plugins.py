"""Plugins are loaded, disabled, traced and asked in an order; what fails: test_fail_closed.py."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from cfk_adapters import function
from cfk_plugin.errors import AdapterError, PluginError
from cfk_plugin.hookspecs import AdaptContext, hookimpl
from cfk_plugin.plugins import PluginManager, load_plugins, worst

CONTEXT = AdaptContext(("age",))
FRAME = pd.DataFrame({"age": [1, 2, 3]})
CANARY = "canary-4711"

INSTALLED = """
from cfk_plugin.hookspecs import hookimpl

@hookimpl
def cfk_register_protectors():
    return {"mine": object}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution with one plugin, as pip would leave it on the path; return its file."""
    files = {
        "cfk_test_wild.py": INSTALLED,
        "METADATA": "Metadata-Version: 2.1\nName: CFK_test.wild\nVersion: 1.2.3\n",
        "entry_points.txt": "[cfk_plugin]\nwild = cfk_test_wild\n",
    }
    info = tmp_path / "CFK_test.wild-1.2.3.dist-info"
    info.mkdir()
    for name, text in files.items():
        folder = tmp_path if name.endswith(".py") else info
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cfk_test_wild", raising=False)
    return tmp_path / "cfk_test_wild.py"


class Detector:
    def __init__(self, *findings: Any) -> None:
        self.findings = list(findings)

    @hookimpl
    def cfk_detect(self, frame: pd.DataFrame) -> list[Any]:
        return self.findings


class Hook:
    """A plugin with one hook."""

    def __init__(self, name: str, function: Any) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


def loaded(*plugins: Any) -> PluginManager:
    return load_plugins(plugins, entry_points=False)


@pytest.mark.usefixtures("installed")
def test_installed_plugin_has_its_version() -> None:
    """Entry points of other distributions are found."""
    manager = load_plugins()
    assert manager.versions()["CFK_test.wild"] == "1.2.3"
    assert manager.protectors() == {"mine": object}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["wild", "CFK-test-wild"])
def test_disabled_plugin_is_not_imported(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is disabled by an argument or by the environment, which may name others as well."""
    assert "CFK_test.wild" not in load_plugins(disable=[name]).versions()
    monkeypatch.setenv("CFK_DISABLE_PLUGINS", f"no-such-plugin, {name}")
    assert "CFK_test.wild" not in load_plugins().versions()
    assert "cfk_test_wild" not in sys.modules
    assert "no-such-plugin" in caplog.text


def test_failing_import_is_not_quoted(installed: Path) -> None:
    """The error names the plugin, and the class of the error."""
    installed.write_text(f"raise OSError({CANARY!r})", encoding="utf-8")
    with pytest.raises(PluginError, match=r"'wild' of 'CFK_test\.wild'.*OSError") as caught:
        load_plugins()
    assert CANARY not in str(caught.value)


def test_host_works_without_plugins() -> None:
    """Nothing is detected, and no explainer is known."""
    manager = loaded()
    assert manager.detect(FRAME, None) == [None] * 3
    assert manager.protectors() == {}
    with pytest.raises(AdapterError, match="list"):
        manager.adapt([CANARY], CONTEXT)


@pytest.mark.parametrize(
    ("plugin", "word"),
    [
        (Detector, "class"),
        (SimpleNamespace(), "no hook"),
        (Hook("overrule", lambda: None), "fit"),
        (Hook("released", lambda rows: None), "fit"),
    ],
)
def test_unfit_plugin_is_refused(plugin: Any, word: str) -> None:
    """A class, something without a hook, and hooks of another name or with other arguments."""
    with pytest.raises(PluginError, match=word):
        loaded(plugin)


def test_same_plugin_counts_once() -> None:
    """Two of a class are two plugins."""
    detector = Detector()
    assert len(loaded(detector, detector, Detector()).infos) == 2


def test_worst_finding_counts_per_row() -> None:
    """Of several detectors."""
    first = Detector("synthetic", None, "near-native")
    second = Detector("near-native", None, "native-qi")
    assert loaded(first, second).detect(FRAME, None) == ["near-native", None, "near-native"]
    assert worst("native", "native-qi") == "native"


def test_two_protectors_need_two_names() -> None:
    """The error names the one that they share."""
    plugins = [Hook("register_protectors", lambda: {"mine": object}) for _ in range(2)]
    with pytest.raises(PluginError, match="mine"):
        loaded(*plugins).protectors()


def test_debug_log_has_no_argument(caplog: pytest.LogCaptureFixture) -> None:
    """It names hooks and plugins."""
    with caplog.at_level(logging.DEBUG, "cfk_plugin"):
        loaded(Detector(None, None, None)).detect(FRAME, CANARY)
    assert "cfk_detect" in caplog.text
    assert "Detector" in caplog.text
    assert CANARY not in caplog.text


def test_last_plugin_is_asked_first() -> None:
    """The adapter of any callable is asked last."""

    def source(name: str) -> Any:
        parts = {"generate": print, "restore": print, "methods": {}, "instance_based": False}
        return lambda: SimpleNamespace(name=name, **parts)

    plugins = [Hook("adapt", source("first")), Hook("adapt", source("second")), function]
    assert loaded(*plugins).adapt(len, CONTEXT).name == "second"
