"""The rows behind the cells of a population: in this process, on a Spark cluster, or counted and
sealed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import CodeIndex, Codes, Domain, Rows
from cfk_plugin.data.encoded_table import Encoder
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import (
    CFKError,
    HostOnly,
    PolicyError,
    PopulationError,
    load_extra,
    quiet,
)

Work = Callable[[pd.DataFrame], pd.DataFrame]
_TABLES = "position long, width long, numbers binary"
# keyed numbers are unsigned, Spark's are signed: flipping the top bit keeps their order
_TOP = np.uint64(1 << 63)
_CHANGED = (
    "the table on the cluster is not what it was when it was counted; cache or store it, and count"
    " it again"
)
_NOT_INSTALLED = (
    "a worker lacks a package; install cfk-plugin[spark] and the model's packages in the Python of"
    " the workers, which PYSPARK_PYTHON names (default: the first python3 of their PATH)"
)


class RowStore(HostOnly):
    """Where the rows behind the cells of a population are, and what can be asked of them there.

    There is a class for each situation: rows in this process (`RowsHere`), rows on a cluster
    (`RowsOnCluster`), and people who were counted before the population was sealed (`SealedCells`,
    `SealedCatalogue`). Where rows are not in this process, each person stands for one row. Whatever
    needs rows that are elsewhere is refused with the advice of the situation.
    """

    is_here = False  # whether rows are in this process
    knows_cells = True  # whether the combinations of quasi-identifiers are known
    # the population's own, where they cannot be computed from what is here
    fingerprint: str | None = None
    order_key: bytes | None = None
    _refusal = PopulationError, "{} holds training rows, or their cells, and refuses to be pickled"
    _advice = "there are no rows here"

    def __init__(self, cell_of_row: Rows) -> None:
        self.cell_of_row = cell_of_row  # shape (n_rows,)
        # shape (n_rows,); number of the person of each row; None where each row is a person
        self.subjects: Rows | None = None
        # shape (n_people,); the keys of these persons
        self.subject_keys: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.cell_of_row)

    @property
    def table(self) -> pd.DataFrame:
        """The rows; refused where they are elsewhere."""
        raise PopulationError(self._advice)

    def rows_to_try(self, most: int) -> pd.DataFrame | None:  # noqa: ARG002
        """Return a copy of the first rows, on which a model can be tried; None without rows."""
        return None

    def columns_here(self, names: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return those of the columns whose values are in this process."""
        return ()

    def keyed_numbers(
        self, rows: Rows, number_records: Callable[[pd.DataFrame], NDArray[np.uint64]]
    ) -> NDArray[np.uint64]:
        """Return the keyed number of each row; `number_records` computes those of a table."""
        return number_records(self.table.take(rows))

    def check_policy(
        self, policy: PrivacyPolicy, *, counts_rows_per_call: bool, needs_private_values: bool
    ) -> None:
        """Refuse a policy that needs private values or predictions which are not here.

        Parameters
        ----------
        policy : PrivacyPolicy
        counts_rows_per_call : bool
            Whether its guarantee counts l and t of a region in each call.
        needs_private_values : bool
            Whether its guarantee is made of the private values of people.
        """

    def run(self, work: Callable[[Rows], Rows], tables: list[Rows]) -> list[Rows]:
        """Apply a function to tables of numbers, two at a time: each takes up to a gigabyte."""
        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(work, tables)]

    def map(self, work: Callable[[pd.DataFrame, Any], pd.DataFrame], columns: str) -> pd.DataFrame:  # noqa: ARG002
        """Apply a function to rows on a cluster; `columns` are the names and Spark types of its
        result.
        """
        raise PopulationError(self._advice)


