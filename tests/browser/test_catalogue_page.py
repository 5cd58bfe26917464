"""A catalogue as a page finds what a recount in plain Python finds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from browsing import smallest_text, too_wide, violations, visit
from cfk_plugin import (
    Attribute,
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Unit,
)
from cfk_plugin.data.region import Part, part_contains
from cfk_plugin.release.publication import catalogue_page as page_of
from polish import polish

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browsing import Visit

BREAKS = "</script><script>document.title = 'broken'</script>"
ODD = '"><img src=x onerror=alert(1)>{{ 7 * 7 }}'
QUASI = ["age", "since", "city", "grade"]
PRIVATE = ["pay", "debt", "job", "tall_or_short"]
LEVELS = ["low", "mid", "high"]
N_QUERIES = 20
SETTINGS: dict[str, Any] = {
    "quasi_identifiers": QUASI,
    "ordinal": {"grade": LEVELS},
    "columns": {
        "city": Attribute(
            hierarchy={
                "Antwerp": ["north"],
                BREAKS: ["north"],
                "Namur": ["south"],
                "Wavre": ["south"],
            }
        )
    },
}


def people(seed: int = 0, n: int = 100) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": random.integers(18, 70, n),
            "since": pd.Timestamp("2001-05-01")
            + pd.to_timedelta(random.integers(0, 6, n) * 400, unit="D"),
            "city": random.choice(["Antwerp", BREAKS, "Namur", "Wavre"], n).astype(object),
            "grade": random.choice(LEVELS, n).astype(object),
            "pay": random.integers(10, 60, n),
            "debt": random.normal(10, 4, n).round(2),
            "job": random.choice(["clerk", "nurse", ODD], n),
            "tall_or_short": random.random(n) < 0.5,
        }
    )
    for name in ("since", "grade", "debt"):
        table.loc[table.index[1:][random.random(n - 1) < 0.1], name] = None
    return table


def model(rows: pd.DataFrame) -> np.ndarray:
    score = (
        rows["pay"].to_numpy(dtype=float)
        - rows["debt"].fillna(12).to_numpy(dtype=float)
        + rows["age"] / 4
    )
    return np.array(["no", "some", "all"], dtype=object)[np.digitize(score, [28, 45])]


def fitted(
    desired: str = "opposite", changes: dict[str, Any] | None = None, **policy: Any
) -> KAnonymizer:
    train = people()
    settings = SETTINGS | (changes or {})
    settings["columns"] = SETTINGS["columns"] | settings["columns"]
    population = Population.from_frame(train, Schema.from_frame(train, **settings))
    rules = PrivacyPolicy(**{"k": 4, **policy})
    return KAnonymizer(policy=rules).fit(population, model=model, desired=desired)


@pytest.fixture(scope="module")
def published() -> tuple[Explanations, Population]:
    anonymizer = fitted()
    return anonymizer.published(), anonymizer.population_


@pytest.fixture(scope="module")
def address(
    published: tuple[Explanations, Population], tmp_path_factory: pytest.TempPathFactory
) -> str:
    return written(page_of(*published, title=f"Loans {BREAKS}"), tmp_path_factory.mktemp("page"))


def written(page: str, folder: Path) -> str:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


# --- what is near, in plain Python: from entries and table, not from the page ---


def gap(part: Part | None, value: Any, width: float) -> float:
    if part is None or part_contains(part, value):
        return 0.0
    if (
        not isinstance(part, Interval)
        or part.levels is not None
        or part.low is None
        or pd.isna(value)
    ):
        return 1.0
    return float(max(part.low - value, value - part.high) / width) if width else 0.0


def widths_of(entries: Explanations) -> dict[str, Any]:
    """Return the width of each numeric range: of the table for quasi-identifiers, else of what is
    published.
    """
    train, found = people(), {}
    for name in ("age", "since"):
        found[name] = train[name].max() - train[name].min()
    for name in ("pay", "debt"):
        parts = [entry.parts()[name] for entry in entries.generalized]
        ends = [
            end for part in parts if isinstance(part, Interval) for end in (part.low, part.high)
        ]
        found[name] = max(ends, default=0) - min(ends, default=0)
    return found


def distances(
    entries: Explanations,
    query: dict[str, Any],
    fixed: set[str],
    outcome: str,
    monotone: dict[str, str] | None = None,
    never_advised: dict[str, set[str | None]] | None = None,
) -> np.ndarray:
    away, widths = [], widths_of(entries)
    for entry in entries.generalized:
        parts: dict[str, Part | None] = {**dict.fromkeys(query), **entry.parts()}
        keeps = all(parts[n] is not None and part_contains(parts[n], query[n]) for n in fixed)  # type: ignore[arg-type]
        keeps &= all(
            parts[n] is not None and goes(parts[n], query[n], way)  # type: ignore[arg-type]
            for n, way in (monotone or {}).items()
            if n not in fixed
        )
        keeps &= all(
            parts[n] is not None and advises(parts[n], query[n], values)  # type: ignore[arg-type]
            for n, values in (never_advised or {}).items()
        )
        if str(entry.outcome) != outcome or not keeps:
            away.append(np.inf)
            continue
        total = entry.certificate.ncp * len(QUASI) / 2
        total += 0.1 * sum(not part_contains(parts[name], query[name]) for name in QUASI)  # type: ignore[arg-type]
        away.append(
            total + sum(gap(parts[name], query[name], widths.get(name, 1)) for name in query)
        )
    return np.array(away)


def advises(part: Part, value: Any, never_advised: set[str | None]) -> bool:
    """Return whether a part has a value that may be advised, or the person's own."""
    if part_contains(part, value):
        return True
    if isinstance(part, Interval):
        values = set(part.levels or ()) if part.low is None or part.levels else {part.low}
        values |= {None} if part.missing else set()
    else:
        values = set(part)
    return bool(values - never_advised)


