"""When no PDF can be printed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cfk_plugin.errors import MissingDependencyError, ReportError
from cfk_plugin.report.delivery import write_pdf


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_no_browser_is_said_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CFK_CHROMIUM", raising=False)
    with pytest.raises(MissingDependencyError, match="apt install chromium"):
        write_pdf("<p>", tmp_path / "report.pdf")


def test_a_browser_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_CHROMIUM", "no-such-browser")
    with pytest.raises(MissingDependencyError, match="no-such-browser is no program"):
        write_pdf("<p>", tmp_path / "report.pdf")
    with pytest.raises(MissingDependencyError, match="another is no program"):
        write_pdf("<p>", tmp_path / "report.pdf", browser="another")


def test_a_browser_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "report.pdf"
    target.write_bytes(b"of last month")
    with pytest.raises(ReportError, match="exit code 3"):
        write_pdf("<p>", target, browser=program(tmp_path / "browser", "exit 3"))
    assert target.read_bytes() == b"of last month"


def test_a_browser_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.report.delivery._SECONDS", 0.5)
    child = tmp_path / "child"
    hanging = program(tmp_path / "browser", f"sleep 600 & echo $! > {child}; wait")
    with pytest.raises(ReportError, match="no answer"):
        write_pdf("<p>", tmp_path / "report.pdf", browser=hanging)
    number = int(child.read_text())
    while Path(f"/proc/{number}").exists() and "Z" not in Path(f"/proc/{number}/stat").read_text().split():
        time.sleep(0.01)
    assert not (tmp_path / "report.pdf").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_browser_gets_a_new_profile_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    browser = program(tmp_path / "browser", f'for option in "$@"; do echo "$option" >> {said}; done')
    with pytest.raises(ReportError):
        write_pdf("<p>", tmp_path / "report.pdf", browser=browser)
    options = said.read_text().splitlines()
    assert "--proxy-server=127.0.0.1:9" in options
    assert ("--no-sandbox" in options) == (os.geteuid() == 0)
    (profile,) = [option.split("=")[1] for option in options if option.startswith("--user-data-dir=")]
    assert not Path(profile).parent.exists()
