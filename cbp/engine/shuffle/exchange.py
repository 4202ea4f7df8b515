"""Exchange between the tasks of one run, in rounds: each sends all others a message in a round.

    round of task 0 -- facts, tables --> task 1, task 2, ...
    round of task 1 -- facts, tables --> task 0, task 2, ...      each gets those of all, by task

All tasks do the same rounds. In each of them a task sends one message to every other task, and
waits until it has one from each. So all tasks make the same decisions from the messages of a round.
The only task of a run waits for no other (`ALONE`).

Guaranteed: if a task fails, or its process ends, the next round of all others fails with
`PeerGoneError`, so none of them waits for it. Messages of one round come in the order of the tasks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.key_hash import bucket_shift
from cbp.model.dataflow.stage import AggregateHow

Gather = Callable[[str], Sequence[str]]
"""Sends a text to all tasks of a run, and returns the texts of all, by task; called once."""

Tables = Mapping[str, pa.Table]

LOOPBACK = "127.0.0.1"
"""The host of tasks that all run on one machine."""


class PeerGoneError(Exception):
    """Another task of the run has failed; that task, or its executor, reports the error.

    `part` is -1 if some task ended before all tasks were connected. `broken`: the task's process
    ended, or cannot be reached; otherwise the task has reported that it failed.
    """

    def __init__(self, part: int, broken: bool) -> None:
        self.part, self.broken = part, broken
        super().__init__(part, broken)

    def __str__(self) -> str:
        """Return the error in words."""
        if self.part < 0:
            return "another task of the same run ended before all tasks were connected"
        how = "ended, or cannot be reached" if self.broken else "failed"
        return f"task {self.part} of the same run {how}"


@dataclass(frozen=True, slots=True)
class Message:
    """The message of one task to another in a round: JSON values, and tables by any names."""

    facts: Mapping[str, Any]
    tables: Tables = field(default_factory=dict)


class Exchange(Protocol):
    """The rounds of one task; not safe to use from several threads."""

    @property
    def tasks(self) -> int:
        """The number of tasks."""

    def swap(self, facts: Mapping[str, Any], tables: Sequence[Tables]) -> list[Message]:
        """Do a round: send a message to every task, and return those of all, by task.

        All tasks get the facts; `tables` has the tables for each task. This task's own message is
        returned unchanged. Raises `PeerGoneError`.
        """

    def finish(self, *, done: bool) -> None:
        """End the last round: report to all tasks whether this one has succeeded.

        If it has, it waits until all others have, too, or raises `PeerGoneError`. If not, it does
        not wait, and raises nothing.
        """


class _Alone:
    tasks = 1

    def swap(self, facts: Mapping[str, Any], tables: Sequence[Tables]) -> list[Message]:
        """Return the only message; see `Exchange`."""
        return [Message(facts, tables[0])]

    def finish(self, *, done: bool) -> None:
        """Do nothing: no other task waits."""


ALONE: Exchange = _Alone()


def owners(hashes: Int64s, *, tasks: int, buckets: int) -> Int64s:
    """Return the number of the task that owns the bucket of each hash."""
    at = hashes.view(np.uint64) >> np.uint64(bucket_shift(buckets))
    return at.astype(np.int64) * tasks // buckets


def shared_out(table: pa.Table, to: Int64s, tasks: int) -> list[pa.Table]:
    """Return the rows for each task, in their order; `to` is the task of each row."""
    order = np.argsort(to, kind="stable")
    ends = np.cumsum(np.bincount(to, minlength=tasks))
    rows = table if np.all(to[1:] >= to[:-1]) else table.take(pa.array(order))
    return [
        rows.slice(start, stop - start)
        for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def exact_parts(how: AggregateHow, numbers: Sequence[float]) -> list[float]:
    """Return few numbers with the same effect on an aggregate as all numbers of a task.

    `AggregateSpec.value` of the parts of all tasks, in their order, equals that of all numbers to
    the last bit: a sum is cut into floats that add up to it exactly.
    """
    if any(number != number for number in numbers):
        return [math.nan]
    if how != "sum":
        return [(min if how == "min" else max)(numbers)] if numbers else []
    if infinite := {number for number in numbers if math.isinf(number)}:
        return sorted(infinite)
    parts, rest = list[float](), [*numbers]
    try:
        while part := math.fsum(rest):
            parts.append(part)
            rest.append(-part)
    except OverflowError:  # on the way, or at the end
        return _whole_parts(numbers)
    return parts


_UNITS = 1 << 1074
"""Every finite float is an integer multiple of 1 divided by this number."""


def _units(number: float) -> int:
    above, below = number.as_integer_ratio()
    return above * (_UNITS // below)


def _whole_parts(numbers: Sequence[float]) -> list[float]:
    """Return the parts of a sum that is too large for a float, at the end or on the way."""
    parts, left = list[float](), sum(map(_units, numbers))
    while left:
        try:
            part = left / _UNITS
        except OverflowError:
            part = sys.float_info.max if left > 0 else -sys.float_info.max
        parts.append(part)
        left -= _units(part)
    return parts
