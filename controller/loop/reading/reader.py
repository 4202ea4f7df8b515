"""Reader of published data: records of a flow and of a state page by page, and state by key.

A flow's cursor is `<increment>.<offset>`. It stays valid while the increment exists. New
increments come after it, so a reader can follow a flow. Without a cursor, reading begins at the
oldest increment that retention has left. A cursor whose increment retention removed is refused, so
no reader misses records without notice.

A read *as of* an epoch or a time uses the table versions of one snapshot
(`controller.loop.reading.snapshots`), so reads of several tables agree. Pages of a state do the
same; by default they use the newest snapshot. Their cursor is `v<version>.<place>`: it carries
the version, so later publications are not seen.

Invariants: pages of any size, put together, are the flow
(tests/controller/loop/reading/test_reading.py), or the table of one version
(tests/controller/loop/reading/test_consistent_reads.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cbp.engine.interface.readers import IncrementReader, KeyChanges, Place, RecordReader
from cbp.engine.read.key_history import having
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import DefinitionError, IncrementCollectedError, Mistake, NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from controller.loop.reading.flow_increments import (
    INCREMENTS_MAX,
    FlowIncrements,
    Results,
    cursor_numbers,
)
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\Z")
_BEHIND = re.compile(r"h([0-9]{1,18})\Z")
_PLACE = re.compile(r"v([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})\Z")

_Page = tuple[list[dict[str, Any]], str | None]


@dataclass(frozen=True, slots=True)
class AsOf:
    """Which snapshot to read; without a value, the newest. Fields as in `Snapshots.take`."""

    epoch: int | None = None
    stage: str | None = None
    at_ms: int | None = None


@dataclass(kw_only=True, eq=False)
class Reader(DataflowPart):
    """Reads tables through the engine; sees published epochs only."""

    records: RecordReader
    increments: IncrementReader
    snapshots: Snapshots

    def __post_init__(self) -> None:
        self._flows = FlowIncrements(self.store, self.increments)
        self.results = Results(self.catalog, self._flows)

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int, as_of: AsOf | None = None
    ) -> _Page:
        """Return at most `limit` records of a flow and the cursor of the next page.

        Args:
            flow: `source` or `stage.output`.
            as_of: Read the flow of a stage as a snapshot shows it; `None` means to follow the flow.

        Raises:
            NotFoundError: If there is no such flow, or snapshot.
            IncrementCollectedError: If retention removed the increment that the cursor names.
            VersionGoneError: If the snapshot of the request, or of the first page, is no longer
                kept.
            DefinitionError: Rule `cursor_invalid`, or `source_unversioned`.
        """
        record, compiled = self.catalog.find(dataflow)
        if flow not in compiled.flows():
            raise NotFoundError(kind="flow", name=f"{dataflow}/{flow}")
        if as_of is not None or (cursor is not None and _PLACE.match(cursor)):
            if flow in compiled.sources:
                message = "a source has no epochs; give the flow of a stage, as `stage.output`"
                raise DefinitionError(Mistake("source_unversioned", flow, message))
            stage, _, output = flow.partition(".")
            version, place = self._begin(dataflow, flow_table(stage, output), cursor, as_of)
            reader = self.records.versions(record.folder, compiled.stages[stage])
            return _paged(version, *reader.output_page(output, version, place, limit))
        bounds = self._flows.bounds(record, compiled, flow)
        first, offset = (bounds.start, 0) if cursor is None else cursor_numbers(_CURSOR, cursor)
        if first < bounds.start:
            raise IncrementCollectedError(flow, first, bounds.start)
        last = min(bounds.stop, first + INCREMENTS_MAX)
        indexes = range(first, last)
        page, behind = self._flows.page(record, flow, indexes, offset, limit)
        if behind is None and last < bounds.stop:
            behind = last, 0
        return page, None if behind is None else "{}.{}".format(*behind)

    def read_increment(
        self, dataflow: str, flow: str, index: int, offset: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of one increment, and the next offset; raises `IncrementCollectedError`."""
        record, compiled = self.catalog.find(dataflow)
        bounds = self._flows.bounds(record, compiled, flow)
        if index < bounds.start:
            raise IncrementCollectedError(flow, index, bounds.start)
        if index >= bounds.stop:
            raise NotFoundError(kind="increment", name=f"{flow}/{index}")
        page, behind = self._flows.page(record, flow, [index], offset, limit)
        return page, None if behind is None else behind[1]

    def look_up(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        as_of: AsOf | None = None,
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none.

        Args:
            key: Every key column of the state, with values of the columns' types.

        Raises:
            NotFoundError: If there is no such dataflow, stage, state or snapshot.
            VersionGoneError: If the snapshot's files are no longer kept.
            VersionUnreadableError: If the stage was changed since the snapshot.
            CodeDriftedError: If the installed code has other key columns for it.
            DefinitionError: Rule `key_invalid`, naming the key's columns.
        """
        record, node = self._state(dataflow, stage, state, key)
        if as_of is None:
            return self.records.look_up(record.folder, node, state, key)
        version, _ = self._begin(dataflow, state_table(stage, state), None, as_of)
        return self.records.versions(record.folder, node).look_up(state, key, version)

    def page_key(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        cursor: str | None,
        limit: int,
        as_of: AsOf | None = None,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> _Page:
        """Return at most `limit` records of one key of a state, and the cursor of the next page.

        All pages are of one version of the table. Each page reads all records of the key.

        Args:
            among: Values of further columns; only records of the key with these values count.

        Raises as `look_up`, and `DefinitionError` of rule `cursor_invalid`.
        """
        if cursor is None and as_of is None:
            records = having(self.look_up(dataflow, stage, state, key), among)
            if len(records) <= limit:
                return records, None
        record, node = self._state(dataflow, stage, state, key)
        version, place = self._begin(dataflow, state_table(stage, state), cursor, as_of)
        every = self.records.versions(record.folder, node).look_up(state, key, version)
        records, stop = having(every, among), place[1] + limit
        return _paged(version, records[place[1] : stop], (0, stop) if stop < len(records) else None)

    def history(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        cursor: str | None,
        limit: int,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[KeyChanges, str | None]:
        """Return the epochs that changed the records of one key, newest first, and a cursor.

        Reaches back as far as versions of the table are kept. With `among`, only records with
        these values in further columns count.

        Raises as `look_up`, and `DefinitionError` of rule `cursor_invalid`.
        """
        record, node = self._state(dataflow, stage, state, key)
        behind = None if cursor is None else cursor_numbers(_BEHIND, cursor)[0]
        reader = self.records.versions(record.folder, node)
        made = reader.key_changes(state, key, behind=behind, limit=limit, among=among)
        return made, f"h{made.behind}" if made.ends == "more" else None

    def page_state(
        self,
        dataflow: str,
        stage: str,
        state: str,
        cursor: str | None,
        limit: int,
        as_of: AsOf | None = None,
    ) -> _Page:
        """Return at most `limit` records of a state and the cursor of the next page.

        Raises as `look_up`, and `DefinitionError` of rule `cursor_invalid`.
        """
        record, node = self._state(dataflow, stage, state)
        version, place = self._begin(dataflow, state_table(stage, state), cursor, as_of)
        reader = self.records.versions(record.folder, node)
        return _paged(version, *reader.state_page(state, version, place, limit))

    def _begin(
        self, dataflow: str, table: str, cursor: str | None, as_of: AsOf | None
    ) -> tuple[int, Place]:
        """Return the version of a table and the place to read: a cursor's, or a snapshot's."""
        if cursor is not None:
            version, *place = cursor_numbers(_PLACE, cursor)
            return version, (place[0], place[1])
        asked = as_of or AsOf()
        snapshot = self.snapshots.take(
            dataflow, epoch=asked.epoch, stage=asked.stage, at_ms=asked.at_ms
        )
        return snapshot.tables[table].version, (0, 0)

    def set_aside(self, dataflow: str, stage: str) -> list[dict[str, Any]]:
        """Return the records that a stage has set aside; see `RecordReader.set_aside`."""
        record, node = self.catalog.stage(dataflow, stage)
        return self.records.set_aside(record.folder, node) if node.sets_aside else []

    def read_state(self, dataflow: str, stage: str, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; raises as `look_up`."""
        record, node = self._state(dataflow, stage, state)
        return self.records.read_state(record.folder, node, state)

    def _state(
        self, dataflow: str, stage: str, state: str, key: Mapping[str, Any] | None = None
    ) -> tuple[DataflowRecord, StageNode]:
        record, node = self.catalog.stage(dataflow, stage)
        self.catalog.require_same_tables(record)
        if all(spec.name != state for spec in node.translator.states):
            raise NotFoundError(kind="state", name=f"{dataflow}/{stage}.{state}")
        if key is not None:
            _require_key(node, state, key)
        return record, node


def _require_key(node: StageNode, state: str, key: Mapping[str, Any]) -> None:
    columns = node.translator.key_of(node.translator.state(state))
    if set(key) != set(columns.names):
        message = f"expected the columns ({columns}), got ({', '.join(key)})"
        raise DefinitionError(Mistake("key_invalid", f"stages.{node.name}.{state}", message))


def _paged(version: int, rows: list[dict[str, Any]], behind: Place | None) -> _Page:
    return rows, None if behind is None else f"v{version}.{behind[0]}.{behind[1]}"
