"""The population: the training rows, coded and collapsed to equivalence classes, and how exposed
its people are.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes, Floats, Ints, distinct_rows
from cfk_plugin.data.display import card, doing, facts, share, table
from cfk_plugin.data.region import Region, to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.spark import SparkTable, is_spark_table
from cfk_plugin.data.tables import whole_number
from cfk_plugin.data.values import as_pandas, load_pyarrow, unreadable
from cfk_plugin.errors import (
    CopiedRowsWarning,
    HostOnly,
    InputError,
    PopulationError,
    quiet,
    rename_hint,
    require,
    warn,
)


def check_columns(columns: list[str], schema: Schema) -> None:
    if len(set(columns)) != len(columns):
        raise PopulationError("the table has duplicate columns")
    needed = [a.name for a in schema.attributes if a.role not in ("identifier", "target")]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise PopulationError(
            f"missing columns: {missing}{rename_hint(missing, columns, needed)}; the table needs"
            " all that the schema names"
        )


def configured_key(key: bytes | None) -> bytes:
    """Return the key, else that of the environment variable ``CFK_KEY``; empty when there is
    none.
    """
    if key is not None and not isinstance(key, bytes):
        raise InputError(
            f"key must be bytes, got {type(key).__name__}; encode a text with .encode()"
        )
    return key or os.environ.get("CFK_KEY", "").encode()


@dataclass(frozen=True, slots=True)
class RiskProfile:
    """How exposed a population is before any protection."""

    # share of the people whose quasi-identifiers nobody else has (Table 5 of the paper)
    unique: float
    below_k: float  # share of the people in a class of fewer than k
    k: int
    people: int
    classes: int

    def _repr_html_(self) -> str:
        """Return the same in words, for notebooks."""
        rows = {
            "people": f"{self.people:,}",
            "different combinations of quasi-identifiers": f"{self.classes:,}",
            "alone with theirs": share(self.unique),
            f"with fewer than {self.k - 1} others": share(self.below_k),
        }
        return card(
            f"Risk before protection, k = {self.k}",
            facts(rows),
            note=(
                f"Shares of the people. Whoever knows the quasi-identifiers of somebody with fewer"
                f" than {self.k - 1} others finds fewer than {self.k} people."
            ),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Handles(HostOnly):
    """Digests under the key, by which people are recognised in another table.

    Attributes
    ----------
    of_row : shape (n_rows,)
        The digest of the subject of each row.
    of_key : uint64
        The same for two tables if they have the same key.
    """

    of_row: NDArray[np.uint64]
    of_key: np.uint64

    @classmethod
    def of(cls, subjects: pd.Series, key: bytes) -> Handles:
        """Return the handles of the people whose subject keys are in a column."""
        numbers, distinct = pd.factorize(subjects)
        texts = [f"person {to_text(value)}" for value in distinct]
        digests = [hmac.digest(key, text.encode(), "sha256") for text in ["key", *texts]]
        handles = np.array([int.from_bytes(digest[:8]) for digest in digests], dtype=np.uint64)
        return cls(handles[1:][numbers], handles[0])


Number = TypeVar("Number", bound=np.generic)

_SHOWN_K = 5, 10, 20
_MOST_COPIES = 0.5  # share of the rows ...
_FEW_ROWS = 50  # ... unless there are fewer, which may be equal by chance
_NO_ROWS = "a population needs a table (pandas, polars or pyarrow) with at least one row"
# where there is no key, fingerprints are comparable within this process
_PROCESS_KEY = secrets.token_bytes(32)


class Population(HostOnly):
    """Training rows as the crowd to hide in. Build it with `Population.from_frame`.

    It holds training rows, so it stays with the data holder: its `repr` shows counts alone, and it
    refuses to be pickled. People with equal quasi-identifiers are an equivalence class.
    """

    schema: Schema
    n_rows: int  # training rows
    n_people: int  # distinct people; rows, without a subject key
    _table: pd.DataFrame  # features and target
    _subjects: Ints | None  # shape (n_rows,); None if each row is a person
    _key: bytes
    handles: Handles | None  # None without a key, or without a subject
    whole: SparkTable | None  # the table on Spark, if these are the rows of a sample

    def __init__(
        self,
        table: pd.DataFrame,
        schema: Schema,
        subjects: Ints | None,
        key: bytes,
        handles: Handles | None = None,
        whole: SparkTable | None = None,
    ) -> None:
        self.schema = schema
        self.n_rows = len(table)
        self._table = table
        self._subjects = subjects
        self._key = key
        self.handles = handles
        self.whole = whole
        self.n_people = self.people(np.arange(self.n_rows))
        self._is_complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_is_complete" in vars(self):
            raise AttributeError("a Population cannot be changed; build another one")
        super().__setattr__(name, value)

    def _counts(self) -> str:
        return f"{self.n_people} people, {self.n_rows} rows, {len(self.classes)} classes"

    def _repr_html_(self) -> str:
        """Return counts, and whole percent of the people."""
        risks = {k: self.risk_profile(k) for k in _SHOWN_K}
        sizes = {
            "people": f"{self.n_people:,}",
            "rows": f"{self.n_rows:,}",
            "different combinations of quasi-identifiers": f"{len(self.classes):,}",
            "alone with theirs": share(risks[_SHOWN_K[0]].unique),
        }
        for k, risk in risks.items():
            sizes[f"with fewer than {k - 1} others"] = share(risk.below_k)
        features = [a for a in self.schema.attributes if a.name in self.schema.features]
        columns = table(("column", "role", "kind"), [(a.name, a.role, a.kind) for a in features])
        return card(
            "Population",
            facts(sizes),
            columns,
            note="Shares are of the people, before any protection.",
        )

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, schema: Schema, *, key: bytes | None = None
    ) -> Population:
        """Code and collapse a table of training rows.

        Parameters
        ----------
        frame : DataFrame of the training rows, with every feature and the subject key of the schema
        schema : Schema
        key : bytes, optional
            Key (HMAC) of the fingerprint, of the order in which private values are offered to
            regions, and of the handles by which people are recognised in a later table; default:
            the environment variable ``CFK_KEY``. Setting or changing it changes everyone's answers,
            which is a second release of the same people. Without a key, fingerprints are comparable
            within this process only, and no one is recognised.

        Returns
        -------
        Population
            Identifiers are dropped. Equal quasi-identifiers are counted as one equivalence class.

        Raises
        ------
        PopulationError
            If columns are missing, or hold values that the schema does not allow.

        Warns
        -----
        CopiedRowsWarning
            If most rows have exact copies, more than by chance, and the schema names no subject.

        Notes
        -----
        If the schema declares the domain of every feature (``Schema.is_public``), a value that it
        does not allow raises no error here: the error would disclose that some person has such a
        value. Differential privacy leaves that person's row out. Whatever counts people raises the
        error when it is first used. A subject key that cannot be read is an error at once: it is
        no feature.
        """
        _check_schema(schema)
        frame = as_pandas(frame)
        if not isinstance(frame, pd.DataFrame) or (frame.empty and not schema.is_public):
            raise PopulationError(_NO_ROWS)
        check_columns(list(frame.columns), schema)
        columns = [c for c in (*schema.features, *schema.names("target")) if c in frame.columns]
        table = frame[columns].reset_index(drop=True)
        key = configured_key(key)
        subjects = _subjects_of(frame, schema)
        handles = _handles_of(frame, schema, key)
        if not schema.is_public:
            with doing("reading the table"):
                population = cls._counted(table, schema, subjects, key, handles)
            if subjects is None:
                _warn_of_copies(
                    frame[[a.name for a in schema.attributes if a.name in frame]], population
                )
            return population
        try:
            with quiet(
                "the table holds values that cannot be counted ({})",
                PopulationError,
                let=PopulationError,
            ):
                return cls._counted(table, schema, subjects, key, handles)
        except PopulationError as error:
            refusal = str(error)
        return _UncountedPopulation(table, schema, subjects, key, refusal)

    @classmethod
    def _counted(
        cls,
        table: pd.DataFrame,
        schema: Schema,
        subjects: Ints | None,
        key: bytes,
        handles: Handles | None,
        whole: SparkTable | None = None,
    ) -> Population:
        """Count the people of each equivalence class of a table.

        `subjects` are those of `_subjects_of`.
        """
        if table.empty:
            raise PopulationError(_NO_ROWS)
        if subjects is not None and (subjects < 0).any():
            raise PopulationError(
                f"subject key {schema.subject!r} has missing values; every row needs its person"
            )
        population = cls(table, schema, subjects, key, handles, whole)
        _check_rules(population.row_codes, population.coded_rows)
        return population

    @classmethod
    def from_parquet(
        cls, path: str | Path, schema: Schema, *, key: bytes | None = None
    ) -> Population:
        """Like `from_frame`, with the columns of a Parquet file that the schema names."""
        _check_schema(schema)
        load_pyarrow()
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls.from_frame(pd.read_parquet(path, columns=columns), schema, key=key)

    @classmethod
    def from_spark(
        cls, df: Any, schema: Schema, *, sample: int = 200_000, key: bytes | None = None
    ) -> Population:
        """Sample the people of a Spark table, for a catalogue that protects all of them.

        The population has the rows of the sample, and its counts are those of the sample. A fit
        builds the catalogue from them. One Spark job then looks at all rows: regions are widened to
        cover everyone, and private values that one to k - 1 people have are dropped. The table must
        not change until the fit is done. `KAnonymizer.transform`, detection and lookup guarantees
        need all rows in memory, and are refused.

        The codes cover the whole table: one aggregation collects all categories, and the lowest and
        highest number of each column, so they have to fit into the memory of this process.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            One row per training row, with every feature and the subject key of the schema.
        schema : Schema
        sample : int
            About how many people are sampled: those whose keyed hash is lowest. The hash is that of
            the subject key, or of the row without one. Equal rows are then all in the sample or all
            outside.
        key : bytes, optional
            As in `from_frame`. With a key, the sample has the same people in every process. It
            changes only as far as the table grows or shrinks.

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            If `df` is not a table of Spark, no one is sampled, or as in `from_frame`.
        """
        _check_schema(schema)
        if not is_spark_table(df):
            raise PopulationError(
                f"df must be a Spark DataFrame, got {type(df).__name__}; use Population.from_frame"
            )
        check_columns(df.columns, schema)
        key = configured_key(key)
        size = whole_number("sample", sample)
        with doing("sampling the Spark table"):
            whole = SparkTable.read(df, schema)
            frame = whole.sample(size, key or _PROCESS_KEY)
        subjects = _subjects_of(frame, schema)
        table = frame.drop(columns=schema.subject or [])
        with doing("reading the sample"):
            return cls._counted(
                table, schema, subjects, key, _handles_of(frame, schema, key), whole
            )

    @property
    def key(self) -> bytes:
        """The secret key; empty if there is none."""
        return self._key

    @property
    def has_key(self) -> bool:
        """Whether a secret key is behind the fingerprint, which is then the same wherever the key
        is.
        """
        return bool(self._key)

    # Rows: host code only, never released or logged

    @property
    def frame(self) -> pd.DataFrame:
        """Return a copy of the training rows."""
        return self._table.copy()

    def rows(self, positions: Ints) -> pd.DataFrame:
        """Return a copy of some of the training rows."""
        return self._table.take(positions)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column."""
        return self._table[name].copy()

    @cached_property
    def row_codes(self) -> Codes:
        """The encoder of rows; it covers the whole table if these are the rows of a sample."""
        if self.whole is None:
            codes = Codes.read(self._table, self.schema)
        else:
            codes = Codes.read(self.whole.with_edges(self._table), self.schema)
        for column in codes.columns:
            _locked(column.values)
        return codes

    @cached_property
    def coded_rows(self) -> Floats:
        """The training rows as a matrix, shape (n_rows, n_features); see `row_codes`."""
        return _locked(self.row_codes.encode(self._table))

    @cached_property
    def person_of_row(self) -> Ints:
        """The number of each row's person, shape (n_rows,)."""
        subjects = self._subjects
        person = np.arange(self.n_rows) if subjects is None else subjects
        return _locked(person)

    # Who is where

    @cached_property
    def classes(self) -> Floats:
        """The distinct combinations of quasi-identifiers, shape (n_classes, n_quasi)."""
        return self._classes[0]

    @cached_property
    def class_of_row(self) -> Ints:
        """The equivalence class of each row, shape (n_rows,)."""
        return self._classes[1]

    @cached_property
    def _classes(self) -> tuple[Floats, Ints]:
        classes, class_of_row = distinct_rows(self.coded_rows[:, self.row_codes.quasi])
        return _locked(classes), _locked(class_of_row)

    def members(self, region: Region) -> Ints:
        """Return the positions of the rows inside a region."""
        return self.row_codes.rows_inside(region, self.coded_rows)

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        return self.people(self.members(region))

    def people(self, rows: Ints) -> int:
        """Return the number of distinct people behind rows."""
        if self._subjects is None:
            return len(rows)
        return len(np.unique(self._subjects[rows]))

    def limited_rows(self, most: int) -> Ints:
        """Return the first rows of each person, at most so many, in the order of the table.

        Without a subject key all rows are returned, as each is another person's.
        """
        subjects = self._subjects
        if subjects is None:
            return np.arange(len(self._table))
        rows = np.flatnonzero(subjects >= 0)
        person = subjects[rows]
        n_earlier = pd.Series(person).groupby(person).cumcount().to_numpy()
        return rows[n_earlier < most]

    def smallest_classes(self) -> Ints:
        """Return, for every person, the number of people in the smallest class that they are in."""
        n_classes = len(self.classes)
        pairs = np.unique(self.person_of_row * n_classes + self.class_of_row)
        person, class_of_pair = np.divmod(pairs, n_classes)
        people_of_class = np.bincount(class_of_pair, minlength=n_classes)
        first_of_person = np.flatnonzero(np.diff(person, prepend=-1))
        smallest = np.minimum.reduceat(people_of_class[class_of_pair], first_of_person)
        return np.asarray(smallest, dtype=np.int64)

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return the share of people who are unique, and the share in a class of fewer than k."""
        smallest = self.smallest_classes()
        k = whole_number("k", k)
        return RiskProfile(
            unique=float(np.mean(smallest == 1)),
            below_k=float(np.mean(smallest < k)),
            k=k,
            people=len(smallest),
            classes=len(self.classes),
        )

    # Records in the population's terms

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features of a table as the training table has them; see `Codes.conform`."""
        return self.row_codes.conform(frame)

    @cached_property
    def fingerprint(self) -> str:
        """Keyed identity of what is counted (schema, classes, people of each), for any order of
        rows and columns.
        """
        people_of_class = np.bincount(self.class_of_row[self._counted_rows])
        counts = self.classes.astype("<f8").tobytes() + people_of_class.astype("<i8").tobytes()
        attributes = sorted((a.name, a.role, a.kind, a.weight) for a in self.schema.attributes)
        columns = [self.row_codes.columns[j] for j in self.row_codes.quasi.tolist()]
        values = ["\x1f".join(map(to_text, column.values.tolist())) for column in columns]
        declared = "".join([repr(attributes), *values]).encode()
        return hmac.digest(self._key or _PROCESS_KEY, declared + counts, "sha256").hex()[:16]

    @property
    def _counted_rows(self) -> Ints:
        """One row of each person: that of the first of their classes."""
        order = np.argsort(self.class_of_row, kind="stable")
        first = np.unique(self.person_of_row[order], return_index=True)[1]
        return order[first]


