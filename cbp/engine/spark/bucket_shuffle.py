"""Shuffle of increments by Spark: read as DataFrames, converted to the layout, repartitioned.

    files -> slots (JVM, or Python where the author computes a key) -> union
      -> repartition by task -> sort within task

Guaranteed: a frame has the layout of `cbp.engine.shuffle.layout` and, after the shuffle, the order
of this layout, as `cbp.engine.shuffle.replicated_read` gives it without Spark. Values that vary
from run to run (paths, live files) never enter generated code, so Spark compiles a stage's code
once.
Absent on purpose: how the records are used, and whether they are shuffled at all
(`cbp.engine.spark.spark_executor`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cbp.engine.columnar.key_hash import bucket_shift
from cbp.engine.interface.runs import RunPlan
from cbp.engine.shuffle.layout import SEQUENCE_BITS, FlowLayout, ShuffleLayout
from cbp.engine.shuffle.routing_keys import computes, sql_column, sql_columns
from cbp.engine.shuffle.several_destinations import EPOCH
from cbp.engine.spark.tasks import PLACE, route_task, slots_ddl
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.increment import DataFile
from cbp.model.flow.schema import DataType
from cbp.model.flow.signed_changes import AFTER, CHANGE_TYPE


def shuffled(spark: SparkSession, plan: RunPlan, task: TaskPlan) -> DataFrame:
    """Return all flows in the layout of the shuffle, each task's records in order."""
    layout = task.layout
    assert layout is not None
    frames = [
        flow_of(spark, plan, task, flow)
        for flow in range(len(layout.flows))
        if any(i.files for i in plan.inputs.get(layout.flows[flow].name, ()))
        and layout.flows[flow].name not in task.in_place
    ]
    return by_task(reduce(DataFrame.unionAll, frames), plan, task)


def flow_of(spark: SparkSession, plan: RunPlan, task: TaskPlan, flow: int) -> DataFrame:
    """Return one flow's records in the layout of the shuffle."""
    layout, input_ = task.layout, task.spec.inputs[flow]
    assert layout is not None
    frame = read(spark, plan, input_, slices_max=task.limits.slices_per_expression)
    place = layout.flows[flow]
    in_python = computes(input_) or input_.combine is not None
    if in_python:
        several = f", {PLACE} INT" if input_.has_several else ""
        frame = frame.mapInArrow(route_task(task, flow), slots_ddl(layout) + several)
        slots = [name for name, _ in layout.slots]
    else:
        slots = slot_expressions(layout, place)
    keys = [f"k{i}" for i in range(len(place.key))] if in_python else map(_read, place.key)
    hash_ = hash_of(keys, task)
    tag, bucket = f"{flow}", bucket_of(hash_, task)
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


def read(spark: SparkSession, plan: RunPlan, input_: InputSpec, *, slices_max: int) -> DataFrame:
    """Return an input's records as they are in its files, with their position `_seq`.

    One expression can number at most `slices_max` slices of files.
    """
    files = [file for increment in plan.inputs[input_.name] for file in increment.files]
    if all(file.whole for file in files):
        # Numbers of the output increments, from the file names: a frame's own number differs.
        numbers = {int(file.path.rpartition("/")[2][:12]) for file in files}
        return _read_files(spark, plan, input_, files, _sequence(min(numbers), len(numbers) > 1))
    before = list(accumulate((file.rows for file in files), initial=0))
    parts = (
        _read_files(spark, plan, input_, part, _sliced(part, before[at])).where("_seq IS NOT NULL")
        for at in range(0, len(files), slices_max)
        for part in [files[at : at + slices_max]]
    )
    return reduce(DataFrame.unionAll, parts)


