"""Values that were read of a SQLite database, kept until anybody commits to it.

SQLite counts, for each connection, the commits of all others, of other processes too
(`PRAGMA data_version`). To ask for the count takes 5 us; the cheapest read takes thirty times as
long, since a statement goes through the pool, the driver and the mapping to records. So what is
read a thousand times a second while a few transactions a second change something is mostly kept.

PostgreSQL has no such count that costs less than a read: there nothing is kept.

Invariant: what `get` returns is as new as what a read would have seen that began when it was called
(tests/controller/store/database/test_kept_reads.py).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

Stamp = tuple[int, int]
"""While it is the same, nothing was committed."""

KEPT_MAX = 10_000


class KeptReads:
    """Caches values by key; safe to use from several threads.

    Args:
        path: The database, which exists; `None` caches nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._seen: Stamp | None = None
        self._values: dict[Hashable, Any] = {}

    def stamp(self) -> Stamp | None:
        """Return a stamp of this moment; `None` if there is none, so that nothing can be kept."""
        with self._lock:
            return self._stamp()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached value of this key if nothing was committed since; otherwise read it.

        Args:
            key: Identifies the value; a key is always read in the same way.
            read: Reads the value, which must not be modified. Its exceptions are not cached.
        """
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen or len(self._values) > KEPT_MAX:
                self._seen, self._values = stamp, {}
            values = self._values
            if key in values:
                value: T = values[key]
                return value
        value = read()
        if stamp is not None:
            # Into those of the stamp before the read: if it is another one now, nobody sees them.
            values[key] = value
        return value

    def close(self) -> None:
        """Stop caching."""
        with self._lock:
            self._path, self._seen, self._values = None, None, {}
            self._disconnect()

    def _stamp(self) -> Stamp | None:
        if self._path is None:
            return None
        try:
            if self._connection is None:
                # A connection of its own: it does not count what it commits itself, and never does.
                self._connection = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._opened += 1
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:  # a read says what is wrong
            self._disconnect()
            return None
        return self._opened, version

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
