"""HTML of objects in notebooks, and the progress of long work on stderr.

This module shows every value that it gets. The caller decides what a person may see.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Literal

import numpy as np
from markupsafe import Markup

if TYPE_CHECKING:
    from rich.status import Status

_STYLE = Markup(
    ".cfk{border:1px solid #8888;border-radius:6px;padding:.6em"
    " .9em;max-width:80em;overflow-x:auto;font-size:13px;line-height:1.45}.cfk"
    " table{border-collapse:collapse;margin:.4em 0;color:inherit;font-size:inherit}.cfk th,.cfk"
    " td{text-align:left!important;padding:.1em 1em .1em"
    " 0;vertical-align:top;border:0;background:none;white-space:nowrap}.cfk"
    " .cfk-wide{white-space:normal}.cfk small,.cfk s{opacity:.75}.cfk"
    " mark{background:#8883;color:inherit;font-weight:600;padding:0 .25em;border-radius:3px}.cfk"
    " ol{margin:.2em 0;padding-left:1.6em}.cfk pre{margin:.1em 0"
    " .3em;color:inherit;font-size:12px;white-space:pre-wrap;user-select:all}"
)
_LONG = 60  # characters from which on a cell may break into lines


# --- HTML for notebooks ---------------------------------------------------------------------------


def card(title: str, *parts: str, note: str = "") -> str:
    """Return the HTML of an object: a title, its parts one below the other, and a note.

    Parts that are not `Markup` are escaped.
    """
    blocks = [
        part if isinstance(part, Markup) else Markup("<div>{}</div>").format(part) for part in parts
    ]
    small = Markup("<small>{}</small>").format(note) if note else ""
    html = Markup('<div class="cfk"><style>{}</style><b>{}</b>{}{}</div>').format(
        _STYLE, title, Markup("").join(blocks), small
    )
    return str(html)


def facts(value_of_name: Mapping[str, object]) -> Markup:
    """Return an HTML table of names and their values, without a head."""
    rows = [
        [Markup("<small>{}</small>").format(name), value] for name, value in value_of_name.items()
    ]
    return table((), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return an HTML table. If a row is shorter than the head, its last cell spans the rest."""
    lines = []
    if len(head):
        lines.append([_cell(title, tag="th") for title in head])
    for row in rows:
        *contents, last = row
        n_left = len(head) - len(contents)
        lines.append([*(_cell(content) for content in contents), _cell(last, n_columns=n_left)])
    line = Markup("<tr>{}</tr>")
    body = [line.format(Markup("").join(cells)) for cells in lines]
    return Markup("<table>{}</table>").format(Markup("").join(body))


def _cell(content: object, *, n_columns: int = 1, tag: Literal["td", "th"] = "td") -> Markup:
    """Return a cell that spans `n_columns`; a wide or long cell may break into lines."""
    is_long = isinstance(content, str) and len(content) > _LONG
    if n_columns > 1 or is_long:
        wide = Markup('<td class="cfk-wide" colspan="{}">{}</td>')
        return wide.format(max(n_columns, 1), content)
    return Markup("<{0}>{1}</{0}>").format(tag, content)


def number(value: float) -> str:
    """Write a figure with three digits. A whole number stays as it is; NaN becomes a dash."""
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return "–" if np.isnan(value) else f"{value:.3g}"


def marked(text: str, before: str | None = None) -> Markup:
    """Mark a text as new, after the old text `before`, which is struck through."""
    old = "" if before is None else Markup("<s>{}</s> ").format(before)
    return Markup("{}<mark>{}</mark>").format(old, text)


def share(part: float) -> str:
    """Return a share in whole percent; "0 %" is exactly 0, and "100 %" exactly 1."""
    text = f"{100 * part:.0f} %"
    if text == "0 %" and part > 0:
        return "under 1 %"
    if text == "100 %" and part < 1:
        return "over 99 %"
    return text


# --- progress -------------------------------------------------------------------------------------

_stages: list[str] = []  # the running stages of work, outermost first
_status: Status | None = None  # the line on stderr, while there is one


def is_watched() -> bool:
    """Return True if a person sees stderr in a terminal.

    Child processes, threads and servers, which have a running event loop, are not watched.
    """
    if sys.stderr is None or parent_process() is not None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    asyncio = sys.modules.get("asyncio")
    is_server = asyncio is not None and asyncio._get_running_loop() is not None
    return sys.stderr.isatty() and not is_server


@contextmanager
def doing(stage: str) -> Iterator[None]:
    """Show the name of a stage while the block runs, if a person watches stderr."""
    global _status  # noqa: PLW0603 - there is one terminal
    if not _stages and not is_watched():
        yield
        return
    _stages.append(stage)
    if _status is None:
        from rich.console import Console  # slow to import, and rarely needed

        _status = Console(stderr=True).status(stage)
        _status.start()
    _status.update(stage)
    try:
        yield
    finally:
        _stages.pop()
        if _stages:
            _status.update(_stages[-1])
        else:
            _status.stop()
            _status = None


def advance(done: int, total: int) -> None:
    """Show the progress of the innermost `doing` block."""
    if _status is not None and total > 1:
        _status.update(f"{_stages[-1]}, {done} of {total}")


def say_stage(stage: str) -> None:
    """Replace the text of the innermost `doing` block."""
    if _status is not None:
        _stages[-1] = stage
        _status.update(stage)


@contextmanager
def heard(progress: Callable[[int, int], None]) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that calls `progress`, and raise its first error after the block.

    If the error were raised at once, the code inside would handle it as its own error.
    """
    errors: list[Exception] = []

    def report(done: int, total: int) -> None:
        if errors:
            return
        try:
            progress(done, total)
        except Exception as error:  # noqa: BLE001 - the caller's function may raise any error
            errors.append(error)

    yield report
    if errors:
        raise errors[0]