class _UncountedPopulation(Population):
    """A table that holds a value which its schema does not declare, so that it cannot be counted.

    Differential privacy reads its rows and leaves that row out. Whatever counts people is refused,
    and only when it is asked: a refusal at once would disclose that somebody has such a value.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        schema: Schema,
        subjects: Ints | None,
        key: bytes,
        refusal: str,
    ) -> None:
        self.schema = schema
        self._table = table
        self._subjects = subjects
        self._key = key
        self._refusal_to_count = refusal
        self._is_complete = True

    def __repr__(self) -> str:
        return "Population(not counted)"

    def _repr_html_(self) -> str:
        return card("Population", repr(self))

    def __getattr__(self, name: str) -> Any:
        """Refuse every attribute that is not set above, as it follows from counts."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise PopulationError(self._refusal_to_count)


def _check_rules(codes: Codes, rows: Floats) -> None:
    """Raise a `PopulationError` if training rows, shape (n_rows, n_features), break a rule."""
    for relation in codes.relations:
        if relation.unknown:
            raise PopulationError(
                f"rule {relation.text!r} compares {', '.join(relation.unknown)} with a value that"
                " the training table does not have there; correct the value"
            )
        n_broken = int((~relation.is_obeyed(rows)).sum())
        if n_broken:
            raise PopulationError(
                f"{share(n_broken / len(rows))} of the training rows break the rule"
                f" {relation.text!r}; correct the rule, or these rows"
            )


