"""The rule of the ledger: what may leave for a record after what left for it before."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
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
from cfk_plugin.records.rule import Candidate, Decision, ReleasedRegion

Asked = dict[str, Any]


def nominal(low: int, high: int, **changes: Any) -> Asked:
    """Ask for the region of these ages, of which one person each has one; `only` is what today's
    policy accepts.
    """
    return {
        "record": 1,
        "region": Region({"age": Interval(low, high)}),
        "policy": "p1",
        "population": "f1",
        "guarantee": "nominal",
        "k": 10,
        "effective": None,
        "only": None,
        **changes,
    }


def group(low: int, high: int, people: int | None = 20, **changes: Any) -> Asked:
    """Ask for the region of a group of so many people."""
    return nominal(low, high, **{"guarantee": "reciprocal", "effective": people, **changes})


def count(regions: Sequence[Region]) -> int:
    return sum(all(age in region["age"] for region in regions) for age in range(100))


def candidate(ledger: Ledger, asked: Asked) -> Candidate:
    return Candidate(
        **{n: v for n, v in asked.items() if n not in ("record", "only")},
        record=handle(ledger, asked),
    )


def handle(ledger: Ledger, asked: Asked) -> str:
    return ledger.handle([asked["record"]])


def settle(
    ledger: Ledger, *asked: Asked, count: Callable[[Sequence[Region]], int] = count
) -> list[Decision]:
    def acceptable(i: int, region: Region) -> bool:
        only = asked[i]["only"]
        return only is None or (region["age"].low, region["age"].high) in only

    return ledger.settle([candidate(ledger, each) for each in asked], count, acceptable)


def told(ledger: Ledger, *asked: Asked) -> list[str]:
    """Return what was decided, in words."""
    return [in_words(decision) for decision in settle(ledger, *asked)]


def in_words(decision: Decision) -> str:
    if decision.region is None:
        assert decision == Decision(decision.outcome, None)
        assert decision.people is None
        return decision.outcome
    age = decision.region["age"]
    of = "" if decision.effective is None else f" of {decision.effective}"
    left = "" if decision.people is None else f", {decision.people} left"
    return f"{decision.outcome} {age.low}-{age.high}{of}{left}"


STORIES: dict[str, list[tuple[Asked, str]]] = {
    "a region leaves with k people in common with all that left": [
        (nominal(0, 8), "refused"),
        (nominal(0, 19), "new 0-19, 20 left"),
        (nominal(0, 19), "again 0-19, 20 left"),
        (nominal(10, 29), "new 10-29, 10 left"),
        # ten in common with each of them, five with both
        (nominal(5, 14), "earlier 10-29, 10 left"),
        (nominal(11, 40), "earlier 10-29, 10 left"),
        (nominal(50, 69, record=2), "new 50-69, 20 left"),  # others' regions do not bind it
    ],
    "the latest that today's policy accepts is given again": [
        (nominal(0, 19), "new 0-19, 20 left"),
        (nominal(5, 30), "new 5-30, 15 left"),
        (nominal(40, 60), "earlier 5-30, 15 left"),
        (nominal(40, 60, only=[]), "refused"),
        (nominal(40, 60, only=[(0, 19)]), "earlier 0-19, 15 left"),
        (nominal(40, 60), "earlier 0-19, 15 left"),  # it left last
    ],
    "the largest k of all that left binds": [
        (nominal(0, 29, k=20), "new 0-29, 30 left"),
        (nominal(11, 40, k=2, policy="p2", population="f2"), "earlier 0-29, 30 left"),
        (nominal(10, 40, k=2, policy="p2", population="f2"), "new 10-40, 20 left"),
    ],
    "k of each policy that a region left under binds": [
        (nominal(0, 29, k=5), "new 0-29, 30 left"),
        (nominal(0, 29, k=20, policy="p2"), "again 0-29, 30 left"),
        (nominal(15, 40, k=5), "earlier 0-29, 30 left"),
    ],
    "k of a policy under which something else was asked for binds, too": [
        (nominal(0, 29, k=5), "new 0-29, 30 left"),
        (nominal(27, 50, k=20, policy="p2"), "earlier 0-29, 30 left"),
        (nominal(0, 29, k=5), "again 0-29, 30 left"),  # does not lower it
        (nominal(15, 40, k=5), "earlier 0-29, 30 left"),
    ],
    "a region that left is given again, whatever today's policy accepts": [
        (nominal(0, 19, only=[]), "new 0-19, 20 left"),
        (nominal(0, 19, only=[]), "again 0-19, 20 left"),
    ],
    "a group of fewer than k, or of unknown size, does not leave": [
        (group(0, 39, None), "refused"),
        (group(0, 39, None, k=1), "refused"),
        (group(0, 39, 9), "refused"),
        (group(0, 39, 10), "new 0-39, 10 left"),
    ],
    "a record keeps the region of its group": [
        # verification has accepted it; nobody is asked again
        (group(0, 39, only=[]), "new 0-39, 20 left"),
        (group(0, 39), "again 0-39 of 20, 20 left"),
        (group(0, 38, 90, policy="p2", population="f2"), "earlier 0-39 of 20, 20 left"),
        (group(0, 60, 90, guarantee="catalogue"), "earlier 0-39 of 20, 20 left"),
        (group(50, 90, 90, only=[]), "refused"),
        (group(0, 39, only=[]), "refused"),
    ],
    "the group on record must reach today's k": [
        (group(0, 39, 17, guarantee="catalogue"), "new 0-39, 17 left"),
        (group(0, 60, 90, k=17, policy="p2"), "earlier 0-39 of 17, 17 left"),
        (group(0, 60, 90, k=18, policy="p3"), "refused"),
        (group(0, 39, 90, k=18, policy="p3"), "refused"),
    ],
    "the people of a group are those on record": [
        (group(0, 39, 17), "new 0-39, 17 left"),
        (group(0, 39, 30), "again 0-39 of 17, 17 left"),
        (group(60, 90, 15), "earlier 0-39 of 17, 17 left"),
        (group(0, 39, 15), "again 0-39 of 17, 17 left"),
    ],
    "what left under a nominal guarantee is no group": [
        (nominal(0, 39), "new 0-39, 40 left"),
        (group(0, 39), "refused"),
        (group(0, 60), "refused"),
    ],
    "a group binds what is asked for under a nominal guarantee, with its k": [
        (group(0, 39, 17, k=15), "new 0-39, 17 left"),
        (nominal(28, 60, k=2), "earlier 0-39 of 17, 40 left"),  # twelve ages in common
        (nominal(20, 60, k=2), "new 20-60, 20 left"),
    ],
    "of a record with a group and others nothing but the people inside is known": [
        (group(0, 39, 17), "new 0-39, 17 left"),
        (nominal(0, 39, policy="n", effective=3), "again 0-39 of 17, 40 left"),
        (group(0, 50), "earlier 0-39 of 17, 17 left"),
        (nominal(20, 59), "new 20-59, 20 left"),
        (nominal(35, 70), "earlier 20-59, 20 left"),
        (group(7, 70, policy="p2"), "earlier 0-39 of 17"),
        (group(0, 39), "again 0-39 of 17"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_story(ledger: Ledger, story: str) -> None:
    assert [told(ledger, asked)[0] for asked, _ in STORIES[story]] == [
        answer for _, answer in STORIES[story]
    ]


@pytest.mark.parametrize("story", STORIES)
def test_story_in_one_batch(ledger: Ledger, story: str) -> None:
    asked = [each for each, _ in STORIES[story]]
    assert told(ledger, *asked) == [answer for _, answer in STORIES[story]]


def test_candidates_of_one_batch_see_each_other_and_are_counted_once(ledger: Ledger) -> None:
    counted: list[int] = []

    def noted(regions: Sequence[Region]) -> int:
        counted.append(len(regions))
        return count(regions)

    again = [nominal(0, 19, effective=people) for people in (7, 12)]
    found = settle(ledger, nominal(0, 19, effective=9), nominal(15, 40), *again, count=noted)
    assert list(map(in_words, found)) == [
        f"{how} 0-19, 20 left" for how in ("new", "earlier", "again", "again")
    ]
    assert counted == [1, 2]
    (row,) = ledger.export()
    assert (row["times"], row["effective"]) == (4, 7)
    assert row["first"] < row["last"]
    assert told(ledger, nominal(50, 69, record=2), nominal(40, 60, only=[])) == [
        "new 50-69, 20 left",
        "refused",
    ]


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
    assert alike(first=(0, 11), people=15, policy="p4") == same
    assert alike(first=(0, 11), people=15, policy="p5", k=13) == ["refused"] * 12
    rows = [{**row, "record": None, "first": None, "last": None} for row in ledger.export()]
    assert all(row == rows[0] for row in rows), (
        "what is on record would tell them apart in the next answer"
    )


def test_what_is_known_of_a_record_is_found(ledger: Ledger) -> None:
    first, other = nominal(0, 19), nominal(5, 25)
    record = handle(ledger, first)
    assert ledger.earlier(record) is None
    settle(ledger, first, other)
    assert ledger.earlier(record, "p1", "f1") == other["region"]
    assert ledger.earlier(record, "p2", "f1") is None
    assert ledger.earlier(record, "p1", "f2") is None
    settle(ledger, nominal(0, 19, policy="p2"))
    assert ledger.earlier(record, "p1") == other["region"]
    assert ledger.latest([record, "0" * 64]) == {record: first["region"]}


@pytest.mark.parametrize(("k", "outcome"), [(15, "again"), (16, "refused")])
def test_of_a_group_on_record_with_two_sizes_the_smaller_one_counts(k: int, outcome: str) -> None:
    """No ledger of today's writes such a record, but an earlier one may hold it."""

    def row(policy: str, people: int) -> ReleasedRegion:
        fields = group(0, 39, people, policy=policy, record="r")
        del fields["only"]
        return ReleasedRegion(**fields, text="", digest="d")

    history = [row("p1", 15), row("p2", 17)]
    wanted = replace(row("p3", 90), k=k)
    decision, _ = rule.settle(0, wanted, history, count, lambda i, region: True)
    assert decision.outcome == outcome
    assert decision.effective == (15 if outcome == "again" else None)


