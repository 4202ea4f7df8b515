"""Due groups: which groups of a bucket have a due timer, and when the next one is due.

A state of timers has a column `at`. The groups that are called for a due timer are found in that
column alone. Its earliest values in each file are sorted once (`cbp.engine.state.lookup`).

Invariant: the next time is never later than that of a timer that stays
(tests/cbp/engine/state/test_time_order.py, tests/cbp/engine/test_timers.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import union
from cbp.engine.state.bucket_state import BucketState
from cbp.model.dataflow.run_context import microseconds
from cbp.model.dataflow.stage import TIMER_COLUMN

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Woken:
    """Groups that a run calls because they have a due timer: one that is not after `until`.

    `hashes` are those of their keys, ascending, each once. Other groups can have the same hash.
    """

    hashes: Int64s
    until: datetime


def due_groups(states: Iterable[BucketState], until: datetime) -> tuple[Woken, int | None]:
    """Return the groups that have a due timer, and the time of the next timer in microseconds."""
    parts: list[Int64s] = []
    next_us = _NEVER
    for state in states:
        for at in range(len(state.files)):
            hashes, later_us = _due_in(state, at, microseconds(until))
            parts.append(hashes)
            next_us = min(next_us, later_us)
    return Woken(union(parts), until), None if next_us == _NEVER else next_us


def earliest(table: pa.Table) -> int | None:
    """Return the earliest timer of some records, in microseconds since 1970."""
    times = _times(table)
    return int(times.min()) if len(times) else None


def is_due(table: pa.Table, until: datetime) -> npt.NDArray[np.bool_]:
    """Return which of some timers are due."""
    due: npt.NDArray[np.bool_] = _times(table) <= microseconds(until)
    return due


def _due_in(state: BucketState, at: int, until_us: int) -> tuple[Int64s, int]:
    """Return the hashes of a file's due timers, and the earliest of its other timers."""
    file = state.whole(at)
    order = file.time_order(TIMER_COLUMN, ahead=state.cache.limits.timers_ahead)
    due = state.live(at, order.until(until_us))
    later_us = _NEVER
    for rows, times in order.after(until_us):
        state.bytes_read += times.nbytes
        alive = state.live(at, rows)
        if len(alive):
            later_us = int(times[rows == alive[0]][0])
            break
    state.bytes_read += due.nbytes
    if not len(due):
        return np.empty(0, np.int64), later_us
    hashes = file.take(np.sort(due), ["_hash"]).column("_hash").to_numpy()
    return np.unique(hashes), later_us


def _times(table: pa.Table) -> Int64s:
    times: Int64s = table.column(TIMER_COLUMN).cast(pa.int64()).to_numpy()
    return times
