"""One run as one Spark job: read, route, put each bucket's records into its task, translate.

A large increment is shuffled:

    flow files -> slots (JVM, or Python where the author computes a key) -> union
      -> repartition by task -> sort within task -> mapInArrow(StageTask) -> descriptors

A small one is read by every task (`cbp.engine.arrange`). That saves the shuffle and all
planning: such a job is a plain RDD of task numbers, which costs half of what an empty
DataFrame does. State never moves: a task opens its buckets' files itself.
Tasks return descriptors of what they wrote, as rows; a partition's rows reach the
driver once, so whatever a retried or speculated twin wrote is named by nobody.

What varies from run to run (paths, live files) never enters generated code, so Spark
compiles a stage's code once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cbp.engine.base import RunPlan
from cbp.engine.destinations import EPOCH
from cbp.engine.layout import (
    SEQUENCE_BITS,
    FlowLayout,
    ShuffleLayout,
    bucket_shift,
)
from cbp.engine.records import record_shares
from cbp.engine.route import computes, sql_column, sql_columns
from cbp.engine.spark.expressions import Expressions, failed_expression
from cbp.engine.spark.jobs import jobs_of, starved
from cbp.engine.spark.kept import KeptPlan
from cbp.engine.spark.placement import Placement
from cbp.engine.spark.resident import Residents
from cbp.engine.spark.session import require_safe
from cbp.engine.spark.work import (
    PLACE,
    RESULT,
    Work,
    arranged,
    as_task,
    group_task,
    nothing,
    nothing_in_arrow,
    numbered,
    route_task,
    shared_out,
    slots_ddl,
    told_error,
)
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.errors import (
    CbpError,
    IncrementDamagedError,
    OperatingError,
    RunCancelledError,
)
from cbp.model.dataflow import StageNode
from cbp.model.increment import DataFile
from cbp.model.schema import DataType
from cbp.model.stage import InputSpec

__all__ = [
    "SparkExecutor",
    "ddl",
    "is_damage",
    "quoted",
    "slot_expressions",
    "within_slots",
]

ARRANGED_READS_MAX = 4_000_000
"""Records times tasks up to which every task reads the whole increment; beyond, Spark shuffles.

Measured with two tasks on two cores: 100 k records take 0.59 s so and 1.05 s shuffled, 1 M take
4.4 and 6.4 s. Every task reads everything, so with many tasks the shuffle is the better way.
"""

ARRANGED_BYTES_MAX = 64 << 20
"""Bytes of an increment's files up to which a task may hold all of it."""

SLICES_MAX = 200
"""Slices of files that one expression numbers; with more of them it grows slow."""

_EXECUTOR_ENV = "spark.executorEnv."
_DAMAGED = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "is not a Parquet file")


