"""People leave and join between releases: recounted in plain pandas, k of them are always left.

The tables are small, and models, regions and the ledger are real. The recount knows the tables, and
what was released of whom; it asks neither the ledger nor a certificate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Ledger, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.errors import UnknownTableWarning
from cfk_plugin.release.results import GeneralizedCounterfactual
from commands import cfk

KEY = b"the ledger key of these tests..."
N_PEOPLE = 90


def inhabitants(seed: int, *, rows_each: int) -> pd.DataFrame:
    """Return a table of people with an id; some have several rows if `rows_each` is above 1."""
    random = np.random.default_rng(seed)
    person = np.arange(N_PEOPLE * 2)
    table = pd.DataFrame(
        {
            "person": [f"person {number}" for number in person],
            "age": random.integers(20, 70, len(person)),
            "town": random.choice(["Ghent", "Liège", "Mons"], len(person)),
            "income": random.integers(100, 900, len(person)),
            "debt": random.integers(0, 50, len(person)),
        }
    )
    more = [table]
    for _ in range(rows_each - 1):
        again = table.sample(frac=0.3, random_state=seed)
        more.append(again.assign(income=random.integers(100, 900, len(again))))
    return pd.concat(more, ignore_index=True)


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["income"] + 4 * rows["age"] > 500, "yes", "no")


def schema_of(table: pd.DataFrame, *, by_subject: bool) -> Schema:
    roles = {"subject": "person"} if by_subject else {"identifiers": ["person"]}
    return Schema.from_frame(table, quasi_identifiers=["age", "town"], **roles)


@dataclass
class Linked:
    """What somebody knows who links all releases of one record by its private values."""

    suspects: set[str] | None = None
    regions: set[Region] = field(default_factory=set)

    def see(self, region: Region, group: set[str], inside: set[str]) -> None:
        """Keep who shared the region, and is inside of it, at this release as well."""
        now = group & inside
        self.suspects = now if self.suspects is None else self.suspects & now
        self.regions.add(region)


def inside_of(region: Region, table: pd.DataFrame) -> set[str]:
    """Return who has a row inside of a region."""
    rows = table[
        table["age"].between(region["age"].low, region["age"].high)
        & table["town"].isin(list(region["town"]))
    ]
    return set(rows["person"])


def turn_over(
    table: pd.DataFrame, present: Sequence[str], share: float, random: np.random.Generator
) -> list[str]:
    """Return who is there next: a share of the people left, and as many others came, or came
    back.
    """
    everybody = sorted(set(table["person"]))
    away = sorted(set(everybody) - set(present))
    n_changed = round(share * len(present))
    gone = random.choice(present, n_changed, replace=False).tolist()
    come = random.choice(away, n_changed, replace=False).tolist()
    return sorted({*present, *come} - {*gone})


@pytest.mark.parametrize("guarantee", ["lookup", "reciprocal", "catalogue"])
@pytest.mark.parametrize(
    ("k", "share", "by_subject"),
    [(3, 0.1, True), (3, 0.3, False), (5, 0.1, False), (5, 0.3, True), (5, 0.5, True)],
)
def test_k_people_fit_all_releases_of_a_record(
    guarantee: str, k: int, share: float, by_subject: bool, tmp_path: Path
) -> None:
    table = inhabitants(k, rows_each=2 if by_subject else 1)
    random = np.random.default_rng(round(100 * share))
    present = sorted(set(table["person"]))[:N_PEOPLE]
    linked: dict[tuple[object, ...], Linked] = {}
    first_groups: dict[tuple[object, ...], set[str]] = {}
    outcomes: list[str | None] = []
    n_certified = 0
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        for _ in range(4):
            rows = table[table["person"].isin(present)].reset_index(drop=True)
            policy = PrivacyPolicy(k=k, guarantee=guarantee, private_values="exact")
            anonymizer = KAnonymizer(policy=policy, ledger=ledger)
            population = Population.from_frame(
                rows, schema_of(rows, by_subject=by_subject), key=b"key"
            )
            anonymizer.fit(population, model, "yes")
            wanted = rows[model(rows) == "yes"].head(40)
            if guarantee == "catalogue":
                entries = anonymizer.published().generalized
            else:
                entries = anonymizer.transform(wanted).generalized
            for entry in entries:
                record = record_of(entry, wanted)
                inside = inside_of(entry.region, rows)
                if record not in linked:
                    linked[record] = Linked()
                    first_groups[record] = group_of(anonymizer, entry.region, rows) or inside
                linked[record].see(entry.region, first_groups[record], inside)
                suspects = linked[record].suspects
                assert suspects is not None
                assert len(suspects) >= k
                outcomes.append(entry.recount.ledger)
                if guarantee != "lookup":
                    assert entry.recount.k_effective == len(suspects)
                    n_certified += 1
            present = turn_over(table, present, share, random)
    assert {"new"} < set(outcomes), "some region must have been released again"
    if guarantee != "lookup":
        assert n_certified > 20
        assert all(len(known.regions) == 1 for known in linked.values())


def record_of(entry: GeneralizedCounterfactual, wanted: pd.DataFrame) -> tuple[object, ...]:
    """Return what a record is known by: its row; of a catalogue only its private values are known.

    No two people of these tables have the same.
    """
    if entry.certificate.guarantee == "catalogue":
        return tuple(sorted(entry.released.items()))
    return tuple(wanted.drop(columns="person").iloc[entry.query])


def group_of(anonymizer: KAnonymizer, region: Region, rows: pd.DataFrame) -> set[str]:
    """Return who is mapped to a region by today's partition; nobody if there is none."""
    partition = anonymizer.guarantee_.partition
    if partition is None:
        return set()
    return set(rows["person"].iloc[partition.rows_mapped_to(region)])


