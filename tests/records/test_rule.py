from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Candidate, Decision

Open = Callable[..., Ledger]
PEOPLE = range(100)  # one person per age


def span(low: int, high: int) -> Region:
    return Region({"age": Interval(low, high)})


def count(regions: Sequence[Region]) -> int:
    return sum(all(age in region["age"] for region in regions) for age in PEOPLE)


def yes(index: int, region: Region) -> bool:
    return True


def no(index: int, region: Region) -> bool:
    return False


def candidate(ledger: Ledger, region: Region, record: int = 1, **changes: Any) -> Candidate:
    settings: dict[str, Any] = {
        "policy": "p1",
        "population": "f1",
        "guarantee": "nominal",
        "k": 10,
        "effective": None,
    }
    settings |= changes
    return Candidate(record=ledger.handle([record]), region=region, **settings)


def of_group(ledger: Ledger, region: Region, effective: int | None = 20, **changes: Any) -> Candidate:
    """Return a candidate whose region is that of a group of so many people."""
    return candidate(ledger, region, **({"guarantee": "reciprocal", "effective": effective} | changes))


def settle(
    ledger: Ledger, *candidates: Candidate, acceptable: Callable[[int, Region], bool] = yes
) -> list[tuple[str, Region | None]]:
    return [(d.outcome, d.region) for d in ledger.settle(candidates, count, acceptable)]


def test_first_release_is_new_and_its_repetition_is_again(ledger: Ledger) -> None:
    region = span(0, 19)
    assert settle(ledger, candidate(ledger, region)) == [("new", region)]
    assert settle(ledger, candidate(ledger, region)) == [("again", region)]
    (row,) = ledger.export()
    assert row["times"] == 2
    assert row["first"] < row["last"]


def test_second_region_leaves_only_with_k_people_in_common(ledger: Ledger) -> None:
    assert settle(ledger, candidate(ledger, span(0, 19))) == [("new", span(0, 19))]
    assert settle(ledger, candidate(ledger, span(10, 29))) == [("new", span(10, 29))]
    # With each of the two it has ten people in common, with both of them five.
    assert settle(ledger, candidate(ledger, span(5, 14))) == [("earlier", span(10, 29))]


def test_records_do_not_bind_each_other(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 19), record=1))
    assert settle(ledger, candidate(ledger, span(50, 69), record=2)) == [("new", span(50, 69))]


def test_candidates_of_one_batch_see_each_other(ledger: Ledger) -> None:
    wanted = [candidate(ledger, region) for region in (span(0, 19), span(15, 40), span(0, 19))]
    assert settle(ledger, *wanted) == [("new", span(0, 19)), ("earlier", span(0, 19)), ("again", span(0, 19))]
    (row,) = ledger.export()
    assert row["times"] == 3


def test_earlier_region_is_refused_when_it_is_not_acceptable(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 19)))
    assert settle(ledger, candidate(ledger, span(15, 40)), acceptable=no) == [("refused", None)]
    assert len(list(ledger.export())) == 1


def test_latest_acceptable_earlier_region_is_taken(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 19)))
    settle(ledger, candidate(ledger, span(5, 30)))
    assert settle(ledger, candidate(ledger, span(40, 60))) == [("earlier", span(5, 30))]
    asked: list[tuple[int, Region]] = []

    def only_the_first(index: int, region: Region) -> bool:
        asked.append((index, region))
        return region == span(0, 19)

    other = candidate(ledger, span(50, 69), record=2)
    found = settle(ledger, other, candidate(ledger, span(40, 60)), acceptable=only_the_first)
    assert found[1] == ("earlier", span(0, 19))
    assert asked == [(1, span(5, 30)), (1, span(0, 19))]
    # What left last is the latest now.
    assert settle(ledger, candidate(ledger, span(40, 60))) == [("earlier", span(0, 19))]


def test_a_region_without_k_people_is_refused_even_as_the_first(ledger: Ledger) -> None:
    assert settle(ledger, candidate(ledger, span(0, 8))) == [("refused", None)]
    assert list(ledger.export()) == []


def test_largest_k_binds(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 29), k=20))
    assert settle(ledger, candidate(ledger, span(15, 40), k=2, policy="p2")) == [("earlier", span(0, 29))]
    assert settle(ledger, candidate(ledger, span(10, 40), k=2, policy="p2")) == [("new", span(10, 40))]


def test_k_of_every_policy_that_a_region_left_under_binds(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 29), k=5))
    settle(ledger, candidate(ledger, span(0, 29), k=20, policy="p2"))  # again
    assert settle(ledger, candidate(ledger, span(15, 40), k=5)) == [("earlier", span(0, 29))]


