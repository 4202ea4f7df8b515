"""Follow a change feed: keep the newest version of each record, by a sequence, in a view."""

from __future__ import annotations

from typing import Any

from cbp import Input, Schema, State, Translate, View
from stages.bags import column_at

__all__ = ["LatestChange"]

_PUTS = frozenset(
    ("c", "r", "u", "i", "insert", "upsert", "update", "update_postimage", "update_after")
)
_DELETES = frozenset(("d", "delete"))
_BEFORE = frozenset(("update_preimage", "update_before"))


class LatestChange(Translate):
    """The newest version of each record of a change feed.

    Late and repeated messages are harmless: a deleted record keeps its sequence, and an
    older message does not bring it back. Of two messages with one sequence, a delete counts.

    Shape, for `LatestChange("id BIGINT, name STRING, ts BIGINT, op STRING", "id", "ts")`:
        changes: `(id, name, ts, op)`; `op` as Debezium (c, r, u, d) or Delta (insert,
            update_postimage, delete; update_preimage is left out) write it; case is ignored.
        latest: a view `(id, name, ts)` with the key `id`.
        deleted: `(id, ts)`: the deleted keys, with the sequence of the deleting message.

    Args:
        schema: DDL of the messages.
        key: Names of the key's columns, separated by commas.
        sequence: The column that orders the messages of a key, such as a log position.
        op: The column that holds the operation.
    """

    def __init__(self, schema: str, key: str, sequence: str, op: str = "op") -> None:
        columns = Schema.parse(schema, where="latest_change.schema")
        self._op, self._sequence = (
            column_at(columns, name, f"latest_change.{option}")
            for name, option in ((op, "op"), (sequence, "sequence"))
        )
        keys = [name.strip() for name in key.split(",")]
        ddl = {field.name: f"{field.name} {field.type}" for field in columns.fields}
        self.changes = Input(schema, route_by=key)
        self.latest = View(", ".join(text for name, text in ddl.items() if name != op), key=key)
        self.deleted = State(", ".join(ddl[name] for name in (*keys, sequence) if name in ddl))

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit the newest version, or that it is deleted."""
        at = self._sequence - (self._op < self._sequence)
        found = [((row[at], False, repr(tuple(row))), tuple(row)) for row in group.latest]
        found += [((row[-1], True, ""), ()) for row in group.deleted]
        for row in group.changes:
            op, sequence = str(row[self._op]).lower(), row[self._sequence]
            if op in _BEFORE:
                continue
            if sequence is None or op not in _PUTS | _DELETES:
                message = f"a message has the operation {row[self._op]!r} and sequence {sequence!r}"
                raise ValueError(message)
            record = tuple(value for n, value in enumerate(row) if n != self._op)
            gone = op in _DELETES
            found.append(((sequence, gone, "" if gone else repr(record)), record))
        if not found:
            return
        (sequence, gone, _), record = max(found, key=lambda one: one[0])
        if gone:
            out.deleted(*key, sequence)
        else:
            out.latest(*record)