def test_without_a_ledger_fewer_people_fit(tmp_path: Path) -> None:
    """The same releases, as the rule of the ledger was before it knew who is left."""
    table = inhabitants(5, rows_each=1)
    random = np.random.default_rng(0)
    present = sorted(set(table["person"]))[:N_PEOPLE]
    rows = table[table["person"].isin(present)].reset_index(drop=True)
    policy = PrivacyPolicy(k=5, guarantee="reciprocal", private_values="exact")
    population = Population.from_frame(rows, schema_of(rows, by_subject=False), key=b"key")
    anonymizer = KAnonymizer(policy=policy).fit(population, model, "yes")
    later = set(turn_over(table, present, 0.3, random))
    left = []
    for entry in anonymizer.transform(rows[model(rows) == "yes"]).generalized:
        left.append(len(group_of(anonymizer, entry.region, rows) & later))
    assert np.mean(np.array(left) < 5) > 0.5


def test_a_table_that_the_ledger_does_not_know_is_noticed(tmp_path: Path) -> None:
    table = inhabitants(1, rows_each=1).drop(columns="person")
    schema = Schema.from_frame(table, quasi_identifiers=["age", "town"])
    policy = PrivacyPolicy(k=5, guarantee="reciprocal")

    def fit(rows: pd.DataFrame) -> KAnonymizer:
        population = Population.from_frame(rows, schema, key=b"key")
        return KAnonymizer(policy=policy, ledger=ledger).fit(population, model, "yes")

    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        fit(table).transform(table[model(table) == "yes"].head(5))
        fit(table.sample(frac=0.5, random_state=0))
        with pytest.warns(UnknownTableWarning, match="nobody of this table"):
            fit(table.assign(income=table["income"] + 0.5))


def test_where_no_rows_are_people_count_only_in_the_same_population(tmp_path: Path) -> None:
    """A sealed population does not tell who is in it, so in another one nobody is known."""
    table = inhabitants(2, rows_each=1).drop(columns="person")
    policy = PrivacyPolicy(k=5, guarantee="reciprocal")
    wanted = table[model(table) == "yes"].head(5)

    def sealed(rows: pd.DataFrame, name: str) -> Population:
        schema = Schema.from_frame(rows, quasi_identifiers=["age", "town"])
        population = Population.from_frame(rows, schema, key=b"key")
        KAnonymizer(policy=policy).fit(population, model, "yes").seal(tmp_path / name)
        return Population.open(tmp_path / name, key=b"key")

    def reasons(population: Population) -> set[str | None]:
        anonymizer = KAnonymizer(ledger=ledger).fit(population, model, "yes")
        answers = anonymizer.transform(wanted)
        return {entry.reason for entry in answers.withheld} | {
            entry.recount.ledger for entry in answers.generalized
        }

    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        one = sealed(table, "one.cfk")
        assert reasons(one) == {"new"}
        assert reasons(Population.open(tmp_path / "one.cfk", key=b"key")) == {"again"}
        assert reasons(sealed(table.drop(index=[150]), "other.cfk")) == {"too_few_remain"}
        assert reasons(one) == {"again"}


@pytest.mark.parametrize("by_subject", [True, False])
def test_who_is_forgotten_leaves_the_groups_of_others(
    by_subject: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFK_LEDGER_KEY", KEY.decode())
    table = inhabitants(4, rows_each=1)
    schema = schema_of(table, by_subject=by_subject)
    role = {"subject": "person"} if by_subject else {"identifiers": ["person"]}
    Path("schema.json").write_text(json.dumps({"quasi_identifiers": ["age", "town"], **role}))
    table.to_csv("train.csv", index=False)
    wanted = table[model(table) == "yes"].head(1)

    def group_sizes(ledger: Ledger) -> list[tuple[int, int]]:
        return [(row["members"], row["inside"]) for row in ledger.export()]

    with Ledger("ledger.db", create=True) as ledger:
        policy = PrivacyPolicy(k=5, guarantee="reciprocal")
        anonymizer = KAnonymizer(policy=policy, ledger=ledger)
        anonymizer.fit(Population.from_frame(table, schema, key=b"key"), model, "yes")
        (entry,) = anonymizer.transform(wanted).generalized
        ((members, inside),) = group_sizes(ledger)
        group = group_of(anonymizer, entry.region, table)
        assert (members, inside) == (len(group), len(inside_of(entry.region, table)))
        other = sorted(group - set(wanted["person"]))[0]
        table[table["person"] == other].to_csv("person.csv", index=False)
        forget = ("ledger.db", "-s", "schema.json", "--rows", "person.csv", "--train", "train.csv")
        cfk("ledger forget", *forget)
        assert group_sizes(ledger) == [(members - 1, inside - 1)]
        assert ledger.verify().releases == 1
        if by_subject:
            table[table["person"] == other].drop(columns="person").to_csv("person.csv", index=False)
            assert "nobody was taken out of the groups" in cfk("ledger forget", *forget).stderr
