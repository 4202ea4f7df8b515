"""Keeps answers that are made of the store alone, until anybody changes the store.

A list of twenty runs takes three milliseconds: statements, records, schemas, JSON. Clients ask for
the same list again and again, and between two changes it is the same text. Which routes these are
is marked beside them (`controller.api.routing.read_routes.lasting`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

BYTES_MAX = 16 << 20


class KeptAnswers:
    """Bodies of answers by a key of the caller; safe to use from several threads.

    Args:
        stamp: Returns a stamp of this moment, as `Store.stamp`.
        bytes_max: When there are more, all go.
    """

    def __init__(self, stamp: Callable[[], Hashable | None], *, bytes_max: int = BYTES_MAX) -> None:
        self.stamp, self._bytes_max = stamp, bytes_max
        self._lock = threading.Lock()
        self._seen: Hashable | None = None
        self._bodies: dict[Hashable, bytes] = {}
        self._bytes = 0

    def find(self, stamp: Hashable | None, key: Hashable) -> bytes | None:
        """Return the answer that was kept under a key, if it is of this stamp."""
        with self._lock:
            return self._bodies.get(key) if stamp is not None and stamp == self._seen else None

    def keep(self, stamp: Hashable | None, key: Hashable, body: bytes) -> None:
        """Keep an answer.

        Args:
            stamp: Of a moment before anything of it was read.
            key: All that it depends on beside the store.
            body: The answer.
        """
        if stamp is None or len(body) > self._bytes_max // 16:
            return
        with self._lock:
            if stamp != self._seen or self._bytes > self._bytes_max:
                self._seen, self._bodies, self._bytes = stamp, {}, 0
            self._bytes += len(body) - len(self._bodies.get(key, b""))
            self._bodies[key] = body