class SparkExecutor:
    """Carries out the tasks of a run on Spark; see the module header.

    Args:
        spark: The session.
        kind: What a task is.
        resident_workers: At most so many processes beside a local Spark do small runs without
            a job.

    Attributes:
        wide: Whether a plan of its session met a text that `cbp.engine.spark.widths` refuses.
        kept: The plan of its session that may be run again.

    Raises:
        SparkSettingError: If the session does not compare what a retried stage gives.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        kind: type[StageTask] = StageTask,
        resident_workers: int = 0,
    ) -> None:
        require_safe(spark)
        self.spark, self._kind = spark, kind
        self.wide = False
        self.kept: KeptPlan | None = None
        self._cancelled: set[str] = set()
        self._placement = Placement(spark.sparkContext)
        most = min(resident_workers, self.slots) if self._placement.is_local else 0
        self.residents = Residents(most, _environment(spark))
        self._expressions = Expressions(spark)
        self._sessions: dict[tuple[str, str], list[SparkExecutor]] = {}

    @property
    def slots(self) -> int:
        """Tasks that Spark runs at the same time."""
        return self.spark.sparkContext.defaultParallelism

    @property
    def arranged_max(self) -> tuple[int, int]:
        """Records times tasks, and bytes, up to which a run is not shuffled."""
        return ARRANGED_READS_MAX, ARRANGED_BYTES_MAX

    def warm_up(self) -> None:
        """Start every slot's Python worker and let it import the task's code.

        The first arrival would otherwise wait some seconds for that.
        """
        self._run_numbered(self.slots, nothing)
        frame = self.spark.range(0, self.slots, 1, self.slots)
        frame.mapInArrow(nothing_in_arrow, RESULT).collect()

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for keys in SQL that Spark does not take."""
        self._expressions.check(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the job and return what its tasks reported."""
        try:
            with jobs_of(self.spark.sparkContext, plan):
                self._require_going(plan.run)  # before this job, or between two of its run
                bodies = self._bodies(plan, task)
        except Exception as exc:
            raise self._coded(exc, plan) from exc
        finally:
            self._cancelled.discard(plan.run)
        return [json.loads(body) for body in bodies]

    def _bodies(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        """Run the job; return what its tasks reported, as JSON texts."""
        if task.spec.record_wise:
            work = record_shares(plan, plan.slots_of(self.slots))
            own = partial(shared_out, task, work, self._kind)
            return self._without_shuffle(plan, task, len(work), own)
        if task.spec.form == "sql":
            from cbp.engine.spark.sql import SqlJob, parts_of  # they rest on this module

            parts = parts_of(self, plan, task)
            job = SqlJob(self._beside(plan, len(parts)), parts, plan, task)
            return job.bodies(partial(self._require_going, plan.run))
        task = self._placed(plan, task)
        if not self._shuffles(plan, task):
            own = partial(arranged, task, self._kind)
            return self._without_shuffle(plan, task, task.tasks, own)
        frame = self._shuffled(plan, task).mapInArrow(group_task(task, self._kind), RESULT)
        return [row.body for row in frame.collect()]

    def _require_going(self, run: str) -> None:
        if run in self._cancelled:
            raise RunCancelledError(run)

    def _beside(self, plan: RunPlan, count: int) -> list[SparkExecutor]:
        """Return executors for one stage in sessions of its own, with views of their own."""
        kept = self._sessions.setdefault((plan.folder, plan.node.name), [])
        for _ in range(count - len(kept)):
            session = self.spark.newSession()
            # How large a state is that comes from Python Spark does not know: it takes it to be
            # some bytes, and would send it through the driver to every join.
            session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
            kept.append(SparkExecutor(session))
        return kept[:count]

    def is_small(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Tell whether every task had better read the whole increment than Spark shuffle it."""
        increments = [i for many in plan.inputs.values() for i in many]
        if any(i.records for i in increments) and any(one.in_sql for one in task.spec.inputs):
            return False  # only Spark evaluates it, and only on its way to the shuffle
        return _are_few([file for increment in increments for file in increment.files], task)

    def _placed(self, plan: RunPlan, task: TaskPlan) -> TaskPlan:
        """Return the task without messages of which too many lie as they were emitted."""
        few = {name for name in task.in_place if _are_few(_loose(plan, task, name), task)}
        return task if few == task.in_place else replace(task, in_place=frozenset(few))

    def _shuffles(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Tell whether Spark has anything to shuffle; never what is read in place."""
        others = [one for one in task.spec.inputs if one.name not in task.in_place]
        came = [one for one in others if any(i.files for i in plan.inputs.get(one.name, ()))]
        loose = [file for name in plan.inputs for file in _loose(plan, task, name)]
        return bool(came) and (
            any(one.in_sql for one in task.spec.inputs) or not _are_few(loose, task)
        )

    def _without_shuffle(self, plan: RunPlan, task: TaskPlan, tasks: int, work: Work) -> list[str]:
        """Let resident workers do a small run, or run a job."""
        if self.is_small(plan, task):
            attempt, going = f"r{uuid.uuid4().hex[:12]}", partial(self._require_going, plan.run)
            found = self.residents.reports(plan.run, work, tasks, attempt=attempt, going=going)
            if found is not None:
                return found
        return self._run_numbered(tasks, as_task(work))

    def _run_numbered(self, tasks: int, work: Callable[[], list[str]]) -> list[str]:
        """Run so many tasks that find out from their number what to do."""
        numbers = self._placement.numbers(tasks)
        bodies: list[str] = self.spark.sparkContext.runJob(numbers, partial(numbered, work))
        return bodies

    def cancel(self, run: str) -> None:
        """Interrupt the job of a run, and the workers that do it without one."""
        self._cancelled.add(run)
        self.residents.cancel(run)
        self.spark.sparkContext.cancelJobsWithTag(run)

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return those of these runs whose jobs all wait for a slot."""
        return starved(self.spark.sparkContext, runs)

    def forget(self, folder: str) -> None:
        """Drop the sessions of a folder's stages."""
        for stage in [stage for stage in self._sessions if stage[0] == folder]:
            del self._sessions[stage]

    def close(self) -> None:
        """Stop the workers and the session."""
        self.residents.close()
        self.spark.stop()

    def _coded(self, exc: Exception, plan: RunPlan) -> CbpError:
        if plan.run in self._cancelled:
            return RunCancelledError(plan.run)
        if isinstance(exc, CbpError):
            return exc
        text = str(exc)
        if (told := told_error(text)) is not None:
            return told
        if (failed := failed_expression(plan.node, text)) is not None:
            return failed
        if is_damage(exc):
            names = ", ".join(i.name for many in plan.inputs.values() for i in many)
            expected = sum(i.records for many in plan.inputs.values() for i in many)
            return IncrementDamagedError(names, expected=expected, found=text[:500])
        return OperatingError(
            f"the Spark job of run {plan.run} failed: {text[:2000]}", run=plan.run
        )

    def _shuffled(self, plan: RunPlan, task: TaskPlan) -> DataFrame:
        """Return all flows in the layout of the shuffle, each task's records in order."""
        layout = task.layout
        assert layout is not None
        frames = [
            self.flow(plan, task, flow, task.hash_mask)
            for flow in range(len(layout.flows))
            if any(i.files for i in plan.inputs.get(layout.flows[flow].name, ()))
            and layout.flows[flow].name not in task.in_place
        ]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionAll(other)
        frame = within_slots(frame, plan)
        frame = frame.repartitionById(task.tasks, F.expr(owner(task)))
        return sorted_within(frame, layout)

    def read(self, plan: RunPlan, input_: InputSpec) -> DataFrame:
        """Return an input's records as its files hold them, with `_seq`, their position."""
        files = [file for increment in plan.inputs[input_.name] for file in increment.files]
        if all(file.whole for file in files):
            # Of the output increments, by the files' names: a frame has a number of its own.
            numbers = {int(file.path.rpartition("/")[2][:12]) for file in files}
            return self._files(plan, input_, files, _sequence(min(numbers), len(numbers) > 1))
        before = list(accumulate((file.rows for file in files), initial=0))
        parts = (
            self._files(plan, input_, part, _sliced(part, before[at])).where("_seq IS NOT NULL")
            for at in range(0, len(files), SLICES_MAX)
            for part in [files[at : at + SLICES_MAX]]
        )
        return reduce(DataFrame.unionAll, parts)

    def _files(
        self, plan: RunPlan, input_: InputSpec, files: Sequence[DataFile], sequence: str
    ) -> DataFrame:
        """Return the records of some files, with this expression as `_seq`."""
        paths = dict.fromkeys(f"{plan.folder}/{file.path}" for file in files)
        names, found = [quoted(name) for name in input_.schema.names], ddl(input_.schema)
        if input_.loopback and input_.has_several:
            names, found = [*names, EPOCH], f"{found}, {EPOCH} BIGINT"
        in_sql = [f"({text}) AS {column}" for column, text in sql_columns(input_).items()]
        # A path is a path: brackets or stars in a folder's name are no pattern.
        reader = self.spark.read.option("__globPaths__", "false").schema(found)
        return reader.parquet(*paths).selectExpr(*names, *in_sql, f"{sequence} AS _seq")

    def flow(self, plan: RunPlan, task: TaskPlan, flow: int, hash_mask: int) -> DataFrame:
        """Return one flow's records in the layout of the shuffle."""
        layout, input_ = task.layout, task.spec.inputs[flow]
        assert layout is not None
        frame = self.read(plan, input_)
        place = layout.flows[flow]
        in_python = computes(input_) or input_.combine is not None
        if in_python:
            several = f", {PLACE} INT" if input_.has_several else ""
            frame = frame.mapInArrow(route_task(task, flow), slots_ddl(layout) + several)
            slots = [name for name, _ in layout.slots]
        else:
            slots = slot_expressions(layout, place)
        hash_ = f"xxhash64({', '.join(_key_expressions(place, computed=in_python))})"
        if hash_mask != -1:
            hash_ = f"({hash_} & {hash_mask}L)"
        tag, bucket = f"{flow}", f"shiftrightunsigned({hash_}, {bucket_shift(task.buckets)})"
        if input_.has_several:
            tag = f"IF({PLACE} IS NULL, {flow}, {layout.tag(flow)})"
            bucket = f"coalesce({PLACE}, {bucket})"
            hash_ = f"IF({PLACE} IS NULL, {hash_}, 0L)"
        return frame.selectExpr(
            f"CAST({tag} AS TINYINT) AS _flow",
            f"CAST({bucket} AS INT) AS _bucket",
            f"{hash_} AS _hash",
            *slots,
            "_seq",
        )


def _environment(spark: SparkSession) -> dict[str, str]:
    """Return what Spark adds to the environment of its Python workers."""
    settings = spark.sparkContext.getConf().getAll()
    return {
        name.removeprefix(_EXECUTOR_ENV): value
        for name, value in settings
        if name.startswith(_EXECUTOR_ENV)
    }


def _loose(plan: RunPlan, task: TaskPlan, name: str) -> list[DataFile]:
    """Return the files of an input that every task would have to read whole."""
    return [
        file
        for increment in plan.inputs.get(name, ())
        for file in increment.files
        if not (name in task.in_place and file.whole and file.buckets == task.buckets)
    ]


def _are_few(files: Sequence[DataFile], task: TaskPlan) -> bool:
    """Tell whether every task may read all of some files."""
    return (
        sum(file.rows for file in files) * task.tasks <= ARRANGED_READS_MAX
        and sum(file.share_bytes for file in files) <= ARRANGED_BYTES_MAX
    )


def within_slots(frame: DataFrame, plan: RunPlan) -> DataFrame:
    """Return the same records, in no more partitions than the run may take slots."""
    return frame if plan.slots_max is None else frame.coalesce(plan.slots_max)


def is_damage(exc: Exception) -> bool:
    """Tell whether Spark could not read a file of an increment."""
    spark = isinstance(exc, (PySparkException, Py4JJavaError))  # not every error is converted
    return spark and any(mark in str(exc) for mark in _DAMAGED)


def sorted_within(frame: DataFrame, layout: ShuffleLayout) -> DataFrame:
    """Return the records of every partition in the order of the layout.

    Spark compares rows only where the first column of an order is equal, and its numbers
    else. So the first is a number that hardly ever is: the flow and the high bits of the
    unsigned hash.
    """
    first = "shiftleft(CAST(_flow AS BIGINT), 56) | shiftrightunsigned(_hash, 8)"
    return frame.sortWithinPartitions(F.expr(first), *layout.sort_columns)


def owner(task: TaskPlan, bucket: str = "_bucket") -> str:
    """Return which task owns a bucket, as an expression."""
    return f"cast({bucket} * {task.tasks} div {task.buckets} as int)"


def ddl(schema: Any) -> str:
    """Return columns as Spark reads them."""
    return ", ".join(f"{quoted(f.name)} {f.type}" for f in schema.fields)


def quoted(name: str) -> str:
    """Return a column as a name that no word of SQL hides."""
    return f"`{name}`"


def _sequence(first: int, several: bool) -> str:
    """Return the position of a record: increment, file, row, in one number."""
    rows, files = SEQUENCE_BITS
    name = "_metadata.file_name"
    part = f"shiftleft(CAST(substring({name}, 14, 5) AS BIGINT), {rows})"
    total = f"{part} + _metadata.row_index"
    if several:
        increment = f"CAST(substring({name}, 1, 12) AS BIGINT) - {first}L"
        total = f"shiftleft({increment}, {rows + files}) + {total}"
    return f"({total})"


def _sliced(files: Sequence[DataFile], position: int) -> str:
    """Return the position of a record in slices of files; null outside of all of them.

    It counts the rows that are meant, in the order of the slices, as `arrange` does.
    """
    cases = []
    for file in files:
        name = file.path.rpartition("/")[2]
        cases.append(
            f"WHEN _metadata.file_name = '{name}' AND _metadata.row_index >= {file.start} "
            f"AND _metadata.row_index < {file.stop} "
            f"THEN _metadata.row_index + {position - file.start}"
        )
        position += file.rows
    return f"(CASE {' '.join(cases)} END)"


def slot_expressions(
    layout: ShuffleLayout,
    place: FlowLayout,
    checked: Callable[[str, DataType], str] = lambda value, _: value,
) -> list[str]:
    """Return an expression for every slot; those that the flow does not use are null.

    Args:
        checked: Given a value and its type, returns what stands for it.
    """
    sources = place.sources()
    return [
        f"{checked(_read(sources[slot]), type_)} AS {slot}"
        if slot in sources
        else f"CAST(NULL AS {type_}) AS {slot}"
        for slot, type_ in layout.slots
    ]


def _key_expressions(place: FlowLayout, *, computed: bool) -> list[str]:
    if computed:
        return [f"k{i}" for i in range(len(place.key))]
    return [_read(source) for source in place.key]


def _read(source: str | int) -> str:
    """Return the column of a source: one of the file, or one that Spark has computed."""
    return quoted(source) if isinstance(source, str) else sql_column(source)
