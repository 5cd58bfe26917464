"""What a person sees: objects in a notebook, and progress. The caller decides what may be seen."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import parent_process
from time import perf_counter
from typing import Any

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
_BARS, _TALL, _WIDE = 24, 26, 7  # bars of a picture at most; pixels
_LONG = 60  # characters of a cell that is broken into lines
_MOST = 4000  # groups that a picture counts; of more groups, an evenly spaced sample


def card(title: str, *parts: str, note: str = "") -> str:
    inside = Markup("").join(
        part if isinstance(part, Markup) else Markup("<div>{}</div>").format(part) for part in parts
    )
    small = Markup("<small>{}</small>").format(note) if note else ""
    found = Markup('<div class="cfk"><style>{}</style><b>{}</b>{}{}</div>').format(
        _STYLE, title, inside, small
    )
    return str(found)


def facts(named: Mapping[str, object]) -> Markup:
    return table(
        (), [[Markup("<small>{}</small>").format(name), value] for name, value in named.items()]
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    top = Markup("<tr>{}</tr>").format(_cells("th", head)) if head else ""
    lines = [
        Markup("<tr>{}</tr>").format(_cells("td", row, len(head) - len(row) + 1)) for row in rows
    ]
    return Markup("<table>{}{}</table>").format(top, Markup("").join(lines))


def _cells(tag: str, cells: Sequence[object], last: int = 1) -> Markup:
    one = Markup("<th>{0}</th>") if tag == "th" else Markup("<td>{0}</td>")
    wide = Markup('<td class="cfk-wide" colspan="{1}">{0}</td>')
    spans = [1] * (len(cells) - 1) + [max(last, 1)]
    return Markup("").join(
        (wide if span > 1 or (isinstance(cell, str) and len(cell) > _LONG) else one).format(
            cell, span
        )
        for cell, span in zip(cells, spans, strict=True)
    )


def number(value: float) -> str:
    """Write a figure with three digits; a whole number as it is, and a dash if there is none."""
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return "–" if np.isnan(value) else f"{value:.3g}"


def marked(text: str, before: str | None = None) -> Markup:
    was = "" if before is None else Markup("<s>{}</s> ").format(before)
    return Markup("{}<mark>{}</mark>").format(was, text)


def share(part: float) -> str:
    """Return a share in whole percent; only none is "0 %" and only all is "100 %"."""
    text = f"{100 * part:.0f} %"
    return {
        "0 %": "under 1 %" if part > 0 else text,
        "100 %": "over 99 %" if part < 1 else text,
    }.get(text, text)


def profile(part: Part, groups: Sequence[Part]) -> list[tuple[float, bool]]:
    """Return bars: how many groups have such values, in tenths of the tallest bar, and whether
    `part` has them, too.

    A group counts once, spread evenly over its range or set. No row is counted, and no bar names
    its values.
    """
    groups = groups[:: max(1, len(groups) // _MOST)]
    if isinstance(part, Interval) and part.levels is None:
        ranges = [each for each in groups if isinstance(each, Interval) and each.low is not None]
        ends = np.array(
            [[to_number(each.low), to_number(each.high)] for each in ranges], dtype=float
        ).reshape(-1, 2)
        return (
            [] if part.low is None else _over_range(ends, to_number(part.low), to_number(part.high))
        )
    sets = [
        list(each.levels or ()) if isinstance(each, Interval) else list(each) for each in groups
    ]
    own = set(part.levels or ()) if isinstance(part, Interval) else part
    count: Counter[object] = Counter()
    for values in sets:
        count.update({value: 1 / len(values) for value in values})
    listed = sorted(count, key=lambda value: (-count[value], str(value)))
    shown = [value for at, value in enumerate(listed) if at < _BARS or value in own][: 2 * _BARS]
    return _bars(np.array([count[value] for value in shown]), [value in own for value in shown])


def _over_range(ends: NDArray[np.float64], low: float, high: float) -> list[tuple[float, bool]]:
    first, last = (float(ends[:, 0].min()), float(ends[:, 1].max())) if len(ends) else (0.0, 0.0)
    if not first < last:
        return []
    width = (last - first) / _BARS
    start = first + width * np.arange(_BARS)
    # a single number has some width
    low_end, size = ends[:, :1], np.maximum(ends[:, 1:] - ends[:, :1], width / 1e3)
    inside = np.minimum(low_end + size, start + width) - np.maximum(low_end, start)
    height = (np.maximum(inside, 0) / size).sum(axis=0)
    reach = np.clip((np.array([low, high]) - first) // width, 0, _BARS - 1)
    return _bars(height, [bool(reach[0] <= at <= reach[1]) for at in range(_BARS)])


def _bars(height: NDArray[np.float64], inside: Sequence[bool]) -> list[tuple[float, bool]]:
    top = float(height.max(initial=0.0)) or 1.0
    return list(zip((np.ceil(10 * height / top - 1e-9) / 10).tolist(), inside, strict=True))


def picture(bars: Sequence[tuple[float, bool]], said: str) -> Markup:
    """Draw a `profile`, the part's own bars dark; nothing where there is nothing to compare
    with.
    """
    if len(bars) < 2:
        return Markup("")
    bar = Markup(
        '<rect x="{}" y="{:.1f}" width="{}" height="{:.1f}" fill="currentColor" opacity="{}"/>'
    )
    drawn = [
        bar.format(
            _WIDE * at, _TALL * (1 - height), _WIDE - 1, _TALL * height, 0.9 if own else 0.25
        )
        for at, (height, own) in enumerate(bars)
    ]
    about = Markup(
        '<svg width="{}" height="{}" role="img" aria-label="{} among all groups">'
    ).format(_WIDE * len(bars), _TALL, said)
    return about + Markup("").join(drawn) + Markup("</svg>")


# Progress of long work, on stderr where a person watches: what is being done, how far it is, and
# for how long.

_AFTER, _EVERY = 2.0, 0.5  # seconds
_stages: list[str] = []  # what is being done, outermost first


def is_watched() -> bool:
    """Say whether a person sees stderr: in a terminal or a notebook, of this very process, and not
    of a server.
    """
    asyncio = sys.modules.get("asyncio")
    if sys.stderr is None or parent_process() is not None:
        return False
    if type(sys.stderr).__module__.startswith("ipykernel"):
        return True
    return sys.stderr.isatty() and (asyncio is None or asyncio._get_running_loop() is None)


@contextmanager
def heard(progress: Callable[[int, int], None]) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that keeps what the caller's raises until the work is done, so that it is
    not taken for ours.
    """
    raised: list[Exception] = []

    def told(done: int, total: int) -> None:
        if not raised:
            try:
                progress(done, total)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
                raised.append(error)

    yield told
    if raised:
        raise raised[0]


