"""Change files of a view's table: an entry's changes, for readers of Delta's change data feed.

Readers of the feed treat an entry as one moment, so it has at most one change of a key: one insert,
one delete, or one pair of updates. If a view has no key, equal records are counted: a record has
one insert for each copy that the entry adds, or one delete for each copy that it removes. An entry
that only adds files needs no change files. From any other entry, readers cannot derive the changes
(see the package README).

Guaranteed: a file is complete or absent, and the bytes under one name never change, since the name
contains their digest. So a repeated publication, also by a controller that no longer leads, never
changes what readers see. Memory: `EngineLimits.merge_rows` records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import positive_zeros
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.commit.table_entries import newest_epoch
from cbp.engine.delta.actions import ROWS_UNKNOWN, AddFile, ChangeFile
from cbp.engine.delta.change_feed_settings import feed_flow, feed_key
from cbp.engine.delta.deletion_vectors import live_in, read_vector
from cbp.engine.delta.live_records import read_batches
from cbp.engine.delta.log import Snapshot
from cbp.engine.storage.checked_parquet import CHECKED, open_parquet, sealed
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.file_names import change_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import is_random
from cbp.errors import CbpError
from cbp.model.flow.signed_changes import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    SIGN,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)

_logger = logging.getLogger(__name__)

_TYPE = "_change_type"
_TYPES = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
_DELTAS_NAMES = {UPDATE_BEFORE: "update_preimage", UPDATE_AFTER: "update_postimage"}
"""Delta's names of updates; Delta's names of the other types are the same as ours."""

_HASH, _EPOCH, _PARTITION = "_hash", "_epoch", "_bucket"
_FILE_ROWS, _FILE_BYTES = 131_072, 64 << 20
"""Approximate maximum of records and bytes in a change file, which is made in memory."""

_TOGETHER = 2
"""Number of change files that are made in parallel."""

Read = Callable[[], Iterator[pa.Table]]
"""Reads tables of changes, in order, with the view's columns, `change_type` and `sign`."""


def is_derivable(adds: Iterable[AddFile], removes: Sequence[object]) -> bool:
    """Return whether an entry needs no change files: it only adds files, without dead rows."""
    return not removes and all(add.deletion_vector is None for add in adds)


