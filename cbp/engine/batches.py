"""Reading a Parquet file for people: some records at a time, few where they are wide.

Guaranteed: a batch has 16,384 records at most.
Not guaranteed: its bytes. They are judged by those of the file's pages, before compression;
of strings that are all alike the pages hold each but once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.state.sizes import rows_at_a_time

__all__ = ["read_batches"]


def read_batches(path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order; `None`: with all columns."""
    file = pq.ParquetFile(path)
    meta = file.metadata
    memory = sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
    rows = rows_at_a_time(rows=meta.num_rows, memory=memory)
    wanted = None if columns is None else list(columns)
    yield from file.iter_batches(rows, columns=wanted, use_threads=False)
