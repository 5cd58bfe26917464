"""Loading, disabling, tracing and asking plugins."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from cfk_plugin.errors import AdapterError, PluginError
from cfk_plugin.hookspecs import AdaptContext, ReleaseRecord, hookimpl
from cfk_plugin.plugins import PluginManager, load_plugins, worst
from cfk_plugin.release.anonymizer import release_record
from prototyped import prototype
from spooled import released

CONTEXT = AdaptContext(("age",))


def test_a_record_of_a_prototype_names_no_population() -> None:
    record = release_record(prototype(), "dp", "p", "f")
    assert (record.status, record.k, record.ncp, record.pureness, record.population) == (
        "released",
        None,
        None,
        None,
        "",
    )
    assert release_record(released(), "exact", "p", "f").population == "f"


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
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: CFK_test.wild\nVersion: 1.2.3\n", encoding="utf-8")
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


class Failing:
    @hookimpl
    def cfk_detect(self) -> None:
        raise ValueError(CANARY)

    @hookimpl
    def cfk_protect(self) -> None:
        raise ValueError(CANARY)

    @hookimpl
    def cfk_adapt(self) -> None:
        raise ValueError(CANARY)

    @hookimpl
    def cfk_released(self) -> None:
        raise ValueError(CANARY)


def test_installed_plugin_is_found_with_its_version(installed: Path) -> None:
    manager = load_plugins()
    assert manager.versions()["CFK_test.wild"] == "1.2.3"
    assert manager.protectors() == {"mine": object}
    (info,) = [info for info in manager.infos if info.name == "wild"]
    assert info.hooks == ("cfk_register_protectors",)


@pytest.mark.parametrize("name", ["wild", "cfk-test-wild", "CFK_test.wild"])
def test_disabled_plugin_is_not_even_imported(installed: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert "CFK_test.wild" not in load_plugins(disable=[name]).versions()
    monkeypatch.setenv("CFK_DISABLE_PLUGINS", f"other, {name}")
    assert "CFK_test.wild" not in load_plugins().versions()
    assert "cfk_test_wild" not in sys.modules


def test_disabling_something_unknown_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        load_plugins(disable=["no-such-plugin"])
    assert "no-such-plugin" in caplog.text


def test_plugin_that_fails_to_import_is_named_and_not_quoted(installed: Path) -> None:
    (installed / "cfk_test_wild.py").write_text(f"raise OSError({CANARY!r})", encoding="utf-8")
    with pytest.raises(PluginError, match=r"'wild' of 'CFK_test\.wild' failed to load.*OSError") as caught:
        load_plugins()
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


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
    manager = load_plugins(entry_points=False)
    frame = pd.DataFrame({"age": [1, 2]})
    assert manager.detect(frame, None) == [None, None]  # type: ignore[arg-type]
    assert manager.protect(SimpleNamespace()) is None  # type: ignore[arg-type]
    assert manager.protectors() == {}
    manager.released(RECORD)
    with pytest.raises(AdapterError, match=r"type builtins\.list .*plugins loaded: none"):
        manager.adapt([CANARY], CONTEXT)


def test_class_instead_of_instance_is_asked_about() -> None:
    with pytest.raises(PluginError, match=r"forgotten the \(\)"):
        load_plugins([Detector], entry_points=False)


def test_plugin_without_or_with_unknown_hooks_is_refused() -> None:
    class Unknown:
        @hookimpl
        def cfk_overrule(self) -> None: ...

    class TooCurious:
        @hookimpl
        def cfk_released(self, rows: object) -> None: ...

    with pytest.raises(PluginError, match="implements no hook"):
        load_plugins([SimpleNamespace()], entry_points=False)
    for plugin in (Unknown(), TooCurious()):
        with pytest.raises(PluginError, match="does not fit the hooks"):
            load_plugins([plugin], entry_points=False)


def test_same_plugin_twice_counts_once_and_two_of_a_kind_twice() -> None:
    one, other = Detector(), Detector()
    assert len(load_plugins([one, one, other], entry_points=False).infos) == 2


def test_worst_finding_counts_per_row() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3]})
    manager = load_plugins(
        [Detector("synthetic", None, "near-native"), Detector("near-native", None, "native-qi")], entry_points=False
    )
    assert manager.detect(frame, None) == ["near-native", None, "near-native"]  # type: ignore[arg-type]
    assert frame["age"].tolist() == [1, 2, 3]
    assert worst("native", "native-qi") == "native"
    assert worst(None, "synthetic") == "synthetic"


@pytest.mark.parametrize("findings", [["native"], ["native", "harmless"]])
def test_answer_of_the_wrong_shape_stops_the_release(findings: list[str]) -> None:
    manager = load_plugins([Detector(*findings)], entry_points=False)
    with pytest.raises(PluginError, match="one known finding"):
        manager.detect(pd.DataFrame({"age": [1, 2]}), None)  # type: ignore[arg-type]


def test_failing_plugin_stops_the_release_without_its_text() -> None:
    manager = load_plugins([Failing()], entry_points=False)
    frame = pd.DataFrame({"age": [1]})
    for call in (
        lambda: manager.detect(frame, None),  # type: ignore[arg-type]
        lambda: manager.protect(SimpleNamespace()),  # type: ignore[arg-type]
        lambda: manager.adapt(None, CONTEXT),
    ):
        with pytest.raises(PluginError, match="ValueError") as caught:
            call()
        assert CANARY not in str(caught.value)
        assert caught.value.__context__ is None


def test_failing_listener_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    class Listener:
        heard: list[ReleaseRecord] = []  # noqa: RUF012

        @hookimpl
        def cfk_released(self, record: ReleaseRecord) -> None:
            self.heard.append(record)

    listener = Listener()
    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        load_plugins([listener, Failing()], entry_points=False).released(RECORD)
    assert listener.heard == [RECORD]
    assert "Failing raised ValueError in cfk_released" in caplog.text
    assert CANARY not in caplog.text


def test_adapter_that_returns_no_source_is_reported() -> None:
    class Wrong:
        @hookimpl
        def cfk_adapt(self) -> object:
            return object()

    with pytest.raises(PluginError, match="no CounterfactualSource"):
        load_plugins([Wrong()], entry_points=False).adapt(None, CONTEXT)


def test_two_protectors_of_one_name_are_an_error() -> None:
    class Brings:
        @hookimpl
        def cfk_register_protectors(self) -> dict[str, Any]:
            return {"mine": object}

    with pytest.raises(PluginError, match="protector named mine"):
        load_plugins([Brings(), Brings()], entry_points=False).protectors()


def test_proposals_must_be_one_per_counterfactual() -> None:
    class Short:
        @hookimpl
        def cfk_protect(self) -> list[Any]:
            return []

    with pytest.raises(PluginError, match="one proposal"):
        load_plugins([Short()], entry_points=False).protect([1])  # type: ignore[arg-type]


def test_trace_names_hooks_and_plugins_and_no_argument(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CFK_TRACE_PLUGINS", "1")
    with caplog.at_level(logging.INFO, "cfk_plugin"):
        manager = load_plugins([Detector("native")], entry_points=False)
        manager.detect(pd.DataFrame({"age": [1]}), CANARY)  # type: ignore[arg-type]
    assert "hook cfk_detect -> " in caplog.text
    assert "Detector" in caplog.text
    assert CANARY not in caplog.text


def test_last_passed_plugin_is_asked_first_and_callables_last() -> None:
    from cfk_adapters import function

    class Source:
        instance_based, methods = False, {}

        def __init__(self, name: str) -> None:
            self.name = name

        generate = restore = lambda self, *_: None

    class Adapter:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def cfk_adapt(self) -> Source:
            return Source(self.name)

    manager = load_plugins([Adapter("first"), Adapter("second"), function], entry_points=False)
    assert manager.adapt(len, CONTEXT).name == "second"
    assert isinstance(manager, PluginManager)
