"""The attacks on the paper's toy example, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest

import toy
from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.audit import Setting, downcoding, homogeneity, inversion, linkage, model_filter, steering, uniqueness
from cfk_plugin.hookspecs import Proposal, Protector, Task


class PaperRegion:
    """Proposes the region of the paper's Figure 2 for Fiona and Gina, and Antwerp or Brussels for everybody else."""

    name = "figure-2"

    def protect(self, task: Task) -> Sequence[Proposal]:
        return [Proposal(self.region(task, i)) for i in range(len(task))]

    def region(self, task: Task, i: int) -> Region:
        age, _, city = task.numbers[i][0], *task.codes[i][1:]
        if age in {24, 27}:
            return toy.REGION
        town = "Antwerp" if city == 0 else "Brussels"
        return Region({"Age": Interval(20, 70), "Gender": frozenset({"F", "M"}), "City": frozenset({town})})


def setting(method: Protector | str, **options: object) -> Setting:
    policy = PrivacyPolicy(k=2, guarantee="nominal")
    anonymizer = KAnonymizer(policy=policy, method=method, reference=options.pop("reference", None))  # type: ignore[arg-type]
    return Setting(anonymizer.fit(toy.population(), toy.model, toy.DESIRED), toy.FIONA, **options)  # type: ignore[arg-type]


def test_the_raw_explanation_is_fiona_and_the_protected_one_is_one_of_three() -> None:
    found = linkage(setting(PaperRegion()))
    assert found.figures["raw_success"] == 1.0
    assert found.figures["raw_singled_out"] == 1.0
    assert found.main.value == pytest.approx(1 / 3)
    assert found.figures["singled_out"] == 0.0
    assert found.baseline.value == pytest.approx(1 / 10)
    assert found.figures["k_min"] == 3
    assert found.figures["values_right"] == pytest.approx(2 / 3)  # Fiona and Ingrid both have 60 and are single
    assert found.control is None


def test_the_journalist_looks_in_a_larger_register() -> None:
    register = pd.concat([toy.TABLE, toy.TABLE[toy.TABLE["Name"].isin(["Fiona", "Gina"])]], ignore_index=True)
    schema = Schema.from_frame(register, quasi_identifiers=toy.QUASI_IDENTIFIERS)
    found = linkage(setting(PaperRegion(), reference=Population.from_frame(register, schema)))
    assert found.figures["raw_journalist_success"] == pytest.approx(1 / 2)
    assert found.figures["raw_journalist_singled_out"] == 0.0
    assert found.figures["journalist_success"] == pytest.approx(1 / 5)


def test_the_model_leaves_fiona_alone() -> None:
    found = model_filter(setting(PaperRegion()))
    assert found.figures["k_consistent_min"] == 1
    assert found.figures["k_consistent_one"] == 1.0
    assert found.main.value == 1.0
    assert found.baseline.value == pytest.approx(1 / 3)
    assert found.figures["struck_out"] == pytest.approx(2 / 3)


def test_the_algorithm_leaves_fiona_and_gina() -> None:
    one = setting(PaperRegion())
    for rerun in ("own", "released"):
        found = inversion(one, rerun)  # type: ignore[arg-type]
        assert found.figures["k_effective_min"] == 2
        assert found.main.value == pytest.approx(1 / 2)
    both = model_filter(one).figures
    assert (both["k_both_min"], both["both_success"]) == (1, 1.0)


def test_everybody_is_mapped_when_asked() -> None:
    found = inversion(setting(PaperRegion()), everybody=True).figures
    # Fiona and Gina share a region; three others in Antwerp do, and five in Brussels.
    assert found["everyone_k_effective_min"] == 2
    assert found["everyone_k_effective_median"] == pytest.approx(4)
    assert found["everyone_success"] == pytest.approx((2 / 2 + 3 / 3 + 5 / 5) / 10)
    assert found["everyone_mapped"] == 1.0
    # Of those whose prediction is Accept: Fiona and Gina; Derek; Edward and Jade.
    assert found["desired_k_effective_min"] == 1
    assert found["desired_k_effective_one"] == pytest.approx(1 / 5)


