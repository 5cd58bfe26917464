"""Who fits an answer and what is guessed of them: by hand, on the paper's toy example, and against plain loops."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toy
from cfk_plugin import Interval, KAnonymizer, PrivacyPolicy
from cfk_plugin.audit.attribute_inference import Answered, Register, Said, baseline, guesses, said_by
from cfk_plugin.audit.targets import Answers
from cfk_plugin.data.region import Part, part_contains
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Proposal, Task
from prototyped import prototypes

TABLE = pd.DataFrame(
    {
        "age": [30, 30, 41, 52, 30, 41],
        "town": ["Ghent", "Ghent", "Ghent", "Mons", "Ghent", None],
        "pay": [10.0, 20.0, 50.0, 90.0, 110.0, 50.0],
        "ill": ["no", "yes", "no", "yes", "no", "no"],
    }
)
PEOPLE = np.arange(len(TABLE))


def raw(*rows: int) -> list[Said]:
    found = TABLE.take(list(rows))
    return said_by(Answers(found, np.ones(len(found), dtype=bool)))


def guessed(said: list[Said], name: str, tolerance: float = 0.05) -> tuple[list[float], list[int]]:
    """Return per person whether the guess is right (NaN where there is none), and the place that it rests on."""
    register = Register(TABLE, ["age", "town"])
    found = guesses(Answered(said, register, PEOPLE), register, name, tolerance)
    about, place = found.of(register.cell_of)
    hits = np.full(len(TABLE), np.nan)
    hits[about] = found.hits(register.cell_of[about], register.codes(name, about))
    places = np.full(len(TABLE), -1)
    places[about] = place
    return hits.tolist(), places.tolist()


def test_a_row_is_guessed_of_everybody_with_its_quasi_identifiers() -> None:
    nan = float("nan")
    # Row 3 is the only one of its kind. Row 1 is one of three: 20 is right about itself, and within 5 % of 100 about
    # nobody else; "yes" likewise.
    assert guessed(raw(3, 1), "pay") == (pytest.approx([0, 1, nan, 1, 0, nan], nan_ok=True), [1, 1, -1, 0, 1, -1])
    assert guessed(raw(3, 1), "ill")[0] == pytest.approx([0, 1, nan, 1, 0, nan], nan_ok=True)
    assert guessed(raw(1), "pay", tolerance=0.1)[0] == pytest.approx([1, 1, nan, nan, 0, nan], nan_ok=True)


def test_most_votes_win_then_what_is_said_most_often_then_the_first() -> None:
    # Three rows fit the same three people: two say no, one says yes; repeated answers say nothing more.
    assert guessed(raw(1, 1, 1, 0, 4), "ill")[0][:2] == [1, 0]
    assert guessed(raw(1, 0), "ill")[0][:2] == [0, 1]
    assert guessed(raw(0, 1), "ill")[0][:2] == [1, 0]
    assert guessed(raw(0, 1, 3), "ill")[0][:2] == [0, 1]  # elsewhere somebody is ill as well


def test_an_answer_that_fits_fewer_people_weighs_more() -> None:
    wide = {"age": Interval(30, 52), "ill": frozenset({"yes"})}  # nothing is said of the town: six people
    narrow = {"age": Interval(41, 52), "town": frozenset({"Ghent", "Mons"}), "ill": frozenset({"no"})}
    hits, places = guessed([wide, narrow], "ill")
    assert hits == [0, 1, 1, 0, 0, 0]  # the one without a town is not in the narrow one
    assert places == [0, 0, 1, 1, 0, 0]


def test_missing_values_fit_missing_values() -> None:
    hits, _ = guessed(raw(5), "pay")
    assert hits == pytest.approx([*[float("nan")] * 5, 1], nan_ok=True)
    assert guessed([{"town": frozenset({None, "Mons"}), "pay": Interval(90, 90)}], "pay")[0][3:] == pytest.approx(
        [1, float("nan"), 0], nan_ok=True
    )


def test_a_bin_is_a_guess_at_all_of_it_and_a_withheld_value_is_none() -> None:
    said = [{"age": Interval(30, 30), "pay": Interval(0, 20)}]
    assert guessed(said, "pay")[0] == pytest.approx([1, 1, *[float("nan")] * 2, 0, float("nan")], nan_ok=True)
    assert np.isnan(guessed(said, "ill")[0]).all()


def test_parts_may_spell_kinds_of_their_own() -> None:
    people = pd.DataFrame(
        {"level": ["low", "mid", "high"], "code": [1, 2, 3], "size": pd.Categorical([5, 6, 7]), "x": 0}
    )
    register = Register(people, ["level", "code", "size"])

    def fits(**parts: Part) -> list[int]:
        return [at for at in range(3) if register.cell_of[at] in register.fitting(parts)]

    assert fits(level=Interval("low", "mid", levels=("low", "mid"))) == [0, 1]
    assert fits(code=frozenset({"2", "3"})) == [1, 2]
    assert fits(size=Interval(6, 7)) == [1, 2]
    assert fits(code=Interval("1", "2", levels=("1", "2"))) == [0, 1]


def test_prototypes_and_rows_are_read_alike() -> None:
    said = said_by(Answers(pd.DataFrame(index=range(3)), np.array([True, False, True]), prototypes()))
    assert [parts["age"] for parts in said] == [Interval(31, 31), Interval(44, 44)]
    assert said[1]["city"] == frozenset({None})
    (row,) = raw(1)
    assert row == {
        "age": Interval(30, 30),
        "town": frozenset({"Ghent"}),
        "pay": Interval(20.0, 20.0),
        "ill": frozenset({"yes"}),
    }


class PaperRegion:
    """Proposes the region of the paper's Figure 2."""

    name = "figure-2"

    def protect(self, task: Task) -> Sequence[Proposal]:
        return [Proposal(toy.REGION)] * len(task)