def goes(part: Part, value: Any, way: str) -> bool:
    """Say whether a part has a value that is reached in one direction; of a missing value no
    direction is known.
    """
    if value is None:
        return part_contains(part, None)
    if not isinstance(part, Interval):
        return False
    if part.levels is not None:
        there, own = [LEVELS.index(level) for level in part.levels], LEVELS.index(value)
        return any(level >= own if way == "increase" else level <= own for level in there)
    return part.low is not None and bool(
        part.high >= value if way == "increase" else part.low <= value
    )


def queries(fixes: int, count: int) -> Iterator[tuple[dict[str, Any], set[str], str]]:
    """Yield queries, some of them with values that no entry has, what cannot change, and the
    outcome.
    """
    random, rows = np.random.default_rng(fixes), people(7, count)
    rows["pay"] += random.integers(-30, 30, count)
    rows["age"] = np.where(random.random(count) < 0.2, 90, rows["age"])
    rows.loc[::9, "job"] = "something else"
    for row in rows.astype(object).to_dict("records"):
        query = {str(name): None if pd.isna(value) else value for name, value in row.items()}
        fixed = set(random.choice([*QUASI, "job", "tall_or_short"], fixes, replace=False).tolist())
        yield query, fixed, str(random.choice(["no", "some", "all"]))


def text_of(value: Any) -> str:
    return (
        ""
        if value is None
        else value.date().isoformat()
        if isinstance(value, pd.Timestamp)
        else str(value)
    )


ASK = """([values, fixed, outcome]) => {
    const pick = (select, text) => {  // the last one is for what no entry has
        select.value = ([...select.options].find(o => o.textContent === text) ?? [...select.options].at(-1)).value;
    };
    const wish = document.getElementById('wish');
    if (wish) pick(wish, outcome);
    values.forEach((text, i) => {
        const input = document.getElementById('value-' + i);
        if (input.tagName === 'SELECT') pick(input, text); else input.value = text;
        const keep = document.getElementById('keep-' + i);
        if (keep) keep.checked = fixed[i];
    });
    document.querySelector('button[type=submit]').click();
    return [document.getElementById('answer').dataset.entry ?? null, document.getElementById('said').textContent];
}"""


