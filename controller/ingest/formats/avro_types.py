"""The types of an Avro file: how their values are decoded, and their Arrow types.

Every value is checked: the ranges of numbers, the bytes of booleans, the branches of unions, the
text's UTF-8. What the specification leaves out is an error, never a guess. A type that Arrow does
not have, such as a union of two kinds, can be decoded, so that a source can ignore the column.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NoReturn

import pyarrow as pa

from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the 64-bit number that begins at `at`, and where it ends; raises as `Decode`."""
    byte = data[at]
    at += 1
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if value >> 64:
            message = "a number of more than 64 bits"
            raise ValueError(message)
    return (value >> 1) ^ -(value & 1), at


def damaged(message: str) -> NoReturn:
    """Refuse a file as `avro_damaged`."""
    raise FileRejectedError("avro_damaged", message)


def limited(message: str) -> NoReturn:
    """Refuse a file as `avro_limits`."""
    raise FileRejectedError("avro_limits", message)


Decode = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a place; returns it, and where it ends.

Raises `IndexError` if the data ends too early, and `ValueError` if it is not such a value.
"""
_INT = 1 << 31
_PRECISION_MAX = 38
_DIGITS_MAX = 1000
_EXACT = decimal.Context(prec=80)


@dataclass(frozen=True, slots=True)
class AvroType:
    """One type of a schema."""

    decode: Decode
    arrow: pa.DataType | None
    bytes_min: int
    name: str


def _wrong(message: str) -> NoReturn:
    raise ValueError(message)


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        _wrong(f"the byte {data[at]} for a boolean, which must be 0 or 1")
    return data[at] == 1, at + 1


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_long(data, at)
    if not -_INT <= value < _INT:
        _wrong(f"{value}, which does not fit into an int of 32 bits")
    return value, at


def _real(layout: str) -> Decode:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

    def decode(data: bytes, at: int) -> tuple[float, int]:
        if at + size > len(data):
            raise IndexError
        return unpack(data, at)[0], at + size

    return decode


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if size < 0:
        _wrong(f"a value with the length {size}")
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    return value.decode(), at


PRIMITIVES: Mapping[str, AvroType] = MappingProxyType(
    {
        "null": AvroType(lambda _, at: (None, at), pa.null(), 0, "null"),
        "boolean": AvroType(_boolean, pa.bool_(), 1, "boolean"),
        "int": AvroType(_int, pa.int32(), 1, "int"),
        "long": AvroType(read_long, pa.int64(), 1, "long"),
        "float": AvroType(_real("<f"), pa.float32(), 4, "float"),
        "double": AvroType(_real("<d"), pa.float64(), 8, "double"),
        "bytes": AvroType(_bytes, pa.binary(), 1, "bytes"),
        "string": AvroType(_string, pa.string(), 1, "string"),
    }
)
"""Maps the names of the types that need no definition."""


_TIMES = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


def logical_type(schema: Mapping[str, Any], base: AvroType) -> AvroType:
    """Return a logical type, or its base type if it is unknown or wrong, as Avro demands."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return base
    if (base.name, logical) in _TIMES:
        return AvroType(base.decode, _TIMES[base.name, logical], base.bytes_min, logical)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        logical == "decimal"
        and base.name in ("bytes", "fixed")
        and type(precision) is int
        and type(scale) is int
        and 0 <= scale <= precision
        and precision >= 1
    ):
        return _decimal(base, precision, scale)
    return base


def _decimal(base: AvroType, precision: int, scale: int) -> AvroType:
    if precision > _DIGITS_MAX:
        limited(f"a decimal has a precision of more than {_DIGITS_MAX} digits")
    limit = 10**precision

    def decode(data: bytes, at: int) -> tuple[Decimal, int]:
        value, at = base.decode(data, at)
        unscaled = int.from_bytes(value, "big", signed=True)
        if abs(unscaled) >= limit:
            _wrong(f"a decimal of more than {precision} digits")
        return Decimal(unscaled).scaleb(-scale, context=_EXACT), at

    arrow = pa.decimal128(precision, scale) if precision <= _PRECISION_MAX else None
    return AvroType(decode, arrow, base.bytes_min, f"decimal({precision}, {scale})")


def union_type(branches: Sequence[AvroType]) -> AvroType:
    """Return a union; Arrow can hold it if it is one type, or one type and null."""
    decoders = [branch.decode for branch in branches]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(data, at)
        if not 0 <= number < len(decoders):
            _wrong(f"branch {number} (from 0) of a union that has {len(decoders)} branches")
        return decoders[number](data, at)

    kinds = [branch for branch in branches if branch.name != "null"]
    arrow = kinds[0].arrow if len(kinds) == 1 else pa.null() if branches and not kinds else None
    names = ", ".join(branch.name for branch in branches)
    return AvroType(decode, arrow, 1, f"union of {names}"[:200])


def _items(decode: Decode, what: str) -> Decode:
    """Decode the common layout of arrays and maps: counted runs of items, ended by 0."""

    def decode_all(data: bytes, at: int) -> tuple[list[Any], int]:
        items = list[Any]()
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return items, at
            end = None
            if count < 0:
                size, at = read_long(data, at)
                count, end = -count, at + size
            if count > len(data) - at:
                raise IndexError
            for _ in range(count):
                item, at = decode(data, at)
                items.append(item)
            if end is not None and end != at:
                _wrong(f"{what} whose size differs from the size in its header")

    return decode_all


def array_type(items: AvroType) -> AvroType:
    """Return an array; items must take bytes, so that the size of the data limits their number."""
    arrow = None if items.arrow is None else pa.list_(items.arrow)
    return AvroType(_items(items.decode, "an array"), arrow, 1, "array")


