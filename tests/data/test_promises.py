"""What each guarantee promises, as facts."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest

from cfk_plugin.data.policy import GuaranteeName, PrivacyPolicy
from cfk_plugin.data.promises import PROMISES, Promise, promise_of

FACTS = [name for name in Promise.__annotations__ if not name.startswith("_")]


def test_every_guarantee_of_a_policy_has_a_promise() -> None:
    assert set(PROMISES) == set(get_args(GuaranteeName))


@pytest.mark.parametrize("guarantee", PROMISES)
def test_a_promise_states_every_fact_itself(guarantee: str) -> None:
    assert set(FACTS) <= set(vars(promise_of(guarantee)))


def test_an_unknown_guarantee_promises_nothing() -> None:
    with pytest.raises(KeyError):
        promise_of("nominal")


def test_promises_are_ordered_from_weak_to_strong() -> None:
    counts = [promise.promised_counts for promise in PROMISES.values()]
    assert counts == sorted(counts, key=len)
    for weaker, stronger in pairwise(counts):
        assert weaker < stronger


@pytest.mark.parametrize("guarantee", get_args(GuaranteeName))
def test_a_policy_without_further_settings_follows_the_promise(guarantee: GuaranteeName) -> None:
    policy = PrivacyPolicy(guarantee=guarantee)
    promise = promise_of(guarantee)
    assert policy.least_pureness == promise.default_least_pureness
    assert (policy.margin == "auto") == promise.may_have_margin
    assert policy.counts_eligible == promise.counts_only_eligible
