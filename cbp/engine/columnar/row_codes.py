"""Integer codes of rows: equal rows have equal codes, whatever their types.

Integers can be compared, joined and counted as arrays. Equality is that of
`cbp.model.dataflow.equality.identity`: null equals null, NaN equals NaN, both zeros are equal, and
the entries of a map have no order.

    >>> row_codes([pa.table({"a": [1.5, None]}), pa.table({"a": [None, 1.5, 2.5]})])
    [array([0, 1]), array([1, 0, 2])]

With these codes, `subtract_rows` subtracts one table from another as multisets, and `first_twice`
finds a row whose key came before in its group. Rows that are equal at the same place, counted from
the beginning or from the end, cancel out before codes are computed: in a corrected file, most do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s

_FEW = 1_000
"""Fewer numbers are sorted directly."""

_RUN = 4
"""If runs of equal numbers have at least this average length, runs are sorted, not numbers."""


def row_codes(tables: Sequence[pa.Table], ids: Sequence[Int64s] | None = None) -> list[Int64s]:
    """Return a code for every row of some tables with the same column types.

    Columns are matched by position. Equal rows must also have equal `ids`, a number per row. The
    codes are dense and begin at 0.
    """
    # Not counted in the tables: one without columns has no row count, but its `ids` have one.
    sizes = [len(some) for some in ids] if ids else [table.num_rows for table in tables]
    codes = np.concatenate(ids) if ids else np.zeros(sum(sizes), np.int64)
    for at in range(tables[0].num_columns):
        chunks = [chunk for table in tables for chunk in table.column(at).chunks]
        column = pa.chunked_array(chunks, tables[0].column(at).type).combine_chunks()
        codes = _paired(codes, column_codes(column))
    return np.split(_dense(pa.array(codes)), np.cumsum(sizes)[:-1])


def first_twice(second: pa.Table, groups: Int64s) -> int | None:
    """Return the first row that repeats a second key within its group; `None` if there is none."""
    if bool(np.all(groups[1:] > groups[:-1])):  # one record each, as of counts
        return None
    codes = row_codes([second], [groups])[0] if second.num_columns else groups
    _, firsts = np.unique(codes, return_index=True)
    if len(firsts) == len(codes):
        return None
    again = np.ones(len(codes), np.bool_)
    again[firsts] = False
    return int(np.flatnonzero(again)[0])


def column_codes(column: pa.Array) -> Int64s:
    """Return a code for every value: equal codes for equal values."""
    type_ = column.type
    if pa.types.is_floating(type_):
        return _dense(_float_bits(column))
    if pa.types.is_map(type_):
        return _of_maps(column)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _sequences(column, column_codes(column.flatten()), column.value_lengths())
    if pa.types.is_struct(type_):
        return _of_structs(column)
    return _dense(column)


def stable_order(values: npt.NDArray[Any]) -> Int64s:
    """Return the stable ascending order of whole numbers of 64 bits.

    A number and its place are packed into one number, since sorting numbers is several times as
    fast as sorting places. If they do not fit, the high bits are packed, and numbers that differ
    only in their low bits are put in order afterwards. Equal numbers that come side by side, such
    as those of the links of a node, are moved together.
    """
    many = len(values)
    if many < _FEW:
        return np.argsort(values, kind="stable")
    if bool(np.all(values[1:] >= values[:-1])):
        return np.arange(many)
    differs = values[1:] != values[:-1]
    if _RUN * (1 + np.count_nonzero(differs)) <= many:
        return _order_of_runs(values, np.flatnonzero(np.append(True, differs)))
    ranks = values.view(np.uint64)
    if values.dtype == np.int64:
        ranks = ranks ^ np.uint64(1 << 63)
    bits = np.uint64(max(1, many - 1).bit_length())
    low = (np.uint64(1) << bits) - np.uint64(1)
    ranks = ranks - ranks.min()
    is_exact = not int(ranks.max()) >> (64 - int(bits))
    packed = ranks << bits if is_exact else ranks & ~low
    packed |= np.arange(many, dtype=np.uint64)
    packed.sort()
    packed &= low
    order: Int64s = packed.view(np.int64)
    if not is_exact:
        _order_low_bits(order, ranks, bits)
    return order


def _order_of_runs(values: npt.NDArray[Any], starts: Int64s) -> Int64s:
    by_value = stable_order(values[starts])
    sizes = np.diff(starts, append=len(values))[by_value]
    order: Int64s = np.repeat(starts[by_value] - np.cumsum(sizes) + sizes, sizes)
    order += np.arange(len(values))
    return order


def _order_low_bits(order: Int64s, ranks: npt.NDArray[np.uint64], bits: np.uint64) -> None:
    """Correct an order that ignores the lowest bits of ranks."""
    high = ranks[order]
    wrong = high[1:] < high[:-1]
    if not wrong.any():
        return
    high >>= bits
    run = np.cumsum(np.append(False, high[1:] != high[:-1]))
    mixed = np.zeros(int(run[-1]) + 1, np.bool_)
    mixed[run[1:][wrong]] = True
    rows = np.flatnonzero(mixed[run])
    some = order[rows]
    order[rows] = some[np.lexsort((some, ranks[some]))]


def _dense(values: pa.Array) -> Int64s:
    if pa.types.is_integer(values.type) and not values.null_count and len(values):
        numbers = values.to_numpy(zero_copy_only=False)
        rises = numbers[1:] > numbers[:-1]
        if bool(np.all(rises | (numbers[1:] == numbers[:-1]))):
            ascending: Int64s = np.cumsum(np.append(np.int64(0), rises))
            return ascending
    encoded = values.dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes: Int64s = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _paired(left: Int64s, right: Int64s) -> Int64s:
    if not len(left):
        return left
    if not left.any():
        return right
    left = _dense(pa.array(left))  # so that the product does not overflow
    paired: Int64s = left * (int(right.max()) + 1) + right
    return paired


def _float_bits(column: pa.Array) -> pa.Array:
    kind = np.float32 if pa.types.is_float32(column.type) else np.float64
    floats = column.fill_null(0).to_numpy(zero_copy_only=False).astype(kind) + kind(0.0)
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.int32 if kind is np.float32 else np.int64)
    return pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False))


def _of_maps(column: pa.Array) -> Int64s:
    """Return codes of maps: a map is the sequence of its entries, sorted by their codes."""
    # After a cast to lists of structs, Arrow takes care of slices and nulls.
    entries = pa.list_(pa.struct([("k", column.type.key_type), ("v", column.type.item_type)]))
    lists = column.cast(entries)
    lengths = lists.value_lengths()
    codes = column_codes(lists.flatten())
    owner = np.repeat(np.arange(len(lists)), lengths.fill_null(0).to_numpy())
    return _sequences(lists, codes[np.lexsort((codes, owner))], lengths)


def _sequences(column: pa.Array, codes: Int64s, lengths: pa.Array) -> Int64s:
    """Return codes of sequences: each is the byte string of its items' codes."""
    sizes = lengths.fill_null(0).to_numpy().astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes * codes.itemsize)])
    texts = pa.Array.from_buffers(
        pa.large_binary(),
        len(column),
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(codes))],
    )
    return _with_nulls(_dense(texts), column)


