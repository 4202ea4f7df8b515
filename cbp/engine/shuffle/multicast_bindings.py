"""Bindings of keys to multicast addresses: written by an epoch, read with its messages.

    out.associate(key, address) -> one file per task, beside the files of the stage's messages
    increment of messages        -> names these files, which are kept as long as the increment

The files become durable and are removed with the epoch's increments of messages
(`Increment.bindings`). Every task reads all of them, one row group at a time, and keeps its own
rows.

Shape:
    (the columns of the stage's key, `_address STRING` as JSON so that 1 and "1" differ,
    `_hash BIGINT` of the key); a pair may occur several times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codec import encode_rows
from cbp.engine.columnar.values import Row
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.parquet_writer import ParquetSink, WrittenFile
from cbp.engine.storage.table_names import flow_table
from cbp.errors import FileDamagedError, IncrementDamagedError
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema


@dataclass(frozen=True, slots=True)
class BindingFile:
    """The file of bindings that one task made in one epoch, and the number of its rows."""

    path: str
    rows: int
    epoch: int


def binding_schema(key: Schema) -> pa.Schema:
    """Return the schema of a file of bindings."""
    more = [pa.field("_address", pa.string()), pa.field("_hash", pa.int64())]
    return pa.schema([*arrow_schema(key), *more])


def read_bindings(file: BindingFile, key: Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file, one row group at a time."""
    with reading_increment(file.path, file.rows):
        parquet = open_parquet(file.path)
        row_count = parquet.metadata.num_rows
        if row_count != file.rows:
            raise IncrementDamagedError(file.path, expected=file.rows, found=row_count)
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group)
            try:
                named = table.select(binding_schema(key).names)
            except KeyError as exc:
                raise FileDamagedError(file.path, f"it lacks a column ({exc})") from exc
            yield named


class BindingSink:
    """Writes the file of bindings of one task, if there are any; `suffix` is unique to the task."""

    def __init__(
        self,
        stage: str,
        spec: TranslatorSpec,
        *,
        folder: str,
        epoch: int,
        part: int,
        suffix: str,
        hash_mask: int,
        faults: Faults,
    ) -> None:
        assert spec.key is not None, "only groups can be bound"
        loopback = spec.addressed[0]
        # The garbage collector finds the file in the folder of the messages; its name has the
        # epoch.
        file = flow_file(epoch, part, f"{suffix}-bindings")
        self.path = f"{flow_table(stage, loopback.name)}/_runs/{file}"
        self._key, self._mask = spec.key, hash_mask
        self._sink = ParquetSink(f"{folder}/{self.path}", binding_schema(spec.key), faults=faults)

    @property
    def rows(self) -> int:
        """Number of bindings taken so far."""
        return self._sink.rows

    def write(self, bindings: Sequence[Binding]) -> None:
        """Take bindings; equal bindings of one call are written once."""
        distinct = dict.fromkeys(bindings)
        columns = encode_rows([key for _, key in distinct], self._key)
        hashes = hash_columns(columns, [f.type for f in self._key.fields]) & np.int64(self._mask)
        texts = pa.array([json.dumps(address) for address, _ in distinct], pa.string())
        arrays = [*columns, texts, pa.array(hashes)]
        self._sink.write(pa.Table.from_arrays(arrays, schema=self._sink.schema))

    def close(self) -> WrittenFile | None:
        """Close the file and return it; `None` if there are no bindings. It is not synced yet."""
        return self._sink.close()


Binding = tuple[str | int, Row]
"""An address, and a key that is bound to it."""
