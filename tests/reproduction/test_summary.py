"""Aggregates and verdicts: numbers that can be added up by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.results import Results, Verdict, aggregate, published, verdicts
from made_outcomes import outcome


def test_figures_are_over_what_was_released() -> None:
    found = aggregate(
        outcome(
            ncp=[0.1, None, 0.4, 0.1],
            pureness=[1.0, None, 0.5, 0.9],
            people=[10.0, None, 12.0, 17.0],
            k_desired=[8.0, None, 2.0, 11.0],
            k_consistent=[1.0, None, 2.0, 3.0],
            k_effective=[4.0, None, None, None],
            proven=[1.0, None, 0.0, 1.0],
            agrees=[0.0, None, 1.0, 1.0],
        )
    )
    assert (found.n, found.released) == (4, 3)
    assert (found.ncp, found.pureness) == pytest.approx((0.2, 0.8))
    assert found.ncp_low is not None
    assert found.ncp_high is not None
    assert 0.1 <= found.ncp_low < 0.2 < found.ncp_high < 0.4 + 1e-9
    assert (found.cdm, found.cdm_per_explanation) == (39, 13)
    assert found.cm == pytest.approx(1 / 3)
    assert (found.k_min, found.k_desired, found.k_desired_min) == (10, 7, 2)
    assert (found.k_consistent, found.k_consistent_min) == (2, 1)
    assert (found.k_effective, found.k_effective_min, found.k_effective_n) == (4, 4, 1)
    assert (found.proven, found.pure) == pytest.approx((2 / 3, 1 / 3))
    assert (found.seconds, found.search_seconds, found.model_seconds, found.fit_seconds) == (0.5, 0.375, 0.125, 0.5)


@pytest.mark.parametrize("values", [[None, None], []])
def test_nothing_released_is_none_and_not_zero(values: list[float | None]) -> None:
    every = dict.fromkeys(("ncp", "pureness", "people", "k_desired", "k_consistent", "proven", "agrees"), values)
    found = aggregate(outcome(**every))
    assert (found.n, found.released) == (len(values), 0)
    empty = (found.ncp, found.ncp_low, found.pureness, found.cdm, found.cdm_per_explanation, found.cm, found.k_desired)
    assert set(empty) == {None}
    assert (found.proven, found.pure, found.k_min, found.k_effective_n) == (None, None, None, 0)


def test_the_same_outcome_gives_the_same_interval() -> None:
    one = outcome(ncp=[0.1, 0.2, 0.7])
    assert aggregate(one) == aggregate(one)


def test_other_settings_are_left_out_and_runs_found() -> None:
    usual = outcome(ncp=[0.1])
    found = Results.of(
        {"a": usual, "b": replace(usual, options={"alpha": 40})}, command="", runs={"a": "a1", "b": "b1"}
    )
    assert [a.run_id for a in found.aggregates] == ["a1"]


Values = list[float | None]


def judged(ncp: Values, pureness: Values, grasp: tuple[Values, Values] | None = None) -> Verdict:
    """Return the verdict on our method against GRASP; against the paper without one."""
    ours = outcome(ncp=ncp, pureness=pureness, proven=[0.0] * len(ncp))
    theirs = [outcome(method="grasp", ncp=grasp[0], pureness=grasp[1])] if grasp else []
    against = "grasp" if grasp else "paper"
    (found,) = [v for v in verdicts([ours, *theirs]) if (v.method, v.against) == ("exact-pureness", against)]
    return found


def test_better_than_the_paper_is_reached() -> None:
    found = judged([0.03], [0.99])
    assert (found.their_ncp, found.their_pureness) == (0.0384, 0.9315)
    assert (found.ncp_word, found.pureness_word, found.is_reached) == ("reached", "reached", True)
    assert (found.ncp_by, found.pureness_by) == pytest.approx((-0.0084, 0.0585))


def test_worse_than_the_paper_is_missed_by_the_amount() -> None:
    found = judged([0.05, 0.0468], [0.9, 0.95])
    assert (found.ncp_word, found.pureness_word, found.is_reached) == ("missed", "missed", False)
    assert (found.ncp_by, found.pureness_by) == pytest.approx((0.01, -0.0065))
    assert found.ncp_low is not None
    assert found.ncp_high is not None
    assert found.ncp_low <= 0.01 <= found.ncp_high


def test_one_of_two_is_not_reached() -> None:
    assert not judged([0.03], [0.9]).is_reached
    assert not judged([0.05], [0.99]).is_reached


def test_equal_at_the_bound_counts() -> None:
    found = judged([0.0, 0.2], [1.0, 1.0], ([0.1, 0.2], [1.0, 1.0]))
    assert (found.ncp_word, found.pureness_word, found.is_reached) == ("reached", "equal", True)
    found = judged([0.0], [1.0], ([0.0], [0.9]))
    assert (found.ncp_word, found.pureness_word, found.is_reached) == ("equal", "reached", True)


def test_a_tie_elsewhere_does_not_count() -> None:
    found = judged([0.1], [0.9], ([0.2], [0.9]))
    assert (found.pureness_word, found.is_reached) == ("tied", False)


@pytest.mark.parametrize(("proven", "word"), [(1.0, "equal"), (0.0, "tied"), (None, "tied")])
def test_a_tie_counts_where_ours_is_proven_optimal(proven: float | None, word: str) -> None:
    ours = outcome(ncp=[0.1, 0.1], pureness=[1.0, 1.0], proven=[1.0, proven])
    (found,) = [
        v
        for v in verdicts([ours, outcome(method="grasp", ncp=[0.1, 0.1])])
        if (v.method, v.against) == (ours.method, "grasp")
    ]
    assert found.ncp_word == word


def test_only_common_explanations_compare() -> None:
    # GRASP was asked for two, and ours withheld the first: one is common.
    found = judged([None, 0.1, 0.9], [None, 1.0, 0.0], ([0.9, 0.2], [0.0, 0.8]))
    assert (found.n, found.ncp, found.their_ncp) == (1, 0.1, 0.2)
    assert found.is_reached


def test_nothing_in_common_is_no_verdict() -> None:
    found = judged([None], [None], ([0.1], [1.0]))
    assert (found.n, found.ncp_word, found.is_measured, found.is_reached) == (0, "not measured", False, False)


def test_different_explanations_do_not_compare() -> None:
    ours, theirs = outcome(ncp=[0.1]), outcome(method="grasp", ncp=[0.2])
    with pytest.raises(InputError, match="different settings"):
        verdicts([ours, replace(theirs, config=replace(theirs.config, seed=1))])


def test_a_k_that_the_paper_does_not_print_has_no_verdict_against_it() -> None:
    assert published().result("cf-k", 7, "cmc") is None
    assert verdicts([outcome(k=7, ncp=[0.1])]) == []


def test_mondrian_is_a_yardstick_of_both() -> None:
    found = verdicts(
        [outcome(method=method, ncp=[0.1]) for method in ("grasp", "mondrian-raw", "mondrian", "exact-pureness")]
    )
    assert {(v.method, v.against) for v in found} == {
        ("exact-pureness", "paper"),
        ("exact-pureness", "grasp"),
        ("exact-pureness", "mondrian"),
        ("grasp", "paper"),
        ("grasp", "mondrian-raw"),
    }
