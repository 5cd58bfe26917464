"""Private values as bins or withheld, through the whole pipeline: ten rows, and numbers that can be
checked by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from cfk_adapters.nice import NiceSource
from cfk_plugin import (
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.cli import app
from cfk_plugin.hookspecs import AdaptContext

TRAIN = pd.DataFrame(
    {
        "age": range(20, 30),
        "salary": [5, 15, 25, 35, 45, 55, 65, 75, 85, 95],
        "job": ["a"] * 5 + ["b"] * 5,
    }
)
BINS = {"salary": [0, 20, 40, 60, 100]}
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age"], bins=BINS)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
ME = {"age": 50, "salary": 10, "job": "a"}
FORM = json.loads(
    (Path(__file__).parents[2] / "cfk_plugin/schemas/explanations-1.schema.json").read_text("utf-8")
)


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["salary"] > 50).to_numpy()


def fitted(**settings: Any) -> KAnonymizer:
    policy = PrivacyPolicy(**{"k": 3, "guarantee": "lookup", **settings})
    return KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=True)


def explain(*rows: int, **settings: Any) -> Explanations:
    return fitted(**settings).transform(TRAIN.iloc[list(rows)])


def figures(entry: Any) -> tuple[Any, ...]:
    found = entry.certificate
    return (
        found.pureness,
        found.exact,
        entry.recount.k_private,
        entry.recount.private_matches,
        found.optimal,
        found.gap,
    )


def test_a_value_is_released_exactly_as_its_bin_or_not_at_all_and_measured() -> None:
    exact = explain(5).released[0]
    assert (exact.released, exact.withheld) == ({"salary": 55, "job": "b"}, ())
    assert figures(exact)[:5] == (1.0, True, 1, 1, True)
    first, second = explain(5, 8, private_values="bins").released
    # 40–60 stands for 45 and 55, and 45 is turned down: half of the combinations with the ages 24
    # to 26.
    assert (first.region["age"], first.released) == (
        Interval(24, 26),
        {"salary": Interval(40, 60), "job": "b"},
    )
    assert figures(first) == (0.5, True, 1, 1, False, None)  # the other one has job a
    assert first.recount.k_consistent == 3  # asked at 55
    assert (first.recount.binned, first.recount.withheld) == (("salary",), ())
    # 60–100 stands for 65, 75, 85 and 95.
    assert second.released["salary"] == Interval(60, 100)
    assert figures(second)[:4] == (1, True, 3, 4)
    # of NCP alone
    assert explain(5, private_values="bins", objective="ncp").released[0].certificate.optimal
    rare = explain(8, rare_values="withhold").released[0]
    assert (rare.released, rare.withheld) == ({"job": "b"}, ("salary",))
    # Half of the ten salaries are above 50, whatever the age; every b fits.
    assert figures(rare)[:4] == (0.5, True, 3, 5)
    assert rare.cells() == {"age": "27–29", "salary": "withheld", "job": "b"}
    assert "salary" not in rare.parts()


def test_a_floor_is_compared_with_what_is_measured() -> None:
    entry = explain(5, private_values="bins", min_pureness=0.6)[0]
    assert entry.to_dict()["reason"] == "pureness_below_floor"


def test_sentences() -> None:
    entry = explain(8, private_values="bins").released[0]
    assert entry.text(ME) == (
        "The model would predict “yes” if two things were different: job “b” instead of “a”; and"
        " salary 60 to 100 instead of 10. This also needs something that nobody can choose: an age"
        " of 27 to 29 years instead of 50."
    )
    entry = explain(8, private_values="bins", alpha=0.8).released[0]
    assert entry.withheld == ("job", "salary")
    assert entry.text(ME) == (
        "We cannot name a change open to you. The model would predict “yes” only if something were"
        " different that nobody can choose: an age of 27 to 29 years instead of 50."
        " To protect other people, this does not say anything about job and salary."
        " This is true of 50% of the combinations of these values."
    )
    assert entry.text({**ME, "age": 28}) == (
        "The model would predict “yes” without any change."
        " To protect other people, this does not say anything about job and salary."
        " This is true of 50% of the combinations of these values."
    )


def verified(content: dict[str, Any], folder: Path, bins: Any = BINS) -> Result:
    """Verify a file as the command line does."""
    TRAIN.to_csv(folder / "train.csv", index=False)
    (folder / "schema.json").write_text(
        json.dumps({"quasi_identifiers": ["age"], "bins": bins}), encoding="utf-8"
    )
    (folder / "released.json").write_text(json.dumps(content), encoding="utf-8")
    paths = [str(folder / name) for name in ("released.json", "train.csv", "schema.json")]
    return CliRunner().invoke(app, ["verify", paths[0], "--train", paths[1], "--schema", paths[2]])


@pytest.mark.parametrize(
    "settings", [{"private_values": "bins"}, {"rare_values": "withhold"}, {"alpha": 0.5}]
)
def test_files_are_valid_and_pass(settings: dict[str, Any], tmp_path: Path) -> None:
    result = explain(5, 8, **settings)
    content = json.loads(result.to_json())
    Draft202012Validator(FORM).validate(content)
    assert verified(content, tmp_path).exit_code == 0
    assert result.to_frame()["status"].tolist() == ["released"] * 2


def test_forms_in_files_and_tables() -> None:
    result = explain(5, private_values="bins", rare_values="withhold", alpha=0.5)
    assert json.loads(result.to_json())["explanations"][0]["released"] == {"job": "b"}
    binned = explain(8, private_values="bins")
    entry = json.loads(binned.to_json())["explanations"][0]
    assert (entry["released"], entry["withheld"]) == (
        {"salary": {"low": 60, "high": 100}, "job": "b"},
        [],
    )
    assert binned.to_frame().loc[0, ["age", "salary", "job"]].tolist() == ["27–29", "60–100", "b"]
    assert result.to_frame().loc[0, "salary"] == "withheld"
    assert result.audit_frame().loc[0, "withheld"] == ("salary",)


BINNED, WITHHELD = {"private_values": "bins"}, {"rare_values": "withhold"}


@pytest.mark.parametrize(
    ("settings", "change", "problem"),
    [
        (BINNED, {"salary": 85}, "releases salary otherwise than as a bin"),
        (BINNED, {"salary": {"low": 84, "high": 86}}, "releases salary otherwise than as a bin"),
        (BINNED, {"salary": {"low": 60, "high": 100}, "age": 28}, "releases age exactly"),
        (BINNED, {"salary": None}, ""),  # a missing value, which the table does not have
        (WITHHELD, {"salary": 85}, "releases salary, said to be withheld"),
    ],
)
def test_verify_finds_values_that_were_not_to_leave(
    settings: dict[str, Any], change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    content = json.loads(explain(8, **settings).to_json())
    content["explanations"][0]["released"] |= change
    result = verified(content, tmp_path)
    assert (result.exit_code, problem in result.output) == (1, True)
    wrong = verified(content, tmp_path, bins={"age": [2, 1]})
    assert (wrong.exit_code, "age" in wrong.output) == (2, True)


# --- adapters -------------------------------------------------------------------------------------

# salary in a bin or withheld, job withheld
SOME_FORMS = {"private_values": "bins", "alpha": 0.8}


def both() -> Explanations:
    result = explain(5, 8, **SOME_FORMS)
    assert [(e.released, e.withheld) for e in result.released] == [
        ({"salary": Interval(40, 60), "job": "b"}, ()),
        ({}, ("job", "salary")),
    ]
    return result


def test_nice_gets_an_array_back() -> None:
    source = NiceSource(SimpleNamespace(), AdaptContext(("age", "salary", "job")))
    assert source.restore(None, both()).tolist() == [
        ["24–26", "40–60", "b"],
        ["27–29", "withheld", "withheld"],
    ]


def test_dice_gets_its_result_back() -> None:
    dice_ml = pytest.importorskip("dice_ml")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.tree import DecisionTreeClassifier

    numbers = FunctionTransformer(lambda rows: rows[["salary"]].astype(float))
    tree = make_pipeline(numbers, DecisionTreeClassifier(max_depth=1)).fit(
        TRAIN, model(TRAIN).astype(int)
    )
    data = dice_ml.Data(
        dataframe=TRAIN.assign(outcome=model(TRAIN).astype(int)),
        continuous_features=["age", "salary"],
        outcome_name="outcome",
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=tree, backend="sklearn"), method="kdtree")
    policy = PrivacyPolicy(k=3, guarantee="lookup", private_values="bins", alpha=0.8)
    private = protect(explainer, model=tree, population=POPULATION, policy=policy)
    native = private.generate_counterfactuals(
        TRAIN.head(1), total_CFs=2, posthoc_sparsity_param=None
    )
    shown = native.cf_examples_list[0].final_cfs_df
    assert set(shown["salary"]) <= {"0–20", "20–40", "40–60", "60–100", "withheld"}
    json.loads(native.to_json())


# --- failing closed -------------------------------------------------------------------------------


def test_a_failure_or_a_decision_that_is_not_carried_out_withholds_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anonymizer = fitted(private_values="bins")

    def fail(*_: object) -> None:
        raise KeyError("85")

    for where in ("metrics.uniqueness.PrivateRelease.decide", "metrics.uniqueness.bin_part"):
        with monkeypatch.context() as patch:
            patch.setattr(f"cfk_plugin.{where}", fail)
            result = anonymizer.transform(TRAIN.iloc[[8]])
            assert [entry.to_dict()["reason"] for entry in result] == ["protector_failed"]
            assert "85" not in result.to_json() + repr(result)
    exact = {"salary": 85, "job": "b"}
    monkeypatch.setattr("cfk_plugin.release.verdicts.released_values", lambda *_: exact)
    assert [e.status for e in anonymizer.transform(TRAIN.iloc[[8]])] == ["withheld"]
