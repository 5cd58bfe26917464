"""The population: the training rows as codes, their people and equivalence classes, and the risk
before protection.
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
    """Raise a PopulationError unless a table has every column of the schema, and each name once."""
    if len(set(columns)) != len(columns):
        raise PopulationError("the table has duplicate columns; rename or drop them")
    needed = [a.name for a in schema.attributes if a.role not in ("identifier", "target")]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise PopulationError(
            f"missing columns: {missing}{rename_hint(missing, columns, needed)}; the table needs"
            " every column that the schema names"
        )


def configured_key(key: bytes | None) -> bytes:
    """Return the key or, if it is None, that of the environment variable ``CFK_KEY``.

    It is empty if there is no key.
    """
    if key is not None and not isinstance(key, bytes):
        raise InputError(
            f"key must be bytes, got {type(key).__name__}; encode a text with .encode()"
        )
    return key or os.environ.get("CFK_KEY", "").encode()


@dataclass(frozen=True, slots=True)
class RiskProfile:
    """The risk of a population before any protection.

    Attributes
    ----------
    unique : float
        Share of the people who share their quasi-identifiers with no one (Table 5 of the paper).
    below_k : float
        Share of the people in an equivalence class of fewer than k people.
    k, people, classes : int
    """

    unique: float
    below_k: float
    k: int
    people: int
    classes: int

    def _repr_html_(self) -> str:
        rows = {
            "people": f"{self.people:,}",
            "different combinations of quasi-identifiers": f"{self.classes:,}",
            "people who share theirs with no one": share(self.unique),
            f"people who share theirs with fewer than {self.k - 1} others": share(self.below_k),
        }
        return card(
            f"Risk before protection, k = {self.k}",
            facts(rows),
            note=(
                "Shares of the people. An attacker who knows the quasi-identifiers of a person with"
                f" fewer than {self.k - 1} others finds fewer than {self.k} people."
            ),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Handles(HostOnly):
    """Keyed digests of subjects, by which people are recognised in another table.

    Attributes
    ----------
    of_row : shape (n_rows,)
        The digest of each row's subject.
    of_key : uint64
        A digest that is equal for two tables if their keys are.
    """

    of_row: NDArray[np.uint64]
    of_key: np.uint64

    @classmethod
    def of(cls, subjects: pd.Series, key: bytes) -> Handles:
        """Return the handles of the people in a column of subject keys."""
        numbers, distinct = pd.factorize(subjects)
        texts = [f"person {to_text(value)}" for value in distinct]
        digests = [hmac.digest(key, text.encode(), "sha256") for text in ["key", *texts]]
        handles = np.array([int.from_bytes(digest[:8]) for digest in digests], dtype=np.uint64)
        return cls(handles[1:][numbers], handles[0])


Number = TypeVar("Number", bound=np.generic)

_SHOWN_K = 5, 10, 20
_MOST_COPIES = 0.5  # the largest share of rows with exact copies that needs no warning
_FEW_ROWS = 50  # fewer rows may be equal by chance
_NO_ROWS = "a population needs a table (pandas, polars or pyarrow) with at least one row"
# without a key, fingerprints are comparable within this process only
_PROCESS_KEY = secrets.token_bytes(32)


class Population(HostOnly):
    """The people of the training table, among whom a person should not stand out.

    Build it with `Population.from_frame`, `from_parquet` or `from_spark`. People with equal
    quasi-identifiers are an equivalence class. A population contains training rows, so it must stay
    with the data holder: its `repr` shows only counts, and it cannot be pickled.

    Attributes
    ----------
    schema : Schema
    n_rows : int
        The number of training rows.
    n_people : int
        The number of people; that of rows if the schema names no subject.

    Examples
    --------
    >>> import pandas as pd
    >>> from cfk_plugin import Schema
    >>> train = pd.DataFrame({"age": [30, 30, 50], "income": [10.0, 20.0, 30.0]})
    >>> population = Population.from_frame(
    ...     train, Schema.from_frame(train, quasi_identifiers=["age"])
    ... )
    >>> population
    Population(3 people, 3 rows, 2 classes)
    """

    schema: Schema
    n_rows: int
    n_people: int
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
            raise AttributeError("a Population cannot be changed; build a new one")
        super().__setattr__(name, value)

    def _counts(self) -> str:
        return f"{self.n_people} people, {self.n_rows} rows, {len(self.classes)} classes"

    def _repr_html_(self) -> str:
        """Return counts, and shares of the people in whole percent."""
        risks = {k: self.risk_profile(k) for k in _SHOWN_K}
        sizes = {
            "people": f"{self.n_people:,}",
            "rows": f"{self.n_rows:,}",
            "different combinations of quasi-identifiers": f"{len(self.classes):,}",
            "people who share theirs with no one": share(risks[_SHOWN_K[0]].unique),
        }
        for k, risk in risks.items():
            sizes[f"people who share theirs with fewer than {k - 1} others"] = share(risk.below_k)
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
        """Build a population from a table of training rows.

        Parameters
        ----------
        frame : DataFrame (pandas, polars or pyarrow)
            The training rows, with every feature and the subject key of the schema. Columns with
            identifiers are not stored.
        schema : Schema
        key : bytes, optional
            The secret key (HMAC) for the fingerprint, for the order in which private values are
            offered to regions, and for the handles by which people are recognised in a later table.
            The default is the environment variable ``CFK_KEY``. A new or another key changes every
            person's answers, which is a second release of the same people. Without a key,
            fingerprints are comparable within this process only, and people are not recognised.

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            If a column is missing, or contains values that the schema does not allow.

        Warns
        -----
        CopiedRowsWarning
            If most rows have exact copies, more than by chance, and the schema names no subject.

        Notes
        -----
        If the schema declares the domain of every feature (``Schema.is_public``), a value outside
        of a domain raises no error here, as the error would disclose that some person has such a
        value. Differential privacy leaves out that person's row. Methods that count people raise
        the error later, when they are called. A subject key that cannot be read raises an error at
        once.
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
                "the table has values that cannot be counted ({})",
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
        """Return the population of a table after checking its rows and rules.

        `subjects` is the result of `_subjects_of`.
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
        """Build a population from those columns of a Parquet file that the schema names.

        Parameters
        ----------
        path : str or Path
        schema, key : as in `from_frame`

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            As in `from_frame`.
        """
        _check_schema(schema)
        load_pyarrow()
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls.from_frame(pd.read_parquet(path, columns=columns), schema, key=key)

    @classmethod
    def from_spark(
        cls, df: Any, schema: Schema, *, sample: int = 200_000, key: bytes | None = None
    ) -> Population:
        """Sample the people of a Spark table, for a catalogue that protects all of them.

        The population contains and counts only the rows of the sample, from which a fit builds the
        catalogue. One Spark job then reads all rows: it widens regions so that they cover every
        person, and drops private values that only one to k - 1 people have. The table must not
        change before the fit ends. `KAnonymizer.transform`, detection and lookup guarantees need
        all rows in memory, and raise an error.

        The codes cover the whole table. One aggregation collects all categories and the lowest and
        highest number of each column, so these have to fit into the memory of this process.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            The training rows, with every feature and the subject key of the schema.
        schema : Schema
        sample : int
            The approximate number of people in the sample: those with the lowest keyed hashes. The
            hash is that of the subject key or, without one, of the row. Without a subject key,
            equal rows are either all in the sample or all outside.
        key : bytes, optional
            As in `from_frame`. With a key, the sample has the same people in every process, and
            changes only as far as the table grows or shrinks.

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            If `df` is not a table of Spark or the sample is empty, and as in `from_frame`.
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
        """Whether there is a secret key; fingerprints are then comparable between processes."""
        return bool(self._key)

    # Rows: only for the data holder, never released or logged

    @property
    def frame(self) -> pd.DataFrame:
        """A copy of the training rows: features and target."""
        return self._table.copy()

    def rows(self, positions: Ints) -> pd.DataFrame:
        """Return a copy of the training rows at these positions."""
        return self._table.take(positions)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column of the training rows."""
        return self._table[name].copy()

    @cached_property
    def row_codes(self) -> Codes:
        """The encoder of rows. For a sample it covers the values of the whole table."""
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

    # People and equivalence classes

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
        """Return the positions of the rows inside a region, shape (n_inside,)."""
        return self.row_codes.rows_inside(region, self.coded_rows)

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        return self.people(self.members(region))

    def people(self, rows: Ints) -> int:
        """Return the number of people with rows at these positions."""
        if self._subjects is None:
            return len(rows)
        return len(np.unique(self._subjects[rows]))

    def limited_rows(self, most: int) -> Ints:
        """Return the positions of the first rows of each person, at most `most`, in order.

        Without a subject key every row is a person, so all positions are returned.
        """
        subjects = self._subjects
        if subjects is None:
            return np.arange(len(self._table))
        rows = np.flatnonzero(subjects >= 0)
        person = subjects[rows]
        n_earlier = pd.Series(person).groupby(person).cumcount().to_numpy()
        return rows[n_earlier < most]

    def smallest_classes(self) -> Ints:
        """Return the size in people of each person's smallest equivalence class, (n_people,)."""
        n_classes = len(self.classes)
        pairs = np.unique(self.person_of_row * n_classes + self.class_of_row)
        person, class_of_pair = np.divmod(pairs, n_classes)
        people_of_class = np.bincount(class_of_pair, minlength=n_classes)
        first_of_person = np.flatnonzero(np.diff(person, prepend=-1))
        smallest = np.minimum.reduceat(people_of_class[class_of_pair], first_of_person)
        return np.asarray(smallest, dtype=np.int64)

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return the shares of people who are unique or in a class of fewer than k people.

        Parameters
        ----------
        k : int

        Returns
        -------
        RiskProfile
        """
        smallest = self.smallest_classes()
        k = whole_number("k", k)
        return RiskProfile(
            unique=float(np.mean(smallest == 1)),
            below_k=float(np.mean(smallest < k)),
            k=k,
            people=len(smallest),
            classes=len(self.classes),
        )

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features of a table in the dtypes and spelling of the training table.

        A value that the population does not have stays as it is.
        """
        return self.row_codes.conform(frame)

    @cached_property
    def fingerprint(self) -> str:
        """A keyed hash of the schema, the equivalence classes and their numbers of people.

        The order of rows and columns makes no difference.
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
        """The position of one row of each person, the one in the first of the person's classes."""
        order = np.argsort(self.class_of_row, kind="stable")
        first = np.unique(self.person_of_row[order], return_index=True)[1]
        return order[first]


