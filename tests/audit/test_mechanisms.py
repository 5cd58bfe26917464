"""Audits of mechanisms whose epsilon is known, and of broken ones."""

from __future__ import annotations

import functools
import json
import math
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.audit import EpsilonAudit, canary_audit, one_run_audit, to_frame
from cfk_plugin.audit.epsilon import neighbours, seconds_needed
from cfk_plugin.audit.epsilon_bounds import ceiling
from cfk_plugin.errors import InputError

LEVELS = ["w", "x", "y", "z"]
SURE = 1 - 1e-9
"""Confidence of audits of noise that cannot be seeded: they must not fail by chance."""


def table(n: int = 200, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = {f"a{j}": random.choice(LEVELS[:3], n, p=[0.5, 0.3, 0.2]) for j in range(3)}
    return pd.DataFrame({**rows, "age": random.integers(18, 80, n)})


TABLE = table()
CANARY = pd.DataFrame({"a0": ["z"], "a1": ["z"], "a2": ["z"], "age": [99]})
MANY = pd.DataFrame({"a0": "z", "a1": "z", "a2": "z", "age": 1000 + np.arange(200)})


def noisy_count(rows: pd.DataFrame, random_state: int, scale: float = 1.0) -> float:
    return float((rows["a0"] == "z").sum() + np.random.default_rng(random_state).laplace(0, scale))


def drawn_rows(rows: pd.DataFrame, random_state: int, scale: float = 3.0, *, inferred: bool = False) -> pd.DataFrame:
    """Draw rows from noisy counts of each column, which is (3 / scale)-DP, unless levels are read from the data."""
    random = np.random.default_rng(random_state)
    drawn = {}
    for name in ("a0", "a1", "a2"):
        levels = sorted(set(rows[name])) if inferred else LEVELS
        counts = [(rows[name] == level).sum() + random.laplace(0, scale) for level in levels]
        weights = np.clip(counts, 1e-9, None)
        drawn[name] = random.choice(levels, 300, p=weights / weights.sum())
    return pd.DataFrame(drawn)


def audited(fit: Any, **options: Any) -> EpsilonAudit:
    return canary_audit(fit, TABLE, CANARY, **{"claimed": 1.0, "runs": 400, **options})


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_exact_noise_is_never_bounded_above_its_epsilon(epsilon: float) -> None:
    pytest.importorskip("opendp")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    noise = dp.m.make_laplace(*space, scale=1 / epsilon)
    assert noise.map(1) == pytest.approx(epsilon)
    found = audited(lambda rows: noise(int((rows["a0"] == "z").sum())), claimed=epsilon, runs=1000, confidence=SURE)
    assert found.epsilon_low <= epsilon
    assert (found.verdict, found.constant) == ("pass", False)
    wrong = dp.m.make_laplace(*space, scale=1 / (8 * epsilon))
    found = audited(lambda rows: wrong(int((rows["a0"] == "z").sum())), claimed=epsilon, runs=600)
    assert found.epsilon_low > epsilon
    assert found.verdict == "fail"


def test_half_of_the_noise_is_found() -> None:
    right, wrong = audited(noisy_count, runs=1000), audited(functools.partial(noisy_count, scale=0.25), runs=1000)
    assert 0.5 < right.epsilon_low <= 1
    assert wrong.epsilon_low > 2
    assert (right.verdict, wrong.verdict) == ("pass", "fail")
    assert right.tpr is not None
    assert right.fpr is not None
    assert right.tpr.n == right.fpr.n == 500
    assert right.tpr.value > right.fpr.value


def test_no_noise_reaches_the_ceiling_and_says_so() -> None:
    found = audited(lambda rows: rows["age"].mean(), runs=100)
    assert found.epsilon_low == found.ceiling == ceiling(100)
    assert found.verdict == "fail"
    assert "nothing random" in str(found.warning)


def test_what_ignores_the_table_is_bounded_by_0() -> None:
    found = audited(lambda rows: 7.0, runs=40)
    assert (found.epsilon_low, found.verdict, found.constant) == (0.0, "pass", False)
    assert "no better than the baseline" in str(found.warning)


def test_rows_are_compared_in_columns_and_pairs() -> None:
    sound, broken = (audited(functools.partial(drawn_rows, scale=scale), runs=60, claimed=1.0) for scale in (3.0, 0.05))
    assert sound.epsilon_low <= 1
    assert sound.verdict == "pass"
    assert broken.verdict == "fail"


def test_a_domain_that_was_read_from_the_data_is_found() -> None:
    found = audited(functools.partial(drawn_rows, inferred=True, scale=1e9), runs=40)
    assert found.verdict == "fail"
    declared = audited(functools.partial(drawn_rows, scale=1e9), runs=40)
    assert declared.verdict == "pass"


def test_a_length_that_depends_on_the_data_is_found() -> None:
    found = audited(lambda rows: np.zeros(rows["a0"].nunique()), runs=60)
    assert found.verdict == "fail"
    found = audited(lambda rows: np.array([np.nan if "z" in set(rows["a0"]) else 0.0, 1.0]), runs=60)
    assert found.verdict == "fail"


def test_vectors_are_read_by_a_discriminant() -> None:
    def counts(rows: pd.DataFrame, random_state: int) -> np.ndarray:
        random = np.random.default_rng(random_state)
        return np.array([(rows[name] == "z").sum() for name in ("a0", "a1", "a2")]) + random.laplace(0, 1, (5, 3))

    first = audited(lambda rows, random_state: counts(rows, random_state)[0, 0], runs=400, claimed=15.0)
    found = audited(counts, runs=400, claimed=15.0)
    assert first.epsilon_low < found.epsilon_low
    assert found.epsilon_low > 1.5


def test_a_score_is_asked_instead() -> None:
    found = audited(lambda rows: {"rows": rows}, score=lambda out: len(out["rows"]), runs=40)
    assert found.epsilon_low == found.ceiling


def test_an_audit_that_cannot_fail_says_what_it_needs() -> None:
    found = audited(lambda rows: rows["age"].mean(), runs=100, claimed=3.0)
    assert (found.verdict, found.needed) == ("review", 152)
    assert "cannot fail: it can show at most 2.57" in found.advice
    assert "at least 152 runs in each world" in found.advice


def test_replacing_one_is_a_relation_of_its_own() -> None:
    worlds = neighbours(TABLE, CANARY, relation="replace-one", seed=4)
    assert len(worlds.inside) == len(worlds.outside) == len(TABLE)
    gone = worlds.outside.merge(worlds.inside, how="left", indicator=True)
    assert (gone["_merge"] == "left_only").sum() <= 1
    found = audited(noisy_count, relation="replace-one", claimed=2.0, runs=100)
    assert found.relation == "replace-one"
    assert "in the place of somebody else" in found.scenario


def test_a_person_may_have_several_rows() -> None:
    rows = TABLE.assign(person=np.arange(len(TABLE)) // 4)
    schema = Schema.from_frame(rows, quasi_identifiers=["age"], subject="person")
    two = pd.concat([CANARY, CANARY.assign(age=98)]).assign(person=-1)
    worlds = neighbours(rows, two, schema, "replace-one")
    assert len(worlds.inside) == len(rows) - 4 + 2
    with pytest.raises(InputError, match="names several"):
        neighbours(rows, two.assign(person=[-1, -2]), schema)
    with pytest.raises(InputError, match="a subject of the table"):
        neighbours(rows, two.assign(person=3), schema)
    plain = Schema.from_frame(TABLE, quasi_identifiers=["age"])
    with pytest.raises(InputError, match="names no subject"):
        neighbours(TABLE, two.drop(columns="person"), plain)


@pytest.mark.parametrize(
    ("canary", "message"),
    [
        (CANARY.drop(columns="age"), "columns of the table, each once; check age"),
        (TABLE.head(1), "the canary is a row of the table"),
        (CANARY.head(0), "at least one row"),
    ],
)
def test_a_canary_that_does_not_fit_is_refused(canary: pd.DataFrame, message: str) -> None:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age"], ordinal={"a0": LEVELS}, bounds={"age": (0, 120)})
    with pytest.raises(InputError, match=message):
        neighbours(TABLE, canary, schema)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 19}, "at least 20"),
        ({"claimed": -1.0}, "epsilon must be"),
        ({"claimed": math.inf}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"relation": "swap"}, "relation must be one of"),
        ({"backend": "gpu"}, "backend must be one of"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audited(noisy_count, **options)


def test_the_function_cannot_spoil_the_table_and_a_seed_repeats_the_audit() -> None:
    before = TABLE.copy()

    def rude(rows: pd.DataFrame, random_state: int) -> float:
        rows["a0"] = "z"
        return noisy_count(rows, random_state)

    one, two = (audited(rude, runs=40, seed=7) for _ in range(2))
    assert one == two
    pd.testing.assert_frame_equal(TABLE, before)


@pytest.mark.parametrize("backend", ["auto", "threads"])
def test_runs_at_the_same_time_give_the_same_result(backend: Any) -> None:
    told: list[tuple[int, int]] = []
    alone = audited(noisy_count, runs=40)
    found = audited(noisy_count, runs=40, n_jobs=2, backend=backend, progress=lambda *at: told.append(at))
    assert found == alone
    assert told == [(at + 1, 80) for at in range(80)]


def test_a_generator_that_the_function_carries_is_not_copied() -> None:
    """In processes every worker would draw the same noise, and equal numbers look like a leak."""
    random, seen = np.random.default_rng(0), []

    def carried(rows: pd.DataFrame) -> float:
        seen.append(random.random())
        return seen[-1]

    audited(carried, runs=40, n_jobs=2)
    assert len(set(seen)) == 80
    lock = threading.Lock()  # cannot be pickled
    assert audited(lambda rows: float(lock.locked()), runs=20, n_jobs=2, backend="processes").epsilon_low == 0


def test_the_cost_is_told_beforehand() -> None:
    calls: list[int] = []
    seconds = seconds_needed(lambda rows: calls.append(len(rows)), neighbours(TABLE, CANARY), 1000)
    assert calls == [len(TABLE) + 1, len(TABLE)]
    assert seconds > 0


@pytest.mark.parametrize("where", ["fit", "score"])
def test_errors_quote_no_row(where: str) -> None:
    def broken(rows: Any) -> float:
        raise ValueError(f"row {TABLE.to_dict()}")

    options = {"fit": broken} if where == "fit" else {"fit": noisy_count, "score": broken}
    with pytest.raises(InputError, match="ValueError") as caught:
        audited(options.pop("fit"), runs=20, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(InputError, match="say with score="):
        audited(lambda rows: object(), runs=20)


def histogram(rows: pd.DataFrame, random_state: int, scale: float = 1.0) -> np.ndarray:
    counts = rows["age"].value_counts().reindex(MANY["age"], fill_value=0).to_numpy()
    return counts + np.random.default_rng(random_state).laplace(0, scale, len(MANY))


def test_one_run_finds_gross_violations_alone() -> None:
    sound = one_run_audit(histogram, TABLE, MANY, claimed=1.0)
    assert sound.epsilon_low <= 1
    assert (sound.verdict, sound.runs, sound.main.n) == ("pass", 1, 100)
    broken = one_run_audit(functools.partial(histogram, scale=0.01), TABLE, MANY, claimed=1.0)
    assert broken.epsilon_low == broken.ceiling > 3
    assert (broken.verdict, broken.figures["right"]) == ("fail", 100)
    assert broken.figures["p_value"] < 1e-10
    assert one_run_audit(histogram, TABLE, MANY, claimed=5.0).verdict == "review"


def test_one_run_reads_rows() -> None:
    random = np.random.default_rng(2)
    many = pd.DataFrame({f"a{j}": random.choice(["p", "q", "r", "s", "t", "u"], 60) for j in range(3)})
    many = many.assign(age=random.permutation(60) + 200).drop_duplicates()
    leaking = one_run_audit(lambda rows: rows.sample(frac=1.0, random_state=1), TABLE, many, claimed=1.0, guesses=20)
    assert leaking.verdict == "fail"
    silent = one_run_audit(lambda rows: TABLE, TABLE, many, claimed=1.0, guesses=20)
    assert silent.verdict == "pass"


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
        one_run_audit(histogram, TABLE, options.pop("canaries", MANY), claimed=1.0, **options)


def test_reports_hold_counts_alone() -> None:
    secret = TABLE.assign(age=861_000_007 + 7919 * np.arange(len(TABLE)))
    canary = CANARY.assign(age=862_333_001)
    found = canary_audit(noisy_count, secret, canary, claimed=1.0, runs=40)
    many = MANY.assign(age=863_000_003 + 104_729 * np.arange(len(MANY)))
    other = one_run_audit(lambda rows: np.zeros(len(many)), secret, many, claimed=1.0)
    worlds = neighbours(secret, canary)
    for text in (found.to_json(), repr(found), other.to_json(), repr(other), repr(worlds)):
        assert "86" not in "".join(part for part in text.split() if len(part) > 8 and "." not in part)
    content = json.loads(found.to_json())
    assert (content["kind"], content["verdict"], content["schema_version"]) == ("epsilon", found.verdict, 1)
    assert content["figures"]["ceiling"] == found.ceiling
    assert content["baseline"]["value"] == 0.5
    assert list(to_frame([found.result, other.result])["attack"]) == ["epsilon", "epsilon_one_run"]
