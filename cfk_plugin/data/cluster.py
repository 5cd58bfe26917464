"""The rows behind the cells on a Spark cluster: counted there, and divided there, so that no row reaches the driver."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.coding import Coding, KeyedOrder, NoRows, find_rows, index_rows, require_columns
from cfk_plugin.data.domain import Domain
from cfk_plugin.errors import CFKError, MissingDependencyError, PopulationError, quiet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.schema import Schema

Work = Callable[[pd.DataFrame], pd.DataFrame]
_TOP = np.uint64(1 << 63)  # keyed numbers are unsigned, Spark's are signed: flipping the top bit keeps their order


class Counted(NamedTuple):
    """What is known of a table on a cluster: how to read it, its cells, and the people of each."""

    coding: Coding
    cells: NDArray[np.int32]
    people: NDArray[np.int64]


class Sent:
    """How workers read and number records: made for a job and nowhere kept, as it is pickled with values and key.

    Coding, domains and order refuse to be pickled. Workers are the data holder's, and have the rows.
    """

    def __init__(self, coding: Coding, order: KeyedOrder | None = None) -> None:
        self.coding, self.order = coding, order

    def numbers(self, frame: pd.DataFrame) -> NDArray[np.uint64]:
        """Return the keyed number of each record of a table; 0 without an order."""
        return np.zeros(len(frame), dtype=np.uint64) if self.order is None else self.order.of(frame)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel in parts."""
        names = [field.name for field in fields(Domain)]
        parts = {name: [getattr(domain, n) for n in names] for name, domain in self.coding.domains.items()}
        return _arrived, (self.coding.schema, parts, None if self.order is None else self.order.key)


def _arrived(schema: Schema, parts: Mapping[str, Sequence[Any]], key: bytes | None) -> Sent:
    coding = Coding(schema, {name: Domain(*values) for name, values in parts.items()})
    return Sent(coding, None if key is None else KeyedOrder(coding, key))


class RowsOnCluster(NoRows):
    """The rows of a Spark DataFrame. Here, each person stands for one row; people of a cell are in keyed order."""

    are_told_apart = True
    _advice = "the rows are on a cluster and stay there; nothing that reads them one by one can be asked for"

    def __init__(self, df: Any, counted: Counted) -> None:
        super().__init__(counted.people)
        self._df, self._counted = df, counted
        self._number = np.zeros(len(self.cell_of_row), dtype=np.uint64)
        self._known = np.zeros(len(counted.cells), dtype=bool)

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed numbers of some people; those of whole cells are computed on the cluster, once."""
        asked = np.unique(self.cell_of_row[at])
        if len(new := asked[~self._known[asked]]):
            found = _to_pandas(_people(self._df, self._counted, order, new))
            cell = found["cell"].to_numpy(dtype=np.int64)
            if not np.array_equal(np.bincount(cell, minlength=len(self._known))[new], self._counted.people[new]):
                raise PopulationError(_CHANGED)
            number = unsigned(found["number"])
            self._number[np.isin(self.cell_of_row, new)] = number[np.lexsort((number, cell))]
            self._known[new] = True
        return self._number[at]

    def map(self, work: Work, columns: str) -> pd.DataFrame:
        """Return what a function makes of the rows, a few thousand at a time, on the workers."""
        sent = Sent(self._counted.coding)
        names = sent.coding.schema.features
        table = selected(self._df, names)
        return _to_pandas(spread(table, names, lambda frame: work(sent.coding.conform(frame)), columns))


_CHANGED = "the table on the cluster is not what it was when it was counted; cache or store it, and count it again"

_NOT_INSTALLED = (
    "a worker lacks a package; install cfk-plugin[spark] and the model's packages in the Python of the workers, "
    "which PYSPARK_PYTHON names (default: the first python3 of their PATH)"
)


def counted(df: Any, schema: Schema) -> Counted:
    """Count the people of each combination of quasi-identifiers on the cluster; learn how to read the table."""
    functions = spark_functions()
    require_columns(df.columns, schema)
    quasi = schema.quasi_identifiers
    cells = selected(df, quasi)
    found = _to_pandas(cells.groupBy(*cells.columns).agg(functions.count(functions.lit(1)).alias("people")))
    if found.empty:
        raise PopulationError("a population needs a table with at least one row")
    people = found.pop("people").to_numpy(dtype=np.float64)
    found.columns = pd.Index(quasi)
    known = {name: Domain.of(found[name], schema[name]) for name in quasi}
    coding = Coding(schema, {**known, **_private_domains(df, schema)})
    codes, cell = coding.collapse(found)
    number = np.bincount(cell, weights=people, minlength=len(codes)).astype(np.int64)
    if schema.subject is None:
        return Counted(coding, codes, number)
    once = _to_pandas(_people(df, Counted(coding, codes, number)).groupBy("cell").count())
    number = np.bincount(once["cell"], weights=once["count"], minlength=len(codes)).astype(np.int64)
    return Counted(coding, codes, number)


def _people(df: Any, known: Counted, order: KeyedOrder | None = None, wanted: NDArray[np.int64] | None = None) -> Any:
    """Return a Spark table with the cell, and the keyed number, of each person."""
    functions, schema = spark_functions(), known.coding.schema
    names, subject = schema.features, schema.subject
    cells, sent = known.cells, Sent(known.coding, order)
    index = index_rows(cells)

    def places(frame: pd.DataFrame) -> pd.DataFrame:
        cell = find_rows(cells, np.column_stack(sent.coding.quasi(frame)), index)
        if (cell < 0).any():
            raise PopulationError(_CHANGED)
        number = np.zeros(len(frame), dtype=np.uint64)
        asked = np.ones(len(frame), dtype=bool)
        if wanted is not None:
            asked = np.isin(cell, wanted)
        number[asked] = sent.numbers(frame[asked])
        table = pd.DataFrame({"cell": cell, "number": signed(number)})
        return table[asked] if subject is None else table.assign(asked=asked, person=frame[subject].to_numpy())

    if subject is None:
        return spread(selected(df, names), names, places, "cell long, number long")
    table = selected(df, (*names, subject))
    kind = table.schema[table.columns[-1]].dataType.simpleString()
    if len(_to_pandas(table.filter(_gap(table, table.columns[-1])).limit(1).select(functions.lit(1)))):
        raise PopulationError(f"subject key {subject!r} has missing values; every row needs its person")
    placed = spread(table, (*names, subject), places, f"cell long, number long, asked boolean, person {kind}")
    first = placed.groupBy("person").agg(functions.min(functions.struct("cell", "number", "asked")).alias("first"))
    return first.filter("first.asked").select("first.cell", "first.number")


def spread(table: Any, names: Sequence[str], work: Work, columns: Any) -> Any:
    """Return the Spark table that a function makes of another one; the function sees the given column names."""

    def each(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            batch.columns = pd.Index(names)
            yield _constant(work, batch)

    return table.mapInPandas(each, columns)


def signed(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return keyed numbers as Spark can hold them, in the same order."""
    return (numbers ^ _TOP).view(np.int64)


