"""Every rendering says everything that the report says, as text, and nothing else."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cfk_plugin import PrivacyReport
from cfk_plugin.report.data import ReportData
from parsed import Element, Tree, problems
from reported import HOSTILE, amount, bare, content, example, line

RUNS = "https://mlflow.example/"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
NAMES = {
    "id",
    "status",
    "edition",
    "verdict",
    "family",
    "evidence",
    "metric",
    "bounds_source",
    "role",
    "kind",
    "labels",
}
NAMES |= {
    "marks",
    "as_of",
    "first",
    "last",
    "started",
    "sha256",
    "command",
    "since",
    "until",
    "checked_on",
    "run",
}
UNSEEN = (  # in the data alone, as what stands in the page is to be read
    *(
        ".environment.ledger",
        ".policy.preset",
        ".policy.methods.0",
        ".definitions.",
        ".controls.",
        ".certificates.",
    ),
    *(".attacks.", ".checks.", ".criteria.", ".open-questions.", ".metrics."),
)
READ = (
    ".attacks.0.subject",
    ".checks.18.text",
    ".criteria.0.text",
    ".certificates.0.optimality",
)  # and yet these are there


def hostile(value: Any, where: str = "") -> Any:
    """Return content in which every text of a person or a library is hostile, and says where it
    stands.
    """
    if isinstance(value, dict):
        return {
            name: each if name in NAMES else hostile(each, f"{where}.{name}")
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [hostile(each, f"{where}.{place}") for place, each in enumerate(value)]
    return (
        f"at{where.replace('_', '-')} end {HOSTILE}" if isinstance(value, str) and value else value
    )


@pytest.fixture(scope="module")
def attacked() -> PrivacyReport:
    """Return the example with every text hostile, every question answered or open, and something
    changed.
    """
    made = content()
    made["changes"] = [{"what": "verdict", "before": "pass", "after": "review"}]
    made["report"]["reason"] = "a complaint"
    for name in ("distributions", "hidden_cells", "metrics"):
        made[name] = []
    return PrivacyReport(ReportData.from_dict(hostile(made)))


@pytest.fixture(scope="module")
def html() -> str:
    return example().to_html(address=RUNS)


@pytest.fixture(scope="module")
def root(html: str) -> Element:
    return Tree(html).root


def tokens(text: str) -> Iterator[Any]:
    for token in (
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    ):
        yield token
        yield from token.children or ()


def told(report: PrivacyReport) -> set[str]:
    """Return where the hostile texts of a report stand in its data."""
    return set(re.findall(r"at(\.[\w.\- ]+) end", report.to_json()))


def test_every_text_is_in_the_page_and_in_the_markdown_and_is_text_alone(
    attacked: PrivacyReport,
) -> None:
    expected = {
        where
        for where in told(attacked)
        if not where.startswith((".policy.policies", ".environment.model"))
    }
    html = attacked.to_html()
    # words look like one
    assert [problem for problem in problems(html) if not problem.startswith("address")] == []
    assert all(
        str(a.attributes["href"]).startswith(("#", "data:")) for a in Tree(html).root.all("a")
    )
    page = re.sub(r"\s+", " ", Tree(html).root.text)
    markdown = attacked.to_markdown()
    kinds = {token.type for token in tokens(markdown)}
    words = re.sub(
        r"\s+",
        " ",
        "".join(token.content or " " for token in tokens(markdown) if token.type != "inline"),
    )
    shown = re.sub(r"[\n\x07]", lambda found: " " if found[0] == "\n" else "", HOSTILE)
    for text in (page, words):
        missing = {where for where in expected if f"at{where} end" not in text}
        assert {where for where in missing if not where.startswith(UNSEEN)} == set()
        assert missing.isdisjoint(READ)
        assert shown in text
    assert "\x07" not in html + markdown
    assert kinds.isdisjoint({"image", "html_block", "s_open", "code_inline", "code_block"})
    fences = [token.content for token in tokens(markdown) if token.type == "fence"]
    commands = [code.text for code in Tree(html).root.all("code")]
    assert [re.sub(r"\s+", " ", fence).strip() for fence in fences] == [
        re.sub(r"\s+", " ", command).strip() for command in commands
    ]
    assert {token.content for token in tokens(markdown) if token.type == "html_inline"} <= anchors(
        markdown
    )
    links = [token.attrs["href"] for token in tokens(markdown) if token.type == "link_open"]
    assert all(target.startswith("#") for target in links)


def anchors(markdown: str) -> set[str]:
    return {"</a>", *re.findall(r'<a id="[\w-]+">', markdown)}


@pytest.mark.parametrize("edition", ["internal", "external"])
@pytest.mark.parametrize("print_edition", [False, True])
def test_the_page_has_no_problem_and_loads_nothing(edition: str, print_edition: bool) -> None:
    page = example(report={"edition": edition}).to_html(print_edition=print_edition, address=RUNS)
    assert problems(page, outside=(RUNS,)) == []
    root = Tree(page).root
    policies = [
        meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes
    ]
    assert (policies, root.all("html")[0].attributes["lang"]) == ([POLICY], "en")
    assert all(("open" in fold.attributes) == print_edition for fold in root.all("details"))
    assert len(root.all("details")) > 3
    assert len(page.encode()) < 500_000


def test_problems_are_found(html: str) -> None:
    # The test above would be worth nothing if it found nothing.
    for old, new, word in [
        ("</main>", "<script>1</script></main>", "script"),
        ("<h1>", '<h1 onclick="x">', "onclick"),
        ("<h1>", '<h1 id="section-0">', "twice"),
        ("h2", "h4", "follows"),
        ('scope="row"', "", "scope"),
        ('href="#section-9"', 'href="#elsewhere"', "nothing"),
        ("<footer>", "<footer>https://example.com", "address"),
    ]:
        assert old in html
        assert any(
            word in problem for problem in problems(html.replace(old, new), outside=(RUNS,))
        ), word


def test_the_first_page_comes_before_everything_else(root: Element) -> None:
    order = [element for element in root.walk() if element.tag in {"header", "section", "nav"}]
    assert [element.tag for element in order[:3]] == ["header", "nav", "section"]
    data, header = example().data, order[0].text
    said = (
        "Internal edition",
        data.report["title"],
        "Review",
        "Not covered",
        *data.report["not_covered"],
        "Reason for this report",
    )
    assert [words for words in said if words not in header] == []
    assert header.index("Internal edition") < header.index("Review") < header.index("Not covered")
    assert root.all("title")[0].text == f"{data.report['title']} – Internal edition – Review"
    marks = {
        cell.text for cell in root.all("span") if "shape" in (cell.attributes.get("class") or "")
    }
    assert marks <= {"Pass", "Review", "Fail", "Not measured", "Open"}


def test_the_data_can_be_downloaded_from_the_page(root: Element) -> None:
    (link,) = [link for link in root.all("a") if "download" in link.attributes]
    kind, _, data = str(link.attributes["href"]).partition(",")
    assert (link.attributes["download"], kind) == (
        "cfk-report.json",
        "data:application/json;base64",
    )
    assert base64.b64decode(data).decode() == example().to_json()


def test_a_title_cannot_leave_the_style_sheet() -> None:
    html = example(
        report={"title": 'a"; } </style><script>alert(1)</script> \\ { @import "x'}
    ).to_html()
    assert len(re.findall(r"</style>", html)) == 1
    (running,) = re.findall(r'@top-left \{ content: "([^"]*)" \}', html)
    assert re.fullmatch(r"(?:[0-9A-Za-z]|\\[0-9a-f]{6})*", running)


def test_long_names_break_at_joints() -> None:
    name = "marital_status_of_the_first_applicant_at_the_time_of_the_application"
    column = content()["attributes"][0]
    page = example(attributes=[column | {"name": name}]).to_html()
    assert "marital_<wbr>status_<wbr>" in page
    assert name in Tree(page).root.text


def test_links_to_runs_are_written_out_on_paper(html: str, root: Element) -> None:
    run = example().data.runs[0]["run"]
    links = [
        str(link.attributes["href"])
        for link in root.all("a")
        if str(link.attributes["href"]).startswith(RUNS)
    ]
    assert run in links[0]
    assert [item.text for item in root.all("li") if item.text.endswith(links[0])]
    assert f"]({links[0]})" not in example().to_markdown()


# --- colours ---


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    ]
    return sum(
        weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_texts_and_marks_have_the_contrast_that_wcag_asks_for_in_both_schemes(html: str) -> None:
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    )
    assert len(light) == 14
    assert not [name for name in dark if dark[name] == light[name]]
    for colours in (light, light | dark):
        for name in ("ink", "quiet", "link", "pass", "review", "fail", "unknown"):
            assert (
                min(contrast(colours[name], colours[ground]) for ground in ("paper", "sheet"))
                >= 4.5
            ), name
        for name in ("bar", "bar-second"):
            assert (
                min(contrast(colours[name], colours[ground]) for ground in ("paper", "track")) >= 3
            ), name
        assert contrast(colours["edge"], colours["paper"]) >= 3
        assert contrast(colours["bar"], colours["bar-second"]) > 1.5  # series differ in grey
    rules = re.sub(
        r":root \{.*?\}",
        "",
        re.findall(r"<style>(.*?)</style>", html, re.DOTALL)[0],
        flags=re.DOTALL,
    )
    # Margins of a page know no custom properties; theirs is the quiet colour of paper.
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", rules)) == {light["quiet"]}


# --- numbers ---


def written(name: str, **of: Any) -> str:
    """Return how a metric is written, in the table of its section."""
    metrics = [
        metric | {"amount": amount(**of)} for metric in content()["metrics"] if metric["id"] == name
    ]
    report = bare(metrics=metrics)
    rows = [row.all("th", "td") for row in Tree(report.to_html()).root.all("tr")]
    return next(row[1].text for row in rows if row[0].text == report.data.definitions[name].name)


@pytest.mark.parametrize(
    ("name", "of", "text"),
    [
        ("pureness_mean", {"value": 0.93, "low": 0.88, "high": 0.97}, "0.93 (0.88–0.97)"),
        ("native_rate", {"value": 0.93, "low": 0.88, "high": 0.97}, "93 % (88–97 %)"),
        ("pureness_mean", {"value": 0.9304}, "0.93"),
        ("native_rate", {"value": 0.12345}, "12.3 %"),
        ("k_min", {"value": 1_234_567}, "1,234,567"),
        ("pureness_mean", {"value": 1_234_567}, "1,230,000"),
        ("k_min", {"value": 12.5}, "12.5"),
        ("k_min", {"value": 0}, "0"),
        ("native_rate", {"value": 1.0}, "100 %"),
        ("pureness_mean", {"value": 0.0000123}, "1.23e-5"),
        ("ncp_mean", {"value": -0.05, "low": -0.1, "high": 0.02}, "−0.05 (−0.1 to 0.02)"),
        ("k_min", {"value": 12, "low": 10.0}, "12 (at least 10)"),
        ("pureness_mean", {"value": 0.4, "high": 0.5}, "0.4 (at most 0.5)"),
        ("pureness_mean", {"value": 1.0, "low": 1.0, "high": 1.0}, "1"),
        ("pureness_mean", {"value": 0.999999, "low": 0.999, "high": 1.0}, "0.999 (0.999–1)"),
        # what is short of all is never written as all
        ("native_rate", {"value": 0.99999}, "99.9 %"),
        # outwards
        ("pureness_mean", {"value": 0.5, "low": 0.12345, "high": 0.98761}, "0.5 (0.123–0.988)"),
        ("k_min", {"value": 7, "low": 6.0, "n": 77, "band": "1–10"}, "1–10"),
        ("native_rate", {}, "not measured"),
    ],
)
def test_an_amount_is_written_as_readers_expect(name: str, of: dict[str, Any], text: str) -> None:
    assert written(name, **of) == text


@given(st.floats(min_value=1e-12, max_value=1.0, exclude_max=True))
def test_no_more_than_three_significant_digits_are_written(value: float) -> None:
    text = checked(value)
    digits = text.partition("e")[0].replace(".", "").lstrip("0")
    assert 1 <= len(digits) <= 3
    assert float(text) == pytest.approx(value, rel=0.006)


def checked(value: float) -> str:
    """Return how the value of a check is written where a notebook shows it."""
    report = bare(checks=[line("pureness", measured=value)])
    row = re.findall(r"<tr>.*?</tr>", report._repr_html_(), re.DOTALL)[-1]
    return Tree(row).root.all("td")[2].text


def test_where_a_band_is_shown_no_number_is_in_any_form() -> None:
    def banded(value: Any) -> Any:
        if isinstance(value, dict):
            hidden = {
                "value": 31_337.25,
                "low": 31_336.25,
                "high": 31_338.25,
                "n": None,
                "band": "1–10",
            }
            return (
                hidden if "band" in value else {name: banded(each) for name, each in value.items()}
            )
        return [banded(each) for each in value] if isinstance(value, list) else value

    made = banded(content())
    made["distributions"] = []  # whose numbers are those that may be shown
    made["metrics"] = [metric for metric in made["metrics"] if metric["id"] != "pureness_mean"]
    report = PrivacyReport(ReportData.from_dict(made))
    forms = (
        report.to_html(),
        report.to_markdown(),
    )
    for text in (*forms, report._repr_html_()):
        assert not re.search(r"31,?33[0-9]", re.sub(r"data:[^\"]*", "", text))
        assert "1–10" in text


# --- in a notebook ---


def test_nothing_in_a_notebook_is_markup(attacked: PrivacyReport) -> None:
    cell = attacked._repr_html_()
    assert "<script>" not in cell
    n_figures = 3
    assert len(re.findall("<tr>", cell)) == n_figures + 1 + len(attacked.data.checks)
    assert len(cell) < 20_000 < len(attacked.to_html())


# --- read back ---


def test_what_was_written_is_read_back_and_rendered_alike() -> None:
    report = example()
    again = PrivacyReport(ReportData.from_json(report.to_json()))
    assert again.data == report.data
    # of an older report
    assert {(a.subject, a.concerns, a.judged) for a in again.data.attacks} == {("", True, True)}
    for form in ("to_json", "to_html", "to_markdown"):
        assert getattr(again, form)() == getattr(report, form)()
