"""Combiners that are given as columns: records that are equal in all other columns become one.

    combine={"label": "min"}     (node, label): (1, 7) (2, 3) (1, 5) -> (1, 5) (2, 3)

The result does not depend on what is merged first: only whole numbers are summed, and a least or
greatest value is the same in any order. A record with a null or a NaN in a merged column stays as
it is. So do records if the column cannot hold their sum, or if the sum of their absolute values has
more than 62 bits.

The rule is here twice: on columns (`merged_table`), and in plain Python (`merge_records`), which
the reference engine calls, and which takes over where a sum could be too large.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.schema import DataType

_FEW = 4_096
"""Up to this many records are merged by a sort: a hash aggregation takes 0.2 ms to begin."""

SUM_BITS = 62
"""Maximum number of bits of a sum; a longer sum stays in parts, each exact."""

_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}

Row = tuple[Any, ...]
Rows = Int64s | None


def merge_records(records: Sequence[Sequence[Any]], input_: InputSpec) -> list[Row]:
    """Return fewer records of an input, each at the place of the first one that it replaces."""
    assert input_.combine is not None, "only called for inputs that combine"
    rows = [tuple(record) for record in records]
    places = {name: input_.schema.index(name) for name in input_.schema.names}
    merged = [places[name] for name, _ in input_.combine.columns]
    others = [at for at in places.values() if at not in merged]
    groups: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        if any(row[at] is None or row[at] != row[at] for at in merged):
            groups[number] = [number]
        else:
            groups.setdefault(tuple([_bits(row[at]) for at in others]), []).append(number)
    done: list[tuple[int, Row]] = []
    for numbers in groups.values():
        made = _merged([rows[number] for number in numbers], input_, places)
        done += zip(numbers, made, strict=False)
    return [row for _, row in sorted(done, key=lambda one: one[0])]


def _merged(group: Sequence[Row], input_: InputSpec, places: Mapping[str, int]) -> Sequence[Row]:
    """Return one record, or all of them if a sum is too large."""
    if len(group) == 1:
        return group
    assert input_.combine is not None, "only called for inputs that combine"
    record = list(group[0])
    for name, how in input_.combine.columns:
        values = [one[places[name]] for one in group]
        if how != "sum":
            best = min(values) if how == "min" else max(values)
            record[places[name]] = best + 0.0 if isinstance(best, float) else best
        elif _is_held(values, input_.schema[name].type):
            record[places[name]] = sum(values)
        else:
            return group
    return [tuple(record)]


def _bits(value: Any) -> Any:
    """Return a value to compare by: zeros of two signs differ, and a NaN equals itself."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def _is_held(values: Sequence[int], type_: DataType) -> bool:
    """Return whether the column can hold the sum, and `SUM_BITS` the sum of absolute values."""
    most = 1 << (_BITS[type_.kind] - 1)
    return sum(map(abs, values)) < 1 << SUM_BITS and -most <= sum(values) < most


def merged_table(table: pa.Table, input_: InputSpec) -> tuple[pa.Table, pa.Array] | None:
    """Return a batch with its records merged, and how many records each row represents.

    The batch has the input's columns, and others. Except in the merged columns, each row has the
    values of the first row that it replaces; the rows are in the order of these first rows. `None`
    if a sum could be too large.
    """
    assert input_.combine is not None, "only called for inputs that combine"
    rules = input_.combine.columns
    if table.num_rows <= _FEW and (few := _few_numbers(table, input_)) is not None:
        return few
    merged = [table.column(name).combine_chunks() for name, _ in rules]
    apart = _left_apart(merged)
    rows = np.flatnonzero(~apart)
    if len(rows) < table.num_rows:
        merged = [column.take(pa.array(rows)) for column in merged]
    groups = _grouped(table, rows, input_.schema.names, dict(rules), merged)
    counts = groups.column("row_count").to_numpy()
    most = int(counts.max(initial=0))
    for (_, how), column in zip(rules, merged, strict=True):
        if how == "sum" and _largest(column) * most >= 1 << SUM_BITS:
            return None
    firsts = groups.column("row_min").to_numpy()
    places = np.concatenate([firsts, np.flatnonzero(apart)])
    order = np.argsort(places, kind="stable") if apart.any() else None
    left = places if order is None else places[order]
    result = table.take(pa.array(left))
    every = np.concatenate([counts, np.ones(len(places) - len(firsts), np.int64)])
    for at, (name, how) in enumerate(rules):
        values = groups.column(f"m{at}_{how}").combine_chunks()
        try:
            values = values.cast(table.schema.field(name).type)
        except pa.ArrowInvalid:
            return None  # a sum does not fit its column
        result = _with_values(result, name, values, every > 1, order)
    return result, pa.array(every if order is None else every[order], pa.int64())


