"""How long an experiment will still take, from how long its pieces took so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from cfk_plugin.reproduction.piece import Piece

_GUESS = {"grasp": 1.0}  # seconds per explanation, until the first piece of the method on the table is measured
_OTHERWISE = 0.05


class Forecast:
    """Learns how many explanations each table has, and seconds per explanation of each method on each table.

    Tables that were not begun are taken to be like those that were.

    Parameters
    ----------
    pieces : iterable of Piece
        Everything that has to be measured.
    limit : int
        Most explanations of a table.
    jobs : int
        Pieces that are measured at the same time.
    """

    def __init__(self, pieces: Iterable[Piece], limit: int, jobs: int) -> None:
        self._left = list(pieces)
        self._limit, self._jobs = limit, max(jobs, 1)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._count: dict[tuple[str, str], int] = defaultdict(int)
        self._explained: dict[str, int] = {}

    def done(self, piece: Piece, asked: int, seconds: float | None) -> None:
        """Count a piece with its explanations as done; without seconds it was known before and says nothing of them."""
        self._left.remove(piece)
        self._explained[piece.table] = max(asked, self._explained.get(piece.table, 0))
        if seconds is not None:
            for of in ((piece.table, piece.method), ("", piece.method)):
                self._seconds[of] += seconds
                self._count[of] += asked

    @property
    def left(self) -> float:
        """Seconds until all pieces are done, if the next ones take as long as those of their method took."""
        return sum(self._per_explanation(piece) * self._asked(piece) for piece in self._left) / self._jobs

    def _per_explanation(self, piece: Piece) -> float:
        for of in ((piece.table, piece.method), ("", piece.method)):
            if self._count[of]:
                return self._seconds[of] / self._count[of]
        return _GUESS.get(piece.method, _OTHERWISE)

    def _asked(self, piece: Piece) -> float:
        begun = self._explained.values()
        most = self._explained.get(piece.table, sum(begun) / len(begun) if begun else self._limit)
        return most if piece.asked is None else min(most, piece.asked)
