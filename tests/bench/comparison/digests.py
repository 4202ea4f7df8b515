"""Computes the `Digest` of a table: in Spark where the records lie, or by columns in this process.

Both give the same digest for the same records. A record's hash is XXH64 over its columns and over
which of them are null, chained as in Spark (`cbp.engine.columnar.key_hash`); a digest is a sum of
hashes. Spark brings no record to the driver. This process holds some thousand records in memory at
a time, and 32 bytes per emitted record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.key_hash import hash_columns
from cbp.model.flow.schema import DataType, Field
from tests.bench.comparison.result_comparison import Digest

__all__ = ["digest_of", "frame_digest", "last_digest", "last_frame"]

_LOW = (1 << 32) - 1
_BOOLEAN = DataType("BOOLEAN")

Int64s = npt.NDArray[np.int64]
Batches = Iterable[pa.RecordBatch]


def frame_digest(frame: Any, names: Sequence[str]) -> Digest:
    """Return the digest of a Spark frame's columns."""
    n = "coalesce(sum(n), 0L)" if "n" in names else "0L"
    hashed = frame.selectExpr(*names, f"{_hash_sql(names)} AS _h")
    # In halves: the sum of whole hashes does not fit a BIGINT.
    halves = f"coalesce(sum(_h & {_LOW}L), 0L)", "coalesce(sum(shiftright(_h, 32)), 0L)"
    rows, total, low, high = hashed.selectExpr("count(*)", n, *halves).first()
    return Digest(int(rows), int(total), int(low) + (int(high) << 32))


def last_frame(frame: Any, key: Sequence[str], names: Sequence[str], order: str) -> Any:
    """Return a Spark frame of the last record per key.

    Args:
        frame: All records, and a column to order them by.
        key: Columns of the key; empty means that every record counts.
        names: Columns of a record.
        order: The column that orders the records of a key; its values are distinct per key.
    """
    if not key:
        return frame
    values = [name for name in names if name not in key]
    last = [f"max_by({name}, {order}) AS {name}" for name in values]
    from pyspark.sql import functions as F

    return frame.groupBy(*key).agg(*map(F.expr, last)).select(*names)


def digest_of(batches: Batches, fields: Sequence[Field]) -> Digest:
    """Return the digest of some columns of records."""
    digest = Digest(0, 0, 0)
    for batch in batches:
        digest += _summed(batch, _hashes(batch, fields), fields)
    return digest


def last_digest(
    batches: Batches, key: Sequence[Field], fields: Sequence[Field], order: str
) -> Digest:
    """Return the digest of the last record per key; see `last_frame`."""
    if not key:
        return digest_of(batches, fields)
    empty = np.empty((4, 0), np.int64)
    counting = any(field.name == "n" for field in fields)
    parts = [
        np.stack(
            [
                _hashes(batch, key),
                batch.column(order).to_numpy(),
                _hashes(batch, fields),
                _counts(batch) if counting else np.zeros(batch.num_rows, np.int64),
            ]
        )
        for batch in batches
    ]
    keys, orders, hashes, n = np.concatenate([empty, *parts], axis=1)
    ascending = np.lexsort((orders, keys))
    followed = np.append(np.diff(keys[ascending]) == 0, False)[: len(ascending)]
    last = ascending[~followed]
    return Digest(len(last), int(n[last].sum()), _sum(hashes[last]))


def _hash_sql(names: Sequence[str]) -> str:
    return f"xxhash64({', '.join([*names, *(f'{name} IS NULL' for name in names)])})"


def _hashes(batch: pa.RecordBatch, fields: Sequence[Field]) -> Int64s:
    columns = [batch.column(field.name) for field in fields]
    types = [field.type for field in fields] + [_BOOLEAN] * len(fields)
    hashes: Int64s = hash_columns([*columns, *map(pc.is_null, columns)], types)
    return hashes


def _summed(batch: pa.RecordBatch, hashes: Int64s, fields: Sequence[Field]) -> Digest:
    counting = any(field.name == "n" for field in fields)
    n = int(_counts(batch).sum()) if counting else 0
    return Digest(batch.num_rows, n, _sum(hashes))


def _counts(batch: pa.RecordBatch) -> Int64s:
    counts: Int64s = pc.fill_null(batch.column("n"), 0).to_numpy(zero_copy_only=False)
    return counts


def _sum(hashes: Int64s) -> int:
    """Sum in halves: the sum does not fit 64 bits."""
    return int((hashes & _LOW).sum()) + (int((hashes >> 32).sum()) << 32)
