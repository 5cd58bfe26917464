"""Whatever partitions follow each other: who reruns them and the ledger for everybody is left with k people.

Guarantees with a partition map everybody to the region of a group. Here are tiny towns in which everybody is asked
about in the same epochs; partition, k and what the policy accepts change from one epoch to the next. The attack is
brute force: rerun everything for each person, with a ledger history of their own, and keep who gets the same regions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin.data.region import Region
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Candidate, ReleasedRegion, decide

pytestmark = pytest.mark.full_search

Seen = tuple[Region | None, ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One partition and policy: the region of each person, and which regions the policy accepts."""

    name: str
    k: int
    region_of: tuple[Region, ...]
    accepts: frozenset[Region]

    def candidate(self, person: int, record: str = "r") -> Candidate:
        region = self.region_of[person]
        return Candidate(
            record=record,
            region=region,
            policy=self.name,
            population="f",
            guarantee="reciprocal",
            k=self.k,
            effective=self.region_of.count(region),
        )

    def release(self, person: int) -> ReleasedRegion:
        candidate = self.candidate(person)
        return ReleasedRegion.of(candidate, "", str(sorted(candidate.region["zone"])))


def zone(name: str) -> Region:
    return Region({"zone": frozenset({name})})


ZONES = [zone(name) for name in "abcdef"]


