"""Kept records of a window's groups, found by (hash, key, second key) when an author reads them.

    group -> its rows in each file of its bucket, as a range -> binary search by the second key

Only the records that the author reads are read from a group's files. At the first look-up of a
window, all records that its inputs name are found together (`cbp.engine.kernel.named_records`). A
group with many other look-ups gets a list of all its second keys once its searches have cost as
much as making that list.

Some authors read all records of each group. Reading one group of ten records alone costs a hundred
times as much as its records. So once an author has read all records of some small neighboring
groups, the next groups are read together: twice as many each time, until the author reads a group
that is not near.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, islice, pairwise, repeat
from operator import eq, itemgetter, ne
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.kept_records import Bound, KeptRecords, kept_shape, keys_reader
from cbp.engine.columnar.row_codec import decode_table
from cbp.engine.columnar.values import FLOATS, Row, row_order
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.engine.kernel.named_records import Named, NamedRecords, Place
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.second_key_order import SecondOrder
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

Part = tuple[int, SecondOrder, int, int]
"""Where a file has rows of a group: index of the file, order, first place, last place + 1."""

_NEAR = 4
"""Two groups that an author reads one after the other are neighbors up to this distance."""

_GROUPS_MAX, _ROWS_MAX, _GROUP_ROWS_MAX = 1_024, 4_096, 128
"""Maximum numbers of groups and rows read together, and of rows of one group among them."""


@dataclass
class WholeGroups:
    """All records of some groups, read ahead of use; `parts` returns the files of a group."""

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
        """Forget all records; see `KeptSource.release`."""
        self._read, self.parts, self.sort_key = {}, _nothing, _nothing

    def _read_from(self, first: int) -> dict[int, Sequence[Any]]:
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
        rows = np.concatenate([order.rows(start, stop) for _, (_, order, start, stop) in wanted])
        sizes = [stop - start for _, (_, _, start, stop) in wanted]
        live = self.state.is_live(at, rows)
        counts = np.add.reduceat(live.astype(np.int64), np.cumsum([0, *sizes[:-1]]))
        if not live.any():
            return []
        table = self.state.whole(at).take(rows[live], self.schema.names)
        self.state.bytes_read += table.nbytes
        records = self.make(decode_table(table, self.schema))
        edges = pairwise([0, *np.cumsum(counts).tolist()])
        numbers = (number for number, _ in wanted)
        return [(number, records[a:b]) for number, (a, b) in zip(numbers, edges, strict=True)]


def _nothing(_: object) -> tuple[()]:
    return ()


_CHUNK_ROWS_MIN, _CHUNK_ROWS_MAX = 32, 4_096
"""Rows of a file that an iteration reads at a time: few at first, since an author may stop."""

_SHOWN_ROWS = 3

_LOCATED_MAX = 65_536
"""Maximum number of remembered records of a group: most records are written soon after a read."""


class KeptSource:
    """One kept state of a window; `named` returns the second keys that its inputs name, if few."""

    chunks = None

    def __init__(
        self,
        spec: StateSpec,
        translator: TranslatorSpec,
        state: BucketState,
        make: Callable[[Iterable[Row]], list[Row]],
        *,
        hashes: Int64s,
        keys: Sequence[Row],
        key_table: pa.Table,
        named: Callable[[], Iterable[Named]] | None = None,
    ) -> None:
        self.name, self.spec, self.state, self.make = spec.name, spec, state, make
        self.shape, self.hashes, self.keys = kept_shape(spec), hashes, keys
        self._translator, self._key_table, self._named = translator, key_table, named
        key = translator.key_of(spec)
        self.columns = Schema((*key.fields, *self.shape.schema.fields))
        self.key_types = tuple(column.type for column in key.fields)
        self.keys_of = keys_reader(spec.schema, key.names)
        types = [column.type for column in spec.schema.fields]
        self.is_nested = any(type_.arguments for type_ in types)
        self._floats = [at for at, one in enumerate(types) if one.kind in FLOATS]
        self._groups: dict[int, KeptGroup] = {}
        self.whole_groups = WholeGroups(
            state,
            spec.schema,
            make,
            lambda row: self.shape.order_of(self.shape.second_of(row)),
            lambda number: self.group(number).files(),
            len(keys),
        )
        self._ranges: list[tuple[int, SecondOrder, int, list[int], list[int]]] | None = None
        self.records: dict[Place, Any] = {}
        self._listed: tuple[KeptGroup, dict[Row, Place] | None] | None = None

    def groups(self) -> Iterator[KeptRecords]:
        """Yield a reader of each group's records in turn; reads nothing yet."""
        return (self.handle(number) for number in range(len(self.keys)))

    def handle(self, number: int) -> KeptRecords:
        """Return the records of a group for its author."""
        return KeptRecords(self.shape, self.group(number))

    def group(self, number: int) -> KeptGroup:
        """Return the records of a group."""
        if number not in self._groups:
            self._groups[number] = KeptGroup(self, number)
        return self._groups[number]

    def release(self) -> None:
        """Forget all records after the window, when no group is read again.

        Groups and their source refer to each other, and automatic collection is off in a task.
        Without this call, all windows would stay in memory until the task ends.
        """
        for group in self._groups.values():
            group.release()
        self._groups.clear()
        self.records.clear()
        self.whole_groups.release()
        self._listed = self._named = None

    def find_named(self, asked: KeptGroup, second: Row) -> bool:
        """Find all records that the window's inputs name; return `False` if that was done before.

        If they do not name the requested key, it is looked up in every group: an author who reads
        such a key first, for example that of a total, mostly reads it in each group.
        """
        named, self._named = self._named, None
        if named is None:
            return False
        keys, hashes = self._key_table, self.hashes
        call = KeptCall(self.spec, self._translator, self.state, keys=keys, hashes=hashes)
        read = None if self.is_nested else self._read  # nested records are read one by one
        records = NamedRecords(self.spec, call, named(), read)
        for group, seconds, places, rows in records.found((asked.number, second)):
            self.group(group).note(seconds, places, rows)
        self._ranges = records.ranges()
        return True

    def _read(self, positions: RecordPositions) -> list[Row]:
        return self.decoded(self.state.take(positions, self.spec.schema.names))

    def decoded(self, table: pa.Table) -> list[Row]:
        """Return the records of a table as the author reads them."""
        return self.make(decode_table(table, self.spec.schema))

    def record(self, at: int, row: int) -> Any:
        """Return the record at a row of a file; only for states without nested types."""
        file = self.state.whole(at)
        self.state.bytes_read += file.memory // max(1, len(file.hashes))
        record = self.make([file.record(row, self.spec.schema.names)])[0]
        if len(self.records) >= _LOCATED_MAX:
            self.records.clear()
        self.records[at, row] = record
        return record

    def parts(self, number: int) -> list[Part]:
        """Return the files that have rows of a group."""
        if self._ranges is not None:
            return [
                (at, order, starts[mine], stops[mine])
                for at, order, first, starts, stops in self._ranges
                if 0 <= (mine := number - first) < len(starts) and stops[mine] > starts[mine]
            ]
        parts, key = [], row_order(self.keys[number], self.key_types)
        for at, start, stop in self._spans[number]:
            order = self.state.whole(at).second_order(self.columns)
            start, stop = order.span(key, start, stop)  # narrower if keys share the hash
            if stop > start:
                parts.append((at, order, start, stop))
        return parts

    def listed(self, group: KeptGroup) -> dict[Row, Place] | None:
        """Return the place of every live record of a group; one group is in memory at a time."""
        if self._listed is None or self._listed[0] is not group:
            self._listed = None
            self._listed = group, group.list_all()
        return self._listed[1]

    def are_same(self, before: Sequence[Any], after: Sequence[Any]) -> list[bool]:
        """Return for each record whether it is put unchanged, compared with the one before."""
        same = list(map(eq, before, after))
        if self.is_nested or self._has_nan(after):
            for at, (old, new) in enumerate(zip(before, after, strict=True)):
                same[at] = same[at] or (isinstance(old, tuple) and identity(old) == identity(new))
        return same

    def _has_nan(self, records: Sequence[Any]) -> bool:
        if not self._floats:
            return False
        rows = list(filter(None, records))
        columns = (list(map(itemgetter(at), rows)) for at in self._floats)
        return any(any(map(ne, values, values)) for values in columns)

    def of(self, number: int) -> list[Row]:
        """Return the first records of a group, for error messages."""
        return list(islice(self.handle(number), _SHOWN_ROWS))

    @cached_property
    def _spans(self) -> list[list[tuple[int, int, int]]]:
        """For every group: each file that has rows of its hash, and their places by hash."""
        state = self.state
        spans: list[list[tuple[int, int, int]]] = [[] for _ in self.keys]
        for at, first, last in state.files_of(self.hashes):
            wanted = state.as_filed(at, self.hashes[first:last])
            hashes = state.whole(at).hashes
            state.lookups["index"] += 1
            if not len(hashes):
                continue
            starts = hashes.searchsorted(wanted)
            hits = (hashes[np.minimum(starts, len(hashes) - 1)] == wanted).nonzero()[0]
            stops = hashes.searchsorted(wanted[hits], "right")
            for hit, stop in zip(hits.tolist(), stops.tolist(), strict=True):
                spans[first + hit].append((at, int(starts[hit]), stop))
        return spans


