"""Names in SQL of columns' types, and quoted names. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from duckdb.sqltypes import DuckDBPyType

from cbp.engine.delta.columns import schema_string
from cbp.model.flow.schema import Schema

_ATOMS = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}

_UNHELD = frozenset({"bignum", "bit", "time with time zone", "uhugeint", "variant"})
"""DuckDB's types that become other values on their way through Arrow."""
_NESTED = frozenset({"array", "list", "map", "struct", "union"})


def sql_type(type_: Any) -> str:
    """Return DuckDB's name of a type of Delta's log."""
    if isinstance(type_, Mapping):
        if type_["type"] == "array":
            return f"{sql_type(type_['elementType'])}[]"
        if type_["type"] == "map":
            return f"MAP({sql_type(type_['keyType'])}, {sql_type(type_['valueType'])})"
        fields = (f"{quoted(one['name'])} {sql_type(one['type'])}" for one in type_["fields"])
        return f"STRUCT({', '.join(fields)})"
    return _ATOMS.get(type_) or str(type_).upper()


def column_types(schema: Schema) -> dict[str, str]:
    """Return column -> DuckDB's name of its type."""
    fields = json.loads(schema_string(schema, extra=()))["fields"]
    return {one["name"]: sql_type(one["type"]) for one in fields}


def unheld_type(type_: DuckDBPyType) -> str:
    """Return the type, or the first one inside it, whose values an answer cannot hold, or `""`."""
    if type_.id in _UNHELD:
        return str(type_)
    inner = [one for _, one in type_.children] if type_.id in _NESTED else []
    parts = (unheld_type(one) for one in inner if isinstance(one, DuckDBPyType))  # or a length
    return next((part for part in parts if part), "")


def quoted(name: str) -> str:
    """Return a name in double quotes, as SQL needs it."""
    return '"' + name.replace('"', '""') + '"'