def test_an_exception_of_a_callback_surfaces_and_nothing_is_recorded(ledger: Ledger) -> None:
    def broken(regions: Sequence[Region]) -> int:
        if 60 in regions[-1]["age"]:
            raise ZeroDivisionError("mine")
        return count(regions)

    both = [nominal(0, 19), nominal(50, 69, record=2)]
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        settle(ledger, *both, count=broken)
    assert caught.value.__context__ is None
    assert list(ledger.export()) == []
    assert told(ledger, *both) == ["new 0-19, 20 left", "new 50-69, 20 left"]
    assert settle(ledger) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"k": 0}, "number"), ({"k": True}, "number"), ({"k": 2.5}, "number"), ({}, "handle")],
)
def test_an_impossible_candidate_is_refused(ledger: Ledger, changes: Asked, said: str) -> None:
    asked = {name: value for name, value in nominal(0, 19, **changes).items() if name != "only"}
    with pytest.raises(LedgerError, match=said) as caught:
        ledger.settle(
            [Candidate(**asked | {"record": handle(ledger, asked) if changes else "canary"})],
            count,
            bool,
        )
    assert "canary" not in str(caught.value)


def test_threads_and_ledgers_see_each_other(open_ledger: Callable[..., Ledger]) -> None:
    ledgers = [open_ledger(), open_ledger()]
    released: list[Region] = []

    def release(ledger: Ledger, start: int) -> None:
        for low in range(start, 60, 7):
            found = settle(ledger, nominal(low, low + 25, only=[]))
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
Rule = Callable[["Epoch", int, list[ReleasedRegion]], Region | None]


