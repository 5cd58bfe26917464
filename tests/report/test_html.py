"""The HTML of a report: what stands in it, and what must not."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from cfk_plugin.report.document import Folded, Link, Mark, Paragraph, Section, TableBlock
from cfk_plugin.report.render import render_html
from documented import LONG_NAME, RUNS, TITLE, document, intervals, table
from parsed import Element, Tree, problems

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.fixture(scope="module")
def html() -> str:
    return render_html(document())


@pytest.fixture(scope="module")
def root(html: str) -> Element:
    return Tree(html).root


def body(*blocks: object) -> Element:
    """Return the tree of a report with these blocks alone."""
    made = document()
    section = Section(id="section-0", number="0", title="Verdict", blocks=blocks)
    return Tree(render_html(replace(made, sections=[section]))).root


@pytest.mark.parametrize("print_edition", [False, True])
@pytest.mark.parametrize("edition", ["internal", "external"])
def test_report_has_no_problem(edition: str, print_edition: bool) -> None:
    html = render_html(replace(document(), edition=edition), print_edition=print_edition)
    assert problems(html, outside=(RUNS,)) == []


def test_problems_are_found() -> None:
    # The check above would be worth nothing if it found nothing.
    made = document()
    section = Section(
        id="section-0", number="0", title="Verdict", blocks=[intervals(), Paragraph((Link("a", "#groups"),))]
    )
    html = render_html(replace(made, sections=[section]))
    assert problems(html) == []
    for broken, word in [
        (html.replace("</main>", "<script>1</script></main>"), "script"),
        (html.replace("<h1>", '<h1 onclick="x">'), "onclick"),
        (html.replace("<h1>", '<h1 id="groups">'), "twice"),
        (html.replace("h2", "h3"), "follows"),
        (html.replace('scope="row"', "", 1), "scope"),
        (html.replace('href="#groups"', 'href="#elsewhere"'), "nothing"),
        (html.replace('role="img"', "", 1), "picture"),
        (html.replace("<footer>", "<footer>https://example.com"), "address"),
    ]:
        assert any(word in problem for problem in problems(broken)), word


def test_same_document_gives_same_bytes(html: str) -> None:
    assert render_html(document()) == html


def test_content_policy_lets_nothing_in(root: Element) -> None:
    policies = [meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policies == [POLICY]


def test_language_and_title_are_set(root: Element) -> None:
    assert root.all("html")[0].attributes["lang"] == "en"
    assert root.all("title")[0].text == f"{TITLE} – Internal edition – Fail"


def test_texts_are_escaped(html: str, root: Element) -> None:
    assert "<retail" not in html
    assert root.all("h1")[0].text == TITLE
    assert 'income "net" < 1 000' in root.text


def test_verdict_comes_before_everything_else(root: Element) -> None:
    order = [element for element in root.walk() if element.tag in {"header", "section", "nav"}]
    assert [element.tag for element in order[:3]] == ["header", "section", "nav"]
    header = order[0].text
    places = [
        header.index(words) for words in ("Internal edition", TITLE, "Fail", "Two of twelve", "Not covered", "Period")
    ]
    assert places == sorted(places)
    assert all(sentence in header for sentence in document().not_covered)


def test_data_can_be_downloaded(root: Element) -> None:
    (link,) = [link for link in root.all("a") if "download" in link.attributes]
    assert link.attributes["download"] == "cfk-report.json"
    kind, _, data = str(link.attributes["href"]).partition(",")
    assert kind == "data:application/json;base64"
    assert base64.b64decode(data).decode() == document().data


def test_folds_are_closed_on_screen_and_open_in_print(root: Element) -> None:
    printed = Tree(render_html(document(), print_edition=True)).root
    assert all("open" not in fold.attributes for fold in root.all("details"))
    assert all("open" in fold.attributes for fold in printed.all("details"))
    assert len(printed.all("details")) == len(root.all("details")) > 5


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "data:text/html,x", "//example.org", "file:///etc", "#a b", ""]
)
def test_a_link_elsewhere_is_text(target: str) -> None:
    shown = body(Paragraph((Link("words", target),)))
    assert "words" in shown.all("section")[0].text
    assert not shown.all("section")[0].all("a")


def test_status_is_a_word(root: Element) -> None:
    words = {cell.text for cell in root.all("span") if "shape" in (cell.attributes.get("class") or "")}
    assert words == {"Pass", "Review", "Fail", "Not measured"}


def test_empty_table_says_so() -> None:
    shown = body(table(0))
    assert "None." in shown.all("tbody")[0].text


def test_cells_may_hold_several_links() -> None:
    cell = ("see ", Link("a", "#section-0"), " or ", Link("b", f"{RUNS}1"))
    shown = body(TableBlock(id="t", caption="c", columns=["x", "y"], rows=[("1", cell), ("2", Mark("pass"))]))
    assert [link.text for link in shown.all("td")[0].all("a")] == ["a", "b"]
    # On paper the address stands below the table.
    assert [item.text for item in shown.all("li") if RUNS in item.text] == [f"b: {RUNS}1"]


def test_folds_can_be_nested() -> None:
    inner = Folded("inside", [Paragraph("deep")])
    assert [fold.text.split() for fold in body(Folded("outside", [inner])).all("details")] == [
        ["outside", "inside", "deep"],
        ["inside", "deep"],
    ]


def test_long_names_can_be_broken_and_are_whole_when_copied(html: str, root: Element) -> None:
    assert "marital_<wbr>status_<wbr>" in html
    assert LONG_NAME in root.text


def test_a_title_cannot_leave_the_style_sheet() -> None:
    title = 'a"; } </style><script>alert(1)</script> \\ { @import "x'
    html = render_html(replace(document(), title=title))
    assert len(re.findall(r"</style>", html)) == 1
    (running,) = re.findall(r'@top-left \{ content: "([^"]*)" \}', html)
    assert re.fullmatch(r"(?:[0-9A-Za-z]|\\[0-9a-f]{6})*", running)


def test_report_is_small() -> None:
    # 10,000 explanations have at most some hundred rows in the report; the room is for the data.
    assert len(render_html(document()).encode()) < 250_000
