"""The control map: complete, dated, and with what is no longer in force marked as such."""

from __future__ import annotations

import datetime as dt

import pytest

from cfk_plugin.report.statements import controls, load

FIELDS = {"control", "requires", "section", "status", "verified", "checked_on"}
SECTIONS = {*map(str, range(14)), "A", "B", "C"}


# Words with one of which a status begins, and how an entry was looked up.
STATUSES = ("in force", "final", "voluntary", "practice", "rescinded", "withdrawn")
VERIFIED = ("text", "secondary sources", "recalled, to be checked by counsel")


@pytest.mark.parametrize("entry", controls(), ids=lambda entry: entry["control"])
def test_entry_is_complete(entry):
    assert set(entry) == FIELDS
    assert all(isinstance(text, str) and text.strip() for text in entry.values())
    assert entry["status"].startswith(STATUSES)
    assert entry["verified"] in VERIFIED
    assert set(entry["section"].split(", ")) <= SECTIONS
    assert dt.datetime.strptime(entry["checked_on"], "%Y-%m").replace(tzinfo=dt.UTC).year >= 2026


def test_names_are_unique_and_no_key_is_lost():
    names = [entry["control"] for entry in controls()]
    assert len(names) == len(set(names))
    assert all(set(told) == (FIELDS - {"section"}) | {"sections"} for told in load("controls"))


@pytest.mark.parametrize(
    ("begins", "status"),
    [
        ("SR 11-7", "rescinded 17 Apr 2026, replaced by SR 26-2 / OCC Bulletin 2026-13"),
        ("CFPB Circular 2022-03", "withdrawn 12 May 2025"),
        ("EU AI Act, Art. 12", "in force; duties for systems of Annex III apply from 2 Dec 2027"),
        ("EU AI Act, Art. 86", "in force; whether its date moved with that of Annex III is open"),
    ],
)
def test_what_changed_is_marked(begins, status):
    (entry,) = [entry for entry in controls() if entry["control"].startswith(begins)]
    assert entry["status"].startswith(status)
