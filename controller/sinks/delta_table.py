"""Targets that are Delta tables: all increments of a flow appended, or a view mirrored.

    appended   the flow's columns, and `_increment` and `_generation` of each record
    mirrored   exactly the view's current records: its changes are merged by its key

A commit has a transaction of this sink (Delta's `txn` action): its version is the increment. An
increment whose transaction is in the table is not committed again. A commit is made against the
version that was read, or not at all, so one of two concurrent writers is refused.

A mirror can be replaced completely, in one commit, by the current view: when it begins, after a
roll-back, and when its stage began again. Each replacement gives its transactions a new name. A
table with more new commits of this sink than a crash can leave is refused.

Commits of other writers are found by the log entries after the version that this sink wrote last.
Those that only rewrite the layout of files (OPTIMIZE, VACUUM) are accepted.

Guaranteed: a commit is on the disk before the note names it. Not guaranteed: that a loss of power
in the middle of a commit leaves a table that can be read; delta-rs does not sync files.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from cbp.errors import DiskFullError
from cbp.model.flow.generation import Generation
from cbp.model.flow.signed_changes import CHANGE_TYPE
from controller.sinks.errors import SinkForeignError, SinkTargetError, target_errors
from controller.sinks.increment_files import is_stale
from controller.sinks.notes import SinkNote
from controller.sinks.target import FolderTarget, Shipment

INCREMENT, GENERATION = "_increment", "_generation"
LOG = "_delta_log"
_INDEX_BITS = 40
_LAYOUT = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
_OURS = "this sink"
_TEXT_MAX = 500


@dataclass(frozen=True, slots=True)
class _DeltaTarget(FolderTarget):
    """The common part of both kinds.

    `choice` is the operator's choice; each of `accepting` accepts commits of other writers.
    """

    accepting: ClassVar[tuple[str, ...]] = ("keep",)

    choice: str

    def claim(self, note: SinkNote) -> SinkNote:
        """Make the table, or check that it belongs to this sink; see `Target`."""
        self.require_root()
        if not self.files.list_names(f"{self.folder}/{LOG}"):
            return self._make(note)
        with _delta_errors(self.folder):
            table = DeltaTable(self.folder)
        if table.metadata().description != self._owner(note):
            why = "the table belongs to another sink, or to a removed sink of this name"
            raise SinkForeignError(self.folder, f"{why}; give the sink another path")
        return self._seen(replace(note, claimed=True), table.version())

    def _make(self, note: SinkNote) -> SinkNote:
        if note.claimed:
            why = "the table no longer exists; restore it, or give the sink another path"
            raise SinkTargetError(self.folder, why)
        self.require_empty(LOG)
        self.faults("sink_table.before")
        with _delta_errors(self.folder):
            table = DeltaTable.create(
                self.folder, self.schema, mode="error", description=self._owner(note)
            )
        self._sync(0)
        self.faults("sink_table.after")
        return replace(note, claimed=True, version=table.version())

    def _seen(self, note: SinkNote, version: int) -> SinkNote:
        """Return the note as of a version; refuse commits that the sink did not make."""
        ours = 0
        for number in range(note.version + 1, version + 1):
            operation = self._writer(note, number)
            ours += operation == _OURS
            if operation == _OURS:
                self._sync(number)  # a crash may have come before
            elif operation not in _LAYOUT:
                self._refuse(f"version {number} was written by {operation}, not by this sink")
        if ours > 1:  # a crash leaves one at most
            self._refuse(
                f"the table has {ours} commits of this sink that the dataflow does not know, for "
                "example because a backup was restored"
            )
            note = replace(note, replacement=uuid.uuid4().hex)
        return replace(note, version=version)

    def _refuse(self, why: str) -> None:
        if self.choice not in self.accepting:
            choices = " or ".join(f"--{one}" for one in self.accepting)
            command = f"cbp sinks resume {self.dataflow} {self.sink}"
            why = f"{why}; to continue, run `{command}` with {choices}"
            raise SinkForeignError(self.folder, why)

    def _writer(self, note: SinkNote, version: int) -> str:
        """Return the operation by which something else wrote a version, or `_OURS`."""
        operation = "an unknown writer"
        for action in self._actions(version):
            if str(action.get("txn", {}).get("appId", "")).startswith(_app(note, "")):
                return _OURS
            info = action.get("commitInfo", {})
            operation = str(info.get("operation", operation))
        return _OURS if version == 0 else operation

    def _actions(self, version: int) -> list[dict[str, Any]]:
        path = f"{self.folder}/{LOG}/{version:020d}.json"
        try:
            with open(path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.strip()]
        except (OSError, ValueError):
            return []

    def _commit(self, note: SinkNote, number: int, write: Callable[..., object]) -> SinkNote:
        """Make one commit with the transaction `number`, unless the table has it already."""
        with _delta_errors(self.folder):
            table = DeltaTable(self.folder)
            app = _app(note, note.replacement)
            before, done = table.version(), table.transaction_version(app)
            if done is None or done < number:
                self.faults("sink_table.before")
                transaction = [Transaction(app, number)]
                write(table, CommitProperties(app_transactions=transaction, max_commit_retries=0))
        after = table.version()
        for version in range(before + 1, after + 1):
            self._sync(version)
        self.faults("sink_table.after")
        return replace(note, version=after)

    def _sync(self, version: int) -> None:
        """Make a version durable: its files, its log entry, and their names."""
        adds = (action["add"]["path"] for action in self._actions(version) if "add" in action)
        paths = [f"{self.folder}/{path}" for path in adds]
        paths.append(f"{self.folder}/{LOG}/{version:020d}.json")
        with target_errors(self.folder):
            for path in paths:
                if os.path.exists(path):
                    handle = os.open(path, os.O_RDONLY)
                    try:
                        os.fsync(handle)
                    finally:
                        os.close(handle)
        for folder in dict.fromkeys((f"{self.folder}/{LOG}", self.folder)):
            self.files.sync_dir(folder)

    def _owner(self, note: SinkNote) -> str:
        return f"cbp sink {self.dataflow}/{self.sink} {note.token}"


@dataclass(frozen=True, slots=True)
class DeltaAppend(_DeltaTarget):
    """Appends every increment of a flow; see the module header."""

    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Append an increment in one commit; see `Target.publish`."""
        rows = _numbered(batches, self.schema, shipment)

        def append(table: DeltaTable, properties: CommitProperties) -> None:
            reader = pa.RecordBatchReader.from_batches(self.schema, rows)
            write_deltalake(
                table, reader, mode="append", schema_mode="merge", commit_properties=properties
            )

        return self._commit(note, _number(shipment.generation, shipment.index), append)

    def stale(self, note: SinkNote, generations: Sequence[Generation]) -> list[str]:
        """Return `increment I of generation G` for undone increments; see `Target.stale`."""
        runs = self._stale(note, generations)
        return [f"increment {i} of generation {g}" for run in runs for g, i in run]

    def withdraw(self, note: SinkNote, generations: Sequence[Generation], first: int) -> SinkNote:
        """Delete the records of increments that were undone; see `Target.withdraw`."""
        runs = self._stale(note, generations)
        # A term for each of some 20,000 increments would exhaust the stack of delta-rs.
        predicate = " OR ".join(
            f"({GENERATION} = {run[0][0]} AND {INCREMENT} BETWEEN {run[0][1]} AND {run[-1][1]})"
            for run in runs
        )

        def delete(table: DeltaTable, properties: CommitProperties) -> None:
            table.delete(predicate, commit_properties=properties)

        if not runs:
            return note
        return self._commit(note, (generations[-1].number << _INDEX_BITS) + first, delete)

    def _stale(
        self, note: SinkNote, generations: Sequence[Generation]
    ) -> list[list[tuple[int, int]]]:
        """Return undone (generation, increment) pairs, in runs without other increments between."""
        names, known = [GENERATION, INCREMENT], set[tuple[int, int]]()
        with _delta_errors(self.folder):
            rows = DeltaTable(self.folder).to_pyarrow_dataset().to_batches(columns=names)
            for batch in rows:
                pairs = pa.Table.from_batches([batch]).group_by(names).aggregate([])
                known.update((one[GENERATION], one[INCREMENT]) for one in pairs.to_pylist())
        # Rows of another writer, whose commit an operator kept, may have no numbers.
        numbered = sorted(pair for pair in known if None not in pair)

        def of_run(pair: tuple[int, int]) -> tuple[int, bool]:
            return pair[0], is_stale(self.flow, *pair, note.generation, generations)

        return [list(run) for (_, stale), run in groupby(numbered, of_run) if stale]


