"""Table migration: bring a table of an earlier stage version to what the stage declares now.

    rewritten   writes files that are not in the log yet, returns the change    (prepare)
    alter       one log entry: columns, settings and files at once              (redo)

The change is found by comparing the table with its declaration, so nothing about the old version
has to be known:

- *state* whose columns or number of buckets differ is rewritten. Buckets are the high bits of
  the hash, and files are sorted by the hash. So doubling cuts each bucket in two, halving joins
  neighbors, and every record is read and written once, in order.
- An *output* that got columns keeps its files, since readers take a missing column as null. An
  output whose types were widened is rewritten, file by file: not every reader can widen.
- A table that begins anew loses its files in the same entry.

Memory: one piece of a bucket, whatever the size of the table. Not parallel yet: the driver writes
one table after the other.

Guaranteed (tests/cbp/engine/outputs/test_table_migration.py): the records are the same, and an
entry is put once, however often that is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.key_hash import bucket_shift
from cbp.engine.commit.table_entries import live_files
from cbp.engine.delta.actions import AddFile, Metadata, RemoveFile
from cbp.engine.delta.columns import schema_string
from cbp.engine.delta.live_records import read_batches
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.outputs.compaction import in_order
from cbp.engine.outputs.table_specs import EPOCH, HASH, DeclaredTable
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.compaction import live_records
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.run_files import RunFiles, WrittenRun
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import rewritten_file
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.errors import InvariantError, TableForeignError
from cbp.model.flow.schema import Schema
from cbp.model.run.intention import TableChange

__all__ = ["Rewriter", "alter"]


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Writes the files of altered tables.

    Attributes:
        epoch: The stage's next epoch. Once it is published, files that a crash left are collected.
        run: Unique id of the attempt; part of the file names.
        cache: Gets the index copies of new state files.
    """

    epoch: int
    run: str
    now_ms: int
    cache: IndexCache
    faults: Faults

    def rewritten(
        self, table: ManagedTable, declared: DeclaredTable, *, anew: bool
    ) -> TableChange | None:
        """Write the new files of a table, make them durable, and return how the table changes.

        Args:
            table: The table; all its recorded runs must be published.
            declared: What the table is to be.
            anew: Whether the table begins empty.

        Returns:
            The change; `None` if nothing differs and no file is dropped.
        """
        snapshot = table.refresh()
        if anew:
            gone = tuple(sorted(snapshot.live))
            same = not _differs(snapshot.metadata, declared)
            return None if same and not gone else TableChange(declared.name, drops=gone)
        if not _differs(snapshot.metadata, declared):
            return None
        if declared.is_state:
            adds = list(self._state(table, snapshot, declared))
        elif _types_grew(table.path, snapshot.metadata, declared):
            adds = list(self._output(table, snapshot, declared))
        else:
            return TableChange(declared.name, data_change=False)
        drops = tuple(sorted(snapshot.live))
        return TableChange(
            declared.name, tuple(add.to_json() for add in adds), drops, data_change=False
        )

    def _state(
        self, table: ManagedTable, snapshot: Snapshot, declared: DeclaredTable
    ) -> Iterator[AddFile]:
        schema = _state_schema(declared.schema)
        old = StateTable(table.path, snapshot.metadata.id, live_files(snapshot, declared.name, ()))
        written: list[str] = []
        files: RunFiles | None = None
        bucket, read, rows = -1, 0, 0
        done: list[WrittenRun] = []
        for number in sorted(old.live):
            state = BucketState(old, self.cache, (number,))
            read += sum(file.rows - file.dead for file in state.files)
            for piece in live_records(state):
                for to, part in _by_bucket(conform(piece, schema), declared.buckets):
                    if to != bucket:
                        done += _closed(files)
                        bucket, files = to, self._run_files(old, to, written)
                    assert files is not None
                    files.add(part)
                    rows += part.num_rows
        done += _closed(files)
        if rows != read:
            message = f"{table.path}: {rows} of {read} live records were rewritten"
            raise InvariantError(message, table=table.path)
        sync_files(written, faults=self.faults)
        for file in done:
            yield AddFile(
                file.path,
                {"_bucket": str(file.bucket)},
                file.size,
                file.rows,
                self.now_ms,
            )

    def _run_files(self, old: StateTable, bucket: int, written: list[str]) -> RunFiles:
        return RunFiles(
            old,
            bucket=bucket,
            epoch=self.epoch,
            run=f"{self.run}-change",
            cache=self.cache,
            written=written,
            faults=self.faults,
        )

    def _output(
        self, table: ManagedTable, snapshot: Snapshot, declared: DeclaredTable
    ) -> Iterator[AddFile]:
        schema = arrow_schema(Schema(declared.schema.fields))
        schema = schema.append(pa.field(EPOCH[0], pa.int64()))
        made: list[AddFile] = []
        for number, file in enumerate(in_order(snapshot.live.values())):
            path = rewritten_file(self.epoch, number, self.run)
            sink = ParquetSink(f"{table.path}/{path}", schema, faults=self.faults)
            for batch in read_batches(f"{table.path}/{file.path}"):
                try:
                    sink.write(conform(pa.Table.from_batches([batch]), schema))
                except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as exc:
                    what = f"records that do not fit its columns now ({exc}): rename the output"
                    raise TableForeignError(table.path, what) from exc
            done = sink.close()
            if done is None or done.rows != file.rows:
                message = f"{table.path}/{file.path} has not the {file.rows} records it had"
                raise InvariantError(message, path=file.path)
            new = replace(file, path=path, size=done.bytes, modified_ms=self.now_ms)
            made.append(new)
        sync_files([f"{table.path}/{file.path}" for file in made], faults=self.faults)
        yield from made


