"""The rows of a query, as values or as an Arrow table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cbp.client.answers import Answer, Column, answer_of

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult(Answer):
    """The rows of one SELECT, all of one snapshot.

    Attributes:
        rows: Rows in the query's order, each with one JSON value per column.
        at: Time of the last publication in the snapshot; UTC.
        epochs: Maps each stage to its last epoch in the snapshot; -1 if there is none.
        tables: The tables that the query read.
        truncated: Whether there were more rows.
    """

    columns: list[Column]
    rows: list[list[Any]]
    at: datetime
    epochs: dict[str, int]
    tables: list[str]
    truncated: bool
    seconds: float

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> QueryResult:
        """Build a result from an answer of the service."""
        return answer_of(cls, document)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as mappings from column to value."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table: numbers, times and decimals have their own types.

        The type of any other column, such as a list or a struct, is inferred from its values.
        """
        import pyarrow as pa

        arrays = []
        for at, column in enumerate(self.columns):
            array = pa.array([row[at] for row in self.rows])
            kind = _arrow_type(column.type)
            arrays.append(array if kind is None else array.cast(kind))
        return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])


def _arrow_type(text: str) -> Any:
    """Return the Arrow type of a DuckDB type; `None` if it is not a plain type."""
    import pyarrow as pa

    if (match := _DECIMAL.fullmatch(text)) is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    return {
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "DOUBLE": pa.float64(),
        "FLOAT": pa.float32(),
        "INTEGER": pa.int32(),
        "SMALLINT": pa.int16(),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
        "TINYINT": pa.int8(),
        "VARCHAR": pa.string(),
    }.get(text)
