"""Pages of one version of a table, and look-ups by key in it, for people and services.

A page begins at a *place*, and returns the place of the next page. In a state, a place is (bucket,
number of the record in the bucket by hash); in an output, it is (number of the file in the order
of the flow, number of the live record in the file). Files never change, and a version names its
files, so a place means the same at any time and in any process. So all pages of a version
together are exactly the table of that version, whatever is published meanwhile.

Guaranteed: memory is bounded by the hashes of one bucket, or a batch of a file, and the records of
the page (tests/cbp/engine/read/test_pages.py,
tests/controller/loop/reading/test_consistent_reads.py).
Not guaranteed: that a version stays; reading one that was collected raises `VersionGoneError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from cbp.engine.commit.garbage_collection import paths_of
from cbp.engine.commit.table_entries import live_files
from cbp.engine.delta.foreign_writer_fence import require_placement
from cbp.engine.delta.live_records import live_batches, page_of
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.interface.readers import KeyChanges, Page, Place
from cbp.engine.outputs.output_compaction import in_order
from cbp.engine.read.key_history import find_changes, having
from cbp.engine.read.lookup import key_bucket, look_up, state_rows
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import (
    FileLostError,
    NotFoundError,
    PlacementDiffersError,
    VersionGoneError,
    VersionUnreadableError,
)
from cbp.model.dataflow.dataflow import StageNode


class PageReader:
    """Reads versions of the tables of one stage; keeps no state between calls."""

    def __init__(
        self,
        table_of: Callable[[str], ManagedTable],
        folder: str,
        node: StageNode,
        cache: IndexCache,
        *,
        hash_mask: int,
    ) -> None:
        self._table_of, self._folder, self._node = table_of, folder, node
        self._cache, self._hash_mask = cache, hash_mask

    def look_up(self, state: str, key: Mapping[str, Any], version: int) -> list[dict[str, Any]]:
        """Return the records of one key as of a version of a state's table."""
        name = state_table(self._node.name, state)
        with self._naming_the_version(name, version):
            table = self._state(name, state, version)
            return look_up(table, self._node, state, key, self._cache, hash_mask=self._hash_mask)

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from a place on, bucket by bucket, by hash."""
        name = state_table(self._node.name, state)
        schema = self._node.translator.state(state).schema
        rows: list[dict[str, Any]] = []
        with self._naming_the_version(name, version):
            table = self._state(name, state, version)
            for number in sorted(number for number in table.live if number >= start[0]):
                at = start[1] if number == start[0] else 0
                if len(rows) >= limit:
                    return rows, (number, 0)
                bucket = BucketState(table, self._cache, (number,))
                matching = bucket.find(None)
                part = matching.part(at, at + limit - len(rows))
                if len(part.hashes):
                    rows += state_rows(bucket.take(part, schema.names), schema)
                at += len(part.hashes)
                if at < len(matching.hashes):
                    return rows, (number, at)
        return rows, None

    def key_changes(
        self,
        state: str,
        key: Mapping[str, Any],
        *,
        behind: int | None,
        limit: int,
        among: Mapping[str, Any] = MappingProxyType({}),
    ) -> KeyChanges:
        """Return the versions that changed one key; see `TableVersions.key_changes`."""

        def records(version: int) -> list[dict[str, Any]]:
            return having(self.look_up(state, key, version), among)

        log = self._table_of(f"{self._folder}/{state_table(self._node.name, state)}").log
        bucket = key_bucket(self._node, state, key, hash_mask=self._hash_mask)
        return find_changes(log, bucket, records, behind=behind, limit=limit)

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from a place on, in the flow's order."""
        name = flow_table(self._node.name, output)
        rows: list[dict[str, Any]] = []
        with self._naming_the_version(name, version):
            files = in_order(self._snapshot(name, version).live.values())
            for number in range(start[0], len(files)):
                file, first = files[number], start[1] if number == start[0] else 0
                table = f"{self._folder}/{name}"
                batches = live_batches(table, file, limits=self._cache.limits)
                part = page_of(batches, first, limit - len(rows))
                rows += part
                if first + len(part) < file.rows - file.dead:
                    return rows, (number, first + len(part))
        return rows, None

    def _state(self, name: str, state: str, version: int) -> StateTable:
        """Return a version's files, sorted so that the order does not depend on the log."""
        snapshot = self._snapshot(name, version)
        path = f"{self._folder}/{name}"
        spec = self._node.translator.state(state)
        key = self._node.translator.key_of(spec).names
        try:
            require_placement(path, snapshot.metadata, buckets=self._node.buckets, key=key)
        except PlacementDiffersError as error:
            why = f"{error.details['setting']} was {error.details['found']} then"
            raise VersionUnreadableError(path, version, why) from error
        there = {field["name"] for field in json.loads(snapshot.metadata.schema)["fields"]}
        if missing := [column for column in spec.schema.names if column not in there]:
            why = f"it does not have the columns {', '.join(missing)}"
            raise VersionUnreadableError(path, version, why)
        live = live_files(snapshot, name, ())
        ordered = {b: tuple(sorted(files, key=lambda f: f.path)) for b, files in live.items()}
        return StateTable(path, snapshot.metadata.id, ordered)

    def _snapshot(self, name: str, version: int) -> Snapshot:
        return self._table_of(f"{self._folder}/{name}").log.snapshot(version)

    @contextmanager
    def _naming_the_version(self, name: str, version: int) -> Iterator[None]:
        """Raise `VersionGoneError` if the version, or a file of it, was collected."""
        try:
            yield
        except (NotFoundError, FileLostError) as error:
            path = f"{self._folder}/{name}"
            if isinstance(error, FileLostError) and self._is_shown(path, error):
                raise
            raise VersionGoneError(path, version) from error

    def _is_shown(self, path: str, error: FileLostError) -> bool:
        """Return whether the newest version needs a file: then the file is lost, not collected."""
        shown = paths_of(self._table_of(path).log.snapshot().live.values())
        return error.details["path"] in {f"{path}/{name}" for name in shown}
