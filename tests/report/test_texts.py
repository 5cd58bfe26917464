"""The texts of reports are complete, and said where they hold."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from cfk_plugin import Explanations, PrivacyPolicy, PrivacyReport
from cfk_plugin.audit.epsilon import Attack
from cfk_plugin.audit.linkage import ATTACKS
from cfk_plugin.report.statements import outdated
from parsed import Tree
from reported import amount, content, example

ROOM = Path(str(files("cfk_plugin"))) / "report"


def load(name: str) -> Any:
    return tomllib.loads((ROOM / "texts" / f"{name}.toml").read_text("utf-8"))


# --- definitions ---

GROUPS = load("definitions")
DEFINITIONS = {name: told for group in GROUPS.values() for name, told in group.items()}


def test_every_figure_check_and_attack_is_defined_once() -> None:
    summary = Explanations([], policy=PrivacyPolicy(guarantee="lookup"), columns=[]).summary()
    assert set(summary) <= set(DEFINITIONS)
    assert {*ATTACKS, *(f"attack_{name}" for name in ATTACKS), *get_args(Attack)} <= set(
        DEFINITIONS
    )
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(set(names))


# --- the control map ---

CHECKED = [
    {"control": name, "checked_on": checked_on}
    for name, checked_on in (
        ("a day", "2026-11-27"),
        ("a month", "2026-11"),
        ("leap", "2028-02-29"),
    )
]


@pytest.mark.parametrize(
    ("on", "old"),
    [
        (dt.date(2026, 12, 1), ()),
        (dt.date(2027, 11, 27), ()),  # a year, and no more
        (dt.date(2027, 11, 28), ("a day",)),
        (dt.date(2027, 11, 30), ("a day",)),
        (dt.date(2027, 12, 1), ("a day", "a month")),
        (dt.date(2029, 3, 1), ("a day", "a month", "leap")),
    ],
)
def test_an_entry_is_outdated_a_year_after_it_was_checked(
    on: dt.date, old: tuple[str, ...]
) -> None:
    assert outdated(CHECKED, on) == old


def test_a_report_names_the_entries_that_were_a_year_old_at_its_own_date() -> None:
    """The date is that of the latest evidence, so a report says the same whenever it is read."""
    names = [f"rule {number}" for number in range(9)]
    rows = [
        {**content()["controls"][0], "control": name, "checked_on": checked_on}
        for name, checked_on in zip(names, ["2026-11-27"] * 8 + ["2028-01-01"], strict=True)
    ]

    def line(as_of: str | None, **changes: Any) -> str:
        head = {**content()["report"], "as_of": as_of}
        told = said(example(report=head, controls=rows, **changes))
        return (
            told.partition("on rules and standards")[2]
            .partition("that a rule is met.")[2]
            .partition("Internal report")[0]
        )

    assert line("2027-11-28T10:00:00Z").strip() == (
        "8 of 9 entries were checked more than a year before this report: rule 0; rule 1; rule 2;"
        " rule 3; rule 4; rule 5; and others. Check them again before you rely on them."
    )
    assert "more than a year" not in line("2027-11-27T10:00:00Z")
    assert "more than a year" not in line(None)


def said(report: PrivacyReport) -> str:
    return re.sub(r"\s+", " ", Tree(report.to_html()).root.text)


# --- what the person who receives an explanation may be told ---

FITS = "The explanation gives age, sex and bmi in a form that at least 12 records in the data match"
PURE = {
    "sampled": (
        (0.97, 0.9377, 0.99),
        "; at least 93 % of the combinations of values inside (an estimate) lead to",
    ),
    "exact": (
        (0.99999, None, None),
        "; at least 99 % of the combinations of values inside lead to",
    ),
    "a share whose float is below it": ((0.29, 0.29, 0.29), "; at least 29 % of the"),
    "all": (
        (1.0, 1.0, 1.0),
        "; all combinations of values inside lead to the decision that it names.",
    ),
    "not known": ((None, None, None), "."),
}


@pytest.mark.parametrize(("pureness", "says"), PURE.values(), ids=PURE)
def test_who_receives_an_explanation_is_told_what_holds_for_each(pureness: Any, says: str) -> None:
    """The least pureness, rounded down, and k; nothing of private values, which may be
    somebody's.
    """
    metrics = [each for each in content()["metrics"] if each["id"] == "pureness_min"]
    metrics[0]["amount"] = amount(*pureness)
    told = said(example(metrics=metrics))
    assert f"“{FITS}{says}" in told
    assert "another customer" not in told


def test_who_receives_an_explanation_is_told_of_attributes_only_where_they_are_those_of_all() -> (
    None
):
    told = said(example(population={"populations": 2}))
    assert (
        "“The explanation gives the values that others may know in a form that at least 12 records"
        in told
    )
    assert FITS not in told


def test_who_receives_an_explanation_is_told_nothing_where_it_does_not_hold() -> None:
    few = [
        each | {"status": "fail"} if each["id"] == "k_min" else each for each in content()["checks"]
    ]
    for report in (example(checks=few), example(releases={"prototypes": amount(3)})):
        assert "You may tell" not in said(report)
