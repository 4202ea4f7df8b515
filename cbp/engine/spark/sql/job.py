"""A run of a translator in Spark SQL: one Spark job, in which no row is a Python object.

    input files ------------------------------------------.
      |                                                    v
      '-> keys -> called groups, with their state -> the author's plan -> results
                            |                                               |
                            '------------------------------------> settle -'-> reports

A small increment, which would not be shuffled (`cbp.engine.shuffle.replicated_read`), is run in
parts: each is one task with a plan of its own over the keys that it owns, for which Spark shuffles
and broadcasts nothing. The views of a plan are named like inputs and states, so each part of a
stage has its own session. A larger increment is one plan. Spark shuffles the keys to the tasks that
find their state, whatever the author's plan asks for, and shuffles keys and results to the tasks
that settle. The first record of a task that finds state has the task's number.

Guaranteed: a batch has at most about `BATCH_BYTES_MAX`, or one record. A text wider than
`TEXT_BYTES_MAX` fails the plan before it is in a batch (`is_wide`); the stage then runs again with
bytes counted by Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession

from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.key_hash import first_bucket
from cbp.engine.interface.runs import RunPlan
from cbp.engine.spark.bucket_shuffle import (
    bucket_of,
    by_task,
    ddl,
    flow_of,
    hash_of,
    quoted,
    read,
    slot_expressions,
    within_slots,
)
from cbp.engine.spark.jobs import is_unreadable, jobs_of
from cbp.engine.spark.sql import sql_tasks
from cbp.engine.spark.sql.data_frames import RUN_COLUMNS, Frames, Results
from cbp.engine.spark.sql.lookup_task import NamedTable, named_tables
from cbp.engine.spark.sql.merge_aggregates import combined
from cbp.engine.spark.sql.plan_cache import KeptPlan, runs_again
from cbp.engine.spark.sql.query_check import mistakes_of
from cbp.engine.spark.sql.task_input import TaskInput
from cbp.engine.spark.sql.task_plans import with_called_keys, with_results
from cbp.engine.spark.tasks import RESULT
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import DataflowInvalidError, is_authors
from cbp.model.dataflow.call_rules import Fresh, refuse_returned
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.schema import DataType, Schema

TEXT_BYTES_MAX = 8 << 10
"""Wider texts are rare; if there are some, counting bytes costs little compared to them."""

BATCH_BYTES_MAX = 64 << 20
"""Spark's own default."""

_RECORDS_MAX = 65_536  # as in `cbp.engine.spark.session`
_TEXTS = ("STRING", "BINARY")
_WIDE = "|cbp-wide|"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNCOUNTED = (1 << 31) - 1  # the only value with which Spark computes no sizes


def batch_settings(flows: Iterable[Schema]) -> Mapping[str, str] | None:
    """Return Spark's batch settings for flows whose strings are kept short by `checked`.

    `None` if the width of a column is unknown: it is an array, a map or a struct.
    """
    types = [[field.type for field in flow.fields] for flow in flows]
    if any(type_.arguments for row in types for type_ in row):
        return None
    texts = max((sum(type_.kind in _TEXTS for type_ in row) for row in types), default=0)
    most = BATCH_BYTES_MAX // (TEXT_BYTES_MAX * max(1, texts))
    return {_RECORDS: str(max(1, min(_RECORDS_MAX, most))), _BYTES: str(_UNCOUNTED)}


def counted_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the batch settings of the service's session, with which Spark counts bytes."""
    conf = spark.sparkContext.getConf()
    defaults = {_RECORDS: str(_RECORDS_MAX), _BYTES: str(BATCH_BYTES_MAX)}
    return {name: conf.get(name, default) for name, default in defaults.items()}


def checked(value: str, type_: DataType) -> str:
    """Return an expression that yields the value, or fails if it is a text that is too long."""
    if type_.kind not in _TEXTS:
        return value
    fails = f"CAST(raise_error('{_WIDE}') AS {type_})"
    return f"IF(octet_length({value}) > {TEXT_BYTES_MAX}, {fails}, {value})"


