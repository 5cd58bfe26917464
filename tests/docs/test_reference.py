"""The reference pages name everything that there is, and every link leads somewhere."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import cfk_plugin
from cfk_plugin import (
    Catalogue,
    Certificate,
    DPPrototypes,
    Explanations,
    Hierarchy,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    ProtectedExplainer,
    Schema,
    errors,
    hookspecs,
    metrics,
)
from cfk_plugin.release.withheld import REASONS

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [*REPOSITORY.glob("*.md"), REPOSITORY / "adapters" / "README.md", *DOCS.rglob("*.md")]
NAMES = [path.relative_to(REPOSITORY).as_posix() for path in PAGES]
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "cfk_plugin_spec")}

ENGLISH = json.loads((files("cfk_plugin") / "languages" / "en.json").read_text("utf-8"))
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\[(?:[^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
# no figures
SETTINGS_OF_A_CERTIFICATE = {
    "method",
    "guarantee",
    "not_stopped",
    "unchanged",
    "policy_hash",
    "population",
}


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def words(text: str) -> set[str]:
    """Return the names that a page sets as code or as a heading, without what stands before a
    dot.
    """
    set_apart = [*re.findall(r"`([^`\n]+)`", FENCED.sub("", text)), *HEADING.findall(text)]
    return {word for part in set_apart for word in re.findall(r"\w+", part)}


def section(text: str, title: str) -> str:
    """Return what stands under a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.M)
    assert found, f"no heading {title}"
    below = text[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", below, maxsplit=1, flags=re.M)[0]


def slug(heading: str) -> str:
    """Return the anchor that Markdown viewers give to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def test_api_page_has_every_public_name() -> None:
    """A heading for each, below which the site shows its docstring."""
    headings = re.findall(r"^### (\w+)$", page("api.md"), re.M)
    assert sorted(headings) == sorted(cfk_plugin.__all__)
    shown = re.findall(r"^::: cfk_plugin\.(\w+)$", page("api.md"), re.M)
    assert {*shown} | {"hookimpl"} == {*headings}


def described(thing: Any) -> set[str]:
    """Return what a docstring has under Parameters and Attributes, which is what the site shows."""
    text = inspect.cleandoc(thing.__doc__)
    parts = re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.M | re.S
    )
    names = re.findall(r"^(\S[^:\n]*?)(?: :.*)?$", "\n".join(parts), re.M)
    return {name.strip().lstrip("*") for group in names for name in group.split(",")}


CALLED: dict[str, Any] = {
    name: getattr(cfk_plugin, name) for name in cfk_plugin.__all__ if name != "hookimpl"
}
# These are not called themselves.
CALLED |= {
    "Catalogue": Catalogue.save,
    "Hierarchy": Hierarchy.of,
    "Population": Population.from_frame,
    "PrivacyReport": PrivacyReport.of_runs,
    "ProtectedExplainer": ProtectedExplainer.explain,
    "Schema": Schema.from_frame,
}
METHODS = (KAnonymizer.fit, KAnonymizer.transform, KAnonymizer.explain, KAnonymizer.load)
CALLED |= {
    method.__qualname__: method for method in (*METHODS, DPPrototypes.fit, DPPrototypes.explain)
}


@pytest.mark.parametrize("name", CALLED)
def test_docstring_describes_every_parameter(name: str) -> None:
    """The site shows the docstring."""
    parameters = set(inspect.signature(CALLED[name]).parameters) - {"self", "cls"}
    assert parameters <= described(CALLED[name])


@pytest.mark.parametrize(
    "module", [cfk_plugin, metrics, errors, hookspecs], ids=lambda module: module.__name__
)
def test_every_public_name_has_a_docstring(module: Any) -> None:
    """So has every public method and property."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
    undescribed = []
    for name in names:
        thing = getattr(module, name)
        if not getattr(thing, "__module__", "").startswith("cfk_plugin") or not callable(thing):
            continue
        members = vars(thing).items() if inspect.isclass(thing) else ()
        public = [member for key, member in members if key[0] != "_"]
        functions = [getattr(one, "__func__", getattr(one, "fget", one)) for one in public]
        for described_thing in (thing, *filter(inspect.isfunction, functions)):
            if not described_thing.__doc__:
                undescribed.append(described_thing.__qualname__)
    assert not undescribed


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_hook_is_described(name: str) -> None:
    """With a table of its arguments."""
    part = section((DOCS / "how-to" / "write-an-adapter.md").read_text(encoding="utf-8"), name)
    expected = set(inspect.signature(HOOKS[name]).parameters)
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.M)) == expected
    assert f"`{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})`" in part


def test_figures_of_summaries_are_defined() -> None:
    """On the page of metrics."""
    summary = Explanations([], policy=PrivacyPolicy(guarantee="lookup"), columns=[]).summary()
    assert set(summary) - words(page("metrics.md")) == set()


def test_figures_of_certificates_are_defined() -> None:
    """On the page, and in the docstring."""
    names = set(inspect.signature(Certificate).parameters)
    assert names - SETTINGS_OF_A_CERTIFICATE - words(page("metrics.md")) == set()
    assert names == described(Certificate)


def test_every_failure_is_listed() -> None:
    """Errors, and reasons with the sentence that a person gets."""
    kinds = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    raised = {name for name, kind in kinds.items() if issubclass(kind, Exception)}
    withheld = (DOCS / "how-to" / "why-was-this-withheld.md").read_text(encoding="utf-8")
    assert listed(page("errors.md")) == sorted(raised)
    assert listed(withheld) == sorted(REASONS)
    for text in (reason.person_text_key for reason in REASONS.values()):
        sentence = ENGLISH["withheld"][text].partition("{")[0]
        assert sentence.removesuffix(".") in " ".join(withheld.split()), text


def listed(text: str) -> list[str]:
    """Return the names that the first column of a page's tables has, sorted."""
    return sorted(re.findall(r"^\| `(\w+)` \|", text, re.M))


def test_page_of_formats_is_complete() -> None:
    """It names every key, and its examples are valid."""
    form = json.loads(
        (files("cfk_plugin") / "schemas" / "explanations-1.schema.json").read_text("utf-8")
    )
    keys = {key for part in [form, *form["$defs"].values()] for key in part.get("properties", {})}
    assert keys - words(page("file-formats.md")) == set()
    examples = re.findall(r"^```json\n(.*?)^```$", page("file-formats.md"), re.M | re.S)
    kinds = [json.loads(example) for example in examples]
    assert [set(kind["policy"]) >= {"epsilon"} for kind in kinds] == [False, True]
    for kind in kinds:
        Draft202012Validator(form).validate(kind)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """To a file, and to a heading in it."""
    path = REPOSITORY / name
    for target in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        assert file.exists(), target
        if anchor:
            headings = HEADING.findall(FENCED.sub("", file.read_text(encoding="utf-8")))
            assert anchor in {slug(heading) for heading in headings}, target


def test_index_reaches_every_page() -> None:
    """Notebooks as well."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    reached = {(DOCS / target).resolve() for target in LINK.findall(index)}
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    lost = [path.relative_to(DOCS).as_posix() for path in pages if path.resolve() not in reached]
    assert lost == ["index.md"]


def test_picture_shows_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """If not, run ``docs/assets/make_before_after.py``."""
    script = DOCS / "assets" / "make_before_after.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    assert runpy.run_path(str(script))["main"]() == 0, "run docs/assets/make_before_after.py again"