def ask(
    found: Visit,
    query: dict[str, Any],
    fixed: set[str],
    outcome: str,
    names: Sequence[str] = (*QUASI, *PRIVATE),
) -> tuple[int | None, str]:
    """Enter a query, and return the place of the entry that the page finds, and its sentence."""
    values, kept = [text_of(query[name]) for name in names], [name in fixed for name in names]
    at, said = found.page.evaluate(ASK, [values, kept, outcome])
    return None if at is None else int(at), said


def sentence_of(entry: Any, query: dict[str, Any]) -> str:
    """Return what the page says: of a job that no entry has, it knows only that it is another."""
    return entry.text(query).replace("“something else”", "another value")


def expected_place(away: np.ndarray) -> int | None:
    """Return the place of the nearest entry, or None if there is none."""
    return int(np.argmax(away <= away.min() + 1e-9)) if np.isfinite(away).any() else None


@pytest.mark.parametrize("fixes", [0, 3])
def test_page_finds_the_nearest_entry(
    started: Browser, published: tuple[Explanations, Population], address: str, fixes: int
) -> None:
    """It leaves as it is what cannot change; if too much cannot, it says that there is no answer."""
    entries = published[0]
    places = []
    with visit(started, address) as found:
        for query, fixed, outcome in queries(fixes, N_QUERIES):
            at, said = ask(found, query, fixed, outcome)
            places.append(at)
            assert at == expected_place(distances(entries, query, fixed, outcome))
            if at is None:
                assert said.startswith("No explanation here leaves everything as it is")
            else:
                assert said == sentence_of(entries[at], query)
    assert (None in places) == (fixes == 3)
    assert {*places} - {None}


WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "titles": {"pay": "pay", "city": "a home in", "grade": "a grade"},
        "units": {"age": "year", "pay": "EUR", "debt": "share"},
        "columns": {
            "job": Attribute(phrases={"clerk": "work as a clerk", "nurse": "work as a nurse"}),
            "pay": Attribute(phrases={0: "no pay", 12: "the least pay", 30: "a middling pay"}),
        },
        "outcomes": {"all": "you would get everything", "*": "you would get less"},
    },
    "de": {
        "titles": {"debt": "Schulden"},
        "units": {"debt": "EUR"},
        "columns": {
            "pay": Attribute(phrases="{} {Euro|Euros}"),
            "since": Attribute(phrases="einem Beginn am {}"),
        },
        "language": "de",
    },
    "pl": {
        "titles": {"debt": "dług"},
        "units": {"age": Unit("month", scale=10), "debt": Unit("month", scale=0.01)},
        "columns": {"pay": Attribute(phrases="{} {kredyt|kredyty|kredytów}")},
        "language": polish(),
    },
}


@pytest.mark.parametrize("language", WORDS)
def test_page_has_words_of_schema(started: Browser, tmp_path: Path, language: str) -> None:
    """Sentences are those of the library, in each language."""
    anonymizer = fitted(changes=WORDS[language])
    entries = anonymizer.published()
    with visit(started, written(page_of(entries, anonymizer.population_), tmp_path)) as found:
        for query, fixed, outcome in queries(0, 5):
            if query["job"] == "something else":
                continue
            # Counts in words, money below zero, and a number of five digits.
            for pay in (query["pay"], 1, 0, -7, 12_345):
                asked = {**query, "pay": pay}
                at, said = ask(found, asked, fixed, outcome)
                assert at is not None
                assert said == entries[at].text(asked)


def test_page_obeys_declared_changes(started: Browser, tmp_path: Path) -> None:
    """What is immutable cannot be varied, and monotone columns go one way."""
    monotone = {"age": "increase", "grade": "increase", "pay": "decrease"}
    anonymizer = fitted(changes={"immutable": ["tall_or_short"], "monotone": monotone})
    entries = anonymizer.published()
    places = []
    with visit(started, written(page_of(entries, anonymizer.population_), tmp_path)) as found:
        assert found.run("() => document.querySelectorAll('input[type=checkbox]').length") == 7
        for query, fixed, outcome in queries(1, 40):
            held = {*fixed, "tall_or_short"}
            at, said = ask(found, query, fixed, outcome)
            places.append(at)
            assert at == expected_place(distances(entries, query, held, outcome, monotone))
            assert at is None or said == sentence_of(entries[at], query)
        assert None in places
        assert {*places} - {None}
        ask(found, {**query, "tall_or_short": None}, set(), outcome)
        assert found.page.locator("#said").inner_text() == "tall_or_short is needed."


