"""The period of a report: which moments it asks for."""

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
    """Moments from `since` up to, and without, `until`: milliseconds since 1970; None leaves an end open."""

    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, since: Moment | None, until: Moment | None) -> Period:
        """Read a period as people say it: ``until`` a day means up to its end.

        Parameters
        ----------
        since : datetime, date or str, optional
            First moment; a day starts at midnight.
        until : datetime, date or str, optional
            First moment that is left out; of a day, the midnight that ends it.

        Raises
        ------
        InputError
            If it is no time, or the period is empty.
        """
        first = None if since is None else _milliseconds("since", since)[0]
        last = None if until is None else sum(_milliseconds("until", until))
        if first is not None and last is not None and first >= last:
            raise InputError("the period is empty: since must be before until")
        return cls(first, last)

    def holds(self, moment: int) -> bool:
        """Say whether a moment, in milliseconds since 1970, is in the period."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)

    def __str__(self) -> str:
        """Return it in words, with what was made of a day."""
        words = [] if self.since is None else [f"from {moment_text(self.since)}"]
        words += [] if self.until is None else [f"until before {moment_text(self.until)}"]
        return " ".join(words) or "any time"


def moment_text(moment: int) -> str:
    """Return milliseconds since 1970 as text, in UTC."""
    return (_EPOCH + timedelta(milliseconds=moment)).strftime("%Y-%m-%d %H:%M UTC")


def _milliseconds(name: str, moment: object) -> tuple[int, int]:
    """Return when a moment starts, and how long it is: a day, or nothing."""
    found = _parsed(moment) if isinstance(moment, str) else moment
    if not isinstance(found, date):  # a datetime is one, too
        raise InputError(
            f"{name} must be a day such as 2026-10-31 or a time such as 2026-10-31T12:00+01:00, in ISO 8601"
        )
    whole_day = not isinstance(found, datetime)
    time = found if isinstance(found, datetime) else datetime(found.year, found.month, found.day)  # noqa: DTZ001
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    # Rounded up: what is logged has whole milliseconds, and those before the moment must stay out.
    return -((_EPOCH - time) // timedelta(milliseconds=1)), _DAY if whole_day else 0


def _parsed(text: str) -> date | None:
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    return None
