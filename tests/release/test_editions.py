"""Catalogues that are published one after the other: what is new in the later one tells nothing
about a few people who joined or left.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    Schema,
)
from cfk_plugin.errors import LedgerError
from commands import cfk

KEY = b"the ledger key of these tests..."
K = 5
ROLES: dict[str, Any] = {"quasi_identifiers": ["age", "town"]}


def inhabitants(n: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "town": random.choice(["Ghent", "Liège", "Mons"], n),
            "income": random.integers(100, 900, n).astype(float),
            "debt": random.integers(0, 50, n),
            "home": random.choice(["owned", "rented", None], n),
        }
    )


TABLE = inhabitants(200)
MANY = inhabitants(40, seed=3).assign(income=2_000.0, debt=77)
"""New people who are unlike everybody else."""


def model(rows: pd.DataFrame) -> np.ndarray:
    income = rows["income"].clip(upper=900)  # of all numbers of these tests: none decides alone
    return np.where(income + 4 * rows["age"] > 500, "yes", "no")


def joiner(**private: Any) -> pd.DataFrame:
    known = {"age": 61, "town": "Mons", "income": 800.0, "debt": 20, "home": "owned"}
    return pd.DataFrame([known | private])


def with_people(*more: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([TABLE, *more], ignore_index=True)


def fitted(
    table: pd.DataFrame,
    ledger: Ledger | None = None,
    desired: Any = "yes",
    **policy: Any,
) -> KAnonymizer:
    population = Population.from_frame(table, Schema.from_frame(table, **ROLES), key=b"key")
    settings = {"k": K, **policy}
    return KAnonymizer(policy=PrivacyPolicy(**settings), ledger=ledger).fit(
        population, model, desired
    )


def released(explanations: Explanations) -> list[Any]:
    """Return regions and private values, in order."""
    return [(entry.region, dict(entry.released)) for entry in explanations.generalized]


def private_values(explanations: Explanations) -> set[tuple[Any, ...]]:
    return {tuple(entry.released.values()) for entry in explanations.generalized}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return a ledger that knows the catalogue of the table."""
    file = tmp_path / "first.db"
    with Ledger(file, key=KEY, create=True) as ledger:
        fitted(TABLE, ledger).published()
    return file


def again(file: Path, name: str = "again") -> Ledger:
    """Open a copy of a ledger."""
    return Ledger(shutil.copy(file, file.parent / f"{name}.db"), key=KEY)


ONE, OTHER = joiner(), joiner(income=1_500.0, debt=49, home="rented")


def test_without_a_ledger_the_catalogue_depends_on_the_private_values_of_who_joined() -> None:
    assert released(fitted(with_people(ONE)).published()) != released(
        fitted(with_people(OTHER)).published()
    )


def test_with_a_ledger_it_does_not(first: Path) -> None:
    published = []
    for number, person in enumerate((ONE, OTHER)):
        with again(first, str(number)) as ledger:
            published.append(released(fitted(with_people(person), ledger).published()))
    assert published[0] == published[1]
    with again(first) as ledger:
        before = private_values(fitted(TABLE, ledger).published())
    after = {tuple(private.values()) for _, private in published[0]}
    assert after <= before
    assert len(after) > 10


def test_on_record_are_the_values_of_the_catalogue(first: Path) -> None:
    with again(first) as ledger:
        published = private_values(fitted(TABLE, ledger).published())
        (edition,) = ledger.editions(f"shared k={K} desired=yes")
    on_record = {(income, debt, home) for _, (debt, home, income) in edition.added["values"]}
    assert on_record == published


def test_answers_are_made_of_the_values_on_record(first: Path) -> None:
    queries = TABLE[model(TABLE) == "no"].head(30)
    told = []
    for number, person in enumerate((ONE, OTHER)):
        with again(first, str(number)) as ledger:
            told.append(released(fitted(with_people(person), ledger).explain(queries)))
    assert told[0] == told[1]
    assert len(told[0]) == 30