class _Answers(dict[Row, Any]):
    """Known records by second key; other keys are read on demand, and remembered."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[Row], Any]) -> None:
        self._ask = ask

    def __missing__(self, second: Row) -> Any:
        answer = self._ask(second)
        if len(self) >= _LOCATED_MAX:
            self.clear()
        self[second] = answer
        return answer


class KeptGroup:
    """The records of the group `number` of a window before its call; a `KeptReader`.

    `locate` returns [(index of the file, row)] of the live record with a second key, or [].
    """

    __slots__ = ("_known", "_located", "_parts", "_searches", "_source", "get", "locate", "number")

    def __init__(self, source: KeptSource, number: int) -> None:
        self._source, self.number = source, number
        self._located, self._known = _Answers(self._search), _Answers(self._record)
        # Methods of `dict`: records that were found for the window are returned without a Python
        # call.
        self.get: Callable[[Row], Any | None] = self._known.__getitem__
        self.locate: Callable[[Row], Sequence[Place]] = self._located.__getitem__
        self._parts: list[Part] | None = None
        self._searches = 0

    def note(
        self,
        seconds: Sequence[Row],
        places: Sequence[Sequence[Place]],
        records: Sequence[Row | None] | None,
    ) -> None:
        """Store the place of the live record with each second key, and the records if read."""
        self._located.update(zip(seconds, places, strict=True))
        if records is not None:
            self._known.update(zip(seconds, records, strict=True))

    def release(self) -> None:
        """Forget all records; see `KeptSource.release`."""
        del self.get, self.locate, self._known, self._located

    def files(self) -> list[Part]:
        """Return the files that have rows of the group, which are found once."""
        if self._parts is None:
            self._parts = self._source.parts(self.number)
        return self._parts

    def _record(self, second: Row) -> Any | None:
        places = self.locate(second)
        if second in self._known:  # read with those that the window's inputs name
            return self._known[second]
        if not places:
            return None
        source, place = self._source, places[0]
        if place in source.records:
            return source.records[place]
        if source.is_nested:
            return self._read(place[0], np.array([place[1]]))[0]
        return source.record(*place)

    def _search(self, second: Row) -> Sequence[Place]:
        if self._source.find_named(self, second) and second in self._located:
            return self.locate(second)
        return self._found(second)

    def _found(self, second: Row) -> Sequence[Place]:
        files = self.files()
        if not files:
            return ()
        self._searches += 1
        size = sum(stop - start for _, _, start, stop in files)
        rows_max = self._searches * self._source.state.cache.limits.listed_rows
        if size <= min(_LOCATED_MAX, rows_max):  # listing all records costs no more
            listed = self._source.listed(self)
            if listed is not None:
                place = listed.get(second)
                return () if place is None else (place,)
        return tuple(self._locate(second))

    def list_all(self) -> dict[Row, Place] | None:
        """Return the place of every live record; `None` if several have one second key."""
        source, listed = self._source, dict[Row, Place]()
        first, records = len(source.key_types), 0
        for at, order, start, stop in self.files():
            state, file = source.state, source.state.whole(at)
            state.bytes_read += (stop - start) * file.memory // len(file.hashes)
            rows = order.rows(start, stop)
            seconds = source.shape.compared(order.values(start, stop, first=first))
            alive = state.live(at, rows)
            if len(alive) < len(rows):
                seconds, rows = compress(seconds, np.isin(rows, alive)), alive
            listed.update(zip(seconds, zip(repeat(at), rows.tolist()), strict=False))
            records += len(rows)
        return listed if len(listed) == records else None

    def _locate(self, second: Row) -> Iterator[Place]:
        source, wanted = self._source, self._source.shape.order_of(second)
        first = len(source.key_types)
        for at, order, start, stop in self.files():
            start, stop = order.span(wanted, start, stop, first=first)
            for place in range(start, stop):
                row = order.row(place)
                if row not in source.state.dead_rows(at):
                    yield at, row

    def between(self, low: Bound, high: Bound, *, reverse: bool = False) -> Iterator[Any]:
        """Yield the records from one place to another; see `KeptReader`."""
        if not (low.order or high.order or reverse):
            records = self._source.whole_groups.of(self.number)
            if records is not None:
                return iter(records)
        parts = [self._rows(part, low, high, reverse=reverse) for part in self.files()]
        if len(parts) == 1:
            return (row for _, row in parts[0])
        merged = heapq.merge(*parts, key=itemgetter(0), reverse=reverse)
        return (row for _, row in merged)

    def _rows(
        self, part: Part, low: Bound, high: Bound, *, reverse: bool
    ) -> Iterator[tuple[Any, Any]]:
        (at, order, *span), shape = part, self._source.shape
        first = len(self._source.key_types)
        place, stop = (
            order.search(bound.order, *span, first=first, behind=bound.behind)
            for bound in (low, high)
        )
        for start, end in _chunks(place, stop, reverse=reverse):
            rows = order.rows(start, end)
            dead = self._source.state.dead_rows(at)
            if dead:
                rows = rows[[row not in dead for row in rows.tolist()]]
            if len(rows):
                records = self._read(at, rows)
                for row in reversed(records) if reverse else records:
                    yield shape.order_of(shape.second_of(row)), row

    def _read(self, at: int, rows: Int64s) -> list[Any]:
        source = self._source
        table = source.state.whole(at).take(rows, source.spec.schema.names)
        source.state.bytes_read += table.nbytes
        return source.decoded(table)


def _chunks(start: int, stop: int, *, reverse: bool) -> Iterator[tuple[int, int]]:
    """Yield parts of a range that grow from one of its ends: first place, last place + 1."""
    size = _CHUNK_ROWS_MIN
    while start < stop:
        if reverse:
            yield max(start, stop - size), stop
            stop -= size
        else:
            yield start, min(start + size, stop)
            start += size
        size = min(2 * size, _CHUNK_ROWS_MAX)