def alter(
    table: ManagedTable,
    declared: DeclaredTable,
    change: TableChange,
    *,
    app_id: str,
    epoch: int,
    cause: str,
    timestamp_ms: int,
) -> int:
    """Put the one entry that makes a table what its stage declares; idempotent redo.

    Args:
        table: The table to alter.
        declared: What the table is to be.
        change: The result of `Rewriter.rewritten`.
        app_id: Application id of this change; unique to this table and version.
        epoch: The stage's next epoch; the entry says that the one before is published.
        cause: Shown in the table's history.
        timestamp_ms: In-commit timestamp, in milliseconds since 1970.

    Returns:
        The version that shows the change.
    """
    snapshot = table.refresh()
    data_change = bool(change.drops) and not change.adds
    removes = [
        RemoveFile.of(snapshot.live[path], deletion_ms=timestamp_ms, data_change=data_change)
        for path in change.drops
        if path in snapshot.live
    ]
    adds = [replace(AddFile.from_json(add), data_change=data_change) for add in change.adds]
    return table.publish(
        adds=adds,
        removes=removes,
        metadata=_metadata(snapshot.metadata, declared),
        app_id=app_id,
        version=max(epoch - 1, 0),
        intention_id=cause,
        timestamp_ms=timestamp_ms,
        operation="CBP CHANGE",
    )


def _differs(found: Metadata, declared: DeclaredTable) -> bool:
    """Tell whether a table differs from what its stage declares."""
    wanted = _metadata(found, declared)
    same = json.loads(found.schema) == json.loads(wanted.schema)
    return not (same and dict(found.configuration) == dict(wanted.configuration))


def _metadata(found: Metadata, declared: DeclaredTable) -> Metadata:
    return replace(
        found,
        schema=schema_string(declared.schema, extra=declared.extra),
        configuration={**found.configuration, **declared.configuration},
    )


def _types_grew(path: str, found: Metadata, declared: DeclaredTable) -> bool:
    """Tell whether an existing column of an output has another type now.

    Raises:
        TableForeignError: If a column is gone: the table is from another stage of this name.
    """
    new = {f["name"]: f["type"] for f in json.loads(_metadata(found, declared).schema)["fields"]}
    old = {f["name"]: f["type"] for f in json.loads(found.schema)["fields"]}
    if lost := sorted(old.keys() - new.keys()):
        what = f"increments with {', '.join(lost)}, which the output does not have: rename it"
        raise TableForeignError(path, what)
    return any(old[name] != new[name] for name in old.keys() & new.keys())


def _state_schema(schema: Schema) -> pa.Schema:
    wide = arrow_schema(schema, wide=True)
    return wide.append(pa.field(HASH[0], pa.int64()))


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
