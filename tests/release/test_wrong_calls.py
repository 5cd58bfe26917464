"""What newcomers do wrong is answered as it was read and found good; see ``wrong_calls.py``."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("dice_ml")
pytest.importorskip("polars")

from wrong_calls import CALLS, STORED, TRAIN, answer

# What answers change is shown in warnings, and depends on how long groups are searched for.
pytestmark = pytest.mark.full_search

EXPECTED: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_is_answered_as_stored(call: str) -> None:
    assert answer(CALLS[call]) == EXPECTED[call]


def test_every_stored_answer_is_of_a_call() -> None:
    assert list(EXPECTED) == list(CALLS)


def test_no_answer_quotes_a_value_of_a_row() -> None:
    text = STORED.read_text(encoding="utf-8")
    values = [str(value) for name in ("age", "city", "income", "debt") for value in TRAIN[name]]
    # The class of an encoded column is its name, which the model's author chose.
    text = text.replace("city_Canary", "")
    assert not [value for value in values if value in text]