def net_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the net change of each key, from its first to its last change; pure.

    The changes have the view's columns and `sign`, in the order in which they happened. The result
    has the view's columns and `change_type`, ordered by key; an `update_after` follows its
    `update_before`. A key whose record is unchanged has no row.
    """
    signs = changes.column(SIGN).to_numpy()
    records = changes.drop_columns([c for c in (SIGN, CHANGE_TYPE) if c in changes.column_names])
    if set(key) == set(records.column_names):
        return _net_records(records, signs)
    (keys,) = row_codes([records.select(list(key))])
    (codes,) = row_codes([records])
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    first, last = order[starts], order[np.append(starts[1:], len(order)) - 1]
    was, is_ = signs[first] < 0, signs[last] > 0
    same = was & is_ & (codes[first] == codes[last])
    gone, came = was & ~same, is_ & ~same
    rows = np.stack([first, last], axis=1)[np.stack([gone, came], axis=1)]
    both = (gone & came)[:, None]
    kinds = np.where(both, [UPDATE_BEFORE, UPDATE_AFTER], [DELETE, INSERT])
    kept = kinds[np.stack([gone, came], axis=1)].tolist()
    return records.take(pa.array(rows)).append_column(CHANGE_TYPE, pa.array(kept, pa.string()))


def feed_of_repair(
    path: str, files: Files
) -> Callable[[Snapshot, Snapshot], tuple[ChangeFile, ...]]:
    """Return a writer of the change files of a repair, which undoes foreign writes.

    If a foreign file cannot be read, there are no change files: the repair is more important.
    """

    def write(before: Snapshot, after: Snapshot) -> tuple[ChangeFile, ...]:
        if before.live == after.live or not feed_flow(after.metadata.configuration):
            return ()
        epoch = max(newest_epoch(after.txns), 0)
        feed = ChangeFeed(path, after, epoch, files, DEFAULT_LIMITS)
        try:
            return feed.write_difference(before.live, after.live)
        except (CbpError, OSError, pa.ArrowException, KeyError) as exc:
            _logger.warning("the repair of %s is missing in its change data feed: %s", path, exc)
            return ()

    return write


def _net_records(records: pa.Table, signs: Int64s) -> pa.Table:
    """Return as many inserts or deletes of each record as the sum of its signs says."""
    (codes,) = row_codes([records])
    sums = np.bincount(codes, weights=signs).astype(np.int64)
    _, firsts = np.unique(codes, return_index=True)
    kinds = np.repeat(np.where(sums > 0, INSERT, DELETE), abs(sums)).tolist()
    rows = records.take(pa.array(np.repeat(firsts, abs(sums))))
    return rows.append_column(CHANGE_TYPE, pa.array(kinds, pa.string()))


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """Writes the change files of the entry after `snapshot`, named after the entry's last epoch."""

    path: str
    snapshot: Snapshot
    epoch: int
    files: Files
    limits: EngineLimits

    def write_epochs(self, epochs: Sequence[Sequence[str]]) -> tuple[ChangeFile, ...]:
        """Write the changes of epochs durably; an epoch is given as its files of the view's flow.

        The epochs are in order, oldest first.
        """
        paths = [path for epoch in epochs for path in epoch]
        if sum(map(bool, epochs)) <= 1:
            return self._write(self._read(paths, without=(_EPOCH, SIGN)))
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        return self._write(self._net(lambda: self._read(paths), rows))

    def write_difference(
        self, before: Mapping[str, AddFile], after: Mapping[str, AddFile]
    ) -> tuple[ChangeFile, ...]:
        """Write the difference of two live sets durably; reads only the rows that differ."""
        sides = [*self._sides(before, after)]
        rows = sum(len(rows) for _, rows, _ in sides)
        return self._write(self._net(lambda: self._rows(sides), rows))

    def _read(
        self, paths: Sequence[str], *, without: Sequence[str] = (_EPOCH,)
    ) -> Iterator[pa.Table]:
        options = {"without": without, "dictionaries": (CHANGE_TYPE,)}
        for path in paths:
            for batch in read_batches(path, limits=self.limits, **options):
                yield pa.Table.from_batches([batch])

    def _sides(
        self, before: Mapping[str, AddFile], after: Mapping[str, AddFile]
    ) -> Iterator[tuple[AddFile, Int64s, int]]:
        for sign, these, others in ((-1, before, after), (1, after, before)):
            for path in sorted(these):
                file, other = these[path], others.get(path)
                if other is None or other.deletion_vector != file.deletion_vector:
                    rows = self._live(file)
                    gone = rows if other is None else np.setdiff1d(rows, self._live(other))
                    if len(gone):
                        yield file, gone, sign

    def _live(self, file: AddFile) -> Int64s:
        rows, vector = file.rows, file.deletion_vector
        if rows == ROWS_UNKNOWN:  # of another program
            with open_parquet(f"{self.path}/{file.path}") as opened:
                rows = opened.metadata.num_rows
        if vector is None:
            return np.arange(rows)
        return live_in(read_vector(self.path, vector, files=self.files), 0, rows)

    def _rows(self, sides: Iterable[tuple[AddFile, Int64s, int]]) -> Iterator[pa.Table]:
        for file, rows, sign in sides:
            at = 0
            for batch in read_batches(f"{self.path}/{file.path}", limits=self.limits):
                first, last = np.searchsorted(rows, [at, at + batch.num_rows])
                if last > first:
                    part = pa.Table.from_batches([batch.take(pa.array(rows[first:last] - at))])
                    own = [name for name in (_HASH, _PARTITION) if name in part.column_names]
                    signs = pa.array(np.full(part.num_rows, sign, np.int32))
                    yield part.drop_columns(own).append_column(SIGN, signs)
                at += batch.num_rows

    def _net(self, read: Read, rows: int) -> Iterator[pa.Table]:
        """Yield the net changes, in as many passes over all changes as memory requires."""
        key = feed_key(self.snapshot.metadata.configuration)
        names, types = list(key.names), [field.type for field in key.fields]
        passes = max(1, -(-rows // self.limits.merge_rows))
        for number in range(passes):
            parts = []
            for part in read():
                if passes > 1:
                    columns = positive_zeros(part.select(names)).columns
                    hashes = hash_columns(columns, types).view(np.uint64)
                    part = part.filter(pa.array(hashes % np.uint64(passes) == number))
                parts += [part] if part.num_rows else []
            if parts:
                yield net_changes(pa.concat_tables(parts, promote_options="permissive"), names)

    def _write(self, changes: Iterable[pa.Table]) -> tuple[ChangeFile, ...]:
        """Write changes; if there are none, write an empty file, so that readers derive none."""
        tables = self._cut(changes)
        first, second = next(tables), next(tables, None)
        if second is None:
            return (self._put(_packed(first), 0),)
        done: list[ChangeFile] = []
        with ThreadPoolExecutor(_TOGETHER) as pool:
            waiting = deque([pool.submit(_packed, first)])
            for table in chain([second], tables):
                waiting.append(pool.submit(_packed, table))
                if len(waiting) > _TOGETHER:
                    done.append(self._put(waiting.popleft().result(), len(done)))
            for packed in waiting:
                done.append(self._put(packed.result(), len(done)))
        return tuple(done)

    @staticmethod
    def _cut(changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the records of each file; if there are no changes, one file without records."""
        pending: list[pa.Table] = []
        rows = size = many = 0
        for part in changes:
            table = _as_feed(part)
            pending.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= _FILE_ROWS or size >= _FILE_BYTES:
                yield pa.concat_tables(pending)
                pending, rows, size, many = [], 0, 0, many + 1
        if rows or not many:
            nothing = pa.table({_HASH: pa.array([], pa.int64()), _TYPE: pa.array([], pa.string())})
            yield pa.concat_tables(pending) if pending else nothing

    def _put(self, data: bytes, number: int) -> ChangeFile:
        name = change_file(self.epoch, number, xxhash.xxh3_128_hexdigest(data))
        data = sealed(data, f"{self.path}/{name}")
        self.files.write_durable(f"{self.path}/{name}", data, what="change_file")
        partition = dict.fromkeys(self.snapshot.metadata.partition_columns)
        return ChangeFile(name, partition, len(data))


def _packed(table: pa.Table) -> bytes:
    """Return records as a Parquet file, written fast since it is rarely read and soon removed."""
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table,
        buffer,
        compression=_codecs(table),
        use_dictionary=[_TYPE],
        write_statistics=False,
        store_schema=False,  # a reader gets the types as texts, not as a dictionary
        **CHECKED,
    )
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def _codecs(table: pa.Table) -> str | dict[str, str]:
    if any(map(pa.types.is_nested, table.schema.types)):
        return "snappy"
    names = table.column_names
    return {name: "none" if is_random(table.column(name)) else "snappy" for name in names}


def _as_feed(changes: pa.Table) -> pa.Table:
    """Return changes in the form of the feed: with Delta's names, and null in our own columns."""
    kinds = changes.column(CHANGE_TYPE).combine_chunks()
    if not pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_encode()
    places = np.array([_TYPES.index(name) for name in kinds.dictionary.to_pylist()], np.int8)
    kinds = pa.DictionaryArray.from_arrays(
        places[kinds.indices.to_numpy()], [_DELTAS_NAMES.get(name, name) for name in _TYPES]
    )
    columns = [name for name in changes.column_names if name not in (CHANGE_TYPE, SIGN)]
    table = changes.select(columns).append_column(_HASH, pa.nulls(changes.num_rows, pa.int64()))
    return table.append_column(_TYPE, kinds)
