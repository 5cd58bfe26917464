"""Release with a ledger: what left for one record never adds up to fewer than k people."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Ledger, Population, PrivacyPolicy, Region, Schema, protect
from cfk_plugin.errors import LedgerError
from cfk_plugin.release.pipeline import Pipeline

K = 5


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", create=True) as opened:
        yield opened


def people(n: int = 240, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "city": random.choice(list("ABCDE"), n),
            "salary": random.integers(1_000, 9_000, n),
        }
    )


def population_of(frame: pd.DataFrame) -> Population:
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]), key=b"key")


def model(frame: pd.DataFrame) -> np.ndarray:
    return np.where(frame["salary"] + 40 * frame["age"] > 4_000, "yes", "no")


def release(
    ledger: Ledger | None,
    frame: pd.DataFrame,
    wanted: pd.DataFrame,
    seed: int = 0,
    method: str = "auto",
    **policy: object,
) -> Explanations:
    settings = {"k": K, "guarantee": "nominal", **policy}
    anonymizer = KAnonymizer(policy=PrivacyPolicy(**settings), method=method, ledger=ledger, seed=seed)
    return anonymizer.fit(population_of(frame), model, "yes").transform(wanted)


def desired(frame: pd.DataFrame, n: int = 12) -> pd.DataFrame:
    return frame[model(frame) == "yes"].head(n)


class Seen:
    """What an adversary collects: all regions of each record."""

    def __init__(self) -> None:
        self.regions: dict[int, set[Region]] = defaultdict(set)

    def add(self, explanations: Explanations) -> None:
        for entry in explanations.released:
            self.regions[entry.query].add(entry.region)

    def least(self, population: Population) -> int:
        rows = [
            set.intersection(*(set(population.members(region).tolist()) for region in regions))
            for regions in self.regions.values()
        ]
        return min(len(inside) for inside in rows)


def changes() -> Iterator[dict[str, object]]:
    """Everything that gives a record another region."""
    yield from ({"method": "grasp", "seed": seed} for seed in range(4))
    yield {"objective": "ncp"}
    yield from ({"k": k} for k in (6, 8, 12))
    yield {"max_ncp": 0.9}
    yield {"guarantee": "reciprocal"}


def test_regions_of_one_record_never_add_up(ledger: Ledger) -> None:
    frame = people()
    wanted, population, seen, without = desired(frame), population_of(frame), Seen(), Seen()
    for change in changes():
        seen.add(release(ledger, frame, wanted, **change))
        without.add(release(None, frame, wanted, **change))
    assert without.least(population) < K, "the attack must work where nobody keeps a ledger"
    assert seen.least(population) >= K
    assert len(seen.regions) == len(wanted)


def test_the_same_region_again_for_the_same_record_and_policy(ledger: Ledger) -> None:
    frame = people()
    first = release(ledger, frame, desired(frame), method="grasp", seed=0)
    again = release(ledger, frame, desired(frame), method="grasp", seed=1)
    assert [e.region for e in again.released] == [e.region for e in first.released]
    other = release(None, frame, desired(frame), method="grasp", seed=1)
    assert [e.region for e in other.released] != [e.region for e in first.released]


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table, and the one that it has become: some people left, others came."""
    before = people()
    return before, pd.concat([before.iloc[20:], people(60, seed=1)], ignore_index=True)


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue"])
def test_a_record_keeps_its_region_under_a_new_partition(ledger: Ledger, guarantee: str) -> None:
    before, after = tables()
    wanted = desired(before.iloc[20:], 60)
    first = release(ledger, before, wanted, guarantee=guarantee)
    without = release(None, after, wanted, guarantee=guarantee)
    assert [e.region for e in without.released] != [e.region for e in first.released]
    known = {tuple(entry.released.items()): entry.region for entry in first.released}
    second = release(ledger, after, wanted, guarantee=guarantee)
    kept = [entry for entry in second.released if tuple(entry.released.items()) in known]
    assert len(kept) > 5
    assert all(entry.region == known[tuple(entry.released.items())] for entry in kept)
    assert all(entry.certificate.k_effective >= K for entry in second.released)
    assert {e.reason for e in second.suppressed} <= {"intersection"}


