"""Increments as frames of Spark: read, laid out for the shuffle, and shuffled.

    files -> slots (JVM, or Python where the author computes a key) -> union
      -> repartition by task -> sort within task

Guaranteed: a frame has the layout of `cbp.engine.layout`, and after the shuffle its order, as
`cbp.engine.arrange` gives both without Spark. What varies from run to run (paths, live files)
never enters generated code, so Spark compiles a stage's code once.
Absent on purpose: what is done with the records, and whether they are shuffled at all
(`cbp.engine.spark.executor`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cbp.engine.base import RunPlan
from cbp.engine.destinations import EPOCH
from cbp.engine.layout import SEQUENCE_BITS, FlowLayout, ShuffleLayout, bucket_shift
from cbp.engine.route import computes, sql_column, sql_columns
from cbp.engine.spark.work import PLACE, route_task, slots_ddl
from cbp.engine.taskplan import TaskPlan
from cbp.model.increment import DataFile
from cbp.model.schema import DataType
from cbp.model.stage import InputSpec

__all__ = [
    "by_task",
    "ddl",
    "flow_of",
    "quoted",
    "read",
    "shuffled",
    "slot_expressions",
    "within_slots",
]

SLICES_MAX = 200
"""Slices of files that one expression numbers; with more of them it grows slow."""


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
    frame = read(spark, plan, input_)
    place = layout.flows[flow]
    in_python = computes(input_) or input_.combine is not None
    if in_python:
        several = f", {PLACE} INT" if input_.has_several else ""
        frame = frame.mapInArrow(route_task(task, flow), slots_ddl(layout) + several)
        slots = [name for name, _ in layout.slots]
    else:
        slots = slot_expressions(layout, place)
    hash_ = f"xxhash64({', '.join(_key_expressions(place, computed=in_python))})"
    if task.hash_mask != -1:
        hash_ = f"({hash_} & {task.hash_mask}L)"
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


def read(spark: SparkSession, plan: RunPlan, input_: InputSpec) -> DataFrame:
    """Return an input's records as its files hold them, with `_seq`, their position."""
    files = [file for increment in plan.inputs[input_.name] for file in increment.files]
    if all(file.whole for file in files):
        # Of the output increments, by the files' names: a frame has a number of its own.
        numbers = {int(file.path.rpartition("/")[2][:12]) for file in files}
        return _read_files(spark, plan, input_, files, _sequence(min(numbers), len(numbers) > 1))
    before = list(accumulate((file.rows for file in files), initial=0))
    parts = (
        _read_files(spark, plan, input_, part, _sliced(part, before[at])).where("_seq IS NOT NULL")
        for at in range(0, len(files), SLICES_MAX)
        for part in [files[at : at + SLICES_MAX]]
    )
    return reduce(DataFrame.unionAll, parts)


def _read_files(
    spark: SparkSession,
    plan: RunPlan,
    input_: InputSpec,
    files: Sequence[DataFile],
    sequence: str,
) -> DataFrame:
    """Return the records of some files, with this expression as `_seq`."""
    paths = dict.fromkeys(f"{plan.folder}/{file.path}" for file in files)
    names, found = [quoted(name) for name in input_.schema.names], ddl(input_.schema)
    if input_.loopback and input_.has_several:
        names, found = [*names, EPOCH], f"{found}, {EPOCH} BIGINT"
    in_sql = [f"({text}) AS {column}" for column, text in sql_columns(input_).items()]
    # A path is a path: brackets or stars in a folder's name are no pattern.
    reader = spark.read.option("__globPaths__", "false").schema(found)
    return reader.parquet(*paths).selectExpr(*names, *in_sql, f"{sequence} AS _seq")


def within_slots(frame: DataFrame, plan: RunPlan) -> DataFrame:
    """Return the same records, in no more partitions than the run may take slots."""
    return frame if plan.slots_max is None else frame.coalesce(plan.slots_max)


def by_task(frame: DataFrame, plan: RunPlan, task: TaskPlan) -> DataFrame:
    """Return records, in the layout of the shuffle, shuffled to their tasks, there in order.

    Spark compares rows only where the first column of an order is equal, and its numbers
    else. So the first is a number that hardly ever is: the flow and the high bits of the
    unsigned hash.
    """
    assert task.layout is not None, "records are laid out"
    owner = F.expr(f"cast(_bucket * {task.tasks} div {task.buckets} as int)")
    first = F.expr("shiftleft(CAST(_flow AS BIGINT), 56) | shiftrightunsigned(_hash, 8)")
    frame = within_slots(frame, plan).repartitionById(task.tasks, owner)
    return frame.sortWithinPartitions(first, *task.layout.sort_columns)


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
