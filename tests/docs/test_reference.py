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


@pytest.mark.parametrize("name", cfk_plugin.__all__)
def test_public_name_has_a_heading_and_is_described_by_its_docstring(name: str) -> None:
    part = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", page("api.md"), re.M | re.S)
    assert part
    assert f"\n::: cfk_plugin.{name}\n" in part[1] or name == "hookimpl"


def test_api_page_names_nothing_that_is_gone() -> None:
    named = {
        title
        for title in HEADING.findall(page("api.md"))
        if re.search(rf"^### {title}$", page("api.md"), re.M)
    }
    assert named == set(cfk_plugin.__all__)


def described(thing: Any) -> set[str]:
    """Return what a docstring has under Parameters and Attributes, which is what the site shows."""
    text = inspect.cleandoc(thing.__doc__)
    parts = re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.M | re.S
    )
    names = re.findall(r"^(\S[^:\n]*?)(?: :.*)?$", "\n".join(parts), re.M)
    return {name.strip().lstrip("*") for group in names for name in group.split(",")}


MADE_BY: dict[str, Any] = {
    "Catalogue": Catalogue.save,
    "Hierarchy": Hierarchy.of,
    "Population": Population.from_frame,
    "PrivacyReport": PrivacyReport.of_runs,
    "ProtectedExplainer": ProtectedExplainer.explain,
    "Schema": Schema.from_frame,
}
"""Public names that are not called themselves."""

CALLED = {
    name: MADE_BY.get(name, getattr(cfk_plugin, name))
    for name in cfk_plugin.__all__
    if name != "hookimpl"
}
CALLED |= {
    f"{function.__qualname__}": function
    for function in (KAnonymizer.fit, KAnonymizer.transform, KAnonymizer.explain, KAnonymizer.load)
}
CALLED |= {
    f"{function.__qualname__}": function for function in (DPPrototypes.fit, DPPrototypes.explain)
}


@pytest.mark.parametrize("name", CALLED)
def test_docstring_describes_every_parameter(name: str) -> None:
    assert (
        set(inspect.signature(CALLED[name]).parameters) - {"self", "cls"} - described(CALLED[name])
        == set()
    )


def members(thing: Any) -> list[Any]:
    """Return a function or a class with its public methods and properties."""
    own = vars(thing).items() if inspect.isclass(thing) else ()
    found = [
        getattr(value, "__func__", getattr(value, "fget", value))
        for name, value in own
        if name[0] != "_"
    ]
    return [thing, *filter(inspect.isfunction, found)]


@pytest.mark.parametrize(
    "module", [cfk_plugin, metrics, errors, hookspecs], ids=lambda module: module.__name__
)
def test_every_public_name_has_a_docstring(module: Any) -> None:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
    public = [getattr(module, name) for name in names]
    own = [
        thing
        for thing in public
        if getattr(thing, "__module__", "").startswith("cfk_plugin") and callable(thing)
    ]
    assert own
    lacking = [
        m.__qualname__
        for thing in own
        if hasattr(thing, "__qualname__")
        for m in members(thing)
        if not m.__doc__
    ]
    assert not lacking


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_hook_and_its_arguments_are_described(name: str) -> None:
    part = section((DOCS / "how-to" / "write-an-adapter.md").read_text(encoding="utf-8"), name)
    expected = set(inspect.signature(HOOKS[name]).parameters)
    assert set(re.findall(r"^\| `(\w+)` \|", part, re.M)) == expected
    assert f"`{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})`" in part


def test_every_figure_of_a_summary_is_defined() -> None:
    summary = Explanations([], policy=PrivacyPolicy(guarantee="lookup"), columns=[]).summary()
    assert set(summary) - words(page("metrics.md")) == set()


def test_every_figure_of_a_certificate_is_defined() -> None:
    names = set(inspect.signature(Certificate).parameters)
    assert names - SETTINGS_OF_A_CERTIFICATE - words(page("metrics.md")) == set()
    assert names == described(Certificate)


def test_every_error_and_reason_is_listed() -> None:
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


def test_json_page_names_every_key_and_its_examples_are_valid() -> None:
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


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    reached = {(DOCS / target).resolve() for target in LINK.findall(index)}
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    lost = [path.relative_to(DOCS).as_posix() for path in pages if path.resolve() not in reached]
    assert lost == ["index.md"]


def test_picture_shows_real_output(monkeypatch: pytest.MonkeyPatch) -> None:
    script = DOCS / "assets" / "make_before_after.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    assert runpy.run_path(str(script))["main"]() == 0, "run docs/assets/make_before_after.py again"