def unsigned(numbers: pd.Series) -> NDArray[np.uint64]:
    """Return keyed numbers that Spark has held."""
    return np.asarray(numbers.to_numpy(dtype=np.int64).view(np.uint64) ^ _TOP, dtype=np.uint64)


def _constant(work: Work, batch: pd.DataFrame) -> pd.DataFrame:
    """Run on a worker; Spark sends what is raised there to the driver and to its logs, text and all."""
    with quiet("{} on a worker", PopulationError, let=CFKError):  # ours name columns at most
        return work(batch)


def _to_pandas(table: Any) -> pd.DataFrame:
    """Run a job; of its failure only the class is told, and no warning, in which Spark repeats it."""
    with quiet("the job on the cluster failed", PopulationError, let=PopulationError):
        try:
            with warnings.catch_warnings(action="ignore"):
                found: pd.DataFrame = table.toPandas()
        except Exception as error:  # noqa: BLE001 - its text says which of our sentences it is, and goes no further
            raise PopulationError(_told(str(error), type(error).__name__)) from None
    return found


def _told(text: str, kind: str) -> str:
    """Return what may be said of a job's failure: one of our own sentences."""
    if _CHANGED in text:
        return _CHANGED
    if "ModuleNotFoundError" in text:
        return _NOT_INSTALLED
    return f"the job on the cluster failed ({kind})"


def _private_domains(df: Any, schema: Schema) -> Mapping[str, Domain]:
    """Return what may be known of private attributes: type, and whether values are missing."""
    if not schema.private:
        return {}
    functions, table = spark_functions(), selected(df, schema.private)
    counts = [functions.max(_gap(table, name).cast("int")) for name in table.columns]
    has_missing = _to_pandas(table.agg(*counts)).iloc[0].astype(bool).tolist()
    return {
        name: Domain.unlisted(
            schema[name], _dtype(df, field, missing=missing), has_missing=missing, is_date=_is_date(field)
        )
        for name, field, missing in zip(schema.private, table.schema, has_missing, strict=True)
    }


def _gap(table: Any, name: str) -> Any:
    """Return whether a value is missing, as pandas sees it."""
    missing = table[name].isNull()
    is_float = table.schema[name].dataType.typeName() in ("float", "double")
    return missing | spark_functions().isnan(table[name]) if is_float else missing


def _dtype(df: Any, field: Any, *, missing: bool) -> Any:
    """Return the dtype that pandas gives to a column of Spark, by asking for a made-up one."""
    from pyspark.sql.types import StructField, StructType

    form = StructType([StructField("made_up", field.dataType)])
    return _to_pandas(df.sparkSession.createDataFrame([(None,)] if missing else [], form))["made_up"].dtype


def _is_date(field: Any) -> bool:
    return field.dataType.typeName() in ("date", "timestamp", "timestamp_ntz")


def selected(df: Any, names: Sequence[str]) -> Any:
    """Return columns of a Spark table under names that need no quoting."""
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    return df.select(*quoted).toDF(*(f"c{i}" for i in range(len(names))))


def spark_functions() -> Any:
    """Return Spark's functions of columns."""
    try:
        from pyspark.sql import functions
    except ImportError:
        raise MissingDependencyError("Spark needs PySpark; pip install 'cfk-plugin[spark]'") from None
    return functions
