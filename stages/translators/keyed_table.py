"""Keep a table by its key, from rows that come and go: what a look-up reads of a Delta table."""

from __future__ import annotations

from typing import Any

from cbp import Input, Schema, Translate, View
from stages.bags import Name, column_at, names_of, same

__all__ = ["KeyedTable"]


class KeyedTable(Translate):
    """The rows of a table, by its key.

    Shape, for `KeyedTable("country STRING, name STRING", "country")`:
        rows: `(country, name, sign)`, as a source of `format: delta` or a view gives them; the
            sign is 1 for an added row, and -1 for a removed one.
        table: a view `(country, name)` with the key `country`.

    Two rows of one key are an error (`view_key_twice`), since it is unknown which of them
    counts. The removal of a missing row is ignored.

    Args:
        schema: DDL of the rows; no column is named `sign`.
        key: Names of the key's columns, separated by commas.
    """

    def __init__(self, schema: str, key: str) -> None:
        columns = Schema.parse(schema, where="keyed_table.schema")
        for name in names_of(key):
            column_at(columns, name, "keyed_table.key")
        self.rows = Input(f"{schema}, sign INT", route_by=key, changes="signed")
        self.table = View(schema, key=key)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add new rows, then remove old ones, since the changes have no order."""
        rows, gone = [same(row) for row in group.table], list[Name]()
        for row in group.rows:
            (rows if row.sign > 0 else gone).append(same(row[:-1]))
        for row in gone:
            if row in rows:
                rows.remove(row)
        for row in rows:
            out.table(*row)
