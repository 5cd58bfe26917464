"""On a real Spark: a population counted there, and counterfactuals protected there, are those of
one machine.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    GeneralizedCounterfactual,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    Schema,
)
from cfk_plugin.data import rows as stores
from cfk_plugin.data.model import Thresholded
from cfk_plugin.data.rows import RowsOnCluster
from cfk_plugin.errors import BundleError, InputError, LedgerError, PolicyError, PopulationError
from cfk_plugin.protection.partition import microaggregation as groups
from cfk_plugin.serving.records import RECORD, record_of
from cfk_plugin.serving.spark import explain_spark, protect_spark
from local_spark import on_spark
from model_server import accepts, logged, patients
from random_tables import described, random_table
from spark_models import (
    likely,
    loud,
    loud_where_rich,
    named,
    named_by_pay,
    no_clerk,
    paid,
    panics_where_rich,
    rich,
)

pytestmark = pytest.mark.slow  # every worker starts a Spark of its own

KEY = b"a secret of the tests"


def crowded(seed: int) -> pd.DataFrame:
    """Return a random table in which a combination has so many people that they are divided."""
    train = random_table(seed)
    many = [
        train.head(1).assign(pay=pay % 6, illness="abcd"[pay % 4], person=1000 + pay)
        for pay in range(30)
    ]
    return pd.concat([train, *many], ignore_index=True)


def both(
    spark: Any, train: pd.DataFrame, schema: Schema, folder: Path
) -> tuple[Population, Population]:
    """Return the population of a table in memory, and on Spark."""
    there = Population.from_spark(on_spark(spark, train, folder), schema, key=KEY)
    return Population.from_frame(train, schema, key=KEY), there


def fitted(
    population: Population, model: Any = rich, desired: Any = 1, **settings: Any
) -> KAnonymizer:
    return KAnonymizer(policy=PrivacyPolicy(**{"guarantee": "lookup", "k": 4, **settings})).fit(
        population, model=model, desired=desired
    )


@pytest.fixture
def population() -> Population:
    """Return the patients that models of `model_server` are about, in memory."""
    train = patients(120)
    return Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "town"]), key=KEY
    )


def assert_same_counts(one: Population, other: Population) -> None:
    assert one.cells.tolist() == other.cells.tolist()
    assert one.cell_people.tolist() == other.cell_people.tolist()
    assert one.fingerprint == other.fingerprint
    for name, domain in one.domains.items():
        found = other.domains[name]
        assert (found.dtype, found.has_missing, found.is_date) == (
            domain.dtype,
            domain.has_missing,
            domain.is_date,
        )
        if name in one.schema.quasi_identifiers:
            assert found.values.tolist() == domain.values.tolist()
            assert found.originals.tolist() == domain.originals.tolist()
        else:
            assert found.is_open


# --- counting -------------------------------------------------------------------------------------


def test_cells_people_and_domains_are_those_of_the_table(spark: Any, tmp_path: Path) -> None:
    train = random_table(3)
    schema = described(train).schema
    here, there = both(spark, train, schema, tmp_path)
    assert_same_counts(here, there)
    assert (
        here.keyed_order(*here.encode(train)).tolist()
        == there.keyed_order(*there.encode(train)).tolist()
    )
    assert here.risk_profile(5) == there.risk_profile(5)
    assert not there.has_rows
    stored = Population.from_parquet(next(tmp_path.glob("*.parquet")), schema, key=KEY)
    fitted(there).seal(tmp_path / "population.cfk")
    opened = Population.open(tmp_path / "population.cfk", key=KEY)
    assert len({p.fingerprint for p in (here, there, stored, opened)}) == 1


def test_whatever_types_the_columns_have(spark: Any, tmp_path: Path) -> None:
    n = 40
    rng = np.random.default_rng(1)
    gap = rng.random(n) < 0.2
    train = pd.DataFrame(
        {
            "small": rng.integers(0, 3, n).astype("int8"),
            "single": rng.integers(0, 3, n).astype("float32") / 3,
            "flag": pd.array(np.where(gap, None, rng.random(n) < 0.5), dtype="boolean"),
            "whole": pd.array(np.where(gap, None, rng.integers(0, 3, n)), dtype="Int64"),
            "day": [dt.date(2020, 1, int(d)) for d in rng.integers(1, 4, n)],
            "code": rng.integers(1000, 1003, n),
            "label": pd.Categorical(rng.choice(list("xyz"), n)),
            "a `strange`. name": rng.integers(0, 2, n),
            "pay": np.where(gap, np.nan, rng.integers(0, 9, n)),
            "born": pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="h"),
        }
    )
    df = on_spark(spark, train, tmp_path)
    same = df.toPandas()  # as pandas reads it from Spark
    schema = Schema.from_frame(same, quasi_identifiers=list(train)[:8], nominal=["code", "label"])
    for part in (
        schema,
        Schema.from_frame(same, quasi_identifiers=["pay", "born"], nominal=["code", "label"]),
    ):
        here, there = (
            Population.from_frame(same, part, key=KEY),
            Population.from_spark(df, part, key=KEY),
        )
        assert_same_counts(here, there)
        assert (
            here.keyed_order(*here.encode(same)).tolist()
            == there.keyed_order(*there.encode(same)).tolist()
        )


def test_people_with_several_rows_are_counted_once(spark: Any, tmp_path: Path) -> None:
    train = crowded(1)
    schema = described(train, subject=True).schema
    here, there = both(spark, train, schema, tmp_path)
    assert_same_counts(here, there)
    assert there.n_people == train["person"].nunique()
    anonymizer = fitted(there)
    released = anonymizer.transform(train).released
    assert released
    for entry in released:
        assert 4 <= entry.certificate.k <= here.count(entry.region)


def test_what_cannot_be_counted_is_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CFK_KEY", raising=False)
    train = random_table(1)
    schema = described(train, subject=True).schema
    df = on_spark(spark, train, tmp_path)
    with pytest.raises(PopulationError, match="needs a key"):
        Population.from_spark(df, schema)
    with pytest.raises(PopulationError, match=r"missing columns: \['pay'\]"):
        Population.from_spark(df.drop("pay"), schema, key=KEY)
    with pytest.raises(PopulationError, match="at least one row"):
        Population.from_spark(df.filter("pay > 100"), schema, key=KEY)
    for gap in ("nullif(person, person)", "double('NaN')"):
        some = df.selectExpr("*", f"if(pay < 3, {gap}, person) as someone").drop("person")
        with pytest.raises(PopulationError, match="'person' has missing values"):
            Population.from_spark(some.withColumnRenamed("someone", "person"), schema, key=KEY)


def test_a_table_that_changed_since_it_was_counted_is_noticed(spark: Any, tmp_path: Path) -> None:
    train = crowded(1)
    schema = described(train).schema
    df, more = (
        on_spark(spark, train, tmp_path),
        on_spark(spark, pd.concat([train, train]), tmp_path),
    )
    rows = RowsOnCluster(df, schema, KEY)
    rows._df = more
    with pytest.raises(PopulationError, match="is not what it was"):
        rows.numbers(np.arange(len(train)))


# --- fitting on it --------------------------------------------------------------------------------

SETTINGS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, named, "opposite"),
    ({"objective": "ncp"}, rich, 1),
    ({"guarantee": "lookup"}, rich, 1),
]


@pytest.mark.parametrize(
    ("settings", "model", "desired"), SETTINGS, ids=lambda of: getattr(of, "__name__", str(of))
)
def test_every_record_is_released_as_by_one_machine(
    settings: dict[str, Any], model: Any, desired: Any, spark: Any, tmp_path: Path
) -> None:
    train = crowded(2)
    here, there = both(spark, train, described(train).schema, tmp_path)
    one, other = (fitted(p, model, desired, **settings) for p in (here, there))
    strangers = train.assign(pay=train["pay"].to_numpy()[::-1])
    for asked in (train, strangers):
        assert one.regions_of(asked) == other.regions_of(asked)
        found = [
            (facts(a), facts(b))
            for a, b in zip(one.transform(asked), other.transform(asked), strict=True)
        ]
        assert [a for a, _ in found] == [b for _, b in found]
    if not settings.get("guarantee"):  # people of one combination are indeed divided
        assert one.guarantee_.partition is not None
        assert max(np.diff(one.guarantee_.partition.divided[0].start)) > 1


def test_blocks_that_the_cluster_divides_are_those_of_one_machine_however_rows_lie(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "BLOCK", 10)
    train = pd.concat([crowded(2), crowded(3)], ignore_index=True)
    schema = described(train).schema
    one = fitted(Population.from_frame(train, schema, key=KEY), named, "opposite")
    jobs: list[int] = []
    run = RowsOnCluster.run
    monkeypatch.setattr(
        RowsOnCluster, "run", lambda self, *of: jobs.append(len(of[1])) or run(self, *of)
    )
    for i, shares in enumerate((1, 5)):
        shuffled = train.sample(frac=1, random_state=i)
        (tmp_path / str(i)).mkdir()
        df = on_spark(spark, shuffled, tmp_path / str(i)).repartition(shares)
        there = fitted(Population.from_spark(df, schema, key=KEY), named, "opposite")
        assert there.regions_of(train) == one.regions_of(train)
    assert min(jobs) > 1


def facts(entry: Any) -> Any:
    """What leaves of an entry, and what is certified of it without looking at rows."""
    if not isinstance(entry, GeneralizedCounterfactual):
        return entry
    c = entry.certificate
    return (
        entry.region,
        dict(entry.released),
        c.k,
        entry.recount.k_effective,
        entry.recount.k_consistent,
        c.ncp,
        c.pureness,
        c.population,
    )


def test_what_is_judged_by_rows_is_refused(spark: Any, tmp_path: Path) -> None:
    train = random_table(1)
    there = Population.from_spark(
        on_spark(spark, train, tmp_path), described(train).schema, key=KEY
    )
    refused: list[tuple[dict[str, Any], str]] = [
        ({"l": 2}, "^l: judged"),
        ({"t": 0.5}, "^t: judged"),
        ({"guarantee": "catalogue"}, "catalogue"),
    ]
    for settings, message in refused:
        with pytest.raises(PolicyError, match=message):
            fitted(there, **settings)
    with pytest.raises(PopulationError, match="are on a cluster and stay there"):
        there.frame  # noqa: B018 - the access is what is refused


def test_no_private_value_reaches_the_driver_or_a_bundle(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, collected = patients(200), []
    collect = stores._to_pandas
    monkeypatch.setattr(
        stores, "_to_pandas", lambda table: collected.append(collect(table)) or collected[-1]
    )
    schema = Schema.from_frame(
        train.head(1).assign(pay=1, illness="made up"), quasi_identifiers=["age", "town"]
    )
    there = Population.from_spark(on_spark(spark, train, tmp_path), schema, key=KEY)
    fitted(there, accepts).seal(tmp_path / "population.cfk")
    came = "".join(table.to_csv() for table in collected)
    assert len(collected) >= 4
    kept = (tmp_path / "population.cfk").read_bytes()
    for word in (*train["illness"], *train["pay"].astype(str), KEY.decode()):
        assert word not in came
        assert word.encode() not in kept


# --- protecting on it -----------------------------------------------------------------------------


def asked() -> pd.DataFrame:
    """Counterfactuals with an id, and the factual of each."""
    table = patients(120)
    factual = table.assign(pay=1, town="Ghent").add_prefix("factual_")
    return pd.concat([table, factual], axis=1).assign(id=np.arange(len(table)) * 7)


def single_machine(
    anonymizer: KAnonymizer, table: pd.DataFrame, *, factuals: bool
) -> list[dict[str, Any]]:
    """Return the records of one machine."""
    population, names = anonymizer.population_, list(anonymizer.population_.schema.features)
    facts = table[[f"factual_{n}" for n in names]].set_axis(names, axis=1) if factuals else None
    told = facts.to_dict("records") if facts is not None else [None] * len(table)
    entries = anonymizer.transform(table, facts)
    return [record_of(e, t, names, population.domains) for e, t in zip(entries, told, strict=True)]


def plain(result: Any) -> list[dict[str, Any]]:
    """Return the records of a Spark table, by id."""
    rows = sorted(
        (row.asDict(recursive=True) for row in result.collect()), key=lambda row: row["id"]
    )
    return [{name: value for name, value in row.items() if name != "id"} for row in rows]


@pytest.mark.parametrize(("guarantee", "desired"), [("lookup", 1), ("lookup", "opposite")])
def test_records_are_those_of_one_machine(
    guarantee: str, desired: Any, population: Population, spark: Any, tmp_path: Path
) -> None:
    table = asked()
    anonymizer = fitted(population, accepts, desired, guarantee=guarantee)
    factuals = desired == "opposite"
    df = on_spark(spark, table, tmp_path)
    result = protect_spark(
        df, anonymizer, keep=["id"], factuals="factual_" if factuals else None, key=KEY
    )
    expected = single_machine(anonymizer, table, factuals=factuals)
    for record in expected:
        del record["query"]
    found = plain(result)
    assert found == expected
    assert {record["status"] for record in found} == {"released", "withheld"}
    assert result.columns == ["id", *(name for name in RECORD if name != "query")]
    if factuals:
        assert any(" instead of " in record["sentence"] for record in found)


def test_values_that_are_never_advised_are_not_advised_there(spark: Any, tmp_path: Path) -> None:
    jobs = ["clerk", "nurse", "none"]
    train = pd.DataFrame({"age": np.arange(60) % 20, "job": np.repeat(jobs, 20)})
    df = on_spark(spark, train.assign(id=range(60)), tmp_path)
    sentences = {}
    for value in ("nurse", "none"):
        schema = Schema.from_frame(train, quasi_identifiers=["age"], never_advise={"job": [value]})
        people = Population.from_frame(train, schema, key=KEY)
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4)).fit(people, no_clerk, True)
        rows = explain_spark(df, anonymizer, keep=["id"], key=KEY).collect()
        found = {row["id"]: row["sentence"] for row in rows}
        sentences[value] = [found[i] for i in range(60)]
        assert sentences[value] == anonymizer.explain(train).text(train)
    assert "job “none” instead of “clerk”" in sentences["nurse"][0]
    assert "job “nurse” instead of “clerk”" in sentences["none"][0]


def test_a_catalogue_answers_queries_as_on_one_machine(
    population: Population, spark: Any, tmp_path: Path
) -> None:
    queries, names = patients(120).assign(id=range(120)), list(population.schema.features)
    policy = PrivacyPolicy(k=4)  # no illness is shared by four people
    anonymizer = KAnonymizer(policy=policy).fit(population, model=accepts, desired=1)
    anonymizer.seal(tmp_path / "catalogue.cfk")
    df, wishes = (
        on_spark(spark, queries, tmp_path),
        {"answers": 2, "features_to_vary": ["pay", "illness", "town"], "max_changes": 2},
    )
    told = queries[names].to_dict("records")
    expected = [
        record_of(entry, told[entry.query], names, population.domains)
        for entry in anonymizer.explain(queries, **wishes)
    ]
    for source, options in (
        (anonymizer, {}),
        (tmp_path / "catalogue.cfk", {"model": accepts, "desired": 1}),
    ):
        result = explain_spark(df, source, keep=["id"], key=KEY, **wishes, **options)
        rows = [row.asDict(recursive=True) for row in result.collect()]
        assert sorted(row.pop("id") for row in rows) == np.repeat(range(120), 2).tolist()
        assert sorted(map(repr, rows)) == sorted(
            repr({n: r[n] for n in r if n != "query"}) for r in expected
        )
        with pytest.raises(PolicyError, match="use explain_spark"):
            protect_spark(df, source, key=KEY, **options)
    assert {record["status"] for record in expected} == {"released", "withheld"}
    with pytest.raises(PolicyError, match="needs a catalogue"):
        explain_spark(df, fitted(population, accepts), key=KEY)
    with pytest.raises(InputError, match="answers"):
        explain_spark(df, anonymizer, answers=0, key=KEY)
    with pytest.raises(InputError, match="nobody"):
        explain_spark(df, anonymizer, features_to_vary=["nobody"], key=KEY)
    with pytest.raises(InputError, match="max_changes"):
        explain_spark(df, anonymizer, max_changes=0, key=KEY)


def test_jobs_have_the_goal(spark: Any, tmp_path: Path) -> None:
    """A threshold, a range, and a set of labels, of queries and of counterfactuals; a worker
    pickles all of them.
    """
    train = patients(120)
    people = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "town"]), key=KEY
    )
    told, names = train.to_dict("records"), list(people.schema.features)
    df = on_spark(spark, train.assign(id=range(120)), tmp_path)
    for model, desired in (
        (Thresholded(likely, 0.3), 1),
        (paid, (1_200_000, 1_500_000)),
        (named_by_pay, {"some", "much"}),
    ):
        for guarantee, job in (("catalogue", explain_spark), ("lookup", protect_spark)):
            policy = PrivacyPolicy(k=4, guarantee=guarantee)
            there = KAnonymizer(policy=policy).fit(people, model, desired)
            there.seal(tmp_path / "sealed.cfk")
            here = there.explain(train) if job is explain_spark else there.transform(train)
            expected = [
                record_of(e, told[e.query] if job is explain_spark else None, names, people.domains)
                for e in here
            ]
            assert "released" in {record["status"] for record in expected}
            for source, options in (
                (there, {}),
                (tmp_path / "sealed.cfk", {"model": model, "desired": desired}),
            ):
                rows = [
                    row.asDict(recursive=True)
                    for row in job(df, source, keep=["id"], key=KEY, **options).collect()
                ]
                found = {row.pop("id"): row for row in rows}
                assert [found[i] for i in range(120)] == [
                    {n: r[n] for n in r if n != "query"} for r in expected
                ]


def test_counted_and_protected_on_spark_alone(spark: Any, tmp_path: Path) -> None:
    table, train = asked(), patients(120)
    here, there = both(
        spark, train, Schema.from_frame(train, quasi_identifiers=["age", "town"]), tmp_path
    )
    fitted(there, accepts).seal(tmp_path / "population.cfk")
    df = on_spark(spark, table, tmp_path)
    result = protect_spark(
        df, tmp_path / "population.cfk", model=accepts, desired=1, keep=["id"], key=KEY
    )
    expected = single_machine(fitted(here, accepts), table, factuals=False)
    assert plain(result) == [
        {n: v for n, v in record.items() if n != "query"} for record in expected
    ]


def test_jobs_that_share_a_ledger_give_a_record_one_region(
    population: Population, spark: Any, tmp_path: Path
) -> None:
    df, url = on_spark(spark, asked(), tmp_path), str(tmp_path / "ledger.db")

    def job(k: int) -> list[dict[str, Any]]:
        anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=k)).fit(
            population, model=accepts, desired=1
        )
        shared: dict[str, Any] = {"ledger": url, "ledger_key": b"a secret of the ledger"}
        return plain(protect_spark(df, anonymizer, keep=["id"], key=KEY, **shared))

    with pytest.raises(LedgerError, match="cfk ledger create"):
        job(4)
    Ledger(url, key=b"a secret of the ledger", create=True).close()
    first, second = job(4), job(9)
    ever = sum(
        "released" in (old["status"], new["status"]) for old, new in zip(first, second, strict=True)
    )
    with Ledger(url, key=b"a secret of the ledger") as ledger:
        assert ledger.status().records == ever > 50
    for old, new in zip(first, second, strict=True):
        if old["status"] == "released":
            assert new["status"] == "withheld" or new["features"] == old["features"]
    assert {r["reason"] for r in plain_with_broken_ledger(df, population, tmp_path)} <= {
        "ledger_failed",
        "not_desired",
    }


def plain_with_broken_ledger(df: Any, population: Population, folder: Path) -> list[dict[str, Any]]:
    """Take the ledger away between the driver's look at it and the job."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=4)).fit(
        population, model=accepts, desired=1
    )
    url = folder / "gone.db"
    Ledger(url, key=b"a secret of the ledger", create=True).close()
    result = protect_spark(
        df, anonymizer, keep=["id"], key=KEY, ledger=str(url), ledger_key=b"a secret of the ledger"
    )
    for file in folder.glob("gone.db*"):
        file.unlink()
    url.mkdir()
    return plain(result)