def test_values_of_enough_new_people_are_added(first: Path) -> None:
    few = MANY.head(K - 1)
    with again(first) as ledger:
        assert not [values for values in added(ledger, with_people(few)) if 77 in values]
        # They are known by now: others who join later are not new together with them.
        assert not [values for values in added(ledger, with_people(MANY.head(K))) if 77 in values]
    with again(first) as ledger:
        assert [values for values in added(ledger, with_people(MANY)) if 77 in values]
        assert not added(ledger, with_people(MANY))  # nobody is new


def added(ledger: Ledger, table: pd.DataFrame) -> list[list[Any]]:
    """Return the private values that a fit adds to a ledger."""
    series = f"shared k={K} desired=yes"
    before = ledger.number_of_editions(series)
    fitted(table, ledger)
    return [
        values
        for edition in ledger.editions(series)[before:]
        for _, values in edition.added["values"]
    ]


def test_another_k_or_outcome_has_values_of_its_own(first: Path) -> None:
    with again(first) as ledger:
        assert len(fitted(TABLE, ledger, k=8).published()) > 5
        assert len(fitted(TABLE, ledger, desired="no").published()) > 5
        assert len(fitted(TABLE, ledger, desired="opposite").published()) > 5


def test_shared_values_have_no_record(first: Path) -> None:
    with again(first) as ledger:
        entries = fitted(TABLE, ledger).published().generalized
        assert {entry.recount.ledger for entry in entries} == {"no_record"}
        assert all(
            entry.recount.k_intersection == entry.recount.k_effective >= K for entry in entries
        )
        assert ledger.status().releases == 0


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_a_second_fit_of_the_same_table_has_the_same_catalogue(
    desired: str, tmp_path: Path
) -> None:
    """Whatever types private values have, they are what they were when they are read back."""
    random = np.random.default_rng(0)
    n = 300
    table = inhabitants(n).assign(
        since=pd.Timestamp("2020-01-31") + pd.to_timedelta(random.integers(0, 900, n), unit="D"),
        grade=random.choice(["low", "mid", "high"], n),
        member=random.random(n) < 0.5,
        share=np.where(random.random(n) < 0.2, np.nan, random.random(n).round(3)),
        visits=pd.array(random.integers(0, 9, n), dtype="Int64"),
    )
    schema = Schema.from_frame(
        table, quasi_identifiers=["age", "town"], ordinal={"grade": ["low", "mid", "high"]}
    )
    published = []
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        for layout in (table, table[list(table)[::-1]].sample(frac=1, random_state=1)):
            population = Population.from_frame(layout, schema, key=b"key")
            anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K), ledger=ledger)
            anonymizer.fit(population, model, desired)
            published.append(
                sorted(
                    (str(entry.region), str(sorted(entry.cells().items())))
                    for entry in anonymizer.published().generalized
                )
            )
        assert ledger.status().catalogues == 1
    assert len(published[0]) > 20
    assert published[0] == published[1]


@pytest.mark.parametrize("form", ["shared", "exact"])
def test_a_table_without_private_attributes(form: str, tmp_path: Path) -> None:
    table = TABLE[["age", "town"]]
    schema = Schema.from_frame(table, quasi_identifiers=["age", "town"])
    policy = PrivacyPolicy(k=K, private_values=form)
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        for rows in (table, table.head(150)):
            population = Population.from_frame(rows, schema, key=b"key")
            anonymizer = KAnonymizer(policy=policy, ledger=ledger)
            anonymizer.fit(population, lambda rows: rows["age"] > 40, True)
            published = anonymizer.published()
            assert published.generalized
            assert not any(entry.released for entry in published.generalized)