def _read_files(
    spark: SparkSession, plan: RunPlan, input_: InputSpec, files: Sequence[DataFile], sequence: str
) -> DataFrame:
    paths = dict.fromkeys(f"{plan.folder}/{file.path}" for file in files)
    rows = {f"{plan.folder}/{file.path}": file.rows for file in files}
    for path in paths:
        # Spark checks pages by their CRC, and the number of records shows if one was skipped. Only
        # our own check covers the footer.
        with reading_increment(path, rows[path]):
            open_parquet(path)
    names, schema_text = [quoted(name) for name in input_.schema.names], ddl(input_.schema)
    if input_.loopback and input_.has_several:
        names, schema_text = [*names, EPOCH], f"{schema_text}, {EPOCH} BIGINT"
    after = input_.changes == "after"
    if after:
        schema_text = f"{schema_text}, {CHANGE_TYPE} STRING"
    in_sql = [f"({text}) AS {column}" for column, text in sql_columns(input_).items()]
    # Brackets or stars in a folder's name must not be read as a pattern.
    reader = spark.read.option("__globPaths__", "false").schema(schema_text)
    frame = reader.parquet(*paths)
    if after:
        types = ", ".join(map(repr, AFTER))
        frame = frame.where(f"{CHANGE_TYPE} IS NULL OR {CHANGE_TYPE} IN ({types})")
    return frame.selectExpr(*names, *in_sql, f"{sequence} AS _seq")


def within_slots(frame: DataFrame, plan: RunPlan) -> DataFrame:
    """Return the same records, in at most as many partitions as the run may use slots."""
    return frame if plan.slots_max is None else frame.coalesce(plan.slots_max)


def by_task(frame: DataFrame, plan: RunPlan, task: TaskPlan) -> DataFrame:
    """Shuffle records, which are in the shuffle's layout, to their tasks, and sort them there.

    Spark compares the first sort column as a number, and whole rows only if that is equal. So
    the first column is a number that rarely repeats: the flow and the high bits of the unsigned
    hash.
    """
    assert task.layout is not None, "the plan has no layout of the shuffle"
    owner = F.expr(f"cast(_bucket * {task.tasks} div {task.buckets} as int)")
    first = F.expr("shiftleft(CAST(_flow AS BIGINT), 56) | shiftrightunsigned(_hash, 8)")
    frame = within_slots(frame, plan).repartitionById(task.tasks, owner)
    return frame.sortWithinPartitions(first, *task.layout.sort_columns)


def ddl(schema: Any) -> str:
    """Return the columns of a schema as Spark DDL."""
    return ", ".join(f"{quoted(f.name)} {f.type}" for f in schema.fields)


def quoted(name: str) -> str:
    """Return a column name in backquotes, so that it may be a keyword of SQL."""
    return f"`{name}`"


def _sequence(first: int, several: bool) -> str:
    """Return an expression for a record's position: increment, file and row in one number."""
    rows, files = SEQUENCE_BITS
    name = "_metadata.file_name"
    part = f"shiftleft(CAST(substring({name}, 14, 5) AS BIGINT), {rows})"
    total = f"{part} + _metadata.row_index"
    if several:
        increment = f"CAST(substring({name}, 1, 12) AS BIGINT) - {first}L"
        total = f"shiftleft({increment}, {rows + files}) + {total}"
    return f"({total})"


def _sliced(files: Sequence[DataFile], position: int) -> str:
    """Return an expression for a record's position in slices of files; null outside of them."""
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
    """Return an expression for every slot; slots that the flow does not use are null."""
    sources = place.sources()
    return [
        f"{checked(_read(sources[slot]), type_)} AS {slot}"
        if slot in sources
        else f"CAST(NULL AS {type_}) AS {slot}"
        for slot, type_ in layout.slots
    ]


def hash_of(keys: Iterable[str], task: TaskPlan) -> str:
    """Return the hash of a key, as an expression."""
    hash_ = f"xxhash64({', '.join(keys)})"
    return hash_ if task.hash_mask == -1 else f"({hash_} & {task.hash_mask}L)"


def bucket_of(hash_: str, task: TaskPlan) -> str:
    """Return the bucket of a hash, as an expression."""
    return f"shiftrightunsigned({hash_}, {bucket_shift(task.buckets)})"


def _read(source: str | int) -> str:
    """Return the column of a source: a column of the file, or one that Spark has computed."""
    return quoted(source) if isinstance(source, str) else sql_column(source)
