"""A table that an earlier version of its stage made, brought to what the stage declares now.

    rewritten   writes files that nobody sees, and says how the table changes   (prepare)
    altered     one log entry: columns, settings and files at once              (redo)

What a table needs is found by comparing it with its declaration, so nothing about the old
version has to be known:

- *state* whose columns or number of buckets differ is written anew. Buckets are the high
  bits of the hash and files lie by the hash, so doubling cuts each bucket in two, halving
  puts neighbours together, and every record is read and written once, in order;
- an *output* that got columns keeps its files, since readers take a missing column as
  null; one whose types grew is written anew, file by file: not every reader can widen;
- a table that begins anew loses its files in the same entry.

Bounded by memory for one piece of a bucket, not by the size of the table. Not parallel yet:
the driver writes, one table after the other.

Guaranteed (tests/cbp/engine/test_rewrite.py): the records are the same, and an entry that
was put stands once, however often it is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.conform import conform
from cbp.engine.declared import EPOCH, HASH, DeclaredTable
from cbp.engine.delta.actions import AddFile, Metadata, RemoveFile
from cbp.engine.delta.columns import schema_string
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.faults import Faults
from cbp.engine.layout import bucket_shift, rewritten_file
from cbp.engine.publication import live_files
from cbp.engine.runfiles import RunFiles
from cbp.engine.sink import ParquetSink, sync_files
from cbp.engine.state.bucket import BucketState, StateTable
from cbp.engine.state.compaction import live_records
from cbp.engine.state.index import IndexCache
from cbp.engine.tiers import in_order
from cbp.errors import InvariantError, TableForeignError
from cbp.model.intention import TableChange
from cbp.model.schema import Schema

__all__ = ["Rewriter", "alter"]

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Writes the files of altered tables.

    Attributes:
        epoch: The stage's next epoch: what a crash leaves is collected once that is published.
        run: Unique id of the attempt; names its files.
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
        """Return how a table has to change; its new files are durable then.

        Args:
            table: Everything that is recorded is published.
            declared: What it is to be.
            anew: It begins empty.

        Returns:
            `None` where nothing differs and nothing goes.
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
        done: list[Mapping[str, Any]] = []
        for number in sorted(old.live):
            state = BucketState(old, self.cache, (number,))
            read += sum(file.rows - file.dead for file in state.files)
            for piece in live_records(state):
                for to, part in _by_bucket(conform(piece, schema), declared.buckets):
                    if to != bucket:
                        done += _closed(files)
                        bucket, files = to, self._run_files(old, declared, to, written)
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
                file["path"],
                {"_bucket": str(file["bucket"])},
                file["size"],
                file["rows"],
                self.now_ms,
            )

    def _run_files(
        self, old: StateTable, declared: DeclaredTable, bucket: int, written: list[str]
    ) -> RunFiles:
        return RunFiles(
            old,
            state=declared.name,
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
            source = pq.ParquetFile(f"{table.path}/{file.path}")
            for batch in source.iter_batches(_BATCH_ROWS, use_threads=False):
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
        table: To be altered.
        declared: What it is to be.
        change: As `Rewriter.rewritten` said.
        app_id: Names this change of this table, once and for all.
        epoch: The stage's next; the entry says that the one before is published.
        cause: Stands in the table's history.
        timestamp_ms: In-commit timestamp.

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
    """Tell whether a table is not what its stage declares."""
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
    """Tell whether a column of an output that is there already has another type now.

    Raises:
        TableForeignError: If one is gone: the table is of a stage that had this name once.
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
    """Cut records, ascending by hash within an old bucket, at the borders of the new ones."""
    hashes = piece.column(HASH[0]).to_numpy().view(np.uint64)
    places = (hashes >> np.uint64(bucket_shift(buckets))).astype(np.int64)
    cuts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield int(places[start]), piece.slice(start, stop - start)


def _closed(files: RunFiles | None) -> Sequence[Mapping[str, Any]]:
    if files is None:
        return ()
    files.close()
    return files.done
