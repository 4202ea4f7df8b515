"""Table migration: change a table of an earlier stage version to the present declaration.

    rewritten   writes files that are not in the log yet, returns the change    (prepare)
    alter       one log entry for columns, settings and files                   (redo)

The change is found by comparing the table with its declaration:

- *state* whose columns or number of buckets differ is rewritten. Buckets are the high bits of
  the hash, and files are sorted by the hash. So doubling cuts each bucket in two, halving joins
  neighbors, and every record is read and written once, in order.
- An *output* that got columns keeps its files, since readers take a missing column as null. An
  output whose types were widened is rewritten, file by file: not every reader can widen.
- A table that starts again, of a state or of an output, loses its files in the same entry. An
  output's entry also records that its older increments are gone, as a retention's entry does.
- A table that was *built* elsewhere is copied, and replaces all that the table showed.
- A *view* that was an output before is filled with the last record of each key of its flow
  (`ViewFilling`). Its table is created by the redo.

Memory: one piece of a bucket, whatever the size of the table; for `ViewFilling`, that of the
external sort. Not parallel: the driver writes one table after the other.

Guaranteed (tests/cbp/engine/outputs/test_table_migration.py): the records are the same, and an
entry is put once, however often `alter` is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.commit.change_feed import ChangeFeed
from cbp.engine.commit.table_entries import horizon_mark, live_files, shown_generation
from cbp.engine.delta.actions import AddFile, ChangeFile, Metadata, RemoveFile
from cbp.engine.delta.change_feed_settings import feed_flow, with_feed_of
from cbp.engine.delta.columns import schema_string
from cbp.engine.delta.live_records import live_batches, read_batches
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.outputs.output_compaction import epochs_of, in_order
from cbp.engine.outputs.table_specs import EPOCH, HASH, DeclaredTable
from cbp.engine.state.bucket_compaction import live_records
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.run_files import RunFiles, WrittenRun
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import rewritten_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.errors import (
    FileDamagedError,
    FileLostError,
    InvariantError,
    OperatingError,
    TableForeignError,
)
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema
from cbp.model.run.intention import TableChange

_UNSIGNED, _PLACE = "_unsigned", "_place"
"""Columns: the unsigned hash, by which buckets are ordered; a record's place in its flow."""


@dataclass(frozen=True, slots=True)
class ViewFilling:
    """The last record of each key of a flow: the first records of a view that was an output before.

        files of the flow, in order -> sorted by (hash, key, place) -> the last record of each key

    Attributes:
        view: The view; the flow has its columns.
        route: The view's columns that form the stage's key, with the types of the key.
        flow: The table of the flow; all recorded runs are published.
        first: The first increment that counts.
    """

    view: StateSpec
    route: Schema
    flow: ManagedTable
    first: int
    limits: EngineLimits
    hash_mask: int

    def records(self) -> Iterator[pa.Table]:
        """Yield the records, ascending by unsigned hash, then by key; with `_hash`."""
        key = [*self.route.names, *self.view.second_key]
        names = [*self.view.schema.names, HASH[0]]
        held: pa.Table | None = None
        order = [_UNSIGNED, *key, _PLACE]
        for table in sorted_tables(self._placed(), order, limits=self.limits):
            rows = table if held is None else pa.concat_tables([held, table])
            (codes,) = row_codes([rows.select(key)])
            last = np.flatnonzero(codes[1:] != codes[:-1])
            if len(last):
                yield rows.take(pa.array(last)).select(names)
            # More records of this key may follow.
            held = rows.slice(rows.num_rows - 1)
        if held is not None:
            yield held.select(names)

    def _placed(self) -> Iterator[pa.Table]:
        schema = arrow_schema(self.view.schema, wide=True)
        place = 0
        for file in in_order(self.flow.refresh().live.values()):
            if epochs_of(file)[1] < self.first:
                continue
            columns = [*schema.names, EPOCH[0]]
            for batch in live_batches(self.flow.path, file, columns, limits=self.limits):
                table = pa.Table.from_batches([batch])
                table = table.filter(pc.greater_equal(table.column(EPOCH[0]), self.first))
                rows = conform(table, schema).cast(schema)
                keys = rows.select(self.route.names).columns
                hashes = hash_columns(keys, [field.type for field in self.route.fields])
                hashes = hashes & np.int64(self.hash_mask)
                places = np.arange(place, place + rows.num_rows)
                place += rows.num_rows
                rows = rows.append_column(HASH[0], pa.array(hashes))
                rows = rows.append_column(_UNSIGNED, pa.array(hashes.view(np.uint64)))
                yield rows.append_column(_PLACE, pa.array(places))


