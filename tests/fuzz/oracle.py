"""What a file holds, by other readers: Python's csv and json, zlib, pyarrow's own table reader.

It judges accepted files only: every record that was accepted must be one that the other reader
finds, in order, with the same values, and none may be missing. Values are compared as they are
spelled, by Python's own types.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.cases import NAMES, Case

Row = tuple[Any, ...]


def records(case: Case) -> list[Row]:
    """Return the records of a file that was accepted."""
    if case.format == "parquet":
        names = set(pq.read_schema(io.BytesIO(case.data)).names)
        columns = [name for name in NAMES if name in names]  # what is ignored may be damaged
        table = pq.read_table(io.BytesIO(case.data), columns=columns)
        rows = table.to_pylist()
        return [tuple(row.get(name) for name in NAMES) for row in rows]
    text = unpacked(case.data).decode("utf-8-sig")
    return _json(text) if case.format == "jsonl" else _csv(text, case.options)


def unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()  # type: ignore[no-any-return]
    return data


def _json(text: str) -> list[Row]:
    rows = []
    for line in text.split("\n"):
        if line.strip(" \t\r"):
            row = json.loads(line, parse_float=str)
            rows.append(tuple(value_of(name, row.get(name)) for name in NAMES))
    return rows


def _csv(text: str, options: dict[str, str]) -> list[Row]:
    limit = csv.field_size_limit(1 << 30)
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=options.get("delimiter", ","), strict=True
        )
        lines = [(line, quoted) for line, quoted in _with_quotes(reader, text, options)]
    finally:
        csv.field_size_limit(limit)
    names = list(NAMES)
    if options.get("header") != "false":
        names = lines.pop(0)[0]
    rows = []
    for line, _ in lines:
        assert len(line) == len(names), "a record of another width was accepted"
        row = dict(zip(names, line, strict=True))
        rows.append(tuple(value_of(name, row.get(name) or None) for name in NAMES))
    return rows


def _with_quotes(reader: Any, text: str, options: dict[str, str]) -> Any:
    for line in reader:
        if line:
            yield line, '"' in text


def value_of(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "id":
        return int(value)
    if name == "x":
        return float(value)
    if name == "d":
        return Decimal(value)
    if name == "ok":
        return value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()]
    if name == "at":
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return value


def is_same(found: Row, expected: Row) -> bool:
    """Compare a record; CSV's empty text and null are one for the other reader."""
    return all(_is_same_value(one, other) for one, other in zip(found, expected, strict=True))


def _is_same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other) or (one in ("", None) and other in ("", None))
