"""Retention of flows: which increments go, oldest first, and why the others stay. Pure.

    0  1  2  3 | 4  5  6  7         kept: what stands behind the first that must stay,
    go           stay               without gaps, so that what is left can be told by a number

An increment must stay while something needs its files (a queue, a position that a roll-back
may begin at), while it is younger than it is to be kept, and while the newest ones together
are not larger than asked for. What roll-backs read again is everything that came behind
the oldest position that is kept.

Inputs go by increments, which have files of their own. Outputs go by the files of their table,
which compaction makes of many increments: one goes when all of its increments do.

Invariant: whatever is needed stays; without needs, what is left fits the retention
(tests/cbp/model/test_retention.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cbp.model.position import Position

__all__ = [
    "FOREVER",
    "NO_WISH",
    "Expiry",
    "FlowRetention",
    "Held",
    "KeptFlow",
    "RetentionWish",
    "expire",
    "kept_flow",
]


@dataclass(frozen=True, slots=True)
class FlowRetention:
    """How long increments of a flow stay once everything has read them.

    Attributes:
        seconds: Since they came.
        bytes: That the newest ones may have, however young they are; 0: any.
    """

    seconds: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetentionWish:
    """What a dataflow says of one flow; what it leaves open, others decide.

    Of a source that is its service; an output stays for good unless something is said of it.

    Attributes:
        seconds, bytes: As of `FlowRetention`; `None`: left open.
    """

    seconds: float | None = None
    bytes: int | None = None

    def over(self, others: FlowRetention) -> FlowRetention:
        """Return what holds, where others decide what is left open."""
        return FlowRetention(
            others.seconds if self.seconds is None else self.seconds,
            others.bytes if self.bytes is None else self.bytes,
        )


NO_WISH = RetentionWish()
FOREVER = FlowRetention(math.inf)
_NEVER = sys.maxsize


@dataclass(frozen=True, slots=True)
class Held:
    """An increment, or a file, that is still there.

    Attributes:
        index: Of the increment, of several the last; of others, any number that rises.
        arrived: When.
        paths: Of its files.
    """

    index: int
    bytes: int
    arrived: datetime
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expiry:
    """What goes of one flow, oldest first, and why the next one stays.

    Attributes:
        because: Of those that go; `""`: none does.
        stays: Of the first that stays; `""`: all go that were looked at.
    """

    gone: tuple[Held, ...]
    because: str
    stays: str


@dataclass(frozen=True, slots=True)
class KeptFlow:
    """What must stay of an output, as plain data.

    Attributes:
        retention: What its stage says.
        first_replayed: The first increment that came behind the oldest position that is kept.
        first_waiting: The first that waited at a reader there.
    """

    retention: FlowRetention
    first_replayed: int = 0
    first_waiting: int = _NEVER


def kept_flow(
    flow: str,
    retention: FlowRetention,
    *,
    readers: Iterable[tuple[str, str]],
    oldest: Position | None,
    epoch_of: Callable[[str], int | None],
) -> KeptFlow:
    """Return what must stay of an output.

    What waits now waited at the oldest position that is kept, or came behind it, so only
    that one is asked.

    Args:
        flow: `stage.output`.
        retention: What its stage says.
        readers: The (stage, input) pairs that read it.
        oldest: The oldest position that a roll-back may begin at; `None`: none was put yet.
        epoch_of: Returns the epoch that wrote a file: a frame's number names no increment.
    """
    if oldest is None:
        return KeptFlow(retention)
    newest = {increment.flow: increment.index for increment in oldest.newest}
    waiting = [_NEVER]
    for stage, input_ in readers:
        stood = oldest.stages.get(stage)
        if stood is None or input_ not in stood.connectors:
            continue  # it runs with the stage that it reads
        connector = stood.connectors[input_]
        for one in connector.held:
            waiting += [one.index] if connector.framing is None else []
            written = (epoch_of(file.path) for file in one.files)
            waiting += [epoch for epoch in written if epoch is not None]
    return KeptFlow(retention, newest.get(flow, -1) + 1, min(waiting))


def expire(
    held: Sequence[Held],
    *,
    total_bytes: int,
    first_replayed: int,
    needed: Collection[str],
    retention: FlowRetention,
    now: datetime,
    first_waiting: int = _NEVER,
) -> Expiry:
    """Decide what goes.

    Args:
        held: The oldest increments, ascending and without gaps.
        total_bytes: Of all of them, the younger ones included.
        first_replayed: The first that the longest roll-back would read again.
        needed: Paths of files that something waits for.
        retention: What is asked for.
        now: Aware time in UTC.
        first_waiting: From this one on, something waits for them.
    """
    gone: list[Held] = []
    left, because, stays = total_bytes, "", ""
    for one in held:
        old = (now - one.arrived).total_seconds() >= retention.seconds
        large = bool(retention.bytes) and left > retention.bytes
        waits = one.index >= first_waiting or any(path in needed for path in one.paths)
        stays = _stays(one, first_replayed, waits=waits, old=old or large)
        if stays:
            break
        because = because or ("is older than it is kept" if old else "is more than is kept")
        gone.append(one)
        left -= one.bytes
    return Expiry(tuple(gone), because, stays)


def _stays(one: Held, first_replayed: int, *, waits: bool, old: bool) -> str:
    if waits:
        return "waits in a queue, or did at a position that is kept"
    if one.index >= first_replayed:
        return "would be read again by a roll-back to the oldest position"
    return "" if old else "is younger and less than is kept"
