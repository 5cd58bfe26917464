"""The default guarantee on a real Spark: what is made of a sample is true of all rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import PolicyError, PopulationError
from local_spark import on_spark
from oracle import World, find_faults
from spark_models import affords

pytestmark = pytest.mark.slow  # every worker starts a Python of its own

KEY = b"a secret of the tests"
K = 4
QUASI = ["age", "town"]
OUTLIER = {"age": 97, "town": "Zele", "savings": np.nan, "income": 39, "job": "pilot"}
"""Someone with the highest age, and the only one with this town, job and missing savings."""


def clients(n: int = 3_000) -> pd.DataFrame:
    """Return people with some rows; many have each income below 40, and few each one above."""
    random = np.random.default_rng(7)
    person = random.integers(0, n // 2, n)
    is_rich = random.random(n) < 0.1
    table = pd.DataFrame(
        {
            "person": [f"client {number}" for number in person],
            "age": random.integers(20, 60, n),
            "town": random.choice(["Aa", "Bree", None], n, p=[0.6, 0.3, 0.1]),
            "savings": random.choice([0.0, 1.0, 2.0], n),
            "income": np.where(is_rich, random.integers(40, 400, n), random.integers(0, 40, n)),
            "job": random.choice(["clerk", "nurse", "smith"], n),
        }
    )
    return pd.concat(
        [table, pd.DataFrame([{"person": "an outlier", **OUTLIER}])], ignore_index=True
    )


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return the whole training table."""
    return clients()


@pytest.fixture(scope="module")
def schema(table: pd.DataFrame) -> Schema:
    """Return a schema with the person of each row."""
    return Schema.from_frame(table, quasi_identifiers=QUASI, subject="person")


@pytest.fixture(scope="module")
def df(spark: Any, table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the whole training table on Spark."""
    return on_spark(spark, table, tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="module")
def sampled(df: Any, schema: Schema) -> Population:
    """Return a sample of about every fourth person; the outlier is not in it."""
    population = Population.from_spark(df, schema, sample=400, key=KEY)
    assert 97 not in population.column("age").tolist()
    return population


@pytest.fixture(scope="module")
def anonymizer(sampled: Population) -> KAnonymizer:
    """Return the catalogue of the sample."""
    return KAnonymizer(policy=PrivacyPolicy(k=K)).fit(sampled, affords, "yes")


def world(table: pd.DataFrame) -> World:
    """Return what the oracle counts in: all rows."""
    return World(
        train=table,
        quasi_identifiers=QUASI,
        predict=affords,
        desired=lambda labels, _: labels == "yes",
        k=K,
        subject="person",
    )


def faults_of(*arguments: Any, **settings: Any) -> list[str]:
    """Return what the oracle finds.

    The sample has not all combinations of a region, so its pureness is a little different.
    """
    faults = find_faults(*arguments, **settings)
    return [fault for fault in faults if "states a pureness" not in fault]


def test_entries_hold_for_all_rows(anonymizer: KAnonymizer, table: pd.DataFrame) -> None:
    """The oracle recounts k, and "k people or no one", in the whole table."""
    published = anonymizer.published()
    assert len(published) > 50
    assert {entry.certificate.k for entry in published} == {K}
    assert faults_of(published, world(table), most=100) == []


def test_answers_hold_for_all_rows(anonymizer: KAnonymizer, table: pd.DataFrame) -> None:
    """Queries from outside the sample are answered, the outlier's too."""
    queries = table[affords(table) == "no"].tail(40)
    answers = anonymizer.explain(queries)
    assert all(answer.status == "released" for answer in answers)
    assert faults_of(answers, world(table), queries) == []


def test_regions_cover_everyone(anonymizer: KAnonymizer, table: pd.DataFrame) -> None:
    """Someone outside the sample, with a town that no one in it has, is in a region."""
    regions = anonymizer.catalogue_.parts[0].catalogue.regions
    rows = anonymizer.codes_.encode(table)
    assert not np.isnan(rows).any()
    assert regions.cover(rows).all()
    assert len({str(regions.region(i)) for i in range(len(regions))}) == len(regions)


def test_values_of_few_people_are_dropped(
    sampled: Population, anonymizer: KAnonymizer, schema: Schema, table: pd.DataFrame
) -> None:
    """An income that no one in the sample has may be that of one to k - 1 people."""
    alone = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(
        Population.from_frame(sampled.frame.assign(person=sampled.person_of_row), schema, key=KEY),
        affords,
        "yes",
    )
    before = incomes(alone)
    after = incomes(anonymizer)
    n_people = table.groupby("income")["person"].nunique()
    of_few = {income for income in before if 0 < n_people.get(income, 0) < K}
    assert of_few
    assert after <= before - of_few
    assert before - of_few <= after


def incomes(anonymizer: KAnonymizer) -> set[float]:
    """Return the incomes that a catalogue may contain."""
    shared = anonymizer.catalogue_.parts[0].catalogue.shared
    return set(next(s.values.tolist() for s in shared if s.column.name == "income"))


def test_whole_table_equals_pandas(df: Any, table: pd.DataFrame) -> None:
    """If everyone is in the sample, nothing is widened or dropped."""
    schema = Schema.from_frame(table.drop(columns="person"), quasi_identifiers=QUASI)
    everyone = Population.from_spark(df, schema, key=KEY)
    published = [
        KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, affords, "yes").published()
        for population in (everyone, Population.from_frame(everyone.frame, schema, key=KEY))
    ]
    assert published[0].to_json() == published[1].to_json()


