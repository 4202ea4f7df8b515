"""The rows of one data file in the order of (hash, key, second key), for look-ups within a group.

Files of a state with a second key are written in this order, so a place in the order is the row
itself. A file of another origin (an earlier version, a correction, keys that share a hash) is
sorted in memory when a look-up first needs it. A look-up of a few groups checks only the order of
these groups' rows, once per process.

A search compares values, never hashes alone: rows of another key with the same hash are in another
range. It goes column by column, each by a binary search among rows that agree in the columns
before. Numbers and times are compared as Arrow stores them, without an object per row.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, as_type
from cbp.engine.columnar.groups import span_rows
from cbp.engine.columnar.row_codec import times_of
from cbp.engine.storage.external_sort import order_by_columns
from cbp.model.flow.schema import DataType

Bools = npt.NDArray[np.bool_]

_INTEGERS = frozenset({"BIGINT", "INT", "SMALLINT", "TINYINT"})
_FLOATS = frozenset({"DOUBLE", "FLOAT"})
_TIMES = frozenset({"DATE", "TIMESTAMP"})
_MANY = 8
"""If one row in this many is needed, checking all rows costs less than taking only those."""

Read = Callable[[Int64s | None], Sequence[pa.Array]]
"""Checks some rows, or all (`None`), for damage; returns the columns of an order."""

_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)


class SecondOrder:
    """Places of one file's rows in the order of (hash, columns of these types).

    Sort keys of values are those of `cbp.engine.columnar.values.order_key`.

    Whether the file has this order is checked by `check` for all rows, or by `check_ranges` for
    some; the other methods are called for rows that one of them has checked. Such a row keeps its
    place, whatever the rest of the file turns out to be.

    Both are given the reader of the file, and do not store it: the file stores its orders, and two
    objects that refer to each other stay in memory until a task ends. Hashes ascend. `rows` are the
    file's rows in the order of the hashes; `None` if the file has this order.
    """

    def __init__(self, hashes: Int64s, rows: Int64s | None, types: Sequence[DataType]) -> None:
        self._hashes, self._rows, self._types = hashes, rows, types
        self._lock = threading.Lock()
        self._is_checked, self._is_unique = False, rows is None
        self._passed = np.zeros(0, np.bool_)
        self._arrays: Sequence[pa.Array] = ()
        self._columns: Sequence[_Column] = ()

    @property
    def is_sorted(self) -> bool:
        """Whether the file itself has this order."""
        return self._rows is None

    def check(self, read: Read) -> None:
        """Check all rows once; sort them if the file has another order."""
        if not self._is_checked:
            with self._lock:
                self._check_all(read)

    def _check_all(self, read: Read) -> None:
        if self._is_checked:  # by another thread
            return
        columns, rows = read(None), self._rows
        is_unique = rows is None and ascend(self._hashes, columns, strictly=True)
        if not is_unique and (rows is not None or not ascend(self._hashes, columns)):
            rows = _sorted_rows(self._hashes, rows, columns)
            columns = [column.take(pa.array(rows)) for column in columns]
        self._take(columns)
        self._rows, self._is_unique, self._is_checked = rows, is_unique, True
        self._passed = np.zeros(0, np.bool_)

    def check_ranges(self, starts: Int64s, stops: Int64s, read: Read) -> None:
        """Check ranges of rows, each with all rows of a hash; if they are many, check all rows."""
        if not self._is_checked:
            some = np.flatnonzero(stops > starts)
            starts, sizes = starts[some], (stops - starts)[some]
            is_few = self._rows is None and _MANY * int(sizes.sum()) < len(self._hashes)
            with self._lock:
                if not (is_few and self._check_some(starts, sizes, read)):
                    self._check_all(read)

    def _check_some(self, starts: Int64s, sizes: Int64s, read: Read) -> bool:
        """Check ranges of rows under the lock; return whether the file has them in this order."""
        if self._is_checked:  # by another thread: after sorting, the file has another order
            return True
        if not len(self._passed):
            self._passed = np.zeros(len(self._hashes), np.bool_)
        fresh = np.flatnonzero(~self._passed[starts])
        if not len(fresh):
            return True
        starts, sizes = starts[fresh], sizes[fresh]
        rows = span_rows(starts, sizes)
        columns = read(rows)
        # A single null or NaN changes how all values of a column are compared.
        kinds = {one.kind for one in self._types}
        is_plain = not any(one.null_count for one in columns) and _FLOATS.isdisjoint(kinds)
        groups = np.repeat(np.arange(len(starts)), sizes)
        parts = [column.take(pa.array(rows)) for column in columns] if is_plain else []
        is_unique = is_plain and self._is_unique and ascend(groups, parts, strictly=True)
        if is_unique or (is_plain and ascend(groups, parts)):
            self._is_unique = is_unique
            self._take(columns)
            self._passed[starts] = True
            return True
        return False

    def _take(self, columns: Sequence[pa.Array]) -> None:
        if len(columns) != len(self._arrays) or any(
            new is not old for new, old in zip(columns, self._arrays, strict=True)
        ):
            pairs = zip(columns, self._types, strict=True)
            self._columns, self._arrays = [_Column(*pair) for pair in pairs], columns

    def rows(self, start: int, stop: int) -> Int64s:
        """Return the rows of the file at some places, in order."""
        return np.arange(start, stop) if self._rows is None else self._rows[start:stop]

    def row(self, place: int) -> int:
        """Return the row of the file at a place."""
        return place if self._rows is None else int(self._rows[place])

    def values(self, start: int, stop: int, *, first: int = 0) -> Iterator[tuple[Any, ...]]:
        """Yield the values of the columns from `first` on, at some places in order."""
        columns = [column.values(start, stop) for column in self._columns[first:]]
        return zip(*columns, strict=True) if columns else repeat((), stop - start)

    def span(
        self, order: tuple[Any, ...], start: int, stop: int, *, first: int = 0
    ) -> tuple[int, int]:
        """Return the places that have these sort keys in the columns from `first` on.

        All of `start` to `stop` agree in the columns before.
        """
        for column, wanted in zip(self._columns[first:], order, strict=False):
            start, stop = column.span(wanted, start, stop)
        return start, stop

    def spans(
        self, wanted: Sequence[pa.Array], starts: Int64s, stops: Int64s, *, first: int = 0
    ) -> tuple[Int64s, Int64s]:
        """Return the result of `span` for many wanted rows, which are given as columns."""
        last = self._columns[-1] if self._is_unique and self._columns else None
        for column, values in zip(self._columns[first:], wanted, strict=False):
            starts, stops = column.spans(values, starts, stops, unique=column is last)
        return starts, stops

    def rows_at(self, places: Int64s) -> Int64s:
        """Return the rows of the file at some places."""
        return places if self._rows is None else self._rows[places]

    def search(
        self, order: tuple[Any, ...], start: int, stop: int, *, first: int = 0, behind: bool = False
    ) -> int:
        """Return the first place that is not before (`behind`: after) these values; see `span`."""
        for column, wanted in zip(self._columns[first:], order[:-1], strict=False):
            start, stop = column.span(wanted, start, stop)
        if not order:
            return stop if behind else start
        column = self._columns[first + len(order) - 1]
        return column.edge(order[-1], start, stop, behind=behind)


class _Column:
    """One column in the order of the places; searched where earlier columns agree."""

    def __init__(self, array: pa.Array, type_: DataType) -> None:
        self._kind, self._array = type_.kind, array
        self._values: Any = _raw(array, type_)
        self._has_nulls = array.null_count > 0
        self._numbers = _whole_numbers(array, type_.kind)
        self._has_nan = type_.kind in _FLOATS and bool(np.isnan(np.asarray(self._values)).any())

    def values(self, start: int, stop: int) -> list[Any]:
        part = self._array.slice(start, stop - start)
        values: list[Any] = times_of(part) if self._kind in _TIMES else part.to_pylist()
        return values

    def edge(self, wanted: Any, start: int, stop: int, *, behind: bool) -> int:
        """Return the first place of a range whose value is not below (or is above) `wanted`."""
        rank, search = wanted[0], bisect_right if behind else bisect_left
        if rank == (2 if behind else 0):
            return stop if behind else start
        start, stop = self._inner(start, stop)
        if rank != 1:
            return start if behind else stop
        return search(self._values, self._target(wanted), start, stop)

    def span(self, wanted: Any, start: int, stop: int) -> tuple[int, int]:
        """Return the places of `start` to `stop` that have a value."""
        if stop <= start:
            return start, start
        if wanted[0] != 1 or self._has_nulls or self._has_nan:
            first = self.edge(wanted, start, stop, behind=False)
            return first, self.edge(wanted, first, stop, behind=True)
        target, values = self._target(wanted), self._values
        # Mostly all rows (if it is of the key) or one (second key) have the value: tried first.
        first = start
        if values[start] != target:
            first = bisect_left(values, target, start, stop)
            if first == stop or values[first] != target:
                return first, first
        if first + 1 == stop or values[first + 1] != target:
            return first, first + 1
        if values[stop - 1] == target:
            return first, stop
        return first, bisect_right(values, target, first + 1, stop)

    def spans(
        self, wanted: pa.Array, starts: Int64s, stops: Int64s, *, unique: bool
    ) -> tuple[Int64s, Int64s]:
        """Return in each range the places of its wanted value; at most one if `unique`."""
        wanted = as_type(wanted, self._array.type)
        # Mostly all rows of a range have the value, which is of their key: this is tried first.
        whole = self._have(wanted, starts, starts + 1 == stops if unique else starts < stops)
        whole = whole if unique else self._have(wanted, stops - 1, whole)
        lefts, rights = starts.copy(), stops.copy()
        rest = np.flatnonzero(~whole & (starts < stops))
        if len(rest):
            values, ends = wanted.take(pa.array(rest)), stops[rest]
            left = self._searched(values, starts[rest], ends, behind=False)
            right = left + self._have(values, left, left < ends)
            lefts[rest], rights[rest] = left, right
            if unique:
                return lefts, rights
            more = np.flatnonzero(self._have(values, right, (right > left) & (right < ends)))
            if len(more):
                some = values.take(pa.array(more))
                right[more] = self._searched(some, right[more], ends[more], behind=True)
                rights[rest] = right
        return lefts, rights

    def _have(self, wanted: pa.Array, places: Int64s, asked: Bools) -> Bools:
        have, some = np.zeros(len(places), np.bool_), np.flatnonzero(asked)
        if len(some) and self._numbers is not None and not wanted.null_count:
            values = _whole_numbers(wanted, self._kind)
            have[some] = self._numbers[places[some]] == values[some]
        elif len(some):
            values = wanted if len(some) == len(wanted) else wanted.take(pa.array(some))
            have[some] = _equal(self._array.take(pa.array(places[some])), values)
        return have

    def _searched(self, wanted: pa.Array, starts: Int64s, stops: Int64s, *, behind: bool) -> Int64s:
        """Return the first place of each range that is not before, or is after, its value."""
        found, at = starts.copy(), np.arange(len(starts))
        lows, highs, numbers = starts, stops, None
        if self._numbers is not None and not wanted.null_count:
            numbers = _whole_numbers(wanted, self._kind)
        while len(at):
            left = lows < highs
            if not left.all():  # texts are copied only when some searches have ended
                found[at], some = lows, np.flatnonzero(left)
                at, lows, highs = at[some], lows[some], highs[some]
                if numbers is None:
                    wanted = wanted.take(pa.array(some))
                else:
                    numbers = numbers[some]
                continue
            middles = (lows + highs) // 2
            if numbers is None:
                rows = self._array.take(pa.array(middles))
                before = _before(rows, wanted, equal=behind)
            else:
                rows = self._numbers[middles]
                before = rows <= numbers if behind else rows < numbers
            lows, highs = np.where(before, middles + 1, lows), np.where(before, highs, middles)
        return found

    def _inner(self, start: int, stop: int) -> tuple[int, int]:
        """Return the places that are neither null, which come first, nor NaN, which come last."""
        if self._has_nulls:
            start = bisect_left(range(stop), True, start, stop, key=self._is_valid)
        if self._has_nan:
            stop = bisect_left(range(stop), True, start, stop, key=self._is_nan)
        return start, stop

    def _is_valid(self, place: int) -> bool:
        return bool(self._array[place].is_valid)

    def _is_nan(self, place: int) -> bool:
        value = self._values[place]
        return bool(value != value)

    def _target(self, wanted: Any) -> Any:
        """Return a value in the form of `_values`."""
        value = wanted[1]
        if self._kind == "DATE":
            return (value - _EPOCH_DAY).days
        if self._kind == "TIMESTAMP":
            return (value - _EPOCH) // timedelta(microseconds=1)
        return value


class _Scalars:
    """The values of a column as Python objects, made one by one."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __getitem__(self, place: int) -> Any:
        return self._array[place].as_py()


