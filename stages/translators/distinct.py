"""Keep each record once, however often it came, while copies come and go."""

from __future__ import annotations

from typing import Any

from cbp import Input, Schema, State, Translate, View

__all__ = ["Distinct"]


class Distinct(Translate):
    """The different records among the changes of a view.

    Shape, for `Distinct("site STRING, topic STRING")`:
        rows: the changes of a view with these columns, and perhaps more.
        distinct: a view `(site, topic)`, whose key has all columns.

    Args:
        schema: DDL of the records; no column is named `sign` or `copies`.
    """

    def __init__(self, schema: str) -> None:
        columns = ", ".join(Schema.parse(schema, where="distinct.schema").names)
        self.rows = Input(f"{schema}, sign INT", route_by=columns, changes="signed")
        self.counted = State(f"{schema}, copies BIGINT")
        self.distinct = View(schema, key=columns)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count the copies; emit the records that have some."""
        copies = sum(row.sign for row in group.rows) + sum(row.copies for row in group.counted)
        if copies:
            out.counted(*key, copies)
        if copies > 0:
            out.distinct(*key)
