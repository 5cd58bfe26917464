"""Catalogues one after the other: what stays, what goes, and what is new.

People leave, join, come back, and change; the model is trained again. The tests do their own
bookkeeping of who the first members of a region were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import cfk_plugin.protection.previous as previous_catalogue
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, log_protected_model, protect
from cfk_plugin.errors import BundleError, InputError, PolicyError
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.protection.previous import Previous
from random_tables import described, random_table

KEY = b"a key"
JOBS = ["clerk", "nurse", "smith", "baker"]

Model = Callable[[pd.DataFrame], Any]


def approving(border: float) -> Model:
    """Return a model that approves of people whose income is above a border that grows with age."""
    return lambda rows: np.where(rows["income"] > border + rows["age"] / 5, "yes", "no")


@dataclass
class Clients:
    """People with one to three rows, of whom some leave, join, come back, or change."""

    random: np.random.Generator
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    gone: pd.DataFrame = field(default_factory=pd.DataFrame)
    n_ever: int = 0

    @classmethod
    def of(cls, seed: int, n: int) -> Clients:
        clients = cls(np.random.default_rng(seed))
        clients.join(n)
        return clients

    def join(self, n: int) -> None:
        person = np.repeat(np.arange(self.n_ever, self.n_ever + n), self.random.integers(1, 4, n))
        age = self.random.integers(20, 60, self.n_ever + n)[person]
        newcomers = pd.DataFrame(
            {
                "person": [f"client {number}" for number in person],
                "age": age + self.random.integers(0, 3, len(person)),
                "town": self.random.choice(["Aa", "Bree", None], len(person), p=[0.6, 0.3, 0.1]),
                "income": self.random.integers(0, 40, len(person)),
                "job": self.random.choice(JOBS, len(person), p=[0.5, 0.3, 0.15, 0.05]),
            }
        )
        self.rows = pd.concat([self.rows, newcomers], ignore_index=True)
        self.n_ever += n

    def turn_over(self, share: float) -> None:
        """Replace a share of the people; a few come back, and a few earn or live differently."""
        people = self.rows["person"].unique()
        n = round(share * len(people))
        is_leaving = self.rows["person"].isin(self.random.choice(people, n, replace=False))
        returning = self.gone.head(5)
        self.gone = self.rows[is_leaving]
        self.rows = pd.concat([self.rows[~is_leaving], returning], ignore_index=True)
        self.join(n - 1)
        is_changed = self.random.random(len(self.rows)) < 0.05
        self.rows.loc[is_changed, "income"] = self.random.integers(0, 40, int(is_changed.sum()))
        self.rows.loc[self.random.random(len(self.rows)) < 0.02, "age"] += 1
        self.rows = self.rows.sample(frac=1, random_state=int(share * 100))
        self.rows = self.rows.reset_index(drop=True)


def population_of(rows: pd.DataFrame, key: bytes = KEY, **settings: Any) -> Population:
    schema = Schema.from_frame(
        rows,
        **{"quasi_identifiers": ["age", "town"], "subject": "person", **settings},
    )
    return Population.from_frame(rows, schema, key=key)


def fit(
    rows: pd.DataFrame,
    model: Model,
    k: int = 3,
    previous: Any = None,
    desired: Any = "yes",
    **policy: Any,
) -> KAnonymizer:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k, **policy))
    return anonymizer.fit(population_of(rows), model, desired, previous=previous)


def parts_of(anonymizer: KAnonymizer) -> list[Any]:
    return [part.catalogue for part in anonymizer.catalogue_.parts]


def private_rows(anonymizer: KAnonymizer) -> set[tuple[Any, ...]]:
    """Return all private values that are offered to regions."""
    codes = parts_of(anonymizer)[0].codes
    columns = [codes.columns[j] for j in codes.private.tolist()]
    offered = [part.centres for part in parts_of(anonymizer)]
    centres = np.concatenate(offered)
    decoded = [column.decode(centres[:, i]).tolist() for i, column in enumerate(columns)]
    return set(zip(*decoded, strict=True))


def shared_values(anonymizer: KAnonymizer) -> set[Any]:
    """Return the values that private columns may have in the catalogue."""
    values = [shared for part in parts_of(anonymizer) for shared in part.shared]
    return {value for shared in values for value in shared.column.decode(shared.values)}


def entries_of(anonymizer: KAnonymizer) -> set[tuple[str, str]]:
    return {
        (str(entry.region), str(dict(entry.released))) for entry in anonymizer.published().released
    }


@dataclass
class History:
    """Who has been a first member of which region, without a break."""

    k: int
    first: dict[str, set[str]] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    private: set[tuple[Any, ...]] = field(default_factory=set)
    shared: set[Any] = field(default_factory=set)

    def check(self, rows: pd.DataFrame, model: Model, anonymizer: KAnonymizer) -> None:
        """Check a catalogue against the ones before it, and remember it."""
        features = rows.drop(columns="person")
        has_outcome = np.asarray(model(features)) == "yes"
        first = {}
        for part in parts_of(anonymizer):
            for number, members in enumerate(part.members):
                region = part.regions.region(number)
                is_inside = [region.contains(row) for row in features.to_dict("records")]
                there = set(rows["person"][np.array(is_inside) & has_outcome])
                text = str(region)
                if text in self.first:
                    first[text] = self.first[text] & there
                    assert len(first[text]) >= self.k
                    continue
                first[text] = set(rows["person"].iloc[members])
                assert len(first[text]) >= self.k
                assert first[text] <= there
                assert not first[text] & self.ever
        if self.ever:
            self.check_private(rows, rows["person"].isin(self.ever), has_outcome, anonymizer)
        self.first = first
        self.ever = self.ever.union(*first.values())
        self.private |= private_rows(anonymizer)
        self.shared |= shared_values(anonymizer)

    def check_private(
        self, rows: pd.DataFrame, is_old: pd.Series, has_outcome: Any, anonymizer: KAnonymizer
    ) -> None:
        """New private values belong to k newcomers, or to no one; so does each of them."""
        newcomers = set(rows["person"][~is_old & has_outcome])
        new = private_rows(anonymizer) - self.private
        assert not new or len(newcomers) >= self.k
        for income, job in new:
            has_income = rows["income"] == income
            has_job = rows["job"] == job
            rules = [has_income & has_job]
            rules += [] if income in self.shared else [has_income]
            rules += [] if job in self.shared else [has_job]
            for has_values in rules:
                people = set(rows["person"][has_values])
                assert not people or len(people & newcomers) >= self.k


@pytest.mark.parametrize(("seed", "k"), [(0, 3), (1, 5), (2, 5), (3, 3)])
def test_kept_region_has_k_first_members(seed: int, k: int, tmp_path: Path) -> None:
    """Whatever happens to people and model, and whether the catalogue comes from a file or not."""
    clients = Clients.of(seed, 120)
    history = History(k)
    previous: Any = None
    for step in range(5):
        model = approving([10.0, 10.0, 12.0, 6.0, 15.0][(step + seed) % 5])
        anonymizer = fit(clients.rows, model, k, previous)
        history.check(clients.rows, model, anonymizer)
        previous = anonymizer.catalogue_
        if step % 2 == seed % 2:
            previous = tmp_path / f"{step}.cfk"
            anonymizer.catalogue_.save(previous, key=KEY)
        clients.turn_over([0.1, 0.5, 0.2, 0.3][(step + seed) % 4])


@pytest.mark.parametrize("min_pureness", [None, 0.95])
def test_same_table_gives_same_file(min_pureness: float | None, tmp_path: Path) -> None:
    """Of a first catalogue, and of one that follows others; the order of rows does not matter.

    With a high pureness some regions stay without an entry, so more centres are tried.
    """
    clients = Clients.of(0, 200)
    policy = {"k": 4, "min_pureness": min_pureness}
    previous = None
    for step in range(2):
        model = approving(10.0 + step)
        anonymizer = fit(clients.rows, model, previous=previous, **policy)
        published = anonymizer.published().to_json()
        path = tmp_path / f"{step}.cfk"
        anonymizer.catalogue_.save(path, key=KEY)
        again = fit(clients.rows, model, previous=path, **policy)
        assert again.published().to_json() == published
        previous = anonymizer.catalogue_
        shuffled = clients.rows.sample(frac=1, random_state=1)
        again = fit(shuffled, model, previous=previous, **policy)
        assert again.published().to_json() == published
        clients.turn_over(0.3)


@pytest.mark.parametrize("seed", range(6))
def test_every_kind_of_column_is_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories, levels, leaves, dates and gaps that today's table may no longer have."""
    monkeypatch.setenv("CFK_KEY", "a key")
    copies = [random_table(seed), random_table(seed)]
    copies[1]["person"] += 1000
    everyone = pd.concat(copies, ignore_index=True)
    people = everyone["person"].unique()
    random = np.random.default_rng(seed)
    previous = None
    n_kept = 0
    for _ in range(3):
        is_there = everyone["person"].isin(random.choice(people, int(0.8 * len(people)), False))
        population = described(everyone[is_there].reset_index(drop=True), subject=True)
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3))
        anonymizer.fit(population, lambda rows: rows["pay"] > 1, True, previous=previous)
        assert not [entry for entry in anonymizer.published() if entry.status != "released"]
        if previous is not None:
            n_kept += anonymizer.catalogue_.changes.kept
        previous = anonymizer.catalogue_
    assert n_kept > 0


