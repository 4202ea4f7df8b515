"""What a file holds, by other readers: Python's csv, json and trees of XML, pyarrow, our own Avro.

It judges accepted files only: every record that was accepted must be one that the other reader
finds, in order, with the same values, and none may be missing. Values are compared as they are
spelled, by Python's own types.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.avro_oracle import avro_rows
from tests.fuzz.cases import NAMES, Case

Row = tuple[Any, ...]


def records(case: Case) -> list[Row]:
    """Return the records of a file that was accepted."""
    if case.format == "parquet":
        names = set(pq.read_schema(io.BytesIO(case.data)).names)
        columns = [name for name in NAMES if name in names]  # what is ignored may be damaged
        table = pq.read_table(io.BytesIO(case.data), columns=columns)
        rows = table.to_pylist()
        for row in rows:
            if (at := row.get("at")) is not None and at.tzinfo is None:
                row["at"] = at.replace(tzinfo=UTC)  # the only zone that a case names
        return [tuple(row.get(name) for name in NAMES) for row in rows]
    if case.format == "avro":
        return avro_rows(case.data, case.names)
    data = unpacked(case.data)
    if case.format == "xml":
        return _xml(data, case.options)
    text = data.decode(case.options.get("encoding", "utf-8").replace("utf-8", "utf-8-sig"))
    read = {"jsonl": _json, "csv": _csv, "text": _text, "access_log": _access_log}[case.format]
    return read(text, case.options)


def unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"BZh"):
        return bz2.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()  # type: ignore[no-any-return]
    return data


def _xml(data: bytes, options: dict[str, str]) -> list[Row]:
    """Read by a tree instead of events, and by names without their namespaces."""
    root = ElementTree.fromstring(data)
    rows = []
    for element in _outermost(root, options["record"]) if "record" in options else root:
        row: dict[str, str | None] = {_local(key): value for key, value in element.items()}
        for child in element:
            assert len(child) == 0, "a column holds an element"
            assert _local(child.tag) not in row, "a column comes twice"
            nil = any(_local(k) == "nil" and v in ("true", "1") for k, v in child.items())
            row[_local(child.tag)] = child.text or (None if nil else "")
        rows.append(tuple(value_of(name, row.get(name)) for name in NAMES))
    return rows


def _outermost(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    if _local(element.tag) == name:
        yield element
        return
    for child in element:
        yield from _outermost(child, name)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _text(text: str, options: dict[str, str]) -> list[Row]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    rows = [line[:-1] if line.endswith("\r") else line for line in lines]
    if "line_number" in options:
        return [(line, number) for number, line in enumerate(rows, 1)]
    return [(line,) for line in rows]


def _access_log(text: str, options: dict[str, str]) -> list[Row]:
    """Take a line apart from its ends, where the product's own expression goes from the left."""
    rows: list[Row] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        if "layout" not in options:
            line, _ = _last_quoted(line)
            line, _ = _last_quoted(line)
        line, status, size = line.rsplit(" ", 2)
        line, request = _last_quoted(line)
        line, _, time = line.removesuffix("]").rpartition(" [")
        moment = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC)
        numbers = int(status), None if size == "-" else int(size)
        rows.append((_dash(line.split(" ")[0]), moment, _dash(request), *numbers))
    return rows


def _dash(text: str) -> str | None:
    return None if text == "-" else text


def _last_quoted(line: str) -> tuple[str, str]:
    """Return what precedes the last text in quotes, and that text as it is written."""
    assert line.endswith('"')
    at = len(line) - 1
    while True:
        at = line.rindex('"', 0, at)
        before = line[:at]
        if (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            return before.removesuffix(" "), line[at + 1 : -1]


def _json(text: str, _options: dict[str, str]) -> list[Row]:
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
        lines = list(reader)
    finally:
        csv.field_size_limit(limit)
    names = list(NAMES)
    if options.get("header") != "false":
        first = next(at for at, line in enumerate(lines) if line)
        names, lines = lines[first], lines[first + 1 :]
    rows = []
    # The csv module has no cell in a blank line; of one column it is an empty one.
    for line in (line or [""] for line in lines if line or len(names) == 1):
        assert len(line) == len(names), "a record of another width was accepted"
        row = dict(zip(names, line, strict=True))
        rows.append(tuple(value_of(name, row.get(name) or None) for name in NAMES))
    return rows


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
    if name in ("at", "time"):
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
