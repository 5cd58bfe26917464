"""On a real Spark: queries answered there get the answers of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.model import Thresholded
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.release.records import record_of
from local_spark import on_spark
from model_server import accepts, patients
from spark_models import (
    likely,
    loud_where_rich,
    named_by_pay,
    no_clerk,
    paid,
    panics_where_rich,
)

pytestmark = pytest.mark.slow  # every worker starts a Spark of its own

KEY = b"a secret of the tests"


def residents() -> pd.DataFrame:
    """Return 120 patients with illnesses that many of them share, as a catalogue needs them."""
    return patients(120).assign(illness=["a cold", "a burn"] * 60)


@pytest.fixture
def population() -> Population:
    """Return the patients that models of `model_server` are about, in memory."""
    train = residents().assign(name=range(120))
    schema = Schema.from_frame(train, quasi_identifiers=["age", "town"], identifiers=["name"])
    return Population.from_frame(train, schema, key=KEY)


def fitted(population: Population) -> KAnonymizer:
    """Fit a catalogue."""
    return KAnonymizer(policy=PrivacyPolicy(k=4)).fit(population, model=accepts, desired=1)


def plain(result: Any) -> list[dict[str, Any]]:
    """Return the records of a Spark table, by id."""
    rows = sorted(
        (row.asDict(recursive=True) for row in result.collect()), key=lambda row: row["id"]
    )
    return [{name: value for name, value in row.items() if name != "id"} for row in rows]


def test_jobs_obey_never_advised_values(spark: Any, tmp_path: Path) -> None:
    """A worker has the schema's rules, and its sentences are those of one machine."""
    train = pd.DataFrame(
        {"age": np.arange(60) % 20, "job": np.repeat(["clerk", "nurse", "none"], 20)}
    )
    schema = Schema.from_frame(train, quasi_identifiers=["age"], never_advise={"job": ["none"]})
    people = Population.from_frame(train, schema, key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4)).fit(people, no_clerk, True)
    df = on_spark(spark, train.assign(id=range(60)), tmp_path)
    records = plain(anonymizer.explain(df, keep=["id"]))
    sentences = [record["sentence"] for record in records]
    assert sentences == anonymizer.explain(train).text(train)
    assert "job “nurse” instead of “clerk”" in sentences[0]


def expected_records(
    anonymizer: KAnonymizer, queries: pd.DataFrame, **wishes: Any
) -> list[dict[str, Any]]:
    """Return the records of one machine, without the number of the query."""
    names = anonymizer.schema_.features
    people = queries[list(names)].to_dict("records")
    records = [
        record_of(entry, people[entry.query], names)
        for entry in anonymizer.explain(queries, **wishes)
    ]
    return [{name: r[name] for name in r if name != "query"} for r in records]


def test_spark_answers_as_one_machine(population: Population, spark: Any, tmp_path: Path) -> None:
    """From a catalogue that was fitted, and from one that was loaded."""
    queries = residents().assign(id=range(120))
    anonymizer = fitted(population)
    assert anonymizer.catalogue_ is not None
    anonymizer.catalogue_.save(tmp_path / "catalogue.cfk", key=KEY)
    loaded = KAnonymizer.load(tmp_path / "catalogue.cfk", accepts, key=KEY)
    df = on_spark(spark, queries, tmp_path)
    wishes: dict[str, Any] = {
        "answers": 2,
        "features_to_vary": ["pay", "illness", "town"],
        "max_changes": 2,
    }
    expected = expected_records(anonymizer, queries, **wishes)
    assert {record["status"] for record in expected} == {"released", "withheld"}
    for source in (anonymizer, loaded):
        result = source.explain(df, keep=["id"], **wishes)
        rows = [row.asDict(recursive=True) for row in result.collect()]
        assert sorted(row.pop("id") for row in rows) == np.repeat(range(120), 2).tolist()
        assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_jobs_have_the_goal(population: Population, spark: Any, tmp_path: Path) -> None:
    """A threshold, a range, and a set of labels; a worker pickles all of them."""
    queries = residents().assign(id=range(120))
    df = on_spark(spark, queries, tmp_path)
    for model, desired in (
        (Thresholded(likely, 0.3), 1),
        (paid, (1_200_000, 1_500_000)),
        (named_by_pay, {"some", "much"}),
    ):
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4)).fit(population, model, desired)
        expected = expected_records(anonymizer, queries)
        assert "released" in {record["status"] for record in expected}
        assert plain(anonymizer.explain(df, keep=["id"])) == expected


