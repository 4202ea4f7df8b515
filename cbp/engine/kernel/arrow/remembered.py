"""What the author of a whole run keeps in memory, in a form of his own, until the next run.

    out.remember(value, bytes) -> the files and dead rows that the run left -> value
    tables.recall()            -> the value, if all states have these files and dead rows

Only a cache: it is lost with its process, and states that are in other files are read. Files of a
state never change and rows of them only die, so the names of all files and the sets of their dead
rows say exactly which records there are. A roll-back, a rebuild, a run in another process and a
merge of files lead to other ones, or to the same records. No order of runs or epochs is compared.

A value is handed out once: it leaves the cache for the call, which may change it. So a run that
fails leaves nothing half changed behind, and of two tries at a time only one has it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyroaring import BitMap64

from cbp.engine.state.bucket_state import BucketState

Version = Mapping[tuple[str, str], tuple[int, BitMap64]]
"""The files of all states of a stage, by state and path: size, and dead rows."""

NOTHING: tuple[None, int] = None, 0
"""What is recalled where nothing is kept, and its bytes."""


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

    Args:
        states: The parts of each state.
        gone: State and path of each file that is no longer live.
        new: State, path and size of each file that was written.
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


@dataclass(frozen=True, slots=True)
class _Kept:
    """A value, the records that it was made of, and its bytes."""

    value: Any
    version: Version
    bytes: int


@dataclass
class Remembered:
    """The values of one process, by name; safe to use from several threads.

    Attributes:
        bytes: Size of all values, as stated by their authors.
    """

    bytes: int = 0
    _kept: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str, version: Callable[[], Version]) -> tuple[Any, int]:
        """Return a value and its size, and forget it; `NOTHING` if there is none for these records.

        Args:
            version: Returns which records the states have.
        """
        with self._lock:
            kept = self._kept.pop(name, None)
            self.bytes -= kept.bytes if kept else 0
        if kept is None or kept.version != version():
            return NOTHING
        return kept.value, kept.bytes

    def put(self, name: str, value: Any, size: int, version: Version, *, most: int) -> None:
        """Keep a value; drop the oldest ones until all take at most `most` bytes together."""
        with self._lock:
            old = self._kept.pop(name, None)
            self.bytes -= old.bytes if old else 0
            self._kept[name] = _Kept(value, version, size)
            self.bytes += size
            while self.bytes > most:
                self.bytes -= self._kept.popitem(last=False)[1].bytes


@lru_cache(maxsize=8)
def remembered(cache: str) -> Remembered:
    """Return the memory that this process keeps beside the index copies in a folder."""
    del cache
    return Remembered()
