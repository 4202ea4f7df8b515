"""What changed, in the order of the commits: the part of the store that clients follow.

`controller.events.feed` reads it for all clients; `controller.api.routes.events` is the stream.
"""

from __future__ import annotations

from typing import Protocol

from controller.store.records import Event, EventCursor, EventRecord

__all__ = ["EventLog"]


class EventLog(Protocol):
    """The events; the other methods of the store write those of their own changes."""

    def announce(self, *events: Event) -> None:
        """Store events of changes that are not in the store; other methods store their own."""
        ...

    def newest_event(self) -> EventRecord:
        """Return the newest event; there is always one."""
        ...

    def recent_events(self, dataflow: str | None = None, *, limit: int) -> list[EventRecord]:
        """Return the newest events, oldest first; with `dataflow`, its own and those of none."""
        ...

    def events_after(
        self, cursor: EventCursor, dataflow: str | None = None, *, limit: int
    ) -> list[EventRecord] | None:
        """Return the oldest events behind a cursor, in order.

        An event that is stored later has a larger id than all that were ever returned.

        Args:
            cursor: A place in the stream.
            dataflow: Only its events, and those of no dataflow; `None` means all.
            limit: Return at most so many (>= 1).

        Returns:
            `None` if the event at the cursor is not stored any more, or never was: events behind
            it may be missing.
        """
        ...

    def forget_events(self, *, keep: int, before_ms: int) -> int:
        """Remove the oldest events, at most some thousand; return how many.

        The newest one always stays.

        Args:
            keep: How many stay at most (>= 1).
            before_ms: Events before this time go; milliseconds since 1970.
        """
        ...
