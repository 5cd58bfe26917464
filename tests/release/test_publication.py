"""The catalogue as it is published: every entry, nothing else of the table, and a file that can be
recounted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.errors import PolicyError
from cfk_plugin.release.publication import catalogue_page

K = 4
FEATURES = ["age", "city", "pay", "job"]
PRIVATE = ["pay", "job"]
SCHEMA: dict[str, Any] = {
    "quasi_identifiers": ["age", "city"],
    "identifiers": ["name"],
    "subject": "person",
}


def people(n: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "name": [f"canary-name-{i}" for i in range(n)],
            "person": [f"canary-person-{i // 2 * 2}" for i in range(n)],
            "age": random.integers(20, 70, n) + 0.25,
            "city": random.choice(["A", "B", "C"], n),
            "pay": random.integers(10, 60, n),
            "job": random.choice(["clerk", "nurse", "smith"], n),
        }
    )
    # the outcome holds at this age alone
    table.loc[n - 1, ["age", "pay", "job"]] = [70.25, 987, "canary-job"]
    return table


TRAIN = people()


def model(rows: pd.DataFrame) -> np.ndarray:
    good = rows["pay"].to_numpy(dtype=float) + rows["age"].to_numpy(dtype=float) / 4 > 38
    return np.where(
        good & ((rows["job"] != "canary-job") | (rows["age"] == 70.25)).to_numpy(), "yes", "no"
    )


def fitted(train: pd.DataFrame = TRAIN, desired: Any = "yes", **policy: Any) -> KAnonymizer:
    population = Population.from_frame(train, Schema.from_frame(train, **SCHEMA), key=b"key")
    rules = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **policy})
    return KAnonymizer(policy=rules).fit(population, model=model, desired=desired)


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    return fitted()


def inside(region: Any, rows: pd.DataFrame) -> np.ndarray:
    return np.array([region.contains(row) for row in rows.to_dict("records")])


def entries_of(anonymizer: KAnonymizer) -> list[dict[str, Any]]:
    """Return the published entries as a file has them."""
    found: list[dict[str, Any]] = json.loads(anonymizer.published().to_json())["explanations"]
    return found


def test_same_table_publishes_the_same_file(anonymizer: KAnonymizer) -> None:
    """The order of entries depends on the key and on what they say, not on how they were found."""
    assert fitted().published().to_json() == anonymizer.published().to_json()
    losses = anonymizer.published().to_frame()["ncp"]
    assert not losses.is_monotonic_increasing


def test_nothing_of_a_row_that_is_in_no_entry_is_published(anonymizer: KAnonymizer) -> None:
    published = anonymizer.published()
    page = catalogue_page(published, anonymizer.population_)
    for text in (published.to_frame().to_csv(), published.to_json(), page):
        assert "canary" not in text
        # the value, and the width of the range that it makes
        assert not re.search(r"\b(987|977)\b", text)


def test_exact_counts_for_the_data_holder_stay_there(anonymizer: KAnonymizer) -> None:
    inner = {
        "k_desired",
        "k_consistent",
        "k_effective",
        "k_private",
        "private_matches",
        "majority",
        "disclosure",
    }
    assert not inner & {
        *anonymizer.published().to_frame().columns,
        *entries_of(anonymizer)[0]["certificate"],
    }


def test_what_the_certifier_refuses_is_left_out(anonymizer: KAnonymizer) -> None:
    narrow = len(fitted(max_ncp=0.3).published())
    losses = [entry.recount.ncp for entry in anonymizer.published().generalized]
    assert 0 < narrow < len(losses)
    assert narrow == sum(loss <= 0.3 for loss in losses)


def test_with_the_goal_opposite_every_outcome_has_entries() -> None:
    published = fitted(desired="opposite").published()
    assert {entry.outcome.label for entry in published.generalized} == {"yes", "no"}


def test_the_page_says_whose_the_private_values_are(anonymizer: KAnonymizer) -> None:
    page = catalogue_page(anonymizer.published(), anonymizer.population_)
    assert f"belong to at least {K} people or to no one" in page


def test_without_a_catalogue_it_says_what_to_do() -> None:
    with pytest.raises(NotFittedError):
        KAnonymizer().published()
    with pytest.raises(PolicyError, match='guarantee="catalogue"'):
        fitted(guarantee="lookup").published()


# --- as files of the command line ---


def cfk(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), env={"CFK_KEY": ""})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a catalogue as a file."""
    folder = tmp_path_factory.mktemp("catalogue")
    train = TRAIN[["name", "person", "age", "city", "pay", "job"]]
    train.to_csv(folder / "train.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    numbers = train[["age", "pay"]].to_numpy()
    tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(numbers, model(train))
    joblib.dump(OfNumbers(tree), folder / "model.joblib")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = cfk(
            f"catalogue train.csv -s schema.json -m model.joblib -d yes --k {K} -o catalogue.json"
        )
        assert result.exit_code == 0, result.output
    return folder


class OfNumbers:
    """A tree over the two columns of numbers."""

    def __init__(self, tree: DecisionTreeClassifier) -> None:
        self.tree, self.classes_ = tree, tree.classes_

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.tree.predict(rows[["age", "pay"]].to_numpy(dtype=float))


VERIFY = "verify catalogue.json --train train.csv -s schema.json -m model.joblib -d yes"


def test_a_file_passes_as_it_was_written(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    result = cfk(VERIFY)
    assert result.exit_code == 0, result.output
    written = Path("catalogue.json").read_text(encoding="utf-8")
    assert "canary-name" not in written
    assert "canary-person" not in written


def test_the_page_is_written_and_holds_nothing_else_of_the_rows(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    command = f"catalogue train.csv -s schema.json -m model.joblib -d yes --k {K} --html page.html --title Loans"
    assert cfk(command).exit_code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<title>Loans</title>" in page
    assert "canary-name" not in page
    assert "canary-person" not in page


def test_people_with_the_outcome_and_with_the_values_are_counted_again(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    result = cfk(f"{VERIFY} --k 25")
    assert result.exit_code == 1
    assert "fewer than k people" in " ".join(result.output.replace("│", " ").split())


def test_no_entry_is_a_fail(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    assert (
        cfk(
            "catalogue train.csv -s schema.json -m model.joblib -d yes --k 29 -o none.json"
        ).exit_code
        == 2
    )
    assert cfk("catalogue train.csv -s schema.json -m model.joblib -d yes").exit_code == 2