def test_sample_is_fixed(df: Any, schema: Schema, sampled: Population) -> None:
    """It has the same people and rows in any order of the table, and others with another key."""
    again = Population.from_spark(df.orderBy("income").repartition(5), schema, sample=400, key=KEY)
    pd.testing.assert_frame_equal(again.frame, sampled.frame)
    other = Population.from_spark(df, schema, sample=400, key=b"another")
    assert len(other.frame.merge(sampled.frame)) < len(sampled.frame)


def test_sample_stays_as_people_join(
    spark: Any, schema: Schema, table: pd.DataFrame, sampled: Population, tmp_path: Path
) -> None:
    """When the table grows by a tenth, about a tenth of the sampled people make room."""
    joined = pd.concat([table, clients(300).assign(person=lambda rows: "new " + rows["person"])])
    later = Population.from_spark(on_spark(spark, joined, tmp_path), schema, sample=400, key=KEY)
    before = set(sampled.handles.of_row.tolist())
    assert len(before & set(later.handles.of_row.tolist())) > 0.8 * len(before)


def test_rows_without_a_subject_are_people(spark: Any, table: pd.DataFrame, tmp_path: Path) -> None:
    """The hash is that of the row then."""
    rows = table.drop(columns="person")
    schema = Schema.from_frame(rows, quasi_identifiers=QUASI)
    population = Population.from_spark(
        on_spark(spark, rows, tmp_path), schema, sample=1_000, key=KEY
    )
    assert 800 < population.n_people < 1_200
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, affords, "yes")
    every_row = World(**{**vars(world(rows)), "subject": None})
    assert faults_of(anonymizer.published(), every_row, most=50) == []


def test_numbers_as_subjects_are_recognised(
    spark: Any, schema: Schema, table: pd.DataFrame, tmp_path: Path
) -> None:
    """A catalogue of pandas knows the people of Spark: 3.00 is the subject 3."""
    number = table["person"].str.removeprefix("client ").replace("an outlier", "-1")
    whole = Population.from_frame(table.assign(person=number), schema, key=KEY)
    decimals = number.map(lambda text: Decimal(f"{text}.00"))
    df = on_spark(spark, table.assign(person=decimals), tmp_path)
    population = Population.from_spark(df, schema, key=KEY)
    assert set(population.handles.of_row) == set(whole.handles.of_row)


