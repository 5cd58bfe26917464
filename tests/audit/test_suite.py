"""All audits at fixed sizes: what is run, what is left out and why, and what a stopped audit keeps."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.suite import (
    AUDITS,
    SIZES,
    AuditSelection,
    LeftOut,
    Scope,
    describe_left_out,
    describe_power,
    run_audits,
    select_audits,
)
from cfk_plugin.audit.targets import Answers, Checkpoints, ProtectedOwner, Sample, Target
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/audits.md"


def sample_of(n_people: int) -> Sample:
    """Return people of whom every other one has the desired outcome."""
    X = pd.DataFrame({"age": np.arange(float(n_people)), "debt": np.zeros(n_people)})
    return Sample(X, np.arange(n_people) % 2 == 0)


def no_explainer(*_: Any) -> Any:
    raise AssertionError("nothing is explained here")


SCOPE = Scope(quasi_identifiers=("age",), explainer=no_explainer)


@dataclass(frozen=True)
class Refuser:
    """Gives everybody the undesired outcome, explains it with the query, and counts trainings."""

    name: str = "refuser"
    trained_on: list[int] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> Refuser:
        self.trained_on.append(len(people))
        return self

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X), dtype=bool)

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        return Answers(X, np.ones(len(X), dtype=bool))


def protected(k: int) -> ProtectedOwner:
    return ProtectedOwner(
        name=f"k={k}",
        model=DecisionTreeClassifier(),
        explainer=None,
        quasi_identifiers=("age",),
        rules=PrivacyPolicy(k=k),
    )


def select(n_people: int, *audits: str, owner: Target | None = None, **options: Any) -> Any:
    names = audits or tuple(AUDITS)
    owners = [owner or Refuser()]
    return select_audits(owners, sample_of(n_people), SCOPE, audits=names, **options)


def names_of(selection: AuditSelection) -> list[str]:
    return [each.audit for each in selection.selected]


def reason_of(selection: AuditSelection, audit: str) -> str:
    (reason,) = [each.reason for each in selection.left_out if each.audit == audit]
    return reason


# --- sizes


def test_sizes_grow_in_everything() -> None:
    for smaller, larger in pairwise(SIZES.values()):
        assert smaller.trained_on < larger.trained_on
        assert smaller.shadow_models < larger.shadow_models
        assert smaller.attacked < larger.attacked
        assert set(smaller.queries) < set(larger.queries)
        assert smaller.repetitions < larger.repetitions
        assert smaller.explanations < larger.explanations


def test_the_page_has_the_numbers_of_every_size() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    of_page = {name: cells.split(" | ") for name, cells in rows if name in SIZES}
    assert list(of_page) == list(SIZES)
    for name, size in SIZES.items():
        numbers = []
        for value in asdict(size).values():
            several = value if isinstance(value, tuple) else (value,)
            numbers.append("; ".join(f"{number:,}" for number in several))
        assert of_page[name][: len(numbers)] == numbers


def test_an_audit_runs_with_the_numbers_of_its_size() -> None:
    owner = Refuser()
    selection = select(6_000, "extraction", "membership", owner=owner)
    assert names_of(selection) == ["membership", "extraction"]
    membership_report, extraction_report = [each.report for each in run_audits(selection)]
    small = SIZES["small"]
    assert membership_report.settings["n_train"] == small.trained_on
    assert membership_report.settings["n_shadows"] == small.shadow_models
    assert membership_report.settings["attacked"] == small.attacked
    assert membership_report["membership_cfd"].n == 2 * small.attacked
    assert extraction_report.settings["queries"] == "100"
    assert extraction_report.settings["repeats"] == small.repetitions
    n_trainings = 1 + small.shadow_models + small.repetitions
    assert len(owner.trained_on) == n_trainings
    assert max(owner.trained_on) == small.trained_on


def test_at_most_three_of_ten_people_are_trained_on() -> None:
    owner = Refuser()
    assert [each.audit for each in run_audits(select(300, "membership", owner=owner))]
    assert owner.trained_on[0] == 90


def test_a_seed_draws_other_people() -> None:
    def accuracy(seed: int) -> float:
        (finished,) = run_audits(select(301, "membership", seed=seed))
        return finished.report["membership_cfd"].figures["test_accuracy"]

    assert accuracy(0) == accuracy(0)
    assert accuracy(0) != accuracy(1)


def test_a_table_may_be_sorted_by_outcome() -> None:
    n_people = 20_000
    X = sample_of(n_people).X
    people = Sample(X, np.arange(n_people) < n_people / 2)
    selection = select_audits([Refuser()], people, SCOPE, audits=["extraction"])
    (crowd,) = [each.task.crowd for each in selection.selected]
    assert len(crowd) == 8 * SIZES["small"].trained_on
    assert 0.45 < crowd.y.mean() < 0.55


# --- what is left out


def test_selecting_trains_nothing() -> None:
    owner = Refuser()
    assert select(4_000, owner=owner).selected
    assert owner.trained_on == []


def test_audits_that_cannot_attack_an_owner_are_left_out_with_the_reason() -> None:
    selection = select(4_000)
    assert names_of(selection) == ["attribute_inference", "membership", "extraction"]
    assert reason_of(selection, "linkage") == AUDITS["linkage"].requirement
    with pytest.raises(InputError, match="linkage of refuser: it attacks regions"):
        select(4_000, "linkage")


def test_audits_with_too_few_people_are_left_out_with_the_reason() -> None:
    selection = select(60, "membership", "extraction")
    assert names_of(selection) == ["membership"]
    assert "give at least 80 people" in reason_of(selection, "extraction")
    selection = select(100, "membership", "extraction")
    assert "the attacker has 72" in reason_of(selection, "extraction")
    with pytest.raises(InputError, match="give at least 80 people"):
        select(60, "extraction")


def test_audits_of_fewer_people_than_k_are_left_out() -> None:
    # Of 400 people linkage trains on 3 of 10, 120, and extraction on an eighth, 50.
    selection = select(400, "linkage", "extraction", owner=protected(k=50))
    assert names_of(selection) == ["linkage", "extraction"]
    selection = select(400, "linkage", "extraction", owner=protected(k=51))
    assert names_of(selection) == ["linkage"]
    assert (
        reason_of(selection, "extraction") == "a model is trained on 50 people, fewer than k = 51"
    )


def test_audits_without_both_outcomes_are_left_out() -> None:
    alike = Sample(sample_of(300).X, np.zeros(300, dtype=bool))
    with pytest.raises(InputError, match="all 90 people that a model is trained on have the same"):
        select_audits([Refuser()], alike, SCOPE, audits=["membership"])


def test_one_sentence_is_said_for_each_reason() -> None:
    left_out = [
        LeftOut(owner="raw", audit="linkage", reason="nothing to link"),
        LeftOut(owner="raw", audit="extraction", reason="too few people"),
        LeftOut(owner="exact", audit="extraction", reason="too few people"),
    ]
    assert describe_left_out(left_out) == [
        "linkage of raw: nothing to link",
        "extraction of raw, extraction of exact: too few people",
    ]


# --- what a size shows


def test_what_a_size_shows_at_best_is_said_with_its_numbers() -> None:
    # By hand: 0.5 + 2.8 sqrt(201 / (12 * 100 * 100)), 0.98 / sqrt(50) and
    # 0.98 / sqrt(500).
    told = dict(sentence.split(": ", 1) for sentence in describe_power(select(6_000)))
    assert told == {
        "attribute_inference": "sees an advantage of 14 points or more (50 explanations)",
        "membership": (
            "sees an AUC of 0.61 or more (100 members, 100 others); nothing at a false positive"
            " rate of 0.001"
        ),
        "extraction": "sees a gain of 4.4 points or more (500 people held out)",
    }
    # 1 - 0.05^(1/50)
    (linkage,) = describe_power(select(6_000, "linkage", owner=protected(k=10)))
    assert linkage == "linkage: no success in 50 explanations leaves up to 5.8 % open"


def test_what_a_size_would_use_and_the_table_lacks_is_said() -> None:
    told = dict(sentence.split(": ", 1) for sentence in describe_power(select(400, size="medium")))
    # 3 of 10 are 120 members, half of them with the undesired outcome; half of the other 280 ask,
    # half of them have a reason to; an eighth are 50; the attacker of extraction has six eighths.
    assert told["membership"].startswith("sees an AUC of 0.65 or more (60 members, 60 others); ")
    assert told["membership"].endswith("; too few people for the 300 members of this size")
    assert told["attribute_inference"].endswith("for the 200 explanations of this size")
    assert told["extraction"].endswith("; without 500 queries, as the attacker has 300 people")


# --- arguments


def test_wrong_arguments_are_refused() -> None:
    people = sample_of(400)
    with pytest.raises(InputError, match="size must be one of small, medium, large; got 'huge'"):
        select_audits([Refuser()], people, SCOPE, size="huge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown audit guessing; known: linkage"):
        select_audits([Refuser()], people, SCOPE, audits=["guessing"])
    with pytest.raises(InputError, match="two owners have the same name"):
        select_audits([Refuser(), Refuser()], people, SCOPE)
    with pytest.raises(InputError, match="seed"):
        select_audits([Refuser()], people, SCOPE, seed=-1)
    with pytest.raises(InputError, match="sample"):
        select_audits([Refuser()], people.X, SCOPE)  # type: ignore[arg-type]


def test_a_wrong_number_of_jobs_is_refused_before_anything_is_trained() -> None:
    selection = select(400, "linkage", owner=protected(k=10))  # the one that trains in one process
    with pytest.raises(InputError, match="n_jobs"):
        next(run_audits(selection, n_jobs=0))


# --- results that a stopped audit continues from


def test_a_stopped_audit_keeps_what_it_did_and_takes_no_broken_file_for_a_result(
    tmp_path: Path,
) -> None:
    people = sample_of(4_000)
    kept = Checkpoints(tmp_path)

    def run(owner: Refuser) -> Any:
        progress: list[tuple[int, int]] = []
        report = membership(
            owner,
            people,
            n_train=50,
            n_shadows=3,
            attacked=20,
            kept=kept,
            progress=lambda done, total: progress.append((done, total)),
        )
        return report.results, progress

    seeds = iter(range(100))

    @dataclass(frozen=True)
    class Stopped(Refuser):
        def train(self, people: Sample, seed: int) -> Refuser:
            if next(seeds) == 2:
                raise ArithmeticError
            return self

    with pytest.raises(ArithmeticError):
        run(Stopped())
    _, second = sorted(tmp_path.iterdir())
    second.rename(second.with_suffix(".1234.part"))
    results, progress = run(Stopped())
    assert next(seeds) == 6  # three of four were trained anew
    assert progress[-1] == (4, 4)
    assert run(Stopped())[0] == results
    assert next(seeds) == 7
    for n_jobs in (0, 1.5, True, "2"):
        with pytest.raises(InputError, match="n_jobs"):
            membership(Stopped(), people, n_train=50, n_jobs=n_jobs)  # type: ignore[arg-type]
    assert next(seeds) == 8