def _raw(array: pa.Array, type_: DataType) -> Any:
    """Return a column's values, indexed by place; a null has an arbitrary value."""
    kind = type_.kind
    if kind == "DATE":
        array = array.view(pa.int32())
    elif kind == "TIMESTAMP":
        array = array.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    elif kind not in _INTEGERS | _FLOATS:
        return _Scalars(array)
    return memoryview((array.fill_null(0) if array.null_count else array).to_numpy())


def _whole_numbers(array: pa.Array, kind: str) -> Any:
    """Return a column of whole numbers or times without nulls as an array; `None` for others."""
    if array.null_count or kind not in {*_INTEGERS, "DATE", "TIMESTAMP"}:
        return None
    return np.asarray(_raw(array, DataType(kind)))


def _sorted_rows(hashes: Int64s, rows: Int64s | None, columns: Sequence[pa.Array]) -> Int64s:
    if rows is None:
        rows = np.arange(len(hashes))
    names = [f"c{at}" for at in range(len(columns))]
    table = pa.table([column.take(pa.array(rows)) for column in columns], names=names)
    table = table.append_column("_hash", pa.array(hashes))
    return rows[order_by_columns(table, ["_hash", *names])]


def ascend(groups: Int64s, columns: Sequence[pa.Array], *, strictly: bool = False) -> bool:
    """Return whether rows of one group ascend by the columns; nulls first, NaN last.

    Groups ascend. `strictly`: no two rows of a group are equal in all columns.
    """
    alike = groups[1:] == groups[:-1]
    for column in columns:
        if not alike.any():
            return True
        above, equal = _compared(column)
        if bool((alike & above).any()):
            return False
        alike &= equal
    return not (strictly and bool(alike.any()))


