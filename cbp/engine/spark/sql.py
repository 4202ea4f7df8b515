"""A run of a translator in Spark SQL: one Spark job, in which no row is a Python object.

    input files --------------------------.
      |                                    v
      '-> keys -> by bucket -> look-up -> state -> the author's plan -> results by flow
            |                                                              |
            '---------------------------------------> by bucket -> settle -'-> descriptors

Keys reach two Python tasks as Arrow batches: one finds the state of the called groups in
its index, the other settles what the plan gave (`cbp.engine.vectorised.arrived`). With a
single task nothing is shuffled for them.

Each stage has a session of its own: its views are named like its inputs and states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cbp.engine.base import RunPlan
from cbp.engine.call import author_error
from cbp.engine.layout import bucket_shift
from cbp.engine.spark.executor import (
    SparkExecutor,
    ddl,
    owner,
    quoted,
    slot_expressions,
    sorted_within,
)
from cbp.engine.spark.work import RESULT, reported, task_identity
from cbp.engine.taskplan import TaskPlan
from cbp.engine.vectorised.arrived import LookUpTask, SettleTask, with_called_keys, with_results
from cbp.model.schema import Schema
from cbp.model.stage import InputSpec

__all__ = ["SqlJob"]

# Raised for a query that is wrong, or fails on some value.
_AUTHORS = (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


class SqlJob:
    """One run; `bodies` executes it.

    Args:
        executor: On a session that nobody else uses at the same time.
    """

    def __init__(self, executor: SparkExecutor, plan: RunPlan, task: TaskPlan) -> None:
        self._executor, self._session = executor, executor.spark
        self._plan, self._task = plan, task
        # The only task, or each of some tasks, makes a plan of its own over what it owns: such
        # a plan has a single partition, and Spark shuffles nothing for it.
        apart = task.tasks == 1 or executor.is_small(plan, task)
        self._parts: list[int | None] = [*range(task.tasks)] if apart else [None]

    def bodies(self) -> list[str]:
        """Run the job; return what its settling tasks reported, as JSON texts.

        Raises:
            AuthorCodeError: The author's plan is wrong, or failed on some value.
        """
        width = 1 if len(self._parts) == self._task.tasks else self._task.tasks
        self._session.conf.set("spark.sql.shuffle.partitions", str(width))
        try:
            jobs = [self._settled(part, self._results(part)) for part in self._parts]
            # As RDDs: a union of frames of one partition each would be one task.
            every = self._session.sparkContext.union([job.rdd for job in jobs])
            return [row.body for row in every.collect()]
        except _AUTHORS as exc:
            raise author_error(exc, self._task.spec, stage=self._task.stage) from exc

    def _results(self, part: int | None) -> dict[str, DataFrame]:
        """Return the frame that the author's plan gives for every output and state."""
        spec, results = self._task.spec, _Results(self._task)
        inputs = {input_.name: self._input(input_, part) for input_ in spec.inputs}
        try:
            spec.translate(_Frames(self._session, {**inputs, **self._states(part)}), results.out)
        except Exception as exc:
            raise author_error(exc, spec, stage=self._task.stage) from exc
        return results.frames

    def _input(self, spec: InputSpec, part: int | None) -> DataFrame:
        if not any(i.files for i in self._plan.inputs.get(spec.name, ())):
            return self._session.createDataFrame([], ddl(spec.schema))
        frame = self._executor.read(self._plan, spec).select(*map(quoted, spec.schema.names))
        assert isinstance(spec.route_by, tuple), "routed by columns"
        return self._owned(frame, part, bucket_of(spec.route_by, self._task))

    def _states(self, part: int | None) -> dict[str, DataFrame]:
        """Return the state records of the called groups, by state."""
        keyed = with_called_keys(self._task)
        assert keyed.layout is not None, "keys are laid out"
        keys = self._by_bucket(self._owned(self._called(keyed), part), part)
        keys = sorted_within(keys, keyed.layout)
        return {
            state.name: keys.mapInArrow(_look_up_task(keyed, state.name), ddl(state.schema))
            for state in self._task.spec.states
        }

    def _called(self, task: TaskPlan) -> DataFrame:
        """Return the keys of all inputs, in the layout of a plan that begins with them."""
        flows = [
            self._executor.flow(self._plan, task, at, task.hash_mask)
            for at, input_ in enumerate(self._task.spec.inputs)
            if any(i.files for i in self._plan.inputs.get(input_.name, ()))
        ]
        return reduce(DataFrame.unionAll, flows)

    def _settled(self, part: int | None, results: Mapping[str, DataFrame]) -> DataFrame:
        task = with_results(self._task)
        assert task.layout is not None, "results are laid out"
        frame, first = self._called(task), len(self._task.spec.inputs)
        frame = self._owned(frame, part)
        states = [state.name for state in self._task.spec.states]
        for at, flow in enumerate([*states, *(o.name for o in self._task.spec.outputs)]):
            if flow in results:
                frame = frame.unionAll(_laid_out(results[flow], task, first + at, part))
        frame = sorted_within(self._by_bucket(frame, part), task.layout)
        return frame.mapInArrow(_settle_task(task), RESULT)

    def _by_bucket(self, frame: DataFrame, part: int | None) -> DataFrame:
        if part is not None:
            return frame.coalesce(1)
        return frame.repartitionById(self._task.tasks, F.expr(owner(self._task)))

    def _owned(self, frame: DataFrame, part: int | None, bucket: str = "_bucket") -> DataFrame:
        """Return what a part owns, in one partition; everything if there are no parts."""
        if part is None:
            return frame
        if self._task.tasks > 1:
            frame = frame.where(f"{owner(self._task, bucket)} = {part}")
        return frame.coalesce(1)


