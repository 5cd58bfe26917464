"""Release with a ledger: what left for one record never adds up to fewer than k people."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    protect,
)
from cfk_plugin.errors import LedgerError
from cfk_plugin.release.pipeline import Pipeline

K = 5


def people(n: int = 240, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "city": random.choice(list("ABCDE"), n),
            "salary": random.integers(1_000, 9_000, n),
        }
    )


FRAME = people()
AFTER = pd.concat([FRAME.iloc[20:], people(60, seed=1)], ignore_index=True)
"""What the table has become: some people left, others came."""


def population_of(frame: pd.DataFrame) -> Population:
    return Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]), key=b"key"
    )


def model(frame: pd.DataFrame) -> np.ndarray:
    return np.where(frame["salary"] + 40 * frame["age"] > 4_000, "yes", "no")


def desired(frame: pd.DataFrame = FRAME, n: int = 12) -> pd.DataFrame:
    return frame[model(frame) == "yes"].head(n)


def release(
    ledger: Ledger | None,
    wanted: pd.DataFrame,
    frame: pd.DataFrame = FRAME,
    seed: int = 0,
    method: str = "auto",
    **policy: object,
) -> Explanations:
    return fitted(ledger, frame, seed, method, **policy).transform(wanted)


def fitted(
    ledger: Ledger | None,
    frame: pd.DataFrame = FRAME,
    seed: int = 0,
    method: str = "auto",
    **policy: object,
) -> KAnonymizer:
    settings = {"k": K, "guarantee": "reciprocal", "private_values": "exact", **policy}
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(**settings), method=method, ledger=ledger, seed=seed
    )
    return anonymizer.fit(population_of(frame), model, "yes")


def regions(explanations: Explanations) -> dict[int, Region]:
    return {entry.query: entry.region for entry in explanations.released}


def reasons(explanations: Explanations) -> set[str]:
    return {entry.reason for entry in explanations.withheld}


CHANGES: list[dict[str, object]] = [  # everything that gives a record another region
    *({"method": "grasp", "seed": seed, "guarantee": "lookup"} for seed in range(3)),
    {"objective": "ncp", "guarantee": "lookup"},
    *({"k": k, "guarantee": "lookup"} for k in (6, 12)),
    {"max_ncp": 0.9, "guarantee": "lookup"},
    {"guarantee": "reciprocal"},
]


def test_regions_of_one_record_never_add_up(ledger: Ledger) -> None:
    wanted, population, outcomes = desired(), population_of(FRAME), Counter[str | None]()
    seen: dict[bool, dict[int, set[Region]]] = {True: defaultdict(set), False: defaultdict(set)}

    def left(kept: bool, query: int) -> int:
        inside = [set(population.members(region).tolist()) for region in seen[kept][query]]
        return len(set.intersection(*inside))

    for change in CHANGES:
        for kept in (True, False):
            result = release(ledger if kept else None, wanted, **change)
            for query, region in regions(result).items():
                seen[kept][query].add(region)
            for entry in result.generalized:
                if not kept:
                    assert entry.recount.ledger is None
                    continue
                outcomes[entry.recount.ledger] += 1
                if change["guarantee"] == "lookup":
                    assert entry.recount.k_intersection == left(kept, entry.query) >= K
    assert set(outcomes) == {"new", "again", "earlier"}
    assert min(left(False, query) for query in seen[False]) < K, (
        "the attack must work where nobody keeps a ledger"
    )
    assert len(seen[True]) == len(wanted)


def test_the_same_region_again_for_the_same_record_and_policy(ledger: Ledger) -> None:
    lookup = {"method": "grasp", "guarantee": "lookup"}
    wanted = pd.concat([desired(), desired(n=1)])  # equal records of one request share their region
    first = release(ledger, wanted, seed=0, **lookup)
    again = release(ledger, wanted, seed=1, **lookup)
    assert regions(again) == regions(first) != regions(release(None, wanted, seed=1, **lookup))
    assert ledger.status().releases == 12


# without them many have the same private values
@pytest.mark.parametrize("others", [("plan", "home", "bank"), ()])
@pytest.mark.parametrize("move_towards_query", [True, False])
def test_a_counterfactual_that_keeps_its_private_values_keeps_its_region(
    ledger: Ledger, others: tuple[str, ...], move_towards_query: bool
) -> None:
    random = np.random.default_rng(0)
    frame = people(400).assign(
        **{name: random.choice(list("uvwxyz"), 400) for name in ("job", *others)}
    )
    frame["salary"] = frame["salary"] if others else 0
    # each answer keeps the job, and all else is the query's own
    wanted = frame[frame["job"] < "x"].head(60)
    left: dict[bool, dict[int, set[Region]]] = {True: defaultdict(set), False: defaultdict(set)}
    for change in ({}, {"objective": "ncp"}, {"k": K + 1}, {"k": K + 2}):
        for kept in (True, False):
            policy = PrivacyPolicy(
                **{
                    "k": K,
                    "move_towards_query": move_towards_query,
                    "private_values": "exact",
                    **change,
                }
            )
            anonymizer = KAnonymizer(policy=policy, ledger=ledger if kept else None)
            anonymizer.fit(population_of(frame), lambda rows: rows["job"] < "x", True)
            answers = anonymizer.transform(wanted, wanted.assign(job="z"))
            for entry, (_, own) in zip(answers, wanted.iterrows(), strict=True):
                if not isinstance(entry, GeneralizedCounterfactual) or not entry.region.contains(
                    own
                ):
                    continue
                if {name: own[name] for name in entry.released} == dict(entry.released):
                    left[kept][entry.query].add(entry.region)
    assert max(map(len, left[False].values())) > 1, (
        "the attack must work where nobody keeps a ledger"
    )
    assert {len(regions) for regions in left[True].values()} == {1}
    assert len(left[True]) > 10


def test_answers_with_a_region_on_record_are_true_for_the_person_who_asks_or_withheld(
    ledger: Ledger,
) -> None:
    random = np.random.default_rng(3)
    frame = people(400).assign(
        job=random.choice(list("uvwxyz"), 400), plan=random.choice(list("uvwxyz"), 400)
    )

    def accepts(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(rows["salary"] / 100 + rows["age"] + 20 * (rows["job"] < "x") > 95)

    queries, wanted = (
        frame[~accepts(frame)].sample(80, random_state=1, replace=True),
        frame[accepts(frame)].head(80),
    )
    recorded = 0
    for change in ({}, {"objective": "ncp"}, {"k": K + 1}):
        anonymizer = KAnonymizer(
            policy=PrivacyPolicy(**{"k": K, "private_values": "exact", **change}), ledger=ledger
        )
        anonymizer.fit(population_of(frame), accepts, True)
        for entry in [
            *anonymizer.transform(wanted, queries).released,
            *anonymizer.explain(queries).released,
        ]:
            point = queries.iloc[[entry.query]].assign(**entry.released)
            age, city = entry.region["age"], entry.region["city"]
            point["age"] = np.clip(point["age"], age.low, age.high)
            point["city"] = [own if own in city else min(city) for own in point["city"]]
            assert accepts(point).all()
            recorded += entry.recount.ledger != "new" and bool(change)
    assert recorded > 20


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue"])
def test_a_record_keeps_its_region_under_a_new_partition(ledger: Ledger, guarantee: str) -> None:
    wanted = desired(FRAME.iloc[20:], 60)
    first = release(ledger, wanted, guarantee=guarantee)
    assert regions(release(None, wanted, AFTER, guarantee=guarantee)) != regions(first)
    known = {tuple(entry.released.items()): entry.region for entry in first.released}
    second = release(ledger, wanted, AFTER, guarantee=guarantee)
    kept = [entry for entry in second.released if tuple(entry.released.items()) in known]
    assert len(kept) > 5
    assert all(entry.region == known[tuple(entry.released.items())] for entry in kept)
    assert all(entry.recount.k_effective >= K for entry in second.released)
    assert reasons(second) <= {"intersection", "too_few_remain"}


def answers(ledger: Ledger | None) -> Counter[tuple[Region | None, ...]]:
    """Count the sequences of regions that people get, who all have the desired outcome."""
    asked = desired(FRAME, len(FRAME))
    later = desired(AFTER, len(AFTER))
    epochs: list[tuple[pd.DataFrame, dict[str, object]]] = [
        (asked, {}),
        (later, {"objective": "ncp"}),
        (asked, {"max_ncp": 0.4}),
        (later, {"k": 2 * K}),
    ]
    given = [regions(release(ledger, asked, frame, **policy)) for frame, policy in epochs]
    return Counter(tuple(each.get(i) for each in given) for i in range(len(asked)))


def test_at_least_k_people_would_have_been_answered_alike_all_along(ledger: Ledger) -> None:
    """Rerun everything for everybody: who gets the same sequence of regions, withheld ones
    included?
    """
    assert min(answers(None).values()) < K, "the attack must work where nobody keeps a ledger"
    # For whom the first partition had nothing that may leave, nothing is on record: see "What it
    # does not do".
    recorded = {
        sequence: alike for sequence, alike in answers(ledger).items() if sequence[0] is not None
    }
    assert len(recorded) > 5
    assert min(recorded.values()) >= K
    assert all(set(sequence) <= {sequence[0], None} for sequence in recorded)
    assert any(None in sequence for sequence in recorded)


def test_a_region_of_both_partitions_has_the_smaller_effective_k(ledger: Ledger) -> None:
    twice, wanted = pd.concat([FRAME, FRAME], ignore_index=True), desired()
    settings = [(FRAME, K), (twice, 2 * K)]
    small, large = (release(None, wanted, frame, k=k) for frame, k in settings)
    same = [
        query for query, region in regions(small).items() if regions(large).get(query) == region
    ]
    assert same, "some region must be in both"
    release(ledger, wanted)
    again = {entry.query: entry.recount for entry in release(ledger, wanted, twice).released}
    for query in same:
        known = small.released[query].recount
        assert (again[query].k, again[query].k_effective) == (known.k, known.k_effective)


def test_who_left_does_not_count_for_the_k_of_an_earlier_policy(ledger: Ledger) -> None:
    twice, wanted = pd.concat([FRAME, FRAME], ignore_index=True), desired()
    assert release(ledger, wanted, twice, k=2 * K).released
    later = release(ledger, wanted, k=K)
    assert reasons(later) == {"too_few_remain"}
    assert not later.released


def test_region_that_does_not_meet_todays_policy_is_withheld(ledger: Ledger) -> None:
    first = release(ledger, desired())
    assert first.released
    for policy, reason in (({"max_ncp": 1e-6}, "intersection"), ({"k": 100}, "too_few_remain")):
        second = release(ledger, desired(), **policy)
        assert reasons(second) == {reason}
        assert not second.released
    third = release(ledger, desired(), min_pureness=0.0)
    assert regions(third) == regions(first)
    for one, other in zip(first.released, third.released, strict=True):
        assert (one.recount.ledger, other.recount.ledger) == ("new", "again")
        # of a group those who are mapped to it are left
        for recount in (one.recount, other.recount):
            assert recount.k_intersection == recount.k_effective == one.recount.k_effective


def test_todays_partition_is_not_asked_about_a_record_with_a_region(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = desired(FRAME.iloc[20:])
    first = regions(release(ledger, wanted))
    # Were a record withheld because today's region of it is, who sees that could tell where today's
    # partition puts it.
    monkeypatch.setattr(Pipeline, "protect", lambda *_: pytest.fail("today's partition was asked"))
    second = release(ledger, wanted, AFTER)
    assert len(second.released) > 5
    assert regions(second).items() <= first.items()
    assert reasons(second) <= {"intersection", "too_few_remain"}


def test_what_was_erased_in_between_lets_nothing_unverified_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(ledger, desired())
    settle = Ledger.settle

    def erase_first(self: Ledger, *arguments: object) -> object:
        self.forget(*(row["record"] for row in self.export()))
        return settle(self, *arguments)

    monkeypatch.setattr(Ledger, "settle", erase_first)
    later = release(ledger, desired())
    assert reasons(later) == {"intersection"}
    assert not later.released
    assert ledger.status().releases == 0


@pytest.mark.parametrize("step", ["latest", "settle"])
def test_nothing_leaves_when_the_ledger_fails(
    ledger: Ledger, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise LedgerError("the database is gone")

    monkeypatch.setattr(Ledger, step, broken)
    with caplog.at_level(logging.WARNING, logger="cfk_plugin"):
        explanations = release(ledger, desired())
    assert not explanations.released
    assert reasons(explanations) == {"ledger_failed"}
    assert "the database is gone" in caplog.text


@pytest.mark.parametrize("guarantee", ["lookup", "reciprocal"])
def test_a_database_that_others_hold_withholds(tmp_path: Path, guarantee: str) -> None:
    with Ledger(tmp_path / "ledger.db", timeout=0.01, create=True) as ledger:
        anonymizer = fitted(ledger, guarantee=guarantee)
        first = anonymizer.transform(desired(n=3))
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for rows in (3, 12):  # only such as are on record, and others, too
            held = anonymizer.transform(desired(n=rows))
            assert [e.reason for e in held.withheld] == ["ledger_failed"] * rows
        with pytest.raises(LedgerError, match="in use by others"):
            fitted(ledger, guarantee=guarantee)
        other.execute("ROLLBACK")
        other.close()
        assert ledger.status().times == len(first.released) == 3
        again = release(ledger, desired(), guarantee=guarantee)
        assert [e.region for e in again.released[:3]] == [e.region for e in first.released]


def test_protect_takes_a_ledger(ledger: Ledger) -> None:
    wanted = desired(n=3)
    private = protect(
        lambda queries: wanted.head(len(queries)).reset_index(drop=True),
        model=model,
        population=population_of(FRAME),
        policy=PrivacyPolicy(guarantee="reciprocal", k=K),
        desired="yes",
        ledger=ledger,
    )
    assert (
        len(private.explain(FRAME[model(FRAME) == "no"].head(3)).released)
        == ledger.status().releases
        == 3
    )
    # known by its features, in order
    gone = ledger.forget(ledger.handle(wanted.to_numpy(dtype=object).tolist()[0]))
    assert (gone.records, ledger.status().records) == (1, 2)


def test_the_database_holds_no_private_value(ledger: Ledger, tmp_path: Path) -> None:
    frame = FRAME.assign(
        salary=np.random.default_rng(5).integers(10_000_000, 99_999_999, len(FRAME))
    )
    for guarantee in ("reciprocal", "lookup"):
        assert release(ledger, desired(frame), frame, guarantee=guarantee).released
    ledger.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert not [salary for salary in frame["salary"] if str(salary).encode() in content]


def test_columns_that_are_no_features_do_not_matter(tmp_path: Path) -> None:
    """A label column and an identifier are in the table, and in no counterfactual."""
    table = FRAME.assign(label=model(FRAME), person=[f"person {i}" for i in range(len(FRAME))])
    schema = Schema.from_frame(
        table, quasi_identifiers=["age", "city"], identifiers=["person"], target="label"
    )
    released = {}
    for name, train, of in (
        ("with", table, schema),
        ("without", FRAME, population_of(FRAME).schema),
    ):
        with Ledger(
            tmp_path / f"{name}.db", key=b"a key of this test alone", create=True
        ) as ledger:
            anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K), ledger=ledger)
            anonymizer.fit(Population.from_frame(train, of, key=b"key"), model, "yes")
            factuals = FRAME[model(FRAME) == "no"].head(12)
            released[name] = [
                None if entry.status != "released" else (entry.region, entry.released)
                for entry in anonymizer.transform(desired(), factuals)
            ]
    assert released["with"] == released["without"]
    assert any(released["with"])
