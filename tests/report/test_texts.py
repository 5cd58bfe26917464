"""The texts of reports: complete, said where they hold, and without a word that promises more than
figures do.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from markdown_it import MarkdownIt

from cfk_plugin import Explanations, PrivacyPolicy, PrivacyReport
from cfk_plugin.audit.epsilon import Attack
from cfk_plugin.audit.linkage import ATTACKS
from cfk_plugin.report.statements import controls, outdated
from parsed import problems
from reported import amount, content, example

ROOM = Path(str(files("cfk_plugin"))) / "report"
GOVERNANCE = Path(__file__).resolve().parents[2] / "docs" / "governance"


def load(name: str) -> Any:
    return yaml.safe_load((ROOM / "texts" / f"{name}.yaml").read_text("utf-8"))


# --- definitions ---

GROUPS = load("definitions")
DEFINITIONS = {name: told for group in GROUPS.values() for name, told in group.items()}
DIRECTIONS = (
    "no direction",
    "higher is better",
    "lower is better",
    "larger",
    "lower",
    "must",
    "best at 0",
    "pass is best",
)


def test_every_figure_check_and_attack_is_defined_once() -> None:
    summary = Explanations([], policy=PrivacyPolicy(guarantee="lookup"), columns=[]).summary()
    assert set(summary) <= set(DEFINITIONS)
    assert {*ATTACKS, *(f"attack_{name}" for name in ATTACKS), *get_args(Attack)} <= set(
        DEFINITIONS
    )
    charts = {
        block["chart"]
        for section in load("sections")
        for block in section["blocks"]
        if "chart" in block
    }
    assert charts | {
        name for s in load("sections") for b in s["blocks"] for name in b.get("metrics", ())
    } <= set(DEFINITIONS)
    names = re.findall(r"^  (\w+):", (ROOM / "texts" / "definitions.yaml").read_text("utf-8"), re.M)
    assert sorted(names) == sorted(set(names))


def test_every_definition_says_in_lines_of_their_own_what_it_is_and_what_it_does_not_say() -> None:
    parts = {"name", "formula", "range", "direction", "source", "does_not_say"}
    for name, told in DEFINITIONS.items():
        assert parts <= set(told) <= parts | {"where", "remarks"}, name
        assert all(told[part].strip() for part in set(told) - parts), name
        assert all(re.fullmatch(r"\S[^\n]+\S", str(told[part])) for part in parts), name
        assert re.fullmatch(r"\S+ \S+ \S.*\.", told["does_not_say"]), name
        assert told["does_not_say"].rstrip(".") not in told["formula"], name
        assert told["direction"].startswith(DIRECTIONS), name
    for name, told in GROUPS["Checks"].items():
        assert told["formula"].startswith("pass: "), name
        assert re.search(r"(fail|review): ", told["formula"]), name
        for status in ("fail", "review"):
            assert (f"{status}: " in told["formula"]) <= (status in told["range"]), name


# --- the control map ---

STATUSES = (
    *("in force", "enacted", "final", "draft", "not issued", "voluntary", "practice"),
    *("rescinded", "withdrawn", "not confirmed"),
)
PARTS = {"control", "requires", "sections", "status", "verified", "checked_on", "source"}


def test_entries_of_the_control_map_are_complete_and_looked_up() -> None:
    entries = load("controls")
    assert (
        len({entry["control"] for entry in entries}) == len(entries) == len(content()["controls"])
    )
    for entry in entries:
        assert set(entry) == PARTS
        assert all(str(value).strip() for value in entry.values())
        assert entry["status"].startswith(STATUSES)
        assert entry["verified"] in (
            "text",
            "abstract",
            "secondary sources",
            "recalled, to be checked by counsel",
        )
        assert {*map(str, entry["sections"])} <= {*map(str, range(14)), "A", "B", "C"}
        assert re.fullmatch(r"https://\S+", entry["source"])
        form = "%Y-%m-%d" if len(entry["checked_on"]) > len("2026-11") else "%Y-%m"
        assert dt.datetime.strptime(entry["checked_on"], form).replace(tzinfo=dt.UTC).year >= 2026
    for entry in controls():
        assert set(entry) == PARTS - {"sections"} | {"section"}


@pytest.mark.parametrize(
    ("begins", "status"),
    [
        ("SR 11-7", "rescinded 17 Apr 2026, replaced by SR 26-2 / OCC Bulletin 2026-13"),
        ("CFPB Circular 2022-03", "withdrawn 12 May 2025"),
        ("EU AI Act, Art. 12", "in force; duties for systems of Annex III apply from 2 Dec 2027"),
        ("EU AI Act, Art. 86", "in force; whether its date moved with that of Annex III is open"),
        ("Colorado SB 26-189", "enacted 14 May 2026, repeals SB 24-205, applies from 1 Jan 2027"),
        ("California", "in force since 1 Jan 2026"),
        ("CFPB Circular 2023-03", "not confirmed"),
        ("EDPB, guidelines on anonymisation", "not issued, as far as could be found on 27 Nov"),
        ("EDPB, Guidelines 01/2025", "draft"),
        ("ISO/IEC DIS 24970:2025", "draft"),
    ],
)
def test_what_changed_is_marked(begins: str, status: str) -> None:
    (entry,) = [entry for entry in load("controls") if entry["control"].startswith(begins)]
    assert entry["status"].startswith(status)


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
        return told.partition("on rules and standards")[2].partition("that a rule is met.")[2]

    assert line("2027-11-28T10:00:00Z").strip() == (
        "8 of 9 entries were checked more than a year before this report: rule 0; rule 1; rule 2;"
        " rule 3; rule 4; rule 5; and 2 more. Check them again before you rely on them."
    )
    assert "more than a year" not in line("2027-11-27T10:00:00Z")
    assert "8 of 9 entries" in line("2027-11-28")  # the external edition gives days alone
    assert "more than a year" not in line(None)


# --- blocks of the sections ---

DP = {
    "guarantee": "none",
    "covers": "the answers",
    "epsilon": 1.5,
    "delta": 1e-6,
    "total": None,
    "unit": "one person",
    "neighbours": "add or remove one",
    "mechanism": "Laplace, basic composition",
    "model_access": "queries",
    "seeded": True,
    "inferred": ["age"],
    "membership_bound": None,
    "threat_models": {"queries": "nothing holds"},
}


def said(report: PrivacyReport) -> str:
    """Return the words of a report, as Markdown shows them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(report.to_markdown())
    words = [child.content or " " for token in tokens for child in token.children or ()]
    return re.sub(r"\s+", " ", " ".join(words))


