"""Whatever foreign code raises, SystemExit and the panics of other languages included: nothing of it gets through."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, hookimpl, protect
from cfk_plugin.errors import CFKError
from cfk_plugin.hookspecs import CounterfactualBatch

CANARY = "Quillfeather"
SECRET = f"cannot explain {{'age': 71785, 'city': '{CANARY}'}}"


class PanicException(BaseException):
    """Stands for the one of PyO3, by which libraries written in Rust end a call: it is no `Exception`."""


class NotANameError(Exception):
    """An exception whose class has a row for a name."""


NotANameError.__name__ = SECRET

THROWN = [SystemExit, PanicException, GeneratorExit, ValueError, MemoryError, NotANameError]


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": 71_003 + 17 * random.permutation(80),
            "city": [CANARY, *random.choice(["Antwerp", "Ghent"], 79).tolist()],
            "pay": random.integers(20, 90, 80),
        }
    )


@pytest.fixture(scope="module")
def population(train: pd.DataFrame) -> Population:
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "city"]))


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


class Explainer:
    """Answers with a training row; `raising` is the place at which it, or what stands around it, raises."""

    def __init__(self, train: pd.DataFrame) -> None:
        self.row = train[train["pay"] > 40].head(1)

    def explain(self, queries: pd.DataFrame) -> pd.DataFrame:
        return self.row.loc[[*self.row.index] * len(queries)].reset_index(drop=True)


class Source:
    """An adapter of its own, which raises where it is told to."""

    name, instance_based = "thrower", True

    def __init__(self, explainer: Any, at: str, thrown: BaseException) -> None:
        self.explainer, self.at, self.thrown = explainer, at, thrown

    @hookimpl
    def cfk_adapt(self) -> Source:
        return self

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        if self.at == "generate":
            raise self.thrown
        found = self.explainer.explain(queries)[["age", "city", "pay"]]
        return CounterfactualBatch.one_each(found, np.ones(len(found), dtype=bool))

    @property
    def methods(self) -> dict[str, Any]:
        return {"counterfactuals": self.counterfactuals}

    def counterfactuals(self, queries: pd.DataFrame) -> Any:
        if self.at == "method":
            raise self.thrown
        return self.generate(queries), None, queries

    def restore(self, native: Any, explanations: Explanations) -> Any:
        if self.at == "restore":
            raise self.thrown
        return explanations.to_frame()


class Plugin:
    """A plugin of which one hook raises."""

    def __init__(self, hook: str, thrown: BaseException) -> None:
        def fail() -> Any:
            raise thrown

        setattr(self, hook, hookimpl(fail))


def throwing(thrown: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise thrown

    return fail


def no_canary(caplog: pytest.LogCaptureFixture, *things: Any) -> None:
    shown = caplog.text + "".join(map(repr, things))
    for thing in things:
        if isinstance(thing, BaseException):
            assert thing.__context__ is None
            assert thing.__cause__ is None
            shown += "".join(traceback.format_exception(thing))
    assert CANARY not in shown
    assert "71785" not in shown


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives or which of the product's errors it raises; anything else fails the test."""
    try:
        return call()
    except CFKError as error:
        return error


@pytest.mark.parametrize("kind", THROWN, ids=lambda kind: kind.__qualname__)
@pytest.mark.parametrize("at", ["explainer", "adapter", "model", "detect", "protect", "released", "protector"])
def test_what_is_thrown_while_explaining_withholds_the_answers(
    train: pd.DataFrame, population: Population, caplog: pytest.LogCaptureFixture, at: str, kind: type[BaseException]
) -> None:
    caplog.set_level(logging.DEBUG)
    thrown = kind(SECRET)
    explainer, plugins, method = Explainer(train), [], "auto"
    fitted = False

    def moody(rows: pd.DataFrame) -> Any:
        if at == "model" and fitted:
            raise thrown
        return model(rows)

    if at == "explainer":
        explainer.explain = throwing(thrown)  # type: ignore[method-assign]
    elif at == "adapter":
        plugins = [Source(explainer, "generate", thrown)]
    elif at in ("detect", "protect", "released"):
        plugins = [Plugin(f"cfk_{at}", thrown)]
    elif at == "protector":
        method = type("Protector", (), {"name": "thrower", "protect": throwing(thrown)})()
    policy = PrivacyPolicy(k=5, guarantee="nominal" if at == "protector" else "reciprocal")
    private = protect(
        explainer, model=moody, population=population, policy=policy, desired=1, plugins=plugins, method=method
    )
    fitted = True
    explanations = private.explain(train[train["pay"] <= 40].head(3))
    assert isinstance(explanations, Explanations)
    reasons = {entry.reason for entry in explanations.suppressed}
    expected = {"explainer": "explainer_failed", "adapter": "explainer_failed", "model": "model_failed"}
    assert reasons == (set() if at == "released" else {expected.get(at, "protector_failed")})
    no_canary(caplog, *([] if at == "released" else [explanations, explanations.to_json()]))
    if at in ("explainer", "adapter", "released", "protector"):  # the operator learns what kind of failure it was
        assert (kind.__name__ if kind is not NotANameError else "an error") in caplog.text