def map_type(values: AvroType) -> AvroType:
    """Return a map from texts."""

    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = values.decode(data, at)
        return (key, value), at

    pairs = _items(pair, "a map")

    def decode(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        items, at = pairs(data, at)
        if len({key for key, _ in items}) != len(items):
            _wrong("a map with a duplicate key")
        return items, at

    arrow = None if values.arrow is None else pa.map_(pa.string(), values.arrow)
    return AvroType(decode, arrow, 1, "map")


def record_type(fields: Sequence[tuple[str, AvroType]]) -> AvroType:
    """Return a record; Arrow can hold it if it can hold each field, and names are unique."""
    decoders = [(name, type_.decode) for name, type_ in fields]

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        value = {}
        for name, field in decoders:
            value[name], at = field(data, at)
        return value, at

    known = all(type_.arrow is not None for _, type_ in fields)
    unique = len({name for name, _ in fields}) == len(fields)
    arrow = pa.struct([(name, t.arrow) for name, t in fields]) if known and unique else None
    return AvroType(decode, arrow, sum(type_.bytes_min for _, type_ in fields), "record")


def enum_type(symbols: Sequence[str]) -> AvroType:
    """Return an enum, as text."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(data, at)
        if not 0 <= number < len(symbols):
            _wrong(f"symbol {number} (from 0) of an enum that has {len(symbols)} symbols")
        return symbols[number], at

    return AvroType(decode, pa.string(), 1, "enum")


def fixed_type(size: int) -> AvroType:
    """Return a type of exactly `size` bytes."""

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size

    return AvroType(decode, pa.binary(), size, "fixed")


DEPTH_MAX = 32
FIELDS_MAX = 1 << 14
FIXED_BYTES_MAX = 1 << 20


def record_fields(schema: Any) -> list[tuple[str, AvroType]]:
    """Return the fields of a file's records, by name.

    Raises `avro_damaged`, `avro_limits` or `column_type`.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        message = "the file's schema is not a record; only Avro records have named columns"
        raise FileRejectedError("column_type", message)
    fields = _Schema().fields(schema)
    if sum(type_.bytes_min for _, type_ in fields) == 0:
        limited("records whose fields all take no bytes are not supported; add a field")
    return fields


class _Schema:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._count = 0

    def fields(self, schema: Mapping[str, Any]) -> list[tuple[str, AvroType]]:
        _, namespace = self._begin(schema, "")
        return self._fields(schema, namespace, 0)

    def _fields(
        self, schema: Mapping[str, Any], namespace: str, depth: int
    ) -> list[tuple[str, AvroType]]:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            damaged("a record of the schema has no fields")
        read = list[tuple[str, AvroType]]()
        for one in fields:
            if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
                damaged("a field of the schema has no name")
            self._count += 1
            if self._count > FIELDS_MAX:
                limited(f"the schema has more than {FIELDS_MAX} fields")
            read.append((one["name"], self._type(one.get("type"), namespace, depth + 1)))
        return read

    def _type(self, schema: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            limited(f"types are nested deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return union_type([self._type(one, namespace, depth + 1) for one in schema])
        if isinstance(schema, str):
            return PRIMITIVES.get(schema) or self._reference(schema, namespace)
        if not isinstance(schema, Mapping):
            damaged(f"{excerpt(schema)} is not a type")
        kind = schema.get("type")
        if isinstance(kind, list | Mapping):
            return self._type(kind, namespace, depth + 1)
        make = {"record": self._record, "enum": self._enum, "fixed": self._fixed}.get(str(kind))
        if make is not None:
            return make(schema, namespace, depth)
        if kind == "array":
            items = self._type(schema.get("items"), namespace, depth + 1)
            if items.bytes_min == 0:
                limited(
                    "an array whose items take no bytes is not supported; use another item type"
                )
            return array_type(items)
        if kind == "map":
            return map_type(self._type(schema.get("values"), namespace, depth + 1))
        return logical_type(schema, self._type(kind, namespace, depth + 1))

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for one in (full, name):
            if one in self._named:
                type_ = self._named[one]
                if type_ is None:
                    message = f"type {excerpt(name)} contains itself, which is not supported"
                    raise FileRejectedError("column_type", message)
                return type_
        damaged(f"the schema has no type {excerpt(name)}")

    def _begin(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Note a named type that is being read; return its full name, and its namespace."""
        name = schema.get("name", "")
        space = schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            damaged("a named type has no name")
        if "." in name:
            space = name.rpartition(".")[0]
        elif space:
            name = f"{space}.{name}"
        if name in self._named:
            damaged(f"type {excerpt(name)} is defined twice")
        self._named[name] = None
        return name, space

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        name, namespace = self._begin(schema, namespace)
        self._named[name] = type_ = record_type(self._fields(schema, namespace, depth))
        return type_

    def _enum(self, schema: Mapping[str, Any], namespace: str, _depth: int) -> AvroType:
        name, _ = self._begin(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
            damaged(f"enum {excerpt(name)} has no symbols")
        self._named[name] = type_ = enum_type(symbols)
        return type_

    def _fixed(self, schema: Mapping[str, Any], namespace: str, _depth: int) -> AvroType:
        name, _ = self._begin(schema, namespace)
        size = schema.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
            damaged(f"the size of fixed {excerpt(name)} must be from 0 to {FIXED_BYTES_MAX}")
        self._named[name] = type_ = logical_type(schema, fixed_type(size))
        return type_
