r"""Diff of the state of one large group, in bounded memory; exact, as multisets.

The author reads records and emits records. A record that is emitted again stays, one that
is not emitted again is deleted, one that was not there before is new. Mostly a group is emitted
in the order in which it is read, with few changes. Then read and emitted records cancel out as
they come, and few remain. If many remain (the author emits in another order), both sides are
spilled by hash into partitions, each of which fits in memory.

    read ----> pending ----\                 /--> died (places)
                            cancel -> spill -
    emitted -> pending ----/                 \--> born (records)

Records are compared as values (`cbp.model.dataflow.equality.identity`), never by hash alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from operator import eq, itemgetter
from typing import Any

import numpy as np

from cbp.engine.columnar.values import Row
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.spill_files import BlockFile
from cbp.model.dataflow.equality import identity

_Old = tuple[Row, int, int, int]
"""A record, and its place: hash, file, position."""


class Difference:
    """The diff; call `read` and `emit` in any order, then `finish` once.

    `died` is called with the places of records that were not emitted again, `born` with new ones.
    """

    def __init__(
        self,
        died: Callable[[RecordPositions], None],
        born: Callable[[list[Row]], None],
        limits: EngineLimits,
    ) -> None:
        self._died, self._born, self._limits = died, born, limits
        self._fresh_olds: list[_Old] = []
        self._fresh_news: list[Row] = []
        self._pending = _Pending()
        self._spill: _Spill | None = None
        self._complete = False

    def __enter__(self) -> Difference:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spill is not None:
            self._spill.close()

    @property
    def expects(self) -> bool:
        """Whether some emitted record may still meet an equal record of the state."""
        return bool(self._fresh_news) or self._pending.news > 0 or self._spill is not None

    def read(self, rows: list[Row], origin: RecordPositions) -> None:
        """Add records of the state, in the form that the author reads, with their places."""
        where = (origin.hashes.tolist(), origin.file.tolist(), origin.position.tolist())
        self._fresh_olds.extend(zip(map(tuple, rows), *where, strict=True))
        self._settle()

    def complete(self) -> None:
        """Declare that all records of the state were read: unmatched emitted records are new."""
        self._complete = True
        self._settle(last=True)

    def emit(self, rows: list[Row]) -> None:
        """Add records that the author emitted."""
        self._fresh_news.extend(rows)
        self._settle()

    def finish(self) -> None:
        """Report all records without a counterpart."""
        self._settle(last=True)
        olds, news = self._pending.take()
        if self._spill is None:
            self._hand_on(olds, news)
            return
        self._spill.add(olds, news)
        for olds, news in self._spill.partitions():
            pending = _Pending()
            pending.add(olds, news)
            self._hand_on(*pending.take())

    def _settle(self, *, last: bool = False) -> None:
        """Cancel equal records; while there is room, wait for the other side."""
        olds, news = self._fresh_olds, self._fresh_news
        waiting = len(olds) + len(news)
        if not (last or self._complete or (olds and news)) and waiting <= self._limits.pending_rows:
            return
        same = _common(olds, news)
        self._pending.add(olds[same:], news[same:])
        self._fresh_olds, self._fresh_news = [], []
        if self._complete and self._spill is None and self._pending.news:
            self._born(self._pending.take_news())
        if self._pending.olds + self._pending.news > self._limits.pending_rows:
            if self._spill is None:
                self._spill = _Spill(self._limits)
            self._spill.add(*self._pending.take())

    def _hand_on(self, olds: list[_Old], news: list[Row]) -> None:
        if olds:
            _, *where = zip(*olds, strict=True)
            self._died(RecordPositions(*(np.array(column, np.int64) for column in where)))
        if news:
            self._born(news)


def _common(olds: list[_Old], news: list[Row]) -> int:
    """Return the number of equal leading records; records in the same order compare at C speed."""
    if all(map(eq, map(itemgetter(0), olds), news)):
        return min(len(olds), len(news))
    same = map(eq, map(itemgetter(0), olds), news)
    return next(at for at, equal in enumerate(same) if not equal)


class _Pending:
    """Records of both sides without a counterpart yet, by value."""

    def __init__(self) -> None:
        self._olds: dict[Hashable, list[_Old]] = {}
        self._news: dict[Hashable, list[Row]] = {}
        self.olds = self.news = 0

    def add(self, olds: list[_Old], news: list[Row]) -> None:
        for old in olds:
            if not self._cancel(self._news, value := identity(old[0])):
                self._olds.setdefault(value, []).append(old)
                self.olds += 1
            else:
                self.news -= 1
        for new in news:
            if not self._cancel(self._olds, value := identity(new)):
                self._news.setdefault(value, []).append(new)
                self.news += 1
            else:
                self.olds -= 1

    def _cancel(self, others: dict[Hashable, list[Any]], value: Hashable) -> bool:
        waiting = others.get(value)
        if waiting is None:
            return False
        waiting.pop()
        if not waiting:
            del others[value]
        return True

    def take_news(self) -> list[Row]:
        news = list(chain.from_iterable(self._news.values()))
        self._news, self.news = {}, 0
        return news

    def take(self) -> tuple[list[_Old], list[Row]]:
        olds = list(chain.from_iterable(self._olds.values()))
        news = list(chain.from_iterable(self._news.values()))
        self._olds, self._news, self.olds, self.news = {}, {}, 0, 0
        return olds, news


class _Spill:
    """Records of both sides on disk, partitioned by hash, in one nameless temporary file."""

    def __init__(self, limits: EngineLimits) -> None:
        self._partitions, self._block_rows = limits.spill_partitions, limits.spill_block_rows
        self._file = BlockFile()
        self._blocks: dict[tuple[int, bool], list[int]] = defaultdict(list)
        self._waiting: dict[tuple[int, bool], list[_Old | Row]] = defaultdict(list)

    def add(self, olds: list[_Old], news: list[Row]) -> None:
        for old in olds:
            self._put((hash(identity(old[0])) % self._partitions, True), old)
        for new in news:
            self._put((hash(identity(new)) % self._partitions, False), new)

    def _put(self, key: tuple[int, bool], record: _Old | Row) -> None:
        waiting = self._waiting[key]
        waiting.append(record)
        if len(waiting) >= self._block_rows:
            self._blocks[key].append(self._file.add(waiting))
            waiting.clear()

    def partitions(self) -> Iterator[tuple[list[_Old], list[Row]]]:
        for partition in range(self._partitions):
            yield self._load((partition, True)), self._load((partition, False))

    def _load(self, key: tuple[int, bool]) -> list[Any]:
        records = self._waiting.pop(key, [])
        for offset in self._blocks.pop(key, []):
            records += self._file.get(offset)
        return records

    def close(self) -> None:
        self._file.close()
