"""Measures the bytes that a candidate moves: between Spark's stages, and into files.

- Shuffled: what Spark's exchanges wrote, per stage. Spark forgets stages, the oldest first. If some
  of the wanted stages may be gone, the result is unknown.
- Written: what grew below the candidate's folder: new files whole, grown files by their growth. It
  includes logs, vectors and checkpoints, but no caches.

Bytes read are reported by the candidates that know them. Spark's own count leaves out what Parquet
reads in the background, which is nearly everything.

Not guaranteed: bytes that were written in place, without growth of the file.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

__all__ = ["FolderWatch", "StageWatch"]

_NOT_WRITTEN = "sources"
"""Folder of the increments, which are input and not written by the candidate."""

_KINDS = {"/_vectors/": "vectors", "/_delta_log/": "log", "/_intentions/": "intentions"}

_RETAINED = "spark.ui.retainedStages"
_RETAINED_USUAL = 1000


class StageWatch:
    """Counts the bytes that Spark's stages shuffle, between two calls."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext._jsc.sc()
        retained = int(spark.sparkContext.getConf().get(_RETAINED, str(_RETAINED_USUAL)))
        # Above the limit, Spark forgets a tenth of them in advance.
        self._remembered = retained - max(1, retained // 10)
        self._next = 0
        self.take()

    def take(self) -> int | None:
        """Return the bytes shuffled since the last call; None if stages may be forgotten."""
        self._context.listenerBus().waitUntilEmpty()
        store = self._context.statusStore()
        first, self._next = self._next, self._context.dagScheduler().nextStageId()
        if self._next - first > self._remembered:
            return None
        return sum(_shuffled(store, stage) for stage in range(first, self._next))


def _shuffled(store: Any, stage: int) -> int:
    """Return the bytes that a stage wrote for other stages; 0 for one that never ran."""
    try:
        return int(store.lastStageAttempt(stage).shuffleWriteBytes())
    except Py4JJavaError:  # no stage has this number
        return 0


class FolderWatch:
    """Counts the bytes that are added below a folder, between two calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = self._files()

    def take(self) -> int:
        """Return the bytes written since the last call."""
        return self.take_by_kind().total()

    def take_by_kind(self) -> Counter[str]:
        """Return the bytes written since the last call, by purpose.

        Kinds: `data`, `vectors` (including deleted rows of single runs), `log`, `intentions`.
        """
        before, self._known = self._known, self._files()
        written: Counter[str] = Counter()
        for (path, inode), size in self._known.items():
            kind = next((kind for part, kind in _KINDS.items() if part in path), "data")
            written[kind] += max(size - before.get((path, inode), 0), 0)
        return written

    def _files(self) -> dict[tuple[str, int], int]:
        """Return the size of every file, by name and inode: a replaced file is a new one."""
        size_by_inode: dict[tuple[str, int], int] = {}
        for folder, below, names in os.walk(self._folder):
            if _NOT_WRITTEN in below:
                below.remove(_NOT_WRITTEN)
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # removed meanwhile
                    continue
                size_by_inode[path, status.st_ino] = status.st_size
        return size_by_inode
