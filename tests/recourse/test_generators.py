"""Explainers by name: what is installed, what is missing, and what each of them answers."""

from __future__ import annotations

import pickle
import tomllib
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import AdapterError, InputError, MissingDependencyError, PluginError
from cfk_plugin.plugins import GROUP, generator, generators
from cfk_plugin.testing import check_adapter
from loan_table import CANARY, granted, loans, model_of_loans

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
DECLARED = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
TRAIN = loans(100).round(1)
MODEL = model_of_loans(TRAIN)
OUTCOMES = granted(TRAIN)
QUERIES = loans(40, seed=1).round(1)[lambda rows: MODEL.predict(rows) == "no"].head(2)
SLOW = ["dice-genetic", "dice-random"]  # the third of DiCE is fast
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in DECLARED]
NEEDS = {"nice": "nice", "dice": "dice_ml"}


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Show the entry points that this checkout declares, whichever one is installed."""
    points = [EntryPoint(name, value, GROUP) for name, value in DECLARED.items()]
    monkeypatch.setattr(
        "cfk_plugin.plugins.entry_points",
        lambda group: points if group == GROUP else entry_points(group=group),
    )
    return points


def made(name: str, desired: Any = "yes") -> Any:
    library = NEEDS.get(name.split("-", maxsplit=1)[0])
    if library is not None and find_spec(library) is None:
        pytest.skip(f"needs {library}")
    return generator(name)(TRAIN, OUTCOMES, MODEL, desired, 3)


@pytest.mark.parametrize("name", NAMES)
def test_generator_keeps_the_contract(name: str) -> None:
    """It answers with the outcome or not at all, changes nothing, and can be protected."""
    explainer = made(name)
    before = QUERIES.copy(deep=True)
    train = TRAIN.copy(deep=True)
    answers = explainer.explain(QUERIES.assign(extra=1)[[*QUERIES.columns[::-1], "extra"]])
    assert answers.index.equals(QUERIES.index)
    assert list(answers.columns) == list(TRAIN.columns)
    has_answer = answers.notna().any(axis=1)
    assert has_answer.any()
    assert (MODEL.predict(answers[has_answer].astype(TRAIN.dtypes)) == "yes").all()
    pd.testing.assert_frame_equal(QUERIES, before)
    pd.testing.assert_frame_equal(TRAIN, train)
    with pytest.raises(InputError, match="refuses to be pickled"):
        pickle.dumps(explainer)
    with pytest.raises(AdapterError, match="queries have no column age"):
        explainer.explain(QUERIES.drop(columns="age"))
    check_adapter(explainer, QUERIES, list(TRAIN.columns), deterministic=True)
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "region"])
    private = protect(
        explainer,
        model=MODEL,
        population=Population.from_frame(TRAIN, schema),
        policy=PrivacyPolicy(guarantee="lookup", k=5),
        desired="yes",
    )
    assert len(private.explain(QUERIES)) == len(QUERIES)


@pytest.mark.parametrize("name", ["nice", "dice-random"])
def test_library_needs_a_known_outcome(name: str) -> None:
    """Libraries explain towards one class of the model."""
    with pytest.raises(AdapterError, match="give `desired` as one of the model's classes"):
        made(name, desired="perhaps")


def test_dice_answers_known_categories_only() -> None:
    """A category that no training row has gets no answer."""
    strange = QUERIES.copy()
    strange.loc[strange.index[0], "job"] = "pilot"
    answers = made("dice-kdtree", desired="opposite").explain(strange)
    assert answers.notna().any(axis=1).tolist() == [False, True]


def test_generators_say_whether_rows_answer() -> None:
    """Answers that are training rows are treated as native."""
    said = {name: made(name).instance_based for name in DECLARED}
    assert {name for name, is_row in said.items() if is_row} == {
        "dice-genetic", "dice-kdtree", "face", "nearest", "nice",
    } & set(DECLARED)  # fmt: skip


def test_unknown_name_lists_known_ones() -> None:
    """Names are those of installed generators."""
    with pytest.raises(
        InputError, match=r"no generator 'revised'; installed are .*growing-spheres, nearest"
    ):
        generator("revised")


def test_package_of_generators_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no distribution brings one, the error says which to install."""
    monkeypatch.setattr("cfk_plugin.plugins.entry_points", lambda group: [])
    assert generators() == ()
    with pytest.raises(InputError, match="install the package cfk-plugin"):
        generator("nearest")


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it, and the list leaves it out."""
    monkeypatch.setattr("cfk_plugin.plugins.find_spec", lambda name: None)
    for name, advice in {
        "nice": "pip install --no-deps NICEx",
        "dice-random": r"cfk-plugin\[dice\]",
    }.items():
        with pytest.raises(MissingDependencyError, match=f"generator {name} needs .*{advice}"):
            generator(name)
    assert not {"nice", "dice-random", "dice-kdtree", "dice-genetic"} & set(generators())
    assert "nearest" in generators()


def test_broken_generator_hides_no_other(declared: list[EntryPoint]) -> None:
    """It is left out of the list, and an error if it is asked for."""
    broken = {"broken": "no_such_module:make", "no": "cfk_plugin.plugins:GROUP"}
    declared += [EntryPoint(name, value, GROUP) for name, value in broken.items()]
    assert "broken" not in generators()
    assert "nearest" in generators()
    with pytest.raises(
        PluginError,
        match=r"broken \(no_such_module:make\) cannot be loaded \(ModuleNotFoundError\)",
    ):
        generator("broken")
    with pytest.raises(PluginError, match="cannot be loaded"):
        generator("no")


def test_generators_have_distinct_names(declared: list[EntryPoint]) -> None:
    """Two distributions may not bring the same one."""
    declared.append(EntryPoint("nearest", "another:make", GROUP))
    with pytest.raises(PluginError, match="generator named nearest"):
        generators()


def test_nice_keeps_missing_categories() -> None:
    """The model is asked about them as the training rows have them."""
    made("nice")
    missing = TRAIN[TRAIN["job"].isna() & (MODEL.predict(TRAIN) == "no")].head(4)
    for optimization in ("sparsity", "proximity"):
        nice = generator("nice")(TRAIN, OUTCOMES, MODEL, "yes", optimization=optimization).nice
        found = nice.explain(missing)
        assert (MODEL.predict(nice.decode(found)) == "yes").all()
        alone = [nice.decode(row[None]) for row in nice.encode(missing)]
        said = np.concatenate([*map(MODEL.predict_proba, alone)])
        np.testing.assert_allclose(said, MODEL.predict_proba(missing), rtol=1e-9)


def test_error_of_nice_is_not_quoted() -> None:
    """It may contain rows."""
    if find_spec("nice") is None:
        pytest.skip("needs NICEx, which is installed apart")

    class Quoting:
        classes_ = np.array(["no", "yes"])

        def predict_proba(self, rows: pd.DataFrame) -> None:
            raise ValueError(rows.to_dict())

    with pytest.raises(AdapterError, match="raised ValueError") as caught:
        generator("nice")(TRAIN, OUTCOMES, Quoting(), "yes", 0)
    assert CANARY not in str(caught.value)
