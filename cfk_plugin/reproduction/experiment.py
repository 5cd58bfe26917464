"""What an experiment consists of: tables, methods, k, and the studies of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.forest import GRIDS
from cfk_plugin.reproduction.methods import METHODS, SLOW
from cfk_plugin.reproduction.piece import Piece
from cfk_plugin.reproduction.studies import STUDIES
from cfk_plugin.reproduction.tables.table import NAMES

KS = (5, 10, 20)
"""The k of the paper's Tables 6, 7 and 9 to 12."""

_STUDIED = {"parameters": 15, "plausibility": 20}  # explanations of GRASP where it is tried with many settings
_SLOWEST_FIRST = ("german", "hospital", "adult", "informs", "cmc", "heart")  # so that processes end together


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is measured, and how. The data and the machine are not part of it.

    Parameters
    ----------
    tables : tuple of str
    methods : tuple of str
        Of `METHODS`.
    ks : tuple of int
    studies : tuple of str
        Of `STUDIES`.
    limit : int
        Most explanations of a table. The paper explains what is undesired among 1,000 test rows.
    grasp_limit : int
        Most explanations of GRASP, which is slow: the first ones, by which it is compared with the others.
    effective : int
        Of how many explanations the effective k is measured.
    grid : {"small", "paper"}
    explainer : {"auto", "nice", "nearest"}
    seed : int

    Raises
    ------
    InputError
        If a name is unknown or a number impossible.
    """

    tables: tuple[str, ...] = NAMES
    methods: tuple[str, ...] = tuple(METHODS)
    ks: tuple[int, ...] = KS
    studies: tuple[str, ...] = tuple(STUDIES)
    limit: int = 100
    grasp_limit: int = 100
    effective: int = 20
    grid: str = "small"
    explainer: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured before anything is."""
        known: Mapping[str, tuple[tuple[str, ...], object]] = {
            "tables": (self.tables, NAMES),
            "methods": (self.methods, METHODS),
            "studies": (self.studies, STUDIES),
            "grid": ((self.grid,), GRIDS),
        }
        for what, (asked, names) in known.items():
            if strange := [name for name in asked if name not in names]:  # type: ignore[operator]
                raise InputError(f"{what}: unknown {', '.join(strange)}; known: {', '.join(names)}")  # type: ignore[arg-type]
        if not self.tables or not self.methods:
            raise InputError("name at least one table and one method")
        if not self.ks or min(self.ks) < 2:
            raise InputError("every k must be a whole number of at least 2")
        if self.limit < 1 or self.grasp_limit < 1 or self.effective < 0 or self.seed < 0:
            raise InputError("limits must be at least 1; effective and seed at least 0")

    def pieces(self) -> list[Piece]:
        """Return everything that has to be measured; what several parts need is there once, what is slow is last."""
        found = _distinct([*self.main(), *(piece for name in self.studies for piece in self.study(name))])
        return sorted(found, key=lambda piece: (_SLOWEST_FIRST.index(piece.table), piece.method == SLOW))

    def main(self) -> list[Piece]:
        """Return what Tables 6, 7 and 9 to 12 are made of: every method on every table at every k."""
        return [
            Piece(table=table, method=method, k=k, asked=self._asked(method))
            for table in self.tables
            for method in self.methods
            for k in self.ks
        ]

    def study(self, name: str) -> list[Piece]:
        """Return what a study is made of, without methods that are left out of this experiment."""
        asked = min(self.grasp_limit, self.limit, _STUDIED.get(name, self.limit))
        pieces = STUDIES[name].pieces(self.tables, asked_of_grasp=asked)
        return [piece for piece in pieces if piece.method in self.methods or piece.method not in METHODS]

    def _asked(self, method: str) -> int | None:
        return min(self.grasp_limit, self.limit) if method == SLOW else None


def _distinct(pieces: list[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for piece in pieces:
        if piece not in found:
            found.append(piece)
    return found
