"""How many people are left after all that a ledger knows of a record."""

from __future__ import annotations

from collections.abc import Sequence

from cfk_plugin.data.region import Interval, Region
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Candidate

PEOPLE = range(100)  # one person per age


def count(regions: Sequence[Region]) -> int:
    return sum(all(age in region["age"] for region in regions) for age in PEOPLE)


def left(ledger: Ledger, low: int, high: int, *, effective: int | None = None, record: int = 1) -> tuple[str, object]:
    """Settle one candidate; of a group, if it is said how large that is."""
    wanted = Candidate(
        record=ledger.handle([record]),
        region=Region({"age": Interval(low, high)}),
        policy="p",
        population="f",
        guarantee="nominal" if effective is None else "reciprocal",
        k=10,
        effective=effective,
    )
    (decision,) = ledger.settle([wanted], count, lambda i, region: True)
    return decision.outcome, decision.people


def test_people_inside_of_everything_are_counted(ledger: Ledger) -> None:
    assert left(ledger, 0, 19) == ("new", 20)
    assert left(ledger, 8, 29) == ("new", 12)
    assert left(ledger, 0, 19) == ("again", 12)
    assert left(ledger, 5, 15) == ("earlier", 12)
    assert left(ledger, 0, 19, record=2) == ("new", 20)


def test_nothing_is_left_of_a_refusal(ledger: Ledger) -> None:
    assert left(ledger, 0, 8) == ("refused", None)
    assert left(ledger, 0, 39, effective=9) == ("refused", None)


def test_of_a_group_those_who_are_mapped_to_it(ledger: Ledger) -> None:
    assert left(ledger, 0, 39, effective=17) == ("new", 17)
    assert left(ledger, 0, 39, effective=30) == ("again", 17)
    assert left(ledger, 60, 90, effective=15) == ("earlier", 17)


def test_of_several_regions_nothing_is_known_but_the_people_inside(ledger: Ledger) -> None:
    assert left(ledger, 0, 39, effective=17) == ("new", 17)
    assert left(ledger, 20, 59) == ("new", 20)
    assert left(ledger, 0, 39, effective=17) == ("again", None)


def test_the_same_regions_are_counted_once_in_a_batch(ledger: Ledger) -> None:
    asked: list[int] = []

    def counted(regions: Sequence[Region]) -> int:
        asked.append(len(regions))
        return count(regions)

    wanted = Candidate(
        record=ledger.handle([1]),
        region=Region({"age": Interval(0, 19)}),
        policy="p",
        population="f",
        guarantee="nominal",
        k=10,
        effective=None,
    )
    decisions = ledger.settle([wanted] * 3, counted, lambda i, region: True)
    assert [d.people for d in decisions] == [20, 20, 20]
    assert asked == [1]
