"""Lists that the service returns page by page; a page is read when it is needed.

    runs = service.runs("clicks", status="FAILED")
    runs.first()                      # one request
    [run.id for run in runs]          # as many as there are pages

All pages of records are of one snapshot, that of the first page. A query has one answer,
`QueryResult`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cbp.client.answers import Answer, Column, answer_of

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

SHOWN = 20
"""Rows that a notebook shows."""

Read = Callable[[str | None], tuple[list[T], str | None]]


class Pages(Generic[T]):
    """A list of the service; each iteration reads it again from its beginning.

    `read` returns the page at a cursor (`None` for the first), and the cursor of the next one.
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[T]:
        """Yield the items; read each page when its first item is needed."""
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[list[T]]:
        """Yield the pages."""
        cursor: str | None = None
        while True:
            page, cursor = self._read(cursor)
            yield page
            if cursor is None:
                return

    def first(self) -> T | None:
        """Return the first item, or `None` if there is none; read one page only."""
        return next(iter(self), None)


class Rows(Pages[dict[str, Any]]):
    """Records as mappings from column to JSON value; times and decimals are texts."""

    def to_arrow(self) -> pa.Table:
        """Return all records as an Arrow table, whose types are guessed from the values."""
        import pyarrow as pa

        rows = list(self)
        columns = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
        return pa.table(
            {
                name: _array(values, floats=any(isinstance(v, float) for v in values))
                for name, values in columns.items()
            }
        )

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        rows = list(islice(self, SHOWN + 1))
        if not rows:
            return "<p>no records</p>"
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row.values())}</tr>"
            for row in rows[:SHOWN]
        )
        more = "<p>there are more records</p>" if len(rows) > SHOWN else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}"


_FLOATS = ("DOUBLE", "FLOAT")
_SPECIAL = ("NaN", "Infinity", "-Infinity")
"""Floats that the service sends as texts, since JSON cannot hold them."""


_INT64 = 1 << 63


def _array(values: list[Any], *, floats: bool) -> Any:
    """Return a column as an Arrow array, whose type is guessed from the values.

    `_SPECIAL` texts in a column of floats become floats. If a whole number has more than 64 bits,
    as a sum in DuckDB can have, those of its column become decimals.
    """
    import pyarrow as pa

    if floats:
        values = [float(one) if one in _SPECIAL or type(one) is int else one for one in values]
    elif any(type(one) is int and not -_INT64 <= one < _INT64 for one in values):
        values = [Decimal(one) if type(one) is int else one for one in values]
    return pa.array(values)


_DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult(Answer):
    """The rows of one SELECT, in its order and of one snapshot; each value is JSON.

    Attributes:
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
            values = [row[at] for row in self.rows]
            array = _array(values, floats=column.type in _FLOATS)
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
