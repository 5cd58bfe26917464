"""The rule of the ledger: what may leave for a record after what left for it before."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Interval, Ledger, Region
from cfk_plugin.errors import LedgerError
from cfk_plugin.records import rule
from cfk_plugin.records.rule import (
    Candidate,
    Decision,
    RecordedGroup,
    RegionPeople,
    ReleasedRegion,
    Today,
)

Asked = dict[str, Any]


def lookup(low: int, high: int, **changes: Any) -> Asked:
    """Ask for the region of these ages, of which one person each has one.

    `only` is what today's policy accepts, and `gone` who is not there today.
    """
    return {
        "record": 1,
        "region": Region({"age": Interval(low, high)}),
        "policy": "p1",
        "population": "f1",
        "guarantee": "lookup",
        "k": 10,
        "members": frozenset(),
        "only": None,
        "gone": (),
        **changes,
    }


def group(low: int, high: int, people: int = 20, **changes: Any) -> Asked:
    """Ask for the region of a group of so many people, the youngest inside."""
    members = person_handles(range(low, low + people)) - person_handles(changes.get("gone", ()))
    return lookup(low, high, **{"guarantee": "reciprocal", "members": members, **changes})


def person_handles(ages: Iterable[int]) -> frozenset[str]:
    return frozenset(f"{age:016x}" for age in ages)


@dataclass(frozen=True)
class Town:
    """One person of each age, but for those who are gone."""

    asked: Sequence[Asked]

    def inside(self, region: Region) -> frozenset[str]:
        gone = self.asked[0]["gone"]
        return person_handles(age for age in range(100) if age in region["age"] and age not in gone)

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        only = self.asked[index]["only"]
        return only is None or (region["age"].low, region["age"].high) in only


def count(regions: Sequence[Region]) -> int:
    return sum(all(age in region["age"] for region in regions) for age in range(100))


def candidate(ledger: Ledger, asked: Asked) -> Candidate:
    known = {n: v for n, v in asked.items() if n not in ("record", "only", "gone")}
    return Candidate(**known, record=handle(ledger, asked))


def handle(ledger: Ledger, asked: Asked) -> str:
    return ledger.handle([asked["record"]])


def settle(ledger: Ledger, *asked: Asked, town: Today | None = None) -> list[Decision]:
    return ledger.settle([candidate(ledger, each) for each in asked], town or Town(asked))


def told(ledger: Ledger, *asked: Asked) -> list[str]:
    """Return what was decided, in words."""
    return [in_words(decision) for decision in settle(ledger, *asked)]


def in_words(decision: Decision) -> str:
    if decision.region is None:
        assert decision == Decision("refused", None, reason=decision.reason)
        return f"refused: {decision.reason}"
    age = decision.region["age"]
    of = ""
    if decision.remaining is not None and decision.remaining.members:
        of = f" of {len(decision.remaining.members)}"
    left = "" if decision.people is None else f", {decision.people} left"
    return f"{decision.outcome} {age.low}-{age.high}{of}{left}"


INTERSECTION, TOO_FEW = "refused: intersection", "refused: too_few_remain"
STORIES: dict[str, list[tuple[Asked, str]]] = {
    "a region leaves with k people in common with all that left": [
        (lookup(0, 8), INTERSECTION),
        (lookup(0, 19), "new 0-19, 20 left"),
        (lookup(0, 19), "again 0-19, 20 left"),
        (lookup(10, 29), "new 10-29, 10 left"),
        # ten in common with each of them, five with both
        (lookup(5, 14), "earlier 10-29, 10 left"),
        (lookup(11, 40), "earlier 10-29, 10 left"),
        (lookup(50, 69, record=2), "new 50-69, 20 left"),  # others' regions do not bind it
    ],
    "the latest that today's policy accepts is given again": [
        (lookup(0, 19), "new 0-19, 20 left"),
        (lookup(5, 30), "new 5-30, 15 left"),
        (lookup(40, 60), "earlier 5-30, 15 left"),
        (lookup(40, 60, only=[]), INTERSECTION),
        (lookup(40, 60, only=[(0, 19)]), "earlier 0-19, 15 left"),
        (lookup(40, 60), "earlier 0-19, 15 left"),  # it left last
    ],
    "the largest k of all that left binds": [
        (lookup(0, 29, k=20), "new 0-29, 30 left"),
        (lookup(11, 40, k=2, policy="p2", population="f2"), "earlier 0-29, 30 left"),
        (lookup(10, 40, k=2, policy="p2", population="f2"), "new 10-40, 20 left"),
    ],
    "k of each policy that a region left under binds": [
        (lookup(0, 29, k=5), "new 0-29, 30 left"),
        (lookup(0, 29, k=20, policy="p2"), "again 0-29, 30 left"),
        (lookup(15, 40, k=5), "earlier 0-29, 30 left"),
        (lookup(0, 29, k=31), TOO_FEW),
    ],
    "k of a policy under which something else was asked for binds, too": [
        (lookup(0, 29, k=5), "new 0-29, 30 left"),
        (lookup(27, 50, k=20, policy="p2"), "earlier 0-29, 30 left"),
        (lookup(0, 29, k=5), "again 0-29, 30 left"),  # does not lower it
        (lookup(15, 40, k=5), "earlier 0-29, 30 left"),
    ],
    "a region that left is given again if today's policy accepts it": [
        (lookup(0, 19, only=[]), "new 0-19, 20 left"),
        (lookup(0, 19, only=[]), INTERSECTION),
        (lookup(0, 19), "again 0-19, 20 left"),
    ],
    "people who left do not count": [
        (lookup(0, 19), "new 0-19, 20 left"),
        (lookup(0, 19, gone=range(5)), "again 0-19, 15 left"),
        (lookup(0, 19, gone=range(11)), TOO_FEW),
        (lookup(5, 29, gone=range(11)), TOO_FEW),  # 11 to 19 are in both
        (lookup(5, 29, gone=range(9)), "new 5-29, 11 left"),
        # nobody who was away at one of the releases could be meant by all of them
        (lookup(0, 19), "again 0-19, 11 left"),
    ],
    "people who came later do not count": [
        (lookup(0, 29, gone=range(10, 30)), "new 0-29, 10 left"),
        (lookup(0, 29), "again 0-29, 10 left"),
        (lookup(5, 29), "earlier 0-29, 10 left"),
        (lookup(0, 29, gone=[0]), TOO_FEW),
    ],
    "a group of fewer than k does not leave": [
        (group(0, 39, 0), INTERSECTION),
        (group(0, 39, 0, k=1), INTERSECTION),
        (group(0, 39, 9), INTERSECTION),
        (group(0, 39, 10), "new 0-39, 10 left"),
    ],
    "a record keeps the region of its group": [
        # verification has accepted it; nobody is asked again
        (group(0, 39, only=[]), "new 0-39, 20 left"),
        (group(0, 39), "again 0-39 of 20, 20 left"),
        (group(0, 38, 39, policy="p2", population="f2"), "earlier 0-39 of 20, 20 left"),
        (group(0, 60, 60, guarantee="catalogue"), "earlier 0-39 of 20, 20 left"),
        (group(50, 90, 40, only=[]), INTERSECTION),
        (group(0, 39, only=[]), INTERSECTION),
    ],
    "the group on record must reach today's k": [
        (group(0, 39, 17, guarantee="catalogue"), "new 0-39, 17 left"),
        (group(0, 60, 60, k=17, policy="p2"), "earlier 0-39 of 17, 17 left"),
        (group(0, 60, 60, k=18, policy="p3"), TOO_FEW),
        (group(0, 39, 39, k=18, policy="p3"), TOO_FEW),
    ],
    "the people of a group are those on record": [
        (group(0, 39, 17), "new 0-39, 17 left"),
        (group(0, 39, 30), "again 0-39 of 17, 17 left"),
        (group(60, 90, 15), "earlier 0-39 of 17, 17 left"),
        (group(0, 39, 15), "again 0-39 of 17, 17 left"),
    ],
    "members of a group who left do not count, and nobody takes their place": [
        (group(0, 39, 20), "new 0-39, 20 left"),
        (group(0, 39, 20, gone=range(8)), "again 0-39 of 12, 12 left"),
        (group(0, 39, 40, gone=range(11)), TOO_FEW),
        (group(0, 39, 20, gone=range(5, 15)), TOO_FEW),
        (group(0, 39, 20, gone=range(20, 40)), "again 0-39 of 12, 12 left"),
        (group(0, 39, 20), "again 0-39 of 12, 12 left"),  # those who came back
    ],
    "what left under a lookup guarantee is no group": [
        (lookup(0, 39), "new 0-39, 40 left"),
        (group(0, 39), INTERSECTION),
        (group(0, 60), INTERSECTION),
    ],
    "a group binds what is asked for under a lookup guarantee, with its k": [
        (group(0, 39, 17, k=15), "new 0-39, 17 left"),
        (lookup(28, 60, k=2), "earlier 0-39 of 17, 40 left"),  # twelve ages in common
        (lookup(20, 60, k=2), "new 20-60, 20 left"),
    ],
    "of a record with a group and others nothing but the people inside is known": [
        (group(0, 39, 17), "new 0-39, 17 left"),
        (lookup(0, 39, policy="n"), "again 0-39 of 17, 40 left"),
        (group(0, 50), "earlier 0-39 of 17, 17 left"),
        (lookup(20, 59), "new 20-59, 20 left"),
        (lookup(35, 70), "earlier 20-59, 20 left"),
        (group(7, 70, policy="p2"), "earlier 0-39 of 17"),
        (group(0, 39), "again 0-39 of 17"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_story(ledger: Ledger, story: str) -> None:
    assert [told(ledger, asked)[0] for asked, _ in STORIES[story]] == [
        answer for _, answer in STORIES[story]
    ]


@pytest.mark.parametrize(
    "story",
    [name for name, steps in STORIES.items() if not any(asked["gone"] for asked, _ in steps)],
)
def test_story_in_one_batch(ledger: Ledger, story: str) -> None:
    asked = [each for each, _ in STORIES[story]]
    assert told(ledger, *asked) == [answer for _, answer in STORIES[story]]


def test_candidates_of_one_batch_see_each_other(ledger: Ledger) -> None:
    again = [lookup(0, 19), lookup(0, 19)]
    found = told(ledger, lookup(0, 19), lookup(15, 40), *again)
    assert found == [f"{how} 0-19, 20 left" for how in ("new", "earlier", "again", "again")]
    (row,) = ledger.export()
    assert (row["times"], row["members"], row["inside"]) == (4, 0, 20)
    assert row["first"] < row["last"]
    assert told(ledger, lookup(50, 69, record=2), lookup(40, 60, only=[])) == [
        "new 50-69, 20 left",
        INTERSECTION,
    ]


def test_records_that_got_a_region_together_share_a_group(ledger: Ledger) -> None:
    settle(ledger, *(group(0, 39, record=record) for record in range(3)))
    settle(ledger, group(0, 39, record=3))
    # Of one of them the ledger learns who is gone, and knows it of all.
    settle(ledger, group(0, 39, record=0, gone=range(8)))
    assert [row["members"] for row in ledger.export()] == [12] * 4
    # Another partition has the region as well, with other members.
    settle(ledger, group(0, 39, 30, record=4, population="f2"))
    assert [row["members"] for row in ledger.export()] == [12] * 4 + [30]
    assert ledger.verify().releases == 5


def test_the_largest_k_that_a_region_left_under_holds_for_all_its_records(ledger: Ledger) -> None:
    settle(ledger, group(0, 39, record=0))
    assert told(ledger, group(0, 39, record=1, k=15)) == ["new 0-39, 20 left"]
    # Twelve are left: enough for today's k, and for what record 0 was asked with.
    assert told(ledger, group(0, 39, record=0, gone=range(8))) == [TOO_FEW]
    assert told(ledger, group(0, 39, record=0, gone=range(5))) == ["again 0-39 of 15, 15 left"]


def test_forgotten_people_are_in_no_group(ledger: Ledger) -> None:
    settle(ledger, *(group(0, 39, record=record) for record in range(3)))
    ledger.forget(people=[*person_handles(range(6)), *person_handles(range(90, 95))])
    assert [(row["members"], row["inside"]) for row in ledger.export()] == [(14, 34)] * 3
    assert told(ledger, group(0, 39)) == ["again 0-39 of 14, 14 left"]
    assert ledger.verify().releases == 3
    with pytest.raises(LedgerError, match="handles"):
        ledger.forget(people=["somebody"])


def test_members_of_a_group_are_answered_alike_wherever_a_new_partition_puts_them(
    ledger: Ledger,
) -> None:
    """Twelve people have one region.

    Were ten of them given that of a new group, who sees the old one is one of two.
    """

    def alike(*, first: tuple[int, int], people: int, **changes: Any) -> list[str]:
        regions = [first if record < 10 else (10, 40) for record in range(12)]
        return told(
            ledger, *(group(*r, people, record=i, **changes) for i, r in enumerate(regions))
        )

    told(ledger, *(group(0, 11, 12, record=record) for record in range(12)))
    for policy in ("p2", "p3"):
        assert (
            alike(first=(0, 20), people=21, policy=policy) == ["earlier 0-11 of 12, 12 left"] * 12
        )
    # The same where the new partition has the region, too, with other members.
    same = ["again 0-11 of 12, 12 left"] * 10 + ["earlier 0-11 of 12, 12 left"] * 2
    assert alike(first=(0, 11), people=12, policy="p4") == same
    assert alike(first=(0, 11), people=12, policy="p5", k=13) == [TOO_FEW] * 12
    rows = [{**row, "record": None, "first": None, "last": None} for row in ledger.export()]
    assert all(row == rows[0] for row in rows), (
        "what is on record would tell them apart in the next answer"
    )


def test_what_is_known_of_a_record_is_found(ledger: Ledger) -> None:
    first, other = lookup(0, 19), lookup(5, 25)
    record = handle(ledger, first)

    def latest(*setting: str) -> Region | None:
        known = ledger.latest([record, "0" * 64], *setting)
        assert known.keys() <= {record}
        return known[record].region if known else None

    assert latest() is None
    settle(ledger, first, other)
    assert latest("p1", "f1") == other["region"]
    assert latest("p2", "f1") is latest("p1", "f2") is None
    settle(ledger, lookup(0, 19, policy="p2"))
    assert latest("p1") == other["region"]
    assert latest() == first["region"]
    assert ledger.latest([record])[record].people.inside == person_handles(range(20))


def test_an_exception_of_a_callback_surfaces_and_nothing_is_recorded(ledger: Ledger) -> None:
    class Broken(Town):
        def inside(self, region: Region) -> frozenset[str]:
            if 60 in region["age"]:
                raise ZeroDivisionError("mine")
            return super().inside(region)

    both = [lookup(0, 19), lookup(50, 69, record=2)]
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        settle(ledger, *both, town=Broken(both))
    assert caught.value.__context__ is None
    assert list(ledger.export()) == []
    assert told(ledger, *both) == ["new 0-19, 20 left", "new 50-69, 20 left"]
    assert settle(ledger) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 0}, "number"),
        ({"k": True}, "number"),
        ({"k": 2.5}, "number"),
        ({"members": frozenset({"canary"})}, "handles"),
        ({}, "handle"),
    ],
)
def test_an_impossible_candidate_is_refused(ledger: Ledger, changes: Asked, said: str) -> None:
    asked = lookup(0, 19, **changes)
    wanted = candidate(ledger, asked)
    if not changes:
        wanted = replace(wanted, record="canary")
    with pytest.raises(LedgerError, match=said) as caught:
        ledger.settle([wanted], Town([asked]))
    assert "canary" not in str(caught.value)


def test_threads_and_ledgers_see_each_other(open_ledger: Callable[..., Ledger]) -> None:
    ledgers = [open_ledger(), open_ledger()]
    released: list[Region] = []

    def release(ledger: Ledger, start: int) -> None:
        for low in range(start, 60, 7):
            found = settle(ledger, lookup(low, low + 25))
            released.extend(decision.region for decision in found if decision.region)

    threads = [threading.Thread(target=release, args=(ledgers[i % 2], i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(released) >= 10
    assert ledgers[0].status().releases == len(set(released)) > 1


# Whatever partitions follow each other: who reruns them and the ledger for everybody is left with k
# people. Everybody of a tiny town is asked about in the same epochs; partition, k and what the
# policy accepts change from one to the next. The attack is brute force: rerun everything for each
# person, and keep who gets the same regions.

ZONES = [Region({"zone": frozenset({name})}) for name in "abcdef"]
Seen = tuple[Region | None, ...]
Rule = Callable[["Epoch", int, "Book"], Region | None]


@dataclass(frozen=True, slots=True)
class Epoch:
    name: str
    k: int
    region_of: tuple[Region, ...]
    accepted: frozenset[Region]
    present: frozenset[int]  # people of the town who are in today's table

    def candidate(self, person: int, record: str = "r") -> Candidate:
        region = self.region_of[person]
        members = [p for p in self.present if self.region_of[p] == region]
        return Candidate(
            record=record,
            region=region,
            policy=self.name,
            population="f",
            guarantee="reciprocal",
            k=self.k,
            members=person_handles(members),
        )

    def inside(self, _: Region) -> frozenset[str]:
        return person_handles(self.present)

    def accepts(self, _: int, region: Region, people: RegionPeople) -> bool:
        return region in self.accepted


@dataclass(frozen=True, slots=True)
class Book:
    """What is on record for each person of a town, and the groups that records share."""

    histories: list[list[ReleasedRegion]]
    groups: list[RecordedGroup]


@st.composite
def towns(draw: st.DrawFn, *, turnover: bool = False) -> list[Epoch]:
    """Return epochs of a town; a region can be in several partitions, with other members.

    With a turnover, some people are away in each epoch but the first, and may come back. Whoever
    comes later shares a region with people who keep earlier ones; see "What it does not do" on the
    page about ledgers.
    """
    people = draw(st.integers(4, 14))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    epochs = []
    for number in range(draw(st.integers(1, 5))):
        k = rng.randint(2, max(2, people // 2))
        order = rng.sample(range(people), people)
        cuts = (
            sorted(rng.sample(range(1, people // k), rng.randint(0, people // k - 1)))
            if people // k > 1
            else []
        )
        names = rng.sample(ZONES, len(ZONES))
        region_of = [ZONES[0]] * people
        for at, (start, end) in enumerate(pairwise([0, *(cut * k for cut in cuts), people])):
            for person in order[start:end]:
                region_of[person] = names[at % len(names)]
        # The first policy accepts all that it has put together itself; later ones need not accept
        # it.
        accepted = [region for region in ZONES if number == 0 or rng.random() < 0.7]
        away = rng.sample(range(people), rng.randint(0, people // 2) if turnover and number else 0)
        present = frozenset(range(people)).difference(away)
        epochs.append(Epoch(str(number), k, tuple(region_of), frozenset(accepted), present))
    return epochs


def by_ledger(epoch: Epoch, person: int, book: Book) -> Region | None:
    wanted = epoch.candidate(person)
    digest = str(sorted(wanted.region["zone"]))
    people = RegionPeople(members=wanted.members, inside=epoch.inside(wanted.region))
    same = [group for group in book.groups if (group.digest, group.people) == (digest, people)]
    release = ReleasedRegion(
        **{name: getattr(wanted, name) for name in Candidate.__slots__ if name != "members"},
        text="",
        digest=digest,
        group=same[0] if same else RecordedGroup("", digest, people, epoch.k),
    )
    decision, _ = rule.settle(0, release, book.histories[person], epoch)
    if decision.outcome == "new" and not same:
        book.groups.append(release.group)
    return decision.region


def by_nothing(epoch: Epoch, person: int, _: Book) -> Region | None:
    return epoch.region_of[person]


def by_group_on_record(epoch: Epoch, person: int, book: Book) -> Region | None:
    """Keep a region as long as the group had k members when it was recorded."""
    if not book.histories[person]:
        return by_ledger(epoch, person, book)
    release = book.histories[person][0]
    kept = len(release.group.people.members) >= epoch.k and release.region in epoch.accepted
    return release.region if kept else None


def sequences(epochs: Sequence[Epoch], answer: Rule = by_ledger) -> list[Seen]:
    """Return what each person sees."""
    people = range(len(epochs[0].region_of))
    book = Book(histories=[[] for _ in people], groups=[])
    seen: list[list[Region | None]] = [[] for _ in people]
    for epoch in epochs:
        for person in people:
            is_asked = person in epoch.present
            seen[person].append(answer(epoch, person, book) if is_asked else None)
    return [*map(tuple, seen)]


def least(epochs: Sequence[Epoch], seen: Sequence[Seen]) -> int:
    """Return how many people are left of the worst protected, over the k that they were
    promised.
    """
    alike = Counter(seen)
    return min(
        alike[sequence]
        - max(epoch.k for epoch, region in zip(epochs, sequence, strict=True) if region is not None)
        for sequence in seen
        if any(sequence)
    )


@pytest.mark.full_search
@settings(max_examples=300)
@given(epochs=towns(), data=st.data())
def test_at_least_k_people_are_left_whatever_was_asked_when(
    epochs: list[Epoch], data: st.DataObject
) -> None:
    asked = data.draw(st.sets(st.sampled_from(range(len(epochs))), min_size=1))
    epochs = [epochs[i] for i in sorted(asked)]
    seen = sequences(epochs)
    assert all(len(set(sequence) - {None}) <= 1 for sequence in seen)
    if any(any(sequence) for sequence in seen):
        assert least(epochs, seen) >= 0


def fitting(epochs: Sequence[Epoch], seen: Sequence[Seen]) -> int:
    """Return how many people fit all that was released for the worst protected, over k.

    Somebody fits who would have got the same regions in the same epochs.
    """
    margins = []
    for sequence in filter(any, seen):
        released = [at for at, region in enumerate(sequence) if region is not None]
        alike = sum(all(other[at] == sequence[at] for at in released) for other in seen)
        margins.append(alike - max(epochs[at].k for at in released))
    return min(margins, default=0)


@pytest.mark.full_search
@settings(max_examples=300)
@given(epochs=towns(turnover=True))
def test_at_least_k_people_fit_whoever_leaves_and_comes_back(epochs: list[Epoch]) -> None:
    assert fitting(epochs, sequences(epochs)) >= 0


def test_if_those_who_left_counted_fewer_than_k_people_would_fit() -> None:
    rng, broken = random.Random(0), 0
    for _ in range(100):
        region_of = tuple(ZONES[person // 4] for person in range(12))
        epochs = [
            Epoch(
                str(number),
                4,
                region_of,
                frozenset(ZONES),
                frozenset(rng.sample(range(12), 12 - 3 * number)),
            )
            for number in range(2)
        ]
        assert fitting(epochs, sequences(epochs)) >= 0
        broken += fitting(epochs, sequences(epochs, by_group_on_record)) < 0
    assert broken > 50


def test_without_a_ledger_fewer_than_k_people_are_left() -> None:
    rng, broken = random.Random(0), 0
    for _ in range(100):
        orders = [rng.sample(range(12), 12) for _ in range(3)]
        zones = [tuple(ZONES[order.index(person) // 4] for person in range(12)) for order in orders]
        epochs = [
            Epoch(str(number), 4, region_of, frozenset(ZONES), frozenset(range(12)))
            for number, region_of in enumerate(zones)
        ]
        assert least(epochs, sequences(epochs)) >= 0
        broken += least(epochs, sequences(epochs, by_nothing)) < 0
    assert broken > 90


@settings(max_examples=5)
@given(epochs=towns(), seed=st.integers(0, 2**32 - 1))
def test_a_ledger_on_disk_decides_as_the_rule(
    epochs: list[Epoch], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    people = range(len(epochs[0].region_of))
    seen: list[list[Region | None]] = [[] for _ in people]
    with Ledger(
        Path(tmp_path_factory.mktemp("ledger"), "ledger.db"), key=b"k" * 32, create=True
    ) as ledger:
        for epoch in epochs:
            # the order of requests must not matter
            order = random.Random(seed).sample(people, len(people))
            wanted = [epoch.candidate(person, ledger.handle([person])) for person in order]
            decisions = ledger.settle(wanted, epoch)
            for person, decision in zip(order, decisions, strict=True):
                seen[person].append(decision.region)
    assert list(map(tuple, seen)) == sequences(epochs)
