"""Retention of flows: which increments expire, oldest first, and why the others stay. Pure.

    0  1  2  3 | 4  5  6  7         kept: the first increment that must stay, and all after it,
    go           stay               without gaps, so that one number is enough

An increment stays while something needs its files: a queue, or a position to which a roll-back can
return. A roll-back reads again everything that came after its position, so all increments after the
oldest kept position are needed. An increment that nothing needs expires once it is older than the
retention time, or while all kept increments together are larger than the retention size.

Sources expire by increment, since each has its own files. Outputs expire by table file, since
compaction merges many increments into one file: a file expires when all of its increments do.

Invariant: increments that are needed stay; the other remaining increments fit the retention
(tests/cbp/model/flow/test_retention.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cbp.model.flow.position import Position


@dataclass(frozen=True, slots=True)
class FlowRetention:
    """How long increments of a flow are kept once all readers have read them.

    Attributes:
        seconds: Age, since they arrived.
        bytes: Total size above which the oldest increments expire at any age; 0 means no limit.
        increments: Number of the newest increments that may stay; 0 means no limit. Sources only.
    """

    seconds: float
    bytes: int = 0
    increments: int = 0


@dataclass(frozen=True, slots=True)
class RetentionWish:
    """The retention that a dataflow declares for one flow; `None` means that it declares no value.

    For a source, the service's settings replace such values. An output for which nothing is
    declared is kept forever; messages that only their own stage reads are kept until they are read.
    """

    seconds: float | None = None
    bytes: int | None = None
    increments: int | None = None

    def over(self, others: FlowRetention) -> FlowRetention:
        """Return this retention, with the values that it lacks taken from `others`."""
        return FlowRetention(
            others.seconds if self.seconds is None else self.seconds,
            others.bytes if self.bytes is None else self.bytes,
            others.increments if self.increments is None else self.increments,
        )


NO_WISH = RetentionWish()
FOREVER, AT_ONCE = FlowRetention(math.inf), FlowRetention(0.0)
_NEVER = sys.maxsize

_TOO_OLD = "is older than the number of hours that its flow keeps"
_TOO_MUCH = "exceeds the number of bytes that its flow keeps"
_TOO_MANY = "exceeds the number of increments that its flow keeps"
_REPLAYED = "would be read again after a roll-back to the oldest position, or if a swap is undone"
_WITHIN = "is within the limits of its flow (hours, bytes, number of increments)"


@dataclass(frozen=True, slots=True)
class Held:
    """An existing increment, or a table file, which has the index of its last increment."""

    index: int
    bytes: int
    arrived: datetime
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expiry:
    """The increments of one flow that expire, oldest first, why, and why the next one stays.

    `because` is `""` if none expires; `stays` is `""` if all given ones expire.
    """

    gone: tuple[Held, ...]
    because: str
    stays: str


@dataclass(frozen=True, slots=True)
class KeptFlow:
    """The part of an output that must be kept.

    Attributes:
        first_replayed: The first increment after the oldest kept position.
        first_waiting: The first increment that waited at a reader at that position.
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
    """Return the part of an output that must be kept, given the oldest position to roll back to.

    An increment that waits now already waited at that position, or arrived after it.
    """
    if oldest is None:
        return KeptFlow(retention)
    newest = {increment.flow: increment.index for increment in oldest.newest}
    waiting = [_NEVER]
    for stage, input_ in readers:
        known = oldest.stages.get(stage)
        if known is None or input_ not in known.connectors:
            continue  # the reader runs together with the stage that it reads
        connector = known.connectors[input_]
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
    next_index: int = 0,
) -> Expiry:
    """Return which increments of a flow expire, and why the next one stays.

    Args:
        held: The oldest increments, ascending and without gaps.
        total_bytes: Size of all increments of the flow, including those not in `held`.
        first_replayed: The first increment that the longest roll-back would read again.
        first_waiting: Increments from this one on are still needed.
        next_index: Index of the increment that comes next; 0 if increments are not counted.
    """
    gone: list[Held] = []
    left, because, stays = total_bytes, "", ""
    for one in held:
        old = (now - one.arrived).total_seconds() >= retention.seconds
        large = 0 < retention.bytes < left
        many = 0 < retention.increments < next_index - one.index
        if one.index >= first_waiting or any(path in needed for path in one.paths):
            stays = "waits in a queue, or would wait in one after a roll-back"
        elif one.index >= first_replayed:
            stays = _REPLAYED
        elif not (old or large or many):
            stays = _WITHIN
        if stays:
            break
        because = because or (_TOO_OLD if old else _TOO_MUCH if large else _TOO_MANY)
        gone.append(one)
        left -= one.bytes
    return Expiry(tuple(gone), because, stays)
