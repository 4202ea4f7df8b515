"""Which drop folders are listed at an interval, without an event and before a timer.

    another revision   a file was taken in, a resume lets files in, a version has other sources
    missed             it was held when an event or a timer came, or its last listing failed
    without events     only listings find the files of a source, as on a network file system
    its turn           an event can be lost: each dataflow has its turn in 300 intervals

So a service with few dataflows lists one of them each interval, and one with a thousand lists four.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from cbp.model.schedule.rest import next_in_turn

__all__ = ["DueListings"]


class DueListings:
    """Remembers what was listed; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revisions: Mapping[str, int] = {}
        self._missed: set[str] = set()
        self._polled: set[str] = set()
        self._turn = ""

    def begin(self) -> None:
        """Begin a term: nothing was listed."""
        with self._lock:
            self._revisions, self._missed, self._polled = {}, set(), set()

    def miss(self, names: Iterable[str]) -> None:
        """Note that dataflows could not be listed when they were due."""
        with self._lock:
            self._missed.update(names)

    def poll(self, name: str, needed: bool) -> None:
        """Note whether a dataflow has a source whose files only listings find."""
        with self._lock:
            if needed:
                self._polled.add(name)
            else:
                self._polled.discard(name)

    def due(self, revisions: Mapping[str, int], held: Collection[str]) -> list[str]:
        """Return the dataflows to list now, by name; those that are held are listed later.

        Args:
            revisions: Of all dataflows, by name.
            held: During a version change files wait, to be checked by the new version.
        """
        with self._lock:
            turn = next_in_turn(list(revisions), self._turn)
            self._turn = turn[-1] if turn else ""
            known, self._revisions = self._revisions, dict(revisions)
            changed = {name for name, one in revisions.items() if known.get(name) != one}
            self._polled &= revisions.keys()
            wanted = (changed | self._missed | self._polled | set(turn)) & revisions.keys()
            self._missed = wanted.intersection(held)
            return sorted(wanted.difference(held))
