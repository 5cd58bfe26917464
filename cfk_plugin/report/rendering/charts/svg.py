"""Elements of SVG as text: everything escaped, numbers always written alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup, escape

LINE = 18.0
"""Height of a line of text in CSS pixels; the style sheet sets the text of charts at 14."""

_PARTS = re.compile(r"[^\s_./,;:-]*[\s_./,;:-]+|[^\s_./,;:-]+")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and what its axes are: texts that stand above and below it, where they can be set on lines.

    Attributes
    ----------
    parts : tuple of Markup
    height : float
        What they take, in CSS pixels.
    above, below : str
    """

    parts: tuple[Markup, ...]
    height: float
    above: str
    below: str


def wrapped(words: str, room: int) -> list[str]:
    """Return words on lines of so many characters, broken at blanks and after signs where they can be."""
    lines = [""]
    for part in _PARTS.findall(words):
        while len(lines[-1] + part.rstrip()) > room:
            if lines[-1]:
                lines.append("")
            else:
                lines[-1:] = [part[:room], ""]
                part = part[room:]  # noqa: PLW2901 - what is left of it
        lines[-1] += part
    return [line.rstrip() for line in lines if line.strip()]


def element(tag: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """Return an element; ``class_`` stands for ``class``, and ``_`` for ``-`` in names of attributes."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), number(value))
        for name, value in attributes.items()
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, written, inside)


def number(value: str | float) -> str:
    """Write a coordinate with two decimals at most; text stays as it is."""
    if isinstance(value, str):
        return value
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def percent(share: float) -> str:
    """Write a share of the width."""
    return f"{number(100 * share)}%"


def text(words: str, x: float, y: float, *, anchor: str = "start", class_: str = "label") -> Markup:
    """Return a line of text at a share of the width, its base line at `y`."""
    return element("text", words, x=percent(x), y=y, text_anchor=anchor, class_=class_)


def rule(x: float, top: float, bottom: float, *, class_: str) -> Markup:
    """Return a vertical line at a share of the width."""
    return element("line", x1=percent(x), x2=percent(x), y1=top, y2=bottom, class_=class_)


def anchor_at(x: float) -> str:
    """Return how text at a share of the width is anchored to stay inside."""
    return "start" if x < 1 / 3 else "end" if x > 2 / 3 else "middle"
