"""External sort of more rows than fit in memory: sorted runs on disk, merged while read.

    tables -> runs of some megabytes, each sorted, in one file without a name
           -> per round: all rows up to the least of the runs' last rows, sorted, yielded

A round reads one block of every run and takes the least of the blocks' last rows. All rows up to
it are at the start of the blocks, where a binary search in each block finds their end; no later
row of any run can precede them. So one run is in memory while runs are made, and one block per run
while they are merged. The file is read, not mapped: a process whose address space is bounded
needs that space for the sorting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.spill_files import BatchFile


def order_by_columns(table: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the row numbers in the order of `columnar.values`: nulls first, NaN last."""
    names: list[str] = []
    arrays: list[Any] = []
    for at, name in enumerate(columns):
        column = table.column(name)
        if pa.types.is_floating(column.type):
            # Arrow puts NaN beside null, so NaN sorts by a column of its own.
            names.append(f"{at}.nan")
            arrays.append(pc.is_nan(column))
        names.append(f"{at}")
        arrays.append(column)
    if not names:
        return np.arange(table.num_rows)
    keys = [(name, "ascending", "at_start") for name in names]
    indices = pc.sort_indices(pa.Table.from_arrays(arrays, names=names), sort_keys=keys)
    order: npt.NDArray[np.int64] = indices.to_numpy().astype(np.int64)
    return order


def sorted_tables(
    tables: Iterable[pa.Table], columns: Sequence[str], *, limits: EngineLimits
) -> Iterator[pa.Table]:
    """Yield all rows in the order of comparable columns, as several tables.

    The tables have one schema in Arrow's wide types, so that any size fits. Rows that agree in all
    these columns come in any order.
    """
    runs = [_Run(run, columns) for run in _runs(tables, columns, limits)]
    while runs := [run for run in runs if run.fill()]:
        fence = min(run.last for run in runs)
        parts = [run.upto(fence) for run in runs]
        table = pa.concat_tables([part for part in parts if part.num_rows])
        yield table if len(runs) == 1 else table.take(pa.array(order_by_columns(table, columns)))


def _runs(
    tables: Iterable[pa.Table], columns: Sequence[str], limits: EngineLimits
) -> list[Iterator[pa.Table]]:
    """Return sorted runs as streams of blocks; several runs share one nameless temporary file."""
    held: list[pa.Table] = []
    size, ends, block = 0, [0], limits.sort_block_bytes
    file: BatchFile | None = None
    try:
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size >= limits.sort_run_bytes:
                file = file or BatchFile(table.schema)
                ends.append(ends[-1] + _write(file, _sorted(held, columns), block))
                held, size = [], 0
        if file is None:
            return [_blocks(_sorted(held, columns), block)] if held else []
        if held:
            ends.append(ends[-1] + _write(file, _sorted(held, columns), block))
        reader = file.reader()
    finally:
        if file is not None:
            file.close()
    return [_read(reader, first, last) for first, last in pairwise(ends)]


def _sorted(tables: list[pa.Table], columns: Sequence[str]) -> pa.Table:
    table = pa.concat_tables(tables).combine_chunks()
    return table.take(pa.array(order_by_columns(table, columns)))


def _write(file: BatchFile, table: pa.Table, block: int) -> int:
    return file.write(table, rows_max=_block_rows(table, block))


def _read(reader: pa.ipc.RecordBatchFileReader, first: int, last: int) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([reader.get_batch(number)]) for number in range(first, last))


def _blocks(table: pa.Table, block: int) -> Iterator[pa.Table]:
    rows = _block_rows(table, block)
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))


def _block_rows(table: pa.Table, block: int) -> int:
    rows, size = int(table.num_rows), int(table.nbytes)
    return max(1, block * max(1, rows) // max(size, 1))


class _Run:
    """One sorted run, read block by block."""

    def __init__(self, blocks: Iterator[pa.Table], columns: Sequence[str]) -> None:
        self._blocks, self._columns = blocks, columns
        self._table: pa.Table | None = None
        self._start = self._stop = 0

    def fill(self) -> bool:
        if self._start == self._stop:
            self._table = next(self._blocks, None)
            self._start, self._stop = 0, 0 if self._table is None else self._table.num_rows
        return self._table is not None

    @property
    def last(self) -> tuple[Any, ...]:
        return self._key(self._stop - 1)

    def upto(self, fence: tuple[Any, ...]) -> pa.Table:
        low, high = self._start, self._stop
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) <= fence:
                low = middle + 1
            else:
                high = middle
        assert self._table is not None, "`fill` was not called, or returned False"
        part = self._table.slice(self._start, low - self._start)
        self._start = low
        return part

    def _key(self, row: int) -> tuple[Any, ...]:
        assert self._table is not None, "`fill` was not called, or returned False"
        return tuple(_order(self._table.column(name)[row].as_py()) for name in self._columns)


def _order(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and value != value:
        return (2,)
    return (1, value)