class _UncountedPopulation(Population):
    """A table with a value that its schema does not declare, so that its people are not counted.

    Differential privacy reads the rows and leaves out the row with this value. All other methods
    raise an error, but only when they are called: an error at once would disclose that a person has
    such a value.
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
        """Raise the error for every attribute that `__init__` does not set: it needs counts."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise PopulationError(self._refusal_to_count)


def _check_rules(codes: Codes, rows: Floats) -> None:
    """Raise a `PopulationError` if training rows, shape (n_rows, n_features), break a rule."""
    for relation in codes.relations:
        if relation.unknown:
            raise PopulationError(
                f"rule {relation.text!r} compares {', '.join(relation.unknown)} with a value that"
                " the column does not have in the training table; correct the value"
            )
        n_broken = int((~relation.is_obeyed(rows)).sum())
        if n_broken:
            raise PopulationError(
                f"{share(n_broken / len(rows))} of the training rows break the rule"
                f" {relation.text!r}; correct the rule, or these rows"
            )


def _locked(array: NDArray[Number]) -> NDArray[Number]:
    """Make an array read-only, so that protectors and other plugins cannot write to it."""
    array.setflags(write=False)
    return array


def _warn_of_copies(table: pd.DataFrame, population: Population) -> None:
    """Warn if most rows have exact copies, and their values are too varied for chance.

    Copies are several rows of one person, or a file that was appended twice. k would count them as
    people.
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
            "most rows of the table have exact copies, and each copy counts as a person; name the"
            " column with the person's key in subject, or drop the copies with"
            " table.drop_duplicates()"
        )
        warn(text, CopiedRowsWarning)


def check_population(value: object) -> None:
    """Raise an error if a value is not a Population."""
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
    """Return the number of each row's person, shape (n_rows,), or -1 if the key is missing.

    Without a subject in the schema, return None: each row is a person.
    """
    if schema.subject is None:
        return None
    keys = frame[schema.subject]
    unreadable_type = unreadable(keys, Hashable)
    if unreadable_type:
        raise PopulationError(
            f"subject key {schema.subject!r} has cells of type {unreadable_type}; give each person"
            " one text or number"
        )
    if keys.dtype == object:
        # pandas would read the objects True, 1 and 1.0 as one key; their texts stay apart
        keys = keys.map(to_text, na_action="ignore")
    numbers, _ = pd.factorize(keys, use_na_sentinel=True)
    return np.asarray(numbers, dtype=np.int64)
