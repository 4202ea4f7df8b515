"""Disk use: how many files and bytes each table of a dataflow takes, all versions included.

A measurement walks the dataflow's folder. It is kept for `FRESH_SECONDS`, so a page that asks again
and again causes one walk a minute, however many readers it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from cbp.engine.storage.files import Files, StoredFile
from controller.store.base import DataflowRecord

FRESH_SECONDS = 60.0
_TABLES = ("state", "flows", "sources")


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """The files of one table, source or folder of records."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """One measurement.

    Attributes:
        at: When it was made; aware, in UTC.
        places: Place -> its use. A place is `state/count.counts`, `flows/count.totals`,
            `sources/urls`, or a folder of records such as `_intentions`.
    """

    at: datetime
    places: Mapping[str, PlaceUse]


class DiskUses:
    """Measures dataflows; safe to use from several threads."""

    def __init__(self, *, files: Files, clock: Callable[[], datetime]) -> None:
        self._files, self._clock = files, clock
        self._lock = threading.Lock()
        self._measured: dict[str, tuple[tuple[int, datetime], DiskUse]] = {}

    def of(self, record: DataflowRecord) -> DiskUse:
        """Return the disk use of a dataflow, at most `FRESH_SECONDS` old; raises `CbpError`."""
        with self._lock:  # one walk at a time
            # Measure again after a new version: it has other tables, and a plan shows their sizes.
            key, now = (record.version, record.created_at), self._clock()
            known_key, use = self._measured.get(record.folder, (None, None))
            fresh = use is not None and 0 <= (now - use.at).total_seconds() < FRESH_SECONDS
            if use is None or not fresh or known_key != key:
                use = DiskUse(now, use_by_place(self._files.list_files(record.folder)))
                self._measured[record.folder] = key, use
            return use


def use_by_place(files: Iterable[StoredFile]) -> dict[str, PlaceUse]:
    """Return the use by place, largest first; pure."""
    places: dict[str, PlaceUse] = {}
    for file in files:
        first, _, rest = file.path.partition("/")
        place = f"{first}/{rest.partition('/')[0]}" if first in _TABLES else first
        known = places.get(place, PlaceUse(0, 0))
        places[place] = PlaceUse(known.files + 1, known.bytes + file.bytes)
    return dict(sorted(places.items(), key=lambda item: (-item[1].bytes, item[0])))