def _few_numbers(table: pa.Table, input_: InputSpec) -> tuple[pa.Table, pa.Array] | None:
    """Return the result of `merged_table`; `None` if not all columns have plain whole numbers."""
    assert input_.combine is not None, "only called for inputs that combine"
    how = dict(input_.combine.columns)
    columns = {name: table.column(name) for name in input_.schema.names}
    for column in columns.values():
        if column.null_count or not pa.types.is_integer(column.type):
            return None
    numbers = {name: column.to_numpy() for name, column in columns.items()}
    keys = [values for name, values in numbers.items() if name not in how]
    rows = table.num_rows
    order = np.lexsort(keys) if keys else np.arange(rows)  # stable: the first of each comes first
    begins = np.zeros(rows, np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[order[1:]] != key[order[:-1]]
    starts = np.flatnonzero(begins)
    counts = np.diff(starts, append=rows)
    if len(starts) == rows:
        return table, pa.array(counts)
    firsts = order[starts]
    by_row = np.argsort(firsts)
    result = table.take(pa.array(firsts[by_row]))
    for name, rule in how.items():
        values = numbers[name]
        if rule == "sum":
            if int(np.abs(values.astype(np.float64)).sum()) >= 1 << (SUM_BITS - 1):
                return None
            sums = np.add.reduceat(values[order].astype(np.int64), starts)
            bounds = np.iinfo(values.dtype)
            if sums.min() < bounds.min or sums.max() > bounds.max:
                return None
            kept = sums.astype(values.dtype)
        else:
            kept = (np.minimum if rule == "min" else np.maximum).reduceat(values[order], starts)
        field = table.schema.field(name)
        at = table.schema.get_field_index(name)
        result = result.set_column(at, field, pa.array(kept[by_row], field.type))
    return result, pa.array(counts[by_row])


def _grouped(
    table: pa.Table, rows: Int64s, names: Sequence[str], how: Mapping[str, str], merged: list[Any]
) -> pa.Table:
    """Return, for each group of some rows, its merged values, its first row and its row count."""
    others = [name for name in names if name not in how]
    keys = [_comparable(table.column(name).combine_chunks()) for name in others]
    if len(rows) < table.num_rows:
        keys = [key.take(pa.array(rows)) for key in keys]
    key_names = [f"k{at}" for at in range(len(keys))]
    value_names = [f"m{at}" for at in range(len(merged))]
    given = pa.table([*keys, *merged, pa.array(rows)], names=[*key_names, *value_names, "row"])
    wanted = [*zip(value_names, how.values(), strict=True), ("row", "min"), ("row", "count")]
    return given.group_by(key_names, use_threads=False).aggregate(wanted)


def _with_values(
    table: pa.Table, name: str, values: pa.Array, is_merged: Mask, order: Rows
) -> pa.Table:
    """Return a table whose column has the merged values in rows that represent several records.

    Rows that cannot be merged (null, NaN) follow the rows of the groups. Then all rows are put in
    this `order`, if there is one.
    """
    at = table.schema.get_field_index(name)
    own = table.column(at).combine_chunks()
    if pa.types.is_floating(own.type):
        values = pc.add(values, pa.scalar(0.0, own.type))  # a zero has no sign
    values = pa.concat_arrays([values, pa.nulls(len(is_merged) - len(values), own.type)])
    if order is not None:
        values, is_merged = values.take(pa.array(order)), is_merged[order]
    column = pc.if_else(pa.array(is_merged), values, own)
    return table.set_column(at, table.schema.field(at), column)


def _left_apart(merged: Sequence[pa.Array]) -> Mask:
    apart = np.zeros(len(merged[0]), np.bool_)
    for column in merged:
        if column.null_count:
            apart |= column.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(column.type):
            apart |= pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
    return apart


def _comparable(column: pa.Array) -> pa.Array:
    """Return values that are equal if all bits are; zeros with different signs are not."""
    if pa.types.is_float64(column.type):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_float32(column.type) else column


def _largest(column: pa.Array) -> int:
    if not len(column):
        return 0
    ends = pc.min_max(column)
    return int(max(abs(ends["min"].as_py()), abs(ends["max"].as_py())))
