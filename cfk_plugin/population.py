"""The population: the training rows, coded and collapsed to equivalence classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import bundle, keyed
from cfk_plugin.cells import counted_once, identity_of_counts, identity_of_rows, require_columns, subjects_of
from cfk_plugin.coding import Coding, KeyedOrder
from cfk_plugin.domain import Domain
from cfk_plugin.errors import PopulationError, quiet
from cfk_plugin.people import People
from cfk_plugin.plain import Counts, Sealed
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.rows import NoRows, Rows, RowsInMemory
from cfk_plugin.schema import Schema

_NO_ROWS = "a population needs a pandas DataFrame with at least one row"
_NOTHING = Sealed(MappingProxyType({}), MappingProxyType({}))


class Population(People):
    """Training rows as the crowd to hide in. Build it with `Population.from_frame`.

    It holds training rows, so it stays with the data holder: its `repr` shows counts alone and it refuses to be
    pickled. Distinct combinations of quasi-identifiers are called *cells*; everything is counted over cells.

    Attributes
    ----------
    schema : Schema
    domains : mapping
        Feature to `Domain`.
    cells : int32 array, shape (n_cells, n_quasi_identifiers)
        Codes of the distinct combinations, in the order of ``schema.quasi_identifiers``.
    cell_people : int64 array, shape (n_cells,)
        Additive people count of a cell: rows, or, with a subject key, people counted at the first of their cells only.
    """

    def __init__(
        self,
        coding: Coding,
        cells: NDArray[np.int32],
        cell_people: NDArray[np.int64],
        rows: Rows,
        key: bytes,
        sealed: Sealed = _NOTHING,
    ) -> None:
        super().__init__(coding, cells, cell_people, rows)
        self._key, self.sealed = key, sealed
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
            If columns are missing, or hold values that the schema does not allow. Where the schema declares the domain
            of every feature, such a value is no error here: what counts people refuses the population then, and
            differential privacy leaves the row out, as a refusal would tell of the one person who has the value.
        """
        if not isinstance(frame, pd.DataFrame) or (frame.empty and not schema.is_public):
            raise PopulationError(_NO_ROWS)
        require_columns(list(frame.columns), schema)
        kept = [c for c in (*schema.features, *schema.names("target")) if c in frame.columns]
        table, subjects = frame[kept].reset_index(drop=True), subjects_of(frame, schema)
        if not schema.is_public:
            return cls._counted(table, schema, subjects, keyed.configured(key))
        try:
            with quiet("the table holds values that cannot be counted ({})", PopulationError, let=PopulationError):
                return cls._counted(table, schema, subjects, keyed.configured(key))
        except PopulationError as error:
            refusal = str(error)
        return _Uncounted(schema, table, subjects, keyed.configured(key), refusal)

    @classmethod
    def _counted(
        cls, table: pd.DataFrame, schema: Schema, subjects: NDArray[np.int64] | None, key: bytes
    ) -> Population:
        if table.empty:
            raise PopulationError(_NO_ROWS)
        if subjects is not None and (subjects < 0).any():
            raise PopulationError(f"subject key {schema.subject!r} has missing values; every row needs its person")
        coding = Coding(schema, {name: Domain.of(table[name], schema[name]) for name in schema.features})
        cells, cell_of_row = coding.collapse(table)
        counted = cell_of_row[counted_once(cell_of_row, subjects)]
        cell_people = np.bincount(counted, minlength=len(cells)).astype(np.int64)
        return cls(coding, cells, cell_people, RowsInMemory(table, cell_of_row, subjects), key)

    @classmethod
    def from_parquet(cls, path: str | Path, schema: Schema, *, key: bytes | None = None) -> Population:
        """Read the columns that the schema names from a Parquet file, then do as `from_frame`."""
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls.from_frame(pd.read_parquet(path, columns=columns), schema, key=key)

    @classmethod
    def from_spark(cls, df: Any, schema: Schema, *, key: bytes | None = None) -> Population:
        """Count a table where it is, on a Spark cluster; its rows stay there.

        What reaches this process: the distinct combinations of quasi-identifiers with their numbers of people,
        whether a private column has missing values, and, where a partition divides the people of one combination, a
        keyed number of 64 bits for each of them. Two passes over the table, one more for such numbers: cache it.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            One row per training row; must have every feature and the subject key of the schema. It is read again when
            an anonymizer is fitted, and must be the same then.
        schema : Schema
        key : bytes, optional
            Needed here; default: the environment variable ``CFK_KEY``. It travels to the workers with the job.

        Returns
        -------
        Population
            Counts, cells and groups are those of `from_frame` with the same key. With a subject key, people are
            counted at one of their rows, so that numbers of people are lower bounds. It has no rows (``has_rows`` is
            False): nothing can be asked of it that is judged by private values.

        Raises
        ------
        PopulationError
            If columns are missing, hold values that the schema does not allow, there is no key, or the job fails.
        MissingDependencyError
            If PySpark is not installed.
        """
        from cfk_plugin.cluster import RowsOnCluster, counted

        found = keyed.configured(key)
        if not found:
            raise PopulationError(
                "from_spark needs a key: who of a crowded combination is in which group follows from it, and not from "
                "a table that nobody holds; give key=, or set CFK_KEY"
            )
        table = counted(df, schema)
        return cls(table.coding, table.cells, table.people, RowsOnCluster(df, table), found)

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
    def open(cls, path: str | Path | IO[bytes], *, key: bytes | None = None) -> Population:
        """Open a sealed population: it counts as the original does and has no rows.

        Parameters
        ----------
        path : str, Path or binary file
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
        coding = Coding(counts.schema, counts.domains)
        others = {name: fact for name, fact in facts.items() if name != "population"}  # that one lists values
        sealed = Sealed(MappingProxyType(others), MappingProxyType(arrays))
        self = cls(coding, counts.cells, counts.people, NoRows(counts.people), found, sealed)
        self.__dict__["fingerprint"] = counts.fingerprint
        if counts.order_key is not None:
            self.__dict__["_order_key"] = counts.order_key
        return self

    @property
    def policy(self) -> PrivacyPolicy | None:
        """The policy that was sealed with the population; None where none was."""
        settings = self.sealed.facts.get("policy")
        return None if settings is None else PrivacyPolicy(**settings)

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
    def has_key(self) -> bool:
        """Whether a secret key is behind the fingerprint, so that it is the same in every process that has the key."""
        return bool(self._key)

    @cached_property
    def fingerprint(self) -> str:
        """Keyed identity of what is counted (HMAC-SHA256, 16 hex digits): schema, cells, and the people of each.

        Equal for the same table in whatever order of rows and columns, read from wherever, with the same key. Private
        values are not in it.
        """
        identity = identity_of_counts(self.schema, self.domains, self.cells, self.cell_people)
        return keyed.digest(self._key or keyed.of_this_process(), identity).hex()[:16]

    def keyed_order(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return a number per record that needs the key to compute, else this very table; the same in every process.

        Parameters
        ----------
        codes, numbers : arrays, shape (n, n_features)
            The records, coded (`encode`).
        """
        return self.order(codes, numbers)

    def keyed_numbers(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed number (`keyed_order`) of rows, wherever they are."""
        return self._rows.numbers(self.order, rows)

    @cached_property
    def order(self) -> KeyedOrder:
        """What `keyed_order` computes with; it has the key."""
        return KeyedOrder(self.coding, self._order_key)

    @cached_property
    def _order_key(self) -> bytes:
        """Key of the order within cells; without a secret one, that of the table, which a sealed population brings."""
        if self._key:
            return self._key
        codes = self.encode(self._rows.table)[0]
        return keyed.digest(b"", identity_of_rows(self.schema, self.domains, codes))


class _UncountedRows(RowsInMemory):
    """Rows with a value that no cell has."""

    def __init__(self, table: pd.DataFrame, subjects: NDArray[np.int64] | None, refusal: str) -> None:
        self.table, self.subjects, self._refusal = table, subjects, refusal

    @property
    def cell_of_row(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Refuse."""
        raise PopulationError(self._refusal)


class _Uncounted(Population):
    """A population with a value that its schema does not declare: it has rows, and whatever counts them is refused."""

    def __init__(
        self, schema: Schema, table: pd.DataFrame, subjects: NDArray[np.int64] | None, key: bytes, refusal: str
    ) -> None:
        rows = _UncountedRows(table, subjects, refusal)
        self.__dict__.update(schema=schema, _rows=rows, _key=key, sealed=_NOTHING, _built=True)

    def __getattr__(self, name: str) -> Any:
        """Refuse what follows from counting."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__["_rows"].cell_of_row

    def __repr__(self) -> str:
        """Say that nothing was counted."""
        return "Population(not counted)"
