"""Which values a column may hold: one rule for files that come in and columns that authors emit.

Arrow and Parquet hold more than Python, JSON and Spark have in common: times outside of the years
1 to 9999 (with which some databases write infinity, or years BC), and maps with a null key or a
duplicate key. Such a value would change, or stop the stage that reads it, so it is refused before
anything depends on it. Python objects need no such rule, since Python has no such values.
"""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
_DAYS = (date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY)
# Not made with `pa.scalar`: Arrow would import pandas before a reader process can hide it.
_BOUNDS = {
    pa.date32(): _DAYS,
    pa.timestamp("us", "UTC"): (_DAYS[0] * _DAY_MICROS, (_DAYS[1] + 1) * _DAY_MICROS - 1),
}
"""Maps types of times to the least and the greatest number that represents one."""


def why_not_held(array: pa.Array) -> str:
    """Return why a column cannot hold some (nested) value of an array; `""` if it can hold all."""
    if not len(array):
        return ""
    why = _why_not_map(array) if pt.is_map(array.type) else _why_not_time(array)
    return why or next(filter(None, map(why_not_held, inner_arrays(array))), "")


def inner_arrays(array: pa.Array) -> list[pa.Array]:
    """Return the arrays inside a nested array, with the same slice; none for any other array."""
    type_ = array.type
    if pt.is_struct(type_):
        return list(array.flatten())
    if pt.is_map(type_):
        first, last = (array.offsets[at].as_py() if len(array) else 0 for at in (0, -1))
        return [part.slice(first, last - first) for part in (array.keys, array.items)]
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return [array.flatten()]
    return []


def _why_not_time(array: pa.Array) -> str:
    if bounds := _BOUNDS.get(array.type):
        ends = pc.min_max(array)
        least, most = ends["min"], ends["max"]
        if least.is_valid and not bounds[0] <= least.value <= most.value <= bounds[1]:
            return "a time outside the years 1 to 9999"
    return ""


def _why_not_map(array: pa.Array) -> str:
    keys, _ = inner_arrays(array)
    if keys.null_count:
        return "a MAP with a null key"
    rows = np.repeat(np.arange(len(array)), np.diff(array.offsets.to_numpy()))
    return "a MAP with a duplicate key" if _has_twice(rows, keys) else ""


def _has_twice(rows: np.ndarray[tuple[int], np.dtype[np.int64]], keys: pa.Array) -> bool:
    """Return whether a row has two equal keys; -0.0 and 0.0 are equal, and NaN is equal to NaN."""
    if pt.is_nested(keys.type):
        texts = [repr(key) for key in keys.to_pylist()]
        return len({*zip(rows.tolist(), texts, strict=True)}) < len(keys)
    if pt.is_floating(keys.type):
        numbers = keys.to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        keys = pa.array(numbers)
    pairs = pa.table({"row": rows, "key": keys})
    return int(pairs.group_by(["row", "key"], use_threads=False).aggregate([]).num_rows) < len(keys)
