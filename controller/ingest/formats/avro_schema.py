"""Reads the schema that an Avro file carries; refuses what no column can hold, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from controller.ingest.formats.avro import (
    PRIMITIVES,
    AvroType,
    array_type,
    enum_type,
    fixed_type,
    logical_type,
    map_type,
    record_type,
    union_type,
)
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["record_fields"]

DEPTH_MAX = 32
FIELDS_MAX = 1 << 14
FIXED_BYTES_MAX = 1 << 20


def record_fields(schema: Any) -> list[tuple[str, AvroType]]:
    """Return the fields of a file's records, by name.

    Raises:
        FileRejectedError: `avro_damaged`, `avro_limits` or `column_type`.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        message = "the file's schema is no record; each record of a flow has named columns"
        raise FileRejectedError(rule="column_type", message=message)
    fields = _Reader().fields(schema)
    if sum(type_.bytes_min for _, type_ in fields) == 0:
        _limited("a record of the file has no bytes, so its block could hold any number of them")
    return fields


class _Reader:
    """Reads one schema; remembers its named types."""

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
            _damaged("a record of the schema has no fields")
        read = list[tuple[str, AvroType]]()
        for one in fields:
            if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
                _damaged("a field of the schema has no name")
            self._count += 1
            if self._count > FIELDS_MAX:
                _limited(f"the schema has more than {FIELDS_MAX} fields")
            read.append((one["name"], self._type(one.get("type"), namespace, depth + 1)))
        return read

    def _type(self, schema: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            _limited(f"types are nested deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return union_type([self._type(one, namespace, depth + 1) for one in schema])
        if isinstance(schema, str):
            return PRIMITIVES.get(schema) or self._reference(schema, namespace)
        if not isinstance(schema, Mapping):
            _damaged(f"{excerpt(schema)} is no type")
        kind = schema.get("type")
        if isinstance(kind, list | Mapping):
            return self._type(kind, namespace, depth + 1)
        make = {"record": self._record, "enum": self._enum, "fixed": self._fixed}.get(str(kind))
        if make is not None:
            return make(schema, namespace, depth)
        if kind == "array":
            items = self._type(schema.get("items"), namespace, depth + 1)
            return array_type(_items(items, "an array"))
        if kind == "map":
            return map_type(self._type(schema.get("values"), namespace, depth + 1))
        return logical_type(schema, self._type(kind, namespace, depth + 1))

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for one in (full, name):
            if one in self._named:
                type_ = self._named[one]
                if type_ is None:
                    message = f"type {excerpt(name)} contains itself, which no column can"
                    raise FileRejectedError(rule="column_type", message=message)
                return type_
        _damaged(f"the schema has no type {excerpt(name)}")

    def _begin(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Note a named type that is being read; return its full name, and its namespace."""
        name = schema.get("name", "")
        space = schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            _damaged("a named type has no name")
        if "." in name:
            space = name.rpartition(".")[0]
        elif space:
            name = f"{space}.{name}"
        if name in self._named:
            _damaged(f"type {excerpt(name)} is defined twice")
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
            _damaged(f"enum {excerpt(name)} has no symbols")
        self._named[name] = type_ = enum_type(symbols)
        return type_

    def _fixed(self, schema: Mapping[str, Any], namespace: str, _depth: int) -> AvroType:
        name, _ = self._begin(schema, namespace)
        size = schema.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
            _damaged(f"fixed {excerpt(name)} has no size up to {FIXED_BYTES_MAX}")
        self._named[name] = type_ = logical_type(schema, fixed_type(size))
        return type_


def _items(type_: AvroType, what: str) -> AvroType:
    if type_.bytes_min == 0:
        _limited(f"{what} of the schema has items without bytes, so it could hold any number")
    return type_


def _damaged(message: str) -> NoReturn:
    raise FileRejectedError(rule="avro_damaged", message=message)


def _limited(message: str) -> NoReturn:
    raise FileRejectedError(rule="avro_limits", message=message)
