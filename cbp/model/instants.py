"""The times that commands, REST and roll-backs are given. Pure.

A time without a zone is in UTC, for whatever it is given: that is one rule.
"""

from __future__ import annotations

from datetime import UTC, datetime


def zoned(given: datetime) -> datetime:
    """Return a time with its zone, which is UTC if it has none."""
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def instant_of(ms: int) -> datetime:
    """Return the time this many milliseconds after 1970; in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)
