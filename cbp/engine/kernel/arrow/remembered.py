"""Values that the author of a whole run keeps in memory, in any form, until the next run.

    out.remember(value, bytes) -> the files and dead rows that the run left -> value
    tables.recall()            -> the value, if all states have these files and dead rows

This is only a cache, which is lost with its process. Files of a state never change and their rows
only die, so the names of all files and the sets of their dead rows identify the records exactly; no
order of runs or epochs is compared. A value is returned once, since its call may change it: a run
that fails leaves nothing half changed, and of two tries at the same time only one gets the value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyroaring import BitMap64

from cbp.engine.state.bucket_state import BucketState

Version = Mapping[tuple[str, str], tuple[int, BitMap64]]
"""The files of all states of a stage, by state and path: size, and dead rows."""

NOTHING: tuple[None, int] = None, 0
"""The recalled value and its size if no value is kept."""


def version_of(states: Mapping[str, Iterable[BucketState]]) -> Version:
    """Return a fingerprint of the records that the states had before the run."""
    return {
        (name, file.path): (file.size, state.dead_rows(at))
        for name, parts in states.items()
        for state in parts
        for at, file in enumerate(state.files)
    }


def version_after(
    states: Mapping[str, Iterable[BucketState]],
    gone: Iterable[tuple[str, str]],
    new: Iterable[tuple[str, str, int]],
) -> Version:
    """Return a fingerprint of the records that the states have after the run.

    `gone` are state and path of files that are no longer live; `new` state, path and size of those
    written.
    """
    version = dict(version_of(states))
    for name, parts in states.items():
        for state in parts:
            for at, died in state.deaths().items():
                file = name, state.files[at].path
                size, dead = version[file]
                version[file] = size, dead | died
    version |= {(name, path): (size, BitMap64()) for name, path, size in new}
    for file in gone:
        version.pop(file, None)
    return version


@dataclass
class Remembered:
    """The values of one process, by name, and the size of all; safe to use from several threads."""

    bytes: int = 0
    _kept: dict[str, tuple[Any, int, Version | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str, version: Callable[[], Version]) -> tuple[Any, int]:
        """Return a value and its size, and forget it; `NOTHING` if the records have changed."""
        with self._lock:
            value, size, made_of = self._pop(name)
        return NOTHING if made_of is None or made_of != version() else (value, size)

    def put(self, name: str, value: Any, size: int, version: Version, *, most: int) -> None:
        """Keep a value; drop the oldest ones until all take at most `most` bytes together."""
        with self._lock:
            self._pop(name)
            self._kept[name] = value, size, version
            self.bytes += size
            while self.bytes > most:
                self._pop(next(iter(self._kept)))

    def _pop(self, name: str) -> tuple[Any, int, Version | None]:
        kept = self._kept.pop(name, (*NOTHING, None))
        self.bytes -= kept[1]
        return kept


@lru_cache(maxsize=8)
def remembered(cache: str) -> Remembered:
    """Return this process's remembered values that belong to the index copies in a folder."""
    del cache
    return Remembered()