def _locked(array: NDArray[Number]) -> NDArray[Number]:
    """Return an array that protectors and other plugins cannot write to."""
    array.setflags(write=False)
    return array


def _warn_of_copies(table: pd.DataFrame, population: Population) -> None:
    """Warn if most rows have exact copies, although their values are too many for that by chance.

    They are one person's rows, or those of an export that was appended, and k would count copies.
    """
    if len(table) < _FEW_ROWS:
        return
    share = 0.0
    with suppress(TypeError):  # cells of identifiers may be lists
        share = float(table.duplicated(keep=False).mean())
    if share <= _MOST_COPIES:
        return
    n_equal_by_chance = float(len(table))
    for codes in population.coded_rows.T:
        shares = np.unique(codes, return_counts=True)[1] / len(table)
        n_equal_by_chance *= float(np.sum(shares**2))
    if n_equal_by_chance < 1:
        text = (
            "most rows of the table have exact copies, which count as people; name the person's key"
            " in subject, or drop the copies with table.drop_duplicates()"
        )
        warn(text, CopiedRowsWarning)


def check_population(value: object) -> None:
    require("population", value, Population, "make one with Population.from_frame(train, schema)")


def _check_schema(schema: object) -> None:
    instead = "declare one with Schema.from_frame(train, quasi_identifiers=[...])"
    require("schema", schema, Schema, instead, PopulationError)


def _handles_of(frame: pd.DataFrame, schema: Schema, key: bytes) -> Handles | None:
    """Return the handles of the people of a table; None without a key, or without a subject."""
    if not key or schema.subject is None:
        return None
    return Handles.of(frame[schema.subject], key)


def _subjects_of(frame: pd.DataFrame, schema: Schema) -> Ints | None:
    """Return the number of each row's person, -1 for nobody; None if each row is a person."""
    if schema.subject is None:
        return None
    keys = frame[schema.subject]
    unreadable_type = unreadable(keys, Hashable)
    if unreadable_type:
        raise PopulationError(
            f"subject key {schema.subject!r} holds {unreadable_type}; give each person one text or"
            " number"
        )
    if keys.dtype == object:
        # As texts, different keys stay apart; of objects, pandas would take True for 1, and for
        # 1.0.
        keys = keys.map(to_text, na_action="ignore")
    numbers, _ = pd.factorize(keys, use_na_sentinel=True)
    return np.asarray(numbers, dtype=np.int64)