def answers(ledger: Ledger | None, before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[Region | None, ...]]:
    """Return the sequence of regions that each person gets who has the desired outcome."""
    asked = before[model(before) == "yes"]
    epochs: list[tuple[pd.DataFrame, dict[str, object]]] = [
        (before, {"k": K}),
        (before, {"k": K + 1}),
        (after, {"k": K, "objective": "ncp"}),
        (before, {"k": K, "max_ncp": 0.4}),
        (after, {"k": 2 * K}),
    ]
    seen: dict[int, list[Region | None]] = defaultdict(list)
    for frame, policy in epochs:
        given = release(ledger, frame, asked, guarantee="reciprocal", anonymity_set="eligible", **policy)
        regions = {entry.query: entry.region for entry in given.released}
        for i in range(len(asked)):
            seen[i].append(regions.get(i))
    return [tuple(regions) for regions in seen.values()]


def test_at_least_k_people_would_have_been_answered_alike_all_along(ledger: Ledger) -> None:
    """Rerun everything for everybody: who gets the same sequence of regions, withheld ones included?"""
    assert min(Counter(answers(None, *tables())).values()) < K, "the attack must work where nobody keeps a ledger"
    seen = Counter(answers(ledger, *tables()))
    # For whom the first partition had nothing that may leave, nothing is on record: see "What it does not do".
    recorded = {sequence: alike for sequence, alike in seen.items() if sequence[0] is not None}
    assert len(recorded) > 5
    assert min(recorded.values()) >= K
    assert all(set(sequence) <= {sequence[0], None} for sequence in recorded)
    assert any(None in sequence for sequence in recorded)


def test_an_earlier_region_keeps_the_effective_k_on_record(ledger: Ledger) -> None:
    before = people()
    first = release(ledger, before, desired(before), guarantee="reciprocal")
    second = release(ledger, before, desired(before), guarantee="reciprocal", min_pureness=0.0)
    assert [e.region for e in first.released] == [e.region for e in second.released]
    assert [e.certificate.k_effective for e in first.released] == [e.certificate.k_effective for e in second.released]


def test_a_region_of_both_partitions_has_the_smaller_effective_k(ledger: Ledger) -> None:
    before = people()
    twice = pd.concat([before, before], ignore_index=True)
    small, large = (
        release(None, frame, desired(before), guarantee="reciprocal", k=k) for frame, k in ((before, K), (twice, 2 * K))
    )
    same = [a.query for a, b in zip(small.released, large.released, strict=True) if a.region == b.region]
    assert same, "some region must be in both"
    for one, other in (((before, K), (twice, K)), ((twice, 2 * K), (before, K))):
        ledger.forget(*(row["record"] for row in ledger.export()))
        release(ledger, one[0], desired(before), guarantee="reciprocal", k=one[1])
        again = release(ledger, other[0], desired(before), guarantee="reciprocal", k=other[1])
        figures = {e.query: e.certificate.k_effective for e in again.released}
        assert all(figures[i] == small.released[i].certificate.k_effective for i in same)


def test_region_that_does_not_meet_todays_policy_is_withheld(ledger: Ledger) -> None:
    frame = people()
    first = release(ledger, frame, desired(frame), guarantee="reciprocal")
    assert first.released
    for policy in ({"max_ncp": 1e-6}, {"k": 100}):
        second = release(ledger, frame, desired(frame), guarantee="reciprocal", **policy)
        assert {e.reason for e in second.suppressed} == {"intersection"}
        assert not second.released
    third = release(ledger, frame, desired(frame), guarantee="reciprocal")
    assert [e.region for e in third.released] == [e.region for e in first.released]


