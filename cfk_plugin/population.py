"""The population: the training rows, coded and collapsed to equivalence classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import bundle, keyed
from cfk_plugin.cells import collapse, identity_of, subjects_of
from cfk_plugin.columns import conform, table_of
from cfk_plugin.domain import Domain
from cfk_plugin.errors import PopulationError
from cfk_plugin.plain import Counts, Sealed
from cfk_plugin.region import Region
from cfk_plugin.risk_profile import RiskProfile, risk_profile
from cfk_plugin.schema import Schema

_NOTHING = Sealed(MappingProxyType({}), MappingProxyType({}))


class Population:
    """Training rows as the crowd to hide in. Build it with `Population.from_frame`.

    It holds training rows, so it stays with the data holder: its `repr` shows counts alone and it refuses to be
    pickled. Distinct combinations of quasi-identifiers are called *cells*; everything is counted over cells.

    Attributes
    ----------
    schema : Schema
    domains : mapping
        Feature to `Domain`.
    cells : int32 array, shape (n_cells, n_quasi_identifiers)
        Codes of the distinct combinations, in the schema's order.
    cell_people : int64 array, shape (n_cells,)
        Additive people count of a cell: rows, or, with a subject key, people counted at their first cell only.
    """

    def __init__(self, frame: pd.DataFrame, schema: Schema, key: bytes | None = None) -> None:
        if not isinstance(frame, pd.DataFrame) or frame.empty:
            raise PopulationError("a population needs a pandas DataFrame with at least one row")
        needed = [a.name for a in schema.attributes if a.role not in ("identifier", "target")]
        if not frame.columns.is_unique or (lost := [c for c in needed if c not in frame.columns]):
            raise PopulationError(
                "the table has duplicate columns" if not frame.columns.is_unique else f"missing columns: {lost}"
            )
        self.schema = schema
        self._key = keyed.configured(key)
        kept = [*schema.features, *schema.names("target")]
        rows = frame[[c for c in kept if c in frame.columns]].reset_index(drop=True)
        self._frame: pd.DataFrame | None = rows
        self.domains: Mapping[str, Domain] = MappingProxyType(
            {name: Domain.of(rows[name], schema[name]) for name in schema.features}
        )
        self.cells, self._cell_of_row = collapse(
            [self.domains[q].encode(rows[q])[0] for q in schema.quasi_identifiers],
            [self.domains[q].size for q in schema.quasi_identifiers],
        )
        self._people = subjects_of(frame, schema)
        first = self.first_rows(np.arange(len(rows)))
        self.cell_people = np.bincount(self._cell_of_row[first], minlength=len(self.cells)).astype(np.int64)
        self.sealed = _NOTHING
        self._finish()

    def _finish(self) -> None:
        """Make everything read-only."""
        arrays: list[NDArray[Any]] = [self.cells, self.cell_people, self._cell_of_row]
        for domain in self.domains.values():
            arrays += [domain.values, domain.originals]
        for array in arrays:
            array.setflags(write=False)
        self._built = True

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, schema: Schema, *, key: bytes | None = None) -> Population:
        """Code and collapse a table of training rows.

        Parameters
        ----------
        frame : DataFrame
            One row per training row; must have every feature and the subject key of the schema.
        schema : Schema
        key : bytes, optional
            Key of the fingerprint and of the order in which people are given to other groups (HMAC). Default: the
            environment variable ``CFK_KEY``. Without a key, fingerprints are comparable within this process only, and
            the order follows from the table itself, so that it is the same in every process.

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            If columns are missing, or hold values that the schema does not allow.
        """
        return cls(frame, schema, key)

    @classmethod
    def from_parquet(cls, path: str | Path, schema: Schema, *, key: bytes | None = None) -> Population:
        """Read the columns that the schema names from a Parquet file, then do as `from_frame`."""
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls(pd.read_parquet(path, columns=columns), schema, key)

    def seal(
        self,
        path: str | Path,
        *,
        facts: Mapping[str, Any] = _NOTHING.facts,
        arrays: Mapping[str, NDArray[Any]] = _NOTHING.arrays,
    ) -> None:
        """Write what is needed to protect explanations elsewhere, and nothing else, to one file.

        The file has the schema, the distinct combinations of quasi-identifiers with their numbers of people, and the
        fingerprint: no row, no value of a private attribute, no pickle. Whoever has it knows the quasi-identifiers
        of everybody, as the adversary of every guarantee does, so keep it where your servers are.
        `KAnonymizer.seal` adds policy and partition.

        Parameters
        ----------
        path : str or Path
        facts, arrays : mappings
            What else is sealed: plain values, and arrays of numbers.

        Raises
        ------
        BundleError
            If the file cannot be written.
        """
        key = None if self._key else self._order_key
        counts = Counts(self.schema, self.domains, self.cells, self.cell_people, self.fingerprint, key)
        own, numbers = counts.to_plain()
        bundle.write(path, {**facts, "population": own}, {**arrays, **numbers}, self._key)

    @classmethod
    def open(cls, path: str | Path, *, key: bytes | None = None) -> Population:
        """Open a sealed population: it counts as the original does and has no rows.

        Parameters
        ----------
        path : str or Path
        key : bytes, optional
            The key that it was sealed with. Default: the environment variable ``CFK_KEY``.

        Raises
        ------
        BundleError
            If it is no bundle, was changed after it was sealed, needs another key or a newer version.
        """
        found = keyed.configured(key)
        facts, arrays = bundle.read(path, found)
        counts = Counts.from_plain(facts["population"], arrays)
        self = cls.__new__(cls)
        self.schema, self._key, self._frame, self._people = counts.schema, found, None, None
        self.domains, self.cells, self.cell_people = MappingProxyType(dict(counts.domains)), counts.cells, counts.people
        self._cell_of_row = np.repeat(np.arange(len(counts.cells)), counts.people)
        self.sealed = Sealed(MappingProxyType(facts), MappingProxyType(arrays))
        self.__dict__["fingerprint"] = counts.fingerprint
        if counts.order_key is not None:
            self.__dict__["_order_key"] = counts.order_key
        self._finish()
        return self

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Population({self.n_people} people, {self.n_rows} rows, {len(self.cells)} cells)"

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse changes: what was counted for one explanation must hold for the next."""
        if hasattr(self, "_built"):
            raise AttributeError("a Population cannot be changed; build another one")
        super().__setattr__(name, value)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every training row."""
        raise PopulationError("a Population holds training rows and refuses to be pickled; rebuild it instead")

    @property
    def n_rows(self) -> int:
        """Number of training rows; of people, where there are no rows."""
        return len(self._cell_of_row)

    @property
    def has_rows(self) -> bool:
        """Whether training rows are there; a sealed population has counts alone."""
        return self._frame is not None

    @property
    def n_people(self) -> int:
        """Number of distinct people (of rows, without a subject key)."""
        return int(self.cell_people.sum())

    @property
    def frame(self) -> pd.DataFrame:
        """Return a copy of the training rows. Host code only; nothing of it may be released or logged."""
        return self._rows.copy()

    def rows(self, at: NDArray[np.int64]) -> pd.DataFrame:
        """Return a copy of some of the training rows. Host code only, as `frame`."""
        return self._rows.take(at)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column. Host code only, as `frame`."""
        return self._rows[name].copy()

    def members(self, region: Region) -> NDArray[np.int64]:
        """Return the positions of the rows inside a region."""
        cells = np.flatnonzero(self.cells_inside(region))
        order, start = self._rows_by_cell
        if not len(cells):
            return np.empty(0, dtype=np.int64)
        return np.sort(np.concatenate([order[start[c] : start[c + 1]] for c in cells]))

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        if self._people is None:
            return int(self.cell_people[self.cells_inside(region)].sum())
        return len(np.unique(self._people[self.members(region)]))

    def people(self, rows: NDArray[np.int64]) -> int:
        """Return the number of distinct people behind rows."""
        return len(rows) if self._people is None else len(np.unique(self._people[rows]))

    def first_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, of some rows, the places where a person occurs for the first time."""
        return np.arange(len(rows)) if self._people is None else np.unique(self._people[rows], return_index=True)[1]

    def keyed_order(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return a number per record that needs the key to compute, else this very table; the same in every process.

        Parameters
        ----------
        codes, numbers : arrays, shape (n, n_features)
            The records, coded (`encode`).
        """
        names = self.schema.features
        tokens = [self.domains[name].tokens(codes[:, j], numbers[:, j]) for j, name in enumerate(names)]
        return keyed.order(self._order_key, np.column_stack(tokens))

    def cells_inside(self, region: Region) -> NDArray[np.bool_]:
        """Say of every cell whether it is inside a region."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, name in enumerate(self.schema.quasi_identifiers):
            inside &= self.domains[name].inside(region[name])[self.cells[:, j]]
        return inside

    def cell_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cell of each row."""
        return self._cell_of_row[rows]

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        coded = [self.domains[name].encode(frame[name]) for name in self.schema.features]
        return np.column_stack([codes for codes, _ in coded]), np.column_stack([numbers for _, numbers in coded])

    def conform(self, frame: pd.DataFrame, codes: NDArray[np.int32] | None = None) -> pd.DataFrame:
        """Return the features of a table in the training table's order, dtypes and spelling, where values survive it.

        Parameters
        ----------
        frame : DataFrame
        codes : int32 array, shape (n, n_features), optional
            Its codes, where they are known already.
        """
        known = self.encode(frame)[0] if codes is None else codes
        return table_of(
            {
                name: self.domains[name].restore(known[:, j])
                if (known[:, j] >= 0).all()
                else conform(frame[name], self.domains[name].dtype)
                for j, name in enumerate(self.schema.features)
            }
        )

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return how many people are unique and how many are in a class of fewer than k.

        Parameters
        ----------
        k : int
            Size below which a class counts as small.

        Returns
        -------
        RiskProfile
            Shares in [0, 1]; a person with several rows counts by the smallest class they are in.

        References
        ----------
        Goethals, Sörensen, Martens (2023), section 5.1, Table 5.
        """
        return risk_profile(self._cell_of_row, self._people, k)

    @cached_property
    def fingerprint(self) -> str:
        """Keyed identity of this population and schema (HMAC-SHA256, 16 hex digits): same rows, same print."""
        return keyed.digest(self._key or keyed.of_this_process(), self._identity).hex()[:16]

    @property
    def _rows(self) -> pd.DataFrame:
        if self._frame is None:
            raise PopulationError("a sealed population has no rows; use the population that it was sealed from")
        return self._frame

    @cached_property
    def _order_key(self) -> bytes:
        """Key of the order within cells; a sealed population without its secret key has the one of the table."""
        return self._key or keyed.digest(b"", self._identity)

    @property
    def _identity(self) -> list[bytes]:
        return identity_of(self.schema, self.domains, self.encode(self._rows)[0])

    @cached_property
    def _rows_by_cell(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self._cell_of_row, kind="stable")
        start = np.searchsorted(self._cell_of_row[order], np.arange(len(self.cells) + 1))
        return order, start