def is_wide(exc: BaseException) -> bool:
    """Return whether a plan failed because a text was too long."""
    return _WIDE in str(exc)


# Errors of Spark for a query that is wrong, or that fails on some value.
_AUTHORS = (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


@dataclass(slots=True)
class SqlSession:
    """A Spark session for one part of one stage, with separate views.

    `optimised`: plans are optimised beyond what Spark does, see the package's README. `wide`: a
    plan has met a text that `cbp.engine.spark.sql.job` refuses.
    """

    spark: SparkSession
    optimised: bool = True
    wide: bool = False
    kept_plan: KeptPlan | None = None

    @classmethod
    def beside(cls, spark: SparkSession, *, optimised: bool = True) -> SqlSession:
        """Return a new session of the same application."""
        session = spark.newSession()
        # Spark does not know the size of a state that comes from Python. It assumes a small size,
        # and would broadcast the state through the driver for every join.
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        return cls(session, optimised)


def parts_of(task: TaskPlan, *, small: bool) -> list[int] | list[None]:
    """Return the tasks of a run that have separate plans; `[None]` if all share one plan."""
    return [*range(task.tasks)] if small else [None]


class SqlJob:
    """One run of a translator in SQL; `bodies` executes it. Each part has a separate session."""

    def __init__(
        self,
        sessions: Sequence[SqlSession],
        parts: Sequence[int | None],
        plan: RunPlan,
        task: TaskPlan,
    ) -> None:
        self._task = task
        job = uuid.uuid4().hex
        self._parts = [
            _Part(session, plan, task, part, job)
            for session, part in zip(sessions, parts, strict=True)
        ]

    def bodies(self, going: Callable[[], None]) -> list[str]:
        """Run the job; return the reports of its settling tasks, as JSON texts.

        `going` is called before each Spark job; it raises once the run is cancelled. Raises
        `AuthorCodeError` if the author's plan is wrong, or failed on some value.
        """
        try:
            try:
                return self._side_by_side(going)
            except _AUTHORS as exc:
                if not is_wide(exc):
                    raise
            for part in self._parts:
                part.session.wide = True
            return self._side_by_side(going)
        except _AUTHORS as exc:
            if is_unreadable(exc):  # a file's fault, not the query's
                raise
            raise author_error(exc, self._task.spec, stage=self._task.stage) from exc

    def _side_by_side(self, going: Callable[[], None]) -> list[str]:
        if len(self._parts) == 1:
            return self._parts[0].bodies(going)
        # Planning takes as long as a small task, so parts are planned in parallel.
        with ThreadPoolExecutor(len(self._parts), "cbp-sql") as threads:
            done = threads.map(partial(self._tagged, going), self._parts)
            return list(chain.from_iterable(done))

    def _tagged(self, going: Callable[[], None], part: _Part) -> list[str]:
        with jobs_of(part.session.spark.sparkContext, part.plan):  # all of this is per thread
            return part.bodies(going)


@dataclass(frozen=True, slots=True)
class _Part:
    """One task's part of a run, as a plan of one partition; or all tasks (`None`), in one plan."""

    session: SqlSession
    plan: RunPlan
    task: TaskPlan
    part: int | None
    job: str

    def bodies(self, going: Callable[[], None]) -> list[str]:
        """Run the plan: a new one, or the cached one of an earlier run."""
        for setting, value in self._settings().items():  # some are read while a plan runs
            self.session.spark.conf.set(setting, value)
        if self.part is None:
            return self._rows(self._made([]), going)
        run = TaskInput(self.task, self.part, self.job)
        # A plan made of queries alone names no files, so it may be used for other runs too.
        reused = self.session.optimised and self.task.spec.declared
        with sql_tasks.given_to(self.session.spark.sparkContext, run):
            return self._rows(self._reused_plan() if reused else self._made([]), going)

    def _rows(self, frame: DataFrame, going: Callable[[], None]) -> list[str]:
        going()
        return [row.body for row in frame.collect()]

    def _reused_plan(self) -> DataFrame:
        task = self.task
        # The function identifies the version of a stage: its code and its queries.
        plan_of = (task.spec, task.spec.translate, task.buckets, task.tasks, task.hash_mask)
        made_for = (*plan_of, self.part, self.session.wide)
        kept_plan = self.session.kept_plan
        if kept_plan is not None and kept_plan.made_for == made_for:
            return kept_plan.frame
        queries: list[str] = []
        frame = self._made(queries)
        if not runs_again(frame, queries):
            self.session.kept_plan = None
            return frame
        self.session.kept_plan = KeptPlan(made_for, combined(frame))
        return self.session.kept_plan.frame

    def _made(self, queries: list[str]) -> DataFrame:
        return self._settled(self._results(queries))

    def _settings(self) -> dict[str, str]:
        width = self.task.tasks if self.part is None else 1
        optimised = self.session.optimised
        return {
            "spark.sql.shuffle.partitions": str(width),
            # A run has about as many groups as records, so Spark's first-level hash map would
            # cost a fifth of the JVM's time and save nothing.
            "spark.sql.codegen.aggregate.map.twolevel.enabled": str(not optimised).lower(),
            **(self._uncounted or counted_settings(self.session.spark)),
        }

    @property
    def _uncounted(self) -> Mapping[str, str] | None:
        """Settings under which no bytes are counted; `None` if they must be counted."""
        spec = self.task.spec
        # The widths of shuffled keys, and of records for an author's Python code, are unchecked.
        if self.part is None or not spec.declared or self.session.wide:
            return None
        if not self.session.optimised:
            return None
        read = (*spec.authored, *(one.records for one in spec.lookups))
        schemas = (*(one.schema for one in read), *(o.schema for o in spec.emitted))
        return batch_settings(schemas)

    def _results(self, queries: list[str]) -> Results:
        stage, spec = self.task.stage, self.task.spec
        results = Results(spec, shared=self.session.optimised)
        frames = {input_.name: self._input(input_) for input_ in spec.inputs}
        try:
            frames |= self._states() | self._tables()
            frames |= self._named_tables(frames)
            given = Frames(self.session.spark, frames, queries)
            with Fresh(spec, stage=stage) as fresh:
                refuse_returned(fresh.spec.translate(given, results.out))
            if not spec.declared and not self.part:  # the code is the same in all parts
                mistakes = mistakes_of(self.session.spark, stage, spec, results, queries)
                if mistakes:  # other results when the run is repeated
                    raise DataflowInvalidError(self.plan.dataflow, mistakes)
        except BaseException as exc:
            if not is_authors(exc):
                raise
            raise author_error(exc, spec, stage=stage) from exc
        return results

    def _input(self, spec: InputSpec) -> DataFrame:
        if self.part is not None:  # the task reads the records itself
            return self._leaf(sql_tasks.read_task(spec.name), ddl(spec.schema))
        if not self._arrived(spec):
            return self.session.spark.createDataFrame([], ddl(spec.schema))
        most = self.task.limits.slices_per_expression
        frame = read(self.session.spark, self.plan, spec, slices_max=most)
        return within_slots(frame.select(*map(quoted, spec.schema.names)), self.plan)

    def _arrived(self, spec: InputSpec) -> bool:
        return any(increment.files for increment in self.plan.inputs.get(spec.name, ()))

    def _states(self) -> dict[str, DataFrame]:
        """Return the records of the called groups in states and looked-up tables, by name."""
        if self.part is None:
            keyed = with_called_keys(self.task)
            numbered = self._numbers(keyed).unionAll(self._called(keyed))
            keys = by_task(numbered, self.plan, keyed)
        else:  # the task reads the keys from the files itself; it needs one row to run
            keyed, keys = None, self._one_row()
        return {
            state.name: keys.mapInArrow(
                sql_tasks.look_up_task(keyed, state.name), ddl(state.schema)
            )
            for state in (*self.task.spec.authored, *self.task.spec.looked_up)
        }

    def _named_tables(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        if self.part is None:  # Spark finds them among all records of the called groups
            return {one.name: _named(one, frames) for one in named_tables(self.task.spec)}
        return {
            one.name: self._leaf(sql_tasks.named_task(one.name), ddl(one.state.schema))
            for one in named_tables(self.task.spec)
        }

    def _tables(self) -> dict[str, DataFrame]:
        """Return the tables that go to every group, and `run` if the author's code reads it."""
        plan = self.task if self.part is None else None
        tables = {
            one.name: self._leaf(sql_tasks.whole_table_task(plan, one.name), ddl(one.schema))
            for one in self.task.spec.looked_up_whole
        }
        if self.task.spec.gives_run:
            tables["run"] = self._leaf(sql_tasks.run_task(plan), RUN_COLUMNS)
        return tables

    def _one_row(self) -> DataFrame:
        return self.session.spark.range(0, 1, 1, 1)

    def _leaf(self, task: Any, columns: str) -> DataFrame:
        return self._one_row().mapInArrow(task, columns)

    def _called(self, task: TaskPlan) -> DataFrame:
        flows = [
            flow_of(self.session.spark, self.plan, task, at)
            for at, input_ in enumerate(self.task.spec.inputs)
            if self._arrived(input_)
        ]
        return reduce(DataFrame.unionAll, flows)

    def _numbers(self, task: TaskPlan) -> DataFrame:
        """Return one record per task that sorts before all others; its bucket gives the number.

        Spark's own partition number would be wrong: a union in the author's plan numbers the
        partitions of all its branches in one sequence.
        """
        assert task.layout is not None, "the plan has no layout of the keys"
        tasks, buckets = task.tasks, task.buckets
        firsts = [first_bucket(at, tasks=tasks, buckets=buckets) for at in range(tasks)]
        return self.session.spark.range(0, tasks, 1, 1).selectExpr(
            f"CAST({sql_tasks.NUMBERS} AS TINYINT) AS _flow",
            f"array({', '.join(map(str, firsts))})[id] AS _bucket",
            "0L AS _hash",
            *(f"CAST(NULL AS {type_}) AS {slot}" for slot, type_ in task.layout.slots),
            "0L AS _seq",
        )

    def _settled(self, results: Results) -> DataFrame:
        frames, given = results.distinct()
        task = with_results(self.task, frames, keys=self.part is None)
        assert task.layout is not None, "the plan has no layout of the results"
        first = len(task.layout.flows) - len(frames)
        laid = [self._laid_out(frame, task, first + at) for at, frame in enumerate(frames.values())]
        settle = sql_tasks.settle_task(task if self.part is None else None, [*frames], given)
        if self.part is None:
            frame = reduce(DataFrame.unionAll, [self._called(task), *laid])
            frame = by_task(frame, self.plan, task)
        elif laid:
            frame = reduce(DataFrame.unionAll, laid).coalesce(1)
        else:
            frame = self.session.spark.range(0, 0, 1, 1)
        return frame.mapInArrow(settle, RESULT)

    def _laid_out(self, frame: DataFrame, task: TaskPlan, flow: int) -> DataFrame:
        assert task.layout is not None, "the plan has no layout of the results"
        place = task.layout.flows[flow]
        slots = (task.layout, place, checked) if self._uncounted else (task.layout, place)
        if place.key:
            hash_ = hash_of(map(quoted, map(str, place.key)), task)
            bucket = bucket_of(hash_, task)
        elif self.part is None:  # an output may go to any task
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


def _named(table: NamedTable, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of a state whose keys occur in an input; a null equals a null."""
    records = frames[table.state.name]
    keys = frames[table.input.name].selectExpr(
        *(f"{quoted(name)} AS _{at}" for at, name in enumerate(table.theirs))
    )
    equal = [records[name].eqNullSafe(keys[f"_{at}"]) for at, name in enumerate(table.own)]
    return records.join(keys, equal, "left_semi")