def _compared(column: pa.Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each value but the last whether it is above, and whether it equals, the next."""
    left, right = column[:-1], column[1:]
    above, equal = _mask(pc.greater(left, right)), _mask(pc.equal(left, right))
    if pa.types.is_floating(column.type):
        nan = _mask(pc.is_nan(column))
        above = np.where(nan[:-1] | nan[1:], nan[:-1] & ~nan[1:], above)
        equal |= nan[:-1] & nan[1:]
    if column.null_count:
        null = _mask(pc.is_null(column))
        above = np.where(null[:-1] | null[1:], ~null[:-1] & null[1:], above)
        equal = np.where(null[:-1] | null[1:], null[:-1] & null[1:], equal)
    return above, equal


def _before(rows: pa.Array, wanted: pa.Array, *, equal: bool) -> Bools:
    """Return which values come before those beside them, or are equal; nulls first, NaN last."""
    compared = (pc.less_equal if equal else pc.less)(rows, wanted)
    if _is_plain(rows, wanted):
        return _mask(compared)
    ranks, targets = _ranks(rows), _ranks(wanted)
    alike = ranks == targets
    before: Bools = (ranks < targets) | (alike & (_mask(compared) | ((ranks != 1) & equal)))
    return before


def _equal(rows: pa.Array, wanted: pa.Array) -> Bools:
    """Return which values are equal to those beside them; null is equal to null, NaN to NaN."""
    equal = _mask(pc.equal(rows, wanted))
    if _is_plain(rows, wanted):
        return equal
    ranks, targets = _ranks(rows), _ranks(wanted)
    alike: Bools = (ranks == targets) & (equal | (ranks != 1))
    return alike


def _is_plain(rows: pa.Array, wanted: pa.Array) -> bool:
    return not (rows.null_count or wanted.null_count or pa.types.is_floating(rows.type))


def _ranks(values: pa.Array) -> npt.NDArray[np.int8]:
    """Return 0 for a null, 2 for NaN, and 1 for other values."""
    ranks = np.ones(len(values), np.int8)
    if pa.types.is_floating(values.type):
        ranks[_mask(pc.is_nan(values))] = 2
    if values.null_count:
        ranks[_mask(pc.is_null(values))] = 0
    return ranks


def _mask(values: pa.Array) -> npt.NDArray[np.bool_]:
    filled = values.fill_null(False) if values.null_count else values
    mask: npt.NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return mask
