"""Words that a report must not use are in none of its texts, templates and strings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import cfk_plugin.report
from cfk_plugin.report.statements import receiver_sentence

REPORT = Path(cfk_plugin.report.__file__).parent
TEMPLATES = sorted(path for path in (REPORT / "templates").rglob("*") if path.is_file())
TEXTS = sorted((REPORT / "texts").glob("*.yaml"))
MODULES = sorted(REPORT.rglob("*.py"))
PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "governance").rglob("*.md"))
CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.S)  # Jinja has a filter of the name `safe`

# Word to the pattern that finds it. Each is a promise that no figure of a report supports.
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


def forbidden(text):
    """Return the words of a text that a report must not use."""
    return [word for word, pattern in FORBIDDEN.items() if re.search(pattern, text, re.I)]


def name_of(path):
    return path.name


def strings(path):
    """Return the strings of a module that are no documentation; a column or key may have the name of a word."""
    tree = ast.parse(path.read_text("utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in found if id(node) not in documentation and node.value != "optimal"]


def test_there_is_something_to_read():
    assert all([TEMPLATES, TEXTS, MODULES, PAGES])


@pytest.mark.parametrize("path", [*TEXTS, *PAGES], ids=name_of)
def test_texts(path):
    assert forbidden(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_templates(path):
    assert forbidden(CODE.sub(" ", path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_strings_of_modules(path):
    assert [(text, found) for text in strings(path) if (found := forbidden(text))] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The explanations are Anonymous.", ["anonymous"]),
        ("k-anonymous with k >= 12 with respect to P", []),
        ("pseudo-anonymous", ["anonymous"]),
        ("anonymized or anonymised", ["anonymised"]),
        ("Opinion on anonymisation techniques", []),
        ("a safe release, unsafe otherwise", ["safe"]),
        ("GDPR-proof, GDPR compliant", ["compliant", "GDPR-proof"]),
        ("non-compliance", []),
        ("guaranteed\nprivacy at zero risk", ["guaranteed privacy", "zero risk"]),
        ("People cannot be reidentified, can't be re-identified", ["cannot be re-identified"]),
        ("differential privacy", []),
        ("differentially private rows", ["differentially private"]),
        ("the optimal region", ["optimal"]),
        ("optimal_rate, optimality, suboptimal", []),
    ],
)
def test_word_is_found_where_it_stands_alone(text, found):
    assert forbidden(text) == found


def test_sentence_for_the_receiver():
    assert receiver_sentence(None) == "The values are given as ranges so that they do not describe another customer."
    assert receiver_sentence(0.9377).endswith(
        "another customer; about 93 % of combinations inside these ranges lead to the other decision."
    )
    assert "about 99 %" in receiver_sentence(0.99999)
    assert "all combinations" in receiver_sentence(1.0)
    assert "about 29 %" in receiver_sentence(0.29)