def test_earlier_takes_todays_k_with_it(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 29), k=5))
    assert settle(ledger, candidate(ledger, span(27, 50), k=20, policy="p2")) == [("earlier", span(0, 29))]
    assert settle(ledger, candidate(ledger, span(15, 40), k=5)) == [("earlier", span(0, 29))]
    (row,) = ledger.export()
    assert row["k"] == 20


def test_other_policy_or_population_does_not_lift_the_rule(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 19)))
    changed = candidate(ledger, span(15, 40), policy="p2", population="f2")
    assert settle(ledger, changed) == [("earlier", span(0, 19))]


# --- guarantees with a partition: a record keeps its region ----------------------------------------------------


def test_a_group_of_fewer_than_k_is_refused_even_as_the_first(ledger: Ledger) -> None:
    for effective in (None, 9):
        assert settle(ledger, of_group(ledger, span(0, 39), effective)) == [("refused", None)]
    assert settle(ledger, of_group(ledger, span(0, 39), None, k=1)) == [("refused", None)]  # not known is nobody
    assert list(ledger.export()) == []


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue"])
def test_a_new_region_never_leaves(ledger: Ledger, guarantee: str) -> None:
    first, inside = span(0, 39), span(0, 38)  # as much in common as can be
    assert settle(ledger, of_group(ledger, first, guarantee=guarantee)) == [("new", first)]
    for wanted in (inside, span(0, 60), span(50, 90)):
        later = of_group(ledger, wanted, 90, guarantee=guarantee, policy="p2", population="f2")
        assert settle(ledger, later) == [("earlier", first)]
        assert settle(ledger, later, acceptable=no) == [("refused", None)]
    assert len(list(ledger.export())) == 1


def test_members_of_a_group_are_answered_alike_wherever_a_new_partition_puts_them(ledger: Ledger) -> None:
    # Twelve people are on record with one region. A new partition maps ten of them to one group and two to another.
    # Were the new region released to the ten, who sees the earlier one again would be left with two people.
    first, ten, two = span(0, 11), span(0, 20), span(10, 40)
    settle(ledger, *(of_group(ledger, first, 12, record=record) for record in range(12)))
    for policy in ("p2", "p3"):
        later = [
            of_group(ledger, ten if record < 10 else two, 21, record=record, policy=policy) for record in range(12)
        ]
        assert settle(ledger, *later) == [("earlier", first)] * 12
    # The same where the new partition has the region, too, with other members.
    later = [of_group(ledger, first if record < 10 else two, 15, record=record, policy="p4") for record in range(12)]
    assert settle(ledger, *later) == [("again", first)] * 10 + [("earlier", first)] * 2
    # Twelve people are too few for a k of 13, also for the ten whom today's partition puts among fifteen.
    larger = [
        of_group(ledger, first if record < 10 else two, 15, record=record, k=13, policy="p5") for record in range(12)
    ]
    assert settle(ledger, *larger) == [("refused", None)] * 12


def test_what_is_on_record_after_an_answer_is_the_same_for_all_of_the_group(ledger: Ledger) -> None:
    first = span(0, 11)
    settle(ledger, *(of_group(ledger, first, 12, record=record) for record in range(2)))
    settle(ledger, of_group(ledger, first, 10), of_group(ledger, span(3, 30), 10, record=0))
    rows = [{**row, "record": None, "first": None, "last": None} for row in ledger.export()]
    assert rows[0] == rows[1]
    decisions = ledger.settle([of_group(ledger, first, k=11, record=record) for record in range(2)], count, yes)
    assert decisions == [Decision("again", first, 12)] * 2


def test_the_own_region_again_must_be_acceptable_too(ledger: Ledger) -> None:
    wanted = of_group(ledger, span(0, 39))
    assert settle(ledger, wanted, acceptable=no) == [("new", span(0, 39))]
    assert settle(ledger, wanted, acceptable=no) == [("refused", None)]
    assert settle(ledger, wanted) == [("again", span(0, 39))]


def test_earlier_group_must_reach_todays_k(ledger: Ledger) -> None:
    settle(ledger, of_group(ledger, span(0, 39), 17))
    assert settle(ledger, of_group(ledger, span(0, 60), 90, k=17, policy="p2")) == [("earlier", span(0, 39))]
    assert settle(ledger, of_group(ledger, span(0, 60), 90, k=18, policy="p3")) == [("refused", None)]