@dataclass(frozen=True, slots=True)
class TableRewriter:
    """Writes the files of altered tables.

    `epoch` is the stage's next one; files that a crash leaves are collected after that epoch. The
    index copies of new state files are put into `cache`.
    """

    epoch: int
    run: str
    now_ms: int
    cache: IndexCache
    faults: Faults

    def rewritten(
        self, table: ManagedTable, declared: DeclaredTable, *, anew: bool
    ) -> TableChange | None:
        """Write a published table's new files, durably; return its change, or `None`.

        With `anew`, the table starts again without files.
        """
        snapshot = table.refresh()
        if anew:
            gone = tuple(sorted(snapshot.live))
            below = 0 if declared.is_state else self.epoch
            if not gone and not below and not _differs(snapshot.metadata, declared):
                return None
            return TableChange(declared.name, drops=gone, below=below)
        if not _differs(snapshot.metadata, declared):
            return None
        if declared.is_state:
            to = StateTable(table.path, snapshot.metadata.id, {})
            adds = self._state(to, table, snapshot, declared)
            _require_all(table.path, adds, snapshot)
        elif _types_grew(table.path, snapshot.metadata, declared):
            adds = self._output(table, snapshot, declared)
        else:
            return TableChange(declared.name, data_change=False)
        return _change(declared, adds, drops=snapshot.live, data_change=False)

    def filled(
        self, path: str, declared: DeclaredTable, filling: ViewFilling, *, drops: Iterable[str] = ()
    ) -> TableChange:
        """Write the first records of a view; `drops` are live files of its earlier table."""
        table = StateTable(path, declared.id, {})
        return _change(declared, self._state_files(table, filling.records(), declared), drops)

    def built(
        self,
        path: str,
        declared: DeclaredTable,
        source: ManagedTable,
        *,
        drops: Iterable[str],
        epochs: int,
    ) -> TableChange:
        """Copy a table that was built elsewhere; return the change that shows it.

        Records of an output, and set-aside records, get negative epochs, in their order, since
        no increment and no run has a negative number. The table at `path` may be missing; all runs
        of `source` are published; its stage ran `epochs` times to build it.
        """
        snapshot = source.refresh()
        if declared.is_state:
            adds = self._state(StateTable(path, declared.id, {}), source, snapshot, declared)
        elif EPOCH in declared.extra:
            adds = self._renumbered(path, source, snapshot, declared, epochs)
        else:
            adds = self._set_aside(path, source, snapshot, declared, epochs)
        _require_all(path, adds, snapshot)
        below = self.epoch if EPOCH in declared.extra else 0
        return _change(declared, adds, drops, below=below)

    def _state(
        self, to: StateTable, source: ManagedTable, snapshot: Snapshot, declared: DeclaredTable
    ) -> list[AddFile]:
        """Write the live records of a state to files of `to`; durable."""
        live = live_files(snapshot, declared.name, ())
        old = StateTable(source.path, snapshot.metadata.id, live)
        states = (BucketState(old, self.cache, (number,)) for number in sorted(live))
        return self._state_files(to, chain.from_iterable(map(live_records, states)), declared)

    def _state_files(
        self, table: StateTable, pieces: Iterable[pa.Table], declared: DeclaredTable
    ) -> list[AddFile]:
        """Write records, which ascend by unsigned hash, to files by bucket; durable."""
        schema = arrow_schema(declared.schema, wide=True).append(pa.field(HASH[0], pa.int64()))
        written: list[str] = []
        files: RunFiles | None = None
        bucket = -1
        done: list[WrittenRun] = []
        make = partial(
            RunFiles,
            table,
            epoch=self.epoch,
            run=f"{self.run}-change",
            cache=self.cache,
            written=written,
            limits=self.cache.limits,
            faults=self.faults,
        )
        for piece in pieces:
            for to, part in _by_bucket(conform(piece, schema), declared.buckets):
                if to != bucket:
                    done += _closed(files)
                    bucket, files = to, make(bucket=to)
                assert files is not None
                files.add(part)
        done += _closed(files)
        sync_files(written, faults=self.faults)
        return [
            AddFile(file.path, {"_bucket": str(file.bucket)}, file.size, file.rows, self.now_ms)
            for file in done
        ]

    def _renumbered(
        self,
        path: str,
        source: ManagedTable,
        snapshot: Snapshot,
        declared: DeclaredTable,
        epochs: int,
    ) -> list[AddFile]:
        """Copy an output file by file, with negative epochs; durable."""
        schema, made = _output_schema(declared), list[AddFile]()
        for number, file in enumerate(in_order(snapshot.live.values())):
            pieces = self._earlier(source, [file], schema, EPOCH[0], epochs)
            if (new := self._file(path, number, schema, pieces)) is None:
                continue
            low, high = ({EPOCH[0]: epoch - epochs} for epoch in epochs_of(file))
            made.append(replace(new, modified_ms=file.modified_ms, min_values=low, max_values=high))
        return self._synced(path, made)

    def _set_aside(
        self,
        path: str,
        source: ManagedTable,
        snapshot: Snapshot,
        declared: DeclaredTable,
        epochs: int,
    ) -> list[AddFile]:
        """Copy the set-aside records of a stage to one file, with negative epochs; durable."""
        schema, files = arrow_schema(declared.schema), sorted(snapshot.live.items())
        pieces = self._earlier(source, [file for _, file in files], schema, "epoch", epochs)
        made = self._file(path, 0, schema, pieces)
        return self._synced(path, [made] if made else [])

    def _output(
        self, table: ManagedTable, snapshot: Snapshot, declared: DeclaredTable
    ) -> list[AddFile]:
        schema, made = _output_schema(declared), list[AddFile]()
        for number, file in enumerate(in_order(snapshot.live.values())):
            batches = read_batches(f"{table.path}/{file.path}", limits=self.cache.limits)
            pieces = (conform(pa.Table.from_batches([batch]), schema) for batch in batches)
            try:
                new = self._file(table.path, number, schema, pieces)
            except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as exc:
                what = f"records that do not fit the new columns of the output ({exc})"
                raise _output_differs(table.path, what) from exc
            if new is None or new.rows != file.rows:
                rows = 0 if new is None else new.rows
                message = f"{table.path}/{file.path} had {file.rows} records, but {rows} were read"
                raise InvariantError(message, path=file.path)
            made.append(replace(file, path=new.path, size=new.size, modified_ms=self.now_ms))
        return self._synced(table.path, made)

    def _earlier(
        self,
        source: ManagedTable,
        files: Iterable[AddFile],
        schema: pa.Schema,
        column: str,
        epochs: int,
    ) -> Iterator[pa.Table]:
        """Yield the live records of some files; the epochs in `column` are lower by `epochs`."""
        at = schema.get_field_index(column)
        for file in files:
            for batch in live_batches(source.path, file, limits=self.cache.limits):
                rows = conform(pa.Table.from_batches([batch]), schema)
                yield rows.set_column(at, schema.field(at), pc.subtract(rows.column(at), epochs))

    def _file(
        self, folder: str, number: int, schema: pa.Schema, pieces: Iterable[pa.Table]
    ) -> AddFile | None:
        name = rewritten_file(self.epoch, number, self.run)
        sink = ParquetSink(f"{folder}/{name}", schema, faults=self.faults)
        for piece in pieces:
            sink.write(piece)
        done = sink.close()
        return None if done is None else AddFile(name, {}, done.bytes, done.rows, self.now_ms)

    def _synced(self, folder: str, made: list[AddFile]) -> list[AddFile]:
        sync_files([f"{folder}/{file.path}" for file in made], faults=self.faults)
        return made


