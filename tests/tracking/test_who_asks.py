"""A run has nothing of the people who ask: not their values, and not when they asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.tracking.record import RunRecord, rough_time

PRIVATE = ["pay", "rent", "job"]
HOUR = 3_600_000


def people(n: int, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": draw.integers(20, 60, n),
            "sex": draw.choice(["f", "m"], n),
            "pay": draw.integers(1_000, 9_000, n),
            "rent": draw.integers(300, 2_000, n),
            "job": draw.choice(["clerk", "nurse", "smith"], n),
        }
    )


TRAIN = people(300, seed=1)


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"].to_numpy(dtype=float) - rows["rent"].to_numpy(dtype=float)) > 4_000


def of_those_rejected(n: int) -> pd.DataFrame:
    table = people(4 * n, seed=2)
    return table[~model(table)].head(n).reset_index(drop=True)


ASKERS = of_those_rejected(40)


def population() -> Population:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "sex"])
    return Population.from_frame(TRAIN, schema, key=b"a key")


def raise_pay(queries: pd.DataFrame) -> pd.DataFrame:
    """Leave everything else as it is, as most explainers do."""
    return queries.assign(pay=queries["rent"] + 4_001)


def from_the_catalogue() -> Explanations:
    fitted = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population(), model, desired=True)
    return fitted.explain(ASKERS)


def by_an_explainer(guarantee: str) -> Explanations:
    explainer = protect(
        raise_pay,
        model=model,
        population=population(),
        desired=True,
        policy=PrivacyPolicy(k=5, guarantee=guarantee),
    )
    found = explainer.explain(ASKERS)
    assert isinstance(found, Explanations)
    return found


def of_a_table(guarantee: str) -> Explanations:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    fitted = KAnonymizer(policy=policy).fit(population(), model, desired=True)
    return fitted.transform(raise_pay(ASKERS), ASKERS)


def prototypes() -> Explanations:
    pytest.importorskip("opendp")
    from cfk_plugin import DPPrototypes

    table = TRAIN[["age", "pay", "rent", "job"]]
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age"],
        columns={
            "age": Attribute(bounds=[18, 60]),
            "pay": Attribute(bounds=[1_000, 9_000]),
            "rent": Attribute(bounds=[300, 2_000]),
            "job": Attribute(categories=["clerk", "nurse", "smith"]),
        },
        nullable=[],
    )
    fitted = DPPrototypes(epsilon=5.0, model_access="public", random_state=1, rows=500)
    with pytest.warns(UserWarning, match="seeded"):
        fitted.fit(Population.from_frame(table, schema), model=model, desired=True)
    found = fitted.explain(ASKERS)
    assert isinstance(found, Explanations)
    return found


WAYS = {
    "from the catalogue": from_the_catalogue,
    "an explainer before a catalogue": lambda: by_an_explainer("catalogue"),
    "an explainer": lambda: by_an_explainer("lookup"),
    "a table": lambda: of_a_table("lookup"),
    "a table before a catalogue": lambda: of_a_table("catalogue"),
    "prototypes": prototypes,
}


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row.get("released") or row.get("prototype") or "{}")
    return found


@pytest.mark.parametrize("way", WAYS)
def test_no_value_of_a_query_is_logged(way: str) -> None:
    """The person gets such values in the answer."""
    explanations = WAYS[way]()
    assert len(explanations.released) > 10
    in_answers = 0
    logged = 0
    for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
        query = ASKERS.iloc[entry.query]
        if entry.status != "released":
            continue
        answer = values_of(entry.row(explanations.columns))
        in_answers += sum(
            str(answer[name]) == str(query[name]) for name in PRIVATE if name in answer
        )
        values = values_of(row)
        logged += len(values)
        assert not [name for name in values if str(values[name]) == str(query[name])]
        for name in PRIVATE:
            assert (row[f"feature.{name}"] is None) == (name not in values)
    assert in_answers > 10  # people get their own values, which no run has
    assert logged or way == "prototypes"


@pytest.mark.usefixtures("mlflow_store")
def test_no_file_has_a_value_of_a_query(tmp_path: Path) -> None:
    """The decimals of the queries are in nobody's row."""
    asked = ASKERS.assign(rent=ASKERS["rent"] + 0.1234, pay=ASKERS["pay"] + 0.4321)
    train = TRAIN.assign(rent=TRAIN["rent"] + 0.5, pay=TRAIN["pay"] + 0.5)
    schema = Schema.from_frame(train, quasi_identifiers=["age", "sex"])
    fitted = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        Population.from_frame(train, schema), model, desired=True
    )
    explanations = fitted.explain(asked)
    assert ".1234" in explanations.to_json()
    run_id = explanations.log()
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run_id, dst_path=str(tmp_path)))
    texts = [path.read_text() for path in folder.rglob("*.json")]
    run = str(mlflow.get_run(run_id).data)
    assert any('"feature.pay"' in text for text in texts)
    for text in (*texts, run):
        assert ".1234" not in text
        assert ".4321" not in text


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(pay=rows["pay"].astype(str), rent=rows["rent"].map("{:.1f}".format))


def test_value_as_text_is_not_logged() -> None:
    """A query may give its numbers as text."""
    explainer = protect(
        lambda queries: raise_pay(ASKERS.loc[queries.index]),
        model=model,
        population=population(),
        desired=True,
        policy=PrivacyPolicy(k=5, guarantee="lookup"),
    )
    policy = PrivacyPolicy(k=5, guarantee="lookup")
    fitted = KAnonymizer(policy=policy).fit(population(), model, desired=True)
    for explanations in (
        explainer.explain(as_text(ASKERS)),
        fitted.transform(raise_pay(ASKERS), as_text(ASKERS)),
    ):
        logged = 0
        for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
            query = ASKERS.iloc[entry.query]
            logged += len(values_of(row))
            assert not [name for name, value in values_of(row).items() if value == query[name]]
        assert logged > 10


def test_slice_logs_no_value_of_its_queries() -> None:
    explanations = by_an_explainer("lookup")[10:20]
    for entry, row in zip(explanations, explanations.to_record().rows, strict=True):
        query = ASKERS.iloc[entry.query]
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