@dataclass(frozen=True, slots=True)
class Epoch:
    name: str
    k: int
    region_of: tuple[Region, ...]
    accepts: frozenset[Region]

    def candidate(self, person: int, record: str = "r") -> Candidate:
        region = self.region_of[person]
        known = {"policy": self.name, "population": "f", "guarantee": "reciprocal", "k": self.k}
        return Candidate(
            record=record, region=region, effective=self.region_of.count(region), **known
        )

    def is_acceptable(self, _: int, region: Region) -> bool:
        return region in self.accepts


@st.composite
def towns(draw: st.DrawFn) -> list[Epoch]:
    """Return epochs of a town; a region can be in several partitions, with other members."""
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
        epochs.append(Epoch(str(number), k, tuple(region_of), frozenset(accepted)))
    return epochs


def by_ledger(epoch: Epoch, person: int, history: list[ReleasedRegion]) -> Region | None:
    wanted = epoch.candidate(person)
    known = {name: getattr(wanted, name) for name in Candidate.__slots__}
    release = ReleasedRegion(**known, text="", digest=str(sorted(wanted.region["zone"])))
    return rule.settle(0, release, history, lambda regions: 0, epoch.is_acceptable)[0].region


def by_nothing(epoch: Epoch, person: int, _: list[ReleasedRegion]) -> Region | None:
    return epoch.region_of[person]


def sequences(epochs: Sequence[Epoch], answer: Rule = by_ledger) -> list[Seen]:
    """Return what each person sees."""
    histories: list[list[ReleasedRegion]] = [[] for _ in epochs[0].region_of]
    return [
        tuple(answer(epoch, i, history) for epoch in epochs) for i, history in enumerate(histories)
    ]


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


def test_without_a_ledger_fewer_than_k_people_are_left() -> None:
    rng, broken = random.Random(0), 0
    for _ in range(100):
        orders = [rng.sample(range(12), 12) for _ in range(3)]
        zones = [tuple(ZONES[order.index(person) // 4] for person in range(12)) for order in orders]
        epochs = [
            Epoch(str(number), 4, region_of, frozenset(ZONES))
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
            decisions = ledger.settle(wanted, lambda regions: 0, epoch.is_acceptable)
            for person, decision in zip(order, decisions, strict=True):
                seen[person].append(decision.region)
    assert list(map(tuple, seen)) == sequences(epochs)