def shown_again(table: ManagedTable, name: str, version: int, *, below: int) -> TableChange:
    """Return the change that makes a table show an earlier version, whose files must exist."""
    now, then = table.refresh().live, table.log.snapshot(version).live
    drops = sorted(path for path, add in now.items() if then.get(path) != add)
    adds = [add.to_json() for path, add in sorted(then.items()) if now.get(path) != add]
    return TableChange(name, tuple(adds), tuple(drops), below=below)


def alter(
    table: ManagedTable,
    declared: DeclaredTable,
    change: TableChange,
    *,
    app_id: str,
    epoch: int,
    cause: str,
    timestamp_ms: int,
    files: Files,
    limits: EngineLimits,
) -> int:
    """Put the one entry that brings a table to its stage's declaration; idempotent redo.

    `app_id` is unique to this table and version. `epoch` is the stage's next one; the entry records
    that the epoch before it is published.
    """
    snapshot = table.refresh()
    gone = {path: snapshot.live[path] for path in change.drops if path in snapshot.live}
    data_change = change.data_change and bool(change.drops or change.adds)
    removes = [
        RemoveFile.of(file, deletion_ms=timestamp_ms, data_change=data_change)
        for file in gone.values()
    ]
    adds = [replace(AddFile.from_json(add), data_change=data_change) for add in change.adds]
    feed: tuple[ChangeFile, ...] = ()
    # Records with different columns cannot be compared, so a reader of changes reads the files.
    comparable = not adds or not _differs(snapshot.metadata, declared)
    if data_change and removes and comparable and feed_flow(snapshot.metadata.configuration):
        new = {add.path: add for add in adds}
        feed = _difference(ChangeFeed(table.path, snapshot, epoch, files, limits), gone, new)
    name = app_id.rpartition("/")[0]
    return table.publish(
        adds=adds,
        removes=removes,
        feed=feed,
        metadata=_metadata(snapshot.metadata, declared),
        app_id=app_id,
        version=max(epoch - 1, 0),
        intention_id=cause,
        timestamp_ms=timestamp_ms,
        operation="CBP CHANGE",
        marks=horizon_mark(name, change.below, shown_generation(snapshot.txns)),
    )