def test_changes_count_published_entries() -> None:
    clients = Clients.of(0, 120)
    first = fit(clients.rows, approving(10.0))
    clients.turn_over(0.2)
    second = fit(clients.rows, approving(10.0), previous=first.catalogue_)
    before = entries_of(first)
    after = entries_of(second)
    counts = (len(before & after), len(before - after), len(after - before))
    assert min(counts) > 0
    assert counts == second.catalogue_.changes[:3]
    members = np.concatenate([members for part in parts_of(second) for members in part.members])
    has_outcome = approving(10.0)(clients.rows) == "yes"
    in_no_group = set(clients.rows["person"][has_outcome])
    in_no_group -= set(clients.rows["person"].iloc[members])
    assert second.catalogue_.changes.in_no_group == len(in_no_group) > 0


@pytest.mark.parametrize(
    ("first", "there", "slack"),
    [([3, 3], [3, 3], 0), ([10, 10], [9, 9], 1), ([4, 4], [2, 2], 3), ([3, 3], [3, 0], np.inf)],
)
def test_slack_would_have_kept_regions(first: list[int], there: list[int], slack: float) -> None:
    """With k = 3: if one in ten leaves, three of four stay; if half leave, three of six."""
    assert previous_catalogue._slack(np.array(first), np.array(there), 3) == slack