class _Frames:
    """What the author's plan is made from; see `cbp.sdk.forms.TranslateSql`."""

    def __init__(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self._session, self._names = session, tuple(frames)
        for name, frame in frames.items():
            setattr(self, name, frame)
            self.define(name, frame)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no input {name!r}; there is {', '.join(self.__dict__['_names'])}"
        raise AttributeError(message)

    def define(self, name: str, frame: DataFrame) -> None:
        """Let later queries read a frame by a name."""
        frame.createOrReplaceTempView(name)

    def sql(self, text: str) -> DataFrame:
        """Return the frame of a query."""
        return self._session.sql(text)


class _Results:
    """Takes the frame of every output and state, checked against its declaration."""

    def __init__(self, task: TaskPlan) -> None:
        self.frames: dict[str, DataFrame] = {}
        self.out = _Namespace()
        schemas = {output.name: output.schema for output in task.spec.outputs}
        schemas |= {state.name: state.schema for state in task.spec.states}
        for name, schema in schemas.items():
            setattr(self.out, name, partial(self._take, name, schema))

    def _take(self, flow: str, schema: Schema, frame: DataFrame) -> None:
        frame = _conformed(flow, schema, frame)
        before = self.frames.get(flow)
        self.frames[flow] = frame if before is None else before.unionAll(frame)


class _Namespace:
    """An object whose attributes are set by name."""


def _conformed(flow: str, schema: Schema, frame: DataFrame) -> DataFrame:
    """Return the declared columns, in their order.

    Raises:
        TypeError: Columns or types are not the declared ones.
    """
    if sorted(frame.columns) != sorted(schema.names):
        came = ", ".join(frame.columns)
        message = f"out.{flow}: the columns are {', '.join(schema.names)}; got {came}"
        raise TypeError(message)
    declared: Any = StructType.fromDDL(
        ", ".join(f"{quoted(f.name)} {f.type}" for f in schema.fields)
    )
    for field, wanted in zip(schema.fields, declared.fields, strict=True):
        found = frame.schema[field.name].dataType.simpleString()
        if found not in (wanted.dataType.simpleString(), "void"):
            message = (
                f"out.{flow}: column {field.name!r} is declared {field.type}, got "
                f"{found.upper()}; write CAST(... AS {field.type})"
            )
            raise TypeError(message)
    return frame.selectExpr(
        *(f"CAST({quoted(f.name)} AS {f.type}) AS {quoted(f.name)}" for f in schema.fields)
    )


def hash_of(columns: Sequence[str], task: TaskPlan) -> str:
    """Return the hash of a key, as an expression."""
    hash_ = f"xxhash64({', '.join(map(quoted, columns))})"
    return hash_ if task.hash_mask == -1 else f"({hash_} & {task.hash_mask}L)"


def bucket_of(columns: Sequence[str], task: TaskPlan) -> str:
    """Return the bucket of a key, as an expression."""
    return f"shiftrightunsigned({hash_of(columns, task)}, {bucket_shift(task.buckets)})"


def _laid_out(frame: DataFrame, task: TaskPlan, flow: int, part: int | None) -> DataFrame:
    """Return a result in the layout of the settling tasks."""
    assert task.layout is not None, "results are laid out"
    place = task.layout.flows[flow]
    if place.key:
        keys = [str(source) for source in place.key]
        hash_, bucket = hash_of(keys, task), bucket_of(keys, task)
    elif part is None:  # an output goes to any task; its partition is as good as any
        hash_, bucket = "0L", f"pmod(spark_partition_id(), {task.buckets})"
    else:
        hash_, bucket = "0L", str(-(-part * task.buckets // task.tasks))
    return frame.selectExpr(
        f"CAST({flow} AS TINYINT) AS _flow",
        f"CAST({bucket} AS INT) AS _bucket",
        f"{hash_} AS _hash",
        *slot_expressions(task.layout, place),
        "0L AS _seq",
    )


# what runs in the workers

_Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _look_up_task(plan: TaskPlan, state: str) -> _Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, attempt = task_identity()
        yield from LookUpTask(plan, part, attempt).records(state, batches)

    return run


def _settle_task(plan: TaskPlan) -> _Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part, attempt = task_identity()
        yield from reported(SettleTask(plan, part, attempt).run(batches))

    return run
