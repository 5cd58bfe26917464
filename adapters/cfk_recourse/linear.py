"""The nearest points across a linear boundary, in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

_BISECTIONS = 100  # more than a float has bits


def least_l1_move(missing: Matrix, gradient: Matrix, room: Matrix) -> Matrix:
    """Return the moves of least l1 norm that raise a linear function by `missing`.

    The entry with the steepest gradient moves; the next one only when that has no room left.

    Parameters
    ----------
    missing : array, shape (n,)
    gradient : array, shape (n, d)
    room : array, shape (n, d)
        How far each entry may move in the direction of its gradient; may be infinite.

    Returns
    -------
    array, shape (n, d)
        They fall short of `missing` if there is not enough room.
    """
    steepness = np.abs(gradient)
    order = np.argsort(-steepness, axis=1, kind="stable")
    steep, free = (
        np.take_along_axis(steepness, order, axis=1),
        np.take_along_axis(room, order, axis=1),
    )
    gains = np.multiply(steep, free, out=np.zeros_like(steep), where=steep > 0)
    before = np.hstack([np.zeros((len(gains), 1)), np.cumsum(gains, axis=1)[:, :-1]])
    gain = np.clip(missing[:, None] - before, 0, gains)
    moves = np.empty_like(gain)
    np.put_along_axis(
        moves, order, np.divide(gain, steep, out=np.zeros_like(gain), where=steep > 0), axis=1
    )
    return np.asarray(moves * np.sign(gradient))


def least_l2_move(missing: Matrix, gradient: Matrix, room: Matrix) -> Matrix:
    """Do as `least_l1_move` for the l2 norm: along the gradient, each entry as far as its room."""
    steepness = np.abs(gradient)
    norms = (steepness**2).sum(axis=1)
    length = np.divide(missing, norms, out=np.zeros_like(missing), where=norms > 0)
    ends = np.divide(room, steepness, out=np.zeros_like(room), where=steepness > 0)
    if (length[:, None] * steepness > room).any():
        low, high = length, np.where(np.isfinite(ends), ends, 0).max(axis=1) + length
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            enough = (steepness * np.minimum(middle[:, None] * steepness, room)).sum(
                axis=1
            ) >= missing
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        length = high
    return np.asarray(np.minimum(length[:, None] * steepness, room) * np.sign(gradient))