@contextmanager
def _doing(what: str) -> Iterator[None]:
    if _stages:  # the outermost stage shows the line
        is_outer, is_shown = False, True
    else:
        is_outer = is_shown = is_watched() and threading.current_thread() is threading.main_thread()
    done = threading.Event()
    line = threading.Thread(target=_show, args=(done,), daemon=True)
    if is_shown:
        _stages.append(what)
    if is_outer:
        line.start()
    try:
        yield
    finally:
        if is_shown:
            _stages.pop()
        if is_outer:
            done.set()
            line.join()


def _advance(done: int, total: int) -> None:
    """Say how far the innermost stage is."""
    if _stages and total > 1:
        share = 10 * done // total
        _stages[-1] = (
            f"{_stages[-1].split(' █')[0].split(' ·')[0]} {'█' * share}{'·' * (10 - share)}"
        )


def _say(what: str) -> None:
    """Replace the text of the innermost stage."""
    if _stages:
        _stages[-1] = what


def _show(done: threading.Event) -> None:
    """Rewrite one line until it is done, then clear it."""
    began, wait, width = perf_counter(), _AFTER, 0
    while not done.wait(wait) and _stages:
        line = f"cfk_plugin: {_stages[-1]}, {perf_counter() - began:.0f} s"
        sys.stderr.write("\r" + line.ljust(width))
        sys.stderr.flush()
        width, wait = len(line), _EVERY
    if width:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()


# Where nobody watches at import, this costs nothing.
doing: Callable[[str], AbstractContextManager[Any]] = _doing if is_watched() else nullcontext
"""Show what is being done inside the block, after two seconds."""
advance: Callable[[int, int], None] | None = _advance if is_watched() else None
say_stage: Callable[[str], None] = _say
"""Say in other words what is being done inside the innermost `doing` block."""
