"""State diff on whole columns: which records of many called groups are deleted, which are new.

The rule is that of `cbp.engine.kernel.state_diff`. If each group has at most one record before and
one after, these are compared column by column. Otherwise equal records at the same row are left out
first. Each of the rest gets an integer code (`row_codes`), and equal codes cancel out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.columnar.row_codes import column_codes, occurrences, row_codes


def settle_tables(
    before: pa.Table, before_ids: Int64s, emitted: pa.Table, emitted_ids: Int64s, *, groups: int
) -> tuple[Int64s, Int64s]:
    """Compare the state records of some groups with those that they emitted.

    The tables lack the key's columns, which are equal within a group; `before_ids` ascends. Returns
    the rows of `before` that are deleted, ascending, and those of `emitted` that are new, by group.
    """
    if _single(before_ids, groups) and _single(emitted_ids, groups):
        return _settle_single(before, before_ids, emitted, emitted_ids, groups)
    if any(pa.types.is_nested(type_) for type_ in before.schema.types):
        # Not compared row by row first: that needs the codes of nested values, which are most of
        # the work.
        return _settle_many(before, before_ids, emitted, emitted_ids)
    # Mostly an author emits what was read, in its order: leave out equal records at the same row.
    side = min(len(before_ids), len(emitted_ids))
    unlike = before_ids[:side] != emitted_ids[:side]
    if before.num_columns:
        first = (t if t.num_rows == side else t.slice(0, side) for t in (before, emitted))
        unlike |= rows_differ(*first)
    if len(before_ids) == len(emitted_ids) and not unlike.any():
        nothing = np.empty(0, np.int64)
        return nothing, nothing
    olds, news = (
        np.concatenate([np.flatnonzero(unlike), np.arange(side, len(ids))])
        for ids in (before_ids, emitted_ids)
    )
    died, born = _settle_many(
        take_rows(before, olds), before_ids[olds], take_rows(emitted, news), emitted_ids[news]
    )
    return olds[died], news[born]


def _single(ids: Int64s, groups: int) -> bool:
    return len(ids) <= groups and not np.any(np.bincount(ids, minlength=1) > 1)


def _settle_single(
    before: pa.Table, before_ids: Int64s, emitted: pa.Table, emitted_ids: Int64s, groups: int
) -> tuple[Int64s, Int64s]:
    row_of = np.full(groups, -1, np.int64)
    row_of[before_ids] = np.arange(len(before_ids))
    old = row_of[emitted_ids]
    again = np.flatnonzero(old >= 0)
    changed = np.zeros(len(again), np.bool_)
    if before.num_columns:
        changed = rows_differ(take_rows(before, old[again]), take_rows(emitted, again))
    stays = np.zeros(len(before_ids), np.bool_)
    stays[old[again[~changed]]] = True
    new = np.ones(len(emitted_ids), np.bool_)
    new[again[~changed]] = False
    return np.flatnonzero(~stays), _by_group(np.flatnonzero(new), emitted_ids)


def _settle_many(
    before: pa.Table, before_ids: Int64s, emitted: pa.Table, emitted_ids: Int64s
) -> tuple[Int64s, Int64s]:
    codes_before, codes_after = row_codes([before, emitted], [before_ids, emitted_ids])
    values = int(max(codes_before.max(initial=-1), codes_after.max(initial=-1))) + 1
    unchanged = np.minimum(
        np.bincount(codes_before, minlength=values), np.bincount(codes_after, minlength=values)
    )
    died, born = (
        np.flatnonzero(occurrences(codes) >= unchanged[codes])
        for codes in (codes_before, codes_after)
    )
    return died, _by_group(born, emitted_ids)


def _by_group(rows: Int64s, ids: Int64s) -> Int64s:
    chosen = ids[rows]
    if np.all(chosen[1:] >= chosen[:-1]):
        return rows
    return rows[np.argsort(chosen, kind="stable")]


def rows_differ(left: pa.Table, right: pa.Table) -> Mask:
    """Return which rows differ between two tables of equal length."""
    differ = np.zeros(left.num_rows, np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        differ |= _values_differ(mine, theirs)
    return differ


def _values_differ(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    if pa.types.is_nested(left.type):
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
        codes = column_codes(both)
        mask: Mask = codes[: len(left)] != codes[len(left) :]
        return mask
    differ = pc.not_equal(left, right)
    if pa.types.is_floating(left.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if differ.null_count:
        differ = pc.coalesce(differ, pc.xor(left.is_null(), right.is_null()))
    differs: Mask = differ.to_numpy()
    return differs


def _are_all(rows: Int64s) -> bool:
    if not len(rows):
        return True
    ends = int(rows[0]) == 0 and int(rows[-1]) == len(rows) - 1
    return ends and bool(np.all(rows[1:] > rows[:-1]))


def take_rows(table: pa.Table, rows: Int64s) -> pa.Table:
    """Return some rows; the table itself if they are all rows in order."""
    if len(rows) == table.num_rows and _are_all(rows):
        return table
    return table.take(pa.array(rows))
