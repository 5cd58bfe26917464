"""Catalogues one after the other: what stays, what goes, and what is new.

People leave, join, come back, and change; the model is trained again. The tests do their own
bookkeeping of who the first members of a region were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import BundleError, InputError, PolicyError
from cfk_plugin.protection.catalogue_file import CatalogueFile
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


@pytest.mark.parametrize(("seed", "k"), [(0, 3), (1, 5)])
def test_kept_region_has_first_members(seed: int, k: int, tmp_path: Path) -> None:
    """Whatever happens to people and model, and whether the catalogue comes from a file or not."""
    clients = Clients.of(seed, 100)
    history = History(k)
    previous: Any = None
    for step in range(4):
        model = approving([10.0, 10.0, 12.0, 6.0, 15.0][(step + seed) % 5])
        anonymizer = fit(clients.rows, model, k, previous)
        history.check(clients.rows, model, anonymizer)
        previous = anonymizer.catalogue_
        if step % 2 == seed % 2:
            previous = tmp_path / f"{step}.cfk"
            anonymizer.catalogue_.save(previous, key=KEY)
        clients.turn_over([0.1, 0.5, 0.2, 0.3][(step + seed) % 4])


def test_same_table_gives_same_catalogue(tmp_path: Path) -> None:
    """It follows itself without a change, in any order of the rows.

    With a high pureness some regions stay without an entry, so more centres are tried.
    """
    clients = Clients.of(0, 120)
    first = fit(clients.rows, approving(10.0), 4, min_pureness=0.95)
    path = tmp_path / "first.cfk"
    first.catalogue_.save(path, key=KEY)
    clients.turn_over(0.3)
    second = fit(clients.rows, approving(11.0), 4, path, min_pureness=0.95)
    shuffled = clients.rows.sample(frac=1, random_state=1)
    for rows, previous in ((shuffled, path), (clients.rows, second.catalogue_)):
        again = fit(rows, approving(11.0), 4, previous, min_pureness=0.95)
        assert again.published().to_json() == second.published().to_json()
    assert again.catalogue_.changes.slack == 0


def test_every_kind_of_column_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories, levels, leaves, dates and gaps that today's table may no longer have."""
    monkeypatch.setenv("CFK_KEY", "a key")
    table = pd.concat(
        [random_table(0), random_table(0).assign(person=lambda rows: rows["person"] + 1000)]
    )
    people = table["person"].unique()
    random = np.random.default_rng(0)
    previous = None
    for _ in range(2):
        is_there = table["person"].isin(random.choice(people, int(0.8 * len(people)), False))
        population = described(table[is_there].reset_index(drop=True), subject=True)
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3))
        anonymizer.fit(population, lambda rows: rows["pay"] > 1, True, previous=previous)
        assert all(entry.status == "released" for entry in anonymizer.published())
        previous = anonymizer.catalogue_
    assert previous.changes.kept > 0


@pytest.fixture(scope="module")
def clients() -> Clients:
    """Return people whom no test changes."""
    return Clients.of(0, 120)


@pytest.fixture(scope="module")
def first(clients: Clients) -> KAnonymizer:
    """Return the first catalogue of the people."""
    return fit(clients.rows, approving(10.0))


@pytest.fixture(scope="module")
def later() -> pd.DataFrame:
    """Return the rows of the people after a fifth was replaced."""
    clients = Clients.of(0, 120)
    clients.turn_over(0.2)
    return clients.rows


@pytest.fixture(scope="module")
def second(first: KAnonymizer, later: pd.DataFrame) -> KAnonymizer:
    """Return the catalogue that follows the first one."""
    return fit(later, approving(10.0), previous=first.catalogue_)


def test_changes_count_published_entries(
    first: KAnonymizer, second: KAnonymizer, later: pd.DataFrame
) -> None:
    """Entries that stay, go and are new, and people with the outcome in no group."""
    before = entries_of(first)
    after = entries_of(second)
    counts = (len(before & after), len(before - after), len(after - before))
    assert min(counts) > 0
    assert counts == second.catalogue_.changes[:3]
    assert 0 < second.catalogue_.changes.slack < np.inf
    members = np.concatenate([members for part in parts_of(second) for members in part.members])
    in_no_group = set(later["person"][approving(10.0)(later) == "yes"])
    in_no_group -= set(later["person"].iloc[members])
    assert second.catalogue_.changes.in_no_group == len(in_no_group) > 0


def test_few_joiners_change_nothing(clients: Clients, first: KAnonymizer) -> None:
    """Whether they have a value that few people have, that many have, or that an entry has."""
    for income in (39, 33, first.published()[0].released["income"]):
        joiners = clients.rows.iloc[:2].assign(person=["x", "y"], income=income, job="nurse")
        rows = pd.concat([clients.rows, joiners], ignore_index=True)
        joined = fit(rows, approving(10.0), previous=first.catalogue_)
        assert entries_of(joined) == entries_of(first)