def test_the_first_catalogue_is_as_large_with_a_ledger_as_without(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        with_ledger = fitted(TABLE, ledger).published()
    assert len(with_ledger) > 0.8 * len(fitted(TABLE).published())


def published_after_leaving(person: pd.DataFrame, ledger: Ledger | None) -> list[Any]:
    """Publish a catalogue of a table with two people of equal age and town, then without one."""
    fitted(with_people(ONE, OTHER), ledger).published()
    stays = OTHER if person is ONE else ONE
    return released(fitted(with_people(stays), ledger).published())


def test_a_catalogue_does_not_depend_on_the_private_values_of_who_left(tmp_path: Path) -> None:
    published = []
    for number, person in enumerate((ONE, OTHER)):
        with Ledger(tmp_path / f"{number}.db", key=KEY, create=True) as ledger:
            published.append(published_after_leaving(person, ledger))
    assert published[0] == published[1]
    assert published_after_leaving(ONE, None) != published_after_leaving(OTHER, None)


# --- exact values ---------------------------------------------------------------------------------

EXACT = {"private_values": "exact"}


def test_exact_values_of_one_who_joined_are_not_published(tmp_path: Path) -> None:
    file = tmp_path / "exact.db"
    with Ledger(file, key=KEY, create=True) as ledger:
        before = fitted(TABLE, ledger, **EXACT).published()
    later = with_people(ONE)
    own = tuple(ONE.iloc[0][["income", "debt", "home"]])
    without = private_values(fitted(later, **EXACT).published())
    assert own in without, "the person must be published where nobody keeps a ledger"
    with again(file) as ledger:
        anonymizer = fitted(later, ledger, **EXACT)
        after = anonymizer.published()
        assert private_values(after) <= private_values(before)
        answers = anonymizer.explain(TABLE[model(TABLE) == "no"].head(40), answers=3)
        assert {entry.reason for entry in answers.withheld} <= {
            "too_few_new", "too_few_remain", "intersection", "no_other_answer",
        }  # fmt: skip


def test_exact_values_of_k_new_people_of_a_group_are_published(tmp_path: Path) -> None:
    file = tmp_path / "exact.db"
    with Ledger(file, key=KEY, create=True) as ledger:
        fitted(TABLE, ledger, **EXACT).published()
        later = fitted(with_people(MANY.assign(age=66, town="Mons")), ledger, **EXACT)
        new = [entry for entry in later.published().generalized if entry.released["debt"] == 77]
        assert new
        assert {entry.recount.ledger for entry in new} == {"new"}


def test_a_catalogue_of_the_same_table_can_be_published_again(tmp_path: Path) -> None:
    """Also after a failure in between: its people are on record by then."""
    later = with_people(MANY.assign(age=66, town="Mons"))
    with Ledger(tmp_path / "exact.db", key=KEY, create=True) as ledger:
        fitted(TABLE, ledger, **EXACT).published()
        anonymizer = fitted(later, ledger, **EXACT)
        anonymizer.guarantee_.record_publication()
        published = anonymizer.published()
        assert 77 in {entry.released["debt"] for entry in published.generalized}
        assert released(fitted(later, ledger, **EXACT).published()) == released(published)


def test_what_another_process_published_meanwhile_counts(tmp_path: Path) -> None:
    with Ledger(tmp_path / "exact.db", key=KEY, create=True) as ledger:
        server = fitted(with_people(ONE), ledger, **EXACT)
        fitted(TABLE, ledger, **EXACT).published()
        answers = server.explain(TABLE[model(TABLE) == "no"].head(60), answers=4)
        own = tuple(ONE.iloc[0][["income", "debt", "home"]])
        assert own not in private_values(answers)
        assert len(answers.released) > 60


def test_before_anything_is_published_answers_may_be_new(tmp_path: Path) -> None:
    queries = TABLE[model(TABLE) == "no"].head(10)
    with Ledger(tmp_path / "exact.db", key=KEY, create=True) as ledger:
        fitted(TABLE, ledger, **EXACT).explain(queries)
        answers = fitted(with_people(ONE), ledger, **EXACT).explain(queries)
        assert "too_few_new" not in {entry.reason for entry in answers.withheld}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": {"debt": "debts"}}, "new column 'debts'; gone column 'debt'"),
        ({"constant": 1}, "new column 'constant'"),
        ({"roles": ["age"]}, "no longer a quasi-identifier: column 'town'"),
        ({"roles": ["age", "town", "debt"]}, "a quasi-identifier by now: column 'debt'"),
    ],
)
def test_a_table_with_other_columns_is_refused(
    first: Path, change: dict[str, Any], said: str
) -> None:
    roles = change.pop("roles", ROLES["quasi_identifiers"])
    table = TABLE.rename(**change) if "columns" in change else TABLE.assign(**change)
    schema = Schema.from_frame(table, quasi_identifiers=roles)
    population = Population.from_frame(table, schema, key=b"key")
    with again(first) as ledger, pytest.raises(LedgerError, match=said):
        KAnonymizer(ledger=ledger).fit(population, model, "yes")