def test_few_joiners_change_nothing() -> None:
    """Whether they have a value that few people have, that many have, or that an entry has."""
    clients = Clients.of(1, 120)
    first = fit(clients.rows, approving(10.0))
    before = entries_of(first)
    for income in (39, 33, first.published()[0].released["income"]):
        joiners = clients.rows.iloc[:2].assign(person=["x", "y"], income=income, job="nurse")
        rows = pd.concat([clients.rows, joiners], ignore_index=True)
        assert entries_of(fit(rows, approving(10.0), previous=first.catalogue_)) == before


def test_person_is_first_member_of_one_region() -> None:
    """If each query asks for another outcome, of all outcomes together."""
    clients = Clients.of(2, 150)
    rows = clients.rows.drop_duplicates("person", ignore_index=True)
    first = fit(rows, approving(10.0), desired="opposite")
    second = fit(rows, approving(14.0), previous=first.catalogue_, desired="opposite")
    region_of: dict[str, tuple[int, str]] = {}
    for anonymizer in (first, second):
        for label, part in enumerate(parts_of(anonymizer)):
            for number, members in enumerate(part.members):
                region = (label, str(part.regions.region(number)))
                for person in rows["person"].iloc[members]:
                    assert region_of.setdefault(person, region) == region


def test_file_has_handles_only_if_asked(tmp_path: Path) -> None:
    clients = Clients.of(0, 120)
    catalogue = fit(clients.rows, approving(10.0)).catalogue_
    for handles in (True, False):
        catalogue.save(tmp_path / "a.cfk", key=KEY, handles=handles)
        file = CatalogueFile.read(tmp_path / "a.cfk", KEY)
        assert ("0.first" in file.arrays) == handles
        assert "client" not in str(file.facts)


