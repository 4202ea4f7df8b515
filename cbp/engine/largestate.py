"""One state of a group that does not fit in memory: given to the author, and settled.

It reads and compares at the same time: what the author was given and what was emitted
meanwhile cancel out chunk by chunk (`cbp.engine.difference`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from cbp.engine.difference import Difference
from cbp.engine.rows import Row
from cbp.engine.state.bucket import Found
from cbp.engine.window import Source

__all__ = ["LargeState"]


class LargeState:
    """See the module header; `read` is iterated at most once, `finish` is called at the end.

    Args:
        emitted: Where the author's records arrive; emptied by `drain`.
        died: Takes where records lie that are gone.
        born: Takes new records.
    """

    def __init__(
        self,
        source: Source,
        emitted: list[Row],
        *,
        died: Callable[[Found], None],
        born: Callable[[list[Row]], None],
    ) -> None:
        self._source, self._emitted, self._died = source, emitted, died
        self._difference = Difference(died, born)
        self._tables: Iterator[tuple[pa.Table, Found]] | None = None
        if source.stream is None:
            assert source.origin is not None, "state records know where they lie"
            self._difference.read(source.rows, source.origin)
            self._difference.complete()

    def __enter__(self) -> LargeState:
        return self

    def __exit__(self, *_: object) -> None:
        self._difference.__exit__()

    def read(self, drain: Callable[[], None]) -> Iterator[Row]:
        """Yield the records; calls `drain` behind every chunk, when their echo was emitted."""
        stream = self._source.stream
        if stream is None:
            yield from self._source.rows
            return
        self._tables = stream.tables()
        for table, found in self._tables:
            rows = stream.decoded(table)
            self._difference.read(rows, found)
            yield from rows
            drain()
        self._difference.complete()

    def drain(self) -> None:
        """Compare what was emitted so far."""
        if self._emitted:
            rows = self._emitted[:]
            self._emitted.clear()
            self._difference.emit(rows)

    def finish(self) -> None:
        """Settle what is left, also what the author did not read."""
        self.drain()
        stream = self._source.stream
        if stream is not None:
            if self._tables is None and not self._difference.expects:
                for found in stream.found():
                    self._died(found)
            else:
                for table, found in self._tables or stream.unordered():
                    if self._difference.expects:
                        self._difference.read(stream.decoded(table), found)
                    else:
                        self._died(found)
        self._difference.finish()