# --- failing closed -------------------------------------------------------------------------------


def test_hostile_values_and_a_raising_model_give_withheld_records(
    population: Population, spark: Any, spark_console: Path, tmp_path: Path
) -> None:
    hostile = pd.DataFrame(
        {
            "id": range(6),
            "age": ["30", "SENTINELtext", None, "inf", "30", "-1e400"],
            "town": ["Ghent", "Ghent", "Ghent", "Ghent", "SENTINELtown", None],
            "pay": ["1100008"] * 5 + [None],
            "illness": ["SENTINEL001"] * 6,
        }
    )
    good = fitted(population, accepts)
    found = plain(protect_spark(on_spark(spark, hostile, tmp_path), good, keep=["id"], key=KEY))
    assert [r["status"] for r in found] == ["released"] + ["withheld"] * 5
    assert found[1]["reason"] == "invalid_value"
    everybody = on_spark(spark, asked(), tmp_path)
    failed = {"model_failed"}
    for model, wanted in (
        (loud, failed),
        (loud_where_rich, failed),
        (panics_where_rich, {"protector_failed"} | failed),
    ):
        rows = (
            everybody if model is loud else on_spark(spark, asked().assign(pay=9_999_999), tmp_path)
        )
        found = plain(protect_spark(rows, good, model=model, keep=["id"], key=KEY))
        assert {r["status"] for r in found} == {"withheld"}
        assert {r["reason"] for r in found} <= wanted
        assert {r["k"] for r in found} == {None}
    said = spark_console.read_text(errors="replace")
    assert "SENTINEL" not in said
    assert not any(str(pay) in said for pay in patients(120)["pay"])


