"""How objects look in a notebook, and the progress of long work on stderr.

This module shows whatever it is given: the caller decides what a person may see.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import parent_process
from time import perf_counter
from typing import Any, Literal, TypeAlias

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cfk_plugin.data.region import Interval, Part
from cfk_plugin.data.values import to_number

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
_BARS = 24  # most bars of a picture
_TALL = 26  # pixels, of the tallest bar
_WIDE = 7  # pixels, of a bar with the gap after it
_LONG = 60  # characters of a cell that is broken into lines
_MOST = 4000  # groups that a picture counts; of more groups, an evenly spaced sample

Bars: TypeAlias = list[tuple[float, bool]]
"""The height of each bar, from 0 to 1, and whether the part that is shown has the bar's values."""


# --- HTML for notebooks ---------------------------------------------------------------------------


def card(title: str, *parts: str, note: str = "") -> str:
    """Return the HTML of an object: a title, its parts one below the other, and a note.

    Parts that are no `Markup` are escaped.
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
    """Return a table of names and their values, without a head."""
    rows = [
        [Markup("<small>{}</small>").format(name), value] for name, value in value_of_name.items()
    ]
    return table((), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table. The last cell of a row that is shorter than the head spans the rest."""
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
    """Return a cell over one column or several; the lines of a wide or long one may break."""
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
    """Mark a text as new, with the text `before` it struck through."""
    was = "" if before is None else Markup("<s>{}</s> ").format(before)
    return Markup("{}<mark>{}</mark>").format(was, text)


def share(part: float) -> str:
    """Return a share in whole percent; "0 %" is exactly 0, and "100 %" exactly 1."""
    text = f"{100 * part:.0f} %"
    if text == "0 %" and part > 0:
        return "under 1 %"
    if text == "100 %" and part < 1:
        return "over 99 %"
    return text


