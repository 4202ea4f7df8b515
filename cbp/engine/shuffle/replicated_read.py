"""A small increment without a shuffle: every task reads all of it and keeps its buckets.

For some megabytes, planning and running a shuffle costs several times the work itself. The result
has the layout and the order of the shuffle (`cbp.engine.shuffle.layout`), and the hash equals that
of the JVM (`cbp.engine.columnar.key_hash`), so later code sees no difference. Every task's part has
the shared records (`ALL`, multicast) once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask, arrow_type, as_type, conform
from cbp.engine.columnar.file_slices import Share, file_columns, records_read
from cbp.engine.columnar.key_hash import bucket_shift, first_bucket, hash_columns
from cbp.engine.columnar.row_codes import stable_order
from cbp.engine.shuffle.combine import combined
from cbp.engine.shuffle.layout import COUNT, TO, FlowRoute, ShuffleLayout
from cbp.engine.shuffle.routing_keys import Column, slot_columns
from cbp.engine.shuffle.several_destinations import EPOCH, copies
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import order_by_columns, sorted_tables
from cbp.engine.storage.file_sizes import halves
from cbp.errors import IncrementDamagedError
from cbp.model.dataflow.stage import InputSpec

Replicate = Callable[[Mapping[str, Column], pa.Table], tuple[Mapping[str, Column], pa.Table]]
"""Replaces each shared copy by one copy per group; only the benchmark's baseline uses it."""

Routing = Callable[[InputSpec, pa.Table, Callable[[pa.Table], pa.Table]], pa.Table]
"""Takes an input, its records, and the function that brings records into the shuffle's layout."""

InputFile = Share
"""Rows of one file; a list of them is in order."""

Rows = Int64s | None
"""Rows of a table; `None` means all of them."""

_ARRANGED_SHARE = 8
"""If memory is scarce, messages that take more than this share (an eighth) of `whole_run_bytes` are
arranged on disk: in memory, this makes four copies."""

_PIECE_SHARE = 8
"""Messages on disk are arranged in pieces of this share (an eighth) of `message_sort_bytes`."""


def arrange(
    inputs: Mapping[str, Sequence[InputFile]],
    routes: Sequence[FlowRoute],
    *,
    tasks: int,
    part: int,
    replicate: Replicate | None = None,
    routing: Routing = lambda input_, records, route: route(records),
) -> pa.Table:
    """Return the records of one task's buckets, sorted as the shuffle sorts them.

    Each flow is one chunk. Memory: the increment, and one copy of the task's part of it. `routing`
    routes the records of an input; it may leave some out. Raises `IncrementDamagedError` for a
    damaged file, and `AuthorCodeError` for an author's key or order.
    """
    parts: list[tuple[int, pa.Table, Rows]] = []
    layout, buckets = routes[0].layout, routes[0].buckets
    for route in routes:
        input_ = route.input
        files = inputs.get(input_.name, ())
        if files:
            records = read_input(files, input_)
            table = routing(input_, records, partial(routed, route=route, replicate=replicate))
            mine = _owned(table, part, tasks=tasks, buckets=buckets)
            if input_.combine is not None and mine.any():
                table = _combined(records.filter(pa.array(mine)), route)
                mine = _owned(table, part, tasks=tasks, buckets=buckets)
            if input_.has_several:
                shared, tag = table.column(TO).is_valid(), layout.tag(route.flow)
                first = first_bucket(part, tasks=tasks, buckets=buckets)
                parts.append((tag, _copy(table.filter(shared), tag, first), None))
                mine &= ~shared.to_numpy()
            parts.append((route.flow, table, None if mine.all() else np.flatnonzero(mine)))
    parts.sort(key=lambda part: part[0])
    flows = [_sorted(table, rows, layout) for _, table, rows in parts]
    if len(flows) == 1:
        return flows[0]
    # "permissive", since strings of one flow may be wide, and those of another narrow.
    return pa.concat_tables(flows, promote_options="permissive")


def arrange_messages(
    messages: pa.Table, route: FlowRoute, *, limits: EngineLimits, scarce: bool
) -> Iterator[pa.Table]:
    """Yield messages that a run holds for one task, in the form that `arrange` returns.

    They come in the order in which they were emitted; each has one receiver. If memory is scarce,
    more than an eighth of `EngineLimits.whole_run_bytes` are sorted on disk, with some megabytes
    in memory at a time.
    """
    columns = file_columns(route.input)

    def arranged(piece: pa.Table, first: int) -> pa.Table:
        numbers = np.arange(first, first + piece.num_rows, dtype=np.int64)
        records = conform(piece, columns).append_column("_seq", pa.array(numbers))
        return routed(records, route) if route.input.combine is None else _combined(records, route)

    if not scarce or messages.nbytes <= limits.whole_run_bytes // _ARRANGED_SHARE:
        yield _sorted(arranged(messages, 0), None, route.layout)
        return
    most = limits.message_sort_bytes // _PIECE_SHARE
    pieces = list(halves(messages, rows_max=limits.message_group_rows_max, bytes_max=most))
    firsts = accumulate(map(len, pieces), initial=0)
    order = list(dict.fromkeys(route.layout.sort_columns))
    tables = (arranged(*one) for one in zip(pieces, firsts, strict=False))
    yield from sorted_tables(tables, order, limits=limits)


