"""The site is built without a warning, and its pages are opened in a real browser.

MkDocs warns of links within the site; those of all pages are tested in `test_reference.py`.
"""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cfk_plugin
from browsing import browser

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
SETTINGS = DOCS / "site" / "mkdocs.yml"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason='needs pip install ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(SETTINGS)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], capture_output=True, text=True, check=False, env=env
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
def test_reference_has_the_docstrings(site: Path) -> None:
    """Every public name has a place on the page."""
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in cfk_plugin.__all__:
        assert name == "hookimpl" or f'id="cfk_plugin.{name}"' in page


@pytest.mark.slow
def test_pages_work_in_a_browser(site: Path, address: str) -> None:
    """No page is wider than a screen, has something in the console, or asks another server."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    sources = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert {path.as_posix() for path in sources} <= set(pages)
    faults: list[str] = []

    def note_request(request: Any) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            faults.append(f"{page.url}: {request.url}")

    with browser() as started:
        page = started.new_page()
        page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
        page.on("request", note_request)
        for name in pages:
            page.goto(address + name)
            for width in (1440, 375):
                page.set_viewport_size({"width": width, "height": 900})
                if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
                    faults.append(f"{name}: wider than {width}")
    assert not faults