def test_next_catalogue_follows_the_previous_one(
    anonymizer: KAnonymizer, df: Any, schema: Schema, table: pd.DataFrame
) -> None:
    """The same table gives the same file, and kept regions are not widened."""
    population = Population.from_spark(df, schema, sample=400, key=KEY)
    again = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(
        population, affords, "yes", previous=anonymizer.catalogue_
    )
    assert again.published().to_json() == anonymizer.published().to_json()
    changed = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(
        Population.from_spark(df.where("age < 55"), schema, sample=600, key=KEY),
        affords,
        "yes",
        previous=anonymizer.catalogue_,
    )
    assert changed.catalogue_.changes.new > 0
    faults = find_faults(changed.published(), world(table), most=50)
    assert [fault for fault in faults if "belong" in fault] == []


def test_comparison_needs_all_rows(
    anonymizer: KAnonymizer, sampled: Population, table: pd.DataFrame
) -> None:
    """Lookup guarantees, `transform` and detection compare with training rows."""
    rows = table.head(3)
    with pytest.raises(PolicyError, match="lookup guarantee"):
        KAnonymizer(policy=PrivacyPolicy(guarantee="lookup")).fit(sampled, affords, "yes")
    with pytest.raises(PolicyError, match=r"Population\.from_frame"):
        anonymizer.transform(rows, rows)
    with pytest.raises(PolicyError, match=r"Population\.from_frame"):
        anonymizer.findings(anonymizer.rows(rows), instance_based=False)


def test_wrapped_explainer_is_not_compared(sampled: Population, table: pd.DataFrame) -> None:
    """Its own counterfactuals are neither released nor examined; the catalogue answers."""
    refused = table[affords(table) == "no"].drop(columns="person").head(5)
    private = protect(
        lambda queries: queries, model=affords, population=sampled, k=K, desired="yes"
    )
    assert [answer.status for answer in private.explain(refused)] == ["released"] * 5


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("person", None, "every row needs its person"), ("savings", np.inf, "infinite")],
)
def test_unusable_rows_are_refused(
    column: str,
    value: Any,
    message: str,
    schema: Schema,
    table: pd.DataFrame,
    spark: Any,
    tmp_path: Path,
) -> None:
    """Rows need a person; numbers have to be finite outside the sample, too."""
    df = on_spark(spark, table.assign(**{column: [value, *table[column][1:]]}), tmp_path)
    with pytest.raises(PopulationError, match=message):
        Population.from_spark(df, schema, sample=10)


def test_unusable_tables_are_refused(df: Any, schema: Schema, table: pd.DataFrame) -> None:
    """A table of Spark with all columns is expected."""
    with pytest.raises(PopulationError, match="missing columns"):
        Population.from_spark(df.drop("income"), schema)
    with pytest.raises(PopulationError, match="Spark DataFrame"):
        Population.from_spark(table, schema)


NO_DATE = "timestamp'9999-12-31 03:04:05'"
"""A date that Arrow cannot convert to pandas; it quotes the microseconds."""
CANARIES = "SENTINEL", "2534022"


@pytest.mark.parametrize("value", ["'SENTINELjob'", NO_DATE])
def test_failing_workers_log_no_value(
    schema: Schema, sampled: Population, spark_console: Path, value: str
) -> None:
    """A table that changed after the sample was drawn has values without a code."""
    from pyspark.sql import functions

    rows = sampled.whole.rows
    job = rows.columns[schema.features.index("job")]
    vars(sampled.whole)["rows"] = rows.withColumn(job, functions.expr(value))
    try:
        with pytest.raises(PopulationError, match="a worker cannot read some rows"):
            KAnonymizer(policy=PrivacyPolicy(k=K)).fit(sampled, affords, "yes")
    finally:
        vars(sampled.whole)["rows"] = rows
    console = spark_console.read_text(errors="replace")
    assert not any(canary in console for canary in CANARIES)


def test_unreadable_subject_is_not_logged(df: Any, schema: Schema, spark_console: Path) -> None:
    """The workers that draw the sample fail, and quote nothing."""
    from pyspark.sql import functions

    dated = df.withColumn("person", functions.expr(NO_DATE))
    with pytest.raises(PopulationError, match="Spark cannot sample the table"):
        Population.from_spark(dated, schema)
    console = spark_console.read_text(errors="replace")
    assert not any(canary in console for canary in CANARIES)