def test_page_obeys_never_advised_values(started: Browser, tmp_path: Path) -> None:
    """Some people get another entry for it."""
    never: dict[str, set[str | None]] = {
        "since": {None},
        "city": {"Namur", None},
        "grade": {"mid"},
        "job": {"clerk", "nurse", None},
    }
    changes = {"never_advise": {name: [*values] for name, values in never.items()}}
    anonymizer = fitted(changes=changes)
    entries = anonymizer.published()
    n_others = 0
    with visit(started, written(page_of(entries, anonymizer.population_), tmp_path)) as found:
        for query, fixed, outcome in queries(1, N_QUERIES):
            at, said = ask(found, query, fixed, outcome)
            away = distances(entries, query, fixed, outcome, never_advised=never)
            assert at == expected_place(away)
            if at is not None:
                assert said == sentence_of(entries[at], query)
                n_others += at != expected_place(distances(entries, query, fixed, outcome))
    assert n_others > 0


def test_answer_says_what_was_verified(
    started: Browser, published: tuple[Explanations, Population], address: str
) -> None:
    """People, outcome and pureness; the model was not asked."""
    with visit(started, address) as found:
        query, fixed, outcome = next(queries(0, 1))
        at, _ = ask(found, query, fixed, outcome)
        told = found.run("() => document.getElementById('more').innerText")
        certificate = published[0][at or 0].certificate  # type: ignore[union-attr]
        assert f"Outcome: {outcome}." in told
        assert (
            f"At least {certificate.k} people of the table fit its ranges and have this outcome"
            in told
        )
        assert f"at {np.floor(1000 * certificate.pureness) / 10:g} % of all combinations" in told  # type: ignore[union-attr]
        assert "The model was not asked about you" in told
        rows = found.run("() => [...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
        assert len(rows) == len(query)


def test_page_asks_no_network(started: Browser, address: str) -> None:
    """It stores nothing, and its policy refuses requests and scripts."""
    with visit(started, address) as found:
        for query in queries(0, 5):
            ask(found, *query)
        assert (found.said, found.asked) == ([], [])
        assert (
            found.run(
                "() => [location.search, location.hash, localStorage.length, document.cookie].join('|')"
            )
            == "||0|"
        )
        sent = "() => fetch('https://example.org/').then(() => 'sent', () => 'refused')"
        assert found.run(sent) == "refused"
        found.run("""() => { const added = document.createElement('script');
            added.textContent = "document.title = 'broken'"; document.body.append(added); }""")
        blocked = [words for words in found.said if "Content Security Policy" in words]
        assert {words.split()[0] for words in blocked} >= {"Connecting", "Executing"}
        assert found.page.title() == f"Loans {BREAKS}"
        assert found.asked == []


def test_policy_allows_hashed_parts_only(
    published: tuple[Explanations, Population],
) -> None:
    """One script and one style are named by their hashes; everything else is refused."""
    page = page_of(*published)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for tag in ("script", "style"):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy[1]
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]


def test_values_of_the_table_stay_text(started: Browser, address: str) -> None:
    """Markup in a value is shown as it is."""
    with visit(started, address) as found:
        assert found.run("() => document.scripts.length") == 2
        assert (
            found.run(
                "() => document.querySelectorAll('[src], [href], [style], [onclick], link').length"
            )
            == 0
        )
        assert found.page.locator("h1").inner_text() == f"Loans {BREAKS}"
        options = found.run(
            "() => [...document.querySelectorAll('option')].map(o => o.textContent)"
        )
        assert {BREAKS, ODD} <= {*options}
        shown = set()
        for query in queries(0, 20):
            ask(found, *query)
            shown.add(found.run("() => document.getElementById('more').textContent"))
        assert any(ODD in text for text in shown)
        assert (found.said, found.asked) == ([], [])


