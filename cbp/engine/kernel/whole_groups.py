"""Kept records of many small groups, read together for an author who reads group after group.

An author who reads all records of each group is given them group by group. Read one at a time, a
group of ten records costs a hundred times what its records cost. So once an author has read some
neighbors as a whole, the next ones are read together: twice as many each time, until the author
reads others. What an author would begin to read of a group anyway is not much less than such a
group has; larger groups are read only as far as the author asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from cbp.engine.columnar.row_codec import decode_columns
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.second_key_order import SecondOrder
from cbp.model.flow.schema import Schema

Part = tuple[int, SecondOrder, int, int]
"""Where a file has rows of a group: index of the file, order, first and last place + 1."""

_NEAR = 4
"""How far apart two groups are between which an author reads none, and still goes on."""

_GROUPS_MAX, _ROWS_MAX, _GROUP_ROWS_MAX = 1_024, 4_096, 128
"""Groups and rows that are read together, and rows of a group that is read with others."""


@dataclass
class WholeGroups:
    """The records of groups that were read before they were asked for.

    Attributes:
        sort_key: Gives the place of a record in its group.
        parts: Returns where a group's rows lie.
    """

    state: BucketState
    schema: Schema
    make: Callable[[Any], list[Any]]
    sort_key: Callable[[Any], Any]
    parts: Callable[[int], Sequence[Part]]
    groups: int
    _ahead: int = field(init=False, default=1)
    _last: int = field(init=False, default=-_NEAR - 1)
    _read: Mapping[int, Sequence[Any]] = field(init=False, default_factory=dict)

    def of(self, number: int) -> Sequence[Any] | None:
        """Return the live records of a group in order; `None` if they are not read together."""
        if number not in self._read and number != self._last:
            goes_on = 0 < number - self._last <= _NEAR
            self._ahead = min(2 * self._ahead, _GROUPS_MAX) if goes_on else 1
            self._read = self._read_from(number) if self._ahead > 1 else {}
        self._last = number
        return self._read.get(number)

    def release(self) -> None:
        """Forget the records, and what finds them."""
        self._read, self.parts, self.sort_key = {}, _nothing, _nothing

    def _read_from(self, first: int) -> dict[int, Sequence[Any]]:
        """Return the records of a group and of the ones after it, as far as they are small."""
        by_file: dict[int, list[tuple[int, Part]]] = {}
        read: dict[int, Sequence[Any]] = {}
        several, total = set[int](), 0
        for number in range(first, min(first + self._ahead, self.groups)):
            parts = self.parts(number)
            rows = sum(stop - start for _, _, start, stop in parts)
            total += rows
            if rows > _GROUP_ROWS_MAX or total > _ROWS_MAX:
                break
            read[number] = ()
            if len(parts) > 1:
                several.add(number)
            for part in parts:
                by_file.setdefault(part[0], []).append((number, part))
        for at, wanted in by_file.items():
            for number, records in self._of_file(at, wanted):
                read[number] = [*read[number], *records]
        for number in several:
            read[number] = sorted(read[number], key=self.sort_key)
        return read

    def _of_file(
        self, at: int, wanted: Sequence[tuple[int, Part]]
    ) -> list[tuple[int, Sequence[Any]]]:
        """Return the live records that a file has of some groups, group by group."""
        rows = np.concatenate([order.rows(start, stop) for _, (_, order, start, stop) in wanted])
        sizes = [stop - start for _, (_, _, start, stop) in wanted]
        live = self.state.is_live(at, rows)
        counts = np.add.reduceat(live.astype(np.int64), np.cumsum([0, *sizes[:-1]]))
        if not live.any():
            return []
        names, types = self.schema.names, [column.type for column in self.schema.fields]
        table = self.state.whole(at).take(rows[live], names)
        self.state.bytes_read += table.nbytes
        records = self.make(decode_columns(table, names, types))
        edges = pairwise([0, *np.cumsum(counts).tolist()])
        numbers = (number for number, _ in wanted)
        return [(number, records[a:b]) for number, (a, b) in zip(numbers, edges, strict=True)]


def _nothing(_: object) -> tuple[()]:
    return ()
