"""Readers of tables, one for each role of `cbp.engine.interface`; none of them writes.

Each reads the tables as of their newest log entry, unless a version is named.

`version_at` and `version_showing` find which version of a table shows a time or an epoch. In-commit
timestamps rise with the versions, and so do the epochs that they show, within a generation of the
dataflow. So a version is found by bisection, which reads few entries of a long log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cbp.engine.commit import table_entries
from cbp.engine.commit.garbage_collection import paths_of
from cbp.engine.delta.log import DeltaLog, Snapshot, written_by
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.interface.readers import Contents
from cbp.engine.read.contents import listed_contents, output_contents, state_contents
from cbp.engine.read.increments import located, read_columns, read_records, recalled
from cbp.engine.read.lookup import look_up, read_state_rows
from cbp.engine.read.pages import PageReader
from cbp.engine.run.framing import frame_increment
from cbp.engine.run.set_aside import read_set_aside
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import set_aside_table, stage_tables, state_table
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.set_aside import SET_ASIDE_COMPARED
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from cbp.model.flow.skew import BucketSize
from cbp.model.flow.snapshot import TableVersion
from cbp.model.run.intention import Intention, TableChange
from cbp.model.verification import Comparison


def version_at(table: ManagedTable, name: str, at_ms: int | None) -> TableVersion:
    """Return the newest version of a table as of a time; `NotFoundError` if none is that old."""
    log, snapshot = table.log, table.refresh()
    if at_ms is None or snapshot.in_commit_timestamp <= at_ms:
        return TableVersion(snapshot.version, _shown(snapshot), snapshot.in_commit_timestamp)
    versions = log.readable()
    at = bisect_right(versions, at_ms, key=log.stamp)
    if at == 0:
        hint = f"the oldest readable one is from {_moment(log.stamp(versions[0]))}"
        raise NotFoundError(kind="version", name=f"{name} as of {_moment(at_ms)}", hint=hint)
    return _described(log, versions, at - 1)


def version_showing(
    table: ManagedTable, name: str, dataflow: str, epoch: int, generation: int
) -> TableVersion | None:
    """Return the oldest readable version that shows an epoch; `None` if none shows it yet."""
    table.refresh()
    application = table_entries.app_id(dataflow, name, table_entries.RECORDS, generation)
    if table.snapshot.txns.get(application, -1) < epoch:
        return None
    log = table.log
    versions = log.readable()
    at = bisect_right(versions, epoch - 1, key=lambda v: _epoch(log, v, application))
    return _described(log, versions, at)


def _moment(at_ms: int) -> str:
    """Return a time in the form that commands and routes accept."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _described(log: DeltaLog, versions: list[int], at: int) -> TableVersion:
    version = versions[at]
    behind = log.stamp(versions[at + 1]) if at + 1 < len(versions) else None
    return TableVersion(version, _shown(log.snapshot(version)), log.stamp(version), behind)


def _shown(snapshot: Snapshot) -> int:
    return table_entries.shown_epoch(snapshot.txns, table_entries.shown_generation(snapshot.txns))


def _epoch(log: DeltaLog, version: int, application: str) -> int:
    """Return the last epoch that a version shows; -1 if none.

    An entry without an epoch (a compaction, a repair) shows the epoch of the version before.
    """
    for before in range(version, -1, -1):
        try:
            written = written_by(log.entry(before), application)
        except NotFoundError:
            return log.snapshot(before + 1).txns.get(application, -1)
        if written is not None:
            return written
    return -1


@dataclass
class IncrementTables:
    """Reads increments from output tables; implements `IncrementReader`."""

    tables: OpenTables
    limits: EngineLimits

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return records of increments, in order; old increments are read from their tables."""
        live_of = self.tables.live_output
        return read_records(
            folder, increments, offset=offset, limit=limit, live_of=live_of, limits=self.limits
        )

    def batches(
        self, folder: str, increment: Increment, schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of an increment as columns; see `IncrementReader.batches`."""
        live_of = self.tables.live_output
        return read_columns(folder, increment, schema, live_of=live_of, limits=self.limits)

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Return an old increment from its table; see `IncrementReader.recall`."""
        increment = Increment(flow, index, index)
        return recalled(folder, increment, self.tables.live_output(folder, increment))

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments with the files that hold them now; see `IncrementReader.locate`."""
        live = self.tables.output(folder, flow).live.values()
        return located(folder, flow, increments, tuple(live))

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment that retention kept; see `IncrementReader.horizon`."""
        return table_entries.horizon(self.tables.output(folder, flow, version=version).txns)

    def frame(
        self,
        folder: str,
        stage: str,
        spec: InputSpec,
        increment: Increment,
        memo: Any,
        set_aside_max: int | None = None,
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment; see `IncrementReader.frame`."""
        return frame_increment(
            folder, increment, spec, memo, stage=stage, set_aside_max=set_aside_max
        )