class RowsHere(RowStore):
    """Rows in a table of this process."""

    is_here = True

    def __init__(
        self,
        table: pd.DataFrame,
        cell_of_row: Rows,
        subjects: Rows | None = None,
        subject_keys: NDArray[np.object_] | None = None,
    ) -> None:
        super().__init__(cell_of_row)
        self.subjects = subjects
        self.subject_keys = subject_keys
        self._table = table

    @property
    def table(self) -> pd.DataFrame:
        return self._table

    def rows_to_try(self, most: int) -> pd.DataFrame:
        return self._table.take(np.arange(min(most, len(self))))

    def columns_here(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(names)


class SealedCells(RowStore):
    """People of each cell, counted before the population was sealed."""

    _advice = "a sealed population has no rows; use the population that it was sealed from"

    def __init__(self, cell_people: Rows, fingerprint: str, order_key: bytes | None) -> None:
        super().__init__(np.repeat(np.arange(len(cell_people)), cell_people))
        self.fingerprint = fingerprint
        self.order_key = order_key

    def check_policy(
        self, policy: PrivacyPolicy, *, counts_rows_per_call: bool, needs_private_values: bool
    ) -> None:
        del needs_private_values  # they were needed before sealing
        counts_values = policy.l is not None or policy.t is not None
        if counts_values and counts_rows_per_call:
            raise PolicyError(
                "l and t of a region of its own are counted in rows, and a sealed population has"
                " none"
            )


class SealedCatalogue(SealedCells):
    """Regions of a catalogue, which were sealed in the place of cells: where a person is, is not
    known.
    """

    knows_cells = False

    def __init__(self, fingerprint: str, order_key: bytes | None) -> None:
        super().__init__(np.empty(0, dtype=np.int64), fingerprint, order_key)


def collapse(encoder: Encoder, frame: pd.DataFrame) -> tuple[Codes, Rows]:
    """Return the distinct combinations of quasi-identifiers of a table, shape (n_cells,
    n_quasi_identifiers), and the position of each row's among them, shape (n_rows,).
    """
    domains = [encoder.domains[name] for name in encoder.schema.quasi_identifiers]
    columns = [domain.encode(frame[domain.attribute.name])[0] for domain in domains]
    key = np.zeros(len(frame), dtype=np.int64)  # mixed radix: equal for equal combinations
    span = 1
    for codes, domain in zip(columns, domains, strict=True):
        # renumber before the mixed-radix key overflows
        if span > np.iinfo(np.int64).max // (domain.size + 1):
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key = key * domain.size + codes
        span *= domain.size
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    cells = np.column_stack([codes[first] for codes in columns]).astype(np.int32)
    return cells, inverse.astype(np.int64)


def one_row_each(cell_of_row: Rows, subjects: Rows | None) -> Rows:
    """Return the rows at which people are counted: each at one row of the first of their cells."""
    if subjects is None:
        return np.arange(len(cell_of_row))
    line = np.argsort(cell_of_row, kind="stable")
    return line[np.unique(subjects[line], return_index=True)[1]]


def in_order(codes: Codes, schema: Schema, *before: NDArray[Any]) -> Rows:
    """Sort coded records by their values, whatever the order of rows and columns."""
    if before:
        line = np.lexsort(before[::-1])
        tied = np.all([np.diff(key[line]) == 0 for key in before], axis=0)
        if not (codes[line[1:]] != codes[line[:-1]])[tied].any():  # nearly always, and much faster
            return line
    return np.lexsort((*codes.T[list(schema.canonical)], *before[::-1]))


# The rows of a Spark DataFrame: counted on the cluster, and divided there, so that no row reaches
# the driver.


class RecordReader:
    """How workers number records: made per job and never stored, as its pickle holds values and the
    key.
    """

    def __init__(
        self, encoder: Encoder, key: bytes | None = None, cells: Codes | None = None
    ) -> None:
        self.encoder = encoder
        self.key = key
        self.cells = cells

    def numbers(self, frame: pd.DataFrame) -> NDArray[np.uint64]:
        """Return the keyed number of each record; 0 without a key."""
        if self.key is None:
            return np.zeros(len(frame), dtype=np.uint64)
        return self.encoder.keyed_order(self.key, *self.encoder.encode(frame))

    @cached_property
    def index(self) -> CodeIndex:
        """Where the cells are; each worker makes its own."""
        if self.cells is None:
            return CodeIndex(np.empty((0, 0), dtype=np.int32))
        return CodeIndex(self.cells)

    def __reduce__(self) -> tuple[Any, ...]:
        names = [field.name for field in fields(Domain) if field.init]
        parts = {
            name: [getattr(domain, n) for n in names]
            for name, domain in self.encoder.domains.items()
        }
        return _arrived, (self.encoder.schema, parts, self.key, self.cells)


def _arrived(
    schema: Schema, parts: Mapping[str, Sequence[Any]], key: bytes | None, cells: Codes | None
) -> RecordReader:
    return RecordReader(
        Encoder(schema, {name: Domain(*values) for name, values in parts.items()}), key, cells
    )


class RowsOnCluster(RowStore):
    """The rows of a Spark DataFrame.

    Each person stands for one row here; people of a cell are in keyed order.
    """

    _advice = (
        "the rows are on a cluster and stay there; nothing that reads them one by one can be"
        " asked for"
    )

    def __init__(self, df: Any, schema: Schema, key: bytes) -> None:
        self._df = df
        self._key = key
        self.encoder, self.cells, self.people = _counted(df, schema)
        super().__init__(np.repeat(np.arange(len(self.people)), self.people))
        self._numbers = np.zeros(len(self), dtype=np.uint64)
        self._has_numbers = np.zeros(len(self.cells), dtype=bool)

    def keyed_numbers(
        self,
        rows: Rows,
        number_records: Callable[[pd.DataFrame], NDArray[np.uint64]],  # noqa: ARG002 - workers do
    ) -> NDArray[np.uint64]:
        return self.numbers(rows)

    def check_policy(
        self, policy: PrivacyPolicy, *, counts_rows_per_call: bool, needs_private_values: bool
    ) -> None:
        del counts_rows_per_call  # l and t are refused here, whenever they are counted
        refused_settings = []
        if policy.l is not None:
            refused_settings.append("l")
        if policy.t is not None:
            refused_settings.append("t")
        if needs_private_values:
            refused_settings.append(f'guarantee="{policy.guarantee}"')
        if refused_settings:
            raise PolicyError(
                f"{', '.join(refused_settings)}: judged by private values or predictions of"
                ' people, and these rows stay on the cluster; use guarantee="lookup", or'
                " Population.from_frame or from_parquet"
            )

    def numbers(self, rows: Rows) -> NDArray[np.uint64]:
        """Return keyed numbers of people; those of a whole cell are computed on the cluster,
        once.
        """
        cells = np.unique(self.cell_of_row[rows])
        new_cells = cells[~self._has_numbers[cells]]
        if len(new_cells):
            self._fetch_numbers(new_cells)
        return self._numbers[rows]

    def _fetch_numbers(self, cells: Rows) -> None:
        """Fetch the keyed numbers of all people of some cells, smallest first in each cell."""
        reader = RecordReader(self.encoder, self._key, self.cells)
        located_people = _to_pandas(_people(self._df, reader, cells))
        cell = located_people["cell"].to_numpy(dtype=np.int64)
        people = np.bincount(cell, minlength=len(self.cells))
        if not np.array_equal(people[cells], self.people[cells]):
            raise PopulationError(_CHANGED)
        number = unsigned(located_people["number"])
        order = np.lexsort((number, cell))  # people of this process are sorted by their cells
        self._numbers[np.isin(self.cell_of_row, cells)] = number[order]
        self._has_numbers[cells] = True

    def map(
        self, work: Callable[[pd.DataFrame, RecordReader], pd.DataFrame], columns: str
    ) -> pd.DataFrame:
        reader = RecordReader(self.encoder, self._key)
        names = self.encoder.schema.features
        table = select_columns(self._df, names)
        return _to_pandas(
            spread(table, names, lambda frame: work(reader.encoder.conform(frame), reader), columns)
        )

    def run(self, work: Callable[[Rows], Rows], tables: list[Rows]) -> list[Rows]:
        def on_worker(frame: pd.DataFrame) -> pd.DataFrame:
            arrays = (np.frombuffer(numbers, dtype=np.int64) for numbers in frame["numbers"])
            worked_tables = [
                work(array.reshape(-1, width))
                for array, width in zip(arrays, frame["width"], strict=True)
            ]
            return pd.DataFrame(
                {
                    "position": frame["position"],
                    "width": [table.shape[1] for table in worked_tables],
                    "numbers": [table.astype(np.int64).tobytes() for table in worked_tables],
                }
            )

        records = [(i, table.shape[1], table.tobytes()) for i, table in enumerate(tables)]
        sent = self._df.sparkSession.createDataFrame(records, _TABLES).repartitionByRange(
            len(records), "position"
        )
        returned = _to_pandas(spread(sent, sent.columns, on_worker, _TABLES))
        returned = returned.sort_values("position")
        return [
            np.frombuffer(numbers, dtype=np.int64).reshape(-1, width)
            for width, numbers in zip(returned["width"], returned["numbers"], strict=True)
        ]


def _counted(df: Any, schema: Schema) -> tuple[Encoder, Codes, NDArray[np.int64]]:
    """Count the people of each cell on the cluster, and learn how to read the table."""
    functions = spark_functions()
    quasi = schema.quasi_identifiers
    table = select_columns(df, quasi)
    combinations = _to_pandas(
        table.groupBy(*table.columns).agg(functions.count(functions.lit(1)).alias("people"))
    )
    if combinations.empty:
        raise PopulationError("a population needs a table with at least one row")
    people = combinations.pop("people").to_numpy(dtype=np.float64)
    combinations.columns = pd.Index(quasi)
    quasi_domains = {name: Domain.of(combinations[name], schema[name]) for name in quasi}
    encoder = Encoder(schema, {**quasi_domains, **_private_domains(df, schema)})
    cells, cell = collapse(encoder, combinations)
    if schema.subject is not None:
        located_people = _people(df, RecordReader(encoder, cells=cells))
        counts = _to_pandas(located_people.groupBy("cell").count())
        cell = counts["cell"].to_numpy()
        people = counts["count"].to_numpy()
    people_of_cell = np.bincount(cell, weights=people, minlength=len(cells)).astype(np.int64)
    return encoder, cells, people_of_cell


def _people(df: Any, reader: RecordReader, wanted_cells: NDArray[np.int64] | None = None) -> Any:
    """Return a Spark table of the cell and the keyed number of each person.

    With a subject key, a person with several rows belongs to their cell with the least position in
    ``reader.cells``, wanted or not.

    Parameters
    ----------
    df : Spark table of the training rows
    reader : RecordReader
        It knows the cells, and the key for the numbers of records.
    wanted_cells : int64, shape (n_wanted_cells,), optional
        The cells whose people are returned; by default all cells.
    """
    schema = reader.encoder.schema
    names = schema.features

    def locate(frame: pd.DataFrame) -> pd.DataFrame:
        """Return the cell and the keyed number of each row; runs on a worker.

        Rows of a cell that is not wanted all get the number 0. They are dropped later, so that it
        makes no difference which of them stands for a person.
        """
        domains = [reader.encoder.domains[name] for name in schema.quasi_identifiers]
        codes = np.column_stack(
            [domain.encode(frame[domain.attribute.name])[0] for domain in domains]
        )
        cell = reader.index.find(codes)
        if (cell < 0).any():
            raise PopulationError(_CHANGED)
        is_wanted = np.ones(len(frame), dtype=bool)
        if wanted_cells is not None:
            is_wanted = np.isin(cell, wanted_cells)
        number = np.zeros(len(frame), dtype=np.uint64)
        number[is_wanted] = reader.numbers(frame[is_wanted])
        return pd.DataFrame({"cell": cell, "number": signed(number), "is_wanted": is_wanted})

    def locate_rows(frame: pd.DataFrame) -> pd.DataFrame:
        """Return cell and number of the rows in wanted cells, of which each is a person's."""
        located = locate(frame)
        return located.loc[located["is_wanted"], ["cell", "number"]]

    def locate_rows_with_person(frame: pd.DataFrame) -> pd.DataFrame:
        """Return all rows with their person.

        Rows in unwanted cells stay, as a person may belong to such a cell.
        """
        return locate(frame).assign(person=frame[schema.subject].to_numpy())

    if schema.subject is None:
        return spread(select_columns(df, names), names, locate_rows, "cell long, number long")
    functions = spark_functions()
    table = select_columns(df, (*names, schema.subject))
    subject_column = table.columns[-1]
    person_without_key = table.filter(_gap(table, subject_column)).limit(1)
    if len(_to_pandas(person_without_key.select(functions.lit(1)))):
        raise PopulationError(
            f"subject key {schema.subject!r} has missing values; every row needs its person"
        )
    kind = table.schema[subject_column].dataType.simpleString()
    located = spread(
        table,
        (*names, schema.subject),
        locate_rows_with_person,
        f"cell long, number long, is_wanted boolean, person {kind}",
    )
    first_row = functions.min(functions.struct("cell", "number", "is_wanted")).alias("first")
    people = located.groupBy("person").agg(first_row)
    return people.filter("first.is_wanted").select("first.cell", "first.number")


def spread(table: Any, names: Sequence[str], work: Work, columns: Any) -> Any:
    """Apply a function to a Spark table; it sees the given column names."""

    def map_batches(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            batch.columns = pd.Index(names)
            # Spark sends what is raised here, text and all, to the driver and its logs; ours name
            # columns at most
            with quiet("{} on a worker", PopulationError, let=CFKError):
                mapped_batch = work(batch)
            yield mapped_batch

    return table.mapInPandas(map_batches, columns)


def signed(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (numbers ^ _TOP).view(np.int64)


def unsigned(numbers: pd.Series) -> NDArray[np.uint64]:
    return np.asarray(numbers.to_numpy(dtype=np.int64).view(np.uint64) ^ _TOP, dtype=np.uint64)


def _to_pandas(table: Any) -> pd.DataFrame:
    """Run a job.

    A failure is told by its class alone, and Spark's warning that repeats it is dropped.
    """
    with quiet("the job on the cluster failed", PopulationError, let=PopulationError):
        try:
            with warnings.catch_warnings(action="ignore"):
                frame: pd.DataFrame = table.toPandas()
        except Exception as error:
            text = str(error)  # it says which of our sentences it is, and goes no further
            if _CHANGED in text:
                raise PopulationError(_CHANGED) from None
            if "ModuleNotFoundError" in text:
                raise PopulationError(_NOT_INSTALLED) from None
            raise
    return frame


def _private_domains(df: Any, schema: Schema) -> dict[str, Domain]:
    """Return what may be known of private attributes: type, and whether values are missing."""
    from pyspark.sql.types import StructField, StructType

    if not schema.private:
        return {}
    functions = spark_functions()
    table = select_columns(df, schema.private)
    gaps = [functions.max(_gap(table, name).cast("int")) for name in table.columns]
    domains = {}
    for name, field, gap in zip(
        schema.private, table.schema, _to_pandas(table.agg(*gaps)).iloc[0], strict=True
    ):
        # a made-up column of the same Spark type shows which dtype pandas gives it
        form = StructType([StructField("made_up", field.dataType)])
        made_up_rows = [(None,)] if gap else []
        made_up = _to_pandas(df.sparkSession.createDataFrame(made_up_rows, form))
        is_date = field.dataType.typeName() in ("date", "timestamp", "timestamp_ntz")
        dtype = made_up["made_up"].dtype
        domains[name] = Domain.unlisted(schema[name], dtype, has_missing=bool(gap), is_date=is_date)
    return domains


def _gap(table: Any, name: str) -> Any:
    missing = table[name].isNull()
    is_float = table.schema[name].dataType.typeName() in ("float", "double")
    if is_float:
        return missing | spark_functions().isnan(table[name])
    return missing


def select_columns(df: Any, names: Sequence[str]) -> Any:
    """Return columns of a Spark table under names that need no quoting."""
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    return df.select(*quoted).toDF(*(f"c{i}" for i in range(len(names))))


def spark_functions() -> Any:
    return load_extra("pyspark.sql.functions", "spark", "Spark needs PySpark")
