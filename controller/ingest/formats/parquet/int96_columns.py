"""Finds times of INT96 columns that Arrow does not give as they are in the file.

INT96 holds a day and the nanoseconds of that day, so it reaches some five million years. Arrow
makes it one number of 64 bits, which wraps around: in nanoseconds outside of 1677 to 2262, in
microseconds outside of some 290,000 years. In microseconds it also drops what is smaller. So these
columns are read in two more units. A time in microseconds is right if it is the same in
nanoseconds, wrapped around alike, and if its milliseconds, which cannot wrap around, are near.

pyarrow writes a time before 1970 with negative nanoseconds of the day, and reads them as a number
without sign: in microseconds, the time is too late by 2**64 nanoseconds. It is taken back where
that is certain; a nested one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.columnar.value_limits import inner_arrays

__all__ = ["Int96Columns", "Unit"]

Unit = Literal["us", "ns", "ms"]

_MICROS_AROUND, _NANOS_LEFT = divmod(1 << 64, 1_000)
_DAY_MILLIS = 86_400_000
_MILLIS_END = ((1 << 31) - 2_440_588) * _DAY_MILLIS
"""Milliseconds behind the last day of INT96, which counts from 4713 BC in 32 bits."""
_NANOS_END = ((1 << 63) - 1) // 1_000
"""Microseconds up to which a time can have been written with nanoseconds: until 2262."""


class Int96Columns:
    """Judges the columns of a file that hold INT96, in step with its reader.

    Args:
        file: The file.
        present: Columns that are read.
        open_: Opens the file once more, for times of INT96 in a unit.
        batch_rows: Rows that are read at a time.
    """

    def __init__(
        self,
        file: pq.ParquetFile,
        present: Sequence[str],
        open_: Callable[[Unit], pq.ParquetFile],
        batch_rows: int,
    ) -> None:
        schema = file.schema
        self._by_pyarrow = str(file.metadata.created_by).startswith("parquet-cpp")
        leaves = [schema.column(at) for at in range(len(schema))]
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        inside = {*paths, *(path.partition(".")[0] for path in paths)}
        self._names = [name for name in present if name in inside]
        self._others = [
            _Rows(open_(unit), self._names, batch_rows) for unit in ("ns", "ms") if self._names
        ]

    def checked(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
        """Return the next batch, and the rows whose times are not those of the file, by column.

        Each with the time that the file has, as text; `"a time"` for one that is nested.
        """
        if not self._names:
            return batch, {}
        others = [rows.take(batch.num_rows) for rows in self._others]
        wrong = dict[str, dict[int, str]]()
        for name in self._names:
            units = [batch.column(name), *(other.column(name) for other in others)]
            if _are_right(units):
                continue
            right = [_are_right([unit.slice(at, 1) for unit in units]) for at in range(len(batch))]
            if self._by_pyarrow and pa.types.is_timestamp(units[0].type):
                column, taken_back = _taken_back(units[0], units[1])
                batch = batch.set_column(batch.schema.get_field_index(name), name, column)
                right = [one or bool(taken_back[at]) for at, one in enumerate(right)]
            if not all(right):
                wrong[name] = {at: _shown(units, at) for at, one in enumerate(right) if not one}
        return batch, wrong


def _shown(units: Sequence[pa.Array], at: int) -> str:
    """Return the time that the file has: in nanoseconds if these have not wrapped around."""
    if not pa.types.is_timestamp(units[0].type):
        return "a time"
    nanos, millis = units[1][at].value, units[2][at].value
    if millis >= _MILLIS_END:  # Arrow takes the day for a number without sign
        millis -= (1 << 32) * _DAY_MILLIS
    fits = nanos // 1_000_000 == millis
    return str(np.datetime64(nanos, "ns") if fits else np.datetime64(millis, "ms"))


def _taken_back(times: pa.Array, nanoseconds: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return times without the 2**64 nanoseconds that they are too late, and which these are."""
    micros, nanos = _numbers(times), _numbers(nanoseconds)
    with np.errstate(over="ignore"):
        are_late = (nanos - micros * 1000 == _NANOS_LEFT) & (micros > _NANOS_END)
    right = pa.array(micros - are_late * _MICROS_AROUND, mask=~np.asarray(times.is_valid()))
    return right.view(times.type), are_late


def _are_right(units: Sequence[pa.Array]) -> bool:
    """Compare the same times in microseconds, nanoseconds and milliseconds, however deep."""
    if pa.types.is_timestamp(units[0].type):
        if units[1].type == units[2].type:  # no INT96, but another time beside it
            return True
        micros, nanos, millis = map(_numbers, units)
        with np.errstate(over="ignore"):
            return bool(np.all(micros * 1000 == nanos) and np.all(micros // 1000 == millis))
    return all(map(_are_right, zip(*map(inner_arrays, units), strict=True)))


def _numbers(times: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


class _Rows:
    """Rows of some columns, taken in any portions."""

    def __init__(self, file: pq.ParquetFile, names: list[str], batch_rows: int) -> None:
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=batch_rows, columns=names, use_threads=False
        )
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.RecordBatch:
        """Return the next rows as one batch."""
        parts = list[pa.RecordBatch]()
        while count:
            part = self._left if self._left is not None else next(self._batches)
            taken = part.slice(0, count)
            parts.append(taken)
            count -= taken.num_rows
            rest = part.slice(taken.num_rows)
            self._left = rest if rest.num_rows else None
        return pa.concat_batches(parts)