def test_private_values_are_shared_by_two() -> None:
    found = uniqueness(setting(PaperRegion()))
    assert found.figures["private_matches_min"] == 2
    assert found.figures["k_private_min"] == 2
    assert found.main.value == pytest.approx(1 / 2)


def test_homogeneity_by_hand() -> None:
    found = homogeneity(setting(PaperRegion()), share=0.6, lift=1.5).figures
    assert found["share/Salary"] == pytest.approx(2 / 3)  # 60, 60 and 80; five per cent of the range are 3.5
    assert found["lift/Salary"] == pytest.approx((2 / 3) / (3 / 10))
    assert found["share/Relationship status"] == pytest.approx(2 / 3)
    assert found["lift/Relationship status"] == pytest.approx((2 / 3) / (4 / 10))
    assert found["flagged"] == 1.0


def test_both_ends_of_the_ages_are_somebody() -> None:
    found = downcoding(setting(PaperRegion()))
    assert found.figures["forced_min"] == 2  # Fiona, 24, and Gina, 27; Ingrid is in between
    assert found.main.value == pytest.approx(1 / 2)
    assert found.figures["right_forced"] == 1.0
    assert found.figures["border_lift"] == pytest.approx(1 / (2 / 3))
    assert found.figures["k_effective_success"] == pytest.approx(1 / 2)
    assert found.figures["beats_k_effective"] == 0.0


def test_steering_asks_as_each_of_the_three() -> None:
    asked: list[pd.DataFrame] = []
    one = setting(PaperRegion())

    def ask(queries: pd.DataFrame) -> object:
        asked.append(queries)
        return one.anonymizer.transform(pd.concat([toy.FIONA] * len(queries), ignore_index=True))

    found = steering(one, ask)  # type: ignore[arg-type]
    assert len(asked[0]) == found.figures["queries"] == 3
    assert set(asked[0]["Age"]) == {24, 26, 27}
    assert (toy.model(asked[0]) == "Reject").all()
    # Only Fiona's query needed spoiling: the others are undesired with 60 and Single as it is.
    assert (asked[0].loc[asked[0]["Age"] != 24, "Salary"] == 60).all()
    assert found.figures["k_steered_min"] == 3  # everybody got the same answer back
    assert found.main.value == pytest.approx(1 / 3)


def test_steering_strikes_out_whose_answer_differs() -> None:
    one = setting(PaperRegion())

    def ask(queries: pd.DataFrame) -> object:
        gina = toy.TABLE.loc[toy.TABLE["Name"] == "Gina", toy.FEATURES]
        rows = [toy.FIONA if age == 24 else gina for age in queries["Age"]]
        return one.anonymizer.transform(pd.concat(rows, ignore_index=True))

    found = steering(one, ask)  # type: ignore[arg-type]
    assert found.main.value == 1.0
    assert (found.figures["k_steered_one"], found.figures["right_survives"]) == (1.0, 1.0)


def test_people_outside_of_the_table_are_the_control() -> None:
    outside = pd.DataFrame(
        [(25, "F", "Antwerp", 60, "Single"), (26, "F", "Antwerp", 90, "Single"), (80, "M", "Ghent", 60, "Single")],
        columns=toy.FEATURES,
    )
    one = setting(PaperRegion(), holdout=outside)
    assert linkage(one).control.value == pytest.approx(1 / 2)  # type: ignore[union-attr]
    assert model_filter(one).control.value == 1.0  # type: ignore[union-attr] # only the first is consistent
    assert uniqueness(one).control.value == 1.0  # type: ignore[union-attr] # two of them have 60 and are single
    assert inversion(one, "released").control.value == 0.0  # type: ignore[union-attr] # 25 and 26 go elsewhere
    assert homogeneity(one).control.value == pytest.approx((1 / 2 + 1) / 2)  # type: ignore[union-attr]
    assert downcoding(one).control.value == pytest.approx(1 / 2)  # type: ignore[union-attr]
