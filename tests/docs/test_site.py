"""The site: the pages of the index in its order, built without a warning, and opened in a real
browser.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from browsing import browser

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
SETTINGS = DOCS / "site" / "mkdocs.yml"


def test_navigation_has_the_pages_of_the_index_in_its_order() -> None:
    index = re.findall(
        r"^(?:## (.*)\n\n(?=\*)|\* \[[^\]]*\]\((.*?)\))",
        (DOCS / "index.md").read_text(encoding="utf-8"),
        re.M,
    )
    nav = SETTINGS.read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(
        r"^(?:  - ([^:\n]*):|      - (.*))$", nav.partition("Home: index.md\n")[2], re.M
    )
    assert listed == [(title, target.replace(".ipynb", ".md")) for title, target in index]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason='needs pip install ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        SETTINGS,
        "--site-dir",
        folder,
    ]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
def test_the_reference_is_made_of_the_docstrings(site: Path) -> None:
    import cfk_plugin

    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [
        name
        for name in cfk_plugin.__all__
        if name != "hookimpl" and f'id="cfk_plugin.{name}"' not in page
    ] == []
    for name in ("near_native", "registered_model_name", "permitted_range"):
        assert f">{name}</span>" in page


@pytest.mark.slow
def test_every_page_fits_says_nothing_and_asks_nobody(site: Path, address: str) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert {
        path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")
    } <= set(pages)
    faults: list[tuple[str, object]] = []
    links: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}

    def own(asked: str) -> bool:
        return asked.startswith((address, "data:", "blob:"))

    with browser() as started:
        page = started.new_page()
        page.on("console", lambda said: faults.append((page.url, said.text)))
        page.on("pageerror", lambda error: faults.append((page.url, str(error))))
        page.on("request", lambda asked: own(asked.url) or faults.append((page.url, asked.url)))
        for name in pages:
            page.goto(address + name, wait_until="networkidle")
            for width in (1440, 375):
                page.set_viewport_size({"width": width, "height": 900})
                if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
                    faults.append((name, f"wider than {width}"))
            links[name] = set(
                page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)")
            )
            names[name] = set(
                page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
            )
    for name, targets in links.items():
        for target in filter(lambda target: target.startswith(address), targets):
            place, anchor = urldefrag(target.removeprefix(address))
            place = place.partition("?")[0] or "index.html"
            if not (site / place).is_file() or (
                anchor and unquote(anchor) not in names.get(place, set())
            ):
                faults.append((name, target))
    assert faults == []


@pytest.mark.slow
def test_search_finds_a_page(address: str) -> None:
    with browser() as started:
        page = started.new_page()
        page.goto(address, wait_until="networkidle")
        page.keyboard.press("/")
        page.keyboard.type("catalogue")
        page.wait_for_selector(".md-search-result__item")
        assert "catalogue" in page.inner_text(".md-search-result__list").lower()
