"""Writes the records of one increment as Parquet parts, and gives the parts their final names.

    reader (any process)    PartWriter   .<name>.tmp, whole
    the intake                           synced, for several increments at the same time
    the intake              PartNames    renamed to <name>, between failpoints
    the intake                           their folder synced

Guaranteed: a file has its final name only when its content is complete and durable; its number of
records is what was written. Names of parts consist of increment, part and claim, so that another
try of the same claim replaces them. Not guaranteed: that an increment's files are ever used; only
the source log decides that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.key_index import GroupKey, choose_width, index_encodings, with_index
from cbp.engine.storage.checked_parquet import CHECKED, seal
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import SMALL_ROWS
from cbp.engine.storage.table_names import source_folder
from cbp.errors import OperatingError
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.schema import Schema
from controller.ingest.limits import IngestLimits

_SAMPLE, _SAMPLED_FROM = 2_000, 8_000
"""Number of values of a column that are sampled to find out whether values repeat, and the number
of rows from which on they are sampled."""


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A complete part under its temporary name."""

    name: str
    records: int
    bytes: int


class PartWriter:
    """Writes the parts of one increment under temporary names.

    Args:
        keys: The keys for which its files have an index.
        first: The number of the first part.
        draft: Its parts are read once and removed, so they are neither compressed nor indexed.
    """

    def __init__(
        self,
        folder: str,
        *,
        index: int,
        claim: str,
        schema: Schema,
        limits: IngestLimits,
        keys: Sequence[GroupKey] = (),
        first: int = 0,
        draft: bool = False,
    ) -> None:
        self._first, self._index_width, self._draft = first, 0, draft
        self._keys = () if draft else keys
        self._folder, self._index, self._claim = folder, index, claim
        self._schema, self._limits = arrow_schema(schema), limits
        self._parts: list[WrittenPart] = []
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._open: _Part | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write batches once they fill a row group, or at `finish`; raises `OSError`."""
        for batch in batches:
            self._gathered.append(batch)
            self._gathered_bytes += batch.nbytes
            if self._gathered_bytes >= self._limits.row_group_bytes:
                self._write_row_group()

    def finish(self) -> tuple[WrittenPart, ...]:
        """Write the gathered records, close the last part and return all."""
        self._write_row_group()
        if self._open is not None:
            self._close_part()
        return tuple(self._parts)

    def discard(self) -> None:
        """Remove the parts that were written; may be called again."""
        if self._open is not None:
            self._open.abandon()
            self._open = None
        for part in self._parts:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{_temporary(part.name)}")
        self._parts.clear()

    def _write_row_group(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, self._schema)
        self._gathered, self._gathered_bytes = [], 0
        if table.num_rows == 0:
            return
        if self._keys:
            self._index_width = self._index_width or choose_width(table)
            table = with_index(table, self._keys, self._index_width)
        if self._open is None:
            name = flow_file(self._index, self._first + len(self._parts), self._claim)
            self._open = _Part(self._folder, name, table, len(self._keys), draft=self._draft)
        self._open.write(table)
        if self._open.bytes >= self._limits.part_bytes:
            self._close_part()

    def _close_part(self) -> None:
        part, self._open = self._open, None
        assert part is not None, "no part is open"
        try:
            self._parts.append(part.close())
        except OSError:
            part.abandon()
            raise


class PartNames:
    """Gives written parts their final names, or removes them."""

    def __init__(
        self, files: Files, faults: Faults, folder: str, flow: str, index: int, claim: str
    ) -> None:
        self._files, self._faults, self._flow = files, faults, flow
        self.index, self.claim, self._within = index, claim, source_folder(flow)
        self.folder = f"{folder}/{self._within}"
        self._named: set[str] = set()

    def temporaries(self, parts: Sequence[WrittenPart]) -> list[str]:
        """Return the paths of the parts, which the caller syncs before it calls `publish`."""
        return [f"{self.folder}/{_temporary(part.name)}" for part in parts]

    def publish(self, parts: Sequence[WrittenPart], gone: Sequence[WrittenPart] = ()) -> Increment:
        """Give the parts their final names and return the increment.

        The names are durable once the caller has synced the folder. Raises `OSError`; `discard`
        removes the parts then.
        """
        for part in (*parts, *gone):
            self._faults("increment_file.before")
            os.rename(f"{self.folder}/{_temporary(part.name)}", f"{self.folder}/{part.name}")
            self._named.add(part.name)
            self._faults("increment_file.after")
        files, taken = (
            tuple(DataFile(f"{self._within}/{p.name}", p.records, p.bytes) for p in some)
            for some in (parts, gone)
        )
        return Increment(self._flow, self.index, self.index, files, gone=taken)

    def discard(self) -> None:
        """Remove the parts of this increment as far as possible; may be called again.

        A killed reader leaves no list of its files, so the temporary names are tried in order.
        Parts with a final name are kept unless this object gave that name: another controller may
        have taken over, and its log may refer to them.
        """
        part, missing = 0, False
        while not missing:
            missing = True
            name = flow_file(self.index, part, self.claim)
            with suppress(FileNotFoundError):
                os.unlink(f"{self.folder}/{_temporary(name)}")
                missing = False
            if os.path.exists(f"{self.folder}/{name}"):
                missing = False
                if name in self._named:
                    with suppress(OperatingError):
                        self._files.remove(f"{self.folder}/{name}")
            part += 1


def _leaves(schema: pa.Schema) -> list[str]:
    if not any(pa.types.is_nested(type_) for type_ in schema.types):
        return list(schema.names)
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(at).path for at in range(len(columns))]


def _repeating(table: pa.Table, indexes: int) -> list[str] | bool:
    """Return the columns that are written with a dictionary; `True`: all.

    A dictionary of values that hardly repeat, such as most keys and all hashes, would be larger and
    slower.
    """
    own = table.select(table.column_names[: table.num_columns - indexes])
    once = {name for name in own.column_names if _hardly_repeats(own.column(name))}
    if not indexes and not once:
        return True
    return [leaf for leaf in _leaves(own.schema) if leaf not in once]


def _hardly_repeats(column: pa.ChunkedArray) -> bool:
    """Return whether values occur less than twice on average, estimated from two samples.

    If each value occurred twice, about `_SAMPLE ** 2 / rows` of `_SAMPLE` drawn values would repeat
    an earlier one. The second sample consists of neighbours, since sorted values repeat only next
    to each other.
    """
    type_, rows = column.type, len(column)
    if rows < _SAMPLED_FROM or pa.types.is_nested(type_) or pa.types.is_boolean(type_):
        return False
    spread = column.take(pa.array(np.linspace(0, rows - 1, _SAMPLE, dtype=np.int64)))
    repeats = _SAMPLE * _SAMPLE // rows
    return all(
        len(sample) - pc.count_distinct(sample, mode="all").as_py() <= repeats
        for sample in (spread, column.slice(0, _SAMPLE))
    )


def _temporary(name: str) -> str:
    """Return a temporary name that `Files.remove_temporaries` recognises."""
    return f".{name}.tmp"


class _Part:
    def __init__(
        self, folder: str, name: str, first: pa.Table, indexes: int, *, draft: bool
    ) -> None:
        self.name, self.records, self.bytes = name, 0, 0
        self._temporary = f"{folder}/{_temporary(name)}"
        names: Any = False if draft else _repeating(first, indexes)
        codec: Any = "none" if draft else "snappy" if first.num_rows <= SMALL_ROWS else "zstd"
        described: Any = True
        encodings = index_encodings(list(first.schema)[-indexes:]) if indexes else {}
        if indexes:  # bits of hashes cannot be made smaller, and have no order
            described = _leaves(pa.schema(list(first.schema)[:-indexes]))
            codec = dict.fromkeys(described, codec)
        self._file: BinaryIO = open(self._temporary, "wb")  # noqa: SIM115 - closed by close or abandon
        self._writer: Any = pq.ParquetWriter(
            self._file,
            first.schema,
            compression=codec,
            use_dictionary=names,
            write_statistics=described,
            column_encoding=encodings or None,
            **CHECKED,
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.records += table.num_rows
        self.bytes = self._file.tell()

    def close(self) -> WrittenPart:
        self._writer.close()
        self._file.flush()
        self.bytes = seal(self._temporary)
        self._file.close()
        return WrittenPart(self.name, self.records, self.bytes)

    def abandon(self) -> None:
        # After a full disk, the writer's own close fails once more; the file is removed anyway.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary)