@dataclass
class RecordTables:
    """Reads records of tables; implements `RecordReader`."""

    tables: OpenTables
    cache: str
    hash_mask: int
    limits: EngineLimits

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published records of one key."""
        table = self.tables.state(folder, node, state)
        cache = index_cache(self.cache, self.limits)
        return look_up(table, node, state, key, cache, hash_mask=self.hash_mask)

    def state_size(self, folder: str, node: StageNode, state: str) -> dict[int, BucketSize]:
        """Return the size of each bucket that has files; see `RecordReader.state_size`."""
        return {
            bucket: BucketSize(
                rows=sum(file.rows - file.dead for file in files),
                dead=sum(file.dead for file in files),
                bytes=sum(file.size for file in files),
                files=len(files),
            )
            for bucket, files in self.tables.state(folder, node, state).live.items()
        }

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published record of a state."""
        table, cache = self.tables.state(folder, node, state), index_cache(self.cache, self.limits)
        return read_state_rows(table, node, state, cache)

    def set_aside(self, folder: str, node: StageNode) -> list[dict[str, Any]]:
        """Return the records that a stage has set aside; see `RecordReader.set_aside`."""
        table = self.tables.table(f"{folder}/{set_aside_table(node.name)}")
        return read_set_aside(table.path, table.refresh().live.values())

    def versions(self, folder: str, node: StageNode) -> PageReader:
        """Return a reader of a stage's tables as of a version; see `RecordReader.versions`."""
        cache = index_cache(self.cache, self.limits)
        return PageReader(self.tables.table, folder, node, cache, hash_mask=self.hash_mask)


@dataclass
class HistoryReader:
    """Finds versions in the logs of tables; implements `TableHistory`."""

    tables: OpenTables

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> dict[str, TableVersion]:
        """Return the newest versions of a stage's tables as of a time; see `TableHistory.shown`."""
        return {
            name: version_at(self.tables.table(f"{folder}/{name}"), name, at_ms)
            for name in stage_tables(node)
        }

    def shown_by(self, folder: str, node: StageNode, state: str, version: int) -> int | None:
        """Return the last epoch that a version of a state shows; see `TableHistory.shown_by`."""
        log = self.tables.table(f"{folder}/{state_table(node.name, state)}").log
        if version not in log.readable():
            return None
        return _shown(log.snapshot(version))

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> dict[str, TableVersion]:
        """Return the oldest versions that show an epoch; see `TableHistory.first_shown`."""
        tables = {name: self.tables.table(f"{folder}/{name}") for name in stage_tables(node)}
        shown = {n: version_showing(t, n, dataflow, epoch, generation) for n, t in tables.items()}
        return {name: version for name, version in shown.items() if version is not None}


@dataclass
class WholeTables:
    """Reads whole tables; implements `VerificationReader`."""

    tables: OpenTables
    files: Files
    cache: str
    limits: EngineLimits

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        """Copy the records of versions of tables; see `VerificationReader.take_over`."""
        return tuple(
            self._copied(folder, name, version, records, into) for name, version in tables.items()
        )

    def _copied(
        self, folder: str, table: str, version: int, records: Sequence[Intention], into: str
    ) -> TableChange:
        """Copy a table's files: garbage collection knows nothing about recomputations."""
        snapshot, files = self.tables.table(f"{folder}/{table}").log.snapshot(version), self.files
        live, vectors = dict(snapshot.live), None
        if records:
            live, vectors = table_entries.live_at(folder, table, snapshot, records, files=files)
        if vectors is not None:
            vectors.write(f"{into}/{table}", files)
        for name in sorted(paths_of(live.values())):
            source, target = f"{folder}/{table}/{name}", f"{into}/{table}/{name}"
            if files.exists(target):
                continue  # the vectors that were just written
            if not files.exists(source):
                raise NotFoundError(kind="file", name=source)
            files.write_durable(target, files.read(source))
        return TableChange(table, adds=tuple(add.to_json() for add in live.values()))

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> Contents:
        """Return the records of one table as of a version; see `VerificationReader.contents`."""
        table = self.tables.table(f"{folder}/{comparison.table}")
        snapshot = table.refresh() if version is None else table.log.snapshot(version)
        if comparison.kind == "set_aside":
            rows = read_set_aside(table.path, snapshot.live.values())
            names = SET_ASIDE_COMPARED.names
            return listed_contents([[tuple(row[name] for name in names) for row in rows]])
        if comparison.kind == "state":
            schema = node.translator.state(comparison.name).schema
            live = table_entries.live_files(snapshot, comparison.table, ())
            files, cache = StateTable(table.path, snapshot.metadata.id, live), self.cache
            return state_contents(files, schema, node.buckets, index_cache(cache, self.limits))
        schema = node.translator.output(comparison.name).schema
        return output_contents(table.path, schema, tuple(snapshot.live.values()), self.limits)
