"""Python tasks around a plan in SQL: they read inputs, look up state and settle results.

    job -> `TaskInput` -> read_task, look_up_task -> the author's plan -> settle_task

Guaranteed: a task of a plan of one part learns its run only from a property of its Spark job. So
it cannot mistake a retry, a twin, a concurrent run or an earlier run for its own. Tasks that are
made without a plan are of this kind.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
from pyspark import SparkContext, TaskContext, cloudpickle

from cbp.engine.spark.sql.data_frames import run_record
from cbp.engine.spark.sql.lookup_task import LookUpTask
from cbp.engine.spark.sql.settle_task import SettleTask
from cbp.engine.spark.sql.task_input import TaskInput
from cbp.engine.spark.sql.task_plans import with_results
from cbp.engine.spark.tasks import reported, task_identity
from cbp.engine.state.index_cache import index_cache
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import read_whole_table
from cbp.engine.workers.carried_errors import carrying_errors

NUMBERS = -1
"""Flow number of the record that has a task's number; it sorts before all others."""

_RUN = "cbp.sql.run"
"""Property of a Spark job with its `TaskInput`."""

_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@contextmanager
def given_to(context: SparkContext, run: TaskInput) -> Iterator[None]:
    """Attach a run to the Spark jobs that this thread starts inside the context."""
    packed: bytes = cloudpickle.dumps(run)  # type: ignore[no-untyped-call]
    text = base64.b64encode(packed).decode("ascii")
    context.setLocalProperty(_RUN, text)
    try:
        yield
    finally:
        context.setLocalProperty(_RUN, None)  # type: ignore[arg-type]  # that removes it


def _own() -> TaskInput:
    context = TaskContext.get()
    assert context is not None, "this is not a Spark task"
    text = context.getLocalProperty(_RUN)
    assert text is not None, "the task's job has no run: see `given_to`"
    own: TaskInput = pickle.loads(base64.b64decode(text))
    return own


def _leaf(records: Callable[[], Iterable[pa.RecordBatch]]) -> _Task:
    """Return the Spark task that yields some records, whatever arrives."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # Spark discards a worker that leaves input unread
            pass
        with carrying_errors():
            yield from records()

    return run


def read_task(input_: str) -> _Task:
    """Return the Spark task that reads the records of one input, for one part of a stage."""
    return _leaf(lambda: _own().records(input_))


def look_up_task(plan: TaskPlan | None, state: str) -> _Task:
    """Return the Spark task that looks up state; with a plan, by the keys that arrive."""
    if plan is None:
        return _leaf(lambda: LookUpTask.of(_own()).own_records(state))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying_errors():
            part, keys = _numbered(plan, batches)
            yield from LookUpTask(plan, part).records(state, keys)

    return run


def named_task(name: str) -> _Task:
    """Return the Spark task that finds the records of a `NamedTable`, for its job's part."""
    return _leaf(lambda: LookUpTask.of(_own()).own_named(name))


def whole_table_task(plan: TaskPlan | None, name: str) -> _Task:
    """Return the Spark task that reads all records of a looked-up table."""

    def records() -> Iterable[pa.RecordBatch]:
        task = plan or _own().plan
        spec = next(one for one in task.spec.looked_up_whole if one.name == name)
        cache = index_cache(task.cache, task.limits)
        table = read_whole_table(spec, task.lookups[name], cache)
        batches: list[pa.RecordBatch] = table.to_batches()
        return batches

    return _leaf(records)


def run_task(plan: TaskPlan | None) -> _Task:
    """Return the Spark task that yields the facts about a run as one record."""

    def records() -> Iterable[pa.RecordBatch]:
        task = plan or _own().plan
        return [run_record(task.spec, task.context)]

    return _leaf(records)


def settle_task(plan: TaskPlan | None, results: Sequence[str], given: dict[str, str]) -> _Task:
    """Return the Spark task that settles the results that arrive; without a plan, for one part."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, attempt = task_identity()
        if plan is not None:
            task = SettleTask(plan, number, attempt, given=given)
        else:
            own = _own()
            settled = with_results(own.plan, results, keys=False)
            look_up = LookUpTask.of(own)
            task = SettleTask(settled, own.part, attempt, given=given, look_up=look_up)
        yield from reported(task.run(batches))

    return run


def _numbered(
    plan: TaskPlan, batches: Iterable[pa.RecordBatch]
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """Return the task's number from the first record, and the keys that follow it."""
    arriving = (batch for batch in batches if batch.num_rows)
    first = next(arriving)
    assert first.column("_flow")[0].as_py() == NUMBERS, "the first record is not the task's number"
    part = plan.owner(first.column("_bucket")[0].as_py())
    return part, chain([first.slice(1)], arriving)