def profile(part: Part, groups: Sequence[Part]) -> Bars:
    """Return bars: how frequent some values of an attribute are in the groups of a partition.

    A group counts once, spread evenly over its range or set. No row is counted, and no bar names
    its values. Heights are in tenths of the tallest bar. The second value of a bar says whether
    `part` has its values, too.
    """
    groups = groups[:: max(1, len(groups) // _MOST)]
    if isinstance(part, Interval) and part.levels is None:
        return _profile_of_range(part, groups)
    return _profile_of_set(part, groups)


def _profile_of_set(part: Part, groups: Sequence[Part]) -> Bars:
    """Return a bar for each of the most frequent categories or levels, and for those of `part`."""
    frequency: Counter[object] = Counter()
    for group in groups:
        values = _values_of(group)
        frequency.update({value: 1 / len(values) for value in values})
    values_of_part = set(_values_of(part))
    ordered = sorted(frequency, key=lambda value: (-frequency[value], str(value)))
    values_with_bar = [
        value for place, value in enumerate(ordered) if place < _BARS or value in values_of_part
    ]
    values_with_bar = values_with_bar[: 2 * _BARS]
    heights = np.array([frequency[value] for value in values_with_bar])
    return _bars(heights, [value in values_of_part for value in values_with_bar])


def _values_of(part: Part) -> list[object]:
    """Return the values of a set, or the levels of an ordinal range."""
    return list(part.levels or ()) if isinstance(part, Interval) else list(part)


def _profile_of_range(part: Interval, groups: Sequence[Part]) -> Bars:
    """Return bars of equal width, from the lowest end of a group's range to the highest."""
    ranges = [group for group in groups if isinstance(group, Interval) and group.low is not None]
    if part.low is None or not ranges:
        return []
    low = np.array([to_number(interval.low) for interval in ranges], dtype=float)  # (n_groups,)
    high = np.array([to_number(interval.high) for interval in ranges], dtype=float)
    first = float(low.min())
    last = float(high.max())
    if not first < last:
        return []
    width = (last - first) / _BARS
    bar_start = first + width * np.arange(_BARS)  # (n_bars,)
    group_start = low[:, np.newaxis]  # (n_groups, 1)
    group_width = np.maximum((high - low)[:, np.newaxis], width / 1e3)  # some, for a single number
    overlap = np.minimum(group_start + group_width, bar_start + width) - np.maximum(
        group_start, bar_start
    )  # (n_groups, n_bars)
    heights = (np.maximum(overlap, 0) / group_width).sum(axis=0)
    ends = np.array([to_number(part.low), to_number(part.high)])
    first_inside, last_inside = np.clip((ends - first) // width, 0, _BARS - 1)
    return _bars(heights, [bool(first_inside <= i <= last_inside) for i in range(_BARS)])


def _bars(heights: NDArray[np.float64], is_inside: Sequence[bool]) -> Bars:
    """Round heights, shape (n_bars,), up to tenths of the tallest."""
    tallest = float(heights.max(initial=0.0)) or 1.0
    rounded = np.ceil(10 * heights / tallest - 1e-9) / 10
    return list(zip(rounded.tolist(), is_inside, strict=True))


def picture(bars: Sequence[tuple[float, bool]], label: str) -> Markup:
    """Draw a `profile`, with the bars of the part itself dark; a single bar is not drawn."""
    if len(bars) < 2:
        return Markup("")
    rectangle = Markup(
        '<rect x="{}" y="{:.1f}" width="{}" height="{:.1f}" fill="currentColor" opacity="{}"/>'
    )
    rectangles = []
    for i, (height, is_inside) in enumerate(bars):
        top = _TALL * (1 - height)
        opacity = 0.9 if is_inside else 0.25
        rectangles.append(rectangle.format(_WIDE * i, top, _WIDE - 1, _TALL * height, opacity))
    svg = Markup('<svg width="{}" height="{}" role="img" aria-label="{} among all groups">').format(
        _WIDE * len(bars), _TALL, label
    )
    return svg + Markup("").join(rectangles) + Markup("</svg>")


# --- progress -------------------------------------------------------------------------------------
#
# Where a person watches stderr, a line shows what is being done, how far it is, and for how long.

_AFTER = 2.0  # seconds until the line is shown
_EVERY = 0.5  # seconds between two changes of the line
_stages: list[str] = []  # what is being done, outermost first


def is_watched() -> bool:
    """Return True if a person sees stderr: in a terminal or a notebook.

    Nobody watches a child process or a server, which has a running event loop.
    """
    if sys.stderr is None or parent_process() is not None:
        return False
    if type(sys.stderr).__module__.startswith("ipykernel"):
        return True
    asyncio = sys.modules.get("asyncio")
    is_server = asyncio is not None and asyncio._get_running_loop() is not None
    return sys.stderr.isatty() and not is_server


@contextmanager
def heard(progress: Callable[[int, int], None]) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that calls `progress`; its first error is raised when the work is done.

    Raised at once, the error would be taken for one of ours.
    """
    errors: list[Exception] = []

    def report(done: int, total: int) -> None:
        if errors:
            return
        try:
            progress(done, total)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            errors.append(error)

    yield report
    if errors:
        raise errors[0]


@contextmanager
def _doing(stage: str) -> Iterator[None]:
    is_outermost = not _stages
    is_main = threading.current_thread() is threading.main_thread()
    if is_outermost and not (is_watched() and is_main):
        yield
        return
    finished = threading.Event()
    line = threading.Thread(target=_show_line, args=(finished,), daemon=True)
    _stages.append(stage)
    if is_outermost:
        line.start()
    try:
        yield
    finally:
        _stages.pop()
        if is_outermost:
            finished.set()
            line.join()


def _advance(done: int, total: int) -> None:
    """Draw how far the innermost stage is, after its text."""
    if _stages and total > 1:
        n_filled = 10 * done // total
        text = _stages[-1].split(" █")[0].split(" ·")[0]
        _stages[-1] = f"{text} {'█' * n_filled}{'·' * (10 - n_filled)}"


def _say_stage(stage: str) -> None:
    if _stages:
        _stages[-1] = stage


def _show_line(finished: threading.Event) -> None:
    """Rewrite one line until the work is finished, then clear it."""
    start = perf_counter()
    wait = _AFTER
    width = 0
    while not finished.wait(wait) and _stages:
        line = f"cfk_plugin: {_stages[-1]}, {perf_counter() - start:.0f} s"
        sys.stderr.write("\r" + line.ljust(width))
        sys.stderr.flush()
        width = len(line)
        wait = _EVERY
    if width:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()


# Where nobody watches at import, this costs nothing.
doing: Callable[[str], AbstractContextManager[Any]] = _doing if is_watched() else nullcontext
"""Show what is being done inside the block, after two seconds."""
advance: Callable[[int, int], None] | None = _advance if is_watched() else None
"""Show how far the innermost `doing` block is; None where nobody watches."""
say_stage: Callable[[str], None] = _say_stage
"""Replace the text of the innermost `doing` block."""