@st.composite
def towns(draw: st.DrawFn) -> list[Epoch]:
    """Return epochs of a town; a region can be in several partitions, with other members."""
    people = draw(st.integers(4, 14))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    epochs = []
    for number in range(draw(st.integers(1, 5))):
        k = rng.randint(2, max(2, people // 2))
        order = rng.sample(range(people), people)
        cuts = sorted(rng.sample(range(1, people // k), rng.randint(0, people // k - 1))) if people // k > 1 else []
        bounds = [0, *(cut * k for cut in cuts), people]
        names = rng.sample(ZONES, len(ZONES))
        region_of = [ZONES[0]] * people
        for at, (start, end) in enumerate(pairwise(bounds)):
            for person in order[start:end]:
                region_of[person] = names[at % len(names)]
        # The first policy accepts all that it has put together itself; later ones need not accept it.
        accepted = [region for region in ZONES if number == 0 or rng.random() < 0.7]
        epochs.append(Epoch(str(number), k, tuple(region_of), frozenset(accepted)))
    return epochs


def by_ledger(epoch: Epoch, person: int, history: list[ReleasedRegion]) -> Region | None:
    def acceptable(_: int, region: Region) -> bool:
        return region in epoch.accepts

    _, found = decide(0, epoch.release(person), history, lambda regions: 0, acceptable)
    return None if found is None else found.region


def by_nothing(epoch: Epoch, person: int, history: list[ReleasedRegion]) -> Region | None:
    return epoch.region_of[person]


def by_common_members(
    epochs: Sequence[Epoch], epoch: Epoch, person: int, history: list[ReleasedRegion]
) -> Region | None:
    """Let a region leave while the groups of all that left have k people in common, else the last one again."""
    new = epoch.release(person)
    groups = [
        {p for p, region in enumerate(epochs[int(r.policy)].region_of) if region == r.region} for r in [*history, new]
    ]
    if len(set.intersection(*groups)) >= max(release.k for release in [*history, new]):
        history.append(new)
    return history[-1].region if history else None


def sequences(
    epochs: Sequence[Epoch], asked: Sequence[int], rule: Callable[[Epoch, int, list[ReleasedRegion]], Region | None]
) -> list[Seen]:
    """Return what each person sees who is asked about in some of the epochs."""
    seen = []
    for person in range(len(epochs[0].region_of)):
        history: list[ReleasedRegion] = []
        seen.append(tuple(rule(epochs[i], person, history) for i in asked))
    return seen


def least(epochs: Sequence[Epoch], asked: Sequence[int], seen: Sequence[Seen]) -> int:
    """Return how many people are left of the worst protected, over the k that they were promised."""
    alike = Counter(seen)
    return min(
        alike[sequence] - max(epochs[i].k for i, region in zip(asked, sequence, strict=True) if region is not None)
        for sequence in seen
        if any(sequence)
    )


def example(second: Sequence[Region]) -> list[Epoch]:
    """Return the epochs of twelve people who are on record with one region, and whom a new partition tells apart."""
    others = [zone("x")] * 10
    first = [*[zone("a")] * 12, *others]
    accepts = frozenset([*first, *second])
    return [Epoch("0", 10, tuple(first), accepts), Epoch("1", 10, (*second, *others), accepts)]


def test_a_new_partition_that_splits_a_group_shows_nothing() -> None:
    for elsewhere in (zone("b"), zone("a")):
        # Ten of the twelve are mapped to one region, two to another; either may be the region on record.
        epochs = example([elsewhere] * 10 + [zone("x")] * 2)
        epochs += [Epoch("2", 10, epochs[1].region_of, epochs[1].accepts)]
        asked = range(3)
        for person, sequence in enumerate(sequences(epochs, asked, by_ledger)[:12]):
            assert sequence == (zone("a"),) * 3, person
        assert Counter(sequences(epochs, asked, by_nothing)[:12])[zone("a"), zone("x"), zone("x")] == 2


def test_common_members_alone_can_be_inverted() -> None:
    epochs = example([zone("b")] * 10 + [zone("x")] * 2)

    def rule(epoch: Epoch, person: int, history: list[ReleasedRegion]) -> Region | None:
        return by_common_members(epochs, epoch, person, history)

    alike = Counter(sequences(epochs, range(2), rule)[:12])
    assert alike == {(zone("a"), zone("b")): 10, (zone("a"), zone("a")): 2}


@settings(max_examples=400, deadline=None)
@given(epochs=towns(), data=st.data())
def test_at_least_k_people_are_left_whatever_was_asked_when(epochs: list[Epoch], data: st.DataObject) -> None:
    asked = sorted(data.draw(st.sets(st.sampled_from(range(len(epochs))), min_size=1)))
    seen = sequences(epochs, asked, by_ledger)
    for sequence in seen:
        assert len(set(sequence) - {None}) <= 1
    if any(any(sequence) for sequence in seen):
        assert least(epochs, asked, seen) >= 0


def test_without_a_ledger_fewer_than_k_people_are_left() -> None:
    rng, broken = random.Random(0), 0
    for _ in range(100):
        people = [rng.sample(range(12), 12) for _ in range(3)]
        epochs = [
            Epoch(str(n), 4, tuple(ZONES[order.index(p) // 4] for p in range(12)), frozenset(ZONES))
            for n, order in enumerate(people)
        ]
        seen = sequences(epochs, range(3), by_ledger)
        assert least(epochs, range(3), seen) >= 0
        broken += least(epochs, range(3), sequences(epochs, range(3), by_nothing)) < 0
    assert broken > 90


@settings(max_examples=5, deadline=None)
@given(epochs=towns(), seed=st.integers(0, 2**32 - 1))
def test_a_ledger_on_disk_decides_as_the_rule(
    epochs: list[Epoch], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    people = range(len(epochs[0].region_of))
    file = tmp_path_factory.mktemp("ledger") / "ledger.db"
    seen: list[list[Region | None]] = [[] for _ in people]
    with Ledger(file, key=b"a key of sixteen bytes or more", create=True) as ledger:
        for epoch in epochs:
            order = random.Random(seed).sample(people, len(people))  # the order of requests must not matter
            wanted = [epoch.candidate(person, ledger.handle([person])) for person in order]
            decisions = ledger.settle(wanted, lambda regions: 0, lambda _, region, ok=epoch.accepts: region in ok)
            for person, decision in zip(order, decisions, strict=True):
                seen[person].append(decision.region)
    assert [tuple(regions) for regions in seen] == sequences(epochs, range(len(epochs)), by_ledger)