@dataclass(frozen=True, slots=True)
class DeltaMirror(_DeltaTarget):
    """Holds the records of a view; never stale, since it is replaced completely."""

    accepting: ClassVar[tuple[str, ...]] = ("keep", "rewrite")
    key: tuple[str, ...]

    def fits(self) -> bool:
        """Return whether the table has the view's columns."""
        with _delta_errors(self.folder):
            return DeltaTable(self.folder).schema() == Schema.from_arrow(self.schema)

    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Merge the changes of an increment in one commit; each key has at most one change."""
        source = self.schema.append(pa.field(CHANGE_TYPE, pa.string()))
        rows = (_last(batch, source) for batch in batches)

        def merge(table: DeltaTable, properties: CommitProperties) -> None:
            keys = [_quoted(name) for name in self.key]
            same = (f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in keys)
            values = {_quoted(name): f"s.{_quoted(name)}" for name in self.schema.names}
            merger = table.merge(
                pa.RecordBatchReader.from_batches(source, rows),
                predicate=" AND ".join(same),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            gone = f"s.{CHANGE_TYPE} = 'delete'"
            merger = merger.when_matched_delete(gone).when_matched_update(values)
            there = f"s.{CHANGE_TYPE} != 'delete'"
            merger.when_not_matched_insert(values, predicate=there).execute()

        return self._commit(note, _number(shipment.generation, shipment.index), merge)

    def replace(
        self, note: SinkNote, generation: int, epoch: int, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Replace all records by those of the view as of an epoch, in one commit.

        After a crash it is repeated, with the view at that time. `generation` and `epoch` are the
        position of the records in the view's history; -1 means before the first epoch. The next
        increment of the returned note is the one after the epoch.
        """

        def overwrite(table: DeltaTable, properties: CommitProperties) -> None:
            reader = pa.RecordBatchReader.from_batches(self.schema, iter(batches))
            write_deltalake(
                table,
                reader,
                mode="overwrite",
                schema_mode="overwrite",
                commit_properties=properties,
            )

        anew = replace(note, replacement=uuid.uuid4().hex)
        made = self._commit(anew, _number(generation, epoch), overwrite)
        return replace(made, generation=generation, next=epoch + 1)


def _app(note: SinkNote, replacement: str) -> str:
    return f"cbp-sink-{note.token}-{replacement}"


def _number(generation: int, index: int) -> int:
    """Return the number of a transaction; it rises with the generation, then with the index."""
    return (generation << _INDEX_BITS) + index + 1


def _quoted(name: str) -> str:
    return f"`{name}`"


def _numbered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, shipment: Shipment
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = [
            pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
            for number in (shipment.index, shipment.generation)
        ]
        yield pa.RecordBatch.from_arrays([*batch.columns, *numbers], schema=schema)


def _last(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the net changes of a batch, one per record."""
    left = batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), "update_before"))
    return pa.RecordBatch.from_arrays([left.column(name) for name in schema.names], schema=schema)


@contextmanager
def _delta_errors(folder: str) -> Iterator[None]:
    with target_errors(folder):
        try:
            yield
        except (DeltaError, pa.ArrowException) as error:
            if os.strerror(errno.ENOSPC) in str(error):
                raise DiskFullError(folder) from error
            raise SinkTargetError(folder, str(error)[:_TEXT_MAX]) from error
