"""A small increment without a shuffle: every task reads it whole and keeps its buckets.

For some megabytes, planning and running a shuffle costs several times the work itself.
Reading the increment once per task costs less, on a cluster too, just as a small table
is broadcast rather than shuffled. The result has the layout and the order of the
shuffle (`cbp.engine.layout`), so nothing behind it knows the difference. What groups share
(`ALL`, multicast) is in every task's part, once.

The hash is the JVM's (`cbp.engine.hashing`), so that both ways agree on every bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema, arrow_type
from cbp.engine.conform import conform
from cbp.engine.destinations import EPOCH, copies
from cbp.engine.external import order_by_columns
from cbp.engine.hashing import hash_columns
from cbp.engine.layout import COUNT, TO, ShuffleLayout, bucket_shift, first_bucket
from cbp.engine.records import Share
from cbp.engine.route import slot_columns
from cbp.errors import IncrementDamagedError
from cbp.model.stage import InputSpec, TranslatorSpec

__all__ = ["InputFile", "Replicate", "arrange", "arrival_order", "read_input", "routed"]

Replicate = Callable[
    [Mapping[str, pa.Array | pa.ChunkedArray], pa.Table],
    tuple[Mapping[str, pa.Array | pa.ChunkedArray], pa.Table],
]
"""Replaces copies that groups share by one per group; see `cbp.engine.replication`."""

NARROW_BYTES_MAX = (1 << 31) - 1
"""Bytes of a flow's records up to which its strings have offsets of 32 bits; beyond, of 64.

64 MB of files may hold more: strings that are alike are compressed away.
"""

InputFile = Share
"""The rows that are meant of one file; in order."""

Rows = npt.NDArray[np.int64] | None
"""Rows of a table; `None`: all of them."""


def arrange(
    inputs: Mapping[str, Sequence[InputFile]],
    spec: TranslatorSpec,
    layout: ShuffleLayout,
    *,
    stage: str,
    buckets: int,
    tasks: int,
    part: int,
    hash_mask: int,
    replicate: Replicate | None = None,
) -> pa.Table:
    """Return the records of one task's buckets, sorted as the shuffle sorts them.

    A flow is one chunk. Memory: the increment, and one copy of the task's part of it.

    Raises:
        IncrementDamagedError: A file is missing, damaged, or has other records.
        AuthorCodeError: A key or an order that the author computes failed.
    """
    parts: list[tuple[int, pa.Table, Rows]] = []
    for flow, input_ in enumerate(spec.inputs):
        files = inputs.get(input_.name, ())
        if files:
            table = routed(
                read_input(files, input_),
                spec,
                layout,
                flow,
                stage=stage,
                buckets=buckets,
                hash_mask=hash_mask,
                replicate=replicate,
            )
            mine = table.column("_bucket").to_numpy().astype(np.int64) * tasks // buckets == part
            if input_.has_several:
                shared = table.column(TO).is_valid()
                first = first_bucket(part, tasks=tasks, buckets=buckets)
                copy = _copy(table.filter(shared), layout.tag(flow), first)
                parts.append((layout.tag(flow), copy, None))
                mine &= ~shared.to_numpy()
            parts.append((flow, table, None if mine.all() else np.flatnonzero(mine)))
    parts.sort(key=lambda part: part[0])
    flows = [_sorted(table, rows, layout) for _, table, rows in parts]
    # One flow may be wide and another one not.
    return pa.concat_tables(flows, promote_options="permissive")


def _sorted(table: pa.Table, rows: Rows, layout: ShuffleLayout) -> pa.Table:
    """Return some rows of a flow, sorted; texts are copied once, unless they order the rows."""
    chosen = np.arange(table.num_rows) if rows is None else rows
    return table.take(pa.array(arrival_order(table, chosen, layout)))


def _copy(table: pa.Table, tag: int, bucket: int) -> pa.Table:
    """Return what groups share as one task gets it; the first task's copy counts."""
    rows = table.num_rows
    columns = {
        "_flow": np.full(rows, tag, np.int8),
        "_bucket": np.full(rows, bucket, np.int32),
        "_hash": np.zeros(rows, np.int64),
        **({COUNT: np.zeros(rows, np.int64)} if bucket else {}),
    }
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values))
    return table


