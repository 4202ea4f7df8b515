"""Store methods for events: rows that inform clients of changes.

`tell` writes them as the last statement of the transaction of the change. So no event reports a
change that did not happen, and none is lost. Ids rise in the order of the commits: README.md says
how, and why a reader that continues after the newest id it saw misses nothing.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, text
from sqlalchemy import delete as delete_from

from cbp.clock import MACHINE
from controller.store.database.connections import Database
from controller.store.methods.forgetting import ROWS_MAX
from controller.store.records import Event, EventCursor, EventRecord
from controller.store.schema import rows
from controller.store.schema.tables import events

EVENTS_LOCK = 0x_CB_95_70_13
"""The advisory lock of all writers of events; arbitrary, but the same in every version."""

_COLUMNS = ("at_ms", "kind", "dataflow", "stage", "flow", "subject", "count")
# One round trip. A row gets its id when it leaves the join, so only once the lock is held.
_INSERT_IN_TURN = text(
    f"INSERT INTO events ({', '.join(_COLUMNS)}) SELECT {', '.join(_COLUMNS)} "
    "FROM pg_advisory_xact_lock(:key) AS turn, json_to_recordset(CAST(:rows AS json)) AS one("
    "at_ms bigint, kind text, dataflow text, stage text, flow text, subject text, count int)"
).bindparams(bindparam("key", EVENTS_LOCK))
_NEWEST = select(events).order_by(events.c.seq.desc()).limit(1)
_AT = select(events.c.at_ms).where(events.c.seq == bindparam("number"))


def tell(connection: Connection, *new_events: Event) -> None:
    """Store events; must be the last statement of a writing transaction before its commit.

    On PostgreSQL it waits for the commits of other writers of events.
    """
    now_ms = MACHINE.now_ms()
    new = [{"at_ms": now_ms, **rows.row_of(event)} for event in new_events]
    if connection.dialect.name == "postgresql":
        connection.execute(_INSERT_IN_TURN, {"rows": json.dumps(new)})
    else:
        connection.execute(insert(events), new)


class Events:
    """Store methods for events that clients follow; see `Store`."""

    _database: Database

    def announce(self, *new_events: Event) -> None:
        """Store events of changes outside the store; other methods store their own events."""
        if new_events:
            with self._database.write() as connection:
                tell(connection, *new_events)

    def newest_event(self) -> EventRecord:
        """Return the newest event; there is always one."""
        with self._database.read_once() as connection:
            return _event_of(connection.execute(_NEWEST).one())

    def recent_events(self, dataflow: str | None = None, *, limit: int) -> list[EventRecord]:
        """Return the newest events, oldest first; with `dataflow`, its own and global ones."""
        query = select(events).where(*_concerns(dataflow)).order_by(events.c.seq.desc())
        with self._database.read_once() as connection:
            records = [_event_of(row) for row in connection.execute(query.limit(limit))]
        return records[::-1]

    def events_after(
        self, cursor: EventCursor, dataflow: str | None = None, *, limit: int
    ) -> list[EventRecord] | None:
        """Return the oldest events after a cursor, in order, at most `limit` (>= 1).

        An event that is stored later has a larger id than all returned events.

        Returns:
            `None` if the event at the cursor is no longer stored, or never was: events after
            it may be missing.
        """
        behind = select(events).where(events.c.seq > cursor.number, *_concerns(dataflow))
        with self._database.read() as connection:
            # Only the oldest events are removed: if this one is stored, so are all after it.
            at_ms = connection.execute(_AT, {"number": cursor.number}).scalar_one_or_none()
            if at_ms != cursor.at_ms:
                return None
            ordered = behind.order_by(events.c.seq).limit(limit)
            return [_event_of(row) for row in connection.execute(ordered)]

    def forget_events(self, *, keep: int, before_ms: int) -> int:
        """Remove events before a time, and all but the newest `keep` (>= 1); return how many.

        At most some thousand are removed at a time. The newest one always stays.
        """
        oldest = select(events.c.seq, events.c.at_ms).order_by(events.c.seq).limit(ROWS_MAX)
        with self._database.write() as connection:
            newest = connection.execute(_NEWEST).one().seq
            end = -1
            for row in connection.execute(oldest):
                if row.seq >= newest or (row.seq > newest - keep and row.at_ms >= before_ms):
                    break
                end = row.seq
            return connection.execute(delete_from(events).where(events.c.seq <= end)).rowcount


def _concerns(dataflow: str | None) -> list[Any]:
    if dataflow is None:
        return []
    return [or_(events.c.dataflow == dataflow, events.c.dataflow == "")]


def _event_of(row: Row[Any]) -> EventRecord:
    return EventRecord(row.seq, row.at_ms, Event(**rows.fields_of(Event, row)))
