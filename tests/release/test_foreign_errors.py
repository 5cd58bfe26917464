"""Errors of models and explainers: our text names the class, and the exception is the cause."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Attribute, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import CFKError, InputError, quiet
from cfk_plugin.serving import handler

TABLE = pd.DataFrame({"age": range(60), "pay": [1_000 + i % 30 for i in range(60)]})
POPULATION = Population.from_frame(
    TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"], columns={"age": Attribute(weight=1)})
)
POLICY = PrivacyPolicy(k=5, guarantee="lookup")
CANARY = "1029"


class QuotingError(ValueError):
    """What a library raises that quotes the row that it stumbled over."""


def quoting(rows: pd.DataFrame) -> Any:
    raise QuotingError(f"cannot read {TABLE['pay'].max()}")


def works(rows: pd.DataFrame) -> Any:
    return rows["pay"] > 1_015


def ask_quoting_model() -> None:
    protect(None, model=quoting, population=POPULATION, k=5)


def ask_quoting_explainer() -> None:
    private = protect(quoting, model=works, population=POPULATION, policy=POLICY, desired=True)
    private.explain(TABLE.head(2))


@pytest.mark.parametrize("call", [ask_quoting_model, ask_quoting_explainer])
def test_error_names_the_class_of_its_cause(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Neither its text nor the log has a value; the cause has the frames of the foreign code."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CFKError, match="QuotingError") as caught:
        call()
    assert CANARY not in str(caught.value)
    assert CANARY not in caplog.text
    cause = caught.value.__cause__
    assert type(cause) is QuotingError
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "quoting"


@pytest.mark.parametrize("is_debugged", [False, True])
def test_request_is_refused_without_a_cause(
    is_debugged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's server sends the traceback to the client."""
    if is_debugged:
        monkeypatch.setenv("CFK_DEBUG", "1")
    with (
        pytest.raises(handler.RequestError) as caught,
        handler.refusing(handler.FAILED, ours=True),
        quiet("{}", InputError),
    ):
        raise QuotingError(CANARY)
    assert caught.value.message == handler.FAILED
    assert CANARY not in "".join(traceback.format_exception(caught.value))
