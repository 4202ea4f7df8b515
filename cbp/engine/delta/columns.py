"""Delta's JSON of a table's columns: from `Schema` to `schemaString`. Pure.

    >>> from cbp.model.flow.schema import Schema
    >>> schema_string(Schema.parse("n BIGINT"), extra=())
    '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'

Absent on purpose: nullability inside arrays, maps and structs, which no flow declares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cbp.model.flow.schema import DataType, Schema

_ATOMS = {
    "STRING": "string",
    "BIGINT": "long",
    "INT": "integer",
    "SMALLINT": "short",
    "TINYINT": "byte",
    "DOUBLE": "double",
    "FLOAT": "float",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


def schema_string(schema: Schema, *, extra: Sequence[tuple[str, str]]) -> str:
    """Return Delta's JSON of a flow's columns and the engine's (`("_hash", "BIGINT")`)."""
    fields = [_field(f.name, _type(f.type), nullable=f.nullable) for f in schema.fields]
    fields += [_field(name, _ATOMS[kind], nullable=True) for name, kind in extra]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def declares_not_null(schema: str) -> bool:
    """Return whether Delta's JSON of columns has a NOT NULL for writers to check."""
    return any(not field["nullable"] for field in json.loads(schema)["fields"])


def _field(name: str, type_: Any, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": {}}


def _type(type_: DataType) -> Any:
    if type_.kind == "DECIMAL":
        return f"decimal({type_.precision},{type_.scale})"
    parts = [_type(argument) for argument in type_.arguments]
    if type_.kind == "ARRAY":
        return {"type": "array", "elementType": parts[0], "containsNull": True}
    if type_.kind == "MAP":
        kinds = {"keyType": parts[0], "valueType": parts[1]}
        return {"type": "map", **kinds, "valueContainsNull": True}
    if type_.kind == "STRUCT":
        pairs = zip(type_.names, parts, strict=True)
        fields = [_field(name, part, nullable=True) for name, part in pairs]
        return {"type": "struct", "fields": fields}
    return _ATOMS[type_.kind]
