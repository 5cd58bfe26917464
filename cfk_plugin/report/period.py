"""A period of time: what a report is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from cfk_plugin.errors import InputError

Moment = datetime | date | str
"""A point in time, or a day; text is ISO 8601. Without a time zone it is UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Period:
    """Moments from `since` up to but not including `until`, in milliseconds since 1970; None leaves
    an end open.
    """

    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, since: Moment | None, until: Moment | None) -> Period:
        """Read a period as people say it: ``until`` a day includes that day."""
        first = None if since is None else _milliseconds("since", since)[0]
        last = None if until is None else sum(_milliseconds("until", until))
        if first is not None and last is not None and first >= last:
            raise InputError("the period is empty: since must be before until")
        return cls(first, last)

    def holds(self, moment: int) -> bool:
        """Return True if a moment, in milliseconds since 1970, is in the period."""
        if self.since is not None and moment < self.since:
            return False
        return self.until is None or moment < self.until

    def __str__(self) -> str:
        """Return it in words."""
        words = []
        if self.since is not None:
            words.append(f"from {moment_text(self.since)}")
        if self.until is not None:
            words.append(f"until before {moment_text(self.until)}")
        return " ".join(words) or "any time"


def moment_text(moment: int) -> str:
    """Return milliseconds since 1970 as text, in UTC; at midnight it is only the day."""
    form = "%Y-%m-%d UTC" if moment % _DAY == 0 else "%Y-%m-%d %H:%M UTC"
    return (_EPOCH + timedelta(milliseconds=moment)).strftime(form)


def _milliseconds(name: str, moment: object) -> tuple[int, int]:
    """Return when a moment starts and how long it lasts: a day, or 0."""
    if isinstance(moment, str):
        moment = _parsed(moment)
    if isinstance(moment, datetime):  # it is also a date
        duration = 0
    elif isinstance(moment, date):
        duration = _DAY
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    else:
        raise InputError(
            f"{name} must be a day such as 2026-10-31 or a time such as 2026-10-31T12:00+01:00, in"
            " ISO 8601"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Rounded up: logged times are whole milliseconds, and none before the moment may count.
    return -((_EPOCH - moment) // timedelta(milliseconds=1)), duration


def _parsed(text: str) -> date | None:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
