from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.records.reading import Period
from logged import at


@pytest.mark.parametrize(
    ("moment", "since", "until"),
    [
        ("2026-10-31", "2026-10-31", "2026-11-01"),
        (date(2026, 10, 31), "2026-10-31", "2026-11-01"),
        ("2026-12-31", "2026-12-31", "2027-01-01"),
        ("9999-12-31", "9999-12-31", None),
        ("2026-10-31T00:00", "2026-10-31", "2026-10-31"),
        ("2026-10-31T12:30Z", "2026-10-31T12:30", "2026-10-31T12:30"),
        ("2026-10-31 12:30+01:00", "2026-10-31T11:30", "2026-10-31T11:30"),
        (datetime(2026, 10, 31, 12), "2026-10-31T12:00", "2026-10-31T12:00"),  # noqa: DTZ001
        (datetime(2026, 10, 31, 12, tzinfo=timezone(timedelta(hours=-2))), "2026-10-31T14:00", "2026-10-31T14:00"),
    ],
)
def test_a_day_is_in_the_period_up_to_its_end_and_a_time_is_not(moment: Any, since: str, until: str | None) -> None:
    assert Period.of(moment, None) == Period(at(since), None)
    if until is not None:
        assert Period.of(None, moment) == Period(None, at(until))


def test_the_first_moment_is_in_and_the_last_is_out() -> None:
    period = Period.of("2026-10-01", "2026-10-31")
    assert period.holds(at("2026-10-01"))
    assert period.holds(at("2026-10-31T23:59:59.999"))
    assert not period.holds(at("2026-10-01") - 1)
    assert not period.holds(at("2026-11-01"))
    assert Period().holds(0)


def test_parts_of_a_millisecond_are_not_rounded_into_the_period() -> None:
    moment = datetime(2026, 10, 1, 12, 0, 0, 1, tzinfo=UTC)
    whole = at("2026-10-01T12:00")
    assert not Period.of(moment, None).holds(whole)
    assert Period.of(None, moment).holds(whole)


def test_one_day_is_a_period() -> None:
    assert Period.of("2026-10-01", "2026-10-01") == Period(at("2026-10-01"), at("2026-10-02"))


def test_a_period_says_what_became_of_a_day() -> None:
    assert str(Period.of("2026-10-01", "2026-10-31")) == ("from 2026-10-01 00:00 UTC until before 2026-11-01 00:00 UTC")
    assert str(Period()) == "any time"


@pytest.mark.parametrize("moment", ["yesterday", "31.10.2026", "2026-13-01", "", 5, float("nan")])
def test_what_is_no_time_is_refused(moment: Any) -> None:
    with pytest.raises(InputError, match="until must be a day such as 2026-10-31"):
        Period.of(None, moment)


@pytest.mark.parametrize("until", ["2026-09-30", "2026-10-01T00:00"])
def test_an_empty_period_is_refused(until: str) -> None:
    with pytest.raises(InputError, match="the period is empty"):
        Period.of("2026-10-01", until)
