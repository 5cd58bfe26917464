"""Explainers by name: what is installed, what is missing, and what each of them answers."""

from __future__ import annotations

import inspect
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
from cfk_recourse import generators as factories
from loan_table import CANARY, granted, loans, model_of_loans

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
DECLARED = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
TRAIN = loans(160).round(1)
MODEL = model_of_loans(TRAIN)
OUTCOMES = granted(TRAIN)
QUERIES = loans(40, seed=1).round(1)[lambda rows: MODEL.predict(rows) == "no"].head(2)
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


def names(slow: str) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith(slow) else [])
        for name in DECLARED
    ]


def made(name: str, desired: Any = "yes") -> Any:
    library = NEEDS.get(name.split("-", maxsplit=1)[0])
    if library is not None and find_spec(library) is None:
        pytest.skip(f"needs {library}")
    return generator(name)(TRAIN, OUTCOMES, MODEL, desired, 3)


def test_every_generator_has_a_name_and_no_other_has(declared: list[EntryPoint]) -> None:
    made_here = {
        name
        for name, value in vars(factories).items()
        if inspect.isfunction(value) and name[0] != "_"
    }
    assert made_here == {name.replace("-", "_") for name in DECLARED}
    usable = {name for name in DECLARED if find_spec(NEEDS.get(name.split("-")[0], "numpy"))}
    assert generators() == tuple(sorted(usable))


@pytest.mark.parametrize("name", names(slow="dice-genetic"))
def test_each_answers_every_query_or_says_that_it_found_none(name: str) -> None:
    explainer = made(name)
    before, train = QUERIES.copy(deep=True), TRAIN.copy(deep=True)
    answers = explainer.explain(QUERIES.assign(extra=1)[[*QUERIES.columns[::-1], "extra"]])
    assert answers.index.equals(QUERIES.index)
    assert list(answers.columns) == list(TRAIN.columns)
    found = answers.notna().any(axis=1)
    assert found.any()
    assert (MODEL.predict(answers[found].astype(TRAIN.dtypes)) == "yes").all()
    pd.testing.assert_frame_equal(QUERIES, before)
    pd.testing.assert_frame_equal(TRAIN, train)
    assert repr(explainer) == f"{type(explainer).__name__}(160 rows, 6 features)"
    with pytest.raises(InputError, match="refuses to be pickled"):
        pickle.dumps(explainer)
    with pytest.raises(AdapterError, match="queries have no column age"):
        explainer.explain(QUERIES.drop(columns="age"))


@pytest.mark.parametrize("name", [*names(slow="dice")])
def test_each_keeps_the_contract_of_adapters_and_can_be_protected(name: str) -> None:
    explainer = made(name)
    check_adapter(explainer, QUERIES, list(TRAIN.columns), deterministic=True)
    population = Population.from_frame(
        TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "region"])
    )
    private = protect(
        explainer,
        model=MODEL,
        population=population,
        policy=PrivacyPolicy(guarantee="lookup", k=5),
        desired="yes",
    )
    assert len(private.explain(QUERIES)) == 2


@pytest.mark.parametrize("name", ["nice", "dice-random"])
def test_libraries_explain_towards_one_outcome(name: str) -> None:
    with pytest.raises(AdapterError, match="give `desired` as one of the model's classes"):
        made(name, desired="perhaps")


def test_dice_gives_no_answer_where_it_knows_no_category() -> None:
    strange = QUERIES.copy()
    strange.loc[strange.index[0], "job"] = "pilot"
    answers = made("dice-kdtree", desired="opposite").explain(strange)
    assert answers.notna().any(axis=1).tolist() == [False, True]


def test_which_answers_are_training_rows_is_said() -> None:
    said = {name: made(name).instance_based for name in DECLARED}
    assert {name for name, is_row in said.items() if is_row} == {
        "dice-genetic", "dice-kdtree", "face", "nearest", "nice",
    } & set(DECLARED)  # fmt: skip


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=r"no generator 'revised'; installed are .*growing-spheres, nearest"
    ):
        generator("revised")


def test_none_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.plugins.entry_points", lambda group: [])
    assert generators() == ()
    with pytest.raises(InputError, match="install the package cfk-plugin"):
        generator("nearest")


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.plugins.find_spec", lambda name: None)
    for name, advice in {
        "nice": "pip install --no-deps NICEx",
        "dice-random": r"cfk-plugin\[dice\]",
    }.items():
        with pytest.raises(MissingDependencyError, match=f"generator {name} needs .*{advice}"):
            generator(name)
    assert not {"nice", "dice-random", "dice-kdtree", "dice-genetic"} & set(generators())
    assert "nearest" in generators()


def test_a_generator_that_does_not_load_hides_no_other(declared: list[EntryPoint]) -> None:
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


def test_two_of_one_name_are_refused(declared: list[EntryPoint]) -> None:
    declared.append(EntryPoint("nearest", "another:make", GROUP))
    with pytest.raises(PluginError, match="generator named nearest"):
        generators()


def test_nice_asks_the_model_about_missing_categories_as_the_training_rows_have_them() -> None:
    made("nice")
    missing = TRAIN[TRAIN["job"].isna() & (MODEL.predict(TRAIN) == "no")].head(4)
    for optimization in ("sparsity", "proximity"):
        nice = generator("nice")(TRAIN, OUTCOMES, MODEL, "yes", optimization=optimization).nice
        found = nice.explain(missing)
        assert (MODEL.predict(nice.decode(found)) == "yes").all()
        alone = [nice.decode(row[None]) for row in nice.encode(missing)]
        said = np.concatenate([*map(MODEL.predict_proba, alone)])
        np.testing.assert_allclose(said, MODEL.predict_proba(missing), rtol=1e-9)


def test_what_nice_raises_is_not_quoted() -> None:
    if find_spec("nice") is None:
        pytest.skip("needs NICEx, which is installed apart")

    class Quoting:
        classes_ = np.array(["no", "yes"])

        def predict_proba(self, rows: pd.DataFrame) -> None:
            raise ValueError(rows.to_dict())

    with pytest.raises(AdapterError, match="raised ValueError") as caught:
        generator("nice")(TRAIN, OUTCOMES, Quoting(), "yes", 0)
    assert CANARY not in str(caught.value)
