"""Checkpoints: one version of a table as a Parquet file (classic, single-part).

With a checkpoint a reader need not replay the entries before it. It repeats the log and adds
nothing, so writing it twice, or not at all, changes no answer.

Absent on purpose: tombstones (only the engine collects files here), statistics
as structs, sidecars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cbp.engine.delta.actions import Action, AddFile, Metadata, Protocol, Txn
from cbp.engine.storage.checked_parquet import open_parquet, parquet_file, reading

_TEXT, _LONG, _INT, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.bool_()
_TEXTS, _LIST = pa.map_(_TEXT, _TEXT), pa.list_(_TEXT)
_VECTOR = pa.struct(
    {
        "storageType": _TEXT,
        "pathOrInlineDv": _TEXT,
        "offset": _INT,
        "sizeInBytes": _INT,
        "cardinality": _LONG,
    }
)
_FIELDS: dict[str, dict[str, pa.DataType]] = {
    "txn": {"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG},
    "add": {
        "path": _TEXT,
        "partitionValues": _TEXTS,
        "size": _LONG,
        "modificationTime": _LONG,
        "dataChange": _BOOL,
        "stats": _TEXT,
        "tags": _TEXTS,
        "deletionVector": _VECTOR,
    },
    "remove": {
        "path": _TEXT,
        "deletionTimestamp": _LONG,
        "dataChange": _BOOL,
        "extendedFileMetadata": _BOOL,
        "partitionValues": _TEXTS,
        "size": _LONG,
        "deletionVector": _VECTOR,
    },
    "metaData": {
        "id": _TEXT,
        "name": _TEXT,
        "description": _TEXT,
        "format": pa.struct({"provider": _TEXT, "options": _TEXTS}),
        "schemaString": _TEXT,
        "partitionColumns": _LIST,
        "configuration": _TEXTS,
        "createdTime": _LONG,
    },
    "protocol": {
        "minReaderVersion": _INT,
        "minWriterVersion": _INT,
        "readerFeatures": _LIST,
        "writerFeatures": _LIST,
    },
}
_SCHEMA = pa.schema({kind: pa.struct(fields) for kind, fields in _FIELDS.items()})
_KINDS: dict[str, Any] = {"protocol": Protocol, "metaData": Metadata, "txn": Txn, "add": AddFile}


def encode_checkpoint(
    protocol: Protocol,
    metadata: Metadata,
    txns: Iterable[Txn],
    adds: Iterable[AddFile],
    *,
    path: str = "",
) -> tuple[bytes, int]:
    """Return a checkpoint's Parquet bytes, to be stored at `path`, and its action count; pure."""
    rows: list[tuple[str, dict[str, Any]]] = [
        ("protocol", protocol.to_json()),
        ("metaData", metadata.to_json()),
    ]
    rows += [("txn", txn.to_json()) for txn in txns]
    # A checkpoint repeats existing files; it changes no data itself.
    rows += [("add", add.to_json() | {"dataChange": False}) for add in adds]
    columns = [
        pa.array([body if kind == column.name else None for kind, body in rows], column.type)
        for column in _SCHEMA
    ]
    return parquet_file(pa.Table.from_arrays(columns, schema=_SCHEMA), path), len(rows)


def read_checkpoint(data: bytes, path: str = "a checkpoint") -> Iterator[Action]:
    """Yield the actions of any writer's classic checkpoint, except removes (`FileDamagedError`)."""
    with reading(path):
        file = open_parquet(path, data=data)
        present = [name for name in _KINDS if name in file.schema_arrow.names]
        table = file.read(present)
    for name in present:
        column = table.column(name)
        for body in column.filter(column.is_valid()).to_pylist(maps_as_pydicts="strict"):
            yield _KINDS[name].from_json(body)
