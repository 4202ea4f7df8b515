"""A run of a translator in Spark SQL: one Spark job, in which no row is a Python object.

    input files ------------------------------------------.
      |                                                    v
      '-> keys -> called groups, with their state -> the author's plan -> results
                            |                                               |
                            '------------------------------------> settle -'-> descriptors

An increment that would not be shuffled (`cbp.engine.arrange`) is worked on in parts: each
task has a plan of its own over the keys that it owns, a job of one partition, for which
Spark shuffles and broadcasts nothing by itself. Its first Python task reads the files and puts
its own records in order (`cbp.engine.vectorised.own`), for every use of an input and for the
look-up; the groups that this finds are there for every other use of a state, and for the
Python task that settles the results (`cbp.engine.vectorised.called`). Results that are one frame
are evaluated once.

A larger increment is one plan: Spark shuffles the keys to the tasks that find their state,
whatever the author's plan asks for, and keys and results to the tasks that settle. The first
record of a task that finds state tells which one it is.

Each part of a stage has a session of its own: its views are named like inputs and states. Where
the author's plan is made of queries alone, a part's plan is made once for all runs
(`cbp.engine.spark.kept`): what they read, its tasks learn when they run (`sqltasks`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame

from cbp.engine.base import RunPlan
from cbp.engine.call import author_error
from cbp.engine.layout import bucket_shift, first_bucket
from cbp.engine.spark.adjacent import combined
from cbp.engine.spark.executor import SparkExecutor, is_damage
from cbp.engine.spark.frames import Frames, Results
from cbp.engine.spark.increments import (
    by_task,
    ddl,
    flow_of,
    quoted,
    read,
    slot_expressions,
    within_slots,
)
from cbp.engine.spark.jobs import jobs_of
from cbp.engine.spark.kept import KeptPlan, runs_again
from cbp.engine.spark.sqltasks import (
    NUMBERS,
    PartRun,
    given_to,
    look_up_task,
    read_task,
    settle_task,
)
from cbp.engine.spark.widths import batch_settings, checked, counted_settings, is_wide
from cbp.engine.spark.work import RESULT
from cbp.engine.taskplan import TaskPlan
from cbp.engine.vectorised.arrived import with_called_keys, with_results
from cbp.model.stage import InputSpec

__all__ = ["SqlJob", "parts_of"]

# Raised for a query that is wrong, or fails on some value.
_AUTHORS = (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


def parts_of(executor: SparkExecutor, plan: RunPlan, task: TaskPlan) -> list[int] | list[None]:
    """Return the tasks of a run that have plans of their own; `[None]`: all have one."""
    return [*range(task.tasks)] if executor.is_small(plan, task) else [None]


class SqlJob:
    """One run; `bodies` executes it.

    Args:
        sessions: Executors on sessions that nobody else uses meanwhile, one per part.
        parts: See `parts_of`.
    """

    def __init__(
        self,
        sessions: Sequence[SparkExecutor],
        parts: Sequence[int | None],
        plan: RunPlan,
        task: TaskPlan,
    ) -> None:
        self._task = task
        job = uuid.uuid4().hex
        self._parts = [
            _Part(executor, plan, task, part, job)
            for executor, part in zip(sessions, parts, strict=True)
        ]

    def bodies(self, going: Callable[[], None]) -> list[str]:
        """Run the job; return what its settling tasks reported, as JSON texts.

        Args:
            going: Asked before Spark is given work; raises once the run is cancelled.

        Raises:
            AuthorCodeError: The author's plan is wrong, or failed on some value.
        """
        try:
            try:
                return self._side_by_side(going)
            except _AUTHORS as exc:
                if not is_wide(exc):
                    raise
            for part in self._parts:
                part.executor.wide = True
            return self._side_by_side(going)
        except _AUTHORS as exc:
            if is_damage(exc):  # of a file; no query did that
                raise
            raise author_error(exc, self._task.spec, stage=self._task.stage) from exc

    def _side_by_side(self, going: Callable[[], None]) -> list[str]:
        if len(self._parts) == 1:
            return self._parts[0].bodies(going)
        # Planning takes as long as a small task does, so parts are planned side by side.
        with ThreadPoolExecutor(len(self._parts), "cbp-sql") as threads:
            done = threads.map(partial(self._tagged, going), self._parts)
            return list(chain.from_iterable(done))

    def _tagged(self, going: Callable[[], None], part: _Part) -> list[str]:
        with jobs_of(part.executor.spark.sparkContext, part.plan):  # that belongs to a thread
            return part.bodies(going)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task owns, as a plan of one partition; or everything, as a plan of several.

    Attributes:
        part: The task; `None`: all of them.
        job: Names what the tasks of this run write down for each other.
    """

    executor: SparkExecutor
    plan: RunPlan
    task: TaskPlan
    part: int | None
    job: str

    def bodies(self, going: Callable[[], None]) -> list[str]:
        """Make the plan, or take the one of the run before, and run it.

        Returns:
            What its settling tasks reported.
        """
        for setting, value in self._settings().items():  # some matter when a plan runs, too
            self.executor.spark.conf.set(setting, value)
        if self.part is None:
            return self._rows(self._made([]), going)
        run = PartRun(self.task, self.part, self.job)
        with given_to(self.executor.spark.sparkContext, run):
            # Of queries, whose leaves name no files, it may be the plan of other runs, too.
            return self._rows(self._kept() if self.task.spec.declared else self._made([]), going)

    def _rows(self, frame: DataFrame, going: Callable[[], None]) -> list[str]:
        going()
        return [row.body for row in frame.collect()]

    def _kept(self) -> DataFrame:
        task = self.task
        # The function tells one version of a stage from another: its code, and its queries.
        plan_of = (task.spec, task.spec.translate, task.buckets, task.tasks, task.hash_mask)
        made_for = (*plan_of, self.part, self.executor.wide)
        kept = self.executor.kept
        if kept is not None and kept.made_for == made_for:
            return kept.frame
        queries: list[str] = []
        frame = self._made(queries)
        if not runs_again(frame, queries):
            self.executor.kept = None
            return frame
        self.executor.kept = KeptPlan(made_for, combined(frame))
        return self.executor.kept.frame

    def _made(self, queries: list[str]) -> DataFrame:
        """Make the plan; add the author's queries to a list."""
        return self._settled(self._results(queries))

    def _settings(self) -> dict[str, str]:
        width = self.task.tasks if self.part is None else 1
        return {
            "spark.sql.shuffle.partitions": str(width),
            # A run has about as many groups as records: a small map before the large one, for
            # the groups that come first, then costs a fifth of the JVM's time and saves nothing.
            "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
            **(self._uncounted or counted_settings(self.executor.spark)),
        }

    @property
    def _uncounted(self) -> Mapping[str, str] | None:
        """Settings under which no bytes are counted; `None` where they must be."""
        spec = self.task.spec
        # Keys that are shuffled, and what an author's Python takes, nobody checks.
        if self.part is None or not spec.declared or self.executor.wide:
            return None
        schemas = (*(s.schema for s in spec.states), *(o.schema for o in spec.outputs))
        return batch_settings(schemas)

    def _results(self, queries: list[str]) -> Results:
        """Return the frame that the author's plan gives for every output and state."""
        spec, results = self.task.spec, Results(self.task.spec)
        frames = {input_.name: self._input(input_) for input_ in spec.inputs}
        try:
            given = Frames(self.executor.spark, frames | self._states(), queries)
            spec.translate(given, results.out)
        except Exception as exc:
            raise author_error(exc, spec, stage=self.task.stage) from exc
        return results

    def _input(self, spec: InputSpec) -> DataFrame:
        if self.part is not None:  # the task reads them itself
            return self._one_row().mapInArrow(read_task(spec.name), ddl(spec.schema))
        if not self._arrived(spec):
            return self.executor.spark.createDataFrame([], ddl(spec.schema))
        frame = read(self.executor.spark, self.plan, spec)
        return within_slots(frame.select(*map(quoted, spec.schema.names)), self.plan)

    def _arrived(self, spec: InputSpec) -> bool:
        return any(increment.files for increment in self.plan.inputs.get(spec.name, ()))

    def _states(self) -> dict[str, DataFrame]:
        """Return the state records of the called groups, by state."""
        if self.part is None:
            keyed = with_called_keys(self.task)
            told = self._numbers(keyed).unionAll(self._called(keyed))
            keys = by_task(told, self.plan, keyed)
        else:  # read from their files by the task itself, which is one row's
            keyed, keys = None, self._one_row()
        return {
            state.name: keys.mapInArrow(look_up_task(keyed, state.name), ddl(state.schema))
            for state in self.task.spec.states
        }

    def _one_row(self) -> DataFrame:
        return self.executor.spark.range(0, 1, 1, 1)

    def _called(self, task: TaskPlan) -> DataFrame:
        """Return the keys of all inputs, in the layout of a plan that begins with them."""
        flows = [
            flow_of(self.executor.spark, self.plan, task, at)
            for at, input_ in enumerate(self.task.spec.inputs)
            if self._arrived(input_)
        ]
        return reduce(DataFrame.unionAll, flows)

    def _numbers(self, task: TaskPlan) -> DataFrame:
        """Return one record for each task, before all others: its bucket tells which task it is.

        Spark does not: where the author's plan has a union, its tasks count through all of it.
        """
        assert task.layout is not None, "keys are laid out"
        tasks, buckets = task.tasks, task.buckets
        firsts = [first_bucket(at, tasks=tasks, buckets=buckets) for at in range(tasks)]
        return self.executor.spark.range(0, tasks, 1, 1).selectExpr(
            f"CAST({NUMBERS} AS TINYINT) AS _flow",
            f"array({', '.join(map(str, firsts))})[id] AS _bucket",
            "0L AS _hash",
            *(f"CAST(NULL AS {type_}) AS {slot}" for slot, type_ in task.layout.slots),
            "0L AS _seq",
        )

    def _settled(self, results: Results) -> DataFrame:
        frames, given = results.distinct()
        task = with_results(self.task, frames, keys=self.part is None)
        assert task.layout is not None, "results are laid out"
        first = len(task.layout.flows) - len(frames)
        laid = [self._laid_out(frame, task, first + at) for at, frame in enumerate(frames.values())]
        settle = settle_task(task if self.part is None else None, [*frames], given)
        if self.part is None:
            frame = reduce(DataFrame.unionAll, [self._called(task), *laid])
            frame = by_task(frame, self.plan, task)
        elif laid:
            frame = reduce(DataFrame.unionAll, laid).coalesce(1)
        else:
            frame = self.executor.spark.range(0, 0, 1, 1)
        return frame.mapInArrow(settle, RESULT)

    def _laid_out(self, frame: DataFrame, task: TaskPlan, flow: int) -> DataFrame:
        """Return a result in the layout of the settling tasks."""
        assert task.layout is not None, "results are laid out"
        place = task.layout.flows[flow]
        slots = (task.layout, place, checked) if self._uncounted else (task.layout, place)
        if place.key:
            keys = [str(source) for source in place.key]
            hash_, bucket = hash_of(keys, task), bucket_of(keys, task)
        elif self.part is None:  # an output goes to any task; its partition is as good as any
            hash_, bucket = "0L", f"pmod(spark_partition_id(), {task.buckets})"
        else:
            first = first_bucket(self.part, tasks=task.tasks, buckets=task.buckets)
            hash_, bucket = "0L", str(first)
        return frame.selectExpr(
            f"CAST({flow} AS TINYINT) AS _flow",
            f"CAST({bucket} AS INT) AS _bucket",
            f"{hash_} AS _hash",
            *slot_expressions(*slots),
            "0L AS _seq",
        )


def hash_of(columns: Sequence[str], task: TaskPlan) -> str:
    """Return the hash of a key, as an expression."""
    hash_ = f"xxhash64({', '.join(map(quoted, columns))})"
    return hash_ if task.hash_mask == -1 else f"({hash_} & {task.hash_mask}L)"


def bucket_of(columns: Sequence[str], task: TaskPlan) -> str:
    """Return the bucket of a key, as an expression."""
    return f"shiftrightunsigned({hash_of(columns, task)}, {bucket_shift(task.buckets)})"
