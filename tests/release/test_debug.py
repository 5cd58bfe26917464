"""Errors of models and explainers lose their text, unless the data holder asks for it."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import CFKError, InputError, debugging, quiet
from cfk_plugin.serving import handler

TABLE = pd.DataFrame({"age": range(60), "pay": [1_000 + i % 30 for i in range(60)]})
POPULATION = Population.from_frame(
    TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"], weights={"age": 1})
)
POLICY = PrivacyPolicy(k=5, guarantee="lookup")
CANARY = "1029"


class QuotingError(ValueError):
    """What a library raises that quotes the row that it stumbled over."""


def broken(rows: pd.DataFrame) -> Any:
    raise QuotingError(f"cannot read {rows['pay'].max()}")


def works(rows: pd.DataFrame) -> Any:
    return rows["pay"] > 1_015


class Own:
    """An explainer with a method of its own, which quotes a row when it fails."""

    def explain(self, queries: Any) -> Any:
        raise QuotingError(f"cannot explain {TABLE['pay'].max()}")

    def search(self, queries: Any) -> Any:
        raise QuotingError(f"cannot explain {TABLE['pay'].max()}")


def of_model(**settings: Any) -> None:
    protect(None, model=broken, population=POPULATION, k=5, **settings)


def of_explainer(**settings: Any) -> None:
    private = protect(
        Own(), model=works, population=POPULATION, policy=POLICY, desired=True, **settings
    )
    private.explain(TABLE.head(2))


def of_own_method(**settings: Any) -> None:
    def search(queries: pd.DataFrame) -> Any:
        return Own().search(queries)

    private = protect(
        search, model=works, population=POPULATION, policy=POLICY, desired=True, **settings
    )
    private(TABLE.head(2))


CALLS = [of_model, of_explainer, of_own_method]


@pytest.mark.parametrize("call", CALLS)
def test_without_debug_no_value_is_in_the_error_or_in_the_log(
    call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CFKError) as caught:
        call()
    assert CANARY not in str(caught.value)
    assert "QuotingError" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert CANARY not in caplog.text


@pytest.mark.parametrize("call", CALLS)
def test_with_debug_the_error_has_the_text_and_its_cause_with_its_frames(call: Any) -> None:
    with pytest.raises(CFKError) as caught:
        call(debug=True)
    assert CANARY in str(caught.value)
    assert "withheld" not in str(caught.value)
    cause = caught.value.__cause__
    assert type(cause) is QuotingError
    assert traceback.extract_tb(cause.__traceback__)[-1].filename == __file__


@pytest.mark.parametrize("call", CALLS)
def test_the_environment_means_the_same_for_the_whole_process(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFK_DEBUG", "1")
    with pytest.raises(CFKError) as caught:
        call()
    assert CANARY in str(caught.value)
    assert type(caught.value.__cause__) is QuotingError


def test_a_block_means_the_same_for_what_has_no_argument() -> None:
    for is_on in (True, False):
        with pytest.raises(CFKError) as caught, debugging(is_on):
            KAnonymizer().fit(POPULATION, broken, desired=True)
        assert (CANARY in str(caught.value)) == is_on
        assert (caught.value.__cause__ is not None) == is_on


def test_debug_of_one_explainer_is_not_that_of_another() -> None:
    with pytest.raises(CFKError):
        of_model(debug=True)
    with pytest.raises(CFKError) as caught:
        of_model()
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_server_answers_with_constant_texts_even_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_DEBUG", "1")
    with (
        pytest.raises(handler.RequestError) as caught,
        handler.refusing(handler.FAILED, ours=True),
        quiet("{}", InputError),
    ):
        raise QuotingError(CANARY)
    assert caught.value.message == handler.FAILED
    assert caught.value.__cause__ is None
    assert CANARY not in "".join(traceback.format_exception(caught.value))
