"""Avro files as bytes, sound or not: what no writer would make can be made here."""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

SYNC = b"0123456789abcdef"


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data, 9)[2:-4],
    "bzip2": bz2.compress,
    "zstandard": lambda data: bytes(pa.Codec("zstd").compress(data)),
    "snappy": lambda data: (
        bytes(pa.Codec("snappy").compress(data)) + zlib.crc32(data).to_bytes(4, "big")
    ),
}


def number(value: int) -> bytes:
    """Return a number as Avro encodes it."""
    rest = (value << 1) ^ (value >> 127)
    encoded = b""
    while rest > 127:
        encoded += bytes([rest & 127 | 128])
        rest >>= 7
    return encoded + bytes([rest])


def text(value: str | bytes) -> bytes:
    """Return a text, or bytes, with their size."""
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def record(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record."""
    named = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return {"type": "record", "name": "row", "fields": named}


def header(schema: object, codec: str = "null") -> bytes:
    """Return the header, before the blocks."""
    said = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    pairs = text("avro.schema") + text(said) + text("avro.codec") + text(codec)
    return b"Obj\x01" + number(2) + pairs + number(0) + SYNC


def block(count: int, data: bytes, codec: str = "null") -> bytes:
    """Return one block of records."""
    packed = _PACKERS[codec](data)
    return number(count) + number(len(packed)) + packed + SYNC


def file(fields: dict[str, Any], rows: Sequence[bytes], codec: str = "null") -> bytes:
    """Return a file of one block."""
    return header(record(fields), codec) + block(len(rows), b"".join(rows), codec)