def test_text_that_looks_alike_is_the_same(tmp_path: Path) -> None:
    """The same people, read by another program."""
    spelled = TABLE.assign(
        town=TABLE["town"].str.normalize("NFD") + " ", income=(TABLE["income"] * 0.1) / 0.1
    )
    wanted = TABLE[model(TABLE) == "yes"].head(10)
    policy = {"guarantee": "reciprocal", **EXACT}
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        fitted(TABLE, ledger, **policy).transform(wanted)
        known = ledger.status().records
        later = fitted(spelled, ledger, **policy).transform(spelled.loc[wanted.index])
        assert ledger.status().records == known
        assert {entry.recount.ledger for entry in later.generalized} <= {"again", "earlier"}


def test_the_command_says_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Path
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", KEY.decode())
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(ROLES))
    TABLE.to_csv("train.csv", index=False)
    options = ("--train", "train.csv", "-s", "schema.json")
    Ledger("new.db", create=True).close()
    assert "not used with a table yet" in cfk("ledger status", "new.db", *options).stdout
    with Ledger("fitted.db", key=KEY, create=True) as ledger:
        fitted(TABLE, ledger, guarantee="reciprocal", **EXACT)
    assert "nobody is on record yet" in cfk("ledger status", "fitted.db", *options).stdout
    assert "of 200 people 200 are on record" in cfk("ledger status", first, *options).stdout
    TABLE.assign(debt=TABLE["debt"] + 1).to_csv("train.csv", index=False)
    assert "of 200 people 0 are" in cfk("ledger status", first, *options, code=1).stdout
    TABLE.rename(columns={"debt": "debts"}).to_csv("train.csv", index=False)
    said = cfk("ledger status", first, *options, code=1).stdout
    assert "new column 'debts'" in said
    assert "gone column 'debt'" in said
    TABLE.assign(person=range(200)).to_csv("train.csv", index=False)
    Path("schema.json").write_text(json.dumps(ROLES | {"subject": "person"}))
    assert "now by column 'person'" in cfk("ledger status", first, *options, code=1).stdout


def test_a_catalogue_that_another_process_put_on_record_meanwhile_counts(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        people = [f"{number:016x}" for number in range(3)]
        assert ledger.add_edition("p", 0, {"values": []}, people[:2])
        assert not ledger.add_edition("p", 0, {"values": [1]}, people)
        assert ledger.add_edition("p", 1, {"values": [2]}, people[2:])
        assert [edition.added["values"] for edition in ledger.editions("p")] == [[], [2]]
        assert ledger.number_of_editions("p") == ledger.status().catalogues == 2
        assert ledger.number_of_editions("q") == 0
        ledger.forget(people=people[:1])
        assert [edition.people for edition in ledger.editions("p")] == [{people[1]}, {people[2]}]
        assert ledger.verify().releases == 0


# --- verification ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a table, its schema and its model."""
    monkeypatch.setenv("CFK_LEDGER_KEY", KEY.decode())
    monkeypatch.setenv("CFK_KEY", "a key of the population")
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(ROLES))
    # Read back from CSV, so that the model is asked about what the commands read.
    TABLE.to_csv("before.csv", index=False)
    with_people(ONE).to_csv("train.csv", index=False)
    joblib.dump(model, "model.joblib")
    return tmp_path


OPTIONS = ("-s", "schema.json", "-m", "model.joblib", "--desired", "yes", "--k", K)