def message_hashes(messages: pa.Table, route: FlowRoute) -> Int64s:
    """Return the hash of the group that gets each message; raises as `slot_columns`."""
    slots, types = slot_columns(messages, route), route.key_types
    keys = [
        _chunk(as_type(slots[name], arrow_type(type_)))
        for name, type_ in zip(route.layout.keys, types, strict=True)
    ]
    return hash_columns(keys, types) & np.int64(route.hash_mask)


def _combined(records: pa.Table, route: FlowRoute) -> pa.Table:
    """Return routed records that a combiner made, each with the number that it represents."""
    fewer, counts = combined(records, route)
    table = routed(fewer, route)
    at = table.column_names.index(COUNT)
    return table.set_column(at, table.schema.field(COUNT), counts)


def _owned(table: pa.Table, part: int, *, tasks: int, buckets: int) -> Mask:
    bucket = table.column("_bucket").to_numpy().astype(np.int64)
    owned: Mask = bucket * tasks // buckets == part
    return owned


def _sorted(table: pa.Table, rows: Rows, layout: ShuffleLayout) -> pa.Table:
    """Return some rows of a flow, sorted; strings are copied once, unless they order the rows."""
    if rows is None and table.num_rows < 2:
        return table
    chosen = np.arange(table.num_rows) if rows is None else rows
    return table.take(pa.array(arrival_order(table, chosen, layout)))


def _copy(table: pa.Table, tag: int, bucket: int) -> pa.Table:
    """Return the shared records as one task gets them; only the first task's copies count."""
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


def arrival_order(table: pa.Table, rows: Int64s, layout: ShuffleLayout) -> Int64s:
    """Return some rows of one flow in the order of the shuffle; `rows` is in order of arrival.

    Sorting by the hash alone is several times faster than by keys. It gives the same order
    unless two keys share a hash, or the author orders an input.
    """
    if len(rows) < 2:
        return rows
    if not layout.orders:
        hashes = table.column("_hash").to_numpy()[rows]
        order = stable_order(hashes.view(np.uint64))  # its high bits are the bucket
        by_hash: Int64s = rows[order]
        if not _shared_hash(table, layout, hashes[order], by_hash):
            return by_hash
    orders = table.select(list(dict.fromkeys(layout.sort_columns))).take(pa.array(rows))
    by_columns: Int64s = rows[order_by_columns(orders, layout.sort_columns)]
    return by_columns


def _shared_hash(table: pa.Table, layout: ShuffleLayout, hashes: Int64s, order: Int64s) -> bool:
    """Return whether two adjacent rows have the same hash and different keys."""
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(same):
        return False
    keys = table.select(list(layout.keys))
    if 2 * len(same) > len(order):  # one random access per row instead of two
        keys, order = keys.take(pa.array(order)), np.arange(len(order))
    left = keys.take(pa.array(order[same]))
    right = keys.take(pa.array(order[same + 1]))
    return not left.equals(right)


def routed(table: pa.Table, route: FlowRoute, replicate: Replicate | None = None) -> pa.Table:
    """Return records of an input, as `read_input` returns them, in the layout of the shuffle."""
    filled: Mapping[str, Column]
    if route.input.has_several:
        filled, table = copies(table, route)
        if replicate is not None:
            filled, table = replicate(filled, table)
    else:
        filled = slot_columns(table, route)
    rows, wide = table.num_rows, table.nbytes > route.narrow_bytes
    slots = {
        name: _chunk(as_type(filled[name], arrow_type(type_, wide=wide)))
        if name in filled
        else pa.nulls(rows, arrow_type(type_))
        for name, type_ in route.layout.slots
    }
    keys = [slots[name] for name in route.layout.keys]
    hashes = hash_columns(keys, route.key_types) & np.int64(route.hash_mask)
    bucket = (hashes.view(np.uint64) >> np.uint64(bucket_shift(route.buckets))).astype(np.int32)
    numbers = map(pa.array, (np.full(rows, route.flow, np.int8), bucket, hashes))
    return pa.Table.from_arrays(
        [*numbers, *slots.values(), table.column("_seq")],
        names=["_flow", "_bucket", "_hash", *slots, "_seq"],
    )


def read_input(files: Sequence[InputFile], input_: InputSpec) -> pa.Table:
    """Return the records of some files of an input, with `_seq`; messages also with `EPOCH`."""
    columns = file_columns(input_)
    if input_.has_several and input_.loopback:
        columns = columns.append(pa.field(EPOCH, pa.int64()))
    table = pa.concat_tables([records_read(_read(file, columns), input_) for file in files])
    return table.append_column("_seq", pa.array(np.arange(table.num_rows, dtype=np.int64)))


def _read(file: InputFile, columns: pa.Schema) -> pa.Table:
    try:
        with reading_increment(file.path, file.rows):
            table = conform(open_parquet(file.path).read(columns.names), columns)
    except KeyError as exc:
        raise IncrementDamagedError(file.path, expected=file.rows, found=str(exc)) from exc
    if table.num_rows != file.rows:
        raise IncrementDamagedError(file.path, expected=file.rows, found=table.num_rows)
    return table.slice(file.start, file.stop - file.start)


def _chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Not always combined: Arrow would copy even a single chunk.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
