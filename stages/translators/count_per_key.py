"""Count records per key, for a key of any columns; not in the paper."""

from __future__ import annotations

from typing import Any

from cbp import Input, Output, Schema, State, Translate

__all__ = ["CountPerKey"]


class CountPerKey(Translate):
    """Count how often each key was seen.

    Shape, for the key `word STRING`:
        items: `(word STRING)`; the flow may have more columns.
        totals: `(word STRING, n BIGINT)`, one record per key seen in the epoch; the last
            one per key is the same however the input is split.

    Args:
        key: DDL of the key's columns, such as `"word STRING, lang STRING"`; no column may be
            named `n`.
    """

    def __init__(self, key: str) -> None:
        columns = ", ".join(Schema.parse(key, where="count_per_key.key").names)
        self.items = Input(key, route_by=columns)
        self.counts = State(f"{key}, n BIGINT")
        self.totals = Output(f"{key}, n BIGINT", key=columns)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the number of new records of one key to its count."""
        n = sum(1 for _ in group.items) + sum(row.n for row in group.counts)
        out.counts(*key, n)
        out.totals(*key, n)