def test_keyboard_is_enough(started: Browser, address: str) -> None:
    """The focus is seen, and goes through the form in order."""
    with visit(started, address) as found:
        key, order = found.page.keyboard, []

        def tab() -> None:
            key.press("Tab")
            order.append(
                found.run("() => document.activeElement.id || document.activeElement.type")
            )
            assert (
                found.run("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
            )

        tab()
        key.type("all")  # picks the outcome
        for text in ("38", "2003-01-01", "Namur", "high", "30", "4.5", "nurse", "True"):
            tab()
            key.type(text)
            tab()
            if text == "Namur":
                key.press("Space")
        tab()
        key.press("Enter")
        places = [place for i in range(8) for place in (f"value-{i}", f"keep-{i}")]
        assert order == ["wish", *places, "submit"]
        said = found.page.locator("#said")
        assert said.get_attribute("role") == "status"
        assert said.inner_text().startswith(("The model would predict “all”", "No explanation "))
        row = found.page.locator("tbody tr", has_text="city")
        assert row.locator("td").nth(0).inner_text() == "Namur"
        assert row.locator("td").nth(2).inner_text() == "no"


def test_unreadable_entry_is_named(started: Browser, address: str) -> None:
    """It gets the focus, and a reset clears the message."""
    with visit(started, address) as found:
        found.page.fill("#value-0", "1,000")
        found.page.press("#value-0", "Enter")
        assert found.page.locator("#said").inner_text() == "age cannot be read as it is entered."
        assert found.run("() => document.activeElement.id") == "value-0"
        assert found.page.get_by_label("age", exact=True).get_attribute("aria-invalid") == "true"
        assert "Write a number" in found.page.locator("#wrong-0").inner_text()
        found.page.click("button[type=reset]")
        assert found.page.locator("#said").inner_text() == ""


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1440, "light")])
def test_page_is_accessible_on_every_screen(
    started: Browser, address: str, width: int, scheme: str
) -> None:
    """It fits a phone and a large screen, in both colour schemes."""
    with visit(started, address, width=width, scheme=scheme) as found:
        for query in (*queries(0, 1), *queries(3, 1)):
            ask(found, *query)
            assert too_wide(found) == []
            assert smallest_text(found) >= 12
            assert violations(found) == []
        assert (found.said, found.asked) == ([], [])


def test_empty_catalogue_is_a_page(started: Browser, tmp_path: Path) -> None:
    """It says that it has no explanation."""
    anonymizer = fitted("all", max_ncp=0.0)
    entries = anonymizer.published()
    assert len(entries) == 0
    with visit(started, written(page_of(entries, anonymizer.population_), tmp_path)) as found:
        found.page.click("button[type=submit]")
        assert found.page.locator("#said").inner_text().startswith("No explanation here")


def test_other_results_are_refused(
    published: tuple[Explanations, Population],
) -> None:
    """Only a published catalogue has a page."""
    from cfk_plugin.errors import InputError

    of_lookup = Explanations([], policy=PrivacyPolicy(guarantee="lookup"), columns=["age"])
    with pytest.raises(InputError, match="published"):
        page_of(of_lookup, published[1])


def test_page_has_values_of_entries_only(published: tuple[Explanations, Population]) -> None:
    """Nothing else of the table is in its data."""
    found = re.search(r'id="catalogue">(.*?)</script>', page_of(*published), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    entries = published[0].generalized
    wording = published[1].schema.wording
    for feature in data["features"]:
        if feature["kind"] == "choice":
            said = {v for e in entries for v in values_of(e.parts()[feature["name"]])}
            assert {*feature["options"]} == said
        else:
            told = {str(e.parts()[feature["name"]]) for e in entries}
            assert len(feature["parts"]) == len(told)
        assert set(feature["described"]) == {
            wording.described(
                feature["name"], e.parts()[feature["name"]], e.titles.get(feature["name"])
            )
            for e in entries
        }
    assert set(data["clauses"]["values"]) == {wording.outcome(e.outcome) for e in entries}
    english = wording.language.sections
    assert all(data["language"][name] == english[name] for name in data["language"])
    figures = {"k", "features", "outcomes", "width", "pureness"}
    assert {*data} == figures | {"clauses", "language", "percent", "plurals"}


def values_of(part: Part) -> set[str]:
    if isinstance(part, Interval):
        return set(part.levels or ())
    return {str(value) for value in part if value is not None}
