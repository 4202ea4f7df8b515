"""Retention of inputs: which increments of a source go, and why the others stay. Pure.

    0  1  2  3 | 4  5  6  7         kept: what stands behind the first that must stay,
    go           stay               without gaps, so that what is left can be told by a number

An increment must stay while something needs its files (a queue, a position that a roll-back
may begin at), while it is younger than it is to be kept, and while the newest ones together
are not larger than asked for. What roll-backs read again is everything that arrived behind
the oldest position that is kept.

Invariant: whatever is needed stays; without needs, what is left fits the retention
(tests/cbp/model/test_retention.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["NO_WISH", "Expiry", "Held", "InputRetention", "RetentionWish", "expire"]


@dataclass(frozen=True, slots=True)
class InputRetention:
    """How long inputs stay once everything has read them.

    Attributes:
        seconds: Since they arrived.
        bytes: That the newest ones of a source may have, however young they are; 0: any.
    """

    seconds: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetentionWish:
    """What a dataflow says of one source's inputs; what it leaves open, its service decides.

    Attributes:
        seconds, bytes: As of `InputRetention`; `None`: left open.
    """

    seconds: float | None = None
    bytes: int | None = None

    def over(self, service: InputRetention) -> InputRetention:
        """Return what holds in a service."""
        return InputRetention(
            service.seconds if self.seconds is None else self.seconds,
            service.bytes if self.bytes is None else self.bytes,
        )


NO_WISH = RetentionWish()


@dataclass(frozen=True, slots=True)
class Held:
    """An increment, or a file, that is still there.

    Attributes:
        index: Of the increment; of others, any number that rises.
        arrived: When.
        paths: Of its files.
    """

    index: int
    bytes: int
    arrived: datetime
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expiry:
    """What goes of one source, oldest first, and why the next one stays.

    Attributes:
        because: Of those that go; `""`: none does.
        stays: Of the first that stays; `""`: all go that were looked at.
    """

    gone: tuple[Held, ...]
    because: str
    stays: str


def expire(
    held: Sequence[Held],
    *,
    total_bytes: int,
    first_replayed: int,
    needed: Collection[str],
    retention: InputRetention,
    now: datetime,
) -> Expiry:
    """Decide what goes.

    Args:
        held: The oldest increments, ascending and without gaps.
        total_bytes: Of all of them, the younger ones included.
        first_replayed: The first that the longest roll-back would read again.
        needed: Paths of files that something waits for.
        retention: What is asked for.
        now: Aware time in UTC.
    """
    gone: list[Held] = []
    left, because, stays = total_bytes, "", ""
    horizon = now - timedelta(seconds=retention.seconds)
    for one in held:
        old = one.arrived <= horizon
        large = bool(retention.bytes) and left > retention.bytes
        stays = _stays(one, first_replayed, needed, old=old or large)
        if stays:
            break
        because = because or ("is older than it is kept" if old else "is more than is kept")
        gone.append(one)
        left -= one.bytes
    return Expiry(tuple(gone), because, stays)


def _stays(one: Held, first_replayed: int, needed: Collection[str], *, old: bool) -> str:
    if any(path in needed for path in one.paths):
        return "waits in a queue, or did at a position that is kept"
    if one.index >= first_replayed:
        return "would be read again by a roll-back to the oldest position"
    return "" if old else "is younger and less than is kept"