def test_person_has_one_first_region() -> None:
    """If each query asks for another outcome, of all outcomes together."""
    rows = Clients.of(2, 150).rows.drop_duplicates("person", ignore_index=True)
    first = fit(rows, approving(10.0), desired="opposite")
    second = fit(rows, approving(14.0), previous=first.catalogue_, desired="opposite")
    region_of: dict[str, tuple[int, str]] = {}
    for anonymizer in (first, second):
        for label, part in enumerate(parts_of(anonymizer)):
            for number, members in enumerate(part.members):
                region = (label, str(part.regions.region(number)))
                for person in rows["person"].iloc[members]:
                    assert region_of.setdefault(person, region) == region


def test_file_may_have_no_handles(first: KAnonymizer, tmp_path: Path) -> None:
    """As that of a logged model; no file names a person."""
    for handles in (True, False):
        first.catalogue_.save(tmp_path / "a.cfk", key=KEY, handles=handles)
        file = CatalogueFile.read(tmp_path / "a.cfk", KEY)
        assert ("0.first" in file.arrays) == handles
        assert "client" not in str(file.facts)


def test_previous_catalogue_needs_handles(
    clients: Clients, first: KAnonymizer, tmp_path: Path
) -> None:
    """That of a logged model has none, nor one that was fitted without a key."""
    path = tmp_path / "a.cfk"
    first.catalogue_.save(path, key=KEY, handles=False)
    without_key = KAnonymizer(policy=PrivacyPolicy(k=3))
    without_key.fit(population_of(clients.rows, b""), approving(10.0), "yes")
    for previous in (path, without_key.catalogue_):
        with pytest.raises(PolicyError, match="recognise its people"):
            fit(clients.rows, approving(10.0), previous=previous)


@pytest.mark.parametrize(
    ("error", "message", "settings", "desired"),
    [
        (PolicyError, "another key", {"key": b"other"}, "yes"),
        (PolicyError, "CFK_KEY", {"key": b""}, "yes"),
        (PolicyError, "another outcome", {}, "no"),
        (PolicyError, "columns", {"quasi_identifiers": ["age"]}, "yes"),
    ],
)
def test_other_data_are_refused(
    error: type[Exception],
    message: str,
    settings: dict[str, Any],
    desired: str,
    clients: Clients,
    first: KAnonymizer,
) -> None:
    """A catalogue follows one of the same key, outcome and columns."""
    population = population_of(clients.rows, **settings)
    with pytest.raises(error, match=message):
        KAnonymizer(policy=PrivacyPolicy(k=3)).fit(
            population, approving(10.0), desired, previous=first.catalogue_
        )


def test_previous_may_be_a_path(clients: Clients, first: KAnonymizer, tmp_path: Path) -> None:
    """The file needs its key; anything else is refused."""
    first.catalogue_.save(tmp_path / "a.cfk", key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3))
    other = population_of(clients.rows, b"other")
    with pytest.raises(BundleError, match="another key"):
        anonymizer.fit(other, approving(10.0), "yes", previous=tmp_path / "a.cfk")
    with pytest.raises(InputError, match="path"):
        fit(clients.rows, approving(10.0), previous=anonymizer)


@pytest.mark.parametrize(
    "settings", [{"policy": PrivacyPolicy(guarantee="lookup")}, {"method": "dp"}]
)
def test_previous_needs_a_catalogue(
    settings: dict[str, Any], clients: Clients, first: KAnonymizer
) -> None:
    """A lookup has none, and neither have prototypes."""
    explainer = None if "method" in settings else lambda queries: queries
    with pytest.raises(PolicyError, match="previous"):
        protect(
            explainer,
            model=approving(10.0),
            population=population_of(clients.rows),
            desired="yes",
            previous=first.catalogue_,
            **settings,
        )


def test_protect_follows_a_catalogue(
    first: KAnonymizer, second: KAnonymizer, later: pd.DataFrame
) -> None:
    """It answers as an anonymizer that follows the same one."""
    private = protect(
        model=approving(10.0),
        population=population_of(later),
        k=3,
        desired="yes",
        previous=first.catalogue_,
    )
    queries = later[approving(10.0)(later) == "no"].head(10)
    assert private.explain(queries).to_json() == second.explain(queries).to_json()


def test_nothing_left_is_an_error(clients: Clients, first: KAnonymizer) -> None:
    """If no region stays and there are too few newcomers, another catalogue has to begin."""
    leaving = clients.rows["person"].unique()[::2]
    rows = clients.rows[~clients.rows["person"].isin(leaving)]
    with pytest.raises(PolicyError, match="fit without previous="):
        fit(rows, approving(25.0), previous=first.catalogue_)
