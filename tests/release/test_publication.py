"""The catalogue as it is published: every entry, nothing else of the table, and a file that can be
recounted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner, Result

from cfk_plugin import KAnonymizer, Ledger, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.errors import ModelError, NotFittedError, PolicyError
from cfk_plugin.protection.catalogue.entries import SearchLimits
from cfk_plugin.release.publication import catalogue_page

pytestmark = pytest.mark.full_search  # as in the fixtures, which are made once
K = 4
FEATURES = ["age", "city", "pay", "job"]
PRIVATE = ["pay", "job"]
SCHEMA: dict[str, Any] = {
    "quasi_identifiers": ["age", "city"],
    "identifiers": ["name"],
    "subject": "person",
    "bins": {"pay": [0, 20, 40, 60, 1000]},
}
BIN = {"private_values": "bins", "rare_values": "withhold"}


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


def fitted(
    train: pd.DataFrame = TRAIN, desired: Any = "yes", ledger: Ledger | None = None, **policy: Any
) -> KAnonymizer:
    population = Population.from_frame(train, Schema.from_frame(train, **SCHEMA), key=b"key")
    rules = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", "private_values": "exact", **policy})
    return KAnonymizer(policy=rules, ledger=ledger).fit(population, model=model, desired=desired)


@pytest.fixture(scope="module", autouse=True)
def every_entry() -> Iterator[None]:
    """Let a catalogue have all entries that there are, each tried everywhere."""
    everything = SearchLimits(
        rows_per_training_row=10**6, least_combinations=10**6, most_combinations=10**6
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cfk_plugin.protection.catalogue.catalogue.SEARCH_LIMITS", everything)
        yield


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    return fitted()


def inside(region: Any, rows: pd.DataFrame) -> np.ndarray:
    return np.array([region.contains(row) for row in rows.to_dict("records")])


def by_brute_force(anonymizer: KAnonymizer) -> list[tuple[Any, ...]]:
    """Return what every group offers: of its members' private values those that hold for k of them,
    and for enough.
    """
    labels, regions, found = model(TRAIN), anonymizer.regions_of(TRAIN), set()
    for region in {
        r for r, label in zip(regions, labels, strict=True) if label == "yes" and r is not None
    }:
        mine = TRAIN[[r == region for r in regions] & (labels == "yes")]
        within = TRAIN[inside(region, TRAIN)]
        ages = TRAIN["age"][[age in region["age"] for age in TRAIN["age"]]].unique()
        cells = pd.MultiIndex.from_product(
            [ages, sorted(region["city"])], names=["age", "city"]
        ).to_frame(index=False)
        for pay, job in mine[PRIVATE].drop_duplicates().itertuples(index=False):
            consistent = mine[model(mine.assign(pay=pay, job=job)) == "yes"]["person"].nunique()
            pureness = (model(cells.assign(pay=pay, job=job)) == "yes").mean()
            if consistent >= K and pureness >= 0.8:
                age, cities = region["age"], sorted(region["city"])
                k = within["person"].nunique()
                found.add((age.low, age.high, ",".join(cities), pay, job, k, round(pureness, 9)))
    return sorted(found)


def test_the_table_has_every_entry_that_there_is_and_no_other(anonymizer: KAnonymizer) -> None:
    table, rows = anonymizer.catalogue_, []
    for text, k, pureness in zip(table["entry"], table["k"], table["pureness"], strict=True):
        entry = json.loads(text)
        age, city, private = entry["region"]["age"], entry["region"]["city"], entry["released"]
        known = private["pay"], private["job"], k, round(pureness, 9)
        rows.append((age["low"], age["high"], ",".join(sorted(city["values"])), *known))
    assert sorted(rows) == by_brute_force(anonymizer)
    assert len(rows) > 10


def test_the_table_says_to_people_what_its_entries_are(anonymizer: KAnonymizer) -> None:
    table = anonymizer.catalogue_
    shown = anonymizer.published().to_frame()
    figures = ["k", "ncp", "pureness", "pureness_low", "pureness_high"]
    assert table[[*FEATURES, *figures]].equals(shown[[*FEATURES, *figures]])
    assert set(table["outcome"]) == {"yes"}
    assert table["exact"].all()
    assert table[["k_desired_at_least", "k_consistent_at_least"]].eq(K).all(axis=None)


def test_what_is_published_does_not_depend_on_the_order_of_rows_or_columns(
    anonymizer: KAnonymizer,
) -> None:
    table, turned = anonymizer.catalogue_, TRAIN.sample(frac=1, random_state=1, ignore_index=True)
    assert fitted(turned).catalogue_.equals(table)
    plain = table.columns.drop(["entry", "catalogue"])
    assert fitted(turned[turned.columns[::-1]]).catalogue_[plain].equals(table[plain])
    losses = table["ncp"]
    assert losses.is_monotonic_increasing
    assert losses.duplicated().any()  # ties


def test_nothing_of_a_row_that_is_in_no_entry_is_published(anonymizer: KAnonymizer) -> None:
    published = anonymizer.published()
    page = catalogue_page(published, anonymizer.population_)
    for text in (anonymizer.catalogue_.to_csv(), published.to_json(), page):
        assert "canary" not in text
        # the value, and the width of the range that it makes
        assert not re.search(r"\b(987|977)\b", text)
    offered = {
        (json.loads(text)["released"]["pay"], json.loads(text)["released"]["job"])
        for text in anonymizer.catalogue_["entry"]
    }
    assert offered < {tuple(row) for row in TRAIN[PRIVATE].itertuples(index=False)}


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
        *anonymizer.catalogue_.columns,
        *json.loads(anonymizer.catalogue_["entry"][0])["certificate"],
    }


def test_private_values_leave_in_the_form_of_the_policy_and_alike_entries_once() -> None:
    table = fitted(**BIN).catalogue_
    assert set(table["pay"]) <= {"0–20", "20–40", "40–60", "60–1000", "withheld"}
    assert set(table["job"]) <= {"clerk", "nurse", "smith", "withheld"}
    said = table["entry"].map(lambda text: json.dumps({**json.loads(text), "query": 0}))
    assert not said.duplicated().any()


def test_what_the_verifier_refuses_is_left_out() -> None:
    narrow = len(fitted(max_ncp=0.3).catalogue_)
    assert 0 < narrow < len(fitted().catalogue_)
    assert narrow == sum(fitted().catalogue_["ncp"] <= 0.3)


def test_with_the_goal_opposite_every_outcome_has_entries() -> None:
    assert set(fitted(desired="opposite").catalogue_["outcome"]) == {"yes", "no"}


def test_the_page_says_whose_the_private_values_are() -> None:
    shared = fitted(private_values="shared")
    exact = fitted()
    page = catalogue_page(shared.published(), shared.population_)
    assert f"belong to at least {K} people or to no one" in page
    page = catalogue_page(exact.published(), exact.population_)
    assert "are those of a person in the table" in page


def test_a_publication_goes_on_record(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db", create=True) as ledger:
        anonymizer = fitted(ledger=ledger)
        published = anonymizer.published()
        assert ledger.status().records == len(published)
        assert anonymizer.published() == published


def test_without_a_catalogue_it_says_what_to_do() -> None:
    with pytest.raises(NotFittedError):
        _ = KAnonymizer().catalogue_
    with pytest.raises(PolicyError, match='guarantee="catalogue"'):
        _ = fitted(guarantee="reciprocal").catalogue_


def test_a_failing_model_publishes_nothing() -> None:
    asked = [0]

    def failing(rows: pd.DataFrame) -> np.ndarray:
        if asked[0]:
            raise ValueError(str(rows))
        return model(rows)

    population = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, **SCHEMA))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee="catalogue"))
    anonymizer.fit(population, model=failing, desired="yes")
    asked[0] = 1
    with pytest.raises(ModelError) as raised:
        anonymizer.published()
    assert "clerk" not in str(raised.getrepr(style="long"))


# --- as files of the command line ---


def cfk(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), env={"CFK_KEY": ""})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a catalogue in each form of file."""
    folder = tmp_path_factory.mktemp("catalogue")
    train = TRAIN[["name", "person", "age", "city", "pay", "job"]]
    train.to_csv(folder / "train.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    numbers = train[["age", "pay"]].to_numpy()
    tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(numbers, model(train))
    joblib.dump(OfNumbers(tree), folder / "model.joblib")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in ("parquet", "csv", "json"):
            result = cfk(
                f"catalogue train.csv -s schema.json -m model.joblib -d yes --k {K} -o catalogue.{kind}"
            )
            assert result.exit_code == 0, result.output
    return folder


class OfNumbers:
    """A tree over the two columns of numbers."""

    def __init__(self, tree: DecisionTreeClassifier) -> None:
        self.tree, self.classes_ = tree, tree.classes_

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.tree.predict(rows[["age", "pay"]].to_numpy(dtype=float))


VERIFY = "train.csv -s schema.json -m model.joblib -d yes"


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_file_passes_as_it_was_written(
    made: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    for options in ("", " --rerun"):
        result = cfk(f"verify catalogue.{kind} {VERIFY}{options}")
        assert result.exit_code == 0, result.output
    written = Path(f"catalogue.{kind}").read_bytes().decode("latin-1")
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


def test_all_files_hold_the_same(made: Path) -> None:
    entries = json.loads((made / "catalogue.json").read_text(encoding="utf-8"))["explanations"]
    for entry in entries:
        entry["certificate"].pop("population")  # each command draws a key of its own
    for table in (pd.read_parquet(made / "catalogue.parquet"), pd.read_csv(made / "catalogue.csv")):
        found = [json.loads(text) for text in table["entry"]]
        for entry in found:
            entry["certificate"].pop("population")
        assert found == entries


def of_entry(change: Callable[[dict[str, Any]], object]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Change an entry in its JSON, and what the other columns say of it with it."""

    def changed(table: pd.DataFrame) -> pd.DataFrame:
        from cfk_plugin.release.publication import content_of, table_of

        content = content_of(table, json.loads)
        change(content["explanations"][2])
        return table_of(json.dumps(content))

    return changed


def of_cell(column: str, value: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def changed(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[2, column] = value
        return table

    return changed


TAMPERED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "k in its column": of_cell("k", 50),
    "a range in its column": of_cell("age", "20–21"),
    "a private value in its column": of_cell("pay", "59"),
    "the outcome in its column": of_cell("outcome", "no"),
    "a floor in its column": of_cell("k_consistent_at_least", 9),
    "another catalogue beside an entry": of_cell("catalogue", "{}"),
    "k": of_entry(lambda e: e["certificate"].update(k=50)),
    "information loss": of_entry(lambda e: e["certificate"].update(ncp=0.001)),
    "pureness": of_entry(
        lambda e: e["certificate"].update(pureness=0.91, pureness_low=0.91, pureness_high=0.91)
    ),
    "a narrower region": of_entry(
        lambda e: e["region"]["age"].update(high=e["region"]["age"]["low"])
    ),
    "a private value that few are consistent with": of_entry(
        lambda e: e["released"].update(pay=12)
    ),
    "another outcome": of_entry(lambda e: e["outcome"].update(label="no")),
    "a note": of_entry(lambda e: e.update(note="x")),
    "an identifier": of_entry(lambda e: e["released"].update(name="x")),
    "a row taken out": lambda table: table.drop(index=2),
    "the last row taken out": lambda table: table.iloc[:-1],
    "a row twice": lambda table: pd.concat([table, table.iloc[[2]]]),
    "a column more": lambda table: table.assign(name="x"),
}


@pytest.mark.parametrize(
    ("how", "kind"), [*((how, "csv") for how in TAMPERED), ("k", "parquet"), ("a note", "parquet")]
)
def test_a_row_that_was_tampered_with_fails(
    made: Path, how: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    table = TAMPERED[how](pd.read_parquet("catalogue.parquet"))
    if kind == "csv":
        table.to_csv("changed.csv", index=False)
    else:
        table.astype({name: str for name in table if table[name].dtype == object}).to_parquet(
            "changed.parquet"
        )
    result = cfk(f"verify changed.{kind} {VERIFY}")
    assert result.exit_code == 1, result.output


def test_people_with_the_outcome_and_with_the_values_are_counted_again(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    result = cfk(f"verify catalogue.parquet {VERIFY} --k 25")
    assert result.exit_code == 1
    assert "people have the outcome, fewer than 25" in result.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "no column entry"),
        ("entry,catalogue\n", "no entry"),
        ('entry,catalogue\n{},{"x"\n', "not valid JSON"),
    ],
)
def test_a_table_of_something_else_is_refused(
    tmp_path: Path, content: str, said: str, made: Path
) -> None:
    (tmp_path / "other.csv").write_text(content, encoding="utf-8")
    result = cfk(f"verify {tmp_path / 'other.csv'} {made / 'train.csv'} -s {made / 'schema.json'}")
    assert result.exit_code == 2
    assert said in result.output


def test_no_entry_is_a_fail(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    assert (
        cfk(
            "catalogue train.csv -s schema.json -m model.joblib -d yes --k 29 -o none.parquet"
        ).exit_code
        == 2
    )
    assert cfk("catalogue train.csv -s schema.json -m model.joblib -d yes").exit_code == 2
