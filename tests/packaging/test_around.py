"""What stands around the code says what it is: placeholders, workflows that nobody has run, and one
version.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import cfk_plugin

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_the_citation_is_of_this_version() -> None:
    said = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert (said["version"], said["license"]) == (cfk_plugin.__version__, PROJECT["license"])
    assert said["repository-code"] == PROJECT["urls"]["Source"]


def test_addresses_that_lead_nowhere_say_so() -> None:
    for name in ("pyproject.toml", "CITATION.cff", "SECURITY.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert "example.org" in text
        assert "placeholder" in text.lower()
    assert all(address.startswith("https://example.org/") for address in PROJECT["urls"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_say_that_nobody_has_run_them_and_call_what_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "NOBODY HAS RUN THIS FILE" in text
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    told = {step["run"] for step in steps if "run" in step}
    targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
    assert told & {".ci/run", *(f"make {target}" for target in targets)}


def test_all_workflows_are_there() -> None:
    assert [path.stem for path in WORKFLOWS] == ["check-dates", "site", "suite"]