def _of_structs(column: pa.Array) -> Int64s:
    codes = np.zeros(len(column), np.int64)
    for field in column.flatten():
        codes = _paired(codes, column_codes(field))
    return _with_nulls(_dense(pa.array(codes)), column)


def _with_nulls(codes: Int64s, column: pa.Array) -> Int64s:
    """Return the codes plus one, and 0 for null values."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    marked: Int64s = np.where(valid, codes + 1, 0)
    return marked


def subtract_rows(rows: pa.Table, gone: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Take rows out of a table; return the remaining rows, and the rows that were not found."""
    if rows.num_rows and gone.num_rows:
        rows, gone = _without_same_places(rows, gone, from_end=False)
    if rows.num_rows != gone.num_rows:
        rows, gone = _without_same_places(rows, gone, from_end=True)
    if not rows.num_rows or not gone.num_rows:
        return rows, gone
    own, other = row_codes([rows, gone])
    size = 1 + max(int(own.max()), int(other.max()))
    both = np.minimum(np.bincount(own, minlength=size), np.bincount(other, minlength=size))
    return rows.filter(_stay(own, both)), gone.filter(_stay(other, both))


def _stay(codes: Int64s, out: Int64s) -> pa.Array:
    """Return a mask without the first `out[c]` rows of each code `c`."""
    return pa.array(occurrences(codes) >= out[codes])


def occurrences(codes: Int64s) -> Int64s:
    """Return for every code how often it occurred before; codes are not negative."""
    order = stable_order(codes)
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sizes = np.diff(firsts, append=len(codes))
    before = np.empty(len(codes), np.int64)
    before[order] = np.arange(len(codes)) - np.repeat(firsts, sizes)
    return before


def _without_same_places(
    rows: pa.Table, gone: pa.Table, *, from_end: bool
) -> tuple[pa.Table, pa.Table]:
    """Take out rows that both tables have at the same place, unless a column is nested."""
    many = min(rows.num_rows, gone.num_rows)
    first, other = (one.num_rows - many if from_end else 0 for one in (rows, gone))
    differ = np.zeros(many, np.bool_)
    for left, right in zip(rows.columns, gone.columns, strict=True):
        if pa.types.is_nested(left.type):
            return rows, gone
        left, right = left.slice(first, many), right.slice(other, many)
        same = pc.equal(left, right)
        if same.null_count:
            same = pc.or_(same.fill_null(False), pc.and_(left.is_null(), right.is_null()))
        differ |= ~same.to_numpy()
    if differ.all():
        return rows, gone
    stay = pa.array(differ)
    return _with_part(rows, first, stay), _with_part(gone, other, stay)


def _with_part(rows: pa.Table, first: int, stay: pa.Array) -> pa.Table:
    part, behind = rows.slice(first, len(stay)), rows.slice(first + len(stay))
    return pa.concat_tables([rows.slice(0, first), part.filter(stay), behind])
