"""Reads Avro as its specification says, one value at a time: slow, obvious, and not the product's.

It knows what the fuzzer's files can be declared as; anything else is an `AssertionError`.
"""

from __future__ import annotations

import bz2
import io
import json
import struct
import zlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["avro_rows"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def avro_rows(data: bytes, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return the records of an object container file, by the names of their columns."""
    file = io.BytesIO(data)
    assert file.read(4) == b"Obj\x01"
    metadata = dict(_pairs(file))
    sync, schema = file.read(16), json.loads(metadata[b"avro.schema"])
    codec = metadata.get(b"avro.codec", b"null").decode()
    rows = []
    while file.tell() < len(data):
        count, size = _long(file), _long(file)
        block = io.BytesIO(_unpacked(codec, _bytes(file, size)))
        assert file.read(16) == sync
        for _ in range(count):
            row = _record(block, schema)
            rows.append(tuple(row.get(name) for name in names))
        assert not block.read(1)
    return rows


def _pairs(file: io.BytesIO) -> list[tuple[bytes, bytes]]:
    pairs = []
    while count := _long(file):
        if count < 0:
            count = -count
            _long(file)
        for _ in range(count):
            key = _bytes(file, _long(file))
            pairs.append((key, _bytes(file, _long(file))))
    return pairs


def _unpacked(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        return zlib.decompress(data, -15)
    if codec == "bzip2":
        return bz2.decompress(data)
    if codec == "zstandard":
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()  # type: ignore[no-any-return]
    if codec == "snappy":
        return _snappy(data)
    assert codec == "null"
    return data


def _snappy(data: bytes) -> bytes:
    size = shift = at = 0
    while True:
        size |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            break
    plain: bytes = pa.Codec("snappy").decompress(data[:-4], size).to_pybytes()
    assert zlib.crc32(plain).to_bytes(4, "big") == data[-4:]
    return plain


def _bytes(file: io.BytesIO, size: int) -> bytes:
    assert 0 <= size <= 1 << 30
    data = file.read(size)
    assert len(data) == size
    return data


def _long(file: io.BytesIO) -> int:
    value = shift = 0
    while True:
        (byte,) = _bytes(file, 1)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    assert value < 1 << 64
    return (value >> 1) ^ -(value & 1)


def _record(file: io.BytesIO, schema: Any) -> dict[str, Any]:
    while isinstance(schema["type"], dict):
        schema = schema["type"]
    return {field["name"]: _value(file, field["type"]) for field in schema["fields"]}


def _value(file: io.BytesIO, schema: Any) -> Any:
    if isinstance(schema, list):
        at = _long(file)
        assert 0 <= at < len(schema)
        return _value(file, schema[at])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, list | dict):
        return _value(file, kind)
    value = _plain(file, kind, schema)
    return _logical(value, schema) if isinstance(schema, dict) else value


def _plain(file: io.BytesIO, kind: str, schema: Any) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return {0: False, 1: True}[_bytes(file, 1)[0]]
    if kind in ("int", "long"):
        return _long(file)
    if kind == "float":
        return struct.unpack("<f", _bytes(file, 4))[0]
    if kind == "double":
        return struct.unpack("<d", _bytes(file, 8))[0]
    if kind == "string":
        return _bytes(file, _long(file)).decode()
    if kind == "bytes":
        return _bytes(file, _long(file))
    if kind == "fixed":
        return _bytes(file, schema["size"])
    if kind == "enum":
        return schema["symbols"][_long(file)]
    if kind == "record":
        return _record(file, schema)
    assert kind in ("array", "map"), kind
    return _items(file, schema)


def _items(file: io.BytesIO, schema: Any) -> list[Any]:
    values = []
    while count := _long(file):
        if count < 0:
            count = -count
            _long(file)
        for _ in range(count):
            if schema["type"] == "map":
                _bytes(file, _long(file)).decode()
            values.append(_value(file, schema["items" if schema["type"] == "array" else "values"]))
    return values


def _logical(value: Any, schema: dict[str, Any]) -> Any:
    logical = schema.get("logicalType")
    if logical == "decimal" and isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-schema.get("scale", 0))
    units = {"millis": 1000, "micros": 1}
    if isinstance(logical, str) and "timestamp-" in logical and isinstance(value, int):
        return _EPOCH + timedelta(microseconds=value * units[logical.rpartition("-")[2]])
    return value
