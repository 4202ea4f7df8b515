"""The state of a group that does not fit in memory: given to the author and diffed meanwhile.

Records that the author was given and records that were emitted meanwhile cancel out chunk by
chunk (`cbp.engine.state.multiset_diff`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from cbp.engine.columnar.row_codec import Row
from cbp.engine.kernel.large_view import LargeView
from cbp.engine.kernel.window import Source
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.multiset_diff import Difference
from cbp.engine.storage.engine_limits import EngineLimits


class LargeState:
    """One state of one large group; iterate `read` at most once, call `finish` at the end.

    Args:
        emitted: List in which the author's records arrive; emptied by `drain`.
        died: Called with the places of deleted records.
        born: Called with new records.
        limits: How many records wait for an equal one; see `Difference`.
        copies: Copies records for the author, who may change lists; `None` if there are no lists.
        rounder: Rounds emitted numbers as they are stored; `None` if there are none to round.
        view: Gets what becomes of the records, if the state is a view.

    Attributes:
        has_emitted: Whether any record was emitted so far, and drained.
    """

    def __init__(
        self,
        source: Source,
        emitted: list[Row],
        *,
        died: Callable[[RecordPositions], None],
        born: Callable[[list[Row]], None],
        limits: EngineLimits,
        copies: Callable[[list[Row]], list[Row]] | None = None,
        rounder: Callable[[list[Row]], list[Row]] | None = None,
        view: LargeView | None = None,
    ) -> None:
        self._source, self._emitted, self._died = source, emitted, died
        self._view, self._rounder = view, rounder
        self._copies = copies or (lambda rows: rows)
        self._difference = Difference(died, born, limits)
        self.has_emitted = False
        self._tables: Iterator[tuple[pa.Table, RecordPositions]] | None = None
        if source.stream is None:
            assert source.origin is not None, "state records have a location"
            self._difference.read(source.rows, source.origin)
            self._difference.complete()

    def __enter__(self) -> LargeState:
        return self

    def __exit__(self, *_: object) -> None:
        self._difference.__exit__()
        if self._view is not None:
            self._view.close()

    def read(self, drain: Callable[[], None]) -> Iterator[Row]:
        """Yield the records; call `drain` after each chunk, once its records were emitted again."""
        stream = self._source.stream
        if stream is None:
            yield from self._copies(self._source.rows)
            return
        self._tables = stream.tables()
        for table, positions in self._tables:
            rows = stream.decoded(table)
            self._difference.read(rows, positions)
            yield from self._copies(rows)
            drain()
        self._difference.complete()

    def drain(self) -> None:
        """Compare the records that were emitted so far."""
        if self._emitted:
            self.has_emitted = True
            rows = self._emitted[:]
            self._emitted.clear()
            if self._rounder is not None:
                rows = self._rounder(rows)
            if self._view is not None:
                self._view.emitted(rows)
            self._difference.emit(rows)

    def finish(self) -> None:
        """Compare all the rest, including records that the author did not read."""
        self.drain()
        stream = self._source.stream
        if stream is not None:
            if self._tables is None and not self._difference.expects:
                for positions in stream.positions():
                    self._died(positions)
            else:
                for table, positions in self._tables or stream.unordered():
                    if self._difference.expects:
                        self._difference.read(stream.decoded(table), positions)
                    else:
                        self._died(positions)
        self._difference.finish()
        if self._view is not None:
            self._view.finish()
