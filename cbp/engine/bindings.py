"""Bindings of keys to addresses: written by the epoch that makes them, read with its messages.

    out.associate(key, address) -> one file per task, beside the files of the stage's messages
    increment of messages        -> names these files, and so keeps them as long as itself

They belong to the epoch's increments of messages (`Increment.bindings`): durable with them,
forgotten with them. A file is read by every task, row group by row group, and each keeps the
rows of its buckets.

Shape:
    (the columns of the stage's key, `_address STRING` as JSON so that 1 and "1" differ,
    `_hash BIGINT` of the key); a pair may be there several times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import flow_table
from cbp.engine.call import Binding
from cbp.engine.faults import Faults
from cbp.engine.hashing import hash_columns
from cbp.engine.layout import flow_file
from cbp.engine.rows import encode_rows
from cbp.engine.sink import ParquetSink
from cbp.errors import IncrementDamagedError
from cbp.model.schema import Schema
from cbp.model.stage import TranslatorSpec

__all__ = ["BindingFile", "BindingSink", "read_bindings"]


@dataclass(frozen=True, slots=True)
class BindingFile:
    """Bindings of one task of one epoch.

    Attributes:
        path: Full path.
        rows: That it is promised to hold.
        epoch: That made them.
    """

    path: str
    rows: int
    epoch: int


def binding_schema(key: Schema) -> pa.Schema:
    """Return the schema of a file of bindings."""
    return (
        arrow_schema(key)
        .append(pa.field("_address", pa.string()))
        .append(pa.field("_hash", pa.int64()))
    )


def read_bindings(file: BindingFile, key: Schema) -> Iterator[pa.Table]:
    """Yield what a file holds, some rows at a time.

    Raises:
        IncrementDamagedError: The file is missing, damaged, or has other rows.
    """
    try:
        parquet = pq.ParquetFile(file.path)
        found = parquet.metadata.num_rows
        if found != file.rows:
            raise IncrementDamagedError(file.path, expected=file.rows, found=found)
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, use_threads=False)
            yield table.select(binding_schema(key).names)
    except (OSError, pa.ArrowException, KeyError) as exc:
        raise IncrementDamagedError(file.path, expected=file.rows, found=str(exc)) from exc


class BindingSink:
    """The file of bindings that one task writes, if there are any.

    Args:
        folder: The dataflow's folder.
        suffix: Ends the file's name; no other task has it.
        hash_mask: Applied to every hash.
    """

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
        # Where messages lie, so that a collector finds it: it knows the epoch by the name.
        file = flow_file(epoch, part, f"{suffix}-bindings")
        self.path = f"{flow_table(stage, loopback.name)}/_runs/{file}"
        self._key, self._mask = spec.key, hash_mask
        self._sink = ParquetSink(f"{folder}/{self.path}", binding_schema(spec.key), faults=faults)

    @property
    def rows(self) -> int:
        """Bindings taken so far."""
        return self._sink.rows

    def write(self, bindings: Sequence[Binding]) -> None:
        """Take bindings; equal ones of one call once."""
        distinct = dict.fromkeys(bindings)
        columns = encode_rows([key for _, key in distinct], self._key)
        hashes = hash_columns(columns, [f.type for f in self._key.fields]) & np.int64(self._mask)
        texts = pa.array([json.dumps(address) for address, _ in distinct], pa.string())
        arrays = [*columns, texts, pa.array(hashes)]
        self._sink.write(pa.Table.from_arrays(arrays, schema=self._sink.schema))

    def close(self) -> list[dict[str, Any]]:
        """Close the file; return its descriptor, if there is one. It is not synced yet."""
        file = self._sink.close()
        if file is None:
            return []
        return [{"kind": "bindings", "path": self.path, "rows": file.rows, "size": file.bytes}]
