"""Groups of those who ask: told to the runs, and to nobody else."""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import DPPrototypes, Explanations, Population, PrivacyPolicy, RunLogger, Schema, Suppressed, protect
from cfk_plugin.errors import InputError, PrivacyLeakWarning
from cfk_plugin.records.spool import shipper
from spooled import kept

TRAIN = pd.DataFrame({"age": np.arange(60) // 2 + 20, "pay": np.arange(60) * 10 + 1_000, "sex": ["f", "m"] * 30})
SCHEMA = Schema.from_frame(
    TRAIN,
    quasi_identifiers=["age"],
    bounds={"age": (18, 90), "pay": (0, 5_000)},
    categories={"sex": ["f", "m"]},
    nullable=[],
)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
QUERIES = TRAIN.head(4).assign(branch=["Ghent", None, 7.0, "Ghent"])
ASKED: list[int] = []


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 1_200).to_numpy()


def explainer(queries: pd.DataFrame) -> pd.DataFrame:
    ASKED.append(len(queries))
    answers = [*range(30, 30 + len(queries) - 1), 0]  # the last one is not desired
    return TRAIN.iloc[answers].set_index(queries.index)


class Own:
    """An explainer with a method of its own."""

    def generate_counterfactuals(self, queries: pd.DataFrame) -> pd.DataFrame:
        return explainer(queries)


def protected(what: Any = explainer, **settings: Any) -> Any:
    settings = {"policy": PrivacyPolicy(k=4), "plugins": [import_module("cfk_adapters.function")], **settings}
    return protect(what, model=model, population=POPULATION, desired=True, **settings)


def groups(result: Explanations) -> list[Any]:
    return [row.get("group") for row in result.to_record().recount]


def test_every_call_is_grouped_by_a_column_that_need_be_no_feature() -> None:
    result = protected(groups="branch").explain(QUERIES)
    assert groups(result) == ["Ghent", "missing", "7", "Ghent"]
    assert any(isinstance(entry, Suppressed) for entry in result)
    assert result.to_record().params["cfk.groups"] == "branch"


def test_of_a_feature_as_well_and_of_a_part_of_the_result() -> None:
    result = protected(groups="sex").explain(QUERIES)
    assert groups(result) == ["f", "m", "f", "m"]
    assert groups(result[1:3]) == ["m", "f"]


def test_no_group_unless_asked_for() -> None:
    record = protected().explain(QUERIES).to_record()
    assert "cfk.groups" not in record.params
    assert not any("group" in row for row in record.recount)


def test_no_group_leaves() -> None:
    result = protected(groups="branch").explain(QUERIES)
    plain = protected().explain(QUERIES)
    assert result.to_json() == plain.to_json()
    assert result.to_frame().equals(plain.to_frame())
    assert result == plain
    assert "Ghent" not in repr(result) + repr(list(result)) + repr(result.about)


def test_what_is_no_group_is_refused_before_anything_is_asked() -> None:
    many = pd.concat([QUERIES] * 20, ignore_index=True).assign(branch=range(80))
    ASKED.clear()
    with pytest.raises(InputError, match="column 'branch' has 80 different values in one call; groups are at most 50"):
        protected(groups="branch").explain(many)
    with pytest.raises(InputError, match="the queries have 0 columns 'branch'"):
        protected(groups="branch").explain(QUERIES.drop(columns="branch"))
    assert ASKED == []


def test_the_explainers_own_methods_are_grouped_by_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.records.spool._shippers", {})
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", spool=tmp_path, timeout=0.1)
    with contextlib.closing(shipper(tmp_path)):
        rows = protected(Own(), groups="sex", track=logger).generate_counterfactuals(QUERIES)
        (record,) = kept(tmp_path)
    assert [row["group"] for row in record.recount] == ["f", "m", "f", "m"]
    assert list(rows.columns) == ["query", *SCHEMA.features]


@pytest.mark.parametrize("labels", [["f"] * 3, pd.Series([1, 2, 3], index=[7, 8, 9])])
def test_labels_are_one_per_query(labels: Any) -> None:
    result = protected().explain(QUERIES)
    with pytest.raises(InputError, match="3 labels of 'sex', and query 3 was answered; give one label per query"):
        result.by_group("sex", labels)


def test_labels_go_by_place() -> None:
    result = protected().explain(QUERIES).by_group("age", pd.Series([30, 40, 30, np.nan], index=[3, 2, 1, 0]))
    assert groups(result) == ["30", "40", "30", "missing"]
    assert result == protected().explain(QUERIES)


def test_prototypes_are_grouped_as_well() -> None:
    pytest.importorskip("opendp", reason="the extra [dp] is not installed")
    with pytest.warns(PrivacyLeakWarning):
        private = protected(method=DPPrototypes(epsilon=5.0, seed=1), groups="branch", policy=None)
    result = private.explain(QUERIES)
    assert groups(result) == ["Ghent", "missing", "7", "Ghent"]
    record = result.to_record()
    assert record.population is not None
    assert set(record.population) == {"schema_version", "attributes"}
    assert record.environment is not None
    assert (record.environment["seed"], record.environment["generator"]) == (1, "dp")
    assert (record.people, {name for row in record.recount for name in row}) == (0, {"seconds", "group"})


def test_every_entry_says_how_long_the_call_took_per_entry() -> None:
    record = protected().explain(QUERIES).to_record()
    (seconds,) = {row["seconds"] for row in record.recount}
    assert 0 < seconds < 60
