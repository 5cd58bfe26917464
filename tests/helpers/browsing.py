"""A real Chromium that opens one page, and notes whatever the page says or asks for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

AXE = Path(__file__).resolve().parents[1] / "browser" / "node_modules" / "axe-core" / "axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
"""Names of Chromium that are looked for on the path."""

FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@dataclass(slots=True)
class Visit:
    """A page, what it said in the console or as an error, and what it asked for beside itself."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def run(self, script: str) -> Any:
        """Return what a function of JavaScript returns; the page's own content policy does not
        apply to it.
        """
        return self.page.evaluate(script)


def chromium() -> str:
    """Return the system's Chromium, or skip the test."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs a Chromium on the path: apt install chromium")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with an empty profile."""
    program = chromium()
    api = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=flags)
        yield started
        started.close()


@contextmanager
def visit(
    started: Browser,
    address: str,
    *,
    width: int = 1440,
    height: int = 900,
    scheme: str = "light",
    media: str = "screen",
    online: bool = False,
) -> Iterator[Visit]:
    """Open a page; unless it is `online`, everything but the page itself is refused."""
    context = started.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=not online
    )
    page = context.new_page()
    found = Visit(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on(
        "request",
        lambda request: found.asked.append(request.url) if request.url != address else None,
    )

    def refuse(route: Route) -> None:
        if route.request.url == address:
            route.continue_()
        else:
            route.abort()

    if not online:
        page.route("**/*", refuse)
    page.emulate_media(media=media)
    page.goto(address)
    try:
        yield found
    finally:
        context.close()


def violations(found: Visit) -> list[str]:
    """Return what axe-core finds against WCAG 2.2 A and AA, or skip the test."""
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm ci --prefix tests/browser")
    found.page.evaluate(AXE.read_text(encoding="utf-8") + "; null")
    result = found.page.evaluate("tags => axe.run({runOnly: {type: 'tag', values: tags}})", WCAG)
    assert len(result["passes"]) > 15  # it has looked at the page
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in result["violations"]
        for node in rule["nodes"]
    ]


def too_wide(found: Visit) -> list[str]:
    """Return the elements that make the page scroll sideways, or that overflow their table cell or
    chart.
    """
    return list(
        found.run("""() => {
        const wide = [], name = e => e.tagName + '#' + (e.closest('[id]') || {}).id + ' ' + e.textContent.slice(0, 60);
        const page = document.documentElement;
        if (page.scrollWidth > innerWidth)
            for (const e of document.body.querySelectorAll('*'))
                if (e.getBoundingClientRect().right > innerWidth + 0.5) wide.push('page: ' + name(e));
        if (page.scrollWidth > innerWidth && !wide.length) wide.push('page');
        for (const e of document.querySelectorAll('th, td, dd, figcaption, li, h1, h2, p'))
            if (e.checkVisibility() && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1)
                wide.push('content: ' + name(e));
        for (const svg of document.querySelectorAll('svg.chart')) {
            const box = svg.getBoundingClientRect();
            for (const e of svg.querySelectorAll('text')) {
                const r = e.getBoundingClientRect();
                if (r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1)
                    wide.push('chart: ' + name(e));
            }
        }
        return wide; }""")
    )


def overlapping_texts(found: Visit) -> list[str]:
    """Return pairs of texts of one chart that cover each other."""
    return list(
        found.run("""() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
        const texts = [...svg.querySelectorAll('text')].map(e => [e, e.getBoundingClientRect()]), pairs = [];
        texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
            const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (across > 1 && down > 4) pairs.push(a.textContent + ' / ' + b.textContent);
        }));
        return pairs; })""")
    )


def smallest_text(found: Visit) -> float:
    """Return the size of the smallest text that is shown, in CSS pixels as they reach the
    screen.
    """
    return float(
        found.run("""() => Math.min(...[...document.querySelectorAll('body *')]
        .filter(e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => parseFloat(getComputedStyle(e).fontSize)
            * (e.getScreenCTM ? Math.hypot(e.getScreenCTM().c, e.getScreenCTM().d) : 1)))""")
    )


def missing_glyphs(found: Visit) -> list[str]:
    """Return the characters for which no font has a picture: they look like one that cannot have
    one.
    """
    return list(
        found.run(r"""() => {
        const canvas = document.createElement('canvas'), pen = canvas.getContext('2d', {willReadFrequently: true});
        canvas.width = canvas.height = 48;
        const drawn = (character, family) => {
            pen.clearRect(0, 0, 48, 48);
            pen.font = '24px ' + family;
            pen.fillText(character, 8, 32);
            return pen.getImageData(0, 0, 48, 48).data.join();
        };
        const labels = [...document.querySelectorAll('[data-label]')].map(e => e.dataset.label).join('');
        const used = [...new Set(document.body.textContent + labels)].filter(c => c.trim());
        const families = ['h1', 'p', '.chart'].flatMap(s => [...document.querySelectorAll(s)].slice(0, 1))
            .map(e => getComputedStyle(e).fontFamily);
        return used.filter(c => families.some(f => drawn(c, f) === drawn('\u{10FFFD}', f))); }""")
    )
