"""The governance pages say what reports are made with."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from cfk_plugin.report.data import load
from cfk_plugin.report.inputs import HumanInputs, thresholds
from cfk_plugin.report.page import SECTIONS

pytestmark = pytest.mark.full_search

GOVERNANCE = Path(__file__).resolve().parents[2] / "docs" / "governance"
WRITTEN = runpy.run_path(str(GOVERNANCE / "make_pages.py"))["pages"]()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_page_is_current(path):
    assert path.read_text(encoding="utf-8") == WRITTEN[path], "run docs/governance/make_pages.py"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_tables_have_as_many_cells_as_columns(path):
    tables = re.findall(r"(?:^\|.*\n)+", WRITTEN[path], re.M)
    number, size = {"metrics.md": (1, 3), "controls.md": (4, 6)}[path.name]
    assert len(tables) == number
    for table in tables:
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()} == {size}


def test_every_rule_and_the_names_of_its_sections_are_in_the_control_map():
    (page,) = [text for path, text in WRITTEN.items() if path.name == "controls.md"]
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| ")]
    found = {row[0].removeprefix("| "): row[2] for row in rows}
    for entry in load("controls"):
        for number in map(str, entry["sections"]):
            expected = "First page and checks" if number == "0" else SECTIONS[number]
            assert expected in found[entry["control"]]


def test_every_definition_is_on_the_page_with_all_its_parts_or_names_the_one_that_has_them():
    (page,) = [text for path, text in WRITTEN.items() if path.name == "metrics.md"]
    found = re.findall(r"^### (\w+)\n(.*?)(?=^#{2,3} )", page, re.M | re.S)
    told = {name: re.sub(r"\s+", " ", text).replace("\\*", "*") for name, text in found}
    definitions = {
        name: entry for group in load("definitions").values() for name, entry in group.items()
    }
    assert list(told) == list(definitions)
    for name, entry in definitions.items():
        assert f"**{entry['name']}**" in told[name]
        like = re.search(r"as \[(\w+)\]", told[name])
        shared = entry if like is None else definitions[like[1]]
        assert shared["does_not_say"] == entry["does_not_say"], name
        assert shared["direction"] == entry["direction"], name
        if like is None:
            assert f"*Does not say* {entry['does_not_say']}" in told[name], name
        for part in re.split(r"(?:^|; )(?:pass|review|fail): ", entry["formula"]):
            assert part in told[name] or shared["formula"] == entry["formula"], name


def test_index_names_the_thresholds_that_are_used():
    text = (GOVERNANCE / "index.md").read_text(encoding="utf-8")
    house = thresholds(HumanInputs())
    assert f"A gap of {house['group_gap'].value} between" in text
    assert f"and {house['attack_over_control'].value} between an attack" in text


@pytest.mark.parametrize(
    ("on", "code", "words"),
    [
        ("2026-11-28", 0, "0 of "),
        ("2100-01-01", 1, "GDPR, Art. 15(1)(h) and 22(3)\n    https://"),
    ],
)
def test_a_job_lists_the_controls_that_were_checked_more_than_a_year_ago(on, code, words, capsys):
    """The job runs each month; here it is given the day, so that no test fails as time passes."""
    assert runpy.run_path(str(GOVERNANCE / "check_dates.py"))["main"](["--on", on]) == code
    assert words in capsys.readouterr().out


def test_the_job_is_scheduled():
    jobs = (GOVERNANCE.parents[1] / ".github" / "workflows" / "check-dates.yml").read_text("utf-8")
    assert "cron:" in jobs
    assert "make dates" in jobs
    makefile = (GOVERNANCE.parents[1] / "Makefile").read_text("utf-8")
    assert "python docs/governance/check_dates.py" in makefile