def arrival_order(
    table: pa.Table, rows: npt.NDArray[np.int64], layout: ShuffleLayout
) -> npt.NDArray[np.int64]:
    """Return some rows of one flow, ascending by arrival, in the order of the shuffle.

    Sorting by the hash alone is several times faster than by keys; it is the same order
    unless two keys share a hash, or an input is ordered by the author.
    """
    if not layout.orders:
        hashes = table.column("_hash").to_numpy()[rows]
        order = _stable_order(hashes.view(np.uint64))  # its high bits are the bucket
        by_hash: npt.NDArray[np.int64] = rows[order]
        if not _shared_hash(table, layout, hashes[order], by_hash):
            return by_hash
    orders = table.select(list(dict.fromkeys(layout.sort_columns))).take(pa.array(rows))
    by_columns: npt.NDArray[np.int64] = rows[order_by_columns(orders, layout.sort_columns)]
    return by_columns


def _stable_order(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the stable ascending order, by the unstable sort, which is twice as fast."""
    order = np.argsort(values)
    found = values[order]
    same = found[1:] == found[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        order[tied] = order[tied][np.lexsort((order[tied], found[tied]))]
    return order


def _shared_hash(
    table: pa.Table,
    layout: ShuffleLayout,
    hashes: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> bool:
    """Whether neighbours with one hash have different keys."""
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(same):
        return False
    keys = table.select(list(layout.keys))
    left = keys.take(pa.array(order[same]))
    right = keys.take(pa.array(order[same + 1]))
    return not left.equals(right)


def routed(
    table: pa.Table,
    spec: TranslatorSpec,
    layout: ShuffleLayout,
    flow: int,
    *,
    stage: str,
    buckets: int,
    hash_mask: int,
    replicate: Replicate | None = None,
) -> pa.Table:
    """Return records of an input, as `read_input` gives them, in the layout of the shuffle."""
    assert spec.key is not None, "a record-wise translator is not routed"
    input_ = spec.inputs[flow]
    filled: Mapping[str, pa.Array | pa.ChunkedArray]
    if input_.has_several:
        filled, table = copies(table, spec, layout, flow, stage=stage)
        if replicate is not None:
            filled, table = replicate(filled, table)
    else:
        filled = slot_columns(table, spec, layout, flow, stage=stage)
    rows, wide = table.num_rows, table.nbytes > NARROW_BYTES_MAX
    slots = {
        name: _chunk(filled[name].cast(arrow_type(type_, wide=wide)))
        if name in filled
        else pa.nulls(rows, arrow_type(type_))
        for name, type_ in layout.slots
    }
    keys = [slots[name] for name in layout.keys]
    hashes = hash_columns(keys, [f.type for f in spec.key.fields]) & np.int64(hash_mask)
    bucket = (hashes.view(np.uint64) >> np.uint64(bucket_shift(buckets))).astype(np.int32)
    return pa.table(
        {
            "_flow": pa.array(np.full(rows, flow, np.int8)),
            "_bucket": pa.array(bucket),
            "_hash": pa.array(hashes),
            **slots,
            "_seq": table.column("_seq"),
        }
    )


def read_input(files: Sequence[InputFile], input_: InputSpec) -> pa.Table:
    """Return the records of some files of an input, with `_seq`, their position.

    Of messages that may have addresses, `EPOCH` tells which epoch wrote them.

    Raises:
        IncrementDamagedError: A file is missing, damaged, or has other records.
    """
    columns = arrow_schema(input_.schema)
    if input_.has_several and input_.loopback:
        columns = columns.append(pa.field(EPOCH, pa.int64()))
    table = pa.concat_tables([_read(file, columns) for file in files])
    return table.append_column("_seq", pa.array(np.arange(table.num_rows, dtype=np.int64)))


def _read(file: InputFile, columns: pa.Schema) -> pa.Table:
    try:
        found = pq.ParquetFile(file.path).read(columns=columns.names, use_threads=False)
        table = conform(found, columns)
    except (OSError, pa.ArrowException, KeyError) as exc:
        raise IncrementDamagedError(file.path, expected=file.rows, found=str(exc)) from exc
    if table.num_rows != file.rows:
        raise IncrementDamagedError(file.path, expected=file.rows, found=table.num_rows)
    return table.slice(file.start, file.stop - file.start)


def _chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Of a single chunk Arrow would make a copy.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