def test_previous_catalogue_without_handles_is_refused(tmp_path: Path) -> None:
    """As that of a logged model, or one that was fitted without a key."""
    clients = Clients.of(0, 120)
    path = tmp_path / "a.cfk"
    fit(clients.rows, approving(10.0)).catalogue_.save(path, key=KEY, handles=False)
    without_key = KAnonymizer(policy=PrivacyPolicy(k=3))
    without_key.fit(population_of(clients.rows, b""), approving(10.0), "yes")
    for previous in (path, without_key.catalogue_):
        with pytest.raises(PolicyError, match="recognise its people"):
            fit(clients.rows, approving(10.0), previous=previous)


def test_previous_catalogue_of_other_data_is_refused(tmp_path: Path) -> None:
    clients = Clients.of(0, 120)
    rows = clients.rows
    first = fit(rows, approving(10.0)).catalogue_
    path = tmp_path / "a.cfk"
    first.save(path, key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3))
    refusals: list[tuple[type[Exception], str, Population, str, Any]] = [
        (PolicyError, "another key", population_of(rows, b"other"), "yes", first),
        (BundleError, "another key", population_of(rows, b"other"), "yes", path),
        (PolicyError, "CFK_KEY", population_of(rows, b""), "yes", first),
        (PolicyError, "another outcome", population_of(rows), "no", first),
        (PolicyError, "columns", population_of(rows, quasi_identifiers=["age"]), "yes", first),
        (InputError, "path", population_of(rows), "yes", anonymizer),
    ]
    for error, message, population, desired, previous in refusals:
        with pytest.raises(error, match=message):
            anonymizer.fit(population, approving(10.0), desired, previous=previous)


def test_build_after_previous_needs_handles() -> None:
    """Otherwise every person would be a newcomer."""
    rows = Clients.of(0, 60).rows
    population = population_of(rows)
    (first,) = parts_of(fit(rows, approving(10.0)))
    with pytest.raises(PolicyError, match="needs handles"):
        Catalogue.build(
            population.row_codes,
            population.coded_rows,
            population.person_of_row,
            first.model,
            first.settings,
            np.random.default_rng(0),
            previous=Previous.nothing(first.codes, first.first),
        )


def test_previous_catalogue_needs_a_catalogue() -> None:
    """A lookup has none, and neither have prototypes."""
    clients = Clients.of(0, 120)
    settings: dict[str, Any] = {
        "model": approving(10.0),
        "population": population_of(clients.rows),
        "desired": "yes",
        "previous": fit(clients.rows, approving(10.0)).catalogue_,
    }
    with pytest.raises(PolicyError, match="previous"):
        protect(lambda queries: queries, policy=PrivacyPolicy(guarantee="lookup"), **settings)
    with pytest.raises(PolicyError, match="previous"):
        protect(method="dp", **settings)


def test_protect_follows_a_catalogue() -> None:
    clients = Clients.of(0, 120)
    first = fit(clients.rows, approving(10.0)).catalogue_
    clients.turn_over(0.2)
    second = fit(clients.rows, approving(10.0), previous=first)
    private = protect(
        model=approving(10.0),
        population=population_of(clients.rows),
        k=3,
        desired="yes",
        previous=first,
    )
    queries = clients.rows[approving(10.0)(clients.rows) == "no"].head(10)
    assert private.explain(queries).to_json() == second.explain(queries).to_json()


def test_nothing_that_stays_is_an_error() -> None:
    clients = Clients.of(0, 60)
    first = fit(clients.rows, approving(10.0)).catalogue_
    leaving = clients.rows["person"].unique()[::2]
    rows = clients.rows[~clients.rows["person"].isin(leaving)]
    with pytest.raises(PolicyError, match="fit without previous="):
        fit(rows, approving(25.0), previous=first)


def test_logged_model_has_no_handles(mlflow_store: str) -> None:
    rows = Clients.of(0, 120).rows[["person", "age", "income"]]
    model = DecisionTreeClassifier(max_depth=3)
    model.fit(rows[["age", "income"]], rows["income"] > 18)
    population = population_of(rows, quasi_identifiers=["age"])
    policy = PrivacyPolicy(k=3)
    anonymizer = KAnonymizer(policy=policy).fit(population, model, True)
    info = log_protected_model(anonymizer, pip_requirements=[])
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri))
    file = CatalogueFile.read(next(folder.rglob("*.cfk")))
    assert "0.corners" in file.arrays
    assert "0.first" not in file.arrays