def test_todays_partition_is_not_asked_about_a_record_with_a_region(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tables()
    wanted = desired(before.iloc[20:])
    first = release(ledger, before, wanted, guarantee="reciprocal")
    # Were a record withheld because today's region of it is, who sees that could tell where today's partition puts it.
    monkeypatch.setattr(Pipeline, "protect", lambda *_: pytest.fail("today's partition was asked"))
    second = release(ledger, after, wanted, guarantee="reciprocal")
    regions = {entry.query: entry.region for entry in first.released}
    assert len(second.released) > 5
    assert all(entry.region == regions[entry.query] for entry in second.released)
    assert {e.reason for e in second.suppressed} <= {"intersection"}


def test_what_was_erased_in_between_lets_nothing_unverified_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = people()
    release(ledger, frame, desired(frame), guarantee="reciprocal")
    settle = Ledger.settle

    def erase_first(self: Ledger, *arguments: object) -> object:
        self.forget(*(row["record"] for row in self.export()))
        return settle(self, *arguments)

    monkeypatch.setattr(Ledger, "settle", erase_first)
    later = release(ledger, frame, desired(frame), guarantee="reciprocal")
    assert {e.reason for e in later.suppressed} == {"intersection"}
    assert not later.released
    assert ledger.status().releases == 0


def test_nothing_leaves_when_the_ledger_fails(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = people()

    def broken(*_: object) -> None:
        raise LedgerError("the database is gone")

    for step in ("latest", "settle"):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, step, broken)
            explanations = release(ledger, frame, desired(frame))
        assert not explanations.released
        assert {e.reason for e in explanations.suppressed} == {"ledger_failed"}


@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal"])
def test_a_database_that_others_hold_withholds(tmp_path: Path, guarantee: str) -> None:
    frame = people()
    with Ledger(tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", timeout=0.01, create=True) as ledger:
        first = release(ledger, frame, desired(frame, 3), guarantee=guarantee)
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for rows in (3, 12):  # only such as are on record, and others, too
            held = release(ledger, frame, desired(frame, rows), guarantee=guarantee)
            assert [e.reason for e in held.suppressed] == ["ledger_failed"] * rows
        assert ledger.status().times == len(first.released) == 3
        other.execute("ROLLBACK")
        other.close()
        again = release(ledger, frame, desired(frame, 12), guarantee=guarantee)
        assert [e.region for e in again.released[:3]] == [e.region for e in first.released]


def test_equal_records_of_one_request_share_their_region(ledger: Ledger) -> None:
    frame = people()
    wanted = pd.concat([desired(frame, 1)] * 4)
    explanations = release(ledger, frame, wanted, method="grasp")
    assert len({e.region for e in explanations.released}) == 1
    assert ledger.status().releases == 1


def test_protect_takes_a_ledger(ledger: Ledger) -> None:
    frame = people()
    wanted = desired(frame, 3)
    private = protect(
        lambda queries: wanted.head(len(queries)).reset_index(drop=True),
        model=model,
        population=population_of(frame),
        policy=PrivacyPolicy(k=K),
        desired="yes",
        ledger=ledger,
    )
    queries = frame[model(frame) == "no"].head(3)
    assert len(private.explain(queries).released) == ledger.status().releases == 3


def test_what_is_forgotten_is_not_known_any_more(ledger: Ledger) -> None:
    frame = people()
    wanted = desired(frame, 2)
    release(ledger, frame, wanted)
    handles = [ledger.handle(row) for row in wanted.to_numpy(dtype=object).tolist()]
    gone = ledger.forget(handles[0])
    assert (gone.records, ledger.status().records) == (1, 1)


def test_the_database_holds_no_private_value(ledger: Ledger, tmp_path: Path) -> None:
    frame = people()
    frame["salary"] = np.random.default_rng(5).integers(10_000_000, 99_999_999, len(frame))
    for guarantee in ("reciprocal", "nominal"):
        assert release(ledger, frame, desired(frame), guarantee=guarantee).released
    ledger.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [salary for salary in frame["salary"] if str(salary).encode() in content]


def test_a_certificate_says_what_the_ledger_decided_and_what_is_left(ledger: Ledger) -> None:
    frame = people()
    wanted, population, seen = desired(frame), population_of(frame), Seen()
    assert {entry.certificate.ledger for entry in release(None, frame, wanted).released} == {None}
    outcomes: set[str | None] = set()
    for settings in [*changes()] * 2:
        result = release(ledger, frame, wanted, **settings)
        seen.add(result)
        outcomes |= {entry.certificate.ledger for entry in result.released}
        least = min((entry.certificate.k_intersection or K for entry in result.generalized), default=K)
        assert least >= K
    assert outcomes == {"new", "again", "earlier"}
    last = release(ledger, frame, wanted)
    for entry in last.generalized:
        inside = [set(population.members(region).tolist()) for region in seen.regions[entry.query]]
        assert entry.certificate.k_intersection == len(set.intersection(*inside))


def test_of_a_group_those_who_are_mapped_to_it_are_left(ledger: Ledger) -> None:
    frame = people()
    for outcome in ("new", "again"):
        for entry in release(ledger, frame, desired(frame), guarantee="reciprocal").generalized:
            assert entry.certificate.ledger == outcome
            assert entry.certificate.k_intersection == entry.certificate.k_effective