def test_every_text_is_said_where_it_holds_alone() -> None:
    attack = content()["attacks"][0]
    guaranteed = {
        **DP,
        "guarantee": "pure",
        "total": [2.0, 0.0],
        "membership_bound": 0.6,
        "inferred": [],
    }
    empty = (
        "attributes",
        "distributions",
        "groups",
        "attacks",
        "certificates",
        "runs",
        "hidden_cells",
        "metrics",
    )
    withheld = {"reasons": {"infeasible": content()["releases"]["withheld"]}}
    settings = {"policies": [], "deviations": ["It changed."], "seed": [], "generators": []}
    reports = [
        example(),
        example(
            dp=DP,
            changes=[],
            report={"verdict": "review"},
            attacks=[attack, {**attack, "judged": False}],
        ),
        example(
            dp=guaranteed,
            changes=[{"what": "verdict", "before": "pass", "after": "fail"}],
            releases=withheld,
        ),
        example(
            **{name: [] for name in empty}, releases={"reasons": {}, "latency": {}}, policy=settings
        ),
        example(
            population={"populations": 2, "subject_key": None},
            report={"verdict": "pass"},
            hidden_cells=["a"],
        ),
        example(checks=[{**check, "status": "not_measured"} for check in content()["checks"]]),
        example(report={"as_of": "2030-01-01T00:00:00Z"}),
    ]
    texts = [said(report) for report in reports]
    for section in load("sections"):
        for block in section["blocks"]:
            if block.get("curves") or block.get("chart") == "intersection":
                continue  # of audits that the example has none of
            for name in set(block) & {"text", "caption", "title", "description", "note"}:
                words = max(re.split(r"\{\w+\}", block[name]), key=len).strip()
                holds = [words in text for text in texts]
                assert any(holds), words
                if {"when", "unless"} & set(block) and name == "text" and "{" not in block[name]:
                    assert not all(holds), words
    assert [problems(report.to_html()) for report in reports] == [[]] * len(reports)


