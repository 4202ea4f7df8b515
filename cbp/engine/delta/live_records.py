"""Reads the live records of a data file in small batches.

Guaranteed: a batch has at most `EngineLimits.read_rows` records, and fewer if they are wide. Their
width is estimated from the uncompressed pages: too low if strings repeat, since a page contains a
repeated string only once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import live_in, read_vector
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.file_names import INDEX_PREFIX
from cbp.engine.storage.file_sizes import bytes_unpacked, rows_at_a_time


def read_batches(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    limits: EngineLimits,
    without: Collection[str] = (),
    dictionaries: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield records in order, without columns `without`; `dictionaries` are read as such."""
    file = open_parquet(path, dictionaries=dictionaries)
    meta = file.metadata
    rows = rows_at_a_time(limits, rows=meta.num_rows, memory=bytes_unpacked(meta))
    names = columns or file.schema_arrow.names
    wanted = [name for name in names if not name.startswith(INDEX_PREFIX) and name not in without]
    yield from file.iter_batches(rows, wanted)


def live_batches(
    table: str, file: AddFile, columns: Sequence[str] | None = None, *, limits: EngineLimits
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a table's file that are not dead, in order."""
    vector = file.deletion_vector
    dead = BitMap64() if vector is None else read_vector(table, vector)
    at = 0
    for batch in read_batches(f"{table}/{file.path}", columns, limits=limits):
        rows = live_in(dead, at, at + batch.num_rows)
        yield batch if len(rows) == batch.num_rows else batch.take(pa.array(rows - at))
        at += batch.num_rows


def page_of(batches: Iterable[pa.RecordBatch], offset: int, limit: int) -> list[dict[str, Any]]:
    """Return at most `limit` records, starting at `offset`."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        if offset >= batch.num_rows:
            offset -= batch.num_rows
            continue
        part = pa.Table.from_batches([batch.slice(offset, limit - len(rows))])
        rows += part.to_pylist(maps_as_pydicts="strict")
        offset = 0
        if len(rows) >= limit:
            break
    return rows
