"""A training table on Spark: a sample of its people, and the extreme values of all rows."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from cfk_plugin.data.region import to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import conform
from cfk_plugin.errors import HostOnly, PopulationError, load_extra, quiet

PERSON = "person"
"""The column with the person of each row."""

Batch = TypeVar("Batch", pd.DataFrame, pd.Series)


def functions() -> Any:
    """Return the module with Spark's functions of columns."""
    return load_extra("pyspark.sql.functions", "spark", "tables of Spark need PySpark")


def plain_columns(df: Any, names: Sequence[str]) -> Any:
    """Return the named columns of a Spark table as c0, c1, ..., which need no quoting."""
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    return df.select(*quoted).toDF(*(f"c{i}" for i in range(len(names))))


def is_spark_table(table: object) -> bool:
    """Return whether a table is a DataFrame of Spark."""
    return type(table).__module__.startswith("pyspark.") and hasattr(table, "mapInPandas")


def quietly(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches of a worker, and replace an error while reading with one without values.

    The reason: Arrow quotes a date that pandas cannot represent, and Spark logs the text of errors.
    """
    while True:
        with quiet("a worker cannot read some rows ({})", PopulationError, is_public=True):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@dataclass(frozen=True, eq=False, repr=False)
class SparkTable(HostOnly):
    """A training table on Spark.

    Attributes
    ----------
    rows : pyspark.sql.DataFrame
        The features, in the order of the schema, as columns c0, c1, ..., and the column ``person``:
        the subject of each row, or a number if the schema names no subject.
    schema : Schema
    n_rows, n_people : int
    edges : mapping of feature to Series
        The lowest and highest number, or all categories, and a missing value if a row has one.
    """

    rows: Any
    schema: Schema
    n_rows: int
    n_people: int
    edges: dict[str, pd.Series]

    @classmethod
    def read(cls, df: Any, schema: Schema) -> SparkTable:
        """Count people, and find the edges of all features, in one aggregation.

        Raises
        ------
        PopulationError
            If a row has no subject, or Spark fails.
        """
        sql = functions()
        one = sql.lit(1)
        if schema.subject is None:
            rows = plain_columns(df, schema.features)
            rows = rows.withColumn(PERSON, sql.monotonically_increasing_id())
            n_people = sql.count(one)
        else:
            rows = plain_columns(df, [*schema.features, schema.subject])
            rows = rows.withColumnRenamed(rows.columns[-1], PERSON)
            n_people = sql.count_distinct(PERSON)
        aggregates = [
            sql.count(one).alias("rows"),
            n_people.alias("people"),
            sql.count_if(_is_missing(rows, PERSON)).alias("without_person"),
        ]
        for i, name in enumerate(schema.features):
            is_number = schema[name].kind == "numeric"
            aggregates += _aggregates(rows, i, is_number=is_number)
        with quiet("Spark cannot read the table ({})", PopulationError):
            summary = rows.agg(*aggregates).toPandas()
        if summary["without_person"][0] > 0:
            raise PopulationError(
                f"subject key {schema.subject!r} has missing values; every row needs its person"
            )
        edges = {name: _edges(summary, i) for i, name in enumerate(schema.features)}
        return cls(rows, schema, int(summary["rows"][0]), int(summary["people"][0]), edges)

    def _counts(self) -> str:
        return f"{self.n_people} people, {self.n_rows} rows"

    def sample(self, size: int, key: bytes) -> pd.DataFrame:
        """Return features and subject of about `size` people, in the order of their keyed hashes.

        A person is in the sample if the hash, a number from 0 to 1, is below the sampled share. So
        the sample changes only as far as the table grows or shrinks.
        """
        sql = functions()
        *features, person = self.rows.columns

        def shares(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for persons in quietly(batches):
                texts = [f"sample {to_text(person)}" for person in persons]
                digests = [hmac.digest(key, text.encode(), "sha256") for text in texts]
                yield pd.Series([int.from_bytes(digest[:7]) / 2**56 for digest in digests])

        identity = sql.col(person)
        if self.schema.subject is None:
            identity = sql.xxhash64(*features)
        # declared as not deterministic, so that Spark calls it once for each row
        share = sql.pandas_udf(shares, "double").asNondeterministic()
        rows = self.rows.withColumn("share", share(identity))
        with quiet("Spark cannot sample the table ({})", PopulationError):
            sample = rows.where(sql.col("share") < size / max(self.n_people, 1)).toPandas()
        sample = sample.sort_values(["share", *features], ignore_index=True)
        if self.schema.subject is None:
            return pd.DataFrame(sample[features].set_axis(self.schema.features, axis=1))
        names = [*self.schema.features, self.schema.subject]
        return pd.DataFrame(sample[[*features, person]].set_axis(names, axis=1))

    def with_edges(self, sample: pd.DataFrame) -> dict[str, pd.Series]:
        """Return each feature of a sample, followed by its edges in the whole table."""
        return {
            name: pd.concat([sample[name], conform(edges, sample[name].dtype)], ignore_index=True)
            for name, edges in self.edges.items()
        }


def _aggregates(rows: Any, i: int, *, is_number: bool) -> list[Any]:
    """Return the aggregates of column i: missing values, and extreme numbers or categories."""
    sql = functions()
    is_missing = _is_missing(rows, rows.columns[i])
    value = sql.when(~is_missing, sql.col(rows.columns[i]))
    n_missing = sql.count_if(is_missing).alias(f"missing{i}")
    if is_number:
        return [n_missing, sql.min(value).alias(f"low{i}"), sql.max(value).alias(f"high{i}")]
    return [n_missing, sql.collect_set(value).alias(f"values{i}")]


def _is_missing(rows: Any, name: str) -> Any:
    """Return a column of Spark that is true in the rows without a value in the named column."""
    sql = functions()
    is_missing = sql.col(name).isNull()
    if dict(rows.dtypes)[name] in ("float", "double"):
        return is_missing | sql.isnan(name)
    return is_missing


def _edges(summary: pd.DataFrame, i: int) -> pd.Series:
    """Return the edges of a feature from the aggregation of `SparkTable.read`."""
    if f"values{i}" in summary:
        values = pd.Series(list(summary[f"values{i}"][0]))
    else:
        ends = pd.concat([summary[f"low{i}"], summary[f"high{i}"]], ignore_index=True)
        values = ends.dropna()
    if summary[f"missing{i}"][0] > 0:
        return values.reindex(range(len(values) + 1))
    return values