def test_models_that_fail_while_fitting_on_spark_tell_no_row_and_what_is_to_be_installed(
    spark: Any, spark_console: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = patients(60)
    schema = Schema.from_frame(train, quasi_identifiers=["age", "town"])
    there = Population.from_spark(on_spark(spark, train, tmp_path), schema, key=KEY)
    with pytest.raises(PopulationError) as caught:
        fitted(there, loud)
    assert str(caught.value) == "the job on the cluster failed (PythonException)"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    said = spark_console.read_text(errors="replace")
    assert "the model raised ValueError" in said
    assert "SENTINEL" not in said
    here = ModuleType("only_here")
    exec("def model(rows):\n    return rows['pay'] > 30\n", here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", here)
    with pytest.raises(
        PopulationError, match=r"a worker lacks a package; install .* PYSPARK_PYTHON"
    ):
        fitted(there, here.model)


def test_what_cannot_be_sent_is_refused(population: Population, spark: Any, tmp_path: Path) -> None:
    good, df = fitted(population, accepts), on_spark(spark, asked(), tmp_path)
    with_ledger = KAnonymizer(
        policy=PrivacyPolicy(guarantee="lookup", k=4),
        ledger=Ledger(tmp_path / "ledger.db", create=True),
    )
    refused: list[tuple[Any, type[Exception], str, dict[str, Any]]] = [
        (good, InputError, "would leave as they are", {"keep": ["age"]}),
        (good, InputError, "columns that df does not have", {"keep": ["who"]}),
        (good, InputError, "that the record has", {"keep": ["k"]}),
        (good, InputError, "columns that df does not have", {"factuals": "nobody_"}),
        (
            with_ledger.fit(population, model=accepts, desired=1),
            InputError,
            "open the ledger themselves",
            {},
        ),
        (good, InputError, "cannot be pickled", {"model": lambda rows: spark}),
        ("population.cfk", InputError, "give model= and desired=", {}),
        (tmp_path / "none.cfk", BundleError, "cannot be read", {"model": accepts, "desired": 1}),
        (3, InputError, "a fitted KAnonymizer or a path", {}),
        (good, BundleError, "another key", {"key": b"another"}),
    ]
    for anonymizer, error, message, options in refused:
        with pytest.raises(error, match=message):
            protect_spark(df.withColumn("k", df["id"]), anonymizer, **{"key": KEY, **options})
    with pytest.raises(InputError, match="must be a Spark DataFrame"):
        protect_spark(asked(), good, key=KEY)
    population.seal(tmp_path / "bare.cfk")
    with pytest.raises(InputError, match="no policy"):
        protect_spark(df, tmp_path / "bare.cfk", model=accepts, desired=1, key=KEY)


# --- MLflow ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("mlflow_store")
def test_a_protected_model_as_a_function_of_spark(spark: Any, tmp_path: Path) -> None:
    import mlflow

    uri = logged(most=10_000).model_uri
    table = asked()[["id", *patients(1)]].assign(age=30, pay=1)
    explain = mlflow.pyfunc.spark_udf(spark, uri, env_manager="local")
    df = on_spark(spark, table, tmp_path)
    found = plain(
        df.select("id", explain(*patients(1)).alias("record"))
        .select("id", "record.*")
        .drop("query")
    )
    here = mlflow.pyfunc.load_model(uri).predict(table)
    assert found == [
        {name: value for name, value in record.items() if name != "query"} for record in here
    ]
    assert {record["status"] for record in found} == {"released"}