# --- failing closed -------------------------------------------------------------------------------


def test_failure_on_spark_is_withheld(
    population: Population, spark: Any, spark_console: Path, tmp_path: Path
) -> None:
    """Of a row or of the model; the console shows no value of a row."""
    hostile = pd.DataFrame(
        {
            "id": range(6),
            "age": ["30", "SENTINELtext", None, "inf", "30", "-1e400"],
            "town": ["Ghent", "Ghent", "Ghent", "Ghent", "SENTINELtown", None],
            "pay": ["1000003"] * 5 + [None],
            "illness": ["a cold"] * 6,
        }
    )
    good = fitted(population)
    found = plain(good.explain(on_spark(spark, hostile, tmp_path), keep=["id"]))
    assert [r["status"] for r in found] == ["released"] + ["withheld"] * 5
    assert found[1]["reason"] == "invalid_value"
    rich = on_spark(spark, residents().assign(id=range(120), pay=9_999_999), tmp_path)
    for model, reasons in (
        (loud_where_rich, {"model_failed"}),
        (panics_where_rich, {"protector_failed", "model_failed"}),
    ):
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4)).fit(population, model, desired=1)
        found = plain(anonymizer.explain(rich, keep=["id"]))
        assert {r["status"] for r in found} == {"withheld"}
        assert {r["reason"] for r in found} <= reasons
        assert {r["k"] for r in found} == {None}
    said = spark_console.read_text(errors="replace")
    assert "SENTINEL" not in said
    assert not any(str(pay) in said for pay in residents()["pay"])


def test_unreadable_date_is_not_logged(
    population: Population, spark: Any, spark_console: Path, tmp_path: Path
) -> None:
    """Arrow quotes a date that pandas cannot have; the job fails without it."""
    from pyspark.errors import PythonException
    from pyspark.sql import functions

    df = on_spark(spark, residents(), tmp_path)
    df = df.withColumn("until", functions.expr("timestamp'9999-12-31 03:04:05'"))
    with pytest.raises(PythonException, match="a worker cannot read some rows"):
        fitted(population).explain(df, keep=["until"]).collect()
    assert "2534022" not in spark_console.read_text(errors="replace")


def test_unsendable_call_is_refused(population: Population, spark: Any, tmp_path: Path) -> None:
    """Columns that are kept must not be quasi-identifiers, and a model must be picklable."""
    good = fitted(population)
    table = residents().assign(id=range(120))
    df = on_spark(spark, table, tmp_path)
    df = df.withColumn("K", df["id"]).withColumn("NAME", df["id"])
    refused: list[tuple[str, dict[str, Any]]] = [
        ("would not be protected", {"keep": ["age"]}),
        ("df lacks these columns", {"keep": ["who"]}),
        ("would not be protected", {"keep": ["NAME"]}),
        ("columns of the record", {"keep": ["K"]}),
        ("answers", {"answers": 0}),
        ("nobody", {"features_to_vary": ["nobody"]}),
        ("max_changes", {"max_changes": 0}),
        ("groups", {"groups": "town"}),
        ("track", {"track": True}),
    ]
    for message, options in refused:
        with pytest.raises(InputError, match=message):
            good.explain(df, **options)
    with pytest.raises(InputError, match="keep"):
        good.explain(table, keep=["id"])
    policy = PrivacyPolicy(k=4, guarantee="lookup")
    lookup = KAnonymizer(policy=policy).fit(population, model=accepts, desired=1)
    with pytest.raises(PolicyError, match="needs a catalogue"):
        lookup.explain(df)
    unsendable = KAnonymizer(policy=PrivacyPolicy(k=4)).fit(
        population, lambda rows: accepts(rows) + 0 * len(spark.version), desired=1
    )
    with pytest.raises(InputError, match="cannot be pickled"):
        unsendable.explain(df)