def test_what_is_stated_of_prototypes_says_whether_it_is_a_guarantee() -> None:
    claimed, guaranteed = (
        said(example(dp=DP)),
        said(example(dp={**DP, "guarantee": "pure", "total": [2.0, 0.25]})),
    )
    for words in ("not stated: nothing is guaranteed", "no bound", "yes", "1.5, 1e-06"):
        assert words in claimed
    assert "The guarantee covers: the answers." in guaranteed
    assert "2, 0.25" in guaranteed
    assert "epsilon is only a claim" not in guaranteed.lower()


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


# --- words that promise more than a figure supports ---

FORBIDDEN = {
    "anonymous": r"(?<!\bk-)\banonymous\b",  # "k-anonymous with respect to ..." says of whom
    "anonymised": r"\banonymi[sz]ed\b",
    "safe": r"\bsafe\b",
    "compliant": r"\bcompliant\b",
    "GDPR-proof": r"\bGDPR[ -]proof\b",
    "guaranteed privacy": r"\bguaranteed\s+privacy\b",
    "zero risk": r"\bzero[ -]risk\b",
    "cannot be re-identified": r"\bcan(not|\snot|['’]t)\s+be\s+re-?identified\b",
    "differentially private": r"\bdifferentially[ -]private\b",
    "optimal": r"\boptimal\b",
}
CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)  # Jinja has a filter of the name `safe`


def forbidden(text: str) -> list[str]:
    return [word for word, pattern in FORBIDDEN.items() if re.search(pattern, text, re.I)]


def texts_of(path: Path) -> list[str]:
    """Return the texts of a file; of a module its strings that are no documentation, column or
    key.
    """
    text = path.read_text("utf-8").replace("`Certificate.optimal`", "")  # a name promises nothing
    if path.suffix != ".py":
        return [CODE.sub(" ", text) if path.suffix == ".j2" else text]
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [
        str(node.value)
        for node in found
        if id(node) not in documentation and node.value != "optimal"
    ]


def test_no_text_of_a_report_promises_more_than_its_figures() -> None:
    places = {
        ROOM: ("*.yaml", "*.j2", "*.py"),
        GOVERNANCE: ("*.md",),
        GOVERNANCE.parent / "reference": ("metrics.md",),
    }
    found = {
        path for folder, names in places.items() for name in names for path in folder.rglob(name)
    }
    assert {path.suffix for path in found} == {".yaml", ".j2", ".py", ".md"}
    assert {
        path.name: words
        for path in found
        if (words := [w for t in texts_of(path) for w in forbidden(t)])
    } == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The explanations are Anonymous.", ["anonymous"]),
        ("k-anonymous with k >= 12 with respect to P; suboptimal, optimality", []),
        ("pseudo-anonymous", ["anonymous"]),
        ("anonymized or anonymised", ["anonymised"]),
        ("a safe release, unsafe otherwise", ["safe"]),
        ("GDPR-proof, GDPR compliant", ["compliant", "GDPR-proof"]),
        ("Opinion on anonymisation techniques; non-compliance; differential privacy", []),
        ("guaranteed\nprivacy at zero risk", ["guaranteed privacy", "zero risk"]),
        ("People cannot be reidentified, can't be re-identified", ["cannot be re-identified"]),
        (
            "differentially private rows of the optimal region",
            ["differentially private", "optimal"],
        ),
    ],
)
def test_a_word_is_found_where_it_stands_alone(text: str, found: list[str]) -> None:
    assert forbidden(text) == found