@pytest.mark.parametrize("kind", THROWN, ids=lambda kind: kind.__qualname__)
@pytest.mark.parametrize("at", ["method", "restore", "generate"])
def test_what_is_thrown_by_an_explainers_own_method_is_an_adapter_error(
    train: pd.DataFrame, population: Population, caplog: pytest.LogCaptureFixture, at: str, kind: type[BaseException]
) -> None:
    source = Source(Explainer(train), at, kind(SECRET))
    private = protect(
        source.explainer, model=model, population=population, policy=PrivacyPolicy(k=5), desired=1, plugins=[source]
    )
    error = outcome(lambda: private.counterfactuals(train[train["pay"] <= 40].head(3)))
    assert isinstance(error, CFKError)
    no_canary(caplog, error)


@pytest.mark.parametrize("kind", THROWN, ids=lambda kind: kind.__qualname__)
@pytest.mark.parametrize("at", ["model", "desired", "cfk_adapt", "cfk_register_protectors"])
def test_what_is_thrown_while_fitting_is_an_error_of_ours(
    train: pd.DataFrame, population: Population, caplog: pytest.LogCaptureFixture, at: str, kind: type[BaseException]
) -> None:
    fail = throwing(kind(SECRET))
    error = outcome(
        lambda: protect(
            Explainer(train),
            model=fail if at == "model" else model,
            population=population,
            policy=PrivacyPolicy(k=5, guarantee="nominal"),
            desired=fail if at == "desired" else 1,
            plugins=[Plugin(at, kind(SECRET))] if at.startswith("cfk_") else [],
        )
    )
    assert isinstance(error, CFKError)
    no_canary(caplog, error)


@pytest.mark.parametrize("desired", [1, "opposite"])
@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal", "catalogue"])
def test_a_model_that_ends_the_process_withholds_a_table(
    train: pd.DataFrame, population: Population, caplog: pytest.LogCaptureFixture, guarantee: Any, desired: Any
) -> None:
    calls = {"left": 10**9}

    def ends(rows: pd.DataFrame) -> Any:
        calls["left"] -= 1
        if calls["left"] < 0:
            raise SystemExit(SECRET)
        return model(rows)

    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee=guarantee))
    anonymizer.fit(population, model=ends, desired=desired)
    calls["left"] = 0
    explanations = anonymizer.transform(train[train["pay"] > 40].head(3))
    assert {entry.reason for entry in explanations.suppressed} == {"model_failed"}
    assert len(explanations.suppressed) == 3
    no_canary(caplog, explanations)


def test_an_interrupt_of_the_operator_goes_through_without_its_text(
    train: pd.DataFrame, population: Population, caplog: pytest.LogCaptureFixture
) -> None:
    explainer = Explainer(train)
    private = protect(explainer, model=model, population=population, policy=PrivacyPolicy(k=5), desired=1)
    explainer.explain = throwing(KeyboardInterrupt(SECRET))  # type: ignore[method-assign]
    queries = train[train["pay"] <= 40].head(2)
    with pytest.raises(KeyboardInterrupt) as raised:
        private.explain(queries)
    no_canary(caplog, raised.value)
    # Python tells the main thread alone of the operator: in another one it is the explainer's doing.
    with ThreadPoolExecutor(1) as pool:
        explanations = pool.submit(private.explain, queries).result()
    assert {entry.reason for entry in explanations} == {"explainer_failed"}


def test_the_command_line_says_one_line_of_a_model_that_panics(train: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "panicking.py").write_text(
        textwrap.dedent(f"""
            class Panic(BaseException): ...
            class Model:
                def predict(self, rows):
                    raise Panic({SECRET!r})
        """)
    )
    script = textwrap.dedent("""
        import joblib, sys
        sys.path.insert(0, ".")
        from panicking import Model
        joblib.dump(Model(), "model.joblib")
    """)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    train.to_csv(tmp_path / "train.csv", index=False)
    train.head(2).to_csv(tmp_path / "found.csv", index=False)
    (tmp_path / "schema.json").write_text('{"quasi_identifiers": ["age", "city"]}')
    command = [sys.executable, "-m", "cfk_plugin.cli", "protect", "train.csv", "found.csv", "--schema", "schema.json"]
    command += ["--model", "model.joblib", "--desired", "1", "--k", "5"]
    environment = {"PYTHONPATH": ":".join([".", *sys.path])}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "cfk: the model raised Panic on 80 rows"
    assert CANARY not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
