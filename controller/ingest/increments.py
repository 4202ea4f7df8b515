"""Writes the records of one accepted file as the Parquet files of an increment.

Guaranteed: a file stands under its final name only when it is whole and durable;
its number of records is what was written. Parts are named by increment, part and
claim, so that another try of the same claim replaces them. Not guaranteed: that
an increment's files are ever used; only the source log decides that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import source_folder
from cbp.engine.faults import Faults
from cbp.engine.files import Files
from cbp.engine.layout import flow_file
from cbp.errors import OperatingError
from cbp.model.increment import DataFile, Increment
from cbp.model.schema import Schema
from controller.ingest.limits import IngestLimits

__all__ = ["IncrementWriter"]


class IncrementWriter:
    """Writes one increment of one source.

    Args:
        folder: The dataflow's folder; a local path.
        claim: Id that names the files.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        *,
        flow: str,
        index: int,
        claim: str,
        schema: Schema,
        limits: IngestLimits,
        faults: Faults,
    ) -> None:
        self._files, self._folder, self._faults = files, folder, faults
        self._flow, self._index, self._claim = flow, index, claim
        self._schema, self._limits = arrow_schema(schema), limits
        self._parts: list[DataFile] = []
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._open: _Part | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all batches; nothing is visible before `finish`.

        Raises:
            OSError: The device is full or failed.
        """
        for batch in batches:
            self._gathered.append(batch)
            self._gathered_bytes += batch.nbytes
            if self._gathered_bytes >= self._limits.row_group_bytes:
                self._write_row_group()
        if self._gathered:
            self._write_row_group()

    def finish(self) -> Increment:
        """Make the files durable under their names and return the increment."""
        if self._open is not None:
            self._close_part()
        if self._parts:
            self._files.sync_dir(f"{self._folder}/{source_folder(self._flow)}")
        return Increment(self._flow, self._index, self._index, tuple(self._parts))

    def discard(self) -> None:
        """Remove what was written, as far as it goes; may be called again."""
        if self._open is not None:
            self._open.abandon()
            self._open = None
        for part in self._parts:
            with suppress(OperatingError):
                self._files.remove(f"{self._folder}/{part.path}")
        self._parts.clear()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._gathered, self._schema)
        self._gathered, self._gathered_bytes = [], 0
        if table.num_rows == 0:
            return
        if self._open is None:
            name = flow_file(self._index, len(self._parts), self._claim)
            self._open = _Part(f"{self._folder}/{source_folder(self._flow)}", name, self._schema)
        self._open.write(table)
        if self._open.bytes >= self._limits.part_bytes:
            self._close_part()

    def _close_part(self) -> None:
        part, self._open = self._open, None
        assert part is not None, "there is an open part"
        try:
            part.close()
            self._faults("increment_file.before")
            part.rename()
            self._faults("increment_file.after")
        except OSError:
            part.abandon()
            raise
        path = f"{source_folder(self._flow)}/{part.name}"
        self._parts.append(DataFile(path, part.records, part.bytes))


class _Part:
    """One Parquet file under a temporary name until it is renamed."""

    def __init__(self, folder: str, name: str, schema: pa.Schema) -> None:
        self.name, self.records, self.bytes = name, 0, 0
        self._path = f"{folder}/{name}"
        # The form of name that `Files.remove_temporaries` knows.
        self._temporary = f"{folder}/.{name}.tmp"
        self._file: BinaryIO = open(self._temporary, "wb")  # noqa: SIM115 - closed by close or abandon
        self._writer: Any = pq.ParquetWriter(self._file, schema, compression="snappy")

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.records += table.num_rows
        self.bytes = self._file.tell()

    def close(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self.bytes = self._file.tell()
        self._file.close()

    def rename(self) -> None:
        os.rename(self._temporary, self._path)

    def abandon(self) -> None:
        # After a full disk, the writer's own close fails once more; the file goes anyway.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary)
