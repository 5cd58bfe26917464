"""A run has nothing of the people who ask: not their values, and not when they asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, DPPrototypes, Population, PrivacyPolicy, Schema
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.tracking.record import RunRecord, rough_time
from worlds import LEVELS, World

PRIVATE = ["income", "debt", "job"]
HOUR = 3_600_000
POLICIES = {
    guarantee: PrivacyPolicy(k=5, guarantee=guarantee, min_pureness=0)
    for guarantee in ("catalogue", "lookup")
}


@pytest.fixture(scope="module")
def askers(applicants: World) -> pd.DataFrame:
    """Return all strangers whom the model refuses."""
    rows = applicants.strangers
    return rows[applicants.model.predict(rows) == 0].reset_index(drop=True)


def raise_income(queries: pd.DataFrame) -> pd.DataFrame:
    """Leave everything else as it is, as most explainers do."""
    return queries.assign(income=queries["income"] + 40_000)


def from_the_catalogue(world: World, askers: pd.DataFrame) -> Explanations:
    return world.anonymizer.explain(askers)


def by_an_explainer(world: World, askers: pd.DataFrame) -> Explanations:
    explanations = world.protect(raise_income, policy=POLICIES["lookup"]).explain(askers)
    assert isinstance(explanations, Explanations)
    return explanations


def before_a_catalogue(world: World, askers: pd.DataFrame) -> Explanations:
    explanations = world.protect(raise_income, policy=POLICIES["catalogue"]).explain(askers)
    assert isinstance(explanations, Explanations)
    return explanations


def of_a_table(world: World, askers: pd.DataFrame) -> Explanations:
    fitted = world.fit(k=5, guarantee="lookup", min_pureness=0)
    return fitted.transform(raise_income(askers), askers)


def from_prototypes(world: World, askers: pd.DataFrame) -> Explanations:
    pytest.importorskip("opendp")
    schema = Schema.from_frame(
        world.table,
        quasi_identifiers=["age"],
        columns={
            "age": Attribute(bounds=[18, 70]),
            "town": Attribute(categories=["Antwerp", "Ghent", "Namur"]),
            "education": Attribute(categories=LEVELS),
            "job": Attribute(categories=["clerk", "nurse", "smith"]),
            "income": Attribute(bounds=[10_000, 80_000]),
            "debt": Attribute(bounds=[0, 20_000]),
        },
        nullable=[],
    )
    fitted = DPPrototypes(epsilon=5.0, model_access="public", random_state=1, rows=500)
    with pytest.warns(UserWarning, match="seeded"):
        fitted.fit(Population.from_frame(world.table, schema), model=world.model, desired=1)
    explanations = fitted.explain(askers)
    assert isinstance(explanations, Explanations)
    return explanations


WAYS: list[Callable[[World, pd.DataFrame], Explanations]] = [
    from_the_catalogue,
    by_an_explainer,
    before_a_catalogue,
    of_a_table,
    from_prototypes,
]


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the private values in a row of a run."""
    values: dict[str, Any] = json.loads(row.get("released") or row.get("prototype") or "{}")
    return values


@pytest.mark.parametrize("way", WAYS)
def test_value_of_query_is_not_logged(
    way: Callable[[World, pd.DataFrame], Explanations], applicants: World, askers: pd.DataFrame
) -> None:
    """People get such values in the answer, which no run has."""
    explanations = way(applicants, askers)
    assert len(explanations.released) > 10
    n_equal = 0
    n_logged = 0
    for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
        if entry.status != "released":
            continue
        query = askers.iloc[entry.query]
        answer = values_of(entry.row(explanations.columns))
        n_equal += sum(str(answer[name]) == str(query[name]) for name in {*PRIVATE} & {*answer})
        values = values_of(row)
        n_logged += len(values)
        assert not [name for name in values if str(values[name]) == str(query[name])]
        for name in PRIVATE:
            assert (row[f"feature.{name}"] is None) == (name not in values)
    assert n_equal > 10
    assert n_logged or way is from_prototypes


@pytest.mark.usefixtures("mlflow_store")
def test_files_have_no_value_of_queries(
    applicants: World, askers: pd.DataFrame, tmp_path: Path
) -> None:
    """The decimals of the queries are in nobody's row."""
    table = applicants.table.assign(debt=applicants.table["debt"] + 0.5)
    population = Population.from_frame(table, Schema.from_frame(table, **applicants.roles))
    fitted = applicants.fit(population=population)
    queries = askers.assign(debt=askers["debt"] + 0.1234, income=askers["income"].round() + 0.4321)
    explanations = fitted.explain(queries)
    assert ".1234" in explanations.to_json()
    run_id = explanations.log()
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run_id, dst_path=str(tmp_path)))
    texts = [path.read_text() for path in folder.rglob("*.json")]
    assert any('"feature.income"' in text for text in texts)
    for text in (*texts, str(mlflow.get_run(run_id).data)):
        assert ".1234" not in text
        assert ".4321" not in text


def test_value_as_text_is_not_logged(applicants: World, askers: pd.DataFrame) -> None:
    """A query may give its numbers as text."""
    texts = askers.assign(
        income=askers["income"].map("{:.3f}".format), debt=askers["debt"].astype(str)
    )
    fitted = applicants.fit(k=5, guarantee="lookup", min_pureness=0)
    explanations = fitted.transform(raise_income(askers), texts)
    n_logged = 0
    for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
        query = askers.iloc[entry.query]
        n_logged += len(values_of(row))
        assert not [name for name, value in values_of(row).items() if value == query[name]]
    assert n_logged > 10


def test_slice_logs_no_value_of_queries(applicants: World, askers: pd.DataFrame) -> None:
    """Entries of a slice keep the numbers of their queries."""
    explanations = by_an_explainer(applicants, askers)[10:20]
    for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
        query = askers.iloc[entry.query]
        assert not [name for name, value in values_of(row).items() if value == query[name]]


def test_times_are_random_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hour before; the exact time would tell who asked."""
    for minute in (0, 1, 59):
        now = 490_000 * HOUR + minute * 60_000
        monkeypatch.setattr(
            "cfk_plugin.tracking.record.time.time_ns", lambda now=now: now * 1_000_000
        )
        times = np.array([rough_time() for _ in range(4_000)]) - 489_999 * HOUR
        assert times.min() >= 0
        assert times.max() < HOUR
        # uniform: the mean of 4,000 has a standard error of 16 seconds
        assert abs(times.mean() - HOUR / 2) < 90_000
        assert times.min() < HOUR / 50
        assert times.max() > HOUR - HOUR / 50
    assert RunRecord.__dataclass_fields__["created"].default_factory is rough_time
