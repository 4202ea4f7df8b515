"""Times that users give to commands, REST and roll-backs. Pure.

A time without a zone is in UTC, wherever it is given.
"""

from __future__ import annotations

from datetime import UTC, datetime


def zoned(given: datetime) -> datetime:
    """Return a time with its zone, which is UTC if it has none."""
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def instant_of(ms: int) -> datetime:
    """Return the time in UTC that is this many milliseconds after 1970."""
    return datetime.fromtimestamp(ms / 1000, UTC)
