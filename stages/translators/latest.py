"""Keep the last record of each key in a view; a record may say that its key is gone."""

from __future__ import annotations

from collections import deque
from typing import Any

from cbp import Input, Schema, Translate, View
from stages.bags import column_at

__all__ = ["Latest"]


class Latest(Translate):
    """The last record of each key.

    Shape, for `Latest("site STRING, url STRING, score DOUBLE", "site, url", gone="score")`:
        rows: `(site, url, score)`, in the order in which they count.
        latest: a view `(site, url, score)` with the key `site, url`.

    Args:
        schema: DDL of the records.
        key: Names of the key's columns, separated by commas.
        gone: A column; a record that has null there removes the record of its key.
    """

    def __init__(self, schema: str, key: str, gone: str | None = None) -> None:
        columns = Schema.parse(schema, where="latest.schema")
        if gone is not None:
            column_at(columns, gone, "latest.gone")
        self.rows = Input(schema, route_by=key)
        self.latest = View(schema, key=key)
        self._gone = gone

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit the last record, or none."""
        last = next(iter(deque(group.rows, maxlen=1)), None)
        if last is not None and (self._gone is None or getattr(last, self._gone) is not None):
            out.latest(*last)