def _difference(
    feed: ChangeFeed, gone: Mapping[str, AddFile], new: Mapping[str, AddFile]
) -> tuple[ChangeFile, ...]:
    """Return the change files of a table that starts again; none if a removed file is damaged.

    The table may start again because of such a file, so the damage must not stop it. Without change
    files, a reader of changes reads the files themselves, and finds the damage at this version.
    """
    try:
        return feed.write_difference(gone, new)
    except (FileDamagedError, FileLostError):
        return ()


def _differs(current: Metadata, declared: DeclaredTable) -> bool:
    wanted = _metadata(current, declared)
    same = json.loads(current.schema) == json.loads(wanted.schema)
    return not (same and dict(current.configuration) == dict(wanted.configuration))


def _metadata(current: Metadata, declared: DeclaredTable) -> Metadata:
    return replace(
        current,
        schema=schema_string(declared.schema, extra=declared.extra),
        configuration=with_feed_of(current.configuration, declared.configuration),
    )


def _types_grew(path: str, current: Metadata, declared: DeclaredTable) -> bool:
    """Return whether a column has another type now; `TableForeignError` if one is gone."""
    new = {f["name"]: f["type"] for f in json.loads(_metadata(current, declared).schema)["fields"]}
    old = {f["name"]: f["type"] for f in json.loads(current.schema)["fields"]}
    if lost := sorted(old.keys() - new.keys()):
        what = f"increments with columns that the output no longer has ({', '.join(lost)})"
        raise _output_differs(path, what)
    return any(old[name] != new[name] for name in old.keys() & new.keys())


def _output_differs(path: str, what: str) -> TableForeignError:
    """Return the error for a table that an earlier output of the same name has left."""
    error = TableForeignError.__new__(TableForeignError)
    OperatingError.__init__(error, f"{path} has {what}; rename the output", path=path, found=what)
    return error


def _require_all(path: str, adds: Iterable[AddFile], snapshot: Snapshot) -> None:
    """Raise `InvariantError` if files do not have as many records as a table has live ones."""
    rows = sum(add.rows for add in adds)
    if rows != (read := sum(add.rows - add.dead for add in snapshot.live.values())):
        message = f"{path}: {rows} records were written instead of {read}"
        raise InvariantError(message, table=path)


def _change(
    declared: DeclaredTable, adds: Iterable[AddFile], drops: Iterable[str], **more: Any
) -> TableChange:
    bodies = tuple(add.to_json() for add in adds)
    return TableChange(declared.name, bodies, tuple(sorted(drops)), **more)


def _output_schema(declared: DeclaredTable) -> pa.Schema:
    schema = arrow_schema(Schema(declared.schema.fields))
    return schema.append(pa.field(EPOCH[0], pa.int64()))


def _by_bucket(piece: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut records of an old bucket, which are sorted by hash, at the borders of new buckets."""
    hashes = piece.column(HASH[0]).to_numpy().view(np.uint64)
    places = (hashes >> np.uint64(bucket_shift(buckets))).astype(np.int64)
    cuts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield int(places[start]), piece.slice(start, stop - start)


def _closed(files: RunFiles | None) -> Sequence[WrittenRun]:
    if files is None:
        return ()
    files.close()
    return files.done
