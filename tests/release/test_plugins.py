"""Loading, disabling, tracing and asking plugins."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from cfk_plugin.errors import AdapterError, PluginError
from cfk_plugin.hookspecs import AdaptContext, ReleaseRecord, hookimpl
from cfk_plugin.plugins import PluginManager, load_plugins, worst

CONTEXT = AdaptContext(("age",))
RECORD = ReleaseRecord(status="released", method="exact", policy_hash="p", population="f")
CANARY = "canary-4711"

INSTALLED = """
from cfk_plugin.hookspecs import hookimpl

@hookimpl
def cfk_register_protectors():
    return {"mine": object}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution with one plugin, as pip would leave it on the path."""
    (tmp_path / "cfk_test_wild.py").write_text(INSTALLED, encoding="utf-8")
    info = tmp_path / "CFK_test.wild-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: CFK_test.wild\nVersion: 1.2.3\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text("[cfk_plugin]\nwild = cfk_test_wild\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cfk_test_wild", raising=False)
    return tmp_path


class Detector:
    def __init__(self, *findings: Any) -> None:
        self.findings = list(findings)

    @hookimpl
    def cfk_detect(self, frame: pd.DataFrame) -> list[Any]:
        frame.iloc[:] = 0  # Its own copy: nobody else's table changes.
        return self.findings


def failing() -> Any:
    raise ValueError(CANARY)


class Hook:
    """A plugin of one hook."""

    def __init__(self, name: str, function: Any = failing) -> None:
        setattr(self, f"cfk_{name}", hookimpl(function))


def passed(*plugins: Any) -> PluginManager:
    return load_plugins(plugins, entry_points=False)


def test_installed_plugin_is_found_with_its_version(installed: Path) -> None:
    manager = load_plugins()
    assert manager.versions()["CFK_test.wild"] == "1.2.3"
    assert manager.protectors() == {"mine": object}
    (info,) = [info for info in manager.infos if info.name == "wild"]
    assert info.hooks == ("cfk_register_protectors",)


@pytest.mark.parametrize("name", ["wild", "cfk-test-wild", "CFK_test.wild"])
def test_disabled_plugin_is_not_even_imported(
    installed: Path, monkeypatch: pytest.MonkeyPatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert "CFK_test.wild" not in load_plugins(disable=[name]).versions()
    monkeypatch.setenv("CFK_DISABLE_PLUGINS", f"no-such-plugin, {name}")
    assert "CFK_test.wild" not in load_plugins().versions()
    assert "cfk_test_wild" not in sys.modules
    assert "no-such-plugin" in caplog.text


def test_plugin_that_fails_to_import_is_named_and_not_quoted(installed: Path) -> None:
    (installed / "cfk_test_wild.py").write_text(f"raise OSError({CANARY!r})", encoding="utf-8")
    with pytest.raises(
        PluginError, match=r"'wild' of 'CFK_test\.wild' failed to load.*OSError"
    ) as caught:
        load_plugins()
    assert CANARY not in str(caught.value)


def test_built_in_adapters_are_found_and_import_no_explainer() -> None:
    code = (
        "import sys; from cfk_plugin.plugins import load_plugins; "
        "print(*[i.name for i in load_plugins().infos if i.distribution == 'cfk-plugin']); "
        "print(sorted({'dice_ml', 'nice'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, imported = done.stdout.splitlines()
    if not names:
        pytest.skip("needs cfk-plugin to be installed: `pip install --no-deps -e .`")
    assert names.split() == ["dice", "function", "nearest", "nice"]
    assert imported == "[]"


def test_without_plugins_the_host_works_alone() -> None:
    manager, frame = passed(), pd.DataFrame({"age": [1, 2]})
    assert manager.detect(frame, None) == [None, None]  # type: ignore[arg-type]
    assert manager.protectors() == {}
    manager.released(RECORD)
    with pytest.raises(AdapterError, match=r"type builtins\.list .*plugins loaded: none"):
        manager.adapt([CANARY], CONTEXT)


def test_what_does_not_fit_the_hooks_is_refused() -> None:
    for plugin, said in (
        (Detector, r"forgotten the \(\)"),
        (SimpleNamespace(), "implements no hook"),
        (Hook("overrule"), "does not fit the hooks"),
        (Hook("released", lambda rows: None), "does not fit the hooks"),
    ):
        with pytest.raises(PluginError, match=said):
            passed(plugin)
    one, other = Detector(), Detector()
    assert len(passed(one, one, other).infos) == 2  # the same one twice counts once


def test_worst_finding_counts_per_row() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3]})
    manager = passed(
        Detector("synthetic", None, "near-native"), Detector("near-native", None, "native-qi")
    )
    assert manager.detect(frame, None) == ["near-native", None, "near-native"]  # type: ignore[arg-type]
    assert frame["age"].tolist() == [1, 2, 3]
    assert worst("native", "native-qi") == "native"
    assert worst(None, "synthetic") == "synthetic"


def test_an_answer_of_the_wrong_shape_stops_the_release() -> None:
    frame = pd.DataFrame({"age": [1, 2]})
    for findings in (["native"], ["native", "harmless"]):
        with pytest.raises(PluginError, match="one known finding"):
            passed(Detector(*findings)).detect(frame, None)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="no CounterfactualSource"):
        passed(Hook("adapt", lambda explainer: [explainer])).adapt(None, CONTEXT)
    with pytest.raises(PluginError, match="protector named mine"):
        passed(
            *(Hook("register_protectors", lambda: {"mine": object}) for _ in range(2))
        ).protectors()


def test_failing_plugin_stops_the_release_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = passed(*(Hook(name) for name in ("detect", "adapt", "register_protectors")))
    calls: list[Callable[[], Any]] = [
        lambda: manager.detect(pd.DataFrame({"age": [1]}), None),  # type: ignore[arg-type]
        lambda: manager.adapt(None, CONTEXT),
        manager.protectors,
    ]
    for call in calls:
        with pytest.raises(PluginError, match="ValueError") as caught:
            call()
        assert CANARY not in str(caught.value)
    heard: list[ReleaseRecord] = []

    def listen(record: ReleaseRecord) -> None:
        heard.append(record)

    passed(Hook("released", listen), Hook("released")).released(RECORD)
    assert heard == [RECORD]
    assert "raised ValueError in cfk_released" in caplog.text
    assert CANARY not in caplog.text


def test_the_log_of_details_names_hooks_and_plugins_and_no_argument(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "cfk_plugin"):
        manager = passed(Detector("native"))
        manager.detect(pd.DataFrame({"age": [1]}), CANARY)  # type: ignore[arg-type]
    assert "hook cfk_detect -> " in caplog.text
    assert "Detector" in caplog.text
    assert CANARY not in caplog.text


def test_last_passed_plugin_is_asked_first_and_callables_last() -> None:
    from cfk_adapters import function

    def source(name: str) -> Any:
        parts = {"generate": print, "restore": print, "methods": {}, "instance_based": False}
        return lambda: SimpleNamespace(name=name, **parts)

    manager = passed(Hook("adapt", source("first")), Hook("adapt", source("second")), function)
    assert manager.adapt(len, CONTEXT).name == "second"
