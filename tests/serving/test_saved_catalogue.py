"""A catalogue from a file gives the answers of the one that was saved, without training rows."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population
from cfk_plugin.errors import BundleError, ModelError, PolicyError
from cfk_plugin.serving.model import explainer_of
from cfk_plugin.serving.requests import answer_request
from worlds import CANARY, Bank, World

KEY = b"a secret"


class Pair(NamedTuple):
    """An anonymizer, the one that was loaded from its catalogue's file, and the file."""

    fitted: KAnonymizer
    loaded: KAnonymizer
    path: Path


@pytest.fixture(scope="module")
def pair(residents: World, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Residents want the opposite of their own outcome, so there is a catalogue for each."""
    population = Population.from_frame(residents.table, residents.schema, key=KEY)
    fitted = residents.fit(population=population, desired="opposite")
    path = tmp_path_factory.mktemp("saved") / "catalogue.cfk"
    assert fitted.catalogue_ is not None
    fitted.catalogue_.save(path, key=KEY)
    return Pair(fitted, KAnonymizer.load(path, residents.model, key=KEY), path)


@pytest.fixture(scope="module")
def queries(residents: World) -> pd.DataFrame:
    """Return strangers and people of the table, some with values that no one has."""
    rows = pd.concat([residents.strangers.head(20), residents.native], ignore_index=True)
    rows.loc[:2, "age"] = [0, 200, 17]
    rows.loc[3:5, "salary"] += 1_000
    return rows


@pytest.mark.parametrize(
    "limits", [{}, {"features_to_vary": ["salary", "zip"]}, {"max_changes": 2}], ids=str
)
def test_loaded_catalogue_gives_the_same_answers(
    pair: Pair, queries: pd.DataFrame, limits: dict[str, Any]
) -> None:
    """Limits of a call are kept as well."""
    answers = pair.fitted.explain(queries, **limits)
    assert answers.released
    assert pair.loaded.explain(queries, **limits).to_json() == answers.to_json()


def test_loaded_catalogue_is_published_alike(pair: Pair) -> None:
    """The release is the same."""
    assert pair.loaded.published().to_json() == pair.fitted.published().to_json()


def test_request_is_answered_from_a_file(pair: Pair, queries: pd.DataFrame) -> None:
    """A request has dates as texts; sentences are those of dates."""
    texts = queries.astype({"since": str})
    texts = texts.where(queries.notna(), None)
    content = answer_request(explainer_of(pair.loaded), texts, {}, 50)
    sentences = [entry["sentence"] for entry in content["explanations"]]
    assert sentences == pair.fitted.explain(queries).text(queries)


def test_list_is_no_category(pair: Pair, queries: pd.DataFrame) -> None:
    """One query has a list where the others have a category."""
    rows = queries.head(6).astype({"job": object})
    rows.at[0, "job"] = ["a"]
    fitted, loaded = (anonymizer.explain(rows) for anonymizer in pair[:2])
    assert loaded.to_json() == fitted.to_json()
    assert loaded[0].to_dict()["reason"] == "invalid_value"


def test_file_has_no_identifier(pair: Pair) -> None:
    """Neither names are there nor the key."""
    with zipfile.ZipFile(pair.path) as file:
        content = b"".join(file.read(name) for name in file.namelist())
    assert CANARY.encode() not in content
    assert KEY not in content


def test_loaded_catalogue_refuses_counterfactuals(pair: Pair, queries: pd.DataFrame) -> None:
    """To generalise one needs the training table."""
    with pytest.raises(PolicyError, match="use explain"):
        pair.loaded.transform(queries, queries)


def test_another_model_is_refused(pair: Pair) -> None:
    """The catalogue holds for the model of the fit."""
    with pytest.raises(ModelError):
        KAnonymizer.load(pair.path, Bank(110), key=KEY)


def test_missing_key_is_refused(pair: Pair, residents: World) -> None:
    """The file was saved with a key."""
    with pytest.raises(BundleError, match="with a key"):
        KAnonymizer.load(pair.path, residents.model)
