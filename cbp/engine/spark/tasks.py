"""Tasks of Spark's Python workers: routing before a shuffle, and the stage's work after it.

    route_task      before the shuffle: keys that an author computes, combiners, copies
    group_task      after it: a task's records, in order
    arranged        without a shuffle: a task reads the increment itself
    shared_out      the files of a record-wise stage

Resident workers run the last two as well (`cbp.engine.spark.worker_pool`).

Guaranteed: this code does not use the driver; a task reports JSON texts. A coded error
(`CbpError`) before the shuffle is carried in the text of an exception
(`cbp.engine.workers.carried_errors`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.file_slices import InputShare
from cbp.engine.columnar.key_hash import first_bucket
from cbp.engine.shuffle.combine import combined
from cbp.engine.shuffle.layout import COUNT, TO, FlowRoute, ShuffleLayout
from cbp.engine.shuffle.replicated_read import Replicate
from cbp.engine.shuffle.routing_keys import slot_columns
from cbp.engine.shuffle.several_destinations import copies
from cbp.engine.task.reports import TaskReport, encode
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.workers.carried_errors import carrying_errors
from cbp.model.author.decimals import author_decimals

RESULT = "body string"
PLACE = "_place"
"""Column of a record that several groups share: the first bucket of the task that gets it."""

_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Work = Callable[[int, str], list[str]]
"""Takes a task's number and the unique id of its attempt; returns what the task reports."""

_Numbered = Callable[[], list[str]]


def reported(reports: Iterable[TaskReport]) -> Iterator[pa.RecordBatch]:
    """Yield a task's reports as a row, which Spark sends to the driver."""
    yield pa.RecordBatch.from_pydict({"body": pa.array([encode(reports)], pa.string())})


def task_identity() -> tuple[int, str]:
    """Return this task's number, and an id that no retry or speculated twin shares."""
    context = TaskContext.get()
    assert context is not None, "this is not a Spark task"
    return context.partitionId(), f"{context.taskAttemptId():x}"


def group_task(plan: TaskPlan, kind: type[StageTask]) -> _Task:
    """Return the function that runs a task on its shuffled records."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, attempt = task_identity()
        yield from reported(kind(plan, part, attempt).run(batches))

    return run


def numbered(work: _Numbered, number: Iterable[int]) -> list[str]:
    """Do a task's work; the number that Spark sends is read but not used."""
    # Spark discards a worker that leaves part of its input unread, and the next run waits for a
    # new one.
    deque(number, maxlen=0)
    return work()


def nothing() -> list[str]:
    """Do no work; a worker that loads this function imports everything that a task needs."""
    return []


def nothing_in_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do no work, as a step of a DataFrame."""
    for _ in batches:
        pass
    yield from reported([])


def arranged(plan: TaskPlan, kind: type[StageTask], part: int, attempt: str) -> list[str]:
    """Read the complete increment and run one task's part of it."""
    return [encode(kind(plan, part, attempt).run_arranged())]


def shared_out(
    plan: TaskPlan, work: list[list[InputShare]], kind: type[StageTask], part: int, attempt: str
) -> list[str]:
    """Run one task's share of a record-wise stage's input."""
    return [encode(kind(plan, part, attempt).run_shares(work[part]))]


def as_task(work: Work) -> _Numbered:
    """Return the function that, in a Spark task, does that task's part of the work."""
    return lambda: work(*task_identity())


def _filled(
    table: pa.Table, route: FlowRoute, replicate: Replicate | None
) -> tuple[Mapping[str, Any], pa.Table]:
    """Return the slots of a batch's routed rows, and the record of each row."""
    if route.input.has_several:
        filled, records = copies(table, route)
        return (filled, records) if replicate is None else replicate(filled, records)
    if route.input.combine is None:
        return slot_columns(table, route), table
    fewer, counts = combined(table, route)
    return {**slot_columns(fewer, route), COUNT: counts}, fewer


def _for_every_task(copies: pa.Table, plan: TaskPlan) -> pa.Table:
    """Copy shared records for every task, into its first bucket; only one copy is counted."""
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
    """Return the function that computes one flow's slots and copies records for their groups."""
    layout = plan.layout
    assert layout is not None
    types = {slot: arrow_type(type_) for slot, type_ in layout.slots}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replicate = plan.replication()
        for batch in batches:
            arrived = pa.Table.from_batches([batch])
            with carrying_errors(), author_decimals():
                filled, table = _filled(arrived, plan.route(flow), replicate)
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
    """Return the columns of the shuffle as Spark DDL."""
    return ", ".join([*(f"{slot} {type_}" for slot, type_ in layout.slots), "_seq BIGINT"])
