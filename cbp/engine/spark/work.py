"""What Spark's Python workers do: route what goes into a shuffle, work on what comes out of it.

    route_task      before the shuffle: keys that an author computes, combiners, copies
    group_task      behind it: a task's records, in order
    arranged        without it: a task reads the increment itself
    shared_out      the files of a record-wise stage

The last two are also done by resident workers (`cbp.engine.spark.resident`).

Guaranteed: nothing here knows the driver; what a task has to say are rows of JSON texts. An
error of ours before the shuffle travels in the text of an exception (`told_error`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from cbp.engine.arrange import Replicate
from cbp.engine.arrow import arrow_type
from cbp.engine.combine import combined
from cbp.engine.destinations import copies
from cbp.engine.layout import COUNT, TO, ShuffleLayout, first_bucket
from cbp.engine.records import InputShare
from cbp.engine.route import slot_columns
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.errors import CbpError, error_from_dict

__all__ = [
    "PLACE",
    "RESULT",
    "Work",
    "arranged",
    "as_task",
    "group_task",
    "nothing",
    "nothing_in_arrow",
    "numbered",
    "reported",
    "route_task",
    "shared_out",
    "slots_ddl",
    "task_identity",
    "telling",
    "told_error",
]

RESULT = "body string"
PLACE = "_place"
"""Column of a copy that groups share: the first bucket of the task that gets it."""

_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Work = Callable[[int, str], list[str]]
"""Given a task's number and an id that no other attempt has, returns what the task reports."""

_Numbered = Callable[[], list[str]]
_TOLD = "|cbp-error|"
"""Stands before and behind an error of ours in the text of an exception of Spark."""


def reported(descriptors: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield what a task has to say, as the rows that reach the driver."""
    yield pa.RecordBatch.from_pydict({"body": pa.array(_texts(descriptors), pa.string())})


def _texts(descriptors: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(descriptor) for descriptor in descriptors]


def task_identity() -> tuple[int, str]:
    """Return this task's number, and an id that no retry or twin shares."""
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task"
    return context.partitionId(), f"{context.taskAttemptId():x}"


def group_task(plan: TaskPlan, kind: type[StageTask]) -> _Task:
    """Return what works on a task's shuffled records."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, attempt = task_identity()
        yield from reported(kind(plan, part, attempt).run(batches))

    return run


def numbered(work: _Numbered, number: Iterable[int]) -> list[str]:
    """Do a task's work, whatever its number."""
    # Spark throws a worker away that leaves some of what it was sent unread, and the next
    # run waits for a new one.
    deque(number, maxlen=0)
    return work()


def nothing() -> list[str]:
    """Do no work; to find this function a worker imports all that a task needs."""
    return []


def nothing_in_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do no work, as a part of a DataFrame."""
    for _ in batches:
        pass
    yield from reported([])


def arranged(plan: TaskPlan, kind: type[StageTask], part: int, attempt: str) -> list[str]:
    """Read the increment and work on one task's part of it."""
    return _texts(kind(plan, part, attempt).run_arranged())


def shared_out(
    plan: TaskPlan, work: list[list[InputShare]], kind: type[StageTask], part: int, attempt: str
) -> list[str]:
    """Work on one task's share of a record-wise stage's input."""
    return _texts(kind(plan, part, attempt).run_shares(work[part]))


def as_task(work: Work) -> _Numbered:
    """Return what does, in a task of Spark, the part that is the task's."""

    def run() -> list[str]:
        return work(*task_identity())

    return run


def _filled(
    table: pa.Table,
    plan: TaskPlan,
    layout: ShuffleLayout,
    flow: int,
    replicate: Replicate | None,
) -> tuple[Mapping[str, Any], pa.Table]:
    """Return the slots of what becomes of a batch, and the record of each row."""
    if plan.spec.inputs[flow].has_several:
        filled, records = copies(table, plan.spec, layout, flow, stage=plan.stage)
        return (filled, records) if replicate is None else replicate(filled, records)
    if plan.spec.inputs[flow].combine is None:
        return slot_columns(table, plan.spec, layout, flow, stage=plan.stage), table
    fewer, counts = combined(table, plan.spec, layout, flow, stage=plan.stage)
    slots = slot_columns(fewer, plan.spec, layout, flow, stage=plan.stage)
    return {**slots, COUNT: counts}, fewer


@contextmanager
def telling() -> Iterator[None]:
    """Let an error of ours travel in an exception's text: what yields records has no report."""
    try:
        yield
    except CbpError as error:
        told = json.dumps({"type": type(error).__name__, **error.as_dict()})
        message = f"{_TOLD}{told}{_TOLD}"
        raise RuntimeError(message) from error


def told_error(text: str) -> CbpError | None:
    """Return the error that a task before the shuffle reported in its exception's text."""
    parts = text.split(_TOLD)
    if len(parts) < 3:
        return None
    told = json.loads(parts[1])
    return error_from_dict(told["type"], told)


def _for_every_task(copies: pa.Table, plan: TaskPlan) -> pa.Table:
    """Repeat what groups share once per task, beside the task's first bucket; one counts."""
    own = copies.filter(copies.column(TO).is_null())
    shared = copies.filter(copies.column(TO).is_valid())
    count = shared.column_names.index(COUNT)
    nothing = pa.array(np.zeros(shared.num_rows, np.int64))
    parts = [own.append_column(PLACE, pa.nulls(own.num_rows, pa.int32()))]
    for part in range(plan.tasks):
        bucket = first_bucket(part, tasks=plan.tasks, buckets=plan.buckets)
        place = pa.array(np.full(shared.num_rows, bucket, np.int32))
        copy = shared.set_column(count, COUNT, nothing) if part else shared
        parts.append(copy.append_column(PLACE, place))
    return pa.concat_tables(parts)


def route_task(plan: TaskPlan, flow: int) -> _Task:
    """Return what gives the records of one flow their slots, and copies them for their groups."""
    layout = plan.layout
    assert layout is not None
    types = {slot: arrow_type(type_) for slot, type_ in layout.slots}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replicate = plan.replication()
        for batch in batches:
            arrived = pa.Table.from_batches([batch])
            with telling():
                filled, table = _filled(arrived, plan, layout, flow, replicate)
            columns = {
                slot: filled[slot] if slot in filled else pa.nulls(table.num_rows, type_)
                for slot, type_ in types.items()
            }
            routed = pa.table({**columns, "_seq": table.column("_seq")})
            if plan.spec.inputs[flow].has_several:
                routed = _for_every_task(routed, plan)
            yield from routed.combine_chunks().to_batches()

    return run


def slots_ddl(layout: ShuffleLayout) -> str:
    """Return the columns of the shuffle as Spark reads them."""
    return ", ".join([*(f"{slot} {type_}" for slot, type_ in layout.slots), "_seq BIGINT"])
