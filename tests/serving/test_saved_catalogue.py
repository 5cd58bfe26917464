"""A catalogue from a file gives the answers of the one that was saved, without training rows."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import BundleError, ModelError, PolicyError
from cfk_plugin.serving.model import explainer_of
from cfk_plugin.serving.requests import answer_request

K = 4
KEY = b"a secret"
QUASI = ["age", "town", "grade", "since"]
FEATURES = [*QUASI, "pay", "debt", "job"]
LEVELS = ["low", "mid", "high"]


def people(n: int = 120, seed: int = 3) -> pd.DataFrame:
    """People with private values of every kind, two of them no one else's, and gaps."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 4, n) * 500, unit="D")
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 60, n),
            "town": rng.choice(["Ghent", "Namur", "Arlon"], n).astype(object),
            "grade": rng.choice(LEVELS, n).astype(object),
            "since": pd.Timestamp("2001-01-01") + days,
            "pay": 1_000_003 + 7_919 * rng.permutation(n),
            "debt": rng.normal(10, 4, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n).astype(object),
            "name": [f"NOBODY{i:04d}" for i in range(n)],
            "person": [f"KEY{i:04d}" for i in range(n)],
        }
    )
    for name in ("town", "debt"):
        table.loc[table.index[rng.random(n) < 0.1], name] = None
    return table


def score(rows: pd.DataFrame) -> np.ndarray:
    pay = (rows["pay"].to_numpy(dtype=float) - 1_000_003) / 7_919
    debt = rows["debt"].fillna(12).to_numpy(dtype=float)
    return np.asarray(pay - 2 * debt + rows["age"].to_numpy(dtype=float) / 2)


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 55, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(LEVELS, dtype=object)[np.digitize(score(rows), [30, 65])]


GOALS: dict[str, tuple[Any, Any]] = {"label": (two, "yes"), "opposite": (three, "opposite")}


def fitted(train: pd.DataFrame, model: Any = two, desired: Any = "yes") -> KAnonymizer:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        identifiers=["name"],
        subject="person",
        ordinal={"grade": LEVELS},
    )
    population = Population.from_frame(train, schema, key=KEY)
    return KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, model=model, desired=desired)


def queries() -> pd.DataFrame:
    """Return people of the table, strangers, and values that no one has."""
    rows = pd.concat([people().head(40), people(60, seed=9)], ignore_index=True)[FEATURES]
    rows.loc[:4, "age"] = [0, 200, 17, 90, 44]
    rows.loc[5:9, "pay"] += 13
    return rows


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    return people()


Pair = tuple[KAnonymizer, KAnonymizer, Path]


@pytest.fixture(scope="module", params=GOALS)
def pair(
    request: pytest.FixtureRequest, train: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    """Return an anonymizer, the one that was loaded from its catalogue's file, and the file."""
    model, desired = GOALS[request.param]
    anonymizer = fitted(train, model, desired)
    path = tmp_path_factory.mktemp("saved") / "catalogue.cfk"
    assert anonymizer.catalogue_ is not None
    anonymizer.catalogue_.save(path, key=KEY)
    return anonymizer, KAnonymizer.load(path, model, key=KEY), path


def test_loaded_catalogue_gives_the_same_answers(pair: Pair) -> None:
    anonymizer, loaded, _ = pair
    limits: list[dict[str, Any]] = [{}, {"features_to_vary": ["pay", "town"]}, {"max_changes": 2}]
    for limit in limits:
        here = anonymizer.explain(queries(), **limit)
        assert loaded.explain(queries(), **limit).to_json() == here.to_json()
        assert here.released


def test_loaded_catalogue_is_published_alike(pair: Pair) -> None:
    anonymizer, loaded, _ = pair
    assert loaded.published().to_json() == anonymizer.published().to_json()


def test_request_is_answered_from_a_file(pair: Pair) -> None:
    """A request has dates as texts; sentences are those of dates."""
    anonymizer, loaded, _ = pair
    rows = queries().head(20)
    texts = rows.astype({"since": str})
    content = answer_request(explainer_of(loaded), texts.where(texts.notna(), None), {}, 50)
    sentences = [entry["sentence"] for entry in content["explanations"]]
    assert sentences == anonymizer.explain(rows).text(rows)


def test_hidden_categories_are_recognised_beside_lists(pair: Pair) -> None:
    """One query has a list where the others have a category that the file hides or has."""
    rows = queries().head(6).astype({"job": object})
    rows.at[0, "job"] = ["clerk"]
    here, there = (anonymizer.explain(rows) for anonymizer in pair[:2])
    assert there.to_json() == here.to_json()
    assert there[0].to_dict()["reason"] == "invalid_value"


def test_file_has_no_private_value_of_a_person(pair: Pair, train: pd.DataFrame) -> None:
    """Every pay belongs to one person, and so do names and keys."""
    with zipfile.ZipFile(pair[2]) as file:
        content = b"".join(file.read(name) for name in file.namelist())
    offered = set(pair[0].published().to_frame()["pay_value"])
    private = [pay for pay in train["pay"].tolist() if pay not in offered]
    assert len(private) > 100
    for pay in private:
        spellings = [np.array([pay], dtype=kind).tobytes() for kind in ("<i8", "<f8", "<i4")]
        assert not [text for text in (*spellings, str(pay).encode()) if text in content]
    for secret in (b"NOBODY", b"KEY0", KEY):
        assert secret not in content


def test_loaded_catalogue_refuses_counterfactuals(pair: Pair, train: pd.DataFrame) -> None:
    with pytest.raises(PolicyError, match="use explain"):
        pair[1].transform(train, train)


def test_another_model_is_refused(train: pd.DataFrame, tmp_path: Path) -> None:
    catalogue = fitted(train).catalogue_
    assert catalogue is not None
    catalogue.save(tmp_path / "catalogue.cfk", key=KEY)
    stricter = lambda rows: np.where(score(rows) > 75, "yes", "no")  # noqa: E731
    with pytest.raises(ModelError):
        KAnonymizer.load(tmp_path / "catalogue.cfk", stricter, key=KEY)
    with pytest.raises(BundleError, match="with a key"):
        KAnonymizer.load(tmp_path / "catalogue.cfk", two)
