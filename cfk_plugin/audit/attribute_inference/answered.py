"""What answers say, whatever kind they are: raw rows, regions with private values, prototypes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.attacked import Answers
from cfk_plugin.audit.attribute_inference.register import Register, Rows
from cfk_plugin.data.region import Part, natural, part_of
from cfk_plugin.errors import InputError

Said = Mapping[str, Part]


def said_by(answers: Answers) -> list[Said]:
    """Return what each answer that was given says: attribute to one value, bin, range or set.

    Of a protected service what it released, so that a region stays one and a withheld attribute is left out; else the
    rows as they are.
    """
    if answers.explanations is not None:
        return [entry.parts() for entry in answers.explanations.released]
    given = answers.rows[answers.found]
    names = list(given.columns)
    return [{n: part_of(natural(v)) for n, v in zip(names, row, strict=True)} for row in given.itertuples(index=False)]


class Answered:
    """Distinct answers, and whom they fit. Host side only: its `repr` shows counts, and it refuses to be pickled.

    What answers say of the quasi-identifiers is called a *place*; several answers may say the same there.

    Parameters
    ----------
    said : sequence of mapping
        As `said_by` returns it.
    register : Register
    table : int array
        People of the training table, who are counted.

    Attributes
    ----------
    distinct : list of mapping
        Every answer once, in the order in which they were given first.
    place_of : int array
        Place of each distinct answer.
    times : int array
        How often each distinct answer was given.
    cells : list of int array
        Per place, the cells that fit it.
    people : int array
        Per place, the people of the table who fit it.
    """

    def __init__(self, said: list[Said], register: Register, table: Rows) -> None:
        found: dict[frozenset[tuple[str, Part]], int] = {}
        places: dict[frozenset[tuple[str, Part]], int] = {}
        self.distinct: list[Said] = []
        where: list[Said] = []
        place_of: list[int] = []
        times: list[int] = []
        for parts in said:
            known = found.setdefault(frozenset(parts.items()), len(found))
            if known < len(self.distinct):
                times[known] += 1
                continue
            there = {name: part for name, part in parts.items() if name in register.quasi_identifiers}
            place_of.append(places.setdefault(frozenset(there.items()), len(places)))
            if place_of[-1] == len(where):
                where.append(there)
            times.append(1)
            self.distinct.append(parts)
        self.place_of, self.times = np.array(place_of, dtype=np.int64), np.array(times, dtype=np.int64)
        self.cells = [register.fitting(parts) for parts in where]
        crowd = np.bincount(register.cell_of[table], minlength=len(register.cells))
        self.people = np.array([crowd[cells].sum() for cells in self.cells], dtype=np.int64)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Answered({len(self.distinct)} distinct answers, {len(self.cells)} places)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: raw answers may be training rows."""
        raise InputError("an audit holds answers, which may be training rows, and refuses to be pickled")

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """People of the table who fit, per answer that was given."""
        return np.repeat(self.people[self.place_of], self.times)
