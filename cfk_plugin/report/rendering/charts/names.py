"""Where the name of a line has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_PLACES = 12
_CLOSE = 4.0  # pixels between a name and its own line


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; heights grow downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def apart(self, other: Box) -> float:
        """Return the gap between two boxes; negative where they overlap."""
        return max(other.left - self.right, self.left - other.right, other.top - self.bottom, self.top - other.bottom)


def place_name(
    size: tuple[float, float],
    heights: Sequence[Callable[[float], float]],
    mine: int,
    taken: Sequence[Box],
    *,
    within: Box,
) -> Box:
    """Return the box, above or below its own line, that is farthest from the other lines and from boxes taken.

    Parameters
    ----------
    size : (float, float)
        Width and height of the name.
    heights : sequence of callable
        The height of each line at a place across.
    mine : int
        The line that is named.
    taken : sequence of Box
    within : Box
    """
    width, height = size
    room = max(0.0, within.right - within.left - width)
    best: tuple[float, Box] | None = None
    for step in range(_PLACES + 1):
        left = within.left + room * step / _PLACES
        across = [left + width * part / 4 for part in range(5)]
        own = [heights[mine](x) for x in across]
        for top in (min(own) - _CLOSE - height, max(own) + _CLOSE):
            box = Box(left, top, left + width, top + height)
            clear = _clearance(box, across, heights, mine, taken)
            # A name that leaves the plot or lies far from the middle of its own line may be read as another's.
            beyond = max(0.0, within.top - box.top, box.bottom - within.bottom)
            off = min(abs(box.top - own[2]), abs(box.bottom - own[2])) - _CLOSE
            worth = min(clear, 3 * height) - 4 * beyond - off
            if best is None or worth > best[0] + 1e-9:
                best = (worth, box)
    assert best is not None  # noqa: S101 - there are places
    return best[1]


def _clearance(
    box: Box, across: Sequence[float], heights: Sequence[Callable[[float], float]], mine: int, taken: Sequence[Box]
) -> float:
    others = [height(x) for number, height in enumerate(heights) if number != mine for x in across]
    lines = [max(box.top - y, y - box.bottom) for y in others]
    return min([*lines, *(box.apart(other) for other in taken)], default=float("inf"))
