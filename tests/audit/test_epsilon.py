"""Audits of epsilon: closed forms and enumeration, mechanisms whose epsilon is known, and broken
ones.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfk_plugin import Schema
from cfk_plugin.audit import (
    EpsilonAudit,
    canaries_needed,
    canary_audit,
    epsilon_from_scores,
    one_run_audit,
    runs_needed,
    to_frame,
)
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import clopper_pearson

EPSILONS = (0.5, 1.0, 3.0)


def truthful(epsilon: float) -> float:
    """Return the chance of a true answer in randomised response."""
    return 1 / (1 + math.exp(-epsilon))


def ceiling(runs: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return what a total leak shows: half of the runs count, and both rates are Clopper-Pearson
    ends.
    """
    low = ((1 - confidence) / 2) ** (1 / (runs // 2))
    return max(math.log(max(low - delta, 1e-300) / (1 - low)), 0)


def one_run_ceiling(guesses: int) -> float:
    return -math.log(0.05 ** (-1 / guesses) - 1)


# --- bounds from scores ---------------------------------------------------------------------------


@given(
    runs=st.integers(4, 60),
    data=st.data(),
    delta=st.sampled_from([0.0, 0.01, 0.3]),
    confidence=st.sampled_from([0.8, 0.95, 0.999]),
)
def test_a_bound_is_its_formula_stays_below_the_ceiling_and_worlds_may_be_swapped(
    runs: int, data: st.DataObject, delta: float, confidence: float
) -> None:
    numbers = st.one_of(st.integers(-3, 3), st.floats(allow_nan=False))
    inside, outside = (data.draw(st.lists(numbers, min_size=runs, max_size=runs)) for _ in range(2))
    found = epsilon_from_scores(inside, outside, delta, confidence)
    t, f = found.tpr, found.fpr
    assert t.n == f.n == runs - runs // 2
    low = clopper_pearson(round(t.value * t.n), t.n, confidence).low
    high = clopper_pearson(round(f.value * f.n), f.n, confidence).high
    ratios = [(low - delta, high), (1 - high - delta, 1 - low)]
    assert found.epsilon == pytest.approx(
        max([math.log(a / b) for a, b in ratios if a > 0 and b > 0] + [0.0])
    )
    assert found.epsilon <= ceiling(2 * t.n, delta, confidence) + 1e-9
    assert epsilon_from_scores(outside, inside, delta, confidence).epsilon == pytest.approx(
        found.epsilon, abs=1e-9
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.2])
def test_fewer_runs_than_needed_can_never_refute(epsilon: float, delta: float) -> None:
    runs = runs_needed(epsilon, delta)
    assert runs is not None
    assert ceiling(runs, delta) > epsilon
    assert runs == 2 or ceiling(runs - 2, delta) <= epsilon
    assert runs_needed(40.0) is None


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomised_response_is_bounded_from_below_closely_and_rarely_above(epsilon: float) -> None:
    random, runs = np.random.default_rng(3), 40_000
    found = epsilon_from_scores(
        random.random(runs) < truthful(epsilon), random.random(runs) > truthful(epsilon)
    )
    assert epsilon - 0.12 < found.epsilon < epsilon
    audits = 150
    worlds = random.random((2, audits, 400)) < np.reshape(
        [truthful(epsilon), 1 - truthful(epsilon)], (2, 1, 1)
    )
    above = sum(
        epsilon_from_scores(*scores).epsilon > epsilon for scores in zip(*worlds, strict=True)
    )
    assert above <= stats.binom.ppf(0.999, audits, 0.05)


def test_a_leak_of_delta_is_delta_and_no_more() -> None:
    random, runs, delta = np.random.default_rng(1), 20_000, 0.1
    # in a tenth of the runs, else nothing
    leaks, silent = (random.random(runs) < delta).astype(float), np.zeros(runs)
    assert epsilon_from_scores(leaks, silent, delta).epsilon == 0
    assert epsilon_from_scores(leaks, silent, delta / 2).epsilon > 4


def test_scores_may_be_infinite_show_one_tail_and_are_as_many_in_both_worlds() -> None:
    assert epsilon_from_scores([math.inf] * 400, [-math.inf] * 400).epsilon == pytest.approx(
        ceiling(400)
    )
    random = np.random.default_rng(0)
    wide, narrow = 10 * random.standard_normal(4000), random.standard_normal(4000)
    # two tails are the user's score to fold
    folded = epsilon_from_scores(np.abs(wide), np.abs(narrow)).epsilon
    assert folded > epsilon_from_scores(wide, narrow).epsilon > 2
    with pytest.raises(InputError, match="NaN"):
        epsilon_from_scores([math.nan] * 8, [0.0] * 8)
    with pytest.raises(InputError, match="equally many"):
        epsilon_from_scores([1.0] * 8, [0.0] * 7)


# --- a canary in many runs ------------------------------------------------------------------------

LEVELS = ["w", "x", "y", "z"]


def table(n: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = {f"a{j}": random.choice(LEVELS[:3], n, p=[0.5, 0.3, 0.2]) for j in range(3)}
    return pd.DataFrame({**rows, "age": random.integers(18, 80, n)})


TABLE = table()
CANARY = pd.DataFrame({"a0": ["z"], "a1": ["z"], "a2": ["z"], "age": [99]})
MANY = pd.DataFrame({"a0": "z", "a1": "z", "a2": "z", "age": 1000 + np.arange(200)})


def noisy_count(rows: pd.DataFrame, random_state: int, scale: float = 1.0) -> float:
    return float((rows["a0"] == "z").sum() + np.random.default_rng(random_state).laplace(0, scale))


def drawn_rows(
    rows: pd.DataFrame, random_state: int, scale: float = 3.0, *, inferred: bool = False
) -> pd.DataFrame:
    """Draw rows from noisy counts of each column, which is (3 / scale)-DP, unless levels are read
    from the data.
    """
    random = np.random.default_rng(random_state)
    drawn = {}
    for name in ("a0", "a1", "a2"):
        levels = sorted(set(rows[name])) if inferred else LEVELS
        counts = [(rows[name] == level).sum() + random.laplace(0, scale) for level in levels]
        weights = np.clip(counts, 1e-9, None)
        drawn[name] = random.choice(levels, 300, p=weights / weights.sum())
    return pd.DataFrame(drawn)


def audited(fit: Any, **options: Any) -> EpsilonAudit:
    canary = options.pop("canary", CANARY)
    return canary_audit(
        fit, options.pop("table", TABLE), canary, **{"claimed": 1.0, "runs": 60, **options}
    )


@pytest.mark.parametrize("epsilon", [1.0])
def test_sound_noise_passes_and_a_quarter_of_it_fails(epsilon: float) -> None:
    right, wrong = (
        audited(functools.partial(noisy_count, scale=scale / epsilon), claimed=epsilon, runs=600)
        for scale in (1.0, 0.25)
    )
    assert epsilon / 4 < right.epsilon_low <= epsilon < wrong.epsilon_low
    assert (right.verdict, wrong.verdict, right.constant) == ("pass", "fail", False)
    assert right.tpr is not None
    assert right.fpr is not None
    assert (right.tpr.n, right.fpr.n) == (300, 300)
    assert right.tpr.value > right.fpr.value


def missing(rows: pd.DataFrame) -> np.ndarray:
    return np.array([np.nan if "z" in set(rows["a0"]) else 0.0, 1.0])


@pytest.mark.parametrize(
    ("fit", "options", "verdict"),
    [
        pytest.param(drawn_rows, {}, "pass", id="sound rows"),
        pytest.param(
            functools.partial(drawn_rows, scale=0.05), {}, "fail", id="rows with little noise"
        ),
        pytest.param(functools.partial(drawn_rows, scale=1e9), {}, "pass", id="a declared domain"),
        pytest.param(
            functools.partial(drawn_rows, inferred=True, scale=1e9),
            {},
            "fail",
            id="a domain of the rows",
        ),
        pytest.param(
            lambda rows: np.zeros(rows["a0"].nunique()),
            {},
            "fail",
            id="a length that depends on rows",
        ),
        pytest.param(missing, {}, "fail", id="a missing number that depends on rows"),
        pytest.param(
            lambda rows: {"rows": rows},
            {"score": lambda out: len(out["rows"])},
            "fail",
            id="a score",
        ),
    ],
)
def test_an_audit_sees_what_depends_on_one_person(
    fit: Any, options: dict[str, Any], verdict: str
) -> None:
    found = audited(fit, **options)
    assert found.verdict == verdict
    assert (found.epsilon_low <= found.claimed) == (verdict == "pass")


def test_no_noise_reaches_the_ceiling_and_what_follows_is_said() -> None:
    found = audited(lambda rows: rows["age"].mean(), runs=100, claimed=3.0)
    assert (
        found.epsilon_low
        == found.ceiling
        == pytest.approx(ceiling(100))
        == pytest.approx(2.57, abs=0.005)
    )
    assert "nothing random" in str(found.warning)
    assert (found.verdict, found.needed) == ("review", 152)
    assert "cannot fail: it can show at most 2.57" in found.advice
    assert "at least 152 runs in each world" in found.advice
    nothing = audited(lambda rows: 7.0)
    assert (nothing.epsilon_low, nothing.constant) == (0.0, False)
    assert "no better than the baseline" in str(nothing.warning)


def test_vectors_are_read_by_a_discriminant() -> None:
    def counts(rows: pd.DataFrame, random_state: int) -> np.ndarray:
        random = np.random.default_rng(random_state)
        return np.array(
            [(rows[name] == "z").sum() for name in ("a0", "a1", "a2")]
        ) + random.laplace(0, 1, (5, 3))

    first = audited(
        lambda rows, random_state: counts(rows, random_state)[0, 0], runs=400, claimed=15.0
    )
    assert audited(counts, runs=400, claimed=15.0).epsilon_low > max(first.epsilon_low, 1.5)


def test_what_is_learnt_is_not_counted() -> None:
    """Sixty numbers tell the twenty runs apart that they were learnt from, whatever the
    mechanism.
    """

    def wide(rows: pd.DataFrame, random_state: int) -> np.ndarray:
        noise = np.random.default_rng(random_state).laplace(0, 1, 60)
        return noise + np.eye(60)[0] * (rows["a0"] == "z").sum()  # exactly 1-DP

    found = [
        audited(wide, table=TABLE.head(3), runs=40, seed=seed).epsilon_low for seed in range(8)
    ]
    assert np.mean(found) < 0.15  # counted where it was learnt it is 0.55


def lengths(**options: Any) -> tuple[list[int], EpsilonAudit]:
    """Return how many rows the audited function got in both worlds."""
    seen: set[int] = set()
    found = audited(lambda rows: seen.add(len(rows)) or 0.0, runs=20, **options)
    return sorted(seen), found


def test_neighbours_are_one_person_more_or_one_in_the_place_of_another() -> None:
    assert lengths()[0] == [200, 201]
    seen, found = lengths(relation="replace-one")
    assert (seen, found.relation) == ([200], "replace-one")
    assert "in the place of somebody else" in found.scenario
    rows = TABLE.assign(person=np.arange(len(TABLE)) // 4)
    schema = Schema.from_frame(rows, quasi_identifiers=["age"], subject="person")
    two = pd.concat([CANARY, CANARY.assign(age=98)]).assign(person=-1)
    assert lengths(table=rows, canary=two, schema=schema, relation="replace-one")[0] == [198, 200]
    plain = Schema.from_frame(TABLE, quasi_identifiers=["age"])
    for wrong, declared, said in (
        (two.assign(person=[-1, -2]), schema, "names several"),
        (two.assign(person=3), schema, "a subject of the table"),
        (two.drop(columns="person"), plain, "names no subject"),
    ):
        with pytest.raises(InputError, match=said):
            lengths(table=rows[list(wrong)], canary=wrong, schema=declared)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canary": CANARY.drop(columns="age")}, "columns of the table, each once; check age"),
        ({"canary": TABLE.head(1)}, "the canary is a row of the table"),
        ({"canary": CANARY.head(0)}, "at least one row"),
        ({"runs": 19}, ">= 20"),
        ({"claimed": -1.0}, "epsilon must be"),
        ({"claimed": math.inf}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"relation": "swap"}, "relation must be one of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audited(noisy_count, **options)


def test_the_function_cannot_change_the_table_and_a_seed_repeats_the_audit() -> None:
    before, told = TABLE.copy(), []

    def rude(rows: pd.DataFrame, random_state: int) -> float:
        rows["a0"] = "z"
        return noisy_count(rows, random_state)

    first = audited(rude, runs=40, seed=7)
    assert audited(rude, runs=40, seed=7, progress=lambda *at: told.append(at)) == first
    assert told == [(at + 1, 80) for at in range(80)]
    pd.testing.assert_frame_equal(TABLE, before)


@pytest.mark.parametrize("where", ["fit", "score"])
def test_errors_quote_no_row(where: str) -> None:
    def broken(rows: Any) -> float:
        raise ValueError(f"row {TABLE.to_dict()}")

    with pytest.raises(InputError, match="ValueError") as caught:
        audited(
            broken if where == "fit" else noisy_count,
            runs=20,
            score=broken if where == "score" else None,
        )
    assert str(TABLE.to_dict()) not in str(caught.value)
    with pytest.raises(InputError, match="say with score="):
        audited(lambda rows: object(), runs=20)


# --- many canaries in one run ---------------------------------------------------------------------


def guessing(
    right: int, guesses: int, canaries: int = 200, claimed: float = 1.0, delta: float = 0.0
) -> EpsilonAudit:
    """Audit by an adversary who knows all coins and gets as many guesses right as they like."""

    def score(rows: pd.DataFrame) -> np.ndarray:
        present = MANY["age"].head(canaries).isin(rows["age"]).to_numpy()
        members, others, half = np.flatnonzero(present), np.flatnonzero(~present), guesses // 2
        said, wrong = np.zeros(canaries), guesses - right
        told_in = [*members[: half - wrong // 2], *others[: wrong // 2]]
        told_out = [
            *others[wrong // 2 :][: half - (wrong - wrong // 2)],
            *members[::-1][: wrong - wrong // 2],
        ]
        said[told_in], said[told_out] = 1, -1
        return said

    found = one_run_audit(
        lambda rows: rows,
        TABLE,
        MANY.head(canaries),
        claimed=claimed,
        delta=delta,
        guesses=guesses,
        score=score,
    )
    assert (found.figures["right"], found.figures["guesses"], found.main.n) == (
        right,
        guesses,
        guesses,
    )
    return found


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_p_value_without_delta_is_what_enumeration_gives(epsilon: float) -> None:
    r, chance = 6, np.zeros(7)
    for coins, answers in itertools.product(itertools.product((0, 1), repeat=r), repeat=2):
        right = sum(coin == answer for coin, answer in zip(coins, answers, strict=True))
        chance[right] += (
            0.5**r * truthful(epsilon) ** right * (1 - truthful(epsilon)) ** (r - right)
        )
    for right in range(r + 1):
        found = guessing(right, r, 40, claimed=epsilon)
        assert found.figures["p_value"] == pytest.approx(chance[right:].sum())


@pytest.mark.parametrize("delta", [1e-3, 0.05])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_p_value_with_delta_is_its_formula_and_covers_mechanisms_that_use_all_of_it(
    epsilon: float, delta: float
) -> None:
    m, r = 100, 30
    guess = stats.binom(r, truthful(epsilon))
    # every bit is named with probability delta
    each = stats.binom(r, delta + (1 - delta) * truthful(epsilon))
    for v in (5, 15, 22, 30):
        found = guessing(v, r, m, epsilon, delta).figures["p_value"]
        most = max((guess.cdf(v - 1) - guess.cdf(v - i - 1)) / i for i in range(1, v + 1))
        assert found == pytest.approx(min(guess.sf(v - 1) + 2 * m * delta * most, 1))
        all_at_once = delta + (1 - delta) * guess.sf(v - 1)
        assert found >= max(each.sf(v - 1), all_at_once) - 1e-12


def test_the_bound_of_one_run_is_where_the_p_value_crosses() -> None:
    found = guessing(90, 100)
    assert found.ceiling == pytest.approx(one_run_ceiling(100)) == guessing(100, 100).epsilon_low
    assert guessing(90, 100, claimed=found.epsilon_low).figures["p_value"] == pytest.approx(0.05)
    assert 0 < guessing(90, 100, delta=1e-4).epsilon_low < found.epsilon_low < found.ceiling
    assert guessing(55, 100).epsilon_low == 0


def test_fewer_canaries_than_needed_can_never_refute() -> None:
    for epsilon in (0.0, 1.0, 5.0):
        canaries = canaries_needed(epsilon)
        assert canaries is not None
        assert one_run_ceiling(canaries // 2) > epsilon
        assert canaries < 8 or one_run_ceiling((canaries - 4) // 2) <= epsilon
        assert canaries_needed(epsilon, 1e-5) >= canaries  # type: ignore[operator]
    assert canaries_needed(1.0, delta=0.1) is canaries_needed(12.0) is None


def histogram(rows: pd.DataFrame, random_state: int, scale: float = 1.0) -> np.ndarray:
    counts = rows["age"].value_counts().reindex(MANY["age"], fill_value=0).to_numpy()
    return counts + np.random.default_rng(random_state).laplace(0, scale, len(MANY))


def test_one_run_finds_gross_violations_alone() -> None:
    valid_rows = one_run_audit(histogram, TABLE, MANY, claimed=1.0)
    assert valid_rows.epsilon_low <= 1
    assert (valid_rows.verdict, valid_rows.runs, valid_rows.main.n) == ("pass", 1, 100)
    broken = one_run_audit(functools.partial(histogram, scale=0.01), TABLE, MANY, claimed=1.0)
    assert broken.epsilon_low == broken.ceiling > 3
    assert (broken.verdict, broken.figures["right"]) == ("fail", 100)
    assert one_run_audit(histogram, TABLE, MANY, claimed=5.0).verdict == "review"
    above = sum(
        one_run_audit(histogram, TABLE, MANY, claimed=1.0, seed=seed).epsilon_low > 1
        for seed in range(60)
    )
    assert above <= stats.binom.ppf(0.999, 60, 0.05)


def test_one_run_reads_rows() -> None:
    random = np.random.default_rng(2)
    many = pd.DataFrame({f"a{j}": random.choice(list("pqrstu"), 60) for j in range(3)})
    many = many.assign(age=random.permutation(60) + 200).drop_duplicates()
    for fit, verdict in (
        (lambda rows: rows.sample(frac=1.0, random_state=1), "fail"),
        (lambda rows: TABLE, "pass"),
    ):
        assert one_run_audit(fit, TABLE, many, claimed=1.0, guesses=20).verdict == verdict


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"canaries": MANY.head(4)}, "at least 8"),
        ({"canaries": pd.concat([MANY, MANY.head(1)])}, "two canaries are equal"),
        ({"guesses": 3}, "even number"),
        ({"score": lambda out: out[:5]}, "200 canaries and 5 scores"),
    ],
)
def test_wrong_one_run_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        one_run_audit(histogram, TABLE, **{"canaries": MANY, "claimed": 1.0, **options})


def test_numbers_out_of_range_are_refused() -> None:
    for wrong in (
        lambda: runs_needed(-1.0),
        lambda: runs_needed(math.inf),
        lambda: canaries_needed(1.0, delta=-0.1),
        lambda: epsilon_from_scores([1.0] * 8, [0.0] * 8, confidence=1.0),
    ):
        with pytest.raises(InputError):
            wrong()


def test_reports_hold_counts_alone() -> None:
    secret = TABLE.assign(age=861_000_007 + 7919 * np.arange(len(TABLE)))
    many = MANY.assign(age=863_000_003 + 104_729 * np.arange(len(MANY)))
    found = canary_audit(noisy_count, secret, CANARY.assign(age=862_333_001), claimed=1.0, runs=40)
    other = one_run_audit(lambda rows: np.zeros(len(many)), secret, many, claimed=1.0)
    for text in (found.to_json(), repr(found), other.to_json(), repr(other)):
        assert "86" not in "".join(
            part for part in text.split() if len(part) > 8 and "." not in part
        )
    content = json.loads(found.to_json())
    assert (content["kind"], content["verdict"], content["schema_version"]) == (
        "epsilon",
        found.verdict,
        1,
    )
    assert (content["figures"]["ceiling"], content["baseline"]["value"]) == (found.ceiling, 0.5)
    assert list(to_frame([found.result, other.result])["attack"]) == ["epsilon", "epsilon_one_run"]