def test_what_left_under_a_nominal_guarantee_is_no_group(ledger: Ledger) -> None:
    settle(ledger, candidate(ledger, span(0, 39)))
    assert settle(ledger, of_group(ledger, span(0, 39))) == [("refused", None)]
    assert settle(ledger, of_group(ledger, span(0, 60))) == [("refused", None)]
    # Released with its group first, a record keeps that region, whatever else left under a nominal guarantee.
    settle(ledger, of_group(ledger, span(0, 39), 17, record=2))
    settle(ledger, candidate(ledger, span(0, 39), record=2, policy="n"))
    settle(ledger, candidate(ledger, span(5, 60), record=2, policy="n"))
    (decision,) = ledger.settle([of_group(ledger, span(7, 70), record=2)], count, yes)
    assert decision == Decision("earlier", span(0, 39), 17)


def test_a_nominal_guarantee_goes_by_people_inside_whatever_left_before(ledger: Ledger) -> None:
    settle(ledger, of_group(ledger, span(0, 39)))
    assert settle(ledger, candidate(ledger, span(20, 59))) == [("new", span(20, 59))]
    assert settle(ledger, candidate(ledger, span(35, 70))) == [("earlier", span(20, 59))]


def test_effective_is_what_is_on_record(ledger: Ledger) -> None:
    assert ledger.settle([of_group(ledger, span(0, 39), 17)], count, yes) == [Decision("new", span(0, 39), None)]
    for effective in (30, 15):
        again, earlier = of_group(ledger, span(0, 39), effective), of_group(ledger, span(60, 90), effective)
        assert ledger.settle([again], count, yes) == [Decision("again", span(0, 39), 17)]
        assert ledger.settle([earlier], count, yes) == [Decision("earlier", span(0, 39), 17)]


# ---------------------------------------------------------------------------------------------------------------


def test_region_of_the_same_record_policy_and_population_is_found(ledger: Ledger) -> None:
    wanted = candidate(ledger, span(0, 19))
    assert ledger.earlier(wanted.record, "p1", "f1") is None
    settle(ledger, wanted, candidate(ledger, span(5, 25)))
    assert ledger.earlier(wanted.record, "p1", "f1") == span(5, 25)
    assert ledger.earlier(wanted.record, "p2", "f1") is None
    assert ledger.earlier(wanted.record, "p1", "f2") is None
    settle(ledger, candidate(ledger, span(0, 19), policy="p2"))
    assert ledger.earlier(wanted.record, "p1") == span(5, 25)
    assert ledger.earlier(wanted.record) == span(0, 19)


def test_an_exception_of_a_callback_surfaces_and_nothing_is_recorded(ledger: Ledger) -> None:
    def broken(regions: Sequence[Region]) -> int:
        if regions[-1] == span(50, 69):
            raise ZeroDivisionError("mine")
        return count(regions)

    both = [candidate(ledger, span(0, 19)), candidate(ledger, span(50, 69), record=2)]
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        ledger.settle(both, broken, yes)
    assert caught.value.__context__ is None
    assert list(ledger.export()) == []
    assert settle(ledger, *both) == [("new", span(0, 19)), ("new", span(50, 69))]


def test_nothing_to_settle_is_nothing(ledger: Ledger) -> None:
    assert ledger.settle([], count, yes) == []


@pytest.mark.parametrize("changes", [{"k": 0}, {"k": True}, {"k": 2.5}])
def test_candidate_with_an_impossible_k_is_refused(ledger: Ledger, changes: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match="whole number"):
        settle(ledger, candidate(ledger, span(0, 19), **changes))


def test_values_in_the_place_of_handles_are_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="handle") as caught:
        settle(ledger, replace(candidate(ledger, span(0, 19)), record="canary"))
    assert "canary" not in str(caught.value)


def test_batches_larger_than_a_statement_are_settled(ledger: Ledger) -> None:
    wanted = [candidate(ledger, span(0, 39), record=i % 1100) for i in range(1300)]
    outcomes = [outcome for outcome, _ in settle(ledger, *wanted)]
    assert outcomes == ["new"] * 1100 + ["again"] * 200
    assert len(list(ledger.export())) == 1100
    assert ledger.status().times == 1300


def test_threads_and_ledgers_see_each_other(open_ledger: Open) -> None:
    ledgers = [open_ledger(), open_ledger()]
    released: list[Region] = []
    failed: list[BaseException] = []

    def release(ledger: Ledger, start: int) -> None:
        try:
            for low in range(start, 60, 7):
                for _, region in settle(ledger, candidate(ledger, span(low, low + 25)), acceptable=no):
                    if region is not None:
                        released.append(region)
        except BaseException as error:  # noqa: BLE001 - raised by nobody else
            failed.append(error)

    threads = [threading.Thread(target=release, args=(ledgers[i % 2], i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert count(released) >= 10
    assert ledgers[0].status().releases == len(set(released))
