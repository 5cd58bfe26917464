"""Disclosure control: what is hidden cannot be computed from what is shown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin.report.data import Amount
from cfk_plugin.report.disclosure import FEW, HIDDEN, Control, population_band, share_band


def possible(shown: dict[str, object], total: int) -> dict[str, set[int]]:
    """Return every value that each banded cell may have, for who knows the total and the rules."""
    names = [name for name, amount in shown.items() if amount.band]  # type: ignore[attr-defined]
    left = total - sum(int(amount.value) for amount in shown.values() if amount.band is None)  # type: ignore[attr-defined]
    choices = [range(1, 11) if shown[n].band == FEW else range(11, left + 1) for n in names]  # type: ignore[attr-defined]
    found: dict[str, set[int]] = {name: set() for name in names}
    for combination in itertools.product(*choices):
        if sum(combination) == left:
            for name, value in zip(names, combination, strict=True):
                found[name].add(value)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 7, 10, 11, 12, 25]), min_size=1, max_size=4))
def test_no_small_cell_follows_from_the_total(counts: list[int]) -> None:
    control = Control("external", 10)
    cells = {f"cell {i}": count for i, count in enumerate(counts)}
    shown = control.counts(cells, "place", people=True)
    assert all(shown[name].band == FEW for name, count in cells.items() if 0 < count < 11)
    assert all(shown[name].value == 0 for name, count in cells.items() if count == 0)
    found = possible(shown, sum(counts))
    if control.total(cells, "total").band:
        return  # with the sum unknown nothing follows
    assert all(len(values) > 1 for name, values in found.items() if shown[name].band == FEW), (cells, shown)


def test_a_class_of_seven_hides_a_second_cell() -> None:
    control = Control("internal", 10)
    shown = control.counts({"small": 7, "medium": 40, "large": 953}, "classes", people=True)
    assert (shown["small"].band, shown["medium"].band, shown["large"].value) == (FEW, HIDDEN, 953)
    assert control.hidden == ["classes.small", "classes.medium"]


def test_requests_are_hidden_in_the_external_edition_alone() -> None:
    cells = {"released": 96, "suppressed": 4}
    assert Control("internal").counts(cells, "x", people=False)["suppressed"].value == 4
    outside = Control("external").counts(cells, "x", people=False)
    assert (outside["suppressed"].band, outside["released"].band) == (FEW, HIDDEN)


@pytest.mark.parametrize(
    ("k", "shown"), [(9, "under 10"), (10, "10–19"), (19, "10–19"), (20, "20–49"), (49, "20–49"), (50, "50 or more")]
)
def test_class_sizes_are_banded_outside_and_exact_inside(k: int, shown: str) -> None:
    assert Control("external", 10).amount(Amount(value=k), "class_size", "k").band == shown
    assert Control("internal", 10).amount(Amount(value=k), "class_size", "k").value == k


@pytest.mark.parametrize(
    ("risk", "shown"), [(1 / 10, "at most 0.1"), (1 / 19, "at most 0.1"), (1 / 20, "at most 0.05")]
)
def test_a_risk_tells_no_class_size_outside(risk: float, shown: str) -> None:
    assert Control("external", 10).amount(Amount(value=risk), "risk", "risk").band == shown
    assert Control("external", 10).amount(Amount(value=1 / 9), "risk", "risk").band == "above 0.1"


@pytest.mark.parametrize(
    ("people", "shown"),
    [(0, None), (7, "1–10"), (11, "11–19"), (99, "90–99"), (1_234, "1,000–1,999"), (20_000, "20,000–29,999")],
)
def test_people_are_banded_in_every_edition(people: int, shown: str | None) -> None:
    assert population_band(people) == shown
    assert Control("internal").amount(Amount(value=people), "people", "people").band == shown


@pytest.mark.parametrize(
    ("part", "n", "shown"),
    [
        (0, 1000, None),
        (7, 1000, "1–10 people"),
        (11, 1000, None),
        (995, 1000, "all but 1–10 people"),
        (1000, 1000, None),
    ],
)
def test_shares_of_people_need_eleven_on_both_sides(part: int, n: int, shown: str | None) -> None:
    assert share_band(part / n, n, "people") == shown
    amount = Control("internal").amount(Amount(value=part / n, n=n), "share_of_people", "share")
    assert amount.n is None  # the number of people is shown as a band, so no share may tell it
    assert amount.band == shown


def test_a_share_of_people_without_a_number_is_hidden() -> None:
    assert Control("internal").amount(Amount(value=0.2), "share_of_people", "share").band == HIDDEN


def test_what_was_not_measured_stays_so() -> None:
    control = Control("external", 10)
    assert not control.amount(Amount(value=None), "class_size", "k").measured
    assert control.hidden == []
