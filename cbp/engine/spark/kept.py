"""Plans of Spark that are made once, and run again on whatever each run reads.

    run -> `PartRun` -> local property of its job -> leaves read, the settling task settles

Analysing, optimising and generating code take Spark longer than a small run's work, and the
Java compiler long to get used to. A plan whose leaves are Python tasks names no file, so the
plan of one run is that of the next.

Guaranteed: a task knows its run from the job that it belongs to, and from nothing else; a
retry, a twin, a run beside or a run before it cannot be mistaken for it. A plan is kept only if
running it again computes everything again (`runs_again`): Spark remembers the results of
shuffles, broadcasts and subqueries within a plan, and what the clock said when it was made.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, TaskContext, cloudpickle
from pyspark.sql import DataFrame

from cbp.engine.arrange import read_input
from cbp.engine.arrow import arrow_schema
from cbp.engine.taskplan import TaskPlan
from cbp.engine.vectorised.conform import narrow

__all__ = ["KeptPlan", "PartRun", "given_to", "own_records", "part_run", "runs_again"]

_RUN = "cbp.sql.run"
_BATCH_ROWS = 65_536

_LEAVES = {"Range", "LocalRelation", "OneRowRelation"}
_NODES = {
    "CoalesceExec",
    "ExpandExec",
    "FilterExec",
    "GenerateExec",
    "HashAggregateExec",
    "InputAdapter",
    "LocalTableScanExec",
    "MapInArrowExec",
    "ObjectHashAggregateExec",
    "ProjectExec",
    "RangeExec",
    "ShuffledHashJoinExec",
    "SortAggregateExec",
    "SortExec",
    "SortMergeJoinExec",
    "UnionExec",
    "WholeStageCodegenExec",
    "WindowExec",
}
_OTHER_NEXT_TIME = re.compile(
    r"\b(current_\w+|now|local\w+|unix_\w+|input_file_\w+|rand\w*|uuid|shuffle)\("
)


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that was made.

    Attributes:
        made_for: All that it depends on.
        frame: Its rows are what the settling task reports.
    """

    made_for: tuple[Any, ...]
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class PartRun:
    """One run of a part's plan.

    Attributes:
        part: The part's number among the tasks of the run.
        job: Names what its tasks write down for each other.
    """

    plan: TaskPlan
    part: int
    job: str


@contextmanager
def given_to(context: SparkContext, run: PartRun) -> Iterator[None]:
    """Give a run to the jobs that this thread starts meanwhile."""
    text = base64.b64encode(cloudpickle.dumps(run)).decode("ascii")
    context.setLocalProperty(_RUN, text)
    try:
        yield
    finally:
        context.setLocalProperty(_RUN, None)  # type: ignore[arg-type]  # that removes it


def part_run() -> PartRun:
    """Return what the job of this task was given."""
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task"
    text = context.getLocalProperty(_RUN)
    assert text is not None, "its job was given a run"
    found: PartRun = pickle.loads(base64.b64decode(text))
    return found


def own_records(plan: TaskPlan, input_: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of an input, whosever they are, in memory one file at a time."""
    spec = plan.spec.input(input_)
    for file in plan.inputs.get(input_, ()):
        table = read_input([file], spec).select(list(spec.schema.names))
        for piece in narrow(table, arrow_schema(spec.schema)):
            yield from piece.to_batches(max_chunksize=_BATCH_ROWS)


def runs_again(frame: DataFrame) -> bool:
    """Tell whether running the frame's plan once more computes all of it once more."""
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    if _OTHER_NEXT_TIME.search(analyzed.toString()) or analyzed.subqueriesAll().length():
        return False
    leaves = {leaf.nodeName() for leaf in _each(analyzed.collectLeaves())}
    return leaves <= _LEAVES and _kinds(execution.executedPlan()) <= _NODES


def _kinds(plan: Any) -> set[str]:
    found = {plan.getClass().getSimpleName()}
    return found.union(*(_kinds(child) for child in _each(plan.children())))


def _each(sequence: Any) -> Iterable[Any]:
    return (sequence.apply(at) for at in range(sequence.length()))