def test_the_region_of_the_paper_fits_three_of_whom_two_are_guessed_right() -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="nominal"), method=PaperRegion())
    released = anonymizer.fit(toy.population(), toy.model, toy.DESIRED).transform(toy.FIONA)
    people = toy.TABLE[toy.FEATURES]
    register = Register(people, toy.QUASI_IDENTIFIERS)
    answered = Answered(said_by(Answers(toy.FIONA, np.array([True]), released)), register, np.arange(len(people)))
    assert answered.sizes.tolist() == [3]
    for name in ("Salary", "Relationship status"):  # 60 and single: Fiona and Ingrid, not Gina
        found = guesses(answered, register, name, 0.05)
        about, _ = found.of(register.cell_of)
        hits = found.hits(register.cell_of[about], register.codes(name, about))
        assert dict(zip(toy.TABLE["Name"].iloc[about], hits.tolist(), strict=True)) == {
            "Fiona": True,
            "Gina": False,
            "Ingrid": True,
        }


def loops(people: pd.DataFrame, said: list[Mapping[str, Part]], quasi: list[str], name: str) -> list[float]:
    """Guess person by person, answer by answer."""
    distinct = [parts for at, parts in enumerate(said) if parts not in said[:at]]
    rows = people.to_dict("records")

    def fits(row: dict[str, Any], parts: Mapping[str, Part]) -> bool:
        return all(part_contains(parts[q], row[q]) for q in quasi if q in parts)

    often = Counter(parts[name] for parts in distinct if name in parts)
    hits = []
    for row in rows:
        votes: dict[Part, float] = {}
        for parts in distinct:
            if name in parts and fits(row, parts):
                votes[parts[name]] = votes.get(parts[name], 0.0) + 1 / sum(fits(other, parts) for other in rows)
        best = max(votes, key=lambda part: (round(votes[part], 9), often[part]), default=None)
        if best is None:
            hits.append(float("nan"))
        elif name == "pay" and isinstance(best, Interval) and best.is_single:
            width = people["pay"].max() - people["pay"].min()
            hits.append(float(abs(row["pay"] - best.low) <= 0.05 * width + 1e-9))
        else:
            hits.append(float(part_contains(best, row[name])))
    return hits


@pytest.mark.parametrize("seed", range(20))
def test_against_plain_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 40))
    people = pd.DataFrame(
        {
            "age": random.integers(0, 8, n),
            "town": random.choice(["A", "B", "C"], n).astype(object),
            "pay": random.integers(0, 50, n),
            "ill": random.choice(["yes", "no", "maybe"], n),
        }
    )
    said: list[Said] = said_by(Answers(people.sample(8, replace=True, random_state=seed), np.ones(8, dtype=bool)))
    for _ in range(8):
        low, high = sorted(random.integers(0, 8, 2).tolist())
        towns = frozenset(random.choice(["A", "B", "C"], int(random.integers(1, 4))).tolist())
        pay = int(random.integers(0, 45))
        said.append({"age": Interval(low, high), "town": towns, "pay": Interval(pay, pay + 5 * (seed % 2))})
    quasi = ["age", "town"]
    register = Register(people, quasi)
    answered = Answered(said, register, np.arange(n))
    for name in ("pay", "ill"):
        found = guesses(answered, register, name, 0.05)
        about, _ = found.of(register.cell_of)
        hits = np.full(n, np.nan)
        hits[about] = found.hits(register.cell_of[about], register.codes(name, about))
        assert hits.tolist() == pytest.approx(loops(people, said, quasi, name), nan_ok=True)


def test_the_baseline_learns_from_quasi_identifiers_at_the_width_of_the_guesses() -> None:
    random = np.random.default_rng(0)
    n = 400
    people = pd.DataFrame({"age": random.integers(0, 4, n), "pay": 0.0, "ill": random.choice(["yes", "no"], n)})
    people["pay"] = 30.0 * people["age"] + random.random(n)
    register = Register(people, ["age"])
    own, asked = np.arange(200), np.arange(200, n)

    def right(name: str, part: Part) -> float:
        found = guesses(Answered([{name: part}], register, asked), register, name, 0.05)
        return float(baseline(found, register, name, own, asked, tolerance=0.05, seed=0).mean())

    assert right("pay", Interval(30.0, 30.0)) == 1.0  # windows of a tenth of the range
    assert right("pay", Interval(0.0, 50.0)) == 1.0  # inside the bin or not
    assert right("ill", frozenset({"yes"})) < 0.7
    assert right("ill", frozenset({"yes", "no"})) == 1.0


def test_nothing_shows_or_travels() -> None:
    register = Register(TABLE, ["age", "town"])
    answered = Answered(raw(3), register, PEOPLE)
    assert repr(register) == "Register(6 people, 4 cells)"
    assert repr(answered) == "Answered(1 distinct answers, 1 places)"
    for thing in (register, answered):
        with pytest.raises(InputError, match="refuses to be pickled"):
            pickle.dumps(thing)
