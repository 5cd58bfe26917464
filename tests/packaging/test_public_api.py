"""What is public is listed, and changes only on purpose."""

from __future__ import annotations

import re
import subprocess
import warnings
from pathlib import Path

import pytest

import cfk_plugin
import public_api

ROOT = Path(__file__).parents[2]
RELEASE = "v0.1.0"


def test_what_is_public_is_as_listed() -> None:
    with warnings.catch_warnings(action="ignore"):
        found = list(public_api.lines(public_api.listed_members()))
    listed = public_api.LIST.read_text(encoding="utf-8").splitlines()
    assert found == listed, "if this is meant: python tests/packaging/public_api.py"


def test_every_public_class_says_which_of_its_members_are_public() -> None:
    owners = {member.split(".")[0] for member in public_api.listed_members()}
    classes = {name for name in cfk_plugin.__all__ if isinstance(getattr(cfk_plugin, name), type)}
    assert classes <= owners


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def test_after_the_release_a_change_is_in_the_changelog() -> None:
    before = git("show", f"{RELEASE}:tests/public_api.txt")
    if not before:
        pytest.skip(f"there is no tag {RELEASE}: nothing is promised yet")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    since = changelog.partition("## [0.1.0]")[0]
    changed = set(public_api.LIST.read_text(encoding="utf-8").splitlines()) ^ set(
        before.splitlines()
    )
    words = [re.split(r"[ (]", line)[1] for line in changed]
    assert [word for word in words if word not in since] == []
